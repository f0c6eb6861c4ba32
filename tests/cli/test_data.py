"""`data split` and `data inspect`: the file and the picture are those of the partition."""

import json
from pathlib import Path

import numpy as np

from homeward.cli.data import SHADES, picture
from homeward.data.laws import dirichlet, iid
from homeward.data.partition import Partition


def test_split_writes_the_partition_of_the_law(place: Path, call) -> None:
    code, out, _ = call("data", "split", "quick.toml", "--out", "parts/p.npz")
    assert code == 0
    part = Partition.load("parts/p.npz")
    assert part.hash == dirichlet(np.arange(150) // 50, clients=3, alpha=1.0).hash
    assert part.hash[:12] in out
    assert call("data", "split", "quick.toml", "partition.alpha=0.5", "--out", "parts/p.npz").code == 0
    assert Partition.load("parts/p.npz").hash != part.hash


def test_inspect_tells_sizes_and_labels(place: Path, call) -> None:
    told = json.loads(call("data", "inspect", "quick.toml", "--json").out)
    part = dirichlet(np.arange(150) // 50, clients=3, alpha=1.0)
    assert told["sizes"] == dict(zip(part.ids, part.sizes.tolist(), strict=True))
    assert told["skew"]["rows"] == 150
    assert told["skew"]["train_rows"] + told["skew"]["test_rows"] == 150
    assert sum(row["rows"] for row in told["labels"]) == 150
    shown = call("data", "inspect", "named.toml").out
    assert "group" in shown
    assert all(name in shown for name in ("north", "south", "west"))


def test_inspect_tells_of_odd_columns_and_of_classes_held_once(place: Path, call) -> None:
    held = dict(np.load("named.npz"))
    held["X"][held["group"] == "west", 2] += 60
    held["X"][:, 3] = 5
    held["y"][0] = 7
    np.savez("named.npz", **held)
    out = call("data", "inspect", "named.toml").out
    assert "column 2 at west: mean " in out
    assert "(other units?)" in out
    assert "one value in all training rows: column 3" in out
    assert "north: '7'" in out
    told = json.loads(call("data", "inspect", "named.toml", "--json").out)
    assert [(row["column"], row["client"]) for row in told["columns"]["odd"]] == [(2, "west")]
    assert told["columns"]["constant"] == [3]
    assert told["held_once"] == {"north": ["7"]}


def test_the_picture_is_blank_where_a_client_has_nothing_and_darkest_where_it_has_most() -> None:
    counts = np.array([[10, 0], [1, 10]])
    owner = np.repeat([0, 1], [10, 11])
    _, first, second = picture(Partition(owner, ("a", "b"), np.array(["x", "y"]), counts, "by-hand", {}))
    assert first == f"a {SHADES[-1] * 2}   10"
    assert second == f"b {SHADES[0] * 2}{SHADES[-1] * 2} 11"


def test_a_picture_of_many_classes_and_clients_fits_a_terminal() -> None:
    lines = picture(iid(np.arange(40_000) % 1000, clients=100))
    assert len(lines) == 62
    assert max(map(len, lines)) <= 130
    assert "1000 of them in" in lines[0]
    assert lines[-1] == "... and 40 more (--json has all)"


def test_real_targets_have_sizes_alone() -> None:
    assert picture(iid(np.linspace(0, 1, 9), clients=3))[0] == "rows of each client:"
