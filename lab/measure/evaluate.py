"""Evaluates a recipe: runs all claims through the pipeline, and measures each stage and its cost."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ...core.errors import CcheckError, InvalidData, batch_error
from ...core.recipe import Recipe
from ...core.runtime import OnProgress
from ...core.stages import EvidenceStage, VerdictStage
from ...core.types import Claim, Label, Result, Stance, Usage, Verdict, add_usage
from ...pipeline.checker import Checker
from .datasets import run_of_ids, strictly_decreasing
from .metrics import DEFAULT_METRICS, measure, only
from .pairs import seen_in_training
from .types import Classified, Gold, Measured, Qrels, Run
from .verdicts import classify

Rankings: TypeAlias = Mapping[str, tuple[str, ...]]
"""Claim id, ids of documents, best first."""
MAX_LISTED = 20
"""How many different warnings about single claims are kept."""


@dataclass(frozen=True, slots=True)
class EvaluationData:
    """The data to measure on, and the metrics. Stances and verdicts are judged and measured if there is `gold`.

    `depth`: how many documents are ranked.
    """

    claims: Sequence[Claim]
    qrels: Qrels
    gold: Gold | None = None
    metrics: Sequence[str] = DEFAULT_METRICS
    depth: int = 100


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One recipe over one set of claims.

    `run` is the final ranking, `stages_measured` has what that of each stage is worth, in the order in which they ran.
    Claims that failed are in `errors`, by id, with the reason, and are left out of the means. `not_judged` has claims
    with a stance or verdict that failed. `seconds` are per claim, by stage; `total` is wall-clock time.
    `usage_by_stage` covers all claims.
    """

    recipe: Recipe
    store: str
    depth: int
    claims: tuple[Claim, ...]
    run: Run
    measured: Measured
    stages_measured: Mapping[str, Measured] = field(default_factory=dict)
    stances: Classified | None = None
    verdicts: Classified | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)
    usage_by_stage: Mapping[str, Usage] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    errors: Mapping[str, str] = field(default_factory=dict)
    not_judged: Mapping[str, str] = field(default_factory=dict)
    remembered: Mapping[str, int] = field(default_factory=dict)
    """How many values came from a memory and cost no time, by kind."""
    unmeasured: tuple[str, ...] = ()
    """The measurements that were asked for but not possible, with the reasons."""

    @property
    def usage(self) -> Usage:
        """Language model usage of all claims and stages."""
        return sum(self.usage_by_stage.values(), Usage())

    def per_claim(self, usage: Usage) -> dict[str, float]:
        """A share of `usage` for each claim that was answered."""
        answered = max(1, len(self.claims) - len(self.errors))
        return {name: round(count / answered, 2) for name, count in usage.to_dict().items()}

    @property
    def unjudged(self) -> int:
        """The number of stances and verdicts that failed."""
        return sum(one.failed for one in (self.stances, self.verdicts) if one is not None)

    @property
    def failures(self) -> tuple[str, ...]:
        """The failures, in words; empty if there were none."""
        said = []
        if self.errors:
            claim, reason = next(iter(self.errors.items()))
            said.append(
                f"{len(self.errors):,} of {len(self.claims):,} claims failed and are left out of the means. "
                f"Claim {claim}: {reason}"
            )
        if self.unjudged:
            claim, reason = next(iter(self.not_judged.items()))
            said.append(f"{self.unjudged:,} stances and verdicts failed. Claim {claim}: {reason}")
        if self.verdicts is not None and self.verdicts.partial:
            said.append(f"{self.verdicts.partial:,} verdicts were made without some of their documents, which failed")
        return (*said, *self.unmeasured)

    def to_dict(self) -> dict[str, Any]:
        """The figures in a line of `ccheck evaluate --json`, as docs/json.md describes it."""
        return {
            "recipe": self.recipe.name,
            "store": self.store,
            "depth": self.depth,
            "metrics": self.measured.mean,
            "intervals": {name: list(ends) for name, ends in self.measured.intervals.items()},
            "claims": max(map(len, self.measured.by_claim.values())),
            "stages": {name: measured.mean for name, measured in self.stages_measured.items()},
            "stances": None if self.stances is None else self.stances.to_dict(),
            "verdicts": None if self.verdicts is None else self.verdicts.to_dict(),
            "seconds_per_claim": dict(self.seconds),
            "tokens_per_claim": self.per_claim(self.usage),
            "tokens_per_claim_by_stage": {stage: self.per_claim(one) for stage, one in self.usage_by_stage.items()},
            "remembered": dict(self.remembered),
            "unmeasured": list(self.unmeasured),
            "warnings": list(self.warnings),
            "errors": [
                {"claim": claim, "error": reason} for claim, reason in (*self.errors.items(), *self.not_judged.items())
            ],
        }


