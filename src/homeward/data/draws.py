"""How Dirichlet laws draw: shares, rows cut in proportion to them, and attempts until each client has enough."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..core.errors import BadSetting
from ..core.rng import Rng
from .partition import Ints

Floats = NDArray[np.float64]


def shares_of(draw: np.random.Generator, alpha: Floats, n: int) -> Floats:
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


@dataclass(frozen=True, eq=False)
class ClassWise:
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
        shares = np.stack([shares_of(draw, alpha, len(self.totals)) for draw in draws])
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


def settled(law: str, parts: Sequence[ClassWise], tries: int, setting: str = "") -> list[Ints]:
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


def _larger_alpha(parts: Sequence[ClassWise], tries: int) -> list[str]:
    """The next round alpha that is accepted with the same seed, as a remedy; none where none is."""
    for alpha in (float(f"{digit}e{power}") for power in range(-3, 6) for digit in (1, 2, 5)):
        if alpha > parts[0].alpha and all(replace(part, alpha=alpha).first(tries)[0] is not None for part in parts):
            return [f"alpha = {alpha:g}"]
    return []
