"""Federations: rows are dealt, held out, joined and read in pieces, and every row stays what it was."""

import re
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import homeward as hw
from homeward.core.errors import BadData, BadSetting, UnknownClient
from homeward.core.task import Bounds, ChunkedRows, ClientData, Federation

DRAW = np.random.default_rng(0)
X = DRAW.standard_normal((30, 3))
Y = np.array(["b", "a", "c"] * 10)
GROUPS = np.array(["north", "south", "south", "east", "north"] * 6)

KINDS: dict[str, Any] = {"classes": Y, "multilabel": (X[:, :2] > 0).astype(int), "real": X[:, 0] * 2}


def numbered(n: int, **more: Any) -> Any:
    """Rows that carry their own number, so that they can be found again."""
    return np.arange(float(n))[:, None], more


def numbers(data: ClientData) -> list[int]:
    return [int(i) for i in np.asarray(data.whole().x)[:, 0]]


def same(a: ClientData, b: ClientData) -> None:
    for name in ("x", "y", "weight"):
        np.testing.assert_array_equal(getattr(a.whole(), name), getattr(b.whole(), name), strict=True)


# ---- from arrays


@pytest.mark.parametrize(
    ("y", "labels"),
    [
        (["b", "a", "b", "c"], ["a", "b", "c"]),
        (np.array(["b", "a", "b", "c"], dtype=object), ["a", "b", "c"]),
        ([7, -2, 7, 9], [-2, 7, 9]),
        ([True, False, True, True], [False, True]),
        ([2.0, 1.0, 2.0, 3.0], [1.0, 2.0, 3.0]),
    ],
)
def test_labels_become_class_numbers_and_back(y: Any, labels: list[Any]) -> None:
    fed = Federation.from_arrays(np.ones((4, 2)), y)
    assert fed.task.labels.tolist() == labels and fed.task.classes == len(labels)
    data = fed.clients["all"]
    assert fed.task.labels[data.y].tolist() == list(y)
    assert data.target.tolist() == np.eye(len(labels))[data.y].tolist()
    assert fed.task.codes(y).tolist() == data.y.tolist()
    with pytest.raises(BadData, match=r"y, row 0 has the label|y holds labels of another type"):
        fed.task.codes(np.array(["nobody's"] if isinstance(labels[0], str) else [5]))


@pytest.mark.parametrize("kind", KINDS)
def test_every_row_goes_to_its_client_in_order(kind: str) -> None:
    fed = Federation.from_arrays(X, KINDS[kind], GROUPS, task=kind, weights=np.arange(30))
    assert list(fed.clients) == ["east", "north", "south"]
    for name, data in fed.clients.items():
        np.testing.assert_array_equal(data.x, X[name == GROUPS])
        np.testing.assert_array_equal(data.weight, np.flatnonzero(name == GROUPS))
        assert data.n == (name == GROUPS).sum() and data.target.shape == (data.n, fed.task.classes)
    assert fed.pooled.n == 30
    assert sorted(fed.pooled.weight) == list(range(30))


@pytest.mark.parametrize(
    ("groups", "ids"),
    [
        (None, ["all"]),
        ([3, 1, 3, 10], ["1", "10", "3"]),
        ([3.0, 1.0, 3.0, 2.0], ["1", "2", "3"]),
        (["b", "a", "b", "ü"], ["a", "b", "ü"]),
        ([True, False, True, True], ["False", "True"]),
    ],
)
def test_ids_are_text(groups: Any, ids: list[str]) -> None:
    fed = Federation.from_arrays(np.ones((4, 1)), [0, 1, 0, 1], groups)
    assert sorted(fed.clients) == sorted(ids)
    assert all(type(name) is str for name in fed.clients)


def test_a_partition_names_clients_and_leaves_rows_of_nobody_out() -> None:
    x, _ = numbered(40)
    y = np.arange(40) % 2
    part = hw.dirichlet(y, clients=3, alpha=1.0, seed=0, min_rows=5)
    owner = part.owner.copy()
    owner[:4] = -1
    counts = [[int(((owner == k) & (y == c)).sum()) for c in (0, 1)] for k in range(3)]
    part = hw.Partition(owner, part.ids, part.labels, np.array(counts), part.law, part.settings)
    fed = Federation.from_arrays(x, y, part)
    assert list(fed.clients) == ["c000", "c001", "c002"]
    assert {name: numbers(data) for name, data in fed.clients.items()} == {
        name: np.flatnonzero(owner == k).tolist() for k, name in enumerate(part.ids)
    }
    assert fed.origin["partition"] == part.hash
    with pytest.raises(BadData, match="groups has 40 entries for 39 rows"):
        Federation.from_arrays(x[:39], y[:39], part)


