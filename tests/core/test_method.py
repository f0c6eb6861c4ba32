"""Standardised: a method on scaled columns, by one more round, and nothing else about it changes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
import pytest

import homeward as hw
from homeward.core.algebra import Message, Sum, Tree, summed
from homeward.core.errors import BadSetting
from homeward.core.method import ColumnSums, Method, Round, Slot, Standardised, scaled, standardised
from homeward.core.model import Linear, Model, Scaled
from homeward.core.rng import Rng, rng_for
from homeward.core.settings import Number
from homeward.core.task import Bounds, ClientData, Federation, Task
from homeward.engine.carry import address, carry
from homeward.engine.inprocess import InProcess

DRAW = np.random.default_rng(0)
N, D = 90, 5
X = DRAW.standard_normal((N, D)) * [1.0, 1e3, 1e-3, 5.0, 0.2] + [0.0, 1e4, 3e-3, -20.0, 1.0]
Y = (X[:, 1] > 1e4).astype(int) + (X[:, 3] > -20)
GROUPS = np.repeat(["a", "b", "c"], [20, 30, 40])
WEIGHTS = DRAW.integers(0, 4, N) * 0.5


@dataclass(frozen=True, eq=False)
class Draws(Sum):
    """What a client saw and drew in a round."""

    x: Any
    u: Any


@dataclass(frozen=True)
class Watching(Method):
    """Keeps what each of its functions was given."""

    rounds: Annotated[int, Number(low=0)] = 2
    stackable = False
    kept = 3

    def plan(self) -> Sequence[Round]:
        return [Round(name, self.look, self.keep) for name in ("set-up", *["train"] * int(self.rounds))]

    def init(self, task: Task, rng: Rng) -> Tree:
        return Tree(u=rng.uniform(2))

    def look(self, shared: Tree, data: ClientData, state: Tree, rng: Rng) -> tuple[Message, Tree]:
        return Draws(np.sum(data.whole().x, axis=0), rng.uniform(2)), Tree(seen=state["seen"] + 1.0)

    def keep(self, server: Tree, total: Draws, task: Task, rng: Rng) -> Tree:
        public, valid = (np.zeros(0) if rows is None else rows for rows in (task.public, task.valid))
        return Tree(u=np.concatenate([server["u"], total.u, rng.uniform(1)]), x=total.x, public=public, valid=valid)

    def begin(self, shared: Tree, data: ClientData, rng: Rng) -> Tree:
        return Tree(seen=np.float64(data.n), u=shared["u"])

    def personalise(self, shared: Tree, data: ClientData, state: Tree, rng: Rng) -> dict[Slot, Model]:
        return {
            Slot("personal", "R"): Linear(np.eye(D), rng.uniform(D)),
            Slot("global"): Linear(np.eye(D), np.zeros(D)),
        }

    def stranger(self, shared: Tree) -> Model | None:
        return None

    def finished(self, server: Tree) -> bool:
        return bool(server["u"].shape[0] >= 8)

    def estimate(self, shared: Tree, data: ClientData, state: Tree, rng: Rng) -> dict[Slot, Any]:
        return {Slot("personal"): data.x}


def federation(x: Any = X, **more: Any) -> Federation:
    return Federation.from_arrays(x, Y, GROUPS, weights=WEIGHTS, **more)


def carried(method: Method, fed: Federation) -> tuple[Any, InProcess]:
    clients = InProcess(method, fed.clients)
    return carry(method, fed.task, clients, seed=3).server, clients


MEAN = np.average(X, axis=0, weights=WEIGHTS)
SCALE = np.sqrt(np.average((X - MEAN) ** 2, axis=0, weights=WEIGHTS))


# ---- the scale


def test_the_scale_is_the_weighted_mean_and_deviation_of_all_rows() -> None:
    server, _ = carried(standardised(Watching(0)), federation())
    np.testing.assert_allclose(server["mean"], MEAN, rtol=1e-12)
    np.testing.assert_allclose(server["scale"], SCALE, rtol=1e-8)


def test_column_sums_add_over_clients_pieces_and_libraries() -> None:
    fed = federation()
    shift = np.arange(float(D))
    whole = ColumnSums.of(fed.pooled, shift)
    total = summed(ColumnSums.of(fed.clients[name], shift) for name in fed.clients)
    assert isinstance(total, ColumnSums)
    for name in ("weight", "sums", "squares"):
        np.testing.assert_allclose(getattr(total, name), getattr(whole, name), rtol=1e-12)
    np.testing.assert_allclose(whole.squares, WEIGHTS @ (X - shift) ** 2, rtol=1e-12)
    torch = pytest.importorskip("torch")
    theirs = ColumnSums.of(federation(torch.from_numpy(X)).pooled, shift)
    np.testing.assert_allclose(theirs.columns(shift)["scale"].numpy(), whole.columns(shift)["scale"], rtol=1e-6)


@pytest.mark.parametrize("ratio", [1e2, 1e4, 0.99e6])  # from 1e6 on the floor of the variance counts
def test_a_declared_range_keeps_the_deviation_of_columns_far_from_zero(ratio: float) -> None:
    z = DRAW.standard_normal((4000, 3))
    x = (z / z.std(axis=0) + ratio * np.array([1, -1, 1])) * [1.0, 1e-3, 1e3]
    low, high = x.min(axis=0), x.max(axis=0)
    fed = Federation.from_arrays(x, np.zeros(len(x)), task="real", declare=Bounds(low=low, high=high))
    server, _ = carried(standardised(hw.AFL()), fed)
    np.testing.assert_allclose(server["scale"], x.std(axis=0), rtol=1e-6)
    np.testing.assert_allclose(server["mean"], x.mean(axis=0), rtol=1e-12)


@pytest.mark.parametrize("declare", [None, Bounds(low=-7.0, high=30.0)])
def test_columns_that_do_not_vary_are_finite_and_say_nothing(declare: Bounds | None) -> None:
    x = np.column_stack([X[:, 0], np.full(N, 7.3), np.zeros(N), np.full(N, -1e-5)])
    fed = Federation.from_arrays(x, Y, GROUPS, declare=declare)
    server, _ = carried(standardised(Watching(0)), fed)
    assert np.isfinite(server["scale"]).all() and (server["scale"] > 0).all()
    z = (x - server["mean"]) / server["scale"]
    assert np.abs(z[:, 1:]).max() < 1e-3
    run = hw.fit(standardised(hw.APFL(maps=8)), fed)
    without = hw.fit(standardised(hw.APFL(maps=8)), fed).model("b").decision_function(x)
    assert np.isfinite(without).all() and np.isfinite(run.model("a").decision_function(x)).all()


def test_nothing_but_rows_of_weight_zero_is_no_scale() -> None:
    fed = Federation.from_arrays(X, Y, GROUPS, weights=np.zeros(N))
    server, _ = carried(standardised(Watching(0)), fed)
    assert (server["mean"].tolist(), server["scale"].tolist()) == ([0.0] * D, [1.0] * D)


# ---- the method inside


@pytest.mark.parametrize(
    "method",
    [hw.AFL(), hw.AFL(ridge=0.1), hw.APFL(maps=16), hw.FedHiP(), hw.LogPrior(maps=16)],
    ids=lambda m: type(m).__name__,
)
def test_a_scaled_model_on_raw_rows_is_the_method_on_rows_scaled_by_hand(method: Method) -> None:
    z = (X - MEAN) / SCALE
    ours, theirs = hw.fit(standardised(method), federation(), seed=1), hw.fit(method, federation(z), seed=1)
    for client in "abc":
        mine = ours.model(client)
        assert isinstance(mine.model, Scaled)
        np.testing.assert_allclose(
            mine.decision_function(X), theirs.model(client).decision_function(z), rtol=1e-6, atol=1e-7
        )


def test_a_method_that_sends_nothing_sends_nothing_standardised_and_scales_by_its_own_rows() -> None:
    run = hw.fit(standardised(hw.LocalRidge(maps=16)), federation())
    assert standardised(hw.LocalRidge()).plan() == [] and all(sent["up"] == 0 for sent in run.traffic.values())
    data = federation().clients["a"]
    w = data.weight / data.weight.sum()
    mean = w @ data.x
    scale = np.sqrt(w @ (data.x - mean) ** 2)
    lone = hw.Federation.from_arrays(
        (data.x - mean) / scale, data.y, ["a"] * data.n, weights=data.weight, classes=[0, 1, 2]
    )
    theirs = hw.fit(hw.LocalRidge(maps=16), lone).model("a").decision_function((X - mean) / scale)
    np.testing.assert_allclose(run.model("a").decision_function(X), theirs, rtol=1e-6, atol=1e-7)


def test_rows_in_chunks_are_scaled_as_rows_in_arrays() -> None:
    def source(name: str) -> Any:
        here = np.flatnonzero(name == GROUPS)
        return lambda: [(X[i], Y[i], WEIGHTS[i]) for i in (here[:7], here[7:])]

    whole = hw.fit(standardised(hw.APFL(maps=16)), federation())
    pieces = hw.fit(standardised(hw.APFL(maps=16)), Federation.from_chunks({name: source(name) for name in "abc"}))
    for client in "abc":
        np.testing.assert_allclose(
            pieces.model(client).decision_function(X), whole.model(client).decision_function(X), rtol=1e-8, atol=1e-9
        )


def test_every_function_inside_sees_scaled_rows_and_draws_as_if_alone() -> None:
    fed = federation(public=X[:7], valid=X[7:9])
    plain, wrapped = Watching(), standardised(Watching())
    alone, clients = carried(plain, fed)
    server, wrapping = carried(wrapped, fed)
    inner = server["inner"]
    np.testing.assert_array_equal(inner["u"], alone["u"])  # the same draws: init, clients and server, in every round
    np.testing.assert_allclose(inner["x"], ((X - MEAN) / SCALE).sum(axis=0), atol=1e-6)
    np.testing.assert_allclose(inner["public"], (X[:7] - MEAN) / SCALE, atol=1e-8)
    np.testing.assert_allclose(inner["valid"], (X[7:9] - MEAN) / SCALE, atol=1e-8)
    for name in fed.clients:
        mine, theirs = wrapping.models(wrapped.shared(server), name, 3), clients.models(alone, name, 3)
        assert list(mine) == list(theirs)
        for slot, model in mine.items():
            assert isinstance(model, Scaled) and isinstance(model.model, Linear)
            np.testing.assert_array_equal(model.model.intercept, theirs[slot].intercept)  # type: ignore[attr-defined]
            np.testing.assert_allclose(model.scores(X), (X - MEAN) / SCALE + model.model.intercept, atol=1e-7)
    data = fed.clients["a"]
    estimate = wrapped.estimate(wrapped.shared(server), data, Tree(), rng_for(0))[Slot("personal")]
    np.testing.assert_allclose(estimate, (data.x - MEAN) / SCALE, atol=1e-7)


def test_the_extra_round_shifts_no_address() -> None:
    inner = Watching()
    for outer in (standardised(inner), standardised(standardised(inner))):
        extra = len(outer.plan()) - len(inner.plan())
        for i in range(len(inner.plan())):
            assert address(outer, 7, i + extra) == address(inner, 7, i)
        assert [address(outer, 7, i) for i in range(extra)] == [(7, "standardise", i) for i in range(extra)]


def test_what_a_method_says_of_itself_it_says_when_wrapped() -> None:
    wrapped = standardised(Watching())
    assert wrapped == Standardised(Watching()) and hash(wrapped) == hash(Standardised(Watching()))
    assert (wrapped.stackable, wrapped.kept) == (False, 4)
    assert wrapped.plan()[0].everyone and not wrapped.plan()[1].everyone
    server, _ = carried(wrapped, federation())
    assert wrapped.stranger(wrapped.shared(server)) is None
    assert len(server["inner"]["u"]) == 8 and wrapped.finished(server)  # before the plan's last round
    assert isinstance(hw.fit(standardised(hw.AFL()), federation()).stranger.model, Scaled)  # type: ignore[union-attr]


def test_rows_are_as_they_are_until_the_scale_is_known() -> None:
    data = federation().clients["a"]
    assert scaled(data, Tree(shift=np.zeros(D))) is data
    by = Tree(mean=np.ones(D), scale=np.full(D, 2.0))
    half = scaled(replace(data, x=data.x.astype(np.float32)), by)
    assert half.x.dtype == np.float32
    np.testing.assert_allclose(half.x, ((data.x.astype(np.float32) - 1.0) / 2.0), rtol=1e-6)
    assert half.y is data.y


# ---- settings


def test_a_method_checks_its_settings() -> None:
    with pytest.raises(BadSetting, match="rounds = -1, but Watching needs a finite number >= 0"):
        Watching(rounds=-1)
    assert Watching().settings == {"rounds": 2}
    assert (str(Slot("personal")), str(Slot("personal", "R"))) == ("personal", "personal.R")
    with pytest.raises(AttributeError):
        Watching().rounds = 3  # type: ignore[misc]
