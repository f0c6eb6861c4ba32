"""Sources: what ships with scikit-learn, files of arrays and tables, and how rows come to their clients."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn import datasets

from homeward.core.errors import BadData, BadFile, BadSetting, HomewardError, UnknownName
from homeward.core.task import Federation
from homeward.data.laws import dirichlet, iid
from homeward.data.sources import BUILTIN, Deal, federation, named, rows, source, unlabelled

X = np.random.default_rng(0).normal(size=(60, 3))
Y = np.arange(60) % 3
GROUP = np.array(["north", "south"])[np.arange(60) // 7 % 2]


def npz(folder: Path, **changes: Any) -> str:
    """A file of sixty rows of two clients, with something changed; None leaves an array out."""
    arrays = {"X": X, "y": Y, "group": GROUP, **changes}
    np.savez(folder / "rows.npz", **{name: array for name, array in arrays.items() if array is not None})
    return str(folder / "rows.npz")


# ---- what ships with scikit-learn


@pytest.mark.parametrize("name", BUILTIN)
def test_the_table_says_what_the_data_are(name: str) -> None:
    entry, found = BUILTIN[name], rows(name)
    assert (entry.rows, entry.columns) == found.X.shape
    assert entry.classes == (len(np.unique(found.y)) if entry.task == "classes" else None)
    data = getattr(datasets, f"load_{name}")()
    assert np.array_equal(found.X, data.data)
    assert np.array_equal(found.y, data.target)


def test_a_source_is_a_federation_of_one_client_or_of_those_that_are_named() -> None:
    assert list(source("iris").clients) == ["all"]
    assert sorted(source("iris", np.arange(150) % 2).clients) == ["0", "1"]
    assert source("diabetes").task.kind == "real"
    assert source("wine", iid(np.zeros(178, int), clients=3)).origin["data"] == "wine"


def test_a_task_may_be_said_and_is_not_guessed() -> None:
    assert source("iris", task="real").task.kind == "real"
    with pytest.raises(BadSetting, match="task = 'numbers'"):
        source("iris", task="numbers")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("digit", "no data set or file 'digit'. Did you mean 'digits'"),
        ("rows.npy", "only .npz files can be read as a source in this version"),
        ("rows.csv", "Tables come in a later version"),
        (".", "a folder, and folders come in a later version"),
        ("hf:mnist", "data hubs come in a later version"),
        ("absent.npz", "absent.npz does not exist"),
    ],
)
def test_what_cannot_be_read_says_what_can(name: str, said: str) -> None:
    with pytest.raises((UnknownName, BadFile), match=said):
        rows(name)


# ---- files


def test_every_array_of_a_file_is_used(tmp_path: Path) -> None:
    weight = np.linspace(0.5, 1.5, 60)
    path = npz(
        tmp_path, weight=weight, classes=np.arange(5), X_test=X[:9], y_test=Y[:9], group_test=GROUP[:9], names=["a"]
    )
    fed, part = federation(path)
    assert fed.task.labels.tolist() == [0, 1, 2, 3, 4]
    assert sorted(fed.clients) == ["north", "south"]
    assert np.array_equal(fed.clients["south"].x, X[GROUP == "south"])
    assert np.array_equal(fed.clients["south"].weight, weight[GROUP == "south"])
    assert {name: data.n for name, data in fed.tests.items()} == {"north": 7, "south": 2}
    assert fed.origin == {"data": "rows.npz", "data_hash": rows(path).hash, "partition": part.hash}


def test_the_hash_is_of_the_arrays_alone(tmp_path: Path) -> None:
    first = rows(npz(tmp_path)).hash
    assert rows(npz(tmp_path)).hash == first
    for change in ({"X": X + 1}, {"y": (Y + 1) % 3}, {"group": None}, {"weight": np.ones(60)}, {"X": X.astype("f4")}):
        assert rows(npz(tmp_path, **change)).hash != first


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"X": None}, "no array 'X', but group, y"),
        ({"y": None}, "no array 'y'"),
        ({"group": None, "groups": GROUP}, "an array 'groups', which is not read; 'group' is"),
        ({"weights": np.ones(60)}, "an array 'weights', which is not read; 'weight' is"),
        ({"y": Y.astype(object)}, "holds Python objects"),
        ({"X_test": X}, "holds X_test but no y_test"),
        ({"y_test": Y}, "holds y_test but no X_test"),
        ({"group_test": GROUP}, "holds group_test but no X_test"),
        ({"X_test": X, "y_test": Y}, "names the client of each row, but of no test row"),
        ({"X_test": X, "y_test": Y, "group_test": ["east"] * 60}, "group_test, row 0 is 'east', a client without"),
        ({"X": X[:, 0]}, r"X has shape \(60,\)"),
        ({"X": np.array(3.0)}, r"X has shape \(\)"),
        ({"X": X[:0]}, "X has 0 row"),
        ({"X": np.where(X > 2, np.inf, X)}, r"X, row \d+, column \d+ is inf"),
        ({"y": Y[1:]}, "y has 59 entries for 60 rows"),
        ({"y": np.array(3)}, "y has 1 entries for 60 rows"),
        ({"y": Y / 2}, "y, row 1 is 0.5: real numbers"),
        ({"group": GROUP[1:]}, "group"),
        ({"weight": -np.ones(60)}, "weights, row 0 is -1.0"),
        ({"classes": [0, 1]}, "label"),
    ],
)
def test_a_file_that_cannot_be_learnt_from_is_refused_with_the_place(
    changes: dict[str, Any], said: str, tmp_path: Path
) -> None:
    with pytest.raises((BadData, BadFile), match=said):
        federation(npz(tmp_path, **changes))


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"\x93NUMPY\x01\x00", b"a,b\n1,2\n"])
def test_a_file_that_is_none_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "rows.npz").write_bytes(content)
    with pytest.raises(BadFile, match=r"rows.npz (is damaged|holds Python objects|is no .npz)"):
        rows(str(tmp_path / "rows.npz"))


def test_a_single_array_under_the_name_of_many_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "rows.npz").open("wb") as file:
        np.save(file, X)
    with pytest.raises(BadFile, match="a single array"):
        rows(str(tmp_path / "rows.npz"))


# ---- who owns which row


def test_a_law_deals_rows_and_a_fraction_is_held_out() -> None:
    fed, part = federation(
        "digits", Deal.of({"law": "dirichlet", "clients": 10, "alpha": 0.5, "test": 0.25, "seed": 3})
    )
    X, y = datasets.load_digits(return_X_y=True)
    expected = dirichlet(y, clients=10, alpha=0.5, seed=3)
    assert part.hash == expected.hash == fed.origin["partition"]
    by_hand = Federation.from_arrays(X, y, expected).holdout(test=0.25, seed=3)
    assert fed.hash == by_hand.hash
    assert {n: d.hash for n, d in fed.tests.items()} == {n: d.hash for n, d in by_hand.tests.items()}


def test_matched_test_rows_are_those_of_the_partition(tmp_path: Path) -> None:
    many = np.tile(np.arange(3), 40)
    path = npz(tmp_path, X_test=np.tile(X[:3], (40, 1)), y_test=many)
    for test in ("match", None):
        deal = Deal("dirichlet", {"clients": 2, "alpha": 1.0}, test)
        fed, part = federation(path, deal)
        tests = part.match(many)
        assert {name: data.n for name, data in fed.tests.items()} == dict(
            zip(part.ids, tests.sizes.tolist(), strict=True)
        )


def test_clients_that_have_names_are_a_partition_too(tmp_path: Path) -> None:
    fed, part = federation(npz(tmp_path), Deal(test=0.2))
    assert (part.law, part.ids) == ("group", ("north", "south"))
    assert part.counts.tolist() == [[np.sum((g == GROUP) & (c == Y)) for c in range(3)] for g in part.ids]
    assert np.array_equal(named(None, GROUP).owner, part.owner)
    assert fed.tests["north"].n == pytest.approx(0.2 * (GROUP == "north").sum(), abs=2)


def test_test_rows_without_clients_can_be_matched_to_clients_with_names(tmp_path: Path) -> None:
    path = npz(tmp_path, X_test=X, y_test=Y)
    fed, _ = federation(path, Deal(test="match"))
    assert sum(data.n for data in fed.tests.values()) == 60


def test_real_targets_are_dealt_by_laws_that_need_no_classes() -> None:
    fed, part = federation("diabetes", Deal("iid", {"clients": 4}, 0.25))
    assert (fed.task.kind, len(part.labels)) == ("real", 0)
    with pytest.raises(BadData, match=r"classes are needed.*iid, not stratified, or quantity"):
        federation("diabetes", Deal("dirichlet", {"clients": 4, "alpha": 1.0}))


def test_several_labels_a_row_are_dealt_too(tmp_path: Path) -> None:
    path = npz(tmp_path, y=np.stack([Y > 0, Y > 1], axis=1).astype(int))
    fed, part = federation(path, Deal("iid", {"clients": 4}), task="multilabel")
    assert (fed.task.kind, fed.task.classes, part.clients) == ("multilabel", 2, 4)
    assert sorted(federation(path, task="multilabel")[0].clients) == ["north", "south"]


def test_whole_numbers_saved_as_real_ones_are_labels(tmp_path: Path) -> None:
    whole, plain = (federation(npz(tmp_path, y=y), Deal("iid", {"clients": 2}))[1] for y in (Y.astype(float), Y))
    assert whole.hash == plain.hash


def test_without_a_law_or_names_there_are_no_clients() -> None:
    with pytest.raises(BadData, match=r"iris does not name the client of each row. Add a \[partition\]"):
        federation("iris")
    with pytest.raises(BadSetting, match=r"iris has no X_test. Hold out a fraction"):
        federation("iris", Deal("iid", {"clients": 2}, "match"))


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ({"law": "iid"}, "needs a value for clients"),
        ({"law": "iid", "clients": 2, "alpha": 1}, "has no setting 'alpha'"),
        ({"law": "idd", "clients": 2}, "Did you mean 'iid'"),
        ({"law": 3}, "law = 3, but a law is named by a word"),
        ({"clients": 3}, "'clients' is set, but no law"),
        ({"seed": -1}, "seed = -1, but it is a whole number >= 0"),
        ({"seed": True}, "seed = True"),
        *(({"test": test}, "test = .*, but it is 'match' or a fraction") for test in (0.0, 1.0, 1, -0.5, "mach", True, float("nan"))),
    ],
)  # fmt: skip
def test_a_deal_that_cannot_be_is_refused(section: dict[str, Any], said: str) -> None:
    with pytest.raises(BadSetting, match=said):
        Deal.of(section)


@pytest.mark.parametrize("section", [{}, {"test": 0.5, "seed": 2}, {"law": "iid", "clients": 3, "test": "match"}])
def test_a_deal_is_a_section_again(section: dict[str, Any]) -> None:
    deal = Deal.of(section)
    assert Deal.of(deal.section) == deal
    assert section.items() <= deal.section.items()


# ---- rows alone


@pytest.mark.parametrize("name", ["rows.npy", "rows.npz", "rows.csv", "named.csv"])
def test_rows_are_read_from_arrays_and_tables(name: str, tmp_path: Path) -> None:
    path = str(tmp_path / name)
    match name:
        case "rows.npy":
            np.save(path, X)
        case "rows.npz":
            np.savez(path, X=X, y=Y)
        case "rows.csv":
            np.savetxt(path, X, delimiter=",")
        case "named.csv":
            np.savetxt(path, X, delimiter=",", header="\ufeffa,b,c", comments="", encoding="utf-8")
    assert np.allclose(unlabelled(path), X)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.txt", b"1,2", "is no file of rows"),
        ("a.csv", b"", "has no rows"),
        ("a.csv", b"x,y\n", "has no rows"),
        ("a.csv", b"x,y\n1,2\n3,\n", "line 3, column 1 is ''"),
        ("a.csv", b"1,2\n3\n", "line 2 has 1 columns, but the first has 2"),
        ("a.csv", b"\xff\xfe1", "no text in UTF-8"),
        ("a.npy", b"\x93NUMPY", "damaged or no file of NumPy's"),
        ("a.npz", b"", "damaged or no file of NumPy's"),
    ],
)
def test_rows_that_cannot_be_read_are_named(name: str, content: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(HomewardError, match=said):
        unlabelled(str(tmp_path / name))
