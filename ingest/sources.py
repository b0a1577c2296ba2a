"""Which files to read: paths, folders, globs and standard input, and what is in them."""

from __future__ import annotations

import glob
import json
import os
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import Any, TypeAlias, TypeVar

from ..core.errors import NotFound, UsageError
from ..core.files import STORE_FILE, no_file
from ..core.text import counted, unfloated
from .lines import told_by
from .sniff import COMPRESSIONS, FORMATS, HEAD_BYTES, HINTS, KNOWN, Compression, Format

REJECTS_SUFFIX = ".rejects.jsonl"
"""The end of the names of files that list rejects. Folders and globs leave them out."""
STDIN = "-"
RECORDS = "records-of-python.jsonl"
"""The name of a temporary file with records that a program gave."""
Given: TypeAlias = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]
"""One or more paths of files, folders or globs, or `STDIN`."""
P = TypeVar("P", bound=PurePath)


@dataclass(frozen=True, slots=True)
class Reading:
    """The user's choices for reading files. For those that are None, the files' names and first bytes decide."""

    format: Format | None = None
    encoding: str | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """A file to read. `path` is None for standard input; `size` in bytes, None if it can't be known.

    `format` is None if only the first bytes tell: standard input and named pipes. `label` names the file in ids: its
    path from the folder that the user named, else from its own, which begins with that folder's name.
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
            source = replace(source, format=reading.format or source.format, encoding=reading.encoding)
            found.setdefault(source.path.resolve() if source.path else None, source)
    if not found:
        raise UsageError("nothing to ingest: name a file, a folder, a glob, or - for standard input")
    return list(found.values())


def stem(path: PurePath) -> str:
    """The file's name without the extensions that are known here: `corpus` for `corpus.jsonl.gz`."""
    name = path.name
    for extensions in (COMPRESSIONS, FORMATS):
        extension = next((known for known in extensions if name.lower().endswith(known)), "")
        name = name.removesuffix(name[len(name) - len(extension) :]) or name
    return name


def numbered(way: P, number: int) -> P:
    """The path with a number in its name: `a/paper (2).pdf`."""
    name = stem(way)
    return way.with_name(f"{name} ({number}){way.name[len(name) :]}")


def _expand(given: str, reading: Reading, notices: list[str]) -> Iterator[Source]:
    path = Path(given).expanduser()
    if given == STDIN:
        yield Source("standard input", None, None, label="standard-input")
    elif path.is_dir():
        yield from _in_folder(path, notices)
    elif path.exists():
        format_, compression = _told(path, named=path.is_file())  # not a named pipe, as a shell's <(command) makes
        format_ = reading.format or format_
        if format_ is None and path.is_file():
            hint = HINTS.get(path.suffix.lower(), "").replace("FILE", path.name)
            what = hint or f"Its name must end in {KNOWN}, or name its format with --format"
            raise UsageError(f"{path}: ccheck can't read files of this type. {what}")
        yield _source(path, format_, compression)
    elif any(character in given for character in "*?["):
        yield from _matching(path)
    else:
        raise no_file(given)


def _matching(pattern: Path) -> Iterator[Source]:
    matches = [Path(match) for match in sorted(glob.glob(str(pattern), recursive=True))]  # noqa: PTH207 - Path.glob takes no absolute patterns
    found = [one for match in matches if match.is_file() and (one := source_of(match)) is not None]
    if not found:
        raise NotFound(f"no readable file matches {pattern} (ccheck reads {KNOWN})")
    yield from found


def _in_folder(folder: Path, notices: list[str]) -> Iterator[Source]:
    found = False
    beir = {path.parent for path in folder.rglob("corpus.jsonl*") if _is_beir(path)}
    stores = {path.parent for path in folder.rglob(STORE_FILE)}
    other: Counter[str] = Counter()
    name = folder.resolve().name
    for path in sorted(folder.rglob("*")):
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        own = path.name.endswith(REJECTS_SUFFIX) or ".checks.sqlite" in path.name or stores.intersection(path.parents)
        if hidden or own or path.is_dir():
            continue
        data_set = next((parent for parent in path.parents if parent in beir), None)
        if data_set is not None and not path.name.startswith("corpus.jsonl"):
            continue
        label = Path(name, path.relative_to(folder)).as_posix()
        if path.is_file() and (source := source_of(path, label)) is not None:
            found = True
            yield source
        else:
            other[path.suffix.lower() if path.suffix.lower() in HINTS else ""] += 1
    for data_set in sorted(beir):
        notices.append(f"{data_set} is a BEIR data set: only its corpus was read, not its queries")
    for suffix in [suffix for suffix in other if suffix][:3]:
        notices.append(f"left out: {counted(other[suffix], f'{suffix} file')} in {folder}. {HINTS[suffix]}")
    if other[""]:
        notices.append(f"left out: {counted(other[''], 'file')} of other kinds in {folder}. Name one to have it read")
    if not found:
        denied = "" if os.access(folder, os.R_OK | os.X_OK) else ". Its files can't be listed: permission denied"
        raise NotFound(f"the folder {folder} holds no file that ccheck can read (it reads {KNOWN}){denied}")


