"""Metrics of retrieval, by ir-measures, with intervals; and the score of the ClimateCheck shared task.

Names are ir-measures' own: `nDCG@10`, `R@100`, `RR@5` (also `MRR@5`), `P@5`, `AP`, `Bpref`, `Judged@10`, with
parameters as in `RR(rel=2)@5`. A mean is over all claims that have judgements, as trec_eval's and ir-measures' are: a
claim for which nothing was retrieved, or nothing is relevant, counts as 0.

ClimateCheck (Abu Ahmad, Usmanova and Rehm, SDP 2025): the mean of recall at 2, 5 and 10 and of binary preference. It
is computed as the task's evaluation script does, so each part has its own claims:

- `ClimateCheck-R@2`, `-R@5`, `-R@10`: over the claims that have a relevant document.
- `ClimateCheck-Bpref`: over the claims that have both a relevant document and one that was judged not relevant. It is
  1/R * sum over relevant retrieved r of 1 - min(n above r, R) / R (Buckley and Voorhees, SIGIR 2004, section 3), with R
  relevant documents and n those judged not relevant. trec_eval's `bpref` divides by min(R, N) instead, N being all that
  were judged not relevant, and so is lower where these are fewer than R.

Only the first ten documents count, as many as a system of the task gives for a claim.

One difference from the script: it leaves claims for which nothing was retrieved out of binary preference, though not
out of recall; here they count as 0 in all parts.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from ...core.errors import InvalidData, UsageError, require
from ...core.text import counted, did_you_mean, first_line, whole_number
from ...core.types import Claim
from .datasets import ranked
from .types import Interval, Measured, Qrels, Run

DEFAULT_METRICS = ("nDCG@10", "R@100")
RESAMPLES = 2000
"""Resamples of the bootstrap."""
SEED = 42
CLIMATECHECK = "ClimateCheck"
_PARTS = tuple(f"{CLIMATECHECK}-{part}" for part in ("R@2", "R@5", "R@10", "Bpref"))
_OWN = (CLIMATECHECK, *_PARTS)
_TASK_DEPTH = 10
_NAME = re.compile(r"(?P<name>\w+)(\((?P<parameters>[^()]*)\))?(@(?P<cutoff>\d+))?")
_KNOWN = ", ".join((*_OWN, "nDCG@10", "R@100", "RR@10", "P@10", "AP", "Bpref", "Judged@10"))
_DEEPEST = 1_000_000
_IDS = 3
"""How many ids a message lists."""


def check_metrics(metrics: Sequence[str]) -> list[str]:
    """The names of metrics as they are reported, each once: `MRR@5` is `RR@5`.

    Raises UsageError for one that is unknown or is not a mean, MissingExtra without ir-measures.
    """
    names = list(dict.fromkeys(name if name in _OWN else str(_measure(name)) for name in metrics))
    if not names:
        raise UsageError("no metric is named: name one, such as nDCG@10")
    return names


def measure(
    run: Run, qrels: Qrels, metrics: Sequence[str] = DEFAULT_METRICS, *, resamples: int = RESAMPLES
) -> Measured:
    """The metrics of a run, by the names that were asked for.

    Intervals are percentiles of a bootstrap over claims; with one claim there are none. Raises UsageError for an
    unknown metric, MissingExtra without ir-measures, and InvalidData where a metric can't be computed: no claim in
    common, nothing relevant, or for binary preference nothing that was judged not relevant.
    """
    asked = {name: check_metrics([name])[0] for name in metrics}
    _check(run, qrels)
    qrels = dict(sorted(qrels.items()))  # the same resamples for the same claims, in whatever order they came
    # What is ranked counts, not its scores, which tools round in their own ways.
    ranks = {
        claim: {document: float(-place) for place, document in enumerate(ranked(scores))}
        for claim, scores in run.items()
        if scores and claim in qrels
    }
    names = list(dict.fromkeys(asked.values()))
    found = _calculate([name for name in names if name not in _OWN], ranks, qrels)
    found |= {name: _part(name, ranks, qrels) for name in names if name in _PARTS}
    varying: dict[str, list[float]] = {}
    if CLIMATECHECK in names:
        found[CLIMATECHECK], varying[CLIMATECHECK] = _climatecheck(ranks, qrels)
    by_claim = {name: found[standard] for name, standard in asked.items()}
    return Measured(
        mean={name: math.fsum(values.values()) / len(values) for name, values in by_claim.items()},
        by_claim=by_claim,
        intervals={
            name: bootstrap(varying.get(name, list(values.values())), resamples=resamples)
            for name, values in by_claim.items()
            if len(values) > 1
        },
    )


def only(qrels: Qrels, claims: Iterable[str]) -> dict[str, Mapping[str, int]]:
    """The judgements of some claims: for a run of these alone, since all that are judged count in a mean."""
    return {claim: qrels[claim] for claim in claims if claim in qrels}


def bootstrap(values: Sequence[float], *, resamples: int = RESAMPLES) -> Interval:
    """The 95% interval of a mean: percentiles over resamples of two or more values, the same for the same values."""
    found = scipy_stats().bootstrap(
        (np.asarray(values, np.float64),),
        np.mean,
        n_resamples=resamples,
        batch=max(1, 2_000_000 // len(values)),
        method="percentile",
        vectorized=True,
        rng=np.random.default_rng(SEED),
    )
    return float(found.confidence_interval.low), float(found.confidence_interval.high)


def coverage(
    claims: Sequence[Claim] | None,
    run: Run,
    qrels: Qrels,
    metrics: Sequence[str],
    known: Callable[[tuple[str, ...]], Collection[str]] | None = None,
) -> list[str]:
    """The mismatches between claims, run and judgements, a sentence each. `claims`: None if they are not known; then
    all judged claims are measured, else those of the run.

    `known` says which documents the store has.
    """
    said = []
    asked = dict.fromkeys(claim.id for claim in claims if claim.id is not None) if claims is not None else run
    where = "the claims" if claims is not None else "the run, counted as 0"
    unjudged = [claim for claim in asked if claim not in qrels]
    said += some_of(unjudged, asked, "claim", "without judgements, left out of all metrics")
    said += some_of([claim for claim in qrels if claim not in asked], qrels, "judged claim", f"not in {where}")
    judged = tuple(dict.fromkeys(document for grades in qrels.values() for document in grades))
    found = {document for claim in qrels for document in run.get(claim, ())}
    if found and not found & set(judged):
        said.append(
            f"none of the {len(found):,} retrieved documents is judged for any claim: the ids may be from another "
            f"collection (retrieved {_first(sorted(found))}; judged {_first(judged)})"
        )
    qrels = qrels if claims is None else only(qrels, run)  # what is measured
    relevant = {claim: {one for one, grade in grades.items() if grade > 0} for claim, grades in qrels.items()}
    own = f" (left out of {CLIMATECHECK}'s score)" if set(_OWN) & set(metrics) else ""
    for some, why in (
        ([claim for claim in qrels if claim in run and not run[claim]], "with nothing retrieved, counted as 0"),
        ([claim for claim in qrels if not relevant[claim]], f"without a relevant document, counted as 0{own}"),
    ):
        said += some_of(some, qrels, "measured claim", why)
    if known is not None:
        judged = tuple(dict.fromkeys(document for grades in qrels.values() for document in grades))
        there = set(known(judged))
        missing = [document for document in judged if document not in there]
        lost = f"{len(set().union(*relevant.values()) & set(missing)):,} relevant"
        said += some_of(missing, judged, "judged document", f"not in the store ({lost}), so they can't be found")
    return said


def some_of(some: Sequence[Any], whole: Collection[Any], what: str, why: str) -> list[str]:
    """A sentence that names some of the whole; empty without any."""
    return [f"{_of(some, whole, what)} {why}: {_first(some)}"] if some else []


def cutoffs(metrics: Sequence[str]) -> dict[str, int]:
    """How many documents a claim each of these metrics looks at, if its name says so."""
    return {name: int(cut) for name in metrics for cut in re.findall(r"@(\d+)$", name)}


# -- by ir-measures


def _calculate(names: Sequence[str], ranks: Run, qrels: Qrels) -> dict[str, dict[str, float]]:
    measures = {_measure(name): name for name in names}
    for metric, name in measures.items():
        _check_relevance(name, int(metric.params.get("rel", 1)), qrels)
    by_name: dict[str, dict[str, float]] = {name: {} for name in names}
    if not names:
        return by_name
    plain = {claim: dict(grades) for claim, grades in qrels.items()}
    try:
        found = list(_providers().iter_calc(list(measures), plain, ranks))
    except (ValueError, RuntimeError) as error:
        raise UsageError(f"ir-measures can't compute {', '.join(names)} here: {first_line(error)}") from error
    for value in found:
        by_name[measures[value.measure]][value.query_id] = float(value.value)
    for name, values in by_name.items():
        if bad := [claim for claim, value in values.items() if not math.isfinite(value)]:
            raise InvalidData(f"{name} can't be computed for {_of(bad, values, 'claim')}: {_first(bad)}")
    return {name: {claim: values[claim] for claim in qrels} for name, values in by_name.items()}


def _measure(name: str) -> Any:
    """ir-measures' measure of a name. (Its own parser does not work on Python 3.14.)"""
    library = _ir_measures()
    registry = library.measures.registry
    match = _NAME.fullmatch(name.strip())
    base = registry.get(match["name"]) if match else None
    if match is None and "," in name:
        raise UsageError(f"{name!r} names several metrics: give --metric once for each")
    if match is None or base is None:
        known = {*_OWN, *(measure.NAME for measure in registry.values())}
        hint = did_you_mean(name, {*known, *(one + name[name.find("@") :] for one in known if "@" in name)} - {name})
        raise UsageError(f"there is no metric {name!r}{f': {hint}' if hint else '.'} Known metrics include {_KNOWN}")
    parameters: dict[str, Any] = _parameters(match["parameters"] or "", name)
    if match["cutoff"] is not None:
        parameters[base.AT_PARAM] = cutoff = whole_number(match["cutoff"])
        if cutoff is None or not 1 <= cutoff <= _DEEPEST:
            raise UsageError(f"the metric {name!r} needs a cutoff between 1 and {_DEEPEST:,}")
    try:
        made = base(**parameters)
        made.validate_params()
    except (AssertionError, TypeError) as error:
        needs = " It needs a cutoff, as in R@100." if match["cutoff"] is None else ""
        raise UsageError(f"the metric {name!r} does not have these parameters.{needs}") from error
    if not isinstance(made.aggregator(), library.MeanAgg):
        raise UsageError(f"{name} is a sum over claims, not a mean. Choose a metric such as nDCG@10")
    if not _providers().supports(made):
        raise UsageError(f"ccheck does not compute the metric {name}. Choose another one, such as nDCG@10")
    return made


