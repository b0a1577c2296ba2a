"""A run over claims: what is the same for all of them, and the state of each until it is a result."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, TypeAlias

from more_itertools import collapse

from ..core.analysis import REFERS, Wording, clean, terms, two_claims, wording_of
from ..core.cache import Memory
from ..core.errors import CcheckError, InvalidData
from ..core.question import QuestionAnswer
from ..core.recipe import Recipe
from ..core.stages import Bm25, LateStage, QueryText, Retriever
from ..core.text import did_you_mean
from ..core.types import Claim, Evidence, FusedBy, Hit, Query, Result, StageKind, Usage, Verdict, add_usage
from ..search import Filter, Store
from ..search.filters import PUBLISHED, as_number, refuse_unfit
from ..search.store import no_documents
from ..verdict import is_packaged
from .plan import DEGRADED, Plan
from .relevance import HITS as RELEVANCE_HITS

Tell: TypeAlias = Callable[[Claim, str, Mapping[str, Any]], None]
"""Is told of a claim what just happened (`queries`, `hits`, `reranked`, `sentences`, `stance`, `verdict`), and of what:
JSON values."""
MAX_CLAIM_CHARS = 100_000
YES_NO = "the claim is a question: SUPPORTS means that the answer is yes, REFUTES that it is no"
TWO_CLAIMS = "these seem to be two claims, which one verdict may not fit. Check each alone: {0!r} and {1!r}"


@dataclass(frozen=True)
class Run:
    """The inputs that are the same for all claims of one call.

    `details` fills the scores and ranks of each retriever. `trace` fills `Result.stages`. `strict` makes a failed
    reranker the claim's error. `memory` has what stages computed before. `tell` is told what happens.
    """

    plan: Plan
    recipe: Recipe
    store: Store
    k: int
    filters: Sequence[Filter] = ()
    details: bool = True
    trace: bool = False
    strict: bool = False
    memory: Memory | None = None
    tell: Tell | None = None

    def told(
        self, states: Iterable[ClaimState], kind: str, facts: Callable[[ClaimState], Iterable[Mapping[str, Any]]]
    ) -> None:
        """Tell what just happened to some claims, if somebody listens: each of the facts of each claim."""
        if self.tell is None:
            return
        for state in going(states):
            for one in facts(state):
                self.tell(state.claim, kind, one)

    @functools.cached_property
    def retrievers(self) -> dict[str, Retriever]:
        """Each returns at least `k` hits. With a `trace` it keeps to its own depth: the recipe is measured as it is
        written."""
        return {
            name: stage if self.trace or stage.depth >= self.k else stage.model_copy(update={"depth": self.k})
            for name, stage in self.plan.retrievers.items()
        }

    @property
    def window(self) -> int:
        """How many hits the rerankers, the estimate of relevance and the caller look at."""
        depths = [stage.depth for stage, _ in self.plan.rerankers.values()]
        return max(self.k, RELEVANCE_HITS if self.estimates else 1, *depths)

    @property
    def estimates(self) -> bool:
        """Whether it is estimated if anything that was found bears on a claim: where somebody sees it, or judges. What
        measures a ranking (`trace`) does not look at it."""
        return (self.details and not self.trace) or self.recipe.verdict.method != "none"

    @property
    def least_relevance(self) -> float:
        """The recipe's; without one, only ccheck's own stance model is not asked about what nothing bears on."""
        least = self.recipe.verdict.least_relevance
        if least is not None:
            return least
        own = self.plan.method is None or is_packaged(self.plan.method)
        return self.plan.least_relevance if own else 0.0

    @property
    def reads_details(self) -> bool:
        """Whether somebody reads each retriever's scores and ranks: the caller, the estimate, or a reranker."""
        stages = [stage for stage, _ in self.plan.rerankers.values()]
        by_retrievers = any(isinstance(stage, LateStage) and stage.before == "retrievers" for stage in stages)
        return self.details or self.estimates or by_retrievers

    @functools.cached_property
    def counted(self) -> tuple[int, int]:
        """How many documents the store has, and how many pass the filters. See `why_nothing`."""
        store, filters = self.store, self.filters
        total = store.count()
        if not total:
            raise no_documents(store.name)
        refuse_unfit(filters, store.fields() if filters else {}, store.name)
        return total, store.count(filters) if filters else total

    @functools.cached_property
    def scored_by(self) -> Mapping[str, StageKind]:
        """The kind of each stage whose scores a hit can have, by its name."""
        kinds: dict[str, StageKind] = dict.fromkeys(self.plan.retrievers, "retriever")
        if len(kinds) > 1:
            kinds[self.recipe.fusion.method] = "fusion"
        return {**kinds, **dict.fromkeys(self.plan.rerankers, "reranker")}

    def states(self, claims: Iterable[Claim]) -> list[ClaimState]:
        """The claims before anything was done; those that can't be checked have their error."""
        return [self._state(claim) for claim in claims]

    def _state(self, claim: Claim) -> ClaimState:
        state = ClaimState(claim, clean(claim.text), list(self.plan.warnings), error=_problem(claim))
        if self.recipe.verdict.method != "none":
            state.wording = wording_of(state.text)
            state.warnings += [YES_NO] if state.wording == "yes_no_question" else []
            two = two_claims(state.text) or ()
            if two and is_packaged(self.plan.method) and not self.trace and not REFERS.search(two[1]):
                state.halves = two
            elif two:
                state.warnings.append(TWO_CLAIMS.format(*two))
        return state


