"""The values that the packages exchange: plain, typed, frozen.

Offsets (`start`, `end`) count characters of the stored field, end exclusive: `document.text[start:end]` is the piece.
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from .errors import CcheckError
from .question import QuestionAnswer

if TYPE_CHECKING:
    import numpy as np
    import pandas
    from numpy.typing import NDArray

Label: TypeAlias = Literal["SUPPORTS", "REFUTES", "NOT_ENOUGH_INFO", "CONFLICTING"]
Role: TypeAlias = Literal["background", "aim", "method", "result", "conclusion", "outlook"]
"""What a sentence does in its paper."""
Reason: TypeAlias = Literal[
    "disagreement", "leans_to_support", "leans_to_refute", "left_open", "nothing_bears", "no_claim", "not_judged"
]
"""Why a verdict takes no side, what says most about the claim first."""
StageKind: TypeAlias = Literal["retriever", "fusion", "reranker"]
FusedBy: TypeAlias = Literal["server", "ccheck"]
"""Who joined the rankings of several retrievers: the store's server, or ccheck. None: there was nothing to join."""
Scalar: TypeAlias = str | int | float | bool | None
Value: TypeAlias = Scalar | list[Scalar]
Vector: TypeAlias = "NDArray[np.float32]"
"""float32, one dimension, unit length."""


@dataclass(frozen=True, slots=True)
class SparseVector:
    """Weights over a vocabulary: token ids, ascending (int32), and their weights above 0 (float32), as many of each."""

    ids: NDArray[np.int32]
    weights: NDArray[np.float32]

    def to_bytes(self) -> bytes:
        """All token ids, and then all weights, 4 bytes each."""
        return self.ids.astype("<i4").tobytes() + self.weights.astype("<f4").tobytes()

    @staticmethod
    def from_bytes(data: bytes) -> SparseVector:
        """Reads the bytes that `to_bytes` made. The length of `data` is a multiple of 8 bytes."""
        import numpy as np

        half = len(data) // 2
        return SparseVector(
            np.frombuffer(data[:half], "<i4").astype(np.int32, copy=False),
            np.frombuffer(data[half:], "<f4").astype(np.float32, copy=False),
        )


@dataclass(frozen=True, slots=True)
class Claim:
    """A statement to check."""

    text: str
    id: str | None = None
    date: str | None = None
    """The day on which it was made (ISO 8601), if that is known."""


@dataclass(frozen=True, slots=True)
class Document:
    """A paper: its title, and its abstract or full text.

    `metadata` is flat: the keys of nested objects are joined with dots. `published` is the last day (ISO 8601) on which
    the document can have appeared: a bare year 2015 is 2015-12-31, so that "before" really means before. `pages` has
    the offsets in the text at which the paper's pages begin, from 0; it is empty if they are not known.
    """

    id: str
    title: str
    text: str
    metadata: Mapping[str, Value] = field(default_factory=dict)
    published: str | None = None
    pages: tuple[int, ...] = ()

    @property
    def content(self) -> str:
        """Title and text as one, see `document_text`."""
        return document_text(self.title, self.text)

    def page_at(self, offset: int) -> int | None:
        """The number of the page, from 1, on which a character of the text stands."""
        return bisect.bisect_right(self.pages, offset) or None


def document_text(title: str, text: str) -> str:
    """A document as one text, which models read and indexes hold: its title, a line end, and its text."""
    return f"{title}\n{text}" if title and text else title or text


@dataclass(frozen=True, slots=True)
class Passage:
    """A chunk of a document's text with its embedding. For an additional text, `start` and `end` are both 0."""

    start: int
    end: int
    vector: Vector


@dataclass(frozen=True, slots=True)
class Unit:
    """A part of a document that is searched by itself: a sentence, a paragraph or a window.

    `granularity` is the layout's name for this kind of unit. `number` counts the document's units of this granularity,
    from 0. `text` is the document's text from `start` to `end`.
    """

    granularity: str
    number: int
    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class UnitEntry:
    """A unit as a store takes it; `vector` is set if the layout names a model for its granularity."""

    unit: Unit
    vector: Vector | None = None


def unit_key(document: str, number: int) -> str:
    """The key of a unit in a ranking of units of one granularity: the document's id, `#`, and the unit's number."""
    return f"{document}#{number}"


def document_of(key: str) -> str:
    """The document's id of a key that `unit_key` made."""
    return key.rpartition("#")[0]


