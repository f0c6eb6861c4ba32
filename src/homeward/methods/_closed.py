"""What the closed-form family shares: the sums that clients send, the global head that they give, and the rules that choose its ridge.

Everything is a sum over rows, so no head here knows how the rows were dealt to clients.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Annotated, Any

import numpy as np

from ..core import linalg
from ..core.algebra import Array, Sum, Tree, namespace
from ..core.check import as_numpy
from ..core.errors import FlatFeatures
from ..core.linalg import EPS, Factor, any_array, double
from ..core.maps import ACTIVATIONS, RandomMap
from ..core.method import Method, Round
from ..core.model import Linear, Model
from ..core.rng import Rng
from ..core.settings import Choice, Count, Rule
from ..core.task import ClientData, Task

RIDGES = tuple(float(f"{r:.3g}") for r in (1e-5, 1e-4, 1e-3, *(10.0 ** np.arange(-2.0, 2.25, 0.5))))
"""The grid of ridge / u: decades, and half-decades from 0.01 on. u is the mean squared norm of a row."""
TIE = 1e-9
BLOCK = 1 << 23  # numbers in a block of features


def present(data: ClientData, width: int) -> Iterator[ClientData]:
    """The rows of positive weight, in blocks that fit in memory at this many features a row. A row of weight 0 is never there."""
    for block in data.blocks(max(256, BLOCK // max(width, data.task.dimension, 1))):
        here = block.weight > 0
        if bool(namespace(here).all(here)):
            yield block
        elif bool(namespace(here).any(here)):
            yield replace(block, x=block.x[here], y=block.y[here], weight=block.weight[here])


def weighted(weight: Array, rows: Array) -> Array:
    """Rows times the root of their weight, so that products of rows count each with its weight."""
    return namespace(rows).sqrt(weight)[:, None] * rows


@dataclass(frozen=True, eq=False)
class Moments(Sum):
    """All that the server needs of the rows: counts, first and second moments, of features x and targets y with weights w."""

    rows: Array  # ()   N, rows of positive weight
    weight: Array  # ()   Ω = Σ w
    sums: Array  # (f,)  s = Σ w x
    targets: Array  # (c,)  t = Σ w y
    gram: Array  # (f(f+1)/2,)  G = Σ w x x', packed
    cross: Array  # (f, c)  Q = Σ w x y'
    squares: Array  # ()   Σ w |y|²

    @classmethod
    def of(cls, data: ClientData, features: RandomMap | None, width: int) -> Moments:
        """Of a client's rows through a random map, or as they are; added block by block."""
        total: Moments | None = None
        for block in present(data, width):
            part = cls._of_block(double(block.x if features is None else features(block.x)), block.target, block.weight)
            total = part if total is None else total + part
        return total or cls._nothing(data, width)

    def scale(self) -> float:
        f = self.sums.shape[0]
        ends = np.cumsum(np.arange(f, 0, -1)) - np.arange(f, 0, -1)  # where the diagonal stands in the packed rows
        return float(as_numpy(self.gram)[ends].sum())

    @classmethod
    def _of_block(cls, x: Array, y: Array, w: Array) -> Moments:
        xp = namespace(x)
        plain = bool(xp.all(w == 1))
        z = x if plain else weighted(w, x)
        wy = y if plain else w[:, None] * y
        rows = any_array(np.float64(x.shape[0]), like=x)
        return cls(rows, xp.sum(w), w @ x, xp.sum(wy, axis=0), linalg.gram(z), x.T @ wy, xp.sum(wy * y))

    @classmethod
    def _nothing(cls, data: ClientData, f: int) -> Moments:
        shapes: Sequence[tuple[int, ...]] = (
            (),
            (),
            (f,),
            (data.task.classes,),
            (f * (f + 1) // 2,),
            (f, data.task.classes),
            (),
        )
        like = data.y
        return cls(*(any_array(np.zeros(shape), like=like) for shape in shapes))


@dataclass(frozen=True, eq=False)
class Normal:
    """The normal equations of the global head: centred where there is an intercept, which is not penalised and counts one in edf."""

    gram: Array  # (f, f)  G - ss'/Ω
    cross: Array  # (f, c)  Q - st'/Ω
    squares: float  # Σ w |y|² - |t|²/Ω
    mean: Array  # (f,)  s/Ω, or 0
    level: Array  # (c,)  t/Ω, or 0
    rows: float  # N
    freedom: float  # M = N - 1, or N
    weight: float  # Ω
    flat: bool  # the features do not vary (or there is no row): nothing is solved

    @classmethod
    def of(cls, total: Moments, intercept: bool) -> Normal:
        """From everybody's sums."""
        xp = namespace(total.cross)
        gram = linalg.unpack(total.gram)
        rows, weight = float(total.rows), float(total.weight)
        raw = float(xp.sum(xp.linalg.diagonal(gram)))
        if not intercept or weight == 0:
            mean, level = xp.zeros_like(total.sums), xp.zeros_like(total.targets)
            return cls(gram, total.cross, float(total.squares), mean, level, rows, rows, weight, raw <= 0)
        mean, level = total.sums / weight, total.targets / weight
        gram -= total.sums[:, None] * mean[None, :]
        cross = total.cross - total.sums[:, None] * level[None, :]
        squares = float(total.squares) - weight * float(xp.sum(level * level))
        flat = float(xp.sum(xp.linalg.diagonal(gram))) <= (gram.shape[0] + rows) * EPS * raw
        return cls(gram, cross, max(squares, 0.0), mean, level, rows, rows - 1, weight, flat)

    @property
    def unit(self) -> float:
        """u, the mean squared norm of a row: what a ridge is measured in, so that a common factor of all features changes nothing."""
        xp = namespace(self.gram)
        return float(xp.sum(xp.linalg.diagonal(self.gram))) / max(self.rows, 1.0)

    @property
    def noise(self) -> float:
        """What rounding may leave of an eigenvalue: N eps times what centring subtracted, Ω |mean|²."""
        return self.rows * EPS * self.weight * float(namespace(self.mean).sum(self.mean**2))

    @property
    def centre(self) -> Tree:
        """Where the rows lie: mean, level and total weight."""
        return Tree(mean=self.mean, level=self.level, weight=np.float64(self.weight))


def slack(values: Array, ridge: float, freedom: float) -> float:
    """M - edf, never by subtraction: max(M - d, 0) + Σ ridge / (l + ridge) over the min(M, d) largest eigenvalues (ascending here)."""
    d = values.shape[0]
    k = int(min(max(freedom, 0.0), d))
    top = values[d - k :]
    top = top[top + ridge > 0]
    return float(max(freedom - d, 0.0) + (ridge / (top + ridge)).sum() + (k - top.shape[0]))


def gcv(
    values: Array, rotated: Array, squares: float, freedom: float, ridges: Sequence[float], noise: float = 0.0
) -> list[float]:
    """Generalised cross-validation M RSS / (M - edf)² for every ridge, from eigenvalues l and T = V'Q alone (afl.md 6).

    RSS = Σ |T_j|²/l_j (ridge / (l_j + ridge))² + what no direction explains: each term is a square, nothing cancels.
    """
    xp = namespace(values)
    live = linalg.live(values, noise)
    l, energy = values[live], xp.sum(rotated[live] ** 2, axis=1) / values[live]
    rest = 0.0 if l.shape[0] >= freedom else max(squares - float(xp.sum(energy)), 0.0)
    scores = []
    for ridge in ridges:
        rss = float(xp.sum(energy * (ridge / (l + ridge)) ** 2)) + rest
        left = slack(values, ridge, freedom)
        scores.append(freedom * rss / left**2 if left > 0 else float("inf"))
    return scores


def first_best(scores: Any) -> int:
    """The first of the least, where scores within 1e-9 relative are equal. Order candidates from the more global side."""
    values = np.asarray(scores, dtype=np.float64)
    least = values.min()
    return int(np.flatnonzero(values <= least + TIE * abs(least))[0])


@dataclass(frozen=True, eq=False)
class Tally(Sum):
    """For each candidate, what a federation lost on rows that it had not seen: misses or squared errors, each with its row's weight."""

    losses: Array


def losses(task: Task, scores: Array, y: Array, weight: Array) -> Array:
    """What each row costs, times its weight: a miss for classes, otherwise the squared error. (n,)"""
    xp = namespace(scores)
    if task.kind == "classes":
        return weight * xp.astype(xp.argmax(scores, axis=1) != y, xp.float64)
    return weight * xp.sum((scores - y) ** 2, axis=1)


@dataclass(frozen=True)
class Closed(Method):
    """The global half of every closed form.

    W = (G + ρI)⁻¹ Q with G = Σ XₖᵀXₖ, Q = Σ XₖᵀYₖ (centred where there is an intercept), X = act(B P) or the rows themselves.
    """

    ridge: Annotated[float | str, Rule("gcv", "loo", "pinv")] = "gcv"  # ρ
    _: KW_ONLY
    intercept: bool = True
    maps: Annotated[int | None, Count(1, optional=True)] = (
        None  # width of the random map; None: the features as they are
    )
    activation: Annotated[str, Choice(*ACTIVATIONS)] = "relu"
    map_seed: Annotated[int, Count()] = 0

    stackable = False

    # what a method of the family says of itself
    @property
    def wants_factor(self) -> bool:
        """The clients need the factor of G + ρI."""
        return False

    @property
    def wants_honesty(self) -> bool:
        """The clients need 1 - edf/N."""
        return False

    def init(self, task: Task, rng: Rng) -> Tree:
        return Tree(map_seed=np.int64(self.map_seed), inputs=np.int64(task.dimension))

    def plan(self) -> Sequence[Round]:
        rounds = [Round("summarise", self.summarise, self.solve, everyone=True)]
        if self.ridge == "loo":
            rounds.append(Round("tally-ridge", self.tally_ridge, self.choose_ridge, everyone=True))
        return rounds

    # features
    def map_of(self, shared: Tree) -> RandomMap | None:
        """The map that every client draws alike."""
        if self.maps is None:
            return None
        return RandomMap(int(shared["map_seed"]), "primary", int(shared["inputs"]), self.maps, self.activation)

    def width(self, shared: Tree) -> int:
        """f, the number of features of the global head."""
        return int(shared["inputs"]) if self.maps is None else self.maps

    def features(self, shared: Tree, x: Array) -> Array:
        """What the global head sees of these rows. (n, f) float64"""
        drawn = self.map_of(shared)
        return double(x if drawn is None else drawn(x))

    # the rounds
    def summarise(self, shared: Tree, data: ClientData, state: Tree, rng: Rng) -> tuple[Moments, Tree]:
        """Client: the sums over its rows."""
        return Moments.of(data, self.map_of(shared), self.width(shared)), state

    def solve(self, server: Tree, total: Moments, task: Task, rng: Rng) -> Tree:
        """Server: the head from everybody's sums; under `ridge="loo"` the path from which the next round chooses."""
        normal = Normal.of(total, self.intercept)
        if normal.flat:
            return self._unsolved(server, normal)
        if isinstance(self.ridge, str):
            return self._by_rule(server, normal, task)
        factor = linalg.cholesky(normal.gram, self.ridge, normal.noise)
        values = linalg.eigenvalues(normal.gram) if self.wants_honesty else None
        honesty = None if values is None else slack(values, self.ridge, normal.freedom) / normal.rows
        return self._settled(server, normal.centre, factor.solve(normal.cross), float(self.ridge), honesty, factor)

    def _unsolved(self, server: Tree, normal: Normal) -> Tree:
        """The state where features do not vary: the head is the level of the targets."""
        if normal.rows > 1 and bool((normal.mean != 0).any()):
            warnings.warn(
                "The features do not vary beyond rounding about their mean, so the model answers with the level of the targets. If they "
                "lie far from 0, scale them: standardised(method).",
                FlatFeatures,
                stacklevel=2,
            )
        xp = namespace(normal.gram)
        honesty = normal.freedom / normal.rows if normal.rows else 1.0
        factor = Factor(any_array(np.eye(normal.gram.shape[0]), like=normal.gram))
        return self._settled(server, normal.centre, xp.zeros_like(normal.cross), 0.0, honesty, factor)

    def _by_rule(self, server: Tree, normal: Normal, task: Task) -> Tree:
        values, vectors = linalg.eigh(normal.gram)
        rotated = vectors.T @ normal.cross
        ridges = [r * normal.unit for r in reversed(RIDGES)]
        if self.ridge == "loo":
            found = Tree(
                values=values, vectors=vectors, rotated=rotated, ridges=any_array(np.array(ridges), like=values)
            )
            counts = Tree(rows=np.float64(normal.rows), freedom=np.float64(normal.freedom))
            return server | Tree(path=found | normal.centre | counts)
        if self.ridge == "pinv":
            live = linalg.live(values, normal.noise)
            ridge, weights = 0.0, vectors[:, live] @ (rotated[live] / values[live][:, None])
            honesty = (normal.freedom - float(live.sum())) / normal.rows
        else:
            ridge = ridges[first_best(gcv(values, rotated, normal.squares, normal.freedom, ridges, normal.noise))]
            weights = vectors @ (rotated / (values + ridge)[:, None])
            honesty = slack(values, ridge, normal.freedom) / normal.rows
        factor = linalg.cholesky(normal.gram, ridge) if self.wants_factor else None
        return self._settled(server, normal.centre, weights, ridge, honesty, factor)

    def _settled(
        self, server: Tree, centre: Tree, weights: Array, ridge: float, honesty: float | None, factor: Factor | None
    ) -> Tree:
        """The state once W is known: with the intercept b = t/Ω - mean W, and the factor where clients need it."""
        head = Tree(weights=weights, intercept=centre["level"] - centre["mean"] @ weights)
        out = server | head | Tree(ridge=np.float64(ridge))
        out = out if honesty is None else out | Tree(honesty=np.float64(honesty))
        if not self.wants_factor or factor is None:
            return out
        return out | centre.only("mean", "weight") | Tree(factor=linalg.pack(factor.low.T))

    def tally_ridge(self, shared: Tree, data: ClientData, state: Tree, rng: Rng) -> tuple[Tally, Tree]:
        """For every ridge, what the federation loses on this client's rows when each is left out of the global fit."""
        if "path" not in shared:  # features that do not vary: nothing to choose
            return Tally(np.zeros(len(RIDGES))), state
        path = shared["path"]
        table = namespace(path["ridges"]).zeros_like(path["ridges"])
        for block in present(data, self.width(shared)):
            turned = (self.features(shared, block.x) - path["mean"]) @ path["vectors"]
            for i in range(table.shape[0]):
                left_out = self._left_out(path, turned, block, path["ridges"][i])
                table[i] += losses(data.task, left_out, block.y, block.weight).sum()
        return Tally(table), state

    def _left_out(self, path: Tree, turned: Array, block: ClientData, ridge: Array) -> Array:
        xp = namespace(turned)
        kept = 1.0 / (path["values"] + ridge)
        fit = turned @ (kept[:, None] * path["rotated"]) + path["level"]
        share = block.weight * ((turned**2) @ kept + (1.0 / path["weight"] if self.intercept else 0.0))
        return block.target - (block.target - fit) / xp.clip(1.0 - share, min=1e-12)[:, None]

    def choose_ridge(self, server: Tree, total: Tally, task: Task, rng: Rng) -> Tree:
        """Server: the head at the ridge of least loss."""
        if "path" not in server:
            return server
        path = server["path"]
        ridge = float(path["ridges"][first_best(as_numpy(total.losses))])
        weights = path["vectors"] @ (path["rotated"] / (path["values"] + ridge)[:, None])
        honesty = slack(path["values"], ridge, float(path["freedom"])) / float(path["rows"])
        gram = (path["vectors"] * path["values"]) @ path["vectors"].T if self.wants_factor else None
        factor = None if gram is None else linalg.cholesky(gram, ridge)
        return self._settled(
            server.without("path"), path.only("mean", "level", "weight"), weights, ridge, honesty, factor
        )

    # what clients do with the head
    def head(self, shared: Tree) -> Linear:
        """The model for everybody."""
        return Linear(shared["weights"], shared["intercept"], self.map_of(shared))

    def stranger(self, shared: Tree) -> Model | None:
        return self.head(shared)

    def halving(self, shared: Tree) -> Callable[[Array, Array], Array]:
        """From rows and weights to L⁻¹z, z = √w (x - mean, 1) and LL' = A = blockdiag(G + ρI, Ω), by the factor that came down.

        Products of what it gives are S = Z A⁻¹ Z', the influence of one row on another in the global fit.
        """
        factor = Factor(linalg.unpack_lower(shared["factor"]))

        def halves(x: Array, weight: Array) -> Array:
            rows = self.features(shared, x)
            if not self.intercept:
                return factor.half(weighted(weight, rows).T).T
            half = factor.half(weighted(weight, rows - shared["mean"]).T).T
            xp = namespace(half)
            return xp.concat([half, xp.sqrt(weight / float(shared["weight"]))[:, None]], axis=1)

        return halves
