"""Cells: methods x federations, with rows that say what each run says."""

import numpy as np
import pytest

from homeward.core.task import Federation
from homeward.methods import METHODS
from homeward.study.grid import cells
from homeward.study.rows import select
from homeward.study.stats import Study


def federation(seed: int) -> Federation:
    draw = np.random.default_rng(seed)
    y = np.arange(60) % 3
    X = draw.normal(size=(60, 4)) + y[:, None]
    made = Federation.from_arrays(X, y, np.repeat(["a", "b", "c"], 20)).holdout(test=0.3, seed=seed)
    return Federation(made.task, made.clients, made.tests, origin={"partition": f"hash{seed}"})


def test_every_cell_once_and_paired() -> None:
    methods = {"alone": METHODS["local-ridge"](maps=8), "shared": METHODS["afl"]()}
    found = list(cells(methods, [federation(0), federation(1)], seed=5))
    assert [(c.method, c.replicate, c.run.seed) for c in found] == [
        ("alone", 0, 5), ("shared", 0, 5), ("alone", 1, 6), ("shared", 1, 6),
    ]  # fmt: skip
    rows = [row for cell in found for row in cell.rows]
    study = Study(rows, local="alone", everybody="shared")
    assert study.methods == ["alone", "shared"]
    assert study.replicates == ["hash0", "hash1"]
    assert study.standing("shared").mean.replicates == 2


def test_a_cell_has_scores_bytes_sizes_and_seconds() -> None:
    fed = federation(0)
    cell = next(cells({"mine": METHODS["afl"]()}, [fed]))
    for mine, its in zip(select(cell.rows, metric="accuracy"), cell.run.scores(), strict=True):
        assert mine == {**its, "method": "mine"}
    for client, sums in cell.run.traffic.items():
        for way in ("up", "down"):
            assert [r["value"] for r in select(cell.rows, client=client, metric=f"bytes_{way}")] == [sums[way]]
    assert {r["client"]: r["value"] for r in select(cell.rows, metric="rows", split="test")} == {
        c: d.n for c, d in fed.tests.items()
    }
    assert [r["value"] > 0 for r in select(cell.rows, metric="seconds")] == [True]
    assert len({tuple(row) for row in cell.rows}) == 1  # all rows have the same keys


def test_nothing_is_computed_before_it_is_asked_for() -> None:
    def broken():  # type: ignore[no-untyped-def]
        yield federation(0)
        raise RuntimeError("the second federation was made")

    found = cells({"m": METHODS["afl"]()}, broken())
    next(found)
    with pytest.raises(RuntimeError, match="second"):
        next(found)
