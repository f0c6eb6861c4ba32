"""`run`, and what is done with a run folder: `predict`, `join`, `forget`.

A run folder holds `config.toml`, everything resolved, by which the rows are found again; who joined later is in `joined-1.toml` and so on.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import _folder
from ._show import Json, Verb, Waiting, as_json, next_steps, note, some, table
from ._told import Told

if TYPE_CHECKING:
    from ..core.model import Predictor
    from ..engine.run import Run

Folder = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")]
Overrides = Annotated[
    list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Settings instead of the file's: method.ridge=0.1")
]
Client = Annotated[str, typer.Option(help="The client's id.")]
Scale = Annotated[
    str,
    typer.Option(
        help="Means and deviations of standardised columns: 'again' measures them anew, which asks every client; 'keep' keeps the old."
    ),
]


def register(app: typer.Typer) -> None:
    """Adds the verbs of this family."""
    for verb in (run, predict, join, forget):
        app.command(cls=Verb)(verb)


# ---- run


def run(
    config: Annotated[
        Path, typer.Argument(metavar="CONFIG", help="A TOML file: [data], [partition], [method], [run].")
    ],
    overrides: Overrides = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on after the last round that was saved.")] = False,
    no_control: Annotated[
        bool, typer.Option("--no-control", help="Do not also train each client alone, to say whether joining helps it.")
    ] = False,
    json: Json = False,
) -> None:
    """Learn one method, and keep a model for each client in a folder.

    CONFIG is a TOML file with [data], [partition], [method] and [run]; KEY=VALUE replaces one of its settings, as method.ridge=0.1 does.
    """
    from ..config import load, threads
    from ..engine.run import fit

    settings, start = load(config, overrides or ()), time.perf_counter()
    settings.refuse_later("run", "features")
    method, out = settings.learner(), Path(settings.run.out)
    _refuse_to_lose(out)
    with threads(settings.run.threads), Waiting() as notice:
        federation, part = settings.federation()
        files = {"config.toml": settings.to_toml().encode(), "partition.npz": part.to_bytes()}
        done = fit(
            method,
            federation,
            seed=settings.run.seed,
            engine=settings.run.engine,
            checkpoint=out,
            resume=resume,
            files=files,
            keep_messages=settings.run.keep_messages,
            notice=notice,
        )
        told = Told.beside_alone(done, notice, wanted=not no_control)
        if told.alone is not None:
            done.save(out, files={**files, **told.files()})
    seconds = time.perf_counter() - start
    if json:
        as_json({"out": str(out), "seconds": round(seconds, 3), **told.facts})
        return
    print(f"{told.heading}, {seconds:.1f} s")
    told.show()
    told.warn()
    _show_next(out, done)


def _refuse_to_lose(out: Path) -> None:
    """A run is replaced by the next one, but for what cannot be made again: folders of others, and receipts."""
    from ..core.errors import BadSetting
    from ..engine.store import read_manifest, refuse_foreign

    refuse_foreign(out)
    if (out / "manifest.json").exists() and read_manifest(out).get("receipts"):
        raise BadSetting(
            f"{out} holds a run that clients joined or left, with the receipts. Name another folder: run.out=..., or delete this one."
        )


def _show_next(out: Path, run: Run) -> None:
    client = run.ids[0]
    print(
        f"\n{len(run.ids)} models: {out}/models/"
        + (f", for everybody else: {out}/global.safetensors" if run.stranger else "")
    )
    print(f"All numbers of each client: {out}/results.jsonl. The settings in full: {out}/config.toml.")
    following = {
        f"predict {out} --client {client} rows.csv": "labels and scores from a client's own model",
        f"forget {out} --client {client}": "take a client out again, with a receipt",
        f"join {out} newcomers.toml": "let more clients in",
    }
    print("\nNext:", *next_steps(following), sep="\n")


# ---- predict


def predict(
    folder: Folder,
    files: Annotated[list[Path], typer.Argument(help="Rows: .npy, .npz (X) or .csv (numbers).")],
    client: Client,
    json: Json = False,
) -> None:
    """Labels and scores from a client's own model.

    RUN is a run folder; FILES hold rows: .npy, .npz (with X) or .csv (numbers). What is printed is comma-separated.
    """
    from ..core import check
    from ..data.sources import unlabelled

    loaded = _folder.opened(folder)
    _folder.known(loaded, client)
    if client in loaded.pending:
        loaded = _folder.renewed(loaded, folder)
    with _folder.in_shell_words(folder, " and try again"):
        model = loaded.model(client)
    found = {}
    for path in files:
        rows = check.features(unlabelled(str(path)), str(path), width=model.task.dimension)
        found[str(path)] = (model.predict(rows), model.decision_function(rows))
    if json:
        answers = [{"file": name, "labels": labels, "scores": scores} for name, (labels, scores) in found.items()]
        as_json({"client": client, "model": model.slot, "classes": model.task.labels, "files": answers})
    else:
        _print_table(model, found)


def _print_table(model: Predictor, found: Mapping[str, tuple[Any, Any]]) -> None:
    """Comma-separated, so that it can go on into another program."""
    import csv
    import sys

    out = csv.writer(sys.stdout, lineterminator="\n")
    names = [str(label) for label in model.task.labels.tolist()]
    labels = ["label"] if model.task.kind == "classes" else [f"label {name}" for name in names]
    real = model.task.kind == "real"
    out.writerow(["file", "row", *(["value"] if real and len(names) == 1 else labels), *([] if real else names)])
    for file, (answers, scores) in found.items():
        for i, (answer, row) in enumerate(zip(answers.reshape(len(answers), -1), scores, strict=True)):
            out.writerow([file, i, *answer.tolist(), *([] if real else (f"{value:.6g}" for value in row))])


# ---- join and forget


def join(
    folder: Folder,
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="A TOML file whose [data] are the newcomers' rows.")],
    overrides: Overrides = None,
    scale: Scale = "again",
    json: Json = False,
) -> None:
    """Let more clients into a run, and save it.

    RUN is a run folder; CONFIG is a TOML file whose [data] and [partition] are the newcomers' rows.
    """
    from ..config import load

    settings = load(config, overrides or ())
    with Waiting() as notice, _folder.in_shell_words(folder, " and try again"):
        old = _folder.with_rows(_folder.opened(folder, notice), folder)
        newcomers, _ = settings.federation()
        new = old.join(newcomers, scale=scale)
        told, files = Told.beside_alone(new, notice), _folder.files(folder)
        files[f"joined-{len(_folder.configs(files))}.toml"] = settings.to_toml("data", "partition").encode()
        _save_change(told, folder, files)
    _show_change(told, folder, json)
    told.warn(*newcomers.clients)
    if set(newcomers.clients) & set(told.not_scored):
        note(f"Note: {config} holds nothing out of these newcomers' rows. To have them scored: partition.test=0.25")


def forget(
    folder: Folder,
    client: Client,
    message: Annotated[
        Path | None, typer.Option(help="What the client sent (RUN/messages/ID.safetensors), where its rows are gone.")
    ] = None,
    scale: Scale = "again",
    json: Json = False,
) -> None:
    """Take a client out of a run, exactly, with a receipt.

    RUN is a run folder, which is saved without the client; the receipt is printed, and kept in the manifest.
    """
    sent = None if message is None else _message(message, client)
    with Waiting() as notice, _folder.in_shell_words(folder, ", or give its message with --message"):
        old = _folder.opened(folder, notice)
        _folder.known(old, client)
        new = _folder.with_rows(old, folder).forget(client, message=sent, scale=scale)
        told = Told.beside_alone(new, notice)
        _save_change(told, folder, _folder.without(_folder.files(folder), new.receipts[-1]))
    _show_change(told, folder, json)


def _save_change(told: Told, folder: Path, files: Mapping[str, bytes]) -> None:
    """Whatever can fail comes before the folder is replaced: what is told of the change is computed here, and only printed later."""
    assert told.facts["clients"] == len(told.run.ids)
    told.run.save(folder, files={**files, **told.files()})


def _message(path: Path, client: str) -> Any:
    """A message, or those of several rounds as a run keeps them."""
    from ..core import wire
    from ..core.errors import BadData
    from ..core.files import read_file
    from ..methods import METHODS

    for name in METHODS:  # their types of message are known once they are loaded
        METHODS[name]
    value, facts = wire.from_bytes(read_file(path), str(path))
    if facts.get("client", client) != client:
        raise BadData(f"{path} is what '{facts['client']}' sent, not '{client}'. Give the leaver's own message.")
    return tuple(value.values()) if facts.get("kind") == "messages" else value


def _show_change(told: Told, folder: Path, json: bool) -> None:
    receipt, waits = dict(told.run.receipts[-1]), _folder.waiting(told.run, folder)
    if json:
        as_json({"out": str(folder), "receipt": receipt, **told.facts})
    else:
        table(["receipt", ""], [[key, _shown(value)] for key, value in receipt.items() if value])
        print(f"Kept in {folder}/manifest.json, under receipts.")
        if told.rows:
            print(f"\n{told.heading}")
            told.show()
    if waits:
        note(f"Warning: {waits}")


def _shown(value: Any) -> str:
    return some([str(entry) for entry in value]) if isinstance(value, list) else str(value)
