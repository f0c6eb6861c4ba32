"""`list` and `doctor`: what there is, and what it runs on."""

from __future__ import annotations

import platform
import re
from enum import StrEnum
from importlib import metadata
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_type_hints

import typer

from .. import __version__
from ._show import Json, Verb, as_json, note, table

if TYPE_CHECKING:
    from ..core.method import Method, Round


def register(app: typer.Typer) -> None:
    """Adds the verbs of this family."""
    app.command("list", cls=Verb)(list_)
    app.command(cls=Verb)(doctor)


class What(StrEnum):
    """What can be listed."""

    methods = "methods"
    data = "data"
    backbones = "backbones"
    partitions = "partitions"


def list_(
    what: Annotated[What | None, typer.Argument(metavar=f"[{'|'.join(What)}]", help="Left out: everything.")] = None,
    json: Json = False,
) -> None:
    """What there is: methods, data, backbones, partition laws.

    Without an argument all of them are listed.
    """
    wanted = [what] if what else list(What)
    found = {kind.value: _LISTS[kind]() for kind in wanted}
    if json:
        as_json(found[what.value] if what else found)
        return
    for name, rows in found.items():
        if rows:
            table([*rows[0]], [[_words(cell) for cell in row.values()] for row in rows], title=name)
        else:
            note(
                f"{name}: they come in a later version. Until then features are made elsewhere and read from an .npz file."
            )


def _words(cell: Any) -> Any:
    match cell:
        case dict():
            return ", ".join(f"{key}={'...' if value is None else value}" for key, value in cell.items())
        case list():
            return ", ".join(cell)
    return cell


def _methods() -> list[dict[str, Any]]:
    from ..core.errors import MissingExtra
    from ..methods import METHODS

    rows = []
    for name in METHODS:
        try:
            cls = METHODS[name]
        except MissingExtra as missing:
            rows.append({"name": name, "tags": [], "does": str(missing), "source": ""})
            continue
        does, source = _told(cls.__doc__ or "")
        rows.append({"name": name, "tags": tags(cls()), "does": does, "source": source})
    return rows


def _told(docstring: str) -> tuple[str, str]:
    """The first sentence of a docstring, and its paragraph "Source:"."""
    found = re.search(r"^ *Source: (.*?)(?=^ *Differs:|^\s*$|\Z)", docstring, re.MULTILINE | re.DOTALL)
    return docstring.partition("\n")[0], " ".join(found[1].split()) if found else ""


def tags(method: Method) -> list[str]:
    """What the plan and the types of the messages say of a method."""
    plan = method.plan()
    facts = {
        "nothing-sent": not plan,
        "one-round": len(plan) == 1,
        "closed-form": all(step.name != "train" for step in plan),  # what trains is "train" in every method
        "sums": bool(plan) and all(map(_adds, plan)),
        "personal": _is_personal(method),
    }
    return [tag for tag, true in facts.items() if true]


def _adds(step: Round) -> bool:
    """The message of this round is a `Sum`: only totals are read, so it can be masked and taken out again."""
    from ..core.algebra import Sum

    message = get_args(get_type_hints(step.client)["return"])[0]
    return isinstance(message, type) and issubclass(message, Sum)


def _is_personal(method: Method) -> bool:
    """The headline model of a client is its own: tried on a handful of rows, which says more than a flag would."""
    from dataclasses import replace

    from ..core.task import Federation
    from ..engine.run import fit

    X = [[float(i % 3), float(i % 5)] for i in range(12)]
    tiny = Federation.from_arrays(X, [i % 2 for i in range(12)], ["a", "b", "b"] * 4)
    quick: Any = {"maps": None} if "maps" in method.settings else {}  # on the rows as they are: nothing else changes
    return fit(replace(method, **quick), tiny).model("a").slot != "global"


def _data() -> list[dict[str, Any]]:
    from ..data.sources import BUILTIN

    return [vars(entry) for entry in BUILTIN.values()]


def _partitions() -> list[dict[str, Any]]:
    from ..data.laws import LAWS

    return [{"name": law.name, "settings": law.settings, "does": law.description} for law in LAWS.values()]


_LISTS = {What.methods: _methods, What.data: _data, What.backbones: list, What.partitions: _partitions}


def doctor(json: Json = False) -> None:
    """Versions, threads, GPU, and the extras that are missing."""
    found: dict[str, Any] = {
        "homeward": __version__,
        "machine": _machine(),
        "versions": _versions(),
        "extras": _extras(),
    }
    if json:
        as_json(found)
        return
    table(["", ""], [["homeward", __version__], *found["machine"].items()], title="machine")
    table(["package", "version"], found["versions"].items(), title="packages")
    table(["extra", "", "packages"], [_extra_row(*entry) for entry in found["extras"].items()], title="extras")


def _machine() -> dict[str, Any]:
    import os

    import numpy  # noqa: F401  the linear algebra must be loaded to be asked
    import scipy.linalg  # noqa: F401
    from threadpoolctl import threadpool_info

    pools = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
    return {
        "python": platform.python_version(),
        "system": platform.platform(),
        "cores": os.cpu_count(),
        "BLAS": ", ".join(sorted({f"{pool['internal_api']} {pool['version']}" for pool in pools})),
        "BLAS threads": max((int(pool["num_threads"]) for pool in pools), default=1),
        "GPU": _gpu(),
    }


def _gpu() -> str:
    try:
        import torch
    except ImportError:
        return "not looked for: torch is not installed"
    return torch.cuda.get_device_name(0) if torch.cuda.is_available() else "none that torch can use"


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _requirements() -> list[tuple[str, str | None]]:
    """(package, extra) of everything that this package may need; no extra: always."""
    pattern = re.compile(r"""^([A-Za-z0-9._-]+)(?:.*extra\s*==\s*['"]([\w-]+)['"])?""")
    return [(found[1], found[2]) for line in metadata.requires("homeward") or [] if (found := pattern.match(line))]


def _versions() -> dict[str, str | None]:
    return {package: _version(package) for package, extra in _requirements() if extra is None}


def _extras() -> dict[str, Any]:
    """Each extra for users: its packages, whether all are here, and the line that installs them."""
    extras: dict[str, dict[str, str | None]] = {}
    for package, extra in _requirements():
        if extra and extra != "dev" and package != "homeward":
            extras.setdefault(extra, {})[package] = _version(package)
    return {
        extra: {"present": all(packages.values()), "packages": packages, "install": f"pip install 'homeward[{extra}]'"}
        for extra, packages in extras.items()
    }


def _extra_row(extra: str, facts: dict[str, Any]) -> list[str]:
    listed = ", ".join(f"{package} {version or '-'}" for package, version in facts["packages"].items())
    return [extra, "present" if facts["present"] else f"missing: {facts['install']}", listed]
