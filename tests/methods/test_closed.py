"""What all closed forms share: the sums and the rules for the ridge, the intercept, units, weights, and how rows arrive."""

import re
import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import oracles
import pytest
from cases import EVERY, NUMBERS, OF_CLASSES, Table, all_scores, estimate, gap, rows_of, scores, table

import homeward as hw
from homeward.core.algebra import Tree
from homeward.core.errors import BadSetting, NoBalance, Singular
from homeward.core.linalg import eigh
from homeward.core.rng import rng_for
from homeward.methods import _closed, _own
from homeward.methods._closed import Moments, Normal, first_best, gcv, slack

every = pytest.mark.parametrize("name", EVERY)
numbers = pytest.mark.parametrize("name", NUMBERS)
intercepts = pytest.mark.parametrize("intercept", [True, False], ids=["intercept", "origin"])
weighing = pytest.mark.parametrize("weighed", [False, True], ids=["plain", "weighed"])
tall_or_wide = pytest.mark.parametrize("d", [5, 60], ids=["N>d", "N<d"])


def pooled(data: Table) -> oracles.Rows:
    return oracles.together(list(rows_of(data).values()))


def normal_of(data: Table, intercept: bool) -> Normal:
    parts = [Moments.of(rows, None, data.x.shape[1]) for rows in data.federation().clients.values()]
    return Normal.of(sum(parts[1:], parts[0]), intercept)


# the rules for the ridge
@tall_or_wide
@intercepts
@weighing
def test_gcv_from_the_sums_is_gcv_of_the_rows(d: int, intercept: bool, weighed: bool) -> None:
    """AFL check 7: residuals and degrees of freedom from (G, Q, N); N < d only down to ridge/u = 0.01."""
    data = table("real", d=d, weighed=weighed)
    rows, normal = pooled(data), normal_of(data, intercept)
    values, vectors = eigh(normal.gram)
    kept = [r for r in oracles.RIDGES if d < len(rows) or r >= 0.01]
    grid = [r * normal.unit for r in kept]
    assert normal.unit == pytest.approx(oracles.unit(rows.x, rows.w, intercept))
    found = gcv(values, vectors.T @ normal.cross, normal.squares, normal.freedom, grid)
    expected = [oracles.gcv(rows.x, rows.y, rows.w, r, intercept) for r in grid]
    assert found == pytest.approx(expected, rel=1e-9)


@tall_or_wide
@intercepts
@weighing
def test_gcv_picks_what_brute_force_picks(d: int, intercept: bool, weighed: bool) -> None:
    data = table(d=d, weighed=weighed)
    rows = pooled(data)
    expected = oracles.strength_of("gcv", rows, intercept)
    run = hw.fit(hw.AFL(intercept=intercept), data.federation())
    assert float(run.progress.server["ridge"]) == pytest.approx(expected, rel=1e-9)
    head = oracles.ridge(rows.x, rows.y, rows.w, expected, intercept)
    assert gap(scores(run, data.x), head(data.x)) < 1e-9


@tall_or_wide
@intercepts
@weighing
@pytest.mark.parametrize("ridge", [1e-9, 0.5, "gcv", "loo", "pinv"])
def test_honesty_is_exact_to_the_last_digits(d: int, intercept: bool, weighed: bool, ridge: Any) -> None:
    """1 - edf/N is summed, never subtracted: at ridge 1e-9 and N < d it is about 1e-11 and still exact."""
    data = table("real", d=d, weighed=weighed)
    rows = pooled(data)
    server = hw.fit(hw.APFL(ridge, maps=None, intercept=intercept), data.federation()).progress.server
    expected = oracles.honesty(rows.x, rows.w, float(server["ridge"]), intercept)
    assert float(server["honesty"]) == pytest.approx(expected, rel=1e-9, abs=0)


