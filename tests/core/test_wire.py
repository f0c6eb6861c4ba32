"""Values as bytes: they come back bit for bit, their size is known beforehand, and what is damaged or foreign is refused."""

import json
import struct
import zlib
from contextlib import suppress
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from homeward.core import wire
from homeward.core.algebra import Array, Both, ByClient, Gather, Sum, Tree, arrays
from homeward.core.check import as_numpy
from homeward.core.errors import BadFile


@dataclass(frozen=True, eq=False)
class WireTotals(Sum):
    first: Any
    second: Any


@dataclass(frozen=True, eq=False)
class WireNeeds(WireTotals):
    """Says itself how much of it is needed."""

    def needed(self) -> int:
        return 7


DTYPES = st.sampled_from(
    [
        *("float64", "float32", "float16", "int64", "int32", "int16", "int8"),
        *("uint64", "uint32", "uint16", "uint8", "bool"),
    ]
)
arrays_of_any_kind = DTYPES.flatmap(
    lambda kind: npst.arrays(kind, npst.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3))
)
numbers = st.integers(-(2**62), 2**62) | st.floats() | st.booleans()
names = st.text(max_size=6) | st.sampled_from(["/", "~", "~1", "a/b", "__metadata__", "value", "0"])
leaves = arrays_of_any_kind | numbers
values = st.recursive(
    leaves,
    lambda inner: (
        st.dictionaries(names, inner, max_size=3).map(Tree)
        | st.builds(WireTotals, inner, inner)
        | st.builds(WireNeeds, inner, inner)
    ),
    max_leaves=6,
)
gathers = st.builds(Gather, st.lists(names, max_size=3).map(tuple), values)
messages = values | gathers | st.builds(Both, values, gathers)


def same(a: Any, b: Any) -> None:
    """Bit for bit."""
    assert wire.described(a)[0] == wire.described(b)[0]
    for x, y in zip(arrays(a), arrays(b), strict=True):
        x, y = np.asarray(x), np.asarray(y)
        assert (x.dtype, x.shape, x.tobytes()) == (y.dtype, y.shape, y.tobytes())


@given(messages)
def test_size_is_known_from_shapes_alone(value: Any) -> None:
    assert wire.size(value) == len(wire.to_bytes(value))
    assert wire.needed(value) == (
        7 if isinstance(value, WireNeeds) else sum(np.asarray(a).nbytes for a in arrays(value))
    )


@given(messages, st.dictionaries(st.sampled_from(["kind", "client", "ü"]), st.text() | st.integers()))
def test_values_come_back_bit_for_bit_with_the_facts_beside_them(value: Any, facts: dict[str, Any]) -> None:
    content = wire.to_bytes(value, **facts)
    back, told = wire.from_bytes(content)
    same(back, value)
    assert told == facts
    assert wire.to_bytes(back, **told) == content  # equal values are equal bytes


@given(messages)
def test_the_library_of_the_format_reads_them(value: Any) -> None:
    found = safetensors.numpy.load(wire.to_bytes(value))
    described = wire.described(value)[1]
    assert set(found) == set(described)
    for name, a in described.items():
        assert found[name].tobytes() == np.ascontiguousarray(a).tobytes()


def test_equal_values_are_equal_bytes_whatever_their_memory_and_order() -> None:
    a = np.arange(12.0).reshape(3, 4)
    expected = wire.to_bytes(Tree(a=a, b=Tree(c=1, d=2)), x=1, y=2)
    for again in (np.asfortranarray(a), np.repeat(a, 2, axis=0)[::2], a[::-1][::-1]):
        assert wire.to_bytes(Tree(b=Tree(d=2, c=1), a=again), y=2, x=1) == expected


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int64", "int8", "uint8", "bool", "bfloat16"])
def test_torch_travels_as_numpy_does(dtype: str) -> None:
    torch = pytest.importorskip("torch")
    a = torch.tensor([[0, 1, 1], [1, 0, 1]], dtype=getattr(torch, dtype))
    for value in (Tree(a=a), Tree(a=a.T), Tree(a=a[0, 0])):
        content = wire.to_bytes(value)
        assert wire.size(value) == len(content)
        assert content == wire.to_bytes(Tree(a=as_numpy(value["a"])))


def test_what_goes_down_is_received_first() -> None:
    with pytest.raises(TypeError, match="use `received` first"):
        wire.to_bytes(Tree(a=ByClient({}, 1.0)))


# ---- what is refused


VALUE = Both(WireTotals(np.arange(3.0), Tree(a=1)), Gather(("a", "b"), Tree(x=np.ones((2, 2), np.float32))))
CONTENT = wire.to_bytes(VALUE, kind="message")


def refused(content: bytes, match: str | None = None) -> None:
    with pytest.raises(BadFile, match=match) as error:
        wire.from_bytes(content, "here")
    assert str(error.value).startswith("here")


def test_every_truncation_is_refused() -> None:
    for n in range(len(CONTENT)):
        refused(CONTENT[:n])


@given(
    st.lists(
        st.tuples(st.integers(0, len(CONTENT) - 1), st.integers(1, 255)),
        min_size=1,
        max_size=3,
        unique_by=lambda f: f[0],
    )
)
@settings(max_examples=300)
def test_flipped_bytes_are_refused(flips: list[tuple[int, int]]) -> None:
    content = bytearray(CONTENT)
    for at, mask in flips:
        content[at] ^= mask
    refused(bytes(content))


