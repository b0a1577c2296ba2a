"""Checking claims with questions: asked, searched and answered side by side, each claim within its own time.

Language models are asked in the event loop, where what takes too long can be cancelled. Models on this machine and the
store are used by the calling thread alone, for all questions that wait at a time.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from queue import SimpleQueue
from typing import TypeVar

from ..core import event_loop
from ..core.errors import CcheckError, Incomplete
from ..core.question import NO_ANSWER, Citation, QuestionAnswer
from ..core.stages import QuestionsStage
from ..core.types import Claim, Filter, Hit, Query, Verdict
from ..llm.types import Answer, Failure, Refused
from ..search import Search, answer
from ..search.filters import PUBLISHED
from ..verdict.questions import Asking, distinct, read_answer, verdict_without_model
from .run import ClaimState, Run
from .steps import choose_evidence, encode_claims

T = TypeVar("T")
QUESTIONS_SHARE = 0.75
"""The share of a claim's time that its questions may take. The verdict has the rest."""
AHEAD = 64
"""How many claims may be done or under way before the first of them that is not."""


class Late(Incomplete):
    """A claim's time was over."""


@dataclass(frozen=True, slots=True)
class _Search:
    """A question that waits for its hits: the question itself and its queries, and the claim's scope."""

    texts: tuple[str, ...]
    filters: tuple[Filter, ...]
    found: Future[tuple[Hit, ...]]


@dataclass(slots=True)
class _Work:
    """A question while it is worked on. `doing` says, for whoever stops it, what."""

    question: str
    queries: tuple[str, ...] = ()
    doing: str = "it waited for its turn"
    answer: str | None = None
    hits: tuple[Hit, ...] = ()
    """The hits that the answer cites."""
    error: str | None = None

    def result(self) -> QuestionAnswer:
        citations = tuple(
            Citation(hit.document.id, *_span(hit), hit.read.text) for hit in self.hits if self.answer is not None
        )
        return QuestionAnswer(self.question, self.queries, self.answer, citations, self.error)


@dataclass(slots=True)
class _Clock:
    """A claim's time: it begins when its work does."""

    seconds: float | None
    started: float = field(default_factory=time.monotonic)

    def left(self, share: float = 1.0) -> float | None:
        """How many seconds of a share of the time are left, at least 0; None without a limit."""
        if self.seconds is None:
            return None
        return max(0.0, self.started + self.seconds * share - time.monotonic())

    def late(self, doing: str, share: float = 1.0) -> Late:
        assert self.seconds is not None
        some = f"{self.seconds * share:g} s of " if share < 1 else ""
        return Late(f"{some}the deadline of {self.seconds:g} s passed while {doing}")