def test_slack_of_no_ridge_and_of_few_rows() -> None:
    values = np.array([0.0, 0.0, 1.0, 4.0])
    assert slack(values, 0.0, 10.0) == 8.0  # six rows more than directions, two empty directions
    assert slack(values, 1.0, 3.0) == pytest.approx(1.0 + 0.5 + 0.2)  # the three largest, of three rows
    assert slack(values, 1e-12, 2.0) == pytest.approx(1.25e-12, rel=1e-11)
    assert slack(values, 1.0, 0.0) == 0.0


@pytest.mark.parametrize("kind", ["classes", "multilabel", "real"])
@pytest.mark.parametrize("d", [3, 40], ids=["N>d", "N<d"])
@intercepts
@weighing
def test_afl_8_leave_one_out_ridge_is_brute_force(kind: str, d: int, intercept: bool, weighed: bool) -> None:
    """AFL check 8: what the table of every ridge holds equals refits without each row."""
    data = table(kind, n=26, d=d, weighed=weighed, seed=1)
    rows, method = pooled(data), hw.AFL("loo", intercept=intercept)
    fed = data.federation()
    down = method.solve(method.init(fed.task, rng_for(0)), normal_total(data), fed.task, rng_for(0))
    found = sum(method.tally_ridge(down, c, Tree(), rng_for(0))[0].losses for c in fed.clients.values())
    grid = [r * oracles.unit(rows.x, rows.w, intercept) for r in reversed(oracles.RIDGES)]
    expected = [
        oracles.cost(kind, oracles.without_each(rows.x, rows.y, rows.w, r, intercept), rows.y, rows.w) for r in grid
    ]
    assert found == pytest.approx(expected, rel=1e-8 if d < 26 else 1e-6)
    run = hw.fit(method, fed)
    assert float(run.progress.server["ridge"]) == pytest.approx(grid[oracles.least(expected)])
    assert "path" not in run.progress.server


def normal_total(data: Table) -> Moments:
    parts = [Moments.of(rows, None, data.x.shape[1]) for rows in data.federation().clients.values()]
    return sum(parts[1:], parts[0])


@tall_or_wide
@intercepts
def test_pinv_is_the_shortest_solution(d: int, intercept: bool) -> None:
    data = table("real", d=d)
    twice = replace(data, x=np.hstack([data.x, data.x[:, :2]]))  # two columns that add nothing
    rows = pooled(twice)
    mean, level = (rows.x.mean(0), rows.y.mean(0)) if intercept else (0.0, 0.0)
    shortest = np.linalg.lstsq(rows.x - mean, rows.y - level, rcond=1e-12)[0]
    server = hw.fit(hw.AFL("pinv", intercept=intercept), twice.federation()).progress.server
    assert gap(server["weights"], shortest) < 1e-9


def test_pinv_of_a_regular_sum_is_least_squares() -> None:
    data = table("real")
    heads = [hw.fit(hw.AFL(r, intercept=False), data.federation()).progress.server["weights"] for r in ("pinv", 0.0)]
    assert gap(*heads) < 1e-11


@pytest.mark.parametrize("spoil", ["too few rows", "same column twice", "combination", "constant column"])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
def test_no_ridge_on_a_singular_sum_names_one_that_works(spoil: str, scale: float) -> None:
    """Also where a Cholesky would slip through."""
    data = table("real", d=60 if spoil == "too few rows" else 5)
    x = scale * data.x
    extra = {"same column twice": x[:, :1], "combination": x @ np.arange(1.0, 6)[:, None] if x.shape[1] == 5 else x}
    extra["constant column"] = np.full((len(x), 1), scale)
    fed = data.federation(x=np.hstack([x, extra[spoil]]) if spoil in extra else x)
    intercept = spoil in ("too few rows", "constant column")
    with pytest.raises(Singular, match=r"no unique solution at ridge = 0") as raised:
        hw.fit(hw.AFL(0.0, intercept=intercept), fed)
    works = float(re.search(r"at least ([\d.e+-]+)", str(raised.value))[1])  # type: ignore[index]
    assert np.isfinite(hw.fit(hw.AFL(works, intercept=intercept), fed).progress.server["weights"]).all()
    assert works < 1e-12 * scale**2 * np.sum(data.x**2) * 2


