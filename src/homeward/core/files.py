"""Bytes to and from a disk that may be full, by a process that may be killed: what was there stays whole until what is new is."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable
from pathlib import Path

from .errors import BadFile, HomewardError


def write_file(path: str | os.PathLike[str], content: bytes) -> Path:
    """Writes beside the file, then puts it in place in one step."""
    target = Path(path)
    beside = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            with beside.open("wb") as out:
                out.write(content)
                out.flush()
                os.fsync(out.fileno())
            os.replace(beside, target)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise HomewardError(
            f"{path} could not be written: {error.strerror or error}. Free some space or choose another place; what was there is whole."
        ) from error
    return target


def read_file(path: str | os.PathLike[str]) -> bytes:
    """The bytes of a file; a missing one is an error of ours."""
    try:
        return Path(path).read_bytes()
    except FileNotFoundError as error:
        raise BadFile(f"{path} does not exist. Check the path.") from error
    except (IsADirectoryError, PermissionError) as error:
        raise BadFile(f"{path} cannot be read: {error.strerror}.") from error


def _set_aside(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.previous")


def recovered(path: str | os.PathLike[str]) -> Path:
    """The folder, brought back where a kill came between the two renames that replace it."""
    folder = Path(path)
    if not folder.exists() and _set_aside(folder).exists():
        os.rename(_set_aside(folder), folder)
    return folder


def write_folder(path: str | os.PathLike[str], fill: Callable[[Path], None]) -> Path:
    """Fills a new folder and puts it in the place of the old one, which stays whole until then."""
    target = recovered(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    previous = _set_aside(target)
    try:
        beside.mkdir()
        fill(beside)
        shutil.rmtree(previous, ignore_errors=True)
        if target.exists():
            os.rename(target, previous)
        os.rename(beside, target)
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        recovered(target)
        raise
    shutil.rmtree(previous, ignore_errors=True)
    return target
