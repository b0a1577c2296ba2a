"""The report: results as one HTML page that needs nothing else.

The page holds its own styles and script, a policy that lets it fetch nothing, and no markup from elsewhere: see
`core/page.py`.
"""

from __future__ import annotations

import functools
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, get_args

from .. import __version__
from ..core.adjust import printed
from ..core.analysis import sentence_spans
from ..core.citation import citation_of, doi_url
from ..core.files import writing
from ..core.page import environment
from ..core.settings import SECRETS, shown
from ..core.stages import Fusion
from ..core.text import counted, seconds, shortened
from ..core.words import OPEN, STANCES, VERDICTS

if TYPE_CHECKING:
    import jinja2

    from ..core.recipe import Recipe
    from ..core.settings import Resolved
    from ..core.types import Document, Evidence, Result, Role, Sentence

MAX_TEXT = 20_000
"""Characters of a document that a page holds in addition to its evidence."""
CLAIM_CHARS = 500
CONTEXT_CHARS = 600
"""Characters shown of a sentence next to the evidence."""
FOLDED_CHARS = 300
"""Less than this is not worth folding away."""

SAID = {label: (VERDICTS[label][0], said) for label, said in STANCES.items()}
"""The symbol and the words of each stance."""

FUSIONS = get_args(Fusion.model_fields["method"].annotation)
"""Names of fusion methods, as in recipes and results."""

RARE = ("ingest", "rewriting")
"""The parts of a recipe that do nothing where it does not name them."""

PRIVATE = {
    *("data_dir", "cache_dir", "cache_bytes", "elasticsearch_username", "elasticsearch_ca_certs"),
    *SECRETS,
}
"""Settings that a report does not show."""

About = Mapping[str, str | Sequence[str]]
Span = tuple[int, int]


def write_report(path: str | Path, results: Iterable[Result], about: About) -> None:
    """Write the page of some results; `about` is `writing_report`'s. Raises UsageError."""
    with writing_report(path, about) as add:
        for result in results:
            add(result)


@contextmanager
def writing_report(path: str | Path, about: About, reads: Sequence[str] = ()) -> Iterator[Callable[[Result], None]]:
    """Yields what takes each result in turn; the page is there when the context ends well, and else nothing changes.

    `about` is what the page says at its end of models, recipe and settings, by heading; it is read when the page is
    put together. It must hold no secrets: `about_run` makes one without. Results are put into words as they come and
    kept on disk, so their number is not bounded by memory. Files in `reads` are not overwritten. Raises UsageError, at
    once, where the file can't be written.
    """
    summary = _Summary()
    with (
        writing(path, "the report", reads) as page,
        tempfile.TemporaryFile("w+", encoding="utf-8", newline="\n", dir=Path(path).parent) as claims,
    ):
        section = _environment().get_template("report_claim.html")
        yield lambda result: claims.writelines(section.generate(summary.add(result)))
        claims.seek(0)
        page.writelines(_environment().get_template("report.html").generate(_page(summary, about, claims)))


def about_run(resolved: Resolved, recipe: Recipe, models: Sequence[str] = ()) -> dict[str, list[str]]:
    """A report's facts about a run: the models that the caller names, the recipe's stages, the settings that are set.

    A page is made to be sent: it has no secrets, URLs come without their passwords, and what only says where things
    lie on this machine is left out.
    """
    given = printed(recipe)
    stages = [f"{placeless(old)} is replaced by {placeless(new)}" for old, new in given.pop("replace", {}).items()]
    unused = set(RARE) - recipe.model_fields_set
    stages += [f"{name}: {_plain(stage)}" for name, stage in given.items() if stage and name not in unused]
    settings = [
        f"{name} = {placeless(str(shown(getattr(resolved.settings, name))))} (from {Path(origin).name})"
        for name, origin in resolved.origins.items()
        if origin != "default" and name not in PRIVATE
    ]
    about = {
        "Models": [f"{kind}{sign}{placeless(name)}" for kind, sign, name in (one.partition(": ") for one in models)],
        f"Recipe {recipe.name}": stages,
        "Settings": settings or ["all defaults"],
    }
    return {heading: lines for heading, lines in about.items() if lines}


_PLACE = re.compile(r"^((?:[\w-]+:)?)(?!//)(?:/|~/|\.{1,2}/|[A-Za-z]:\\).*[/\\](?=.)", re.DOTALL)


