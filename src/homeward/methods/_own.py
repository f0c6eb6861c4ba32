"""The client's half of the closed forms: ridges on its own rows, along a whole grid, each judged by exact leave-one-out.

With rows F (times the root of their weight) and targets E, one eigendecomposition F F' = U diag(s) U' (or of F'F, where rows outnumber
columns) gives for every ridge γ:

    R = F' U diag(1/(s+γ)) U'E,  fit = H E,  H = U diag(s/(s+γ)) U',  1 - h_i = 1 - Σⱼ U_ij² + Σⱼ U_ij² γ/(s_j+γ)

the last without cancellation. Rows may come in blocks: only where there are fewer rows than columns are they held together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeAlias

import numpy as np

from ..core import linalg
from ..core.algebra import Array, namespace
from ..core.linalg import EPS, Spectrum, any_array
from ..core.method import Slot
from ..core.task import ClientData, Task
from ._closed import BLOCK, first_best, losses, present, weighted

GAMMAS = (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
"""The grid of gamma / u, u being the mean squared norm of the client's own rows."""
BALANCES = (0.0, 0.1, 0.2, 0.3, 0.5, 0.7, 0.85, 1.0, 1.2)
MOST_BALANCE = 1.5
NO_LEVERAGE = 1e-10  # 1 - h_i below this: the row alone decides its own fit, so leaving it out says nothing


@dataclass(frozen=True, eq=False)
class OwnRows:
    """A block of one client's rows as the second ridge sees them. Features, targets and halves are times the root of the weight."""

    features: Array  # (n, r)  F
    targets: Array  # (n, c)  E, what is left to explain
    scores: Array  # (n, c)  what the global head says
    y: Array  # (n,) or (n, c)
    weight: Array  # (n,)
    half: Array  # (n, f)  L⁻¹z, or no columns where the global fit is left as it is


@dataclass(frozen=True, eq=False)
class Reader:
    """A client's rows, block by block, again and again; `kept` in memory where one block holds them all."""

    make: Callable[[], Iterator[OwnRows]]
    kept: tuple[OwnRows, ...] | None = None

    @classmethod
    def of(cls, make: Callable[[], Iterator[OwnRows]], numbers: int) -> Reader:
        return cls(make, tuple(make()) if numbers <= BLOCK else None)

    def __call__(self) -> Iterator[OwnRows]:
        return self.make() if self.kept is None else iter(self.kept)

    def map(self, change: Callable[[OwnRows], OwnRows]) -> Reader:
        return Reader(lambda: map(change, self()), None if self.kept is None else tuple(map(change, self.kept)))


Rowwise: TypeAlias = Callable[[Array], Array]


def own_rows(
    data: ClientData, features: Rowwise, columns: int, scores: Rowwise, halves: Callable[[Array, Array], Array]
) -> Reader:
    """A reader of a client's rows as a second ridge on these features sees them, after these scores."""

    def read() -> Iterator[OwnRows]:
        for block in present(data, columns):
            said = scores(block.x)
            left = weighted(block.weight, block.target - said)
            half = halves(block.x, block.weight)
            yield OwnRows(weighted(block.weight, features(block.x)), left, said, block.y, block.weight, half)

    return Reader.of(read, data.n * columns)


