"""The command `homeward`: one file a family of verbs; each parses, calls public functions, prints.

Exit codes: 0 fine; 1 the user's mistake, wrong usage included, with one clear message on stderr; 2 a mistake of ours, with the traceback.
Modules here import nothing heavy when they are loaded, so that `--help` is quick.
"""

from __future__ import annotations

import re
import sys
import traceback
import warnings
from collections.abc import Sequence
from io import TextIOWrapper
from typing import Annotated, Any

import click
import typer

from .. import __version__
from ..core.errors import HomewardError
from . import data, info, runs
from ._show import Verb, Verbs

app = typer.Typer(
    name="homeward",
    cls=Verbs,
    help="Personalised federated learning: learn together, and each goes home with a model of its own.",
    no_args_is_help=True,
    add_completion=False,
    suggest_commands=False,  # Verbs does
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

STOPPED = 130  # what typer makes of Ctrl-C
TWO_STOPS = re.compile(
    r"(?<=[\w)\]'\"])\.\.(?=\s|$)"
)  # where another library's sentence, full stop and all, is quoted in ours


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"homeward {__version__}")
        raise typer.Exit()


@app.callback()
def _start(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command(add_help_option=False, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def demo(context: typer.Context) -> None:
    """A first result, offline: methods side by side on digits."""
    from .demo import demo as show  # loaded when it is wanted: it draws charts

    alone = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    alone.command("demo", cls=Verb, context_settings={"help_option_names": ["-h", "--help"]})(show)
    code = typer.main.get_command(alone).main(context.args, prog_name="homeward demo", standalone_mode=False)
    raise typer.Exit(code if isinstance(code, int) else 0)


info.register(app)
app.add_typer(data.app, name="data")
runs.register(app)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and gives its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without Greek or blocks shows question marks
    with warnings.catch_warnings():
        warnings.showwarning = _warned
        try:
            code = typer.main.get_command(app).main(
                None if arguments is None else list(arguments), prog_name="homeward", standalone_mode=False
            )
            return _answered(click.Abort()) if code == STOPPED else code if isinstance(code, int) else 0
        except Exception as error:  # noqa: BLE001  the last place where anything can be caught: what is not ours is a bug
            return _answered(error)


def _answered(error: Exception) -> int:
    """Says what went wrong, to whom it belongs, and gives the exit code."""
    match error:
        case click.exceptions.NoArgsIsHelpError():
            print(error.format_message())
            return 0
        case click.UsageError():
            where = error.ctx.command_path if error.ctx else "homeward"
            _complain(f"{error.format_message()} See '{where} --help'.")
        case click.ClickException():
            _complain(error.format_message())
        case click.Abort():
            _complain("stopped. What was saved before is whole.")
        case HomewardError():
            _complain(str(error))
        case OSError():
            _complain(
                f"{error.filename or 'a file'}: {error.strerror or error}. Check the path, its rights and the disk."
            )
        case MemoryError():
            _complain("there is not enough memory for this. Use fewer rows, columns or random maps (method.maps).")
        case _:
            _confess(error)
            return 2
    return 1


def _complain(message: str) -> None:
    print(f"Error: {TWO_STOPS.sub('.', message)}", file=sys.stderr)


def _confess(error: Exception) -> None:
    traceback.print_exception(error)
    print(
        f"\nThis is a mistake in homeward {__version__}, not one of yours. Please report it as an issue of its repository, with the "
        "lines above, the command you typed, and what `homeward doctor` prints.",
        file=sys.stderr,
    )


def _warned(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    print(f"Warning: {message}", file=sys.stderr)
