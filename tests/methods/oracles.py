"""What the closed forms must give, computed the slow way: every fit a plain solve, every leave-one-out a refit. Nothing of src is used.

A row of weight 0 is left out of `Rows` when it is made, so "never there" needs no rule here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]

RIDGES = [1e-5, 1e-4, 1e-3, 0.01, 0.0316, 0.1, 0.316, 1.0, 3.16, 10.0, 31.6, 100.0]  # times u, in three digits
GAMMAS = [0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0]
MUS = [0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0]
TAUS = [0.0, 0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3]
BALANCES = [0.0, 0.1, 0.2, 0.3, 0.5, 0.7, 0.85, 1.0, 1.2]


@dataclass(frozen=True)
class Rows:
    """Rows of positive weight: what the first and the second ridge see, targets, weights."""

    x: Matrix  # (n, d)
    f: Matrix  # (n, r)
    y: Matrix  # (n, c)
    w: Matrix  # (n,)

    def __len__(self) -> int:
        return len(self.w)

    def only(self, which: object) -> Rows:
        return Rows(self.x[which], self.f[which], self.y[which], self.w[which])

    def each_out(self) -> Iterator[tuple[int, Rows]]:
        """Every row's number, with the rows without it."""
        for i in range(len(self)):
            yield i, self.only(np.arange(len(self)) != i)


def together(parts: Sequence[Rows]) -> Rows:
    return Rows(*(np.concatenate([getattr(p, a) for p in parts]) for a in ("x", "f", "y", "w")))


class Head(NamedTuple):
    """x W + b"""

    weights: Matrix
    intercept: Matrix

    def __call__(self, x: Matrix) -> Matrix:
        return x @ self.weights + self.intercept


def least_squares(wide: Matrix, y: Matrix, w: Matrix, penalty: Matrix) -> Matrix:
    """argmin Σ w |y - wide V|² + |diag(penalty) V|², by QR of the stacked rows: no product of rows is formed."""
    root = np.sqrt(w)[:, None]
    q, r = np.linalg.qr(np.vstack([root * wide, np.diag(penalty)]))
    return np.linalg.solve(r, q[: len(w)].T @ (root * y))


def ridge(x: Matrix, y: Matrix, w: Matrix, strength: float, intercept: bool) -> Head:
    """argmin Σ w |y - xW - b|² + strength |W|², as one system in (W, b): nothing is centred."""
    d, wide = x.shape[1], np.hstack([x, np.ones((len(x), 1))]) if intercept else x
    solved = least_squares(wide, y, w, np.array([strength**0.5] * d + [0.0] * intercept))
    return Head(solved[:d], solved[d] if intercept else np.zeros(y.shape[1]))


def without_each(x: Matrix, y: Matrix, w: Matrix, strength: float, intercept: bool) -> Matrix:
    """The score of every row by a ridge refitted without it."""
    scores = np.empty_like(y)
    for i in range(len(x)):
        rest = np.arange(len(x)) != i
        scores[i] = ridge(x[rest], y[rest], w[rest], strength, intercept)(x[i])
    return scores


def spread(x: Matrix, w: Matrix, intercept: bool) -> Matrix:
    """Eigenvalues of the (centred) sum of rows, by singular values of the rows themselves: no digit lost to squaring."""
    moved = x - np.average(x, axis=0, weights=w) if intercept else x
    values = np.linalg.svd(np.sqrt(w)[:, None] * moved, compute_uv=False) ** 2
    return values[: len(x) - 1] if intercept else values


def unit(x: Matrix, w: Matrix, intercept: bool) -> float:
    """u, the mean squared norm of a row."""
    return float(spread(x, w, intercept).sum()) / len(x)


def honesty(x: Matrix, w: Matrix, strength: float, intercept: bool) -> float:
    """1 - edf/N as a sum of what each direction leaves: N - 1 or N directions, of which the empty ones leave all."""
    values, free = spread(x, w, intercept), len(x) - intercept
    left = strength / (values + strength) if strength else 1.0 * (values <= 1e-13 * values.max())
    return float(left.sum() + (free - len(values))) / len(x)