def centred_rows(
    data: ClientData, features: Rowwise, columns: int, intercept: bool
) -> tuple[Reader, Array, Array, float]:
    """The rows about their own mean, as a ridge with an intercept sees them; with that mean, the level of the targets, and 1/Ω.

    Rows that do not vary, to rounding, are about their mean exactly zero: there is nothing to learn from what the subtraction leaves.
    """
    total: Any = 0.0
    power: Any = 0.0
    sums: Any = 0.0
    levels: Any = 0.0
    for block in present(data, columns) if intercept else ():
        rows = features(block.x)
        total = total + block.weight.sum()
        power = power + (block.weight @ rows**2).sum()
        sums = sums + block.weight @ rows
        levels = levels + block.weight @ block.target
    if not intercept or float(total) == 0:
        mean, level, share, flat = np.zeros(columns), np.zeros(data.task.classes), 0.0, False
    else:
        mean, level, share = sums / total, levels / total, 1.0 / float(total)
        flat = float(power - (sums * mean).sum()) <= (columns + data.n) * EPS * float(power)
    mean, level = any_array(mean, like=data.weight), any_array(level, like=data.weight)

    def said(x: Array) -> Array:
        return namespace(level).broadcast_to(level, (x.shape[0], level.shape[0]))

    def centred(x: Array) -> Array:
        return (0.0 if flat else 1.0) * (features(x) - mean)

    return own_rows(data, centred, columns, said, no_halves), mean, level, share


def with_constant(read: Reader) -> tuple[Reader, float]:
    """One more feature, a constant as large as a row (the root of Σ w |f|² / Σ w), and that constant: the second ridge's intercept."""
    power = total = 0.0
    for block in read():
        xp = namespace(block.features)
        power, total = power + float(xp.sum(block.features**2)), total + float(xp.sum(block.weight))
    size = (power / total) ** 0.5 if total else 0.0

    def widened(block: OwnRows) -> OwnRows:
        xp = namespace(block.features)
        return replace(block, features=xp.concat([block.features, size * xp.sqrt(block.weight)[:, None]], axis=1))

    return read.map(widened), size


def no_halves(x: Array, weight: Array) -> Array:
    """The global fit is left as it is."""
    return namespace(weight).zeros((weight.shape[0], 0), dtype=weight.dtype, device=weight.device)


def _together(blocks: list[OwnRows]) -> OwnRows:
    first = blocks[0]
    if len(blocks) == 1:
        return first
    xp = namespace(first.features)
    return OwnRows(*(xp.concat([getattr(b, f.name) for b in blocks], axis=0) for f in fields(OwnRows)))


@dataclass(frozen=True, eq=False)
class Path:
    """A client's second ridge along the grid."""

    spectrum: Spectrum
    turned: Array  # (m, c)  U'E
    lifted: Array  # (f, m)  half' U where half is there: S U = half (half' U)
    rows: float
    unit: float  # trace(F F') / n
    energy: float  # Σ w |y|²
    level: float  # 1/Ω where the rows are centred on their own mean, which leaves with the row; else 0
    read: Reader
    turns: tuple[Array, ...] | None = None  # U, where the rows are kept in memory
    constant: float = 0.0  # the value of the last feature, where that is the constant column

    @classmethod
    def of(cls, read: Reader, n: int, columns: int, level: float = 0.0) -> Path | None:
        """None where there is nothing to learn from: no row, or features of size zero."""
        return _few(read, level) if n <= columns else _many(read, level)

    def blocks(self) -> Iterator[tuple[OwnRows, Array]]:
        """The rows, block by block, each with its rows of U."""
        if self.turns is not None:
            yield from zip(self.read(), self.turns, strict=True)
            return
        for block in self.read():
            yield block, self.spectrum.left(block.features)

    def coefficients(self, gamma: float) -> Array:
        """R. (r, c)"""
        s = self.spectrum.s
        if self.spectrum.right:
            return self.spectrum.vectors @ (self.turned * (namespace(s).sqrt(s) / (s + gamma))[:, None])
        (rows,) = self.read()
        return rows.features.T @ (self.spectrum.vectors @ (self.turned / (s + gamma)[:, None]))

    def line(self, gamma: float) -> tuple[Array, Array]:
        """R without its constant column, and the intercept that the column stands for. (r, c), (c,)"""
        own = self.coefficients(gamma)
        return (own[:-1], self.constant * own[-1]) if self.constant else (own, namespace(own).zeros_like(own[0]))

    def gammas(self, setting: float | str) -> list[float]:
        """What a setting stands for: itself, or the candidates of a rule, the more global ones first."""
        return [g * self.unit for g in reversed(GAMMAS)] if isinstance(setting, str) else [float(setting)]

    def left_out(self, gamma: float) -> Iterator[tuple[OwnRows, Array, Array | None]]:
        """For each block: its rows, what is left when each is out of the global fit, and the second fit without it.

        The own fit without row i is E_i - ((I - H)E)_i / (1 - h_i), both in terms that do not cancel where U spans all that rows can.
        Where the blocks carry halves, row i leaves the global fit too: with S = Z A⁻¹ Z' and g = diag S what is left is
        E_i / (1 - g_i), and the second fit changes by ((HS)_ii - h_i g_i) / (1 - g_i) E_i. No fit (None) where a row has leverage 1.
        """
        s = self.spectrum.s
        kept, lost = s / (s + gamma), gamma / (s + gamma)
        spanned = s.shape[0] >= self.rows - (self.level > 0)
        for block, u in self.blocks():
            xp = namespace(u)
            squared = u * u
            free, gone = squared @ lost, u @ (lost[:, None] * self.turned)
            if not spanned:
                free = free + xp.clip(1.0 - xp.sum(squared, axis=1) - self.level * block.weight, min=0.0)
                gone = gone + (block.targets - u @ self.turned)
            left, g = without_row(block)
            if bool(xp.any(free < NO_LEVERAGE)):
                yield block, left, None
                continue
            fit = block.targets - gone / free[:, None]
            if g is not None:
                hs = xp.sum((u * kept) * self._su(block, u), axis=1)
                fit = fit + ((hs - (1.0 - free) * g) / free)[:, None] * left
            yield block, left, fit

    def _su(self, block: OwnRows, u: Array) -> Array:
        return block.half @ self.lifted if self.spectrum.right else self.lifted


