"""Does joining help a client? A run beside the control that trains each client alone, client by client on its own test rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.check import as_numpy
from ..core.method import Method, Standardised, standardised
from ..core.model import Predictor, row_values, score_of
from ..core.task import ClientData
from ..engine.inprocess import Notice, nobody_listens
from ..engine.run import Run, fit
from ..methods.local_ridge import LocalRidge
from .paired import Paired, from_counts, paired
from .rows import Row

FEATURES = ("maps", "map_seed", "activation", "intercept")
"""Settings by which a method sees its rows: the control takes them over, so that joining is all that differs."""
MODEL = "local"
"""What the control's model is called in rows."""


@dataclass(frozen=True)
class Beside:
    """One client's own test rows: alone, and together with the others."""

    client: str
    rows: int  # that it learns from
    test_rows: int
    alone: float
    together: float  # the headline: its personal model, where the method has one
    everybody: float | None  # one model for all; None: that is the headline, or the method has none
    paired: Paired | None  # None: real targets or rows of unlike weight, which have no hits to count

    @property
    def difference(self) -> float:
        return self.together - self.alone


def control(method: Method) -> LocalRidge | Standardised:
    """Each client alone, on the features that this method sees.

    >>> from homeward.methods.apfl import APFL
    >>> control(APFL(maps=64, intercept=False)).settings["maps"], control(APFL(maps=64)).plan()
    (64, [])
    """
    inner = method.method if isinstance(method, Standardised) else method
    taken: dict[str, Any] = {name: value for name, value in inner.settings.items() if name in FEATURES}
    alone = LocalRidge(**{"maps": None, **taken})
    return standardised(alone) if isinstance(method, Standardised) else alone


def fitted_alone(run: Run, notice: Notice = nobody_listens) -> Run:
    """The control of a run, on the same rows."""
    assert run.federation is not None  # the caller's: rows are at hand
    return fit(control(run.method), run.federation, seed=run.seed, notice=notice)


def rows_alone(alone: Run) -> list[Row]:
    """The rows of a control, under the name of its model."""
    return [{**row, "model": MODEL} for row in alone.scores()]


def beside(run: Run, alone: Run) -> list[Beside]:
    """Every client that has test rows, whom joining helps least first."""
    assert run.federation is not None  # as for `fitted_alone`
    tests = run.federation.tests
    found = [_client(run, alone, name, tests[name]) for name in run.ids if name in tests and scorable(tests[name])]
    return sorted(found, key=lambda one: (one.difference, one.client))


def scorable(data: ClientData) -> bool:
    """There is a row that counts."""
    return data.n > 0 and float(data.weight.sum()) > 0


def _client(run: Run, alone: Run, name: str, test: ClientData) -> Beside:
    slots, headline = run.models(name), run.model(name)
    shared = next((model for slot, model in slots.items() if slot.model == "global" and model is not headline), None)
    ours, theirs = _scores(headline, test), _scores(alone.model(name), test)
    return Beside(
        name,
        run.here[name].n,
        test.n,
        score_of(test, theirs),
        score_of(test, ours),
        None if shared is None else score_of(test, _scores(shared, test)),
        _paired(test, ours, theirs),
    )


def _scores(model: Predictor, data: ClientData) -> NDArray[Any]:
    return np.concatenate([as_numpy(model.model.scores(block.x)) for block in data.blocks(1 << 14)])


def _paired(test: ClientData, ours: NDArray[Any], theirs: NDArray[Any]) -> Paired | None:
    y, weight = as_numpy(test.y), as_numpy(test.weight)
    seen = weight > 0
    if test.task.kind == "real" or len(set(weight[seen].tolist())) > 1:
        return None
    first, second = (row_values(test.task, scores, y)[seen] for scores in (ours, theirs))
    return paired(first, second)


# ---- what they come to


def together(found: Sequence[Beside]) -> Paired | None:
    """All clients' test rows as one set: what a single client's rows are too few to tell. A large client counts for more."""
    each = [one.paired for one in found if one.paired]
    if not each:
        return None
    return from_counts(sum(p.rows for p in each), sum(p.gained for p in each), sum(p.lost for p in each))


def counts(found: Sequence[Beside]) -> dict[str, int]:
    """How many clients have each verdict."""
    verdicts = [one.paired.verdict for one in found if one.paired]
    return {word: verdicts.count(word) for word in ("helped", "hurt", "cannot tell")} if verdicts else {}
