"""What rows, labels and weights must be, with the place of the first that is not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import array_api_compat
import numpy as np
from numpy.typing import NDArray

from .algebra import Array, namespace
from .errors import BadData, BadSetting, BadType
from .settings import Count, Number

if TYPE_CHECKING:
    from .task import Bounds, ClientData, Task

LARGEST, LARGEST32 = 1e100, 1e30  # squares of what is larger, summed, may overflow
KINDS = ("classes", "multilabel", "real")


def as_numpy(a: Any) -> NDArray[Any]:
    """The numbers of any array, on the host."""
    if array_api_compat.is_torch_array(a):
        host = a.detach().cpu()
        unknown = host.dtype.is_floating_point and not hasattr(np, str(host.dtype).removeprefix("torch."))  # bfloat16
        return np.asarray((host.float() if unknown else host).numpy())
    return np.asarray(a)


def column(value: Any, where: str) -> NDArray[Any]:
    """Targets or groups as an array; rows of several lengths are none."""
    try:
        values = as_numpy(value)
        if values.dtype.kind != "U" or hasattr(value, "dtype"):
            return values
        given = np.array(value, dtype=object)  # of a list, NumPy writes NaN and numbers beside text as text
        return values if all(isinstance(v, str) for v in given.ravel()) else given
    except ValueError as error:
        raise BadData(
            f"{where} is no array: {error}. Give every row one entry, or as many as every other row."
        ) from error


def features(value: Any, where: str, width: int | None = None) -> Array:
    """Rows of numbers, finite, in two dimensions; anything else is named with its place. Half precision becomes float32."""
    x = value if array_api_compat.is_torch_array(value) else _numbers(value, where)
    if x.ndim != 2:
        shape = tuple(x.shape)
        raise BadData(
            f"{where} has shape {shape}, but rows are (n, columns). "
            + "Reshape your data: .reshape(-1, 1) for one column, .reshape(1, -1) for one row, otherwise flatten each row."
        )
    if x.shape[0] == 0 or x.shape[1] == 0:
        missing = "row(s)" if x.shape[0] == 0 else "feature(s)"
        raise BadData(
            f"{where} has 0 {missing} (shape={tuple(x.shape)}) while a minimum of 1 is required. Give rows with at least one column."
        )
    if width is not None and x.shape[1] != width:
        raise BadData(f"{where} has {x.shape[1]} columns, but {width} are expected.")
    xp = namespace(x)
    if xp.isdtype(x.dtype, "complex floating"):
        raise BadData(f"{where}: Complex data not supported. Give real and imaginary parts as columns.")
    if xp.isdtype(x.dtype, ("bool", "integral")):
        x = xp.astype(x, xp.float64)
    elif x.dtype not in (xp.float32, xp.float64):  # half precision; foreign byte order; long double
        x = xp.astype(x, xp.float32 if x.dtype.itemsize <= 4 else xp.float64)
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
        raise BadData(f"{where}: Complex data not supported. Give real and imaginary parts as columns.")
    if x.dtype.kind not in "fiub":
        try:
            if x.dtype.kind in "mM":
                raise TypeError("dates and durations have no unit here")
            x = x.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise BadType(
                f"{where} holds {_first_word(x)}, and features are numbers ({error}). Encode text, dates and categories as numbers first."
            ) from error
        if np.asarray(value).dtype.kind in "SU":
            raise BadType(
                f"{where} holds text, and features are numbers. Convert them with {where}.astype(float) if they are digits."
            )
    return x


def plain(value: Any) -> Any:
    """A label or a number as Python's own, for a message."""
    return value.item() if isinstance(value, np.generic) else value


def _first_word(x: NDArray[Any]) -> str:
    for place, v in np.ndenumerate(x):
        try:
            float(v)
        except (TypeError, ValueError):
            at = ", ".join(f"{axis} {i}" for axis, i in zip(("row", "column"), place, strict=False))
            return f"{plain(v)!r} in {at}" if at else f"{plain(v)!r}"
    return f"values of type {x.dtype}"


def _finite(x: Array, where: str) -> None:
    xp = namespace(x)
    good = xp.abs(x) <= (LARGEST32 if x.dtype == xp.float32 else LARGEST)  # false for NaN
    if bool(xp.all(good)):
        return
    bad = np.argwhere(~as_numpy(good))
    row, column = (int(v) for v in bad[0])
    more = f" ({len(bad)} such values in all{_worst_columns(bad)})" if len(bad) > 1 else ""
    value = float(x[row, column])
    remedy = (
        "too large to be squared: divide the features by a constant."
        if np.isfinite(value)
        else "which is no feature: fill in or drop such rows. (No NaN or infinity is accepted.)"
    )
    raise BadData(f"{where}, row {row}, column {column} is {value:g}{more}, {remedy}")


def _worst_columns(bad: NDArray[Any]) -> str:
    """Where in several columns: the three with most bad values."""
    columns, counts = np.unique(bad[:, 1], return_counts=True)
    if len(columns) == 1:
        return ""
    most = sorted(zip((-counts).tolist(), columns.tolist(), strict=True))[:3]
    named = ", ".join(f"{-count} in column {at}" for count, at in most)
    return f": {named}" + (f", and more in {len(columns) - 3} other column(s)" if len(columns) > 3 else "")