def gcv(x: Matrix, y: Matrix, w: Matrix, strength: float, intercept: bool) -> float:
    """M RSS / (M - edf)², M the rows less the intercept: from the hat matrix of an explicit fit."""
    residual = np.sqrt(w)[:, None] * (y - ridge(x, y, w, strength, intercept)(x))
    free = len(x) - intercept
    return free * float((residual**2).sum()) / (len(x) * honesty(x, w, strength, intercept)) ** 2


def cost(kind: str, scores: Matrix, y: Matrix, w: Matrix) -> float:
    """Weighted misses, or weighted squared errors."""
    if kind == "classes":
        return float(w @ (scores.argmax(1) != y.argmax(1)))
    return float(w @ ((scores - y) ** 2).sum(1))


def least(values: Sequence[float]) -> int:
    """The first of those within 1e-9 of the least: candidates come from the more global side."""
    best = min(values)
    return next(i for i, v in enumerate(values) if v <= best + 1e-9 * abs(best))


def strength_of(rule: float | str, rows: Rows, intercept: bool, kind: str = "real") -> float:
    """The ridge that a rule picks."""
    if not isinstance(rule, str):
        return rule
    grid = [r * unit(rows.x, rows.w, intercept) for r in reversed(RIDGES)]
    plain = (rows.x, rows.y, rows.w)
    if rule == "gcv":
        return grid[least([gcv(*plain, r, intercept) for r in grid])]
    return grid[least([cost(kind, without_each(*plain, r, intercept), rows.y, rows.w) for r in grid])]


class Personal(NamedTuple):
    """x W + b + a (f R + r)"""

    head: Head
    own: Head
    balance: float

    def __call__(self, x: Matrix, f: Matrix) -> Matrix:
        return self.head(x) + self.balance * self.own(f)


def constant(rows: Rows, intercept: bool) -> float:
    """The size of the personal ridge's constant column: that of a row."""
    return float(np.sqrt(rows.w @ (rows.f**2).sum(1) / rows.w.sum())) if intercept else 0.0


def second(f: Matrix, left: Matrix, w: Matrix, gamma: float, size: float) -> Head:
    """(F'F + γI)⁻¹ F'E with a constant column of this size."""
    wide = np.hstack([f, np.full((len(f), 1), size)])
    solved = least_squares(wide, left, w, np.full(wide.shape[1], gamma**0.5))
    return Head(solved[:-1], size * solved[-1])


def both_without_each(
    own: Rows, others: Sequence[Rows], strength: float, gamma: float, intercept: bool, joint: bool
) -> tuple[Matrix, Matrix]:
    """For every row of a client, what the global head says and what the personal ridge adds, refitted without that row.

    The global head is refitted too where `joint`; the size of the constant column stays.
    """
    size, first, added = constant(own, intercept), np.empty_like(own.y), np.empty_like(own.y)
    everyone = together([own, *others])
    head = ridge(everyone.x, everyone.y, everyone.w, strength, intercept)
    for i, rest in own.each_out():
        if joint:
            left = together([rest, *others])
            head = ridge(left.x, left.y, left.w, strength, intercept)
        first[i] = head(own.x[i])
        added[i] = second(rest.f, rest.y - head(rest.x), rest.w, gamma, size)(own.f[i])
    return first, added


def grid_of(own: Rows, intercept: bool) -> list[float]:
    """The grid of gamma in units of the client's own rows, larger first."""
    trace = own.w @ (own.f**2).sum(1) + own.w.sum() * constant(own, intercept) ** 2
    return [g * float(trace) / len(own) for g in reversed(GAMMAS)]


