"""A result as a data frame."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .errors import NotFound

if TYPE_CHECKING:
    import pandas

    from .types import Result


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
            row |= {"stance": stance.label, "confidence": stance.confidence, "error": stance.error}
        row |= {"sentences": " … ".join(sentence.text for sentence in one.sentences)}
        row |= {f"scores.{name}": score for name, score in one.hit.scores.items()}
        rows.append(row | {f"metadata.{name}": value for name, value in one.document.metadata.items()})
    return pandas.DataFrame(rows)
