"""The command as a whole: exit codes, one clear message for each mistake, nothing half-written, nothing heavy for --help."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import homeward.cli


def nothing(place: Path) -> None:
    """The place as it is."""


def written(name: str, text: str | bytes) -> Callable[[Path], None]:
    """A file there."""

    def write(place: Path) -> None:
        (place / name).write_bytes(text if isinstance(text, bytes) else text.encode())

    return write


def saved(name: str, **arrays: object) -> Callable[[Path], None]:
    """An .npz file there."""

    def save(place: Path) -> None:
        np.savez(place / name, **arrays)  # type: ignore[arg-type]

    return save


def toml(source: str, rest: str = "") -> Callable[[Path], None]:
    return written("x.toml", f'[data]\nsource = "{source}"\n{rest}')


def both(*steps: Callable[[Path], None]) -> Callable[[Path], None]:
    def all_(place: Path) -> None:
        for step in steps:
            step(place)

    return all_


def rows(**changes: object) -> Callable[[Path], None]:
    """x.toml and x.npz, twelve rows of two clients with something changed; None leaves an array out."""

    def write(place: Path) -> None:
        toml("x.npz", RUN)(place)
        arrays = {"X": X, "y": Y, "group": TWO, **changes}
        saved("x.npz", **{name: array for name, array in arrays.items() if array is not None})(place)

    return write


X, Y = np.arange(24.0).reshape(12, 2), np.arange(12) % 2
TWO = np.array(["a", "b"] * 6)
TWINS, THIRTY = np.arange(60.0).repeat(2).reshape(60, 2), np.arange(60) % 2
RUN = "[method]\nname='afl'"

MISTAKES: list[tuple[str, str, Callable[[Path], None]]] = [
    # usage
    ("rnu quick.toml", "No such command 'rnu'. Did you mean 'run'?", nothing),
    ("xyzzy", "No such command 'xyzzy'. Known: data, demo,", nothing),
    ("data inspct quick.toml", "No such command 'inspct'. Did you mean 'inspect'?", nothing),
    ("run", "Missing argument 'CONFIG'. See 'homeward run --help'", nothing),
    ("run quick.toml --jsn", "No such option", nothing),
    ("predict runs/first rows.npy", "Missing option '--client'", nothing),
    ("list metods", "'metods' is not one of", nothing),
    # the file of settings
    ("run absent.toml", "absent.toml does not exist", nothing),
    ("run .", ". cannot be read", nothing),
    ("run x.toml", "x.toml is no valid TOML", written("x.toml", "[data")),
    ("run x.toml", "no text in UTF-8", written("x.toml", b"\xff\xfe\x00")),
    ("run x.toml", "there is no section [methd]. Did you mean 'method'?", written("x.toml", "[methd]")),
    ("run x.toml", "'seed' stands outside of all sections", written("x.toml", "seed = 1")),
    ("run x.toml", "x.toml, [data]: 'source' is missing", written("x.toml", "[data]")),
    ("run x.toml", "x.toml has no section [method]", toml("iris")),
    ("run x.toml", "x.toml has no section [data]", written("x.toml", RUN)),
    ("run x.toml", "[features]: this section comes in a later version", toml("iris", "[features]\n" + RUN)),
    # settings, in the file or on the command line
    ("run quick.toml data.sorce=iris", "[data]: there is no key 'sorce'. Did you mean 'source'?", nothing),
    ("run quick.toml ridge=1", "'ridge=1' sets nothing. Write section.key=value", nothing),
    ("run quick.toml method.rigde=1", "FedHiP has no setting 'rigde'. Did you mean 'ridge'?", nothing),
    ("run quick.toml method.ridge=-1", "[method]: ridge = -1, but FedHiP needs", nothing),
    ("run quick.toml method.ridge=nan", "ridge = nan, but FedHiP needs a finite number", nothing),
    ("run quick.toml method.ridge=gvc", "Did you mean 'gcv'?", nothing),
    ("run quick.toml method.name=fedhop", "There is no method 'fedhop'. Did you mean 'fedhip'?", nothing),
    ("run quick.toml partition.alpha=0", "alpha = 0, but dirichlet needs a finite number above 0", nothing),
    ("run quick.toml partition.law=dirichle", "Did you mean 'dirichlet'?", nothing),
    ("run quick.toml partition.clients=1000", "need 10000 rows, but y has 150. Use clients <= 15", nothing),
    ("run quick.toml partition.test=1.5", "test = 1.5, but it is 'match' or a fraction", nothing),
    ("run quick.toml partition.test=match", "iris has no X_test. Hold out a fraction", nothing),
    ("run quick.toml run.seed=-1", "[run]: seed = -1, but it should be", nothing),
    ("run quick.toml run.engine=pol", "engine = 'pol', but this version has", nothing),
    ("run quick.toml run.out=.", "is the folder that you are in", nothing),
    ("run quick.toml run.out=mine", "mine is there already and is no run folder", written("mine", "do not touch")),
    ("run quick.toml --resume", "first is no run folder", nothing),
    ("run quick.toml method.ridge=0 data.standardise=false data.source=x.npz", "ridge = ", saved("x.npz", X=TWINS, y=THIRTY)),
    # data
    ("run quick.toml data.source=irsi", "There is no data set or file 'irsi'. Did you mean 'iris'?", nothing),
    ("run quick.toml data.source=absent.npz", "absent.npz does not exist", nothing),
    ("run quick.toml data.source=rows.npy", "only .npz files can be read", nothing),
    ("run quick.toml data.source=x.csv", "Tables come in a later version", nothing),
    ("run quick.toml data.source=hub:mnist", "data hubs come in a later version", nothing),
    ("run x.toml", "named.toml is no .npz file", toml("named.toml", RUN)),
    ("run x.toml", "a folder, and folders come in a later version", toml("..", RUN)),
    ("run x.toml", "x.npz has no array 'y'", rows(y=None)),
    ("run x.toml", "'group' is. Rename it", rows(group=None, groups=TWO)),
    ("run x.toml", "x.npz is damaged", both(toml("x.npz", RUN), written("x.npz", b"PK\x03\x04 no zip"))),
    ("run x.toml", "x.npz: the array 'y' holds Python objects, which are not read. Save it as text or numbers", rows(y=Y.astype(object))),
    ("run x.toml", "the array 'X' holds Python objects, which are not read. Save it as numbers: X.astype(float)", rows(X=X.astype(object))),
    ("run x.toml", "x.npz is no .npz file, whatever its name says", both(toml("x.npz", RUN), written("x.npz", "a,b\n1,2\n"))),
    ("run quick.toml data.source=absent.npz", "absent.npz was looked for. Check the path, and the folder you are in.", nothing),
    ("run x.toml", "(3 such values in all: 2 in column 0, 1 in column 1)", rows(X=np.where(X < 3, np.nan, X))),
    ("run x.toml", "[method]: there is no key 'nmae'. Did you mean 'name'?", toml("iris", "[method]\nnmae = 'apfl'")),
    ("run x.toml", "[data]: there is no key 'sorce'. Did you mean 'source'?", written("x.toml", "[data]\nsorce = 'iris'")),
    ("run x.toml", "x.npz holds X_test but no y_test", rows(X_test=X)),
    ("run x.toml", "iris does not name the client of each row. Add a [partition]", toml("iris", RUN)),
    ("run x.toml", "X, row 3, column 1 is nan", rows(X=np.where(X == 7, np.nan, X))),
    ("run x.toml", "X has shape (12,)", rows(X=X[:, 0])),
    ("run x.toml", "X holds 'a'", rows(X=np.full((12, 1), "a"))),
    ("run x.toml", "y has 11 entries for 12 rows", rows(y=Y[1:])),
    ("run x.toml", "group has shape (11,)|group have shape (11,)", rows(group=TWO[1:])),
    ("run x.toml", "row 1 is 0.5: real numbers, but classes are needed", rows(y=Y / 2)),
    ("run x.toml", "group_test, row 0 is 'c', a client without training rows", rows(X_test=X[:1], y_test=Y[:1], group_test=["c"])),
    ("run x.toml", "has the label np.int64(7)|has the label 7", rows(X_test=X[:1], y_test=[7], group_test=["a"])),
    ("data split quick.toml --out mine", "mine is not a partition file", written("mine", "do not touch")),
    ("data inspect quick.toml partition.alhpa=1", "Did you mean 'alpha'?", nothing),
    # a run folder
    ("predict absent --client a rows.npy", "absent is no run folder", nothing),
    ("forget . --client a", "manifest.json does not exist", nothing),
    ("predict r --client a rows.npy", "is damaged or no manifest", both(lambda p: (p / "r").mkdir(), written("r/manifest.json", "{"))),
    ("join absent newcomer.toml", "absent is no run folder", nothing),
]  # fmt: skip


def files(place: Path) -> dict[str, bytes]:
    return {str(path.relative_to(place)): path.read_bytes() for path in place.rglob("*") if path.is_file()}


def refused(answer: tuple[int, str, str], said: str) -> None:
    """Exit code 1, one message, which says it, and nothing on stdout."""
    code, out, err = answer
    assert (code, out) == (1, "")
    assert "Traceback" not in err
    assert any(part in err for part in said.split("|")), err
    assert err.startswith("Error: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize(("line", "said", "prepare"), MISTAKES, ids=[f"{i}-{m[0]}" for i, m in enumerate(MISTAKES)])
def test_a_mistake_has_one_clear_message_and_changes_nothing(line, said, prepare, place: Path, call) -> None:
    prepare(place)
    before = files(place)
    refused(call(*line.split()), said)
    assert files(place) == before


ON_A_RUN = [
    ("predict runs/named --client nroth rows.npy", "No client 'nroth' in this run of 3 clients. Did you mean 'north'?"),
    ("predict runs/named --client north absent.npy", "absent.npy does not exist"),
    ("predict runs/named --client north quick.toml", "quick.toml is no file of rows"),
    ("predict runs/named --client north wide.npy", "wide.npy has 9 columns, but 4 are expected"),
    ("predict runs/named --client north flat.npy", "flat.npy has shape (4,)"),
    ("predict runs/named --client north bad.csv", "bad.csv, line 2, column 1 is 'x'"),
    ("predict runs/named --client north ragged.csv", "ragged.csv, line 2 has 1 columns"),
    ("predict runs/named --client north empty.csv", "empty.csv has no rows"),
    (
        "predict runs/named --client north semi.csv",
        "semi.csv separates its columns by semicolons (;), but commas are expected",
    ),
    (
        "predict runs/named/models --client north rows.npy",
        "runs/named/models is no run folder: give the folder above, runs/named.",
    ),
    ("predict runs/named/config.toml --client north rows.npy", "is no run folder: give the folder above, runs/named."),
    ("forget runs/named/models --client north", "is no run folder: give the folder above, runs/named."),
    ("predict runs/named --client north named.toml", "no file of rows"),
    ("predict runs/named --client north noX.npz", "has no array 'X'"),
    ("forget runs/named --client nroth", "Did you mean 'north'?"),
    ("forget runs/named --client north --message absent", "absent does not exist"),
    ("forget runs/named --client north --message rows.npy", "rows.npy is damaged or no file of homeward's"),
    ("forget runs/named --client north --scale kep", "scale = 'kep'"),
    ("join runs/named named.toml", "Client 'north' is in this run already"),
    ("join runs/named quick.toml data.source=wine", "13 columns"),
    ("join runs/named quick.toml data.source=diabetes partition.law=iid", "another task|has no setting 'alpha'"),
    ("join runs/named newcomer.toml data.source=absent.npz", "absent.npz does not exist"),
    ("run named.toml --resume method.ridge=2", "is of another method"),
    ("run named.toml --resume run.seed=2", "another seed"),
    ("run named.toml --resume partition.test=0.5", "are not those that it joined with"),
]


@pytest.fixture
def one_run(place: Path, call) -> Path:
    """A run of three clients that have names."""
    assert call("run", "named.toml").code == 0
    np.save("wide.npy", np.zeros((2, 9)))
    np.save("flat.npy", np.zeros(4))
    np.savez("noX.npz", y=np.zeros(2))
    (place / "bad.csv").write_text("1,2,3,4\n1,x,3,4\n")
    (place / "ragged.csv").write_text("1,2\n1\n")
    (place / "empty.csv").write_text("a,b\n")
    (place / "semi.csv").write_text("a;b;c;d\n1,5;2;3;4\n")
    return place


@pytest.mark.parametrize(("line", "said"), ON_A_RUN)
def test_a_mistake_with_a_run_leaves_the_run_as_it_was(line: str, said: str, one_run: Path, call) -> None:
    before = files(one_run)
    refused(call(*line.split()), said)
    assert files(one_run) == before


def test_a_mistake_of_ours_is_said_to_be_ours_with_the_traceback(
    place: Path, call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("homeward.config.load", lambda *_: 1 / 0)
    code, out, err = call("run", "quick.toml")
    assert (code, out) == (2, "")
    assert "ZeroDivisionError" in err
    assert "This is a mistake in homeward" in err
    assert "report" in err


def test_a_sentence_that_is_quoted_brings_no_second_full_stop(capsys: pytest.CaptureFixture[str]) -> None:
    homeward.cli._complain("X is no table: the shape was (2,) + inhomogeneous part.. Give rows. In .. and ../x wait...")
    assert capsys.readouterr().err == (
        "Error: X is no table: the shape was (2,) + inhomogeneous part. Give rows. In .. and ../x wait...\n"
    )


def test_a_full_disk_is_not_a_bug_and_the_old_run_stays(one_run: Path, call, monkeypatch: pytest.MonkeyPatch) -> None:
    before = files(one_run)

    def full(*_: object) -> bytes:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("homeward.engine.store.manifest", full)
    code, _, err = call("run", "named.toml", "method.ridge=3")
    assert code == 1
    assert "No space left on device" in err
    assert files(one_run) == before


def test_ctrl_c_stops_without_a_traceback(place: Path, call, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("homeward.config.load", stopped)
    code, _, err = call("run", "quick.toml")
    assert code == 1
    assert "stopped" in err
    assert "Traceback" not in err


def test_no_command_is_help(call) -> None:
    for line in ((), ("--help",), ("-h",), ("data",), ("run", "--help")):
        code, out, err = call(*line)
        assert (code, err) == (0, "")
        assert out.startswith("Usage: homeward")


def test_every_verb_has_help(call) -> None:
    for verb in ("demo", "list", "doctor", "run", "predict", "join", "forget", "data split", "data inspect"):
        code, out, _ = call(*verb.split(), "--help")
        assert code == 0
        assert "--json" in out
        assert "-h, --help" in out
        assert "\\[" not in out


def test_version(call) -> None:
    assert call("--version").out == f"homeward {homeward.__version__}\n"


def test_the_installed_command_gives_the_exit_codes(place: Path) -> None:
    def code(*arguments: str) -> int:
        command = [sys.executable, "-c", "import sys; from homeward.cli import main; sys.exit(main())", *arguments]
        return subprocess.run(command, capture_output=True, check=False).returncode

    assert code("list", "data") == 0
    assert code("list", "dta") == 1
    assert code("run", "absent.toml") == 1


def test_help_loads_nothing_heavy() -> None:
    script = "import sys; from homeward.cli import main; main(['--help']); print(*sys.modules, file=sys.stderr)"
    printed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stderr
    loaded = {module.split(".")[0] for module in printed.split()}
    assert (
        loaded & {"torch", "altair", "vl_convert", "jinja2", "sklearn", "scipy", "numpy", "pydantic", "rich"} == set()
    )


def test_json_is_all_there_is_on_stdout(one_run: Path, call) -> None:
    for line in (
        "run quick.toml --json",
        "list --json",
        "list methods --json",
        "doctor --json",
        "data split quick.toml --json",
        "data inspect quick.toml --json",
        "predict runs/named --client north rows.npy --json",
        "join runs/named newcomer.toml --json",
        "forget runs/named --client east --json",
    ):
        code, out, _ = call(*line.split())
        assert code == 0
        assert json.loads(out)
