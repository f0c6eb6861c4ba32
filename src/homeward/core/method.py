"""The one abstraction: a method is a list of rounds; a round is a function at the client and a function at the server.

What a client sends is a value that adds (`algebra`). Secure sums, data in pieces, late joiners, exact removal, resuming after a crash
and running over any transport follow from these two sentences.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from . import settings
from .algebra import Array, Message, Sum, Tree, namespace
from .errors import BadSetting
from .linalg import any_array, double
from .model import Model, Scaled, scaled_rows
from .rng import Rng
from .task import ChunkedRows, ClientData, Task

State: TypeAlias = Any
"""A value (Tree, Sum) whose type the method's own annotations name: the server's state, what goes down, a client's state."""


class Slot(NamedTuple):
    """The name of one of a client's models. `slot` says at which moment of training it is taken, where a method has several."""

    model: str
    slot: str = ""

    def __str__(self) -> str:
        return f"{self.model}.{self.slot}" if self.slot else self.model


class Round(NamedTuple):
    """One exchange. Both functions are pure."""

    name: str  # part of every address: ("train", 3); what trains is "train" in every method
    client: Callable[[State, ClientData, State, Rng], tuple[Message, State]]  # its annotation names the message
    server: Callable[[State, Any, Task, Rng], State]  # the messages arrive added
    everyone: bool = False  # no sampling of participants in this round
    bounds: Callable[[State, Task], Message] | None = None  # what no message exceeds: masks take their scale from it


@dataclass(frozen=True)
class Method(ABC):
    """A frozen dataclass of settings. Whatever changes is an argument and a result."""

    stackable = True  # may be mapped over a stack of padded clients; not annotated, so not a setting
    kept = 1  # totals of so many first rounds stay with the run, for clients to join and leave there

    def __post_init__(self) -> None:
        settings.check(self)

    @abstractmethod
    def plan(self) -> Sequence[Round]:
        """The rounds, in order. May be empty: then nothing leaves a client."""

    @abstractmethod
    def personalise(self, shared: State, data: ClientData, state: State, rng: Rng) -> dict[Slot, Model]:
        """A client's models, at the client, never sent. The first is the headline."""

    def init(self, task: Task, rng: Rng) -> State:
        """The server's first state, and the place to refuse a task."""
        return Tree()

    def shared(self, server: State) -> State:
        """All that goes down."""
        return server

    def begin(self, shared: State, data: ClientData, rng: Rng) -> State:
        """A client's first state, however late it comes; rng is the common init's."""
        return Tree()

    def stranger(self, shared: State) -> Model | None:
        """The model of a client that nobody knows; None where there is no such model."""
        return None

    def finished(self, server: State) -> bool:
        """Stop before the plan ends."""
        return False

    def estimate(self, shared: State, data: ClientData, state: State, rng: Rng) -> Mapping[Slot, Array]:
        """Scores of the client's own rows by models that did not see them, where the method has such a closed form. (n, c)"""
        return {}

    @property
    def settings(self) -> dict[str, Any]:
        """The settings by name, for manifests and rows."""
        return {f.name: getattr(self, f.name) for f in fields(self)}


@dataclass(frozen=True, eq=False)
class ColumnSums(Sum):
    """What a mean and a variance are made of, about a shift that everyone knows."""

    weight: Array  # ()   sum of the rows' weights
    sums: Array  # (d,)
    squares: Array  # (d,)

    @classmethod
    def of(cls, data: ClientData, shift: Array) -> ColumnSums:
        weight: Any = np.zeros(())
        sums: Any = np.zeros(data.task.dimension)
        squares: Any = np.zeros(data.task.dimension)
        for block in data.blocks(1 << 14):
            x = double(block.x) - any_array(shift, like=block.x)
            weight = block.weight.sum() + any_array(weight, like=block.x)
            sums = block.weight @ x + any_array(sums, like=block.x)
            squares = block.weight @ (x * x) + any_array(squares, like=block.x)
        return cls(weight, sums, squares)

    def scale(self) -> float:
        return float(self.squares.max())

    def columns(self, shift: Array) -> Tree:
        """Mean and standard deviation of each column; the variance is at least 1e-12 of its mean square, and 1 for a column of zeros."""
        xp = namespace(self.sums)
        n = float(self.weight) or 1.0
        mean, square = self.sums / n, self.squares / n
        floor = 1e-12 * (square + double(any_array(shift, like=square)) ** 2)
        variance = xp.maximum(square - mean * mean, floor)
        return Tree(mean=mean + any_array(shift, like=mean), scale=xp.where(variance > 0, xp.sqrt(variance), 1.0))


