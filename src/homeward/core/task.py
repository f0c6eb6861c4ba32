"""What is learnt and from which rows: `Task`, `ClientData`, `Federation`. Rows are checked here, where they enter."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import zip_longest
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from . import check
from .algebra import Array, namespace
from .check import KINDS
from .errors import BadData, BadSetting, UnknownClient
from .linalg import any_array
from .rng import rng_for
from .settings import Count, Number


@dataclass(frozen=True, eq=False)
class Bounds:
    """What a federation declares before anything is sent: what no client exceeds. None is no bound."""

    clients: int | None = None
    rows: int | None = None  # of one client
    low: Array | None = None  # (d,) or a number, per column
    high: Array | None = None
    weight: float | None = None
    target: float | None = None  # |target|


@dataclass(frozen=True, eq=False)
class Task:
    """What all clients learn: the kind of target, its classes, and the width of a row. Joining and leaving do not change it."""

    kind: str
    dimension: int
    classes: int
    labels: NDArray[Any]  # (classes,)  the user's own names of classes or outputs
    declared: Bounds = field(default_factory=Bounds)
    public: Array | None = None  # proxy rows at the server, where a method wants them
    valid: Array | None = None

    def codes(self, y: Any, where: str = "y") -> NDArray[np.int64]:
        """Class numbers of the user's labels; a label that the task does not know is an error. (n,)"""
        return check.codes(np.asarray(y), self.labels, where)


class ChunkedRows:
    """Rows that are read chunk by chunk from a function and never held together.

    `read` gives the same chunks, in the same order, every time it is called.
    """

    ndim = 2

    def __init__(self, read: Callable[[], Iterable[Array]], lengths: Sequence[int], dimension: int) -> None:
        self._read, self.lengths, self.shape = read, tuple(lengths), (sum(lengths), dimension)

    def __len__(self) -> int:
        return self.shape[0]

    def chunks(self) -> Iterator[Array]:
        for i, (expected, chunk) in enumerate(zip_longest(self.lengths, self._read())):
            had, has = expected or 0, 0 if chunk is None else len(chunk)
            if has != had:
                raise BadData(
                    f"Chunk {i} had {had} rows at first and {has} now. A source must give the same rows each time it is called."
                )
            yield chunk

    def whole(self) -> Array:
        first, *rest = self.chunks()
        return namespace(first).concat([first, *rest], axis=0)


@dataclass(frozen=True, eq=False)
class ClientData:
    """One client's rows. Arrays are NumPy or torch; x may be `ChunkedRows`, which closed forms read block by block."""

    task: Task
    x: Array  # (n, d)
    y: Array  # (n,) class numbers, or (n, c) targets
    weight: Array  # (n,)  >= 0; a row of weight 0 is never there

    def __repr__(self) -> str:
        return f"ClientData({self.n} rows of {self.task.dimension} columns, {self.task.kind})"

    @property
    def n(self) -> int:
        return int(self.y.shape[0])

    @property
    def target(self) -> Array:
        """The targets as numbers: one-hot for classes. (n, c) float64"""
        xp = namespace(self.y)
        if self.task.kind != "classes":
            return xp.astype(self.y, xp.float64, copy=False)
        return xp.astype(self.y[:, None] == any_array(np.arange(self.task.classes), like=self.y), xp.float64)

    def blocks(self, most: int) -> Iterator[ClientData]:
        """The same rows, at most so many at a time."""
        chunks = self.x.chunks() if isinstance(self.x, ChunkedRows) else [self.x]
        start = 0
        for chunk in chunks:
            for i in range(0, len(chunk), most):
                x = chunk[i : i + most]
                rows = slice(start + i, start + i + len(x))
                yield ClientData(self.task, x, self.y[rows], self.weight[rows])
            start += len(chunk)

    def whole(self) -> ClientData:
        """The same rows, held together."""
        return replace(self, x=self.x.whole()) if isinstance(self.x, ChunkedRows) else self

    def under(self, task: Task, where: str) -> ClientData:
        """The same rows with the class numbers of another task."""
        if task.kind != "classes":
            return replace(self, task=task)
        y = check.codes(self.task.labels[check.as_numpy(self.y)], task.labels, f"{where}, y")
        return replace(self, task=task, y=any_array(y, like=self.y))

    def rows(self, chosen: Any) -> ClientData:
        """Some of the rows, by number."""
        data = self.whole()
        xp = namespace(data.x)
        index = any_array(np.asarray(chosen, dtype=np.int64), like=data.x)
        return ClientData(self.task, *(xp.take(a, index, axis=0) for a in (data.x, data.y, data.weight)))

    @cached_property
    def hash(self) -> str:
        """Of the rows, targets and weights, so that rows found again can be told to be the same."""
        digests = [hashlib.sha256() for _ in range(3)]  # one each, so that blocks and chunks may be cut anywhere
        for block in self.blocks(1 << 16):
            for digest, a in zip(digests, (block.x, block.y, block.weight), strict=True):
                digest.update(check.as_numpy(a).tobytes())
        return hashlib.sha256(b"".join(digest.digest() for digest in digests)).hexdigest()


