"""Addressed randomness: the same address gives the same numbers, however, whenever and wherever it is read."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from homeward.core.rng import Rng, rng_for

MASK = (1 << 64) - 1
parts = st.lists(st.integers() | st.text(), max_size=5)


def splitmix64(key: int, n: int) -> list[int]:
    """Steele, Lea and Flood's generator (OOPSLA 2014), in whole numbers: the state grows by a constant, the output is mixed."""
    words = []
    for _ in range(n):
        key = (key + 0x9E3779B97F4A7C15) & MASK
        z = ((key ^ (key >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        words.append(z ^ (z >> 31))
    return words


def test_golden_words() -> None:
    rng = rng_for(0, "train", 3, "clinic_07")
    assert rng.key == 0xBE913B2B9C5C41FF
    assert rng.bits(4).tolist() == [0x8B2A80584FF41B22, 0x9F58B78B948377A5, 0xFA01E3E54837757A, 0xBC416DC7A352147F]
    assert Rng(1234567).bits(3).tolist() == [6457827717110365317, 3203168211198807973, 9817491932198370423]


@given(key=st.integers(0, MASK), n=st.integers(0, 20))
def test_words_are_splitmix64(key: int, n: int) -> None:
    assert Rng(key).bits(n).tolist() == splitmix64(key, n)
    assert Rng(key).uniform(n).tolist() == [(word >> 11) / 2**53 for word in splitmix64(key, n)]


@given(first=parts, second=parts)
def test_addresses_compose(first: list[Any], second: list[Any]) -> None:
    assert rng_for(*first).at(*second) == rng_for(*first, *second)
    assert 0 <= rng_for(*first).key <= MASK


def test_reading_changes_nothing_and_its_order_does_not_matter() -> None:
    where = [(seed, "train", i, name) for seed in (0, 1) for i in range(3) for name in ("a", "b")]
    forth = {w: rng_for(*w).bits(5).tolist() for w in where}
    back = {w: rng_for(*w).bits(5).tolist() for w in reversed(where)}
    assert forth == back
    rng = rng_for("x")
    assert rng.bits(3).tolist() == rng.bits(9)[:3].tolist() == rng.bits(3).tolist()
    assert rng.at("noise").bits(3).tolist() != rng.bits(3).tolist()


def test_a_number_and_its_text_differ_and_kinds_of_whole_numbers_do_not() -> None:
    assert rng_for(7) != rng_for("7")
    assert rng_for("a", "b") != rng_for("b", "a")
    assert rng_for("ab") != rng_for("a", "b")
    assert rng_for("") != rng_for()
    for kind in (np.int64, np.uint8, np.array):
        assert rng_for(kind(7), "x") == rng_for(7, "x")
    assert rng_for(np.str_("a")) == rng_for("a")
    assert rng_for(True) == rng_for(1) == rng_for(np.int32(1))
    for wrong in (1.0, None, b"a"):
        with pytest.raises(TypeError):
            rng_for(wrong)


def test_siblings_do_not_collide() -> None:
    here = rng_for(0, "train")
    keys = {here.at(part).key for i in range(50_000) for part in (i, f"c{i}")}
    assert len(keys) == 100_000
    assert len({rng_for(i).bits(1)[0] for i in range(10_000)}) == 10_000


@pytest.mark.parametrize("where", [(0,), (1, "noise"), ("train", 3)])
def test_uniform_is_uniform(where: tuple[Any, ...]) -> None:
    n = 200_000
    u = rng_for(*where).uniform(n)
    assert u.min() >= 0 and u.max() < 1
    moments = [(u**k).mean() - 1 / (k + 1) for k in (1, 2, 3)]
    assert np.abs(moments).max() < 5 / np.sqrt(n)
    assert abs(np.corrcoef(u[1:], u[:-1])[0, 1]) < 5 / np.sqrt(n)
    counts = np.bincount((u * 64).astype(int), minlength=64)
    assert ((counts - n / 64) ** 2 / (n / 64)).sum() < 63 + 6 * np.sqrt(2 * 63)


def test_first_words_of_siblings_are_uniform_too() -> None:
    u = np.array([rng_for(0, "train", i).uniform(1)[0] for i in range(20_000)])
    assert abs(u.mean() - 0.5) < 0.01
    assert abs(np.corrcoef(u[1:], u[:-1])[0, 1]) < 0.03


@given(key=st.integers(0, MASK), n=st.integers(0, 300))
def test_an_order_is_a_permutation(key: int, n: int) -> None:
    assert sorted(Rng(key).order(n).tolist()) == list(range(n))


def test_orders_favour_no_row() -> None:
    first = np.bincount([rng_for("order", i).order(5)[0] for i in range(5_000)], minlength=5)
    assert np.abs(first - 1000).max() < 150


def test_a_generator_starts_at_its_address() -> None:
    assert rng_for(3).generator().random(4).tolist() == rng_for(3).generator().random(4).tolist()
    assert rng_for(3).generator().random() != rng_for(4).generator().random()
