"""What rows allow to be believed. A replicate is a partition; everything is paired by partition and client.

Seeds on the same partition are averaged first. Intervals are Student's t over replicates; the main figure is the unweighted mean over
clients. Several comparisons at once are corrected by Holm's rule, and "not distinguishable" is a verdict.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import scipy.stats

from ..core.errors import BadData, UnknownName, nearest
from .rows import Row, distinct, group, select

Clients: TypeAlias = Mapping[str, float]
"""A value for each client."""
Scores: TypeAlias = Mapping[str, Clients]
"""For each replicate, a value for each client."""

LEVEL = 0.95
SAME = 1e-9  # a difference that is rounding
NOT_SCORES = ("rows", "seconds", "bytes_up", "bytes_down")


# ---- intervals


@dataclass(frozen=True)
class Interval:
    """A mean over replicates and where it may truly lie. One replicate has no interval: its ends are infinite."""

    mean: float
    low: float
    high: float
    replicates: int

    @property
    def half(self) -> float:
        """What stands behind ±."""
        return (self.high - self.low) / 2

    @property
    def known(self) -> bool:
        """There are replicates enough for an interval."""
        return math.isfinite(self.half)


def t_interval(values: Sequence[float], level: float = LEVEL) -> Interval:
    """mean ± t sd / √R, with t of R - 1 degrees of freedom and the standard deviation over replicates (R - 1).

    >>> t_interval([1.0, 2.0, 3.0]).half.__round__(3)
    2.484
    """
    x = np.asarray(values, dtype=np.float64)
    if not len(x):
        raise BadData("There is no replicate to average over. Give rows of at least one partition.")
    mean = float(x.mean())
    if len(x) == 1:
        return Interval(mean, -math.inf, math.inf, 1)
    half = float(scipy.stats.t.ppf((1 + level) / 2, len(x) - 1)) * float(x.std(ddof=1)) / math.sqrt(len(x))
    return Interval(mean, mean - half, mean + half, len(x))


def t_test(differences: Sequence[float]) -> float:
    """The two-sided p-value of a mean difference of 0; 1 for a single replicate, which says nothing."""
    x = np.asarray(differences, dtype=np.float64)
    if len(x) < 2 or not x.any():
        return 1.0
    error = float(x.std(ddof=1)) / math.sqrt(len(x))
    return 0.0 if error == 0 else float(2 * scipy.stats.t.sf(abs(float(x.mean())) / error, len(x) - 1))


def holm(ps: Sequence[float]) -> list[float]:
    """p-values of several comparisons made at once, corrected: the chance of even one false claim stays below the level.

    Source: Holm, "A simple sequentially rejective multiple test procedure", Scandinavian Journal of Statistics 6, 1979.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    corrected, worst = [0.0] * len(ps), 0.0
    for rank, i in enumerate(sorted(range(len(ps)), key=lambda i: ps[i])):
        worst = max(worst, min(1.0, (len(ps) - rank) * ps[i]))
        corrected[i] = worst
    return corrected


def signed(value: float) -> str:
    """A difference in points, with its sign.

    >>> signed(0.0123), signed(-0.0001)
    ('+1.2', '0.0')
    """
    text = f"{100 * value:+.1f}"
    return "0.0" if text in ("+0.0", "-0.0") else text.replace("-", "−")


# ---- from rows to values


def scores(
    rows: Iterable[Row], method: str, model: str | None = None, split: str = "test"
) -> dict[str, dict[str, float]]:
    """A method's values, by partition and client; seeds are averaged.

    model: "personal" or "global"; None is the method's headline, which stands first among its rows.
    """
    rows = list(rows)
    mine = [row for row in select(rows, method=method, split=split) if row["metric"] not in NOT_SCORES]
    if not mine:
        known = distinct((row for row in rows if row.get("split") == split), "method")
        raise UnknownName(f"There is no {split} row of a method '{method}'. {nearest(method, known)}")
    wanted = mine[0]["model"] if model is None else model
    chosen = select(mine, model=wanted, slot=next((r["slot"] for r in mine if r["model"] == wanted), ""))
    return _averaged(chosen)


