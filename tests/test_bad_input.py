"""Bad input through Python: one clear error of ours, with its place and what to do, and nothing half-written.

A row of the table is a call, the class of its error, and words that its message must hold. (Through the command line: tests/cli.)
"""

import errno
import json
import os
import re
import struct
import subprocess
import sys
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import scipy.sparse

import homeward as hw
from homeward.core import settings, wire
from homeward.core.errors import BadData, BadFile, BadSetting, HomewardError, Singular, UnknownClient, UnknownName
from homeward.data import laws

rng = np.random.default_rng(0)
X = rng.normal(size=(30, 4))
Y = np.arange(30) % 3
G = np.repeat(["north", "south", "west"], 10)
NAN, INF = float("nan"), float("inf")


def fed(x: Any = X, y: Any = Y, groups: Any = G, **more: Any) -> hw.Federation:
    return hw.Federation.from_arrays(x, y, groups, **more)


@cache
def run() -> hw.Run:
    return hw.fit(hw.AFL(), fed())


@cache
def personal() -> hw.Run:
    return hw.fit(hw.FedHiP(), fed())


@cache
def clf() -> hw.FederatedClassifier:
    return hw.FederatedClassifier("afl").fit(X, Y, groups=G)


def at(row: int, column: int, value: Any, x: Any = X) -> Any:
    """The rows, with one value changed."""
    x = np.array(x)
    x[row, column] = value
    return x


def table(*rows: dict[str, Any]) -> Any:
    """Rows as a table of Python objects."""
    return np.array([list(row.values()) for row in rows], dtype=object)


class Bad(NamedTuple):
    name: str
    call: Callable[[], Any]
    error: type[HomewardError]
    words: tuple[str, ...]  # place and remedy


ROWS = [
    Bad("NaN feature", lambda: fed(at(7, 2, NAN)), BadData, ("X, row 7, column 2", "nan", "drop such rows")),
    Bad("infinite feature", lambda: fed(at(3, 0, -INF)), BadData, ("X, row 3, column 0", "-inf", "drop such rows")),
    Bad("float32 NaN", lambda: fed(at(2, 1, NAN).astype("f4")), BadData, ("X, row 2, column 1", "drop such rows")),
    Bad("too large to be squared", lambda: fed(at(3, 1, 1e200)), BadData, ("row 3, column 1", "divide the features")),
    Bad("y shorter than X", lambda: fed(y=Y[:5]), BadData, ("y has 5 entries for 30 rows", "one for every row")),
    Bad("groups shorter than X", lambda: fed(groups=G[:5]), BadData, ("groups", "(5,) for 30 rows", "every row")),
    Bad("1-D X", lambda: fed(X[:, 0]), BadData, ("X has shape (30,)", "reshape(-1, 1)")),
    Bad("3-D X", lambda: fed(X[None]), BadData, ("X has shape (1, 30, 4)", "flatten each row")),
    Bad("no row", lambda: fed(X[:0], Y[:0], G[:0]), BadData, ("X has 0 row(s)", "a minimum of 1 is required")),
    Bad("no column", lambda: fed(X[:, :0]), BadData, ("X has 0 feature(s)", "at least one column")),
    Bad("ragged rows", lambda: fed([[1, 2], [3]], [0, 1], None), BadData, ("X", "every row the same columns")),
    Bad("no X", lambda: fed(None), BadData, ("X has shape ()", "rows are (n, columns)")),
    Bad("words", lambda: fed(at(1, 2, "red", X.astype(object))), BadData, ("'red' in row 1, column 2", "Encode")),
    Bad("text array", lambda: fed(X.astype(str)), BadData, ("X holds text", "X.astype(float)")),
    Bad("dates", lambda: fed(np.full((30, 1), "2020-01-01", "M8[D]")), BadData, ("row 0, column 0", "Encode")),
    Bad("objects", lambda: fed(at(4, 0, {}, X.astype(object))), BadData, ("{} in row 4, column 0", "numbers")),
    Bad("sparse", lambda: fed(scipy.sparse.csr_array(X)), BadData, ("X is a sparse matrix", "X.toarray()")),
    Bad("complex", lambda: fed(X * 1j), BadData, ("X: Complex data", "real and imaginary parts as columns")),
]

