"""Measures a judge on labelled pairs of claim and evidence, without retrieval.

with Runtime(settings) as runtime:
    method = open_stance_method(runtime, Changes(verdict="auto"), calibrated=True)
    measured = measure_pairs(method, read_pairs("pairs.jsonl"))
measured.metrics["weighted_f1"], measured.intervals["weighted_f1"]
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from more_itertools import chunked

from ...core.errors import InvalidData
from ...core.types import Claim, Document, Evidence, Hit, Label, Stance, Usage
from ...ingest.rows import take_all
from ...verdict import Case, StanceMethod, all_judged
from ...verdict.calibration import BINS
from ...verdict.labels import STANCES, parse_stance
from .metrics import RESAMPLES
from .types import Interval
from .verdicts import label_figures, resampled

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ...ingest import Record

_COLUMNS = frozenset(
    ("claim", "label", "evidence", "doc_id", "title", "claim_id", "annotation", "abstract", "abstract_id")
)
UNJUDGED = "not judged"
"""The column of a confusion matrix for pairs that could not be judged."""
_READ_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class Pair:
    """A claim, a document, and what the document says about the claim. `document` is None while only `doc_id` is known:
    the store has it."""

    claim: str
    label: Label
    document: Document | None = None
    doc_id: str | None = None


@dataclass(frozen=True, slots=True)
class PairsMeasured:
    """How good a judge is on `pairs` labelled pairs. It could judge `judged` of them; the others count as wrong.

    `metrics` and `intervals` (95%, by a bootstrap over claims) have `weighted_f1`, `weighted_precision`,
    `weighted_recall`, `macro_f1`, `accuracy` and `calibration_error`, the expected calibration error of the judged
    pairs in ten bins of equal width. A metric is None if it can't be computed: a calibration error without
    confidences, an interval of one claim. `confusion` has the number of pairs by true and by given label. `by_claim`
    has it for each claim, [claims, 3, 4], with a last column for pairs that were not judged. `reason` says why the
    first pair that was not judged was not.
    """

    method: str
    pairs: int
    judged: int
    metrics: Mapping[str, float | None]
    intervals: Mapping[str, Interval | None]
    confusion: Mapping[str, Mapping[str, int]]
    usage: Usage
    seconds: float
    by_claim: NDArray[np.float64] = field(repr=False, compare=False)
    reason: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The object that `ccheck evaluate --pairs --json` prints."""
        return {
            "pairs": self.pairs,
            "judged": self.judged,
            "method": self.method,
            "metrics": {name: _rounded(value) for name, value in self.metrics.items()},
            "intervals": {
                name: None if ends is None else [_rounded(end) for end in ends] for name, ends in self.intervals.items()
            },
            "confusion": {true: dict(row) for true, row in self.confusion.items()},
            "usage": self.usage.to_dict(),
            "seconds": round(self.seconds, 3),
        }


def read_pairs(path: str | os.PathLike[str]) -> list[Pair]:
    """The pairs of a file, JSON Lines or a table: `claim`, `label` in any known spelling, and `evidence` (a text or a
    list of sentences) or `doc_id`. `title` is the document's title.

    Raises NotFound, UsageError, or InvalidData, which names the lines that can't be used.
    """
    pairs: list[Pair] = []
    take_all(path, _COLUMNS, lambda record, number: pairs.append(_pair(record, number)))
    return pairs


def with_documents(pairs: Sequence[Pair], get: Callable[[Sequence[str]], Mapping[str, Document]]) -> list[Pair]:
    """The pairs with their documents, as far as `get` (ids to documents) has those that are named by id only."""
    ids = list(dict.fromkeys(pair.doc_id for pair in pairs if pair.document is None and pair.doc_id is not None))
    found: dict[str, Document] = {}
    for some in chunked(ids, _READ_AT_ONCE):
        found |= get(some)
    return [
        pair if pair.document is not None else Pair(pair.claim, pair.label, found.get(pair.doc_id or ""), pair.doc_id)
        for pair in pairs
    ]


