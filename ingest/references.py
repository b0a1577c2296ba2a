"""Exports of reference managers and databases: RIS, BibTeX, MEDLINE (PubMed's .nbib) and Web of Science's text.

Each entry is read by itself, so a bad one costs itself only. What comes out are plain records, see `fields.py`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import IO, Any, TypeAlias
from xml.etree.ElementTree import Element, ParseError

from ..articles.types import record_of
from ..articles.xml import FILE_BYTES, parse_article
from ..core.citation import normal_doi
from ..core.errors import InvalidData, why_unread
from ..core.text import TEXT_CHARS, whole_number
from .fields import Plain, iso_date, plain, plain_record, year_of
from .lines import Line, read_lines
from .records import FULL_TEXTS, NOT_UTF8, Record, Reject, excerpt
from .sniff import sniff_unicode
from .sources import Source

ENTRY_CHARS = TEXT_CHARS
"""An entry that does not end within this many characters is a reject."""


def read_references(source: Source, on_bytes: Callable[[int], None]) -> Iterator[Record | Reject]:
    """The entries of a file of one of these formats."""
    split, converter, kind = _READ[str(source.format)]
    convert = converter()
    for entry in split(read_lines(source, on_bytes)):
        problem = next((line.problem for line in entry if line.problem), None)
        raw = b"\n".join(line.data for line in entry)
        if problem is None and len(raw) > ENTRY_CHARS:
            problem = f"the entry is too long: more than {ENTRY_CHARS:,} characters. Is its end missing?"
        if problem is None:
            try:
                made = convert(raw.decode("utf-8"))
            except UnicodeDecodeError:
                problem = NOT_UTF8
            except Exception as error:  # noqa: BLE001 - an entry makes the libraries raise whatever it likes
                problem = str(error) if isinstance(error, InvalidData) else f"can't be read: {why_unread(error)}"
            else:
                if made is not None:
                    yield Record(source.name, entry[0].number, made, kind=kind)
                continue
        yield Reject(source.name, entry[0].number, problem, excerpt(raw))


def _tagged_entries(lines: Iterable[Line], *, first: bytes, last: bytes = b"\n") -> Iterator[list[Line]]:
    """The lines of each entry, from the tag `first` to `last`; one without an end ends where the next begins."""
    entry: list[Line] = []
    for line in lines:
        if line.data.startswith(first) and any(one.data.startswith(first) for one in entry):
            yield entry
            entry = []
        if entry or line.data.strip():
            entry.append(line)
        if line.data.startswith(last):
            yield entry
            entry = []
    if entry:
        yield entry


# -- RIS


def _ris(text: str) -> Plain:
    import rispy

    if not re.search(r"^TY  -", text, re.MULTILINE):
        raise InvalidData('not a RIS entry: it has no line "TY  - "')
    if not re.search(r"^ER  -", text, re.MULTILINE):
        text += "\nER  - \n"
    entries = rispy.loads(text, skip_unknown_tags=False)
    if not entries:
        raise InvalidData("the RIS entry can't be read")
    held = {**(entries[0].get("unknown_tag") or {}), **entries[0]}

    def at(place: str) -> list[Any]:
        value = held.get(place)
        return value if isinstance(value, list) else [value]

    made = plain_record("RIS references", at)
    day = str(made.pop("date", "")).strip("/ ").split("//")[0]
    date = "/".join(part for part in day.split("/")[:3] if whole_number(part) is not None)
    numbers = (word for word in str(held.get("accession_number", "")).split() if whole_number(word) is not None)
    known = {"date": date, "year": made.get("year") or year_of(date), "pmid": next(numbers, None)}
    known["_id"] = made.get("_id") or made.get("doi") or held.get("accession_number")
    return {**made, **{name: value for name, value in known.items() if value}}


# -- BibTeX

_BIB_START = re.compile(rb"^\s*@\s*[A-Za-z]+\s*[{(]")
_MONTH = re.compile(r"[A-Za-z]{3}|^[0-9]{1,2}$")


def _bibtex_entries(lines: Iterable[Line]) -> Iterator[list[Line]]:
    """Cut where a line begins with `@name{`, even in an entry that was never closed. Drop what is between entries."""
    entry: list[Line] = []
    depth = 0
    for line in lines:
        starts = _BIB_START.match(line.data) is not None
        if starts and entry:
            yield entry
            entry, depth = [], 0
        if not entry and not starts:
            continue
        entry.append(line)
        data = line.data.replace(b"\\{", b"").replace(b"\\}", b"")
        depth += data.count(b"{") - data.count(b"}")
        if depth <= 0 and b"}" in data:
            yield entry
            entry, depth = [], 0
    if entry:
        yield entry


def _bibtex(strings: dict[str, str], text: str) -> Plain | None:
    """None for a comment or a definition, which `strings` keeps for the entries after it."""
    from bibtexparser.entrypoint import parse_string
    from bibtexparser.middlewares import NormalizeFieldKeys

    kind = re.match(r"\s*@\s*([A-Za-z]+)", text)
    if kind is None or kind[1].lower() in ("comment", "preamble"):
        return None
    logging.getLogger("bibtexparser").setLevel(logging.ERROR)
    library = parse_string(text, parse_stack=[NormalizeFieldKeys()])
    if library.failed_blocks or len(library.entries) + len(library.strings) != 1:
        raise InvalidData(
            "the BibTeX entry can't be read: are its braces closed, its fields separated by commas, and each entry on "
            "its own lines?"
        )
    if library.strings:
        strings[library.strings[0].key.lower()] = _bibtex_value(library.strings[0].value, strings)
        return None
    [entry] = library.entries
    fields = {field.key.lower(): _bibtex_value(field.value, strings) for field in entry.fields}

    def at(place: str) -> list[Any]:
        return [_from_latex(fields[place])] if fields.get(place) else []

    keywords, people = at("keywords") or at("keyword"), re.split(r"\s+and\s+", fields.get("author", ""))
    made = plain_record(
        "BibTeX entries",
        lambda place: [fields.get(place)] if place in ("doi", "url") else at(place),
        date=fields.get("date") or iso_date(*at("year"), *_MONTH.findall("".join(at("month")))[:1]),
        authors=[_from_latex(one) for one in people if one.strip() and one.strip() != "others"],
        keywords=[one.strip() for one in re.split("[,;]", "".join(keywords)) if one.strip()],
        pages=next(iter(at("pages")), "").replace("--", "-"),
    )
    return {**made, "type": entry.entry_type, "_id": entry.key or made.get("doi")}


def _bibtex_value(value: str, strings: Mapping[str, str]) -> str:
    """The parts of a value between `#`, without their braces or quotes; a name stands for what @string defined."""
    parts, start, depth, quoted = [], 0, 0, False
    for mark in re.finditer(r'(?<!\\)[{}"#]', value):
        if mark[0] in "{}":
            depth += 1 if mark[0] == "{" else -1
        elif mark[0] == '"':
            quoted = quoted != (depth == 0)
        elif depth == 0 and not quoted:
            parts.append(value[start : mark.start()])
            start = mark.end()
    made = [one.strip() for one in (*parts, value[start:])]
    joined = "".join(one[1:-1] if one[:1] in ("{", '"') else strings.get(one.lower(), one) for one in made)
    if len(joined) > ENTRY_CHARS:  # a few definitions of others, each doubling the last, make gigabytes
        raise InvalidData(f"a BibTeX value has more than {ENTRY_CHARS:,} characters")
    return joined


def _from_latex(text: str) -> str:
    """LaTeX's accents and commands as Unicode, without braces. Text that is not LaTeX (`5%`) stays as it is."""
    text = " ".join(text.split())
    if "\\" not in text and "{" not in text and "$" not in text and "~" not in text:
        return plain(text)
    from pylatexenc.latex2text import LatexNodes2Text

    # In an abstract, % is a per cent sign, and begins no comment.
    return plain(LatexNodes2Text(math_mode="text").latex_to_text(re.sub(r"(?<!\\)%", r"\\%", text)).strip())


