"""What leaves a client, in words, and what a plain message gives away."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..core.method import Method, Standardised
from .words import listed

HOME = "; the private part stays at home"


def features(method: Method, columns: str) -> str:
    """What the global head sees, as a noun: random features, or the columns by the name they go under here.

    >>> from homeward.methods.afl import AFL
    >>> features(AFL(), "pixels"), features(AFL(maps=1024), "pixels")
    ('pixels', '1,024 random features')
    """
    maps = getattr(method, "maps", None)
    return columns if maps is None else f"{maps:,} random features"


def _sums(method: Method, columns: str, classes: bool) -> str:
    by = "both by class" if classes else "both times the targets"
    return f"sums over its rows: of {features(method, columns)}, of their products, and of {by}"


_ROUNDS: Mapping[str, Callable[[Any, str, bool], str]] = {
    "standardise": lambda method, columns, classes: "the sums and the squares of each column",
    "summarise": _sums,
    "tally-ridge": lambda method, columns, classes: "its misses under each candidate ridge",
    "tally-tau": lambda method, columns, classes: "the misses of ten candidate settings",
    "tally-share": lambda method, columns, classes: "its misses under each candidate of the private part",
}


def leaves(method: Method, columns: str = "its columns", *, classes: bool = True) -> str:
    """What a client sends, round by round. classes: the targets are classes.

    >>> from homeward.methods.afl import AFL
    >>> leaves(AFL(), "pixels")
    'sums over its rows: of pixels, of their products, and of both by class'
    """
    inner = method.method if isinstance(method, Standardised) else method
    names = list(dict.fromkeys(step.name for step in method.plan()))
    if not names:
        return "nothing"
    parts = [_ROUNDS[n](inner, columns, classes) if n in _ROUNDS else f"its message of round '{n}'" for n in names]
    return ", then ".join(parts) + (HOME if hasattr(inner, "refine_maps") else "")


def smaller(method: Method, up: Mapping[str, int], own: Mapping[str, int]) -> str:
    """A sentence where a message is larger than the rows that it sums; "" where none is. Both: bytes of each client."""
    inner = method.method if isinstance(method, Standardised) else method
    above = [name for name in up if up[name] > own.get(name, up[name])]
    if not above:
        return ""
    who = f"{len(above)} of {len(up)} clients" if len(up) > 1 else f"'{above[0]}'"
    instead = (
        ""
        if getattr(inner, "maps", None) is None
        else " fedhip and afl, which read the columns as they are, send less."
    )
    return f"For {who} that is more than the rows themselves as numbers: sums have an entry for each pair of features.{instead}"


def given_away(method: Method, once: Mapping[str, list[str]]) -> list[str]:
    """A sentence for each client of whom a plain message holds a row: that of a class, or of all, with one row.

    once: the classes that a client has one row of; an empty list is a client with a single row, where there are no classes.
    """
    inner = method.method if isinstance(method, Standardised) else method
    if not inner.plan():
        return []
    drawn = "" if getattr(inner, "maps", None) is None else "the random features of "
    return [_sentence(client, labels, drawn) for client, labels in once.items()]


def _sentence(client: str, labels: list[str], drawn: str) -> str:
    if len(labels) > 1:
        return f"{client} has 1 row each of {listed([repr(label) for label in labels])}: its message contains {drawn}these rows"
    of = f" of {labels[0]!r}" if labels else ""
    return f"{client} has 1 row{of}: its message contains {drawn}that row"