LABELS = [
    Bad("no y", lambda: fed(y=None), BadData, ("y", "one")),
    Bad("NaN label", lambda: fed(y=np.where(Y == 1, NAN, Y)), BadData, ("y, row 1", "Every row needs a label")),
    Bad("missing label", lambda: fed(y=[None] + ["a"] * 29), BadData, ("y has a missing label", "drop or label")),
    Bad(
        "NaN in a list of text labels",
        lambda: fed(y=["a", NAN] * 15),
        BadData,
        ("y has a missing label", "drop or label"),
    ),
    Bad(
        "NaN in a list of text ids",
        lambda: fed(groups=["a", NAN] * 15),
        BadData,
        ("groups have a missing id", "client"),
    ),
    Bad("labels of two types", lambda: fed(y=np.array(["a", 1] * 15, dtype=object)), BadData, ("y mixes", "one type")),
    Bad("fractions as labels", lambda: fed(y=Y + 0.5), BadData, ("y holds fractions", "task='real'")),
    Bad("labels in two dimensions", lambda: fed(y=np.eye(3)[Y]), BadData, ("y has shape (30, 3)", "task='multilabel'")),
    Bad("other than 0 and 1", lambda: fed(y=np.eye(3)[Y] * 2, task="multilabel"), BadData, ("0 and 1", "multilabel")),
    Bad("words as real targets", lambda: fed(y=["low"] * 30, task="real"), BadData, ("'low' in row 0", "classes")),
    Bad("NaN real target", lambda: fed(y=at(4, 0, NAN)[:, 0], task="real"), BadData, ("y, row 4", "drop such rows")),
    Bad("complex targets", lambda: fed(y=Y * 1j, task="real"), BadData, ("y: Complex data", "two outputs")),
    Bad("duplicate classes", lambda: fed(classes=[0, 1, 2, 1]), BadData, ("classes", "different labels")),
    Bad("classes that lack one", lambda: fed(classes=[0, 1]), BadData, ("y, row 2", "label 2", "classes=...")),
    Bad(
        "classes of two types", lambda: fed(classes=np.array([0, "a"], dtype=object)), BadData, ("classes", "one type")
    ),
    Bad("unknown task", lambda: fed(task="clases"), BadSetting, ("task = 'clases'", "classes, multilabel, real")),
    Bad(
        "label unseen, in test rows",
        lambda: fed(test=(X[:3], [0, 1, 9], G[:3])),
        BadData,
        ("test y, row 2", "label 9", "leave such rows out"),
    ),
    Bad(
        "label unseen, in score",
        lambda: clf().score(X[:3], [0, 1, 9], groups=G[:3]),
        BadData,
        ("y, row 2", "label 9", "leave such rows out"),
    ),
    Bad(
        "label of another type, in score",
        lambda: clf().score(X[:2], ["0", "1"], groups=G[:2]),
        BadData,
        ("y", "classes"),
    ),
    Bad("test rows of other columns", lambda: fed(test=(X[:, :2], Y, G)), BadData, ("test X has 2 columns", "4")),
    Bad("negative weight", lambda: fed(weights=at(6, 0, -1)[:, 0]), BadData, ("weights, row", "a number >= 0")),
    Bad("NaN weight", lambda: fed(weights=np.where(Y == 2, NAN, 1)), BadData, ("weights, row 2", "a number >= 0")),
    Bad("weights too few", lambda: fed(weights=[1, 1]), BadData, ("weights have shape (2,)", "one for every row")),
    Bad("words as weights", lambda: fed(weights=["much"] * 30), BadData, ("weights are no numbers", "number >= 0")),
    Bad("complex weights", lambda: fed(weights=np.ones(30) * 1j), BadData, ("weights are no numbers", "number >= 0")),
    Bad("NaN client", lambda: fed(groups=np.where(Y == 2, NAN, 1)), BadData, ("groups, row 2", "needs a client")),
    Bad("missing client", lambda: fed(groups=[None] + ["a"] * 29), BadData, ("groups have a missing id", "client")),
    Bad("empty client", lambda: fed(groups=["a"] * 29 + [""]), BadData, ("groups, row 29", "needs a client")),
    Bad("one client for all, as text", lambda: fed(groups="a"), BadData, ("groups have shape ()", "every row")),
    Bad("partition of other rows", lambda: fed(groups=hw.iid(Y[:9], clients=3)), BadData, ("groups has 9", "30 rows")),
    Bad("held out twice", lambda: fed().holdout().holdout(), BadData, ("held-out rows already", "once")),
    Bad("all held out", lambda: fed().holdout(test=0.6, val=0.4), BadSetting, ("test + val = 1", "less than 1")),
    Bad("a NaN share held out", lambda: fed().holdout(test=NAN), BadSetting, ("test = nan", "below 1")),
    Bad("a word held out", lambda: fed().holdout(test="some"), BadSetting, ("test = 'some'", "below 1")),  # type: ignore[arg-type]
    Bad(
        "chunks, not from a function", lambda: hw.Federation.from_chunks({"a": [(X, Y)]}), BadData, ("'a'", "function")
    ),  # type: ignore[dict-item]
    Bad(
        "chunks of other columns",
        lambda: hw.Federation.from_chunks({"a": lambda: [(X, Y)], "b": lambda: [(X[:, :2], Y)]}),
        BadData,
        ("'b'", "2 columns", "same columns"),
    ),
    Bad("no chunk", lambda: hw.Federation.from_chunks({"a": list}), BadData, ("'a'", "no chunk", "function")),
    Bad("more clients than declared", lambda: fed(declare=hw.Bounds(clients=2)), BadData, ("3 clients", "at most 2")),
]


def setting(method: Callable[..., Any], name: str, value: Any, *words: str) -> Bad:
    call = lambda: method(**{name: value})  # noqa: E731
    title = f"{getattr(method, '__name__', method)}({name}={value!r})"
    return Bad(title, call, BadSetting, (f"{name} = {value!r}", *words))


