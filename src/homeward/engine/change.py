"""Clients that come late or leave: the total of the first round is mended by their message, and what follows is carried again.

That is exact, to rounding, for methods of one round, and nobody else is asked: the others' models are computed anew when they are asked
for. With a second round every client must answer again, so until their rows are here the run says `pending`. A method whose first round
changes a client's state, or whose messages stay apart, runs again from the start.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ..core import wire
from ..core.algebra import Message, Sum, arrays
from ..core.errors import BadData, BadSetting, NotSubtractable, Pending, UnknownClient, nearest
from ..core.method import Round, Standardised, State
from ..core.task import Federation
from .carry import Address, Progress, address, advance, begun
from .inprocess import InProcess
from .run import Run

MOST_LOST = 1e6  # a subtraction may leave ten digits; fewer, and the sums are added up anew
Mend = Callable[[Any, Round, State, Address], Any]
"""From an old total, and the round it is of, to the new one."""


def join(run: Run, federation: Federation, scale: str = "again") -> Run:
    """A new Run with more clients.

    scale: what a standardised method does with its means and deviations. "again": measured anew, which asks every client; "keep": the old
    ones, and only the newcomers are asked (the receipt says so).
    """
    newcomers = _a_federation(federation).under(run.task)
    run = run if run.here else run.as_arrays_of(newcomers)
    clash = sorted(set(newcomers.clients) & set(run.ids))
    if clash:
        raise BadData(f"Client '{clash[0]}' is in this run already. Forget it first, or let it join under another id.")
    ids, most = tuple(sorted({*run.ids, *newcomers.clients})), run.task.declared.clients
    if most is not None and len(ids) > most:
        raise BadData(f"{len(ids)} clients with the newcomers, but the federation declared at most {most}.")
    together = newcomers if run.federation is None else run.federation.joined(newcomers)
    carrier = run.carrier.knowing(together.clients)
    alone = replace(carrier, data=newcomers.clients)

    def added(old: Any, step: Round, shared: State, where: Address) -> Any:
        return old + alone.total(step, shared, where)

    at = _mended(run, scale, added)
    carrier.states, carrier.traffic = alone.states, alone.traffic
    return _with_receipt(run, _settled(run, at, ids, together, carrier), at, "join", list(newcomers.clients), scale)


def forget(run: Run, client: str, federation: Federation | None, message: Any, scale: str = "again") -> Run:
    """A new Run without a client, equal to one that never had it, to rounding.

    What is subtracted comes from the client's rows (in the run, or in `federation`), from `message` (its message of the first round, or a
    tuple of those of all kept rounds), or from what the run kept (`keep_messages`).
    """
    if client not in run.ids:
        raise UnknownClient(f"No client '{client}' in this run of {len(run.ids)} clients. {nearest(client, run.ids)}")
    if len(run.ids) == 1:
        raise BadData(f"'{client}' is the only client: nothing would be left. Delete the run instead.")
    run = run if run.here or federation is None else run.as_arrays_of(_a_federation(federation))
    known = run.federation if federation is None else known_rows(run, federation)
    sent = _sender(run, client, known, message)

    left = None if known is None else _without(known, client)
    carrier = run.carrier.knowing(left.clients if left is not None else {})
    carrier.without(client)
    ids = tuple(name for name in run.ids if name != client)

    def taken(old: Any, step: Round, shared: State, where: Address) -> Any:
        new = old - sent(step, shared, where)
        if digits_lost(old, new) <= MOST_LOST:
            return new
        if set(ids) - set(carrier.data):
            raise Pending(
                f"The sums of '{client}' are so much larger than all others that what is left after subtracting them has lost its "
                "digits. The rows of all other clients are needed to add theirs up anew.",
                "Give federation=... with them.",
            )
        return InProcess(run.method, carrier.data).total(step, shared, where)

    at = _mended(run, scale, taken)
    return _with_receipt(run, _settled(run, at, ids, left, carrier), at, "forget", [client], scale)


def digits_lost(old: Any, new: Any) -> float:
    """How much larger the old total is than what a subtraction left of it: its rounding is that much worse."""
    if not isinstance(old, Sum):
        return 1.0
    before, after = old.scale(), new.scale()
    if not before:
        return 1.0
    return before / after if after > 0 else float("inf")


def _a_federation(value: Any) -> Federation:
    if not isinstance(value, Federation):
        raise BadData(
            f"federation is a {type(value).__name__}, not a Federation. Make one: hw.Federation.from_arrays(X, y, groups)."
        )
    return value


def known_rows(run: Run, federation: Federation) -> Federation:
    """All rows of the run's clients that are at hand: its own and those given, which must be the ones that were there."""
    given = _a_federation(federation).under(run.task)
    if not set(given.clients) & set(run.ids):
        raise BadData(
            f"None of the clients given is in this run, whose clients are {', '.join(run.ids[:5])}. Check the ids."
        )
    given = given.only(*(name for name in given.clients if name in run.ids))
    told = run.row_hashes()
    for name, data in given.clients.items():
        if told.get(name, data.hash) != data.hash:
            raise BadData(
                f"The rows given for '{name}' are not those that it joined with. Find the old ones, or give its message."
            )
    new = set(given.clients) - set(run.here)
    if run.federation is None or not new:
        return run.federation or given
    return run.federation.joined(given.only(*new))


