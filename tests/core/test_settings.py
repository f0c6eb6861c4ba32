"""Settings: what a field's annotation does not allow is refused at construction, by name, with what would do."""

import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from homeward.core import settings
from homeward.core.errors import BadSetting, HomewardError
from homeward.core.settings import Choice, Count, Number, Rule, Switch


@dataclass(frozen=True)
class Example:
    ridge: Annotated[float | str, Rule("gcv", "loo")] = "gcv"
    share: Annotated[float, Number(low=0, high=1)] = 0.5
    rate: Annotated[float, Number(above=0)] = 0.1
    rounds: Annotated[int, Count(1)] = 10
    maps: Annotated[int | None, Count(1, optional=True)] = None
    form: Annotated[str, Choice("blend", "proximal")] = "blend"
    balance: Annotated[float | str | None, Rule("loo", number=Number(0, 1), optional=True)] = None
    intercept: bool = True
    free: Any = None

    def __post_init__(self) -> None:
        settings.check(self)


ALLOWED: list[tuple[str, Any]] = [
    *(("ridge", v) for v in ("gcv", "loo", 0, 0.0, 1e-300, 10**30, np.float32(2), np.int64(3), Fraction(1, 3))),
    *(("share", v) for v in (0, 1, 0.5, -0.0)),
    *(("rate", v) for v in (5e-324, 1e308)),
    *(("rounds", v) for v in (1, np.int64(7), np.uint8(1), 10**30)),
    *(("maps", v) for v in (None, 1)),
    *(("form", v) for v in ("blend", np.str_("proximal"))),
    *(("balance", v) for v in (None, "loo", 0, 1)),
    *(("intercept", v) for v in (True, False)),
    *(("free", v) for v in (object(), math.nan)),
]
REFUSED: list[tuple[str, Any, str]] = [
    *(("ridge", v, "a finite number >= 0 or one of 'gcv', 'loo'") for v in (-1, math.nan, math.inf, True, None, [1])),
    ("ridge", "gvc", "Did you mean 'gcv'? Known: gcv, loo."),
    ("ridge", "0.1", "Known: gcv, loo."),
    *(("ridge", v, "a finite number") for v in (10**400, -(10**400), 1j, Decimal(1), np.array(1.0), np.bool_(True))),
    *(("share", v, "a finite number >= 0 and <= 1.") for v in (-1e-9, 1.0000001, "half")),
    *(("rate", v, "a finite number above 0.") for v in (0, -1.0, None)),
    *(("rounds", v, "a whole number >= 1.") for v in (0, -1, 1.0, True, None, "1", math.nan)),
    *(("maps", v, "a whole number >= 1 or None.") for v in (0, 2.0, False)),
    ("form", "blent", "one of 'blend', 'proximal'. Did you mean 'blend'?"),
    *(("form", v, "one of 'blend', 'proximal'.") for v in (None, 3, b"blend")),
    *(("balance", v, "or None.") for v in (2, -0.1, math.nan, "gcv")),
    *(("intercept", v, "True or False.") for v in (1, 0, None, "yes", np.bool_(True))),
]


@pytest.mark.parametrize(("name", "value"), ALLOWED)
def test_what_is_allowed_is_kept(name: str, value: Any) -> None:
    kept = getattr(Example(**{name: value}), name)
    assert kept is value or kept == value
    assert not isinstance(kept, np.generic)  # so that settings can be written down


@pytest.mark.parametrize(("name", "value", "words"), REFUSED)
def test_what_is_not_is_refused_with_what_would_do(name: str, value: Any, words: str) -> None:
    with pytest.raises(BadSetting) as error:
        Example(**{name: value})
    assert str(error.value).startswith(f"{name} = {value!r}, but Example needs ")
    assert words in str(error.value)
    assert isinstance(error.value, HomewardError) and isinstance(error.value, ValueError)


def test_settings_are_built_from_names() -> None:
    assert settings.build(Example, {"ridge": 2.0}) == Example(ridge=2.0)
    with pytest.raises(BadSetting, match=r"Example has no setting 'rigde'. Did you mean 'ridge'\?"):
        settings.build(Example, {"rigde": 2.0})


def test_a_field_without_a_rule_is_left_alone() -> None:
    assert set(settings.allowed(Example)) == {
        *("ridge", "share", "rate", "rounds", "maps", "form", "balance", "intercept"),
    }


@given(st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary(), st.lists(st.integers())))
def test_a_checker_answers_yes_or_no_to_anything(value: Any) -> None:
    for checker in (Number(), Number(low=0, high=1), Count(), Choice("a"), Rule("a", optional=True), Switch()):
        assert checker.accepts(value) in (True, False)
        assert str(checker)
