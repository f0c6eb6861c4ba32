"""A run on disk: safetensors, JSON and JSONL, never a pickle. A folder is put in place whole, or the old one stays."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ..core import settings, wire
from ..core.algebra import Tree, arrays
from ..core.errors import BadData, BadFile, BadValue, HomewardError
from ..core.files import read_file, recovered, write_folder
from ..core.maps import RandomMap
from ..core.method import Method, Slot, Standardised
from ..core.model import Predictor, load_model
from ..core.task import Bounds, Federation, Task
from ..methods import METHODS, name_of
from .carry import Progress
from .change import known_rows
from .inprocess import InProcess, Notice, nobody_listens
from .run import Run
from .threads import blas_threads

OLDER = "results.stale.jsonl"
"""Rows of models that are older than the last change, of clients that wait for it."""


def file_names(ids: Iterable[str]) -> dict[str, str]:
    """A file name for every client: its id, percent-encoded; where two differ in case alone, or one is long, with a hash behind it."""
    plain = {
        name: quote(name, safe="").replace(".", "%2E") if name.startswith(".") else quote(name, safe="") for name in ids
    }
    folded = Counter(text.casefold() for text in plain.values())
    return {
        name: text if folded[text.casefold()] == 1 and len(text) < 200 else f"{text[:180]}-{_short(name)}"
        for name, text in plain.items()
    }


def _short(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:10]


def save_run(run: Run, path: str | os.PathLike[str], files: Mapping[str, bytes]) -> Path:
    """Writes a run folder. Models and rows are in it once the last round is behind the run."""
    refuse_foreign(path)
    try:
        return write_folder(path, partial(_fill, run, dict(files)))
    except OSError as error:
        raise HomewardError(
            f"The run could not be saved to {path}: {error.strerror or error}. Free some space or choose another folder; "
            "what was there is whole."
        ) from error


def refuse_foreign(path: str | os.PathLike[str]) -> None:
    """A run is put in the place of an older run or of nothing: whatever else is in a folder stays there."""
    folder, here = Path(path).resolve(), Path.cwd()
    if folder == here or folder in here.parents:
        raise BadValue(f"{path} is the folder that you are in, or above it, so no run is saved there. Name a new one.")
    if (folder / "manifest.json").exists():
        read_manifest(folder)
    elif folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise BadValue(f"{path} is there already and is no run folder, so it is not replaced. Name another folder.")


def _fill(run: Run, files: dict[str, bytes], folder: Path) -> None:
    names = file_names(run.ids)
    (folder / "models").mkdir()
    (folder / "states").mkdir()
    _write_state(run, names, folder)
    if run.finished:
        _write_models(run, names, folder)
    _write_older(run, names, folder)
    _lines(folder / "results.jsonl", run.scores() if run.finished else [])
    _lines(folder / "log.jsonl", run.carrier.log)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    told = manifest(run, names)
    if "config.toml" in files:
        told["config"] = tomllib.loads(files["config.toml"].decode())
    (folder / "manifest.json").write_text(json.dumps(told, indent=1, default=str))


def _write_state(run: Run, names: Mapping[str, str], folder: Path) -> None:
    totals = Tree({str(i): total for i, total in enumerate(run.progress.totals) if not hasattr(total, "each")})
    value = Tree(server=run.progress.server, totals=totals)
    (folder / "server.safetensors").write_bytes(wire.to_bytes(value, kind="server", done=run.progress.done))
    for client, state in run.carrier.states.items():
        if not arrays(state):  # as `begin` gives it again at no cost
            continue
        (folder / "states" / f"{names[client]}.safetensors").write_bytes(
            wire.to_bytes(Tree(state=state), kind="state", client=client)
        )
    if run.carrier.messages:
        (folder / "messages").mkdir()
    for client, messages in run.carrier.messages.items():
        kept = Tree({str(i): m for i, m in enumerate(messages)})
        (folder / "messages" / f"{names[client]}.safetensors").write_bytes(
            wire.to_bytes(kept, kind="messages", client=client)
        )


def _write_models(run: Run, names: Mapping[str, str], folder: Path) -> None:
    waiting = set(run.pending)
    run.compute()
    for client in run.ids:
        if client in waiting:
            continue
        for i, model in enumerate(run.models(client).values()):
            if i == 0:
                (folder / "models" / f"{names[client]}.safetensors").write_bytes(model.to_bytes())
    if run.stranger is not None:
        (folder / "global.safetensors").write_bytes(run.stranger.to_bytes())


def _write_older(run: Run, names: Mapping[str, str], folder: Path) -> None:
    """Models and rows of clients that wait stay as they were, apart: a model at home is better than none. The manifest names them."""
    waiting = set(run.pending)
    for client in waiting & set(run.stored):
        own = next(iter(run.stored[client]().values()))
        (folder / "models" / f"{names[client]}.safetensors").write_bytes(own.to_bytes())
    if rows := [row for row in run.noted if row["client"] in waiting]:
        _lines(folder / OLDER, rows)


def _lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row, default=str) + "\n" for row in rows))


def versions() -> dict[str, str]:
    """The versions that a result depends on."""
    found = {"python": platform.python_version()}
    for name in ("homeward", "numpy", "scipy", "scikit-learn", "torch"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def machine() -> dict[str, Any]:
    """What the figures were made on."""
    return {
        "system": platform.platform(),
        "processor": platform.machine(),
        "cores": os.cpu_count(),
        "threads": blas_threads(),
    }


def described_method(method: Method) -> dict[str, Any]:
    """A method as a manifest names it."""
    inner = method.method if isinstance(method, Standardised) else method
    return {"name": name_of(inner), "settings": inner.settings, "standardise": isinstance(method, Standardised)}


def manifest(run: Run, names: Mapping[str, str]) -> dict[str, Any]:
    """All that a run is, but its numbers."""
    declared = {name: wire.listed_or_number(v) for name, v in vars(run.task.declared).items()}
    return {
        "schema": wire.SCHEMA,
        "kind": "run",
        "written": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "method": described_method(run.method),
        "seed": run.seed,
        "rounds": {"done": run.progress.done, "of": len(run.method.plan())},
        "task": {
            "kind": run.task.kind,
            "dimension": run.task.dimension,
            "classes": run.task.classes,
            "labels": wire.listed(run.task.labels),
            "declared": declared,
        },
        "clients": {name: {"file": names[name], "rows": run.row_hashes().get(name)} for name in run.ids},
        "pending": list(run.pending),
        "delivered": run.delivered,
        "seconds": round(sum(row.get("seconds", 0.0) for row in run.carrier.log), 3),
        "maps": sorted({drawn.hash for drawn in _maps(run)}),
        "stale": sorted(name for name in run.stale if not (run.finished and name in run.here)),
        "origin": dict(run.origin),
        "traffic": run.traffic,
        "receipts": list(run.receipts),
        "versions": versions(),
        "machine": machine(),
    }


def _maps(run: Run) -> Iterator[RandomMap]:
    """The random maps that the models of one client use: all clients use the same."""
    here = [name for name in run.ids if run.finished and name in run.here]
    waiting: list[Any] = [model.model for model in run.models(here[0]).values()] if here else []
    while waiting:
        part = waiting.pop()
        if isinstance(part, RandomMap):
            yield part
        elif is_dataclass(part):
            waiting += [getattr(part, f.name) for f in fields(part)]


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a run folder."""
    path = folder / "manifest.json"
    try:
        content = json.loads(read_file(path))
        schema, kind = content["schema"], content["kind"]
    except (ValueError, KeyError, TypeError) as error:
        raise BadFile(f"{path} is damaged or no manifest of homeward's: {error}. Restore a copy of the run.") from error
    wire.check_schema(schema, str(path))
    if kind != "run":
        raise BadFile(f"{path} is the manifest of a {kind}, not of a run. Give the folder of a single run.")
    return dict(content)


