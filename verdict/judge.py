"""Judges: claims with their evidence in, a stance for each document and a verdict for each claim out.

The verdict follows from the stances by the rule that docs/verdicts.md states:

1. A document supports its side with the probability p = confidence * weight, which falls by half every `HALF_LIFE`
   ranks: what is found further down is less likely to be about the claim.
2. P(side) = 1 - product of (1 - p): the probability that at least one of its documents is right (a noisy or).
3. A side is strong if P(side) of its documents that are sure enough (`decides`) is above one half. Guesses don't add
   up to a side: a weak judge guesses something of each document, and most are not about the claim.
4. The confidence of a side is the mean confidence of its decisive documents, weighted by rank, times 1 - P(other side)
   of the decisive ones: guesses about papers further down make no verdict less sure. More documents of one mind make it
   no surer: their errors are a method's, and not independent (with the noisy or as confidence, the expected calibration
   error was .37 instead of .11 on Climate-FEVER, read by a weak classifier). Of NOT_ENOUGH_INFO it is that of the
   document that is least sure to leave the claim open, times 1 - P(side) for both.
5. A document that could not be judged counts in 4, for each side, as one that is right with the probability `UNREAD` *
   weight. If the verdict would then probably have been another, there is none (`benchmarks/failed_judgements.py`).

With stances that are certain, the rule is Climate-FEVER's own (up to rank `HALF_LIFE`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, get_args

from ..core.analysis import MADE_FOR, Wording, foreign_language
from ..core.errors import CcheckError
from ..core.types import Claim, Document, Evidence, Label, Part, Reason, Sentence, Stance, Usage, Verdict, document_text
from ..core.words import LEANING, VERDICTS
from .differences import differences
from .labels import STANCES
from .roles import with_roles

GROUP = 64
"""About how many pairs a method reads together. The claims of a group are ready together."""
FAR = Stance(None, rationale="much farther from the claim than the nearest paper", decides=False, read=False)
"""Of the papers that support or refute a claim, one in a hundred at most lies there; of Climate-FEVER's single
sentences one in ten (`benchmarks/far.py`)."""
NO_TEXT = "the document has neither title nor text"
HALF_LIFE = 20
"""A document this many ranks further down counts half."""
ASSUMED_CONFIDENCE = 0.8
"""The confidence of a stance whose method gives none."""
UNREAD = 0.07
"""How probable it is that a document that could not be judged is on a given side: fitted to half of Climate-FEVER."""
NO_DOCUMENTS = "no documents were found to judge"
_VERBS: dict[Label, str] = {"SUPPORTS": "supports", "REFUTES": "refutes"}


class Judge(Protocol):
    """A user's own judge, of one claim. An exception becomes the verdict's error, never a label."""

    def __call__(self, claim: Claim, evidence: Sequence[Evidence]) -> tuple[Sequence[Stance], Verdict]:
        """The stance of each piece of evidence, in order, and the verdict."""
        ...


@dataclass(frozen=True, slots=True)
class Case:
    """A claim with the evidence to judge, best first.

    `far` has the places of what lies so far from the claim that it need not be read. `tell` is told the stance of a
    piece of evidence, by its place, as soon as a method has it that asks about each.
    """

    claim: Claim
    evidence: tuple[Evidence, ...]
    far: frozenset[int] = frozenset()
    tell: Callable[[int, Stance], None] = field(default=lambda place, stance: None, compare=False)


@dataclass(frozen=True, slots=True)
class Judged:
    """A method's answer for a case: a stance for each piece of evidence, in order.

    `quotes` are the sentences that the method itself gave as its reasons, for each piece of evidence, with the offsets
    at which they stand in the document; empty if it gives none. `seconds`: what the case took, if the method knows; of
    cases that are read together, each has its share.
    """

    stances: tuple[Stance, ...]
    quotes: tuple[tuple[Sentence, ...], ...] = ()
    usage: Usage = field(default_factory=Usage)
    seconds: float | None = None


class StanceMethod(Protocol):
    """Tells what documents say about claims. `name` is its name in results: `llm:gpt-4.1 (one-step)`,
    `stance:FOLDER`."""

    name: str

    def __call__(self, cases: Sequence[Case]) -> Iterator[Judged]:
        """One for each case, in order, each as soon as it is there.

        A document that can't be judged gets a stance without a label, with its error. Raises CcheckError for failures
        that concern all.
        """
        ...


def all_judged(method: StanceMethod, cases: Sequence[Case]) -> Iterator[Judged]:
    """One for each case. If the method fails altogether, the remaining cases have its error."""
    done = 0
    try:
        for judged in method(cases):
            done += 1
            yield judged
    except CcheckError as error:
        for case in cases[done:]:
            yield Judged(tuple(Stance(None, error=str(error)) for _ in case.evidence))


class PairStances:
    """A `StanceMethod` that reads pairs of claim and document, about `GROUP` at a time.

    With `english_only`, a pair in another language is not read, as names that both share would be taken for support.
    """

    name = ""
    english_only = False

    def read(self, pairs: Sequence[tuple[str, Document]]) -> list[Stance]:
        """The stance of each pair; one that can't be read has no label and an error."""
        raise NotImplementedError

    def __call__(self, cases: Sequence[Case]) -> Iterator[Judged]:
        """See `StanceMethod`."""
        group: list[Case] = []
        for number, case in enumerate(cases, 1):
            group.append(case)
            if number == len(cases) or sum(len(case.evidence) for case in group) >= GROUP:
                started = time.perf_counter()
                pairs = [
                    (one.claim.text, it.document)
                    for one in group
                    for place, it in enumerate(one.evidence)
                    if place not in one.far
                ]
                stances = iter(self._stances(pairs))
                made = [
                    tuple(FAR if place in one.far else next(stances) for place in range(len(one.evidence)))
                    for one in group
                ]
                share = (time.perf_counter() - started) / len(group)
                yield from (Judged(one, seconds=share) for one in made)
                group = []

    def _stances(self, pairs: Sequence[tuple[str, Document]]) -> list[Stance]:
        reasons = [_foreign(*pair) if self.english_only else None for pair in pairs]
        read = iter(self.read([pair for pair, why in zip(pairs, reasons, strict=True) if why is None]))
        return [next(read) if why is None else Stance(None, error=why) for why in reasons]


