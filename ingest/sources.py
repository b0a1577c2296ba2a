"""Which files to read: paths, folders, globs and standard input, and what is in them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from ..core.errors import NotFound, UsageError
from ..core.files import no_file
from .kinds import COMPRESSIONS, FORMATS, HINTS, KNOWN, Compression, Format
from .sniff import HEAD_BYTES, sniff, sniff_compression, unpacked_head

REJECTS_SUFFIX = ".rejects.jsonl"
"""The end of the names of files that list rejects. Folders and globs leave them out."""
STDIN = "-"
Given: TypeAlias = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]
"""One or more paths of files, folders or globs, or `STDIN`."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The user's choices for reading files. For those that are None, the files' names and first bytes decide."""

    format: Format | None = None
    delimiter: str | None = None
    encoding: str | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """A file to read. `path` is None for standard input; `size` in bytes, None if it can't be known.

    `format` is None if only the first bytes tell: standard input and named pipes. `label` names the file in ids:
    its name, or if it was found in a folder, its path inside that.
    """

    name: str
    path: Path | None
    format: Format | None
    compression: Compression | None = None
    size: int | None = None
    label: str = ""
    delimiter: str | None = None
    encoding: str | None = None


def find_sources(given: Given, reading: Reading | None = None, notices: list[str] | None = None) -> list[Source]:
    """The files that paths, folders (recursively), globs and `-` stand for, in that order, each file once.

    `notices` gets what a user should know of the choice. Raises NotFound if one of them leads to nothing,
    UsageError for a file of an unknown kind.
    """
    if isinstance(given, str | os.PathLike):
        given = [given]
    reading = reading or Reading()
    found: dict[Path | None, Source] = {}
    for one in given:
        for source in _expand(os.fspath(one), reading, notices if notices is not None else []):
            source = replace(
                source,
                format=reading.format or source.format,
                delimiter=reading.delimiter,
                encoding=reading.encoding,
            )
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


def _expand(given: str, reading: Reading, notices: list[str]) -> Iterator[Source]:
    if given == STDIN:
        yield Source("standard input", None, None, label="standard-input")
        return
    path = Path(given).expanduser()
    if path.is_dir():
        yield from _in_folder(path, notices)
    elif path.exists():
        yield _source(path, _kind(path), reading)
    elif any(character in given for character in "*?["):
        yield from _matching(path)
    else:
        raise no_file(given)


def _matching(pattern: Path) -> Iterator[Source]:
    import glob

    matches = [Path(match) for match in sorted(glob.glob(str(pattern), recursive=True))]  # noqa: PTH207 - Path.glob takes no absolute patterns
    found = False
    for match in matches:
        if match.is_file() and (kind := _kind(match)) and not match.name.endswith(REJECTS_SUFFIX):
            found = True
            yield _source(match, kind)
    if not found:
        raise NotFound(f"no readable file matches {pattern} (ccheck reads {KNOWN})")


def _in_folder(folder: Path, notices: list[str]) -> Iterator[Source]:
    found = False
    beir = {path.parent for path in folder.rglob("corpus.jsonl*") if _is_beir(path)}
    other: dict[str, int] = {}
    for path in sorted(folder.rglob("*")):
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if hidden or path.name.endswith(REJECTS_SUFFIX) or not path.is_file():
            continue
        data_set = next((parent for parent in path.parents if parent in beir), None)
        if data_set is not None and not path.name.startswith("corpus.jsonl"):
            continue
        if kind := _kind(path):
            found = True
            yield _source(path, kind, label=path.relative_to(folder).as_posix())
        else:
            other[path.suffix.lower()] = other.get(path.suffix.lower(), 0) + 1
    for data_set in sorted(beir):
        notices.append(f"{data_set} is a BEIR data set: only its corpus was read, not its queries")
    known = [suffix for suffix in other if suffix in HINTS]
    for suffix in known[:3]:
        notices.append(f"{other[suffix]:,} {suffix} files in {folder} were left out. {HINTS[suffix]}")
    if not found:
        raise NotFound(f"the folder {folder} holds no file that ccheck can read (it reads {KNOWN})")


def _is_beir(corpus: Path) -> bool:
    """A corpus with queries or judgements beside it."""
    return any(corpus.parent.glob("queries.jsonl*")) or (corpus.parent / "qrels").is_dir()


def _kind(path: Path) -> tuple[Format, Compression | None] | None:
    """The format and compression that a file's name tells; None if it tells none.

    A dump's `part_000.gz` tells only that it is compressed: what it holds tells the rest.
    """
    suffixes = [suffix.lower() for suffix in path.suffixes[-2:]]
    compression = COMPRESSIONS.get(suffixes[-1]) if suffixes else None
    if compression:
        suffixes.pop()
    format_ = FORMATS.get(suffixes[-1]) if suffixes else None
    if format_ == "txt" or (compression and not format_ and (not suffixes or suffixes[-1] not in HINTS)):
        format_ = _sniffed(path, compression)
    return (format_, compression) if format_ else None


def _sniffed(path: Path, compression: Compression | None) -> Format | None:
    try:
        with path.open("rb") as stream:
            head = unpacked_head(stream.read(HEAD_BYTES), compression)
    except OSError:
        return "txt"  # reading says what is wrong
    found = sniff(head) if head else "txt"
    # A compressed file of an unknown kind is not a document.
    return None if found == "txt" and ".txt" not in path.name.lower() else found


def _source(
    path: Path,
    kind: tuple[Format, Compression | None] | None,
    reading: Reading | None = None,
    *,
    label: str = "",
) -> Source:
    if not path.is_file():  # a named pipe, as a shell's <(command) makes
        format_, compression = kind or (None, None)
        return Source(str(path), path, format_, compression, label=label or path.name)
    if kind is None:
        kind = _by_content(path, reading or Reading())
    try:
        with path.open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
    except OSError as error:
        raise NotFound(f"{path} can't be read: {error.strerror}") from error
    return Source(str(path), path, *kind, size, label or path.name)


def source_of(path: Path) -> Source | None:
    """The file as a source, if its name or first bytes tell its format."""
    kind = _kind(path)
    return _source(path, kind) if kind else None


def _by_content(path: Path, reading: Reading) -> tuple[Format, Compression | None]:
    """Tells the format of a file by its content, as its name does not. Raises UsageError if ccheck can't read it."""
    hint = HINTS.get(path.suffix.lower())
    if hint is None or reading.format is not None:
        try:
            with path.open("rb") as stream:
                head = stream.read(HEAD_BYTES)
        except OSError as error:
            raise NotFound(f"{path} can't be read: {error.strerror}") from error
        compression = sniff_compression(head)
        format_ = reading.format or sniff(unpacked_head(head, compression))
        if format_ is not None and (reading.format is not None or format_ != "txt"):
            return format_, compression
    what = (
        hint.replace("FILE", path.name) if hint else f"Its name must end in {KNOWN}, or name its format with --format"
    )
    raise UsageError(f"{path}: ccheck can't read files of this type. {what}")
