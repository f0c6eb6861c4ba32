"""Rows come back as they were; what is no row is an error with its place."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from homeward.core.errors import BadFile
from homeward.study.rows import distinct, group, read_rows, select, to_jsonl, write_rows

VALUES = st.one_of(st.text(), st.integers(-(2**53), 2**53), st.floats(allow_nan=False), st.booleans(), st.none())
ROWS = st.lists(
    st.dictionaries(st.text(), st.one_of(VALUES, st.dictionaries(st.text(), VALUES)), max_size=6), max_size=8
)


@given(ROWS)
def test_lines_come_back_as_rows(rows: list[dict[str, object]]) -> None:
    lines = to_jsonl(rows).decode().split("\n")
    assert lines.pop() == ""
    assert [json.loads(line) for line in lines] == rows


def test_a_file_comes_back_whatever_its_text(tmp_path: Path) -> None:
    rows = [
        {"client": "Spital Zürich \u2028 \x85 Ost", "value": 0.1},
        {"client": "c", "value": 1e-300, "settings": {"ridge": "gcv"}},
    ]
    assert read_rows(write_rows(tmp_path / "deep" / "rows.jsonl", rows)) == rows


def test_numbers_of_numpy_are_numbers(tmp_path: Path) -> None:
    rows = [{"value": np.float64(0.5), "rows": np.int64(3), "flag": np.bool_(True), "small": np.float32(0.25)}]
    assert read_rows(write_rows(tmp_path / "r.jsonl", rows)) == [{"value": 0.5, "rows": 3, "flag": True, "small": 0.25}]


@pytest.mark.parametrize(("line", "word"), [("{", "line 2 is no JSON"), ("[1]", "line 2 holds no row"), ("", "line 2")])
def test_a_damaged_line_is_named(tmp_path: Path, line: str, word: str) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text(f'{{"a": 1}}\n{line}\n{{"a": 2}}\n')
    with pytest.raises(BadFile, match=word):
        read_rows(path)


def test_a_missing_file_is_an_error_of_ours(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match="does not exist"):
        read_rows(tmp_path / "absent.jsonl")


def test_rows_are_selected_and_grouped_in_order() -> None:
    rows = [{"m": m, "p": p} for p in (1, 2) for m in ("b", "a")]
    assert select(rows, m="a", p=2) == [{"m": "a", "p": 2}]
    assert select(rows, absent=None) == rows
    assert list(group(rows, "m", "p")) == [("b", 1), ("a", 1), ("b", 2), ("a", 2)]
    assert distinct(rows, "m") == ["b", "a"]
