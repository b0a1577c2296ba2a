"""A result as templates are given it: outcome, counts, strongest papers, gaps, and documents with evidence marked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, get_args

from ..core.analysis import sentence_spans
from ..core.citation import citation_of, doi_url, on_pages, stands_in
from ..core.stages import Fusion
from ..core.text import counted, seconds, shortened
from ..core.types import Stance
from ..core.words import LEANING, STANCES, VERDICTS, as_shown, confidence_in_words, in_words, says

if TYPE_CHECKING:
    from ..core.types import Document, Evidence, Hit, Result, Sentence
    from ..service import Correction

MAX_TEXT = 20_000
"""Characters of a document that a page holds in addition to its evidence."""
CLAIM_CHARS = 500
CONTEXT_CHARS = 600
"""Characters shown of a sentence next to the evidence."""
WEAK = 0.5
"""A verdict with less confidence is said to be weak: one paper decides, say, and others lean to the other side."""
FOLDED_CHARS = 300
"""Less than this is not worth folding away."""

SAID = {label: (VERDICTS[label][0], said) for label, said in STANCES.items()}
"""The symbol and the words of each stance."""
SIDES = ("SUPPORTS", "REFUTES")
STANCE_COUNTS = {
    "SUPPORTS": "supporting",
    "REFUTES": "refuting",
    "CONFLICTING": "both ways",
    "NOT_ENOUGH_INFO": "leaving it open",
}
FOUND_BY = {"bm25": "by its words", "dense": "by its meaning", "sparse": "by weighted words"}
"""What a retriever compares, by its usual name."""

FUSIONS = get_args(Fusion.model_fields["method"].annotation)
"""Names of fusion methods, as in recipes and results."""

Span = tuple[int, int]


def claim_view(
    result: Result, number: int, warned: dict[str, int], corrections: Sequence[Correction] = ()
) -> dict[str, Any]:
    """A claim's section. `warned` has the number of the claim that has a warning in full, and gets new ones."""
    documents = [_document(*one) for one in as_shown(result)]
    stances = [one["evidence"].stance for one in documents if one["evidence"].stance is not None and one["read"]]
    tally: Counter[tuple[str | None, bool]] = Counter((one.label, one.leans) for one in stances)
    return {
        "number": number,
        "outcome": outcome(result),
        "short": in_short(outcome(result), result.verdict.confidence if result.verdict else None),
        "reason": (result.verdict.reason if result.verdict else None) or "",
        "result": result,
        "claim": shortened(result.claim.text, CLAIM_CHARS),
        "warnings": [(text, warned.setdefault(text, number)) for text in result.warnings],
        "documents": documents,
        "tally": [
            (label, leans, many, LEANING[label].replace("leans", "leaning") if leans else said)
            for label, said in STANCE_COUNTS.items()
            for leans in (False, True)
            if (many := tally[label, leans])
        ],
        "strongest": {side: strongest(documents, side) for side in SIDES},
        "gaps": list(gaps(result)),
        "corrections": {one.doc_id: [each for each in corrections if each.doc_id == one.doc_id] for one in corrections},
        "stages": _stages([one.hit for one in result.evidence]),
        "timings": [(name, seconds(value / 1000)) for name, value in result.timings_ms.items()],
    }


def in_short(outcome: str, confidence: float | None) -> str:
    """The verdict in words: `Weakly supported` if it takes a side that is more probably wrong than right."""
    said = VERDICTS[outcome][1]
    return f"Weakly {said.lower()}" if outcome in SIDES and confidence is not None and confidence < WEAK else said


def judges(methods: Iterable[str]) -> list[str]:
    """What judged, of the methods of verdicts, each once. Where nobody judged, the verdict's reason says so."""
    return list(dict.fromkeys(one for one in methods if one not in ("", "none", "relevance", "wording")))


def outcome(result: Result) -> str:
    """The key of `VERDICTS`."""
    if result.error is not None:
        return "ERROR"
    return "NONE" if result.verdict is None or result.verdict.label is None else result.verdict.label


def strongest(documents: Sequence[Mapping[str, Any]], side: str) -> Mapping[str, Any] | None:
    """The strongest document whose stance takes this side, on a part of the claim before the whole; the first of equal
    ones. `documents` are in the order of their ranks."""
    taken = [one for one in documents if one["evidence"].stance is not None and one["evidence"].stance.label == side]
    return max(taken, key=lambda one: (one["part"] != "", one["evidence"].strength()), default=None)


