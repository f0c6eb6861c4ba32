"""The loop over clients on this machine: the carrier that every other one must equal."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ..core import wire
from ..core.algebra import Both, Gather, Message, Sum, named, received, summed
from ..core.errors import BadValue
from ..core.method import Method, Round, Slot, State
from ..core.model import Model
from ..core.rng import rng_for
from ..core.task import ClientData
from .carry import Address

Traffic = dict[str, dict[str, int]]
Notice = Callable[[str, int, int], None]
"""What is being done, how much of it is behind us, and how much there is."""


def nobody_listens(what: str, done: int, of: int) -> None:
    """The notice of who wants none."""


def counted(traffic: Traffic, client: str, way: str, value: Any) -> None:
    """Adds a value to what a client has sent ("up") or received ("down"): the serialised bytes, and those of the arrays alone."""
    sums = traffic.setdefault(client, {"up": 0, "down": 0, "needed_up": 0, "needed_down": 0})
    sums[way] += wire.size(value)
    sums[f"needed_{way}"] += wire.needed(value)


@dataclass(eq=False)
class InProcess:
    """Clients one by one, in the order of their ids: float + is not associative."""

    method: Method
    data: Mapping[str, ClientData]
    states: dict[str, State] = field(default_factory=dict)
    traffic: Traffic = field(default_factory=dict)
    keep_messages: bool = False
    messages: dict[str, tuple[Message, ...]] = field(default_factory=dict)  # of the first rounds, where they are kept
    log: list[dict[str, Any]] = field(default_factory=list)
    notice: Notice = nobody_listens

    def total(self, step: Round, shared: State, where: Address) -> Message:
        """Every client's answer to a round, added in the order of their ids; states and bytes are noted once all have answered."""
        states, start = dict(self.states), time.perf_counter()  # states are kept only when all have answered
        sent = Traffic()
        apart: dict[str, Message] = {}

        def answers() -> Iterator[Message]:
            for i, client in enumerate(sorted(self.data)):
                self.notice(step.name, i, len(self.data))
                down = received(shared, client)
                if client not in states:
                    states[client] = self.method.begin(down, self.data[client], rng_for(where[0], "init"))
                message, states[client] = step.client(down, self.data[client], states[client], rng_for(*where, client))
                if not isinstance(message, Sum | Gather | Both):
                    raise BadValue(
                        f"Round '{step.name}' of {type(self.method).__name__} sends a {type(message).__name__}, which is no "
                        "message: return a Sum, a Gather or a Both."
                    )
                counted(sent, client, "down", down)
                counted(sent, client, "up", message)
                if self.keep_messages:
                    apart[client] = message
                yield named(message, client)

        total = summed(answers())
        self.states = states
        self._note(step, where, sent, apart, time.perf_counter() - start)
        return total

    def _note(self, step: Round, where: Address, sent: Traffic, apart: dict[str, Message], seconds: float) -> None:
        for client, sums in sent.items():
            known = self.traffic.setdefault(client, dict.fromkeys(sums, 0))
            self.traffic[client] = {way: known[way] + size for way, size in sums.items()}
        for client, message in apart.items():
            kept = self.messages.get(client, ())
            self.messages[client] = (*kept, message)[: self.method.kept]
        self.log.append(
            {
                "round": step.name,
                "number": where[2],
                "clients": len(sent),
                "seconds": round(seconds, 6),
                "up": sum(s["up"] for s in sent.values()),
                "down": sum(s["down"] for s in sent.values()),
            }
        )
        self.notice(step.name, len(self.data), len(self.data))

    def deliver(self, shared: State, clients: Iterable[str]) -> None:
        """Counts what goes down last: each client receives it once, to personalise."""
        for client in clients:
            counted(self.traffic, client, "down", received(shared, client))

    def knowing(self, data: Mapping[str, ClientData]) -> InProcess:
        """A carrier for these clients that knows what this one knows, in memory of its own."""
        traffic = {client: dict(sums) for client, sums in self.traffic.items()}
        return replace(
            self, data=data, states=dict(self.states), traffic=traffic, messages=dict(self.messages), log=list(self.log)
        )

    def without(self, client: str) -> None:
        """Drops all that is known of a client."""
        for known in (self.states, self.traffic, self.messages):
            known.pop(client, None)

    def models(self, shared: State, client: str, seed: int) -> Mapping[Slot, Model]:
        """A client's models, computed now from its own rows and state."""
        down, data = received(shared, client), self.data[client]
        state = self.states[client] if client in self.states else self.method.begin(down, data, rng_for(seed, "init"))
        return self.method.personalise(down, data, state, rng_for(seed, "personalise", client))