def test_a_client_of_a_partition_may_have_no_rows() -> None:
    part = hw.Partition(
        np.array([0, 0, 2]), ("a", "b", "c"), np.array([0, 1]), np.array([[1, 1], [0, 0], [1, 0]]), "x", {}
    )
    for task in ("classes", "real"):
        fed = Federation.from_arrays(np.ones((3, 2)), [0, 1, 0], part, task=task)
        assert [data.n for data in fed.clients.values()] == [2, 0, 1]
        assert [data.n for data in fed.holdout(0.5, 0.2).clients.values()] == [1 + (task == "classes"), 0, 1]
        assert len(fed.hash) == 64


def test_classes_are_declared_in_any_order() -> None:
    fed = Federation.from_arrays(X, Y, classes=["c", "z", "b", "a"])
    assert fed.task.labels.tolist() == ["c", "z", "b", "a"]
    assert fed.task.labels[fed.clients["all"].y].tolist() == Y.tolist()
    with pytest.raises(BadData, match=r"y, row 2 has the label .*'c'"):
        Federation.from_arrays(X, Y, classes=["a", "b"])


def test_test_rows_and_proxy_rows_are_checked_as_training_rows_are() -> None:
    fed = Federation.from_arrays(X, Y, GROUPS, test=(X[:6], Y[:6], GROUPS[:6]), public=X[:4], valid=X[:5])
    assert {name: data.n for name, data in fed.tests.items()} == {"east": 1, "north": 3, "south": 2}
    assert fed.task.public.shape == (4, 3) and fed.task.valid.shape == (5, 3)
    for wrong, message in (
        ({"test": (X[:6, :2], Y[:6], GROUPS[:6])}, "test X has 2 columns, but 3"),
        ({"test": (X[:2], ["a", "q"], GROUPS[:2])}, "test y, row 1 has the label .*'q'"),
        ({"test": (X[:2], Y[:3], GROUPS[:2])}, "test y has 3 entries for 2 rows"),
        ({"test": (X[:2], Y[:2], GROUPS[:3])}, "test groups have shape"),
        ({"test": (X[:2], Y[:2])}, r"test has 2 parts, but it is \(X, y, groups\)"),
        ({"public": X[:, :1]}, "public has 1 columns, but 3"),
        ({"valid": X * np.nan}, "valid, row 0, column 0 is nan"),
        ({"weights": -np.ones(30)}, "weights, row 0 is -1"),
    ):
        with pytest.raises(BadData, match=message):
            Federation.from_arrays(X, Y, GROUPS, **wrong)
    with pytest.raises(BadData, match="y has 29 entries for 30 rows"):
        Federation.from_arrays(X, Y[:29])
    with pytest.raises(BadSetting, match="task = 'regression', but a task is one of classes, multilabel, real"):
        Federation.from_arrays(X, Y, task="regression")
    with pytest.raises(BadData, match="at least one client"):
        Federation(fed.task, {})


def test_a_federation_keeps_its_rows_when_the_arrays_change() -> None:
    x, y = X.copy(), np.arange(30) % 2
    fed = Federation.from_arrays(x, y)
    before = fed.clients["all"].hash
    x[:], y[:] = 9.0, 0
    assert Federation(fed.task, {"a": fed.clients["all"].rows(range(30))}).clients["a"].hash == before


def test_torch_rows_stay_torch() -> None:
    torch = pytest.importorskip("torch")
    weights = np.arange(30.0)
    ours = Federation.from_arrays(X, Y, GROUPS, weights=weights).holdout(0.3, 0.1)
    theirs = Federation.from_arrays(torch.from_numpy(X), Y, GROUPS, weights=weights).holdout(0.3, 0.1)
    assert theirs.hash == ours.hash
    for data in theirs.clients.values():
        assert all(isinstance(a, torch.Tensor) for a in (data.x, data.y, data.weight, data.target))
    assert theirs.pooled.target.tolist() == ours.pooled.target.tolist()


# ---- held out


