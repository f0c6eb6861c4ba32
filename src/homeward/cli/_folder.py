"""A run folder as the verbs find it: its run, its clients' rows, and in shell words what to do where these are gone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._show import note, program, some

if TYPE_CHECKING:
    from ..config import Config
    from ..core.task import Federation
    from ..engine.run import Run
    from ._show import Waiting


def opened(folder: Path, notice: Waiting | None = None) -> Run:
    """The run in a folder, without rows."""
    from ..core.errors import BadFile
    from ..core.files import recovered
    from ..engine.inprocess import nobody_listens
    from ..engine.store import load_run

    manifest = "manifest.json"
    if not (recovered(folder) / manifest).exists():
        above = next((parent for parent in folder.absolute().parents[:2] if (parent / manifest).exists()), None)
        if above is not None:
            raise BadFile(f"{folder} is no run folder: give the folder above, {_as_typed(folder, above)}.")
    return load_run(folder, notice=nobody_listens if notice is None else notice)


def _as_typed(folder: Path, above: Path) -> Path:
    """A folder above, as the user would write it."""
    return next((parent for parent in folder.parents if parent.absolute() == above), above)


def known(run: Run, client: str) -> None:
    """Says when a client that is not in the run any more was taken out."""
    from ..core.errors import UnknownClient

    if client in run.ids:
        return
    for receipt in reversed(run.receipts):
        if client in receipt["clients"] and receipt["action"] == "forget":
            raise UnknownClient(
                f"'{client}' is not in this run: it was taken out on {str(receipt['at'])[:10]}. Still there: {some(run.ids)}."
            )


# ---- rows, found again


def files(folder: Path) -> dict[str, bytes]:
    """What a run folder holds beside the run."""
    from ..core.files import read_file

    names = ("config.toml", "partition.npz", *sorted(path.name for path in folder.glob("joined-*.toml")))
    return {name: read_file(folder / name) for name in names if (folder / name).exists()}


def configs(held: Mapping[str, bytes]) -> list[str]:
    """The files of settings that lead to rows."""
    return [name for name in held if name.endswith(".toml")]


def without(held: Mapping[str, bytes], receipt: Mapping[str, Any]) -> dict[str, bytes]:
    """The same after a client left: no list of whose rows are whose, and who left stands at the top of the settings."""
    from ..config import remark

    left = {name: content for name, content in held.items() if name != "partition.npz"}
    if "config.toml" in left:
        said = remark(
            f"{', '.join(receipt['clients'])} left this run on {receipt['at']}. A new run of this file learns from these rows again."
        )
        left["config.toml"] = said.encode() + left["config.toml"]
    return left


def with_rows(run: Run, folder: Path) -> Run:
    """The run with its clients' rows at hand, found again through its own settings, and carried on where it waited for them.

    Where they are gone it stays as it is.
    """
    from ..engine.store import with_rows

    for name in configs(files(folder)):
        part = _found(run, folder / name)
        run = run if part is None else with_rows(run, part)
    return run if run.finished or set(run.ids) - set(run.here) else run.resume()


def _found(run: Run, settings: Path) -> Federation | None:
    """The rows that a file of settings leads to, of clients that are in the run; None where they are gone."""
    from ..config import load
    from ..core.errors import BadFile, UnknownName

    try:
        return _of(run, load(settings))
    except (BadFile, UnknownName) as error:
        note(f"Warning: the rows of {settings} were not found again. {error}")
        return None


def _of(run: Run, settings: Config) -> Federation | None:
    """The rows that a file of settings leads to, of clients that are in the run."""
    federation, _ = settings.federation()
    here = [name for name in federation.clients if name in run.ids]
    return federation.only(*here) if here else None


# ---- where they are gone


@contextmanager
def in_shell_words(folder: Path, otherwise: str = "") -> Iterator[None]:
    """What waits for rows is told as one types it, not as one programs it."""
    from ..core.errors import Pending

    try:
        yield
    except Pending as error:
        raise Pending(error.what, f"Put the rows back where {_points(folder)}{otherwise}.") from error


def _points(folder: Path) -> str:
    """Where the rows of a run are looked for."""
    return f"[data] of {folder}/config.toml points"


def waiting(run: Run, folder: Path) -> str:
    """Who waits for rows after a change, and what to do; "" where nobody does."""
    if not run.pending:
        return ""
    joined = " and the joined-N.toml beside it" if list(folder.glob("joined-*.toml")) else ""
    return (
        f"{len(run.pending)} of {len(run.ids)} clients wait for their rows: {some(run.pending)}. Until then the models they have are those "
        f"of before this change. Put their rows back where {_points(folder)}{joined}, and run `{program()} predict {folder} --client "
        f"{run.pending[0]} ROWS`: that renews all models, and keeps them."
    )


def renewed(run: Run, folder: Path) -> Run:
    """The run with the models that waited computed anew, and kept in the folder where nobody waits any more."""
    from ..core.errors import HomewardError

    new = with_rows(run, folder)
    if new.pending:
        return new
    try:
        new.save(folder, files=files(folder))
        note(f"The models in {folder}/models were computed anew and kept.")
    except HomewardError as error:  # a folder that may only be read still answers
        note(f"Warning: the models were computed anew, but not kept. {error}")
    return new
