"""How unlike the clients of a partition are, as numbers and rows; nothing is drawn here."""

from __future__ import annotations

import numpy as np
from scipy.special import entr

from .partition import Partition


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