def test_ties_go_to_the_more_global_side() -> None:
    assert first_best([2.0, 1.0, 1.0 - 1e-10, 1.0]) == 1
    assert first_best([2.0, 1.0, 1.0 - 1e-8, 1.0]) == 2
    assert first_best([np.inf, np.inf]) == 0
    data = table("real")  # constant targets: every ridge is as good as every other
    server = hw.fit(hw.AFL(), data.federation(y=np.full(42, 2.0))).progress.server
    assert float(server["ridge"]) == pytest.approx(100 * normal_of(data, True).unit)


# the intercept
def test_a_rare_class_and_a_far_target_need_an_intercept() -> None:
    draw = np.random.default_rng(0)
    y = (draw.random(400) < 0.1).astype(int)
    x = draw.normal(size=(400, 6)) + 1.2 * y[:, None] * np.ones(6)
    x = (x - x.mean(0)) / x.std(0)
    groups = np.where(draw.random(400) < 0.5, "a", "b")

    def fitted(kind: str, target: Any, intercept: bool) -> list[float]:
        run = hw.fit(hw.AFL(intercept=intercept), hw.Federation.from_arrays(x, target, groups, task=kind))
        return [row["value"] for row in run.scores()]

    assert min(fitted("classes", y, True)) > 0.93 > 0.85 > max(fitted("classes", y, False))
    far = x @ draw.normal(size=6) + 50 + 0.1 * draw.normal(size=400)
    assert min(fitted("real", far, True)) > 0.99 and max(fitted("real", far, False)) < -100


@pytest.mark.parametrize("name", [n for n in EVERY if n not in OF_CLASSES])
def test_a_constant_added_to_targets_is_added_to_scores(name: str) -> None:
    data = table("real", weighed=True)
    near, far = (all_scores(hw.fit(EVERY[name](maps=None), data.federation(y=data.y + c)), data.x) for c in (0, 50))
    assert gap(far - 50, near) < 1e-9


@pytest.mark.parametrize(
    "name", [n for n in EVERY if n not in ("apfl", "apfl-joint", "apfl-share", "fedhip", "fedhip-joint")]
)
def test_a_constant_added_to_features_moves_no_score_of_a_centred_fit(name: str) -> None:
    data = table(weighed=True)
    at, there = (hw.fit(EVERY[name](maps=None), data.federation(x=data.x + c)) for c in (0.0, 3.0))
    assert gap(all_scores(there, data.x + 3.0), all_scores(at, data.x)) < 1e-8


# units
@every
@pytest.mark.parametrize("look", ["relu", "leaky-relu", "identity", None])
def test_a_common_factor_of_all_features_changes_no_prediction(name: str, look: str | None) -> None:
    data = table(n=60, d=6, weighed=True, seed=2)
    other = {"refine_activation": look} if look and "apfl" in name else {}
    method = EVERY[name](maps=None) if look is None else EVERY[name](maps=24, activation=look, **other)
    small, large = (hw.fit(method, data.federation(x=s * data.x)) for s in (1.0, 1000.0))
    assert gap(all_scores(large, 1000 * data.x), all_scores(small, data.x)) < 1e-8


@every
@pytest.mark.parametrize("value", [0.0, 0.1])
def test_features_that_do_not_vary_teach_only_a_level(name: str, value: float) -> None:
    """Nothing is solved in what rounding leaves of them."""
    data = table(weighed=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoBalance)
        got = all_scores(hw.fit(EVERY[name](maps=None), data.federation(x=np.full_like(data.x, value))), data.x)
    there = np.isfinite(got)
    assert (abs(got[there]) < 10).all()
    if name not in ("apfl", "apfl-joint", "apfl-share", "fedhip", "fedhip-joint", "fedhip-weighted"):
        # those have a personal constant: other rows move their score, but never far
        assert gap(got, np.broadcast_to(got[:, :1], got.shape)) < 1e-9


