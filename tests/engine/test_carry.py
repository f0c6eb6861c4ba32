"""The loop: addresses, progress, and the totals that are kept."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import homeward as hw
from homeward.core.algebra import Gather, Sum, Tree
from homeward.core.errors import NotSubtractable
from homeward.core.method import Method, Round, Slot, standardised
from homeward.core.model import Linear
from homeward.engine.carry import address, advance, begun, carry, over
from homeward.engine.inprocess import InProcess
from homeward.testing import check_method, toy


@dataclass(frozen=True, eq=False)
class Drawn(Sum):
    numbers: Any


@dataclass(frozen=True)
class Wandering(Method):
    """Stands for a method that trains: a client's state moves by its rng and its rows, and the server adds."""

    rounds: int = 3

    def init(self, task, rng):
        return Tree(mean=rng.uniform(task.dimension), seen=np.float64(0.0))

    def plan(self):
        return [Round("set-up", self.step, self.keep), *[Round("train", self.step, self.keep)] * self.rounds]

    def begin(self, shared, data, rng):
        return Tree(own=rng.uniform(data.task.dimension))

    def step(self, shared, data, state, rng) -> tuple[Drawn, Tree]:
        own = state["own"] + rng.at("noise").uniform(data.task.dimension) + 0.1 * (data.x.mean(axis=0) - shared["mean"])
        return Drawn(own), Tree(own=own)

    def keep(self, server, total, task, rng):
        return Tree(mean=total.numbers / 6, seen=server["seen"] + 1)

    def finished(self, server):
        return bool(server["seen"] >= 10)

    def personalise(self, shared, data, state, rng):
        return {Slot("personal", "R"): Linear(np.outer(state["own"], np.ones(3)), np.zeros(3))}


@dataclass(frozen=True)
class Apart(Wandering):
    """The same, with messages that stay apart."""

    def step(self, shared, data, state, rng) -> tuple[Gather, Tree]:
        message, state = super().step(shared, data, state, rng)
        return Gather.of(Tree(own=message.numbers)), state

    def keep(self, server, total, task, rng):
        assert list(total.ids) == sorted(total.ids)
        return Tree(mean=total.each["own"].mean(axis=0), seen=server["seen"] + 1)


@pytest.mark.parametrize(
    "method", [Wandering(), Apart(), standardised(Wandering())], ids=["sum", "gather", "standardised"]
)
def test_a_method_with_states_draws_and_many_rounds_passes_the_conformance_suite(method):
    check_method(method)


def test_addresses_hold_the_rounds_name_and_its_number_within_that_name():
    method = Wandering()
    assert [address(method, 7, i) for i in range(3)] == [(7, "set-up", 0), (7, "train", 0), (7, "train", 1)]
    assert address(standardised(method), 7, 2) == (7, "train", 0)


def test_progress_keeps_the_totals_of_the_first_rounds_only():
    run = hw.fit(Wandering(), toy(), seed=1)
    assert run.progress.done == 4 and len(run.progress.totals) == 1
    assert len(hw.fit(standardised(Wandering()), toy(), seed=1).progress.totals) == 2


def test_carrying_from_the_middle_is_carrying_on():
    method, federation = Wandering(), toy()
    whole = InProcess(method, federation.clients)
    seen = []
    end = carry(method, federation.task, whole, 1, None, seen.append)
    parts = InProcess(method, federation.clients)
    first = method.plan()[0]
    start = begun(method, federation.task, 1)
    at = advance(
        method, federation.task, 1, start, parts.total(first, method.shared(start.server), address(method, 1, 0))
    )
    again = carry(method, federation.task, parts, 1, at)
    assert [at.done for at in seen] == [1, 2, 3, 4]
    assert np.array_equal(end.server["mean"], again.server["mean"])


def test_a_method_may_finish_before_its_plan():
    method = Wandering(rounds=40)
    run = hw.fit(method, toy(), seed=0)
    assert run.progress.done == 10 and over(method, run.progress) and run.finished


def test_a_method_with_states_is_joined_and_left_by_running_again_from_the_start():
    for method in (Wandering(), Apart()):
        run = hw.fit(method, toy(), seed=2)
        left = run.forget("b")
        fresh = hw.fit(method, toy().without("b"), seed=2)
        x = toy().pooled.x
        assert np.array_equal(left.model("a").decision_function(x), fresh.model("a").decision_function(x))
        back = left.join(toy().only("b"))
        assert np.array_equal(back.model("a").decision_function(x), run.model("a").decision_function(x))


def test_what_stays_apart_is_not_subtracted():
    total = hw.fit(Apart(), toy(), seed=2).progress.totals[0]
    with pytest.raises(NotSubtractable, match="Run the round without that client"):
        _ = total - total
