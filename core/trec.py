"""Lines of a TREC run: a line for each document, of claim id, Q0, document id, rank, score and the run's name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import quote

from .errors import InvalidData, NotFound
from .redaction import without_secrets
from .text import CONTROLS

if TYPE_CHECKING:
    import pandas

    from .types import Result

_APART = re.compile(rf"\s|[{CONTROLS}]")
_LARGEST = 1e38
"""A float32 can hold a little more."""


def trec_lines(claim: str, ranking: Sequence[tuple[str, float]], name: str) -> list[str]:
    """A claim's lines of a run: documents with their scores, best first.

    White space and control characters in ids are written as in a URL.

    The scores that are written fall strictly, read as float32 (trec_eval's) or as float64: tools order by score and
    break ties by document id, which would not be the ranking. Raises InvalidData for scores that are not numbers.
    """
    first, tag = _word(claim), _word(name) or "ccheck"
    scores = _falling([score for _, score in ranking], claim)
    return [
        without_secrets(f"{first} Q0 {_word(document)} {rank} {score} {tag}\n")
        for rank, ((document, _), score) in enumerate(zip(ranking, scores, strict=True), 1)
    ]


def result_lines(result: Result) -> list[str]:
    """The lines of one result; a claim without an id is claim 1."""
    ranking = [(evidence.document.id, evidence.hit.score) for evidence in result.by_document]
    return trec_lines(result.claim.id or "1", ranking, result.recipe)


def _falling(scores: Sequence[float], claim: str) -> list[str]:
    """Scores as text, each below the one before it in either precision."""
    import numpy as np

    values = np.asarray(scores, np.float64)
    if not np.isfinite(values).all() or (np.abs(values) > _LARGEST).any():
        raise InvalidData(f"claim {claim} has a score that a run can't hold")
    written: list[str] = []
    ceiling = np.float32(np.inf)
    for value in values:
        single = min(np.float32(value), ceiling)
        # The shortest text that no other float32 is nearest to; so the texts are in the same order in float64.
        written.append(str(single))
        ceiling = np.nextafter(single, np.float32(-np.inf))
    return written


def _word(text: str) -> str:
    return _APART.sub(lambda found: quote(found[0]), text)


# -- data frames


def frame_of(result: Result) -> pandas.DataFrame:
    """See `Result.to_frame`."""
    try:
        import pandas
    except ImportError as error:
        raise NotFound("a data frame needs pandas, which is not installed: pip install pandas") from error
    rows = []
    for one in result.evidence:
        row = {"rank": one.hit.rank, "doc_id": one.document.id, "title": one.document.title, "score": one.hit.score}
        if (stance := one.stance) is not None:
            row |= {"stance": stance.label, "leans": stance.leans}
            row |= {"confidence": stance.confidence, "error": stance.error}
        row |= {"sentences": " … ".join(sentence.text for sentence in one.sentences)}
        row |= {f"scores.{name}": score for name, score in one.hit.scores.items()}
        rows.append(row | {f"metadata.{name}": value for name, value in one.document.metadata.items()})
    always = "rank doc_id title score stance leans confidence error sentences".split()
    return pandas.DataFrame(rows, columns=None if rows else always)
