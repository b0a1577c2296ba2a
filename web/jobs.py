"""What takes long: checks with their events, files of claims, papers to ingest."""

from __future__ import annotations

import asyncio
import itertools
import logging
import secrets
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import astuple, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar, Unpack

from more_itertools import chunked

from ..core.errors import CcheckError, Incomplete, InvalidData
from ..core.text import counted
from ..core.types import Claim
from ..core.words import STANCES, VERDICTS
from ..ingest import IngestOptions, Progress, Reject, Report
from ..pipeline.claims import ClaimRecord, iter_claims
from ..service import Check, Event, How, Service
from .access import Caller, Limited
from .problems import Problem, json_text, problem_of

KEEP_ALIVE = 15.0
"""Seconds after which a stream that has nothing to say says so: proxies close those that are silent."""
MOST_KEPT = 64
"""How many files and ingests that ended are kept."""
MOST_REJECTS = 200
log = logging.getLogger(__name__)
T = TypeVar("T")


class Job:
    """Work in a thread, and whoever waits for what changes. Its attributes change in the event loop alone."""

    def __init__(self, id_: str, caller: Caller) -> None:
        self.id, self.caller = id_, caller
        self.error: CcheckError | None = None
        self.stopped = False
        self.task: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()

    @property
    def running(self) -> bool:
        return self.task is not None and not self.task.done()

    def change(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def changed(self, seconds: float) -> bool:
        """Waits for the next change; False if there was none for so long."""
        try:
            await asyncio.wait_for(self._changed.wait(), seconds)
        except TimeoutError:
            return False
        return True

    def stop(self) -> None:
        """End at the next step."""
        self.stopped = True

    def refuse_stopped(self) -> None:
        """Raises Incomplete if somebody stopped it. Called between steps, in the thread."""
        if self.stopped:
            raise Incomplete("the check was stopped")


class CheckJob(Job):
    """A claim that is checked. `events` has what happened, also for those who come late."""

    def __init__(self, id_: str, caller: Caller, claim: str) -> None:
        super().__init__(id_, caller)
        self.check = Check(id=id_, claim=claim, status="running")
        self.events: list[Event] = []
        self._titles: dict[str, str] = {}

    def add(self, event: Event) -> None:
        """Note an event, with what it means in words (`said`), if people should be told."""
        for one in event.data.get("documents", ()):
            self._titles[one["doc_id"]] = one["title"] or one["doc_id"]
        first = all(one.kind != event.kind for one in self.events)
        said = self._said(event, first)
        self.events.append(Event(event.kind, {**event.data, **({"said": said} if said else {})}))
        self.change()

    def _said(self, event: Event, first: bool) -> str | None:
        data, documents = event.data, event.data.get("documents", ())
        best = documents[0]["title"] if documents else ""
        match event.kind:
            case "hits":
                return f"Found {counted(len(documents), 'paper')}." if documents else "Found no paper."
            case "reranked" if best:
                return f"Put them in order. The best match: {best}"
            case "sentences" if first:
                return "Reading them for the sentences that bear on the claim."
            case "stance":
                title = self._titles.get(data["doc_id"], data["doc_id"])
                return f"{title}: {STANCES[data['label']] if data.get('label') else 'not judged'}"
            case "verdict":
                return f"Verdict: {VERDICTS[data.get('label') or 'NONE'][1]}"
        return None

    async def stream(self, after: int, closing: asyncio.Event) -> AsyncIterator[bytes]:
        """The events after the first so many, as SSE; the last is `done` or `error`."""
        for number in itertools.count(after):
            while number >= len(self.events):
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
    """A claim of a file, and what became of its `check`."""

    number: int
    record: ClaimRecord
    check: str | None = None
    done: bool = False
    label: str | None = None
    confidence: float | None = None
    error: str | None = None

    def set(self, check: Check) -> None:
        verdict = (check.result or {}).get("verdict") or {}
        self.done, self.error = True, check.error
        self.label, self.confidence = verdict.get("label"), verdict.get("confidence")

    def to_dict(self, otherwise: str) -> dict[str, Any]:
        claim = self.record.claim
        status = "failed" if self.error is not None else "done" if self.done else otherwise
        told = {name: getattr(self, name) for name in ("number", "check", "label", "error")}
        return {**told, "id": claim.id, "claim": claim.text, "status": status}


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
        """Those that failed or are unfinished, but for those that are no claims."""
        return [row for row in self.rows if row.record.problem is None and (row.error or not row.done)]

    def to_dict(self) -> dict[str, Any]:
        said = {"id": self.id, "name": self.name, "running": self.running, "done": self.done}
        error = None if self.error is None else str(self.error)
        otherwise = "waiting" if self.running else "unfinished"
        return said | {"error": error, "claims": [row.to_dict(otherwise) for row in self.rows]}

    def kept(self) -> dict[str, Any]:
        """JSON values to make it of again, with `restored`."""
        rows = [[*astuple(row.record.claim), row.record.problem, row.check] for row in self.rows]
        return {"name": self.name, "how": self.how, "rows": rows}


def restored(id_: str, caller: Caller, data: Mapping[str, Any]) -> FileJob:
    """A file that was kept. Raises InvalidData if somebody changed it."""
    try:
        records = [ClaimRecord(Claim(*claim), problem) for *claim, problem, _ in data["rows"]]
        job = FileJob(id_, caller, data["name"], records, data["how"])
        for row, (*_, check) in zip(job.rows, data["rows"], strict=True):
            row.check = check
        return job
    except (TypeError, KeyError, ValueError) as error:
        raise InvalidData(f"the file of claims {id_} is not as ccheck wrote it") from error


def claims_in(content: bytes, name: str, most: int | None) -> list[ClaimRecord]:
    """The claims of a file that was sent; its name tells its format. Raises InvalidData, and Problem for too many."""
    with tempfile.TemporaryDirectory(prefix="ccheck-claims-") as folder:
        path = Path(folder) / harmless(name, "claims.txt")
        path.write_bytes(content)
        records = list(iter_claims(path))
    if not records:
        raise InvalidData(f"{path.name} has no claims")
    if most is not None and len(records) > most:
        raise Problem(413, f"{len(records):,} claims: at most {most:,} may be sent at once")
    return records


def harmless(name: str, otherwise: str) -> str:
    """The last part of a file's name, with nothing in it that could be a path."""
    kept = "".join(c if c.isalnum() or c in "._- " else "_" for c in Path(name).name).lstrip(". ")
    return kept[-100:] or otherwise


@dataclass(slots=True)
class Ingested:
    """How far an ingest is."""

    progress: Progress | None = None
    report: Report | None = None
    rejects: list[Mapping[str, Any]] = field(default_factory=list)


class IngestJob(Job):
    """Papers that are read into the store."""

    def __init__(self, id_: str, caller: Caller, names: Sequence[str]) -> None:
        super().__init__(id_, caller)
        self.names = list(names)
        self.state = Ingested()

    def to_dict(self) -> dict[str, Any]:
        progress, report = self.state.progress, self.state.report
        return {
            "id": self.id,
            "files": self.names,
            "running": self.running,
            "phase": progress.phase if progress is not None and self.running else None,
            "documents": progress.documents if progress is not None else 0,
            "counts": None
            if report is None
            else {
                name: getattr(report, name)
                for name in ("read", "added", "updated", "unchanged", "repeated", "rejected", "without_text")
            },
            "rejects": self.state.rejects,
            "error": None if self.error is None else str(self.error),
        }


class Jobs:
    """All that runs, by id. `close` waits for it."""

    def __init__(self, service: Service, limited: Limited) -> None:
        self.service, self.limited = service, limited
        self.closing = asyncio.Event()
        self.checks: dict[str, CheckJob] = {}
        self.lost: dict[str, CheckJob] = {}
        """The last checks that no record has: it is off or fails, or something stopped them."""
        self.files: dict[str, FileJob] = {}
        self.ingests: dict[str, IngestJob] = {}
        self._files = ThreadPoolExecutor(4, "ccheck-files")
        self._ingests = ThreadPoolExecutor(1, "ccheck-ingest")  # a store has one writer

    # -- checks

    def find(self, id_: str) -> CheckJob | None:
        """A check that runs, or that was lost."""
        return self.checks.get(id_) or self.lost.get(id_)

    async def check(self, claim: str, caller: Caller, **how: Unpack[How]) -> CheckJob:
        """Start a check, or join the one of the same id that runs. Raises Problem 429, CcheckError."""
        (id_,) = await self.service.ids_of_async([claim], **how)
        running = self.checks.get(id_)
        if running is not None:
            return running
        self.limited.start(caller)
        self.lost.pop(id_, None)
        job = self.checks[id_] = CheckJob(id_, caller, claim)
        job.task = asyncio.create_task(self._check(job, claim, how))
        return job

    async def _check(self, job: CheckJob, claim: str, how: How) -> None:
        loop = asyncio.get_running_loop()

        def tell(event: Event) -> None:
            loop.call_soon_threadsafe(job.add, event)
            if event.kind not in ("done", "error"):
                job.refuse_stopped()

        usage = None
        try:
            job.check = await self.service.check_async(claim, tell, **how)
            usage = (job.check.result or {}).get("usage")
            if not job.check.kept:
                _add(self.lost, job.id, job)
        except CcheckError as error:
            self._lose(job, error)
        except Exception:
            log.exception("a bug in checking a claim")
            self._lose(job, Incomplete("a bug in the server; its log has the details"))
        finally:
            self.limited.end(job.caller, usage)
            del self.checks[job.id]
            job.change()

    def _lose(self, job: CheckJob, error: CcheckError) -> None:
        job.error = error
        job.check = replace(job.check, status="failed", error=str(error), problem=type(error).__name__)
        job.add(Event("error", problem_of(error).to_dict()))
        _add(self.lost, job.id, job)

    # -- files of claims

    def file(self, name: str, records: Sequence[ClaimRecord], caller: Caller, **how: Unpack[How]) -> FileJob:
        """Start to check the claims of a file. Raises Problem 429."""
        self.limited.start(caller, len(records))
        began = datetime.now(UTC).isoformat(timespec="milliseconds")
        job = FileJob(f"{began[:23]}-{secrets.token_hex(8)}", caller, name, records, how)
        _add(self.files, job.id, job)
        job.task = asyncio.create_task(self._file(job, job.retryable))
        return job

    async def find_file(self, id_: str, caller: Caller) -> FileJob:
        """A file of claims, of the record if it is not held here. Raises NotFound."""
        if (job := self.files.get(id_)) is None:
            job = await asyncio.to_thread(self._restored, id_, caller)
            _add(self.files, id_, job)
        return job

    def _restored(self, id_: str, caller: Caller) -> FileJob:
        job = restored(id_, caller, self.service.file(id_))
        for rows in chunked(job.rows, 100):
            found = self.service.found([row.check for row in rows if row.check is not None])
            for row in rows:
                if row.check in found:
                    row.set(found[row.check])
        return job

    def retry(self, job: FileJob, caller: Caller) -> None:
        """Check the rows again that failed or were not finished. Raises Problem 429."""
        rows = job.retryable
        if job.running or not rows:
            return
        self.limited.start(caller, len(rows))
        for row in rows:
            row.done, row.error = False, None
        job.caller, job.error, job.stopped = caller, None, False
        job.task = asyncio.create_task(self._file(job, rows))

    async def _file(self, job: FileJob, rows: Sequence[Row]) -> None:
        loop = asyncio.get_running_loop()
        usage = {"prompt_tokens": 0, "completion_tokens": 0}

        def set_(row: Row, check: Check) -> None:
            row.set(check)
            job.change()

        def work() -> None:
            ids = self.service.ids_of([row.record.claim for row in rows], **job.how)
            for row, id_ in zip(rows, ids, strict=True):
                row.check = id_
            self.service.keep_file(job.id, job.kept())
            answers = self.service.answers([row.record for row in rows], **job.how)
            for row, (check, _) in zip(rows, answers, strict=True):
                for name in usage:
                    usage[name] += ((check.result or {}).get("usage") or {}).get(name, 0)
                loop.call_soon_threadsafe(set_, row, check)
                job.refuse_stopped()

        try:
            await self._in(self._files, job, work)
        finally:
            self.limited.end(job.caller, usage)

    # -- papers

    def ingest(self, paths: Sequence[Path], caller: Caller, folder: tempfile.TemporaryDirectory[str]) -> IngestJob:
        """Start to read files into the store; the folder is removed when that is done."""
        job = IngestJob(secrets.token_hex(8), caller, [path.name for path in paths])
        _add(self.ingests, job.id, job)
        job.task = asyncio.create_task(self._ingest(job, paths, folder))
        return job

    async def _ingest(self, job: IngestJob, paths: Sequence[Path], folder: tempfile.TemporaryDirectory[str]) -> None:
        loop = asyncio.get_running_loop()
        rejects = Path(folder.name) / "rejects.jsonl"

        def progressed(progress: Progress) -> None:
            job.state.progress = progress
            job.change()

        def tell(progress: Progress) -> None:
            loop.call_soon_threadsafe(progressed, progress)

        def work() -> None:
            settings = self.service.checker.settings
            options = IngestOptions(rejects=rejects, cache_dir=settings.cache_dir, cache_bytes=settings.cache_bytes)
            job.state.report = self.service.checker.ingest(*paths, options=options, on_progress=tell)

        try:
            await self._in(self._ingests, job, work)
            job.state.rejects = _rejects(rejects, Path(folder.name))
        finally:
            folder.cleanup()
            job.change()

    # --

    async def _in(self, threads: ThreadPoolExecutor, job: Job, work: Callable[[], None]) -> None:
        """Run work in a thread; its failure is the job's error."""
        try:
            await asyncio.get_running_loop().run_in_executor(threads, work)
        except CcheckError as error:
            job.error = error
        except Exception:
            log.exception("a bug in %s", type(job).__name__)
            job.error = Incomplete("a bug in the server; its log has the details")
        finally:
            job.change()

    async def close(self, seconds: float) -> None:
        """Wait so long for what runs."""
        self.closing.set()
        jobs: list[Job] = [*self.checks.values(), *self.files.values(), *self.ingests.values()]
        for job in jobs:
            job.change()
            if isinstance(job, FileJob):
                job.stop()  # after the claims that are under way
        tasks = [job.task for job in jobs if job.task is not None and not job.task.done()]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=seconds)
            if late:
                log.warning("%d checks were not finished within %g s", len(late), seconds)
        self._files.shutdown(wait=False, cancel_futures=True)
        self._ingests.shutdown(wait=False, cancel_futures=True)


def sse(number: int, event: Event) -> bytes:
    """An event as a server sends it, with its number, from which a client that lost its connection goes on."""
    return f"id: {number}\nevent: {event.kind}\ndata: {json_text(dict(event.data))}\n".encode()


def _add(jobs: dict[str, T], id_: str, job: T) -> None:
    """With the oldest that ended left out, so that a server that runs for months holds few."""
    for old, one in list(jobs.items()):
        if len(jobs) < MOST_KEPT:
            break
        if not (isinstance(one, Job) and one.running):
            del jobs[old]
    jobs[id_] = job


def _rejects(file: Path, folder: Path) -> list[Mapping[str, Any]]:
    """The first rejects, with their files by name: where they lay is nobody's business."""
    import json

    found: list[Mapping[str, Any]] = []
    with suppress(FileNotFoundError), file.open(encoding="utf-8") as lines:
        for line in itertools.islice(lines, MOST_REJECTS):
            one = Reject(**json.loads(line))
            found.append({"file": Path(one.file).name, "line": one.line, "reason": one.reason, "record": one.record})
    return found