@runtime_checkable
class Dealt(Protocol):
    """Rows dealt to clients: a `Partition` of `data/`."""

    ids: tuple[str, ...]
    owner: NDArray[np.int64]  # (n,)  index into ids; -1: nobody's

    @property
    def hash(self) -> str: ...


@dataclass(frozen=True, eq=False)
class Federation:
    """A task and the rows of every client: for training, and where there are any, for validation and for the final score.

    >>> fed = Federation.from_arrays([[0.0], [1.0], [2.0]], ["a", "b", "a"], ["north", "north", "south"])
    >>> list(fed.clients), fed.task.labels.tolist(), fed.clients["north"].n
    (['north', 'south'], ['a', 'b'], 2)
    """

    task: Task
    clients: Mapping[str, ClientData]
    tests: Mapping[str, ClientData] = field(default_factory=dict)
    valids: Mapping[str, ClientData] = field(default_factory=dict)
    origin: Mapping[str, str] = field(default_factory=dict)  # where the rows came from: data, partition, hashes

    def __post_init__(self) -> None:
        if not self.clients:
            raise BadData("A federation needs at least one client with rows of its own, or declared with none.")
        declared = self.task.declared
        check.declared(declared, self.task.dimension)
        if declared.clients is not None and len(self.clients) > declared.clients:
            raise BadData(f"{len(self.clients)} clients, but the federation declared at most {declared.clients}.")
        for name, data in self.clients.items():
            check.within(data, f"client '{name}'")

    def __repr__(self) -> str:
        rows = sum(data.n for data in self.clients.values())
        held = sum(data.n for split in (self.tests, self.valids) for data in split.values())
        of = f"{self.task.classes} {'classes' if self.task.kind == 'classes' else 'outputs'}"
        return f"Federation({len(self.clients)} clients, {rows} rows, {held} held out, {self.task.dimension} columns, {of})"

    @classmethod
    def from_arrays(
        cls,
        X: Any,
        y: Any,
        groups: Any = None,
        *,
        test: tuple[Any, Any, Any] | None = None,
        task: str = "classes",
        weights: Any = None,
        classes: Any = None,
        public: Any = None,
        valid: Any = None,
        declare: Bounds | None = None,
    ) -> Federation:
        """Rows in arrays -> a federation that trains on every one of them; `holdout` takes rows out.

        groups: the client of every row, a Partition, or None for a single client. task: `classes`, `multilabel` or `real`; it is never
        guessed. classes: the labels in the order wanted, where the rows do not show them all. Rows that a Partition gives to nobody are
        left out.
        """
        if task not in KINDS:
            raise BadSetting(f"task = {task!r}, but a task is one of {', '.join(KINDS)}.")
        x = check.features(X, "X")
        labels = check.labels(y, classes, task)
        if test is not None and len(check.as_parts(test, "test")) != 3:
            raise BadData(f"test has {len(test)} parts, but it is (X, y, groups). Where groups is None, so is test's.")
        facts = Task(
            task,
            x.shape[1],
            len(labels),
            labels,
            declare or Bounds(),
            None if public is None else check.features(public, "public", width=x.shape[1]),
            None if valid is None else check.features(valid, "valid", width=x.shape[1]),
        )
        clients = _dealt(facts, x, y, groups, weights, "")
        tests = _dealt(facts, *test, None, "test ") if test is not None else {}
        for name in set(tests) - set(clients):
            raise BadData(
                f"test groups: client '{name}' has no row to learn from. Give it some, or leave its test rows out."
            )
        origin = {"partition": groups.hash} if isinstance(groups, Dealt) else {}
        return cls(facts, clients, tests, {}, origin)

    @classmethod
    def from_chunks(
        cls,
        chunks: Mapping[str, Callable[[], Iterable[tuple[Any, Any]]]],
        *,
        task: str = "classes",
        classes: Any = None,
        declare: Bounds | None = None,
    ) -> Federation:
        """Rows that never exist in memory at once: for each client a function that gives (X, y) or (X, y, weights), chunk by chunk.

        Each function is called once now, to check the rows and to learn the classes, and again whenever a method reads them. Closed forms
        read chunk by chunk; whatever needs all rows of a client at once holds that one client.
        """
        seen = {str(name): _scanned(read, str(name)) for name, read in chunks.items()}
        if not seen:
            raise BadData("A federation needs at least one client. Give chunks as {id: function}.")
        widths = {name: x.shape[1] for name, (x, _, _, _) in seen.items()}
        width = next(iter(widths.values()))
        for name, other in widths.items():
            if other != width:
                raise BadData(
                    f"Client '{name}' has rows of {other} columns, others of {width}. All clients need the same columns."
                )
        labels = check.labels(np.concatenate([y for _, y, _, _ in seen.values()]), classes, task)
        facts = Task(task, width, len(labels), labels, declare or Bounds())
        clients = {
            name: ClientData(
                facts, x, any_array(check.targets(y, facts, f"client '{name}', y"), like), any_array(w, like)
            )
            for name, (x, y, w, like) in seen.items()
        }
        return cls(facts, clients)

    def holdout(self, test: float = 0.25, val: float = 0.0, seed: int = 0, stratify: bool = True) -> Federation:
        """Rows held out of each client: floor(test n + 1/2), and one at least stays.

        stratify: class by class, where there are classes. Then no client is tested on a class that it has no training row of, which
        favours whatever rules such classes out; with stratify=False rows are drawn whatever their class.
        """
        for name, share in (("test", test), ("val", val)):
            if not Number(low=0).accepts(share) or share >= 1:
                raise BadSetting(f"holdout: {name} = {share!r}, but it takes a share >= 0 and below 1.")
        if not Count().accepts(seed):
            raise BadSetting(f"holdout: seed = {seed!r}, but it takes {Count()}.")
        if test + val >= 1:
            raise BadSetting(
                f"holdout: test + val = {test + val:g} leaves nothing to learn from. Use less than 1 together."
            )
        if (test and self.tests) or (val and self.valids):
            raise BadData("This federation has held-out rows already: hold rows out once.")
        parts: dict[str, dict[str, ClientData]] = {"train": {}, "test": {}, "val": {}}
        for name, data in self.clients.items():
            which = _held_out(data, test, val, rng_for(seed, "holdout", name).generator(), stratify)
            for split, rows in parts.items():
                rows[name] = data.rows(np.flatnonzero(which == split))
        origin = {**self.origin, "holdout": f"test={test:g} val={val:g} seed={seed}{'' if stratify else ' plain'}"}
        return Federation(
            self.task,
            parts["train"],
            parts["test"] if test else self.tests,
            parts["val"] if val else self.valids,
            origin,
        )

    @cached_property
    def pooled(self) -> ClientData:
        """Everybody's training rows together, in the order of the ids: for checks, never for a method."""
        data = [self.clients[name].whole() for name in sorted(self.clients)]
        xp = namespace(data[0].x)
        return ClientData(self.task, *(xp.concat([getattr(d, a) for d in data], axis=0) for a in ("x", "y", "weight")))

    def only(self, *names: str) -> Federation:
        """The federation of these clients alone."""
        for name in names:
            if name not in self.clients:
                raise UnknownClient(
                    f"No client '{name}' in this federation of {len(self.clients)}: {_some(self.clients)}."
                )

        def chosen(split: Mapping[str, ClientData]) -> dict[str, ClientData]:
            return {name: data for name, data in split.items() if name in names}

        return Federation(self.task, chosen(self.clients), chosen(self.tests), chosen(self.valids), self.origin)

    def without(self, *names: str) -> Federation:
        """The federation without these clients."""
        self.only(*names)
        return self.only(*(n for n in self.clients if n not in names))

    def under(self, task: Task) -> Federation:
        """The same rows as a part of another federation's task: labels are looked up there, and columns must agree."""
        if self.task is task:
            return self
        check.same_task(task, self.task)
        moved = {
            f: {n: d.under(task, f"client '{n}'") for n, d in getattr(self, f).items()}
            for f in ("clients", "tests", "valids")
        }
        return Federation(task, **moved, origin=self.origin)

    def joined(self, other: Federation) -> Federation:
        """This federation and another's clients, under this one's task; ids must not clash."""
        other = other.under(self.task)
        both = sorted(set(self.clients) & set(other.clients))
        if both:
            raise BadData(f"Client '{both[0]}' is here already. Forget it first, or let it join under another id.")
        merged = {f: {**getattr(self, f), **getattr(other, f)} for f in ("clients", "tests", "valids")}
        return Federation(self.task, **merged, origin=self.origin)

    @cached_property
    def hash(self) -> str:
        """Of every client's training rows under its id."""
        text = "\n".join(f"{name} {self.clients[name].hash}" for name in sorted(self.clients))
        return hashlib.sha256(text.encode()).hexdigest()


