"""APFL: a global ridge head, and for each client a private second ridge on what the first leaves, in another random feature space."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import Annotated, Self

import numpy as np

from ..core.algebra import Array, Tree, namespace
from ..core.check import as_numpy
from ..core.errors import BadSetting, NoBalance
from ..core.linalg import any_array, double
from ..core.maps import ACTIVATIONS, RandomMap
from ..core.method import Round, Slot
from ..core.model import Linear, Model, TwoStream
from ..core.rng import Rng
from ..core.settings import Choice, Count, Number, Rule
from ..core.task import ClientData, Task
from ._closed import Closed, Tally, first_best
from ._own import BALANCES, GAMMAS, MOST_BALANCE, Path, Second, choose, estimates, loss_table, no_halves, residual_path


@dataclass(frozen=True)
class APFL(Closed):
    """Two ridges: a shared one fitted to everybody's rows in one round, and a private one fitted at home to what the first leaves.

    W  = (G + ρI)⁻¹ Q                    X = act(B P), G = Σₖ XₖᵀXₖ, Q = Σₖ XₖᵀYₖ
    Rₖ = (FₖᵀFₖ + γI)⁻¹ Fₖᵀ(Yₖ − XₖW)    F = act'(B P'), P' another random map
    score(b) = x W + a f Rₖ

    Client k's model depends on the union of all rows and on its own, not on how the rest is dealt. That holds for numbers, for
    `ridge="gcv"` and `"loo"` (sums over rows) and for γ and a chosen per client; with `share=True` only (G, Q) and W keep it.

    γ and a are chosen by exact leave-one-out squared error: per client with W fixed (default), with the row taken out of the
    global fit too (`joint=True`, honest, sends the factor of G + ρI down), or one pair for all from summed tables of misses
    (`share=True`, a second round). With W fixed, a is divided by the honesty 1 − edf/N: the global head fits its own rows too
    well, so what it leaves there is that much too small.

    Source: Fan et al., "Analytic Personalized Federated Learning via Dual-Stream Least Squares", arXiv 2508.10732.
    Differs: clients send (G, Q), which add, instead of the pair (Aₖ, Wₖ) and its recursion (equal to rounding); rules choose ρ, γ and a,
    there is an intercept, and F has a constant column as large as a row. `APFL.paper()` gives the paper's ρ = 0.01, γ = 1, a = 0.5 without
    intercept. How much of ρ the paper leaves in the final head is not certain (methods/apfl.md): here all of it.

    >>> run = fit(APFL(maps=64), toy)
    >>> type(run.model("a").model).__name__, len(APFL().plan())
    ('TwoStream', 1)
    """

    gamma: Annotated[float | str, Rule("loo", number=Number(above=0))] = "loo"  # γ
    balance: Annotated[float | str, Rule("loo")] = "loo"  # a
    _: KW_ONLY
    maps: Annotated[int | None, Count(1, optional=True)] = 1024
    refine_maps: Annotated[int | None, Count(1, optional=True)] = (
        None  # width of the second map; None: as wide as the first
    )
    refine_activation: Annotated[str, Choice(*ACTIVATIONS)] = "relu"
    joint: bool = False
    share: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.joint and self.ridge == "pinv":
            raise BadSetting(
                "joint = True needs the factor of G + ridge I, which ridge = 'pinv' does not have. Use a number, 'gcv' or 'loo'."
            )
        if self.maps is None and self.refine_maps is not None:
            raise BadSetting(
                "refine_maps needs maps: with maps = None both ridges see the features as they are. Set maps too."
            )

    @classmethod
    def paper(cls) -> Self:
        """The paper's settings on CIFAR-100: ρ = 0.01, γ = 1, a = 0.5; no intercept."""
        return cls(ridge=0.01, gamma=1.0, balance=0.5, intercept=False)

    @property
    def wants_factor(self) -> bool:
        return self.joint

    @property
    def wants_honesty(self) -> bool:
        return self.balance == "loo" and not self.share

    def plan(self) -> Sequence[Round]:
        shares = [Round("tally-share", self.tally_share, self.choose_share, everyone=True)] if self.share else []
        return [*super().plan(), *shares]

    def refine_map(self, shared: Tree) -> RandomMap | None:
        """The second map, drawn apart from the first; None where there is no first."""
        first = self.map_of(shared)
        if first is None:
            return None
        return replace(first, stream="refine", width=self.refine_maps or first.width, activation=self.refine_activation)

    def _path(self, shared: Tree, data: ClientData) -> Path | None:
        """The second ridge along its grid."""
        drawn = self.refine_map(shared)
        columns = data.task.dimension if drawn is None else drawn.width

        def features(x: Array) -> Array:
            return double(x if drawn is None else drawn(x))

        halves = self.halving(shared) if self.joint else no_halves
        return residual_path(data, features, columns, self.head(shared).scores, halves, self.intercept)

    def _balances(self) -> tuple[float, ...]:
        return BALANCES if isinstance(self.balance, str) else (float(self.balance),)

    def _choice(self, shared: Tree, path: Path) -> Second:
        """γ and a for one client: given, shared, or by its own leave-one-out."""
        if self.share:
            unit = path.unit if isinstance(self.gamma, str) else 1.0
            return Second(float(shared["gamma"]) * unit, float(shared["balance"]))
        gammas = path.gammas(self.gamma)
        if isinstance(self.balance, str):
            return self._honest(float(shared["honesty"]), path, gammas)
        given = float(self.balance)
        return choose(path, gammas, given) if len(gammas) > 1 else Second(gammas[0], given)

    def _honest(self, honesty: float, path: Path, gammas: list[float]) -> Second:
        """The balance by leave-one-out, where W saw the row, divided by 1 - edf/N."""
        if honesty < 1e-6:
            warnings.warn(
                "The global head fits every row exactly (edf = N), so what it leaves says nothing: the personal part is "
                "switched off. Use a larger ridge or fewer maps.",
                NoBalance,
                stacklevel=2,
            )
            return Second(gammas[0], 0.0)
        if self.joint:
            return choose(path, gammas, None, MOST_BALANCE / honesty)
        second = choose(path, gammas, None)
        return replace(second, balance=second.balance / honesty)

    def tally_share(self, shared: Tree, data: ClientData, state: Tree, rng: Rng) -> tuple[Tally, Tree]:
        path = self._path(shared, data)
        gammas = path.gammas(self.gamma) if path else [1.0] * (len(GAMMAS) if isinstance(self.gamma, str) else 1)
        return Tally(loss_table(path, gammas, self._balances(), data.task, like=data.weight)), state

    def choose_share(self, server: Tree, total: Tally, task: Task, rng: Rng) -> Tree:
        gammas = tuple(reversed(GAMMAS)) if isinstance(self.gamma, str) else (float(self.gamma),)
        table = as_numpy(total.losses)
        i, j = divmod(first_best(table.ravel()), table.shape[1])
        return server | Tree(gamma=np.float64(gammas[i]), balance=np.float64(self._balances()[j]))

    def personalise(self, shared: Tree, data: ClientData, state: Tree, rng: Rng) -> dict[Slot, Model]:
        head, path = self.head(shared), self._path(shared, data)
        if path is None:  # a client with nothing to learn from takes the global head home
            return {Slot("personal"): TwoStream(head, self._zero(shared, head), np.float64(0.0)), Slot("global"): head}
        second = self._choice(shared, path)
        own = Linear(*path.line(second.gamma), self.refine_map(shared))
        return {Slot("personal"): TwoStream(head, own, np.float64(second.balance)), Slot("global"): head}

    def _zero(self, shared: Tree, head: Linear) -> Linear:
        drawn = self.refine_map(shared)
        width = head.weights.shape[0] if drawn is None else drawn.width
        zeros = any_array(np.zeros((width, head.weights.shape[1])), like=head.weights)
        return Linear(zeros, namespace(zeros).zeros_like(head.intercept), drawn)

    def estimate(self, shared: Tree, data: ClientData, state: Tree, rng: Rng) -> Mapping[Slot, Array]:
        """Leave-one-out scores of the client's rows. With `joint` no model saw the row; otherwise W did: too rosy."""
        return estimates(self._path(shared, data), partial(self._choice, shared))
