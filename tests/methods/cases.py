"""Small federations, and every closed form in the settings that change what it computes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import oracles
from numpy.typing import NDArray

import homeward as hw
from homeward.core.algebra import Tree
from homeward.core.maps import RandomMap
from homeward.core.method import Method
from homeward.core.rng import rng_for
from homeward.core.task import ClientData

Array = NDArray[Any]

EVERY: dict[str, Callable[..., Method]] = {
    "afl": hw.AFL,
    "afl-loo": partial(hw.AFL, "loo"),
    "afl-pinv": partial(hw.AFL, "pinv"),
    "apfl": hw.APFL,
    "apfl-joint": partial(hw.APFL, joint=True),
    "apfl-share": partial(hw.APFL, share=True),
    "fedhip": hw.FedHiP,
    "fedhip-joint": partial(hw.FedHiP, joint=True),
    "fedhip-weighted": partial(hw.FedHiP, form="weighted"),
    "fedhip-blend": partial(hw.FedHiP, form="blend"),
    "fedhip-blend-joint": partial(hw.FedHiP, form="blend", joint=True),
    "local-ridge": hw.LocalRidge,
    "masked": hw.Masked,
    "log-prior": hw.LogPrior,
}
"""By rules."""
NUMBERS: dict[str, Callable[..., Method]] = {
    "afl": partial(hw.AFL, 0.5),
    "apfl": partial(hw.APFL, 0.5, 0.7, 0.6),
    "fedhip": partial(hw.FedHiP, 0.5, 0.7),
    "fedhip-weighted": partial(hw.FedHiP, 0.5, 2.0, form="weighted"),
    "fedhip-blend": partial(hw.FedHiP, 0.5, 0.7, form="blend", balance=0.4),
    "local-ridge": partial(hw.LocalRidge, 0.5),
    "masked": partial(hw.Masked, 0.5),
}
"""Nothing is left to a rule."""
OF_CLASSES = ("masked", "log-prior")


@dataclass(frozen=True)
class Table:
    """Rows, targets, clients and weights, before they are a federation."""

    x: Array
    y: Array
    groups: Array
    kind: str = "classes"
    weights: Array | None = None
    classes: Array | None = field(default=None)

    def federation(self, **changed: Any) -> hw.Federation:
        t = replace(self, **changed)
        return hw.Federation.from_arrays(t.x, t.y, t.groups, task=t.kind, weights=t.weights, classes=t.classes)

    def chosen(self, rows: Any) -> Table:
        weights = None if self.weights is None else self.weights[rows]
        return replace(self, x=self.x[rows], y=self.y[rows], groups=self.groups[rows], weights=weights)


def table(
    kind: str = "classes",
    n: int = 42,
    d: int = 5,
    clients: int = 3,
    outputs: int = 3,
    weighed: bool = False,
    seed: int = 0,
) -> Table:
    """Clients `a`, `b`, ... of unlike sizes, places and laws; features off centre; weights with some zeros."""
    draw = np.random.default_rng(seed)
    owner = np.sort(draw.choice(clients, n, p=np.arange(1, clients + 1) / np.arange(1, clients + 1).sum()))
    owner[:clients] = np.arange(clients)
    x = draw.normal(size=(n, d)) + 0.7 * draw.normal(size=(clients, d))[owner] + 0.5
    clean = x @ draw.normal(size=(d, outputs)) + 0.8 * draw.normal(size=(clients, outputs))[owner]
    theirs = np.einsum("nd,ndc->nc", x, draw.normal(size=(clients, d, outputs))[owner])
    noisy = clean + theirs + 0.4 * draw.normal(size=clean.shape)
    y = {"classes": noisy.argmax(1), "multilabel": (noisy > 0).astype(float), "real": noisy + 3.0}[kind]
    weights = np.where(draw.random(n) < 0.15, 0.0, draw.uniform(0.2, 3.0, n)) if weighed else None
    if weights is not None:
        weights[:clients] = 1.0  # so that nobody is left without rows
    classes = np.arange(outputs) if kind == "classes" else None
    return Table(x, y, np.array(list("abcdefghij"))[owner], kind, weights, classes)


def rows_of(data: Table, method: Any = None) -> dict[str, oracles.Rows]:
    """What the oracles need of each client, through the method's maps where it has any."""
    x = f = data.x
    maps = getattr(method, "maps", None)
    if maps is not None:
        drawn = partial(RandomMap, 0, inputs=data.x.shape[1])
        x = drawn(stream="primary", width=maps)(data.x)
        f = drawn(stream="refine", width=getattr(method, "refine_maps", None) or maps)(data.x)
    y = np.eye(len(data.classes))[data.y] if data.classes is not None else data.y.reshape(len(x), -1)
    w = np.ones(len(x)) if data.weights is None else data.weights
    every = oracles.Rows(x, f, y, w)
    return {str(k): every.only((data.groups == k) & (w > 0)) for k in np.unique(data.groups)}


def split(rows: dict[str, oracles.Rows], client: str) -> tuple[oracles.Rows, list[oracles.Rows]]:
    """A client's rows, and those of each other."""
    return rows[client], [r for k, r in rows.items() if k != client]


def scores(run: hw.Run, x: Any, client: str = "a", slot: str | None = None) -> Array:
    return run.model(client, slot).decision_function(x)


def all_scores(run: hw.Run, x: Any) -> Array:
    """Of every client's every model, stacked."""
    return np.stack([m.decision_function(x) for name in run.ids for m in run.models(name).values()])


def estimate(run: hw.Run, client: str = "a") -> dict[str, Array]:
    """Leave-one-out scores of a client's rows, by model."""
    assert run.federation is not None
    data: ClientData = run.federation.clients[client]
    found = run.method.estimate(run.shared, data, Tree(), rng_for(0, "estimate"))
    return {slot.model: np.asarray(value) for slot, value in found.items()}


def gap(a: Any, b: Any) -> float:
    """Relative Frobenius distance; minus infinities (classes ruled out) must be in the same places."""
    a, b = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    assert a.shape == b.shape
    there = np.isfinite(b)
    assert (np.isfinite(a) == there).all()
    size = float(np.linalg.norm(b[there]))
    return float(np.linalg.norm(a[there] - b[there])) / (size or 1.0)


def mixture(alpha: float, seed: int, shift: float = 0.0, rows: tuple[int, int] = (4000, 6000)) -> hw.Federation:
    """The synthetic set of the closed-form papers' notes: 20 Gaussian classes in 48 dimensions, each dealt to 20 clients by a Dirichlet.

    Means N(0, 0.55² I), noise N(0, I), and for each client a shift N(0, shift² I) of its inputs. Test rows are dealt like training rows.
    """
    draw = np.random.default_rng(seed)
    means = 0.55 * draw.normal(size=(20, 48))
    share = np.cumsum(draw.dirichlet(np.full(20, alpha), size=20), axis=1)
    moved = shift * draw.normal(size=(20, 48))
    parts = []
    for n in rows:
        y = draw.integers(0, 20, n)
        owner = np.minimum((draw.random(n)[:, None] > share[y]).sum(1), 19)
        parts.append((means[y] + draw.normal(size=(n, 48)) + moved[owner], y, np.char.mod("c%02d", owner)))
    return hw.Federation.from_arrays(*parts[0], test=parts[1], classes=np.arange(20))


def accuracy(run: hw.Run, model: str, split: str = "test") -> float:
    """The mean of clients, in %."""
    return 100 * float(np.mean([row["value"] for row in run.scores(split) if row["model"] == model]))
