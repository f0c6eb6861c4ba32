"""Skew numbers and the label picture's rows, on partitions whose answer is known."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from homeward.core.task import Federation
from homeward.data.inspect import constant_columns, held_once, label_map, odd_columns, skew
from homeward.data.laws import iid, quantity
from homeward.data.partition import Partition


def by_hand(counts: list[list[int]], dropped: int = 0) -> Partition:
    table = np.array(counts)
    owner = np.append(np.repeat(np.arange(len(table)), table.sum(axis=1)), np.full(dropped, -1))
    names = np.array(["cat", "dog", "emu"][: table.shape[1]])
    return Partition(owner, tuple(f"c{k:03d}" for k in range(len(table))), names, table, "by-hand", {})


def test_the_numbers_are_those_of_the_definition() -> None:
    numbers = skew(by_hand([[4, 4, 0], [0, 0, 24]], dropped=3))
    assert numbers == {
        "clients": 2,
        "rows": 32,
        "dropped": 3,
        "size_min": 8,
        "size_mean": 16.0,
        "size_max": 24,
        "size_cv": 0.5,
        "classes": 1.5,
        "classes_min": 1,
        "effective_classes": pytest.approx(1.5),  # exp(entropy) is 2 and 1
        "top_share": 0.75,
    }
    assert json.loads(json.dumps(numbers)) == numbers


def test_a_client_without_rows_counts_as_a_client_but_has_no_shares() -> None:
    numbers = skew(by_hand([[2, 2], [0, 0]]))
    assert (numbers["clients"], numbers["size_min"], numbers["size_cv"]) == (2, 0, 1.0)
    assert (numbers["classes"], numbers["effective_classes"], numbers["top_share"]) == (2.0, pytest.approx(2.0), 0.5)


def test_real_targets_have_sizes_alone() -> None:
    numbers = skew(quantity(np.linspace(0, 1, 100), clients=3))
    assert numbers["rows"] == 100
    assert "classes" not in numbers


def test_a_partition_of_nothing_has_no_skew() -> None:
    assert skew(by_hand([[0], [0]], dropped=2))["size_cv"] == 0.0


@given(
    st.lists(st.lists(st.integers(0, 9), min_size=3, max_size=3), min_size=1, max_size=6).filter(lambda t: np.any(t))
)
def test_skew_lies_between_one_class_and_all(counts: list[list[int]]) -> None:
    numbers = skew(by_hand(counts))
    assert 1 <= numbers["effective_classes"] <= numbers["classes"] + 1e-9 <= 3 + 1e-9
    assert 1 / 3 <= numbers["top_share"] <= 1
    assert numbers["size_min"] <= numbers["size_mean"] <= numbers["size_max"]


def test_the_label_map_has_a_row_for_each_class_that_a_client_holds() -> None:
    assert label_map(by_hand([[4, 0, 1], [0, 2, 0]])) == [
        {"client": "c000", "class": "cat", "rows": 4},
        {"client": "c000", "class": "emu", "rows": 1},
        {"client": "c001", "class": "dog", "rows": 2},
    ]


def test_the_label_map_is_plain_python_and_adds_up() -> None:
    rows = label_map(iid(np.arange(60) % 3, clients=4))
    assert json.loads(json.dumps(rows)) == rows
    assert sum(int(row["rows"]) for row in rows) == 60
    assert label_map(iid(np.linspace(0, 1, 9), clients=3)) == []


# ---- columns


def clinics(**shift: tuple[float, float]) -> Federation:
    """Six clinics of 50 rows in four columns, the last constant; `shift`: (factor, offset) of column 1 at one of them."""
    draw = np.random.default_rng(0)
    names = np.repeat([f"clinic_{k}" for k in range(6)], 50)
    X = draw.normal(size=(300, 4)) * [1.0, 0.5, 3.0, 0.0] + [0.0, 37.0, 5.0, 1.0]
    for name, (factor, offset) in shift.items():
        X[names == name, 1] = X[names == name, 1] * factor + offset
    return Federation.from_arrays(X, np.arange(300) % 2, names)


def test_alike_columns_are_not_odd() -> None:
    assert odd_columns(clinics()) == []


@pytest.mark.parametrize(("factor", "offset"), [(1.8, 32.0), (1000.0, 0.0), (0.001, 0.0)])
def test_a_column_in_other_units_is_found_at_its_client(factor: float, offset: float) -> None:
    (found,) = odd_columns(clinics(clinic_3=(factor, offset)))
    assert (found["column"], found["client"]) == (1, "clinic_3")
    assert found["mean"] == pytest.approx(37 * factor + offset, rel=0.01)
    assert found["elsewhere"] == pytest.approx(37, rel=0.01)


def test_two_clients_in_other_units_do_not_hide_each_other() -> None:
    found = odd_columns(clinics(clinic_3=(1.8, 32.0), clinic_4=(1.8, 32.0)))
    assert [row["client"] for row in found] == ["clinic_3", "clinic_4"]


def test_what_only_one_client_sees_now_and_then_is_not_odd() -> None:
    X = np.zeros((90, 1))
    X[:3] = 1.0
    assert odd_columns(Federation.from_arrays(X, np.arange(90) % 2, np.repeat(["a", "b", "c"], 30))) == []


def test_one_client_has_nothing_to_be_measured_by() -> None:
    assert odd_columns(Federation.from_arrays([[1.0], [2.0]], [0, 1])) == []


def test_a_column_of_one_value_is_found() -> None:
    assert constant_columns(clinics()) == [3]


def test_a_client_without_rows_stops_nobody() -> None:
    fed = clinics(clinic_3=(1.8, 32.0))
    empty = fed.clients["clinic_0"].rows([])
    fed = Federation(fed.task, {**fed.clients, "clinic_0": empty})
    assert len(odd_columns(fed)) == 1
    assert constant_columns(fed) == [3]
    assert "clinic_0" not in held_once(fed)


def test_rows_of_weight_zero_hold_no_class() -> None:
    y, groups = ["x", "x", "y", "z"], ["a", "a", "a", "b"]
    assert held_once(Federation.from_arrays(np.eye(4), y, groups)) == {"a": ["y"], "b": ["z"]}
    assert held_once(Federation.from_arrays(np.eye(4), y, groups, weights=[1, 0, 1, 0])) == {"a": ["x", "y"]}
    assert held_once(Federation.from_arrays(np.eye(4), np.ones(4), groups, task="real")) == {"b": []}
