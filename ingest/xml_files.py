"""XML by its root element: full texts (JATS, TEI), and PubMed's references, one by one.

Only the other process of `apart.py` reads it. See https://dtd.nlm.nih.gov/ncbi/pubmed/doc/out/250101/ for PubMed's
elements (efetch and the yearly baseline).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import IO, TYPE_CHECKING, Any
from xml.etree.ElementTree import ParseError

from ..articles.reading import FILE_BYTES, parse_article
from ..articles.stored import record_of
from ..core.citation import normal_doi
from ..core.errors import InvalidData, why_unread
from .plain import Plain, iso_date, plain, plain_record
from .records import FULL_TEXTS, Record, Reject
from .sniff import sniff_unicode
from .sources import Source

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

_PUBMED = "PubMed articles"
_HEAD = 1 << 14
_ROOT = re.compile(r"<\s*(?:[\w.-]+:)?([A-Za-z][\w.-]*)[\s/>]")
_BEFORE_ROOT = re.compile(r"<\?.*?\?>|<!--.*?-->|<!DOCTYPE[^\[>]*(?:\[.*?\]\s*)?>", re.DOTALL)
_OF_PUBMED = ("PubmedArticleSet", "PubmedArticle", "MedlineCitationSet", "MedlineCitation", "PubmedBookArticleSet")
_ARTICLES = ("PubmedArticle", "MedlineCitation")
_OF_FULL_TEXTS = ("article", "pmc-articleset", "OAI-PMH", "TEI", "teiCorpus")


def read_xml(source: Source, on_bytes: Callable[[int], None]) -> Iterator[Record | Reject]:
    """The articles of a file; UTF-16 is read, too."""
    assert source.path is not None
    with source.path.open("rb") as stream:
        start = stream.read(_HEAD)
        stream.seek(0)
        head = _BEFORE_ROOT.sub("", start.decode(sniff_unicode(start) or "utf-8", "replace"))
        match = _ROOT.search(head)
        root = match[1] if match else ""
        if root in _OF_PUBMED:
            yield from read_pubmed(source, stream, on_bytes)
        elif root in _OF_FULL_TEXTS:
            try:
                article = parse_article(stream.read(FILE_BYTES + 1), source.name)
                yield Record(source.name, 1, record_of(article), kind=FULL_TEXTS)
            except InvalidData as error:
                yield Reject(source.name, 1, str(error))
        else:
            what = f"its root is <{root}>" if root else "it has no root element"
            why = f"ccheck does not read this kind of XML ({what}). It reads PubMed's, JATS and GROBID's TEI"
            yield Reject(source.name, 1, why)


def read_pubmed(
    source: Source, stream: IO[bytes], on_bytes: Callable[[int], None] = lambda size: None
) -> Iterator[Record | Reject]:
    """The articles as records, each forgotten before the next is read; `line` is the number of the article.

    Entities are refused, nothing is fetched.
    """
    from defusedxml.ElementTree import iterparse

    number = told = 0
    outer: Element | None = None
    try:
        for event, element in iterparse(stream, events=("start", "end"), forbid_entities=True):
            if event == "start":
                outer = element if outer is None and element.tag in _ARTICLES else outer
                continue
            if outer is None or element is not outer:
                continue
            number, outer = number + 1, None
            on_bytes(stream.tell() - told)
            told = stream.tell()
            try:
                yield Record(source.name, number, _article(element), kind=_PUBMED)
            except Exception as error:  # noqa: BLE001 - whatever one article does, the others are read
                yield Reject(source.name, number, f"the article can't be read: {why_unread(error)}")
            element.clear()
    except (ParseError, ValueError) as error:  # of defusedxml, too
        why = f"not valid XML ({error}). The rest of the file was skipped"
        yield Reject(source.name, number + 1, why)


def _inside(element: Element) -> Callable[[str], list[Any]]:
    return lambda place: [_text(one) for one in element.iterfind(place)]


def _article(element: Element) -> Plain:
    """The plain record of a `PubmedArticle` or `MedlineCitation`."""
    citation = element if element.tag == "MedlineCitation" else element.find("MedlineCitation")
    if citation is None:
        return {}
    dates = (_date(citation.find(way)) for way in ("Article/Journal/JournalIssue/PubDate", "Article/ArticleDate"))
    ways = ("KeywordList/Keyword", "MeshHeadingList/MeshHeading/DescriptorName")
    ids = {one.get("IdType"): _text(one) for one in element.iterfind("PubmedData/ArticleIdList/ArticleId")}
    locations = _inside(citation)("Article/ELocationID[@EIdType='doi']")
    made = plain_record(
        _PUBMED,
        _inside(citation),
        text=_abstract(citation.find("Article/Abstract")) or _abstract(citation.find("OtherAbstract")),
        date=next(filter(None, dates), None),
        doi=next(filter(None, map(normal_doi, (ids.get("doi"), *locations))), None),
        authors=[name for one in citation.iterfind("Article/AuthorList/Author") if (name := _author(one))],
        keywords=[keyword for way in ways for keyword in _inside(citation)(way)],
        pmcid=ids.get("pmc"),
    )
    made["title"] = made.get("title", "").strip("[]").removesuffix(".").removesuffix("]")
    if citation.find("CommentsCorrectionsList/CommentsCorrections[@RefType='RetractionIn']") is not None:
        made["retracted"] = True
    return {name: value for name, value in made.items() if value}


def _text(element: Element | None) -> str:
    """All text inside an element, of `<i>` and the like too."""
    return "" if element is None else plain(" ".join("".join(element.itertext()).split()))


def _abstract(element: Element | None) -> str:
    """The parts of an abstract, with their labels, one a line."""
    if element is None:
        return ""
    parts = []
    for one in element.iterfind("AbstractText"):
        label, text = one.get("Label"), _text(one)
        parts.append(f"{label}: {text}" if label and label != "UNLABELLED" and text else text)
    return "\n".join(part for part in parts if part)


def _author(element: Element) -> str:
    family, given = _text(element.find("LastName")), _text(element.find("ForeName")) or _text(element.find("Initials"))
    return f"{family}, {given}" if family and given else family or _text(element.find("CollectiveName"))


def _date(element: Element | None) -> str:
    """`PubDate` or `ArticleDate` in ISO 8601, as far as it goes; of a `MedlineDate` the year."""
    if element is None:
        return ""
    parts = [_text(element.find(name)) for name in ("Year", "Month", "Day")]
    return iso_date(*parts) or iso_date(_text(element.find("MedlineDate")))