SETTINGS = [
    *(
        setting(hw.METHODS[m], "ridge", v, hw.METHODS[m].__name__, "finite number")
        for m in hw.METHODS
        for v in (-1, NAN, INF, True)
    ),
    *(setting(hw.METHODS[m], "ridge", "lo", "Did you mean 'loo'?") for m in hw.METHODS),
    *(
        setting(hw.METHODS[m], "maps", v, "a whole number >= 1 or None")
        for m in hw.METHODS
        for v in (0, -5, 1.5, "many")
    ),
    *(setting(hw.METHODS[m], "activation", "rleu", "Did you mean 'relu'?") for m in hw.METHODS),
    *(setting(hw.METHODS[m], "intercept", v, "True or False") for m in hw.METHODS for v in (1, "yes", None)),
    *(setting(hw.METHODS[m], "map_seed", v, "a whole number >= 0") for m in hw.METHODS for v in (-1, None, "x")),
    *(setting(m, "gamma", v, "finite number") for m in (hw.APFL, hw.FedHiP) for v in (-0.1, NAN, INF, False, [1])),
    setting(hw.APFL, "gamma", 0, "above 0"),
    setting(hw.FedHiP, "gamma", 0, "above 0"),
    setting(hw.LocalRidge, "ridge", 0, "above 0"),
    setting(hw.APFL, "gamma", "lou", "Did you mean 'loo'?"),
    *(setting(hw.APFL, "balance", v, "finite number") for v in (-0.1, NAN, INF, True, None)),
    setting(hw.FedHiP, "balance", 0.5, "form = 'blend'"),
    Bad("blend above 1", lambda: hw.FedHiP(form="blend", balance=1.5), BadSetting, ("balance = 1.5", "<= 1")),
    setting(hw.FedHiP, "form", "blent", "Did you mean 'blend'?"),
    setting(hw.LogPrior, "tau", -1, "finite number >= 0"),
    setting(hw.LogPrior, "tau", NAN, "finite number >= 0"),
    setting(hw.APFL, "joint", "yes", "True or False"),
    setting(hw.APFL, "share", 1, "True or False"),
    setting(hw.APFL, "refine_maps", 0, "a whole number >= 1"),
    Bad("joint without a factor", lambda: hw.APFL(ridge="pinv", joint=True), BadSetting, ("joint", "Use a number")),
    Bad("tau without a factor", lambda: hw.LogPrior(ridge="pinv"), BadSetting, ("tau", "Use a number")),
    Bad("refine_maps alone", lambda: hw.APFL(maps=None, refine_maps=8), BadSetting, ("refine_maps", "Set maps too")),
    Bad("a misspelt setting", lambda: settings.build(hw.APFL, {"rigde": 1}), BadSetting, ("APFL", "mean 'ridge'?")),
    Bad("unknown method", lambda: hw.METHODS["apf"], UnknownName, ("'apf'", "Did you mean 'apfl'?")),
    Bad("standardised, of a name", lambda: hw.standardised("afl"), BadSetting, ("'afl'", "hw.APFL()")),  # type: ignore[arg-type]
    Bad("fit of a name", lambda: hw.fit("afl", fed()), BadSetting, ("'afl'", "hw.METHODS[name]()")),  # type: ignore[arg-type]
    Bad("fit of a class", lambda: hw.fit(hw.AFL, fed()), BadSetting, ("AFL", "hw.APFL()")),  # type: ignore[arg-type]
    Bad("fit of arrays", lambda: hw.fit(hw.AFL(), X), BadData, ("ndarray", "from_arrays(X, y, groups)")),  # type: ignore[arg-type]
    Bad("unknown engine", lambda: hw.fit(hw.AFL(), fed(), engine="inproces"), BadSetting, ("engine", "'inprocess'?")),
    *(
        Bad(
            f"seed {v!r}",
            lambda v=v: hw.fit(hw.AFL(), fed(), seed=v),
            BadSetting,
            (f"seed = {v!r}", "whole number >= 0"),
        )
        for v in (-1, 1.5, "x", True, None)
    ),
    Bad("resume from nowhere", lambda: hw.fit(hw.AFL(), fed(), resume=True), BadSetting, ("resume", "checkpoint=...")),
    Bad("classes for a real target", lambda: hw.fit(hw.Masked(), fed(task="real")), BadSetting, ("Masked", "Use afl")),
    Bad(
        "no probabilities",
        lambda: hw.fit(hw.AFL(), fed(task="real")).model("west").predict_proba(X),
        BadData,
        ("predict",),
    ),
]