def _some(names: Iterable[str]) -> str:
    listed = sorted(names)
    return ", ".join(listed[:5]) + (", ..." if len(listed) > 5 else "")


def _scanned(
    read: Callable[[], Iterable[tuple[Any, ...]]], name: str
) -> tuple[ChunkedRows, NDArray[Any], NDArray[np.float64], Array]:
    """One pass over a client's chunks: rows checked, targets and weights kept, and none of the rows, to make others alike."""
    if not callable(read):
        raise BadData(
            f"client '{name}': its source is a {type(read).__name__}. A source is a function that gives (X, y) again and again."
        )
    lengths, sums, ys, ws, width = [], [], [], [], None
    for i, (x, y, *rest) in enumerate(read()):
        where = f"client '{name}', chunk {i}"
        rows = check.features(x, where, width=width)
        width = rows.shape[1]
        target = check.column(y, f"{where}, y")
        check.same_length(len(rows), target, f"{where}, y")
        lengths.append(len(rows))
        sums.append(_checksum(rows))
        ys.append(target)
        ws.append(check.weights(rest[0] if rest else None, len(rows), f"{where}, weights"))
    if width is None:
        raise BadData(
            f"client '{name}': its source gave no chunk. A source is a function that gives (X, y) again and again."
        )
    rows_of = ChunkedRows(lambda: _read_again(read, name, width, sums), lengths, width)
    return rows_of, np.concatenate(ys), np.concatenate(ws), rows[:0]


