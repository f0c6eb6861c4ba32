"""local-ridge: what a client reaches alone, in closed form. Nothing is sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Annotated

import numpy as np

from ..core.algebra import Array, Tree, namespace
from ..core.linalg import any_array
from ..core.method import Round, Slot
from ..core.model import Linear, Model
from ..core.rng import Rng
from ..core.settings import Count, Number, Rule
from ..core.task import ClientData
from ._closed import RIDGES, Closed
from ._own import Path, centred_rows, choose, left_out_scores


@dataclass(frozen=True)
class LocalRidge(Closed):
    """A ridge on the client's own rows alone, its strength chosen by exact leave-one-out squared error.

    Vₖ = (Gₖ + λₖI)⁻¹ Qₖ                 Gₖ, Qₖ about the client's own mean, where there is an intercept

    Source: the closed-form counterpart of local training; a control, not a paper's method.
    Differs: nothing to differ from. λₖ is looked for on the ridge grid in units of trace(Gₖ)/nₖ of the matrix that is solved. There is no
    round, no message and no global model.

    >>> run = fit(LocalRidge(maps=None), toy)
    >>> len(LocalRidge().plan()), run.model("a").slot
    (0, 'personal')
    """

    ridge: Annotated[float | str, Rule("loo", number=Number(above=0))] = "loo"  # λₖ
    _: KW_ONLY
    maps: Annotated[int | None, Count(1, optional=True)] = 1024

    def plan(self) -> Sequence[Round]:
        return []

    def _path(self, shared: Tree, data: ClientData) -> tuple[Path | None, Array, Array]:
        width = self.width(shared)
        read, mean, level, share = centred_rows(data, lambda x: self.features(shared, x), width, self.intercept)
        return Path.of(read, data.n, width, share), mean, level

    def _strength(self, path: Path) -> float:
        if not isinstance(self.ridge, str):
            return float(self.ridge)
        return choose(path, [r * path.unit for r in reversed(RIDGES)], 1.0).gamma

    def personalise(self, shared: Tree, data: ClientData, state: Tree, rng: Rng) -> dict[Slot, Model]:
        path, mean, level = self._path(shared, data)
        shape = (self.width(shared), level.shape[0])
        own = any_array(np.zeros(shape), like=level) if path is None else path.coefficients(self._strength(path))
        return {Slot("personal"): Linear(own, level - mean @ own, self.map_of(shared))}

    def estimate(self, shared: Tree, data: ClientData, state: Tree, rng: Rng) -> Mapping[Slot, Array]:
        """Leave-one-out scores of the client's rows; honest but for the choice of the ridge."""
        path, _, _ = self._path(shared, data)
        if path is None:
            return {}
        scores = [first + second for _, first, second in left_out_scores(path, self._strength(path))]
        return {Slot("personal"): namespace(scores[0]).concat(scores, axis=0)}

    def stranger(self, shared: Tree) -> Model | None:
        return None
