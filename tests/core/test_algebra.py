"""How messages add: the laws of +, - and the names on what stays apart, for NumPy and torch alike."""

import operator
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from homeward.core.algebra import (
    Array,
    Both,
    ByClient,
    Gather,
    Message,
    Sum,
    Tree,
    arrays,
    mapped,
    named,
    parts,
    plain,
    received,
    summed,
)
from homeward.core.check import as_numpy
from homeward.core.errors import BadData, BadValue, HomewardError, NotSubtractable, UnknownName
from homeward.core.rng import Rng, rng_for


@dataclass(frozen=True, eq=False)
class Pair(Sum):
    """One of everything that a Sum may hold: an array, a number, a Tree with a Tree in it."""

    gram: Array
    count: Array
    tree: Tree


@pytest.fixture(params=["numpy", "torch"])
def xp(request: pytest.FixtureRequest) -> ModuleType:
    return pytest.importorskip(request.param)


def drawn(rng: Rng, *shape: int) -> Any:
    return np.asarray(2.0 * rng.uniform(int(np.prod(shape, dtype=int))).reshape(shape) - 1.0)


def tree(rng: Rng) -> Tree:
    return Tree(w=drawn(rng.at("w"), 2, 3), deep=Tree(b=drawn(rng.at("b")), e=drawn(rng.at("e"), 0)))


def pair(rng: Rng) -> Pair:
    return Pair(drawn(rng.at("gram"), 3, 2), drawn(rng.at("count")), tree(rng))


def gather(rng: Rng) -> Gather:
    return Gather.of(pair(rng))


def both(rng: Rng) -> Both:
    return Both(pair(rng), gather(rng.at("each")))


KINDS: list[Callable[[Rng], Any]] = [pair, gather, both]
each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.__name__)
ids = st.lists(st.text(min_size=1, max_size=4).filter(lambda s: "\0" not in s), min_size=1, max_size=6, unique=True)


def on(xp: ModuleType, value: Any) -> Any:
    """The same value in an array library."""
    if isinstance(value, Gather):
        return Gather(value.ids, on(xp, value.each))
    if isinstance(value, Both):
        return Both(on(xp, value.sum), on(xp, value.each))
    return mapped(value, lambda a: xp.asarray(np.asarray(a)))


def ids_of(value: Any) -> list[tuple[str, ...]]:
    return [value.ids] if isinstance(value, Gather) else [value.each.ids] if isinstance(value, Both) else []


def same(a: Any, b: Any, rtol: float = 0.0) -> None:
    """Equal in kind, names, shapes, and numbers: exactly, or to rounding of sums of numbers of size 1."""
    assert type(a) is type(b)
    assert ids_of(a) == ids_of(b)
    pairs = list(zip(arrays(a), arrays(b), strict=True))
    for x, y in pairs:
        np.testing.assert_allclose(as_numpy(x), as_numpy(y), rtol=rtol, atol=rtol, strict=True)


# ---- + and -


@given(seed=st.integers(0, 2**64), kind=st.sampled_from([pair, tree]))
def test_adding_does_not_depend_on_order_and_is_undone_by_subtracting(seed: int, kind: Callable[[Rng], Any]) -> None:
    a, b, c = (kind(rng_for(seed, name)) for name in "abc")
    same(a + b, b + a)
    same((a + b) + c, a + (b + c), 1e-15)
    same(a + b - b, a, 1e-15)
    same(a - a, mapped(a, np.zeros_like))


@pytest.mark.parametrize("kind", [pair, tree, *KINDS[1:]])
def test_torch_adds_as_numpy_does(kind: Callable[[Rng], Any]) -> None:
    torch = pytest.importorskip("torch")
    a, b = kind(rng_for(1)), kind(rng_for(2))
    if kind in KINDS:
        a, b = named(a, "b"), named(b, "a")
    same(on(torch, a) + on(torch, b), on(torch, a + b))
    assert all(isinstance(x, torch.Tensor) for x in arrays(on(torch, a) + on(torch, b)))


@given(ids=ids, data=st.data())
def test_a_gather_is_in_id_order_whatever_the_order_of_adding(ids: list[str], data: st.DataObject) -> None:
    def one(name: str) -> Message:
        return named(gather(rng_for(name)), name)

    there, here = (reduce(operator.add, map(one, data.draw(st.permutations(ids)))) for _ in range(2))
    same(there, here)
    assert list(there.ids) == sorted(ids)
    for i, name in enumerate(sorted(ids)):
        same(mapped(there.each, lambda a, i=i: a[i]), mapped(one(name).each, lambda a: a[0]))


