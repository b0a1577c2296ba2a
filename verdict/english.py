"""A judge that was made for English leaves other languages unjudged: there it would take shared names for support."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ..core.language import MADE_FOR, foreign_language
from ..core.types import Evidence, Stance, document_text
from .judge import Case, Judged, StanceMethod


class EnglishOnly:
    """A `StanceMethod` around another one, which gets only English claims and documents."""

    def __init__(self, method: StanceMethod) -> None:
        self.method = method
        self.name = method.name

    def __call__(self, cases: Sequence[Case]) -> Iterator[Judged]:
        """One for each case, in order. A pair in another language gets a stance without a label, and the reason."""
        reasons = [[_reason(case, piece) for piece in case.evidence] for case in cases]
        asked = [
            replace(case, evidence=tuple(piece for piece, why in zip(case.evidence, some, strict=True) if why is None))
            for case, some in zip(cases, reasons, strict=True)
        ]
        for judged, some in zip(self.method(asked), reasons, strict=False):
            stances, quotes = iter(judged.stances), iter(judged.quotes)
            yield replace(
                judged,
                stances=tuple(next(stances) if why is None else Stance(None, error=why) for why in some),
                quotes=tuple(next(quotes) if why is None else () for why in some) if judged.quotes else (),
            )


def _reason(case: Case, piece: Evidence) -> str | None:
    """Why a pair is not judged; None if it is."""
    document = piece.document
    for what, text in (("claim", case.claim.text), ("document", document.text or document_text(document.title, ""))):
        if (language := foreign_language(text)) is not None:
            return (
                f"the {what} seems to be in {language}, and this judge was made for {MADE_FOR}. Use a language model "
                "(--llm), which reads other languages"
            )
    return None
