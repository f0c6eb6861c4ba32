"""Hits and misses on the same rows: the interval and the verdict agree, and cover what they should."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from homeward.core.errors import BadData
from homeward.study.paired import Paired, paired


def of(n: int, gained: int, lost: int) -> Paired:
    both = n - gained - lost
    return paired([1] * gained + [0] * lost + [1] * both, [0] * gained + [1] * lost + [1] * both)


counts = st.tuples(st.integers(0, 40), st.integers(0, 40), st.integers(0, 60)).filter(any)


@pytest.mark.parametrize(
    ("gained", "lost", "verdict"),
    [
        (6, 0, "helped"),
        (0, 6, "hurt"),
        (5, 0, "cannot tell"),
        (0, 0, "cannot tell"),
        (9, 1, "helped"),
        (8, 2, "cannot tell"),
    ],
)
def test_the_verdict_is_that_of_the_exact_sign_test(gained: int, lost: int, verdict: str) -> None:
    assert of(20, gained, lost).verdict == verdict


def test_the_p_value_is_twice_the_tail_of_a_fair_coin() -> None:
    assert of(9, 6, 0).p == pytest.approx(2 / 2**6)
    assert of(9, 0, 0).p == 1.0


@given(counts)
def test_the_interval_holds_the_difference_and_holds_zero_exactly_where_it_cannot_tell(
    found: tuple[int, int, int],
) -> None:
    gained, lost, both = found
    pair = of(gained + lost + both, gained, lost)
    assert -1 <= pair.low <= pair.difference <= pair.high <= 1
    assert (pair.low <= 0 <= pair.high) == (pair.verdict == "cannot tell")


@given(counts)
def test_the_other_way_round_it_is_the_mirror_image(found: tuple[int, int, int]) -> None:
    gained, lost, both = found
    n = gained + lost + both
    a, b = of(n, gained, lost), of(n, lost, gained)
    assert (a.low, a.high, a.sign) == (pytest.approx(-b.high), pytest.approx(-b.low), -b.sign)


def test_rows_that_agree_are_no_proof_of_sameness() -> None:
    few, many = of(3, 0, 0), of(300, 0, 0)
    assert few.high > 0.3
    assert 0 < many.high < 0.02


@pytest.mark.parametrize(("gain", "loss"), [(0.0, 0.0), (0.1, 0.1), (0.3, 0.1), (0.02, 0.2)])
@pytest.mark.parametrize("n", [5, 20, 80])
def test_the_interval_covers_the_truth_19_times_in_20(gain: float, loss: float, n: int) -> None:
    draws = np.random.default_rng(n).multinomial(n, [gain, loss, 1 - gain - loss], size=400)
    held = [of(n, int(b), int(c)) for b, c, _ in draws]
    assert np.mean([pair.low <= gain - loss <= pair.high for pair in held]) >= 0.93


@pytest.mark.parametrize(("first", "second"), [([], []), ([1, 0], [1])])
def test_rows_that_cannot_be_paired_are_refused(first: list[int], second: list[int]) -> None:
    with pytest.raises(BadData, match="cannot be paired"):
        paired(first, second)
