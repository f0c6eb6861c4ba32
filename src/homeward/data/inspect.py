"""How unlike the clients are: in labels and sizes (a partition), in columns (their rows). Numbers and rows; nothing is drawn here."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import entr

from ..core.check import as_numpy
from ..core.task import ClientData, Federation
from .partition import Partition

FAR = 5.0  # standard deviations
BLOCK = 1 << 14  # rows


def skew(partition: Partition) -> dict[str, int | float]:
    """Size and label skew in a few numbers. Class numbers are means over the clients that have rows.

    Always: clients, rows, dropped; size_min, size_mean, size_max and size_cv (standard deviation over mean).
    Where the targets are classes: classes and classes_min (that a client holds, on average and at the least),
    effective_classes (exp of the entropy of a client's class shares), top_share (of a client's most frequent class).

    >>> from homeward.data.laws import iid
    >>> skew(iid(["cat", "dog"] * 10, clients=2, stratified=True))["effective_classes"]
    2.0
    """
    sizes = partition.sizes
    mean = float(sizes.mean())
    numbers = {
        "clients": partition.clients,
        "rows": int(sizes.sum()),
        "dropped": partition.dropped,
        "size_min": int(sizes.min()),
        "size_mean": mean,
        "size_max": int(sizes.max()),
        "size_cv": float(sizes.std()) / mean if mean else 0.0,
    }
    return {**numbers, **_label_skew(partition)} if len(partition.labels) and mean else numbers


def _label_skew(partition: Partition) -> dict[str, int | float]:
    counts = partition.counts[partition.sizes > 0]
    shares = counts / counts.sum(axis=1, keepdims=True)
    held = (counts > 0).sum(axis=1)
    return {
        "classes": float(held.mean()),
        "classes_min": int(held.min()),
        "effective_classes": float(np.exp(entr(shares).sum(axis=1)).mean()),
        "top_share": float(shares.max(axis=1).mean()),
    }


def label_map(partition: Partition) -> list[dict[str, bool | int | float | str]]:
    """A row {client, class, rows} for each class that a client holds, client by client: the data of the label picture.

    >>> from homeward.data.laws import iid
    >>> label_map(iid(["cat", "dog"], clients=1))
    [{'client': 'c000', 'class': 'cat', 'rows': 1}, {'client': 'c000', 'class': 'dog', 'rows': 1}]
    """
    labels = partition.labels.tolist()
    held = np.argwhere(partition.counts > 0).tolist()
    return [{"client": partition.ids[k], "class": labels[c], "rows": int(partition.counts[k, c])} for k, c in held]


# ---- columns and rows of the clients


def odd_columns(federation: Federation) -> list[dict[str, int | float | str]]:
    """A row {column, client, mean, elsewhere} for each column whose mean at a client lies far from that of the others: other units, say.

    |mₖ − median m| > 5 s, with m the clients' means on training rows and s the standard deviation within clients, pooled over all but k:
    one client in other units does not widen what it is measured by. And > sₖ, its own, or a rare column would be odd wherever it is seen.
    Of two clients each is measured by the other. elsewhere: the median of the others' means.

    >>> x = [[36.6], [36.9], [37.0], [36.8], [98.4], [99.1]]
    >>> [(o["column"], o["client"]) for o in odd_columns(Federation.from_arrays(x, [0, 1] * 3, list("aabbcc")))]
    [(0, 'c')]
    """
    clients = {name: data for name, data in sorted(federation.clients.items()) if data.n}
    if len(clients) < 2:
        return []
    names = list(clients)
    means, squares, rows = (np.stack(part) for part in zip(*map(_moments, clients.values()), strict=True))
    found = np.argwhere(_far(means, squares, rows[:, None])).tolist()
    return [
        {
            "column": j,
            "client": names[k],
            "mean": float(means[k, j]),
            "elsewhere": float(np.median(np.delete(means[:, j], k))),
        }
        for j, k in sorted((j, k) for k, j in found)
    ]


def _moments(data: ClientData) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Mean and sum of squares about it, column by column, and the number of rows."""
    mean = sum((_sums(as_numpy(block.x)) for block in data.blocks(BLOCK)), np.zeros(data.task.dimension)) / data.n
    squares = np.zeros_like(mean)
    for block in data.blocks(BLOCK):
        squares += _sums((as_numpy(block.x) - mean) ** 2)
    return mean, squares, np.float64(data.n) * np.ones(())


def _sums(x: NDArray[Any]) -> NDArray[np.float64]:
    return np.asarray(x.sum(axis=0, dtype=np.float64))


def _far(means: NDArray[Any], squares: NDArray[Any], rows: NDArray[Any]) -> NDArray[np.bool_]:
    """Which clients' means are far off. (K, d)"""
    middle = np.median(means, axis=0) if len(means) > 2 else means[::-1]
    distance = np.abs(means - middle)
    free = np.maximum((rows.sum() - rows) - (len(rows) - 1), 1)
    others = np.sqrt((squares.sum(axis=0) - squares).clip(min=0) / free)
    own = np.sqrt(squares / rows)
    rounding = 1e-9 * np.abs(means).max(axis=0)
    return np.asarray((distance > FAR * others) & (distance > own) & (distance > rounding))


def constant_columns(federation: Federation) -> list[int]:
    """Columns that have one value in all training rows: nothing can be learnt from them.

    >>> constant_columns(Federation.from_arrays([[1.0, 3.0], [2.0, 3.0]], ["a", "b"]))
    [1]
    """
    blocks = [as_numpy(b.x) for data in federation.clients.values() for b in data.blocks(BLOCK) if b.n]
    if not blocks:
        return []
    first = blocks[0][0]
    same = np.logical_and.reduce([(block == first).all(axis=0) for block in blocks])
    return [int(j) for j in np.flatnonzero(same)]


def held_once(federation: Federation) -> dict[str, list[str]]:
    """For each client that has one training row of a class, these classes: plain sums by class hold such rows as they are.

    Where targets are no classes: clients with a single row, and nothing in their lists.

    >>> held_once(Federation.from_arrays([[1.0], [2.0], [3.0]], ["flu", "cold", "cold"], ["a", "a", "a"]))
    {'a': ['flu']}
    """
    found: dict[str, list[str]] = {}
    for name, data in sorted(federation.clients.items()):
        seen = as_numpy(data.y)[as_numpy(data.weight) > 0]
        if federation.task.kind != "classes":
            if len(seen) == 1:
                found[name] = []
            continue
        once = np.flatnonzero(np.bincount(seen, minlength=federation.task.classes) == 1)
        if len(once):
            found[name] = [str(label) for label in federation.task.labels[once].tolist()]
    return found
