"""What the verbs share: tables, JSON and progress in a terminal."""

from __future__ import annotations

import json
import math
import os
import shutil
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Any, Self

import click
import typer
from typer.core import TyperCommand, TyperGroup

from ..core.errors import nearest

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

Json = Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else, to stdout.")]
PATIENCE = 2.0  # seconds until there is something to see
PIPED = 160  # columns where there is no terminal


class Verb(TyperCommand):
    """A command whose help is plain text: typer escapes brackets for rich even where rich does not print it."""

    def get_help(self, ctx: click.Context) -> str:
        return super().get_help(ctx).replace("\\[", "[")


class Verbs(TyperGroup):
    """A group of commands that names the nearest one, whichever version of click is below."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.NoSuchOption:
            raise
        except click.UsageError as error:
            if args and "No such command" in error.message:
                error.message = f"No such command '{args[0]}'. {nearest(args[0], self.commands)}"
            raise


def program() -> str:
    """What this command is called where the user is: its name where that is enough, else the path to it.

    A line that is shown to be typed starts with it.
    """
    if shutil.which("homeward"):
        return "homeward"
    candidates = (
        Path(sys.argv[0]),
        Path(sys.executable).with_name("homeward"),
        Path(sys.executable).with_name("homeward.exe"),
    )
    script = next((path for path in candidates if path.stem == "homeward" and path.is_file()), None)
    return "homeward" if script is None else _near(script)


def _near(path: Path) -> str:
    """From here, where that is shorter; there is no way from one drive to another."""
    try:
        relative = os.path.relpath(path)
    except ValueError:
        return str(path)
    return relative if len(relative) < len(str(path.absolute())) else str(path.absolute())


def next_steps(following: Mapping[str, str]) -> list[str]:
    """Lines to be typed next, each with what it does."""
    wide, name = max(map(len, following)), program()
    return [f"  {name} {verb:<{wide}}  {does}" for verb, does in following.items()]


def some(names: Sequence[str], most: int = 10) -> str:
    """All names, or the first and how many more there are.

    >>> some(["a", "b"]), some(["a", "b", "c", "d"], most=2)
    ('a, b', 'a, b and 2 more')
    """
    return ", ".join(names) if len(names) <= most else f"{', '.join(names[:most])} and {len(names) - most} more"


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
        numbers = cells and all(row[i][:1].isdigit() or row[i][:1] in ("", "-", "−", "+") for row in cells)
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
