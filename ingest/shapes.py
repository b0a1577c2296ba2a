"""Records of the services and exports that people have, told by their fields, as plain records.

The fields are documented at docs.openalex.org (Work), api.crossref.org (Work), europepmc.org/RestfulWebService (search,
resultType core), api.semanticscholar.org (Paper; datasets `papers` and `abstracts`), and in the CORD-19 release notes
(Wang et al. 2020). CSL JSON, as Zotero and Mendeley export it, has Crossref's names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from ..core.citation import folded
from ..core.errors import InvalidData, why_unread
from ..core.text import TEXT_CHARS
from .fields import Fields, field_of
from .plain import Plain, inside, iso_date, places, plain, plain_record
from .records import Record, Reject, reject_of

Data = Mapping[str, Any]

_WORDS = 100_000
"""Most words of an abstract in an inverted index."""


def recognise(data: Data) -> tuple[str, Plain] | None:
    """The kind of a service's record, in the plural, and the plain record; None for a record of another kind."""
    kind = next((kind for kind, has in _KINDS.items() if has(data)), None)
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


def _has(*names: str, one_of: tuple[str, ...] = ()) -> Callable[[Data], bool]:
    """Whether a record has all these fields and, if some are given, one of others."""
    return lambda data: all(name in data for name in names) and (not one_of or any(name in data for name in one_of))


def _europe_pmc(data: Data) -> Plain:
    people = [one for one in inside(data)("authorList.author") if isinstance(one, Mapping)]
    names = [_text(one, "fullName") or _text(one, "collectiveName") for one in people]
    return {"title": _text(data, "title").removesuffix("."), "authors": [name for name in names if name]}


_KINDS: Mapping[str, Callable[[Data], bool]] = {
    "OpenAlex works": lambda data: (
        "openalex.org/W" in str(data.get("id", ""))[:100] or _has("id", "abstract_inverted_index")(data)
    ),
    "Europe PMC articles": _has(
        *("id", "source"), one_of=("abstractText", "authorString", "journalInfo", "pubYear", "firstPublicationDate")
    ),
    "Crossref works": lambda data: (
        _has("DOI", one_of=("container-title", "issued", "prefix", "author", "published", "type"))(data)
        and isinstance(data.get("title", []), list)
    ),
    "CSL items": lambda data: (
        _has("title", "id", one_of=("container-title", "issued", "citation-key"))(data)
        and isinstance(data.get("type"), str)
    ),
    "Semantic Scholar papers": lambda data: (
        _has("paperId", "title")(data) or _has("corpusid", one_of=("title", "abstract"))(data)
    ),
    "CORD-19 rows": _has("cord_uid", "title"),
    "Zotero items": _has("Key", "Item Type", "Title"),
    "Scopus documents": lambda data: _has("EID", "Title")(data) or _has("Source title", "Title", "Cited by")(data),
    "arXiv papers": _has("id", "submitter", "categories", "abstract"),
}
_MORE: Mapping[str, Callable[[Data], Plain]] = {
    "OpenAlex works": _openalex,
    "Europe PMC articles": _europe_pmc,
    "Crossref works": _crossref,
    "CSL items": _crossref,
    "CORD-19 rows": lambda data: {"url": _text(data, "url").split(";")[0].strip()},
    "arXiv papers": _arxiv,
}
"""What has to be computed, and does not just stand somewhere."""
_ROWS = ("CORD-19 rows", "Zotero items", "Scopus documents")
"""Of these tables the other columns stay, under their own names, to filter on."""


# -- from records as files have them to records of papers

