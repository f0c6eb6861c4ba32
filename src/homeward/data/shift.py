"""Features that differ by client, as if each had an instrument of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import numpy as np
from numpy.typing import ArrayLike

from ..core.errors import BadData
from ..core.rng import Rng, rng_for
from ..core.settings import Choice, Number
from .draws import Floats
from .labels import Values
from .laws import Seed, checked

Strength = Annotated[float, Number(low=0)]
Kind = Annotated[str, Choice("offset", "rotation", "affine")]


@checked
def shifted(
    x: ArrayLike, owner: ArrayLike, ids: Sequence[str], seed: Seed, strength: Strength, kind: Kind = "offset"
) -> Values:
    """Rows as each client's own instrument would have measured them: x → R_k x + b_k, in training and test rows alike.

    offset: b_k has independent uniform entries of mean 0 and standard deviation `strength`, in the units of x.
    rotation: R_k turns the columns in random pairs, each by an angle uniform in ± strength π; an odd column stays.
    affine: both. The map depends on seed, id and number of columns alone. Strength 0, or no owner (-1), leaves rows as
    they are.

    >>> shifted(np.zeros((2, 1)), [0, 1], ["a", "b"], seed=0, strength=0.0).tolist()
    [[0.0], [0.0]]
    """
    rows, owners = np.array(x), np.asarray(owner, dtype=np.int64)
    if rows.ndim != 2 or rows.dtype.kind not in "biuf":
        raise BadData(
            f"x has shape {rows.shape} and type {rows.dtype}, but rows of numbers, (n, columns), are needed. "
            "Flatten each row first."
        )
    if owners.shape != rows.shape[:1] or not np.all((owners >= -1) & (owners < len(ids))):
        raise BadData(
            f"owner must hold a number from -1 to {len(ids) - 1} for each of the {len(rows)} rows. "
            "Pass a partition's owner and ids."
        )
    moved = rows if rows.dtype.kind == "f" else rows.astype(np.float64)
    for k in np.unique(owners[owners >= 0]).tolist():
        mine, rng = owners == k, rng_for(seed, "shift", ids[k])
        if kind != "offset" and strength:
            moved[mine] = _turned(moved[mine], strength, rng.at("rotation"))
        if kind != "rotation" and strength:
            moved[mine] += strength * np.sqrt(12) * (rng.at("offset").uniform(rows.shape[1]) - 0.5)
    return moved


def _turned(x: Floats, strength: float, rng: Rng) -> Floats:
    """Rows whose columns are turned in random pairs."""
    pairs = x.shape[1] // 2
    a, b = np.split(rng.at("pairs").order(x.shape[1])[: 2 * pairs], 2)
    angle = strength * np.pi * (2 * rng.at("angles").uniform(pairs) - 1)
    out = x.copy()
    out[:, a] = np.cos(angle) * x[:, a] - np.sin(angle) * x[:, b]
    out[:, b] = np.sin(angle) * x[:, a] + np.cos(angle) * x[:, b]
    return out