def two_stream(
    own: Rows,
    others: Sequence[Rows],
    strength: float,
    gamma: float | str = "loo",
    balance: float | str = "loo",
    intercept: bool = True,
    joint: bool = False,
) -> Personal:
    """APFL's model of a client by refits (FedHiP's proximal one where F = X and the balance is 1)."""
    everyone = together([own, *others])
    honest = honesty(everyone.x, everyone.w, strength, intercept)
    tried = []
    for g in grid_of(own, intercept) if isinstance(gamma, str) else [gamma]:
        first, added = both_without_each(own, others, strength, g, intercept, joint)
        left = own.y - first
        along, power = own.w @ (added * left).sum(1), own.w @ (added**2).sum(1)
        best = float(np.clip(along / power, 0, 1.5 / honest if joint else 1.5)) if isinstance(balance, str) else balance
        tried.append((float(own.w @ ((left - best * added) ** 2).sum(1)), g, best))
    _, g, best = tried[least([error for error, _, _ in tried])]
    head = ridge(everyone.x, everyone.y, everyone.w, strength, intercept)
    own_head = second(own.f, own.y - head(own.x), own.w, g, constant(own, intercept))
    return Personal(head, own_head, best / honest if isinstance(balance, str) and not joint else best)


def repeated(own: Rows, others: Sequence[Rows], mu: float, strength: float, intercept: bool) -> Head:
    """The ridge in which a client's rows count 1 + mu times."""
    heavy = Rows(own.x, own.f, own.y, (1 + mu) * own.w)
    rows = together([heavy, *others])
    return ridge(rows.x, rows.y, rows.w, strength, intercept)


def repeated_error(own: Rows, others: Sequence[Rows], mu: float, strength: float, intercept: bool) -> float:
    """Its leave-one-out squared error: a row leaves with all of its weight."""
    errors = [(repeated(rest, others, mu, strength, intercept)(own.x[i]) - own.y[i]) ** 2 for i, rest in own.each_out()]
    return float(own.w @ np.sum(errors, axis=1))


def blend(
    own: Rows,
    others: Sequence[Rows],
    strength: float,
    gamma: float | str = "loo",
    t: float | str = "loo",
    intercept: bool = True,
    joint: bool = False,
) -> tuple[Head, float]:
    """FedHiP's third form, (1 - t) W + t V: V the client's own ridge, t in closed form. With t."""
    everyone = together([own, *others])
    head = ridge(everyone.x, everyone.y, everyone.w, strength, intercept)
    said = both_without_each(own, others, strength, 1.0, intercept, joint)[0]
    grid = [g * unit(own.x, own.w, intercept) for g in reversed(GAMMAS)] if isinstance(gamma, str) else [gamma]
    tried = []
    for g in grid:
        left, alone = own.y - said, own.y - without_each(own.x, own.y, own.w, g, intercept)
        gap = left - alone
        best = float(np.clip(own.w @ (gap * left).sum(1) / (own.w @ (gap**2).sum(1)), 0, 1)) if t == "loo" else t
        tried.append((float(own.w @ ((left - best * gap) ** 2).sum(1)), g, best))
    _, g, best = tried[least([error for error, _, _ in tried])]
    alone = ridge(own.x, own.y, own.w, g, intercept)
    return Head(*((1 - best) * a + best * b for a, b in zip(head, alone, strict=True))), best


def log_prior(counts: Matrix) -> Matrix:
    """log((n_c + e) / (n + C e)), e = 0.01"""
    return np.log((counts + 0.01) / (counts.sum(-1, keepdims=True) + 0.01 * counts.shape[-1]))


def tau_costs(clients: Sequence[Rows], strength: float, intercept: bool) -> list[float]:
    """Misses of the federation for every tau, each row out of the global fit and of its class count."""
    total = np.zeros(len(TAUS))
    for k, own in enumerate(clients):
        others = [rows for j, rows in enumerate(clients) if j != k]
        said = both_without_each(own, others, strength, 1.0, intercept, True)[0]
        prior = log_prior(own.y.sum(0) - own.y)
        total += [cost("classes", said + tau * prior, own.y, own.w) for tau in TAUS]
    return list(total)
