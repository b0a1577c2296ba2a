"""The evidence of results as BibTeX, CSV or Markdown, to cite it elsewhere."""

from __future__ import annotations

import csv
import functools
import io
import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING
from urllib.parse import quote

from ..core.citation import Citation, citation_of, doi_url, family_name, is_corporate, on_pages
from ..core.text import printable
from ..core.types import Document, Result
from ..service.types import Correction, standing

if TYPE_CHECKING:
    from pylatexenc.latexencode import UnicodeToLatexEncoder

COLUMNS = (
    *("claim_id", "claim", "verdict", "relevance", "rank", "doc_id", "title", "authors", "year", "journal", "doi"),
    *("retracted", "stance", "leans", "confidence", "sentences", "pages", "corrected_verdict", "corrected_stance"),
)
FORMULA = tuple("=+-@＝＋－＠")
"""Spreadsheets take a cell that begins with one of these for a formula."""


class Citing:
    """Writes results one after the other. Each paper is cited once in BibTeX."""

    def __init__(self, format_: str) -> None:
        self._format, self._cited, self._first = format_, dict[str, str](), True
        self._corrections: list[Correction] = []

    def text(self, result: Result, corrections: Sequence[Correction] = ()) -> str:
        """The text that a result adds to the output, with its corrections if the format has a place for them."""
        self._corrections = standing(corrections)
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
            yield bibtex(document, key, on_pages(*piece.sentences))

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
                *(str(piece.hit.rank), piece.document.id, piece.document.title, "; ".join(cited.authors)),
                *(cited.year, cited.journal, cited.doi or "", "true" if cited.retracted else ""),
                (piece.stance.label if piece.stance is not None else None) or "",
                "true" if piece.stance is not None and piece.stance.leans else "",
                _number(piece.stance.confidence if piece.stance is not None else None),
                " ".join(sentence.text for sentence in piece.sentences),
                on_pages(*piece.sentences),
                *(self._corrected(None), self._corrected(piece.document.id)),
            )
            writer.writerow(map(_cell, row))
        yield out.getvalue()

    def _markdown(self, result: Result) -> Iterator[str]:
        yield ("" if self._first else "\n") + f"## {_md(result.claim.text or result.claim.id or '')}\n\n"
        verdict = result.verdict
        if verdict is not None and verdict.label is not None:
            reason = f": {_md(verdict.rationale)}" if verdict.rationale else ""
            yield f"**{verdict.label}**{reason}\n\n"
        elif error := result.error or (verdict and verdict.error):
            yield f"No verdict: {_md(str(error))}\n\n"
        yield from (f"{one}\n\n" for one in self._said(None))
        for number, piece in enumerate(result.evidence, 1):
            stance = piece.stance
            said = f" {'leans to ' * stance.leans}**{stance.label}**" if stance is not None and stance.label else ""
            yield f"{number}. {reference(piece.document)}{said}\n"
            for sentence in piece.sentences:
                pages = on_pages(sentence)
                yield f"   > {_md(sentence.text)}{f' ({pages})' if pages else ''}\n"
            yield from (f"\n   {one}\n" for one in self._said(piece.document.id))

    def _corrected(self, doc_id: str | None) -> str:
        """The label that the last correction of the verdict, or of a document, gives; else what it says."""
        return next((one.label or one.what for one in self._corrections[::-1] if one.doc_id == doc_id), "")

    def _said(self, doc_id: str | None) -> Iterator[str]:
        for one in self._corrections:
            if one.doc_id == doc_id:
                by = ", ".join(filter(None, (_md(one.user or ""), one.created[:10])))
                note = f": {_md(one.note)}" if one.note else ""
                yield f"Corrected: **{one.label or one.what}**{note} ({by})"


