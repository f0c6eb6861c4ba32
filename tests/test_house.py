"""The shape of the house: which room imports which, what `import homeward` loads, what no file may mention."""

import ast
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOMS = ("core", "data", "features", "methods", "engine", "study", "deploy")  # each imports from those before it
FACES = ("config", "estimator", "testing", "cli", "__init__", "__main__")  # import every room, and no room imports them


def reached(node: ast.Import | ast.ImportFrom, file: Path) -> set[str]:
    """The rooms and faces that an import statement in src/homeward/`file` names."""
    if isinstance(node, ast.Import):
        modules = [alias.name for alias in node.names]
    else:
        here = ["homeward", *file.with_suffix("").parts][: -node.level] if node.level else []
        base = ".".join(here + ([node.module] if node.module else []))
        modules = [f"{base}.{alias.name}" for alias in node.names]
    ours = [module.split(".")[1:] for module in modules if module.split(".")[0] == "homeward"]
    named = {parts[0] if parts else "__init__" for parts in ours if parts != ["__version__"]}
    return {name if name in ROOMS + FACES else "__init__" for name in named}  # `from homeward import fit`: our own face


def imports(source: Path) -> Iterator[tuple[Path, int, set[str]]]:
    """Every import statement under `source`, inside functions too: file, line, what it reaches."""
    for path in sorted(source.rglob("*.py")):
        file = path.relative_to(source)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
            if isinstance(node, ast.Import | ast.ImportFrom):
                yield file, node.lineno, reached(node, file)


def backward(source: Path) -> list[str]:
    """The import statements that break the order of the rooms, as `file:line: room imports room`."""
    broken = []
    for file, line, targets in imports(source):
        room = file.with_suffix("").parts[0]
        if room in FACES:
            continue
        allowed = ROOMS[: ROOMS.index(room) + 1] if room in ROOMS else ()  # a room nobody declared may import nothing
        broken += [f"{file}:{line}: {room} imports {target}" for target in sorted(targets - set(allowed))]
    return broken


def test_rooms_import_only_from_those_before_them() -> None:
    assert backward(ROOT / "src" / "homeward") == []


def test_every_top_level_module_is_a_room_or_a_face() -> None:
    source = ROOT / "src" / "homeward"
    found = {path.relative_to(source).with_suffix("").parts[0] for path in source.rglob("*.py")}
    assert found - {*ROOMS, *FACES} == set()


@pytest.mark.parametrize(
    ("file", "line", "target"),
    [
        ("core/algebra.py", "import homeward.engine.carry", "engine"),
        ("core/algebra.py", "from homeward.engine.carry import carry", "engine"),
        ("core/algebra.py", "from homeward import data", "data"),
        ("core/algebra.py", "from ..data import sources", "data"),
        ("core/algebra.py", "from .. import methods", "methods"),
        ("core/__init__.py", "from ..study.rows import Row", "study"),
        ("methods/__init__.py", "from .. import engine as e", "engine"),
        ("methods/afl.py", "def plan():\n    from homeward.engine import run", "engine"),
        ("engine/deep/er.py", "from ...deploy.files import send", "deploy"),
        ("study/rows.py", "import numpy, homeward.config", "config"),
        ("deploy/files.py", "from ..cli import main", "cli"),
        ("data/sources.py", "from homeward import fit", "__init__"),
        ("data/sources.py", "import homeward", "__init__"),
        ("attic/old.py", "from ..core import rng", "core"),
    ],
)
def test_an_import_against_the_order_is_found(tmp_path: Path, file: str, line: str, target: str) -> None:
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text(f'"""Offends."""\n\n{line}\n')
    number = 3 + line.count("\n")
    assert backward(tmp_path) == [f"{file}:{number}: {file.split('/')[0]} imports {target}"]


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("deploy/files.py", "import homeward.core.wire, homeward.study.rows"),
        ("methods/afl.py", "from . import _closed\nfrom ..core.linalg import solve\nimport homeward.methods"),
        ("core/__init__.py", "from .rng import rng_for\nfrom . import algebra"),
        ("engine/run.py", "from homeward import __version__\nimport homewards.engine"),
        ("cli/run.py", "from .. import deploy, config\nimport homeward"),
        ("testing.py", "from .deploy import files\nfrom . import config"),
        ("__init__.py", "from .engine.run import fit\nfrom . import study"),
    ],
)
def test_an_import_along_the_order_is_not(tmp_path: Path, file: str, line: str) -> None:
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_text(line + "\n")
    assert backward(tmp_path) == []


def test_importing_homeward_loads_nothing_heavy() -> None:
    heavy = {"torch", "altair", "vl_convert", "jinja2", "typer", "pandas", "sklearn"}
    script = "import homeward, sys; print(*sys.modules)"
    printed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    loaded = {module.split(".")[0] for module in printed.split()}
    assert "homeward" in loaded
    assert loaded & heavy == set()


# A path of somebody's own machine, a package index or its mirror: neither exists where the reader is.
ELSEWHERE = re.compile(r"(?<![\w.~-])/(?:home|Users|opt|work)/|\b(?:pypi|pythonhosted)\.org\b|--(?:extra-)?index-url\b")


def repository_files() -> list[Path]:
    """What git tracks, and what it would if it were added."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listing = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if listing.returncode != 0:
        pytest.skip(f"not a git checkout: {listing.stderr.strip()}")
    return [ROOT / name for name in listing.stdout.split("\0") if name and (ROOT / name).is_file()]


def test_no_file_points_to_one_machine_or_one_package_index() -> None:
    found = []
    for path in repository_files():
        lines = path.read_text(encoding="utf-8", errors="ignore").splitlines() if path != Path(__file__) else []
        name = path.relative_to(ROOT)
        found += [f"{name}:{n}: {hit[0]}" for n, line in enumerate(lines, 1) if (hit := ELSEWHERE.search(line))]
    assert found == []


@pytest.mark.parametrize("text", ["cd /work/", 'open("/home/me/x")', "https://pypi.org/simple", "pip --index-url x"])
def test_a_pointer_elsewhere_is_found(text: str) -> None:
    assert ELSEWHERE.search(text)


@pytest.mark.parametrize("text", ["runs/work/a", "~/work/x", "teamwork/", "https://a.org/homework/1", "work/home"])
def test_a_path_of_the_product_is_not(text: str) -> None:
    assert not ELSEWHERE.search(text)
