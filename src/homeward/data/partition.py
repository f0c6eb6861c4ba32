"""Who owns which row, as a value: what the laws give, what a federation takes, what is saved.

Test rows are dealt by `match`, in each client's own class proportions.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import warnings
import zipfile
import zlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..core.errors import BadData, BadFile, SmallTest
from ..core.files import write_file
from ..core.rng import rng_for
from .labels import Values, classes_of, column

Ints = NDArray[np.int64]
Setting = bool | int | float | str

SCHEMA = 1  # of the file that `Partition.save` writes
SMALL = 10  # test rows below which a client's score means little

_FORMAT = "homeward.partition"
_OURS = "Name a file that Partition.save or `homeward data split` wrote."
_AGAIN = "Write it again with Partition.save or `homeward data split`."
_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, KeyError, OSError, RuntimeError, TypeError, ValueError)  # in a zip


@dataclass(frozen=True, eq=False)
class Partition:
    """Rows dealt to clients. Partitions of one content have one `hash`, wherever and whenever they were made.

    >>> from homeward.data.laws import iid
    >>> part = iid(["cat", "dog", "cat", "dog"], clients=2, stratified=True)
    >>> part.ids, part.sizes.tolist(), part.counts.tolist()
    (('c000', 'c001'), [2, 2], [[1, 1], [1, 1]])
    """

    owner: Ints  # (n,)  index of the client; -1: nobody's, the row is dropped
    ids: tuple[str, ...]
    labels: Values  # (C,)  the distinct classes, sorted; empty where the targets are real numbers
    counts: Ints  # (K, C)  rows of each client and class
    law: str
    settings: dict[str, Setting]

    def __post_init__(self) -> None:
        clients, classes = len(self.ids), len(self.labels)
        for name, dtype in (("owner", np.int64), ("counts", np.int64), ("labels", None)):
            array = np.array(getattr(self, name), dtype=dtype)
            array.flags.writeable = False
            object.__setattr__(self, name, array)
        object.__setattr__(self, "settings", dict(self.settings))
        if len(set(self.ids)) < clients:
            raise BadData("ids must be different: one for each client.")
        if self.owner.ndim != 1 or not np.all((self.owner >= -1) & (self.owner < clients)):
            raise BadData(f"owner must hold one number from -1 (nobody) to {clients - 1} for every row.")
        if self.counts.shape != (clients, classes) or (classes and not np.array_equal(self.counts.sum(1), self.sizes)):
            raise BadData(f"counts must have shape {(clients, classes)} and add up to each client's number of rows.")

    @property
    def clients(self) -> int:
        """The number of clients, K."""
        return len(self.ids)

    @property
    def sizes(self) -> Ints:
        """Rows of each client. (K,)"""
        return np.bincount(self.owner[self.owner >= 0], minlength=self.clients)

    @property
    def dropped(self) -> int:
        """Rows that nobody owns."""
        return int(np.count_nonzero(self.owner < 0))

    @property
    def hash(self) -> str:
        """SHA-256 of the content, alike on every platform."""
        content = json.dumps(self._words(), sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
        return hashlib.sha256(
            content + self.owner.astype("<i8").tobytes() + self.counts.astype("<i8").tobytes()
        ).hexdigest()

    def _words(self) -> dict[str, object]:
        """All of the content that is not a long array."""
        names = {"law": self.law, "settings": self.settings, "ids": list(self.ids), "labels": self.labels.tolist()}
        return {**names, "rows": len(self.owner)}

    def match(self, y_test: ArrayLike) -> Partition:
        """Test rows dealt in each client's own class proportions, every row once.

        quota_kc = T_c n_kc / Σ_j n_jc    T_c test rows of class c; rounded by the largest remainders

        Ties fall by an order of clients drawn for each class with this partition's seed. So nobody is tested on a class
        that it does not train on. Where there are no classes, the quota follows the sizes. Clients that end with fewer
        than 10 test rows are warned of (`SmallTest`); nothing is drawn again.

        >>> from homeward.data.laws import iid
        >>> part = iid(["cat"] * 40 + ["dog"] * 40, clients=2, stratified=True)
        >>> part.match(["dog"] * 40).counts.tolist()
        [[0, 20], [0, 20]]
        """
        held = self.counts.T if len(self.labels) else self.sizes[None]
        codes = self._codes(column(y_test, "y_test"), held.sum(axis=1))
        draw = rng_for(int(self.settings.get("seed", 0)), "partition", "match").generator()
        dealt = apportion(held, np.bincount(codes, minlength=len(held)), draw)
        owner = dealt_rows(codes, dealt, draw)
        counts = dealt.T if len(self.labels) else self.counts
        tests = replace(
            self, owner=owner, counts=counts, law=f"match({self.law})", settings={**self.settings, "of": self.hash}
        )
        _warn_of_small(tests)
        return tests

    def _codes(self, values: Values, rows: Ints) -> Ints:
        """The class numbers of test labels, each of a class that somebody trains on."""
        if not len(self.labels):
            codes = np.zeros(len(values), dtype=np.int64)
        else:
            values = classes_of(values, "y_test", "as they were in training")
            known = {label: c for c, label in enumerate(self.labels.tolist())}
            found, inverse = np.unique(values, return_inverse=True)
            codes = np.array([known.get(label, -1) for label in found.tolist()], dtype=np.int64)[inverse]
        alone = np.flatnonzero((codes < 0) | (rows[codes] == 0))
        if len(alone):
            raise BadData(
                f"y_test, row {alone[0]}: no client trains on class {values[alone[0]].item()!r}, so nobody can be "
                "tested on it. Leave such test rows out, or partition training rows that have this class."
            )
        return codes

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the partition to a file, whole or not at all."""
        write_file(path, self.to_bytes())

    def to_bytes(self) -> bytes:
        """What `save` writes: an .npz without pickle, with its schema and hash."""
        header = {"format": _FORMAT, "schema": SCHEMA, "hash": self.hash, **self._words()}
        words = np.frombuffer(json.dumps(header).encode(), np.uint8)
        buffer = io.BytesIO()
        np.savez_compressed(buffer, allow_pickle=False, header=words, owner=self.owner, counts=self.counts)
        return buffer.getvalue()

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Partition:
        """The partition in a file, which must be whole, ours, of a schema that is known here, and true to its hash."""
        header, owner, counts = _read(Path(path))
        try:
            labels, ids = np.array(header["labels"]), tuple(header["ids"])
            partition = cls(owner, ids, labels, counts, header["law"], header["settings"])
            if partition.hash == header["hash"]:
                return partition
        except (KeyError, TypeError, ValueError) as error:
            raise BadFile(f"{path} is damaged: its content is no partition. {_AGAIN}") from error
        raise BadFile(f"{path} is damaged or was edited: its content does not have the hash that it states. {_AGAIN}")