def same_length(n: int, other: Any, where: str) -> None:
    m = len(other) if hasattr(other, "__len__") and np.ndim(other) else int(np.asarray(other).size)
    if m != n:
        raise BadData(f"{where} has {m} entries for {n} rows. Give one for every row.")


def labels(y: Any, classes: Any, kind: str) -> NDArray[Any]:
    """The classes in their order, or the names of the outputs."""
    y = column(y, "y")
    if kind == "classes":
        found = _classes(y)
        return found if classes is None else _declared(classes)
    shape = y.shape
    if len(shape) not in (1, 2):
        raise BadData(f"y has shape {shape}, but targets are (n,), or (n, outputs). Give one for every row.")
    width = shape[1] if len(shape) == 2 else 1
    names = np.arange(width) if classes is None else _declared(classes)
    if len(names) != width:
        raise BadData(f"classes names {len(names)} outputs, but y has {width} columns.")
    return names


def _declared(classes: Any) -> NDArray[Any]:
    names = column(classes, "classes")
    if names.dtype.kind == "O" and len({isinstance(v, str) for v in names.ravel()}) > 1:
        raise BadData("classes mix text and numbers. Use one type, as by [str(c) for c in classes].")
    if names.ndim != 1 or len(names) == 0 or len(set(names.tolist())) < len(names):
        raise BadData("classes must be a list of different labels, one dimension, at least one.")
    return _nameable(names, "classes")


def _nameable(values: NDArray[Any], where: str) -> NDArray[Any]:
    """Labels are text, numbers or truth values, so that they can be written down with a model."""
    plain = (
        all(isinstance(v, str | int | float | np.number | np.bool_) for v in values) if values.dtype == object else True
    )
    if values.dtype.kind not in "biufUO" or not plain:
        example = repr(values[0]) if len(values) else values.dtype
        raise BadData(
            f"{where} holds labels such as {example}, but labels are text or numbers. Use {where}.astype(str)."
        )
    return values


def _classes(values: NDArray[Any]) -> NDArray[Any]:
    if values.ndim != 1:
        raise BadData(
            f"y has shape {values.shape}, but class labels are one per row, (n,). For several labels a row say task='multilabel'."
        )
    if values.dtype.kind == "f":
        if not np.isfinite(values).all():
            raise BadData(
                f"y, row {int(np.flatnonzero(~np.isfinite(values))[0])} is NaN or infinite. Every row needs a label."
            )
        if (values != np.floor(values)).any():
            raise BadData(
                "y holds fractions, which are no class labels (Unknown label type: continuous). For numbers say task='real'."
            )
    if values.dtype.kind == "O" and any(map(_missing, values)):
        raise BadData("y has a missing label. Every row needs one: drop or label such rows.")
    try:
        return np.unique(_nameable(values, "y"))
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
            f"{where}, row {row} has the label {plain(y[row])!r}, which was not there when the classes were fixed: {known[:8].tolist()}"
            f"{' ...' if len(known) > 8 else ''}. Declare all classes with classes=..., or leave such rows out."
        )
    return order[at].astype(np.int64)


def targets(y: Any, task: Task, where: str) -> NDArray[Any]:
    """y as class numbers (n,), or as finite numbers (n, c)."""
    values = column(y, where)
    if task.kind == "classes":
        if values.ndim != 1:
            raise BadData(f"{where} has shape {values.shape}, but class labels are one per row, (n,).")
        return codes(values, task.labels, where)
    if values.dtype.kind == "c":
        raise BadData(f"{where}: Complex data not supported. Give real and imaginary parts as two outputs.")
    try:
        numbers = values.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise BadData(
            f"{where} holds {_first_word(values)}, but targets of kind '{task.kind}' are numbers. For labels say task='classes'."
        ) from error
    numbers = numbers.reshape(len(numbers), -1)
    if numbers.shape[1] != task.classes:
        raise BadData(f"{where} has {numbers.shape[1]} columns, but the task has {task.classes}.")
    good = np.abs(numbers) <= LARGEST  # false for NaN
    if not good.all():
        row = int(np.argwhere(~good)[0][0])
        raise BadData(
            f"{where}, row {row} is NaN, infinite or above {LARGEST:g}. Every row needs a target: drop such rows, or change the unit."
        )
    if task.kind == "multilabel" and not np.isin(numbers, (0.0, 1.0)).all():
        raise BadData(f"{where} must hold 0 and 1 only for task='multilabel'.")
    return numbers


