"""Runs in TREC's format: a line for each document, of claim id, Q0, document id, rank, score and the run's name."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

from ...core.errors import InvalidData
from ...core.files import write_text
from ...core.text import is_unicode
from ...core.trec import trec_lines
from ...ingest import Record
from ...ingest.rows import take_all
from .types import Run


def ranked(scores: Mapping[str, float]) -> list[str]:
    """Document ids, best first; of equal scores the one that was given first."""
    return sorted(scores, key=lambda document: -scores[document])


def run_of_ids(rankings: Mapping[str, Sequence[str]], depth: int) -> dict[str, dict[str, float]]:
    """The run of rankings without scores (`Result.stages`): the first `depth` document ids by claim id, best first."""
    return {
        claim: {document: float(len(ids) - place) for place, document in enumerate(ids[:depth])}
        for claim, ids in rankings.items()
    }


def write_run(path: str | os.PathLike[str], run: Run, name: str) -> None:
    """Write a run; see `trec_lines`. The file is there whole or not at all.

    Raises InvalidData for scores that are not numbers, UsageError where the file can't be written.
    """
    lines = [
        line
        for claim, scores in run.items()
        for line in trec_lines(claim, [(document, scores[document]) for document in ranked(scores)], name)
    ]
    write_text(path, "".join(lines), "the run")


def read_run(path: str | os.PathLike[str]) -> dict[str, dict[str, float]]:
    """The run of a file, plain or compressed: TREC's six columns, or what `ccheck query --json` printed.

    Equal scores are in trec_eval's order: the greater document id first. Raises NotFound, or InvalidData, which names
    the lines.
    """
    run: dict[str, dict[str, float]] = {}

    def take(record: Record, _: int) -> None:
        if "0" in record.data:
            _take_line(run, list(record.data.values()))
        else:
            _take_result(run, record.data)

    take_all(path, frozenset(), take)
    return {
        claim: dict(sorted(scores.items(), key=lambda one: (one[1], one[0]), reverse=True))
        for claim, scores in run.items()
    }


def _take_line(run: dict[str, dict[str, float]], cells: list[str]) -> None:
    if len(cells) != 6:
        raise InvalidData(f"{len(cells)} columns where a run has 6: claim, Q0, document, rank, score, name")
    claim, _, document, _, written, _ = cells
    try:
        score = float(written)
    except ValueError:
        score = math.nan
    if not math.isfinite(score):
        raise InvalidData(f"the score {written[:80]!r} is not a number")
    scores = run.setdefault(claim, {})
    if document in scores:
        raise InvalidData(f"document {document} of claim {claim} appears twice")
    scores[document] = score


def _take_result(run: dict[str, dict[str, float]], data: Mapping[str, Any]) -> None:
    """A line of `ccheck query --json`. A claim that could not be checked has no evidence."""
    try:
        claim = data["claim"]["id"]
        # Of a document's units, which follow each other by score, the best one counts.
        units = {(str(one["doc_id"]), json.dumps(one.get("unit"))) for one in data["evidence"]}
        once = {str(one["doc_id"]): float(one["score"]) for one in reversed(data["evidence"])}
        hits = [(document, once.pop(document)) for one in data["evidence"] if (document := str(one["doc_id"])) in once]
        if not all(map(is_unicode, (str(claim), *(document for document, _ in hits)))):
            raise ValueError("ids that are not text")
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidData("neither a line of a TREC run nor a result of ccheck query --json") from error
    if claim is None:
        raise InvalidData("the claim has no id, so judgements can't refer to it. Give claims with ids")
    if str(claim) in run:
        raise InvalidData(f"claim {claim} appears twice")
    if len(units) < len(data["evidence"]) or not all(math.isfinite(score) for _, score in hits):
        raise InvalidData(f"claim {claim} has a document twice, or a score that is not a number")
    falling = strictly_decreasing([score for _, score in hits])
    run[str(claim)] = {document: score for (document, _), score in zip(hits, falling, strict=True)}


def strictly_decreasing(scores: Sequence[float]) -> list[float]:
    """The scores, each lowered as little as needed to be below the one before it.

    Evaluation tools order a run by score and break ties by document id; this keeps the order that was ranked.
    """
    answer: list[float] = []
    for score in scores:
        ceiling = math.nextafter(answer[-1], -math.inf) if answer else math.inf
        answer.append(min(score, ceiling))
    return answer