def check_with_questions(run: Run, asking: Asking, claims: Iterator[Claim]) -> Iterator[ClaimState]:
    """The claims, in their order, each as soon as it and those before it are done.

    So many claims are worked on at a time that their questions rarely wait for each other. Raises what would fail for
    every claim: Refused where the server answers no question, and what the store raises before it answered any.
    """
    events: SimpleQueue[_Search | None] = SimpleQueue()
    """What the event loop has to say: searches that questions wait for, and None where the work on a claim ended."""
    at_once = max(1, asking.llm.most_at_once // min(asking.stage.count, asking.stage.parallel))
    fields = set(run.store.fields()) if asking.stage.collection or asking.stage.until_claim else set()
    if any(one.field == PUBLISHED for one in run.filters):
        fields.discard(PUBLISHED)  # a date that the caller names counts instead of the claims' own
    waiting: deque[tuple[ClaimState, Future[None] | None]] = deque()
    searched = False
    more = True
    try:
        while more or waiting:
            while more and len(waiting) < AHEAD and sum(map(_under_way, waiting)) < at_once:
                claim = next(claims, None)
                if claim is None:
                    more = False
                    break
                (state,) = run.states([claim])
                work = None
                if state.error is None:
                    one = _Claim(run, asking, state, _scope(claim, asking.stage, fields), events.put)
                    work = event_loop.submit(one.work())
                    work.add_done_callback(lambda _: events.put(None))
                waiting.append((state, work))
            while waiting and not _under_way(waiting[0]):
                state, work = waiting.popleft()
                if work is not None and (error := work.exception()) is not None:
                    raise error.args[0] if isinstance(error, _Fatal) else error
                choose_evidence(run, [state] if state.hits else [], None)
                yield state
            if not waiting:
                continue
            searches = _taken(events)
            try:
                _serve(run, searches)
                searched = searched or bool(searches)
            except CcheckError as error:
                if not searched:
                    raise
                for search in searches:
                    search.found.set_exception(error)
    finally:
        for _, work in waiting:
            if work is not None:
                work.cancel()


def _under_way(one: tuple[ClaimState, Future[None] | None]) -> bool:
    work = one[1]
    return work is not None and not work.done()


def _taken(events: SimpleQueue[_Search | None]) -> list[_Search]:
    """The new searches. Waits for an event. Searches that nobody waits for any more are left out."""
    taken = [events.get()]
    while not events.empty():
        taken.append(events.get())
    return [one for one in taken if one is not None and one.found.set_running_or_notify_cancel()]


def _scope(claim: Claim, stage: QuestionsStage, fields: set[str]) -> tuple[Filter, ...]:
    """The claim's own collection, and no page from after it. What the store's pages do not have limits nothing."""
    scope: list[Filter] = []
    if stage.collection is not None and claim.id is not None and stage.collection in fields:
        scope.append(Filter(stage.collection, "=", claim.id))
    if stage.until_claim and claim.date is not None and PUBLISHED in fields:
        scope.append(Filter(PUBLISHED, "not>", claim.date))
    return tuple(scope)


def _serve(run: Run, searches: Sequence[_Search]) -> None:
    """Give each search its hits, or its error."""
    stage = run.recipe.questions
    if stage is None or not searches:
        return
    texts = list(dict.fromkeys(text for search in searches for text in search.texts))
    states = run.states([Claim(text) for text in texts])
    encode_claims(run, states)
    by_text = {text: state.query or Query(state.text) for text, state in zip(texts, states, strict=True)}
    asked = [[replace(by_text[text], filters=search.filters) for text in search.texts] for search in searches]
    queries = [query for some in asked for query in some]
    search_all = Search(queries, run.plan.retrievers, run.recipe.fusion, stage.passages, run.filters)
    found = answer(run.store, search_all, questions=list(map(len, asked)), pooled=True)
    for search, ranking in zip(searches, found, strict=True):
        if isinstance(ranking, CcheckError):
            search.found.set_exception(ranking)
        else:
            search.found.set_result(ranking.hits)


class _Claim:
    """One claim's work, in the event loop. It fills in the claim's state."""

    def __init__(
        self, run: Run, asking: Asking, state: ClaimState, scope: tuple[Filter, ...], search: Callable[[_Search], None]
    ) -> None:
        self._run, self._asking, self._state, self._scope = run, asking, state, scope
        self._search_for = search
        self._turns = asyncio.Semaphore(asking.stage.parallel)

    async def work(self) -> None:
        clock = _Clock(self._asking.stage.deadline)
        await self._check(clock)
        self._spent("total", clock.started)
        self._state.timings_ms = {name: round(spent, 3) for name, spent in self._state.timings_ms.items()}

    async def _check(self, clock: _Clock) -> None:
        state, asking = self._state, self._asking
        state.questions = ()
        try:
            questions = await self._questions(clock)
        except CcheckError as error:
            state.verdict = Verdict(None, method=asking.name, error=f"no questions could be asked: {error}")
            return
        works = [_Work(question) for question in questions]
        try:
            async with asyncio.timeout(clock.left(QUESTIONS_SHARE)), asyncio.TaskGroup() as group:
                for work in works:
                    group.create_task(self._one(work))
        except TimeoutError:
            for work in works:
                if work.answer is None and work.error is None:
                    work.error = str(clock.late(work.doing, QUESTIONS_SHARE))
        except BaseExceptionGroup as several:
            raise several.exceptions[0] from None
        state.questions = tuple(work.result() for work in works)
        state.hits = _cited(works)
        state.stages["questions"] = tuple(dict.fromkeys(hit.document.id for hit in state.hits))
        if self._run.recipe.verdict.method != "none":
            state.verdict = await self._verdict(clock)

    async def _questions(self, clock: _Clock) -> list[str]:
        """The claim's questions. Raises CcheckError."""
        stage = self._asking.stage
        try:
            async with asyncio.timeout(clock.left()):
                reply = await self._ask(
                    "questions", self._asking.asker.answer(self._asking.questions(self._state.text))
                )
        except TimeoutError:
            raise clock.late("the model wrote the questions") from None
        questions = distinct(reply.questions)
        if len(questions) > stage.count:
            self._state.warnings.append(
                f"the model wrote {len(questions)} questions. The first {stage.count} were used"
            )
        return questions[: stage.count]

    async def _one(self, work: _Work) -> None:
        """Queries, search and answer of a question. What fails is its error."""
        asking = self._asking
        async with self._turns:
            if asking.stage.queries:
                work.doing = "the model wrote its queries"
                try:
                    made = await self._ask("queries", asking.asker.answer(asking.queries(work.question)))
                    work.queries = tuple(distinct(made.queries)[: asking.stage.queries])
                except CcheckError as error:
                    self._state.warnings.append(
                        f"the question {work.question!r} was searched for without further queries: {error}"
                    )
            try:
                work.doing = "the pages were searched"
                hits = await self._search((work.question, *work.queries))
                if not hits:
                    work.answer = NO_ANSWER
                    return
                work.doing = "the model answered it"
                question, read = asking.answer(work.question, hits)
                reply = await self._ask("answers", asking.llm.answer(question))
                answer, cited = read_answer(work.question, reply)
                work.hits = tuple(hits[:read][place] for place in cited)
                work.answer = answer
            except CcheckError as error:
                work.error = str(error)

    async def _search(self, texts: tuple[str, ...]) -> tuple[Hit, ...]:
        started = time.monotonic()
        found: Future[tuple[Hit, ...]] = Future()
        self._search_for(_Search(tuple(dict.fromkeys(texts)), self._scope, found))
        try:
            return await asyncio.wrap_future(found)
        finally:
            self._spent("retrieve", started)

    async def _verdict(self, clock: _Clock) -> Verdict:
        asking, answers = self._asking, self._state.questions or ()
        verdict = verdict_without_model(answers, asking.name)
        if verdict is None:
            try:
                async with asyncio.timeout(clock.left()):
                    question = asking.veracity(self._state.text, answers)
                    verdict = asking.verdict(await self._ask("verdict", asking.llm.answer(question)))
            except TimeoutError:
                return Verdict(None, method=asking.name, error=str(clock.late("the model judged the answers")))
            except CcheckError as error:
                return Verdict(None, method=asking.name, error=str(error))
        failed = [one for one in answers if one.error is not None]
        if failed and verdict.label is not None:
            said = f"{len(failed)} of {len(answers)} questions have no answer: {failed[0].error}"
            verdict = replace(verdict, error=said)
        return verdict

    async def _ask(self, stage: str, asked: Awaitable[Answer[T] | Failure]) -> T:  # type: ignore[type-var]
        """The reply, with its usage and time noted. Raises its error."""
        started = time.monotonic()
        try:
            outcome = await asked
        finally:
            self._spent(stage, started)
        self._state.use(stage, outcome.usage)
        if isinstance(outcome, Failure):
            if isinstance(outcome.error, Refused) and not self._asking.llm.answered:
                raise _Fatal(outcome.error)
            raise outcome.error
        return outcome.value

    def _spent(self, stage: str, started: float) -> None:
        spent = (time.monotonic() - started) * 1000
        self._state.timings_ms[stage] = self._state.timings_ms.get(stage, 0.0) + spent


class _Fatal(Exception):
    """An error that would stop every claim: its first argument."""


def _cited(works: Sequence[_Work]) -> tuple[Hit, ...]:
    """The passages that answers cite, each once, the best first."""
    best: dict[tuple[str, int, int], Hit] = {}
    for work in works:
        for hit in work.hits if work.answer is not None else ():
            key = (hit.document.id, *_span(hit))
            if key not in best or hit.score > best[key].score:
                best[key] = hit
    ordered = sorted(best.values(), key=lambda hit: -hit.score)
    return tuple(replace(hit, rank=rank) for rank, hit in enumerate(ordered, 1))


def _span(hit: Hit) -> tuple[int, int]:
    return (0, len(hit.document.text)) if hit.unit is None else (hit.unit.start, hit.unit.end)