@given(
    labels=st.lists(st.integers(0, 2), min_size=1, max_size=60),
    clients=st.integers(1, 3),
    test=st.sampled_from([0.0, 0.125, 0.25, 0.5, 0.75]),
    val=st.sampled_from([0.0, 0.125]),
    seed=st.integers(0, 5),
    kind=st.sampled_from(["classes", "real"]),
)
def test_holdout_splits_each_class_of_each_client(
    labels: list[int], clients: int, test: float, val: float, seed: int, kind: str
) -> None:
    n = len(labels)
    x, _ = numbered(n)
    fed = Federation.from_arrays(x, labels, np.arange(n) % clients, task=kind)
    held = fed.holdout(test, val, seed)
    assert held.task is fed.task
    assert set(held.tests) == (set(fed.clients) if test else set())
    assert set(held.valids) == (set(fed.clients) if val else set())
    for name, data in fed.clients.items():
        parts = [numbers(split[name]) for split in (held.clients, held.tests, held.valids) if name in split]
        assert sorted(chain(*parts)) == numbers(data)  # disjoint and complete
        assert parts[0] == sorted(parts[0])
        strata = [0, 1, 2] if kind == "classes" else [None]
        for c in strata:
            mine = [[i for i in part if c is None or labels[i] == c] for part in parts]
            size = sum(map(len, mine))
            expected = min(int(test * size + 0.5), max(size - 1, 0))
            assert len(mine[0]) >= min(size, 1)
            assert (len(mine[1]) if test else 0) == expected
            assert (len(mine[-1]) if val else 0) == min(int(val * size + 0.5), max(size - 1 - expected, 0))
    assert held.hash == fed.holdout(test, val, seed).hash


def test_holdout_depends_on_its_seed_and_on_each_client_alone() -> None:
    x, _ = numbered(90)
    y, groups = np.arange(90) % 3, np.repeat(["a", "b", "c"], 30)
    fed = Federation.from_arrays(x, y, groups)
    held = fed.holdout(seed=1)
    assert held.hash != fed.holdout(seed=2).hash
    assert held.hash == fed.holdout(seed=np.int64(1)).hash
    assert held.origin["holdout"] == "test=0.25 val=0 seed=1"
    same(held.tests["b"], fed.only("b").holdout(seed=1).tests["b"])
    twice = fed.holdout(0.25, seed=1).holdout(0.0, 0.5, seed=2)
    assert set(twice.tests) == set(twice.valids) == {"a", "b", "c"}
    same(twice.tests["a"], held.tests["a"])


@pytest.mark.parametrize(
    ("given_shares", "message"),
    [
        ({"test": 1.0}, "holdout: test = 1.0, but it takes a share >= 0 and below 1"),
        ({"val": -0.1}, "holdout: val = -0.1"),
        ({"test": float("nan")}, "holdout: test = nan"),
        ({"test": 0.6, "val": 0.4}, r"test \+ val = 1 leaves nothing"),
    ],
)
def test_shares_that_leave_nothing_are_refused(given_shares: dict[str, float], message: str) -> None:
    with pytest.raises(BadSetting, match=message):
        Federation.from_arrays(X, Y).holdout(**given_shares)


def test_rows_are_held_out_once() -> None:
    held = Federation.from_arrays(X, Y).holdout(0.25)
    with pytest.raises(BadData, match="hold rows out once"):
        held.holdout(0.25)


# ---- in chunks


def source(x: Any, y: Any, *more: Any, cuts: tuple[int, ...] = (7, 8, 20)) -> Callable[[], Iterator[Any]]:
    def read() -> Iterator[Any]:
        for i, j in zip((0, *cuts), (*cuts, len(x)), strict=True):
            yield tuple(a[i:j] for a in (x, y, *more))

    return read


@pytest.mark.parametrize("kind", KINDS)
def test_chunks_are_the_rows_that_arrays_are(kind: str) -> None:
    weights = np.arange(30.0)
    whole = Federation.from_arrays(X, KINDS[kind], task=kind, weights=weights)
    pieces = Federation.from_chunks({"all": source(X, KINDS[kind], weights)}, task=kind)
    same(pieces.clients["all"], whole.clients["all"])
    same(pieces.pooled, whole.pooled)
    assert pieces.hash == whole.hash
    for most in (1, 4, 7, 100):
        blocks = list(pieces.clients["all"].blocks(most))
        assert max(block.n for block in blocks) <= most
        assert [list(w.weight) for w in blocks] == [b.weight.tolist() for b in blocks]
        np.testing.assert_array_equal(np.concatenate([b.x for b in blocks]), X)
        np.testing.assert_array_equal(np.concatenate([b.weight for b in blocks]), weights)
    held = pieces.holdout(0.25, seed=3)
    same(held.tests["all"], whole.holdout(0.25, seed=3).tests["all"])