def _foreign(claim: str, document: Document) -> str | None:
    """Why a pair is not judged; None if it is English."""
    for what, text in (("claim", claim), ("document", document.text or document_text(document.title, ""))):
        if (language := foreign_language(text)) is not None:
            return (
                f"the {what} seems to be in {language}, and this judge was made for {MADE_FOR}. Use a language model "
                "(--llm), which reads other languages"
            )
    return None


def decides(stance: Stance) -> bool:
    """Whether a stance alone would decide a verdict, at the first rank."""
    return stance.label in (*_VERBS, "CONFLICTING") and not stance.leans


def likeliest(probabilities: Sequence[float], threshold: float = 0.0, *, supports: bool = True) -> Stance:
    """The stance of the label with the highest probability. `probabilities` are in the order of `STANCES`.

    NOT_ENOUGH_INFO if that is a side with a probability below the threshold, or SUPPORTS, which can't be (`supports`).
    """
    named: dict[str, float] = {label: round(float(it), 6) for label, it in zip(STANCES, probabilities, strict=True)}
    label = max(STANCES, key=lambda label: named[label])
    if named[label] < threshold or (label == "SUPPORTS" and not supports):
        label = "NOT_ENOUGH_INFO"
    return Stance(label, named[label], probabilities=named)


def with_stances(claim: str, evidence: Sequence[Evidence], judged: Judged, count: int) -> tuple[Evidence, ...]:
    """The evidence with stances; a method's own quotes come before the sentences that were chosen."""
    quotes = judged.quotes or ((),) * len(judged.stances)
    read = [
        replace(
            piece,
            stance=stance,
            sentences=_first(with_roles(own, piece.document.text), piece.sentences, count),
        )
        for piece, stance, some in zip(evidence, judged.stances, quotes, strict=False)
        for own in ([replace(one, differences=differences(claim, one.text)) for one in some],)
    ]
    return (*read, *evidence[len(read) :])


