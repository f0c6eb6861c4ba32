"""What the verbs share: tables, JSON and progress in a terminal."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Any, Self

import click
import typer
from typer.core import TyperCommand

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

Json = Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else, to stdout.")]
PATIENCE = 2.0  # seconds until there is something to see
PIPED = 160  # columns where there is no terminal


class Verb(TyperCommand):
    """A command whose help is plain text: typer escapes brackets for rich even where rich does not print it."""

    def get_help(self, ctx: click.Context) -> str:
        return super().get_help(ctx).replace("\\[", "[")


def as_json(value: Any) -> None:
    """One JSON value on stdout. What JSON has no number for is null."""
    print(json.dumps(_plain(value), indent=1, ensure_ascii=False, allow_nan=False))


def _plain(value: Any) -> Any:
    match value:
        case Mapping():
            return {str(key): _plain(entry) for key, entry in value.items()}
        case list() | tuple():
            return [_plain(entry) for entry in value]
        case float() if not math.isfinite(value):
            return None
        case str() | int() | float() | bool() | None:
            return value
    return _plain(value.tolist()) if hasattr(value, "tolist") else str(value)


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]], title: str = "") -> None:
    """A table on stdout: numbers to the right, words to the left."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    cells = [["" if cell is None else str(cell) for cell in row] for row in rows]
    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_header=any(columns))
    for i, name in enumerate(columns):
        numbers = cells and all(row[i][:1].isdigit() or row[i][:1] in ("", "-", "+") for row in cells)
        shown.add_column(name, justify="right" if numbers else "left", overflow="fold")
    for row in cells:
        shown.add_row(*row)
    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        console.width = PIPED
    if title:
        console.print(title, style="bold")
    console.print(shown)


def score(metric: str, value: float) -> str:
    """A metric for people: shares in per cent, others as they are."""
    return f"{value:.3f}" if metric == "r2" else f"{100 * value:.1f} %"


def note(text: str) -> None:
    """A line beside the result."""
    print(text, file=sys.stderr)


class Waiting:
    """A notice that becomes a progress bar on stderr, once something takes longer than one likes to wait without a word.

    with Waiting() as notice: fit(method, federation, notice=notice)
    """

    def __init__(self) -> None:
        self.start = time.monotonic()
        self.bar: Progress | None = None
        self.tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.bar is not None:
            self.bar.stop()

    def __call__(self, what: str, done: int, of: int) -> None:
        if self.bar is None and time.monotonic() - self.start > PATIENCE and sys.stderr.isatty():
            self.bar = _bar()
        if self.bar is not None:
            if what not in self.tasks:
                self.tasks[what] = self.bar.add_task(what, total=of)
            self.bar.update(self.tasks[what], completed=done, total=of)


def _bar() -> Progress:
    from rich.console import Console
    from rich.progress import Progress

    bar = Progress(console=Console(stderr=True), transient=True)
    bar.start()
    return bar
