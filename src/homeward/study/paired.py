"""Two models on the same rows of one client: does one answer more of them right? One split, one client at a time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.stats
from numpy.typing import ArrayLike, NDArray

from ..core.errors import BadData
from .stats import LEVEL

WORDS = {1: "helped", -1: "hurt", 0: "cannot tell"}


@dataclass(frozen=True)
class Paired:
    """The difference of two shares of rows answered right, and where it may truly lie."""

    rows: int
    gained: int  # rows that the first answers right and the second wrong
    lost: int  # the other way round
    low: float
    high: float
    p: float  # of the exact two-sided sign test: chance that a fair coin splits the rows that differ as unevenly

    @property
    def difference(self) -> float:
        return (self.gained - self.lost) / self.rows

    @property
    def sign(self) -> int:
        """1 better, -1 worse, 0 not distinguishable."""
        return 0 if self.p > 1 - LEVEL else (1 if self.gained > self.lost else -1)

    @property
    def verdict(self) -> str:
        return WORDS[self.sign]


def paired(first: ArrayLike, second: ArrayLike) -> Paired:
    """What hits and misses on the same rows allow to be believed; 1 or True is a hit. (n,) each

    b rows are gained and c lost, of n. The interval is the wider of two, end by end: exact given that b + c rows differ,
    (2π − 1)(b + c)/n with π in Clopper and Pearson's interval of b of b + c; and d ± z √((b + c + 2 − (b − c)²/(n + 2)))/(n + 2) with
    d = (b − c)/(n + 2), which allows for the chance in b + c. So it holds 0 exactly where the sign test cannot tell.

    Source: Clopper and Pearson, Biometrika 26, 1934; Bonett and Price, "Adjusted Wald confidence interval for a difference of binomial
    proportions based on paired data", Journal of Educational and Behavioral Statistics 37, 2012.

    >>> found = paired([1, 1, 1, 1, 1, 1, 1, 0], [0, 0, 0, 0, 0, 0, 1, 0])
    >>> found.difference, found.verdict, round(found.p, 3)
    (0.75, 'helped', 0.031)
    """
    a, b = _hits(first), _hits(second)
    if a.shape != b.shape or not len(a):
        raise BadData(
            f"Hits of {len(a)} and of {len(b)} rows cannot be paired. Give both models the same rows, one at least."
        )
    return from_counts(len(a), int((a & ~b).sum()), int((b & ~a).sum()))


def from_counts(n: int, gained: int, lost: int) -> Paired:
    """The same from counts: of n rows, so many that only the first answers right, and so many that only the second does."""
    differ = gained + lost
    p = float(scipy.stats.binomtest(gained, differ).pvalue) if differ else 1.0
    ends = zip(_exact(n, gained, differ), _adjusted(n, gained, lost), strict=True)
    (exact_low, low), (exact_high, high) = ends
    return Paired(n, gained, lost, max(-1.0, min(exact_low, low)), min(1.0, max(exact_high, high)), p)


def _hits(values: ArrayLike) -> NDArray[np.bool_]:
    return np.asarray(values, dtype=np.float64).ravel() > 0.5


def _exact(n: int, gained: int, differ: int) -> tuple[float, float]:
    """Given how many rows differ."""
    if not differ:
        return 0.0, 0.0
    share: Any = scipy.stats.binomtest(gained, differ).proportion_ci(LEVEL, method="exact")
    return (2 * float(share.low) - 1) * differ / n, (2 * float(share.high) - 1) * differ / n


def _adjusted(n: int, gained: int, lost: int) -> tuple[float, float]:
    """With one row more on either side, for the chance in how many differ."""
    z = float(scipy.stats.norm.ppf((1 + LEVEL) / 2))
    middle = (gained - lost) / (n + 2)
    half = z * math.sqrt(gained + lost + 2 - (gained - lost) ** 2 / (n + 2)) / (n + 2)
    return middle - half, middle + half