@dataclass(frozen=True, slots=True)
class Entry:
    """A document as a store takes it. `digest` changes when anything that the store would hold changes.

    `passages` are those of each field of vectors, `units` those of each granularity, by name. `additional` are texts
    that a language model wrote about the document. Fields that the layout does not name are empty.
    """

    document: Document
    digest: str
    passages: Mapping[str, tuple[Passage, ...]] = field(default_factory=dict)
    sparse: SparseVector | None = None
    additional: tuple[str, ...] = ()
    units: Mapping[str, tuple[UnitEntry, ...]] = field(default_factory=dict)


Operator: TypeAlias = Literal["=", "!=", "<", "<=", ">", ">=", "not>"]
"""`not>` matches documents whose value is not above this one, and, like `!=`, documents without a value."""


@dataclass(frozen=True, slots=True)
class Filter:
    """A condition on one field of a document: the name of a metadata field, `published` or `_id`."""

    field: str
    operator: Operator
    value: str

    def __str__(self) -> str:
        return f"{self.field}{self.operator}{self.value}"


@dataclass(frozen=True, slots=True)
class Query:
    """A query to a store: the claim's words and, for dense retrieval, its embedding.

    `own` has the queries of single retrievers by name, where they differ: words for BM25, an embedding for dense, a
    sparse vector for sparse retrieval. `filters` apply to this query, in addition to those of the call.
    """

    text: str
    vector: Vector | None = None
    own: Mapping[str, str | Vector | SparseVector] = field(default_factory=dict)
    filters: tuple[Filter, ...] = ()

    def words(self, retriever: str) -> str:
        """Returns the text that the BM25 retriever of that name searches for."""
        own = self.own.get(retriever)
        return own if isinstance(own, str) else self.text

    def embedding(self, retriever: str) -> Vector | None:
        """Returns the embedding that the dense retriever of that name searches for, if there is one."""
        own = self.own.get(retriever)
        return self.vector if own is None or isinstance(own, (str, SparseVector)) else own

    def weights(self, retriever: str) -> SparseVector | None:
        """Returns the sparse vector that the sparse retriever of that name searches for, if there is one."""
        own = self.own.get(retriever)
        return own if isinstance(own, SparseVector) else None


@dataclass(frozen=True, slots=True)
class Hit:
    """A document, or one of its units, in a ranking.

    `rank` starts at 1; `score` orders the ranking. `scores` and `ranks` have an entry for each retriever that found the
    document, by its name, and `scores` one for the fusion. BM25 scores are computed as in Elasticsearch, dense scores
    are cosines. If rerankers ran, `scores` also has the score of each, as the model gave it, `ranks` has the rank
    before reranking under the fusion's name, and `cut` names the rerankers that read only a part of the document.
    """

    rank: int
    document: Document
    score: float
    scores: Mapping[str, float] = field(default_factory=dict)
    ranks: Mapping[str, int] = field(default_factory=dict)
    cut: tuple[str, ...] = ()
    unit: Unit | None = None

    @property
    def text(self) -> str:
        """The text that rerankers read: the unit's, or the document's with its title."""
        return self.document.content if self.unit is None else self.unit.text

    @property
    def read(self) -> Document:
        """The document as it is read for sentences and stances: a unit's text takes the place of the document's."""
        return self.document if self.unit is None else replace(self.document, text=self.unit.text)


@dataclass(frozen=True, slots=True)
class Ranking:
    """The hits of one query, best first; `rankings` has what each retriever found, if somebody wants to see that."""

    hits: tuple[Hit, ...]
    rankings: Mapping[str, Sequence[tuple[str, float]]] = field(default_factory=dict)
    fused_by: FusedBy | None = None


