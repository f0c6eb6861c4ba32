"""AFL: one global ridge head, in one round, equal to the pooled solution whoever owns the rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from ..core.algebra import Tree
from ..core.method import Slot
from ..core.model import Model
from ..core.rng import Rng
from ..core.task import ClientData
from ._closed import Closed


@dataclass(frozen=True)
class AFL(Closed):
    """Ridge regression on everyone's rows in one round: the head that one pooled table would give.

    W = (G + ρI)⁻¹ Q                     G = Σₖ XₖᵀXₖ, Q = Σₖ XₖᵀYₖ

    Source: He et al., "AFL: A Single-Round Analytic Approach for Federated Learning with Pre-trained Models", CVPR 2025, arXiv 2405.16240.
    Differs: clients send G and Q, which add, instead of the pair (Wₖ, Cₖ) and its pairwise recursion (equal to rounding); ρ is chosen by
    generalised cross-validation and there is an intercept, where the paper has neither. `AFL.paper()` gives the paper's: a temporary ridge
    that is removed again, so ρ = 0 and no intercept. One global model; nobody is personalised.

    >>> run = fit(AFL(ridge=2.0, intercept=False), toy)
    >>> x, y = toy.pooled.x, toy.pooled.target
    >>> bool(np.allclose(run.progress.server["weights"], np.linalg.solve(x.T @ x + 2.0 * np.eye(x.shape[1]), x.T @ y)))
    True
    """

    @classmethod
    def paper(cls) -> Self:
        """The paper's settings: the temporary ridge is removed again, so ρ = 0; no intercept."""
        return cls(ridge=0.0, intercept=False)

    def personalise(self, shared: Tree, data: ClientData, state: Tree, rng: Rng) -> dict[Slot, Model]:
        return {Slot("global"): self.head(shared)}
