"""The evidence of results as BibTeX, CSV or Markdown, to cite it elsewhere."""

from __future__ import annotations

import csv
import functools
import io
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING
from urllib.parse import quote

from ..core.citation import Citation, citation_of, doi_url, family_name, is_corporate, on_pages
from ..core.text import printable
from ..core.types import Document, Evidence, Result, Sentence, Stance, Verdict
from ..core.words import as_shown, confidence_in_words, in_words, says, stance_in_words, sure, why
from ..service.types import Check
from .report import placeless
from .views import claim_view, in_short, note, outcome

if TYPE_CHECKING:
    from pylatexenc.latexencode import UnicodeToLatexEncoder

CLAIM = (
    *("claim_id", "claim", "verdict", "relevance", "verdict_in_words", "verdict_confidence", "reason", "rationale"),
    *("judged_by", "problem", "corrected_verdict", "checked", "collection", "address"),
)
"""What a row of a table says of its claim, and of a paper beside it."""
PAPER = (
    *("rank", "doc_id", "title", "authors", "year", "journal", "doi", "retracted", "stance", "leans", "confidence"),
    *("part", "sentences", "pages", "differences", "corrected_stance"),
)
SIDE = ("paper", "says", "doi", "sentence")
OF_CLAIMS = (*CLAIM, "papers", *(f"{side}_{name}" for side in ("supporting", "refuting") for name in SIDE))
FORMULA = tuple("=+-@＝＋－＠")
"""Spreadsheets take a cell that begins with one of these for a formula."""


