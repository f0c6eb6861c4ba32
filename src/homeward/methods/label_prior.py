"""masked and log-prior: the global head, corrected by what a client knows of its own labels. The controls of any personalisation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Annotated

import numpy as np

from ..core.algebra import Array, Tree, namespace
from ..core.check import as_numpy
from ..core.errors import BadSetting
from ..core.method import Round, Slot
from ..core.model import Linear, Model
from ..core.rng import Rng
from ..core.settings import Count, Rule
from ..core.task import ClientData, Task
from ._closed import Closed, Tally, first_best, losses, present

SMOOTHING = 0.01  # e
TAUS = (0.0, 0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3)


def class_counts(data: ClientData) -> Array:
    """Rows of positive weight of each class. (c,)"""
    xp = namespace(data.y)
    return xp.sum(data.target * xp.astype(data.weight > 0, xp.float64)[:, None], axis=0)


@dataclass(frozen=True)
class _LabelPrior(Closed):
    """A global head whose intercepts each client moves by its own class counts."""

    _: KW_ONLY
    maps: Annotated[int | None, Count(1, optional=True)] = 1024

    def init(self, task: Task, rng: Rng) -> Tree:
        if task.kind != "classes":
            raise BadSetting(
                f"{type(self).__name__} corrects by class counts, so it needs task = 'classes', not '{task.kind}'. Use afl or apfl."
            )
        return super().init(task, rng)

    def moved(self, shared: Tree, by: Array) -> dict[Slot, Model]:
        head = self.head(shared)
        return {Slot("personal"): Linear(head.weights, head.intercept + by, head.map), Slot("global"): head}


@dataclass(frozen=True)
class Masked(_LabelPrior):
    """The global head, with the classes ruled out that the client has no row of.

    score_c = (x W + b)_c, minus infinity where nₖc = 0; a client without rows rules nothing out

    Source: the "only local labels" trick of Fed3R, Fanì et al., ICML 2024, arXiv 2406.01116; a control.
    Differs: on our global head (rules, intercept, random map).

    >>> run = fit(Masked(maps=None), toy)
    >>> float(run.model("c").decision_function(toy.clients["c"].x).min())
    -inf
    """

    def personalise(self, shared: Tree, data: ClientData, state: Tree, rng: Rng) -> dict[Slot, Model]:
        counts = class_counts(data)
        xp = namespace(counts)
        ruled_out = (counts == 0) & (xp.sum(counts) > 0)
        return self.moved(shared, xp.where(ruled_out, -xp.inf, xp.zeros_like(counts)))


@dataclass(frozen=True)
class LogPrior(_LabelPrior):
    """The global head, plus a share of the logarithm of the client's own class frequencies.

    score_c = (x W + b)_c + τ log((nₖc + e) / (nₖ + C e)),  e = 0.01

    τ is one for the federation, of least summed misses when each row is left out of the global fit and of its class count: a second round,
    for which the factor of G + ρI comes down. So this method does depend on how the rows are dealt, through τ.

    Source: logit adjustment by class priors, Menon et al., ICLR 2021, arXiv 2007.07314, on each client's own prior; a control.
    Differs: on our global head (rules, intercept, random map); τ by leave-one-out instead of 1.

    >>> len(LogPrior().plan()), len(LogPrior(tau=0.1).plan())
    (2, 1)
    """

    tau: Annotated[float | str, Rule("loo")] = "loo"  # τ

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.wants_factor and self.ridge == "pinv":
            raise BadSetting(
                "tau = 'loo' needs the factor of G + ridge I, which ridge = 'pinv' does not have. Use a number, 'gcv' or 'loo'."
            )

    @property
    def wants_factor(self) -> bool:
        return self.tau == "loo"

    def plan(self) -> Sequence[Round]:
        tally = [Round("tally-tau", self.tally_tau, self.choose_tau, everyone=True)] if self.tau == "loo" else []
        return [*super().plan(), *tally]

    def tally_tau(self, shared: Tree, data: ClientData, state: Tree, rng: Rng) -> tuple[Tally, Tree]:
        counts, table = class_counts(data), np.zeros(len(TAUS))
        for block, scores in self._unseen(shared, data):
            prior = log_prior(counts[None, :] - block.target)
            for i, tau in enumerate(TAUS):
                table[i] += float(losses(data.task, scores + tau * prior, block.y, block.weight).sum())
        return Tally(table), state

    def _unseen(self, shared: Tree, data: ClientData) -> Iterator[tuple[ClientData, Array]]:
        """The global scores of each row by a head that did not see it: y - E / (1 - g)."""
        halves, head = self.halving(shared), self.head(shared)
        for block in present(data, self.width(shared)):
            xp = namespace(block.weight)
            g = xp.sum(halves(block.x, block.weight) ** 2, axis=1)
            yield block, block.target - (block.target - head.scores(block.x)) / xp.clip(1.0 - g, min=1e-12)[:, None]

    def choose_tau(self, server: Tree, total: Tally, task: Task, rng: Rng) -> Tree:
        return server.without("factor", "mean", "weight") | Tree(
            tau=np.float64(TAUS[first_best(as_numpy(total.losses))])
        )

    def personalise(self, shared: Tree, data: ClientData, state: Tree, rng: Rng) -> dict[Slot, Model]:
        tau = float(shared["tau"]) if isinstance(self.tau, str) else float(self.tau)
        return self.moved(shared, tau * log_prior(class_counts(data)))


def log_prior(counts: Array) -> Array:
    """log((n_c + e) / (n + C e)), of the last axis."""
    xp = namespace(counts)
    total = xp.sum(counts, axis=-1, keepdims=True)
    return xp.log((counts + SMOOTHING) / (total + counts.shape[-1] * SMOOTHING))
