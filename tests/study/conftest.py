"""Rows of a study that was never run: two partitions more than it takes, values that are easy to check."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest

from homeward.study.stats import Study

METHODS = ("local-ridge", "afl", "apfl")
Score = Callable[[str, str, int, int], float]


def row(method: str, partition: str, client: str, value: float, **more: Any) -> dict[str, Any]:
    facts = {"data": "toy", "partition": partition, "method": method, "settings": {}, "seed": 0, "round": 1}
    usual = {"client": client, "split": "test", "model": "personal", "slot": "", "metric": "accuracy", "value": value}
    return {**facts, **usual, **more}


def made(score: Score, methods: Iterable[str] = METHODS, partitions: int = 5, clients: int = 6) -> list[dict[str, Any]]:
    """Rows of every method on every partition; `score` sees method, model and the two numbers."""
    rows = []
    for p in range(partitions):
        for method in methods:
            models = {"afl": ["global"], "apfl": ["personal", "global"]}.get(method, ["personal"])
            for k in range(clients):
                at = (method, f"p{p}", f"c{k:03d}")
                rows += [row(*at, score(method, model, p, k), model=model) for model in models]
                rows.append(row(*at, 10 + 5 * k, model="", metric="rows"))
                sent = {"local-ridge": 0, "afl": 20_000}.get(method, 4_000_000)
                rows += [row(*at, sent, split="", model="", metric=f"bytes_{way}") for way in ("up", "down")]
    return rows


def plausible(method: str, model: str, partition: int, client: int) -> float:
    """Alone 80 to 90 %, one model for everybody 88 %, personal models about 6 points above alone; c005 is hurt."""
    noise = float(np.random.default_rng([partition, client]).normal(0, 0.01))
    alone = 0.8 + 0.02 * client + noise
    if model == "global":
        return 0.88 + noise / 2
    return alone if method == "local-ridge" else alone - 0.01 if client == 5 else alone + 0.07


@pytest.fixture
def rows() -> list[dict[str, Any]]:
    return made(plausible)


@pytest.fixture
def study(rows: list[dict[str, Any]]) -> Study:
    return Study(rows)


@pytest.fixture
def labels() -> list[dict[str, Any]]:
    """A label map of six clients and three classes."""
    return [
        {"client": f"c{k:03d}", "class": c, "rows": 1 + 7 * k + c} for k in range(6) for c in range(3) if (k + c) % 4
    ]


@pytest.fixture
def build() -> Callable[..., list[dict[str, Any]]]:
    return made