def weights(value: Any, n: int, where: str) -> NDArray[np.float64]:
    """One number >= 0 for every row, 1 where none are given."""
    if value is None:
        return np.ones(n)
    try:
        if as_numpy(value).dtype.kind == "c":
            raise TypeError("complex")
        w = as_numpy(value).astype(np.float64)
    except (TypeError, ValueError) as error:
        raise BadData(f"{where} are no numbers. Give one number >= 0 for every row.") from error
    if w.shape != (n,):
        raise BadData(f"{where} have shape {w.shape} for {n} rows. Give one for every row.")
    good = (w >= 0) & (w <= LARGEST)
    if not good.all():
        row = int(np.flatnonzero(~good)[0])
        raise BadData(f"{where}, row {row} is {w[row]}, but a weight is a number >= 0 and at most {LARGEST:g}.")
    return w


def as_parts(value: Any, where: str) -> Any:
    """Something of several parts, such as (X, y, groups)."""
    if not hasattr(value, "__len__"):
        raise BadData(f"{where} is a {type(value).__name__}, but it is (X, y, groups).")
    return value


def _missing(value: object) -> bool:
    """None, NaN, or what other libraries write for them; the latter will not even say whether they differ from themselves."""
    try:
        return value is None or bool(value != value)
    except TypeError:
        return True


def group_names(groups: Any, n: int, where: str) -> NDArray[Any]:
    """Client ids as text, one for every row."""
    values = column(groups, where)
    if values.shape != (n,):
        raise BadData(f"{where} have shape {values.shape} for {n} rows. Name the client of every row.")
    if values.dtype.kind in "f":
        if not np.isfinite(values).all():
            raise BadData(
                f"{where}, row {int(np.flatnonzero(~np.isfinite(values))[0])} is NaN. Every row needs a client."
            )
        if (values == np.floor(values)).all():
            values = values.astype(np.int64)
    if values.dtype.kind == "O" and any(map(_missing, values)):
        raise BadData(f"{where} have a missing id. Every row needs a client.")
    if values.dtype.kind in "mM" and np.isnat(values).any():
        raise BadData(f"{where} have a missing date. Every row needs a client.")
    names = values.astype(str)
    if (np.char.str_len(names) == 0).any():
        raise BadData(
            f"{where}, row {int(np.flatnonzero(np.char.str_len(names) == 0)[0])} is an empty id. Every row needs a client."
        )
    return names


def declared(bounds: Bounds, dimension: int) -> None:
    """What a federation declares must be bounds of its rows."""
    if not hasattr(bounds, "clients"):
        raise BadSetting(f"declare is a {type(bounds).__name__}. Give it as hw.Bounds(clients=..., low=..., high=...).")
    for name, rule in (("clients", Count(1)), ("rows", Count(1)), ("weight", Number(low=0)), ("target", Number(low=0))):
        value = getattr(bounds, name)
        if value is not None and not rule.accepts(value):
            raise BadSetting(f"declare: {name} = {value!r}, but it takes {rule} or None.")
    ends = {name: column(getattr(bounds, name), f"declare: {name}") for name in ("low", "high")}
    ends = {name: end for name, end in ends.items() if getattr(bounds, name) is not None}
    for name, end in ends.items():
        if end.shape not in ((), (dimension,)) or end.dtype.kind not in "fiu" or not np.isfinite(end).all():
            raise BadSetting(f"declare: {name} takes a finite number, or one for each of the {dimension} columns.")
    if len(ends) == 2 and np.any(ends["low"] > ends["high"]):
        at = int(np.flatnonzero(np.broadcast_to(ends["low"] > ends["high"], (dimension,)))[0])
        raise BadSetting(f"declare: low is above high in column {at}. Exchange the two.")


def within(data: ClientData, where: str) -> None:
    """A client's rows keep to what the federation declared."""
    d = data.task.declared
    if d.rows is not None and data.n > d.rows:
        raise BadData(f"{where} has {data.n} rows, but at most {d.rows} were declared.")
    if d.weight is not None and data.n and float(data.weight.max()) > d.weight:
        raise BadData(
            f"{where} has a row of weight {float(data.weight.max()):g}, but at most {d.weight:g} was declared."
        )
    if d.target is not None and data.n and data.task.kind != "classes" and float(abs(data.y).max()) > d.target:
        raise BadData(
            f"{where} has a target of size {float(abs(data.y).max()):g}, but at most {d.target:g} was declared."
        )
    if d.low is None and d.high is None:
        return
    start = 0
    for block in data.blocks(1 << 14):
        x = as_numpy(block.x)
        for bad, word in (
            (x < d.low if d.low is not None else None, "below the declared low"),
            (x > d.high if d.high is not None else None, "above the declared high"),
        ):
            if bad is not None and bad.any():
                row, column = (int(v) for v in np.argwhere(bad)[0])
                raise BadData(
                    f"{where}, row {start + row}, column {column} is {x[row, column]:g}, {word} bound of its column."
                )
        start += block.n


def same_task(a: Task, b: Task) -> None:
    """Rows of one task can be used under another of the same kind and columns; classes are looked up, outputs must be alike."""
    if a.kind != b.kind or a.dimension != b.dimension or (a.kind != "classes" and a.classes != b.classes):
        raise BadData(
            f"These rows are of another task: kind '{b.kind}', {b.dimension} columns, {b.classes} outputs, beside "
            f"kind '{a.kind}', {a.dimension} columns, {a.classes} outputs. Give rows made the same way."
        )
