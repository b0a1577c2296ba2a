"""Running a recipe: from claims to results, and from files to a store."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, TypeAlias

from more_itertools import chunked

from ..core.adjust import filled, resolved
from ..core.closing import Closing
from ..core.errors import CcheckError, StoreChanged, UsageError
from ..core.recipe import Recipe, load_recipe, name_clash, recipe_names
from ..core.runtime import Runtime
from ..core.settings import Settings
from ..core.stages import ListwiseStage, VerdictStage
from ..core.types import Claim, Evidence, Part, Result
from ..rerank import Reranker
from ..rerank.open import bring
from ..rerank.several import Score
from ..rerank.types import WrongKey
from ..search import Filter, Store, open_store, parse_filter
from ..search.filters import NEGATED, refuse_unfit
from ..verdict import Judge, of_parts
from .plan import DEGRADED, Plan, fits, make_plan
from .run import ClaimState, Run, Tell, going, why_nothing
from .steps import (
    cases,
    choose_evidence,
    estimate_relevance,
    judge_with,
    judged,
    rerank,
    retrieve,
    search_for,
    tell_judged,
    why_not_judged,
)

if TYPE_CHECKING:
    from ..ingest import IngestOptions, Progress, Report
    from ..verdict.llm import PlannedPrompt

Filters: TypeAlias = str | Filter | Sequence[str | Filter]
"""Conditions as on the command line ("year>=2010"), or as values."""
EMPTY_CELLS = {"None", "nan", "NaT", "<NA>"}
"""What a column has in place of a text, as Python and pandas write it."""
MOST_HITS = 10_000
"""The largest `k`: no retriever returns more, and no server."""
BATCH = 64
"""How many claims are embedded and searched at a time."""
ANSWERED_AT_ONCE = 8
"""How many of them are reranked and judged at a time: few, so that the first answers are there soon."""
MEASURED_BATCH, MEASURED_AT_ONCE = 512, 16
"""The same where recipes are measured: texts of like length meet, and what is read once serves many. Whoever measures
waits for the first of them, too."""


class Checker(Closing):
    """A store and a recipe, ready to ingest and to check claims.

    `judge` decides on stances and verdicts instead of the recipe's judge. If a reranker fails, the ranking stays as it
    was and the result has a warning; with `strict`, the failure is the claim's error. With `deep`, evidence has the
    figures and passages that ground it, if the full text is stored. Several checkers can share a `runtime` and a
    `store`, which stay open when one of the checkers is closed; settings alone make a runtime of its own. The default
    `recipe` is that of the settings, see `resolved`.
    """

    def __init__(
        self,
        runtime: Runtime | Settings,
        *,
        recipe: Recipe | None = None,
        store: Store | None = None,
        judge: Judge | None = None,
        strict: bool = False,
        deep: bool = False,
    ) -> None:
        """Open the store of the settings. Raises UsageError, NotFound or InvalidData."""
        _refuse_no_function("judge", judge)
        self._owns_runtime, self._owns_store = isinstance(runtime, Settings), store is None
        self.runtime = Runtime(runtime) if isinstance(runtime, Settings) else runtime
        self.settings = settings = self.runtime.settings
        self.recipe = filled(recipe, settings) if recipe is not None else resolved(settings)
        self.runtime = self.runtime.asking(self.recipe.language_model)
        self.store: Store = store or open_store(settings)
        self.judge, self._strict, self._deep = judge, strict, deep
        self._plan: Plan | None = None

    # -- checking

    def check(self, claim: str | Claim, *, k: int = 10, filters: Filters = ()) -> Result:
        """Check one claim against the `k` documents that bear on it most. Raises CcheckError."""
        result = next(self.check_many([_claim(claim)], k=k, filters=filters))
        if result.error is not None:
            raise result.error
        return result

    def check_many(
        self,
        claims: Iterable[str | Claim],
        *,
        k: int = 10,
        filters: Filters = (),
        details: bool = True,
        trace: bool = False,
        tell: Tell | None = None,
    ) -> Iterator[Result]:
        """Check many claims, in their order, in batches. `filters` can be written as on the command line: "year>=2010".

        If a claim can't be checked, its result has an error and no evidence. A failure before the first answer (no
        store, a wrong key, a missing model) would stop every claim, so it is raised. A later failure (a server that is
        gone for longer than ccheck waits) is the error of each claim that it stopped, and the next claims are tried.
        `details` fills the scores and ranks of each retriever.

        `trace` is for measuring: it fills `Result.stages`, works in larger batches, leaves each retriever at the
        recipe's depth, chooses sentences only for the documents that are judged, and makes the failure of any stage
        the claim's error: another pipeline would be measured. `tell` is told what happens, in
        this thread; what it raises ends the call.
        """
        run = replace(self._run(k, filters, details=details, trace=trace), tell=tell)
        asked = claims_of(claims)
        if run.plan.asking is not None:
            from .questioning import check_with_questions

            if self.judge is not None:
                said = "judges by answers to questions, and takes no other judge"
                raise UsageError(f"the recipe {self.recipe.name} {said}")
            for state in check_with_questions(run, run.plan.asking, asked):
                tell_judged(run, state)
                yield state.result(run)
            return
        for current, states in self._prepared(run, asked):
            done: Iterable[ClaimState] = states
            if self.recipe.verdict.method != "none":
                judge = self.judge
                done = judged(current, states) if judge is None else (judge_with(judge, state) for state in states)
            for state in done:
                if state.halves and state.error is None and state.verdict is not None:
                    state.verdict = of_parts([self._part(half, k, filters) for half in state.halves], state.verdict)
                tell_judged(current, state)
                result = state.result(current)
                if self._deep:
                    from .grounding import ground

                    result = ground(result, self.recipe, self.runtime)
                yield result

    def refuse_unusable(self, k: int, filters: Filters) -> None:
        """Raises what would keep every claim from being checked: no documents, filters that the store can't apply."""
        _ = self._run(k, filters, details=False).counted

    def prompts(
        self,
        claims: Iterable[Claim],
        *,
        k: int = 10,
        filters: Filters = (),
        skipped: Callable[[str], None] = lambda reason: None,
    ) -> Iterator[PlannedPrompt]:
        """The prompts that a language model would get to judge these claims. Asks it nothing.

        `skipped` gets the reason for each claim that the model would not be asked about. Stages that would have to ask
        before, such as rewriting or a listwise reranker, do not run. If claims are checked with questions, only the
        prompts for these are known. Raises UsageError if the judge is not a language model.
        """
        from ..llm.types import estimate_tokens
        from ..verdict.calibration import Calibrated
        from ..verdict.llm import LlmStances, PlannedPrompt

        plan = self.plan()
        if plan.asking is not None:
            for state in self._run(k, filters, details=False).states(claims):
                if state.error is None:
                    question = plan.asking.questions(state.text)
                    tokens = estimate_tokens(question.messages)
                    known = plan.asking.asker.is_cached(question)
                    yield PlannedPrompt(question.messages, tokens, question.tokens, known)
            return
        method = plan.method.method if isinstance(plan.method, Calibrated) else plan.method
        if not isinstance(method, LlmStances):
            raise UsageError("the judge is not a language model: choose one with --llm MODEL (the verdict method llm)")
        # Nothing asks a language model before anything is judged.
        scoring = {name: pair for name, pair in plan.rerankers.items() if not isinstance(pair[0], ListwiseStage)}
        run = replace(self._run(k, filters, details=False), plan=replace(plan, rerankers=scoring, rewriter=None))
        for current, states in self._prepared(run, claims):
            for state in states:
                if (reason := why_not_judged(current, state)) is not None:
                    skipped(reason)
            yield from method.plan_prompts(cases(current, states))

    def requests(self, claims: Iterable[Claim], *, k: int = 10, filters: Filters = ()) -> Iterator[str]:
        """What Elasticsearch is sent to search for each of these claims, as Kibana's console takes it.

        Raises UsageError if the store is not on Elasticsearch, and the error of a claim that can't be searched for.
        """
        from ..search.elastic import ElasticStore

        if not isinstance(self.store, ElasticStore):
            raise UsageError(f"{self.store.name} is not on Elasticsearch, so that there is no request to show")
        run = self._run(k, filters, details=True)
        for state in run.states(claims):
            if state.error is None:
                retrieve(run, [state])
            if state.error is not None:
                raise state.error
            assert state.query is not None
            yield self.store.console(search_for(run, [state.query]))

    def plan(self, *, compared: bool = True) -> Plan:
        """The parts of the recipe that can run on this store and machine. Raises if a required part can't.

        `compared`: the model is first compared with stored vectors that may come from another one.
        """
        plan = self._plan  # another thread can forget it meanwhile
        if plan is None:
            # A memory asks whether the store is the same. Without questions, an empty store is noticed by its searches.
            figures = self.runtime.memory is not None or self.recipe.questions is not None
            info = self.store.info(figures=figures)
            judges = self.judge is None
            plan = make_plan(self.recipe, info, self.store.name, self.runtime, strict=self._strict, judges=judges)
            # The layout of an index that ccheck made has the fingerprint of its model.
            if compared and info is not None and info.layout.embedding is None and plan.embedder is not None:
                from .agreement import refuse_other_model

                warning = refuse_other_model(self.store, plan.embedder, self.settings.cache_dir)
                if warning is not None:
                    plan = replace(plan, warnings=(*plan.warnings, f"{DEGRADED}: {warning}"), degraded=True)
            self._plan = plan
        return plan

    def fitting(self) -> list[str]:
        """The packaged recipes for which the store has what they search."""
        info = self.store.info(figures=False)
        return [] if info is None else [name for name in recipe_names() if fits(load_recipe(name), info)]

    def rerank_with(self, function: Score | Reranker) -> None:
        """Use a program's own reranker in place of the recipe's. Raises UsageError."""
        _refuse_no_function("reranker", function)
        stage = bring(function, self.runtime)
        if problem := name_clash(self.recipe.retrievers, [stage.model]):
            raise UsageError(f"the recipe {self.recipe.name} with the reranker {stage.model}: {problem}")
        self.recipe = self.recipe.model_copy(update={"rerankers": {stage.model: stage}})
        self._plan = None

    def forget_plan(self) -> None:
        """Plan again for the next claim: the store may have changed."""
        self._plan = None

    def _run(self, k: int, given: Filters, *, details: bool, trace: bool = False) -> Run:
        if not isinstance(k, int) or not 1 <= k <= MOST_HITS:
            raise UsageError(f"k is {k!r}. It must be a whole number from 1 to {MOST_HITS:,}")
        plan = self.plan()
        filters = filters_of(given)
        # In a store of ccheck's a mistake passes no document, which `why_nothing` then explains, or is in a negation.
        mistakes_pass = plan.asking is not None or any(one.operator in NEGATED for one in filters)
        if filters and (mistakes_pass or not plan.info.made_here):
            refuse_unfit(filters, self.store.fields(), self.store.name)
        strict, memory = self._strict or trace, self.runtime.memory
        return Run(plan, self.recipe, self.store, k, filters, details, trace, strict, memory)

    def _part(self, text: str, k: int, filters: Filters) -> Part:
        """One of the claims that a sentence makes, checked alone."""
        try:
            result = self.check(text, k=k, filters=filters)
        except CcheckError as error:
            return Part(text, None, rationale=str(error))
        verdict = result.verdict
        assert verdict is not None
        side = {verdict.label, "CONFLICTING"} - {"NOT_ENOUGH_INFO"}
        best = sorted(result.by_document, key=Evidence.strength, reverse=True)
        ids = [one.document.id for one in best if one.stance and one.stance.label in side and not one.stance.leans]
        why = verdict.rationale or verdict.error
        return Part(text, verdict.label, verdict.confidence, why, tuple(ids), verdict.reason)

    def _prepared(self, run: Run, claims: Iterable[Claim]) -> Iterator[tuple[Run, list[ClaimState]]]:
        """The claims, some at a time, with all but stances and verdicts.

        With the run that they are in: another one from where the store moved to the vectors of another model.
        """
        nobody = self.recipe.verdict.method == "none" or (run.plan.method is None and self.judge is None)
        documents = (0 if nobody else self.recipe.verdict.documents) if run.trace else None
        answered = told = False
        for batch in chunked(claims, MEASURED_BATCH if run.trace else BATCH):
            states = run.states(batch)
            try:
                try:
                    retrieve(run, states)
                except StoreChanged:
                    self._plan = None
                    run = replace(run, plan=self.plan())
                    states = run.states(batch)
                    retrieve(run, states)
                estimate_relevance(run, states)
                for state in going(states):
                    if not state.hits:
                        state.empty = why_nothing(run, state.text)
                        state.warnings.append(state.empty)
            except CcheckError as error:
                if run.trace or not answered:
                    raise
                # Whatever had been filled in does not count: all of the batch failed.
                states = run.states(batch)
                for state in going(states):
                    state.error = error
                yield run, states
                continue
            answered = answered or bool(going(states))
            at_a_time = at_once(self.recipe.verdict, MEASURED_AT_ONCE if run.trace else ANSWERED_AT_ONCE)
            for some in chunked(states, at_a_time):
                rerank(run, some)
                if not told and (refused := [one.error for one in some if isinstance(one.error, WrongKey)]):
                    raise refused[0]
                told = True
                choose_evidence(run, some, documents)
                yield run, some

    # -- ingesting

    def ingest(
        self,
        *sources: Any,
        options: IngestOptions | None = None,
        dense: bool | None = None,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> Report:
        """Read papers into the store. Raises CcheckError. Papers that could not be used are in the report.

        A source is a file, folder or glob, a record as a dict, several of them, or a data frame with a row for each.

        If the recipe names its own models, the store gets the fields that it searches (sparse vectors, for example).
        `dense=False` makes no vectors, `dense=True` insists on them. By default they are made if the model is
        available.
        """
        from ..ingest import IngestOptions, ingest
        from ..ingest.sources import as_files
        from .ingest import needs_own, open_encoders

        self._plan = None
        needing = self.recipe if needs_own(self.recipe) else None
        options = options or IngestOptions(cache_bytes=self.settings.cache_bytes)
        options = replace(options, cache_dir=options.cache_dir or self.settings.cache_dir)
        if not self.recipe.ingest.titles:
            options = replace(options, fields=replace(options.fields, titles=False))
        encoders = open_encoders(self.runtime, self.store.info(), needing, dense)
        with as_files(sources) as paths:
            return ingest(paths, self.store, encoders, options, on_progress)

    # --

    def close(self) -> None:
        """Free files and models. Call nothing afterwards: it may fail, or open them again."""
        if self._owns_runtime:
            self.runtime.close()
        self._plan = None
        if self._owns_store:
            self.store.close()


def _refuse_no_function(what: str, given: object) -> None:
    if (given is not None and not callable(given)) or iscoroutinefunction(given):
        raise UsageError(f"{what} is {given!r:.80}. It must be a function, and not an async one")


def filters_of(given: Filters) -> list[Filter]:
    """The conditions as values. Raises UsageError."""
    several = [given] if isinstance(given, str | Filter) else given
    return [parse_filter(one) if isinstance(one, str) else one for one in several]


def claims_of(given: Iterable[str | Claim]) -> Iterator[Claim]:
    """The claims; an empty cell is an empty claim with its number as its id, which is answered with an error.

    Raises UsageError for anything else, such as one text, whose letters would be claims.
    """
    if isinstance(given, str | bytes | Claim | Mapping) or not isinstance(given, Iterable):
        what = "one claim" if isinstance(given, str | Claim) else f"a {type(given).__name__}"
        raise UsageError(f"check_many takes several claims, not {what}. Use check(claim), or check_many([claim])")
    if hasattr(given, "columns"):
        raise UsageError("check_many takes claims, not a data frame. Name its column: check_many(frame['claim'])")
    for number, one in enumerate(given, 1):
        empty = not isinstance(one, str | Claim) and str(one) in EMPTY_CELLS
        yield Claim("", str(number)) if empty else _claim(one)


def _claim(given: str | Claim) -> Claim:
    if isinstance(given, str):
        return Claim(given)
    if not isinstance(given, Claim):
        raise UsageError(f"a claim is a text or a ccheck.Claim, not a {type(given).__name__} ({given!r:.80})")
    return given


def at_once(verdict: VerdictStage, claims: int) -> int:
    """How many claims are judged together, of about `claims`.

    The strategy batch asks about many pairs in one prompt, whose answers depend on how many they are: so many claims as
    fill prompts.
    """
    if verdict.strategy != "batch":
        return claims
    fill = math.ceil(verdict.batch / verdict.documents)
    return max(fill, claims // fill * fill)
