"""Check a file of claims, or resume one: answers of an earlier run are kept, and only the other claims are checked.

with ccheck.open("local:papers") as checker:
    for result, answer in check_batch(checker, iter_claims("claims.jsonl")):
        print(answer)  # the object that `ccheck query --claims` prints
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ...core.errors import InvalidData, NotFound, UsageError
from ...core.text import printable
from ...core.types import Claim, Document, Evidence, Hit, Result

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...core.recipe import Recipe
    from ...core.settings import Settings
    from ...pipeline.checker import Checker
    from ...search import Filter
    from .datasets import ClaimRecord

Key = tuple[str | None, str]
"""A claim's id and text."""
Answer = Mapping[str, Any]
"""An object as `ccheck query --claims` prints it."""


class Answered(NamedTuple):
    """The result of a claim and its JSON object. A result from an earlier answer has no document texts."""

    result: Result
    answer: Answer


_DECIDING = {
    *("embedding_model", "stance_model", "rerank", "rerank_url", "prompts_dir"),
    *("llm_model", "llm_base_url", "llm_max_tokens"),
    *("elasticsearch_title_field", "elasticsearch_text_fields", "elasticsearch_vector_field", "stores"),
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
    checker: Checker,
    claims: Iterable[ClaimRecord],
    *,
    k: int = 10,
    filters: Sequence[Filter] = (),
    key: str = "",
    earlier: Mapping[Key, Answer] | None = None,
) -> Iterator[Answered]:
    """Check claims in their order: what `ccheck query --claims` does.

    A record with a problem is a result with that error. `key` is the `settings_key` that the answers get, and
    `earlier` has the answers that are kept. Raises what `Checker.check_many` raises.
    """
    earlier = earlier or {}
    claims = list(claims) if earlier else claims
    left = claims if not earlier else (one for one in claims if one.problem or _key(one.claim) not in earlier)
    results = _checked(checker, left, k, filters)
    if not earlier:
        yield from (Answered(result, result.to_dict() | {"settings": key}) for result in results)
        return
    for claim, problem in claims:
        answer = earlier.get(_key(claim)) if problem is None else None
        if answer is not None:
            yield Answered(result_of(answer), answer)
        else:
            result = next(results)
            yield Answered(result, result.to_dict() | {"settings": key})


def _checked(checker: Checker, claims: Iterable[ClaimRecord], k: int, filters: Sequence[Filter]) -> Iterator[Result]:
    read: deque[ClaimRecord] = deque()

    def noted() -> Iterator[Claim]:
        for record in claims:
            read.append(record)
            # An empty claim is neither searched for nor judged.
            yield record.claim if record.problem is None else Claim("", record.claim.id)

    for result in checker.check_many(noted(), k=k, filters=filters):
        claim, problem = read.popleft()
        yield result if problem is None else dataclasses.replace(result, claim=claim, error=InvalidData(problem))


def _key(claim: Claim) -> Key:
    return claim.id, claim.text


def unjudged(result: Result) -> bool:
    """Whether a judge failed on the claim or on one of its documents."""
    verdict = result.verdict
    no_verdict = verdict is not None and verdict.error is not None and verdict.method != "none"
    if result.questions is not None:
        return no_verdict or any(one.error is not None for one in result.questions)
    return bool(result.evidence) and (
        no_verdict or any(piece.stance is not None and piece.stance.error is not None for piece in result.evidence)
    )


def earlier_answers(file: str, key: str, claims: Collection[Key]) -> dict[Key, Answer]:
    """The answers of an earlier run that can be kept: those in which nothing failed.

    A last line that was cut off is passed over. Raises NotFound, UsageError, or InvalidData if
    the file does not hold answers to these claims with these settings.
    """
    answers: dict[Key, Answer] = {}
    for number, line, last in _lines(file):
        where = f"{file}, line {number}"
        try:
            answer = json.loads(line)
        except ValueError as error:
            if last:
                break
            raise InvalidData(f"{where} is not JSON: --resume takes the output of ccheck query --claims") from error
        claim = _claim(answer)
        if claim is None:
            raise InvalidData(f"{where} is not an answer: --resume takes the output of ccheck query --claims")
        if answer.get("settings") != key:
            raise InvalidData(
                f"{where} was answered with a different recipe, model, store, filter or number of documents. Use the "
                "same ones to continue, or leave out --resume to start over"
            )
        if claim not in claims:
            raise InvalidData(
                f"{where} answers the claim {printable(claim[1][:80])!r} (id {printable(str(claim[0]))}), which is not "
                "among these claims. Is it from another file?"
            )
        if not _failed(answer):
            answers[claim] = answer
    return answers


def result_of(answer: Answer) -> Result:
    """The parts of an answer that a run needs: the claim, and the documents with their scores."""
    evidence = tuple(
        Evidence(Hit(one["rank"], Document(one["doc_id"], one["title"], ""), one["score"]))
        for one in answer["evidence"]
    )
    claim = Claim(answer["claim"]["text"], answer["claim"]["id"])
    return Result(claim, evidence, None, answer["recipe"], answer["store"])


def _lines(file: str) -> Iterator[tuple[int, bytes, bool]]:
    """Number, bytes, and whether the line is a last one that does not end."""
    try:
        with Path(file).open("rb") as stream:
            for number, line in enumerate(stream, 1):
                if line.strip():
                    yield number, line, not line.endswith(b"\n")
    except FileNotFoundError as error:
        raise NotFound(f"there is no file {file} to resume from") from error
    except OSError as error:
        raise UsageError(f"the answers {file} can't be read: {error.strerror}") from error


def _claim(answer: Any) -> Key | None:
    """The claim that an object answers; None if it is not an answer."""
    if not isinstance(answer, dict) or not {"claim", "evidence", "verdict", "recipe", "store"} <= answer.keys():
        return None
    claim, evidence = answer["claim"], answer["evidence"]
    if not isinstance(claim, dict) or not isinstance(claim.get("text"), str) or not isinstance(evidence, list):
        return None
    if not all(isinstance(one, dict) and {"rank", "doc_id", "title", "score"} <= one.keys() for one in evidence):
        return None
    return claim.get("id"), claim["text"]


def _failed(answer: Answer) -> bool:
    """Whether the claim could not be checked, or was only partly judged."""
    verdict = answer["verdict"]
    judged = isinstance(verdict, dict) and verdict.get("method") != "none"
    stances = [one.get("stance") for one in answer["evidence"]]
    return (
        "error" in answer
        or (judged and verdict.get("error") is not None and bool(stances or "questions" in answer))
        or any(one.get("error") is not None for one in answer.get("questions") or ())
        or any(isinstance(stance, dict) and stance.get("error") is not None for stance in stances)
    )
