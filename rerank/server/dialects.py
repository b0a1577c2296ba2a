"""Requests, answers and errors in the dialects of TEI, and of Cohere with Jina.

TEI's is also what Elasticsearch's `hugging_face` service speaks: it sends `texts`, `query`, `return_text` and `top_n`,
takes the `top_n` best itself, and fails on an answer whose items have any key but `index`, `score` and `text`.
Unknown keys in requests are ignored, as all of these servers do.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

CUT = "X-Ccheck-Cut"
"""A header of answers: the texts that were longer than the model takes, as `0,1,7`."""


class Refusal(Exception):
    """A request that is answered with an error."""

    def __init__(self, status: int, message: str, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.retry_after = status, message, retry_after


# -- what is sent


def _text_of(value: Any) -> Any:
    """Jina and Cohere take a document as text or as an object with its text."""
    return value["text"] if isinstance(value, dict) and isinstance(value.get("text"), str) else value


Text: TypeAlias = Annotated[str, BeforeValidator(_text_of, json_schema_input_type=str | dict[str, Any])]


class Sent(BaseModel):
    """A request's body. `protected_namespaces`: a key may be called model_something."""

    model_config = ConfigDict(extra="ignore", protected_namespaces=())


class TeiRerank(Sent):
    """Texts to be scored for a query: every one of them is, best first.

    `top_n`, which Elasticsearch sends, does not shorten the answer: Elasticsearch takes the best itself, and inside
    `text_similarity_reranker` needs a score for every text. Long texts are cut whatever `truncate` says.
    """

    query: str
    texts: list[str] = Field(min_length=1)
    raw_scores: bool | None = Field(None, description="true: the model's own values; false: their sigmoid, in 0..1")
    return_text: bool = False
    model: str | None = Field(None, description="the served model's name, or nothing")


class CohereRerank(Sent):
    """Documents to be scored for a query; scores are in 0..1, the best first."""

    query: Text
    documents: list[Text] = Field(min_length=1)
    model: str | None = Field(None, description="the served model's name, or nothing")
    top_n: int | None = Field(None, ge=1, description="number of results; default: all")
    return_documents: bool = False


# -- what is answered


@dataclass(frozen=True, slots=True)
class Ranked:
    """Scores as a dialect wants them, and what it says besides. `cut`: the texts that were read in part."""

    model: str
    texts: Sequence[str]
    scores: Sequence[float]
    cut: Sequence[int]
    tokens: int

    @property
    def order(self) -> list[int]:
        """The best first; equal ones in the order in which they were sent."""
        return sorted(range(len(self.scores)), key=lambda i: -self.scores[i])


def tei_ranking(ranked: Ranked, with_text: bool) -> list[dict[str, Any]]:
    return [
        {"index": i, "score": ranked.scores[i], **({"text": ranked.texts[i]} if with_text else {})}
        for i in ranked.order
    ]


def cohere_ranking(ranked: Ranked, request: CohereRerank, version: str) -> dict[str, Any]:
    """The union of Cohere's keys (`id`, `meta`) and Jina's (`object`, `model`, `usage`)."""
    results = [
        {
            "index": i,
            "relevance_score": ranked.scores[i],
            **({"document": {"text": ranked.texts[i]}} if request.return_documents else {}),
        }
        for i in ranked.order[: request.top_n]
    ]
    meta: dict[str, Any] = {"api_version": {"version": version}}
    if ranked.cut:
        meta["warnings"] = [f"cut, because they are longer than the model can read: documents {listed(ranked.cut)}"]
    return {
        "id": str(uuid.uuid4()),
        "object": "list",
        "model": ranked.model,
        "results": results,
        "usage": {"prompt_tokens": ranked.tokens, "total_tokens": ranked.tokens},
        "meta": meta,
    }


def listed(numbers: Sequence[int], most: int | None = None) -> str:
    """`0,1,7`: as many of the numbers as go into `most` characters."""
    text = ",".join(map(str, numbers))
    return text if most is None or len(text) <= most else text[: text.rindex(",", 0, most)]


# -- errors


def _tei_error(refusal: Refusal) -> dict[str, Any]:
    kinds = {424: "Backend", 429: "Overloaded", 500: "Backend", 503: "Unhealthy", 504: "Timeout", 401: "Unauthorized"}
    return {"error": refusal.message, "error_type": kinds.get(refusal.status, "Validation")}


def _cohere_error(refusal: Refusal) -> dict[str, Any]:
    # Cohere's key and Jina's.
    return {"message": refusal.message, "detail": refusal.message}


@dataclass(frozen=True, slots=True)
class Dialect:
    """`failed`: the status for a model that failed."""

    error: Callable[[Refusal], dict[str, Any]]
    failed: int
    unknown_model: int


TEI = Dialect(_tei_error, 424, 422)
COHERE = Dialect(_cohere_error, 500, 404)