def _averaged(rows: Iterable[Row]) -> dict[str, dict[str, float]]:
    """The mean over seeds, by partition and client."""
    found: dict[str, dict[str, float]] = {}
    for (partition, client), same in group(rows, "partition", "client").items():
        found.setdefault(str(partition), {})[str(client)] = math.fsum(float(r["value"]) for r in same) / len(same)
    return found


def headline(rows: Iterable[Row], method: str, split: str = "test") -> str:
    """Which of a method's models is its headline: "personal" or "global"."""
    return next(
        (str(r["model"]) for r in select(rows, method=method, split=split) if r["metric"] not in NOT_SCORES), ""
    )


# ---- from the clients of a replicate to one number


def client_mean(clients: Clients) -> float:
    """Every client counts once."""
    return math.fsum(clients.values()) / len(clients)


def row_mean(clients: Clients, rows: Clients) -> float:
    """Every row counts once: the mean weighted by the rows that each client was scored on."""
    return math.fsum(rows[name] * value for name, value in clients.items()) / math.fsum(rows[name] for name in clients)


def tenth(clients: Clients) -> float:
    """The 10th percentile over clients."""
    return float(np.quantile(list(clients.values()), 0.1))


def worst(clients: Clients) -> float:
    """The client that is off worst."""
    return min(clients.values())


def over(values: Scores, summary: Callable[[Clients], float]) -> Interval:
    """A summary of each replicate's clients, with its interval over replicates."""
    return t_interval([summary(clients) for clients in values.values()])


# ---- one method against another


@dataclass(frozen=True)
class Comparison:
    """One set of values against another, paired by replicate and client."""

    interval: Interval  # of the mean client's difference
    p: float  # corrected, where several comparisons were made at once
    gains: tuple[float, ...]  # of every client in every replicate

    @property
    def helped(self) -> int:
        return sum(gain > SAME for gain in self.gains)

    @property
    def hurt(self) -> int:
        return sum(gain < -SAME for gain in self.gains)

    @property
    def same(self) -> int:
        return len(self.gains) - self.helped - self.hurt

    @property
    def sign(self) -> int:
        """1 better, -1 worse, 0 not distinguishable."""
        if not self.interval.known or self.p >= 1 - LEVEL or self.interval.mean == 0:
            return 0
        return 1 if self.interval.mean > 0 else -1

    @property
    def amount(self) -> str:
        """The ends of the interval, as a size where there is a direction: "1.2 to 2.0 points"."""
        if not self.interval.known:
            return "one partition has no interval"
        ends = (self.interval.low, self.interval.high)
        if not self.sign:  # the correction for several comparisons may take back what one interval alone would claim
            alone = "" if ends[0] <= 0 <= ends[1] else " uncorrected"
            return f"{signed(ends[0])} to {signed(ends[1])} points{alone}"
        low, high = sorted(map(abs, ends))
        if low < 0.00005:
            return f"up to {100 * high:.1f} points"
        digits = 1 if low >= 0.0005 else 2  # never "better by 0.0 to"
        return f"{100 * low:.{digits}f} to {100 * high:.{digits}f} points"

    @property
    def verdict(self) -> str:
        """In words: better by, worse by, or not distinguishable."""
        word = {1: "better by ", -1: "worse by ", 0: "not distinguishable"}[self.sign]
        return f"{word}{self.amount}" if self.sign else f"{word} ({self.amount})"


def differences(a: Scores, b: Scores) -> dict[str, dict[str, float]]:
    """a - b for every client that both have, in every replicate that both have."""
    pairs = {r: {c: a[r][c] - b[r][c] for c in a[r] if c in b[r]} for r in a if r in b}
    found = {r: clients for r, clients in pairs.items() if clients}
    if not found:
        raise BadData("The two methods have no partition and client in common, so nothing can be paired.")
    return found


def against(a: Scores, b: Scores) -> Comparison:
    """a measured by b."""
    paired = differences(a, b)
    means = [client_mean(clients) for clients in paired.values()]
    gains = tuple(gain for clients in paired.values() for gain in clients.values())
    return Comparison(t_interval(means), t_test(means), gains)