def _is_beir(corpus: Path) -> bool:
    """A corpus with queries or judgements beside it."""
    return any(corpus.parent.glob("queries.jsonl*")) or (corpus.parent / "qrels").is_dir()


def source_of(path: Path, label: str = "") -> Source | None:
    """The file as a source, if its name or first bytes tell its format, and it is not a list of rejects."""
    format_, compression = _told(path)
    known = format_ is not None and not path.name.endswith(REJECTS_SUFFIX)
    return _source(path, format_, compression, label) if known else None


def _told(path: Path, *, named: bool = False) -> tuple[Format | None, Compression | None]:
    """The format and compression that a file's name tells; None if it tells none.

    A text can be of several formats, and a dump's `part_000.gz` tells only that it is compressed: what it holds tells
    the rest. So it is if the user `named` a file with no known ending.
    """
    suffixes = [suffix.lower() for suffix in path.suffixes[-2:]]
    compression = COMPRESSIONS.get(suffixes[-1]) if suffixes else None
    if compression:
        suffixes.pop()
    suffix = suffixes[-1] if suffixes else ""
    format_ = FORMATS.get(suffix)
    if format_ == "txt" or (format_ is None and suffix not in HINTS and (compression or named)):
        try:
            with path.open("rb") as stream:
                head = stream.read(HEAD_BYTES)
        except OSError:
            return "txt", compression  # reading says what is wrong
        format_, compression = told_by(head, compression)
        if format_ == "txt" and ".txt" not in path.name.lower():
            format_ = None  # a file of an unknown kind is not a document
    return format_, compression


def _source(path: Path, format_: Format | None, compression: Compression | None, label: str = "") -> Source:
    size = None
    if path.is_file():
        try:
            with path.open("rb") as stream:
                size = os.fstat(stream.fileno()).st_size
        except OSError as error:
            raise NotFound(f"{path} can't be read: {error.strerror}") from error
    label = label or Path(path.parent.resolve().name, path.name).as_posix()
    return Source(str(path), path, format_, compression, size, label)


# -- what Python callers have at hand


@contextmanager
def as_files(given: Iterable[Any]) -> Iterator[list[str]]:
    """The given as paths: records and data frames are in temporary files until the end of the context.

    Raises UsageError for anything else.
    """
    with tempfile.TemporaryDirectory(prefix="ccheck-") as folder:
        paths: list[str] = []
        records: list[Mapping[str, Any]] = []
        for one in given:
            if isinstance(one, str | os.PathLike):
                paths.append(os.fspath(one))
            else:
                records += _records(one)
        if records:
            file = Path(folder, RECORDS)
            with file.open("w", encoding="utf-8") as stream:
                for record in records:
                    stream.write(json.dumps(_with_text_keys(record), default=_as_json) + "\n")
            paths.append(str(file))
        yield paths


def _records(one: Any) -> list[Mapping[str, Any]]:
    if isinstance(one, Mapping):
        return [one]
    if hasattr(one, "to_dicts"):  # polars
        return list(one.to_dicts())
    if hasattr(one, "to_dict") and hasattr(one, "columns"):  # pandas
        return [{name: unfloated(value) for name, value in row.items()} for row in one.to_dict(orient="records")]
    if isinstance(one, Iterable) and not isinstance(one, bytes):
        found = list(one)
        if all(isinstance(record, Mapping) for record in found):
            return found
    raise UsageError(f"can't ingest {type(one).__name__}: give paths, dicts, a list of dicts or a data frame")


def _with_text_keys(value: Any) -> Any:
    """The same value with text for all keys, as JSON wants them."""
    if isinstance(value, Mapping):
        return {str(name): _with_text_keys(inner) for name, inner in value.items()}
    return [_with_text_keys(inner) for inner in value] if isinstance(value, list | tuple) else value


def _as_json(value: Any) -> Any:
    """Values of data frames and of Python's own types as JSON has them. NaN counts as absent when it is read."""
    if hasattr(value, "isoformat"):
        text = str(value.isoformat())
        return None if text == "NaT" else text.removesuffix("T00:00:00")
    return value.tolist() if hasattr(value, "tolist") else str(value)