LAWS = [
    *(
        setting(lambda **s: hw.dirichlet(Y, 3, **s), "alpha", v, "above 0")
        for v in (0, 0.0, -1.0, NAN, INF, True, "0.1")
    ),
    *(
        setting(lambda **s: hw.dirichlet(Y, alpha=1.0, **s), "clients", v, "whole number >= 1")
        for v in (0, -2, 1.5, "3")
    ),
    setting(lambda **s: hw.dirichlet(Y, 3, 0.1, **s), "seed", -1, "whole number >= 0"),
    setting(lambda **s: hw.dirichlet(Y, 3, 0.1, **s), "scheme", "caped", "Did you mean 'capped'?"),
    Bad("more clients than rows feed", lambda: hw.dirichlet(Y, 30, 0.1), BadSetting, ("need 300 rows", "clients <= 3")),
    Bad("more clients than rows", lambda: hw.iid(Y, 31), BadSetting, ("31 clients", "clients <= 30")),
    Bad("more shards than rows", lambda: hw.shards(Y, 10, 4), BadSetting, ("10 clients", "40 rows", "Use")),
    Bad("NaN label to deal", lambda: hw.iid([1.0, NAN], 1), BadData, ("y, row 1", "leave out such rows")),
    Bad("real targets to deal", lambda: hw.dirichlet(X[:, 0], 2, 1.0), BadData, ("real numbers", "iid")),
    Bad("unknown law", lambda: laws.partition("dirichelt", Y), BadSetting, ("'dirichelt'", "mean 'dirichlet'?")),
    Bad("a law's misspelt setting", lambda: laws.partition("iid", Y, client=3), BadSetting, ("'client'", "'clients'?")),
    Bad(
        "a law without a setting", lambda: laws.partition("dirichlet", Y, clients=3), BadSetting, ("alpha", "alpha=...")
    ),
    Bad("test class nobody has", lambda: hw.iid(Y, 3).match([7]), BadData, ("y_test, row 0", "class 7", "Leave such")),
]

RUNS = [
    Bad("unknown client", lambda: run().model("nort"), UnknownClient, ("'nort'", "Did you mean 'north'?")),
    Bad("unknown client, to forget", lambda: run().forget("nort"), UnknownClient, ("'nort'", "mean 'north'?")),
    Bad("unknown client, in a federation", lambda: fed().only("moon"), UnknownClient, ("'moon'", "north, south, west")),
    Bad("unknown slot", lambda: personal().model("west", "persnal"), BadSetting, ("'persnal'", "mean 'personal'?")),
    Bad("unknown split", lambda: run().scores("tets"), BadSetting, ("'tets'", "Did you mean 'test'?")),
    Bad("other columns to predict", lambda: run().model("west").predict(X[:, :3]), BadData, ("3 columns", "4")),
    Bad(
        "NaN to predict", lambda: run().model("west").predict(at(1, 1, NAN)), BadData, ("X, row 1, column 1", "fill in")
    ),
    Bad("one row to predict, flat", lambda: run().model("west").predict(X[0]), BadData, ("(4,)", "reshape(1, -1)")),
    Bad("a clashing id joins", lambda: run().join(fed()), BadData, ("'north' is in this run already", "another id")),
    Bad(
        "other columns join", lambda: run().join(fed(X[:, :3], groups=["new"] * 30)), BadData, ("3 columns", "same way")
    ),
    Bad(
        "an unseen label joins", lambda: run().join(fed(y=Y + 1, groups=["new"] * 30)), BadData, ("'new', y, row", "3")
    ),
    Bad(
        "another task joins", lambda: run().join(fed(groups=["new"] * 30, task="real")), BadData, ("'real'", "same way")
    ),
    Bad("arrays join", lambda: run().join(X), BadData, ("ndarray", "from_arrays(X, y, groups)")),  # type: ignore[arg-type]
    Bad("a misspelt scale", lambda: run().join(fed(groups=["new"] * 30), scale="kep"), BadSetting, ("'kep'", "'keep'")),
    Bad(
        "the only client leaves", lambda: hw.fit(hw.AFL(), fed(groups=None)).forget("all"), BadData, ("only", "Delete")
    ),
    Bad(
        "rows that are not the leaver's",
        lambda: run().forget("west", federation=fed(at(29, 0, 1.0))),
        BadData,
        ("'west'", "not those that it joined with", "Find the old ones"),
    ),
    Bad(
        "rows of others only",
        lambda: run().forget("west", federation=fed(groups=["moon"] * 30)),
        BadData,
        ("None of the clients given", "Check the ids"),
    ),
    Bad("a message that is none", lambda: run().forget("west", message=3), HomewardError, ("Moments",)),
]


def estimator(*args: Any, groups: Any = G, x: Any = X, y: Any = Y, **given: Any) -> Callable[[], Any]:
    return lambda: hw.FederatedClassifier(*args, **given).fit(x, y, groups=groups)


