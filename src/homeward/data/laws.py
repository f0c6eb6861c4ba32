"""The laws that deal rows to clients, and their table.

A law sees labels alone and deals row numbers. The same labels, settings and seed give the same `Partition`, and nothing
else decides it: what it draws is addressed by its seed and its name (`core/rng.py`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Annotated, Any, ParamSpec, TypeVar, get_args, get_type_hints

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..core.errors import BadSetting, UnknownName, nearest
from ..core.rng import rng_for
from ..core.settings import Choice, Count, Number, Switch
from .draws import ClassWise, Floats, settled, shares_of
from .labels import Values, classes_of, column
from .partition import Ints, Partition, Setting, apportion, by_class, dealt_rows

P = ParamSpec("P")
R = TypeVar("R")

Clients = Annotated[int, Count(low=1)]
Seed = Annotated[int, Count(low=0)]
Alpha = Annotated[float, Number(above=0)]
Least = Annotated[int, Count(low=0)]
Several = Annotated[int, Count(low=1)]
Scheme = Annotated[str, Choice("capped", "uncapped", "client")]


# ---- what enters: classes and settings


@dataclass(frozen=True, eq=False)
class _Classes:
    """The classes of the rows that a law deals."""

    labels: Values  # (C,)
    codes: Ints  # (n,)

    @classmethod
    def of(cls, y: ArrayLike, real: bool = False) -> _Classes:
        """Real targets have no classes, and only laws that say so take them."""
        values = column(y)
        if real and values.dtype.kind == "f":
            return cls(np.empty(0, np.int64), np.zeros(len(values), np.int64))
        named = classes_of(values, "y", "or use the law iid, not stratified, or quantity")
        labels, codes = np.unique(named, return_inverse=True)
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


def checked(function: Callable[P, R]) -> Callable[P, R]:
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


# ---- laws


@checked
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
    draws = ClassWise(rows.totals, clients, alpha, min_rows, scheme == "capped", rng)
    dealt = settled(law, [draws], tries, "min_rows")[0]
    owner = dealt_rows(rows.codes, dealt, rng.at("rows").generator())
    return rows.partition(owner, law, clients, alpha=alpha, seed=seed, min_rows=min_rows)


@checked
def dirichlet_uncapped(
    y: ArrayLike, clients: Clients, alpha: Alpha, seed: Seed = 0, min_rows: Least = 10, tries: Several = 10_000
) -> Partition:
    """Each class is dealt to the clients in Dirichlet(alpha) proportions, whatever their sizes become.

    With C classes of equal size, the squared coefficient of variation of sizes is (K - 1) / (C (alpha K + 1)) on
    average. Drawn again until each client has `min_rows` rows, as `dirichlet` is. Source: the code of FL-bench.
    """
    return dirichlet(y, clients, alpha, seed, "uncapped", min_rows, tries)


@checked
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
    shares = shares_of(draw, alpha * len(left) * left / rows.n, clients)
    for k in draw.permutation(clients):
        dealt[k] = _drawn(draw, shares[k], left, rows.n // clients + (k < rows.n % clients))
        left = left - dealt[k]
    owner = dealt_rows(rows.codes, dealt.T, rng.at("rows").generator())
    return rows.partition(owner, "dirichlet-client", clients, alpha=alpha, seed=seed, min_rows=min_rows)


def _drawn(draw: np.random.Generator, share: Floats, left: Ints, size: int) -> Ints:
    """Labels drawn one by one from classes that have rows left, as a count of each; many at a time is the same. (C,)"""
    taken = np.zeros_like(left)
    while (missing := size - int(taken.sum())) > 0:
        open_ = left > taken
        wanted = share * open_ if (share * open_).any() else (left - taken).astype(np.float64)
        taken = np.minimum(left, taken + draw.multinomial(missing, wanted / wanted.sum()))
    return taken


@checked
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
        parts.append(ClassWise(totals, members, alpha, -(-len(mixed[g]) // (2 * members)), True, rng.at("group", g)))
    owner = np.empty(rows.n, dtype=np.int64)
    for g, dealt in enumerate(settled("grouped", parts, tries)):
        owner[mixed[g]] = starts[g] + dealt_rows(rows.codes[mixed[g]], dealt, rng.at("rows", g).generator())
    return rows.partition(owner, "grouped", clients, alpha=alpha, seed=seed, group=group)


@checked
def shards(y: ArrayLike, clients: Clients, per_client: Several, seed: Seed = 0) -> Partition:
    """Rows sorted by class are cut into equal shards, and each client gets a few of them at random.

    Shards differ by one row at most, and no row is dropped. A client has about `per_client` classes: fewer where its
    shards are alike, more where a shard spans two.

    Source: McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data", AISTATS 2017.
    """
    rows = _Classes.of(y)
    _enough("shards", rows.n, clients, per_client, "per_client")
    draw = rng_for(seed, "partition", "shards").generator()
    order, cuts = by_class(rows.codes, draw), clients * per_client
    owner = np.empty(rows.n, dtype=np.int64)
    owner[order] = draw.permutation(np.repeat(np.arange(clients), per_client))[np.arange(rows.n) * cuts // rows.n]
    return rows.partition(owner, "shards", clients, per_client=per_client, seed=seed)


@checked
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
    dealt = apportion(_hands(draw, clients, len(rows.labels), per_client).T.astype(np.int64), rows.totals, draw)
    return rows.partition(dealt_rows(rows.codes, dealt, draw), "classes", clients, per_client=per_client, seed=seed)


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


@checked
def iid(y: ArrayLike, clients: Clients, seed: Seed = 0, stratified: bool = False) -> Partition:
    """Shuffled rows in equal parts; stratified, every class in equal parts too.

    "Equal" is to one row. Real targets are welcome where nothing is stratified: such a partition has no labels.
    """
    rows = _Classes.of(y, real=not stratified)
    _enough("iid", rows.n, clients, 1)
    draw = rng_for(seed, "partition", "iid").generator()
    order = by_class(rows.codes, draw) if stratified else draw.permutation(rows.n)
    owner = np.empty(rows.n, dtype=np.int64)
    owner[order] = draw.permutation(clients)[np.arange(rows.n) % clients]
    return rows.partition(owner, "iid", clients, seed=seed, stratified=stratified)


@checked
def quantity(y: ArrayLike, clients: Clients, beta: Alpha = 0.5, seed: Seed = 0, min_rows: Least = 10) -> Partition:
    """Shuffled rows in parts whose sizes are in Dirichlet(beta) proportions.

    beta = 0.5 is a strong skew, 5 a mild one. Clients below `min_rows` are lifted to it at the cost of the others, in
    proportion; rounding falls on the largest. Real targets are welcome: such a partition has no labels.
    """
    rows = _Classes.of(y, real=True)
    _enough("quantity", rows.n, clients, min_rows, "min_rows")
    draw = rng_for(seed, "partition", "quantity").generator()
    sizes = _lifted(shares_of(draw, np.full(clients, beta), 1)[0], rows.n, min_rows)
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

    def checked(self, settings: Mapping[str, Any]) -> dict[str, Setting]:
        """All settings of the law as plain values: those given, where they are sound, and the defaults of the others."""
        for key in settings:
            if key not in self.settings:
                raise BadSetting(f"The law '{self.name}' has no setting '{key}'. {nearest(key, self.settings)}")
        missing = [key for key, default in self.settings.items() if default is None and key not in settings]
        if missing:
            raise BadSetting(
                f"The law '{self.name}' needs a value for {' and '.join(missing)}. Give it as {missing[0]}=..."
            )
        rules, values = _rules(self.function), {**self.settings, **settings}
        return {key: _plain(self.name, key, value, rules[key]) for key, value in values.items()}


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


def law_named(name: str) -> Law:
    """The law of this name; an unknown one is an error with the nearest."""
    if name not in LAWS:
        raise UnknownName(f"There is no partition law '{name}'. {nearest(name, LAWS)}")
    return LAWS[name]


def partition(law: str, y: ArrayLike, **settings: Setting) -> Partition:
    """Rows dealt by the law of this name.

    >>> partition("iid", ["a", "b", "c", "d"], clients=2).sizes.tolist()
    [2, 2]
    """
    found = law_named(law)
    return found.function(y, **found.checked(settings))
