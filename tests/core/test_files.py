"""A save that is killed, interrupted or out of space at any step leaves the old file or folder whole."""

import subprocess
import sys
from pathlib import Path

import pytest

from homeward.core import files
from homeward.core.errors import BadFile

# Runs in a process of its own: `save(path)` in a child for each step k, where step k fails, and then looks at what is left.
# A step is whatever the interpreter reports of the file system (open, mkdir, rename, remove), a write, or an fsync.
CRASHES = '''
import errno, os, pathlib, shutil, sys
from pathlib import Path
from homeward.core import files
from homeward.core.errors import HomewardError

mode, what, room = sys.argv[1], sys.argv[2], Path(sys.argv[3])
target = room / "saved"
STEPS = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir"}

def failing_at(k):
    """Makes step k of this process fail, in the mode asked for."""
    left = [k]
    def step():
        left[0] -= 1
        if left[0] == 0 or (mode == "dead disk" and left[0] < 0):
            if mode == "kill":
                os._exit(9)
            if mode == "interrupt":
                raise KeyboardInterrupt
            raise OSError(errno.ENOSPC, "No space left on device")
    fsync, opened = os.fsync, Path.open
    class Slow:
        """A file that is written in two pieces."""
        def __init__(self, out): self.out = out
        def __enter__(self): return self
        def __exit__(self, *how): self.out.close()
        def __getattr__(self, name): return getattr(self.out, name)
        def write(self, content):
            self.out.write(content[: len(content) // 2]); self.out.flush(); step()
            self.out.write(content[len(content) // 2 :]); self.out.flush(); step()
    os.fsync = lambda fd: (step(), fsync(fd))
    Path.open = lambda self, *args, **how: Slow(opened(self, *args, **how))
    sys.addaudithook(lambda event, args: step() if event in STEPS and str(room) in str(args[0]) else None)
    return left

def fill(version):
    def into(folder):
        (folder / "a").write_bytes(version * 50)
        (folder / "deep").mkdir()
        (folder / "deep" / "b").write_bytes(version * 70)
    return into

def save(version):
    files.write_file(target, version * 100) if what == "file" else files.write_folder(target, fill(version))

def state():
    """What a reader finds: the version that is there, whole; or nothing."""
    at = files.recovered(target)
    if what == "file":
        found = {"": at.read_bytes()} if at.exists() else {}
    else:
        found = {p.name: p.read_bytes() for p in at.rglob("*") if p.is_file()}
    sizes = {name: len(content) for name, content in found.items()}
    assert sizes in ({}, {"": 100}, {"a": 50, "b": 70}), sizes
    versions = {content[:1] for content in found.values()}
    assert all(set(content) == set(content[:1]) for content in found.values()) and len(versions) <= 1, found
    return versions.pop() if versions else b""

def leftovers():
    return sorted(p.name for p in room.iterdir() if p != target)

k = 0
while True:
    k += 1
    for before in (b"", b"1"):
        shutil.rmtree(room, ignore_errors=True)
        room.mkdir()
        if before:
            save(before)
        child = os.fork()
        if child == 0:
            left = failing_at(k)
            try:
                save(b"2")
            except (OSError, HomewardError):
                os._exit(3)
            except KeyboardInterrupt:
                os._exit(4)
            os._exit(0 if left[0] <= 0 else 10)
        ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        beside = leftovers()
        found = state()
        if ended in (0, 10):
            assert found == b"2", (k, ended, found)
        else:
            assert ended == {"kill": 9, "interrupt": 4}.get(mode, 3), (k, ended)
            assert found == before or (ended in (9, 4) and found == b"2"), (k, ended, before, found)
        if mode == "full disk" or ended == 10:
            assert beside in ([], [".saved.previous"] if ended == 0 else []), (k, ended, beside)
        save(b"3")
        assert state() == b"3" and ".saved.previous" not in leftovers()
    if ended == 10:
        break
print(k)
'''


@pytest.mark.skipif(
    sys.platform == "win32", reason="the crash is made in a forked process, which Windows does not have"
)
@pytest.mark.parametrize("mode", ["full disk", "dead disk", "interrupt", "kill"])
@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_save_that_fails_at_any_step_leaves_what_was_there(what: str, mode: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", CRASHES, mode, what, str(tmp_path / "room")]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert int(ran.stdout) > (5 if what == "file" else 10)  # so many steps were seen, or nothing was tested


def test_files_are_written_whole_into_folders_that_need_not_be_there(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "c.bin"
    assert files.write_file(path, b"one") == path
    assert files.read_file(str(path)) == b"one"
    files.write_file(str(path), b"two")
    assert files.read_file(path) == b"two"
    assert [p.name for p in path.parent.iterdir()] == ["c.bin"]


def test_a_folder_replaces_the_whole_of_the_old_one(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "run"
    files.write_folder(target, lambda folder: (folder / "old").write_text("1"))
    files.write_folder(target, lambda folder: (folder / "new").write_text("2"))
    assert [p.name for p in target.iterdir()] == ["new"]
    assert [p.name for p in target.parent.iterdir()] == ["run"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_folder_that_cannot_be_filled_changes_nothing(error: type[BaseException], tmp_path: Path) -> None:
    def fill(folder: Path) -> None:
        (folder / "half").write_text("x")
        raise error

    files.write_folder(tmp_path / "run", lambda folder: (folder / "old").write_text("1"))
    for path in (tmp_path / "run", tmp_path / "other"):
        with pytest.raises(error):
            files.write_folder(path, fill)
    assert [p.relative_to(tmp_path).as_posix() for p in sorted(tmp_path.rglob("*"))] == ["run", "run/old"]


def test_what_is_not_there_or_no_file_is_our_error(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match=r"nowhere\.bin does not exist"):
        files.read_file(tmp_path / "nowhere.bin")
    with pytest.raises(BadFile, match="cannot be read"):
        files.read_file(tmp_path)
    assert files.recovered(tmp_path / "nowhere") == tmp_path / "nowhere"