def retrieval_only(recipe: Recipe) -> Recipe:
    """The recipe without sentences and verdicts, which rankings do not need."""
    return recipe.model_copy(update={"evidence": EvidenceStage(sentences=0), "verdict": VerdictStage(method="none")})


def evaluate(checker: Checker, data: EvaluationData, on_progress: OnProgress = lambda done, total: None) -> Evaluation:
    """Run the checker's recipe over all claims and measure it.

    Each claim has an id of its own. The means are over the claims that have judgements. Claims for which nothing was
    found count as 0, claims that failed are left out. `on_progress` is told how many of the claims are done.

    Raises InvalidData if nothing can be measured (no judgements of the claims, all failed), and errors that would
    stop every claim.
    """
    claims, qrels, depth = data.claims, data.qrels, data.depth
    if not any(claim.id in qrels for claim in claims):
        raise InvalidData(f"none of the {len(claims):,} claims has judgements: do the files belong together?")
    started = time.perf_counter()
    answers = _Answers(checker.recipe)
    on_progress(0, len(claims))
    for done, result in enumerate(checker.check_many(claims, k=depth, trace=True), 1):
        answers.add(result)
        on_progress(done, len(claims))
    total = time.perf_counter() - started
    judged = only(qrels, answers.run)
    if not judged:
        said = f"no claim that has judgements could be checked, from claim {next(iter(answers.errors))} on"
        raise batch_error(said, list(answers.errors.values()), len(answers.errors))
    stances, verdicts = answers.classified(data.gold) if data.gold is not None else (None, None)
    measured = measure(answers.run, judged, data.metrics)
    final = {claim: tuple(scores) for claim, scores in answers.run.items()}
    return Evaluation(
        checker.recipe,
        answers.store,
        depth,
        tuple(claims),
        answers.run,
        measured,
        {
            # The last one is most often the recipe's own ranking.
            name: measured
            if _same(rankings, final, depth)
            else measure(run_of_ids(rankings, depth), judged, data.metrics)
            for name, rankings in answers.in_order().items()
        },
        stances,
        verdicts,
        answers.seconds(total),
        answers.usage_by_stage,
        answers.said(),
        {claim: str(error) for claim, error in answers.errors.items()},
        answers.not_judged,
        unmeasured=tuple(answers.unmeasured),
    )


def _same(rankings: Rankings, final: Rankings, depth: int) -> bool:
    return all(rankings[claim][:depth] == ranking for claim, ranking in final.items())


