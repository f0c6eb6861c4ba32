"""`fit`, and what comes of it: a `Run` with models, scores and traffic, that clients join and leave, and that is saved and resumed."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from ..core import check
from ..core.algebra import mapped, received
from ..core.errors import BadData, BadSetting, Pending, UnknownClient, nearest
from ..core.linalg import any_array
from ..core.method import Method, Slot, Standardised
from ..core.model import Predictor, metric_of, score_of
from ..core.rng import rng_for
from ..core.settings import Count
from ..core.task import ClientData, Federation, Task
from ..methods import name_of
from .carry import Progress, begun, carry, over
from .inprocess import InProcess, Notice, Traffic, nobody_listens
from .threads import side_by_side

ENGINES = ("inprocess", "loop")


def fit(
    method: Method,
    federation: Federation,
    *,
    seed: int = 0,
    engine: str = "inprocess",
    checkpoint: str | os.PathLike[str] | None = None,
    resume: bool = False,
    files: Mapping[str, bytes] | None = None,
    keep_messages: bool = False,
    notice: Notice = nobody_listens,
) -> Run:
    """Learns a method on a federation.

    checkpoint: a folder that holds the run after every round, with `files` beside it. resume: go on from there, to the same bits.
    keep_messages: the run keeps what each client sent in the first round, so that it can be forgotten later without its data.
    """
    if engine not in ENGINES:
        raise BadSetting(
            f"engine = {engine!r}, but this version has {' and '.join(ENGINES)}. {nearest(engine, ENGINES)}"
        )
    if not isinstance(method, Method):
        raise BadSetting(f"fit needs a method such as hw.APFL(), not {method!r}. For names use hw.METHODS[name]().")
    if not isinstance(federation, Federation):
        raise BadData(
            f"fit needs a Federation, not a {type(federation).__name__}. Make one: hw.Federation.from_arrays(X, y, groups)."
        )
    if not Count().accepts(seed):
        raise BadSetting(f"seed = {seed!r}, but fit needs {Count()}.")
    if resume and checkpoint is None:
        raise BadSetting("resume = True, but no folder to resume from. Name it with checkpoint=...")
    seed = int(seed)
    carrier = InProcess(method, federation.clients, keep_messages=keep_messages, notice=notice)
    run = Run(method, federation.task, seed, begun(method, federation.task, seed), federation, carrier)
    if resume and checkpoint is not None:
        from .store import load_run  # the store reads and writes runs: it stands on this module

        run = load_run(checkpoint, federation=federation, method=method, notice=notice).matching(run)
    return run.resume(checkpoint, files)


@dataclass(frozen=True, eq=False)
class Run:
    """A method that was carried, on the clients that took part. `join` and `forget` give a new Run."""

    method: Method
    task: Task
    seed: int
    progress: Progress
    federation: Federation | None  # the rows that are here: of all clients, of some, or of none
    carrier: InProcess
    ids: tuple[str, ...] = ()  # everyone in the run; left out: the federation's clients
    hashes: Mapping[str, str] = field(default_factory=dict)  # of each client's rows
    stored: Mapping[str, Callable[[], Mapping[Slot, Predictor]]] = field(
        default_factory=dict
    )  # models at home, on disk
    stale: frozenset[str] = frozenset()  # whose stored models are older than the global one
    receipts: tuple[Mapping[str, Any], ...] = ()
    origin: Mapping[str, str] = field(default_factory=dict)
    delivered: bool = False  # what goes down last has been counted
    noted: tuple[
        Mapping[str, Any], ...
    ] = ()  # rows of results that were saved, for clients whose own rows are not here

    def __post_init__(self) -> None:
        if not self.ids:
            object.__setattr__(self, "ids", tuple(sorted(self.here)))
        if not self.origin and self.federation is not None:
            object.__setattr__(self, "origin", dict(self.federation.origin))

    @property
    def here(self) -> Mapping[str, ClientData]:
        """The training rows at hand."""
        return self.federation.clients if self.federation is not None else {}

    def row_hashes(self) -> dict[str, str]:
        """Of every client's rows: those that are here, and as they were noted for those that are not."""
        return {**self.hashes, **{name: data.hash for name, data in self.here.items()}}

    @property
    def finished(self) -> bool:
        """No round is left to carry."""
        return over(self.method, self.progress)

    @property
    def pending(self) -> tuple[str, ...]:
        """Clients whose model must be refreshed before it can be had, with their rows at hand."""
        if not self.finished:
            return self.ids
        return tuple(name for name in self.ids if self._waits(name))

    def _waits(self, client: str) -> bool:
        """Neither this client's rows nor a fresh model of it are here."""
        return client not in self.here and (client in self.stale or client not in self.stored)

    def resume(self, checkpoint: str | os.PathLike[str] | None = None, files: Mapping[str, bytes] | None = None) -> Run:
        """Carries what rounds are left. Everyone's rows must be here."""
        if not self.finished:
            return replace(self, progress=self._carried(checkpoint, files)).resume(checkpoint, files)
        if not self.delivered:
            self.carrier.deliver(self.shared, self.ids)
        done = replace(self, delivered=True)
        if checkpoint is not None:
            done.save(checkpoint, files)
        return done

    def _carried(self, checkpoint: str | os.PathLike[str] | None, files: Mapping[str, bytes] | None) -> Progress:
        missing = sorted(set(self.ids) - set(self.here))
        if missing:
            raise Pending(
                f"Round {self.progress.done + 1} asks every client, but the rows of '{missing[0]}' are not here.",
                "Give federation=... with all clients.",
            )

        def after(at: Progress) -> None:
            if checkpoint is not None and not over(self.method, at):  # the last round is saved with the models, once
                replace(self, progress=at).save(checkpoint, files)

        return carry(self.method, self.task, self.carrier, self.seed, self.progress, after)

    def matching(self, other: Run) -> Run:
        """This run, where another is of the same method, seed and rows; used before it is resumed."""
        for what, mine, its in (
            ("method", self.method, other.method),
            ("seed", self.seed, other.seed),
            ("list of classes", self.task.labels.tolist(), other.task.labels.tolist()),
            ("set of rows", self.row_hashes(), other.row_hashes()),
        ):
            if mine != its:
                raise BadData(
                    f"The run saved there has another {what}, so it cannot be resumed with this one. Use a new folder, or the old {what}."
                )
        return self

    def at_hand(self, federation: Federation) -> Run:
        """The same run with these rows at hand."""
        run = self.as_arrays_of(federation)
        return replace(run, federation=federation, carrier=run.carrier.knowing(federation.clients))

    def as_arrays_of(self, federation: Federation) -> Run:
        """The same run in the array library of these rows, and on their device: what comes from disk is NumPy."""
        like = next(iter(federation.clients.values())).y

        def moved(value: Any) -> Any:
            return mapped(value, lambda a: any_array(a, like=like))

        at, old = self.progress, self.carrier
        carrier = replace(
            old,
            states={name: moved(state) for name, state in old.states.items()},
            messages={name: tuple(map(moved, kept)) for name, kept in old.messages.items()},
        )
        progress = replace(at, server=moved(at.server), totals=tuple(map(moved, at.totals)))
        return replace(self, progress=progress, carrier=carrier)

    # models
    @property
    def shared(self) -> Any:
        """All that went down last."""
        return self.method.shared(self.progress.server)

    def models(self, client: str) -> Mapping[Slot, Predictor]:
        """All models of a client, the headline first."""
        if client in self._cache:
            return self._cache[client]
        if client not in self.here and client not in self.ids:
            raise UnknownClient(
                f"No client '{client}' in this run of {len(self.ids)} clients. {nearest(client, self.ids)}"
            )
        if not self.finished or self._waits(client):
            raise Pending(
                f"The model of client '{client}' must be computed anew, and its rows are not here."
                + (" The one from before the change is still in its file." if client in self.stored else ""),
                "Load the run with federation=... that holds them.",
            )
        if client in self.here:
            self._compute([client])
        else:
            self._cache[client] = self.stored[client]()
        return self._cache[client]

    def compute(self) -> None:
        """All models that can be had now: they are computed when asked for anyway, but one by one."""
        if self.finished:
            self._compute([name for name in self.ids if name in self.here])

    def _compute(self, clients: Sequence[str]) -> None:
        """Models of clients whose rows are here: several at once, each with one thread of linear algebra, so that the numbers do not
        depend on who else is computed."""
        missing, shared = [client for client in clients if client not in self._cache], self.shared

        def computed(client: str) -> dict[Slot, Predictor]:
            found = self.carrier.models(shared, client, self.seed)
            return {slot: Predictor(model, self.task, client, slot.model) for slot, model in found.items()}

        with side_by_side(len(self.ids)) as each:
            for number, (client, models) in enumerate(zip(missing, each(computed, missing), strict=True)):
                self._cache[client] = models
                if len(missing) > 1:
                    self.carrier.notice("models", number + 1, len(missing))

    @cached_property
    def _cache(self) -> dict[str, Mapping[Slot, Predictor]]:
        return {}

    def model(self, client: str, slot: str | None = None) -> Predictor:
        """A client's model: the headline, or the one of that name ("personal", "global")."""
        models = self.models(client)
        if slot is None:
            return next(iter(models.values()))
        for name, model in models.items():
            if slot in (name.model, str(name)):
                return model
        raise BadSetting(f"{type(self.method).__name__} gives no '{slot}' model. {nearest(slot, map(str, models))}")

    @cached_property
    def stranger(self) -> Predictor | None:
        """The model of a client that nobody knows, if there is one."""
        if not self.finished:
            return None
        model = self.method.stranger(self.shared)
        return None if model is None else Predictor(model, self.task, None, "global")

    # rows
    def scores(self, split: str | None = None) -> list[dict[str, Any]]:
        """A row for every client, split and model: on test and validation rows where there are any, else on training rows.

        split: one of test, val, train, or loo (leave-one-out on training rows, where the method has it: see its `estimate`).
        """
        self.compute()
        splits = [split] if split else [s for s in ("val", "test") if self._rows_of(s)] or ["train"]
        scored = [row for s in splits for name in self.ids if name in self.here for row in self._score(name, s)]
        return scored + [dict(row) for row in self._noted() if split in (None, row["split"])]

    def _noted(self) -> list[Mapping[str, Any]]:
        """Rows as they were saved, of clients whose own rows are not here and whose models are as they were."""
        away = set(self.ids) - set(self.here) - self.stale
        return [row for row in self.noted if row["client"] in away]

    def _rows_of(self, split: str) -> Mapping[str, ClientData]:
        if split not in ("train", "val", "test", "loo"):
            raise BadSetting(f"There is no split '{split}'. {nearest(split, ('train', 'val', 'test', 'loo'))}")
        if self.federation is None:
            return {}
        return {
            "train": self.federation.clients,
            "val": self.federation.valids,
            "test": self.federation.tests,
            "loo": self.federation.clients,
        }[split]

    def _score(self, client: str, split: str) -> Iterator[dict[str, Any]]:
        data = self._rows_of(split).get(client)
        if data is None or data.n == 0 or float(data.weight.sum()) == 0:
            return
        if (client, split) not in self._values:
            self._values[client, split] = (self._left_out if split == "loo" else self._met)(client, data)
        for slot, value in self._values[client, split].items():
            yield {
                **self.facts,
                "client": client,
                "split": split,
                "model": slot.model,
                "slot": slot.slot,
                "metric": metric_of(self.task),
                "value": value,
            }

    @cached_property
    def _values(self) -> dict[tuple[str, str], dict[Slot, float]]:
        """Of a client on a split: a run does not change, and it is saved, told and drawn from the same numbers."""
        return {}

    def _met(self, client: str, data: ClientData) -> dict[Slot, float]:
        return {slot: model.score(data) for slot, model in self.models(client).items()}

    def _left_out(self, client: str, data: ClientData) -> dict[Slot, float]:
        down, state = received(self.shared, client), self.carrier.states.get(client)
        if state is None:
            state = self.method.begin(down, data, rng_for(self.seed, "init"))
        found = self.method.estimate(down, data, state, rng_for(self.seed, "estimate", client))
        seen = data.rows(check.as_numpy(data.weight).nonzero()[0])
        return {slot: score_of(seen, check.as_numpy(scores)) for slot, scores in found.items()}

    @cached_property
    def facts(self) -> dict[str, Any]:
        """What every row of this run says of where it comes from."""
        inner = self.method.method if isinstance(self.method, Standardised) else self.method
        return {
            "data": self.origin.get("data") or self._rows_hash[:12],
            "partition": " ".join(filter(None, (self.origin.get("partition"), self.origin.get("holdout")))),
            "method": name_of(inner),
            "settings": {**inner.settings, "standardise": inner is not self.method},
            "seed": self.seed,
            "round": self.progress.done,
        }

    @cached_property
    def _rows_hash(self) -> str:
        """Of everybody's training rows: a name for data that were given none."""
        return hashlib.sha256(repr(sorted(self.row_hashes().items())).encode()).hexdigest()

    def __repr__(self) -> str:
        of = f"{self.progress.done} of {len(self.method.plan())} rounds"
        return (
            f"Run({name_of(self.method)}, {len(self.ids)} clients, {of}, seed {self.seed}, {len(self.pending)} pending)"
        )

    @property
    def traffic(self) -> Traffic:
        """Bytes sent and received by each client: serialised, and `needed` (the arrays alone)."""
        empty = {"up": 0, "down": 0, "needed_up": 0, "needed_down": 0}
        return {name: dict(self.carrier.traffic.get(name, empty)) for name in self.ids}

    # what may still change
    def join(self, federation: Federation, *, scale: str = "again") -> Run:
        """A new Run with more clients; see `change.join`."""
        from .change import join  # stands on this module

        return join(self, federation, scale)

    def forget(
        self, client: str, *, federation: Federation | None = None, message: Any = None, scale: str = "again"
    ) -> Run:
        """A new Run without a client, equal to one that never had it; see `change.forget`."""
        from .change import forget  # stands on this module

        return forget(self, client, federation, message, scale)

    def save(self, path: str | os.PathLike[str], files: Mapping[str, bytes] | None = None) -> Any:
        """A run folder, put in place whole: manifest, rows, models, the server's state, states of clients, and `files` beside them."""
        from .store import save_run

        return save_run(self, path, files or {})
