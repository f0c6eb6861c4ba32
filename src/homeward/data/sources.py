"""Where rows come from: data sets that ship with scikit-learn, files; and how they become a federation.

Two steps: a name or a path -> `Rows` (arrays, as they lie there), and `Rows` + a `Deal` -> `Federation`.
"""

from __future__ import annotations

import csv
import hashlib
import io
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core import check
from ..core.errors import BadData, BadFile, BadSetting, UnknownName, nearest
from ..core.files import read_file
from ..core.task import Federation
from .labels import classes_of, column
from .laws import LAWS, law_named
from .partition import Partition, Setting

_ENTRIES = ("X", "y", "group", "X_test", "y_test", "group_test", "weight", "classes")
_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, KeyError, OSError, RuntimeError, ValueError)  # in an .npz or .npy
_LATER = {
    ".npy": "Put X and y into one file: np.savez('rows.npz', X=X, y=y, group=clients).",
    ".csv": "Tables come in a later version. Until then: np.savez('rows.npz', X=..., y=..., group=...).",
    ".parquet": "Tables come in a later version. Until then: np.savez('rows.npz', X=..., y=..., group=...).",
}


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows as their source holds them, before anybody owns them. None: the source has no such thing."""

    name: str
    X: Any  # (n, d)
    y: Any  # (n,) labels, or (n, c) targets
    group: Any = None  # (n,)  the client of every row
    X_test: Any = None
    y_test: Any = None
    group_test: Any = None
    weights: Any = None  # (n,)
    classes: Any = None  # the labels in their order, where the rows do not show them all
    task: str = "classes"

    def __post_init__(self) -> None:
        for a, b in (("X_test", "y_test"), ("y_test", "X_test"), ("group_test", "X_test")):
            if getattr(self, a) is not None and getattr(self, b) is None:
                raise BadData(f"{self.name} holds {a} but no {b}. Give both, or neither.")

    @property
    def hash(self) -> str:
        """Of all arrays, names and types included."""
        digest = hashlib.sha256()
        for entry in ("X", "y", "group", "X_test", "y_test", "group_test", "weights", "classes"):
            array = getattr(self, entry)
            if array is not None:
                digest.update(f"{entry} {array.dtype.str} {array.shape}".encode())
                digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()


# ---- what ships with scikit-learn


@dataclass(frozen=True)
class Builtin:
    """A data set that needs no network, as `list data` shows it."""

    name: str
    task: str
    rows: int
    columns: int
    classes: int | None  # None: real targets
    description: str

    def read(self) -> Rows:
        """The rows, without names of clients."""
        load = getattr(import_module("sklearn.datasets"), f"load_{self.name}")
        X, y = load(return_X_y=True)
        return Rows(self.name, X, y, task=self.task)


_BUILTIN = (
    Builtin("digits", "classes", 1797, 64, 10, "handwritten digits, 8 x 8 pixels (Alpaydin and Kaynak, UCI 1998)"),
    Builtin("wine", "classes", 178, 13, 3, "chemistry of wines of three growers (Aeberhard and Forina, UCI 1991)"),
    Builtin("breast_cancer", "classes", 569, 30, 2, "cell nuclei of breast tumours (Wolberg et al., UCI 1995)"),
    Builtin("iris", "classes", 150, 4, 3, "sepals and petals of three irises (Fisher 1936)"),
    Builtin("diabetes", "real", 442, 10, None, "progression of diabetes in a year (Efron et al., 2004); real targets"),
)
BUILTIN: dict[str, Builtin] = {entry.name: entry for entry in _BUILTIN}


# ---- a name or a path -> Rows


def rows(source: str, task: str | None = None) -> Rows:
    """The rows of a built-in data set or of an .npz file. task: what they are for, where that is not plain; see `Federation`.

    >>> rows("iris").X.shape
    (150, 4)
    """
    if source in BUILTIN:
        found = BUILTIN[source].read()
        return replace(found, task=task or found.task)
    path = Path(source)
    if path.suffix == ".npz":
        return replace(_npz(path), task=task or "classes")
    raise _unreadable(source, path)


def _unreadable(source: str, path: Path) -> BadSetting | BadFile:
    """Why a source cannot be read by this version."""
    if path.suffix in _LATER:
        return BadFile(f"{source}: only .npz files can be read as a source in this version. {_LATER[path.suffix]}")
    if path.is_dir():
        return BadFile(
            f"{source} is a folder, and folders come in a later version. Until then: np.savez('rows.npz', X=X, y=y, group=clients)."
        )
    if source.startswith(("hf:", "hub:", "http:", "https:")):
        return BadFile(f"{source}: data hubs come in a later version. Download the data and save them as an .npz file.")
    if path.exists():
        return BadFile(f"{source} is no .npz file. Save the rows with np.savez('rows.npz', X=X, y=y, group=clients).")
    return UnknownName(
        f"There is no data set or file '{source}'. {nearest(source, BUILTIN)} Or name an .npz file with X and y: "
        f"{path.absolute()} is not there."
    )


def _npz(path: Path) -> Rows:
    found = _arrays(path)
    for entry in ("X", "y"):
        if entry not in found:
            raise BadFile(f"{path} has no array '{entry}', but {', '.join(sorted(found)) or 'nothing'}. Save X and y.")
    for entry in set(found) - set(_ENTRIES):
        _refuse_misspelt(path, entry, found)
    others: dict[str, Any] = {entry: found.get(entry) for entry in _ENTRIES[2:]}
    return Rows(path.name, found["X"], found["y"], weights=others.pop("weight"), **others)


def _refuse_misspelt(path: Path, entry: str, found: Mapping[str, Any]) -> None:
    """An array of another name is none of our business, unless it is nearly one that is missing."""
    close = get_close_matches(entry, [e for e in _ENTRIES if e not in found], n=1, cutoff=0.8)
    if close:
        raise BadFile(
            f"{path} has an array '{entry}', which is not read; '{close[0]}' is. Rename it, or leave it out of the file."
        )


_REMEDY = {
    "y": "text or numbers",
    "group": "text",
    "classes": "text or numbers",
    "y_test": "text or numbers",
    "group_test": "text",
}


def _arrays(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of an .npz file; none of them may need pickle, which runs code."""
    raw = _read(path)
    if raw.startswith(b"\x93NUMPY"):
        raise BadFile(f"{path} is no .npz file but a single array. Save it with np.savez(path, X=X, y=y).")
    if raw and not raw.startswith(b"PK"):
        raise BadFile(
            f"{path} is no .npz file, whatever its name says: it begins with {raw[:16]!r}. "
            "Save the rows with np.savez('rows.npz', X=X, y=y)."
        )
    try:
        loaded = np.load(io.BytesIO(raw), allow_pickle=False)
        return {name: _array(loaded, name, path) for name in loaded.files}
    except _DAMAGE as error:
        raise error if isinstance(error, BadFile) else _broken(path, error) from error


