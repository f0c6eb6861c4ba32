"""What enters is checked: what is wrong is named with its place, and a remedy beside it."""

import re
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

from homeward.core import check
from homeward.core.errors import BadData
from homeward.core.task import Bounds, Federation, Task


def task(kind: str = "classes", labels: Any = ("a", "b"), d: int = 2) -> Task:
    return Task(kind, d, len(labels), np.asarray(labels))


REFUSED_ROWS: list[tuple[Any, str]] = [
    ([[1.0, 2.0], [3.0, np.nan]], r"^X, row 1, column 1 is nan\b.*fill in or drop"),
    (
        [[1.0, np.inf], [np.nan, -np.inf]],
        r"^X, row 0, column 1 is inf \(3 such values in all: 2 in column 1, 1 in column 0\)",
    ),
    (np.float16([[np.inf]]), r"row 0, column 0 is inf"),
    ([[1.0], [-1e200]], r"^X, row 1, column 0 is -1e\+200"),  # its square has no number
    ([1.0, 2.0], r"^X has shape \(2,\).*\.reshape\(-1, 1\)"),
    (3.0, r"^X has shape \(\)"),
    (np.ones((2, 3, 4)), r"^X has shape \(2, 3, 4\).*flatten each row"),
    (np.ones((0, 2)), r"^X has 0 .*minimum of 1"),
    (np.ones((2, 0)), r"^X has 0 .*minimum of 1"),
    ([[1.0], [1.0, 2.0]], r"^X is no table of numbers.*same columns"),
    ([["a", 1], ["b", 2]], r"^X holds .*'a'.*row 0, column 0.*as numbers"),
    ([["1", "2"]], r"^X holds text.*astype\(float\)"),
    (np.array([[1.0, None]], dtype=object), r"^X, row 0, column 1 is nan"),
    (np.array([["2020-01-01"]], dtype="M8[D]"), r"^X holds .*dates"),
    (np.array([[1 + 1j]]), r"^X: Complex data not supported"),
    (scipy.sparse.csr_matrix(np.eye(2)), r"^X is a sparse matrix.*X\.toarray\(\)"),
    (None, r"^X "),
]


@pytest.mark.parametrize(("value", "message"), REFUSED_ROWS, ids=[message for _, message in REFUSED_ROWS])
def test_bad_rows_are_refused(value: Any, message: str) -> None:
    with pytest.raises(BadData, match=message):
        check.features(value, "X")


def test_rows_of_another_width_are_refused() -> None:
    with pytest.raises(BadData, match="X has 3 columns, but 2 are expected"):
        check.features(np.ones((1, 3)), "X", width=2)


@given(n=st.integers(1, 5), d=st.integers(1, 5), data=st.data())
def test_the_first_bad_number_is_named(n: int, d: int, data: st.DataObject) -> None:
    bad = data.draw(st.lists(st.integers(0, n * d - 1), min_size=1, unique=True))
    x = np.ones((n, d))
    x.flat[bad] = data.draw(st.sampled_from([np.nan, np.inf, -np.inf]))
    row, column = divmod(min(bad), d)
    for value in (x, x.astype(np.float32), x.tolist(), np.asfortranarray(x)):
        with pytest.raises(BadData, match=f"^here, row {row}, column {column} is "):
            check.features(value, "here")


@pytest.mark.parametrize(
    ("dtype", "kept"),
    [
        *(("float64", "float64"), ("float32", "float32"), ("float16", "float32"), ("longdouble", "float64")),
        *((">f8", "float64"), (">f4", "float32"), ("int8", "float64"), ("uint64", "float64"), ("bool", "float64")),
        ("object", "float64"),
    ],
)
def test_numbers_of_any_kind_keep_their_value(dtype: str, kept: str) -> None:
    x = np.array([[0, 1], [1, 1]]).astype(dtype)
    out = check.features(x, "X")
    assert out.dtype == np.dtype(kept) and out.dtype.isnative
    assert out.tolist() == [[0, 1], [1, 1]]


def test_rows_of_torch_stay_there() -> None:
    torch = pytest.importorskip("torch")
    for dtype, kept in (("float64", "float64"), ("float32", "float32"), ("bfloat16", "float32"), ("int64", "float64")):
        assert check.features(torch.ones((2, 2), dtype=getattr(torch, dtype)), "X").dtype == getattr(torch, kept)
    with pytest.raises(BadData, match="row 1, column 0 is nan"):
        check.features(torch.tensor([[1.0], [torch.nan]]), "X")
    with pytest.raises(BadData, match="Complex data not supported"):
        check.features(torch.ones((2, 2), dtype=torch.complex64), "X")
    with pytest.raises(BadData, match=r"X has shape \(2,\)"):
        check.features(torch.ones(2), "X")


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "bfloat16", "int32", "bool"])
def test_torch_comes_to_the_host_with_its_numbers(dtype: str) -> None:
    torch = pytest.importorskip("torch")
    host = check.as_numpy(torch.tensor([0, 1], dtype=getattr(torch, dtype)).requires_grad_(dtype.startswith("float")))
    assert host.dtype == ("float32" if dtype == "bfloat16" else dtype) and host.tolist() == [0, 1]


