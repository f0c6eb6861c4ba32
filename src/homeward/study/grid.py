"""Methods x federations, cell by cell."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from ..core.method import Method
from ..core.task import Federation
from ..engine.run import Run, fit
from .rows import Row


class Cell(NamedTuple):
    """One method on one federation."""

    method: str  # its label
    replicate: int
    run: Run
    rows: list[Row]  # scores; bytes that each client sent and received; rows that it has; seconds


def cells(methods: Mapping[str, Method], federations: Iterable[Federation], seed: int = 0) -> Iterator[Cell]:
    """Every method on every federation, which is a replicate; replicate r is fitted with seed + r, alike for all methods.

    One cell after the other, as they are asked for: whoever iterates keeps the rows, and of the runs only what it needs.
    """
    for replicate, federation in enumerate(federations):
        for label, method in methods.items():
            start = time.perf_counter()
            run = fit(method, federation, seed=seed + replicate)
            scores = run.scores()
            seconds = time.perf_counter() - start
            facts = {**run.facts, "method": label}
            rows: list[Row] = [{**row, "method": label} for row in scores]
            rows += [
                *_sizes(facts, federation),
                *_bytes(facts, run),
                _fact(facts, "", "", "seconds", round(seconds, 3)),
            ]
            yield Cell(label, replicate, run, rows)


def _sizes(facts: Row, federation: Federation) -> Iterator[Row]:
    """How many rows each client has."""
    for split, clients in (("train", federation.clients), ("val", federation.valids), ("test", federation.tests)):
        for client, data in sorted(clients.items()):
            yield _fact(facts, client, split, "rows", data.n)


def _bytes(facts: Row, run: Run) -> Iterator[Row]:
    """What left each client and what reached it, serialised."""
    for client, sums in run.traffic.items():
        for way in ("up", "down"):
            yield _fact(facts, client, "", f"bytes_{way}", sums[way])


def _fact(facts: Row, client: str, split: str, metric: str, value: Any) -> Row:
    return {**facts, "client": client, "split": split, "model": "", "slot": "", "metric": metric, "value": value}
