"""What takes long: checks with their events, files of claims, papers to ingest."""

from __future__ import annotations

import asyncio
import functools
import itertools
import logging
import os
import secrets
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar, Unpack

from cachetools import FIFOCache
from more_itertools import chunked
from starlette.concurrency import run_in_threadpool

from ..core.answers import verdict_of
from ..core.errors import CcheckError, Incomplete, InvalidData
from ..core.types import Claim, Verdict
from ..core.words import why
from ..ingest import IngestOptions, Progress, Report
from ..pipeline.batch import ClaimRecord, unjudged
from ..service import Check, Correction, Event, How, Service
from . import pdfs as keeping
from .access import Caller, Limited
from .page import told
from .problems import Problem, problem_of, sse
from .sent import rejects_in

KEEP_ALIVE = 15.0
"""Seconds after which a stream that has nothing to say says so: proxies close those that are silent."""
MOST_KEPT = 64
"""How many jobs of a kind that ended are kept."""
MOST_ASKED = 10_000
FILES_AT_ONCE = 4
COUNTS = ("read", "added", "updated", "unchanged", "repeated", "rejected", "without_text")
"""What is told of an ingest."""
STOPPED, UNADDED = "the check was stopped", "papers being added were not finished: send them again"
NOT_YET = Verdict(None)
log = logging.getLogger(__name__)