def _array(loaded: Any, name: str, path: Path) -> NDArray[Any]:
    """One of the arrays; Python objects in it are named with what to save instead."""
    try:
        return np.asarray(loaded[name])
    except ValueError as error:
        if not _is_objects(error):
            raise
        remedy = f"as numbers: {name}.astype(float), or dtype=float from the start"
        if name in _REMEDY:
            remedy = (
                f"as {_REMEDY[name]}: {name}.astype(str){' or .astype(float)' if 'numbers' in _REMEDY[name] else ''}"
            )
        raise BadFile(
            f"{path}: the array '{name}' holds Python objects, which are not read. Save it {remedy}."
        ) from error


def _read(path: Path) -> bytes:
    """The bytes of a file; of one that is not there the place that was looked at."""
    if not path.exists() and not path.is_absolute():
        raise BadFile(
            f"{path} does not exist: {path.absolute()} was looked for. Check the path, and the folder you are in."
        )
    return read_file(path)


def _is_objects(error: Exception) -> bool:
    return "allow_pickle" in str(error) or "Object arrays" in str(error)


def _broken(path: Path, error: Exception) -> BadFile:
    if _is_objects(error):
        return BadFile(f"{path} holds Python objects, which are not read. Save plain numbers: rows.astype(float).")
    return BadFile(f"{path} is damaged or no file of NumPy's: {str(error).rstrip('.')}. Write it again with np.savez.")


# ---- rows + who owns them -> Federation