def reference(document: Document) -> str:
    """A reference in Markdown: `Smith et al. (2019). Title. *Journal*. <https://doi.org/…>`."""
    cited = citation_of(document)
    who = _md(cited.names())
    head = f"{who} ({cited.year}). " if who and cited.year else f"{who or cited.year}. " if who or cited.year else ""
    title = _md(document.title or document.text[:80])
    where = f" *{_md(cited.journal)}*." if cited.journal else ""
    url = doi_url(cited.doi)
    link = f" <{url}>" if url else f" ({_md(document.id)})"
    retracted = "**RETRACTED:** " if cited.retracted else ""
    return f"{head}{retracted}{title}.{where}{link}"


def bibtex(document: Document, key: str, quoted: str = "") -> str:
    """The document as an entry of BibTeX, in LaTeX where LaTeX has a name for a character. `quoted`: the pages of its
    file that evidence stands on."""
    from bibtexparser.entrypoint import write_string
    from bibtexparser.library import Library
    from bibtexparser.model import Entry, Field

    cited = citation_of(document)
    data = document.metadata
    authors = [_tex(one) for one in cited.authors]
    fields = {
        "title": _tex(document.title or document.text[:80]),
        # In braces, BibTeX takes a name as a whole.
        "author": " and ".join(f"{{{one}}}" if is_corporate(one) or " and " in one else one for one in authors),
        "year": _tex(cited.year),
        "journal": _tex(cited.journal),
        "volume": _tex(str(data.get("volume", ""))),
        "number": _tex(str(data.get("issue", ""))),
        "pages": re.sub(r"(?<=\d)-(?=\w)", "--", _tex(str(data.get("pages", "")))),
        "url": _verbatim(str(data.get("url", ""))),
        "doi": _verbatim(cited.doi or ""),
        "note": "; ".join(["Retracted"] * cited.retracted + [_tex(f"Quoted: {quoted} of the file")] * bool(quoted)),
    }
    entry = Entry("article" if cited.journal else "misc", key, [Field(*one) for one in fields.items() if one[1]])
    return write_string(Library([entry])) + "\n"


def _key(cited: Citation, taken: set[str]) -> str:
    """`smith2019`, or with a letter if that is taken."""
    family = unicodedata.normalize("NFKD", family_name(cited.authors[0]) if cited.authors else "")
    name = re.sub(r"[^a-z]", "", family.lower()) or "paper"
    key = f"{name}{cited.year}"
    others = (f"{key}{letter}" for letter in "bcdefghijklmnopqrstuvwxyz")
    numbered = (f"{key}-{number}" for number in range(2, len(taken) + 3))
    return next(one for one in (key, *others, *numbered) if one not in taken)


def _one_line(text: str) -> str:
    return " ".join(printable(text).split())


@functools.cache
def _encoder() -> UnicodeToLatexEncoder:
    from pylatexenc.latexencode import RULE_DICT, UnicodeToLatexConversionRule, UnicodeToLatexEncoder

    # BibTeX counts \{ as a brace, too, so these need names.
    names = {ord("{"): r"\ensuremath{\lbrace}", ord("}"): r"\ensuremath{\rbrace}"}
    return UnicodeToLatexEncoder(
        conversion_rules=[UnicodeToLatexConversionRule(RULE_DICT, names), "defaults"],
        replacement_latex_protection="braces-after-macro",
        unknown_char_policy="keep",
        unknown_char_warning=False,
    )


def _tex(text: str) -> str:
    made = _encoder().unicode_to_latex(_one_line(text))
    assert isinstance(made, str)
    return made


def _verbatim(address: str) -> str:
    """An address in a field that LaTeX takes as it is, so that no escape of LaTeX may stand in it."""
    return quote(_one_line(address), safe="/:;()[].,-_~@!$&*+=?#%'<>")


def _md(text: str) -> str:
    """Text that Markdown shows as it is: neither markup, nor the beginning of a list, nor mathematics."""
    escaped = re.sub(r"([\\`*_\[\]<>#|&~$])", r"\\\1", _one_line(text))
    return re.sub(r"^([-+=])", r"\\\1", re.sub(r"^(\d+)(?=[.)])", r"\1\\", escaped))


def _cell(value: str) -> str:
    """A value for a cell: one line, and no formula."""
    text = _one_line(value)
    return f"'{text}" if text.startswith(FORMULA) else text


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:g}"