@dataclass(slots=True)
class ClaimState:
    """A claim on its way through the stages, which fill it in. `text` is the cleaned claim, which all stages read.
    `wording` is what it is, where somebody judges it. `halves` are the two claims that it makes, if each is judged
    alone, since ccheck's own model reads one at a time. `rewritten` are the texts that a language model made of it.

    `hits` become `evidence` when sentences are chosen. A claim with an `error` is passed over by every later stage.
    `empty` says why nothing was found, if that is so. `reranked_by` is the last reranker that ordered the hits.
    `relevance` is the probability that one of them bears on the claim. `told`: the places of the evidence whose stances
    were told.
    """

    claim: Claim
    text: str
    warnings: list[str]
    wording: Wording = "statement"
    halves: tuple[str, ...] = ()
    rewritten: Mapping[QueryText, tuple[str, ...]] = field(default_factory=dict)
    query: Query | None = None
    hits: tuple[Hit, ...] = ()
    fused_by: FusedBy | None = None
    empty: str = ""
    reranked_by: str = ""
    evidence: tuple[Evidence, ...] = ()
    questions: tuple[QuestionAnswer, ...] | None = None
    relevance: float | None = None
    verdict: Verdict | None = None
    timings_ms: dict[str, float] = field(default_factory=dict)
    usage_by_stage: Mapping[str, Usage] = field(default_factory=dict)
    stages: dict[str, tuple[str, ...]] = field(default_factory=dict)
    error: CcheckError | None = None
    told: set[int] = field(default_factory=set)

    def use(self, stage: str, used: Usage) -> None:
        """Note what a stage asked a language model."""
        self.usage_by_stage = add_usage(self.usage_by_stage, stage, used)

    def result(self, run: Run) -> Result:
        if self.verdict is not None and self.verdict.label is None:
            self.verdict = replace(self.verdict, reason="not_judged")
        return Result(
            self.claim,
            self.evidence if self.error is None else (),
            self.verdict,
            run.recipe.name,
            run.store.name,
            tuple(self.warnings),
            self.timings_ms,
            self.usage_by_stage,
            self.error,
            self.stages,
            run.scored_by,
            self.questions,
            None if self.error is not None else self.relevance,
            self.fused_by,
        )


def going(states: Iterable[ClaimState]) -> list[ClaimState]:
    """Those without an error."""
    return [state for state in states if state.error is None]


def _problem(claim: Claim) -> CcheckError | None:
    """Why a claim can't be checked."""
    if not claim.text.strip():
        return InvalidData("the claim is empty" if claim.id is None else f"claim {claim.id} is empty")
    if not any(map(str.isalnum, claim.text)):
        return InvalidData(f"the claim has no word, only marks: {claim.text[:80]!r}")
    if len(claim.text) > MAX_CLAIM_CHARS:
        return InvalidData(f"the claim has {len(claim.text):,} characters. The limit is {MAX_CLAIM_CHARS:,}")
    return None


# -- why nothing was found


_WORD = re.compile(r"\w+")
MOST_WORDS = 8
"""How many words of a claim are named."""
LOOKED_AT = 1000
"""How many documents are read for a value that a filter may have meant."""


def why_nothing(run: Run, text: str) -> str:
    """Why no stage found anything for a claim's text.

    Raises NotFound for an empty store, and UsageError for filters that can pass no document.
    """
    total, passing = run.counted
    found = _found_nothing(run, text, total, passing) if passing else _filtered_out(run.store, run.filters, total)
    return f"{DEGRADED}, so that papers may be missing: {found}" if run.plan.degraded else found


def _found_nothing(run: Run, text: str, total: int, passing: int) -> str:
    words = [word for word in dict.fromkeys(_WORD.findall(text)) if terms(word)]
    only_words = all(isinstance(stage, Bm25) for stage in run.plan.retrievers.values())
    if only_words and not words:
        return "the claim has only words that are too common to search for"
    of, before = "what can be searched" if run.plan.degraded else f"the {total:,} documents", ""
    if run.filters:
        said = " and ".join(map(str, run.filters))
        of, before = f"these {passing:,}", f"{passing:,} of {total:,} documents pass {said}, but "
    if only_words:
        named = ", ".join(words[:MOST_WORDS]) + (" …" if len(words) > MOST_WORDS else "")
        return f"{before}none of {of} has a word of the claim ({named})"
    return f"{before}{' and '.join(run.plan.retrievers)} found none of {of}"


def _filtered_out(store: Store, filters: Sequence[Filter], total: int) -> str:
    said = f"none of {total:,} documents passes {' and '.join(map(str, filters))}"
    left = [0] if len(filters) == 1 else [store.count([one]) for one in filters]
    if len(filters) > 1:
        said += ": " + ", ".join(f"{one} leaves {many:,}" for one, many in zip(filters, left, strict=True))
    if any(one.field == PUBLISHED for one in filters):
        # Every date is after this one.
        undated = total - store.count([Filter(PUBLISHED, ">", "0000-01-01")])
        said += f". {undated:,} of them have no date" if undated else ""
    for one, many in zip(filters, left, strict=True):
        if not many and one.operator == "=" and as_number(one.value) is None:
            hint = did_you_mean(one.value, _values(store, one.field))
            said += f"; {hint}" if hint else ""
    return said


def _values(store: Store, name: str) -> set[str]:
    """Texts that the first `LOOKED_AT` documents have in a field; none if they can't be read."""
    with suppress(CcheckError):
        found = [document.metadata.get(name) for document in islice(store.scan(), LOOKED_AT)]
        return {one for one in collapse(found) if isinstance(one, str)}
    return set()
