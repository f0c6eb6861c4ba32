"""What leaves a client, in words."""

import pytest

import homeward as hw
from homeward.methods import METHODS
from homeward.study.sent import given_away, leaves, smaller


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("scaled", [False, True])
def test_every_round_of_every_method_has_words(name: str, scaled: bool) -> None:
    method = hw.standardised(METHODS[name]()) if scaled else METHODS[name]()
    said, rounds = leaves(method), len(method.plan())
    assert "its message of round" not in said
    assert said.count(", then ") == max(0, rounds - 1)
    assert said.startswith("nothing" if not rounds else "the sums and the squares" if scaled else "sums over")


def test_further_rounds_are_said() -> None:
    assert leaves(hw.AFL(ridge="loo")).endswith(", then its misses under each candidate ridge")
    assert "256 random features" in leaves(hw.APFL(maps=256))
    assert leaves(hw.AFL(), classes=False).endswith("both times the targets")


def test_a_message_larger_than_the_rows_is_said_with_what_is_smaller() -> None:
    assert smaller(hw.APFL(), {"a": 10, "b": 10}, {"a": 20, "b": 20}) == ""
    assert "For 1 of 2 clients" in smaller(hw.APFL(), {"a": 10, "b": 30}, {"a": 20, "b": 20})
    assert "fedhip and afl" in smaller(hw.APFL(), {"a": 30}, {"a": 20})
    assert "fedhip and afl" not in smaller(hw.FedHiP(), {"a": 30}, {"a": 20})


def test_a_row_that_a_message_holds_is_said() -> None:
    assert given_away(hw.AFL(), {"a": ["flu"]}) == ["a has 1 row of 'flu': its message contains that row"]
    assert given_away(hw.AFL(), {"a": ["x", "y"], "b": []}) == [
        "a has 1 row each of 'x' and 'y': its message contains these rows",
        "b has 1 row: its message contains that row",
    ]
    assert given_away(hw.APFL(), {"a": ["x"]})[0].endswith("contains the random features of that row")
    assert given_away(hw.standardised(hw.LocalRidge()), {"a": ["x"]}) == []
