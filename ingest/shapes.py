"""Records of the services and exports that people have, told by their fields, as plain records.

A plain record has `_id`, `title`, `text`, `date`, and under one name everywhere what a paper is cited with and
filtered by: `doi`, `authors`, `year`, `journal`, `volume`, `issue`, `pages`, `type`, `keywords`, `language`, `url`,
`pmid`, `pmcid`, `retracted`. The fields of the services are documented at docs.openalex.org (Work), api.crossref.org
(Work), europepmc.org/RestfulWebService (search, resultType core), api.semanticscholar.org (Paper; datasets `papers`,
`abstracts` and `s2orc`), and in the CORD-19 release notes (Wang et al. 2020).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from ..core.citation import authors_of, folded, normal_doi
from ..core.errors import InvalidData
from ..core.text import TEXT_CHARS
from .markup import plain

Plain: TypeAlias = dict[str, Any]

RETRACTED_TITLE = re.compile(r"^\W*retracted(?:\s+(?:article|paper|chapter))?\s*:", re.IGNORECASE)
"""As publishers mark the titles of papers that they retract."""
_SPANS, _SPAN_CHARS = 100, 10_000
"""The most pieces of a title or a name that are read, and of how many characters each."""
_WORDS = 100_000
"""Most words of an abstract in an inverted index."""


def recognise(data: Mapping[str, Any]) -> tuple[str, Plain] | None:
    """The kind of a service's record, in the plural, and the plain record; None for a record of another kind."""
    for kind, (has, convert) in _SHAPES.items():
        if has(data):
            made = {name: value for name, value in convert(data).items() if value not in (None, "", [], {})}
            if RETRACTED_TITLE.match(str(made.get("title", ""))):
                made["retracted"] = True
            return kind, made
    return None


# -- values of unknown type, taken as far as they are what they should be


