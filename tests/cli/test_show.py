"""What is shown: numbers for people, JSON for programs, and a bar on stderr once something takes long."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from homeward.cli import _show


def test_shares_are_shown_in_per_cent_and_r2_is_not() -> None:
    assert (_show.score("accuracy", 0.9714), _show.score("r2", -0.25)) == ("97.1 %", "-0.250")


def test_json_has_no_number_that_json_has_not(capsys: pytest.CaptureFixture[str]) -> None:
    _show.as_json(
        {"a": np.array([1.0, -np.inf]), 2: (np.float32(0.5), np.int64(3), None, True, "ü"), "c": float("nan")}
    )
    assert json.loads(capsys.readouterr().out) == {"a": [1.0, None], "2": [0.5, 3, None, True, "ü"], "c": None}


@pytest.mark.parametrize(
    ("on_path", "argv", "said"),
    [(True, "elsewhere/homeward", "homeward"), (False, "bin/homeward", "bin/homeward"), (False, "-c", "homeward")],
)
def test_what_to_type_next_starts_as_the_command_was_started(
    on_path: bool, argv: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "homeward").touch()
    monkeypatch.setattr(_show.shutil, "which", lambda name: "/usr/bin/homeward" if on_path else None)
    monkeypatch.setattr(sys, "argv", [argv])
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python3" / "python"))
    assert _show.program() == said
    assert _show.next_steps({"list": "all", "doctor": "health"}) == [
        f"  {said} list    all",
        f"  {said} doctor  health",
    ]


def test_a_table_has_all_its_cells(capsys: pytest.CaptureFixture[str]) -> None:
    _show.table(["name", "rows"], [["[north]", 12], ["west", None]], title="who")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "who"
    assert any("[north]" in line and "12" in line for line in lines)


@pytest.mark.parametrize(("patience", "terminal", "bar"), [(0.0, True, True), (60.0, True, False), (0.0, False, False)])
def test_a_bar_comes_on_a_terminal_and_only_when_it_takes_long(
    patience: float, terminal: bool, bar: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_show, "PATIENCE", patience)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    with _show.Waiting() as notice:
        for done in range(3):
            notice("summarise", done, 2)
        assert (notice.bar is not None) == bar
    assert capsys.readouterr().out == ""
