"""Articles of files, folders and ZIP archives."""

from __future__ import annotations

import json
import os
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from ..core.child import Child, Ended
from ..core.errors import InvalidData, NotFound, UsageError, why_unread
from . import xml
from .jats import is_jats, read_jats
from .own import is_own, read_own
from .s2orc import is_s2orc, read_s2orc
from .stored import article_of_record, record_of
from .tei import is_tei, read_tei
from .types import Article

FUNCTION = "ccheck.articles.reading:parsed"
FILE_BYTES = 64 << 20
ARCHIVE_FILES = 100_000
_XML = (".xml", ".nxml", ".jats", ".tei")
_READ = (*_XML, ".json")
_SAID = "ccheck reads JATS XML, GROBID's TEI XML, S2ORC JSON and its own JSON"
_PDF = "PDF files can't be read. Convert them with GROBID (https://grobid.readthedocs.io), and name its TEI XML here"


@dataclass(frozen=True, slots=True)
class Unread:
    """A file that could not be read as an article, and why."""

    file: str
    reason: str


def parse_article(data: bytes, file: str) -> Article:
    """The article of a file's bytes; `file` is its name. Its id is the name without the ending.

    Raises InvalidData if it can't be read as one.
    """
    if len(data) > FILE_BYTES:
        raise InvalidData(f"{file}: the file is too large: {len(data):,} bytes, at most {FILE_BYTES:,}")
    identifier = article_id(file)
    try:
        start = data.lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
        if data.startswith(b"%PDF"):
            raise InvalidData(_PDF)
        if start in (b"{", b"["):
            return _from_json(data, identifier)
        if not start and data:
            raise InvalidData("the file is empty")
        root = xml.parse(data)
        if is_tei(root):
            return read_tei(root, identifier)
        if is_jats(root):
            return read_jats(root, identifier)
        raise InvalidData(f"XML of an unknown kind (its root element is {xml.name(root)}). {_SAID}")
    except Exception as error:
        raise InvalidData(f"{file}: {why_unread(error)}") from error


def article_id(file: str) -> str:
    """The name of a file without its folders and ending: `journal.pone.0001` for `a/journal.pone.0001.xml`."""
    name = PurePosixPath(file.replace("\\", "/")).name
    for ending in (".tei.xml", *_READ):
        if name.lower().endswith(ending):
            return name[: -len(ending)] or name
    return name


def _from_json(data: bytes, identifier: str) -> Article:
    try:
        value = json.loads(data)  # UTF-16, too
    except (ValueError, RecursionError) as error:
        raise InvalidData(f"not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise InvalidData("expected a JSON object with one article")
    if is_s2orc(value):
        return read_s2orc(value, identifier)
    if is_own(value):
        return read_own(value, identifier)
    raise InvalidData(f"JSON of an unknown kind: it has neither sections nor body_text. {_SAID}")


def read_article(path: str | Path, child: Child | None = None) -> Article:
    """The article of one file, read in another process with limits. Raises NotFound or InvalidData."""
    path = Path(path).expanduser()
    if path.suffix.lower() == ".pdf":
        raise UsageError(f"{path}: {_PDF}")
    try:
        with path.open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
    except OSError as error:
        raise NotFound(f"{path} can't be read: {error.strerror}") from error
    if child is None:
        with Child(FUNCTION) as child:
            return _read(path, str(path), size, child)
    return _read(path, str(path), size, child)


def _read(path: Path, name: str, size: int, child: Child) -> Article:
    try:
        [record] = child.ask(size, file=str(path.absolute()), name=name)
    except Ended as error:
        raise InvalidData(str(error) if str(error).startswith(name) else f"{name}: {error}") from error
    if record is None:
        raise InvalidData(f"{name}: the article is too long")
    return article_of_record(record)


def parsed(file: str, name: str) -> Iterator[dict[str, Any]]:
    """What the other process answers: the article of a file, as `record_of` makes it."""
    with Path(file).open("rb") as stream:
        yield record_of(parse_article(stream.read(FILE_BYTES + 1), name))


def iter_articles(path: str | Path, only: frozenset[str] | None = None) -> Iterator[Article | Unread]:
    """The articles of a file, a folder (with its subfolders) or a ZIP archive, in the order of their names.

    `only` names the ids that are wanted; other files are not opened. A file that can't be read is an `Unread` in its
    place. Raises NotFound if there is no such file or nothing in it that could be an article.
    """
    path = Path(path).expanduser()
    if not path.exists():
        raise NotFound(f"there is no file {path}")
    if path.is_dir():
        found = [
            one for one in sorted(path.rglob("*"))
            if one.is_file() and _readable(one.name)
            and not any(part.startswith(".") for part in one.relative_to(path).parts)
        ]  # fmt: skip
        if not found:
            raise NotFound(f"the folder {path} has no articles ({_SAID})")
        with Child(FUNCTION) as child:
            for file in found:
                if only is None or article_id(file.name) in only:
                    yield _or_unread(file, child)
    elif path.suffix.lower() == ".zip":
        yield from _in_archive(path, only)
    else:
        yield read_article(path)


def _readable(name: str) -> bool:
    return name.lower().endswith(_READ)


def _or_unread(file: Path, child: Child) -> Article | Unread:
    try:
        return read_article(file, child)
    except (InvalidData, NotFound) as error:
        return Unread(str(file), str(error))


def _in_archive(path: Path, only: frozenset[str] | None) -> Iterator[Article | Unread]:
    try:
        archive = zipfile.ZipFile(path)
    except (OSError, zipfile.BadZipFile) as error:
        raise InvalidData(f"{path} can't be read as a ZIP archive: {error}") from error
    with archive, Child(FUNCTION) as child, tempfile.TemporaryDirectory(prefix="ccheck-") as folder:
        file = Path(folder, "article")
        found = sorted((one for one in archive.infolist() if _readable(one.filename)), key=lambda one: one.filename)
        if not found:
            raise NotFound(f"the archive {path} has no articles ({_SAID})")
        if len(found) > ARCHIVE_FILES:
            raise InvalidData(f"{path} has too many files: {len(found):,}, at most {ARCHIVE_FILES:,}")
        for one in found:
            if only is not None and article_id(one.filename) not in only:
                continue
            name = f"{path}/{one.filename}"
            try:
                # The sizes in an archive are claims: no more than the limit is ever unpacked.
                with archive.open(one) as stream:
                    data = stream.read(FILE_BYTES + 1)
                if (size := file.write_bytes(data)) > FILE_BYTES:
                    raise InvalidData(f"{name}: the file is too large: more than {FILE_BYTES:,} bytes")
                yield _read(file, name, size, child)
            except InvalidData as error:
                yield Unread(name, str(error))
            except Exception as error:  # noqa: BLE001 - also what zlib and lzma raise for a damaged member
                yield Unread(name, f"{name}: can't be unpacked: {why_unread(error)}")