class Citing:
    """Writes results one after the other: as bibtex (each paper once), md, csv (of papers), or claims (CSV, too)."""

    def __init__(self, format_: str) -> None:
        self._format, self._cited, self._first = format_, dict[str, str](), True

    def text(self, result: Result, check: Check, address: str | None = None) -> str:
        """The text that the result of a check adds to the output. `address`: where people find it, if it is kept."""
        self._corrections = check.standing
        self._checked = check.created[:16].replace("T", " ") + " UTC" * bool(check.created)
        self._address = address or "" if check.kept else ""
        writers = {"bibtex": self._bibtex, "csv": self._csv, "claims": self._claims, "md": self._markdown}
        text = "".join(writers[self._format](result))
        self._first = False
        return text

    def _bibtex(self, result: Result) -> Iterator[str]:
        for piece in result.evidence:
            document = piece.document
            if document.id in self._cited or (piece.stance is not None and not piece.stance.read):
                continue
            key = self._cited[document.id] = _key(citation_of(document), set(self._cited.values()))
            yield bibtex(document, key, on_pages(*piece.sentences))

    def _csv(self, result: Result) -> Iterator[str]:
        rows, claim = list[Sequence[str]](), self._claim(result)
        for piece, part in as_shown(result):
            document, stance, cited = piece.document, piece.stance or Stance(None), citation_of(piece.document)
            differences = (in_words(replace(one, role=None)) for one in piece.sentences)
            paper = (
                *(str(piece.hit.rank), document.id, document.title, "; ".join(cited.authors), cited.year),
                *(cited.journal, cited.doi or "", "true" * cited.retracted),
                *((stance.label or "") if stance.read else stance_in_words(stance), "true" * stance.leans),
                *(_number(stance.confidence if stance.read else None), part),
                *(_quotation(piece.sentences), on_pages(*piece.sentences)),
                *("; ".join(filter(None, differences)), self._corrected(document.id)),
            )
            rows.append((*claim, *paper))
        yield self._rows((*CLAIM, *PAPER), rows or [claim])

    def _claims(self, result: Result) -> Iterator[str]:
        view = claim_view(result, 1, {})
        unread = sum(not one["read"] for one in view["documents"])
        papers = [f"{many} {said}" for _, _, many, said in view["tally"]] + [f"{unread} not read"] * bool(unread)
        row = [*self._claim(result), "; ".join(papers)]
        for one in view["strongest"].values():
            quoted = "".join(each.text for each in one["evidence"].sentences[:1]) if one else ""
            said = _says(one["evidence"], one["part"]) if one else ""
            row += [one["name"], said, one["cited"].doi or "", quoted] if one else [""] * len(SIDE)
        yield self._rows(OF_CLAIMS, [row])

    def _rows(self, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
        writer = csv.writer(out := io.StringIO(), lineterminator="\n")
        writer.writerows([columns] * self._first)
        writer.writerows([*map(_cell, row), *[""] * (len(columns) - len(row))] for row in rows)
        return out.getvalue()

    def _claim(self, result: Result) -> tuple[str, ...]:
        """What `CLAIM` names."""
        verdict = result.verdict or Verdict(None)
        return (
            *(result.claim.id or "", result.claim.text, verdict.label or "", _number(result.relevance)),
            *(in_short(outcome(result), verdict.confidence), _number(verdict.confidence)),
            *(why(verdict), verdict.rationale or ""),
            *("" if verdict.method == "none" else placeless(verdict.method), str(result.error or verdict.error or "")),
            *(self._corrected(None), self._checked, placeless(result.store), self._address),
        )

    def _markdown(self, result: Result) -> Iterator[str]:
        claim = dict(zip(CLAIM, map(_md, self._claim(result)), strict=True))
        yield ("" if self._first else "\n") + f"## Claim: {claim['claim'] or claim['claim_id']}\n\n"
        shown = None if result.verdict is None else result.verdict.confidence
        confidence = "" if shown is None else f" (confidence {shown:.2f}, {sure(shown)})"
        about = "; ".join(filter(None, (claim[name] for name in ("reason", "rationale", "problem"))))
        yield f"**{claim['verdict_in_words']}**{confidence}{about and f': {about}'}\n\n"
        yield claim["judged_by"] and f"Judged by {claim['judged_by']}\n\n"
        yield from (f"{one}\n\n" for one in self._said(None))
        where = self._address and f": <{self._address}>"
        yield self._checked and f"Checked {claim['checked']} in {claim['collection']}{where}\n\n"
        for number, (piece, part) in enumerate(as_shown(result), 1):
            said = _md(_says(piece, part))
            yield f"{number}. {reference(piece.document)}{said and f' – {said}'}\n"
            for sentence in piece.sentences:
                about = _md(note(sentence))
                yield f"   > {_md(sentence.text)}{about and f' ({about})'}\n"
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


def _says(one: Evidence, part: str) -> str:
    stance = one.stance or Stance(None)
    return ", ".join(filter(None, (says(stance, part), confidence_in_words(stance))))


def _quotation(sentences: Iterable[Sentence]) -> str:
    """Sentences in the order of the paper, with an ellipsis where something stands between them."""
    ordered = sorted(sentences, key=lambda one: (one.field == "text", one.start))
    near = (one.field == after.field and after.start - one.end < 3 for one, after in pairwise(ordered))
    gaps = ["", *(" " if it else " … " for it in near)]
    return "".join(gap + one.text for gap, one in zip(gaps, ordered, strict=False))


def reference(document: Document) -> str:
    """A reference in Markdown: `Smith et al. (2019). Title. *Journal*. <https://doi.org/…>`."""
    cited = citation_of(document)
    who = _md(cited.names())
    head = f"{who} ({cited.year}). " if who and cited.year else f"{who or cited.year}. " if who or cited.year else ""
    title = _md(document.title or document.text[:80])
    where = f" *{_md(cited.journal)}*." if cited.journal else ""
    link = f" <{url}>" if (url := doi_url(cited.doi)) else f" ({_md(document.id)})"
    retracted = "**RETRACTED:** " if cited.retracted else ""
    return f"{head}{retracted}{title}.{where}{link}"


def bibtex(document: Document, key: str, quoted: str = "") -> str:
    """The document as an entry of BibTeX, in LaTeX where LaTeX has a name for a character. `quoted`: the pages of its
    file that evidence stands on."""
    from bibtexparser.entrypoint import write_string
    from bibtexparser.library import Library
    from bibtexparser.model import Entry, Field

    cited, data = citation_of(document), document.metadata
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
    """`smith2019`, or with a letter if that is taken. The name of a group is cut."""
    family = unicodedata.normalize("NFKD", family_name(cited.authors[0]) if cited.authors else "")
    name = re.sub(r"[^a-z]", "", family.lower())[:30] or "paper"
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
