"""The service: checks with their record, search, documents and corrections, for any number of threads."""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import threading
import time
import uuid
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, Unpack

from .. import __version__
from ..core.adjust import resolved
from ..core.analysis import clean
from ..core.answers import result_of
from ..core.closing import Closing
from ..core.errors import CcheckError, InvalidData, MissingExtra, NotFound, ServerError, UsageError
from ..core.events import event
from ..core.recipe import Recipe, cannot_run, packaged_recipe
from ..core.settings import Settings
from ..core.telemetry import count, span
from ..core.types import Claim, Document, Evidence, Filter, Result
from ..pipeline.batch import Answer, Answered, ClaimRecord, Key, check_batch, settings_key, unjudged, unranked
from ..pipeline.checker import Checker, claims_of, filters_of
from ..pipeline.plan import Plan, models_of
from ..rerank.several import OwnReranker
from ..search import Store
from .pairs import labelled_pairs
from .record import FileRecord, Record, missing, refuse_unfit, text_of
from .types import Check, Correction, Description, Event, How, OnEvent, Wanted, refuse_unknown

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    from ..pipeline.run import Tell
    from .workers import Workers

THREADS = 64
"""How many calls of the async methods run at once: most of them wait for a language model."""
PAUSE_S = 60.0
log = logging.getLogger(__name__)

P = ParamSpec("P")
R = TypeVar("R")


def open_service(store: str | Path | None = None, **settings: Any) -> Service:
    """A service on a store; the arguments are those of `ccheck.open`, and so are the errors."""
    from .. import open as open_checker

    return Service(open_checker(store, **settings), owns=True)


@dataclass(frozen=True, slots=True)
class _Ready:
    """What a checker planned for a state of the store."""

    plan: Plan
    recipe: Recipe
    state: str | None


@dataclass(frozen=True, slots=True)
class _Way:
    """How some claims are checked: with which checker, and what their ids are made of beside the claim."""

    checker: Checker
    k: int
    filters: Sequence[Filter]
    fresh: bool
    user: str | None
    about: Mapping[str, Any]

    def id_of(self, claim: Claim) -> str:
        """16 hexadecimal digits, the same whenever this claim would be checked in the same way."""
        decides = (self.about[name] for name in ("key", "models", "generation", "version"))
        parts = [" ".join(clean(claim.text).split()), claim.date, *decides]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def _async(method: Callable[Concatenate[Service, P], R]) -> Callable[Concatenate[Service, P], Awaitable[R]]:
    """The same method for `await`. It runs in a thread of the service, so that no event loop waits for it."""

    @functools.wraps(method)
    async def call(self: Service, /, *args: P.args, **how: P.kwargs) -> R:
        import asyncio  # here and below: the command line needs no threads

        work = functools.partial(method, self, *args, **how)
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    return call


