"""`data split` and `data inspect`: who owns which rows, as a file and as a picture."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ._show import Json, Verb, Verbs, as_json, some, table

if TYPE_CHECKING:
    from ..core.task import Federation
    from ..data.partition import Partition

app = typer.Typer(
    help="Look at the data of an experiment before anything is learnt.",
    cls=Verbs,
    no_args_is_help=True,
    suggest_commands=False,  # Verbs does
)

Overrides = Annotated[
    list[str] | None,
    typer.Argument(metavar="[KEY=VALUE]...", help="Settings instead of the file's: partition.alpha=0.5"),
]
File = Annotated[Path, typer.Argument(metavar="CONFIG", help="A TOML file with [data] and [partition].")]
MOST_CLIENTS, WIDEST = 60, 100  # of the label picture
MOST_ODD = 20  # lines of columns
SHADES = "·░▒▓█"


@app.command(cls=Verb)
def split(
    config: File,
    overrides: Overrides = None,
    out: Annotated[Path, typer.Option(help="The file to write.")] = Path("partition.npz"),
    json: Json = False,
) -> None:
    """Write the partition, with its hash, to a file.

    CONFIG is a TOML file with [data] and [partition]; KEY=VALUE replaces one of its settings, as partition.alpha=0.5 does.
    """
    from ..config import load
    from ..data.partition import Partition

    if out.exists():
        Partition.load(out)  # anything but a partition is refused, and stays
    _, part = load(config, overrides or ()).federation()
    part.save(out)
    told = {
        "file": str(out),
        "hash": part.hash,
        "law": part.law,
        "clients": part.clients,
        "rows": int(part.sizes.sum()),
    }
    if json:
        as_json(told)
    else:
        print(f"{out}: {told['rows']} rows of {part.clients} clients by the law '{part.law}', hash {part.hash[:12]}.")


@app.command(cls=Verb)
def inspect(config: File, overrides: Overrides = None, json: Json = False) -> None:
    """Print how unlike the clients are: who holds which labels, and columns that look odd at a client.

    CONFIG is a TOML file with [data] and [partition]; KEY=VALUE replaces one of its settings, as partition.alpha=0.5 does.
    """
    from ..config import load
    from ..data.inspect import constant_columns, held_once, label_map, odd_columns, skew

    federation, part = load(config, overrides or ()).federation()
    numbers = {"law": part.law, "hash": part.hash, **skew(part), **_tests(federation)}
    odd, constant, once = odd_columns(federation), constant_columns(federation), held_once(federation)
    if json:
        columns = {"odd": odd, "constant": constant}
        as_json(
            {"skew": numbers, "labels": label_map(part), "sizes": _sizes(part), "columns": columns, "held_once": once}
        )
        return
    table(["", ""], [[name.replace("_", " "), _short(value)] for name, value in numbers.items()], title="skew")
    print("\n".join([*picture(part), *_columns(odd, constant), *_once(once)]))


def _columns(odd: Sequence[Mapping[str, Any]], constant: Sequence[int]) -> Iterator[str]:
    """Columns that a client may have recorded otherwise, and those that say nothing."""
    yield f"\ncolumns, counted from 0, whose mean at a client is far from the others' (training rows): {len(odd) or 'none'}"
    for found in odd[:MOST_ODD]:
        yield odd_words(found)
    if len(odd) > MOST_ODD:
        yield f"... and {len(odd) - MOST_ODD} more (--json has all)"
    if constant:
        yield f"one value in all training rows: column{'s' * (len(constant) > 1)} {some([str(j) for j in constant], 20)}"


def _once(once: Mapping[str, list[str]]) -> Iterator[str]:
    """Rows that a plain message, which has sums by class, would hold as they are."""
    if once:
        yield "\nclasses held once: a plain message, which has sums by class, contains such a row"
    for client, labels in once.items():
        yield f"{client}: {some([repr(label) for label in labels]) if labels else 'its only row'}"


def _sizes(part: Partition) -> dict[str, int]:
    return dict(zip(part.ids, part.sizes.tolist(), strict=True))


def _tests(federation: Federation) -> dict[str, int]:
    """Rows that are learnt from and rows that are held out, and the smallest test set."""
    held = {name: federation.tests[name].n if name in federation.tests else 0 for name in federation.clients}
    learnt = sum(data.n for data in federation.clients.values())
    return {"train_rows": learnt, "test_rows": sum(held.values()), "test_min": min(held.values())}


def _short(value: Any) -> str:
    return f"{value:.2f}" if isinstance(value, float) else str(value)[:12]


def picture(part: Partition) -> list[str]:
    """The label picture: a line for each client, a block for each class, the darker the more rows of all it holds there."""
    import numpy as np

    counts = part.counts if len(part.labels) else part.sizes[:, None]
    width = max(1, min(counts.shape[1], WIDEST - max(map(len, part.ids)) - 10))
    cells = np.stack([cut.sum(axis=1) for cut in np.array_split(counts, width, axis=1)], axis=1)
    shade = cells * len(SHADES) // (int(cells.max()) + 1)
    wide = 2 if width <= 40 else 1
    name = max(map(len, part.ids))
    lines = [
        f"{client:<{name}} {''.join((SHADES[s] if n else ' ') * wide for s, n in zip(shade[k], cells[k], strict=True))} {part.sizes[k]}"
        for k, client in enumerate(part.ids[:MOST_CLIENTS])
    ]
    more = [f"... and {part.clients - MOST_CLIENTS} more (--json has all)"] if part.clients > MOST_CLIENTS else []
    return [_legend(part, width), *lines, *more]


def _legend(part: Partition, width: int) -> str:
    if not len(part.labels):
        return "rows of each client:"
    names = [str(label) for label in part.labels.tolist()]
    merged = f", {len(names)} of them in {width} columns" if width < len(names) else ""
    listed = ", ".join(names) if len(names) <= 12 else f"{names[0]} ... {names[-1]}"
    return f"labels from left to right: {listed}{merged}; the darker, the more rows; the number is all rows of a client"


def odd_words(found: Mapping[str, Any]) -> str:
    """A column that one client may hold in other units, in words."""
    return f"column {found['column']} at {found['client']}: mean {found['mean']:.4g}, elsewhere {found['elsewhere']:.4g} (other units?)"
