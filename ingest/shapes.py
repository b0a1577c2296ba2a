"""Records of the services and exports that people have, told by their fields, as plain records.

The fields are documented at docs.openalex.org (Work), api.crossref.org (Work), europepmc.org/RestfulWebService (search,
resultType core), api.semanticscholar.org (Paper; datasets `papers` and `abstracts`), and in the CORD-19 release notes
(Wang et al. 2020). CSL JSON, as Zotero and Mendeley export it, has Crossref's names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..core.citation import folded
from ..core.errors import InvalidData, why_unread
from ..core.text import TEXT_CHARS
from .fields import Fields, Plain, field_of, inside, iso_date, key_of, known_by, places, plain, plain_record
from .pages import knowledge_row
from .records import Record, Reject, reject_of

Data = Mapping[str, Any]

_WORDS = 100_000
"""Most words of an abstract in an inverted index."""


def recognise(data: Data) -> tuple[str, Plain] | None:
    """The kind of a service's record, in the plural, and the plain record; None for a record of another kind."""
    names = data.keys()
    kinds = (kind for kind, ways in known_by() if any(way <= names for way in ways))
    kind = next((kind for kind in kinds if kind not in _IF or _IF[kind](data)), None)
    if kind is None:
        return None
    more = _MORE.get(kind)
    known = kind if kind != "CSL items" else "Crossref works"
    made = plain_record(known, inside(data), **(more(data) if more is not None else {}))
    if kind in _ROWS:
        taken = {place for some in places()[kind].values() for place in some}
        own = {folded(name) for name in made}
        others = {name: one for name, one in data.items() if name not in taken and folded(name) not in own}
        made = {**{name: one for name, one in others.items() if one not in (None, "", [])}, **made}
    return kind, made


def from_inverted(index: Any) -> str:
    """The abstract that an inverted index was made from: `{"word": [0, 7]}` has `word` at positions 0 and 7."""
    if isinstance(index, str):
        try:
            index = json.loads(index)
        except ValueError:
            return ""
    index = index.get("InvertedIndex", index) if isinstance(index, Mapping) else {}
    placed = [
        (position, str(word))
        for word, positions in (index.items() if isinstance(index, Mapping) else ())
        if isinstance(positions, list)
        for position in positions
        if isinstance(position, int)
    ]
    words = [word for _, word in sorted(placed)[:_WORDS]]
    if sum(map(len, words)) > TEXT_CHARS:  # a few bytes can place one long word many times
        raise InvalidData(f"the text is too long: more than {TEXT_CHARS:,} characters")
    return plain(" ".join(words))


def _text(data: Data, place: str) -> str:
    return next((plain(str(one)) for one in inside(data)(place) if one is not None), "")


def _openalex(data: Data) -> Plain:
    return {
        "text": from_inverted(data.get("abstract_inverted_index")),
        **{name: _text(data, f"ids.{name}").rstrip("/").rpartition("/")[2] for name in ("pmid", "pmcid")},
    }


def _crossref(data: Data) -> Plain:
    names = ("published", "issued", "published-print", "published-online", "created")
    parts = (data[name].get("date-parts") for name in names if isinstance(data.get(name), Mapping))
    dates = (iso_date(*one[0]) for one in parts if isinstance(one, list) and one and isinstance(one[0], list))
    title, subtitle = _text(data, "title"), _text(data, "subtitle")
    people = [
        " ".join(filter(None, (_text(one, "given"), _text(one, "family")))) or _text(one, "name")
        for one in inside(data)("author")
        if isinstance(one, Mapping)
    ]
    return {
        "date": next(filter(None, dates), None),
        "title": f"{title}: {subtitle}" if title and subtitle else title,
        "authors": [name for name in people if name],
    }


def _arxiv(data: Data) -> Plain:
    parsed = [one[:2] for one in data.get("authors_parsed") or [] if isinstance(one, list)]
    made = re.search(r"(\d{1,2}) (\w{3}) (\d{4})", _text(data, "versions.created"))
    return {
        "text": " ".join(_text(data, "abstract").split()),
        "date": iso_date(*reversed(made.groups())) if made else None,
        "authors": [" ".join(map(str, filter(None, reversed(one)))) for one in parsed],
        "keywords": _text(data, "categories").split(),
        "url": f"https://arxiv.org/abs/{_text(data, 'id')}",
    }


def _web_of_science(data: Data) -> Plain:
    names = ";".join(one for one in inside(data)("AF") or inside(data)("AU") if isinstance(one, str)).split(";")
    date = iso_date(_text(data, "PY"), *_text(data, "PD").split())
    return {"authors": [one.strip() for one in names if one.strip()], "date": date}


