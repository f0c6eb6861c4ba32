"""Settings that check themselves: a field's annotation says what it may be, and the same words serve the error, `list` and the docs.

ridge: Annotated[float | str, Rule("gcv", "loo", "pinv")] = "gcv"
"""

from __future__ import annotations

import dataclasses
import math
import numbers
from dataclasses import dataclass
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import numpy as np

from .errors import BadSetting, nearest


@dataclass(frozen=True)
class Number:
    """A number within bounds. `above` is excluded, `low` and `high` are included."""

    low: float | None = None
    high: float | None = None
    above: float | None = None

    def __str__(self) -> str:
        ends = [
            f"above {self.above:g}" if self.above is not None else "",
            f">= {self.low:g}" if self.low is not None else "",
            f"<= {self.high:g}" if self.high is not None else "",
        ]
        return " and ".join(["a finite number", *filter(None, ends)]).replace("number and", "number", 1)

    def accepts(self, value: object) -> bool:
        if isinstance(value, bool) or not isinstance(value, numbers.Real):
            return False
        try:
            number = float(value)
        except OverflowError:
            return False
        if not math.isfinite(number):
            return False
        return not (
            (self.low is not None and number < self.low)
            or (self.high is not None and number > self.high)
            or (self.above is not None and number <= self.above)
        )


@dataclass(frozen=True)
class Count:
    """A whole number, not below `low`; None where that is said to mean something."""

    low: int = 0
    optional: bool = False

    def __str__(self) -> str:
        return f"a whole number >= {self.low}" + (" or None" if self.optional else "")

    def accepts(self, value: object) -> bool:
        if value is None:
            return self.optional
        return isinstance(value, int | np.integer) and not isinstance(value, bool) and int(value) >= self.low


class Choice:
    """One of a few words."""

    def __init__(self, *words: str) -> None:
        self.words = words

    def __str__(self) -> str:
        return "one of " + ", ".join(f"'{w}'" for w in self.words)

    def accepts(self, value: object) -> bool:
        return isinstance(value, str) and value in self.words


class Rule(Choice):
    """A number (absolute, as in the papers) or the name of a rule that chooses it."""

    def __init__(self, *words: str, number: Number = Number(low=0), optional: bool = False) -> None:
        super().__init__(*words)
        self.number, self.optional = number, optional

    def __str__(self) -> str:
        return f"{self.number} or {super().__str__()}" + (" or None" if self.optional else "")

    def accepts(self, value: object) -> bool:
        return (value is None and self.optional) or super().accepts(value) or self.number.accepts(value)


class Switch:
    """True or False."""

    def __str__(self) -> str:
        return "True or False"

    def accepts(self, value: object) -> bool:
        return isinstance(value, bool)


def allowed(cls: type[Any]) -> dict[str, Any]:
    """What each field of a settings class may be: field name -> a checker with words for it (fields without one are left out)."""
    hints = get_type_hints(cls, include_extras=True)
    found: dict[str, Any] = {}
    for field in dataclasses.fields(cls):
        hint = hints[field.name]
        if get_origin(hint) is Annotated:
            found[field.name] = get_args(hint)[1]
        elif hint is bool:
            found[field.name] = Switch()
    return found


def check(settings: Any) -> None:
    """Refuses what a field's annotation does not allow, by name, with what would do."""
    for name, checker in allowed(type(settings)).items():
        value = getattr(settings, name)
        if not checker.accepts(value):
            guess = ""
            if isinstance(value, str) and isinstance(checker, Choice):
                guess = " " + nearest(value, checker.words)
            raise BadSetting(f"{name} = {value!r}, but {type(settings).__name__} needs {checker}.{guess}")
        if isinstance(value, np.generic):  # Python's own number: settings are written down, and compared
            object.__setattr__(settings, name, value.item())


def build(cls: type, settings: dict[str, Any]) -> Any:
    """An instance from named settings; an unknown name is an error with the nearest known one."""
    known = [f.name for f in dataclasses.fields(cls) if f.init]
    for name in settings:
        if name not in known:
            raise BadSetting(f"{cls.__name__} has no setting '{name}'. {nearest(name, known)}")
    return cls(**settings)