@dataclass(frozen=True)
class Deal:
    """How rows come to their clients and which are held out. No law: the data name the client of every row.

    test: "match" deals the data's own test rows in each client's class proportions; a fraction is held out of each client's rows; None
    takes the data's own test rows where there are any, and holds nothing out where there are none.
    """

    law: str | None = None
    settings: Mapping[str, Setting] | None = None  # of the law; without one, `seed` alone
    test: str | float | None = None

    @classmethod
    def of(cls, section: Mapping[str, Any]) -> Deal:
        """The deal that a [partition] section describes, all settings of the law filled in."""
        given = dict(section)
        law, test = given.pop("law", None), given.pop("test", None)
        if not (test is None or test == "match" or (type(test) is float and 0 < test < 1)):
            raise BadSetting(f"test = {test!r}, but it is 'match' or a fraction above 0 and below 1.")
        if law is None:
            return cls(None, _seed_alone(given), test)
        if not isinstance(law, str):
            raise BadSetting(f"law = {law!r}, but a law is named by a word such as 'dirichlet'.")
        found = law_named(law)
        for key in given:
            if key not in found.settings:
                raise BadSetting(
                    f"The law '{law}' has no setting '{key}'. {nearest(key, ('law', 'test', *found.settings))}"
                )
        return cls(law, found.checked(given), test)

    @property
    def section(self) -> dict[str, Setting]:
        """The same as a section again."""
        ends = {"law": self.law, **(self.settings or {}), "test": self.test}
        return {key: value for key, value in ends.items() if value is not None}

    @property
    def seed(self) -> int:
        return int((self.settings or {}).get("seed", 0))


def _seed_alone(given: Mapping[str, Any]) -> dict[str, Setting]:
    """Without a law there is nothing to set but the seed of what is held out."""
    odd = sorted(set(given) - {"seed"})
    known = {"law", "test", "seed", *(key for law in LAWS.values() for key in law.settings)}
    for key in odd:
        if key not in known:
            raise BadSetting(f"there is no key '{key}'. {nearest(key, known)}")
    if odd:
        raise BadSetting(f"'{odd[0]}' is set, but no law. Name one with law = \"dirichlet\", or leave '{odd[0]}' out.")
    seed = given.get("seed", 0)
    if type(seed) is not int or seed < 0:
        raise BadSetting(f"seed = {seed!r}, but it is a whole number >= 0.")
    return {"seed": seed}


def federation(source: str, deal: Deal | None = None, *, task: str | None = None) -> tuple[Federation, Partition]:
    """The rows of a source with their clients, and who owns which as a partition.

    >>> fed, part = federation("iris", Deal("iid", {"clients": 3}, test=0.2))
    >>> sorted(fed.clients), fed.origin["data"], fed.origin["partition"] == part.hash
    (['c000', 'c001', 'c002'], 'iris', True)
    """
    found, deal = rows(source, task), deal or Deal()
    part = _owners(found, deal)
    whole = _gathered(found, part, _test_rows(found, deal, part))
    return (whole.holdout(test=deal.test, seed=deal.seed) if isinstance(deal.test, float) else whole), part


def source(name_or_path: str, groups: Any = None, *, task: str | None = None) -> Federation:
    """The rows of a source as a federation: of the clients that it names, of those that `groups` name, or else of one client.

    >>> list(source("wine").clients)
    ['all']
    """
    found = rows(name_or_path, task)
    own = found.X_test is not None and groups is None
    test = (found.X_test, found.y_test, found.group_test) if own else None
    return _gathered(found, found.group if groups is None else groups, test)


def _gathered(found: Rows, groups: Any, test: tuple[Any, Any, Any] | None) -> Federation:
    whole = Federation.from_arrays(
        found.X, found.y, groups, test=test, task=found.task, weights=found.weights, classes=found.classes
    )
    return replace(whole, origin={"data": found.name, "data_hash": found.hash, **whole.origin})


def _owners(found: Rows, deal: Deal) -> Partition:
    """By the law, or as the data say."""
    n = len(check.features(found.X, "X"))
    check.same_length(n, found.y, "y")
    labels = _labels(found.y, "y", found.task)
    if deal.law is not None:
        return law_named(deal.law).function(labels, **(deal.settings or {}))
    if found.group is None:
        raise BadData(
            f"{found.name} does not name the client of each row. Add a [partition] with a law, such as "
            "law = \"dirichlet\", clients = 10, alpha = 0.3; or an array 'group' to the file."
        )
    return named(labels if found.task == "classes" else None, check.group_names(found.group, n, "group"))


def _labels(y: Any, name: str, task: str) -> Any:
    """What a law may see: classes; of other targets how many there are, as numbers that no law takes for classes."""
    if task != "classes":
        return np.full(len(y), 0.5)
    return classes_of(column(y, name), name, 'or say task = "real"')