def test_chunks_of_torch() -> None:
    torch = pytest.importorskip("torch")
    fed = Federation.from_chunks({"a": source(torch.from_numpy(X), torch.arange(30) % 2)})
    block = next(fed.clients["a"].blocks(5))
    assert (block.weight @ block.x).shape == (3,) and isinstance(block.target, torch.Tensor)


CHANGED: dict[str, Callable[[], Iterator[Any]]] = {
    "nothing any more": lambda: iter(()),
    "a chunk less": source(X[:20], Y[:20], cuts=(7, 8)),
    "a chunk more": source(X, Y, cuts=(7, 8, 20, 25)),
    "other lengths": source(X, Y, cuts=(7, 9, 20)),
    "another order": source(X[::-1], Y[::-1]),
    "other columns": source(X[:, :2], Y),
    "a NaN": source(np.where(np.arange(30)[:, None] == 9, np.nan, X), Y),
}


@pytest.mark.parametrize("change", CHANGED)
def test_a_source_that_gives_other_rows_the_second_time_is_refused(change: str) -> None:
    reads = iter([source(X, Y), CHANGED[change]])
    fed = Federation.from_chunks({"north": lambda: next(reads)()})
    with pytest.raises(BadData, match=r"same rows|columns, but 3|client 'north', chunk 2, row 1, column 0 is nan"):
        fed.clients["north"].whole()


def test_an_exhausted_iterator_is_no_source() -> None:
    rows = source(X, Y)()
    fed = Federation.from_chunks({"north": lambda: rows})
    with pytest.raises(BadData, match=r"Chunk 0 had 7 rows at first and 0 now.*each time it is called"):
        fed.clients["north"].hash  # noqa: B018


@pytest.mark.parametrize(
    ("chunks", "message"),
    [
        ({}, "at least one client"),
        ({"n": lambda: iter(())}, "client 'n': its source gave no chunk"),
        ({"n": source(X, Y), "s": source(X[:, :2], Y)}, "'s' has rows of 2 columns, others of 3"),
        ({"n": lambda: iter([(X, Y), (X[:, :2], Y)])}, "client 'n', chunk 1 has 2 columns, but 3"),
        ({"n": lambda: iter([(X, Y), (X, Y[:4])])}, "client 'n', chunk 1, y has 4 entries for 30 rows"),
        ({"n": lambda: iter([(X, 3)])}, "client 'n', chunk 0, y has 1 entries for 30 rows"),
        ({"n": lambda: iter([(X, Y, -np.ones(30))])}, "client 'n', chunk 0, weights, row 0 is -1"),
        ({"n": lambda: iter([(X, Y), (X * np.inf, Y)])}, "client 'n', chunk 1, row 0, column 0 is"),
        ({"n": lambda: iter([(X[:2], [[1], [1, 2]])])}, "client 'n', chunk 0, y is no array"),
    ],
)
def test_bad_chunks_are_named(chunks: Any, message: str) -> None:
    with pytest.raises(BadData, match=message):
        Federation.from_chunks(chunks)


def test_chunks_keep_to_declared_bounds_and_classes() -> None:
    with pytest.raises(BadData, match=r"row \d+, column \d is .*above the declared high"):
        Federation.from_chunks({"n": source(X, Y)}, declare=Bounds(high=1.0))
    with pytest.raises(BadData, match=r"client 'n', y, row 2 has the label .*'c'"):
        Federation.from_chunks({"n": source(X, Y)}, classes=["a", "b"])


def test_chunked_rows_have_a_shape() -> None:
    rows = ChunkedRows(lambda: iter([X[:10], X[10:]]), (10, 20), 3)
    assert rows.shape == (30, 3) and len(rows) == 30 and rows.ndim == 2
    np.testing.assert_array_equal(rows.whole(), X)


# ---- parts of federations


