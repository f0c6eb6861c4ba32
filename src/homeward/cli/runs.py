"""`run`, and what is done with a run folder: `predict`, `join`, `forget`.

A run folder holds `config.toml`, everything resolved, by which the rows are found again; who joined later is in `joined-1.toml` and so on.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ._show import Json, Verb, Waiting, as_json, note, score, table

if TYPE_CHECKING:
    from ..config import Config
    from ..core.model import Predictor
    from ..core.task import Federation
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
        done = fit(
            method,
            federation,
            seed=settings.run.seed,
            engine=settings.run.engine,
            checkpoint=out,
            resume=resume,
            files={"config.toml": settings.to_toml().encode(), "partition.npz": part.to_bytes()},
            keep_messages=settings.run.keep_messages,
            notice=notice,
        )
        told = Told.of(done)
    seconds = time.perf_counter() - start
    if json:
        as_json({"out": str(out), "seconds": round(seconds, 3), **told.facts})
    else:
        print(f"{told.heading}, {seconds:.1f} s")
        told.show()
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


@dataclass(frozen=True, eq=False)
class Told:
    """What a run comes to, for people and as JSON."""

    run: Run
    split: str  # test; or without test rows loo (leave-one-out on training rows), or train
    rows: list[dict[str, Any]]

    @classmethod
    def of(cls, run: Run) -> Told:
        """On rows that no model has seen, where there are any."""
        for split in ("test", "loo"):
            rows = run.scores(split) if split == "loo" or (run.federation and run.federation.tests) else []
            if rows:
                return cls(run, split, rows)
        return cls(run, "train", run.scores("train"))

    @property
    def heading(self) -> str:
        facts = self.run.facts
        rounds = f"{self.run.progress.done} round{'s' * (self.run.progress.done != 1)}"
        return f"{facts['method']} on {facts['data'] or 'rows'}, {len(self.run.ids)} clients, {rounds}"

    def values(self, model: str) -> dict[str, float]:
        """Of each client."""
        return {row["client"]: row["value"] for row in self.rows if row["model"] == model}

    @property
    def summary(self) -> list[dict[str, Any]]:
        """A row for each model: the unweighted mean over clients, and the worst of them."""
        found = []
        for model in dict.fromkeys(row["model"] for row in self.rows):
            values = self.values(model)
            worst = min(values, key=lambda client: (values[client], client))
            mean = sum(values.values()) / len(values)
            found.append({"model": model, "mean": mean, "worst": values[worst], "worst_client": worst})
        return found

    @property
    def facts(self) -> dict[str, Any]:
        return {
            **self.run.facts,
            "clients": len(self.run.ids),
            "split": self.split,
            "metric": self.rows[0]["metric"] if self.rows else None,
            "models": self.summary,
            "traffic": self.run.traffic,
            "pending": list(self.run.pending),
        }

    def show(self) -> None:
        """The table, and in words whom the personal model helps and what was sent."""
        on = {"test": "test rows", "loo": "training rows, each left out in turn", "train": "the training rows"}[
            self.split
        ]
        metric = self.facts["metric"]
        if self.rows:
            columns = ["model", f"mean {metric}", "worst client", ""]
            cells = (
                [r["model"], score(metric, r["mean"]), score(metric, r["worst"]), r["worst_client"]]
                for r in self.summary
            )
            table(columns, cells, title=f"{metric} on {on}, mean over clients")
        if self.split == "train":
            note("Warning: these rows were learnt from, so the scores flatter. Hold some out: partition.test=0.25")
        print("\n".join(self._words()))

    def _words(self) -> Iterator[str]:
        from ..study.words import human

        own, common = self.values("personal"), self.values("global")
        both = own.keys() & common.keys()
        if both:
            better, worse = (sum(sign * (own[c] - common[c]) > 0 for c in both) for sign in (1, -1))
            yield f"The personal model is better than the global one for {better} of {len(both)} clients, worse for {worse}."
        loads = self.run.traffic.values()
        up, down = (max((load[way] for load in loads), default=0) for way in ("up", "down"))
        yield (
            f"Each client sent at most {human(up)} and received at most {human(down)}."
            if up
            else "Nothing left any client."
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
    wide = max(map(len, following))
    print("\nNext:", *(f"  homeward {verb:<{wide}}  {does}" for verb, does in following.items()), sep="\n")


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
    from ..engine.store import load_run

    loaded = load_run(folder)
    if client in loaded.pending:
        loaded = _with_rows(loaded, folder)
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
    from ..engine.store import load_run

    settings = load(config, overrides or ())
    with Waiting() as notice:
        old = _with_rows(load_run(folder, notice=notice), folder)
        newcomers, _ = settings.federation()
        new = old.join(newcomers, scale=scale)
        files = _files(folder)
        files[f"joined-{len(_configs(files))}.toml"] = settings.to_toml().encode()
        new.save(folder, files=files)
        told = Told.of(new)
    _show_change(new, told, folder, json)


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
    from ..engine.store import load_run

    sent = None if message is None else _message(message)
    with Waiting() as notice:
        old = _with_rows(load_run(folder, notice=notice), folder)
        new = old.forget(client, message=sent, scale=scale)
        new.save(folder, files=_files(folder))
        told = Told.of(new)
    _show_change(new, told, folder, json)


def _message(path: Path) -> Any:
    """A message, or those of several rounds as a run keeps them."""
    from ..core import wire
    from ..core.files import read_file
    from ..methods import METHODS

    for name in METHODS:  # their types of message are known once they are loaded
        METHODS[name]
    value, facts = wire.from_bytes(read_file(path), str(path))
    return tuple(value.values()) if facts.get("kind") == "messages" else value


def _show_change(run: Run, told: Told, folder: Path, json: bool) -> None:
    receipt = dict(run.receipts[-1])
    if json:
        as_json({"out": str(folder), "receipt": receipt, **told.facts})
        return
    table(["receipt", ""], [[key, _shown(value)] for key, value in receipt.items() if value is not None])
    print(f"Kept in {folder}/manifest.json, under receipts.")
    if run.pending:
        note(
            f"Warning: the models of {len(run.pending)} clients wait until their rows are here: {', '.join(run.pending[:5])}."
        )
    elif told.rows:
        print(f"\n{told.heading}")
        told.show()


def _shown(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


# ---- the folder


def _files(folder: Path) -> dict[str, bytes]:
    """What a run folder holds beside the run."""
    from ..core.files import read_file

    names = ("config.toml", "partition.npz", *sorted(path.name for path in folder.glob("joined-*.toml")))
    return {name: read_file(folder / name) for name in names if (folder / name).exists()}


def _configs(files: Mapping[str, bytes]) -> list[str]:
    return [name for name in files if name.endswith(".toml")]


def _with_rows(run: Run, folder: Path) -> Run:
    """The run with its clients' rows at hand, found again through its own settings, and carried on where it waited for them.

    Where they are gone it stays as it is.
    """
    from ..config import load
    from ..core.errors import BadFile, UnknownName
    from ..engine.store import with_rows

    try:
        parts = [_of(run, load(folder / name)) for name in _configs(_files(folder))]
    except (BadFile, UnknownName) as error:
        note(f"Warning: the rows of this run were not found again. {error}")
        return run
    for part in filter(None, parts):
        run = with_rows(run, part)
    return run if run.finished or set(run.ids) - set(run.here) else run.resume()


def _of(run: Run, settings: Config) -> Federation | None:
    """The rows that a file of settings leads to, of clients that are in the run."""
    federation, _ = settings.federation()
    here = [name for name in federation.clients if name in run.ids]
    return federation.only(*here) if here else None