class Service(Closing):
    """A checker with a record, for any number of threads. A call that waits, say for a language model, holds up no
    other.

    Every method raises a CcheckError: NotFound without the store, ServerError if its server fails, and so on. The
    methods with a name in `_async` are the same for `await`.
    """

    workers: Workers | None = None
    """What checks claims in place of the checker."""

    def __init__(self, checker: Checker, *, record: bool | None = None, deep: bool = False, owns: bool = False) -> None:
        """`record`: whether checks are kept, by default what the settings say. `owns`: closing it closes the checker.
        `deep` is whether the checker was opened with it: it decides on answers."""
        self.checker, self._owns, self._deep = checker, owns, deep
        keeps = checker.settings.record if record is None else record
        self.record = record_of(checker.store, checker.settings) if keeps else None
        self._lock = threading.Lock()
        self._checkers: dict[str, Checker] = {}
        self._planning: dict[int, threading.Lock] = {}
        self._ready: dict[int, _Ready] = {}
        self._warned, self._paused_until = False, 0.0
        self._forgotten: date | None = None

    @functools.cached_property
    def _threads(self) -> ThreadPoolExecutor:
        from concurrent.futures import ThreadPoolExecutor

        return ThreadPoolExecutor(THREADS, "ccheck-service")

    # -- checking

    def check(self, claim: str | Claim, on_event: OnEvent | None = None, **how: Unpack[How]) -> Check:
        """Check a claim, or return the recorded check if nothing that decides the answer has changed.

        `on_event` is told what happens, in the thread of the caller. A claim that can't be checked is a check that
        failed, with its error. What would stop every claim is raised.
        """
        with span("check"):
            return next(self.check_many([claim], on_event, **how))

    def ids_of(self, claims: Iterable[str | Claim], **how: Unpack[How]) -> list[str]:
        """The ids that the checks of these claims have, before they are made."""
        return list(map(self._way(how).id_of, claims_of(claims)))

    def recorded(self, claim: str | Claim, **how: Unpack[How]) -> tuple[str, Check | None]:
        """The id that the check of a claim has, and the check if `check` would return it from the record."""
        return self._found(self._way(how), claim)

    def _found(self, way: _Way, claim: str | Claim) -> tuple[str, Check | None]:
        (own,) = claims_of([claim])
        id_ = way.id_of(own)
        check = None if way.fresh or self.record is None else self._recorded([id_]).get(id_)
        return id_, None if check is None else _of_claim(check, own)

    def refuse_unusable(self, **how: Unpack[How]) -> None:
        """Raises what would keep every claim from being checked in this way, such as a filter that does not fit."""
        way = self._way(how)
        way.checker.refuse_unusable(way.k, way.filters)

    def check_many(
        self, claims: Iterable[str | Claim], on_event: OnEvent | None = None, **how: Unpack[How]
    ) -> Iterator[Check]:
        """Check claims in their order, in batches, each as soon as it is there. See `check`."""
        yield from (check for check, _ in self.answers(map(ClaimRecord, claims_of(claims)), on_event, **how))

    def answers(
        self, claims: Iterable[ClaimRecord], on_event: OnEvent | None = None, **how: Unpack[How]
    ) -> Iterator[tuple[Check, Answered]]:
        """The checks of a file's records, each with its result."""
        way = self._way(how)
        known: dict[Key, Answered] = {}
        recorded: dict[str, Check] = {}
        if not way.fresh and self.record is not None:
            claims = list(claims)
            recorded = self._recorded({way.id_of(claim) for claim, problem in claims if problem is None})
            for claim, _ in claims:
                if (one := recorded.get(way.id_of(claim))) is not None:
                    known.setdefault((claim.id, claim.text), _saved(one, claim))
        run = uuid.uuid4().hex[:16]
        for answered in check_batch(_checks(way, on_event, self.workers), claims, key=way.about["key"], earlier=known):
            id_ = way.id_of(answered.result.claim)
            if answered.kept and id_ in recorded:
                check = _of_claim(recorded[id_], answered.result.claim)
            else:
                check = _made(id_, answered, way, run)
                check = check if answered.kept or answered.refused else self._keep(check)
            if on_event is not None:
                on_event(Event("error" if check.status == "failed" else "done", {"check": id_, **check.to_dict()}))
            yield check, answered

    def results(self, claims: Iterable[Claim], tell: Tell | None, **how: Unpack[How]) -> Iterator[Result]:
        """What checks are made of. Nothing is kept."""
        way = self._way(how)
        return way.checker.check_many(claims, k=way.k, filters=way.filters, tell=tell)

    def _way(self, how: How, ready: _Ready | None = None) -> _Way:
        """`ready`: what the checker planned, where that is known to be for the store as it is now."""
        refuse_unknown(how)
        checker = self._checker(how.get("recipe"))
        filters = filters_of(how.get("filters", ()))
        k = how.get("k", 10)
        try:
            ready = ready or self._planned(checker)
        except (NotFound, MissingExtra) as error:
            self._planned(self.checker)  # if that fails too, it is not the recipe's fault
            raise cannot_run(checker.recipe, error) from error
        key = settings_key(checker.settings, checker.recipe, checker.store.name, k, filters, strict=False)
        about = {
            "key": f"{key}-deep" if self._deep else key,
            "recipe": checker.recipe.name,
            "k": k,
            "filters": [str(one) for one in filters],
            "models": models_of(ready.plan, checker.judge),
            "store": checker.store.name,
            "generation": ready.state,
            "version": __version__,
        }
        # An answer is not found again if nobody knows whether the store has changed, or a program's own function.
        rerankers = [one.function for _, one in ready.plan.rerankers.values() if isinstance(one, OwnReranker)]
        own = [one for one in (checker.judge, *rerankers) if one is not None]
        known = ready.state is not None and all(hasattr(one, "name") for one in own)
        return _Way(checker, k, filters, how.get("fresh", False) or not known, how.get("user"), about)

    def _checker(self, recipe: str | Recipe | None) -> Checker:
        """The checker of a recipe, which shares store and models with the service's own. Raises UsageError."""
        if recipe is None:
            return self.checker
        if isinstance(recipe, str):
            recipe = packaged_recipe(recipe)
        own = self.checker
        with self._lock:
            found = self._checkers.get(name := recipe.model_dump_json())
            if found is None:
                pipeline = resolved(own.settings, recipe=recipe)
                found = self._checkers[name] = Checker(own.runtime, recipe=pipeline, store=own.store, judge=own.judge)
            return found

    def _planned(self, checker: Checker) -> _Ready:
        """The plan for the store as it is now: one thread makes it, and loads the models, for all."""
        # One check that nobody keeps has nothing to compare.
        state = checker.store.state() if self.record is not None or id(checker) in self._ready else None
        with self._lock:
            lock = self._planning.setdefault(id(checker), threading.Lock())
        with lock:
            ready = self._ready.get(id(checker))
            if ready is not None and ready.state != state:
                checker.forget_plan()
            plan = checker.plan()
            if ready is None or ready.state != state or ready.plan is not plan:
                ready = self._ready[id(checker)] = _Ready(plan, checker.recipe, state)
            return ready

    def _ready_now(self) -> _Ready | None:
        """What `_planned` returns and the record are at hand: nothing has to be opened, loaded or waited for."""
        checker, record = self.checker, self.record
        ready = self._ready.get(id(checker))
        if ready is None or ready.recipe is not checker.recipe or not isinstance(record, FileRecord) or record.busy:
            return None
        state_now = getattr(checker.store, "state_now", None)  # which local stores have
        return ready if state_now is not None and state_now() == ready.state else None

    # -- the record

    def _try(self, ask: Callable[P, R], *what: P.args, **named: P.kwargs) -> R | None:
        """What the record answers; None if it failed. That does not stop a check, and is said once.

        A server that failed is left alone for `PAUSE_S`: each try waits for it, and every answer would wait with it.
        """
        if time.monotonic() < self._paused_until:
            return None
        try:
            return ask(*what, **named)
        except CcheckError as error:
            if isinstance(error, ServerError):
                self._paused_until = time.monotonic() + PAUSE_S
            if not self._warned:
                self._warned = True
                log.warning("checks are not recorded: %s", error)
            return None

    def _recorded(self, ids: Iterable[str]) -> dict[str, Check]:
        """The checks that can be returned as they are: those in which nothing failed."""
        assert self.record is not None
        found = self._try(self.record.get, list(ids)) or {}
        try:
            done = [(id_, check, check.result) for id_, check in found.items() if check.status == "done"]
            return {id_: one for id_, one, was in done if was and not (unjudged(was) or unranked(was))}
        except (AttributeError, TypeError) as error:
            raise InvalidData("a check of the record is not as ccheck wrote it") from error

    def _keep(self, check: Check) -> Check:
        result = check.result or {}
        verdict, timings = check.label, result.get("timings_ms", {})
        status, _, problem = check.outcome
        about = {"recipe": check.settings.get("recipe"), "verdict": verdict, "ms": round(sum(timings.values()), 1)}
        event("check", id=check.id, status=status, problem=problem, user=check.user, run=check.run, **about)
        count("checks", "{check}", status=status, verdict=verdict or "none", problem=problem or "none")
        for kind in ("prompt", "completion"):
            count("tokens", "{token}", result.get("usage", {}).get(f"{kind}_tokens", 0), kind=kind)
        if self.record is None or not check.claim.strip():
            return check
        self._forget_old(self.record)
        if (problem or status == "failed") and self._recorded([check.id]):
            return check  # a server that fails now takes no answer away that the record has
        kept = self._try(self.record.put, check)
        return check if kept is None else kept

    def _forget_old(self, record: Record) -> None:
        days, today = self.checker.settings.record_days, datetime.now(UTC)
        if days is not None and self._forgotten != today.date():  # each day: servers run for months
            self._forgotten = today.date()
            before = today - timedelta(days=days)
            self._try(record.forget, before.isoformat(timespec="milliseconds"))

    def checks(self, wanted: Wanted | None = None) -> list[Check]:
        """The recorded checks, the newest first."""
        return self._kept_by().list(wanted or Wanted())

    def find(self, id_: str) -> Check:
        """The recorded check with this id, without the id that its claim had in a file. Raises NotFound."""
        check = self._kept_by().get([id_]).get(id_)
        if check is None:
            raise missing(id_)
        return _of_claim(check, Claim(check.claim))

    def keep_file(self, id_: str, data: Mapping[str, Any]) -> None:
        """Keep what a file of claims asked for, if there is a record; its checks are kept for themselves."""
        if self.record is not None:
            self._try(self.record.put_file, id_, text_of(data))

    def file(self, id_: str) -> Mapping[str, Any]:
        """What was kept of a file of claims. Raises NotFound."""
        text = self._kept_by().file(id_)
        if text is None:
            raise NotFound(f"the record has no file of claims {id_}")
        data: Mapping[str, Any] = json.loads(text)
        return data

    def found(self, ids: Sequence[str]) -> dict[str, Check]:
        """Those of the recorded checks that have these ids."""
        return self._kept_by().get(ids)

    def correct(self, correction: Correction) -> Check:
        """Add a correction to a recorded check, which is returned with all of its corrections.

        Raises NotFound without such a check, UsageError for a document that it does not have, or another label.
        """
        record = self._kept_by()
        check = self.find(correction.check)
        refuse_unfit(correction, check)
        record.correct(replace(correction, created=correction.created or now()))
        return self.find(correction.check)

    def pairs(self, notify: Callable[[str], None] = lambda message: None) -> Iterator[dict[str, Any]]:
        """Corrections as labelled pairs: see `labelled_pairs`."""
        return labelled_pairs(self._kept_by(), self.checker.store.get, notify)

    def _kept_by(self) -> Record:
        if self.record is None:
            raise UsageError("this service keeps no record (the setting record is false, or --no-record was given)")
        return self.record

    # -- the collection

    def search(self, query: str, *, k: int = 10, filters: Sequence[str | Filter] = ()) -> list[Evidence]:
        """The documents that a claim would be checked against, with their sentences, without stances."""
        recipe = self.checker.recipe
        searching = recipe.model_copy(
            update={"verdict": recipe.verdict.model_copy(update={"method": "none"}), "questions": None}
        )
        checker = self._checker(searching)
        self._planned(checker)
        return list(checker.check(query, k=k, filters=filters).evidence)

    def document(self, id_: str) -> Document:
        """A document of the store. Raises NotFound."""
        found = self.checker.store.get([id_]).get(id_)
        if found is None:
            raise NotFound(f"the store {self.checker.store.name} has no document {id_!r}")
        return found

    def documents(self, ids: Sequence[str]) -> dict[str, Document]:
        """Those of the store's documents that have these ids."""
        return self.checker.store.get(ids)

    def describe(self) -> Description:
        """What is searched, and with what. Raises nothing for a store or model that is missing: that is said."""
        store, recipe = self.checker.store, self.checker.recipe.name
        record = self.record.name if self.record is not None else None
        try:
            models = models_of(self._planned(self.checker).plan, self.checker.judge)
            missing = None if self.workers is None else self.workers.missing()
            found = store.name, store.count(), dict(store.fields()), models, recipe, record, missing
            return Description(*found, self.checker.fitting())
        except CcheckError as error:
            return Description(store.name, 0, {}, (), recipe, record, missing=str(error))

    # -- the same for `await`

    async def recorded_async(self, claim: str | Claim, **how: Unpack[How]) -> tuple[str, Check | None]:
        """The event loop itself reads what is at hand: a thread would take longer, and both wait for one another."""
        ready = self._ready_now() if how.get("recipe") is None else None
        if ready is None:
            return await self._recorded_async(claim, **how)
        return self._found(self._way(how, ready), claim)

    refuse_unusable_async = _async(refuse_unusable)
    check_async = _async(check)
    _recorded_async = _async(recorded)
    search_async = _async(search)
    document_async = _async(document)
    describe_async = _async(describe)
    checks_async = _async(checks)
    find_async = _async(find)
    correct_async = _async(correct)

    def close(self) -> None:
        """Wait for the calls that run, and close what the service opened."""
        if "_threads" in vars(self):
            self._threads.shutdown()
        for checker in self._checkers.values():
            checker.close()
        if self.record is not None:
            self.record.close()
        if self._owns:
            self.checker.close()