def _sender(
    run: Run, client: str, known: Federation | None, message: Any
) -> Callable[[Round, State, Address], Message]:
    """Where a leaver's message comes from."""
    noted = run.carrier.messages.get(client, ())
    kept = noted
    if message is not None:
        kept = message if isinstance(message, tuple) else (message,)
        if noted and [wire.to_bytes(m) for m in kept] != [wire.to_bytes(m) for m in noted]:
            raise BadData(
                f"The message given is not the one that '{client}' sent in this run. Give its own, or leave it out: the run kept it."
            )
    names = [step.name for step in run.method.plan()]

    def sent(step: Round, shared: State, where: Address) -> Message:
        if message is None and known is not None and client in known.clients:
            return InProcess(run.method, {client: known.clients[client]}).total(step, shared, where)
        i = names.index(step.name)
        if i >= len(kept):
            raise Pending(
                f"To forget '{client}', its rows or its message of round '{step.name}' are needed.",
                "Give federation=... or message=...",
            )
        return kept[i]

    return sent


def _without(federation: Federation, client: str) -> Federation | None:
    if client not in federation.clients:
        return federation
    return federation.without(client) if len(federation.clients) > 1 else None


def _mended(run: Run, scale: str, mend: Mend) -> Progress | None:
    """The progress after the last round whose total can be mended; None where a method must run again from the start."""
    if scale not in ("again", "keep"):
        raise BadSetting(f"scale = {scale!r}, but it is 'again' or 'keep'.")
    method, at = run.method, begun(run.method, run.task, run.seed)
    if not method.plan():
        return at
    if not run.progress.totals or any(arrays(state) for state in run.carrier.states.values()):
        return None
    if scale == "keep" and isinstance(method, Standardised) and len(run.progress.totals) == method.kept:
        at = _with_old_scale(run, at, mend)
    step = method.plan()[at.done]
    try:
        total = mend(run.progress.totals[at.done], step, method.shared(at.server), address(method, run.seed, at.done))
    except NotSubtractable:
        return None
    return advance(method, run.task, run.seed, at, total)


def _with_old_scale(run: Run, at: Progress, mend: Mend) -> Progress:
    """After the round that measures columns: its total is mended, so that it can be measured anew later, but means and deviations stay."""
    step = run.method.plan()[0]
    total = mend(run.progress.totals[0], step, run.method.shared(at.server), address(run.method, run.seed, 0))
    return Progress(at.server | run.progress.server.only("mean", "scale"), 1, (total,))


def _settled(
    run: Run,
    at: Progress | None,
    ids: tuple[str, ...],
    federation: Federation | None,
    carrier: InProcess,
) -> Run:
    """The new run, carried as far as the rows at hand allow."""
    here = set(federation.clients) if federation is not None else set()
    if at is None:
        if set(ids) - here:
            raise Pending(
                f"{type(run.method).__name__} must run again from the start for this, with the rows of all clients.",
                "Give federation=... with them.",
            )
        carrier.states, carrier.messages = {}, {}
        at = begun(run.method, run.task, run.seed)
    new = Run(
        run.method,
        run.task,
        run.seed,
        at,
        federation,
        carrier,
        ids,
        {name: digest for name, digest in run.row_hashes().items() if name in ids},
        {name: load for name, load in run.stored.items() if name in ids},
        frozenset(ids),
        run.receipts,
        run.origin,
        noted=tuple(row for row in run.noted if row["client"] in ids),
    )
    return new.resume() if new.finished or not set(ids) - here else new


PROOFS = {
    "join": "that the sums changed by these clients' messages",
    "forget": "that the sums changed by this client's message; not that models handed out before have forgotten it",
}


def _with_receipt(before: Run, after: Run, mended: Progress | None, action: str, clients: list[str], scale: str) -> Run:
    """The new run with what can be shown of the change. Hashes are of the first round's sums, so one receipt leads to the next."""
    again = mended is None or mended.done < len(before.method.plan())
    receipt = {
        "action": action,
        "clients": clients,
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "rows": [before.row_hashes().get(name) or after.row_hashes().get(name) for name in clients],
        "sums_before": _hash(before.progress),
        "sums_after": _hash(after.progress),
        "scale": scale if isinstance(before.method, Standardised) else None,
        "asked_again": [name for name in before.ids if again and name not in clients],
        "pending": list(after.pending),
        "proves": PROOFS[action],
    }
    return replace(after, receipts=(*before.receipts, receipt))


def _hash(at: Progress) -> str:
    return hashlib.sha256(b"".join(map(wire.to_bytes, at.totals[:1]))).hexdigest()