REFUSED_LABELS: list[tuple[Any, str, str]] = [
    ([[0, 1], [1, 0]], "classes", r"y has shape \(2, 2\).*task='multilabel'"),
    ([0.0, np.nan], "classes", r"y, row 1 is NaN or infinite"),
    ([0.5, 1.0], "classes", r"fractions.*task='real'"),
    (["a", None], "classes", r"missing label.*drop or label"),
    (np.array(["a", 1], dtype=object), "classes", r"several types.*Use one type"),
    (np.array([b"a", b"b"]), "classes", r"y holds labels such as .*b'a'.*y\.astype\(str\)"),
    (np.array(["2020", "2021"], dtype="M8[Y]"), "classes", r"y holds labels such as .*astype\(str\)"),
    (np.array([1j, 2]), "classes", r"y holds labels such as"),
    (np.array([(1, 2), (1, 3), None], dtype=object)[:2], "classes", r"y holds labels such as \(1, 2\)"),
    ([[1], [1, 2]], "classes", r"y is no array.*Give every row"),
    ([[1.0], [1.0, 2.0]], "real", r"y is no array.*Give every row"),
    (1.0, "classes", r"y has shape \(\)"),
    (1.0, "real", r"y has shape \(\)"),
    (np.ones((2, 2, 2)), "real", r"y has shape \(2, 2, 2\)"),
]


@pytest.mark.parametrize(("y", "kind", "message"), REFUSED_LABELS)
def test_bad_labels_are_refused(y: Any, kind: str, message: str) -> None:
    with pytest.raises(BadData, match=message):
        check.labels(y, None, kind)


@pytest.mark.parametrize("classes", [[], ["a", "a"], [["a"], ["b"]], "ab", 3, [1, 1.0]])
def test_declared_classes_are_a_list_of_different_labels(classes: Any) -> None:
    with pytest.raises(BadData, match="classes must be a list of different labels"):
        check.labels(["a", "b"], classes, "classes")


def test_declared_classes_are_named_when_they_cannot_be_labels() -> None:
    with pytest.raises(BadData, match=r"classes holds labels such as"):
        check.labels(["a"], [b"a"], "classes")
    with pytest.raises(BadData, match="classes names 3 outputs, but y has 2 columns"):
        check.labels(np.ones((4, 2)), ["a", "b", "c"], "real")


@pytest.mark.parametrize(
    "y",
    [
        ["b", "a", "b"],
        np.array(["b", "a", "b"], dtype=object),
        [3, 1, 3],
        np.array([3, 1, 3], dtype=np.uint8),
        [True, False, True],
        [2.0, -1.0, 2.0],
        np.array([np.int64(2), np.int64(1), np.int64(2)], dtype=object),
    ],
    ids=repr,
)
def test_labels_of_every_kind_are_found_again(y: Any) -> None:
    known = check.labels(y, None, "classes")
    assert known.tolist() == sorted(set(np.asarray(y).tolist()))
    facts = Task("classes", 1, len(known), known)
    assert check.targets(y, facts, "y").tolist() == [1, 0, 1]
    backwards = Task("classes", 1, 2, check.labels(y, known[::-1], "classes"))
    assert check.targets(y, backwards, "y").tolist() == [0, 1, 0]


@given(st.lists(st.text(max_size=3), min_size=1, max_size=20), st.randoms())
def test_codes_point_to_their_labels_in_any_order_of_classes(y: list[str], draw: Any) -> None:
    y = [label.replace("\0", "0") for label in y]
    known = sorted(set(y))
    draw.shuffle(known)
    codes = check.codes(np.array(y), np.array(known), "y")
    assert np.array(known)[codes].tolist() == y


REFUSED_TARGETS: list[tuple[Any, Task, str]] = [
    (["a", "c"], task(), r"here, row 1 has the label .*'c'.*\['a', 'b'\].*classes=\.\.\."),
    ([0, 1], task(), r"here.* label"),
    (["a"], task(labels=[0, 1]), r"here.* label"),
    ([1.0, np.nan], task(labels=[0.0, 1.0]), r"here, row 1 has the label .*nan"),
    ([["a"]], task(), r"here has shape \(1, 1\)"),
    ([1.0, np.inf], task("real", [0]), r"here, row 1 is NaN\b.*Every row needs a target"),
    ([1.0, None], task("real", [0]), r"here, row 1 is NaN\b"),
    ([1.0, 1e200], task("real", [0]), r"here, row 1 is .*unit"),
    (["x"], task("real", [0]), r"here holds .*'x'.*task='classes'"),
    ([1j], task("real", [0]), r"here: Complex data not supported"),
    (np.ones((2, 3)), task("real", [0, 1]), r"here has 3 columns, but the task has 2"),
    ([[0, 2]], task("multilabel", [0, 1]), r"here must hold 0 and 1 only"),
    ([[1], [2, 3]], task("real", [0]), r"here is no array"),
]