def placeless(name: str) -> str:
    """A model, a store or a file by its last name, if it is a path on this machine; anything else as it is."""
    return _PLACE.sub(r"\1", name.rstrip("/") if "://" not in name else name)


def _plain(value: object) -> str:
    """A part of a recipe in words: `bm25 (kind bm25, depth 100), dense (…)`."""
    if isinstance(value, Mapping):
        given = {key: one for key, one in value.items() if one not in ({}, [])}
        parts = {key: f"({_plain(one)})" if isinstance(one, Mapping) else _plain(one) for key, one in given.items()}
        return ", ".join(f"{key} {part}" for key, part in parts.items())
    return " ".join(placeless(str(one)) for one in value) if isinstance(value, list) else placeless(str(value))


@functools.cache
def _environment() -> jinja2.Environment:
    words = {"verdicts": VERDICTS, "stances": SAID, "open": OPEN}
    return environment(__package__ or "", "report.css", "report.js", counted=counted, **words)


# -- what the templates are given


@dataclass
class _Summary:
    """The page's summary of all claims."""

    claims: list[tuple[str, str, str]] = field(default_factory=list)
    """Each claim's text, its outcome, and why it is open."""
    recipes: dict[str, None] = field(default_factory=dict)
    stores: dict[str, None] = field(default_factory=dict)
    warned: dict[str, int] = field(default_factory=dict)
    """Each warning with the number of the claim that has it in full."""

    def add(self, result: Result) -> dict[str, Any]:
        outcome = _outcome(result)
        reason = (result.verdict.reason if result.verdict else None) or ""
        self.claims.append((shortened(result.claim.text, 160), outcome, reason))
        self.recipes[result.recipe] = self.stores[placeless(result.store)] = None
        number = len(self.claims)
        return {
            "number": number,
            "outcome": outcome,
            "reason": reason,
            "result": result,
            "claim": shortened(result.claim.text, CLAIM_CHARS),
            "cut": len(result.claim.text) > CLAIM_CHARS,
            "warnings": [(text, self.warned.setdefault(text, number)) for text in result.warnings],
            "documents": [_document(evidence) for evidence in result.evidence],
            "way": _way(result.evidence),
            "timings": [(name, seconds(value / 1000)) for name, value in result.timings_ms.items()],
        }


def _outcome(result: Result) -> str:
    if result.error is not None:
        return "ERROR"
    return "NONE" if result.verdict is None or result.verdict.label is None else result.verdict.label


def _page(summary: _Summary, about: About, claims: IO[str]) -> dict[str, Any]:
    from markupsafe import Markup

    blocks = iter(functools.partial(claims.read, 1 << 16), "")
    counts = Counter(outcome for _, outcome, _ in summary.claims)
    reasons = Counter(reason for *_, reason in summary.claims)
    return {
        "summary": summary,
        "counts": {outcome: counts[outcome] for outcome in VERDICTS if counts[outcome]},
        "reasons": {reason: reasons[reason] for reason in OPEN if reasons[reason]},
        "about": {heading: [said] if isinstance(said, str) else list(said) for heading, said in about.items()},
        "claims": (Markup(block) for block in blocks),  # noqa: S704 - made by report_claim.html
        "version": __version__,
        "date": datetime.now(UTC),
    }


def _document(evidence: Evidence) -> dict[str, Any]:
    document = evidence.document
    metadata = document.metadata
    cited = citation_of(document)
    doi = metadata.get("doi") or metadata.get("DOI")
    spans = evidence_spans(document, evidence.sentences, "text")
    parts = pieces(document.text, spans, CONTEXT_CHARS)
    roles = {one.start: one.role for one in evidence.sentences if one.field == "text"}
    # A saved answer has the sentences of a text, and not the text.
    alone = [one for one in evidence.sentences if one.field == "text" and not document.text]
    far = sum(part.end - part.start for part in parts if part.kind == "far")
    return {
        "evidence": evidence,
        "id": document.id,
        "title": _title(document, evidence),
        "year": metadata.get("year") or cited.year,
        "names": cited.names(),
        "journal": cited.journal,
        "retracted": cited.retracted,
        "doi": doi,
        "url": doi_url(doi),
        "parts": list(_up_to(len(document.text), document.text, parts, roles)),
        "folded": far > FOLDED_CHARS,
        "whole": list(_up_to(MAX_TEXT, document.text, parts, roles)),
        "characters": len(document.text),
        "too_long": len(document.text) > MAX_TEXT,
        "alone": alone,
        "astray": [one for one in evidence.sentences if one not in alone and not in_place(one, document)],
    }