@dataclass(frozen=True, slots=True)
class Difference:
    """What a sentence says differently from a claim whose words it shares: what the claim says, and what it says
    instead, each empty if nothing stands there."""

    kind: Literal["number", "direction", "negation", "condition", "order", "certainty", "word"]
    claim: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence of a document that bears on the claim.

    `score` is between 0 and 1, and `role` is None if it is not known. `page` is the number of the page on which the
    sentence begins, from 1, if that is known, and `last_page` that on which it ends, if that is another one.
    `differences` are from the claim.
    """

    text: str
    field: Literal["title", "text"]
    start: int
    end: int
    score: float
    role: Role | None = None
    page: int | None = None
    last_page: int | None = None
    differences: tuple[Difference, ...] = ()

    def on_pages_of(self, document: Document) -> Sentence:
        """The sentence with the pages of its letters and digits, if the document knows where pages begin."""
        if self.field != "text" or not document.pages:
            return self
        letters = [place for place in range(self.start, self.end) if document.text[place].isalnum()]
        ends = letters or [self.start, self.end - 1]
        first, last = document.page_at(ends[0]), document.page_at(ends[-1])
        return replace(self, page=first, last_page=last if last != first else None)

    def to_dict(self) -> dict[str, Any]:
        known = {name: value for name in ("page", "last_page") if (value := getattr(self, name)) is not None}
        differs = {"differences": [asdict(one) for one in self.differences]}
        fields = {name: getattr(self, name) for name in ("text", "field", "start", "end", "score", "role")}
        return fields | differs | known


DECISIVE = 0.7
"""The least confidence with which a document can make a side strong, if its judge has no threshold of its own."""


@dataclass(frozen=True, slots=True)
class Stance:
    """The stance of one document on the claim. If it could not be determined, `label` is None and `error` says why.

    `confidence` is the probability, in 0..1, that the label is right. `probabilities` has the probability of each
    label, if the method gives them. `decides` says whether this stance is sure enough to decide a verdict, if the
    method knows how sure it must be. `read` is false of a document so far from the claim that it was left unread.
    """

    label: Label | None
    confidence: float | None = None
    rationale: str | None = None
    error: str | None = None
    probabilities: Mapping[str, float] | None = None
    decides: bool | None = None
    read: bool = True

    @property
    def leans(self) -> bool:
        """Whether it takes a side, too weakly to decide a verdict. A stance without a confidence is sure enough."""
        sure = self.confidence is None or self.confidence >= DECISIVE
        return self.label not in (None, "NOT_ENOUGH_INFO") and not (sure if self.decides is None else self.decides)


@dataclass(frozen=True, slots=True)
class Part:
    """One of the claims that a sentence makes, with the verdict on it alone and its reason (see `Verdict`), and the ids
    of the documents that take its side, best first."""

    claim: str
    label: Label | None
    confidence: float | None = None
    rationale: str | None = None
    doc_ids: tuple[str, ...] = ()
    reason: Reason | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict of the evidence as a whole. If there is none, `label` is None and `error` says why.

    `judged` counts the documents with a stance, `failed` those whose stance could not be made. If some failed, `error`
    says why even if there is a label, and the confidence is lower. `reason` says why a verdict takes no side: nothing
    found bears on the claim, what bears on it leaves it open or leans to one side too weakly, or to both, or nobody
    could judge. It is None for SUPPORTS and REFUTES, and of judges that don't say. `parts` are the claims that were
    checked one by one, where a sentence makes two.
    """

    label: Label | None
    confidence: float | None = None
    rationale: str | None = None
    method: str = "none"
    error: str | None = None
    judged: int = 0
    failed: int = 0
    reason: Reason | None = None
    parts: tuple[Part, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return {**(_fields(self) or {}), "parts": [_fields(one) for one in self.parts]}


@dataclass(frozen=True, slots=True)
class Usage:
    """Usage of language models. `cached` answers do not count in `llm_calls`, nor do their tokens."""

    llm_calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(*(getattr(self, name) + getattr(other, name) for name in self.__slots__))

    def __bool__(self) -> bool:
        """Whether anything was asked."""
        return self != Usage()

    def to_dict(self) -> dict[str, int]:
        return asdict(self)


def add_usage(by_stage: Mapping[str, Usage], stage: str, used: Usage) -> Mapping[str, Usage]:
    """The usage of the stages, with further usage of one of them added."""
    return {**by_stage, stage: by_stage.get(stage, Usage()) + used} if used else by_stage


@dataclass(frozen=True, slots=True)
class Evidence:
    """A hit with its sentences and stance.

    `grounding` has the `figures` and `passages` of the full text that ground the claim, as JSON values, if you asked
    for them (`ccheck query --deep`).
    """

    hit: Hit
    sentences: tuple[Sentence, ...] = ()
    stance: Stance | None = None
    grounding: Mapping[str, Any] | None = None

    @property
    def document(self) -> Document:
        return self.hit.document

    def strength(self) -> tuple[bool, float]:
        """Orders the evidence of a side, the strongest last: whether it decides, then the confidence that is shown."""
        stance = self.stance or Stance(None)
        return stance.decides is True, stance.confidence or 0.0

    def to_dict(self) -> dict[str, Any]:
        hit, document = self.hit, self.hit.document
        return {
            "rank": hit.rank,
            "doc_id": document.id,
            **({} if hit.unit is None else {"unit": _fields(hit.unit)}),
            "title": document.title,
            "score": hit.score,
            "scores": dict(hit.scores),
            "ranks": dict(hit.ranks),
            "cut": list(hit.cut),
            "stance": self.stance and {**(_fields(self.stance) or {}), "leans": self.stance.leans},
            "sentences": [sentence.to_dict() for sentence in self.sentences],
            **({} if self.grounding is None else {"grounding": dict(self.grounding)}),
            "metadata": dict(document.metadata),
        }


@dataclass(frozen=True, slots=True)
class Result:
    """The answer for one claim. If the claim could not be checked, `error` is set and the evidence is empty.

    `usage_by_stage` has the stages that asked a language model, as `timings_ms` names them: `rewrite`, `rerank`,
    `questions`, `queries`, `answers`, `verdict`.

    `stages` has the ids of the documents after each stage, best first, if they were asked for. Its keys are the names
    of the retrievers, the fusion's method and the rerankers, in the order in which they ran.

    `scored_by` has the kind of each stage that can be in `Hit.scores`, by its name there.

    `questions` has the questions of a recipe that checks with questions, else None. The evidence then consists of the
    passages that their answers cite.

    `relevance` is the probability, in 0..1, that at least one document found bears on the claim. It is low if the
    collection has nothing about it, and None if it was not estimated.
    """

    claim: Claim
    evidence: tuple[Evidence, ...]
    verdict: Verdict | None
    recipe: str
    store: str
    warnings: tuple[str, ...] = ()
    timings_ms: Mapping[str, float] = field(default_factory=dict)
    usage_by_stage: Mapping[str, Usage] = field(default_factory=dict)
    error: CcheckError | None = None
    stages: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    scored_by: Mapping[str, StageKind] = field(default_factory=dict)
    questions: tuple[QuestionAnswer, ...] | None = None
    relevance: float | None = None
    fused_by: FusedBy | None = None

    def __repr__(self) -> str:
        label = self.verdict.label if self.verdict is not None else None
        said = f"error {str(self.error)!r}" if self.error is not None else f"verdict {label}"
        bears = f", relevance {self.relevance:.2f}" if self.relevance is not None else ""
        return f"<Result {self.claim.text[:60]!r}: {said}{bears}, {len(self.evidence)} documents>"

    @property
    def by_document(self) -> tuple[Evidence, ...]:
        """The evidence with each document once: where several of its units were found, the best of them."""
        best: dict[str, Evidence] = {}
        for piece in self.evidence:
            best.setdefault(piece.document.id, piece)
        return tuple(best.values())

    @property
    def usage(self) -> Usage:
        """Language model usage of all stages."""
        return sum(self.usage_by_stage.values(), Usage())

    def to_frame(self) -> pandas.DataFrame:
        """A row for each piece of evidence, a column for each score and field. Raises NotFound without pandas."""
        from .trec import frame_of

        return frame_of(self)

    def to_dict(self) -> dict[str, Any]:
        """One object of `ccheck query --json`, as docs/json.md describes it."""
        answer: dict[str, Any] = {
            "claim": {"id": self.claim.id, "text": self.claim.text},
            "relevance": self.relevance,
            "verdict": None if self.verdict is None else self.verdict.to_dict(),
            **({} if self.questions is None else {"questions": [one.to_dict() for one in self.questions]}),
            "evidence": [evidence.to_dict() for evidence in self.evidence],
            "recipe": self.recipe,
            "store": self.store,
            "scored_by": dict(self.scored_by),
            "fused_by": self.fused_by,
            "warnings": list(self.warnings),
            "timings_ms": dict(self.timings_ms),
            "usage": self.usage.to_dict(),
            "usage_by_stage": {stage: usage.to_dict() for stage, usage in self.usage_by_stage.items()},
        }
        if self.error is not None:
            answer["error"] = str(self.error)
        return answer


def _fields(value: Stance | Verdict | Part | Unit | None) -> dict[str, Any] | None:
    return None if value is None else {name: getattr(value, name) for name in value.__slots__}