# weights
@every
def test_a_row_of_weight_0_is_never_there(name: str) -> None:
    data = table(n=60, weighed=True)
    assert data.weights is not None and (data.weights == 0).sum() > 3
    wild = np.where(data.weights[:, None] == 0, 1e3 * data.x, data.x)
    got, expected = (
        all_scores(hw.fit(EVERY[name](maps=None), t.federation()), data.x)
        for t in (replace(data, x=wild), data.chosen(data.weights > 0))
    )
    assert gap(got, expected) < 1e-8


@every
def test_under_rules_a_factor_of_all_weights_changes_nothing(name: str) -> None:
    data = table(weighed=True)
    light, heavy = (hw.fit(EVERY[name](maps=16), data.federation(weights=s * data.weights)) for s in (1.0, 7.0))
    assert gap(all_scores(heavy, data.x), all_scores(light, data.x)) < 1e-9


@numbers
@intercepts
@pytest.mark.parametrize("maps", [None, 16])
def test_under_numbers_weight_2_is_two_rows(name: str, intercept: bool, maps: int | None) -> None:
    data = table(n=30)
    double = np.random.default_rng(1).random(30) < 0.4
    method = NUMBERS[name](maps=maps, intercept=intercept)
    heavy = hw.fit(method, data.federation(weights=1.0 + double))
    twice = hw.fit(method, data.chosen(np.repeat(np.arange(30), 1 + double)).federation())
    assert gap(all_scores(heavy, data.x), all_scores(twice, data.x)) < 1e-10


@numbers
def test_under_rules_weight_2_is_not_two_rows_and_under_numbers_scale_matters(name: str) -> None:
    data = table("classes", n=30)
    method = NUMBERS[name](maps=None)
    light, heavy = (hw.fit(method, data.federation(weights=np.full(30, s))) for s in (1.0, 9.0))
    assert gap(all_scores(heavy, data.x), all_scores(light, data.x)) > 1e-3


