"""The conformance suite catches what it says it does, and passes what is in the table."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import homeward as hw
from homeward.core.algebra import Sum, Tree
from homeward.core.method import Method, Round, Slot
from homeward.core.model import Linear
from homeward.testing import CHECKS, check_method

SMALL = {"apfl": {"maps": 24}, "masked": {"maps": 24}, "log-prior": {"maps": 24}, "local-ridge": {"maps": 24}}
VARIANTS = [
    *(hw.METHODS[name](**SMALL.get(name, {})) for name in hw.METHODS),
    hw.AFL(ridge="loo", maps=16),
    hw.AFL(ridge="pinv"),
    hw.AFL(ridge=0.1, intercept=False),
    hw.APFL(maps=None),
    hw.APFL(maps=24, joint=True),
    hw.APFL(maps=24, share=True, ridge="loo"),
    hw.APFL(ridge=0.01, gamma=1.0, balance=0.5, intercept=False, maps=24),
    hw.FedHiP(joint=True),
    hw.FedHiP(form="weighted"),
    hw.FedHiP(form="blend"),
    hw.FedHiP(form="blend", joint=True, intercept=False),
    hw.LogPrior(maps=24, tau=0.1),
    hw.standardised(hw.APFL(maps=24)),
    hw.standardised(hw.LogPrior(maps=24)),
]


@pytest.mark.parametrize("method", VARIANTS, ids=str)
@pytest.mark.parametrize("ask", CHECKS.values(), ids=CHECKS)
def test_methods_of_the_table_conform(ask, method):
    ask(method)
    assert ask.__doc__


@dataclass(frozen=True, eq=False)
class Total(Sum):
    value: Any


@dataclass(frozen=True)
class Sound(Method):
    """The mean of all rows as every class's weights; each defect below changes one thing."""

    notes: dict = field(default_factory=dict, compare=False)

    def plan(self):
        return [Round("sum", self.add, self.keep), Round("sum", self.add, self.keep)]

    def add(self, shared, data, state, rng) -> tuple[Total, Tree]:
        return Total(data.weight @ data.x), state

    def keep(self, server, total, task, rng):
        return Tree(w=total.value)

    def personalise(self, shared, data, state, rng):
        return {Slot("personal"): Linear(np.outer(shared["w"], np.arange(3.0)), np.zeros(3))}


class WritesRows(Sound):
    def add(self, shared, data, state, rng) -> tuple[Total, Tree]:
        data.x[0] = 0
        return Total(data.weight @ data.x), state


class Remembers(Sound):
    def add(self, shared, data, state, rng) -> tuple[Total, Tree]:
        self.notes[data.n] = 1
        return Total(data.weight @ data.x), state


class DrawsFromNowhere(Sound):
    def keep(self, server, total, task, rng):
        return Tree(w=total.value + np.random.default_rng().normal(size=6))


class ForgetsOnDisk(Sound):
    def keep(self, server, total, task, rng):
        return Tree(w=np.asarray(total.value) + (1.0 if isinstance(server.get("w"), Marked) else 0.0)).map(
            lambda a: a.view(Marked)
        )


class Marked(np.ndarray):
    """Loses its mark when it is saved."""


class NaNs(Sound):
    def personalise(self, shared, data, state, rng):
        return {Slot("personal"): Linear(np.full((6, 3), np.nan if data.n == 1 else 0.0), np.zeros(3))}


class SendsTrees(Sound):
    def add(self, shared, data, state, rng):
        return Tree(value=data.x.sum(axis=0)), state


class KnowsEverybody(Sound):
    def stranger(self, shared):
        return Linear(np.zeros((5, 3)), np.zeros(3))


class Leaks(Sound):
    def personalise(self, shared, data, state, rng):
        shared["w"][0] += 1.0
        return super().personalise(shared, data, state, rng)


class SendsMeans(Sound):
    def add(self, shared, data, state, rng) -> tuple[Total, Tree]:
        return Total(data.x.mean(axis=0)), state


class ForgetsState(Sound):
    def add(self, shared, data, state, rng):
        return Total(data.weight @ data.x)


class WritesTotal(Sound):
    def keep(self, server, total, task, rng):
        total.value[0] += 1.0
        return Tree(w=total.value)


class WritesServer(Sound):
    def keep(self, server, total, task, rng):
        if "w" in server:
            server["w"][0] = 0.0
        return Tree(w=total.value)


class WritesShared(Sound):
    def add(self, shared, data, state, rng) -> tuple[Total, Tree]:
        if "w" in shared:
            shared["w"][0] = 0.0
        return Total(data.weight @ data.x), state


class WritesState(Sound):
    def begin(self, shared, data, rng):
        return Tree(own=np.zeros(3))

    def personalise(self, shared, data, state, rng):
        state["own"][0] += 1.0
        return super().personalise(shared, data, state, rng)


class CountsClients(Sound):
    """The sum depends on who else is there: what one client sends is not its own."""

    def keep(self, server, total, task, rng):
        self.notes["rounds"] = self.notes.get("rounds", 0) + 1
        return Tree(w=total.value * self.notes["rounds"])


def test_a_sound_method_passes_what_was_asked():
    assert check_method(Sound) == tuple(CHECKS)


@pytest.mark.parametrize(
    ("defect", "caught"),
    [
        (WritesRows, "pure .(?s:.)*Nothing given is written to.*read-only"),
        (SendsMeans, "weightless_rows: rows of weight 0"),
        (ForgetsState, "pure .*ended in TypeError"),
        (WritesTotal, "pure .*read-only"),
        (WritesServer, "pure .*read-only"),
        (WritesShared, "pure .*read-only"),
        (WritesState, "pure .*read-only"),
        (CountsClients, "pure|same_twice"),
        (Remembers, "pure"),
        (DrawsFromNowhere, "same_twice"),
        (ForgetsOnDisk, "resumed"),
        (NaNs, "precisions"),
        (SendsTrees, "sends a Tree, which is no message"),
        (KnowsEverybody, "unknown_client|mismatch|matmul"),
        (Leaks, "pure .*read-only"),
    ],
)
def test_a_defect_is_caught(defect, caught):
    with pytest.raises(AssertionError, match=caught):
        check_method(defect)
