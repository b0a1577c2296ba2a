"""The authors, year, journal and DOI of a document, read under the names that different sources give them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from .redaction import without_secrets
from .types import Document, Sentence, Value

DOI_CHARS = 500
DOI_PREFIXES = ("https://doi.org/", "http://dx.doi.org/", "https://dx.doi.org/", "http://doi.org/", "doi:")
"""What people write before a DOI; the first is today's."""
_DOI_PREFIX = re.compile(r"^(?:doi:\s*|(?:https?://)?(?:dx\.|www\.)?doi\.org/)", re.IGNORECASE)
_DOI = re.compile(r"10\.[0-9]{4,9}(?:\.[0-9]+)*/[^\s\\]+")
_YEAR = re.compile(r"(?<!\d)(1[5-9]\d\d|20\d\d)(?!\d)")

_CORPORATE = re.compile(
    r"^the\b|\b(?:agency|association|cent(?:er|re)|college|collaborat(?:ion|ors)|commission|committee|consortium|"
    r"council|department|federation|foundation|group|initiative|institut(?:e|es|ion)|investigators|ministry|network|"
    r"organi[sz]ation|panel|program(?:me)?|registry|society|task force|team|trialists|union|world bank|"
    r"university|working party)\b",
    re.IGNORECASE,
)

AUTHORS = ("authors", "author", "authors.name", "author.name", "author full names", "first author", "first authors")
JOURNAL = ("journal", "journal.name", "source title", "publication title", "venue", "container title", "journaltitle")
YEAR = ("year", "publication year", "pubyear")
"""Names of fields as `folded` writes them, in the order in which they count."""


def folded(name: str) -> str:
    """A field's name without case, and with a space for `_` and `-`."""
    return re.sub(r"[\s_-]+", " ", name).strip().casefold()


def normal_doi(value: object) -> str | None:
    """A DOI as others compare it: lower case, without `doi:` or `https://doi.org/`; None if it is not a DOI."""
    doi = _bare_doi(value)
    return None if doi is None else doi.lower()


def _bare_doi(value: object) -> str | None:
    if not isinstance(value, str):
        return None
    doi = _DOI_PREFIX.sub("", value.strip())
    return doi if len(doi) <= DOI_CHARS and doi.isprintable() and _DOI.fullmatch(doi) else None


def doi_url(value: object) -> str | None:
    """The address of a DOI, also of one that is written doi:… or https://doi.org/…; None if it is not a DOI."""
    doi = _bare_doi(value)
    return None if doi is None else f"https://doi.org/{quote(without_secrets(doi), safe='/:;().,-_~@!$&*+=')}"


@dataclass(frozen=True, slots=True)
class Citation:
    """Who wrote a document, and where and when it appeared. Unknown values are empty or None."""

    authors: tuple[str, ...] = ()
    year: str = ""
    journal: str = ""
    doi: str | None = None
    retracted: bool = False

    def names(self) -> str:
        """`Smith`, `Smith and Jones`, or `Smith et al.`"""
        last = [family_name(author) for author in self.authors]
        if len(last) > 2:
            return f"{last[0]} et al."
        return " and ".join(last)


def citation_of(document: Document) -> Citation:
    """Reads the citation from the document's metadata, under any of the usual field names."""
    known = {folded(name): value for name, value in reversed(list(document.metadata.items()))}
    year = _first(known, YEAR)
    found = _YEAR.search(_text(year)) if year is not None else None
    doi = next(filter(None, (normal_doi(_text(known.get(name))) for name in ("doi", "dois"))), None)
    return Citation(
        authors_of(_first(known, AUTHORS)),
        found[1] if found else (document.published or "")[:4],
        _text(_first(known, JOURNAL)),
        doi,
        is_retracted(document.metadata),
    )


def doi_of(metadata: Mapping[str, Value]) -> str | None:
    """The DOI that the metadata have as `doi`, in any case."""
    return next(filter(None, (normal_doi(metadata.get(name)) for name in ("doi", "DOI", "Doi"))), None)


def is_retracted(metadata: Mapping[str, Value]) -> bool:
    """Whether the source said that the document was retracted."""
    return metadata.get("retracted") is True or metadata.get("is_retracted") is True


def authors_of(value: Value) -> tuple[str, ...]:
    """The authors, each by name; a text with several is split at `;`, or at ` and `."""
    if isinstance(value, list):
        return tuple(str(one).strip() for one in value if one is not None and str(one).strip())
    text = _text(value)
    if ";" in text:
        parts: Sequence[str] = text.split(";")
    elif " and " in text:
        parts = text.split(" and ")
    else:
        # `Smith A, Jones B` are two authors, and `Smith, Anna` and `de la Cruz, J. A.` are one.
        names = [part.strip() for part in text.split(",")]
        parts = names if len(names) > 2 or all(re.search(r"\w\w.* | .*\w\w", name) for name in names) else [text]
    return tuple(part.strip().rstrip(",") for part in parts if part.strip())


def is_corporate(author: str) -> bool:
    """Whether the author is a group and not a person, by the words of its name: `SPRINT Research Group`."""
    return _CORPORATE.search(author) is not None


def family_name(author: str) -> str:
    """The family name of `Smith, Anna`, `Anna Smith`, or `Smith A`; of a group its whole name."""
    if is_corporate(author):
        return author.strip()
    family, comma, _ = author.partition(",")
    if comma:
        return family.strip()
    words = author.split()
    while len(words) > 1 and re.fullmatch(r"[A-Z][A-Z.-]{0,3}", words[-1]):  # initials
        words.pop()
    return words[-1] if words else author


def _first(known: Mapping[str, Value], names: Sequence[str]) -> Value:
    return next((known[name] for name in names if known.get(name) not in (None, "", [])), None)


def _text(value: Any) -> str:
    if isinstance(value, list):
        return "; ".join(str(one) for one in value if one is not None)
    return "" if value is None else str(value).strip()


def stands_in(document: Document, sentence: Sentence) -> bool:
    """Whether the sentence is in the document at its offsets."""
    text = document.title if sentence.field == "title" else document.text
    return 0 <= sentence.start < sentence.end <= len(text) and text[sentence.start : sentence.end] == sentence.text


def on_pages(*sentences: Sentence) -> str:
    """The pages that sentences stand on: `p. 3`, `pp. 3-4, 9`, with a dash; empty if none is known."""
    from more_itertools import consecutive_groups

    known = ((one.page, one.last_page or one.page) for one in sentences if one.page is not None)
    pages = sorted({page for first, last in known for page in range(first, last + 1)})
    runs = [list(run) for run in consecutive_groups(pages)]
    said = ", ".join(f"{run[0]}–{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
    return f"{'p.' if len(pages) == 1 else 'pp.'} {said}" if said else ""
