"""Exports of reference managers and databases: RIS, BibTeX, MEDLINE (PubMed's .nbib) and Web of Science's tagged text.

Each entry is read by itself, so a bad one costs itself only. What comes out are plain records, see `shapes.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from ..core.citation import normal_doi
from ..core.errors import InvalidData, why_unread
from ..core.text import TEXT_CHARS, whole_number
from .lines import Line
from .markup import plain
from .records import NOT_UTF8, Record, Reject, excerpt
from .shapes import RETRACTED_TITLE
from .sources import Source

ENTRY_CHARS = TEXT_CHARS
"""An entry that does not end within this many characters is a reject."""
_MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec".split()

Tags = dict[str, list[str]]


def read_references(source: Source, lines: Iterable[Line]) -> Iterator[Record | Reject]:
    """The entries of a file of one of these formats."""
    read: Mapping[
        str, tuple[Callable[[Iterable[Line]], Iterator[list[Line]]], Callable[[str], dict[str, Any]], str]
    ] = {
        "ris": (_ris_entries, _ris, "RIS references"),
        "bibtex": (_bibtex_entries, _bibtex, "BibTeX entries"),
        "nbib": (_medline_entries, _medline, "PubMed citations"),
        "wos": (_wos_entries, _wos, "Web of Science records"),
    }
    split, convert, kind = read[str(source.format)]
    for entry in split(lines):
        problem = next((line.problem for line in entry if line.problem), None)
        raw = b"\n".join(line.data for line in entry)
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError:
            problem = problem or NOT_UTF8
        if problem is None and len(raw) > ENTRY_CHARS:
            problem = f"the entry is too long: more than {ENTRY_CHARS:,} characters. Is its end missing?"
        if problem is None:
            try:
                data = {name: value for name, value in convert(text).items() if value not in (None, "", [])}
            except _Skip:
                continue
            except Exception as error:  # noqa: BLE001 - an entry makes the libraries raise whatever it likes
                problem = str(error) if isinstance(error, InvalidData) else f"can't be read: {why_unread(error)}"
        if problem is not None:
            yield Reject(source.name, entry[0].number, problem, excerpt(raw))
            continue
        if RETRACTED_TITLE.match(str(data.get("title", ""))):
            data["retracted"] = True
        yield Record(source.name, entry[0].number, data, kind=kind)


class _Skip(Exception):
    """The entry is a comment or a definition, not a reference."""


# -- RIS


def _ris_entries(lines: Iterable[Line]) -> Iterator[list[Line]]:
    entry: list[Line] = []
    for line in lines:
        if not entry and not line.data.strip():
            continue
        if line.data.startswith(b"TY  -") and any(one.data.startswith(b"TY  -") for one in entry):
            yield entry  # its end is missing
            entry = []
        entry.append(line)
        if line.data.startswith(b"ER  -"):
            yield entry
            entry = []
    if entry:
        yield entry


def _ris(text: str) -> dict[str, Any]:
    import rispy

    if not re.search(r"^TY  -", text, re.MULTILINE):
        raise InvalidData('not a RIS entry: it has no line "TY  - "')
    if not re.search(r"^ER  -", text, re.MULTILINE):
        text += "\nER  - \n"
    entries = rispy.loads(text, skip_unknown_tags=False)
    if not entries:
        raise InvalidData("the RIS entry can't be read")
    one = entries[0]
    unknown = one.get("unknown_tag") or {}

    def first(*names: str) -> str:
        for name in names:
            value = one.get(name) or (unknown.get(name) if isinstance(unknown, Mapping) else None)
            value = value[0] if isinstance(value, list) and value else value
            if value:
                return plain(str(value))
        return ""

    date = (first("date", "year", "publication_year", "Y1")).strip("/ ").split("//")[0]
    date = "/".join(part for part in date.split("/")[:3] if whole_number(part) is not None)
    doi = next((doi for name in ("doi", "custom1", "custom3") if (doi := normal_doi(first(name)))), None)
    urls = one.get("urls") or []
    doi = doi or next((found for url in urls if (found := normal_doi(url))), None)
    start, end = first("start_page"), first("end_page")
    return {
        "_id": first("id") or doi or first("accession_number") or None,
        "title": first("title", "primary_title", "short_title"),
        "text": first("abstract", "notes_abstract"),
        "date": date,
        "doi": doi,
        "authors": one.get("authors") or one.get("first_authors"),
        "year": _year(first("year", "publication_year") or date),
        "journal": first("journal_name", "secondary_title", "alternate_title1", "alternate_title2", "alternate_title3"),
        "volume": first("volume"),
        "issue": first("number"),
        "pages": f"{start}-{end}" if start and end and start != end else start,
        "type": first("type_of_reference"),
        "keywords": one.get("keywords"),
        "language": first("language"),
        "url": urls[0] if urls else None,
        "pmid": next((word for word in first("accession_number").split() if whole_number(word) is not None), None),
    }


# -- BibTeX

_BIB_START = re.compile(rb"^\s*@\s*[A-Za-z]+\s*[{(]")


def _bibtex_entries(lines: Iterable[Line]) -> Iterator[list[Line]]:
    """Cut where a line begins with `@name{`, and drop what stands between entries."""
    entry: list[Line] = []
    depth = 0
    for line in lines:
        starts = _BIB_START.match(line.data) is not None
        if starts and entry and depth <= 1:  # an entry that was never closed ends where the next one begins
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


def _bibtex(text: str) -> dict[str, Any]:
    import logging

    from bibtexparser import middlewares
    from bibtexparser.entrypoint import parse_string

    kind = re.match(r"\s*@\s*([A-Za-z]+)", text)
    if kind is None or kind[1].lower() in ("comment", "string", "preamble"):
        raise _Skip
    logging.getLogger("bibtexparser").setLevel(logging.ERROR)
    library = parse_string(
        text,
        parse_stack=[middlewares.RemoveEnclosingMiddleware(), middlewares.NormalizeFieldKeys()],
    )
    if not library.entries:
        raise InvalidData("the BibTeX entry can't be read: are its braces closed, and its fields separated by commas?")
    entry = library.entries[0]
    fields = {field.key.lower(): str(field.value) for field in entry.fields}

    def value(*names: str) -> str:
        return next((_from_latex(fields[name]) for name in names if fields.get(name)), "")

    month = value("month").lower()[:3]
    year = value("year")
    number = _MONTHS.index(month) + 1 if month in _MONTHS else whole_number(month)
    doi = normal_doi(fields.get("doi")) or normal_doi(fields.get("url"))
    return {
        "_id": entry.key or doi,
        "title": value("title"),
        "text": value("abstract"),
        "date": fields.get("date") or (f"{year}-{number:02}" if year and number else year),
        "doi": doi,
        "authors": [_from_latex(one) for one in re.split(r"\s+and\s+", fields.get("author", "")) if one.strip()],
        "year": _year(year or fields.get("date", "")),
        "journal": value("journal", "journaltitle", "booktitle"),
        "volume": value("volume"),
        "issue": value("number", "issue"),
        "pages": value("pages").replace("--", "-"),
        "type": entry.entry_type,
        "keywords": [one.strip() for one in re.split("[,;]", value("keywords", "keyword")) if one.strip()],
        "language": value("language", "langid"),
        "url": fields.get("url"),
        "pmid": value("pmid"),
        "pmcid": value("pmcid"),
    }


def _from_latex(text: str) -> str:
    """LaTeX's accents and commands as Unicode, without braces. Text that is not LaTeX (`5%`) stays as it is."""
    text = " ".join(text.split())
    if "\\" not in text and "{" not in text and "$" not in text and "~" not in text:
        return plain(text)
    from pylatexenc.latex2text import LatexNodes2Text

    # In an abstract, % is a per cent sign, and begins no comment.
    return plain(LatexNodes2Text(math_mode="text").latex_to_text(re.sub(r"(?<!\\)%", r"\\%", text)).strip())