@pytest.mark.parametrize(("y", "facts", "message"), REFUSED_TARGETS)
def test_bad_targets_are_refused(y: Any, facts: Task, message: str) -> None:
    with pytest.raises(BadData, match=message):
        check.targets(y, facts, "here")


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0, -0.5], r"w, row 1 is -0\.5, but a weight is a .*number >= 0"),
        ([np.nan, 1.0], r"w, row 0 is nan"),
        ([1.0, np.inf], r"w, row 1 is inf"),
        ([1.0], r"w have shape \(1,\) for 2 rows"),
        ([[1.0], [1.0]], r"w have shape \(2, 1\) for 2 rows"),
        (["a", "b"], "w are no numbers"),
        ([[1.0], [1.0, 2.0]], "w are no numbers"),
        (2.0, r"w have shape \(\) for 2 rows"),
    ],
)
def test_bad_weights_are_refused(weights: Any, message: str) -> None:
    with pytest.raises(BadData, match=message):
        check.weights(weights, 2, "w")


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (["a"], r"groups have shape \(1,\) for 2 rows"),
        ("ab", r"groups have shape \(\) for 2 rows"),
        ([["a"], ["b"]], r"groups have shape \(2, 1\)"),
        ([1.0, np.nan], r"groups, row 1 is NaN"),
        (["a", None], r"missing id"),
        (["a", ""], r"groups, row 1 is an empty id"),
        ([["a"], ["b", "c"]], r"groups is no array"),
    ],
)
def test_bad_groups_are_refused(groups: Any, message: str) -> None:
    with pytest.raises(BadData, match=message + ".*"):
        check.group_names(groups, 2, "groups")


@pytest.mark.parametrize(
    ("groups", "names"),
    [([1, 2], ["1", "2"]), ([1.0, 2.0], ["1", "2"]), ([True, False], ["True", "False"]), (["a", "b"], ["a", "b"])],
)
def test_ids_are_text(groups: Any, names: list[str]) -> None:
    assert check.group_names(np.array(groups), 2, "groups").tolist() == names
    assert check.group_names(np.array(groups, dtype=object), 2, "groups").tolist() in (names, ["1.0", "2.0"])


@pytest.mark.parametrize(("other", "m"), [([1], 1), (np.array(3), 1), (7, 1), (range(3), 3)])
def test_lengths_are_compared(other: Any, m: int) -> None:
    check.same_length(m, other, "y")
    with pytest.raises(BadData, match=f"y has {m} entries for 9 rows"):
        check.same_length(9, other, "y")


# ---- what a federation declares


X, Y = np.array([[0.0, 5.0], [2.0, -1.0], [1.0, 1.0]]), np.array([1.0, -3.0, 0.5])


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (Bounds(rows=2), "client 'all' has 3 rows, but at most 2"),
        (Bounds(low=[0, 0]), "row 1, column 1 is -1, below the declared low"),
        (Bounds(high=4.0), "row 0, column 1 is 5, above the declared high"),
        (Bounds(target=2), "a target of size 3, but at most 2"),
        (Bounds(weight=1.5), "a row of weight 2, but at most 1.5"),
        (Bounds(low=[0, 0, 0]), "declare: low takes a finite number, or one for each of the 2 columns"),
        (Bounds(high="much"), "declare: high takes"),
        (Bounds(low=np.nan), "declare: low takes"),
        (Bounds(low=[0, 3], high=2), "declare: low is above high in column 1"),
        (Bounds(rows=0), "declare: rows = 0, but it takes a whole number >= 1 or None"),
        (Bounds(clients=1.5), "declare: clients = 1.5"),
        (Bounds(weight=-1.0), "declare: weight = -1.0, but it takes a finite number >= 0 or None"),
        (Bounds(target=np.inf), "declare: target = inf"),
    ],
)
def test_rows_keep_to_what_was_declared(declare: Bounds, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        Federation.from_arrays(X, Y, task="real", weights=[1, 2, 1], declare=declare)


def test_what_keeps_to_its_bounds_is_welcome() -> None:
    declare = Bounds(clients=1, rows=3, low=[0, -1], high=5.0, weight=2.0, target=3.0)
    Federation.from_arrays(X, Y, task="real", weights=[1, 2, 1], declare=declare)
    with pytest.raises(BadData, match="2 clients, but the federation declared at most 1"):
        Federation.from_arrays(X, Y, ["a", "a", "b"], task="real", declare=declare)


def test_a_row_out_of_bounds_is_counted_from_the_client_s_first() -> None:
    x = np.zeros((20_000, 1))
    x[17_000] = 2.0
    with pytest.raises(BadData, match="row 17000, column 0 is 2, above"):
        Federation.from_arrays(x, x[:, 0], task="real", declare=Bounds(high=1.0))