def gaps(result: Result) -> Iterator[str]:
    """What was not found or not judged, in sentences."""
    parts = () if result.verdict is None else result.verdict.parts
    judged = {one.stance.label for one, _ in as_shown(result) if one.stance is not None and one.stance.label}
    if judged:
        sides = judged.union(part.label for part in parts)
        for side, said in zip(SIDES, ("supports", "refutes"), strict=True):
            if not sides & {side, "CONFLICTING"}:
                yield f"No paper that was read {said} the claim."
    for part in parts:
        # Each was checked alone, and can have papers that the whole has not.
        if elsewhere := [one for one in part.doc_ids if one not in {piece.document.id for piece in result.evidence}]:
            yield f'What decides "{part.claim}" is not among the papers shown: {", ".join(elsewhere)}.'
    failed = [it for it in (one.stance for one in result.evidence) if it is not None and it.read and it.label is None]
    for error, many in Counter(one.error or "no reason was given" for one in failed).most_common(3):
        yield f"{counted(many, 'paper')} could not be judged: {error}"
    unread = sum(one.stance is None or not one.stance.read for one in result.evidence) if judged or failed else 0
    if unread:
        yield f"{counted(unread, 'further paper')} {'was' if unread == 1 else 'were'} found and not judged."
    if result.evidence:
        many = len(result.evidence)
        shown = f"the {many:,} best matches in this collection are" if many > 1 else "one match in this collection is"
        yield f"Only {shown} shown. A paper that is not in it, or that says this in other words, is missing here."


def why_found(hit: Hit) -> str:
    """How a document came to its place, in words: `Found by its words (rank 3) and by its meaning (rank 1).`"""
    found = [
        f"{FOUND_BY.get(name, f'by {name}')} (rank {rank})" for name, rank in hit.ranks.items() if name not in FUSIONS
    ]
    if not found:
        return ""
    said = f"Found {' and '.join(found)}."
    before = next((hit.ranks[name] for name in FUSIONS if name in hit.ranks), None)
    if before is not None and before != hit.rank:
        said += f" Reading claim and paper together moved it from place {before} to {hit.rank}."
    return said


def _document(evidence: Evidence, part: str) -> dict[str, Any]:
    document, stance = evidence.document, evidence.stance
    metadata, cited = document.metadata, citation_of(document)
    doi = metadata.get("doi") or metadata.get("DOI")
    spans = evidence_spans(document, evidence.sentences, "text")
    parts = pieces(document.text, spans, CONTEXT_CHARS)
    notes = {one.start: note(one) for one in evidence.sentences if one.field == "text"}
    # A saved answer has the sentences of a text, and not the text.
    alone = [one for one in evidence.sentences if one.field == "text" and not document.text]
    far = sum(part.end - part.start for part in parts if part.kind == "far")
    return {
        "evidence": evidence,
        "part": part,
        "says": says(stance or Stance(None), part),
        "read": stance is None or stance.read,
        "confidence": confidence_in_words(stance) if stance is not None and stance.label else "",
        "name": document.title or shortened(document.text, 80) or document.id,
        "title": _title(document, evidence),
        "year": str(metadata.get("year") or cited.year or ""),
        "why": why_found(evidence.hit),
        "cited": cited,
        "doi": doi,
        "url": doi_url(doi),
        "parts": list(_up_to(len(document.text), document.text, parts, notes)),
        "folded": far > FOLDED_CHARS,
        "whole": list(_up_to(MAX_TEXT, document.text, parts, notes)),
        "too_long": len(document.text) > MAX_TEXT,
        "alone": [(one.text, note(one)) for one in alone],
        "astray": [one for one in evidence.sentences if one not in alone and not stands_in(document, one)],
    }


def note(sentence: Sentence) -> str:
    """What stands beside a sentence: its role in the paper and its page, as far as they are known."""
    return ", ".join(part for part in (in_words(sentence), on_pages(sentence)) if part)


def _title(document: Document, evidence: Evidence) -> list[tuple[bool, str]]:
    """The title in pieces, each with whether it is evidence."""
    spans = evidence_spans(document, evidence.sentences, "title")
    cuts = sorted({0, len(document.title), *(offset for span in spans for offset in span)})
    title = [((start, end) in spans, document.title[start:end]) for start, end in pairwise(cuts)]
    return title or [(False, shortened(document.text, 80) or document.id)]


def _up_to(limit: int, text: str, parts: Iterable[Piece], notes: Mapping[int, str]) -> Iterator[tuple[str, str, str]]:
    """The kind of each part, its text, and the note of the sentence that begins there, if it is evidence."""
    for part in parts:
        if part.start < limit:
            said = notes.get(part.start, "") if part.kind == "evidence" else ""
            yield part.kind, text[part.start : min(part.end, limit)], said


def _stages(hits: Sequence[Hit]) -> list[str]:
    """The names of the stages that ranked documents."""
    names = dict.fromkeys(name for hit in hits for name in (*hit.ranks, *hit.scores))
    # As a pipeline runs: retrievers, which have ranks of their own, the fusion, the rerankers.
    return sorted(names, key=lambda name: (all(name not in hit.ranks for hit in hits), name in FUSIONS))


# -- evidence with the text around it


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a text, by its character offsets: `evidence`, `near` it, or `far` from it."""

    start: int
    end: int
    kind: Literal["evidence", "near", "far"]


def evidence_spans(document: Document, sentences: Iterable[Sentence], field: Literal["title", "text"]) -> list[Span]:
    """Where evidence stands in a field: in order, and those that overlap as one."""
    found = sorted((one.start, one.end) for one in sentences if one.field == field and stands_in(document, one))
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
