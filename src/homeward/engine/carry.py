"""The loop: it is all there is. Between two rounds the server's side is one value, so a run can be saved and resumed there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from ..core.algebra import Message, plain
from ..core.method import Method, Round, Slot, State
from ..core.model import Model
from ..core.rng import rng_for
from ..core.task import Task

Address = tuple[int, str, int]
"""(seed, the round's name, its number within that name): a set-up round shifts no other round's batches."""


class Carrier(Protocol):
    """Whoever asks the clients: in process, over files, over a network."""

    def total(self, step: Round, shared: State, where: Address) -> Message:
        """Every client's answer to a round, added."""
        ...

    def models(self, shared: State, client: str, seed: int) -> Mapping[Slot, Model]:
        """A client's models, computed now, at the client."""
        ...


@dataclass(frozen=True, eq=False)
class Progress:
    """The server's side between two rounds."""

    server: State
    done: int = 0  # rounds behind us
    totals: tuple[Message, ...] = ()  # of the first rounds (`Method.kept`): where clients join and leave


def address(method: Method, seed: int, i: int) -> Address:
    """The address of round i of the plan."""
    names = [step.name for step in method.plan()[: i + 1]]
    return seed, names[i], names[:i].count(names[i])


def begun(method: Method, task: Task, seed: int) -> Progress:
    """Before the first round."""
    return Progress(method.init(task, rng_for(seed, "init")))


def advance(method: Method, task: Task, seed: int, at: Progress, total: Message) -> Progress:
    """The server's half of one round."""
    step = method.plan()[at.done]
    server = step.server(at.server, total, task, rng_for("server", *address(method, seed, at.done)))
    return Progress(plain(server), at.done + 1, (*at.totals, total) if at.done < method.kept else at.totals)


def over(method: Method, at: Progress) -> bool:
    """No round is left."""
    return at.done >= len(method.plan()) or method.finished(at.server)


def carry(
    method: Method,
    task: Task,
    clients: Carrier,
    seed: int,
    at: Progress | None = None,
    after: Callable[[Progress], None] = lambda at: None,
) -> Progress:
    """Round after round, from `at` or from the start. `after` each: save, report, show progress."""
    at = at or begun(method, task, seed)
    while not over(method, at):
        step = method.plan()[at.done]
        total = clients.total(step, method.shared(at.server), address(method, seed, at.done))
        at = advance(method, task, seed, at, total)
        after(at)
    return at
