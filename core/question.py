"""A question that a claim is checked with, and its answer."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

NO_ANSWER = "No answer could be found."
"""The answer to a question that the passages do not answer, in AVeriTeC's words."""


@dataclass(frozen=True, slots=True)
class Citation:
    """A passage that an answer rests on: `text` is the document's text from `start` to `end`."""

    doc_id: str
    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class QuestionAnswer:
    """A question about a claim, with its answer.

    `queries` are the search queries in addition to the question itself. An answer cites at least one passage, or it is
    `NO_ANSWER`. If the question failed, `answer` is None and `error` says why.
    """

    question: str
    queries: tuple[str, ...] = ()
    answer: str | None = None
    citations: tuple[Citation, ...] = ()
    error: str | None = None

    @property
    def answered(self) -> bool:
        """Whether there is an answer that is more than a gap."""
        return bool(self.citations)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"queries": list(self.queries), "citations": [asdict(one) for one in self.citations]}