def _parameters(written: str, name: str) -> dict[str, int | bool]:
    """`rel=2, judged_only=True`."""
    parameters: dict[str, int | bool] = {}
    for part in filter(None, (part.strip() for part in written.split(","))):
        key, _, value = (piece.strip() for piece in part.partition("="))
        if value in ("True", "False"):
            parameters[key] = value == "True"
        elif (number := whole_number(value)) is not None:
            parameters[key] = number
        else:
            raise UsageError(f"the metric {name!r}: write its parameters as (rel=2) or (judged_only=True)")
    return parameters


def _check(run: Run, qrels: Qrels) -> None:
    if not qrels:
        raise InvalidData("there are no judgements: nothing can be measured")
    if not any(claim in run for claim in qrels):
        raise InvalidData(
            f"no claim is both in the run ({_first(list(run)) or 'empty'}) and judged ({_first(list(qrels))}): give "
            "judgements for these claims"
        )


def _check_relevance(name: str, level: int, qrels: Qrels) -> None:
    grades = [grade for judged in qrels.values() for grade in judged.values()]
    if name.startswith("Judged"):
        return
    if not any(grade >= level for grade in grades):
        raise InvalidData(f"{name} can't be computed: no document is judged relevant (a grade of {level} or more)")
    if name.startswith("Bpref") and not any(0 <= grade < level for grade in grades):
        raise InvalidData(
            f"{name} can't be computed: no document is judged not relevant. Leave it out, or add such judgements"
        )


