"""The pages run: every console example of the README and of docs/ gives what it shows."""

import doctest
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [p for p in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))] if ">>> " in p.read_text()]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    failed, tried = doctest.testfile(str(page), module_relative=False, optionflags=flags, encoding="utf-8")
    assert tried > 0 and failed == 0


def test_there_is_a_page_for_every_method():
    import homeward as hw

    text = "".join(p.read_text() for p in (ROOT / "docs" / "methods").glob("*.md"))
    assert all(f"`{name}`" in text for name in hw.METHODS)


def test_the_practitioner_s_commands_run(tmp_path, monkeypatch, capsys):
    import re

    import numpy as np

    from homeward.cli import main

    section = (ROOT / "README.md").read_text().split("## For the practitioner")[1].split("\n## ")[0]
    (config,) = re.findall(r"```toml\n(.*?)```", section, re.S)
    commands = re.findall(r"^\$ homeward (.*)$", section, re.M)
    rng = np.random.default_rng(0)
    y = np.arange(240) % 3
    X = rng.normal(size=(240, 5)) + 2 * np.eye(3, 5)[y]
    np.savez(tmp_path / "wards.npz", X=X, y=y, group=[f"ward_{i % 4}" for i in rng.permutation(240)])
    np.savetxt(tmp_path / "new.csv", X[:4], delimiter=",")
    (tmp_path / "wards.toml").write_text(config)
    monkeypatch.chdir(tmp_path)
    newcomers = {"X": X[:60] + 0.1, "y": y[:60], "group": ["ward_9"] * 60}
    np.savez(tmp_path / "newcomers.npz", **newcomers)
    (tmp_path / "newcomers.toml").write_text('[data]\nsource = "newcomers.npz"\n[partition]\ntest = 0.25\n')
    assert len(commands) == 5
    for command in commands:
        assert main(command.split()) == 0, f"homeward {command}\n{capsys.readouterr().err}"


def test_links_between_pages_lead_somewhere():
    import re

    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+?)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.relative_to(ROOT)} links to {target}"


def test_the_pages_build(tmp_path):
    import subprocess
    import sys

    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "site" / "index.html").exists()
