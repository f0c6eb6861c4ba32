"""The conformance suite: what holds for every method, asked of any. `hw.testing.check_method(MyMethod)` raises where one does not."""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .core import check, wire
from .core.algebra import Both, Gather, Sum, arrays, mapped, named, received, summed
from .core.errors import NotSubtractable, UnknownClient
from .core.method import Method, Round
from .core.rng import Rng, rng_for
from .core.task import ClientData, Federation
from .engine.carry import address, begun, carry
from .engine.inprocess import InProcess
from .engine.run import Run, fit
from .engine.store import load_run
from .methods import METHODS

SEED = 3


def toy(dtype: Any = np.float64, columns: int = 6, rows: int = 24) -> Federation:
    """Six clients of three classes: three usual ones, one without a class, one with a single class, and one with a single row."""
    sizes = {"a": rows, "b": rows - 5, "c": rows + 3, "no class 2": rows, "one class": rows // 2, "one row": 1}
    x, y, groups = [], [], []
    for name, n in sizes.items():
        rng = rng_for("toy", name)
        labels = rng.at("y").order(n) % (2 if name == "no class 2" else 1 if name == "one class" else 3)
        noise = rng.at("x").uniform(n * columns).reshape(n, columns)
        centres = rng_for("toy", "centres").uniform(3 * columns).reshape(3, columns)
        x.append(noise + centres[labels])
        y.append(labels)
        groups += [name] * n
    return Federation.from_arrays(np.concatenate(x).astype(dtype), np.concatenate(y), groups, classes=[0, 1, 2])


def frozen(federation: Federation) -> Federation:
    """The same rows, in memory that cannot be written to."""

    def locked(a: NDArray[Any]) -> NDArray[Any]:
        copy = a.copy()
        copy.setflags(write=False)
        return copy

    def kept(data: ClientData) -> ClientData:
        return replace(data, x=locked(data.x), y=locked(data.y), weight=locked(data.weight))

    return replace(federation, clients={name: kept(data) for name, data in federation.clients.items()})


def renamed(federation: Federation, names: Mapping[str, str]) -> Federation:
    """The same clients under other ids."""
    return replace(federation, clients={names[name]: data for name, data in federation.clients.items()})


def _scores(run: Run, client: str) -> NDArray[np.float64]:
    """All scores of all models of a client, on everybody's rows."""
    x = check.as_numpy(toy().pooled.x)
    return np.stack([model.decision_function(x) for model in run.models(client).values()])


def _bits(run: Run) -> list[bytes]:
    server = [np.asarray(check.as_numpy(a)).tobytes() for a in arrays(run.progress.server)]
    return server + [_scores(run, client).tobytes() for client in run.ids]


def _near(a: Any, b: Any, what: str, tolerance: float = 1e-7) -> None:
    left, right = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    finite = np.isfinite(right)
    size = float(np.abs(right[finite]).max(initial=0.0))
    off = float(np.abs(left[finite] - right[finite]).max(initial=0.0))
    same = np.array_equal(left[~finite], right[~finite], equal_nan=True)
    assert same and off <= tolerance * (1.0 + size), f"{what} (by {off:.3g}, at a size of {size:.3g})"


class WatchedRng:
    """An Rng that tells whether it was drawn from."""

    def __init__(self, rng: Rng, drawn: list[str]) -> None:
        self._rng, self._drawn = rng, drawn

    def at(self, *where: str | int) -> WatchedRng:
        return WatchedRng(self._rng.at(*where), self._drawn)

    def __getattr__(self, name: str) -> Any:
        self._drawn.append(name)
        return getattr(self._rng, name)


def draws(method: Method, federation: Federation) -> bool:
    """Whether some round of a method draws from its rng at the client."""
    drawn: list[str] = []

    def watched(step: Round, shared: Any, data: ClientData, state: Any, rng: Any) -> Any:
        return step.client(shared, data, state, WatchedRng(rng, drawn))  # type: ignore[arg-type]

    carrier = InProcess(method, federation.clients)
    at = begun(method, federation.task, SEED)
    for i, step in enumerate(method.plan()):
        total = carrier.total(
            step._replace(client=partial(watched, step)), method.shared(at.server), address(method, SEED, i)
        )
        at = replace(at, server=step.server(at.server, total, federation.task, rng_for("watched", i)), done=i + 1)
    return bool(drawn)


def pure(method: Method) -> None:
    """Nothing given is written to, and the method stays as it was."""
    before, federation = repr(method), frozen(toy())
    hashes = {name: data.hash for name, data in federation.clients.items()}
    _carried_locked(method, federation)
    assert repr(method) == before, f"{type(method).__name__} changed itself: settings are fixed once it is made"
    for name in federation.clients:
        fresh = ClientData(federation.task, *(getattr(federation.clients[name], f) for f in ("x", "y", "weight")))
        assert fresh.hash == hashes[name], f"the rows of client '{name}' were written to"


def _locked(value: Any) -> Any:
    """The same value in memory that cannot be written to."""

    def lock(a: Any) -> Any:
        if not isinstance(a, np.ndarray):
            return a
        copy = a.copy()
        copy.setflags(write=False)
        return copy

    return mapped(value, lock)


def _carried_locked(method: Method, federation: Federation) -> None:
    """The whole method, each function given memory that cannot be written to."""
    task = federation.task
    states: dict[str, Any] = {}
    server = _locked(method.init(task, rng_for(SEED, "init")))
    for i, step in enumerate(method.plan()):
        shared, sent = _locked(method.shared(server)), []
        for client, data in sorted(federation.clients.items()):
            down = received(shared, client)
            state = states.get(client) or _locked(method.begin(down, data, rng_for(SEED, "init")))
            message, state = step.client(down, data, state, rng_for(*address(method, SEED, i), client))
            kind = type(message).__name__
            assert isinstance(message, Sum | Gather | Both), f"round '{step.name}' sends a {kind}, which is no message"
            states[client] = _locked(state)
            sent.append(named(_locked(message), client))
        total = _locked(summed(sent))
        server = _locked(step.server(server, total, task, rng_for("server", i)))
    shared = _locked(method.shared(server))
    for client, data in federation.clients.items():
        down = received(shared, client)
        state = states.get(client) or _locked(method.begin(down, data, rng_for(SEED, "init")))
        method.personalise(down, data, state, rng_for(SEED, "personalise", client))
    method.stranger(shared)


def leaving(method: Method) -> None:
    """A client that leaves was never there, and one that joins always was, for everybody else's models."""
    whole, without = fit(method, toy(), seed=SEED), fit(method, toy().without("b"), seed=SEED)
    left = whole.forget("b")
    back = left.join(toy().only("b"))
    for client in without.ids:
        _near(_scores(left, client), _scores(without, client), f"after 'b' left, the model of '{client}' is another")
        _near(_scores(back, client), _scores(whole, client), f"after 'b' came back, the model of '{client}' is another")


def same_twice(method: Method) -> None:
    """The same inputs and seed give the same bits."""
    assert _bits(fit(method, toy(), seed=SEED)) == _bits(fit(method, toy(), seed=SEED)), "two equal fits differ"


def order_of_clients(method: Method) -> None:
    """The order in which clients are listed does not matter."""
    turned = replace(toy(), clients=dict(reversed(list(toy().clients.items()))))
    assert _bits(fit(method, toy(), seed=SEED)) == _bits(fit(method, turned, seed=SEED)), (
        "listing clients in another order changed the result"
    )


def names_of_clients(method: Method) -> None:
    """Nor do their names, to rounding, where no round draws from its rng (a renamed client draws other batches)."""
    if draws(method, toy()):
        return
    other = {name: f"z{9 - i}" for i, name in enumerate(toy().clients)}
    a, b = fit(method, toy(), seed=SEED), fit(method, renamed(toy(), other), seed=SEED)
    for client in a.ids:
        _near(_scores(a, client), _scores(b, other[client]), f"renaming clients changed the model of '{client}'")


class _Killed(Exception):
    """Stands for a process that ends between two rounds."""


def resumed(method: Method) -> None:
    """Saved after any round and resumed from disk, a run ends in the same bits."""
    run = fit(method, toy(), seed=SEED)
    whole = _bits(run)
    with tempfile.TemporaryDirectory() as folder:
        loaded = load_run(run.save(Path(folder) / "run"), method=method)
        for client in run.ids:
            kept = loaded.model(client).decision_function(toy().pooled.x)
            assert np.array_equal(kept, _scores(run, client)[0], equal_nan=True), (
                f"the model of '{client}' changed on its way to disk and back"
            )
    for rounds in range(1, len(method.plan())):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "run"
            _interrupted(method, rounds, path)
            assert load_run(path, method=method).progress.done == rounds
            again = fit(method, toy(), seed=SEED, checkpoint=path, resume=True)
            assert _bits(again) == whole, f"resumed after round {rounds}, the run ends differently"


def _interrupted(method: Method, rounds: int, path: Path) -> None:
    """A run that is killed right after so many rounds were saved."""
    federation = toy()
    carrier = InProcess(method, federation.clients)
    run = Run(method, federation.task, SEED, begun(method, federation.task, SEED), federation, carrier)

    def after(at: Any) -> None:
        replace(run, progress=at).save(path)
        if at.done == rounds:
            raise _Killed

    try:
        carry(method, federation.task, carrier, SEED, None, after)
    except _Killed:
        return


def unknown_client(method: Method) -> None:
    """A client that nobody knows has no model of its own; the stranger's model, where there is one, answers."""
    run = fit(method, toy(), seed=SEED)
    try:
        run.model("nobody")
    except UnknownClient:
        pass
    else:
        raise AssertionError("a client that never took part was given a model")
    if run.stranger is not None:
        assert run.stranger.predict(toy().pooled.x).shape == (toy().pooled.n,)


def precisions(method: Method) -> None:
    """float32 and float64 rows both give finite scores of the right shape, for every client."""
    for dtype in (np.float32, np.float64):
        run = fit(method, toy(dtype), seed=SEED)
        for client in run.ids:
            scores = _scores(run, client)
            assert scores.shape[1:] == (toy().pooled.n, 3), f"scores of '{client}' have shape {scores.shape[1:]}"
            assert not np.isnan(scores).any(), f"a score of client '{client}' is NaN with {np.dtype(dtype).name} rows"


def _messages(method: Method) -> Iterator[tuple[Round, dict[str, Any]]]:
    """Every round with each client's message."""
    federation = toy()
    carrier = InProcess(method, federation.clients)
    at = begun(method, federation.task, SEED)
    for i, step in enumerate(method.plan()):
        sent: dict[str, Any] = {}

        def noted(step: Round, sent: dict[str, Any], shared: Any, data: ClientData, state: Any, rng: Rng) -> Any:
            message, state = step.client(shared, data, state, rng)
            sent[next(name for name, known in federation.clients.items() if known is data)] = message
            return message, state

        total = carrier.total(
            step._replace(client=partial(noted, step, sent)), method.shared(at.server), address(method, SEED, i)
        )
        at = replace(at, server=step.server(at.server, total, federation.task, rng_for("messages", i)), done=i + 1)
        yield step, sent


def messages(method: Method) -> None:
    """Messages are of an adding type, are as long as their size says, and come back from bytes as they were."""
    for step, sent in _messages(method):
        for client, message in sent.items():
            assert isinstance(message, Sum | Gather | Both), (
                f"round '{step.name}' sends a {type(message).__name__}, which does not add"
            )
            content = wire.to_bytes(message)
            assert wire.size(message) == len(content), (
                f"round '{step.name}': the size of the message of '{client}' is not its length"
            )
            back, _ = wire.from_bytes(content)
            assert [a.tobytes() for a in arrays(back)] == [check.as_numpy(a).tobytes() for a in arrays(message)]


def adds_and_subtracts(method: Method) -> None:
    """Sums add in any order and subtract; what stays apart refuses to be subtracted."""
    for step, sent in _messages(method):
        a, b = (named(sent[name], name) for name in ("a", "b"))
        total: Any = a + b  # type: ignore[operator]
        other: Any = b + a  # type: ignore[operator]
        for left, right in zip(arrays(total), arrays(other), strict=True):
            _near(check.as_numpy(left), check.as_numpy(right), f"round '{step.name}': a + b is not b + a")
        if isinstance(a, Sum):
            for left, right in zip(arrays(total - b), arrays(a), strict=True):
                _near(check.as_numpy(left), check.as_numpy(right), f"round '{step.name}': a + b - b is not a")
            continue
        try:
            total - b
        except NotSubtractable:
            continue
        raise AssertionError(f"round '{step.name}': messages that stay apart were subtracted")


def weightless_rows(method: Method) -> None:
    """A row of weight 0 is never there, where no round draws from its rng."""
    if draws(method, toy()):
        return
    federation = toy()
    rng = rng_for("weightless")

    def padded(name: str, data: ClientData) -> ClientData:
        x = np.concatenate([data.x, 5.0 + rng.at(name).uniform(3 * data.task.dimension).reshape(3, -1)])
        return replace(
            data, x=x, y=np.concatenate([data.y, [0, 1, 2]]), weight=np.concatenate([data.weight, np.zeros(3)])
        )

    more = replace(federation, clients={name: padded(name, data) for name, data in federation.clients.items()})
    a, b = fit(method, federation, seed=SEED), fit(method, more, seed=SEED)
    for client in a.ids:
        _near(
            _scores(b, client), _scores(a, client), f"rows of weight 0 changed the model of '{client}': use data.weight"
        )


def personalise_is_private(method: Method) -> None:
    """Making one client's models changes neither what goes down nor anybody else's models."""
    run = fit(method, toy(), seed=SEED)
    alone = {client: _scores(fit(method, toy(), seed=SEED), client) for client in ("a", "one row")}
    before = [check.as_numpy(a).tobytes() for a in arrays(run.shared)]
    for client in reversed(run.ids):
        run.models(client)
    assert before == [check.as_numpy(a).tobytes() for a in arrays(run.shared)], "personalise wrote to what went down"
    for client, scores in alone.items():
        assert _scores(run, client).tobytes() == scores.tobytes(), (
            f"the model of '{client}' depends on who was personalised before"
        )


CHECKS: Mapping[str, Callable[[Method], None]] = {
    f.__name__: f
    for f in (
        pure,
        same_twice,
        order_of_clients,
        names_of_clients,
        resumed,
        unknown_client,
        precisions,
        messages,
        adds_and_subtracts,
        weightless_rows,
        leaving,
        personalise_is_private,
    )
}
"""What holds for every method, by name."""


def check_method(method: Method | type[Method] | str) -> tuple[str, ...]:
    """Asks everything in CHECKS of a method, and gives the names of what was asked. A class is taken with its defaults, a name from the
    table. What fails is an AssertionError that names the method and the check; what caused it hangs on it.

    >>> check_method("afl")[:3]
    ('pure', 'same_twice', 'order_of_clients')
    """
    if isinstance(method, str):
        method = METHODS[method]
    made = method() if inspect.isclass(method) else method
    for name, ask in CHECKS.items():
        try:
            ask(made)
        except AssertionError as error:
            raise AssertionError(f"{type(made).__name__}, {name}: {error}") from error
        except Exception as error:  # whatever a method does wrong, the check that met it is named
            what = (ask.__doc__ or "").strip()
            raise AssertionError(
                f"{type(made).__name__}, {name} ({what}) ended in {type(error).__name__}: {error}"
            ) from error
    return tuple(CHECKS)


__all__ = ["CHECKS", "check_method", "frozen", "toy"]
