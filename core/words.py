"""Labels and reasons in words, as the terminal, the report and the pages of the service show them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from .types import Evidence, Result, Sentence, Stance, Verdict

STANCES = {
    "SUPPORTS": "supports",
    "REFUTES": "refutes",
    "CONFLICTING": "supports and refutes",
    "NOT_ENOUGH_INFO": "leaves it open",
}
"""A document's stance on the claim."""
LEANING = {
    "SUPPORTS": "leans to supporting it",
    "REFUTES": "leans to refuting it",
    "CONFLICTING": "leans both ways",
}
"""A stance that takes a side, too weakly to decide a verdict."""
OPEN = {
    "no_claim": "this is no claim",
    "nothing_bears": "nothing here bears on it",
    "left_open": "papers bear on it and leave it open",
    "leans_to_support": "papers lean to supporting it, too weakly to say",
    "leans_to_refute": "papers lean to refuting it, too weakly to say",
    "disagreement": "papers disagree",
    "not_judged": "nobody could judge it",
}
"""Why a verdict takes no side."""
VERDICTS = {
    "SUPPORTS": ("✓", "Supported"),
    "REFUTES": ("✗", "Refuted"),
    "CONFLICTING": ("⇄", "Conflicting evidence"),
    "NOT_ENOUGH_INFO": ("○", "Not enough information"),
    "NONE": ("–", "No verdict"),
    "ERROR": ("!", "Not checked"),
}
"""The symbol and the words of each outcome, in the order in which they are counted."""


def why(verdict: Verdict) -> str:
    """Why a verdict takes no side, or which of a sentence's claims refute it: `1 of 2 claims refuted: "it falls"`."""
    refuted = [f'"{one.claim}"' for one in verdict.parts if one.label == verdict.label == "REFUTES"]
    told = f"{len(refuted)} of {len(verdict.parts)} claims refuted: {'; '.join(refuted)}" if refuted else ""
    return OPEN.get(verdict.reason or "", told)


def sure(confidence: float) -> str:
    """About how often a calibrated judge is right: nearly always, mostly, or about as often as not. The word is that of
    the two digits that are shown beside it."""
    shown = float(f"{confidence:.2f}")
    return "high" if shown >= 0.85 else "moderate" if shown >= 0.65 else "low"


def stance_in_words(stance: Stance) -> str:
    """What a document says of the claim; empty if that could not be determined."""
    if not stance.read:
        return "not read"
    if _is_unclear(stance):
        return "unclear"
    return (LEANING if stance.leans else STANCES)[stance.label] if stance.label else ""


def confidence_in_words(stance: Stance) -> str:
    """How sure a judge is, with a word unless the stance only leans; empty if it does not say, can't tell, or did not
    read."""
    if stance.confidence is None or not stance.read or _is_unclear(stance):
        return ""
    return f"confidence {stance.confidence:.2f}" + ("" if stance.leans else f", {sure(stance.confidence)}")


def _is_unclear(stance: Stance) -> bool:
    """Whether a judge takes no side, and thinks it less than likely that the document takes none."""
    return stance.label == "NOT_ENOUGH_INFO" and stance.confidence is not None and stance.confidence < 0.5


def as_shown(result: Result) -> Iterator[tuple[Evidence, str]]:
    """Evidence as it is shown, each with the part of the claim that its stance is on, if that is not the whole claim.

    A paper that takes the side of a part has its label, and the first of them its confidence, which is not known of the
    others. The sentences of a paper that no judge read are no evidence.
    """
    verdict = result.verdict or Verdict(None)
    parts = sorted(verdict.parts, key=lambda part: part.label != verdict.label)
    for one in result.evidence:
        part = next((part for part in parts if one.document.id in part.doc_ids), None)
        if part is not None:
            sure = part.confidence if one.document.id == part.doc_ids[0] else None
            yield replace(one, stance=Stance(part.label, sure, decides=True)), part.claim
        else:
            yield (one if one.stance is None or one.stance.read else replace(one, sentences=())), ""


def says(stance: Stance, part: str) -> str:
    """What a paper says of the claim, or of a part of it: `refutes "it falls"`."""
    return stance_in_words(stance) + (part and f' "{part}"')


def in_words(sentence: Sentence) -> str:
    """A sentence's role, and how it differs from the claim: `result, differs in a number (claim: 30 %, paper: 3 %)`."""
    said: list[str] = [sentence.role] if sentence.role else []
    for one in sentence.differences:
        both = ", ".join(f"{who}: {what}" for who, what in (("claim", one.claim), ("paper", one.sentence)) if what)
        kind = {"order": "the order", "certainty": "certainty or scope"}.get(one.kind, f"a {one.kind}")
        said.append(f"differs in {kind} ({both})")
    return ", ".join(said)