def _europe_pmc(data: Data) -> Plain:
    people = [one for one in inside(data)("authorList.author") if isinstance(one, Mapping)]
    names = [_text(one, "fullName") or _text(one, "collectiveName") for one in people]
    return {"title": _text(data, "title").removesuffix("."), "authors": [name for name in names if name]}


_IF: Mapping[str, Callable[[Data], bool]] = {
    "Crossref works": lambda data: isinstance(data.get("title", []), list),
    "CSL items": lambda data: isinstance(data.get("type"), str),
}
"""What holds for records of a kind beside the fields that they have."""
_MORE: Mapping[str, Callable[[Data], Plain]] = {
    "OpenAlex works": _openalex,
    "Europe PMC articles": _europe_pmc,
    "Crossref works": _crossref,
    "CSL items": _crossref,
    "CORD-19 rows": lambda data: {"url": _text(data, "url").split(";")[0].strip()},
    "arXiv papers": _arxiv,
    "Web of Science records": _web_of_science,
}
"""What has to be computed, and does not just stand somewhere."""
_ROWS = ("CORD-19 rows", "Zotero items", "Scopus documents")
"""Of these tables the other columns stay, under their own names, to filter on."""


# -- from records as files have them to records of papers

_OF_RECORDS = {"_id", "id", "_source", "doc_id", "paperid", "paper_id", "corpusid", "corpus_id", "doi", "title"}
"""Fields by which objects in a list are taken for records of their own, and not for parts of one."""
_OF_PAPERS = _OF_RECORDS - {"_source"} | {"text", "abstract"}
"""Fields that a page of records does not have itself."""
PAGE_FIELDS = 8
"""A page says little beside its records: what has more fields is a record."""
_INSIDE = ("_source", "citedPaper", "citingPaper", "paper")
"""Where a record of a page has what it is about: Elasticsearch's hits, Semantic Scholar's citations."""
_WRAPPED = ("message", "result", "work", "article", "paper")
"""Where an answer with one record has it: Crossref's message."""


def papers(records: Iterable[Record | Reject], fields: Fields) -> Iterator[Record | Reject]:
    """The records of papers in the records of files. Fields that the user named are taken from the file's record.

    Whatever one record or part of a page does, the others come.
    """
    asked = [name for name in (fields.id, fields.title, fields.text, fields.date) if name is not None]
    for record in records:
        if isinstance(record, Reject):
            yield record
            continue
        try:
            for data in _unpacked(record.data, asked):
                one = record if data is record.data else replace(record, data=data)
                try:
                    yield _recognised(one, asked)
                except Exception as error:  # noqa: BLE001 - a stranger's record raises whatever it likes
                    yield reject_of(one, why_unread(error))
        except Exception as error:  # noqa: BLE001
            yield reject_of(record, why_unread(error))


def _unpacked(data: dict[str, Any], asked: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The records of a page, or the record itself. A record that has a field which the user named is not a page."""
    own = (data.get(key_of(data, name.partition(".")[0]) or "") for name in asked)
    if any(not isinstance(one, list | None) for one in own) or (found := page_of(data)) is None:
        yield data
        return
    for one in found:
        for name in _INSIDE:
            inner = one.get(name) if one is not None else None
            if isinstance(inner, Mapping) and not _names(one) & (_OF_RECORDS - {"_id", "_source"}):
                one = {**({"_id": one["_id"]} if "_id" in one else {}), **inner}
        if one is not None:  # Semantic Scholar's answer for an id that it does not know
            yield dict(one)


def page_of(data: Data) -> list[Any] | None:
    """The records of a page: a list in it or in an object of it; None for what is a record itself."""
    if isinstance(data.get("_source"), Mapping):
        return [data]
    if _names(data) & _OF_PAPERS or len(data) > PAGE_FIELDS:
        return None
    objects = [data, *(inner for inner in data.values() if isinstance(inner, Mapping))]
    wrapped = (data[name] for name in _WRAPPED if isinstance(data.get(name), Mapping))
    if (one := next((inner for inner in wrapped if _names(inner) & _OF_RECORDS), None)) is not None:
        return [one]
    lists = (inner for one in objects for inner in one.values() if isinstance(inner, list))
    wanted = _OF_RECORDS | {name.lower() for name in _INSIDE}
    for inner in lists:
        some = [one for one in inner[:5] if one is not None]
        if some and all(isinstance(one, Mapping) and _names(one) & wanted for one in some):
            return inner
    return None


def _names(data: Data) -> set[str]:
    return {str(name).lower() for name in data}


def _recognised(record: Record, asked: Sequence[str]) -> Record:
    if record.kind:
        return record
    if (page := knowledge_row(record.data)) is not None:
        return replace(record, data=page)
    if (found := recognise(record.data)) is None:
        return record
    kind, data = found
    for name in asked:
        if (value := field_of(record.data, name)) is not None:
            data.setdefault(name, value)
    return replace(record, data=data, kind=kind, raw=record.data if asked else None)