# how rows arrive
@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Blocks of 256 rows, the fewest there are."""
    monkeypatch.setattr(_closed, "BLOCK", 1)
    monkeypatch.setattr(_own, "BLOCK", 1)
    yield


def in_chunks(data: Table, size: int) -> hw.Federation:
    def source(name: Any) -> Any:
        mine = data.chosen(data.groups == name)
        parts = [mine.chosen(slice(i, i + size)) for i in range(0, len(mine.x), size)]
        return lambda: ((p.x, p.y, np.ones(len(p.x)) if p.weights is None else p.weights) for p in parts)

    sources = {str(name): source(name) for name in np.unique(data.groups)}
    return hw.Federation.from_chunks(sources, task=data.kind, classes=data.classes)


@every
@pytest.mark.parametrize("maps", [None, 400], ids=["n>columns", "n<columns"])
def test_rows_in_chunks_are_rows_at_once(name: str, maps: int | None, small_blocks: None) -> None:
    data = table(n=640, clients=2, weighed=True, seed=3)
    data = replace(data, groups=np.where(np.arange(640) < 300, "a", "b"))
    method = EVERY[name](maps=maps)
    whole = hw.fit(method, data.federation())
    parts = hw.fit(method, in_chunks(data, 97))
    assert gap(all_scores(parts, data.x), all_scores(whole, data.x)) < 1e-8


@every
@pytest.mark.parametrize("maps", [None, 400], ids=["n>columns", "n<columns"])
def test_several_blocks_are_one_block(name: str, maps: int | None, request: pytest.FixtureRequest) -> None:
    data = table(n=640, clients=2, weighed=True, seed=3)
    data = replace(data, groups=np.where(np.arange(640) < 300, "a", "b"))
    method, fed = EVERY[name](maps=maps), data.federation()
    one = hw.fit(method, fed)
    at_once = all_scores(one, data.x), estimates(one)
    request.getfixturevalue("small_blocks")
    several = hw.fit(method, fed)
    assert gap(all_scores(several, data.x), at_once[0]) < 1e-8
    for client, found in estimates(several).items():
        assert all(gap(found[slot], at_once[1][client][slot]) < 1e-8 for slot in found)


def estimates(run: hw.Run) -> dict[str, dict[str, Any]]:
    return {name: estimate(run, name) for name in run.ids}


@every
@pytest.mark.parametrize("kind", ["classes", "real"])
def test_torch_tensors_give_what_numpy_gives(name: str, kind: str) -> None:
    torch = pytest.importorskip("torch")
    if kind != "classes" and name in OF_CLASSES:
        pytest.skip("corrects by class counts")
    data = table(kind, n=60, weighed=True)
    method = EVERY[name](maps=24)
    ours = hw.fit(method, data.federation())
    theirs = hw.fit(method, data.federation(x=torch.as_tensor(data.x)))
    got = np.stack(
        [m.decision_function(torch.as_tensor(data.x)) for n in theirs.ids for m in theirs.models(n).values()]
    )
    assert gap(got, all_scores(ours, data.x)) < 1e-8


@every
@pytest.mark.parametrize("maps", [None, 24])
def test_float32_rows_are_float64_rows_to_their_own_rounding(name: str, maps: int | None) -> None:
    data = table(n=60)
    method = EVERY[name](maps=maps)
    half, full = (hw.fit(method, data.federation(x=data.x.astype(t))) for t in (np.float32, np.float64))
    assert gap(all_scores(half, data.x), all_scores(full, data.x)) < 1e-4
    if maps is None:  # the rows are rounded once, and everything after is float64
        same = hw.fit(method, data.federation(x=data.x.astype(np.float32).astype(np.float64)))
        assert gap(all_scores(half, data.x), all_scores(same, data.x)) < 1e-9


@every
@pytest.mark.parametrize("kind", ["multilabel", "real"])
def test_other_kinds_of_target(name: str, kind: str) -> None:
    """Each output is a problem of its own under numbers; under rules they share their strengths."""
    data = table(kind, n=60)
    if name in OF_CLASSES:
        with pytest.raises(BadSetting, match="needs task = 'classes'"):
            hw.fit(EVERY[name](maps=None), data.federation())
        return
    run = hw.fit(EVERY[name](maps=None), data.federation())
    assert scores(run, data.x).shape == data.y.shape
    if name not in NUMBERS:
        return
    method = NUMBERS[name](maps=None)
    apart = [scores(hw.fit(method, data.federation(y=data.y[:, j])), data.x) for j in range(3)]
    assert gap(np.hstack(apart), scores(hw.fit(method, data.federation()), data.x)) < 1e-10


# who holds the rows
@every
def test_arguments_are_never_written_to(name: str) -> None:
    data = table(weighed=True)
    for array in (data.x, data.y, data.weights):
        array.setflags(write=False)  # type: ignore[union-attr]
    fed = data.federation()
    for rows in fed.clients.values():
        for array in (rows.x, rows.y, rows.weight):
            array.setflags(write=False)
    hw.fit(EVERY[name](maps=12), fed).scores()


@every
def test_late_and_gone_clients_leave_no_trace(name: str) -> None:
    """Joining in any order is being there; being forgotten is never having been there."""
    data = table(n=60, clients=4, weighed=True)
    method, fed = EVERY[name](maps=12), data.federation()
    whole = hw.fit(method, fed)
    late = hw.fit(method, fed.only("c", "b")).join(fed.only("d")).join(fed.only("a"))
    assert gap(all_scores(late, data.x), all_scores(whole, data.x)) < 1e-8
    gone, never = whole.forget("b"), hw.fit(method, fed.without("b"))
    assert gone.ids == never.ids
    assert gap(all_scores(gone, data.x), all_scores(never, data.x)) < 1e-8


def test_join_then_forget_restores_the_head() -> None:
    """AFL checks 5 and 6, APFL check 7: < 1e-9."""
    data = table(n=60, clients=4)
    fed = data.federation()
    for method in (hw.AFL(0.5), hw.AFL()):
        before = hw.fit(method, fed.without("d"))
        after = before.join(fed.only("d")).forget("d")
        assert gap(after.progress.server["weights"], before.progress.server["weights"]) < 1e-9


@every
def test_clients_may_be_in_any_order(name: str) -> None:
    data = table(n=60, weighed=True)
    method = EVERY[name](maps=12)
    renamed = replace(data, groups=np.array([{"a": "z", "b": "m", "c": "g"}[g] for g in data.groups]))
    run, other = hw.fit(method, data.federation()), hw.fit(method, renamed.federation())
    for old, new in (("a", "z"), ("b", "m"), ("c", "g")):
        assert gap(scores(other, data.x, new), scores(run, data.x, old)) < 1e-9


@pytest.mark.parametrize("name", ["afl", "afl-loo", "afl-pinv"])
@pytest.mark.parametrize("maps", [None, 200], ids=["N>d", "N<d"])
def test_splitting_or_merging_clients_leaves_the_head(name: str, maps: int | None) -> None:
    """AFL check 4, FedHiP check 6: rows may move, clients may split or merge."""
    data = table(n=60, weighed=True)
    dealt = [
        data.groups,
        np.where(data.groups == "c", "b", data.groups),
        np.random.default_rng(0).permutation(data.groups),
    ]
    dealt.append(np.array([g + str(i % 2) for i, g in enumerate(data.groups)]))
    heads = [hw.fit(EVERY[name](maps=maps), data.federation(groups=g)).progress.server["weights"] for g in dealt]
    assert max(gap(w, heads[0]) for w in heads) < (1e-9 if maps else 1e-10)


# what broke once
def test_few_rows_far_from_the_origin_are_judged_by_what_they_hold() -> None:
    """What centring leaves of empty directions was counted as data: GCV then took the smallest ridge, pinv divided by it."""
    for seed in range(20):
        draw = np.random.default_rng(seed)
        x = 10 + draw.normal(size=(6, 2))
        data = Table(x @ draw.normal(size=(2, 8)), draw.normal(size=6), np.array(list("aabbcc")), "real")
        new = (10 + draw.normal(size=(5, 2))) @ np.random.default_rng(seed).normal(size=(2, 8))
        for ridge in ("gcv", "pinv"):
            runs = [hw.fit(hw.AFL(ridge), data.federation(x=s * data.x)) for s in (1.0, 1000.0)]
            assert gap(scores(runs[1], 1000 * new), scores(runs[0], new)) < 1e-6


@pytest.mark.parametrize("n", [30, 3000])
def test_a_large_constant_column_beside_an_intercept_is_singular(n: int) -> None:
    draw = np.random.default_rng(0)
    x = np.hstack([draw.normal(size=(n, 3)), np.full((n, 1), 1234.5)])
    fed = Table(x, draw.normal(size=n), np.where(np.arange(n) % 3 == 0, "a", "b"), "real").federation()
    with pytest.raises(Singular, match="3 of its 4 directions"):
        hw.fit(hw.AFL(0.0), fed)
    assert abs(hw.fit(hw.AFL("pinv"), fed).progress.server["weights"][3]).max() < 1e-6


@every
@pytest.mark.parametrize("n", [7, 20_000])
def test_one_column_that_does_not_vary_teaches_only_a_level(name: str, n: int) -> None:
    """Its rounding grows with the rows, not with the columns."""
    data = table(n=42, weighed=True)
    rows = np.resize(np.arange(42), n)
    fed = data.chosen(rows).federation(x=np.full((n, 1), 0.1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoBalance)
        run = hw.fit(EVERY[name](maps=None), fed)
    got = all_scores(run, np.array([[0.1], [0.2], [-3.0]]))
    assert abs(got[np.isfinite(got)]).max() < 100
    if name == "afl" or name == "local-ridge":
        assert gap(got, np.broadcast_to(got[:, :1], got.shape)) < 1e-9
