"""Our exceptions. A message says what was wrong, where, and what to do; all derive from `HomewardError`."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class HomewardError(Exception):
    """The root of every error that this package raises on purpose."""

    def __str__(self) -> str:  # KeyError prints the repr of its message: ours are sentences
        return " ".join(map(str, self.args))


class BadValue(HomewardError, ValueError):
    """A value that cannot be used: data, a setting, an argument."""


class BadSetting(BadValue):
    """A setting of a method, a partition or a configuration file that is unknown or out of range."""


class UnknownName(BadSetting, KeyError):
    """A method, a law or a data set that is not in its table."""


class BadData(BadValue):
    """Rows, labels or groups that cannot be learnt from as they are."""


class BadType(BadData, TypeError):
    """Rows that hold something other than numbers."""


class Singular(BadValue):
    """A sum of rows that has no unique solution at the ridge asked for."""


class BadFile(BadValue):
    """A file that is damaged, of another kind, or written by a newer version."""


class UnknownClient(HomewardError, KeyError):
    """A client that the run has never seen."""


class Pending(HomewardError):
    """Something that needs rows which are not here: what is wrong, and apart from it what to do in Python."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(what, remedy)
        self.what = what


class NotSubtractable(HomewardError, TypeError):
    """A message that can be told apart by client cannot be taken out of a total by subtraction."""


class MissingExtra(HomewardError, ImportError):
    """An optional part that is not installed; the message holds the exact pip line."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(
            f"{what} needs the extra '{extra}', which is not installed. Run: pip install 'homeward[{extra}]'"
        )


class SmallTest(UserWarning):
    """A client's test set is too small for its score to mean much."""


class GlobalModelUsed(UserWarning):
    """A client that nobody knows was answered by the global model."""


class FlatFeatures(UserWarning):
    """Features that do not vary beyond rounding about their mean: the head is the level of the targets."""


class NoBalance(UserWarning):
    """The global fit left no honest residuals, so the personal part was switched off."""


MOST_NAMED = 20


def nearest(word: str, known: Iterable[str]) -> str:
    """A tail for messages about unknown names: the closest known one, or all of them.

    >>> nearest("rigde", ["ridge", "gamma"])
    "Did you mean 'ridge'? Known: gamma, ridge."
    """
    names = sorted(known)
    close = difflib.get_close_matches(str(word), names, n=1)
    shown = ", ".join(names[:MOST_NAMED]) + (f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else "")
    return (f"Did you mean '{close[0]}'? " if close else "") + f"Known: {shown or 'none'}."