def measure_pairs(
    method: StanceMethod,
    pairs: Sequence[Pair],
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> PairsMeasured:
    """Judge labelled pairs and measure the stances. A pair that can't be judged counts as wrong.

    Raises InvalidData without pairs.
    """
    if not pairs:
        raise InvalidData("there are no pairs to measure on")
    started = time.perf_counter()
    cases = [
        Case(Claim(pair.claim), (Evidence(Hit(1, pair.document, 1.0)),)) for pair in pairs if pair.document is not None
    ]
    answers = iter(all_judged(method, cases))
    said: list[Stance] = []
    usage = Usage()
    for done, pair in enumerate(pairs, 1):
        if pair.document is None:
            said.append(Stance(None, error=f"the store has no document {pair.doc_id!r}"))
        else:
            judged = next(answers)
            said.append(judged.stances[0])
            usage += judged.usage
        on_progress(done, len(pairs))
    seconds = time.perf_counter() - started
    counts, bins = _by_claim(pairs, said)
    total = counts.sum(axis=0)
    figures = {name: float(value[0]) for name, value in _figures(total[None], bins.sum(axis=0)[None]).items()}
    intervals: dict[str, Interval | None] = dict.fromkeys(figures)
    if len(counts) > 1:
        intervals |= _intervals(counts, bins)
    return PairsMeasured(
        method=method.name,
        pairs=len(pairs),
        judged=sum(stance.label is not None for stance in said),
        metrics={name: None if math.isnan(value) else value for name, value in figures.items()},
        intervals=intervals,
        confusion={
            label: dict(zip((*STANCES, UNJUDGED), map(int, row), strict=True))
            for label, row in zip(STANCES, total, strict=True)
        },
        usage=usage,
        seconds=seconds,
        by_claim=counts,
        reason=next((str(stance.error) for stance in said if stance.label is None), ""),
    )


def _pair(record: Record, number: int) -> Pair:
    data = record.data
    claim, label = data.get("claim"), data.get("label") or data.get("annotation")
    if not isinstance(claim, str) or not claim.strip():
        raise InvalidData("claim is missing")
    if not isinstance(label, str) or not label.strip():
        raise InvalidData("label is missing")
    # ClimateCheck's own files have the latter names.
    evidence, doc_id = data.get("evidence") or data.get("abstract"), data.get("doc_id") or data.get("abstract_id")
    if isinstance(evidence, list) and evidence and all(isinstance(part, str) for part in evidence):
        evidence = " ".join(part.strip() for part in evidence)
    if isinstance(doc_id, int) and not isinstance(doc_id, bool):
        doc_id = str(doc_id)
    if evidence is None:
        if not isinstance(doc_id, str) or not doc_id:
            raise InvalidData(
                "both evidence and doc_id are missing. Give the text of the evidence or the document's id"
            )
        return Pair(claim, parse_stance(label), None, doc_id)
    if not isinstance(evidence, str) or not evidence.strip():
        raise InvalidData("evidence must be a text that is not empty, or a list of sentences")
    title = data.get("title")
    document = Document(str(doc_id or f"pair {number}"), title if isinstance(title, str) else "", evidence)
    return Pair(claim, parse_stance(label), document, document.id)


def _by_claim(pairs: Sequence[Pair], said: Sequence[Stance]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """For each claim the confusion matrix, shape [claims, 3, 4], with a last column for what was not judged, and for
    each bin of confidence the number of stances, the sum of confidences and the number right, [claims, bins, 3]."""
    import numpy as np

    place = {claim: number for number, claim in enumerate(dict.fromkeys(pair.claim for pair in pairs))}
    counts = np.zeros((len(place), len(STANCES), len(STANCES) + 1))
    bins = np.zeros((len(place), BINS, 3))
    for pair, stance in zip(pairs, said, strict=True):
        row = place[pair.claim]
        given = len(STANCES) if stance.label is None else STANCES.index(stance.label)
        counts[row, STANCES.index(pair.label), given] += 1
        if stance.label is not None and stance.confidence is not None:
            at = min(BINS - 1, max(0, math.ceil(stance.confidence * BINS) - 1))
            bins[row, at] += 1, stance.confidence, stance.label == pair.label
    return counts, bins


def _figures(counts: NDArray[np.float64], bins: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
    """The metrics of many confusion matrices, [resamples, 3, 4], and bins, [resamples, bins, 3]; nan for a calibration
    error without confidences."""
    import numpy as np

    judged = bins[:, :, 0].sum(axis=1)
    gaps = np.abs(bins[:, :, 1] - bins[:, :, 2]).sum(axis=1)
    error = np.divide(gaps, judged, out=np.full_like(gaps, np.nan), where=judged > 0)
    true, right = counts.sum(axis=2), np.diagonal(counts, axis1=1, axis2=2)
    given = counts.sum(axis=1)[:, : true.shape[1]]
    precision = np.divide(right, given, out=np.zeros_like(right), where=given > 0)
    found = label_figures(counts)
    return {
        "weighted_f1": found["weighted_f1"],
        "weighted_precision": (precision * true).sum(axis=1) / true.sum(axis=1),
        "weighted_recall": found["accuracy"],  # the same number: each label's recall, by its share
        "macro_f1": found["macro_f1"],
        "accuracy": found["accuracy"],
        "calibration_error": error,
    }


def _intervals(counts: NDArray[np.float64], bins: NDArray[np.float64]) -> dict[str, Interval | None]:
    import numpy as np

    claims, cut = len(counts), counts[0].size
    sums = resampled(np.hstack([counts.reshape(claims, -1), bins.reshape(claims, -1)]), RESAMPLES)
    figures = _figures(sums[:, :cut].reshape(RESAMPLES, *counts[0].shape), sums[:, cut:].reshape(RESAMPLES, BINS, 3))
    made: dict[str, Interval | None] = {}
    for name, values in figures.items():
        known = values[~np.isnan(values)]
        made[name] = (float(np.percentile(known, 2.5)), float(np.percentile(known, 97.5))) if len(known) else None
    return made


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