PAGES = (
    *("results", "data", "items", "records", "docs", "documents", "papers", "articles", "works", "recommendedPapers"),
    *("hits.hits", "response.docs", "message.items", "resultList.result"),
)
"""Where the pages of services have their records: OpenAlex, Semantic Scholar, Elasticsearch, Solr, Crossref, Europe
PMC."""
_OF_RECORDS = {"_id", "id", "_source", "doc_id", "paperid", "paper_id", "corpusid", "corpus_id", "doi", "title"}
"""Fields by which objects in a list are taken for records of their own, and not for parts of one."""
_INSIDE = ("_source", "citedPaper", "citingPaper", "paper")
"""Where a record of a page has what it is about: Elasticsearch's hits, Semantic Scholar's citations."""
_WRAPPED = ("message", "result", "work", "article", "paper")
"""Where an answer with one record has it: Crossref's message."""


def papers(records: Iterable[Record | Reject], fields: Fields) -> Iterator[Record | Reject]:
    """The records of papers in the records of files. Fields that the user named are taken from the file's record.

    Whatever one record or part of a page does, the others come.
    """
    for record in records:
        if isinstance(record, Reject):
            yield record
            continue
        try:
            for place, one in _unpacked(record):
                try:
                    yield _recognised(one, fields, place)
                except Exception as error:  # noqa: BLE001 - a stranger's record raises whatever it likes
                    yield reject_of(one, why_unread(error))
        except Exception as error:  # noqa: BLE001
            yield reject_of(record, why_unread(error))


def _unpacked(record: Record) -> Iterator[tuple[str, Record]]:
    """The records of a page with their places in it, or the record itself."""
    found = page_of(record.data)
    if found is None:
        yield "", record
        return
    place, inner = found
    for one in inner:
        if one is None:
            continue  # Semantic Scholar's answer for an id that it does not know
        way = place
        for name in _INSIDE:
            if isinstance(one.get(name), Mapping) and not (_OF_RECORDS - {"_id", "_source"}) & {k.lower() for k in one}:
                one, way = {**({"_id": one["_id"]} if "_id" in one else {}), **one[name]}, f"{place}.{name}"
        yield way, replace(record, data=dict(one))


def page_of(data: Mapping[str, Any]) -> tuple[str, list[Any]] | None:
    """Where a page has its records, and these; None for what is a record itself."""
    if any(str(name).lower() in _OF_RECORDS for name in data) and "abstract_inverted_index" not in data:
        # A record has an id or a title of its own, but so has Elasticsearch's `_source`.
        if not (isinstance(data.get("_source"), Mapping)):
            return None
        return "_source", [{**({"_id": data["_id"]} if "_id" in data else {}), **data["_source"]}]
    for place in PAGES:
        inner = field_of(data, place)
        if isinstance(inner, list) and _are_records(inner):
            return place, inner
    for place in _WRAPPED:
        inner = data.get(place)
        if isinstance(inner, Mapping) and _OF_RECORDS & {str(name).lower() for name in inner}:
            return place, [inner]
    for name, inner in data.items():
        if isinstance(inner, list) and len(data) <= 5 and _are_records(inner):
            return str(name), inner
    return None


def _are_records(inner: list[Any]) -> bool:
    some = [one for one in inner[:5] if one is not None]
    return bool(some) and all(
        isinstance(one, Mapping)
        and ({str(name).lower() for name in one} & _OF_RECORDS or any(name in one for name in _INSIDE))
        for one in some
    )


def _recognised(record: Record, fields: Fields, place: str) -> Record:
    asked = [name for name in (fields.id, fields.title, fields.text, fields.date) if name is not None]
    found = recognise(record.data) if not record.kind else (record.kind, record.data)
    if found is None:
        if not place or not asked:
            return record
        kind, data = "", dict(record.data)
    else:
        kind, data = found
    raw = dict(record.data) if asked else None
    for name in asked:
        # In a page the field can be named from the page, or from the record.
        own = name.removeprefix(f"{place}.") if place else name
        value = field_of(record.data, own)
        if value is not None:
            data.setdefault(name, value)
            if raw is not None:
                raw.setdefault(name, value)
    return replace(record, data=data, kind=kind, raw=raw)