def _first(own: Sequence[Sentence], chosen: Sequence[Sentence], count: int) -> tuple[Sentence, ...]:
    apart = [
        one
        for one in chosen
        if not any(one.field == quote.field and one.start < quote.end and quote.start < one.end for quote in own)
    ]
    return (*own, *apart)[: max(count, len(own))]


# -- the verdict

_REASONS: tuple[Reason, ...] = get_args(Reason)
_NO_CLAIM: dict[Wording, str] = {
    "open_question": "this question is not answered by yes or no",
    "greeting": "this is a greeting",
    "command": "this is an instruction",
    "opinion": "this is an opinion or a wish",
    "address": "this is an address, whose page is not read",
}


def conclude(evidence: Sequence[Evidence], method: str) -> Verdict:
    """The verdict that follows from the stances of the evidence, best first, by the rule above.

    Its confidence is between 0 and 1. If no document could be judged, or too few, the label is None; `error` says
    why, and also of a verdict that was made without some of the documents.
    """
    judged = _judged(evidence)
    read = [piece for piece in judged if piece.stance and piece.stance.label is not None]
    if not read:
        return _counted(Verdict(None, method=method, error=NO_DOCUMENTS if not judged else None), evidence)
    decisive = [piece for piece in read if piece.stance and decides(piece.stance)]
    strong = {side for side in _VERBS if side_probability(decisive, side) > 0.5}
    label: Label = "CONFLICTING" if len(strong) > 1 else next(iter(strong), "NOT_ENOUGH_INFO")
    supports, refutes = (side_probability(read, side) for side in _VERBS)
    confidence = {
        "SUPPORTS": _mean(decisive, "SUPPORTS") * (1 - side_probability(decisive, "REFUTES")),
        "REFUTES": _mean(decisive, "REFUTES") * (1 - side_probability(decisive, "SUPPORTS")),
        "NOT_ENOUGH_INFO": _least(read) * (1 - supports) * (1 - refutes),
        "CONFLICTING": min(_mean(decisive, "SUPPORTS"), _mean(decisive, "REFUTES")),
    }[label]
    reason = _reason(label, supports, refutes)
    said = _rationale(judged, read, label)
    unread = sum(piece.stance is not None for piece in evidence) - len(judged)
    said += f"; {_papers(unread)} not read" if unread else ""
    return _counted(Verdict(label, confidence, said, method, reason=reason), evidence)


def _judged(evidence: Sequence[Evidence]) -> list[Evidence]:
    """What was given to the judge; papers too far from the claim were not."""
    return [piece for piece in evidence if piece.stance is not None and piece.stance.read]


def of_parts(parts: Sequence[Part], whole: Verdict) -> Verdict:
    """The verdict on a sentence that makes several claims, which were judged one by one, in place of that on the whole.

    It is refuted if one of them is, supported if all are. Its confidence is that of the part that decides: the surest
    refutation, else the least sure part.
    """
    labels = {part.label for part in parts}
    label: Label | None = (
        "REFUTES" if "REFUTES" in labels
        else None if None in labels
        else labels.pop() if len(labels) == 1
        else "CONFLICTING" if "CONFLICTING" in labels and "NOT_ENOUGH_INFO" not in labels
        else "NOT_ENOUGH_INFO"
    )  # fmt: skip
    sure = [part.confidence for part in parts if part.label == label and part.confidence is not None]
    confidence = (max if label == "REFUTES" else min)(sure, default=None)
    said = f"{len(parts)} claims, each checked alone: " + "; ".join(map(_in_words, parts))
    if label is None:
        return replace(whole, label=None, confidence=None, rationale=None, error=said, parts=tuple(parts))
    # Why it is open is what is known of its parts: a paper that bears on one of them bears on the sentence.
    reasons: set[Reason] = {part.reason or "left_open" for part in parts if part.label == "NOT_ENOUGH_INFO"}
    open_: Reason = min(reasons, key=_REASONS.index, default="left_open")
    reason: Reason | None = None if label in _VERBS else "disagreement" if label == "CONFLICTING" else open_
    return replace(whole, label=label, confidence=confidence, rationale=said, reason=reason, parts=tuple(parts))


