"""Models: a `Model` is arrays and a rule from rows to scores; a `Predictor` is one of them with the user's labels."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import scipy.special
from numpy.typing import NDArray

from . import check, wire
from .algebra import Array, Tree, namespace
from .errors import BadData, BadFile
from .files import read_file, write_file
from .linalg import any_array, double
from .maps import RandomMap
from .task import ClientData, Task


@dataclass(frozen=True, eq=False)
class Model(ABC):
    """From rows to raw scores. Its fields are arrays, maps and models, so that it can be saved."""

    @abstractmethod
    def scores(self, x: Array) -> Array:
        """(n, classes) float64"""


@dataclass(frozen=True, eq=False)
class Linear(Model):
    """f(x) W + b, where f is a random map or nothing. An intercept of minus infinity rules a class out."""

    weights: Array  # (f, c)
    intercept: Array  # (c,)
    map: RandomMap | None = None

    def scores(self, x: Array) -> Array:
        features = double(x if self.map is None else self.map(x))
        return features @ any_array(self.weights, like=x) + any_array(self.intercept, like=x)


@dataclass(frozen=True, eq=False)
class TwoStream(Model):
    """What everyone learnt, plus a share of what the client alone learnt: primary(x) + balance * personal(x)."""

    primary: Linear
    personal: Linear
    balance: Array  # ()

    def scores(self, x: Array) -> Array:
        return self.primary.scores(x) + float(self.balance) * self.personal.scores(x)


@dataclass(frozen=True, eq=False)
class Scaled(Model):
    """A model of standardised rows, for rows as they come."""

    model: Model
    mean: Array  # (d,)
    scale: Array  # (d,)

    def scores(self, x: Array) -> Array:
        return self.model.scores(scaled_rows(x, self.mean, self.scale))


def scaled_rows(x: Array, mean: Array, scale: Array) -> Array:
    """(x - mean) / scale, computed in float64 and given in the precision of x."""
    z = (double(x) - any_array(mean, like=x)) / any_array(scale, like=x)
    return namespace(x).astype(z, x.dtype, copy=False)


@dataclass(frozen=True, eq=False)
class Predictor:
    """A model that answers with the user's own labels, and can be taken home as one file."""

    model: Model
    task: Task
    client: str | None = None
    slot: str = "personal"

    def __repr__(self) -> str:
        of = f"{self.task.classes} {'classes' if self.task.kind == 'classes' else 'outputs'}"
        return f"Predictor({self.slot} model of {self.client or 'everybody'}: {type(self.model).__name__}, {of})"

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Raw scores, one column for each class or output, also for two classes. (n, classes)"""
        x = check.features(X, "X", width=self.task.dimension)
        return np.asarray(check.as_numpy(self.model.scores(x)), dtype=np.float64)

    def predict(self, X: Any) -> NDArray[Any]:
        """Labels (n,); 0 and 1 for each label (n, classes) where rows have several; numbers for real targets."""
        scores = self.decision_function(X)
        if self.task.kind == "classes":
            return np.asarray(self.task.labels[scores.argmax(axis=1)])
        if self.task.kind == "multilabel":
            return (scores > 0.5).astype(np.int64)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """The softmax of the scores, or for several labels a row the scores cut to [0, 1]. Not calibrated: an order, not odds."""
        if self.task.kind == "real":
            raise BadData("A model of real targets has no probabilities. Use predict.")
        scores = self.decision_function(X)
        if self.task.kind == "multilabel":
            return np.clip(scores, 0.0, 1.0)
        return np.asarray(scipy.special.softmax(scores, axis=1))

    def score(self, data: ClientData) -> float:
        """The task's own metric (`metric_of`) on rows that were checked before, each counted with its weight."""
        scores = [check.as_numpy(self.model.scores(block.x)) for block in data.blocks(1 << 14)]
        return score_of(data, np.concatenate(scores))

    def save(self, path: str | os.PathLike[str]) -> Path:
        """One safetensors file: arrays, labels, and the keys of random maps."""
        return write_file(path, self.to_bytes())

    def to_bytes(self) -> bytes:
        """The content of that file."""
        shape, found = _taken_apart(self.model, "m")
        facts = {
            "kind": "model",
            "client": self.client,
            "slot": self.slot,
            "model": shape,
            "task": {"kind": self.task.kind, "dimension": self.task.dimension, "labels": wire.listed(self.task.labels)},
        }
        return wire.to_bytes(Tree(found), **facts)


