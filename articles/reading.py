"""Articles from the bytes of a file. `ingest/full_texts.py` reads files, with limits of time and memory."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from ..core.errors import InvalidData, why_unread
from . import xml
from .jats import is_jats, read_jats
from .own import is_own, read_own
from .s2orc import is_s2orc, read_s2orc
from .tei import is_tei, read_tei
from .types import Article

FILE_BYTES = 64 << 20
FORMATS = "JATS XML, GROBID's TEI XML, S2ORC JSON and ccheck's own JSON"


def parse_article(data: bytes, file: str) -> Article:
    """The article of a file's bytes; `file` is its name. Its id is the name without the ending.

    Raises InvalidData if it can't be read as one.
    """
    if len(data) > FILE_BYTES:
        raise InvalidData(f"the file is too large: more than {FILE_BYTES:,} bytes")
    identifier = article_id(file)
    try:
        if data.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"["):
            article = article_of_json(json.loads(data), identifier)
            if article is None:
                raise InvalidData(f"JSON of an unknown kind: it has neither sections nor body_text. Read are {FORMATS}")
            return article
        root = xml.parse(data)
        if is_tei(root):
            return read_tei(root, identifier)
        if is_jats(root):
            return read_jats(root, identifier)
    except Exception as error:
        raise InvalidData(why_unread(error)) from error
    raise InvalidData(f"XML of an unknown kind (its root element is {xml.name(root)}). Read are {FORMATS}")


def article_of_json(value: Mapping[str, Any], identifier: str) -> Article | None:
    """The article that S2ORC's or ccheck's own JSON is; None for JSON of any other kind.

    The id that it has itself counts more than the one given. Raises InvalidData if it is not as it should be.
    """
    if is_own(value):
        return read_own(value, identifier)
    return read_s2orc(value, identifier) if is_s2orc(value) else None


def article_id(file: str) -> str:
    """The name of a file without its folders and ending: `journal.pone.0001` for `a/journal.pone.0001.xml`."""
    name = PurePosixPath(file.replace("\\", "/")).name
    for ending in (".gz", ".zst", ".xml", ".nxml", ".json", ".tei"):
        if name.lower().endswith(ending):
            name = name[: -len(ending)] or name
    return name