# -- MEDLINE

_TAG = re.compile(r"([A-Z]{2,4}) {0,2}- ?(.*)")


def _medline(text: str) -> Plain:
    tags: dict[str, list[list[str]]] = {}
    value: list[str] = []
    for row in text.splitlines():
        if match := _TAG.match(row):
            value = []
            tags.setdefault(match[1], []).append(value)
        if said := (match[2] if match else row).strip():
            value.append(said)
    if "PMID" not in tags:
        raise InvalidData('not a PubMed citation: it has no line "PMID- "')

    def at(place: str) -> list[Any]:
        return [" ".join(lines) for lines in tags.get(place, ())]

    ids = [one.removesuffix("[doi]") for one in (*at("LID"), *at("AID")) if one.endswith("[doi]")]
    title, day = next(iter((*at("TI"), *at("BTI"), *at("TT"))), ""), next(iter(at("DP")), "")
    made = plain_record(
        "PubMed citations",
        at,
        title=plain(title).removesuffix("."),
        date=iso_date(*day.split()) or iso_date(day),
        doi=normal_doi(ids[0].strip()) if ids else None,
        keywords=[*at("OT"), *at("MH")],
    )
    return {**made, **({"retracted": True} if "RIN" in tags else {})}


# -- Web of Science


def _web_of_science(text: str) -> Plain | None:
    """The fields by their tags, which `shapes.py` knows, as those of a table; None for what follows the last record."""
    import rispy

    if text.strip() == "EF":
        return None
    same = {tag: tag for tag in rispy.WokParser.DEFAULT_MAPPING}
    found = rispy.loads(f"{text}\nER\n", implementation=rispy.WokParser, mapping=same, skip_unknown_tags=True)
    if not found:
        raise InvalidData('not a Web of Science record: it has no line "PT "')
    return dict(found[0])


_Split: TypeAlias = Callable[[Iterable[Line]], Iterator[list[Line]]]
_READ: Mapping[str, tuple[_Split, Callable[[], Callable[[str], Plain | None]], str]] = {
    "ris": (partial(_tagged_entries, first=b"TY  -", last=b"ER  -"), lambda: _ris, "RIS references"),
    "bibtex": (_bibtex_entries, lambda: partial(_bibtex, {}), "BibTeX entries"),
    "nbib": (partial(_tagged_entries, first=b"PMID-"), lambda: _medline, "PubMed citations"),
    "wos": (partial(_tagged_entries, first=b"PT ", last=b"ER"), lambda: _web_of_science, ""),
}


# -- XML

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
