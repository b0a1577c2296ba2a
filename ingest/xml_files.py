"""XML by its root element: PubMed's, EndNote's, JATS and TEI. Only the other process of `apart.py` reads it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator

from ..core.errors import InvalidData
from .pubmed import read_endnote, read_pubmed
from .records import Record, Reject
from .sniff import sniff_unicode
from .sources import Source

_ROOT = re.compile(r"<\s*(?:[\w.-]+:)?([A-Za-z][\w.-]*)[\s/>]")
_BEFORE_ROOT = re.compile(r"<\?.*?\?>|<!--.*?-->|<!DOCTYPE[^\[>]*(?:\[.*?\]\s*)?>", re.DOTALL)
_PUBMED = ("PubmedArticleSet", "PubmedArticle", "MedlineCitationSet", "MedlineCitation", "PubmedBookArticleSet")
_FULL_TEXTS = ("article", "pmc-articleset", "OAI-PMH", "TEI", "teiCorpus")
_ENDNOTE = re.compile(r"<xml>\s*<records>")


def read_xml(source: Source, chunks: Iterable[bytes]) -> Iterator[Record | Reject]:
    """The articles of a file; UTF-16 is read, too."""
    chunks = iter(chunks)
    start = b""
    for chunk in chunks:
        start += chunk
        if len(start) >= 1 << 14:
            break
    head = _BEFORE_ROOT.sub("", start[: 1 << 14].decode(sniff_unicode(start) or "utf-8", "replace"))
    match = _ROOT.search(head)
    root = match[1] if match else ""
    everything = itertools.chain([start], chunks)
    if root in _PUBMED:
        yield from read_pubmed(source, everything)
    elif _ENDNOTE.search(head):
        yield from read_endnote(source, everything)
    elif root in _FULL_TEXTS:
        yield _full_text(source, everything)
    else:
        what = f"its root is <{root}>" if root else "it has no root element"
        why = f"ccheck does not read this kind of XML ({what}). It reads PubMed's, EndNote's, JATS and GROBID's TEI"
        yield Reject(source.name, 1, why)


def _full_text(source: Source, chunks: Iterable[bytes]) -> Record | Reject:
    """An article with its figures and tables, which a store keeps for `ccheck figures` and `ccheck query --deep`."""
    from ..articles.reading import FILE_BYTES, parse_article
    from ..articles.stored import record_of

    data = bytearray()
    for chunk in chunks:
        data += chunk
        if len(data) > FILE_BYTES:
            return Reject(source.name, 1, f"the file is too large: more than {FILE_BYTES:,} bytes")
    try:
        return Record(source.name, 1, record_of(parse_article(bytes(data), source.name)), kind="full texts")
    except InvalidData as error:
        return Reject(source.name, 1, str(error).removeprefix(f"{source.name}: "))