def named(labels: NDArray[Any] | None, clients: NDArray[Any]) -> Partition:
    """Rows whose clients have names already, as a partition; labels: None where there are no classes.

    >>> named(np.array([0, 1, 1]), np.array(["north", "south", "north"])).counts.tolist()
    [[1, 1], [0, 1]]
    """
    ids, owner = np.unique(clients, return_inverse=True)
    known, codes = np.unique(np.empty(0, np.int64) if labels is None else labels, return_inverse=True)
    counts = np.zeros((len(ids), len(known)), dtype=np.int64)
    if labels is not None:
        np.add.at(counts, (owner, codes), 1)
    return Partition(owner, tuple(map(str, ids)), known, counts, "group", {})


def _test_rows(found: Rows, deal: Deal, part: Partition) -> tuple[Any, Any, Any] | None:
    """The data's own test rows with their clients, or None where a fraction is held out or there are none."""
    if isinstance(deal.test, float):
        return None
    if found.X_test is None:
        if deal.test == "match":
            raise BadSetting(
                f'test = "match" deals test rows of the data, but {found.name} has no X_test. Hold out a fraction: test = 0.25.'
            )
        return None
    if deal.law is not None or deal.test == "match":
        return found.X_test, found.y_test, part.match(_labels(found.y_test, "y_test", found.task))
    return found.X_test, found.y_test, _test_group(found, part)


def _test_group(found: Rows, part: Partition) -> Any:
    if found.group_test is None:
        raise BadData(
            f"{found.name} names the client of each row, but of no test row. Add 'group_test', or say test = \"match\"."
        )
    names = check.group_names(found.group_test, len(found.X_test), "group_test")
    strange = np.flatnonzero(~np.isin(names, part.ids))
    if len(strange):
        raise BadData(
            f"group_test, row {strange[0]} is '{names[strange[0]]}', a client without training rows. Known: {', '.join(part.ids[:5])}."
        )
    return names


# ---- rows alone, to be predicted


def unlabelled(path: str) -> NDArray[Any]:
    """The rows in a file: an array (.npy), X of an .npz, or a table of numbers (.csv, with or without a line of names). (n, d)"""
    kind = Path(path).suffix
    if kind == ".npz":
        found = _arrays(Path(path))
        if "X" not in found:
            raise BadFile(f"{path} has no array 'X', but {', '.join(sorted(found)) or 'nothing'}. Save the rows as X.")
        return found["X"]
    if kind == ".npy":
        try:
            return np.asarray(np.load(io.BytesIO(_read(Path(path))), allow_pickle=False))
        except _DAMAGE as error:
            raise _broken(Path(path), error) from error
    if kind == ".csv":
        return _table(path)
    raise BadFile(f"{path} is no file of rows. Give .npy (an array), .npz (with X) or .csv (numbers).")


def _table(path: str) -> NDArray[np.float64]:
    """A table of numbers; a first line that is none is taken for the names of the columns."""
    try:
        text = _read(Path(path)).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadFile(f"{path} is no text in UTF-8. Save the table as UTF-8.") from error
    _refuse_separator(path, text)
    lines = [(number, cells) for number, cells in enumerate(csv.reader(io.StringIO(text)), 1) if cells]
    if lines and not any(map(_is_number, lines[0][1])):
        lines = lines[1:]
    if not lines:
        raise BadFile(f"{path} has no rows. Give one line of numbers for each row.")
    width = len(lines[0][1])
    return np.array([_numbers(path, number, cells, width) for number, cells in lines])


def _refuse_separator(path: str, text: str) -> None:
    """Spreadsheets write ; or tabs in many languages; here they are commas."""
    first = next((line for line in text.splitlines() if line.strip()), "")
    for mark, name in ((";", "semicolons (;)"), ("\t", "tabs")):
        if first.count(mark) > first.count(","):
            raise BadFile(
                f"{path} separates its columns by {name}, but commas are expected, and points in numbers (1.5). Save it as comma-separated."
            )


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _numbers(path: str, line: int, cells: list[str], width: int) -> list[float]:
    if len(cells) != width:
        raise BadFile(
            f"{path}, line {line} has {len(cells)} columns, but the first has {width}. Give all rows the same."
        )
    for at, cell in enumerate(cells):
        if not _is_number(cell):
            raise BadFile(f"{path}, line {line}, column {at} is {cell!r}, and features are numbers. Mend or drop it.")
    return [float(cell) for cell in cells]