class Job:
    """Work, and whoever waits for what changes. Its attributes change in the event loop alone."""

    def __init__(self, id_: str, caller: Caller) -> None:
        self.id, self.caller = id_, caller
        self.error: CcheckError | Problem | None = None
        self.stopped = ""
        """Why it is to end at its next step, if it is."""
        self.task: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Do the work. Its failure is the job's error."""
        self.error, self.stopped = None, ""
        self.task = asyncio.create_task(self._run(work))

    async def _run(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except CcheckError as error:
            self.error = error
        except Exception:
            log.exception("a bug in %s", type(self).__name__)
            self.error = Incomplete("a bug in the server; its log has the details")
        finally:
            self.change()

    @property
    def running(self) -> bool:
        return self.task is not None and not self.task.done()

    def change(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def changed(self, seconds: float) -> bool:
        """Waits for the next change; False if there was none for so long."""
        with suppress(TimeoutError):
            return await asyncio.wait_for(self._changed.wait(), seconds)
        return False

    def refuse_stopped(self) -> None:
        """Raises Incomplete if somebody stopped it. Called between steps, in the thread."""
        if self.stopped:
            raise Incomplete(self.stopped)


class CheckJob(Job):
    """A claim that is checked. `events` has what happened, also for those who come late, and `callers` who waits."""

    def __init__(self, id_: str, caller: Caller, claim: str) -> None:
        super().__init__(id_, caller)
        self.check = Check(id=id_, claim=claim, status="running")
        self.events: list[Event] = []
        self.callers = set[Caller]()

    async def ended(self, seconds: float) -> None:
        """Waits so long for the end, and raises the job's error. It goes on if the time is over, or if whoever waits
        hangs up."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self.check.status == "running":
                    await self._changed.wait()
        if self.error is not None:
            raise self.error

    def add(self, event: Event) -> None:
        self.events.append(event)
        self.change()

    async def stream(self, after: int, closing: asyncio.Event) -> AsyncIterator[bytes]:
        """The events after the first so many, as SSE; the last is `done` or `error`."""
        for number in itertools.count(after):
            while number >= len(self.events):
                if not self.running and self.events:  # a client that has them all is told again that this was the end
                    yield sse(len(self.events) - 1, self.events[-1])
                if closing.is_set() or not self.running:
                    return
                if not await self.changed(KEEP_ALIVE):
                    yield b": waiting\n\n"
            event = self.events[number]
            yield sse(number, event)
            if event.kind in ("done", "error"):
                return


@dataclass(slots=True)
class Row:
    """A claim of a file, and what became of its `check`. `unjudged`: why it was not judged, or only in part."""

    number: int
    record: ClaimRecord
    check: str | None = None
    done: bool = False
    kept: bool = False
    unjudged: str | None = None
    verdict: Verdict = NOT_YET
    error: str | None = None

    def set(self, check: Check) -> None:
        self.done, self.kept, self.unjudged = True, check.kept, unjudged(check.result or {})
        self.verdict = verdict_of(told(check.verdict)) if check.verdict else NOT_YET
        self.error = check.error or (self.unjudged if self.verdict.label is None else None)

    def to_dict(self, otherwise: str, corrected: Correction | None) -> dict[str, Any]:
        status = "failed" if self.error is not None else "done" if self.done else otherwise
        said = {name: getattr(self, name) for name in ("number", "check", "error", "unjudged")}
        said |= {name: getattr(self.verdict, name) for name in ("label", "confidence", "reason", "method")}
        said |= {"why": why(self.verdict), "corrected": corrected and corrected.to_dict()}
        return {**said, "id": self.record.claim.id, "claim": self.record.claim.text, "status": status}


class FileJob(Job):
    """A file of claims, as a table that fills. What was asked for is kept in the record, and so are the checks."""

    def __init__(self, id_: str, caller: Caller, name: str, records: Sequence[ClaimRecord], how: How) -> None:
        super().__init__(id_, caller)
        self.name, self.how = name, how
        self.rows = [
            Row(number, one, done=one.problem is not None, error=one.problem) for number, one in enumerate(records, 1)
        ]

    @property
    def done(self) -> int:
        return sum(row.done for row in self.rows)

    @property
    def failed(self) -> int:
        return sum(row.error is not None for row in self.rows)

    @property
    def retryable(self) -> list[Row]:
        """Those that failed, also at a judge, or are unfinished, but for those that are no claims."""
        rows = [row for row in self.rows if row.record.problem is None]
        return [row for row in rows if row.error or row.unjudged or not row.done]

    def to_dict(self, corrected: Mapping[str, Correction | None]) -> dict[str, Any]:
        """`corrected` has the corrections of verdicts, by the ids of checks."""
        said = {"id": self.id, "name": self.name, "running": self.running, "done": self.done}
        error = None if self.error is None else str(self.error)
        otherwise = "waiting" if self.running else "unfinished"
        rows = [row.to_dict(otherwise, corrected.get(row.check or "")) for row in self.rows]
        return said | {"error": error, "claims": rows}

    def kept(self) -> dict[str, Any]:
        """JSON values to make it of again, in `Jobs._restored`."""
        rows = [[*astuple(row.record.claim), row.record.problem, row.check] for row in self.rows]
        return {"name": self.name, "how": self.how, "rows": rows}


class IngestJob(Job):
    """Papers that are read into the store."""

    def __init__(self, id_: str, caller: Caller, names: Sequence[str]) -> None:
        super().__init__(id_, caller)
        self.names = list(names)
        self.progress: Progress | None = None
        self.report: Report | None = None
        self.notices: list[str] = []
        self.rejects: list[Mapping[str, Any]] = []

    def progressed(self, progress: Progress) -> None:
        self.progress = progress
        self.change()

    def to_dict(self) -> dict[str, Any]:
        progress, report = self.progress, self.report
        return {
            "id": self.id,
            "files": self.names,
            "running": self.running,
            "phase": progress.phase if progress is not None and self.running else None,
            "documents": progress.documents if progress is not None else 0,
            "counts": None if report is None else {name: getattr(report, name) for name in COUNTS},
            "notices": self.notices,
            "rejects": self.rejects,
            "error": None if self.error is None else str(self.error),
        }


J = TypeVar("J", bound=Job)
R = TypeVar("R")


class Jobs:
    """All that runs, by id. `close` waits for it."""

    def __init__(self, service: Service, limited: Limited, ingested: Callable[[], Awaitable[object]]) -> None:
        """`ingested` is awaited once papers were added."""
        self.service, self.limited, self._ingested = service, limited, ingested
        self.closing = asyncio.Event()
        self.checks: dict[str, CheckJob] = {}
        self.lost: dict[str, CheckJob] = {}
        """The last checks that no record has: it is off or fails, or something stopped them."""
        self.files: dict[str, FileJob] = {}
        self.ingests: dict[str, IngestJob] = {}
        self.asked: FIFOCache[tuple[str | None, str], None] = FIFOCache(MOST_ASKED)
        """Who asked for which checks, of the last."""
        self._asked = 0
        self._since = 0.0
        self.unfinished = False
        """Whether something was still running when `close` had waited long enough."""
        self._files, self._ingest_alone = asyncio.Semaphore(FILES_AT_ONCE), asyncio.Lock()  # a store has one writer

    # -- checks

    def find(self, id_: str) -> CheckJob | None:
        """A check that runs, or that was lost."""
        return self.checks.get(id_) or self.lost.get(id_)

    async def check(self, claim: str, caller: Caller, **how: Unpack[How]) -> CheckJob:
        """Start a check, or join the one of the same id that runs. One that is recorded has ended. Raises Problem 429,
        CcheckError."""
        id_, recorded = await self.service.recorded_async(claim, **how)
        self.asked[caller.id, id_] = None
        job = self.checks.get(id_) or CheckJob(id_, caller, claim)
        if job.task is None and recorded is not None:
            job.check = recorded
            return job
        if caller not in job.callers:
            self.limited.start(caller)
            job.callers.add(caller)
        if job.task is None:
            self.lost.pop(id_, None)
            self.checks[id_] = job
            job.start(self._check(job, claim, how))
        return job

    async def _check(self, job: CheckJob, claim: str, how: How) -> None:
        loop = asyncio.get_running_loop()

        def tell(event: Event) -> None:
            if event.kind not in ("done", "error"):
                job.refuse_stopped()
            loop.call_soon_threadsafe(job.add, event)

        try:
            check = await self.service.check_async(claim, tell, **how)
        except Exception as error:
            self._over(job, error)
            raise
        self.limited.used(job.caller, check.tokens)
        self._over(job, check)

    def _over(self, job: CheckJob, became: Check | Exception) -> None:
        """Tell what became of a check, unless it was stopped before."""
        if self.checks.get(job.id) is not job:
            return
        del self.checks[job.id]
        for caller in job.callers:
            self.limited.end(caller)
        if isinstance(became, Check):
            job.check = became
        else:
            problem = problem_of(became)
            job.check = replace(job.check, status="failed", error=problem.detail, problem=problem.type)
            job.add(Event("error", {"check": job.id, **problem.to_dict()}))
        if not job.check.kept:
            _add(self.lost, job)

    def stop(self, id_: str, caller: Caller) -> CheckJob | None:
        """A caller waits no longer for a check that runs, and it is stopped if nobody else does. None if the caller
        does not wait for it. Its thread ends at its next step, and may wait for a language model until then."""
        job = self.checks.get(id_)
        if job is None or caller not in job.callers:
            return None
        if job.callers == {caller}:
            job.stopped, job.error = STOPPED, Problem(409, STOPPED, type_=Incomplete.__name__)
            self._over(job, job.error)
        else:
            job.callers.remove(caller)
            self.limited.end(caller)
        return job

    # -- files of claims

    def file(self, name: str, records: Sequence[ClaimRecord], caller: Caller, **how: Unpack[How]) -> FileJob:
        """Start to check the claims of a file. Raises Problem 429."""
        began = datetime.now(UTC).isoformat(timespec="milliseconds")
        job = FileJob(f"{began[:23]}-{secrets.token_hex(8)}", caller, name, records, how)
        self.retry(job, caller)
        _add(self.files, job)
        return job

    def retry(self, job: FileJob, caller: Caller) -> None:
        """Check the rows, or again those that failed or were not finished. Raises Problem 429."""
        rows = job.retryable
        if rows and not job.running:
            self.limited.start(caller, len(rows))
            for row in rows:
                row.done, row.error = False, None
            job.caller = caller
            job.start(self._file(job, rows))

    async def find_file(self, id_: str, caller: Caller) -> FileJob:
        """A file of claims, of the record if it is not held here. Raises NotFound."""
        if id_ not in self.files:
            job = await run_in_threadpool(self._restored, id_, caller)
            if id_ not in self.files:  # else somebody who asked at the same time may have started it
                _add(self.files, job)
        return self.files[id_]

    def _restored(self, id_: str, caller: Caller) -> FileJob:
        """A file that was kept. Raises InvalidData if somebody changed it."""
        try:
            data = self.service.file(id_)
            records = [ClaimRecord(Claim(*claim), problem) for *claim, problem, _ in data["rows"]]
            job = FileJob(id_, caller, data["name"], records, data["how"])
            for row, (*_, check) in zip(job.rows, data["rows"], strict=True):
                row.check = check
        except (TypeError, KeyError, ValueError) as error:
            raise InvalidData(f"the file of claims {id_} is not as ccheck wrote it") from error
        since = id_[:23] if job.how.get("fresh") else ""  # earlier answers are not those that were asked for
        for rows in chunked(job.rows, 100):
            found = self.service.found([row.check for row in rows if row.check is not None])
            for row in rows:
                if row.check in found and found[row.check].created >= since:
                    row.set(found[row.check])
        return job

    async def _file(self, job: FileJob, rows: Sequence[Row]) -> None:
        loop = asyncio.get_running_loop()

        def set_(row: Row, check: Check, tokens: int) -> None:
            row.set(check)
            job.change()
            self.limited.used(job.caller, tokens)
            try:
                if not rows[-1].done:
                    self.limited.refuse_spent(job.caller)
            except Problem as problem:
                job.stopped = problem.detail

        def work() -> None:
            ids = self.service.ids_of([row.record.claim for row in rows], **job.how)
            for row, id_ in zip(rows, ids, strict=True):
                row.check = id_
            self.service.keep_file(job.id, job.kept())
            answers = self.service.answers([row.record for row in rows], **job.how)
            for row, (check, answered) in zip(rows, answers, strict=True):
                loop.call_soon_threadsafe(set_, row, check, 0 if answered.kept else check.tokens)
                job.refuse_stopped()

        try:
            await run_in_threadpool(self.service.keep_file, job.id, job.kept())  # it may have to wait for others
            async with self._files:
                await run_in_threadpool(work)
        finally:
            self.limited.end(job.caller)

    # -- papers

    def ingest(
        self, paths: Sequence[Path], caller: Caller, folder: tempfile.TemporaryDirectory[str], pdfs: Path | None = None
    ) -> IngestJob:
        """Start to read files into the store; the folder is removed when that is done. `pdfs` keeps copies of PDFs."""
        job = IngestJob(secrets.token_hex(8), caller, [path.name for path in paths])
        _add(self.ingests, job)
        job.start(self._ingest(job, paths, folder, pdfs))
        return job

    async def _ingest(
        self, job: IngestJob, paths: Sequence[Path], folder: tempfile.TemporaryDirectory[str], pdfs: Path | None
    ) -> None:
        loop = asyncio.get_running_loop()
        rejects = Path(folder.name) / "rejects.jsonl"
        checker, settings = self.service.checker, self.service.checker.settings
        options = IngestOptions(
            rejects=rejects,
            cache_dir=settings.cache_dir,
            cache_bytes=settings.cache_bytes,
            apart=functools.partial(keeping.taken, pdfs),
        )

        def tell(progress: Progress) -> None:
            if progress.phase != "publishing":  # then everything is stored
                job.refuse_stopped()
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(job.progressed, progress)

        def said(text: object) -> str:  # where the files lay is nobody's business
            return str(text).replace(f"{paths[0].parent}{os.sep}", "").replace(f"{folder.name}{os.sep}", "")

        def work() -> tuple[Report, list[str]]:
            report = checker.ingest(*paths, options=options, on_progress=tell)
            job.rejects = rejects_in(rejects)
            rejected = {one["file"] for one in job.rejects}
            read = [path for path in paths if path.name not in rejected]
            kept = () if pdfs is None else keeping.keep(read, report.renamed, pdfs)
            return report, [said(one) for one in (*report.notices, *report.remarks(), *kept)]

        with folder:
            try:
                async with self._ingest_alone:
                    job.report, job.notices = await run_in_threadpool(work)
            except CcheckError as error:
                raise InvalidData(said(error)) from error
            finally:
                if not self.closing.is_set():
                    await self._ingested()

    # --

    async def next_of(self, answers: Iterator[R], left: int) -> R:
        """The next of so many answers, which are unfinished until it is there."""
        self._asked += left
        try:
            return await run_in_threadpool(next, answers)
        finally:
            self._asked -= left

    def stopping(self) -> None:
        """End the streams of events: their checks are finished, and found under their ids. Files of claims end after
        the claims that are under way."""
        self._since = self._since or time.monotonic()
        self.closing.set()
        for file in self.files.values():
            file.stopped = STOPPED
        for job in self.checks.values():
            job.change()

    async def close(self, seconds: float) -> None:
        """Wait for what runs, until so long after `stopping`. Papers stop being added after half of that."""
        self.stopping()
        ingests = [one for one in self.ingests.values() if one.running]
        jobs: list[Job] = [*self.checks.values(), *self.files.values(), *ingests]
        tasks = [job.task for job in jobs if job.task is not None and not job.task.done()]
        for part in (0.5, 1.0):
            if tasks:
                left = max(0.0, self._since + seconds - time.monotonic())
                await asyncio.wait(tasks, timeout=part * left)
            for one in ingests:
                one.stopped = UNADDED
        late = sum(not task.done() for task in tasks) + self._asked
        self.unfinished = late > 0 or any(one.running for one in self.lost.values())
        if late := late - sum(one.running for one in ingests):
            log.warning("%s not finished within %g s", "1 check was" if late == 1 else f"{late} checks were", seconds)
        if any(one.report is None for one in ingests):
            log.warning(UNADDED)


def _add(jobs: dict[str, J], job: J) -> None:
    """With the oldest that ended left out, so that a server that runs for months holds few."""
    for old, one in list(jobs.items()):
        if len(jobs) < MOST_KEPT:
            break
        if not one.running:
            del jobs[old]
    jobs[job.id] = job
