"""The articles of files, with their figures and tables, for `ccheck figures` and `ccheck passages`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from ..articles import Article
from ..articles.reading import FORMATS, article_id
from ..articles.stored import article_of_record
from ..core.errors import NotFound
from .readers import read_sources
from .records import FULL_TEXTS, Reject
from .sources import find_sources

_READ = re.compile(r"\.(?:xml|nxml|json)(?:\.gz|\.zst)?", re.IGNORECASE)
_SAID = f"ccheck reads {FORMATS}. Convert PDF files to TEI with GROBID (https://grobid.readthedocs.io)"


def full_texts(path: str | os.PathLike[str], only: frozenset[str] | None = None) -> Iterator[Article | Reject]:
    """The articles of a file, a folder (with its subfolders) or a ZIP archive, in the order of their names.

    `only` names the ids that are wanted. What can't be read is a reject in its place. Raises NotFound if there is no
    such file or nothing in it that could be an article, UsageError for a file of an unknown kind.
    """

    def wants(name: str) -> bool:
        ending = _READ.search(name)
        return ending is not None and (only is None or "json" in ending[0].lower() or article_id(name) in only)

    sources = [one for one in find_sources(path) if one.format in ("xml", "json", "zip")]
    if not sources:
        raise NotFound(f"{os.fspath(path)} has no articles. {_SAID}")
    for record in read_sources(sources, wants=wants):
        if isinstance(record, Reject):
            yield record
        elif record.kind != FULL_TEXTS:
            yield Reject(record.file, record.line, f"it is not a full text. {_SAID}")
        elif only is None or record.data["_id"] in only:
            yield article_of_record(record.data)