def load_run(
    path: str | os.PathLike[str],
    *,
    federation: Federation | None = None,
    method: Method | None = None,
    notice: Notice = nobody_listens,
) -> Run:
    """The run in a folder. With `federation` the rows of its clients are at hand again; they must be the ones that were there.

    method: needed for a method that is not in the table.
    """
    folder = recovered(path)
    if not folder.is_dir():
        raise BadFile(f"{path} is no run folder. Check the path.")
    told = read_manifest(folder)
    try:
        return _loaded(folder, told, federation, method, notice)
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, HomewardError):
            raise
        raise BadFile(f"{folder / 'manifest.json'} is damaged: {error!r}. Restore a copy of the run.") from error


def _loaded(
    folder: Path, told: dict[str, Any], federation: Federation | None, method: Method | None, notice: Notice
) -> Run:
    task = _task(told["task"])
    method = _matching(method, told["method"], folder)
    hashes = {name: entry["rows"] for name, entry in told["clients"].items()}
    files = {name: entry["file"] for name, entry in told["clients"].items()}
    server, facts = wire.from_bytes(read_file(folder / "server.safetensors"), str(folder / "server.safetensors"))
    progress = Progress(server["server"], int(facts["done"]), _in_order(server["totals"]))
    carrier = InProcess(
        method,
        {},
        {name: value["state"] for name, value in _each(folder / "states", files).items()},
        told["traffic"],
        messages={name: _in_order(value) for name, value in _each(folder / "messages", files).items()},
        log=[dict(row) for row in _read_lines(folder / "log.jsonl")],
        notice=notice,
    )
    carrier.keep_messages = bool(carrier.messages)
    stored: dict[str, Callable[[], Mapping[Slot, Predictor]]] = {
        name: partial(_stored, folder, file)
        for name, file in files.items()
        if (folder / "models" / f"{file}.safetensors").exists()
    }
    run = Run(
        method, task, told["seed"], progress, None, carrier, tuple(told["clients"]), hashes, stored,
        frozenset(told["stale"]), tuple(told["receipts"]), told["origin"], told["delivered"], _results(folder),
    )  # fmt: skip
    return run if federation is None else with_rows(run, federation)


