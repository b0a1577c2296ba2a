"""Writes files next to their place first, and moves them there once they are complete.

A stranger's folder can hold links where ccheck would write, and a slip of the hand can name a store or an input. So a
file never goes through a symbolic link, nor onto a store, a database, or what the same command reads. It keeps the mode
of the file that it replaces; a new one gets what the umask leaves.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from .errors import Incomplete, InvalidData, NotFound, UsageError
from .text import nearest

STORE_FILE = "documents.sqlite"
"""The file that every local store's folder has."""
_SQLITE = b"SQLite format 3\0"
_BESIDE_SQLITE = ("-wal", "-shm", "-journal")

AnyPath = str | os.PathLike[str]
MOST_NAMES = 1_000
"""How many files of a folder are compared with a name that is not there."""


def no_file(given: AnyPath) -> NotFound:
    """The error for an input that is not there, with the name in its folder that is most like it."""
    path, near = Path(given).expanduser(), None
    with contextlib.suppress(OSError), os.scandir(path.parent) as entries:
        names = [entry.name for entry in itertools.islice(entries, MOST_NAMES)]
        near = nearest(path.name, names, 0.7)  # a common ending alone is no likeness
    return NotFound(f"there is no file {given}" + (f": did you mean {path.with_name(near)}?" if near else ""))


def read_text(path: AnyPath, what: str) -> str:
    """A file of text. `what` is what messages call it. Raises NotFound or InvalidData."""
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise NotFound(f"{what} {path} can't be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidData(f"{what} {path} can't be read: it is not UTF-8 text") from error


def check_output(path: AnyPath, what: str, reads: Iterable[AnyPath | None] = ()) -> Path:
    """The place at which a file can be written. `what` is what messages call it; `reads` is what the command reads.

    Raises UsageError with the reason if nothing can, or should, be written there.
    """
    return _checked(path, what, _obstacles(str(path), Path(path), reads))


def check_outputs(outputs: Iterable[tuple[AnyPath | None, str]], reads: Iterable[AnyPath | None] = ()) -> None:
    """Several files of one command, each with what messages call it; those that are None are not wanted.

    Raises UsageError as `check_output` does, and where two of them are the same file.
    """
    reads = list(reads)
    places: dict[str, str] = {}
    for path, what in outputs:
        if path is None:
            continue
        place = os.path.realpath(check_output(path, what, reads))
        if place in places:
            raise UsageError(
                f"{what} can't be written to {path}: {places[place]} is written there too. Choose another file"
            )
        places[place] = what


def check_folder(path: AnyPath, what: str) -> Path:
    """The place of a folder that is to be made or replaced. Raises UsageError as `check_output` does."""
    target = Path(path)
    wrong = target.exists() and not target.is_dir()
    named = ["a file with that name exists. Choose another folder"] if wrong else []
    return _checked(path, what, itertools.chain(_linked(target), named, _around(target / STORE_FILE)))


def _checked(path: AnyPath, what: str, obstacles: Iterator[str]) -> Path:
    try:
        reason = next(obstacles, None)
    except OSError as error:
        reason = f"{error.strerror or error}"
    if reason is not None:
        raise UsageError(f"{what} can't be written to {path}: {reason}")
    return Path(path)


@contextmanager
def writing(path: AnyPath, what: str, reads: Iterable[AnyPath | None] = ()) -> Iterator[IO[str]]:
    """Yields a stream for UTF-8 text, whose file takes its place when the context ends well; else nothing changes.

    Raises UsageError, at once, where `check_output` does, and Incomplete where the disk is full or fails.
    """
    target = check_output(path, what, reads)
    beside = target.with_name(f".ccheck-{secrets.token_hex(8)}.tmp")
    try:
        disk = _open(beside, target, what)
    except OSError as error:
        raise UsageError(f"{what} can't be written to {path}: {error.strerror or error}") from error
    try:
        buffer = io.BufferedWriter(disk)
        stream = io.TextIOWrapper(buffer, encoding="utf-8", errors="backslashreplace", newline="\n")
        yield stream
        stream.flush()
        with disk.explained():
            os.fsync(disk.fileno())
            disk.close()
            beside.replace(target)
    finally:
        with contextlib.suppress(OSError):
            io.FileIO.close(disk)
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)


def write_text(path: AnyPath, text: str, what: str = "the file") -> None:
    """Write a whole file; see `writing`."""
    with writing(path, what) as stream:
        stream.write(text)


def private_folder(folder: Path) -> None:
    """Make a folder, and those above it that are missing, for their owner only."""
    if not folder.is_dir():
        private_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


class _Disk(io.FileIO):
    """A new file. Its errors say what could not be written, and that the earlier file is unchanged."""

    def __init__(self, descriptor: int, target: Path, what: str) -> None:
        super().__init__(descriptor, "w")
        self._target, self._what = target, what

    def write(self, data: Any) -> int:
        with self.explained():
            return self.put(data)

    def put(self, data: Any) -> int:
        return super().write(data) or 0

    @contextmanager
    def explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise Incomplete(
                f"{self._what} could not be written to {self._target}: {error.strerror or error}. What was there "
                "before is unchanged"
            ) from error


def _open(beside: Path, target: Path, what: str) -> _Disk:
    mode = None
    if target.exists():
        target.open("r+b").close()  # one that may not be changed is not replaced either
        mode = stat.S_IMODE(target.stat().st_mode) & 0o777
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    disk = _Disk(os.open(beside, flags, 0o666), target, what)
    if mode is not None:
        beside.chmod(mode)
    return disk


def _obstacles(given: str, target: Path, reads: Iterable[AnyPath | None]) -> Iterator[str]:
    """Yields the reasons why nothing should be written there."""
    if given in ("", "-"):
        yield "it must be the name of a file"
    yield from _linked(target)
    if target.exists() and not target.is_file():
        yield "it must be the name of a file"
    if not target.absolute().parent.is_dir():
        yield f"there is no folder {target.parent}"
    for other in reads if target.exists() else ():
        if other is not None and os.fspath(other) != "-" and Path(other).exists() and target.samefile(other):
            yield "this command reads that file. Choose another one"
    yield from _around(target)
    base = next((target.name.removesuffix(end) for end in _BESIDE_SQLITE if target.name.endswith(end)), target.name)
    for file in {target, target.with_name(base)}:
        if file.is_file():
            with file.open("rb") as stream:
                if stream.read(len(_SQLITE)) == _SQLITE:
                    yield "it is a database. Choose another file"


def _linked(target: Path) -> Iterator[str]:
    if target.is_symlink():
        yield f"it is a symbolic link to {target.readlink()}. Name its target instead, or another file"


def _around(target: Path) -> Iterator[str]:
    """Where a folder on the way is another user's link, they choose what is written; a store's folder is a store's."""
    for folder in target.absolute().parents if hasattr(os, "getuid") else ():
        if folder.is_symlink() and folder.lstat().st_uid not in (0, os.getuid()):
            yield f"{folder} is a symbolic link that another user made. Name the folder behind it"
    for folder in Path(os.path.realpath(target)).parents:
        if (folder / STORE_FILE).is_file():
            yield f"{folder} is a store. Choose a file elsewhere"
