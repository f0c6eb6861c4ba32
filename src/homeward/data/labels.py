"""Labels as they enter: one plain column, and the place of the first that is none."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..core.errors import BadData

Values = NDArray[np.generic]


def column(y: ArrayLike, name: str = "y") -> Values:
    """y as one array of bools, whole numbers, text or real numbers; anything else is refused with its place."""
    values = _typed(np.asarray(y) if hasattr(y, "dtype") else np.asarray(y, dtype=object), name)
    if values.ndim != 1:
        raise BadData(
            f"{name} has shape {values.shape}, but one label per row is needed. Pass one column, such as {name}[:, 0]."
        )
    if not len(values):
        raise BadData(f"{name} is empty. Give one label for every row.")
    if values.dtype.kind == "f":
        broken = np.flatnonzero(~np.isfinite(values.astype(np.float64)))
        if len(broken):
            raise BadData(
                f"{name}, row {broken[0]} is {values[broken[0]]}, which is no label. Fill in or leave out such rows."
            )
    return values


def _typed(values: NDArray[Any], name: str) -> Values:
    """An array of one plain type; Python objects are looked at one by one."""
    if values.dtype.kind == "O" and values.ndim == 1:
        text = np.array([isinstance(v, str) for v in values], dtype=bool)
        odd = np.flatnonzero(
            ~text if 2 * text.sum() > len(text) else [not isinstance(v, Real | np.bool_) for v in values]
        )
        if len(odd):
            raise BadData(
                f"{name}, row {odd[0]} is {values[odd[0]]!r}, unlike the others. Make all labels text, or all numbers."
            )
        values = np.array(values.tolist())
    elif values.dtype.kind == "T":
        values = values.astype(np.str_)
    elif values.dtype.kind == "u" and values.max(initial=0) < 2**63:
        values = values.astype(np.int64)
    if values.dtype.kind not in "bifU" and values.ndim == 1:
        raise BadData(
            f"{name} holds values of type {values.dtype}, which are no labels. Make them text or smaller whole numbers."
        )
    return values


def classes_of(values: Values, name: str, instead: str) -> Values:
    """A column of labels; real numbers are labels where all are whole."""
    if values.dtype.kind != "f":
        return values
    odd = np.flatnonzero((np.floor(values) != values) | (np.abs(values) >= 2.0**63))
    if len(odd):
        raise BadData(
            f"{name}, row {odd[0]} is {values[odd[0]]}: real numbers, but classes are needed. Pass whole numbers or text, {instead}."
        )
    return values.astype(np.int64)