def at_once(comparisons: Mapping[str, Comparison]) -> dict[str, Comparison]:
    """Comparisons that are made together, with Holm's correction."""
    corrected = holm([c.p for c in comparisons.values()])
    return {
        name: Comparison(c.interval, p, c.gains) for (name, c), p in zip(comparisons.items(), corrected, strict=True)
    }


# ---- all methods side by side


@dataclass(frozen=True)
class Standing:
    """What rows say of one method."""

    method: str
    model: str  # which of its models: personal or global
    mean: Interval
    tenth: Interval
    worst: Interval
    by_row: Interval | None  # None: the rows do not say how many rows each client was scored on
    local: Comparison | None  # against training alone; None: this is it
    shared: Comparison | None  # of the personal model against the one for everybody; None: this is it, or there is none
    up: float  # bytes, of the mean client
    down: float


@dataclass(frozen=True)
class Study:
    """Rows of several methods on the same replicates, and who is measured by whom.

    local: the method that trains each client alone. everybody: the one model for all that a method without a shared model of its own is
    measured by.
    """

    rows: Sequence[Row]
    local: str = "local-ridge"
    everybody: str = "afl"
    split: str = "test"

    def __post_init__(self) -> None:
        told: dict[str, str] = {}
        for row in self.rows:
            settings = json.dumps(row["settings"], sort_keys=True, default=str)
            if told.setdefault(row["method"], settings) != settings:
                raise BadData(
                    f"Rows of '{row['method']}' come with two sets of settings, {told[row['method']]} and {settings}: their mean would be "
                    "of neither. Give each a label of its own in the field 'method'."
                )

    @cached_property
    def methods(self) -> list[str]:
        return [str(m) for m in distinct(select(self.rows, split=self.split), "method")]

    @cached_property
    def replicates(self) -> list[str]:
        return [str(p) for p in distinct(select(self.rows, split=self.split), "partition")]

    def scores(self, method: str, model: str | None = None) -> dict[str, dict[str, float]]:
        return scores(self.rows, method, model, self.split)

    def shared(self, method: str) -> dict[str, dict[str, float]] | None:
        """The scores of the model for everybody that a method's personal model is measured by: its own, where it has one."""
        if headline(self.rows, method, self.split) == "global":
            return None
        own = select(self.rows, method=method, split=self.split, model="global")
        name = method if own else self.everybody
        return self.scores(name, "global") if name in self.methods else None

    @cached_property
    def standings(self) -> list[Standing]:
        """Every method, in the order of the rows."""
        found = {m: self.scores(m) for m in self.methods}
        alone = found.get(self.local)
        locals_ = at_once({m: against(s, alone) for m, s in found.items() if alone and m != self.local})
        shared = {m: (s, base) for m, s in found.items() if (base := self.shared(m)) is not None}
        shareds = at_once({m: against(s, base) for m, (s, base) in shared.items()})
        return [self._standing(m, found[m], locals_.get(m), shareds.get(m)) for m in self.methods]

    def _standing(self, method: str, found: Scores, local: Comparison | None, shared: Comparison | None) -> Standing:
        return Standing(
            method,
            headline(self.rows, method, self.split),
            over(found, client_mean),
            over(found, tenth),
            over(found, worst),
            self._by_row(method, found),
            local,
            shared,
            self.bytes_of(method, "up"),
            self.bytes_of(method, "down"),
        )

    def _by_row(self, method: str, found: Scores) -> Interval | None:
        sizes = _averaged(select(self.rows, method=method, split=self.split, metric="rows"))
        if set(sizes) != set(found):
            return None
        return t_interval([row_mean(clients, sizes[r]) for r, clients in found.items()])

    def bytes_of(self, method: str, way: str) -> float:
        """Bytes that the mean client sent ("up") or received ("down")."""
        values = [float(r["value"]) for r in select(self.rows, method=method, metric=f"bytes_{way}")]
        return math.fsum(values) / len(values) if values else 0.0

    def standing(self, method: str) -> Standing:
        for found in self.standings:
            if found.method == method:
                return found
        raise UnknownName(f"There is no method '{method}' in these rows. {nearest(method, self.methods)}")

    def rivals(self, method: str) -> dict[str, Comparison]:
        """A method against every other, with Holm's correction."""
        mine = self.scores(method)
        return at_once({m: against(mine, self.scores(m)) for m in self.methods if m != method})