FACES = [
    Bad("a setting the method lacks", estimator("afl", gamma=1.0), BadSetting, ("AFL has no setting 'gamma'", "Known")),
    Bad(
        "a setting beside a Method", estimator(hw.AFL(), ridge=1.0), BadSetting, ("ridge = 1.0", "method=AFL(ridge=1.0")
    ),
    Bad("an unknown method, by name", estimator("apf"), UnknownName, ("'apf'", "Did you mean 'apfl'?")),
    Bad("a method that is none", estimator(3), BadSetting, ("method = 3", "hw.APFL()")),
    Bad("a list for a method", estimator(["afl"]), BadSetting, ("method = ['afl']", "hw.APFL()")),
    Bad("a negative ridge", estimator("afl", ridge=-1), BadSetting, ("ridge = -1", "finite number >= 0")),
    Bad("a misspelt rule", estimator("afl", ridge="gvc"), BadSetting, ("ridge = 'gvc'", "Did you mean 'gcv'?")),
    Bad("a random_state that is none", estimator("afl", random_state="x"), BadSetting, ("'x'", "random_state=0")),
    Bad("a negative random_state", estimator("afl", random_state=-1), BadSetting, ("seed = -1", "whole number >= 0")),
    Bad("not fitted", lambda: hw.FederatedClassifier().predict(X), HomewardError, ("not fitted yet", "Call fit first")),
    Bad("fit without y", estimator("afl", y=None), BadData, ("the target y is None", "one target for every row")),
    Bad("fit of mixed labels", estimator("afl", y=["a", 1, 2] * 10), BadData, ("y", "one type")),
    Bad("fit with NaN", estimator("afl", x=at(7, 2, NAN)), BadData, ("X, row 7, column 2", "drop such rows")),
    Bad("fit with a missing id", estimator("afl", groups=[""] + ["a"] * 29), BadData, ("groups, row 0", "client")),
    Bad("predict other columns", lambda: clf().predict(X[:, :3]), BadData, ("3 features", "made like those of fit")),
    Bad(
        "predict with too few groups", lambda: clf().predict(X, groups=G[:3]), BadData, ("groups", "(3,)", "every row")
    ),
    Bad("score with too few labels", lambda: clf().score(X, Y[:3], groups=G), BadData, ("y has 3", "every row")),
    Bad("join other columns", lambda: clf().join(X[:, :3], Y, groups=["new"] * 30), BadData, ("3 features", "of fit")),
    Bad("join a known client", lambda: clf().join(X, Y, groups=G), BadData, ("'north'", "another id")),
    Bad("join nobody", lambda: clf().join(X, Y, groups=None), BadData, ("join needs groups", "groups=...")),
    Bad(
        "join an unseen label", lambda: clf().join(X, Y + 1, groups=["n"] * 30), BadData, ("row 2", "label 3", "leave")
    ),
    Bad("forget a stranger", lambda: clf().forget("moon"), UnknownClient, ("'moon'", "north, south, west")),
    Bad("the model of a stranger", lambda: clf().personal("wets"), UnknownClient, ("'wets'", "mean 'west'?")),
    Bad("regression of words", lambda: hw.FederatedRegressor("afl").fit(X, ["a"] * 30), BadData, ("'a' in row 0",)),
    Bad(
        "score of NaN", lambda: hw.FederatedRegressor("afl").fit(X, Y).score(X, Y * NAN), BadData, ("y, row 0", "drop")
    ),
]

TABLE = [*ROWS, *LABELS, *SETTINGS, *LAWS, *RUNS, *FACES]


def refused(bad: Bad) -> HomewardError:
    """The error of a call, which is ours and has the words; no warning comes before it."""
    with warnings.catch_warnings(), pytest.raises(HomewardError) as caught:
        warnings.simplefilter("error")
        bad.call()
    error, text = caught.value, str(caught.value)
    assert isinstance(error, bad.error)
    if not issubclass(bad.error, UnknownClient) and bad.error is not HomewardError:
        assert isinstance(error, ValueError)  # a bad value
    if isinstance(error, UnknownClient | UnknownName):
        assert isinstance(error, KeyError)  # a missing id
    for word in bad.words:
        assert word in text, text
    assert text[-1] in ".?)", text  # a sentence
    assert "np." not in text, text  # as its user wrote it
    assert "Traceback" not in text
    return error


@pytest.mark.parametrize("bad", TABLE, ids=lambda bad: bad.name)
def test_one_clear_error(bad: Bad) -> None:
    refused(bad)


def test_the_table_is_long_and_its_names_are_different() -> None:
    names = [bad.name for bad in TABLE]
    assert len(set(names)) == len(names) > 150


@pytest.mark.filterwarnings("ignore::homeward.core.errors.NoBalance")  # that ridge is the least, and it says so
@pytest.mark.parametrize("x", [np.hstack([X, X]), X[:3], at(0, 0, 0.0, np.ones((30, 4)))], ids=["twins", "few", "flat"])
@pytest.mark.parametrize("method", [hw.AFL, hw.APFL, hw.FedHiP], ids=lambda m: m.__name__)
def test_a_singular_sum_names_a_ridge_that_works(method: Callable[..., Any], x: Any) -> None:
    made = fed(x, Y[: len(x)], G[: len(x)])
    more = {"maps": 64} if method is hw.APFL else {}
    with pytest.raises(Singular, match="ridge = 0") as caught:
        hw.fit(method(ridge=0, **more), made)
    named = re.search(r"Use a ridge of at least ([-+.e\d]+),", str(caught.value))
    assert named is not None
    again = hw.fit(method(ridge=float(named[1]), **more), made)
    assert np.isfinite(again.model("north").decision_function(x)).all()


