"""`homeward demo`: what it prints, what it leaves, and that the README shows what it makes."""

import contextlib
import csv
import io
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import homeward as hw
from homeward.cli import main
from homeward.config import load
from homeward.study.rows import read_rows
from homeward.study.stats import Study

README = Path(__file__).parents[2] / "README.md"
SMALL = ["--clients", "4", "--partitions", "2"]
METHODS = ["local-ridge", "afl", "masked", "log-prior", "fedhip", "apfl"]


def called(*arguments: str) -> tuple[int, str]:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = main(list(arguments))
    return code, out.getvalue()


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A small demo: its folder, and what it printed."""
    folder = tmp_path_factory.mktemp("demo") / "runs" / "demo"
    code, out = called("demo", *SMALL, "--out", str(folder))
    assert code == 0
    return folder, out


def test_it_prints_table_verdict_bytes_and_what_comes_next(shown: tuple[Path, str]) -> None:
    folder, out = shown
    for method in METHODS:
        assert len(re.findall(rf"^ +{method} ", out, re.MULTILINE)) == 2  # the table, and what it sends
    assert re.search(r"^Joining .*with apfl the mean client", out, re.MULTILINE)
    assert "1,024 random features" in out
    for verb in (f"predict {folder} --client c", f"run {folder}/config.toml", "data inspect", "homeward list"):
        assert verb in out


def test_the_folder_is_a_run_with_a_page_and_all_cells(shown: tuple[Path, str]) -> None:
    folder, _ = shown
    files = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}
    assert files >= {
        "manifest.json", "results.jsonl", "report.html", "config.toml", "partition.npz", "table.md", "picture.svg",
        "picture.png", "global.safetensors", *(f"models/c00{k}.safetensors" for k in range(4)),
    }  # fmt: skip
    study = Study(read_rows(folder / "results.jsonl"))
    assert study.methods == METHODS
    assert len(study.replicates) == 2
    assert {len(clients) for clients in study.scores("apfl").values()} == {4}
    assert "https:" not in (folder / "table.md").read_text(encoding="utf-8")


def test_the_models_are_those_of_apfl_on_the_first_partition(shown: tuple[Path, str]) -> None:
    folder, _ = shown
    run = hw.load_run(folder)
    assert type(run.method) is hw.APFL
    study = Study(read_rows(folder / "results.jsonl"))
    federation, part = load(folder / "config.toml").federation()
    assert part.hash == study.replicates[0].split()[0] == hw.Partition.load(folder / "partition.npz").hash
    for client, data in federation.tests.items():
        answers = run.model(client).predict(data.x)
        right = float(np.mean(answers == run.task.labels[data.y]))
        assert right == pytest.approx(study.scores("apfl")[study.replicates[0]][client])


def test_what_it_says_to_do_next_works(shown: tuple[Path, str], monkeypatch: pytest.MonkeyPatch) -> None:
    folder, out = shown
    monkeypatch.chdir(folder.parents[1])
    for line in re.findall(r"^  \S*homeward (.+?)(?:  |$)", out, re.MULTILINE):
        code, answer = called(*line.split())
        assert (code, bool(answer)) == (0, True), line
    predict = next(line for line in re.findall(r"^  \S*homeward (predict .+?)(?:  |$)", out, re.MULTILINE))
    rows = list(csv.DictReader(io.StringIO(called(*predict.split())[1])))
    with np.load(predict.split()[-1]) as held_out:
        assert len(rows) == len(held_out["y"]) > 0
        assert np.mean([int(r["label"]) == y for r, y in zip(rows, held_out["y"], strict=True)]) > 0.5


def test_a_second_demo_replaces_the_first(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    small = ["--partitions", "1", "--out", str(folder)]
    assert called("demo", "--clients", "3", *small)[0] == 0
    before = set(folder.rglob("*.safetensors"))
    code, out = called("demo", "--clients", "2", "--seed", "5", "--alpha", "1", "--json", *small)
    told: dict[str, Any] = json.loads(out)
    assert code == 0
    assert len(list(folder.glob("models/*"))) == 2 < len([p for p in before if p.parent.name == "models"])
    assert [m["method"] for m in told["methods"]] == METHODS
    assert told["partitions"] == [r.split()[0] for r in Study(read_rows(folder / "results.jsonl")).replicates]
    assert told["methods"][-1]["mean"]["low"] is None  # one partition has no interval, and JSON no infinity
    assert "homeward demo --clients 2 --alpha 1.0 --partitions 1 --seed 5" in (folder / "report.html").read_text(
        encoding="utf-8"
    )
    assert [p.name for p in tmp_path.iterdir()] == ["demo"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--partitions", "0"], "at least one is needed"),
        (["--alpha", "0"], "a finite number above 0"),
        (["--clients", "0"], "clients = 0"),
        (["--seed", "-1"], "seed = -1"),
        (["--clients", "many"], "not a valid integer"),
        (["--out", "."], "Name a new one"),
        (["--out", "mine"], "is no run folder"),
    ],
)
def test_mistakes_are_one_sentence_and_nothing_is_written(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("precious")
    assert main(["demo", *arguments]) == 1
    said = capsys.readouterr()
    assert message in said.err
    assert "Traceback" not in said.err
    assert said.out == ""
    assert [p.name for p in tmp_path.rglob("*")] == ["mine", "thesis.txt"]


def test_neither_torch_nor_a_network_is_needed(tmp_path: Path) -> None:
    script = (
        "import socket, sys\n"
        "def refused(*_): raise OSError('a network was asked for')\n"
        "socket.socket.connect = refused; socket.getaddrinfo = refused\n"
        "from homeward.cli import main\n"
        f"code = main(['demo', '--clients', '2', '--partitions', '1', '--out', {str(tmp_path / 'demo')!r}])\n"
        "sys.exit(code or ('torch' in sys.modules and 'torch was loaded') or 0)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


# ---- the README


def cells(table: str) -> list[list[str]]:
    """The cells of a Markdown table, without its line of dashes."""
    lines = [line.strip().strip("|").split("|") for line in table.strip().splitlines() if line.strip().startswith("|")]
    return [[cell.strip() for cell in line] for i, line in enumerate(lines) if i != 1]


def numbers(cell: str) -> list[float]:
    return [float(n.replace("−", "-")) for n in re.findall(r"[+−-]?\d+(?:\.\d+)?", cell)]


@pytest.mark.slow
def test_the_table_in_the_readme_is_what_the_demo_makes(tmp_path: Path) -> None:
    text = README.read_text(encoding="utf-8") if README.exists() else ""
    found = re.search(r"<!-- demo table -->(.*?)<!-- end demo table -->", text, re.DOTALL)
    if not found:
        pytest.skip("README.md has no table between <!-- demo table --> and <!-- end demo table -->")
    folder = tmp_path / "demo"
    assert called("demo", "--out", str(folder))[0] == 0
    printed, made = cells(found[1]), cells((folder / "table.md").read_text(encoding="utf-8"))
    assert [line[0] for line in printed] == [line[0] for line in made]
    assert printed[0] == made[0]
    for theirs, ours in zip(printed[1:], made[1:], strict=True):
        for name, a, b in zip(made[0], theirs, ours, strict=True):
            assert numbers(a) == pytest.approx(numbers(b), abs=1.5), (ours[0], name, a, b)
            assert re.sub(r"[\d.+−-]", "", a) == re.sub(r"[\d.+−-]", "", b), (ours[0], name, a, b)


def test_more_clients_than_digits_can_feed_is_an_error(tmp_path, capsys) -> None:
    from homeward.cli import main

    assert main(["demo", "--clients", "1000", "--out", str(tmp_path / "demo")]) == 1
    assert "rows" in capsys.readouterr().err and not (tmp_path / "demo").exists()