def _checksum(rows: Array) -> int:
    return zlib.crc32(np.ascontiguousarray(check.as_numpy(rows)).data)


def _read_again(
    read: Callable[[], Iterable[tuple[Any, ...]]], name: str, width: int, sums: Sequence[int]
) -> Iterator[Array]:
    """The chunks of a later pass, which must be the first one's: the targets were kept from there."""
    for i, (x, *_) in enumerate(read()):
        rows = check.features(x, f"client '{name}', chunk {i}", width=width)
        if i < len(sums) and _checksum(rows) != sums[i]:
            raise BadData(
                f"client '{name}', chunk {i} holds other rows now than at first. A source must give the same rows, in the same order, "
                "each time it is called: do not shuffle in it."
            )
        yield rows


def _dealt(task: Task, X: Any, y: Any, groups: Any, weights: Any, where: str) -> dict[str, ClientData]:
    """Rows of arrays, dealt to their clients. Rows of nobody are left out."""
    x = check.features(X, f"{where}X", width=task.dimension)
    check.same_length(len(x), y, f"{where}y")
    ids, owner = _owners(groups, len(x), f"{where}groups")
    all_rows = ClientData(
        task,
        x,
        any_array(check.targets(y, task, f"{where}y"), like=x),
        any_array(check.weights(weights, len(x), f"{where}weights"), like=x),
    )
    order = np.argsort(owner, kind="stable")
    starts = np.searchsorted(owner[order], np.arange(len(ids) + 1))
    return {name: all_rows.rows(order[starts[k] : starts[k + 1]]) for k, name in enumerate(ids)}


def _owners(groups: Any, n: int, where: str) -> tuple[Sequence[str], NDArray[np.int64]]:
    """The ids, and the index of each row's owner among them."""
    if groups is None:
        return ("all",), np.zeros(n, dtype=np.int64)
    if isinstance(groups, Dealt):
        check.same_length(n, groups.owner, where)
        return groups.ids, groups.owner
    names = check.group_names(groups, n, where)
    ids, owner = np.unique(names, return_inverse=True)
    return [str(name) for name in ids], owner.astype(np.int64)


def _held_out(data: ClientData, test: float, val: float, draw: np.random.Generator, stratify: bool) -> NDArray[Any]:
    """Which split each row of a client goes to."""
    which = np.full(data.n, "train")
    y = check.as_numpy(data.y)
    by_class = stratify and data.task.kind == "classes"
    strata = [np.flatnonzero(y == c) for c in np.unique(y)] if by_class else [np.arange(data.n)]
    for rows in strata:
        shuffled = draw.permutation(rows)
        n_test = min(int(test * len(rows) + 0.5), len(rows) - 1)
        n_val = min(int(val * len(rows) + 0.5), len(rows) - 1 - n_test)
        which[shuffled[:n_test]] = "test"
        which[shuffled[n_test : n_test + n_val]] = "val"
    return which
