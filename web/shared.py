"""What all routes share: the service with its jobs, keys and limits, and who asks."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from fastapi import Depends
from fastapi.responses import Response
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from ..core import serving
from ..core.errors import CcheckError
from ..service import Check, Description, Service
from .access import Access, Caller, Key, Limited, Quotas, Right, needed
from .jobs import Jobs
from .problems import json_text

PATIENCE = 5.0
"""Seconds that a page waits for a store that does not answer."""
LOOKED_FOR = 5.0
"""Seconds until `/ready` looks at the store again, however often it is asked."""
SECONDS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits(serving.Limits):
    """`body` is of requests, `upload` of files of claims or papers, in bytes; `timeout` of what runs at the end."""

    body: int = 1 << 20
    upload: int = 256 << 20
    connections: int = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """Who may ask, within what limits, and by which names (`hosts`). `owner` is who started the server."""

    limits: Limits = field(default_factory=Limits)
    quotas: Quotas = field(default_factory=Quotas)
    keys: tuple[Key, ...] = ()
    hosts: tuple[str, ...] = ()
    owner: str | None = None
    secure: bool = False
    """Cookies are sent over HTTPS alone."""
    pdfs: Path | None = None
    """The folder with the PDFs that papers were read from."""


class Web:
    """The service and all that belongs to serving it. Lives in one event loop."""

    def __init__(self, service: Service, served: Served) -> None:
        self.service, self.served = service, served
        self.access, self.limited = Access(served.keys, served.owner), Limited(served.quotas)
        self.jobs = Jobs(service, self.limited, self.ingested)
        self.drawing = asyncio.Semaphore(2)
        """Held while a page of a PDF is drawn."""
        self.loading = True
        self.missing: str | None = None
        self.looking, self.look_at = asyncio.Lock(), 0.0
        # A registry of its own: several servers in one process don't mix.
        self.metrics = registry = CollectorRegistry()
        self.requests = Counter("ccheck_web_requests", "Requests answered.", ("path", "status"), registry=registry)
        said = "Seconds from a request to the end of its answer."
        self.seconds = Histogram("ccheck_web_seconds", said, ("path",), buckets=SECONDS, registry=registry)
        running = Gauge("ccheck_web_running_checks", "Checks that run.", registry=registry)
        running.set_function(lambda: len(self.jobs.checks))
        if (workers := service.workers) is not None:
            said = "Processes that can check claims now."
            Gauge("ccheck_web_workers", said, registry=registry).set_function(lambda: workers.ready)

    def measured(self, scope: Scope, status: int, seconds: float) -> None:
        """Counts a request by the route that answered, so that no path of a stranger becomes a series of its own."""
        path = getattr(scope.get("route"), "path", "other")
        self.requests.labels(path, str(status)).inc()
        self.seconds.labels(path).observe(seconds)

    def caller(self, connection: HTTPConnection, *rights: Right) -> Caller:
        """Who asks. Raises Problem 401, 403 or 429."""
        caller = self.access.caller(connection)
        needed(rights, caller)
        self.limited.requests.spend(caller.id)
        return caller

    async def find(self, id_: str) -> Check:
        """A check that runs or is recorded, or one that was lost. Raises NotFound."""
        if (job := self.jobs.checks.get(id_)) is not None:
            return job.check
        lost = self.jobs.lost.get(id_)
        try:
            return await self.service.find_async(id_)
        except CcheckError:
            if lost is None:
                raise
            return lost.check

    async def find_own(self, id_: str, connection: HTTPConnection) -> Check:
        """The same, for who may read, and for who asked for this check. Raises Problem 401, 403 or 429."""
        self.refuse_foreign(id_, self.caller(connection))
        return await self.find(id_)

    def refuse_foreign(self, id_: str, caller: Caller) -> None:
        """Raises Problem 403 for a check that a caller may not read, and has not asked for."""
        if (caller.id, id_) not in self.jobs.asked:
            needed(["read"], caller)

    async def describe(self) -> Description | None:
        """What is searched; None while the models are being loaded, or the store is waited for."""
        if self.loading:
            return None
        try:
            described = await asyncio.wait_for(self.service.describe_async(), PATIENCE)
        except TimeoutError:
            self.missing = "the store does not answer"
            return None
        self.missing = described.missing
        return described

    async def ingested(self) -> None:
        """Papers were added: they may be what was `missing`."""
        if self.missing is not None and not self.loading:
            self.missing = (await self.service.describe_async()).missing

    async def look(self) -> None:
        """Find out what is `missing`, unless that was done a moment ago."""
        async with self.looking:
            if time.monotonic() >= self.look_at:
                await self.describe()
                self.look_at = time.monotonic() + LOOKED_FOR

    async def load(self) -> None:
        """Load the models and look at the store, so that the first check does not wait. Failures are said."""
        try:
            self.missing = (await self.service.describe_async()).missing
            if self.missing is not None:
                log.warning("nothing can be checked yet: %s", self.missing)
        except Exception as error:  # said by /ready, and by the page
            log.exception("a bug in loading the models")
            self.missing = f"a bug: {type(error).__name__}"
        finally:
            self.loading = False


class Keyed:
    """Another application that is served here, only to callers with these rights."""

    def __init__(self, web: Web, app: ASGIApp, *rights: Right) -> None:
        self.web, self.app, self.rights = web, app, rights

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.web.caller(HTTPConnection(scope), *self.rights)
        await self.app(scope, receive, send)


async def web_of(connection: HTTPConnection) -> Web:
    """What the application that answers shares."""
    web: Web = connection.app.state.web
    return web


def _allowed(*rights: Right) -> Any:
    async def asked(connection: HTTPConnection) -> Caller:
        return (await web_of(connection)).caller(connection, *rights)

    return Depends(asked)


Shared = Annotated[Web, Depends(web_of)]
Reader = Annotated[Caller, _allowed("read")]
Checker = Annotated[Caller, _allowed("check")]


def json_answer(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """An answer that nobody keeps a copy of."""
    return Response(json_text(content), status, {"Cache-Control": "no-store"} | dict(headers or {}), "application/json")
