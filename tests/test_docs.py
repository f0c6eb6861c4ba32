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
