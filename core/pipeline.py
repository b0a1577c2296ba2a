"""Running a recipe: from claims to results, and from files to a store."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from .analysis import clean
from .errors import CcheckError, InvalidData, MissingExtra, NotFound, UsageError
from .recipe import Recipe, load_recipe
from .rerank.apply import rerank
from .rerank.open import open_reranker
from .search import Filter, Store, StoreInfo, open_store
from .settings import Settings
from .stages import Dense, ListwiseReranker, RerankerStage, Retriever
from .types import Claim, Evidence, Query, Ranking, Result, Stance, Vector, Verdict
from .verdict import Case, Judge, StanceMethod, all_judged, choose_sentences_many, conclude, with_stances
from .verdict.open import Conclude, open_conclusion, open_method

if TYPE_CHECKING:
    from .ingest import IngestOptions, Progress, Report
    from .llm import Budget, LanguageModel
    from .rerank import Reranker
    from .search.embedding import Embedder
    from .search.store import Embedding
    from .verdict.evidence import EvidenceMethod
    from .verdict.llm import PlannedPrompt

T = TypeVar("T")
BATCH = 64
"""How many claims are embedded and searched at a time."""
ANSWERED_AT_ONCE = 8
"""How many of them are reranked and judged at a time: few, so that the first answers are there soon."""
MAX_CLAIM_CHARS = 100_000


@dataclass(frozen=True, slots=True)
class Plan:
    """What can run: the retrievers, the model for the dense ones, rerankers, who judges, and what the user should know.

    Where nobody judges, though the recipe asks for it, `no_method` says why.
    """

    retrievers: dict[str, Retriever]
    embedder: Embedder | None
    rerankers: dict[str, tuple[RerankerStage, Reranker]]
    sentences_by: EvidenceMethod
    method: StanceMethod | None
    no_method: str
    conclude: Conclude
    warnings: tuple[str, ...]


class Checker:
    """A store and a recipe, ready to ingest and to check claims.

    `judge` decides on stances and verdicts, instead of what the recipe says. `strict`: where a reranker fails the claim
    has its error, instead of the ranking before with a warning. `notify` is told, in a few words, when something takes
    long.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        recipe: Recipe | None = None,
        judge: Judge | None = None,
        strict: bool = False,
        notify: Callable[[str], None] = lambda message: None,
    ) -> None:
        """Open the store of the settings. Raises UsageError, NotFound or InvalidData."""
        self.settings = settings
        self.recipe = recipe or load_recipe(settings.recipe)
        self.store: Store = open_store(settings)
        self._judge, self._strict = judge, strict
        self._notify = notify
        self._embedder: Embedder | None = None
        self._embedder_name = ""
        self._plan: Plan | None = None
        self._llms: dict[str, LanguageModel] = {}
        self._budget: Budget | None = None

    # -- checking

    def check(self, claim: str | Claim, *, k: int = 10, filters: Sequence[Filter] = ()) -> Result:
        """Check one claim against the `k` documents that bear on it most. Raises CcheckError."""
        claim = Claim(claim) if isinstance(claim, str) else claim
        result = next(self.check_many([claim], k=k, filters=filters))
        if result.error is not None:
            raise result.error
        return result

    def check_many(
        self, claims: Iterable[Claim], *, k: int = 10, filters: Sequence[Filter] = (), details: bool = True
    ) -> Iterator[Result]:
        """Check many claims, in their order, in batches.

        A claim that can't be checked is a result with its error and no evidence. What would fail for every claim (no
        store, a model that is not there) is raised at once. `details` fills the scores and ranks of each retriever.
        """
        if k < 1:
            raise UsageError(f"k is {k}; it must be at least 1")
        plan = self.plan()
        for results in self._prepared(plan, claims, k, filters, details):
            if self.recipe.verdict.method == "none":
                yield from results
            elif self._judge is not None:
                yield from (self._judged_by_user(self._judge, result) for result in results)
            else:
                yield from self._judged(plan, results)

    def prompts(
        self, claims: Iterable[Claim], *, k: int = 10, filters: Sequence[Filter] = ()
    ) -> Iterator[PlannedPrompt]:
        """What a language model would be asked to judge these claims, without asking it anything.

        Claims that can't be checked are left out; a listwise reranker, which would have to be asked, does not run.
        Raises UsageError where no language model judges.
        """
        from .verdict.calibration import Calibrated
        from .verdict.llm import LlmStances

        plan = self.plan()
        method = plan.method.method if isinstance(plan.method, Calibrated) else plan.method
        if not isinstance(method, LlmStances):
            raise UsageError("no language model would be asked: name one by --llm MODEL (the verdict method llm)")
        scoring = {name: pair for name, pair in plan.rerankers.items() if not isinstance(pair[0], ListwiseReranker)}
        plan = replace(plan, rerankers=scoring)
        for results in self._prepared(plan, claims, k, filters, False):
            yield from method.plan_prompts(self._cases(results))

    def plan(self) -> Plan:
        """What of the recipe can run on this store and machine. Raises what a required part lacks."""
        if self._plan is not None:
            return self._plan
        info = self.store.info()
        if info is None:
            raise NotFound(
                f"there is no store {self.store.name}: make it with ccheck ingest FILE --store {self.store.name}, "
                "or see what ccheck does with ccheck demo"
            )
        if info.documents == 0:
            raise NotFound(f"the store {info.name} is empty: fill it with ccheck ingest FILE")
        warnings, retrievers, embedder = [], dict(self.recipe.retrievers), None
        if info.pending:
            warnings.append(
                f"{info.pending:,} documents are not yet in the BM25 index: an ingest is running or was cut off; "
                "run it again to finish it"
            )
        dense = {name: stage for name, stage in retrievers.items() if isinstance(stage, Dense)}
        if dense:
            try:
                if info.dimensions is None:
                    raise NotFound(f"the store {info.name} has no vectors: to add them {_how_to_embed()}")
                embedder = self._embedder_for(info)
                if embedder.spec.dimensions != info.dimensions:
                    raise InvalidData(
                        f"the vectors of the store {info.name} have {info.dimensions} dimensions, those of "
                        f"{embedder.spec.model} {embedder.spec.dimensions}: name the model that made them by --model"
                    )
            except (NotFound, MissingExtra) as error:
                # A model that somebody named and that is not there is no reason to go on with less.
                named = self.settings.embedding_model is not None and isinstance(error, NotFound)
                required = any(stage.required for stage in dense.values())
                if required or len(dense) == len(retrievers) or (named and info.dimensions is not None):
                    raise
                warnings.append(f"BM25 only: {error}")
                retrievers = {name: stage for name, stage in retrievers.items() if name not in dense}
        rerankers = self._open_rerankers(warnings)
        method, no_method = self._open_method(embedder)
        sentences_by = self.recipe.evidence.method
        if (sentences_by == "reranker" and _sentence_scorer(rerankers) is None) or (
            sentences_by == "embedding" and embedder is None
        ):
            warnings.append(f"sentences are chosen by shared words: there is nothing here to choose by {sentences_by}")
            sentences_by = "mix" if embedder is not None else "lexical"
        judged_by = method.name if method is not None else "none"
        conclude = open_conclusion(self.recipe.verdict, self._language_model, judged_by)
        warnings += [llm.notice for llm in self._llms.values() if llm.notice]
        self._plan = Plan(retrievers, embedder, rerankers, sentences_by, method, no_method, conclude, tuple(warnings))
        return self._plan

    def _language_model(self, name: str | None) -> LanguageModel:
        """The language model of that name, else of the settings; all of a checker spend from one budget."""
        from .llm import open_budget, open_llm

        self._budget = self._budget or open_budget(self.settings)
        name = name or self.settings.llm_model or ""
        if name not in self._llms:
            self._llms[name] = open_llm(self.settings, name, budget=self._budget)
        return self._llms[name]

    def _open_rerankers(self, warnings: list[str]) -> dict[str, tuple[RerankerStage, Reranker]]:
        opened: dict[str, tuple[RerankerStage, Reranker]] = {}
        for name, stage in self.recipe.rerankers.items():
            try:
                opened[name] = stage, open_reranker(stage, self.settings, self._language_model, self._notify)
            except (NotFound, MissingExtra) as error:
                if stage.required or self._strict:
                    raise
                warnings.append(f"not reranked: {error}")
        return opened

    def _open_method(self, embedder: Embedder | None) -> tuple[StanceMethod | None, str]:
        """Who judges; else nobody, and why."""
        stage = self.recipe.verdict
        if stage.method == "none" or self._judge is not None:
            return None, ""
        try:
            embed = embedder.encode_queries if embedder is not None else None
            return open_method(stage, self.settings, self._language_model, self._notify, embed), ""
        except (NotFound, MissingExtra) as error:
            if stage.method != "auto" or self.settings.llm_model or self.settings.stance_model:
                raise
            return None, str(error)

    def _retrieved(
        self, plan: Plan, claims: Sequence[Claim], k: int, filters: Sequence[Filter], details: bool
    ) -> tuple[list[Result], dict[str, Vector]]:
        """Each claim with what was found as its evidence, without sentences, or with its error.

        And the embeddings of the claims by their text, where there is a model.
        """
        problems = [_problem(claim) for claim in claims]
        asked = [claim for claim, problem in zip(claims, problems, strict=True) if problem is None]
        started = time.perf_counter()
        queries = [Query(clean(claim.text)) for claim in asked]
        embeddings: dict[str, Vector] = {}
        if plan.embedder is not None and asked:
            vectors = plan.embedder.encode_queries([query.text for query in queries])
            queries = [replace(query, vector=vector) for query, vector in zip(queries, vectors, strict=True)]
            embeddings = dict(zip((claim.text for claim in asked), vectors, strict=True))
        embedded = time.perf_counter()
        rankings: Iterator[Ranking | CcheckError] = iter(())
        if asked:
            retrievers = _deep_enough(plan.retrievers, k)
            found = self.store.search(queries, retrievers, self.recipe.fusion, k=k, filters=filters, details=details)
            rankings = iter(found)
        timings = {
            "embed": _milliseconds(embedded - started, len(asked)),
            "retrieve": _milliseconds(time.perf_counter() - embedded, len(asked)),
        }
        results = [
            self._result(claim, problem or next(rankings), plan, timings)
            for claim, problem in zip(claims, problems, strict=True)
        ]
        return results, embeddings

    def _result(self, claim: Claim, found: Ranking | CcheckError, plan: Plan, timings: dict[str, float]) -> Result:
        result = Result(claim, (), None, self.recipe.name, self.store.name, plan.warnings)
        if isinstance(found, CcheckError):
            return replace(result, error=found)
        return replace(result, evidence=tuple(Evidence(hit) for hit in found.hits), timings_ms=timings)

    def _prepared(
        self, plan: Plan, claims: Iterable[Claim], k: int, filters: Sequence[Filter], details: bool
    ) -> Iterator[list[Result]]:
        """The claims, some at a time, with all but stances and verdicts."""
        deepest = max([k, *(stage.depth for stage, _ in plan.rerankers.values())])
        for batch in _batches(claims, BATCH):
            results, embeddings = self._retrieved(plan, batch, deepest, filters, details)
            for some in _batches(results, ANSWERED_AT_ONCE):
                yield self._with_sentences(plan, [self._reranked(plan, result, k) for result in some], embeddings)

    def _cases(self, results: Sequence[Result]) -> list[Case]:
        """What there is to judge."""
        return [
            Case(result.claim, result.evidence[: self.recipe.verdict.documents])
            for result in results
            if result.error is None and result.evidence
        ]

    def _reranked(self, plan: Plan, result: Result, k: int) -> Result:
        if result.error is not None:
            return result
        if not result.evidence or not plan.rerankers:
            return replace(result, evidence=result.evidence[:k], timings_ms={**result.timings_ms, "rerank": 0.0})
        started = time.perf_counter()
        ranking = Ranking(tuple(piece.hit for piece in result.evidence))
        before = self.recipe.fusion.method if len(plan.retrievers) > 1 else next(iter(plan.retrievers))
        usage, warnings, previous = result.usage, list(result.warnings), ""
        for name, (stage, reranker) in plan.rerankers.items():
            try:
                ranking, used = rerank(clean(result.claim.text), ranking, reranker, stage, name, before, previous)
                usage, previous = usage + used, name
            except CcheckError as error:
                if self._strict:
                    return replace(result, evidence=(), error=error)
                warnings.append(f"not reranked by {name}, which failed: {error}")
        return replace(
            result,
            evidence=tuple(Evidence(hit) for hit in ranking.hits[:k]),
            warnings=tuple(warnings),
            usage=usage,
            timings_ms={**result.timings_ms, "rerank": _milliseconds(time.perf_counter() - started)},
        )

    def _with_sentences(self, plan: Plan, results: Sequence[Result], embeddings: dict[str, Vector]) -> list[Result]:
        found = [result for result in results if result.error is None]
        started = time.perf_counter()
        stage = self.recipe.evidence
        vectors = None
        if embeddings and found:
            import numpy as np

            vectors = np.stack([embeddings[result.claim.text] for result in found])
        chosen = iter(
            choose_sentences_many(
                [(result.claim.text, [piece.document for piece in result.evidence]) for result in found],
                stage.sentences,
                plan.sentences_by,
                embed=plan.embedder.encode_documents if plan.embedder is not None else None,
                rerank=_sentence_scorer(plan.rerankers),
                claim_vectors=vectors,
            )
        )
        spent = _milliseconds(time.perf_counter() - started, len(found))
        return [
            result
            if result.error is not None
            else replace(
                result,
                evidence=tuple(
                    replace(piece, sentences=sentences)
                    for piece, sentences in zip(result.evidence, next(chosen), strict=True)
                ),
                timings_ms={**result.timings_ms, "evidence": spent},
            )
            for result in results
        ]

    def _judged(self, plan: Plan, results: Sequence[Result]) -> Iterator[Result]:
        """With the stances of the plan's method, and the verdicts that follow."""
        stage, method = self.recipe.verdict, plan.method
        judged = all_judged(method, self._cases(results)) if method is not None else iter(())
        for result in results:
            if result.error is not None:
                yield result
            elif method is None:
                unread = Verdict(None, error=plan.no_method)
                yield replace(result, verdict=unread, timings_ms={**result.timings_ms, "verdict": 0.0})
            elif not result.evidence:
                yield replace(result, verdict=conclude((), method.name))
            else:
                started = time.perf_counter()
                one = next(judged)
                evidence = with_stances(result.evidence, one, self.recipe.evidence.sentences)
                verdict, used = plan.conclude(result.claim, evidence[: stage.documents])
                yield replace(
                    result,
                    evidence=evidence,
                    verdict=verdict,
                    usage=result.usage + one.usage + used,
                    timings_ms={**result.timings_ms, "verdict": _milliseconds(time.perf_counter() - started)},
                )
        next(judged, None)  # where a method was interrupted it says so after its last answer

    def _judged_by_user(self, judge: Judge, result: Result) -> Result:
        if result.error is not None:
            return result
        started = time.perf_counter()
        try:
            stances, verdict = judge(result.claim, result.evidence)
            evidence = tuple(
                replace(piece, stance=stance) for piece, stance in zip(result.evidence, stances, strict=True)
            )
        except Exception as error:  # noqa: BLE001 - whatever a judge raises is that verdict's error, never a label
            message = f"{type(error).__name__}: {error}"
            evidence = tuple(replace(piece, stance=Stance(None, error=message)) for piece in result.evidence)
            verdict = Verdict(None, method="judge", error=message)
        spent = _milliseconds(time.perf_counter() - started)
        return replace(result, evidence=evidence, verdict=verdict, timings_ms={**result.timings_ms, "verdict": spent})

    # -- ingesting

    def ingest(
        self,
        *sources: str,
        options: IngestOptions | None = None,
        dense: bool | None = None,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> Report:
        """Read files, folders or globs into the store. Raises CcheckError; what is bad in them is in the report.

        `dense=False` makes no vectors, `dense=True` insists on them; by default they are made where the models extra
        is installed.
        """
        from .ingest import IngestOptions, ingest

        self._plan = None
        return ingest(
            list(sources),
            self.store,
            self.ingest_embedder(dense),
            options or IngestOptions(cache_dir=self.settings.cache_dir, cache_bytes=self.settings.cache_bytes),
            on_progress,
        )

    def ingest_embedder(self, dense: bool | None = None) -> Embedder | None:
        """The model that an ingest will use; None for BM25 only."""
        from .models import models_installed
        from .search.embedding import DEFAULT_MODEL

        if dense is False:
            return None
        info = self.store.info()
        if dense is None and not models_installed():
            if info is not None and info.dimensions is not None:
                raise MissingExtra(f"adding to the store {info.name}, which has vectors,", "models")
            return None
        made_with = info.layout.embedding if info is not None else None
        name = self.settings.embedding_model or (made_with.model if made_with else DEFAULT_MODEL)
        return self._load_embedder(name, made_with)

    def _embedder_for(self, info: StoreInfo) -> Embedder:
        """The model that made a store's vectors: by the name that the store remembers, else by the settings'."""
        from .models import find_model, fingerprint, require_models
        from .search.embedding import DEFAULT_MODEL

        require_models("dense retrieval")
        made_with = info.layout.embedding
        name = self.settings.embedding_model or (made_with.model if made_with else DEFAULT_MODEL)
        if made_with is not None and (found := fingerprint(find_model(name).path)) != made_with.fingerprint:
            raise InvalidData(
                f"the store {info.name} was made with {info.layout.describe()}; {name} has other weights here "
                f"({found[:8]}). Name the folder of the right one by --model, or ingest into another store"
            )
        return self._load_embedder(name, made_with)

    def _load_embedder(self, name: str, known: Embedding | None) -> Embedder:
        from .search.embedding import load_embedder

        if self._embedder is None or self._embedder_name != name:
            self._embedder = load_embedder(name, self.settings.device, known, lambda: self._notify(f"loading {name}"))
            self._embedder_name = name
        return self._embedder

    # --

    def close(self) -> None:
        for llm in self._llms.values():
            llm.close()
        self._llms.clear()
        self._plan = None
        self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _sentence_scorer(
    rerankers: Mapping[str, tuple[RerankerStage, Reranker]],
) -> Callable[[str, Sequence[str]], Sequence[float]] | None:
    """The last reranker that scores any text, for sentences."""
    scoring = [reranker for stage, reranker in rerankers.values() if not isinstance(stage, ListwiseReranker)]
    return (lambda claim, texts: scoring[-1](claim, texts).normalized) if scoring else None


def _how_to_embed() -> str:
    from .models import models_installed

    return "ingest again" if models_installed() else "pip install 'ccheck[models]' and ingest again"


def _deep_enough(retrievers: dict[str, Retriever], k: int) -> dict[str, Retriever]:
    """Retrievers that hand on at least as many documents as are asked for."""
    return {
        name: stage if stage.depth >= k else stage.model_copy(update={"depth": k}) for name, stage in retrievers.items()
    }


def _problem(claim: Claim) -> CcheckError | None:
    """Why a claim can't be checked."""
    if not claim.text.strip():
        return InvalidData("the claim is empty")
    if len(claim.text) > MAX_CLAIM_CHARS:
        return InvalidData(
            f"the claim has {len(claim.text):,} characters; at most {MAX_CLAIM_CHARS:,} are searched for"
        )
    return None


def _batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    iterator = iter(items)
    while batch := list(itertools.islice(iterator, size)):
        yield batch


def _milliseconds(seconds: float, claims: int = 1) -> float:
    """A claim's share of the time that a batch took."""
    return round(seconds * 1000 / max(1, claims), 3)
