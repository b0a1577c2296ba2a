"""Which files to read: paths, folders, globs and standard input, and what is in them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from ..errors import NotFound, UsageError

Format: TypeAlias = Literal["jsonl", "json", "csv", "tsv", "parquet"]
Compression: TypeAlias = Literal["gzip", "zstd"]

FORMATS: dict[str, Format] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
}
COMPRESSIONS: dict[str, Compression] = {".gz": "gzip", ".zst": "zstd"}
REJECTS_SUFFIX = ".rejects.jsonl"
"""What the files that list rejects end in; folders and globs leave them out."""
STDIN = "-"
Given: TypeAlias = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]
"""One or more paths of files, folders or globs, or `STDIN`."""
_KNOWN = f"{', '.join(FORMATS)}, each also with {' or '.join(COMPRESSIONS)}"


@dataclass(frozen=True, slots=True)
class Source:
    """A file to read. `path` is None for standard input; `size` in bytes, None where it can't be known."""

    name: str
    path: Path | None
    format: Format
    compression: Compression | None = None
    size: int | None = None


def find_sources(given: Given) -> list[Source]:
    """The files that paths, folders (recursively), globs and `-` stand for, in that order, each file once.

    Raises NotFound where one of them leads to nothing, UsageError for a file of an unknown kind.
    """
    if isinstance(given, str | os.PathLike):
        given = [given]
    found: dict[Path | None, Source] = {}
    for one in given:
        for source in _expand(os.fspath(one)):
            found.setdefault(source.path.resolve() if source.path else None, source)
    if not found:
        raise UsageError("nothing to ingest: name a file, a folder, a glob, or - for standard input")
    return list(found.values())


def stem(path: Path) -> str:
    """The file's name without the extensions that are known here: `corpus` for `corpus.jsonl.gz`."""
    name = path.name
    for extensions in (COMPRESSIONS, FORMATS):
        extension = next((known for known in extensions if name.lower().endswith(known)), "")
        name = name.removesuffix(name[len(name) - len(extension) :]) or name
    return name


def _expand(given: str) -> Iterator[Source]:
    if given == STDIN:
        yield Source("standard input", None, "jsonl")
        return
    path = Path(given).expanduser()
    if path.is_dir():
        yield from _in_folder(path)
    elif path.exists():
        yield _source(path, _kind(path))
    elif any(character in given for character in "*?["):
        yield from _matching(path)
    else:
        raise NotFound(f"there is no file {given}")


def _matching(pattern: Path) -> Iterator[Source]:
    import glob

    matches = [Path(match) for match in sorted(glob.glob(str(pattern), recursive=True))]  # noqa: PTH207 - Path.glob takes no absolute patterns
    found = False
    for match in matches:
        if match.is_file() and (kind := _kind(match)) and not match.name.endswith(REJECTS_SUFFIX):
            found = True
            yield _source(match, kind)
    if not found:
        raise NotFound(f"no readable file matches {pattern} (ccheck reads {_KNOWN})")


def _in_folder(folder: Path) -> Iterator[Source]:
    found = False
    for path in sorted(folder.rglob("*")):
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if hidden or path.name.endswith(REJECTS_SUFFIX) or not path.is_file():
            continue
        if kind := _kind(path):
            found = True
            yield _source(path, kind)
    if not found:
        raise NotFound(f"the folder {folder} holds no file that ccheck can read (it reads {_KNOWN})")


def _kind(path: Path) -> tuple[Format, Compression | None] | None:
    """The format and compression that a file's name tells; None where it tells none."""
    suffixes = [suffix.lower() for suffix in path.suffixes[-2:]]
    compression = COMPRESSIONS.get(suffixes[-1]) if suffixes else None
    if compression:
        suffixes.pop()
    format_ = FORMATS.get(suffixes[-1]) if suffixes else None
    return (format_, compression) if format_ else None


def _source(path: Path, kind: tuple[Format, Compression | None] | None) -> Source:
    if not path.is_file():  # a named pipe, as a shell's <(command) makes
        format_, compression = kind or ("jsonl", None)
        return Source(str(path), path, format_, compression)
    if kind is None:
        raise UsageError(f"{path}: unknown file type. The name must end in {_KNOWN}")
    try:
        with path.open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
    except OSError as error:
        raise NotFound(f"{path} can't be read: {error.strerror}") from error
    return Source(str(path), path, *kind, size)
