"""Running a recipe: from claims to results, and from files to a store."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from ..adjust import adjusted
from ..errors import CcheckError, UsageError
from ..memory import Memory
from ..recipe import Recipe
from ..search import Filter, Store, open_store
from ..search.filters import refuse_unfit
from ..settings import Settings
from ..types import Claim, Result
from ..verdict import Judge
from .encoders import open_encoders
from .plan import Plan, make_plan
from .resources import Loaded
from .steps import (
    Asked,
    cases,
    filtered_out,
    judged,
    judged_by_user,
    not_asked,
    reranked,
    retrieved,
    with_reason,
    with_sentences,
    without_questions,
)

if TYPE_CHECKING:
    from ..ingest import IngestOptions, Progress, Report
    from ..verdict.llm import PlannedPrompt

T = TypeVar("T")
BATCH = 64
"""How many claims are embedded and searched at a time."""
ANSWERED_AT_ONCE = 8
"""How many of them are reranked and judged at a time: few, so that the first answers are there soon."""
MEASURED_BATCH = 512
"""The same where recipes are measured: texts of like length meet, and what is read once serves many."""


class Checker:
    """A store and a recipe, ready to ingest and to check claims.

    `judge` decides on stances and verdicts, instead of what the recipe says. `strict`: where a reranker fails the claim
    has its error, instead of the ranking before with a warning. `notify` is told, in a few words, when something takes
    long. `loaded`: the models that several checkers share, and `store`: theirs, which stay when this one is closed; the
    memory of `loaded` keeps what the stages compute. Without a `recipe`: the settings', see `adjusted`.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        recipe: Recipe | None = None,
        judge: Judge | None = None,
        strict: bool = False,
        notify: Callable[[str], None] = lambda message: None,
        loaded: Loaded | None = None,
        store: Store | None = None,
    ) -> None:
        """Open the store of the settings. Raises UsageError, NotFound or InvalidData."""
        self.settings = settings
        self.recipe = recipe or adjusted(settings)
        self.store: Store = store or open_store(settings)
        self._judge, self._strict = judge, strict
        self._loaded = loaded or Loaded(settings, notify=notify)
        self._owns_models, self._owns_store = loaded is None, store is None
        self._plan: Plan | None = None

    @property
    def memory(self) -> Memory | None:
        return self._loaded.memory

    # -- checking

    def check(self, claim: str | Claim, *, k: int = 10, filters: Sequence[Filter] = ()) -> Result:
        """Check one claim against the `k` documents that bear on it most. Raises CcheckError."""
        claim = Claim(claim) if isinstance(claim, str) else claim
        result = next(self.check_many([claim], k=k, filters=filters))
        if result.error is not None:
            raise result.error
        return result

    def check_many(
        self,
        claims: Iterable[Claim],
        *,
        k: int = 10,
        filters: Sequence[Filter] = (),
        details: bool = True,
        trace: bool = False,
    ) -> Iterator[Result]:
        """Check many claims, in their order, in batches.

        A claim that can't be checked is a result with its error and no evidence. What fails before any claim was
        answered (no store, a wrong key, a model that is not there) would fail for every claim and is raised. What fails
        later (a server that went away for longer than ccheck waits) is the error of each claim that it stopped, and the
        next ones are tried. `details` fills the scores and ranks of each retriever.

        `trace` is for measuring: it fills `Result.stages`, works in larger batches, leaves each retriever at the depth
        that the recipe says, and chooses sentences only for the documents that are judged.
        """
        if k < 1:
            raise UsageError(f"k is {k}; it must be at least 1")
        plan = self.plan()
        for results in self._prepared(plan, claims, Asked(k, filters, details, trace)):
            if self.recipe.verdict.method == "none":
                yield from results
            elif self._judge is not None:
                yield from (judged_by_user(self._judge, result) for result in results)
            else:
                yield from judged(plan, self.recipe, results)

    def prompts(
        self, claims: Iterable[Claim], *, k: int = 10, filters: Sequence[Filter] = ()
    ) -> Iterator[PlannedPrompt]:
        """What a language model would be asked to judge these claims, without asking it anything.

        Claims that can't be checked are left out; what would have to be asked before, a listwise reranker or rewriting,
        does not run. Raises UsageError where no language model judges.
        """
        from ..verdict.calibration import Calibrated
        from ..verdict.llm import LlmStances

        plan = self.plan()
        method = plan.method.method if isinstance(plan.method, Calibrated) else plan.method
        if not isinstance(method, LlmStances):
            raise UsageError("no language model would be asked: name one by --llm MODEL (the verdict method llm)")
        for results in self._prepared(without_questions(plan), claims, Asked(k, filters, details=False)):
            yield from method.plan_prompts(cases(self.recipe, results))

    def plan(self) -> Plan:
        """What of the recipe can run on this store and machine. Raises what a required part lacks."""
        if self._plan is None:
            self._plan = make_plan(
                self.recipe,
                self.store.info(),
                self.store.name,
                self._loaded,
                strict=self._strict,
                judges=self._judge is None,
            )
        return self._plan

    def _prepared(self, plan: Plan, claims: Iterable[Claim], asked: Asked) -> Iterator[list[Result]]:
        """The claims, some at a time, with all but stances and verdicts."""
        documents = self._documents_to_read(plan) if asked.trace else None
        if asked.filters:
            refuse_unfit(asked.filters, self.store.fields(), self.store.name)
        answered = False
        reason = functools.cache(lambda: filtered_out(self.store, asked.filters))
        for batch in _batches(claims, MEASURED_BATCH if asked.trace else BATCH):
            try:
                results, vectors = retrieved(plan, self.recipe, self.store, batch, asked, self.memory)
                results = with_reason(results, reason) if asked.filters else results
            except CcheckError as error:
                if asked.trace or not answered:
                    raise
                yield not_asked(plan, self.recipe, self.store, batch, error)
                continue
            answered = answered or any(result.error is None for result in results)
            for some in _batches(results, BATCH if asked.trace else ANSWERED_AT_ONCE):
                ordered = reranked(plan, self.recipe, some, asked, strict=self._strict)
                yield with_sentences(plan, self.recipe, ordered, vectors, documents)

    def _documents_to_read(self, plan: Plan) -> int:
        """How many documents of a claim somebody judges."""
        nobody = self.recipe.verdict.method == "none" or (plan.method is None and self._judge is None)
        return 0 if nobody else self.recipe.verdict.documents

    # -- ingesting

    def ingest(
        self,
        *sources: str,
        options: IngestOptions | None = None,
        dense: bool | None = None,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> Report:
        """Read files, folders or globs into the store. Raises CcheckError; what is bad in them is in the report.

        The store gets what a recipe that names models of its own searches in (sparse vectors, say). `dense=False` makes
        no vectors, `dense=True` insists on them; by default they are made where the models extra is installed.
        """
        from ..ingest import IngestOptions, ingest
        from .needs import needs_of

        self._plan = None
        needing = self.recipe if needs_of(self.recipe).own else None
        return ingest(
            list(sources),
            self.store,
            open_encoders(self._loaded, self.store.info(), needing, dense),
            options or IngestOptions(cache_dir=self.settings.cache_dir, cache_bytes=self.settings.cache_bytes),
            on_progress,
        )

    # --

    def close(self) -> None:
        if self._owns_models:
            self._loaded.close()
        self._plan = None
        if self._owns_store:
            self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    iterator = iter(items)
    while batch := list(itertools.islice(iterator, size)):
        yield batch