def _in_words(part: Part) -> str:
    outcome = VERDICTS[part.label or "NONE"][1].lower()
    sure = "" if part.confidence is None else f" ({part.confidence:.2f})"
    return f'"{part.claim}": {outcome}{sure}' + (f", {part.rationale}" if part.rationale else "")


def no_claim(wording: Wording) -> Verdict | None:
    """The verdict on a text that claims nothing: a question that yes or no does not answer, a greeting, a command, an
    opinion. None for a claim, and for a question that yes or no answers."""
    what = _NO_CLAIM.get(wording)
    if what is None:
        return None
    why = f"{what}, so there is nothing to support or refute. Write a claim instead"
    return Verdict("NOT_ENOUGH_INFO", None, why, "wording", reason="no_claim")


def nothing_bears(relevance: float, found: int, empty: str = "") -> Verdict:
    """The verdict on a claim that nothing in the collection bears on, as far as can be told from what was found.

    `relevance` is the probability that something does, `found` how many documents were found. `empty` says why
    there are none.
    """
    reason = (
        f"nothing in this collection seems to bear on the claim (probability {relevance:.2f} that something does). The "
        "documents found only share words or a subject with it, and were not judged"
        if found
        else "nothing was found for the claim" + (f": {empty}" if empty else "")
    )
    # If nothing was found, nothing was read that a confidence could rest on.
    confidence = round(1 - relevance, 6) if found else None
    return Verdict("NOT_ENOUGH_INFO", confidence, reason, "relevance", reason="nothing_bears")


def _reason(label: Label, supports: float, refutes: float) -> Reason | None:
    """Why a verdict takes no side, from the probabilities of both sides, guesses included."""
    if label in _VERBS:
        return None
    if supports == refutes == 0:
        return "left_open"
    if label == "CONFLICTING" or supports / 2 <= refutes <= 2 * supports:
        return "disagreement"
    return "leans_to_support" if supports > refutes else "leans_to_refute"


def _counted(verdict: Verdict, evidence: Sequence[Evidence]) -> Verdict:
    """A verdict that was made of what could be judged, with what could not: counted, named, and weighed by rule 5."""
    judged = _judged(evidence)
    failed = [piece for piece in judged if piece.stance and piece.stance.label is None]
    verdict = replace(verdict, judged=len(judged) - len(failed), failed=len(failed))
    if not failed:
        return verdict if verdict.confidence is None else replace(verdict, confidence=round(verdict.confidence, 6))
    stays = _stays(failed, verdict.label) if verdict.label is not None else 0.0
    error = _why_not(failed, len(judged))
    if stays < 0.5:
        if verdict.label is not None:
            error = f"too few documents were judged for a verdict: {error}"
        return replace(verdict, label=None, confidence=None, rationale=None, error=verdict.error or error)
    confidence = None if verdict.confidence is None else round(verdict.confidence * stays, 6)
    return replace(verdict, confidence=confidence, error=error)


def _stays(failed: Sequence[Evidence], label: Label) -> float:
    """How probable it is that a verdict would be the same, had these been judged: none is on another side."""
    others = sum(label not in (side, "CONFLICTING") for side in _VERBS)
    return math.prod((1 - UNREAD * _weight(piece)) ** others for piece in failed)


def side_probability(evidence: Sequence[Evidence], side: Label) -> float:
    """The probability that at least one document of a side is right."""
    wrong = 1.0
    for piece in evidence:
        wrong *= 1 - _strength(piece, side)
    return 1 - wrong


