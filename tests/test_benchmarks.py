"""The benchmarks run, and the figures in docs/ are those of this code."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def lines(*args: str) -> list[dict]:
    done = subprocess.run([sys.executable, "-m", *args], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.slow
def test_memory_of_the_server_does_not_grow_with_clients():
    (row,) = lines("benchmarks.speed", "memory")
    assert row["ratio"] <= 1.2 and set(row) >= {"name", "aim", "threads", "device", "machine", "d"}


@pytest.mark.slow
@pytest.mark.shared
def test_the_figures_of_fifty_clients_are_those_of_the_page(shared_data):
    """One partition of the three, of the quick methods: within a point of the mean that docs/figures.md shows."""
    sys.path.insert(0, str(ROOT))
    try:
        import homeward as hw
        from benchmarks.figures import client_mean, read, standard
    finally:
        sys.path.remove(str(ROOT))
    (x, y), (xt, yt) = read(str(shared_data / "features_cifar100_deit_tiny_int8.npz"))
    x, xt = standard(x, xt)
    partition = hw.dirichlet(y, 50, 0.1, seed=1)
    federation = hw.Federation.from_arrays(x, y, partition, test=(xt, yt, partition.match(yt)))
    page = (ROOT / "docs" / "figures.md").read_text()
    for method, kind in (
        (hw.AFL(), "global"),
        (hw.Masked(), "personal"),
        (hw.LogPrior(), "personal"),
        (hw.FedHiP(), "personal"),
    ):
        run = hw.fit(method, federation)
        name = run.facts["method"]
        shown = float(re.search(rf"^\| `{name}` \| ([\d.]+)", page, re.M)[1])
        assert abs(client_mean(run, "test")[kind] - shown) < 1.0, name


def test_the_profile_names_where_the_time_goes():
    (row,) = lines("benchmarks.speed", "profile")
    assert row["seconds"] > 0 and 0 < row["_linalg.py:eigh"] < 1
