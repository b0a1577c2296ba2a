"""The evidence of results as BibTeX, CSV or Markdown, to cite it elsewhere."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator

from ..core.citation import Citation, citation_of
from ..core.text import printable
from ..core.types import Document, Result

FORMATS = ("bibtex", "csv", "md")
COLUMNS = (
    *("claim_id", "claim", "verdict", "relevance", "rank", "doc_id", "title", "authors", "year", "journal", "doi"),
    *("retracted", "stance", "sentences"),
)


class Citing:
    """Writes results one after the other. Each paper is cited once in BibTeX."""

    def __init__(self, format_: str) -> None:
        self._format, self._cited, self._first = format_, dict[str, str](), True

    def text(self, result: Result) -> str:
        """The text that a result adds to the output."""
        lines = {"bibtex": self._bibtex, "csv": self._csv, "md": self._markdown}[self._format](result)
        text = "".join(lines)
        self._first = False
        return text

    def _bibtex(self, result: Result) -> Iterator[str]:
        for piece in result.by_document:
            document = piece.document
            if document.id in self._cited:
                continue
            key = self._cited[document.id] = _key(citation_of(document), set(self._cited.values()))
            yield bibtex(document, key)

    def _csv(self, result: Result) -> Iterator[str]:
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        if self._first:
            writer.writerow(COLUMNS)
        verdict = (result.verdict.label if result.verdict is not None else None) or ""
        for piece in result.evidence:
            cited = citation_of(piece.document)
            row = (
                *(result.claim.id or "", result.claim.text, verdict, _number(result.relevance)),
                *(piece.hit.rank, piece.document.id, piece.document.title, "; ".join(cited.authors)),
                *(cited.year, cited.journal, cited.doi or "", "true" if cited.retracted else ""),
                (piece.stance.label if piece.stance is not None else None) or "",
                " ".join(sentence.text for sentence in piece.sentences),
            )
            writer.writerow([_cell(value) for value in row])
        yield out.getvalue()

    def _markdown(self, result: Result) -> Iterator[str]:
        yield ("" if self._first else "\n") + f"## {_md(result.claim.text)}\n\n"
        verdict = result.verdict
        if verdict is not None and verdict.label is not None:
            reason = f": {_md(verdict.rationale)}" if verdict.rationale else ""
            yield f"**{verdict.label}**{reason}\n\n"
        for number, piece in enumerate(result.evidence, 1):
            stance = piece.stance.label if piece.stance is not None else None
            yield f"{number}. {reference(piece.document)}" + (f" **{stance}**" if stance else "") + "\n"
            yield from (f"   > {_md(sentence.text)}\n" for sentence in piece.sentences)


def reference(document: Document) -> str:
    """A reference in Markdown: `Smith et al. (2019). Title. *Journal*. https://doi.org/…`."""
    cited = citation_of(document)
    who = _md(cited.names())
    head = f"{who} ({cited.year}). " if who and cited.year else f"{who or cited.year}. " if who or cited.year else ""
    title = _md(document.title or document.text[:80])
    where = f" *{_md(cited.journal)}*." if cited.journal else ""
    link = f" <https://doi.org/{_md(cited.doi)}>" if cited.doi else f" ({_md(document.id)})"
    retracted = "**RETRACTED:** " if cited.retracted else ""
    return f"{head}{retracted}{title}.{where}{link}"


def bibtex(document: Document, key: str) -> str:
    """The document as an entry of BibTeX."""
    cited = citation_of(document)
    data = document.metadata
    fields = {
        "title": document.title or document.text[:80],
        "author": " and ".join(cited.authors),
        "year": cited.year,
        "journal": cited.journal,
        "volume": str(data.get("volume", "")),
        "number": str(data.get("issue", "")),
        "pages": re.sub(r"(?<=\d)-(?=\w)", "--", str(data.get("pages", ""))),
        "url": str(data.get("url", "")),
        "note": "Retracted" if cited.retracted else "",
    }
    lines = [f"  {name} = {{{_tex(value)}}},\n" for name, value in fields.items() if value]
    doi = [f"  doi = {{{cited.doi}}},\n"] if cited.doi and not re.search(r"[{}\\]", cited.doi) else []
    return f"@{'article' if cited.journal else 'misc'}{{{key},\n{''.join([*lines, *doi])}}}\n\n"


def _key(cited: Citation, taken: set[str]) -> str:
    """`smith2019`, or with a letter if that is taken."""
    from ..core.citation import family_name

    name = re.sub(r"[^a-z]", "", _ascii(family_name(cited.authors[0]) if cited.authors else "").lower()) or "paper"
    key = f"{name}{cited.year}"
    others = (f"{key}{letter}" for letter in "bcdefghijklmnopqrstuvwxyz")
    numbered = (f"{key}-{number}" for number in range(2, len(taken) + 3))
    return next(one for one in (key, *others, *numbered) if one not in taken)


def _ascii(text: str) -> str:
    import unicodedata

    return unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()


_TEX = {**{character: f"\\{character}" for character in "&%$#_{}"}, "\\": r"\textbackslash{}"}
_TEX |= {"~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}


def _tex(text: str) -> str:
    return "".join(_TEX.get(character, character) for character in " ".join(printable(text).split()))


def _md(text: str) -> str:
    """Text that Markdown shows as it is."""
    return re.sub(r"([\\`*_\[\]<>#|])", r"\\\1", " ".join(printable(text).split()))


def _cell(value: object) -> object:
    """A spreadsheet takes what begins like this for a formula."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t") else value


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:g}"