# ---- files: what is damaged is refused, and what was there stays whole


def headed(content: bytes, change: Callable[[dict[str, Any]], None]) -> bytes:
    """A file of ours with the facts in its header changed."""
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    facts = json.loads(header["__metadata__"]["homeward"])
    change(facts)
    header["__metadata__"]["homeward"] = json.dumps(facts)
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + content[8 + length :]


def told(content: bytes, change: Callable[[dict[str, Any]], object]) -> bytes:
    """A file of ours, whole, that says something else."""
    value, facts = wire.from_bytes(content)
    change(facts)
    return wire.to_bytes(value, **facts)


MODEL_DAMAGE: list[tuple[str, Callable[[bytes], bytes], tuple[str, ...]]] = [
    ("empty", lambda b: b"", ("damaged",)),
    ("cut in its header", lambda b: b[:40], ("damaged", "restore a copy")),
    ("cut in its numbers", lambda b: b[:-5], ("damaged", "restore a copy")),
    ("of zeros", lambda b: bytes(len(b)), ("damaged", "restore a copy")),
    ("a picture", lambda b: b"\x89PNG\r\n\x1a\n" + b[8:], ("no file of homeward's",)),
    ("somebody's text", lambda b: b"hello, this is a plain text file", ("no file of homeward's",)),
    ("somebody's safetensors", lambda b: struct.pack("<Q", 2) + b"{}", ("no file of homeward's",)),
    ("newer", lambda b: headed(b, lambda f: f.update(schema=99)), ("schema 99", "Update homeward")),
    ("without a schema", lambda b: headed(b, lambda f: f.pop("schema")), ("damaged",)),
    ("of another kind", lambda b: told(b, lambda f: f.update(kind="server")), ("no model", "server")),
    ("of a model not known here", lambda b: told(b, lambda f: f["model"].update(type="Oracle")), ("'Oracle'",)),
    ("without its task", lambda b: told(b, lambda f: f.pop("task")), ("damaged", "restore a copy")),
]


@pytest.mark.parametrize(("name", "damage", "words"), MODEL_DAMAGE, ids=lambda v: v if isinstance(v, str) else "")
def test_a_bad_model_file(tmp_path: Path, name: str, damage: Callable[[bytes], bytes], words: tuple[str, ...]) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(damage(run().model("west").to_bytes()))
    refused(Bad(name, lambda: hw.load_model(path), BadFile, (str(path), *words)))