def _strength(piece: Evidence, side: Label) -> float:
    """How probable it is that a document is on a side; one that conflicts in itself is on both."""
    stance = piece.stance
    return _confidence(piece) * _weight(piece) if stance and stance.label in (side, "CONFLICTING") else 0.0


def _mean(evidence: Sequence[Evidence], side: Label) -> float:
    """The mean confidence of the documents that say so, weighted by rank; 1 if none does."""
    said = [piece for piece in evidence if piece.stance and piece.stance.label in (side, "CONFLICTING")]
    total = sum(map(_weight, said))
    return sum(_confidence(piece) * _weight(piece) for piece in said) / total if total else 1.0


def _least(evidence: Sequence[Evidence]) -> float:
    """How sure the document is that is least sure to leave the claim open; 1 if none leaves it open. One that is found
    far down takes away less."""
    left = [piece for piece in evidence if piece.stance and piece.stance.label == "NOT_ENOUGH_INFO"]
    return min((1 - (1 - _confidence(piece)) * _weight(piece) for piece in left), default=1.0)


def _weight(piece: Evidence) -> float:
    weight: float = 0.5 ** ((piece.hit.rank - 1) / HALF_LIFE)
    return weight


def _confidence(piece: Evidence) -> float:
    return _sure(piece.stance) if piece.stance else ASSUMED_CONFIDENCE


def _sure(stance: Stance) -> float:
    """Its confidence, also of a method that gives none."""
    return ASSUMED_CONFIDENCE if stance.confidence is None else min(1.0, max(0.0, stance.confidence))


def _why_not(failed: Sequence[Evidence], total: int) -> str:
    errors = [piece.stance.error for piece in failed if piece.stance is not None and piece.stance.error]
    said = max(dict.fromkeys(errors), key=errors.count) if errors else "no reason given"
    could = "none of {} could" if len(failed) == total else f"{len(failed)} of {{}} could not"
    return f"{could.format(_papers(total))} be judged: {said}"


def _rationale(judged: Sequence[Evidence], read: Sequence[Evidence], label: Label) -> str:
    """One sentence: how many say what, the strongest, and how many could not be read."""
    total = len(judged)
    of_all = _papers(total)
    sides = {side: [piece for piece in read if _strength(piece, side) > 0] for side in _VERBS}
    order = sorted(_VERBS, key=lambda side: (side != label, not sides[side]))
    if any(sides.values()):
        counts: list[tuple[int, str]] = []
        for side in order:
            leaning = sum(piece.stance is not None and piece.stance.leans for piece in sides[side])
            if len(sides[side]) > leaning or not leaning:
                counts.append((len(sides[side]) - leaning, f"{_VERBS[side]} it"))
            if leaning:
                counts.append((leaning, LEANING[side]))
        says = [f"{many or 'none'} {verb if many < 2 else verb.replace('s ', ' ', 1)}" for many, verb in counts]
        said = ", ".join(says).replace(" ", f" of {of_all} ", 1)
        named = [side for side in order if label in (side, "CONFLICTING", "NOT_ENOUGH_INFO") and sides[side]]
        best = [max(sides[side], key=Evidence.strength) for side in named]
        if best and label == "NOT_ENOUGH_INFO":
            said += f": too weak to decide; strongest: {_title(max(best, key=Evidence.strength))}"
        elif best:
            said += f"; strongest: {' against '.join(map(_title, best))}"
    elif total == 1:
        said = "the paper neither supports nor refutes it"
    else:
        judged_of = of_all if len(read) == total else f"the {len(read)} of {of_all} that could be judged"
        said = f"none of {judged_of} supports or refutes it"
    failed = total - len(read)
    return f"{said}; {_papers(failed)} could not be judged" if failed else said


def _title(piece: Evidence) -> str:
    document = piece.document
    year = document.metadata.get("year") or (document.published or "")[:4]
    title = " ".join(document.title.split()) or document.id
    title = title if len(title) <= 120 else f"{title[:119].rstrip()}…"
    return f"{title} ({year})" if year else title


def _papers(count: int) -> str:
    return "1 paper" if count == 1 else f"{count} papers"