def score_of(data: ClientData, scores: NDArray[Any]) -> float:
    """The task's own metric of these scores: accuracy, accuracy of whole label sets, or R² (1 or 0 where the targets do not vary)."""
    y, w = check.as_numpy(data.y), check.as_numpy(data.weight)
    rows = row_values(data.task, scores, y)
    if data.task.kind != "real":
        return float(np.average(rows, weights=w))
    spread = (w[:, None] * (y - np.average(y, axis=0, weights=w)) ** 2).sum()
    left = (w * rows).sum()
    return float(1.0 - left / spread) if spread > 0 else float(left == 0)


def row_values(task: Task, scores: NDArray[Any], y: NDArray[Any]) -> NDArray[np.float64]:
    """For each row: 1 where it is answered right (all its labels, where it has several), or its squared error. (n,)"""
    if task.kind == "classes":
        return np.asarray(scores.argmax(axis=1) == y, dtype=np.float64)
    if task.kind == "multilabel":
        return np.asarray(((scores > 0.5) == (y > 0.5)).all(axis=1), dtype=np.float64)
    return np.asarray(((scores - y) ** 2).sum(axis=1))


def metric_of(task: Task) -> str:
    """What `Predictor.score` measures."""
    return {"classes": "accuracy", "multilabel": "subset_accuracy", "real": "r2"}[task.kind]


def _taken_apart(model: Model, at: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """A model's structure as JSON, and its arrays by path."""
    shape: dict[str, Any] = {"type": type(model).__name__}
    found: dict[str, Any] = {}
    for f in fields(model):
        value, path = getattr(model, f.name), f"{at}.{f.name}"
        if isinstance(value, Model):
            shape[f.name], inner = _taken_apart(value, path)
            found.update(inner)
        elif isinstance(value, RandomMap):
            shape[f.name] = {"random_map": asdict(value), "hash": value.hash}
        elif value is None:
            shape[f.name] = None
        else:
            shape[f.name], found[path] = path, value
    return shape, found


def _put_together(shape: Any, found: Tree) -> Any:
    if isinstance(shape, str):
        return found[shape]
    if shape is None:
        return None
    if "random_map" in shape:
        drawn = RandomMap(**shape["random_map"])
        if drawn.hash != shape["hash"]:
            raise BadFile("the random map drawn here is not the one that the model was made with")
        return drawn
    kinds = {kind.__name__: kind for kind in Model.__subclasses__()}
    if shape["type"] not in kinds:
        raise BadFile(f"it holds a model of type '{shape['type']}', which is not defined here")
    return kinds[shape["type"]](**{name: _put_together(part, found) for name, part in shape.items() if name != "type"})


def load_model(path: str | os.PathLike[str]) -> Predictor:
    """The model in a file that `Predictor.save` wrote."""
    return model_from_bytes(read_file(path), str(path))


def model_from_bytes(content: bytes, where: str) -> Predictor:
    """The model in the bytes of such a file."""
    found, facts = wire.from_bytes(content, where)
    if facts.get("kind") != "model":
        raise BadFile(f"{where} is no model but a {facts.get('kind', 'file')} of homeward's.")
    try:
        told = facts["task"]
        labels = wire.unlisted(told["labels"])
        task = Task(told["kind"], told["dimension"], len(labels), labels)
        model = _put_together(facts["model"], found)
        if not isinstance(model, Model):
            raise TypeError("it describes no model")
        return Predictor(model, task, facts["client"], facts["slot"])
    except (KeyError, TypeError, ValueError) as error:
        raise BadFile(f"{where} is damaged: {error}. Write it again or restore a copy.") from error