def overwrite(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def retold(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Changes a run's manifest."""
    told = json.loads((folder / "manifest.json").read_text())
    change(told)
    (folder / "manifest.json").write_text(json.dumps(told))


RUN_DAMAGE: list[tuple[str, Callable[[Path], object], tuple[str, ...]]] = [
    ("without a manifest", lambda f: (f / "manifest.json").unlink(), ("manifest.json",)),
    (
        "of a manifest cut short",
        lambda f: overwrite(f / "manifest.json", b'{"schema": 1, "ki'),
        ("manifest.json", "copy"),
    ),
    ("of a list for a manifest", lambda f: overwrite(f / "manifest.json", b"[1, 2]"), ("manifest.json", "copy")),
    ("of binary for a manifest", lambda f: overwrite(f / "manifest.json", b"\xff\xfe\x00"), ("manifest.json", "copy")),
    ("newer", lambda f: retold(f, lambda t: t.update(schema=99)), ("schema 99", "Update homeward")),
    ("of another kind", lambda f: retold(f, lambda t: t.update(kind="compare")), ("compare", "folder of a single run")),
    ("without its task", lambda f: retold(f, lambda t: t.pop("task")), ("manifest.json", "copy")),
    ("of an unknown method", lambda f: retold(f, lambda t: t["method"].update(name="x")), ("'x'", "method=...")),
    ("of a bad setting", lambda f: retold(f, lambda t: t["method"]["settings"].update(ridge=-1)), ("ridge = -1",)),
    ("without the server's state", lambda f: (f / "server.safetensors").unlink(), ("server.safetensors", "exist")),
    ("of a state cut short", lambda f: overwrite(f / "server.safetensors", b"12345678"), ("server.safetensors",)),
    (
        "of a newer state",
        lambda f: overwrite(
            f / "server.safetensors",
            headed((f / "server.safetensors").read_bytes(), lambda facts: facts.update(schema=2)),
        ),
        ("server.safetensors", "schema 2", "Update homeward"),
    ),
    ("without its log", lambda f: (f / "log.jsonl").unlink(), ("log.jsonl", "exist")),
    ("of a log cut short", lambda f: overwrite(f / "log.jsonl", b'{"round": "su'), ("copy",)),
]


@pytest.mark.parametrize(("name", "damage", "words"), RUN_DAMAGE, ids=lambda v: v if isinstance(v, str) else "")
def test_a_bad_run_folder(tmp_path: Path, name: str, damage: Callable[[Path], object], words: tuple[str, ...]) -> None:
    folder = run().save(tmp_path / "run")
    damage(folder)
    refused(Bad(name, lambda: hw.load_run(folder), HomewardError, words))


def test_a_bad_model_in_a_run_folder(tmp_path: Path) -> None:
    folder = run().save(tmp_path / "run")
    (folder / "models" / "west.safetensors").write_bytes(b"no")
    loaded = hw.load_run(folder)
    loaded.model("north")
    refused(Bad("", lambda: loaded.model("west"), BadFile, ("west.safetensors", "damaged")))


PARTITION_DAMAGE: list[tuple[str, Callable[[bytes], bytes], tuple[str, ...]]] = [
    ("empty", lambda b: b"", ("not a partition file", "Partition.save")),
    ("cut short", lambda b: b[: len(b) // 2], ("damaged", "Write it again")),
    ("with a byte changed", lambda b: b[:100] + bytes([b[100] ^ 255]) + b[101:], ("Write it again",)),
    ("somebody's text", lambda b: b"a,b\n1,2\n", ("not a partition file", "Partition.save")),
]


@pytest.mark.parametrize(("name", "damage", "words"), PARTITION_DAMAGE, ids=lambda v: v if isinstance(v, str) else "")
def test_a_bad_partition_file(
    tmp_path: Path, name: str, damage: Callable[[bytes], bytes], words: tuple[str, ...]
) -> None:
    path = tmp_path / "partition.npz"
    hw.iid(Y, clients=3).save(path)
    path.write_bytes(damage(path.read_bytes()))
    refused(Bad(name, lambda: hw.Partition.load(path), BadFile, (str(path), *words)))


def test_a_foreign_archive_is_no_partition(tmp_path: Path) -> None:
    np.savez(tmp_path / "rows.npz", X=X, y=Y)
    words = ("rows.npz", "not a partition file", "Partition.save")
    refused(Bad("", lambda: hw.Partition.load(tmp_path / "rows.npz"), BadFile, words))


@pytest.mark.parametrize("load", [hw.load_model, hw.load_run, hw.Partition.load], ids=["model", "run", "partition"])
def test_a_file_that_is_not_there(tmp_path: Path, load: Callable[[Path], Any]) -> None:
    refused(Bad("", lambda: load(tmp_path / "none"), BadFile, (str(tmp_path / "none"),)))


def other(what: str) -> Callable[[Path], Any]:
    """A fit that would go on from a folder where something else was learnt."""
    method, data, seed = hw.AFL(), fed(), 0
    if what == "method":
        method = hw.FedHiP()
    elif what == "setting":
        method = hw.AFL(ridge=1.0)
    elif what == "scale":
        return lambda at: hw.fit(hw.standardised(hw.AFL()), data, checkpoint=at, resume=True)
    elif what == "seed":
        seed = 1
    elif what == "rows":
        data = fed(at_0)
    elif what == "clients":
        data = fed(groups=np.where(G == "west", "moon", G))
    elif what == "classes":
        data = fed(classes=[0, 1, 2, 3])
    return lambda at: hw.fit(method, data, seed=seed, checkpoint=at, resume=True)


at_0 = at(0, 0, 5.0)


@pytest.mark.parametrize("what", ["method", "setting", "scale", "seed", "rows", "clients", "classes"])
def test_a_run_is_not_resumed_as_another(tmp_path: Path, what: str) -> None:
    folder = tmp_path / "run"
    hw.fit(hw.AFL(), fed(), checkpoint=folder)
    before = contents(folder)
    refused(Bad(what, lambda: other(what)(folder), BadData, ()))
    assert contents(folder) == before
    same = hw.fit(hw.AFL(), fed(), checkpoint=folder, resume=True)
    np.testing.assert_array_equal(same.shared["weights"], run().shared["weights"])


def test_rows_that_are_not_those_of_a_saved_run(tmp_path: Path) -> None:
    folder = run().save(tmp_path / "run")
    words = ("'north'", "not those that it joined with", "old ones")
    refused(Bad("load", lambda: hw.load_run(folder, federation=fed(at_0)), BadData, words))
    loaded = hw.load_run(folder)
    refused(Bad("forget", lambda: loaded.forget("north", federation=fed(at_0)), BadData, words))
    refused(Bad("nothing", lambda: loaded.forget("north"), HomewardError, ("'north'", "federation=... or message=...")))


@pytest.mark.parametrize("what", ["file", "folder", "here", "above"])
def test_a_run_replaces_nothing_but_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    place = tmp_path / "place"
    if what == "file":
        place.write_text("a letter")
    else:
        (place / "inner").mkdir(parents=True)
        (place / "letters.txt").write_text("dear all")
    if what == "above":
        monkeypatch.chdir(place / "inner")
    elif what == "here":
        monkeypatch.chdir(place)
    before = contents(tmp_path)
    refused(Bad(what, lambda: run().save(place), HomewardError, (str(place),)))
    assert contents(tmp_path) == before


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, hidden ones too."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def full_disk(*args: Any, **kwargs: Any) -> Any:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def full_after(calls: int, real: Callable[..., Any]) -> Callable[..., Any]:
    """A function that finds the disk full, after some calls."""
    left = [calls]

    def call(*args: Any, **kwargs: Any) -> Any:
        if not left[0]:
            full_disk()
        left[0] -= 1
        return real(*args, **kwargs)

    return call


@pytest.mark.parametrize("calls", [0, 1, 2, 4])
def test_a_full_disk_leaves_the_old_run_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: int) -> None:
    folder = run().save(tmp_path / "run")
    before = contents(tmp_path)
    monkeypatch.setattr(Path, "write_bytes", full_after(calls, Path.write_bytes))
    refused(Bad("", lambda: personal().save(folder), HomewardError, ("No space left", "Free some space", str(folder))))
    monkeypatch.undo()
    assert contents(tmp_path) == before
    np.testing.assert_array_equal(hw.load_run(folder).model("west").predict(X), run().model("west").predict(X))


@pytest.mark.parametrize("renames", [0, 1])
def test_a_rename_that_fails_leaves_the_old_run_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, renames: int
) -> None:
    folder = run().save(tmp_path / "run")
    before = contents(tmp_path)
    real, left = os.rename, [renames]

    def rename(source: Any, target: Any) -> None:  # the one that fails is the one of the new folder, or of the old
        if not left[0] and ".previous" not in str(source):
            full_disk()
        left[0] -= 1
        real(source, target)

    monkeypatch.setattr(os, "rename", rename)
    refused(Bad("", lambda: personal().save(folder), HomewardError, ("Free some space",)))
    monkeypatch.undo()
    assert contents(tmp_path) == before


KILLED = """
import os, signal, sys
import numpy as np
import homeward as hw
where, folder = sys.argv[1], sys.argv[2]
X = np.random.default_rng(1).normal(size=(20, 3))
run = hw.fit(hw.FedHiP(), hw.Federation.from_arrays(X, np.arange(20) % 2, np.arange(20) // 10))
real, calls = getattr(os, "rename"), [0]
def rename(*names):
    calls[0] += 1
    if where == f"before rename {calls[0]}":
        os.kill(os.getpid(), signal.SIGKILL)
    real(*names)
os.rename = rename
if where == "while writing":
    from pathlib import Path
    real_write = Path.write_bytes
    def write_bytes(path, content):
        if path.parent.name == "models":
            real_write(path, content[:10])
            os.kill(os.getpid(), signal.SIGKILL)
        return real_write(path, content)
    Path.write_bytes = write_bytes
run.save(folder)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL on Windows")
@pytest.mark.parametrize("where", ["while writing", "before rename 1", "before rename 2"])
def test_a_killed_save_leaves_the_old_run_whole(tmp_path: Path, where: str) -> None:
    folder = run().save(tmp_path / "run")
    before = contents(folder)
    done = subprocess.run([sys.executable, "-c", KILLED, where, str(folder)], check=False)
    assert done.returncode == -9
    loaded = hw.load_run(folder)  # brings the old one back, where the kill came between two renames
    assert contents(folder) == before
    np.testing.assert_array_equal(loaded.model("west").predict(X), run().model("west").predict(X))
    personal().save(folder)  # and the next save is not in the way of what was left behind
    assert hw.load_run(folder).method == hw.FedHiP()


@pytest.mark.parametrize("what", ["model", "partition"])
def test_a_full_disk_leaves_the_old_file_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    path = tmp_path / "file"
    old, new = (
        (run().model("west"), personal().model("west"))
        if what == "model"
        else (hw.iid(Y, clients=2), hw.iid(Y, clients=3))
    )
    old.save(path)
    before = contents(tmp_path)
    monkeypatch.setattr(os, "fsync", full_disk)
    refused(Bad(what, lambda: new.save(path), HomewardError, (str(path), "No space left", "Free some space")))
    monkeypatch.undo()
    assert contents(tmp_path) == before


def test_a_full_disk_at_a_checkpoint_leaves_the_last_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "run"
    method = hw.AFL(ridge="loo")  # two rounds, two checkpoints
    real, saved = Path.write_bytes, []

    def write_bytes(path: Path, content: bytes) -> int:
        if folder.exists():
            saved.append(contents(folder))
            full_disk()
        return real(path, content)

    monkeypatch.setattr(Path, "write_bytes", write_bytes)
    refused(Bad("", lambda: hw.fit(method, fed(), checkpoint=folder), HomewardError, ("Free some space",)))
    monkeypatch.undo()
    assert contents(folder) == saved[0]
    resumed = hw.fit(method, fed(), checkpoint=folder, resume=True)
    whole = hw.fit(method, fed())
    np.testing.assert_array_equal(resumed.shared["weights"], whole.shared["weights"])


@pytest.mark.parametrize("where", ["a file", "nowhere"])
def test_a_model_saved_where_no_file_can_be(tmp_path: Path, where: str) -> None:
    (tmp_path / "file").write_text("a letter")
    place = tmp_path / "file" / "model" if where == "a file" else tmp_path
    before = contents(tmp_path)
    refused(Bad(where, lambda: run().model("west").save(place), HomewardError, (str(place), "another place")))
    assert contents(tmp_path) == before
