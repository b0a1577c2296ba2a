"""The shape of an answer that `ccheck query --json` printed. The file can be anybody's, so all is checked."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from .errors import InvalidData
from .question import QuestionAnswer
from .types import Claim, FusedBy, Scalar, Sentence, StageKind, Stance, Unit, Usage, Verdict


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)


class _Figure(_Part):
    label: str
    caption: str
    image: str | None = None


class _Passage(_Part):
    text: str
    section: str = ""


class _Grounding(_Part):
    figures: list[_Figure] = []
    passages: list[_Passage] = []


class _Evidence(_Part):
    rank: Annotated[int, Field(ge=1, le=1_000_000_000)]
    doc_id: str
    title: str
    score: float
    unit: Unit | None = None
    scores: dict[str, float] = {}
    ranks: dict[str, int] = {}
    cut: tuple[str, ...] = ()
    stance: Stance | None = None
    sentences: tuple[Sentence, ...] = ()
    grounding: _Grounding | None = None
    metadata: dict[str, Scalar | list[Scalar]] = {}


class Answer(_Part):
    claim: Claim
    evidence: list[_Evidence]
    verdict: Verdict | None
    recipe: str
    store: str
    warnings: tuple[str, ...] = ()
    timings_ms: dict[str, float] = {}
    usage_by_stage: dict[str, Usage] = {}
    scored_by: dict[str, StageKind] = {}
    questions: tuple[QuestionAnswer, ...] | None = None
    relevance: float | None = None
    fused_by: FusedBy | None = None
    error: str | None = None


def checked(answer: object) -> dict[str, Any]:
    """The answer, with nothing in it that does not belong there. Raises InvalidData."""
    try:
        return Answer.model_validate(answer).model_dump()
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(one)[:80] for one in first["loc"])
        raise InvalidData(f"{place}: {first['msg']}" if place else first["msg"]) from None