# -- MEDLINE and Web of Science


def _tagged(text: str, line: re.Pattern[str]) -> Tags:
    """The values of each tag, in order; lines without a tag continue the value before them."""
    tags: Tags = {}
    last: list[str] | None = None
    for row in text.splitlines():
        match = line.match(row)
        if match:
            last = tags.setdefault(match[1], [])
            last.append(match[2].strip())
        elif last and row.strip():
            last[-1] = f"{last[-1]} {row.strip()}"
    return tags


_MEDLINE = re.compile(r"([A-Z]{2,4}) {0,2}- ?(.*)")


def _medline_entries(lines: Iterable[Line]) -> Iterator[list[Line]]:
    entry: list[Line] = []
    for line in lines:
        if line.data.startswith(b"PMID-") and any(one.data.startswith(b"PMID-") for one in entry):
            yield entry
            entry = []
        if entry or line.data.strip():
            entry.append(line)
    if entry:
        yield entry


def _medline(text: str) -> dict[str, Any]:
    tags = _tagged(text, _MEDLINE)
    if "PMID" not in tags:
        raise InvalidData('not a PubMed citation: it has no line "PMID- "')
    dois = [
        value.removesuffix("[doi]").strip()
        for name in ("LID", "AID")
        for value in tags.get(name, ())
        if "[doi]" in value
    ]
    types = tags.get("PT", [])
    date = _medline_date(_one(tags, "DP"))
    return {
        "_id": _one(tags, "PMID"),
        "title": plain(_one(tags, "TI") or _one(tags, "BTI") or _one(tags, "TT")).removesuffix("."),
        "text": plain(_one(tags, "AB") or _one(tags, "OAB")),
        "date": date,
        "doi": normal_doi(dois[0]) if dois else None,
        "authors": tags.get("FAU") or tags.get("AU") or tags.get("CN"),
        "year": _year(date),
        "journal": _one(tags, "JT") or _one(tags, "TA"),
        "volume": _one(tags, "VI"),
        "issue": _one(tags, "IP"),
        "pages": _one(tags, "PG"),
        "type": types,
        "keywords": [*tags.get("OT", ()), *tags.get("MH", ())],
        "language": _one(tags, "LA"),
        "pmid": _one(tags, "PMID"),
        "pmcid": _one(tags, "PMC"),
        "retracted": True if "Retracted Publication" in types or "RIN" in tags else None,
    }


