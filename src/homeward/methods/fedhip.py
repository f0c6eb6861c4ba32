"""FedHiP: a global ridge head, pulled towards each client's own rows in closed form. Three readings of the third phase."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Annotated

import numpy as np

from ..core import linalg
from ..core.algebra import Array, Tree, namespace
from ..core.errors import BadSetting
from ..core.linalg import Factor, any_array
from ..core.method import Slot
from ..core.model import Linear, Model
from ..core.rng import Rng
from ..core.settings import Choice, Number, Rule
from ..core.task import ClientData
from ._closed import Closed, first_best
from ._own import Path, Second, centred_rows, choose, estimates, no_halves, own_rows, residual_path, without_row

MUS = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
"""The grid of mu, the extra weight of a client's own rows."""


@dataclass(frozen=True)
class FedHiP(Closed):
    """Ridge regression on everyone's rows in one round, then pulled towards each client's own.

    W  = (G + ρI)⁻¹ Q                              the solution on the pooled rows
    proximal  Wₖ = W + (Gₖ + γI)⁻¹ Xₖᵀ(Yₖ − XₖW)   the ridge of client k's residuals; γ → ∞ gives W back
    weighted  Wₖ = W + μ(A + μZₖᵀZₖ)⁻¹ Zₖᵀ(Yₖ − XₖW)   own rows count 1 + μ times; A = G + ρI, which comes down
    blend     Wₖ = (1 − t)W + tVₖ                  Vₖ the client's own ridge at λₖ

    `gamma` is γ, μ or λₖ by the form, `balance` is the blend's t. All are chosen per client by exact leave-one-out squared error, with W
    fixed, or with `joint=True` taken out of the global fit too (proximal and blend; the factor of A comes down). Client k's model depends
    on the union of all rows and on its own, not on how the rest is dealt (heterogeneity invariance), in every form.

    Source: Tang et al., "FedHiP: Heterogeneity-Invariant Personalized Federated Learning Through Closed-Form Solutions", arXiv 2508.04470.
    Differs: only the abstract is public; its third formula is not. The proximal form is the likeliest reading, and the two
    others also have every property that the abstract claims (docs/methods/fedhip.md). Rules choose ρ, γ and t; there is an
    intercept, and the proximal form's own rows have a constant column as large as a row.

    >>> w = fit(FedHiP(ridge=2.0, intercept=False), toy).progress.server["weights"]
    >>> bool(np.allclose(w, solve_ridge(toy.pooled.x.T @ toy.pooled.x, toy.pooled.x.T @ toy.pooled.target, 2.0)))
    True
    """

    gamma: Annotated[float | str, Rule("loo")] = "loo"
    form: Annotated[str, Choice("proximal", "weighted", "blend")] = "proximal"
    balance: Annotated[float | str | None, Rule("loo", number=Number(low=0, high=1), optional=True)] = None
    _: KW_ONLY
    joint: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.balance is not None and self.form != "blend":
            raise BadSetting(
                f"balance = {self.balance!r}, but only form = 'blend' has a balance. Leave it out, or use form = 'blend'."
            )
        if self.gamma == 0 and self.form != "weighted":
            raise BadSetting(
                f"gamma = 0, but form = '{self.form}' needs a number above 0. Only the weighted form can weigh own rows by 0."
            )
        if self.wants_factor and self.ridge == "pinv":
            raise BadSetting(
                "ridge = 'pinv' has no factor to send down, which this form needs. Use a number, 'gcv' or 'loo'."
            )
        if self.joint and self.form == "weighted":
            raise BadSetting("form = 'weighted' takes a row out of both fits at once anyway: leave joint out.")

    @property
    def wants_factor(self) -> bool:
        return self.joint or self.form == "weighted"

    def personalise(self, shared: Tree, data: ClientData, state: Tree, rng: Rng) -> dict[Slot, Model]:
        form = {"proximal": self._proximal, "weighted": self._weighted, "blend": self._blend}[self.form]
        return {Slot("personal"): form(shared, data), Slot("global"): self.head(shared)}

    def estimate(self, shared: Tree, data: ClientData, state: Tree, rng: Rng) -> Mapping[Slot, Array]:
        """Leave-one-out scores of the client's rows (proximal form). With `joint` no model saw the row; otherwise W did: too rosy."""
        if self.form != "proximal":
            return {}
        return estimates(self._own_path(shared, data), lambda path: Second(self._gamma(path), 1.0))

    # proximal
    def _own_path(self, shared: Tree, data: ClientData) -> Path | None:
        def features(x: Array) -> Array:
            return self.features(shared, x)

        halves = self.halving(shared) if self.joint else no_halves
        return residual_path(data, features, self.width(shared), self.head(shared).scores, halves, self.intercept)

    def _gamma(self, path: Path) -> float:
        gammas = path.gammas(self.gamma)
        return choose(path, gammas, 1.0).gamma if len(gammas) > 1 else gammas[0]

    def _proximal(self, shared: Tree, data: ClientData) -> Linear:
        head, path = self.head(shared), self._own_path(shared, data)
        if path is None:
            return head
        own, level = path.line(self._gamma(path))
        return Linear(head.weights + own, head.intercept + level, head.map)

    # weighted
    def _weighted(self, shared: Tree, data: ClientData) -> Linear:
        """With F = L⁻¹z for each row, μ(A + μZ'Z)⁻¹Z'E = L⁻ᵀ F'(FF' + I/μ)⁻¹E: the client's own path, at γ = 1/μ."""
        head = self.head(shared)
        halves = self.halving(shared)
        columns = self.width(shared) + int(self.intercept)
        read = own_rows(data, lambda x: halves(x, any_array(np.ones(len(x)), like=x)), columns, head.scores, no_halves)
        path = Path.of(read, data.n, columns)
        mu = 0.0 if path is None else self._mu(path)
        if path is None or mu == 0.0:
            return head
        own = path.coefficients(1.0 / mu)
        factor = Factor(linalg.unpack_lower(shared["factor"]))
        change = factor.back(own[: head.weights.shape[0]])
        if not self.intercept:
            return Linear(head.weights + change, head.intercept, head.map)
        level = own[-1] / float(shared["weight"]) ** 0.5 - shared["mean"] @ change
        return Linear(head.weights + change, head.intercept + level, head.map)

    def _mu(self, path: Path) -> float:
        """Row i has weight 1 + μ in one problem and leaves it whole: h_i = (1 + μ) zᵢ'(A + μZ'Z)⁻¹zᵢ."""
        if not isinstance(self.gamma, str):
            return float(self.gamma)
        return MUS[first_best([weighted_error(path, 1.0 / mu) for mu in MUS])]

    # blend
    def _blend(self, shared: Tree, data: ClientData) -> Linear:
        head = self.head(shared)
        read, mean, level, share = centred_rows(
            data, lambda x: self.features(shared, x), self.width(shared), self.intercept
        )
        path = Path.of(read, data.n, self.width(shared), share)
        if path is None:  # rows that do not vary: the client's own ridge is their level, where it has any row
            t = float(self.balance) if data.n and isinstance(self.balance, int | float) else 0.0
            return Linear((1 - t) * head.weights, (1 - t) * head.intercept + t * level, head.map)
        second = self._mixture(path, self._left(shared, data))
        own, t = path.coefficients(second.gamma), second.balance
        return Linear((1 - t) * head.weights + t * own, (1 - t) * head.intercept + t * (level - mean @ own), head.map)

    def _left(self, shared: Tree, data: ClientData) -> Array:
        """What the global head leaves of each row, times the root of its weight; with `joint`, fitted without that row. (n, c)"""
        halves = self.halving(shared) if self.joint else no_halves
        read = own_rows(data, lambda x: x, data.task.dimension, self.head(shared).scores, halves)
        left = [without_row(block)[0] for block in read()]
        return namespace(left[0]).concat(left, axis=0)

    def _mixture(self, path: Path, left: Array) -> Second:
        """(λₖ, t) of least |(1 - t) left + t own|², each row left out of its client's ridge; t* = <left - own, left> / |left - own|²."""
        fixed = None if self.balance in (None, "loo") else float(self.balance)
        errors, chosen = [], []
        for gamma in path.gammas(self.gamma):
            parts = [(block, fit) for block, _, fit in path.left_out(gamma)]
            if any(fit is None for _, fit in parts):
                continue
            xp = namespace(left)
            gap = left - xp.concat([block.targets - fit for block, fit in parts], axis=0)
            along, power = float(xp.sum(gap * left)), float(xp.sum(gap * gap))
            t = (
                fixed
                if fixed is not None
                else min(max(along / power, 0.0), 1.0)
                if power > 1e-20 * (path.energy + float(xp.sum(left * left)))
                else 0.0
            )
            errors.append(float(xp.sum((left - t * gap) ** 2)))
            chosen.append(Second(gamma, t))
        return chosen[first_best(errors)] if chosen else Second(path.unit, fixed or 0.0)


def weighted_error(path: Path, gamma: float) -> float:
    """Σ |E - fit|² / (1 - h)², h = (γ + 1) Σⱼ U_ij² s_j/(s_j + γ), γ = 1/μ: the weighted form's leave-one-out squared error."""
    s, total = path.spectrum.s, 0.0
    kept = s / (s + gamma)
    for block, u in path.blocks():
        xp = namespace(u)
        free = 1.0 - (gamma + 1.0) * ((u * u) @ kept)
        left = block.targets - u @ (kept[:, None] * path.turned)
        total += float(xp.sum((left / xp.clip(free, min=1e-12)[:, None]) ** 2))
    return total
