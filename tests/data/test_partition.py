"""Partitions as values: they keep what they say, test rows follow each client's classes, and a file is whole or refused."""

import io
import json
import os
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from homeward.core.errors import BadData, BadFile, SmallTest
from homeward.core.task import Dealt
from homeward.data.laws import dirichlet, iid, quantity
from homeward.data.partition import Partition

HUNDRED = np.repeat(np.arange(100), 500)  # 100 classes of 500 rows
TEN = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 200))


def small(counts: list[list[int]], dropped: int = 0, seed: int = 0) -> Partition:
    """A partition written by hand, of classes 0, 1, ..."""
    table = np.array(counts)
    owner = np.repeat(np.arange(len(table)), table.sum(axis=1))
    ids = tuple(f"c{k:03d}" for k in range(len(table)))
    owner = np.append(owner, np.full(dropped, -1))
    return Partition(owner, ids, np.arange(table.shape[1]), table, "by-hand", {"seed": seed})


def quietly(part: Partition, y_test: Any) -> Partition:
    """`match` where tiny test sets are expected."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SmallTest)
        return part.match(y_test)


# ---- the value


def test_a_partition_is_what_a_federation_takes_for_groups() -> None:
    assert isinstance(iid(TEN, clients=3), Dealt)


def test_a_partition_is_not_written_to() -> None:
    part = iid(TEN, clients=3)
    with pytest.raises(ValueError, match="read-only"):
        part.owner[0] = 2


def test_the_hash_is_of_the_content_alone_and_stays_what_it_is() -> None:
    owner, counts = np.array([0, 1, -1, 1]), np.array([[1, 0], [1, 1]])
    part = Partition(owner, ("c000", "c001"), np.array(["a", "b"]), counts, "x", {"seed": 1})
    assert part.hash == "5c4c32699ca85792ec364f3a6a4cafdb8e4fc410cd19eb6494b2f9334df00dd9"
    narrow = Partition(owner.astype(np.int32), part.ids, part.labels, counts.astype(np.uint8), "x", {"seed": 1})
    assert narrow.hash == part.hash


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"owner": np.array([0, 2])}, "from -1 .nobody. to 1"),
        ({"owner": np.zeros((2, 2), int)}, "owner must hold one number"),
        ({"ids": ("a", "a")}, "ids must be different"),
        ({"counts": np.array([[1], [2]])}, "add up to"),
        ({"counts": np.array([[1, 0], [1, 0]])}, r"shape \(2, 1\)"),
    ],
)
def test_a_partition_that_contradicts_itself_is_refused(changes: dict[str, Any], said: str) -> None:
    sound = {"owner": np.array([0, 1]), "ids": ("a", "b"), "labels": np.array([7]), "counts": np.array([[1], [1]])}
    with pytest.raises(BadData, match=said):
        Partition(**{**sound, **changes}, law="by-hand", settings={})


# ---- matched test rows

tables = st.integers(1, 6).flatmap(
    lambda c: st.lists(st.lists(st.integers(0, 30), min_size=c, max_size=c), min_size=1, max_size=8)
)


@given(counts=tables, data=st.data())
@settings(max_examples=150, deadline=None)
def test_matched_test_rows_follow_each_clients_classes(counts: list[list[int]], data: st.DataObject) -> None:
    part = small(counts, dropped=2)
    known = np.flatnonzero(part.counts.sum(axis=0))
    if not len(known):
        return
    y_test = np.array(data.draw(st.lists(st.sampled_from(known.tolist()), min_size=1, max_size=60)))
    tests = quietly(part, y_test)
    totals = np.bincount(y_test, minlength=len(part.labels))
    assert tests.dropped == 0
    assert tests.counts.sum(axis=0).tolist() == totals.tolist()  # every test row once
    assert all(
        tests.counts[k, c] == np.sum((tests.owner == k) & (y_test == c)) for k, c in np.ndindex(*part.counts.shape)
    )
    assert not tests.counts[part.counts == 0].any()  # no class that the client never trained on
    quota = part.counts * totals / np.maximum(part.counts.sum(axis=0), 1)
    assert (np.abs(tests.counts - quota) < 1).all()


def test_the_largest_fractions_get_the_rows_that_are_left() -> None:
    part = small([[5], [3], [2]])
    assert quietly(part, [0, 0, 0, 0]).counts.ravel().tolist() == [2, 1, 1]  # quotas 2.0, 1.2, 0.8
    assert quietly(part, [0]).counts.ravel().tolist() == [1, 0, 0]


def test_ties_favour_nobody_across_classes_and_seeds() -> None:
    even = np.ones((4, 300), dtype=int).tolist()
    wins = quietly(small(even), np.arange(300)).sizes  # one test row for four equal quotas, in 300 classes
    assert wins.sum() == 300
    assert np.abs(wins - 75).max() < 5 * np.sqrt(300 * 3 / 16)
    assert quietly(small(even, seed=0), np.arange(300)).hash != quietly(small(even, seed=1), np.arange(300)).hash


def test_a_match_says_what_it_matches() -> None:
    part = dirichlet(HUNDRED, clients=20, alpha=0.5)
    tests = part.match(np.repeat(np.arange(100), 100))
    assert tests.law == "match(dirichlet)"
    assert tests.settings == {**part.settings, "of": part.hash}
    assert (tests.ids, tests.labels.tolist()) == (part.ids, part.labels.tolist())


def test_tiny_test_sets_are_warned_of_by_name_and_kept() -> None:
    part = small([[100], [900], [12]])
    with pytest.warns(
        SmallTest, match="1 of 3 clients have fewer than 10 test rows; the fewest, 1, has 'c002'"
    ) as caught:
        tests = part.match(np.zeros(101, int))
    assert tests.sizes.tolist() == [10, 90, 1]
    assert caught[0].filename == __file__


@pytest.mark.parametrize(
    ("y_test", "said"),
    [
        ([0, 1, 2], r"row 2: no client trains on class 2,"),
        ([0, 3], r"row 1: no client trains on class 3,"),
        (["0", "1"], r"row 0: no client trains on class '0'"),
        ([0.0, 1.5], "y_test, row 1 is 1.5: real numbers"),
        ([], r"y_test is empty"),
        ([[0], [1]], r"y_test has shape \(2, 1\)"),
    ],
)
def test_test_labels_that_nobody_holds_are_refused(y_test: Any, said: str) -> None:
    with pytest.raises(BadData, match=said):
        small([[3, 2, 0], [1, 0, 0]]).match(y_test)


# ---- what a matched partition does to the metrics


def accuracies(tests: Partition, hits: np.ndarray) -> tuple[float, float, np.ndarray]:
    """Sample-weighted and client-mean accuracy, and the accuracy of each client."""
    each = np.bincount(tests.owner, hits, tests.clients) / tests.sizes
    return float(hits.mean()), float(each.mean()), each


def test_weighted_minus_client_mean_is_the_covariance_of_size_and_accuracy() -> None:
    tests = quantity(TEN, clients=10, seed=1)
    hits = np.random.default_rng(0).random(len(TEN)) < 0.3 + 0.5 * (tests.sizes[tests.owner] > 200)
    weighted, mean, each = accuracies(tests, hits)
    covariance = np.mean((tests.sizes - tests.sizes.mean()) * (each - each.mean()))
    assert weighted - mean == pytest.approx(covariance / tests.sizes.mean())


def test_a_fixed_classifier_has_one_weighted_accuracy_whatever_the_partition() -> None:
    y_test = np.repeat(np.arange(10), 100)
    rng = np.random.default_rng(0)
    guesses = np.where(rng.random(1000) < (y_test + 1) / 11, y_test, rng.integers(0, 10, 1000))
    parts = [dirichlet(TEN, clients=10, alpha=alpha, seed=seed) for alpha in (0.1, 1.0) for seed in range(3)]
    scores = [accuracies(quietly(part, y_test), guesses == y_test)[:2] for part in parts]
    weighted, means = map(set, zip(*scores, strict=True))
    assert len(weighted) == 1
    assert len(means) == len(parts)


# ---- files


@pytest.mark.parametrize(
    "part",
    [
        iid(TEN, clients=3),
        dirichlet([["Ärzte", "b"][c % 2] for c in range(100)], clients=2, alpha=1.0),
        iid(TEN > 4, clients=2),
        quantity(np.linspace(0, 1, 50), clients=2),
        small([[1, 2], [3, 4]], dropped=3),
        iid(np.array([255, 1], np.uint8), clients=1),
    ],
    ids=["numbers", "text", "bools", "real", "dropped", "bytes"],
)
def test_a_saved_partition_comes_back(part: Partition, tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "partition.of-mine"
    part.save(path)
    back = Partition.load(str(path))
    assert os.listdir(path.parent) == [path.name]
    assert back.hash == part.hash
    assert (back.ids, back.law, back.settings) == (part.ids, part.law, part.settings)
    assert back.labels.tolist() == part.labels.tolist()
    assert [type(v) for v in back.labels.tolist()] == [type(v) for v in part.labels.tolist()]
    assert np.array_equal(back.owner, part.owner)
    assert np.array_equal(back.counts, part.counts)


def test_one_content_is_one_file(tmp_path: Path) -> None:
    for name in ("a", "b"):
        iid(TEN, clients=3).save(tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_a_killed_save_leaves_the_old_file_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, old, new = tmp_path / "partition.npz", iid(TEN, clients=3), iid(TEN, clients=4)
    old.save(path)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    for step in ("replace", "fsync"):
        with monkeypatch.context() as patch:
            patch.setattr(os, step, killed)
            with pytest.raises(KeyboardInterrupt):
                new.save(path)
        assert Partition.load(path).hash == old.hash
        assert os.listdir(tmp_path) == [path.name]


def saved(part: Partition, tmp_path: Path) -> bytes:
    part.save(tmp_path / "whole")
    return (tmp_path / "whole").read_bytes()


def rewritten(raw: bytes, **changes: Any) -> bytes:
    """The file with entries of its header changed, owner and counts too; an entry changed to None is left out."""
    with np.load(io.BytesIO(raw)) as file:
        entries = dict(file)
    header = json.loads(entries["header"].tobytes())
    entries |= {k: changes.pop(k) for k in ("owner", "counts") if k in changes}
    header = {k: v for k, v in {**header, **changes}.items() if v is not None}
    entries["header"] = np.frombuffer(json.dumps(header).encode(), np.uint8)
    buffer = io.BytesIO()
    np.savez(buffer, **{k: v for k, v in entries.items() if v is not None})
    return buffer.getvalue()


def npz(**entries: Any) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **entries)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda raw: b"", "is not a partition file. Name a file that"),
        (lambda raw: b"owner,client\n1,2\n", "is not a partition file"),
        (lambda raw: npz(X=np.zeros(3)), "is not a partition file"),
        (lambda raw: npz(header=np.frombuffer(b"[]", np.uint8)), "is not a partition file"),
        (lambda raw: npz(header=np.array([None])), "is damaged"),
        (lambda raw: rewritten(raw, format="another"), "is not a partition file"),
        (lambda raw: rewritten(raw, schema=2), "has schema 2, but this version reads 1. Upgrade homeward"),
        (lambda raw: raw[: len(raw) // 2], "is damaged"),
        (lambda raw: rewritten(raw, owner=None), "is damaged: a part is missing"),
        (lambda raw: rewritten(raw, ids=None), "is damaged: its content is no partition"),
        (lambda raw: rewritten(raw, owner=np.array([9])), "is damaged: its content is no partition"),
        (lambda raw: rewritten(raw, law="other"), "does not have the hash that it states"),
        (lambda raw: rewritten(raw, owner=np.array([0, 1])), "does not have the hash that it states"),
        (lambda raw: rewritten(raw, hash="0"), "does not have the hash that it states"),
    ],
)
def test_files_that_are_not_whole_or_not_ours_are_refused(
    spoil: Callable[[bytes], bytes], said: str, tmp_path: Path
) -> None:
    path = tmp_path / "partition.npz"
    path.write_bytes(spoil(saved(iid(["a", "a"], clients=2), tmp_path)))
    with pytest.raises(BadFile, match=said) as caught:
        Partition.load(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("name", ["absent.npz", "."])
def test_a_file_that_cannot_be_read_is_named(name: str, tmp_path: Path) -> None:
    with pytest.raises(BadFile, match=r"cannot be read: .* Name a file"):
        Partition.load(tmp_path / name)


def test_no_broken_byte_goes_unnoticed(tmp_path: Path) -> None:
    part = iid(["a", "b"] * 3, clients=2)
    raw, path = saved(part, tmp_path), tmp_path / "broken"
    rng = np.random.default_rng(0)
    for at in range(len(raw)):
        cut = at % 2
        path.write_bytes(raw[:at] if cut else raw[:at] + bytes([raw[at] ^ int(rng.integers(1, 256))]) + raw[at + 1 :])
        with suppress(BadFile):
            assert Partition.load(path).hash == part.hash  # a date, a flag: nothing of the content