class _Answers:
    """The parts of results that evaluation keeps; results have the texts of all their documents."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self.store = ""
        self.run: dict[str, dict[str, float]] = {}
        self.errors: dict[str, CcheckError] = {}
        self.usage_by_stage: Mapping[str, Usage] = {}
        self._stages: dict[str, dict[str, tuple[str, ...]]] = {}
        self._most: list[str] = []
        self._stances: dict[tuple[str, str], Stance] = {}
        self._verdicts: dict[str, Verdict] = {}
        self._milliseconds: dict[str, float] = {}
        self._warned: dict[str, int] = {}
        self.unmeasured: list[str] = []
        self.not_judged: dict[str, str] = {}

    def add(self, result: Result) -> None:
        claim = str(result.claim.id)
        self.store = result.store
        for stage, usage in result.usage_by_stage.items():
            self.usage_by_stage = add_usage(self.usage_by_stage, stage, usage)
        if result.error is not None:
            self.errors[claim] = result.error
            return
        for warning in dict.fromkeys(result.warnings):
            self._warned[warning] = self._warned.get(warning, 0) + 1
        for name, spent in result.timings_ms.items():
            self._milliseconds[name] = self._milliseconds.get(name, 0.0) + spent
        hits = [piece.hit for piece in result.by_document]
        scores = strictly_decreasing([hit.score for hit in hits])
        self.run[claim] = dict(zip((sys.intern(hit.document.id) for hit in hits), scores, strict=True))
        # A reranker does not run where nothing was found: the order is that of the claim at which most stages ran.
        self._most = max(self._most, list(result.stages), key=len)
        for name, ids in result.stages.items():
            # One object for all ids that are equal: thousands of documents come with every claim.
            self._stages.setdefault(name, {})[claim] = tuple(map(sys.intern, ids))
        for piece in result.evidence[: self.recipe.verdict.documents]:
            if piece.stance is not None:
                # What the recipe does not read, it leaves open.
                said = piece.stance if piece.stance.read else Stance("NOT_ENOUGH_INFO")
                self._stances.setdefault((claim, piece.document.id), said)
        if result.verdict is not None:
            self._verdicts[claim] = result.verdict

    def in_order(self) -> dict[str, Rankings]:
        """The rankings of each stage; where one did not run for a claim, that of the stage before it."""
        order = [*self._most, *(name for name in self._stages if name not in self._most)]
        before: dict[str, tuple[str, ...]] = dict.fromkeys(self.run, ())
        made: dict[str, Rankings] = {}
        for name in order:
            found = self._stages[name]
            instead = {} if name in self.recipe.retrievers else before
            before = {claim: found.get(claim, instead.get(claim, ())) for claim in self.run}
            made[name] = before
        return made

    def classified(self, gold: Gold) -> tuple[Classified | None, Classified | None]:
        """Stances and verdicts compared with the true ones, if there are any."""
        stances = {pair: label for pair, label in gold.stances.items() if pair[0] in self.run}
        verdicts = {claim: label for claim, label in gold.verdicts.items() if claim in self.run}
        if not stances and not verdicts:
            raise InvalidData("none of the claims has a true label: do the files belong together?")
        return self._classified("stances", self._stances, stances), self._classified(
            "verdicts", self._verdicts, verdicts
        )

    def _classified(self, what: str, made: Mapping[Any, Any], true: Mapping[Any, Label]) -> Classified | None:
        """None if there are no true labels, or, with its reason in `unmeasured`, if nothing could be measured.

        The rankings were measured all the same, and may have taken hours.
        """
        for key in true:
            if key in made and (failed := made[key]).label is None:
                self.not_judged.setdefault(key if isinstance(key, str) else key[0], failed.error or "no reason given")
        try:
            return classify(made, true) if true else None
        except InvalidData as error:
            self.unmeasured.append(f"the {what} could not be measured: {error}")
            return None

    def seconds(self, total: float) -> dict[str, float]:
        """Seconds per claim: in all (wall-clock time), and by stage."""
        claims = max(1, len(self.run))
        stages = {name: spent / 1000 for name, spent in self._milliseconds.items()}
        return {name: round(spent / claims, 6) for name, spent in {"total": total, **stages}.items()}

    def said(self) -> tuple[str, ...]:
        """The warnings; those that did not come with every claim say with how many."""
        said = [
            warning if count == len(self.run) else f"{count:,} of {len(self.run):,} claims: {warning}"
            for warning, count in self._warned.items()
        ]
        more = len(said) - MAX_LISTED
        judges = dict.fromkeys(verdict.method for verdict in self._verdicts.values())
        said[MAX_LISTED:] = [f"and {more:,} other warnings"] if more > 0 else []
        return (*said, *(one for judge in judges for one in seen_in_training(judge)))