def _title(document: Document, evidence: Evidence) -> list[tuple[bool, str]]:
    """The title in pieces, each with whether it is evidence."""
    spans = evidence_spans(document, evidence.sentences, "title")
    cuts = sorted({0, len(document.title), *(offset for span in spans for offset in span)})
    title = [((start, end) in spans, document.title[start:end]) for start, end in pairwise(cuts)]
    return title or [(False, shortened(document.text, 80) or document.id)]


def _up_to(
    limit: int, text: str, parts: Iterable[Piece], roles: Mapping[int, Role | None]
) -> Iterator[tuple[str, str, Role | None]]:
    """The kind of each part, its text, and the role of the sentence that begins there, if it is evidence."""
    for part in parts:
        if part.start < limit:
            role = roles.get(part.start) if part.kind == "evidence" else None
            yield part.kind, text[part.start : min(part.end, limit)], role


def _way(evidence: Sequence[Evidence]) -> dict[str, Any]:
    """How the documents ranked: by name of each stage the cells of its column."""
    hits = [one.hit for one in evidence]
    names = dict.fromkeys(name for hit in hits for name in (*hit.ranks, *hit.scores))
    # As a pipeline runs: retrievers, which have ranks of their own, the fusion, the rerankers.
    order = sorted(names, key=lambda name: (all(name not in hit.ranks for hit in hits), name in FUSIONS))
    return {
        "names": order,
        "rows": [
            (one.hit, [(one.hit.ranks.get(name), one.hit.scores.get(name), name in one.hit.cut) for name in order])
            for one in evidence
        ],
    }


# -- evidence with the text around it


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a text, by its character offsets: `evidence`, `near` it, or `far` from it."""

    start: int
    end: int
    kind: Literal["evidence", "near", "far"]


def in_place(sentence: Sentence, document: Document) -> bool:
    """Whether a sentence is in its document at its offsets."""
    text = document.title if sentence.field == "title" else document.text
    return 0 <= sentence.start < sentence.end <= len(text) and text[sentence.start : sentence.end] == sentence.text


def evidence_spans(document: Document, sentences: Iterable[Sentence], field: Literal["title", "text"]) -> list[Span]:
    """Where evidence stands in a field: in order, and those that overlap as one."""
    found = sorted((one.start, one.end) for one in sentences if one.field == field and in_place(one, document))
    spans: list[Span] = []
    for start, end in found:
        if spans and start < spans[-1][1]:
            spans[-1] = spans[-1][0], max(end, spans[-1][1])
        else:
            spans.append((start, end))
    return spans


def pieces(text: str, evidence: Sequence[Span], room: int) -> list[Piece]:
    """The whole text in pieces, in order and without gaps; `evidence` comes in order, and none overlaps another.

    `near` is what the sentences before and after evidence have within `room` characters of it, and what evidence leaves
    of the sentence that it is in. Without evidence, it is how the text begins.
    """
    near = list(_neighbours(text, evidence, room))
    cuts = sorted({0, len(text), *(offset for span in (*evidence, *near) for offset in span)})
    beginnings = {start for start, _ in evidence}
    found: list[Piece] = []
    for start, end in pairwise(cuts):
        kind: Literal["evidence", "near", "far"] = "far"
        if any(first <= start and end <= last for first, last in evidence):
            kind = "evidence"
        elif any(first <= start and end <= last for first, last in near) or text[start:end].isspace():
            kind = "near"
        # Sentences of evidence side by side stay apart; else what is alike is one piece.
        if found and kind == found[-1].kind and start not in beginnings:
            found[-1] = Piece(found[-1].start, end, kind)
        else:
            found.append(Piece(start, end, kind))
    return found


def _neighbours(text: str, evidence: Sequence[Span], room: int) -> Iterator[Span]:
    sentences = sentence_spans(text)
    if not evidence:
        yield from ((start, min(end, start + 2 * room)) for start, end in sentences[:1])
    for start, end in evidence:
        touched = [i for i, (first, last) in enumerate(sentences) if first < end and start < last]
        if touched:
            before = sentences[max(0, touched[0] - 1)][0]
            after = sentences[min(len(sentences) - 1, touched[-1] + 1)][1]
            yield max(min(before, start), start - room), min(max(after, end), end + room)
