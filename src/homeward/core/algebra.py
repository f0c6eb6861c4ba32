"""How messages add: `Tree` (named arrays), `Sum`, `Gather`, `Both`, and `ByClient` for what goes down.

What a client sends is a value that adds. The type of the message says what else it can be:

| a client returns      | the server reads                                     | it can be                                   |
|-----------------------|------------------------------------------------------|---------------------------------------------|
| a `Sum`               | only the total                                       | added in any order, subtracted, masked      |
| `Gather.of(message)`  | `Gather(ids, each)`: one leading axis, in id order   | told apart, never subtracted, never masked  |
| `Both(sum, each)`     | part by part                                         | masked in its sum alone                     |
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import reduce
from typing import Any, Self, TypeAlias

import array_api_compat
import numpy as np

from .errors import BadData, BadValue, NotSubtractable, UnknownName, nearest

Array: TypeAlias = Any
"""A NumPy array or a torch tensor. Neither library gives the two a common static type."""
Value: TypeAlias = "Array | Tree | Sum"
"""What a message or a state is made of: an array (a number has dimension 0), a Tree, or a Sum."""


def namespace(*arrays: Array) -> Any:
    """The array library that these arrays belong to, by the names of the array API."""
    return array_api_compat.array_namespace(*(a if hasattr(a, "ndim") else np.asarray(a) for a in arrays))


class Tree(Mapping[str, Any]):
    """Named arrays that add, subtract, scale, `dot`, merge and pick names, so that an update reads as on paper.

    >>> w = Tree(a=np.array([1.0, 2.0]), b=np.array(3.0))
    >>> (w - 0.5 * w)["a"]
    array([0.5, 1. ])
    >>> float(w.dot(w)), w.only("b").names
    (14.0, ('b',))
    """

    __slots__ = ("_entries",)
    __array_ufunc__ = None  # a NumPy number on the left leaves the product to `__rmul__`

    def __init__(self, entries: Mapping[str, Value] | None = None, /, **named: Value) -> None:
        self._entries: dict[str, Value] = dict(
            sorted({**(entries or {}), **named}.items())
        )  # one order, here and after a journey

    def __getitem__(self, name: str) -> Any:
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        shapes = ", ".join(f"{name}: {getattr(v, 'shape', type(v).__name__)}" for name, v in self.items())
        return f"Tree({shapes})"

    __hash__ = None  # type: ignore[assignment]  # a value of arrays is compared by its arrays, not looked up

    @property
    def names(self) -> tuple[str, ...]:
        """The names, sorted."""
        return tuple(self._entries)

    def map(self, change: Callable[[Any], Any]) -> Tree:
        """Every entry changed, under its name."""
        return Tree({name: change(v) for name, v in self.items()})

    def _paired(self, other: Tree, combine: Callable[[Any, Any], Any]) -> Tree:
        if not isinstance(other, Tree):
            raise BadValue(f"A Tree does not add to a {type(other).__name__}. Give a Tree of the same names.")
        if self.keys() != other.keys():
            raise BadValue(
                f"Trees of different names do not add: {sorted(self)} and {sorted(other)}. Pick names with `only`."
            )
        return Tree({name: combine(v, other[name]) for name, v in self.items()})

    def __add__(self, other: Tree) -> Tree:
        return self._paired(other, operator.add)

    def __sub__(self, other: Tree) -> Tree:
        return self._paired(other, operator.sub)

    def __mul__(self, factor: Any) -> Tree:
        return self.map(lambda v: v * factor)

    __rmul__ = __mul__

    def __truediv__(self, divisor: Any) -> Tree:
        return self.map(lambda v: v / divisor)

    def __or__(self, other: Mapping[str, Value]) -> Tree:
        """Both sets of names; where both have one, the right-hand entry."""
        return Tree({**self, **other})

    def dot(self, other: Tree) -> Any:
        """The sum of all products, entry by entry."""
        products = self._paired(other, lambda v, w: v.dot(w) if isinstance(v, Tree) else (v * w).sum())
        return sum(products.values())

    def only(self, *names: str) -> Tree:
        """These entries alone."""
        for name in names:
            if name not in self._entries:
                raise UnknownName(f"A Tree of {sorted(self)} has no '{name}'. {nearest(name, self)}")
        return Tree({name: self[name] for name in names})

    def without(self, *names: str) -> Tree:
        """All entries but these."""
        return Tree({name: v for name, v in self.items() if name not in names})


@dataclass(frozen=True, eq=False)
class Sum:
    """A message of which only the total is ever read: a frozen dataclass of arrays (a number has dimension 0) and Trees."""

    def __add__(self, other: Self) -> Self:
        return self._with(operator.add, other)

    def __sub__(self, other: Self) -> Self:
        return self._with(operator.sub, other)

    def scale(self) -> float | None:
        """The size that rounding is measured by, where a subtraction can lose digits; None: not judged."""
        return None

    def _with(self, combine: Callable[[Any, Any], Any], other: Self) -> Self:
        if type(other) is not type(self):
            raise BadValue(f"A {type(self).__name__} does not add to a {type(other).__name__}.")
        for f, mine, its in zip(fields(self), parts(self), parts(other), strict=True):
            if getattr(mine, "shape", ()) != getattr(its, "shape", ()):  # arrays would stretch to fit each other
                raise BadValue(
                    f"Two {type(self).__name__} of other shapes do not add: {f.name} is {mine.shape} and {its.shape}. "
                    "Every client needs the same columns, classes and settings."
                )
        return type(self)(*map(combine, parts(self), parts(other)))


def parts(message: Any) -> tuple[Any, ...]:
    """The fields of a message, in order."""
    return tuple(getattr(message, f.name) for f in fields(message))


def mapped(value: Any, change: Callable[[Array], Array]) -> Any:
    """The same structure with every array changed."""
    match value:
        case Tree():
            return value.map(lambda v: mapped(v, change))
        case Sum():
            return type(value)(*(mapped(v, change) for v in parts(value)))
        case Gather():
            return Gather(value.ids, mapped(value.each, change))
        case Both():
            return Both(mapped(value.sum, change), mapped(value.each, change))
        case _:
            return change(value)


def _joined(values: list[Any]) -> Any:
    """Values of one structure, put together along their first axis."""
    first = values[0]
    if isinstance(first, Tree):
        return Tree({name: _joined([v[name] for v in values]) for name in first})
    if isinstance(first, Sum):
        return type(first)(*map(_joined, map(list, zip(*map(parts, values), strict=True))))
    return namespace(*values).concat(values, axis=0)


@dataclass(frozen=True, eq=False)
class Gather:
    """Messages that stay apart: sorted ids, and one leading axis in that order. `+` merges by id; there is no `-`."""

    ids: tuple[str, ...]
    each: Any

    @classmethod
    def of(cls, message: Value) -> Gather:
        """One client's message; whoever carries it writes the client's name on it (`named`)."""
        return cls((), message)

    def __add__(self, other: Gather) -> Gather:
        return _merged([self, other])

    def __sub__(self, other: object) -> Gather:
        raise NotSubtractable(
            "A Gather keeps its messages apart, so one cannot be subtracted from the total. Run the round without that client."
        )


def _merged(gathers: list[Gather]) -> Gather:
    ids = [name for g in gathers for name in g.ids]
    if len(set(ids)) < len(ids):
        twice = next(name for name in ids if ids.count(name) > 1)
        raise BadData(f"Client '{twice}' is in this round twice. Every client answers a round once.")
    order = np.argsort(np.array(ids))
    each = _joined([g.each for g in gathers])
    if list(order) != list(range(len(ids))):
        each = mapped(each, lambda a: namespace(a).take(a, namespace(a).asarray(order), axis=0))
    return Gather(tuple(ids[i] for i in order), each)


@dataclass(frozen=True, eq=False)
class Both:
    """A message with a part that adds and a part that stays apart; only `sum` can be masked."""

    sum: Any
    each: Gather

    def __add__(self, other: Both) -> Both:
        return Both(self.sum + other.sum, self.each + other.each)

    def __sub__(self, other: object) -> Both:
        raise NotSubtractable(
            "A Both holds messages that stay apart, so one cannot be subtracted from the total. Run the round without that client."
        )


Message: TypeAlias = Sum | Gather | Both


def _leading(a: Array) -> Array:
    return namespace(a).asarray(a)[None]


def named(message: Message, client: str) -> Message:
    """The message with its sender's name on it, where its type keeps one."""
    match message:
        case Gather(ids=()):
            return Gather((client,), mapped(message.each, _leading))
        case Both():
            return Both(message.sum, Gather((client,), mapped(message.each.each, _leading)))
        case _:
            return message