def now() -> str:
    """The time in UTC, to the microsecond: checks are listed in the order of their times."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


def record_of(store: Store, settings: Settings) -> Record | None:
    """The record of a store, which creates nothing yet; None for a store that is neither local nor on Elasticsearch.

    Beside a local store's folder it is NAME.checks.sqlite: a store that is deleted leaves it, and a copied one does not
    carry claims along.
    """
    folder = getattr(store, "path", None)
    if isinstance(folder, Path):
        return FileRecord(folder.with_name(f"{folder.name}.checks.sqlite"))
    from ..search.elastic import ElasticStore

    if isinstance(store, ElasticStore):
        from .record_elastic import ElasticRecord

        return ElasticRecord(store, settings)
    return None


def _checks(way: _Way, on: OnEvent | None, workers: Workers | None) -> Callable[[Iterable[Claim]], Iterator[Result]]:
    """What checks claims, and tells of each step with the check's id."""

    def tell(claim: Claim, kind: str, data: Mapping[str, Any]) -> None:
        assert on is not None
        on(Event(kind, {"check": way.id_of(claim), **data}))  # type: ignore[arg-type]

    told = None if on is None else tell
    many = way.checker.check_many if workers is None else functools.partial(workers.check_many, way.checker)
    return functools.partial(many, k=way.k, filters=way.filters, tell=told)


def _saved(check: Check, claim: Claim) -> Answered:
    """A recorded answer, for a claim that can have another id in its file."""
    answer: Answer = {**(check.result or {}), "claim": {"id": claim.id, "text": claim.text}}
    return Answered(result_of(answer), answer, kept=True)


def _of_claim(check: Check, claim: Claim) -> Check:
    """A recorded check, whose claim can have had another id in another file."""
    result = check.result or {}
    if not result or result["claim"]["id"] == claim.id:
        return check
    return replace(check, result={**result, "claim": {"id": claim.id, "text": claim.text}})


def _made(id_: str, answered: Answered, way: _Way, run: str) -> Check:
    error = answered.result.error
    return Check(
        id=id_,
        claim=answered.result.claim.text,
        status="done" if error is None else "failed",
        result=answered.answer,
        error=None if error is None else str(error),
        problem=None if error is None else type(error).__name__,
        created=now(),
        settings=way.about,
        user=way.user,
        run=run,
    )
