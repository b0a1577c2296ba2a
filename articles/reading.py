"""Articles from the bytes of an XML file. `ingest/readers.py` reads files, with limits of time and memory."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from ..core.errors import InvalidData, why_unread
from . import xml
from .jats import is_jats, read_jats
from .tei import is_tei, read_tei
from .types import Article

FILE_BYTES = 64 << 20
FORMATS = "JATS XML and GROBID's TEI XML"
_ENDINGS = re.compile(r"(?:(?<=.)\.(?:gz|zst|xml|nxml|jats|tei))+$", re.IGNORECASE)


def parse_article(data: bytes, file: str) -> Article:
    """The article of a file's bytes; `file` is its name. Its id is the name without the ending.

    Raises InvalidData if it can't be read as one.
    """
    if len(data) > FILE_BYTES:
        raise InvalidData(f"the file is too large: more than {FILE_BYTES:,} bytes")
    try:
        root = xml.parse(data)
        if is_tei(root):
            return read_tei(root, article_id(file))
        if is_jats(root):
            return read_jats(root, article_id(file))
    except Exception as error:
        raise InvalidData(why_unread(error)) from error
    raise InvalidData(f"XML of an unknown kind (its root element is {xml.name(root)}). Read are {FORMATS}")


def article_id(file: str) -> str:
    """The name of a file without its folders and ending: `journal.pone.0001` for `a/journal.pone.0001.xml`."""
    return _ENDINGS.sub("", PurePosixPath(file.replace("\\", "/")).name)
