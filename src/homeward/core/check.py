"""What rows, labels and weights must be, with the place of the first that is not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import array_api_compat
import numpy as np
from numpy.typing import NDArray

from .algebra import Array, namespace
from .errors import BadData

if TYPE_CHECKING:
    from .task import ClientData, Task

KINDS = ("classes", "multilabel", "real")


def as_numpy(a: Any) -> NDArray[Any]:
    """The numbers of any array, on the host."""
    if array_api_compat.is_torch_array(a):
        host = a.detach().cpu()
        return np.asarray((host.float() if host.dtype.is_floating_point and host.element_size() < 4 else host).numpy())
    return np.asarray(a)


def features(value: Any, where: str, width: int | None = None) -> Array:
    """Rows of numbers, finite, in two dimensions; anything else is named with its place. Half precision becomes float32."""
    x = value if array_api_compat.is_torch_array(value) else _numbers(value, where)
    if x.ndim != 2:
        shape = tuple(x.shape)
        raise BadData(f"{where} has shape {shape}, but rows are (n, columns). " + (f"For one column use {where}.reshape(-1, 1)." if x.ndim == 1 else "Flatten each row first."))
    if x.shape[0] == 0 or x.shape[1] == 0:
        raise BadData(f"{where} is empty: {x.shape[0]} rows, {x.shape[1]} columns. Give at least one of each.")
    if width is not None and x.shape[1] != width:
        raise BadData(f"{where} has {x.shape[1]} columns, but {width} are expected.")
    xp = namespace(x)
    if xp.isdtype(x.dtype, ("bool", "integral")):
        x = xp.astype(x, xp.float64)
    elif x.dtype not in (xp.float32, xp.float64):
        x = xp.astype(x, xp.float32)
    _finite(x, where)
    return x


def _numbers(value: Any, where: str) -> NDArray[Any]:
    if hasattr(value, "toarray") and hasattr(value, "nnz"):
        raise BadData(f"{where} is a sparse matrix. Rows are dense here: use {where}.toarray().")
    try:
        x = np.asarray(value)
    except ValueError as error:
        raise BadData(f"{where} is no table of numbers: {error}. Give every row the same columns.") from error
    if np.issubdtype(x.dtype, np.complexfloating):
        raise BadData(f"{where} holds complex data, which is not supported. Give real and imaginary parts as columns.")
    if x.dtype.kind not in "fiub":
        try:
            x = x.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise BadData(f"{where} holds {_first_word(x)}, and features are numbers. Encode text and categories as numbers first.") from error
        if np.asarray(value).dtype.kind in "SU":
            raise BadData(f"{where} holds text, and features are numbers. Convert them with {where}.astype(float) if they are digits.")
    return x


def _first_word(x: NDArray[Any]) -> str:
    for v in x.ravel():
        try:
            float(v)
        except (TypeError, ValueError):
            return f"{v!r}"
    return f"values of type {x.dtype}"


def _finite(x: Array, where: str) -> None:
    xp = namespace(x)
    good = xp.isfinite(x)
    if bool(xp.all(good)):
        return
    bad = np.argwhere(~as_numpy(good))
    row, column = (int(v) for v in bad[0])
    more = f" ({len(bad)} such values in all)" if len(bad) > 1 else ""
    raise BadData(f"{where}, row {row}, column {column} is {float(x[row, column])}{more}. Features must be finite: fill in or drop such rows. (No NaN or infinity is accepted.)")


def same_length(n: int, other: Any, where: str) -> None:
    m = len(other) if hasattr(other, "__len__") else int(np.asarray(other).size)
    if m != n:
        raise BadData(f"{where} has {m} entries for {n} rows. Give one for every row.")


def labels(y: Any, classes: Any, kind: str) -> NDArray[Any]:
    """The classes in their order, or the names of the outputs."""
    if kind == "classes":
        found = _classes(y)
        return found if classes is None else _declared(classes)
    width = 1 if np.ndim(y) == 1 else np.shape(y)[1] if np.ndim(y) == 2 else 0
    names = np.arange(width) if classes is None else _declared(classes)
    if len(names) != width:
        raise BadData(f"classes names {len(names)} outputs, but y has {width} columns.")
    return names


def _declared(classes: Any) -> NDArray[Any]:
    names = np.asarray(classes)
    if names.ndim != 1 or len(names) == 0 or len(np.unique(names)) < len(names):
        raise BadData("classes must be a list of different labels, one dimension, at least one.")
    return names


def _classes(y: Any) -> NDArray[Any]:
    values = as_numpy(y)
    if values.ndim != 1:
        raise BadData(f"y has shape {values.shape}, but class labels are one per row, (n,). For several labels a row say task='multilabel'.")
    if values.dtype.kind == "f":
        if not np.isfinite(values).all():
            raise BadData(f"y, row {int(np.flatnonzero(~np.isfinite(values))[0])} is NaN or infinite. Every row needs a label.")
        if (values != np.floor(values)).any():
            raise BadData("y holds fractions, which are no class labels (Unknown label type: continuous). For numbers say task='real'.")
    if values.dtype.kind == "O" and any(v is None or v != v for v in values):
        raise BadData("y has a missing label. Every row needs one: drop or label such rows.")
    try:
        return np.unique(values)
    except TypeError as error:
        raise BadData("y mixes labels of several types, such as text and numbers. Use one type.") from error


def codes(y: NDArray[Any], known: NDArray[Any], where: str) -> NDArray[np.int64]:
    """Class numbers; a label that nobody knows is named."""
    order = np.argsort(known, kind="stable")
    try:
        at = np.clip(np.searchsorted(known[order], y), 0, len(known) - 1)
        wrong = known[order][at] != y
    except TypeError as error:
        raise BadData(f"{where} holds labels of another type than the classes {known[:5].tolist()}.") from error
    if np.any(wrong):
        row = int(np.flatnonzero(wrong)[0])
        raise BadData(
            f"{where}, row {row} has the label {y[row]!r}, which was not there when the classes were fixed: {known[:8].tolist()}"
            f"{' ...' if len(known) > 8 else ''}. Declare all classes with classes=..., or leave such rows out."
        )
    return order[at].astype(np.int64)


def targets(y: Any, task: Task, where: str) -> NDArray[Any]:
    """y as class numbers (n,), or as finite numbers (n, c)."""
    values = as_numpy(y)
    if task.kind == "classes":
        if values.ndim != 1:
            raise BadData(f"{where} has shape {values.shape}, but class labels are one per row, (n,).")
        return codes(values, task.labels, where)
    try:
        numbers = values.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise BadData(f"{where} holds {_first_word(values)}, but targets of kind '{task.kind}' are numbers.") from error
    numbers = numbers.reshape(len(numbers), -1)
    if numbers.shape[1] != task.classes:
        raise BadData(f"{where} has {numbers.shape[1]} columns, but the task has {task.classes}.")
    if not np.isfinite(numbers).all():
        row = int(np.argwhere(~np.isfinite(numbers))[0][0])
        raise BadData(f"{where}, row {row} is NaN or infinite. Every row needs a target.")
    if task.kind == "multilabel" and not np.isin(numbers, (0.0, 1.0)).all():
        raise BadData(f"{where} must hold 0 and 1 only for task='multilabel'.")
    return numbers


def weights(value: Any, n: int, where: str) -> NDArray[np.float64]:
    """One number >= 0 for every row, 1 where none are given."""
    if value is None:
        return np.ones(n)
    try:
        w = as_numpy(value).astype(np.float64)
    except (TypeError, ValueError) as error:
        raise BadData(f"{where} are no numbers. Give one number >= 0 for every row.") from error
    if w.shape != (n,):
        raise BadData(f"{where} have shape {w.shape} for {n} rows. Give one for every row.")
    if not np.isfinite(w).all() or (w < 0).any():
        row = int(np.flatnonzero(~(w >= 0) | ~np.isfinite(w))[0])
        raise BadData(f"{where}, row {row} is {w[row]}, but a weight is a finite number >= 0.")
    return w


def group_names(groups: Any, n: int, where: str) -> NDArray[Any]:
    """Client ids as text, one for every row."""
    values = as_numpy(groups)
    if values.shape != (n,):
        raise BadData(f"{where} have shape {values.shape} for {n} rows. Name the client of every row.")
    if values.dtype.kind in "f":
        if not np.isfinite(values).all():
            raise BadData(f"{where}, row {int(np.flatnonzero(~np.isfinite(values))[0])} is NaN. Every row needs a client.")
        if (values == np.floor(values)).all():
            values = values.astype(np.int64)
    if values.dtype.kind == "O" and any(v is None or v != v for v in values):
        raise BadData(f"{where} have a missing id. Every row needs a client.")
    names = values.astype(str)
    if (np.char.str_len(names) == 0).any():
        raise BadData(f"{where}, row {int(np.flatnonzero(np.char.str_len(names) == 0)[0])} is an empty id. Every row needs a client.")
    return names


def within(data: ClientData, where: str) -> None:
    """A client's rows keep to what the federation declared."""
    d = data.task.declared
    if d.rows is not None and data.n > d.rows:
        raise BadData(f"{where} has {data.n} rows, but at most {d.rows} were declared.")
    if d.weight is not None and data.n and float(data.weight.max()) > d.weight:
        raise BadData(f"{where} has a row of weight {float(data.weight.max()):g}, but at most {d.weight:g} was declared.")
    if d.target is not None and data.n and data.task.kind != "classes" and float(abs(data.y).max()) > d.target:
        raise BadData(f"{where} has a target of size {float(abs(data.y).max()):g}, but at most {d.target:g} was declared.")
    if d.low is None and d.high is None:
        return
    for block in data.blocks(1 << 14):
        x = as_numpy(block.x)
        for bad, word in ((x < d.low if d.low is not None else None, "below the declared low"), (x > d.high if d.high is not None else None, "above the declared high")):
            if bad is not None and bad.any():
                row, column = (int(v) for v in np.argwhere(bad)[0])
                raise BadData(f"{where}, row {row}, column {column} is {x[row, column]:g}, {word} bound of its column.")


def same_task(a: Task, b: Task) -> None:
    """Rows of one task can be used under another of the same kind and columns; classes are looked up, outputs must be alike."""
    if a.kind != b.kind or a.dimension != b.dimension or (a.kind != "classes" and a.classes != b.classes):
        raise BadData(
            f"These rows are of another task: kind '{b.kind}', {b.dimension} columns, {b.classes} outputs, beside "
            f"kind '{a.kind}', {a.dimension} columns, {a.classes} outputs. Give rows made the same way."
        )