def test_gathers_of_several_merge_as_those_of_one(xp: ModuleType) -> None:
    a, b, c, d = (on(xp, named(gather(rng_for(name)), name)) for name in "abcd")
    same((d + a) + (c + b), ((a + b) + c) + d)


@each_kind
def test_what_stays_apart_is_not_subtracted_and_not_added_twice(kind: Callable[[Rng], Any]) -> None:
    a = named(kind(rng_for(0)), "clinic")
    if isinstance(a, Sum):
        return
    with pytest.raises(NotSubtractable, match="Run the round without") as raised:
        a - a
    assert isinstance(raised.value, TypeError)
    with pytest.raises(BadData, match="'clinic' is in this round twice"):
        a + a
    with pytest.raises(BadData, match="'clinic' is in this round twice"):
        summed([named(kind(rng_for(1)), "b"), a, a])


def test_both_adds_part_by_part(xp: ModuleType) -> None:
    a, b = on(xp, named(both(rng_for("a")), "a")), on(xp, named(both(rng_for("b")), "b"))
    same((b + a).sum, b.sum + a.sum)
    same((b + a).each, b.each + a.each)


def test_a_name_is_written_once_and_only_where_there_is_room() -> None:
    once = named(gather(rng_for(0)), "a")
    same(named(once, "b"), once)
    assert named(pair(rng_for(0)), "a").__class__ is Pair
    assert named(Gather.of(3.0), "a").each.tolist() == [3.0]
    assert named(both(rng_for(0)), "a").each.ids == ("a",)


def test_messages_of_different_types_do_not_add() -> None:
    @dataclass(frozen=True, eq=False)
    class Other(Sum):
        gram: Array

    a, b = pair(rng_for(0)), Other(np.ones(2))
    for add in (lambda: a + b, lambda: summed([a, b]), lambda: summed([a, gather(rng_for(0))])):
        with pytest.raises(BadValue, match="Pair does not add to a"):
            add()


# ---- summed


@each_kind
@given(names=ids)
def test_summed_is_adding_one_by_one(kind: Callable[[Rng], Any], names: list[str]) -> None:
    messages = [named(kind(rng_for(name)), name) for name in names]
    for a in (a for message in messages for a in arrays(message)):
        a.flags.writeable = False
    before = [mapped(m, np.copy) if isinstance(m, Sum) else m for m in messages]
    same(summed(iter(messages)), reduce(operator.add, messages))
    for message, was in zip(messages, before, strict=True):
        same(message, was)


@each_kind
def test_summed_of_torch(kind: Callable[[Rng], Any]) -> None:
    torch = pytest.importorskip("torch")
    messages = [on(torch, named(kind(rng_for(name)), name)) for name in "cab"]
    same(summed(messages), reduce(operator.add, messages))


def test_summed_leaves_its_inputs_even_where_a_type_widens_or_memory_is_shared(xp: ModuleType) -> None:
    rows = xp.zeros(4)
    wide = xp.broadcast_to(xp.ones(1), (4,))
    same(
        summed([Pair(wide, 1, Tree()), Pair(rows, 2.5, Tree()), Pair(rows + 1, 1, Tree())]),
        Pair(rows + 2, 4.5, Tree()),
    )
    assert rows.sum() == 0
    assert wide.sum() == 4
    ints = summed([Pair(xp.asarray([1]), 0, Tree()), Pair(xp.asarray([0.5]), 0, Tree())])
    assert ints.gram.tolist() == [1.5]


def test_summed_is_in_constant_memory() -> None:
    size = 100_000
    tracemalloc.start()
    summed(Pair(np.full(size, float(i)), i, Tree()) for i in range(50))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * 8 * size


def test_nobody_is_no_total() -> None:
    with pytest.raises(BadData, match="at least one client"):
        summed([])


# ---- Tree