def with_rows(run: Run, federation: Federation) -> Run:
    """The run with rows of its clients at hand; others in the federation are left aside."""
    return run.at_hand(known_rows(run, federation))


def _results(folder: Path) -> tuple[Mapping[str, Any], ...]:
    older = folder / OLDER
    return _read_lines(folder / "results.jsonl") + (_read_lines(older) if older.exists() else ())


def _read_lines(path: Path) -> tuple[Mapping[str, Any], ...]:
    return tuple(json.loads(line) for line in read_file(path).splitlines())


def _in_order(numbered: Tree) -> tuple[Any, ...]:
    return tuple(numbered[str(i)] for i in range(len(numbered)))


def _each(folder: Path, files: Mapping[str, str]) -> dict[str, Any]:
    """The values of all clients that have a file there."""
    paths = {name: folder / f"{file}.safetensors" for name, file in files.items()}
    return {name: wire.from_bytes(read_file(path), str(path))[0] for name, path in paths.items() if path.exists()}


def _stored(folder: Path, file: str) -> Mapping[Slot, Predictor]:
    """The models of a client that are at home: its own, and the one for everybody."""
    own = load_model(folder / "models" / f"{file}.safetensors")
    found = {Slot(own.slot): own}
    if own.slot != "global" and (folder / "global.safetensors").exists():
        found[Slot("global")] = load_model(folder / "global.safetensors")
    return found


def _task(told: Mapping[str, Any]) -> Task:
    declared = Bounds(**{name: wire.unlisted_or_number(v) for name, v in told["declared"].items()})
    return Task(told["kind"], told["dimension"], told["classes"], wire.unlisted(told["labels"]), declared)


def _matching(method: Method | None, told: Mapping[str, Any], folder: Path) -> Method:
    """The method given, which must be the one in the manifest; or that one."""
    if method is None:
        return method_of(told)
    given = json.loads(json.dumps(described_method(method), default=str))
    if given != told:
        raise BadData(
            f"The run in {folder} is of another method: {told['name']} {told['settings']}, not {given['name']} {given['settings']}. "
            "Use a new folder, or the old method."
        )
    return method


def method_of(told: Mapping[str, Any]) -> Method:
    """The method that a manifest names."""
    if told["name"] not in METHODS:
        raise BadFile(
            f"This run is of '{told['name']}', which is not in the table of methods. Give it: load_run(path, method=...)."
        )
    method: Method = settings.build(METHODS[told["name"]], dict(told["settings"]))
    return Standardised(method) if told["standardise"] else method