def _added_into(total: Any, value: Any) -> Any:
    """total + value, in total's own memory where it has any. Only for totals that nobody else holds."""
    if isinstance(total, Tree):
        return total._paired(value, _added_into)
    if isinstance(total, Sum):
        return total._with(_added_into, value)
    if getattr(total, "ndim", 0) == 0 or total.dtype != value.dtype or total.shape != value.shape:
        return total + value
    total += value
    return total


def plain(value: Value) -> Any:
    """The same value with every array row after row in memory, as it is once it has travelled: products of it give the same bits."""
    return mapped(value, _row_major)


def _row_major(a: Array) -> Array:
    if array_api_compat.is_torch_array(a):
        return a.contiguous()
    return a if getattr(a, "ndim", 0) < 2 or a.flags.c_contiguous else a.copy(order="C")


def _copied(a: Array) -> Array:
    return namespace(a).asarray(a, copy=True) if hasattr(a, "ndim") else a


def summed(messages: Iterable[Message]) -> Message:
    """The total of many messages, in the order given, in constant memory where they are Sums.

    Equal to adding one by one; the difference is that the total is kept in place and that Gathers are merged once.
    """
    total: Any = None
    apart: list[Gather] = []
    both, kind = False, None
    for message in messages:
        kind = kind or type(message)
        if type(message) is not kind:
            raise BadValue(f"A {kind.__name__} does not add to a {type(message).__name__}.")
        both = isinstance(message, Both)
        if not isinstance(message, Sum):
            apart.append(message.each if isinstance(message, Both) else message)
        if not isinstance(message, Gather):
            value = message.sum if isinstance(message, Both) else message
            total = mapped(value, _copied) if total is None else _added_into(total, value)
    if total is None and not apart:
        raise BadData("Nobody answered this round: there is nothing to add. Give the federation at least one client.")
    if both:
        return Both(total, _merged(apart))
    return _merged(apart) if apart else total


@dataclass(frozen=True, eq=False)
class ByClient:
    """Inside what goes down: each client receives, and is charged for, its own entry only; whoever has none gets the default."""

    entries: Mapping[str, Value]
    default: Value


def received(shared: Any, client: str) -> Any:
    """What one client receives of what goes down."""
    if isinstance(shared, ByClient):
        return shared.entries.get(client, shared.default)
    if isinstance(shared, Tree):
        return shared.map(lambda v: received(v, client))
    if isinstance(shared, Sum):
        return type(shared)(*(received(v, client) for v in parts(shared)))
    return shared


def arrays(value: Any) -> list[Array]:
    """Every array in a value, in order."""
    if isinstance(value, Tree):
        return reduce(operator.iadd, map(arrays, value.values()), [])
    if isinstance(value, Sum | Both):
        return reduce(operator.iadd, map(arrays, parts(value)), [])
    if isinstance(value, Gather):
        return arrays(value.each)
    return [value]