def _text(value: Any) -> str:
    if isinstance(value, list):
        return _text(value[0]) if value else ""
    return plain(str(value)) if isinstance(value, str | int | float) and not isinstance(value, bool) else ""


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _objects(value: Any) -> list[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []


def _tail(value: Any) -> str | None:
    """The last part of an identifier's URL: 29456894 of https://pubmed.ncbi.nlm.nih.gov/29456894."""
    return _text(value).rstrip("/").rpartition("/")[2] or None


def _date(parts: Any) -> str | None:
    """`{"date-parts": [[2019, 1, 2]]}`."""
    numbers = _object(parts).get("date-parts")
    first = numbers[0] if isinstance(numbers, list) and numbers and isinstance(numbers[0], list) else []
    try:
        known = [int(part) for part in first[:3] if part not in (None, "")]
    except (TypeError, ValueError, OverflowError):
        return None
    return "-".join(f"{part:0{4 if i == 0 else 2}}" for i, part in enumerate(known)) or None


def _year(date: Any) -> int | None:
    match = re.match(r"(\d{4})", _text(date))
    return int(match[1]) if match else None


def _names(people: Any) -> list[str]:
    """`Given Family` of each, as CSL and Crossref have them."""
    names = [
        " ".join(filter(None, (_text(one.get("given")), _text(one.get("family"))))) or _text(one.get("name"))
        for one in _objects(people)
    ]
    return [name for name in names if name]


def from_inverted(index: Any) -> str:
    """The abstract that an inverted index was made from: `{"word": [0, 7]}` has `word` at positions 0 and 7."""
    if isinstance(index, str):
        try:
            index = json.loads(index)
        except ValueError:
            return ""
    index = _object(_object(index).get("InvertedIndex", index))
    placed = [
        (position, str(word))
        for word, positions in index.items()
        if isinstance(positions, list)
        for position in positions
        if isinstance(position, int)
    ]
    words = [word for _, word in sorted(placed)[:_WORDS]]
    if sum(map(len, words)) > TEXT_CHARS:  # a few bytes can place one long word many times
        raise InvalidData(f"the text is too long: more than {TEXT_CHARS:,} characters")
    return plain(" ".join(words))


# -- the services


def _openalex(data: Mapping[str, Any]) -> Plain:
    ids, biblio = _object(data.get("ids")), _object(data.get("biblio"))
    location = _object(data.get("primary_location")) or _object(data.get("host_venue"))
    source = _object(location.get("source")) or location
    people = [_text(_object(one.get("author")).get("display_name")) for one in _objects(data.get("authorships"))]
    first, last = _text(biblio.get("first_page")), _text(biblio.get("last_page"))
    abstract = from_inverted(data.get("abstract_inverted_index")) or _text(data.get("abstract"))
    return {
        "_id": data.get("id"),
        "title": _text(data.get("title") or data.get("display_name")),
        "text": abstract,
        "date": data.get("publication_date") or data.get("publication_year"),
        "doi": normal_doi(data.get("doi") or ids.get("doi")),
        "authors": [name for name in people if name],
        "year": data.get("publication_year"),
        "journal": _text(source.get("display_name")),
        "volume": _text(biblio.get("volume")),
        "issue": _text(biblio.get("issue")),
        "pages": f"{first}-{last}" if first and last and first != last else first,
        "type": data.get("type"),
        "keywords": [_text(one.get("display_name")) for one in _objects(data.get("keywords"))],
        "language": data.get("language"),
        "url": _text(location.get("landing_page_url")),
        "pmid": _tail(ids.get("pmid")),
        "pmcid": _tail(ids.get("pmcid")),
        "cited_by_count": data.get("cited_by_count"),
        "retracted": True if data.get("is_retracted") is True else None,
    }


def _europe_pmc(data: Mapping[str, Any]) -> Plain:
    info = _object(data.get("journalInfo"))
    journal = _object(info.get("journal"))
    types = _object(data.get("pubTypeList")).get("pubType", data.get("pubType"))
    types = [_text(one) for one in types] if isinstance(types, list) else _text(types).split(";")
    people = [
        _text(one.get("fullName") or one.get("collectiveName"))
        for one in _objects(_object(data.get("authorList")).get("author"))
    ]
    keywords = _object(data.get("keywordList")).get("keyword")
    date = data.get("firstPublicationDate") or info.get("printPublicationDate") or data.get("pubYear")
    return {
        "_id": data.get("id"),
        "title": _text(data.get("title")).removesuffix("."),
        "text": _text(data.get("abstractText")),
        "date": date,
        "doi": normal_doi(data.get("doi")),
        "authors": [name for name in people if name] or list(authors_of(_text(data.get("authorString")))),
        "year": _year(data.get("pubYear") or date),
        "journal": _text(journal.get("title") or data.get("journalTitle")),
        "volume": _text(info.get("volume") or data.get("journalVolume")),
        "issue": _text(info.get("issue") or data.get("issue")),
        "pages": _text(data.get("pageInfo")),
        "type": [one.strip() for one in types if one.strip()],
        "keywords": [_text(one) for one in keywords] if isinstance(keywords, list) else None,
        "language": data.get("language"),
        "pmid": data.get("pmid"),
        "pmcid": data.get("pmcid"),
        "retracted": True if any("retracted publication" in one.lower() for one in types) else None,
    }


def _crossref(data: Mapping[str, Any]) -> Plain:
    dates = (data.get(name) for name in ("published", "issued", "published-print", "published-online", "created"))
    date = next((found for one in dates if (found := _date(one))), None)
    updates = [*_objects(data.get("updated-by")), *_objects(_object(data.get("relation")).get("is-retracted-by"))]
    title, subtitle = _text(data.get("title")), _text(data.get("subtitle"))
    return {
        "_id": data.get("DOI"),
        "title": f"{title}: {subtitle}" if title and subtitle else title,
        "text": _text(data.get("abstract")),
        "date": date,
        "doi": normal_doi(data.get("DOI")),
        "authors": _names(data.get("author")),
        "year": _year(date),
        "journal": _text(data.get("container-title")),
        "volume": _text(data.get("volume")),
        "issue": _text(data.get("issue")),
        "pages": _text(data.get("page")),
        "type": data.get("type"),
        "keywords": data.get("subject") if isinstance(data.get("subject"), list) else None,
        "language": data.get("language"),
        "url": data.get("URL"),
        "retracted": True if any(_text(one.get("type")).lower() == "retraction" for one in updates) else None,
    }


def _csl(data: Mapping[str, Any]) -> Plain:
    """CSL JSON, as Zotero and Mendeley export it: Crossref's names, with texts if that has lists."""
    return _crossref(data) | {"_id": data.get("id") or data.get("DOI"), "keywords": data.get("keyword")}


def _semantic_scholar(data: Mapping[str, Any]) -> Plain:
    ids = _object(data.get("externalIds") or data.get("externalids"))
    journal = _object(data.get("journal"))
    venue = _object(data.get("publicationVenue"))
    date = data.get("publicationDate") or data.get("publicationdate") or data.get("year")
    people = [_text(one.get("name")) for one in _objects(data.get("authors"))]
    tldr = _text(_object(data.get("tldr")).get("text"))
    corpus = data.get("corpusid", data.get("corpusId"))
    return {
        "_id": data.get("paperId") or (str(corpus) if corpus is not None else None),
        "title": _text(data.get("title")),
        "text": _text(data.get("abstract")) or tldr,
        "date": date,
        "doi": normal_doi(ids.get("DOI")),
        "authors": [name for name in people if name],
        "year": data.get("year"),
        "journal": _text(journal.get("name") or venue.get("name") or data.get("venue")),
        "volume": _text(journal.get("volume")),
        "pages": _text(journal.get("pages")),
        "type": data.get("publicationTypes") or data.get("publicationtypes"),
        "url": data.get("url"),
        "pmid": _text(ids.get("PubMed")),
        "pmcid": _text(ids.get("PubMedCentral")),
        "corpusid": corpus,
        "cited_by_count": data.get("citationCount", data.get("citationcount")),
    }


def _s2orc(data: Mapping[str, Any]) -> Plain:
    """A full text of the dump `s2orc`; its annotations say where in the text the title and the abstract are."""
    content, ids = _object(data.get("content")), _object(data.get("externalids"))
    text = str(content.get("text") or "")
    marks = _object(content.get("annotations"))

    def marked(name: str) -> str:
        spans = marks.get(name)
        try:
            spans = json.loads(spans) if isinstance(spans, str) else spans
            said = (text[int(one["start"]) : int(one["end"])] for one in _objects(spans)[:_SPANS])
            return " ".join(one for one in said if len(one) <= _SPAN_CHARS).strip()
        except (KeyError, TypeError, ValueError, OverflowError, RecursionError):
            return ""

    return {
        "_id": str(data.get("corpusid")),
        "title": " ".join(marked("title").split()),
        "text": text,
        "doi": normal_doi(ids.get("doi") or ids.get("DOI")),
        "authors": [marked("author")] if 0 < len(marked("author")) < 100 else None,
        "corpusid": data.get("corpusid"),
    }


def _cord19_parse(data: Mapping[str, Any]) -> Plain:
    meta = _object(data.get("metadata"))
    people = [
        " ".join(filter(None, map(_text, (one.get("first"), one.get("last"))))) for one in _objects(meta["authors"])
    ]
    parts = [*_objects(data.get("abstract")), *_objects(data.get("body_text"))]
    return {
        "_id": data.get("paper_id"),
        "title": _text(meta.get("title")),
        "text": "\n\n".join(text for one in parts if (text := _text(one.get("text")))),
        "authors": [name for name in people if name],
    }


def _cord19_row(data: Mapping[str, Any]) -> Plain:
    return _with_columns(
        data,
        {"cord_uid", "title", "abstract", "authors", "journal", "doi", "pubmed_id", "publish_time", "url"},
        {
            "_id": data.get("cord_uid"),
            "title": _text(data.get("title")),
            "text": _text(data.get("abstract")),
            "date": data.get("publish_time"),
            "doi": normal_doi(data.get("doi")),
            "authors": list(authors_of(data.get("authors"))),
            "year": _year(data.get("publish_time")),
            "journal": data.get("journal"),
            "pmid": data.get("pubmed_id"),
            "url": _text(data.get("url")).split(";")[0].strip(),
        },
    )


def _zotero(data: Mapping[str, Any]) -> Plain:
    return _with_columns(
        data,
        {"Key", "Title", "Abstract Note", "Date", "Publication Year", "Author", "DOI", "Url", "Pages", "Language"},
        {
            "_id": data.get("Key"),
            "title": _text(data.get("Title")),
            "text": _text(data.get("Abstract Note")),
            "date": data.get("Date") if _year(data.get("Date")) else data.get("Publication Year"),
            "doi": normal_doi(data.get("DOI")),
            "authors": list(authors_of(data.get("Author"))),
            "year": _year(data.get("Publication Year") or data.get("Date")),
            "journal": data.get("Publication Title"),
            "pages": data.get("Pages"),
            "language": data.get("Language"),
            "url": data.get("Url"),
        },
    )


def _scopus(data: Mapping[str, Any]) -> Plain:
    abstract = _text(data.get("Abstract"))
    first, last = _text(data.get("Page start")), _text(data.get("Page end"))
    return _with_columns(
        data,
        {"EID", "Title", "Abstract", "Year", "Authors", "DOI", "Link", "Volume", "Issue"},
        {
            "_id": data.get("EID"),
            "title": _text(data.get("Title")),
            "text": "" if abstract.lower().strip("[]. ") == "no abstract available" else abstract,
            "date": data.get("Year"),
            "doi": normal_doi(data.get("DOI")),
            "authors": list(authors_of(data.get("Authors"))),
            "year": _year(data.get("Year")),
            "journal": data.get("Source title"),
            "volume": data.get("Volume"),
            "issue": data.get("Issue"),
            "pages": f"{first}-{last}" if first and last else first,
            "url": data.get("Link"),
            "retracted": True if "retracted" in _text(data.get("Document Type")).lower() else None,
        },
    )


def _with_columns(data: Mapping[str, Any], taken: set[str], made: Plain) -> Plain:
    """The plain record with the table's other columns under their own names, to filter on."""
    has = {folded(name) for name, value in made.items() if value not in (None, "", [])}
    others = {name: value for name, value in data.items() if name not in taken and folded(name) not in has}
    return {**others, **made}


def _arxiv(data: Mapping[str, Any]) -> Plain:
    people = [
        " ".join(filter(None, reversed(one[:2]))) for one in data.get("authors_parsed", []) if isinstance(one, list)
    ]
    versions = _objects(data.get("versions"))
    made = re.search(r"(\d{1,2}) (\w{3}) (\d{4})", _text(versions[0].get("created"))) if versions else None
    months = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()
    first = f"{made[3]}-{months.index(made[2]) + 1:02}-{int(made[1]):02}" if made and made[2] in months else None
    return {
        "_id": data.get("id"),
        "title": " ".join(_text(data.get("title")).split()),
        "text": " ".join(_text(data.get("abstract")).split()),
        "date": first or data.get("update_date"),
        "doi": normal_doi(data.get("doi")),
        "authors": people or list(authors_of(data.get("authors"))),
        "year": _year(first or data.get("update_date")),
        "journal": _text(data.get("journal-ref")),
        "keywords": _text(data.get("categories")).split(),
        "url": f"https://arxiv.org/abs/{_text(data.get('id'))}",
    }


def _has(*names: str) -> Callable[[Mapping[str, Any]], bool]:
    return lambda data: all(name in data for name in names)


def _any(data: Mapping[str, Any], names: Iterable[str]) -> bool:
    return any(name in data for name in names)


_SHAPES: Mapping[str, tuple[Callable[[Mapping[str, Any]], bool], Callable[[Mapping[str, Any]], Plain]]] = {
    "OpenAlex works": (
        lambda data: (
            "openalex.org/W" in str(data.get("id", ""))[:100] or ("abstract_inverted_index" in data and "id" in data)
        ),
        _openalex,
    ),
    "Europe PMC articles": (
        lambda data: (
            "id" in data
            and "source" in data
            and _any(data, ("abstractText", "authorString", "journalInfo", "pubYear", "firstPublicationDate"))
        ),
        _europe_pmc,
    ),
    "Crossref works": (
        lambda data: (
            "DOI" in data
            and isinstance(data.get("title", []), list)
            and _any(data, ("container-title", "issued", "prefix", "author", "published", "type"))
        ),
        _crossref,
    ),
    "CSL items": (
        lambda data: (
            "title" in data
            and isinstance(data.get("type"), str)
            and "id" in data
            and _any(data, ("container-title", "issued", "citation-key"))
        ),
        _csl,
    ),
    "Semantic Scholar full texts": (
        lambda data: "corpusid" in data and isinstance(data.get("content"), Mapping),
        _s2orc,
    ),
    "Semantic Scholar papers": (
        lambda data: (
            ("paperId" in data and "title" in data) or ("corpusid" in data and _any(data, ("title", "abstract")))
        ),
        _semantic_scholar,
    ),
    "CORD-19 full texts": (
        lambda data: (
            "paper_id" in data
            and isinstance(data.get("body_text"), list)
            and "authors" in _object(data.get("metadata"))
        ),
        _cord19_parse,
    ),
    "CORD-19 rows": (_has("cord_uid", "title"), _cord19_row),
    "Zotero items": (_has("Key", "Item Type", "Title"), _zotero),
    "Scopus documents": (
        lambda data: _has("EID", "Title")(data) or _has("Source title", "Title", "Cited by")(data),
        _scopus,
    ),
    "arXiv papers": (_has("id", "submitter", "categories", "abstract"), _arxiv),
}
