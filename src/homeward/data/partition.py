"""Who owns which row: the laws that deal rows to clients, and the value they give.

A law sees labels alone and deals row numbers. The same labels, settings and seed give the same `Partition`, and nothing
else decides it: what it draws is addressed by its seed and its name (`core/rng.py`).
"""

from __future__ import annotations

import hashlib
import inspect
import io
import json
import os
import secrets
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from numbers import Real
from pathlib import Path
from typing import Annotated, Any, ParamSpec, TypeVar, get_args, get_type_hints

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..core.errors import BadData, BadFile, BadSetting, SmallTest, nearest
from ..core.rng import Rng, rng_for
from ..core.settings import Choice, Count, Number, Switch

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Values = NDArray[np.generic]
Setting = bool | int | float | str
P = ParamSpec("P")
R = TypeVar("R")

SCHEMA = 1  # of the file that `Partition.save` writes
SMALL = 10  # test rows below which a client's score means little

_FORMAT = "homeward.partition"
_OURS = "Name a file that Partition.save or `homeward data split` wrote."
_AGAIN = "Write it again with Partition.save or `homeward data split`."
_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, KeyError, OSError, RuntimeError, TypeError, ValueError)  # in a zip


@dataclass(frozen=True, eq=False)
class Partition:
    """Rows dealt to clients. Partitions of one content have one `hash`, wherever and whenever they were made.

    >>> part = iid(["cat", "dog", "cat", "dog"], clients=2, stratified=True)
    >>> part.ids, part.sizes.tolist(), part.counts.tolist()
    (('c000', 'c001'), [2, 2], [[1, 1], [1, 1]])
    """

    owner: Ints  # (n,)  index of the client; -1: nobody's, the row is dropped
    ids: tuple[str, ...]
    labels: Values  # (C,)  the distinct classes, sorted; empty where the targets are real numbers
    counts: Ints  # (K, C)  rows of each client and class
    law: str
    settings: dict[str, Setting]

    def __post_init__(self) -> None:
        clients, classes = len(self.ids), len(self.labels)
        for name, dtype in (("owner", np.int64), ("counts", np.int64), ("labels", None)):
            array = np.array(getattr(self, name), dtype=dtype)
            array.flags.writeable = False
            object.__setattr__(self, name, array)
        object.__setattr__(self, "settings", dict(self.settings))
        if len(set(self.ids)) < clients:
            raise BadData("ids must be different: one for each client.")
        if self.owner.ndim != 1 or not np.all((self.owner >= -1) & (self.owner < clients)):
            raise BadData(f"owner must hold one number from -1 (nobody) to {clients - 1} for every row.")
        if self.counts.shape != (clients, classes) or (classes and not np.array_equal(self.counts.sum(1), self.sizes)):
            raise BadData(f"counts must have shape {(clients, classes)} and add up to each client's number of rows.")

    @property
    def clients(self) -> int:
        """The number of clients, K."""
        return len(self.ids)

    @property
    def sizes(self) -> Ints:
        """Rows of each client. (K,)"""
        return np.bincount(self.owner[self.owner >= 0], minlength=self.clients)

    @property
    def dropped(self) -> int:
        """Rows that nobody owns."""
        return int(np.count_nonzero(self.owner < 0))

    @property
    def hash(self) -> str:
        """SHA-256 of the content, alike on every platform."""
        content = json.dumps(self._words(), sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
        return hashlib.sha256(
            content + self.owner.astype("<i8").tobytes() + self.counts.astype("<i8").tobytes()
        ).hexdigest()

    def _words(self) -> dict[str, object]:
        """All of the content that is not a long array."""
        names = {"law": self.law, "settings": self.settings, "ids": list(self.ids), "labels": self.labels.tolist()}
        return {**names, "rows": len(self.owner)}

    def match(self, y_test: ArrayLike) -> Partition:
        """Test rows dealt in each client's own class proportions, every row once.

        quota_kc = T_c n_kc / Σ_j n_jc    T_c test rows of class c; rounded by the largest remainders

        Ties fall by an order of clients drawn for each class with this partition's seed. So nobody is tested on a class
        that it does not train on. Where there are no classes, the quota follows the sizes. Clients that end with fewer
        than 10 test rows are warned of (`SmallTest`); nothing is drawn again.

        >>> part = iid(["cat"] * 40 + ["dog"] * 40, clients=2, stratified=True)
        >>> part.match(["dog"] * 40).counts.tolist()
        [[0, 20], [0, 20]]
        """
        held = self.counts.T if len(self.labels) else self.sizes[None]
        codes = self._codes(_column(y_test, "y_test"), held.sum(axis=1))
        draw = rng_for(int(self.settings.get("seed", 0)), "partition", "match").generator()
        dealt = _apportion(held, np.bincount(codes, minlength=len(held)), draw)
        owner = _dealt(codes, dealt, draw)
        counts = dealt.T if len(self.labels) else self.counts
        tests = replace(
            self, owner=owner, counts=counts, law=f"match({self.law})", settings={**self.settings, "of": self.hash}
        )
        _warn_of_small(tests)
        return tests

    def _codes(self, values: Values, rows: Ints) -> Ints:
        """The class numbers of test labels, each of a class that somebody trains on."""
        if not len(self.labels):
            codes = np.zeros(len(values), dtype=np.int64)
        else:
            _refuse_real(values, "y_test", "as they were in training")
            known = {label: c for c, label in enumerate(self.labels.tolist())}
            found, inverse = np.unique(values, return_inverse=True)
            codes = np.array([known.get(label, -1) for label in found.tolist()], dtype=np.int64)[inverse]
        alone = np.flatnonzero((codes < 0) | (rows[codes] == 0))
        if len(alone):
            raise BadData(
                f"y_test, row {alone[0]}: no client trains on class {values[alone[0]].item()!r}, so nobody can be "
                "tested on it. Leave such test rows out, or partition training rows that have this class."
            )
        return codes

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the partition to a file, whole or not at all: an .npz without pickle, with its schema and hash."""
        header = {"format": _FORMAT, "schema": SCHEMA, "hash": self.hash, **self._words()}
        words = np.frombuffer(json.dumps(header).encode(), np.uint8)
        buffer = io.BytesIO()
        np.savez_compressed(buffer, allow_pickle=False, header=words, owner=self.owner, counts=self.counts)
        _write_whole(Path(path), buffer.getvalue())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Partition:
        """The partition in a file, which must be whole, ours, of a schema that is known here, and true to its hash."""
        header, owner, counts = _read(Path(path))
        try:
            labels, ids = np.array(header["labels"]), tuple(header["ids"])
            partition = cls(owner, ids, labels, counts, header["law"], header["settings"])
            if partition.hash == header["hash"]:
                return partition
        except (KeyError, TypeError, ValueError) as error:
            raise BadFile(f"{path} is damaged: its content is no partition. {_AGAIN}") from error
        raise BadFile(f"{path} is damaged or was edited: its content does not have the hash that it states. {_AGAIN}")


def _warn_of_small(tests: Partition) -> None:
    small = np.flatnonzero(tests.sizes < SMALL)
    if len(small):
        least = int(tests.sizes.argmin())
        warnings.warn(
            f"{len(small)} of {tests.clients} clients have fewer than {SMALL} test rows; the fewest, "
            f"{tests.sizes[least]}, has '{tests.ids[least]}'. Their scores mean little: "
            "use fewer clients, a milder law, or more test rows.",
            SmallTest,
            stacklevel=3,
        )


# ---- files


def _write_whole(path: Path, data: bytes) -> None:
    """The file as it is to be, or as it was: never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with beside.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def _read(path: Path) -> tuple[dict[str, Any], Ints, Ints]:
    """Header, owner and counts of a file that is ours."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise BadFile(f"{path} cannot be read: {error.strerror}. {_OURS}") from error
    if not raw.startswith(b"PK"):
        raise BadFile(f"{path} is not a partition file. {_OURS}")
    try:
        with np.load(io.BytesIO(raw), allow_pickle=False) as file:
            entries = {name: file[name] for name in ("header", "owner", "counts") if name in file}
            header = json.loads(entries["header"].tobytes()) if "header" in entries else {}
    except _DAMAGE as error:
        raise BadFile(f"{path} is damaged: {error}. {_AGAIN}") from error
    if not isinstance(header, dict) or header.get("format") != _FORMAT:
        raise BadFile(f"{path} is not a partition file. {_OURS}")
    if header.get("schema") != SCHEMA:
        raise BadFile(
            f"{path} has schema {header.get('schema')}, but this version reads {SCHEMA}. Upgrade homeward to read it."
        )
    if len(entries) < 3:
        raise BadFile(f"{path} is damaged: a part is missing. {_AGAIN}")
    return header, entries["owner"], entries["counts"]


# ---- what enters: labels and settings


def _column(y: ArrayLike, name: str = "y") -> Values:
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


def _refuse_real(values: Values, name: str, instead: str) -> None:
    if values.dtype.kind == "f":
        raise BadData(
            f"{name} holds real numbers, but classes are needed. Pass whole numbers or text, as by {name}.astype(int), "
            f"{instead}."
        )


@dataclass(frozen=True, eq=False)
class _Classes:
    """The classes of the rows that a law deals."""

    labels: Values  # (C,)
    codes: Ints  # (n,)

    @classmethod
    def of(cls, y: ArrayLike, real: bool = False) -> _Classes:
        """Real targets have no classes, and only laws that say so take them."""
        values = _column(y)
        if real and values.dtype.kind == "f":
            return cls(np.empty(0, np.int64), np.zeros(len(values), np.int64))
        _refuse_real(values, "y", "or use the law iid, not stratified, or quantity")
        labels, codes = np.unique(values, return_inverse=True)
        return cls(labels, codes)

    @property
    def n(self) -> int:
        return len(self.codes)

    @property
    def totals(self) -> Ints:
        """Rows of each class. (C,)"""
        return np.bincount(self.codes, minlength=len(self.labels))

    def partition(self, owner: Ints, law: str, clients: int, **settings: Setting) -> Partition:
        """The value that a law gives."""
        width = max(3, len(str(clients - 1)))
        ids = tuple(f"c{k:0{width}d}" for k in range(clients))
        cells = np.bincount(owner * len(self.labels) + self.codes, minlength=clients * len(self.labels))
        counts = cells[: clients * len(self.labels)].reshape(clients, len(self.labels))
        return Partition(owner, ids, self.labels, counts, law, {"clients": clients, **settings})


def _checked(function: Callable[P, R]) -> Callable[P, R]:
    """The function, called with plain numbers and words that are what its annotations allow, or not at all."""
    signature, rules, name = inspect.signature(function), _rules(function), _law_name(function)

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        call = signature.bind(*args, **kwargs)
        given = call.arguments
        given.update({key: _plain(name, key, given[key], rules[key]) for key in given if key in rules})
        return function(*call.args, **call.kwargs)

    return run


def _law_name(function: Callable[..., object]) -> str:
    return function.__name__.replace("_", "-")


def _rules(function: Callable[..., object]) -> dict[str, Any]:
    """What each setting of a function may be."""
    hints = get_type_hints(function, include_extras=True)
    return {
        key: Switch() if hint is bool else get_args(hint)[1]
        for key, hint in hints.items()
        if hint is bool or hasattr(hint, "__metadata__")
    }


def _plain(law: str, key: str, value: Any, rule: Any) -> Setting:
    """A setting as Python's own number or word."""
    if not rule.accepts(value):
        guess = " " + nearest(value, rule.words) if isinstance(rule, Choice) and isinstance(value, str) else ""
        raise BadSetting(f"{key} = {value!r}, but {law} needs {rule}.{guess}")
    kinds: dict[type, type[int] | type[float]] = {Count: int, Number: float}
    return kinds[type(rule)](value) if type(rule) in kinds else value


def _enough(law: str, n: int, clients: int, each: int, setting: str = "") -> None:
    """Refuses more clients than the rows can feed; `setting`, where there is one, is what says `each`."""
    if clients * each > n:
        fewer = [f"clients <= {n // each}"] if n >= each else []
        less = [f"{setting} <= {n // clients}"] if setting and n >= clients else []
        remedy = " or ".join(fewer + less) or "more rows"
        raise BadSetting(
            f"{law}: {clients} clients of at least {each} rows need {clients * each} rows, but y has {n}. Use {remedy}."
        )


# ---- draws


def _shares(draw: np.random.Generator, alpha: Floats, n: int) -> Floats:
    """n rows in proportion to draws of Dir(alpha), the largest share of each being 1. (n, len(alpha))

    Gamma(a) is Gamma(a + 1) U^(1/a): in logarithms, so that no alpha is too small.
    """
    a = np.clip(alpha, 1e-300, 1e100)
    unit = min(1.0, float(a.min()))  # logarithms are kept in this unit: 1/a times the logarithm of U would overflow
    logs = unit * np.log(draw.standard_gamma(a + 1, (n, len(a)))) + unit / a * np.log1p(-draw.random((n, len(a))))
    with np.errstate(over="ignore"):  # minus infinity is a share of 0
        shares: Floats = np.exp((logs - logs.max(axis=1, keepdims=True)) / unit)
    return shares


def _cut(shares: Floats, totals: Ints) -> Ints:
    """Totals cut in proportion to shares along the last axis, at the rounded cumulative sums."""
    edges = np.cumsum(shares, axis=-1)
    whole = np.where(edges[..., -1:] > 0, edges[..., -1:], 1)
    rounded: Ints = np.rint(edges / whole * totals[..., None]).astype(np.int64)
    rounded[..., 1:] -= rounded[..., :-1].copy()
    return rounded


def _apportion(held: Ints, totals: Ints, draw: np.random.Generator) -> Ints:
    """Totals (C,) dealt as classes are held (C, K), by largest remainders; ties by an order drawn per class. (C, K)"""
    whole = np.maximum(held.sum(axis=1), 1)
    quota, rest = np.divmod(held * totals[:, None], whole[:, None])  # whole numbers: ties are exact
    clients = np.arange(held.shape[1])
    ties = draw.permuted(np.tile(clients, (len(held), 1)), axis=1)
    first = np.lexsort((ties, -rest), axis=1)
    more = clients < (totals - quota.sum(axis=1))[:, None]
    np.put_along_axis(quota, first, np.take_along_axis(quota, first, axis=1) + more, axis=1)
    return quota


def _by_class(codes: Ints, draw: np.random.Generator) -> Ints:
    """The rows in order of class, shuffled within each."""
    rows = draw.permutation(len(codes))
    return rows[np.argsort(codes[rows], kind="stable")]


def _dealt(codes: Ints, dealt: Ints, draw: np.random.Generator) -> Ints:
    """The owner of every row, given how many rows of each class each client gets (C, K). (n,)"""
    classes, clients = dealt.shape
    owner = np.empty(len(codes), dtype=np.int64)
    owner[_by_class(codes, draw)] = np.repeat(np.tile(np.arange(clients), classes), dealt.ravel())
    return owner


@dataclass(frozen=True, eq=False)
class _ClassWise:
    """Draws of the class-wise law, on class counts alone; each has an address, so batches of any size give the same."""

    totals: Ints  # (C,)  rows of each class
    clients: int
    alpha: float
    least: int  # rows that the smallest client must have
    capped: bool
    rng: Rng

    def first(self, tries: int) -> tuple[Ints | None, int]:
        """The first draw that leaves all enough rows (None: there was none), and the most the smallest client had."""
        most = 0
        for which in self._batches(tries):
            dealt = self._draws(which)
            smallest = dealt.sum(axis=1).min(axis=1)
            most = max(most, int(smallest.max()))
            if most >= self.least:
                return dealt[np.argmax(smallest >= self.least)], most
        return None, most

    def _batches(self, tries: int) -> Iterator[range]:
        """Few draws at first, for most are accepted at once, then as many as memory likes."""
        start, width, cells = 0, 1, len(self.totals) * self.clients
        while start < tries:
            yield range(start, min(start + width, tries))
            start, width = start + width, min(2 * width, max(1, 2**19 // cells))

    def _draws(self, which: range) -> Ints:
        """How many rows of each class each client gets. (draws, C, K)"""
        draws = [self.rng.at(t).generator() for t in which]
        alpha = np.full(self.clients, self.alpha)
        shares = np.stack([_shares(draw, alpha, len(self.totals)) for draw in draws])
        if not self.capped:
            return _cut(shares, self.totals)
        order = np.stack([draw.permutation(len(self.totals)) for draw in draws])
        dealt = self._in_turn(shares, self.totals[order])
        return np.take_along_axis(dealt, np.argsort(order, axis=1)[..., None], axis=1)

    def _in_turn(self, shares: Floats, totals: Ints) -> Ints:
        """One class after another, to clients below their fair size only; alike to all of them where none wants any."""
        sizes, dealt = np.zeros_like(shares[:, 0], dtype=np.int64), np.empty_like(shares, dtype=np.int64)
        for c in range(shares.shape[1]):
            room = sizes * self.clients < self.totals.sum()
            wanted = shares[:, c] * room
            dealt[:, c] = _cut(np.where(wanted.any(axis=1, keepdims=True), wanted, room), totals[:, c])
            sizes += dealt[:, c]
        return dealt


def _settled(law: str, parts: Sequence[_ClassWise], tries: int, setting: str = "") -> list[Ints]:
    """An accepted draw of every part, or an error that names what would be; `setting` is what says the least size."""
    found = [part.first(tries) for part in parts]
    failed = [(part, most) for part, (dealt, most) in zip(parts, found, strict=True) if dealt is None]
    if failed:
        part, most = min(failed, key=lambda pair: pair[1])
        remedies = ([f"{setting} <= {most}"] if setting else []) + _larger_alpha(parts, min(tries, 50))
        raise BadSetting(
            f"{law}: in {tries} draws with alpha = {part.alpha:g} over {part.clients} clients, the smallest client "
            f"never had {part.least} rows; the best draw left {most}. Use {' or '.join(remedies) or 'fewer clients'}."
        )
    return [dealt for dealt, _ in found if dealt is not None]


def _larger_alpha(parts: Sequence[_ClassWise], tries: int) -> list[str]:
    """The next round alpha that is accepted with the same seed, as a remedy; none where none is."""
    for alpha in (float(f"{digit}e{power}") for power in range(-3, 6) for digit in (1, 2, 5)):
        if alpha > parts[0].alpha and all(replace(part, alpha=alpha).first(tries)[0] is not None for part in parts):
            return [f"alpha = {alpha:g}"]
    return []


# ---- laws

Clients = Annotated[int, Count(low=1)]
Seed = Annotated[int, Count(low=0)]
Alpha = Annotated[float, Number(above=0)]
Least = Annotated[int, Count(low=0)]
Several = Annotated[int, Count(low=1)]
Scheme = Annotated[str, Choice("capped", "uncapped", "client")]


@_checked
def dirichlet(
    y: ArrayLike,
    clients: Clients,
    alpha: Alpha,
    seed: Seed = 0,
    scheme: Scheme = "capped",
    min_rows: Least = 10,
    tries: Several = 10_000,
) -> Partition:
    """Each class is dealt to the clients in Dirichlet(alpha) proportions, and whoever has a fair size gets no more.

    p_c ~ Dir(alpha 1_K) for each class c, one class after another; clients that hold n/K rows by then have their share
    set to 0. Everything is drawn again until each client has `min_rows` rows, at most `tries` times. The smaller alpha,
    the fewer classes a client has.

    scheme: `capped` is this law; `uncapped` and `client` are `dirichlet_uncapped` and `dirichlet_client`, and the
    result bears their name.

    Source: the code of PFLlib and of AFL (He et al., CVPR 2025). Differs: the order of classes is drawn anew for each
    attempt, as late classes can only go to clients with room; cumulative shares are rounded, not floored, which would
    hand a stray row of nearly every class to the last client.

    >>> dirichlet(np.arange(1000) % 10, clients=5, alpha=0.1, seed=0).sizes.min() >= 10
    np.True_
    """
    if scheme == "client":
        return dirichlet_client(y, clients, alpha, seed, min_rows)
    law = "dirichlet" if scheme == "capped" else "dirichlet-uncapped"
    rows = _Classes.of(y)
    _enough(law, rows.n, clients, min_rows, "min_rows")
    rng = rng_for(seed, "partition", law)
    draws = _ClassWise(rows.totals, clients, alpha, min_rows, scheme == "capped", rng)
    dealt = _settled(law, [draws], tries, "min_rows")[0]
    owner = _dealt(rows.codes, dealt, rng.at("rows").generator())
    return rows.partition(owner, law, clients, alpha=alpha, seed=seed, min_rows=min_rows)


@_checked
def dirichlet_uncapped(
    y: ArrayLike, clients: Clients, alpha: Alpha, seed: Seed = 0, min_rows: Least = 10, tries: Several = 10_000
) -> Partition:
    """Each class is dealt to the clients in Dirichlet(alpha) proportions, whatever their sizes become.

    With C classes of equal size, the squared coefficient of variation of sizes is (K - 1) / (C (alpha K + 1)) on
    average. Drawn again until each client has `min_rows` rows, as `dirichlet` is. Source: the code of FL-bench.
    """
    return dirichlet(y, clients, alpha, seed, "uncapped", min_rows, tries)


@_checked
def dirichlet_client(y: ArrayLike, clients: Clients, alpha: Alpha, seed: Seed = 0, min_rows: Least = 10) -> Partition:
    """Clients of equal size each draw their own class proportions from a Dirichlet about the overall ones.

    q_k ~ Dir(alpha C prior) over the C classes. Clients come in random order; each draws labels from q_k, and rows from
    what is left. Where a class has no row left, q_k is renormalised over the others: so every row is dealt once, and
    clients are less like their q_k the later they come.
    """
    rows = _Classes.of(y)
    _enough("dirichlet-client", rows.n, clients, max(1, min_rows), "min_rows")
    rng = rng_for(seed, "partition", "dirichlet-client")
    draw = rng.generator()
    left, dealt = rows.totals, np.zeros((clients, len(rows.labels)), dtype=np.int64)
    shares = _shares(draw, alpha * len(left) * left / rows.n, clients)
    for k in draw.permutation(clients):
        dealt[k] = _drawn(draw, shares[k], left, rows.n // clients + (k < rows.n % clients))
        left = left - dealt[k]
    owner = _dealt(rows.codes, dealt.T, rng.at("rows").generator())
    return rows.partition(owner, "dirichlet-client", clients, alpha=alpha, seed=seed, min_rows=min_rows)


def _drawn(draw: np.random.Generator, share: Floats, left: Ints, size: int) -> Ints:
    """Labels drawn one by one from classes that have rows left, as a count of each; many at a time is the same. (C,)"""
    taken = np.zeros_like(left)
    while (missing := size - int(taken.sum())) > 0:
        open_ = left > taken
        wanted = share * open_ if (share * open_).any() else (left - taken).astype(np.float64)
        taken = np.minimum(left, taken + draw.multinomial(missing, wanted / wanted.sum()))
    return taken


@_checked
def grouped(
    y: ArrayLike, clients: Clients, alpha: Alpha, seed: Seed = 0, group: Several = 10, tries: Several = 10_000
) -> Partition:
    """Groups of clients get random rows in equal shares, and inside each group the capped Dirichlet law deals them.

    Drawn again until each client has half of its group's mean size. Much milder than `dirichlet` of the same alpha, as
    each class is spread over all groups. A last group of fewer clients gets fewer rows.

    Source: Lin et al., "Ensemble Distillation for Robust Model Fusion in Federated Learning", NeurIPS 2020 (FedDF), the
    paper that is cited for Dirichlet splits. Differs: order of classes and rounding, as in `dirichlet`.
    """
    rows = _Classes.of(y)
    _enough("grouped", rows.n, clients, 1)
    rng = rng_for(seed, "partition", "grouped")
    starts = np.append(np.arange(0, clients, group), clients)
    mixed = np.split(rng.generator().permutation(rows.n), np.rint(starts[1:-1] / clients * rows.n).astype(np.int64))
    parts = []
    for g, members in enumerate(np.diff(starts).tolist()):
        totals = np.bincount(rows.codes[mixed[g]], minlength=len(rows.labels))
        parts.append(_ClassWise(totals, members, alpha, -(-len(mixed[g]) // (2 * members)), True, rng.at("group", g)))
    owner = np.empty(rows.n, dtype=np.int64)
    for g, dealt in enumerate(_settled("grouped", parts, tries)):
        owner[mixed[g]] = starts[g] + _dealt(rows.codes[mixed[g]], dealt, rng.at("rows", g).generator())
    return rows.partition(owner, "grouped", clients, alpha=alpha, seed=seed, group=group)


@_checked
def shards(y: ArrayLike, clients: Clients, per_client: Several, seed: Seed = 0) -> Partition:
    """Rows sorted by class are cut into equal shards, and each client gets a few of them at random.

    Shards differ by one row at most, and no row is dropped. A client has about `per_client` classes: fewer where its
    shards are alike, more where a shard spans two.

    Source: McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data", AISTATS 2017.
    """
    rows = _Classes.of(y)
    _enough("shards", rows.n, clients, per_client, "per_client")
    draw = rng_for(seed, "partition", "shards").generator()
    order, cuts = _by_class(rows.codes, draw), clients * per_client
    owner = np.empty(rows.n, dtype=np.int64)
    owner[order] = draw.permutation(np.repeat(np.arange(clients), per_client))[np.arange(rows.n) * cuts // rows.n]
    return rows.partition(owner, "shards", clients, per_client=per_client, seed=seed)


@_checked
def classes(y: ArrayLike, clients: Clients, per_client: Several, seed: Seed = 0) -> Partition:
    """Each client holds the same number of classes, and each class is cut into equal parts among equally many clients.

    Source: Collins et al., "Exploiting Shared Representations for Personalized Federated Learning", ICML 2021 (FedRep).
    Differs: no client is dealt one class twice, so that all hold `per_client` different ones.
    """
    rows = _Classes.of(y)
    holders = _holders(clients, len(rows.labels), per_client)
    scarce = int(rows.totals.argmin())
    if rows.totals[scarce] < holders:
        raise BadSetting(
            f"classes: {holders} clients would share class {rows.labels[scarce].item()!r}, which has only "
            f"{rows.totals[scarce]} rows. Use fewer clients or a smaller per_client."
        )
    draw = rng_for(seed, "partition", "classes").generator()
    dealt = _apportion(_hands(draw, clients, len(rows.labels), per_client).T.astype(np.int64), rows.totals, draw)
    return rows.partition(_dealt(rows.codes, dealt, draw), "classes", clients, per_client=per_client, seed=seed)


def _holders(clients: int, classes: int, per_client: int) -> int:
    """How many clients hold each class: a whole number, or an error with the nearest settings that make it one."""
    if per_client > classes:
        raise BadSetting(
            f"classes: per_client = {per_client}, but y has only {classes} classes. Use per_client <= {classes}."
        )
    if clients * per_client % classes:
        step = classes // int(np.gcd(classes, clients)), classes // int(np.gcd(classes, per_client))
        each, many = (max(1, round(value / s)) * s for value, s in zip((per_client, clients), step, strict=True))
        raise BadSetting(
            f"classes: {clients} clients of {per_client} classes hold {clients * per_client} in all, which is no "
            f"multiple of the {classes} classes in y. Use per_client = {each} or clients = {many}."
        )
    return clients * per_client // classes


def _hands(draw: np.random.Generator, clients: int, classes: int, per_client: int) -> NDArray[np.bool_]:
    """Which classes each client holds: dealt in turn, then mixed by trades of two, which keep all totals. (K, C)

    Source of the trades: Strona et al., Nature Communications 5, 2014 ("curveball").
    """
    holds = np.zeros((clients, classes), dtype=bool)
    np.put_along_axis(holds, np.arange(clients * per_client).reshape(clients, -1) % classes, True, axis=1)
    for _ in range(20):
        order = draw.permutation(clients)
        for a, b in zip(order[::2], order[1::2], strict=False):  # an odd client out trades in the next turn
            differ = np.flatnonzero(holds[a] != holds[b])
            holds[a, differ] = draw.permutation(holds[a, differ])
            holds[b, differ] = ~holds[a, differ]
    return holds[:, draw.permutation(classes)]


@_checked
def iid(y: ArrayLike, clients: Clients, seed: Seed = 0, stratified: bool = False) -> Partition:
    """Shuffled rows in equal parts; stratified, every class in equal parts too.

    "Equal" is to one row. Real targets are welcome where nothing is stratified: such a partition has no labels.
    """
    rows = _Classes.of(y, real=not stratified)
    _enough("iid", rows.n, clients, 1)
    draw = rng_for(seed, "partition", "iid").generator()
    order = _by_class(rows.codes, draw) if stratified else draw.permutation(rows.n)
    owner = np.empty(rows.n, dtype=np.int64)
    owner[order] = draw.permutation(clients)[np.arange(rows.n) % clients]
    return rows.partition(owner, "iid", clients, seed=seed, stratified=stratified)


@_checked
def quantity(y: ArrayLike, clients: Clients, beta: Alpha = 0.5, seed: Seed = 0, min_rows: Least = 10) -> Partition:
    """Shuffled rows in parts whose sizes are in Dirichlet(beta) proportions.

    beta = 0.5 is a strong skew, 5 a mild one. Clients below `min_rows` are lifted to it at the cost of the others, in
    proportion; rounding falls on the largest. Real targets are welcome: such a partition has no labels.
    """
    rows = _Classes.of(y, real=True)
    _enough("quantity", rows.n, clients, min_rows, "min_rows")
    draw = rng_for(seed, "partition", "quantity").generator()
    sizes = _lifted(_shares(draw, np.full(clients, beta), 1)[0], rows.n, min_rows)
    owner = np.empty(rows.n, dtype=np.int64)
    owner[draw.permutation(rows.n)] = np.repeat(np.arange(clients), sizes)
    return rows.partition(owner, "quantity", clients, beta=beta, seed=seed, min_rows=min_rows)


def _lifted(shares: Floats, n: int, least: int) -> Ints:
    """n rows in proportion to shares, at least `least` each; the largest takes what rounding leaves. (K,)"""
    low = np.zeros(len(shares), dtype=bool)
    while True:
        sizes = np.where(low, least, (n - least * low.sum()) * shares / shares[~low].sum())
        lower = low | (sizes < least - 1e-9)
        if lower.all() or (lower == low).all():
            break
        low = lower
    whole = np.maximum(np.floor(sizes), least).astype(np.int64)
    whole[whole.argmax()] += n - whole.sum()
    return whole


# ---- the table of laws


@dataclass(frozen=True)
class Law:
    """A way to deal rows to clients, as `list partitions` shows it."""

    name: str
    function: Callable[..., Partition]
    description: str
    settings: dict[str, Setting | None]  # with their defaults; None: must be given

    @classmethod
    def of(cls, function: Callable[..., Partition]) -> Law:
        """What a function says of itself in its docstring's first line and its signature."""
        _, *settings = inspect.signature(function).parameters.values()
        defaults = {s.name: None if s.default is s.empty else s.default for s in settings}
        return cls(_law_name(function), function, (function.__doc__ or "").partition("\n")[0], defaults)


_FUNCTIONS: tuple[Callable[..., Partition], ...] = (
    dirichlet,
    dirichlet_uncapped,
    dirichlet_client,
    grouped,
    shards,
    classes,
    iid,
    quantity,
)
LAWS: dict[str, Law] = {law.name: law for law in map(Law.of, _FUNCTIONS)}


def partition(law: str, y: ArrayLike, **settings: Setting) -> Partition:
    """Rows dealt by the law of this name.

    >>> partition("iid", ["a", "b", "c", "d"], clients=2).sizes.tolist()
    [2, 2]
    """
    if law not in LAWS:
        raise BadSetting(f"There is no partition law '{law}'. {nearest(law, LAWS)}")
    known = LAWS[law].settings
    for key in settings:
        if key not in known:
            raise BadSetting(f"The law '{law}' has no setting '{key}'. {nearest(key, known)}")
    missing = [key for key, default in known.items() if default is None and key not in settings]
    if missing:
        raise BadSetting(f"The law '{law}' needs a value for {' and '.join(missing)}. Give it as {missing[0]}=...")
    return LAWS[law].function(y, **settings)


# ---- features that differ by client

Strength = Annotated[float, Number(low=0)]
Kind = Annotated[str, Choice("offset", "rotation", "affine")]


@_checked
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