# -- ClimateCheck's


def _climatecheck(ranks: Run, qrels: Qrels) -> tuple[dict[str, float], list[float]]:
    """Each claim's contribution to the score: the mean over the claims is the mean of the four parts' means.

    A part that leaves claims out weighs more for those that it has, so a claim's value can be above 1. The second are
    values with the score as their mean, and to first order its variance: a resample has other claims, and so another
    number of those that have a part.
    """
    parts = [_part(name, ranks, qrels) for name in _PARTS]
    claims = parts[0]
    weighted = [(part, len(claims) / len(part) / len(parts)) for part in parts]
    means = [math.fsum(part.values()) / len(part) for part in parts]
    score = math.fsum(means) / len(parts)
    return (
        {claim: math.fsum(part.get(claim, 0.0) * weight for part, weight in weighted) for claim in claims},
        [
            score
            + math.fsum((part.get(one, mean) - mean) * by for (part, by), mean in zip(weighted, means, strict=True))
            for one in claims
        ],
    )


def _part(name: str, ranks: Run, qrels: Qrels) -> dict[str, float]:
    relevant = {claim: grades for claim, grades in qrels.items() if any(grade > 0 for grade in grades.values())}
    _check_relevance(name.removeprefix(f"{CLIMATECHECK}-"), 1, qrels)
    if not name.endswith("Bpref"):
        metric = name.removeprefix(f"{CLIMATECHECK}-")
        return _calculate([metric], {claim: ranks[claim] for claim in relevant if claim in ranks}, relevant)[metric]
    both = {claim: grades for claim, grades in relevant.items() if 0 in grades.values()}
    if not both:
        raise InvalidData(
            f"{name} can't be computed: no claim has both a relevant document and one that was judged not relevant"
        )
    return {claim: _binary_preference(ranks.get(claim, {}), grades) for claim, grades in both.items()}


def _binary_preference(scores: Mapping[str, float], grades: Mapping[str, int]) -> float:
    relevant = sum(grade > 0 for grade in grades.values())
    above, total = 0, 0.0
    for document in ranked(scores)[:_TASK_DEPTH]:
        grade = grades.get(document)
        if grade is not None and grade > 0:
            total += 1 - min(above, relevant) / relevant
        elif grade == 0:
            above += 1
    return total / relevant


# -- small things


@cache
def _ir_measures() -> Any:
    require("evaluation", "evaluation", "ir_measures")
    import ir_measures

    return ir_measures


def _providers() -> Any:
    """Those of ir-measures that compute in this process, in the order in which it takes them itself."""
    library = _ir_measures()
    return library.providers.FallbackProvider([library.pytrec_eval, library.judged, library.msmarco])


def scipy_stats() -> Any:
    require("evaluation", "evaluation", "scipy")
    from scipy import stats

    return stats


def _of(some: Collection[Any], whole: Collection[Any], what: str) -> str:
    return f"{len(some):,} of {counted(len(whole), what)}"


def _first(ids: Sequence[Any]) -> str:
    shown = ", ".join(str(one)[:60] for one in ids[:_IDS])
    return f"{shown}, ..." if len(ids) > _IDS else shown
