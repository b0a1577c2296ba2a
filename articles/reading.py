"""Articles from the bytes of a file. `ingest/readers.py` reads files, with limits of time and memory."""

from __future__ import annotations

import json
from pathlib import PurePosixPath

from ..core.errors import InvalidData, why_unread
from . import xml
from .jats import is_jats, read_jats
from .s2orc import is_s2orc, read_s2orc
from .tei import is_tei, read_tei
from .types import Article

FILE_BYTES = 64 << 20
FORMATS = "JATS XML, GROBID's TEI XML and S2ORC JSON"


def parse_article(data: bytes, file: str) -> Article:
    """The article of a file's bytes; `file` is its name. Its id is the name without the ending.

    Raises InvalidData if it can't be read as one.
    """
    if len(data) > FILE_BYTES:
        raise InvalidData(f"the file is too large: more than {FILE_BYTES:,} bytes")
    identifier = article_id(file)
    try:
        if data.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"["):
            value = json.loads(data)
            if not is_s2orc(value):
                raise InvalidData(f"JSON of an unknown kind: it has no body_text. Read are {FORMATS}")
            return read_s2orc(value, identifier)
        root = xml.parse(data)
        if is_tei(root):
            return read_tei(root, identifier)
        if is_jats(root):
            return read_jats(root, identifier)
    except Exception as error:
        raise InvalidData(why_unread(error)) from error
    raise InvalidData(f"XML of an unknown kind (its root element is {xml.name(root)}). Read are {FORMATS}")


def article_id(file: str) -> str:
    """The name of a file without its folders and ending: `journal.pone.0001` for `a/journal.pone.0001.xml`."""
    name = PurePosixPath(file.replace("\\", "/")).name
    for ending in (".gz", ".zst", ".xml", ".nxml", ".jats", ".json", ".tei"):
        if name.lower().endswith(ending):
            name = name[: -len(ending)] or name
    return name