def test_every_single_bit_counts() -> None:
    for i in range(len(CONTENT)):
        flipped = bytearray(CONTENT)
        flipped[i] ^= 1 << (i % 8)
        refused(bytes(flipped))


@given(st.binary(max_size=80))
def test_junk_is_refused(content: bytes) -> None:
    refused(content, "damaged or no file of homeward's")
    refused(CONTENT + content + b"x")


FOREIGN = [
    b"",
    b"\x80\x04]\x94.",
    b"PK\x03\x04",
    struct.pack("<Q", 2) + b"{}",
    struct.pack("<Q", 2**63) + b"{}",
    struct.pack("<Q", 6) + b"[1, 2]",
    safetensors.numpy.save({"a": np.ones(3)}),
    safetensors.numpy.save({"a": np.ones(3)}, metadata={"format": "pt"}),
]


@pytest.mark.parametrize("content", FOREIGN)
def test_foreign_files_are_refused(content: bytes) -> None:
    refused(content, "damaged or no file of homeward's")


def with_facts(facts: Any) -> bytes:
    """A file whose checksum is right, with facts that nobody would write."""
    text = facts if isinstance(facts, str) else json.dumps(facts)
    entries = {"value": {"dtype": "F64", "shape": [2], "data_offsets": [0, 16]}}
    header = json.dumps(
        {"__metadata__": {"crc32": "0" * 8, "homeward": text}, **entries}, separators=(",", ":")
    ).encode()
    content = struct.pack("<Q", len(header)) + header + np.ones(2).tobytes()
    return content.replace(b"0" * 8, b"%08x" % zlib.crc32(content), 1)


@pytest.mark.parametrize("schema", [2, 10**30])
def test_a_newer_schema_asks_for_a_newer_homeward(schema: int) -> None:
    refused(with_facts({"schema": schema, "value": {"hologram": 1}}), f"schema {schema}.*up to 1. Update homeward")


@pytest.mark.parametrize("schema", [0, -1, 1.0, "1", None, [1]])
def test_a_schema_is_a_number(schema: Any) -> None:
    refused(with_facts({"schema": schema, "value": "value"}), "no valid schema number")


def nested(depth: int) -> str:
    return '{"schema": 1, "value": ' + '{"tree": {"a": ' * depth + '"value"' + "}}" * depth + "}"


@pytest.mark.parametrize(
    "facts",
    [
        *("", "[]", "3", "null", '{"schema": 1}', "{", nested(200_000)),
        {"value": "value"},
        *({"schema": 1, "value": v} for v in (None, 3, [], {}, "nowhere", {"tree": 3}, {"tree": {"a": 1}}, {"x": {}})),
        *(
            {"schema": 1, "value": {"sum": s, "type": "WireTotals"}}
            for s in ({}, {"first": "value"}, {"third": "value"}, 1)
        ),
        *({"schema": 1, "value": {"sum": {}, "type": t}} for t in (None, 3, ["WireTotals"], {})),
        *({"schema": 1, "value": {"gather": g, "each": "value"}} for g in (None, 3, "ab", {})),
        *({"schema": 1, "value": {"both": b}} for b in (None, {}, {"sum": "value"}, ["value"])),
    ],
    ids=lambda f: str(f)[:60],
)
def test_facts_that_describe_nothing_are_refused(facts: Any) -> None:
    refused(with_facts(facts))


def test_a_value_as_deep_as_can_be_read_is_read_or_refused() -> None:
    same(wire.from_bytes(with_facts(nested(50)))[0], reduce(lambda v, _: Tree(a=v), range(50), np.ones(2)))
    for depth in range(60, 1000, 20):
        with suppress(BadFile):
            wire.from_bytes(with_facts(nested(depth)))


@pytest.mark.parametrize("kind", ["Sum", "Tree", "object", "os.system", "Nobody"])
def test_an_unknown_message_type_is_refused(kind: str) -> None:
    content = with_facts({"schema": 1, "value": {"sum": {"first": "value"}, "type": kind}})
    refused(content, f"message of type '{kind}', which is not defined here. Import the method")


def test_labels_are_json_and_back() -> None:
    for labels in (
        *(np.array(v) for v in (["a", "ü"], [1, 2], [True, False], [0.5, 1e300], [2**63])),
        np.array(["a", 1, True], dtype=object),
        np.array([np.int64(3), np.float64(0.5), np.str_("x"), np.True_], dtype=object),
        np.array([1], dtype=">i2"),
    ):
        back = wire.unlisted(json.loads(json.dumps(wire.listed(labels))))
        assert back.dtype == labels.dtype and back.tolist() == labels.tolist()
    for bound in (None, 1.5, 3):
        assert wire.unlisted_or_number(json.loads(json.dumps(wire.listed_or_number(bound)))) == bound
    assert wire.unlisted_or_number(wire.listed_or_number(np.array([1.0, 2.0]))).tolist() == [1.0, 2.0]


def test_facts_alone_can_be_read() -> None:
    assert wire.facts_of(CONTENT)["kind"] == "message"
    assert set(wire.message_types()) >= {"WireTotals", "WireNeeds"}
    value: Array = wire.from_bytes(CONTENT)[0]
    same(value, VALUE)
