"""The service over HTTP: pages, REST and MCP in one application, with one set of keys, limits and headers."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .. import __version__
from ..core import serving
from ..core.errors import CcheckError, InvalidData, NotFound
from ..core.serving import HostCheck
from ..service import Check, Description, Service
from .access import KEYS, Access, Caller, Guard, Key, Limited, Quotas, Right, needed
from .jobs import Jobs
from .page import hide
from .problems import Problem, for_people, problem_of
from .rest import ProblemBody, rest

THREADS = 64
"""How many pages and streams are made at once: a stream of many claims has its thread for as long as it takes."""
PATIENCE = 5.0
"""Seconds that a page waits for a store that does not answer."""
SECONDS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
log = logging.getLogger(__name__)
T = TypeVar("T")


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


class Metrics:
    """A server's own registry: several servers in one process don't mix."""

    def __init__(self, jobs: Callable[[], int]) -> None:
        self.registry = registry = CollectorRegistry()
        self.requests = Counter("ccheck_web_requests", "Requests answered.", ("path", "status"), registry=registry)
        said = "Seconds from a request to the end of its answer."
        self.seconds = Histogram("ccheck_web_seconds", said, ("path",), buckets=SECONDS, registry=registry)
        Gauge("ccheck_web_running_checks", "Checks that run.", registry=registry).set_function(jobs)

    def page(self) -> bytes:
        return generate_latest(self.registry)


class Web:
    """What the routes share: the service, jobs, keys and limits. Lives in one event loop."""

    def __init__(self, service: Service, served: Served) -> None:
        self.service, self.served = service, served
        self.access, self.limited = Access(served.keys, served.owner), Limited(served.quotas)
        self.jobs = Jobs(service, self.limited)
        self.metrics = Metrics(lambda: len(self.jobs.checks))
        self._threads = ThreadPoolExecutor(THREADS, "ccheck-web")
        self.loading = True
        self.missing: str | None = None
        self.sign_in: Callable[[Request], Response]  # which pages.py sets
        self.started: list[Callable[[], Awaitable[object]]] = []

    def caller(self, request: Request, *rights: Right) -> Caller:
        """Who asks. Raises Problem 401, 403 or 429."""
        caller = self.access.caller(request)
        needed(rights, caller)
        self.limited.requests.spend(caller.id)
        return caller

    def close(self) -> None:
        """No more threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def find(self, id_: str) -> Check:
        """A check that runs or is recorded. Raises Problem."""
        job = self.jobs.find(id_)
        if job is not None:
            return job.check
        try:
            return await self.service.find_async(id_)
        except CcheckError as error:
            raise problem_of(error, named=True) from None

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

    async def in_thread(self, work: Callable[..., T], *given: Any) -> T:
        """What work returns, done in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, functools.partial(work, *given))

    def stopping(self) -> None:
        """End the streams of events: their checks are finished, and found under their ids."""
        self.jobs.closing.set()
        for job in self.jobs.checks.values():
            job.change()

    async def load(self) -> None:
        """Load the models and look at the store, so that the first check does not wait. Failures are said."""
        try:
            described = await self.service.describe_async()
            self.missing = described.missing
        except Exception as error:  # said by /ready, and by the page
            log.exception("a bug in loading the models")
            self.missing = f"a bug: {type(error).__name__}"
        finally:
            self.loading = False


def create_app(service: Service, served: Served | None = None) -> FastAPI:
    """The application that serves a service, which stays open when the application ends."""
    served = served or Served()
    web = Web(service, served)
    settings, store = service.checker.settings, getattr(service.checker.store, "path", None)
    hide(settings.data_dir, settings.cache_dir, *([store.parent] if isinstance(store, Path) else []))
    stack = contextlib.AsyncExitStack()

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        loading = asyncio.create_task(web.load())
        async with stack:
            for start in web.started:
                await start()
            yield
            await web.jobs.close(served.limits.timeout)
            loading.cancel()
            web.close()

    app = FastAPI(
        title="ccheck",
        version=__version__,
        summary="Check claims against scientific papers.",
        lifespan=lifespan,
        docs_url=None,  # these pages load scripts from elsewhere
        redoc_url=None,
        openapi_url=None,
    )
    app.state.web = web
    app.state.limits = served.limits
    _errors(app, web)
    rest(app, web)
    app.openapi = functools.partial(_openapi, app)  # type: ignore[method-assign]

    @app.get("/openapi.json", include_in_schema=False)
    async def openapi() -> dict[str, Any]:
        return app.openapi()

    from .pages import pages

    pages(app, web)
    _mcp(app, web, stack)
    app.add_middleware(Measured, metrics=web.metrics)
    larger = {"/files": served.limits.upload, "/papers": served.limits.upload, "/v1/checks/many": served.limits.upload}
    app.add_middleware(Guard, most=served.limits.body, larger=larger)
    if not served.keys:
        app.add_middleware(HostCheck, names=served.hosts, key=KEYS)
    return app


def _mcp(app: FastAPI, web: Web, stack: contextlib.AsyncExitStack) -> None:
    """`/mcp`, where the SDK is installed."""
    import importlib.util

    if importlib.util.find_spec("mcp") is not None:
        from .mcp import mount

        mount(app, web, stack)


def _openapi(app: FastAPI) -> dict[str, Any]:
    """OpenAPI 3.1 of the REST routes, with the shape of problems."""
    if app.openapi_schema is None:
        made = get_openapi(title=app.title, version=app.version, summary=app.summary, routes=app.routes)
        schemas = made.setdefault("components", {}).setdefault("schemas", {})
        schemas["ProblemBody"] = ProblemBody.model_json_schema()
        # FastAPI adds its own answer to a wrong request, which a problem stands in for.
        schemas.pop("HTTPValidationError", None)
        schemas.pop("ValidationError", None)
        key = {"type": "http", "scheme": "bearer", "description": f"a key of {KEYS}; a server on loopback needs none"}
        made["components"]["securitySchemes"] = {"key": key}
        made["security"] = [{}, {"key": []}]
        app.openapi_schema = made
    return app.openapi_schema


def _errors(app: FastAPI, web: Web) -> None:
    """Whatever goes wrong is a problem."""

    def problem(request: Request, error: Exception) -> Response:
        assert isinstance(error, Problem)
        if error.status == 401 and for_people(request.scope):
            return web.sign_in(request)
        return error.response(request.scope)

    def refused(request: Request, error: Exception) -> Response:
        assert isinstance(error, CcheckError)
        return problem_of(error, named=isinstance(error, NotFound) and request.method == "GET").response(request.scope)

    def invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        first = error.errors()[0]
        place = ".".join(str(one) for one in first["loc"] if one != "body") or "the body"
        return problem_of(InvalidData(f"{place}: {first['msg']}")).response(request.scope)

    def other(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return Problem(error.status_code, str(error.detail), error.headers).response(request.scope)

    def bug(request: Request, error: Exception) -> Response:
        return Problem(500, "a bug in the server; its log has the details").response(request.scope)

    for kind, handler in (
        (Problem, problem),
        (CcheckError, refused),
        (RequestValidationError, invalid),
        (HTTPException, other),
        (Exception, bug),
    ):
        app.add_exception_handler(kind, handler)


class Measured:
    """Counts requests by the route that answered, so that no path of a stranger becomes a series of its own."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app, self.metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, status = time.perf_counter(), 500

        async def answered(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, answered)
        finally:
            path = getattr(scope.get("route"), "path", "other")
            self.metrics.requests.labels(path, str(status)).inc()
            self.metrics.seconds.labels(path).observe(time.perf_counter() - started)