def middle(task: Task) -> Any:
    """The middle of the declared range of each column, or 0: squares about 0 cancel where a mean is 1e6 deviations away."""
    low, high = task.declared.low, task.declared.high
    return (
        np.zeros(task.dimension)
        if low is None or high is None
        else np.broadcast_to((np.asarray(low) + np.asarray(high)) / 2.0, (task.dimension,))
    )


@dataclass(frozen=True)
class Standardised(Method):
    """A method on columns of mean 0 and deviation 1, by one more round whose sums add like all others.

    mean = S / n, variance = Q / n - mean², with n, S, Q the sums of weights, values and squares over every row of the federation. Proxy
    and validation rows of the task are scaled too. A model that comes home takes rows as they are. A method without rounds gets none: each
    client scales by its own rows.
    """

    method: Method

    def __post_init__(self) -> None:
        if not isinstance(self.method, Method):
            raise BadSetting(f"standardised needs a method such as hw.APFL(), not {self.method!r}.")

    @property
    def stackable(self) -> bool:  # type: ignore[override]
        return self.method.stackable

    @property
    def kept(self) -> int:  # type: ignore[override]
        return self.method.kept + 1

    @property
    def alone(self) -> bool:
        """A method that sends nothing still sends nothing: each client measures its own columns."""
        return not self.method.plan()

    def init(self, task: Task, rng: Rng) -> Tree:
        return Tree(shift=middle(task), inner=self.method.init(task, rng))

    def plan(self) -> Sequence[Round]:
        if self.alone:
            return []
        first = Round("standardise", self.measure, self.settle, everyone=True)
        return [
            first,
            *(
                step._replace(client=partial(self._client, step), server=partial(self._server, step))
                for step in self.method.plan()
            ),
        ]

    def measure(self, shared: Tree, data: ClientData, state: Tree, rng: Rng) -> tuple[ColumnSums, Tree]:
        return ColumnSums.of(data, shared["shift"]), state

    def settle(self, server: Tree, total: ColumnSums, task: Task, rng: Rng) -> Tree:
        return server | total.columns(server["shift"])

    def _client(self, step: Round, shared: Tree, data: ClientData, state: State, rng: Rng) -> tuple[Message, State]:
        return step.client(shared["inner"], scaled(data, shared), state, rng)

    def _server(self, step: Round, server: Tree, total: Message, task: Task, rng: Rng) -> Tree:
        return server | Tree(inner=step.server(server["inner"], total, _scaled_task(task, server), rng))

    def shared(self, server: Tree) -> Tree:
        return server | Tree(inner=self.method.shared(server["inner"]))

    def _columns(self, shared: Tree, data: ClientData) -> Tree:
        """Mean and deviation, as the federation measured them or as a client that is alone does."""
        return ColumnSums.of(data, shared["shift"]).columns(shared["shift"]) if self.alone else shared

    def begin(self, shared: Tree, data: ClientData, rng: Rng) -> State:
        return self.method.begin(shared["inner"], scaled(data, self._columns(shared, data)), rng)

    def personalise(self, shared: Tree, data: ClientData, state: State, rng: Rng) -> dict[Slot, Model]:
        by = self._columns(shared, data)
        models = self.method.personalise(shared["inner"], scaled(data, by), state, rng)
        return {slot: Scaled(model, by["mean"], by["scale"]) for slot, model in models.items()}

    def estimate(self, shared: Tree, data: ClientData, state: State, rng: Rng) -> Mapping[Slot, Array]:
        return self.method.estimate(shared["inner"], scaled(data, self._columns(shared, data)), state, rng)

    def stranger(self, shared: Tree) -> Model | None:
        model = self.method.stranger(shared["inner"])
        return None if model is None else Scaled(model, shared["mean"], shared["scale"])

    def finished(self, server: Tree) -> bool:
        return self.method.finished(server["inner"])


def standardised(method: Method) -> Standardised:
    """The method, on columns scaled by the federation's own mean and deviation."""
    return Standardised(method)


def scaled(data: ClientData, by: Tree) -> ClientData:
    """A client's rows with each column scaled; before the scale is known, as they are."""
    if "mean" not in by:
        return data
    mean, scale = by["mean"], by["scale"]
    if isinstance(data.x, ChunkedRows):
        source = data.x
        x: Any = ChunkedRows(
            lambda: (scaled_rows(c, mean, scale) for c in source.chunks()), source.lengths, source.shape[1]
        )
    else:
        x = scaled_rows(data.x, mean, scale)
    return replace(data, x=x)


def _scaled_task(task: Task, by: Tree) -> Task:
    public, valid = (
        None if rows is None else scaled_rows(rows, by["mean"], by["scale"]) for rows in (task.public, task.valid)
    )
    return replace(task, public=public, valid=valid)