def without_row(block: OwnRows) -> tuple[Array, Array | None]:
    """What the global head leaves of each row when it is fitted without that row, and the row's leverage g in it."""
    if not block.half.shape[1]:
        return block.targets, None
    xp = namespace(block.half)
    g = xp.sum(block.half**2, axis=1)
    return block.targets / xp.clip(1.0 - g, min=1e-12)[:, None], g


def _few(read: Reader, level: float) -> Path | None:
    blocks = list(read())
    if not blocks:
        return None
    rows = _together(blocks)
    spectrum = linalg.spectrum_of_rows(rows.features)
    u = spectrum.vectors
    xp = namespace(u)
    trace = float(xp.sum(rows.features**2))
    if trace <= 0:
        return None
    held = Reader(lambda: iter((rows,)), (rows,))
    s_matrix = linalg.symmetric(rows.half.T) if rows.half.shape[1] else None
    lifted = rows.half[:0] if s_matrix is None else s_matrix @ u
    return Path(spectrum, u.T @ rows.targets, lifted, u.shape[0], trace / u.shape[0], _energy(rows), level, held, (u,))


def _many(read: Reader, level: float) -> Path | None:
    gram, cross, lifted, rows, energy = None, None, None, 0, 0.0
    for block in read():
        part, towards, up = linalg.gram(block.features), block.features.T @ block.targets, block.half.T @ block.features
        gram = part if gram is None else gram + part
        cross = towards if cross is None else cross + towards
        lifted = up if lifted is None else lifted + up
        rows, energy = rows + block.features.shape[0], energy + _energy(block)
    if gram is None:
        return None
    full = linalg.unpack(gram)
    xp = namespace(full)
    trace = float(xp.sum(xp.linalg.diagonal(full)))
    if trace <= 0:
        return None
    spectrum = linalg.spectrum_of_gram(full)
    scaled = spectrum.vectors / xp.sqrt(spectrum.s)
    turns = None if read.kept is None else tuple(spectrum.left(block.features) for block in read.kept)
    return Path(spectrum, scaled.T @ cross, lifted @ scaled, rows, trace / rows, energy, level, read, turns)