def _warn_of_small(tests: Partition) -> None:
    small = np.flatnonzero(tests.sizes < SMALL)
    if len(small):
        least = int(tests.sizes.argmin())
        warnings.warn(
            f"{len(small)} of {tests.clients} clients have fewer than {SMALL} test rows; the fewest, "
            f"{tests.sizes[least]}, has '{tests.ids[least]}'. Their scores mean little: "
            "use fewer clients, a milder law, or more test rows.",
            SmallTest,
            stacklevel=3,
        )


# ---- rows, given how many of each class a client gets


def apportion(held: Ints, totals: Ints, draw: np.random.Generator) -> Ints:
    """Totals (C,) dealt as classes are held (C, K), by largest remainders; ties by an order drawn per class. (C, K)"""
    whole = np.maximum(held.sum(axis=1), 1)
    quota, rest = np.divmod(held * totals[:, None], whole[:, None])  # whole numbers: ties are exact
    clients = np.arange(held.shape[1])
    ties = draw.permuted(np.tile(clients, (len(held), 1)), axis=1)
    first = np.lexsort((ties, -rest), axis=1)
    more = clients < (totals - quota.sum(axis=1))[:, None]
    np.put_along_axis(quota, first, np.take_along_axis(quota, first, axis=1) + more, axis=1)
    return quota


def by_class(codes: Ints, draw: np.random.Generator) -> Ints:
    """The rows in order of class, shuffled within each."""
    rows = draw.permutation(len(codes))
    return rows[np.argsort(codes[rows], kind="stable")]


def dealt_rows(codes: Ints, dealt: Ints, draw: np.random.Generator) -> Ints:
    """The owner of every row, given how many rows of each class each client gets (C, K). (n,)"""
    classes, clients = dealt.shape
    owner = np.empty(len(codes), dtype=np.int64)
    owner[by_class(codes, draw)] = np.repeat(np.tile(np.arange(clients), classes), dealt.ravel())
    return owner


# ---- files


def _read(path: Path) -> tuple[dict[str, Any], Ints, Ints]:
    """Header, owner and counts of a file that is ours."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise BadFile(f"{path} cannot be read: {error.strerror}. {_OURS}") from error
    if not raw.startswith(b"PK"):
        raise BadFile(f"{path} is not a partition file. {_OURS}")
    try:
        with np.load(io.BytesIO(raw), allow_pickle=False) as file:
            entries = {name: file[name] for name in ("header", "owner", "counts") if name in file}
            header = json.loads(entries["header"].tobytes()) if "header" in entries else {}
    except _DAMAGE as error:
        raise BadFile(f"{path} is damaged: {error}. {_AGAIN}") from error
    if not isinstance(header, dict) or header.get("format") != _FORMAT:
        raise BadFile(f"{path} is not a partition file. {_OURS}")
    if header.get("schema") != SCHEMA:
        raise BadFile(
            f"{path} has schema {header.get('schema')}, but this version reads {SCHEMA}. Upgrade homeward to read it."
        )
    if len(entries) < 3:
        raise BadFile(f"{path} is damaged: a part is missing. {_AGAIN}")
    return header, entries["owner"], entries["counts"]
