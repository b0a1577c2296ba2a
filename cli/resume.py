"""Going on with a batch of claims: the answers that an earlier run printed are taken over, the other claims asked."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InvalidData, NotFound, UsageError
from .common import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..recipe import Recipe
    from ..search import Filter
    from ..settings import Settings
    from ..types import Result

Key = tuple[str | None, str]
"""A claim's id and text."""
Answer = Mapping[str, Any]
"""An object as `ccheck query --claims` prints it."""

_DECIDING = {
    *("embedding_model", "stance_model", "rerank", "rerank_url", "prompts_dir"),
    *("llm_model", "llm_base_url", "llm_max_tokens"),
    *("elasticsearch_title_field", "elasticsearch_text_fields", "elasticsearch_vector_field"),
}
"""Settings on which an answer depends, beside the recipe's."""


def settings_key(
    settings: Settings, recipe: Recipe, store: str, k: int, filters: Sequence[Filter], strict: bool
) -> str:
    """Hexadecimal digits that are the same where claims are asked about in the same way."""
    parts = [
        settings.model_dump(mode="json", include=_DECIDING),
        recipe.model_dump(mode="json"),
        *(store, k, [str(one) for one in filters], strict),
    ]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def earlier_answers(file: str, key: str, claims: Collection[Key]) -> dict[Key, Answer]:
    """What of an earlier run needs not be asked again: its answers in which nothing failed.

    A last line that was cut off is passed over. Raises NotFound, UsageError, or InvalidData for a file that is none of
    these claims, asked about in this way.
    """
    _refuse_own_output(file)
    answers: dict[Key, Answer] = {}
    for number, line, last in _lines(file):
        where = f"{file}, line {number}"
        try:
            answer = json.loads(line)
        except ValueError as error:
            if last:
                break
            raise InvalidData(f"{where} is not JSON: --resume takes what ccheck query --claims printed") from error
        claim = _claim(answer)
        if claim is None:
            raise InvalidData(f"{where} is not an answer: --resume takes what ccheck query --claims printed")
        if answer.get("settings") != key:
            raise InvalidData(
                f"{where} was answered with another recipe, model, store, filter or number of documents: use the same "
                "ones to go on, or leave out --resume to begin anew"
            )
        if claim not in claims:
            raise InvalidData(
                f"{where} answers the claim {printable(claim[1][:80])!r} (id {printable(str(claim[0]))}), which is not "
                "among these claims: is it of another file?"
            )
        if not _failed(answer):
            answers[claim] = answer
    return answers


def result_of(answer: Answer) -> Result:
    """What a run needs of an answer: the claim, and the documents with their scores."""
    from ..types import Claim, Document, Evidence, Hit, Result

    evidence = tuple(
        Evidence(Hit(one["rank"], Document(one["doc_id"], one["title"], ""), one["score"]))
        for one in answer["evidence"]
    )
    claim = Claim(answer["claim"]["text"], answer["claim"]["id"])
    return Result(claim, evidence, None, answer["recipe"], answer["store"])


def _refuse_own_output(file: str) -> None:
    try:
        same = os.path.samestat(os.fstat(sys.stdout.fileno()), Path(file).stat())
    except (OSError, ValueError):
        return  # there is no such file, or standard output is none
    if same:
        raise UsageError(f"--resume reads {file}, and the output goes there too: write it to another file")


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
    """The claim that an object answers; None where it is not an answer."""
    if not isinstance(answer, dict) or not {"claim", "evidence", "verdict", "recipe", "store"} <= answer.keys():
        return None
    claim, evidence = answer["claim"], answer["evidence"]
    if not isinstance(claim, dict) or not isinstance(claim.get("text"), str) or not isinstance(evidence, list):
        return None
    if not all(isinstance(one, dict) and {"rank", "doc_id", "title", "score"} <= one.keys() for one in evidence):
        return None
    return claim.get("id"), claim["text"]


def _failed(answer: Answer) -> bool:
    """Whether the claim could not be checked, or not wholly be judged."""
    verdict = answer["verdict"]
    judged = isinstance(verdict, dict) and verdict.get("method") != "none"
    stances = [one.get("stance") for one in answer["evidence"]]
    return (
        "error" in answer
        or (judged and verdict.get("error") is not None and bool(stances))
        or any(isinstance(stance, dict) and stance.get("error") is not None for stance in stances)
    )
