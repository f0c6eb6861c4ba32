"""Values as bytes, and their size from shapes alone.

A value travels as safetensors: one tensor for each array, and in the header a description of how they belong together. No pickle, no
code: what comes back is arrays, `Tree`s, and message types that are already defined here. The header is canonical, so equal values are
equal bytes.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from functools import reduce
from typing import Any

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray
from safetensors import SafetensorError

from .algebra import Both, ByClient, Gather, Sum, Tree
from .check import as_numpy
from .errors import BadFile

SCHEMA = 1
_DTYPES = {
    "float64": "F64", "float32": "F32", "float16": "F16", "int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8",
    "uint64": "U64", "uint32": "U32", "uint16": "U16", "uint8": "U8", "bool": "BOOL",
}  # fmt: skip
_SUM = slice(
    8 + len(b'{"__metadata__":{"crc32":"'), 8 + len(b'{"__metadata__":{"crc32":"') + 8
)  # where the checksum is


def message_types() -> dict[str, type[Sum]]:
    """Every message type that is defined, by name."""
    found: dict[str, type[Sum]] = {}
    waiting = list(Sum.__subclasses__())
    while waiting:
        kind = waiting.pop()
        found[kind.__name__] = kind
        waiting += kind.__subclasses__()
    return found


def described(value: Any, at: str = "value") -> tuple[Any, dict[str, Any]]:
    """How a value is put together, as JSON, and its arrays by path."""
    match value:
        case Tree():
            return _named_parts("tree", value, at)
        case Sum():
            shape, found = _named_parts("sum", {f.name: getattr(value, f.name) for f in fields(value)}, at)
            return {**shape, "type": type(value).__name__}, found
        case Both():
            return _named_parts("both", {"sum": value.sum, "each": value.each}, at)
        case Gather():
            shape, found = described(value.each, f"{at}/each")
            return {"gather": list(value.ids), "each": shape}, found
        case ByClient():
            raise TypeError("What goes down is received by one client at a time: use `received` first.")
        case _:
            return at, {at: value}


def _named_parts(kind: str, named: Mapping[str, Any], at: str) -> tuple[Any, dict[str, Any]]:
    shapes, found = {}, {}
    for name, part in named.items():
        shapes[name], inner = described(part, f"{at}/{name.replace('~', '~0').replace('/', '~1')}")
        found.update(inner)
    return {kind: shapes}, found


def rebuilt(shape: Any, found: Mapping[str, Any]) -> Any:
    """The value that `described` took apart."""
    if isinstance(shape, str):
        return found[shape]
    match shape:
        case {"tree": dict(named)}:
            return Tree({name: rebuilt(part, found) for name, part in named.items()})
        case {"sum": dict(named), "type": str(kind)}:
            types = message_types()
            if kind not in types:
                raise BadFile(
                    f"This holds a message of type '{kind}', which is not defined here. Import the method that it belongs to."
                )
            return types[kind](**{name: rebuilt(part, found) for name, part in named.items()})
        case {"both": {"sum": total, "each": each}}:
            return Both(rebuilt(total, found), rebuilt(each, found))
        case {"gather": list(ids), "each": each}:
            return Gather(tuple(ids), rebuilt(each, found))
    raise BadFile("This describes a value of no known kind.")


def _shape_of(a: Any) -> tuple[str, tuple[int, ...], int]:
    """dtype name, shape and bytes of an array, without touching its numbers."""
    if not hasattr(a, "dtype"):
        a = np.asarray(a)
    name = str(a.dtype).removeprefix("torch.")
    name = "float32" if name == "bfloat16" else name
    shape = tuple(int(n) for n in a.shape)
    return name, shape, int(np.prod(shape, dtype=np.int64)) * np.dtype(name).itemsize


def _header(facts: Mapping[str, Any], found: Mapping[str, Any]) -> bytes:
    meta = {
        "crc32": "0" * 8,
        "homeward": json.dumps({"schema": SCHEMA, **facts}, sort_keys=True, separators=(",", ":")),
    }
    entries: dict[str, Any] = {"__metadata__": meta}
    start = 0
    for name in sorted(found):
        dtype, shape, size = _shape_of(found[name])
        entries[name] = {"dtype": _DTYPES[dtype], "shape": list(shape), "data_offsets": [start, start + size]}
        start += size
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def _checksum(pieces: Iterable[bytes | memoryview]) -> bytes:
    """Of all the bytes, those of the checksum itself read as zeros; every damage of up to 32 bits in a row changes it."""
    return b"%08x" % reduce(lambda sum, piece: zlib.crc32(piece, sum), pieces, 0)


def to_bytes(value: Any, **facts: Any) -> bytes:
    """A value, and JSON-able facts beside it, as safetensors."""
    shape, found = described(value)
    header = _header({**facts, "value": shape}, found)
    data = [np.ascontiguousarray(as_numpy(found[name])).tobytes() for name in sorted(found)]
    return b"".join([header[: _SUM.start], _checksum([header, *data]), header[_SUM.stop :], *data])


def size(value: Any) -> int:
    """The length of `to_bytes(value)`, from shapes alone."""
    shape, found = described(value)
    return len(_header({"value": shape}, found)) + sum(_shape_of(a)[2] for a in found.values())


def needed(value: Any) -> int:
    """Bytes of the arrays alone, or what the message says it needs (`needed()`)."""
    own: Callable[[], int] | None = getattr(value, "needed", None)
    if own is not None:
        return int(own())
    return sum(_shape_of(a)[2] for a in described(value)[1].values())


def from_bytes(content: bytes, where: str = "this message") -> tuple[Any, dict[str, Any]]:
    """The value and the facts beside it. Damaged, foreign or newer content is refused."""
    facts = facts_of(content, where)
    view = memoryview(content)
    if _checksum([view[: _SUM.start], b"0" * 8, view[_SUM.stop :]]) != content[_SUM]:
        raise BadFile(f"{where} is damaged: its checksum is not that of its bytes. Write it again or restore a copy.")
    try:
        found = safetensors.numpy.load(content)
        return rebuilt(facts.pop("value"), found), facts
    except (SafetensorError, KeyError, TypeError, ValueError, RecursionError) as error:
        if isinstance(error, BadFile):
            raise BadFile(f"{where}: {error}") from error
        raise BadFile(f"{where} is damaged: {error}. Write it again or restore a copy.") from error


def facts_of(content: bytes, where: str = "this message") -> dict[str, Any]:
    """The facts in the header, after the schema was checked."""
    try:
        (length,) = struct.unpack("<Q", content[:8])
        if length > min(len(content), 100_000_000):
            raise ValueError("its header is cut off")
        facts = json.loads(json.loads(content[8 : 8 + length])["__metadata__"]["homeward"])
        schema = facts.pop("schema")
    except (struct.error, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BadFile(
            f"{where} is damaged or no file of homeward's: {error}. Write it again or restore a copy."
        ) from error
    check_schema(schema, where)
    return dict(facts)


def check_schema(schema: Any, where: str) -> None:
    """Files of this schema can be read; newer ones need a newer homeward."""
    if not isinstance(schema, int) or schema < 1:
        raise BadFile(f"{where} has no valid schema number ({schema!r}): it is damaged or no file of homeward's.")
    if schema > SCHEMA:
        raise BadFile(
            f"{where} was written in schema {schema}, and this homeward reads up to {SCHEMA}. Update homeward."
        )


def listed(values: NDArray[Any]) -> dict[str, Any]:
    """A one-dimensional array of labels as JSON."""
    kind = values.dtype
    plain = [v.item() if isinstance(v, np.generic) else v for v in values.tolist()]  # inside an object array
    return {"dtype": "object" if kind.kind == "O" else kind.str, "values": plain}


def unlisted(content: Mapping[str, Any]) -> NDArray[Any]:
    """The labels that `listed` wrote."""
    return np.array(content["values"], dtype=object if content["dtype"] == "object" else np.dtype(content["dtype"]))


def listed_or_number(value: Any) -> Any:
    """A bound as JSON: None, a number, or one number for each column."""
    return value if value is None or isinstance(value, int | float) else np.asarray(value).tolist()


def unlisted_or_number(value: Any) -> Any:
    """The bound that `listed_or_number` wrote."""
    return np.asarray(value) if isinstance(value, list) else value
