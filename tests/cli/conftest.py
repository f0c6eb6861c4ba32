"""The command as a user calls it: arguments in, exit code and both streams out."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from homeward.cli import main

QUICK = """
[data]
source = "iris"
[partition]
law = "dirichlet"
clients = 3
alpha = 1.0
test = 0.25
[method]
name = "fedhip"
[run]
out = "runs/first"
"""


class Answer(NamedTuple):
    code: int
    out: str
    err: str


Call = Callable[..., Answer]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    """`homeward ...`, in this process."""

    def called(*arguments: str) -> Answer:
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        return Answer(code, *capsys.readouterr())

    return called


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in: a quick experiment (quick.toml), rows of named clients (named.npz, named.toml), rows to predict."""
    monkeypatch.chdir(tmp_path)
    draw = np.random.default_rng(0)
    X, y = draw.normal(size=(90, 4)), np.arange(90) % 3
    X[:, 0] += y
    group = np.array(["north", "south", "west"])[np.arange(90) // 3 % 3]
    np.savez("named.npz", X=X, y=y, group=group)
    np.savez("newcomer.npz", X=X[:30] + 0.1, y=y[:30], group=np.full(30, "east"))
    np.save("rows.npy", X[:5])
    Path("quick.toml").write_text(QUICK)
    named = (
        '[data]\nsource = "named.npz"\n[partition]\ntest = 0.2\n[method]\nname = "fedhip"\n[run]\nout = "runs/named"\n'
    )
    Path("named.toml").write_text(named)
    Path("newcomer.toml").write_text('[data]\nsource = "newcomer.npz"\n[partition]\ntest = 0.2\n')
    return tmp_path
