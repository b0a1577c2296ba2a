"""Check a file of claims: answers that are there already are kept, and only the other claims are checked.

with ccheck.open("local:papers") as checker:
    for result, answer, _ in check_batch(checker.check_many, iter_claims("claims.jsonl")):
        print(answer)  # the object that `ccheck query --claims` prints
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ..core.errors import InvalidData
from ..core.types import Claim, Result

if TYPE_CHECKING:
    from ..core.recipe import Recipe
    from ..core.settings import Settings
    from ..search import Filter

Key = tuple[str | None, str]
"""A claim's id and text."""
Answer = Mapping[str, Any]
"""An object as `ccheck query --claims` prints it."""


class ClaimRecord(NamedTuple):
    """A claim of a file, or what keeps one of its records from being a claim (`problem`, with the line)."""

    claim: Claim
    problem: str | None = None


class Answered(NamedTuple):
    """The result of a claim and its JSON object. If it was `kept` from an earlier run, its documents have no texts."""

    result: Result
    answer: Answer
    kept: bool = False
    refused: bool = False
    """Whether its record had a problem, so that nothing was checked."""


_DECIDING = {
    *("embedding_model", "stance_model", "rerank", "rerank_url", "prompts_dir"),
    *("llm_model", "llm_base_url", "llm_max_tokens"),
    "stores",
}
"""Settings that change an answer, in addition to the recipe's."""


def settings_key(
    settings: Settings, recipe: Recipe, store: str, k: int, filters: Sequence[Filter], strict: bool
) -> str:
    """A hexadecimal key that is the same for runs that check claims in the same way."""
    parts = [
        settings.model_dump(mode="json", include=_DECIDING),
        recipe.model_dump(mode="json"),
        *(store, k, [str(one) for one in filters], strict),
    ]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def check_batch(
    check_many: Callable[[Iterable[Claim]], Iterator[Result]],
    claims: Iterable[ClaimRecord],
    *,
    key: str = "",
    earlier: Mapping[Key, Answered] | None = None,
) -> Iterator[Answered]:
    """Check claims in their order: what `ccheck query --claims` does.

    `check_many` is that of a `Checker`, and what it raises is raised. A record with a problem is a result with that
    error. `key` is the `settings_key` that the answers get, and `earlier` has the answers that are kept.
    """
    kept = earlier or {}
    records, ahead = itertools.tee(claims)
    # A claim with a problem is neither searched for nor judged.
    asked = (
        record.claim if record.problem is None else Claim("", record.claim.id)
        for record in ahead
        if record.problem or _key(record.claim) not in kept
    )
    results = check_many(asked)
    for claim, problem in records:
        if problem is None and (saved := kept.get(_key(claim))) is not None:
            yield saved
            continue
        result = next(results)
        if problem is not None:
            result = dataclasses.replace(result, claim=claim, error=InvalidData(problem))
        yield Answered(result, result.to_dict() | {"settings": key}, refused=problem is not None)


def _key(claim: Claim) -> Key:
    return claim.id, claim.text


def unranked(answer: Answer) -> bool:
    """Whether a reranker failed. Raises AttributeError if it is not an answer."""
    evidence, stages = answer.get("evidence"), answer.get("scored_by") or {}
    if not evidence or answer.get("questions") is not None:
        return False
    scored = {name for one in evidence for name in one.get("scores") or ()}  # it scores the first documents, if any
    return any(kind == "reranker" and name not in scored for name, kind in stages.items())


def unjudged(answer: Answer) -> str | None:
    """Why a judge failed on the claim or on one of its documents; None if none did. Raises AttributeError if it is not
    an answer."""
    verdict, questions = answer.get("verdict") or {}, answer.get("questions")
    parts = [one.get("stance") or {} for one in answer.get("evidence", ())] if questions is None else questions
    whole = [verdict] if verdict.get("method") != "none" and (parts or questions is not None) else []
    errors = [one["error"] for one in (*whole, *parts) if one.get("error") is not None]
    return (errors[0] or "no reason was given") if errors else None