def _energy(rows: OwnRows) -> float:
    """Σ w |y|², from what the head says and what it leaves."""
    xp = namespace(rows.targets)
    return float(xp.sum((rows.targets + xp.sqrt(rows.weight)[:, None] * rows.scores) ** 2))


@dataclass(frozen=True)
class Second:
    """A choice for the second ridge: how strong it is, and how much of it counts."""

    gamma: float
    balance: float


def choose(path: Path, gammas: Sequence[float], balance: float | None, most: float = MOST_BALANCE) -> Second:
    """The ridge and the balance of least leave-one-out squared error: Σ |left - a fit|², which is quadratic in a.

    balance None: a* = Σ <fit, left> / Σ |fit|², cut to [0, most]. Where no fit moves anything, or every row has leverage 1, a = 0.
    Gammas in descending order: ties go to the larger.
    """
    errors, chosen = [], []
    for gamma in gammas:
        sums = _squares(path, gamma)
        if sums is None:
            continue
        total, along, power = sums
        best = min(max(along / power, 0.0), most) if power > 1e-20 * (path.energy + total) else 0.0
        a = best if balance is None else balance
        errors.append(max(total - 2 * a * along + a * a * power, 0.0))
        chosen.append(Second(gamma, a))
    return chosen[first_best(errors)] if chosen else Second(gammas[0], 0.0)


def _squares(path: Path, gamma: float) -> tuple[float, float, float] | None:
    """Σ |left|², Σ <fit, left>, Σ |fit|² over all rows; None where one of them has leverage 1."""
    total = along = power = 0.0
    for _, left, fit in path.left_out(gamma):
        if fit is None:
            return None
        xp = namespace(fit)
        total += float(xp.sum(left * left))
        along += float(xp.sum(fit * left))
        power += float(xp.sum(fit * fit))
    return total, along, power


def residual_path(
    data: ClientData,
    features: Rowwise,
    columns: int,
    scores: Rowwise,
    halves: Callable[[Array, Array], Array],
    intercept: bool,
) -> Path | None:
    """The second ridge of what these scores leave, with a constant column where there is an intercept."""
    read = own_rows(data, features, columns, scores, halves)
    if not intercept:
        return Path.of(read, data.n, columns)
    widened, size = with_constant(read)
    path = Path.of(widened, data.n, columns + 1)
    return None if path is None else replace(path, constant=size)


def estimates(path: Path | None, choice: Callable[[Path], Second]) -> dict[Slot, Array]:
    """Scores of all rows, each by models without it, under a choice of the second ridge. Without halves the global fit saw the row."""
    if path is None:
        return {}
    second = choice(path)
    both = [(first, first + second.balance * own) for _, first, own in left_out_scores(path, second.gamma)]
    alone, personal = (namespace(scores[0]).concat(list(scores), axis=0) for scores in zip(*both, strict=True))
    return {Slot("personal"): personal, Slot("global"): alone}


def left_out_scores(path: Path, gamma: float) -> Iterator[tuple[OwnRows, Array, Array]]:
    """For each block: its rows, the global scores and the second fit, of each row by models without it. (n, c) twice

    A row of leverage 1 has no second fit to be judged by: 0.
    """
    for block, left, fit in path.left_out(gamma):
        xp = namespace(left)
        root = xp.sqrt(block.weight)[:, None]
        yield block, block.scores + (block.targets - left) / root, xp.zeros_like(left) if fit is None else fit / root


def loss_table(path: Path | None, gammas: Sequence[float], balances: Sequence[float], task: Task, like: Any) -> Array:
    """What every (gamma, balance) loses on this client's rows, each left out in turn. (gammas, balances)"""
    table = np.zeros((len(gammas), len(balances)))
    for i, gamma in enumerate(gammas):
        for block, first, second in left_out_scores(path, gamma) if path is not None else ():
            for j, a in enumerate(balances):
                table[i, j] += float(losses(task, first + a * second, block.y, block.weight).sum())
    return any_array(table, like=like)
