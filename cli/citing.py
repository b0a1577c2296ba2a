"""The evidence of results as CSV or Markdown, to cite it elsewhere."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator

from ..core.citation import citation_of, doi_url
from ..core.text import printable
from ..core.types import Document, Result

COLUMNS = (
    *("claim_id", "claim", "verdict", "relevance", "rank", "doc_id", "title", "authors", "year", "journal", "doi"),
    *("retracted", "stance", "sentences"),
)
FORMULA = tuple("=+-@＝＋－＠")
"""Spreadsheets take a cell that begins with one of these for a formula."""


class Citing:
    """Writes results one after the other."""

    def __init__(self, format_: str) -> None:
        self._lines, self._first = {"csv": self._csv, "md": self._markdown}[format_], True

    def text(self, result: Result) -> str:
        """The text that a result adds to the output."""
        text = "".join(self._lines(result))
        self._first = False
        return text

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
                " ".join(sentence.text for sentence in piece.sentences),
            )
            writer.writerow(map(_cell, row))
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


def _one_line(text: str) -> str:
    return " ".join(printable(text).split())


def _md(text: str) -> str:
    """Text that Markdown shows as it is: neither markup, nor the beginning of a list, nor mathematics."""
    escaped = re.sub(r"([\\`*_\[\]<>#|&~$])", r"\\\1", _one_line(text))
    return re.sub(r"^([-+=]|\d+(?=[.)]))", lambda found: _not_a_list(found[1]), escaped)


def _not_a_list(start: str) -> str:
    return f"\\{start}" if not start.isdigit() else f"{start}\\"


def _cell(value: str) -> str:
    """A value for a cell: one line, and no formula."""
    text = _one_line(value)
    return f"'{text}" if text.startswith(FORMULA) else text


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:g}"
