"""Rows: what runs leave behind, and all that statistics, tables and charts are made of. One JSON object a line on disk.

A score is {data, partition, method, settings, seed, round, client, split, model, slot, metric, value}. Bytes, rows and seconds are rows
too, with another metric (`grid.py`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from ..core.errors import BadFile
from ..core.files import read_file, write_file

Row: TypeAlias = Mapping[str, Any]


def to_jsonl(rows: Iterable[Row]) -> bytes:
    """One JSON object a line. What JSON has no word for is written as text."""
    return "".join(json.dumps(dict(row), ensure_ascii=False, default=_plain) + "\n" for row in rows).encode()


def _plain(value: Any) -> Any:
    """A NumPy number as Python's; anything else as its text."""
    return value.item() if hasattr(value, "item") and getattr(value, "ndim", 1) == 0 else str(value)


def write_rows(path: str | os.PathLike[str], rows: Iterable[Row]) -> Path:
    """A file of rows, whole or not at all."""
    return write_file(path, to_jsonl(rows))


def read_rows(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """The rows in a file that `write_rows` or a run wrote."""
    rows = []
    for number, line in enumerate(read_file(path).splitlines(), 1):
        try:
            row = json.loads(line)
        except ValueError as error:
            raise BadFile(f"{path}, line {number} is no JSON: {error}. Remove the line, or restore a copy.") from error
        if not isinstance(row, dict):
            raise BadFile(f'{path}, line {number} holds no row: a row is an object such as {{"client": "c000", ...}}.')
        rows.append(row)
    return rows


def select(rows: Iterable[Row], **wanted: Any) -> list[Row]:
    """The rows that have all these values.

    >>> select([{"client": "a", "value": 1.0}, {"client": "b", "value": 2.0}], client="b")
    [{'client': 'b', 'value': 2.0}]
    """
    return [row for row in rows if all(row.get(key) == value for key, value in wanted.items())]


def group(rows: Iterable[Row], *keys: str) -> dict[tuple[Any, ...], list[Row]]:
    """The rows by their values of `keys`, in the order in which these first appear.

    >>> {key: len(found) for key, found in group([{"a": 1}, {"a": 2}, {"a": 1}], "a").items()}
    {(1,): 2, (2,): 1}
    """
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(row.get(key) for key in keys), []).append(row)
    return found


def distinct(rows: Iterable[Row], key: str) -> list[Any]:
    """The values of `key`, each once, in the order in which they first appear."""
    return [value for (value,) in group(rows, key)]
