"""Running a recipe: from claims to results, and from files to a store."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import TYPE_CHECKING, Self

from .analysis import clean
from .errors import CcheckError, InvalidData, MissingExtra, NotFound, UsageError
from .recipe import Dense, Recipe, Retriever, load_recipe
from .search import Filter, Store, StoreInfo, open_store
from .settings import Settings
from .types import Claim, Evidence, Query, Ranking, Result, Stance, Verdict
from .verdict import NOT_SET_UP, Judge, choose_sentences

if TYPE_CHECKING:
    from .ingest import IngestOptions, Progress, Report
    from .search.embedding import Embedder
    from .search.store import Embedding

BATCH = 64
"""How many claims are embedded and searched at a time."""
MAX_CLAIM_CHARS = 100_000


@dataclass(frozen=True, slots=True)
class Plan:
    """What can run: the retrievers, the model for the dense ones, and what the user should know."""

    retrievers: dict[str, Retriever]
    embedder: Embedder | None
    warnings: tuple[str, ...]


class Checker:
    """A store and a recipe, ready to ingest and to check claims.

    `judge` decides on stances and verdicts where the recipe asks for one. `notify` is told, in a few words, when
    something takes long.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        recipe: Recipe | None = None,
        judge: Judge | None = None,
        notify: Callable[[str], None] = lambda message: None,
    ) -> None:
        """Open the store of the settings. Raises UsageError, NotFound or InvalidData."""
        self.settings = settings
        self.recipe = recipe or load_recipe(settings.recipe)
        self.store: Store = open_store(settings)
        self._judge = judge
        self._notify = notify
        self._embedder: Embedder | None = None
        self._embedder_name = ""
        self._plan: Plan | None = None

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
        for batch in _batches(claims, BATCH):
            yield from self._check_batch(plan, batch, k, filters, details)

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
        self._plan = Plan(retrievers, embedder, tuple(warnings))
        return self._plan

    def _check_batch(
        self, plan: Plan, claims: Sequence[Claim], k: int, filters: Sequence[Filter], details: bool
    ) -> Iterator[Result]:
        problems = [_problem(claim) for claim in claims]
        asked = [claim for claim, problem in zip(claims, problems, strict=True) if problem is None]
        started = time.perf_counter()
        queries = [Query(clean(claim.text)) for claim in asked]
        if plan.embedder is not None and asked:
            vectors = plan.embedder.encode_queries([query.text for query in queries])
            queries = [replace(query, vector=vector) for query, vector in zip(queries, vectors, strict=True)]
        embedded = time.perf_counter()
        rankings: Iterator[Ranking | CcheckError] = iter(())
        if asked:
            found = self.store.search(
                queries, _deep_enough(plan.retrievers, k), self.recipe.fusion, k=k, filters=filters, details=details
            )
            rankings = iter(found)
        retrieved = time.perf_counter()
        timings = {
            "embed": _milliseconds(embedded - started, len(asked)),
            "retrieve": _milliseconds(retrieved - embedded, len(asked)),
        }
        for claim, problem in zip(claims, problems, strict=True):
            outcome = problem or next(rankings)
            if isinstance(outcome, CcheckError):
                yield self._result(claim, (), None, plan, {}, outcome)
            else:
                yield self._judged(claim, outcome, plan, timings)

    def _judged(self, claim: Claim, ranking: Ranking, plan: Plan, timings: dict[str, float]) -> Result:
        started = time.perf_counter()
        documents = [hit.document for hit in ranking.hits]
        sentences = choose_sentences(claim.text, documents, self.recipe.evidence.sentences)
        evidence = tuple(Evidence(hit, chosen) for hit, chosen in zip(ranking.hits, sentences, strict=True))
        chosen_at = time.perf_counter()
        verdict = None
        if self.recipe.verdict.method != "none":
            evidence, verdict = self._verdict(claim, evidence)
        timings = timings | {
            "evidence": _milliseconds(chosen_at - started),
            "verdict": _milliseconds(time.perf_counter() - chosen_at),
        }
        return self._result(claim, evidence, verdict, plan, timings, None)

    def _verdict(self, claim: Claim, evidence: tuple[Evidence, ...]) -> tuple[tuple[Evidence, ...], Verdict]:
        if self._judge is None:
            return evidence, Verdict(None, error=NOT_SET_UP)
        try:
            stances, verdict = self._judge(claim, evidence)
            return tuple(
                replace(piece, stance=stance) for piece, stance in zip(evidence, stances, strict=True)
            ), verdict
        except Exception as error:  # noqa: BLE001 - whatever a judge raises is that verdict's error, never a label
            message = f"{type(error).__name__}: {error}"
            failed = tuple(replace(piece, stance=Stance(None, error=message)) for piece in evidence)
            return failed, Verdict(None, method="judge", error=message)

    def _result(
        self,
        claim: Claim,
        evidence: tuple[Evidence, ...],
        verdict: Verdict | None,
        plan: Plan,
        timings: dict[str, float],
        error: CcheckError | None,
    ) -> Result:
        return Result(claim, evidence, verdict, self.recipe.name, self.store.name, plan.warnings, timings, error=error)

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
        self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


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


def _batches(claims: Iterable[Claim], size: int) -> Iterator[list[Claim]]:
    iterator = iter(claims)
    while batch := list(itertools.islice(iterator, size)):
        yield batch


def _milliseconds(seconds: float, claims: int = 1) -> float:
    """A claim's share of the time that a batch took."""
    return round(seconds * 1000 / max(1, claims), 3)