def test_only_and_without_share_a_federation() -> None:
    fed = Federation.from_arrays(X, Y, GROUPS, test=(X, Y, GROUPS))
    north, rest = fed.only("north"), fed.without("north")
    assert list(north.clients) == list(north.tests) == ["north"]
    assert list(rest.clients) == list(rest.tests) == ["east", "south"]
    assert north.task is rest.task is fed.task
    assert north.clients["north"] is fed.clients["north"]
    back = rest.joined(north)
    assert back.hash == fed.hash and set(back.tests) == set(fed.tests)
    for use in (fed.only, fed.without):
        with pytest.raises(UnknownClient, match="No client 'west' in this federation of 3: east, north, south"):
            use("north", "west")
    with pytest.raises(BadData, match="at least one client"):
        fed.without("north", "south", "east")


def test_who_is_here_does_not_join_again() -> None:
    fed = Federation.from_arrays(X, Y, GROUPS)
    with pytest.raises(BadData, match=r"'east' is here already.*another id"):
        fed.joined(fed.only("east"))


def test_who_joins_takes_over_the_class_numbers() -> None:
    fed = Federation.from_arrays(X, Y, GROUPS)
    late = Federation.from_arrays(X[:6], ["c", "a"] * 3, ["west"] * 6, test=(X[:2], ["c", "c"], ["west"] * 2))
    assert late.clients["west"].y.tolist() == [1, 0] * 3
    joined = fed.joined(late)
    assert joined.clients["west"].y.tolist() == [2, 0] * 3 and joined.tests["west"].y.tolist() == [2, 2]
    assert all(data.task is fed.task for data in (*joined.clients.values(), *joined.tests.values()))
    assert fed.joined(late).hash == fed.joined(late.under(fed.task)).hash
    assert fed.under(fed.task) is fed


@pytest.mark.parametrize(
    ("late", "message"),
    [
        (Federation.from_arrays(X[:2], ["a", "q"], ["w", "w"]), "client 'w', y, row 1 has the label .*'q'"),
        (Federation.from_arrays(X[:2, :2], ["a", "b"], ["w", "w"]), "another task: kind 'classes', 2 columns"),
        (Federation.from_arrays(X[:2], [1, 2], ["w", "w"], task="real"), "another task: kind 'real', 3 columns"),
    ],
)
def test_rows_of_another_task_are_refused(late: Federation, message: str) -> None:
    with pytest.raises(BadData, match=message):
        Federation.from_arrays(X, Y, GROUPS).joined(late)


def test_targets_of_other_tasks_are_kept() -> None:
    for kind in ("real", "multilabel"):
        fed = Federation.from_arrays(X, KINDS[kind], GROUPS, task=kind)
        again = Federation.from_arrays(X[:3], KINDS[kind][:3], ["w"] * 3, task=kind)
        np.testing.assert_array_equal(fed.joined(again).clients["w"].y, again.clients["w"].y)


def test_hashes_tell_rows_apart() -> None:
    fed = Federation.from_arrays(X, Y, GROUPS)
    assert re.fullmatch("[0-9a-f]{64}", fed.hash)
    assert fed.hash == Federation.from_arrays(X, Y, GROUPS).hash
    x, y, w = X.copy(), Y.copy(), np.ones(30)
    x[3, 1] += 1e-12
    y[0], w[7] = "a", 2.0
    others = [(x, Y, GROUPS, None), (X, y, GROUPS, None), (X, Y, GROUPS, w), (X, Y, np.char.add(GROUPS, "x"), None)]
    hashes = {Federation.from_arrays(*other[:3], weights=other[3]).hash for other in others}
    assert len(hashes | {fed.hash}) == 5
    north = fed.clients["north"]
    assert north.rows(range(north.n)).hash == north.hash != north.rows(range(north.n - 1)).hash


def test_rows_may_be_held_out_whatever_their_class() -> None:
    y = np.arange(40) % 10
    federation = Federation.from_arrays(np.arange(40.0)[:, None], y, ["a"] * 40)
    by_class, plain = (federation.holdout(0.5, seed=1, stratify=s) for s in (True, False))
    assert set(by_class.clients["a"].y.tolist()) == set(range(10))
    assert plain.tests["a"].n == 20 and sorted(plain.tests["a"].y.tolist()) != sorted(by_class.tests["a"].y.tolist())
    assert "plain" in plain.origin["holdout"] and "plain" not in by_class.origin["holdout"]