def _medline_date(text: str) -> str:
    """`2019 Mar 5` as 2019-03-05; of a range or a season only the year."""
    parts = text.split()
    if not parts or not re.fullmatch(r"\d{4}", parts[0]):
        year = _year(text)
        return str(year) if year else ""
    if len(parts) > 1 and parts[1].lower() in _MONTHS:
        month = f"{parts[0]}-{_MONTHS.index(parts[1].lower()) + 1:02}"
        day = whole_number(parts[2]) if len(parts) > 2 else None
        return f"{month}-{day:02}" if day is not None else month
    return parts[0]


_WOS = re.compile(r"([A-Z][A-Z0-9]) (.*)")


def _wos_entries(lines: Iterable[Line]) -> Iterator[list[Line]]:
    entry: list[Line] = []
    for line in lines:
        data = line.data.strip()
        if not entry and (not data or data[:3] in (b"FN ", b"VR ") or data == b"EF"):
            continue
        entry.append(line)
        if data == b"ER":
            yield entry
            entry = []
    if entry:
        yield entry


def _wos(text: str) -> dict[str, Any]:
    # Authors stand on a line each.
    tags: dict[str, list[str]] = {}
    last: list[str] = []
    for row in text.splitlines():
        match = _WOS.match(row)
        if match:
            last = tags.setdefault(match[1], [])
        elif not row.startswith("   "):
            continue
        last.append((match[2] if match else row).strip())
    if "PT" not in tags:
        raise InvalidData('not a Web of Science record: it has no line "PT "')

    def value(name: str) -> str:
        return plain(" ".join(tags.get(name, ())))

    start, end = value("BP"), value("EP")
    return {
        "_id": value("UT") or None,
        "title": value("TI"),
        "text": value("AB"),
        "date": _medline_date(f"{value('PY')} {value('PD').title()}".strip()),
        "doi": normal_doi(value("DI")),
        "authors": tags.get("AF") or tags.get("AU"),
        "year": _year(value("PY")),
        "journal": value("SO"),
        "volume": value("VL"),
        "issue": value("IS"),
        "pages": f"{start}-{end}" if start and end and start != end else start,
        "type": [one.strip() for one in value("DT").split(";")],
        "keywords": [one.strip() for one in value("DE").split(";") if one.strip()],
        "language": value("LA"),
        "pmid": value("PM"),
        "retracted": True if "retracted publication" in value("DT").lower() else None,
    }


def _one(tags: Tags, name: str) -> str:
    return tags.get(name, [""])[0]


def _year(text: str) -> int | None:
    match = re.search(r"(?<!\d)(\d{4})(?!\d)", text)
    return int(match[1]) if match else None