def test_tree_picks_names_and_merges() -> None:
    t = Tree({"c": 3.0, "b": 2.0}, a=1.0)
    assert t.names == ("a", "b", "c")
    assert dict(t.only("c", "a")) == {"c": 3.0, "a": 1.0}
    assert dict(t.without("a", "nobody")) == {"b": 2.0, "c": 3.0}
    assert dict(t | Tree(a=9.0, d=4.0)) == {"a": 9.0, "b": 2.0, "c": 3.0, "d": 4.0}
    assert dict(t | {}) == dict(t)
    assert "names" not in t and len(Tree()) == 0
    assert repr(Tree(a=np.ones((2, 3)), b=Tree(), c=1)) == "Tree(a: (2, 3), b: Tree, c: int)"
    with pytest.raises(TypeError):
        hash(t)


@given(seed=st.integers(0, 2**64), factor=st.floats(-8, 8))
def test_tree_is_a_vector_space_with_a_dot(seed: int, factor: float) -> None:
    a, b, c = (tree(rng_for(seed, name)) for name in "abc")
    same(factor * (a + b), factor * a + factor * b, 1e-14)
    same((a * factor) / 2, a * (factor / 2), 1e-14)
    assert np.isclose((a + factor * b).dot(c), a.dot(c) + factor * b.dot(c), atol=1e-13)
    assert np.isclose(a.dot(b), b.dot(a), rtol=0, atol=0)
    assert np.isclose(a.dot(a), sum((x**2).sum() for x in arrays(a)), atol=1e-14)


def test_a_tree_is_scaled_by_any_number_on_either_side(xp: ModuleType) -> None:
    t = on(xp, tree(rng_for(0)))
    for two in (2, 2.0, xp.asarray(2.0, dtype=xp.float64), *([np.float64(2)] if xp is np else [])):
        same(two * t, t + t)
        same(t * two, t + t)
        same(t / two, 0.5 * t)


@pytest.mark.parametrize("use", [operator.add, operator.sub, Tree.dot], ids=lambda f: f.__name__)
@pytest.mark.parametrize("other", [Tree(a=1.0), Tree(a=1.0, b=1.0, c=1.0), Tree(), 1.0])
def test_trees_of_different_names_are_told_apart(use: Callable[[Any, Any], Any], other: Any) -> None:
    with pytest.raises(BadValue, match=r"does not add to a float|different names do not add.*Pick names"):
        use(Tree(a=1.0, b=2.0), other)


def test_a_name_that_is_not_there_is_named_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match=r"no 'wieght'. Did you mean 'weight'\?"):
        Tree(weight=1.0, bias=0.0).only("wieght")
    with pytest.raises(KeyError):
        Tree()["a"]
    assert issubclass(UnknownName, HomewardError)


# ---- what goes down


def test_each_client_receives_its_own_entry_or_the_default(xp: ModuleType) -> None:
    heads = ByClient({"a": Tree(w=xp.ones(2)), "b": Tree(w=xp.zeros(2))}, Tree(w=-xp.ones(2)))
    shared = Tree(body=xp.ones(1), heads=heads, deep=Pair(heads, xp.zeros(()), Tree(h=heads)))
    for client, value in (("a", 1), ("b", 0), ("nobody", -1)):
        down = received(shared, client)
        assert down["body"] is shared["body"]
        assert [x.tolist() for x in arrays(down)] == [[1], [value] * 2, 0, [value] * 2, [value] * 2]
    assert received(heads, "b") is heads.entries["b"]


def test_arrays_lie_row_after_row_as_after_a_journey(xp: ModuleType) -> None:
    a = xp.asarray(np.arange(6.0).reshape(2, 3))
    value = Tree(a=a.T, row=a[:, 1], number=1.0, deep=Pair(a, a[0, 0], Tree(b=a.T[::2])))
    out = plain(value)
    same(out, value)
    for x in arrays(out.without("number")):
        assert x.is_contiguous() if hasattr(x, "is_contiguous") else x.ndim < 2 or x.flags.c_contiguous


def test_arrays_and_parts_are_in_order() -> None:
    value = Both(Pair(1, 2, Tree(x=3, y=Tree(z=4))), Gather(("a",), Tree(w=5)))
    assert arrays(value) == [1, 2, 3, 4, 5]
    assert parts(value.sum)[:2] == (1, 2)


def test_messages_of_other_shapes_do_not_stretch_to_fit():
    @dataclass(frozen=True, eq=False)
    class Row(Sum):
        value: object

    with pytest.raises(BadValue, match=r"value is \(3,\) and \(1,\)"):
        Row(np.zeros(3)) + Row(np.zeros(1))
