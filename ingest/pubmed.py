"""XML with many references, one by one: PubMed's (as efetch and the yearly baseline give it) and EndNote's.

See https://dtd.nlm.nih.gov/ncbi/pubmed/doc/out/250101/ for PubMed's elements. EndNote documents none for its export.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any
from xml.etree.ElementTree import ParseError

from ..core.citation import normal_doi
from ..core.errors import why_unread
from ..core.text import whole_number
from .markup import plain
from .records import Record, Reject
from .shapes import RETRACTED_TITLE
from .sources import Source

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

KIND = "PubMed articles"
_ARTICLES = ("PubmedArticle", "MedlineCitation")
_MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec".split()


def read_pubmed(source: Source, chunks: Iterable[bytes]) -> Iterator[Record | Reject]:
    """The articles as records; `line` is the number of the article. Entities are refused, nothing is fetched."""
    return _read(source, chunks, _ARTICLES, article, KIND)


def read_endnote(source: Source, chunks: Iterable[bytes]) -> Iterator[Record | Reject]:
    """The same for the records of an EndNote library."""
    return _read(source, chunks, ("record",), _endnote, "EndNote records")


def _read(
    source: Source,
    chunks: Iterable[bytes],
    tags: tuple[str, ...],
    convert: Callable[[Element], dict[str, Any]],
    kind: str,
) -> Iterator[Record | Reject]:
    number = 0
    try:
        for element in _elements(chunks, tags):
            number += 1
            try:
                data = {name: value for name, value in convert(element).items() if value not in (None, "", [])}
            except Exception as error:  # noqa: BLE001 - whatever one article does, the others are read
                yield Reject(source.name, number, f"the article can't be read: {why_unread(error)}")
            else:
                yield Record(source.name, number, data, kind=kind)
    except (ParseError, ValueError) as error:  # of defusedxml, too
        why = f"not valid XML ({error}). The rest of the file was skipped"
        yield Reject(source.name, number + 1, why)


def _elements(chunks: Iterable[bytes], tags: tuple[str, ...]) -> Iterator[Element]:
    """The articles, each forgotten before the next is read."""
    from xml.etree.ElementTree import TreeBuilder

    from defusedxml.ElementTree import DefusedXMLParser

    class Articles:
        """Yields each article when it ends, and keeps none."""

        def __init__(self) -> None:
            self.depth = 0
            self.inside: tuple[int, TreeBuilder] | None = None
            self.done: list[Element] = []

        def start(self, tag: str, attributes: dict[str, str]) -> None:
            self.depth += 1
            if self.inside is None and tag in tags:
                self.inside = self.depth, TreeBuilder()
            if self.inside is not None:
                self.inside[1].start(tag, attributes)

        def end(self, tag: str) -> None:
            if self.inside is not None:
                depth, builder = self.inside
                builder.end(tag)
                if depth == self.depth:
                    self.done.append(builder.close())
                    self.inside = None
            self.depth -= 1

        def data(self, data: str) -> None:
            if self.inside is not None:
                self.inside[1].data(data)

        def close(self) -> None:
            pass

    articles = Articles()
    parser = DefusedXMLParser(target=articles, forbid_entities=True)
    for chunk in chunks:
        parser.feed(chunk)
        yield from _taken(articles.done)
    parser.close()
    yield from _taken(articles.done)


def _taken(done: list[Element]) -> list[Element]:
    some = list(done)
    done.clear()
    return some


def article(element: Element) -> dict[str, Any]:
    """The plain record (see `shapes.py`) of a `PubmedArticle` or `MedlineCitation`."""
    citation = element if element.tag == "MedlineCitation" else element.find("MedlineCitation")
    if citation is None:
        return {}
    paper = citation.find("Article")
    if paper is None:
        return {"_id": _text(citation.find("PMID"))}
    ids = {one.get("IdType"): _text(one) for one in element.iterfind("PubmedData/ArticleIdList/ArticleId")}
    locations = {one.get("EIdType"): _text(one) for one in paper.iterfind("ELocationID")}
    types = [_text(one) for one in paper.iterfind("PublicationTypeList/PublicationType")]
    notices = [one.get("RefType") for one in citation.iterfind("CommentsCorrectionsList/CommentsCorrections")]
    title = _text(paper.find("ArticleTitle")) or _text(paper.find("VernacularTitle"))
    date = _date(paper.find("Journal/JournalIssue/PubDate")) or _date(paper.find("ArticleDate"))
    keywords = [_text(one) for one in citation.iterfind("KeywordList/Keyword")]
    keywords += [_text(one) for one in citation.iterfind("MeshHeadingList/MeshHeading/DescriptorName")]
    retracted = "Retracted Publication" in types or "RetractionIn" in notices or RETRACTED_TITLE.match(title)
    return {
        "_id": _text(citation.find("PMID")),
        "title": title.strip("[]").removesuffix(".").removesuffix("]"),
        "text": _abstract(paper.find("Abstract")) or _abstract(citation.find("OtherAbstract")),
        "date": date,
        "doi": normal_doi(ids.get("doi") or locations.get("doi")),
        "authors": [name for one in paper.iterfind("AuthorList/Author") if (name := _author(one))],
        "year": whole_number(date[:4]),
        "journal": _text(paper.find("Journal/Title")),
        "volume": _text(paper.find("Journal/JournalIssue/Volume")),
        "issue": _text(paper.find("Journal/JournalIssue/Issue")),
        "pages": _text(paper.find("Pagination/MedlinePgn")),
        "type": types,
        "keywords": keywords,
        "language": _text(paper.find("Language")),
        "pmid": _text(citation.find("PMID")),
        "pmcid": ids.get("pmc"),
        "retracted": True if retracted else None,
    }


def _endnote(element: Element) -> dict[str, Any]:
    def texts(way: str) -> list[str]:
        return [said for one in element.iterfind(way) if (said := _text(one))]

    def first(*ways: str) -> str:
        return next((said for way in ways for said in texts(way)), "")

    kind = element.find("ref-type")
    year = re.search("[0-9]{4}", first("dates/year", "dates/pub-dates/date"))
    title = first("titles/title")
    return {
        "_id": first("electronic-resource-num", "accession-num", "rec-number"),
        "title": title,
        "text": first("abstract"),
        "date": year[0] if year else None,
        "doi": normal_doi(first("electronic-resource-num")),
        "authors": texts("contributors/authors/author"),
        "year": int(year[0]) if year else None,
        "journal": first("periodical/full-title", "titles/secondary-title"),
        "volume": first("volume"),
        "issue": first("number"),
        "pages": first("pages"),
        "type": kind.get("name") if kind is not None else None,
        "keywords": texts("keywords/keyword"),
        "language": first("language"),
        "url": first("urls/related-urls/url", "urls/web-urls/url"),
        "retracted": True if RETRACTED_TITLE.match(title) else None,
    }


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
    year, month, day = (_text(element.find(name)) for name in ("Year", "Month", "Day"))
    if not year:
        return _text(element.find("MedlineDate"))[:4]
    if month.lower()[:3] in _MONTHS:
        month = str(_MONTHS.index(month.lower()[:3]) + 1)
    numbers = whole_number(month), whole_number(day)
    if numbers[0] is None:
        return year
    return f"{year}-{numbers[0]:02}" + (f"-{numbers[1]:02}" if numbers[1] is not None else "")
