"""The service over HTTP: pages, REST and MCP in one application, with one set of keys, limits and headers."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib.util
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException

from .. import __version__
from ..core.errors import CcheckError, UsageError
from ..core.redaction import http_parts
from ..core.serving import host_check
from ..service import Service
from .access import KEYS, Guard
from .page import hide
from .pages import pages, sign_in_page
from .problems import for_people, problem_of
from .rest import ProblemBody, direct, rest, state
from .shared import Keyed, Served, Web


def create_app(service: Service, served: Served | None = None, reranker: FastAPI | None = None) -> FastAPI:
    """The application that serves a service, which stays open when the application ends.

    `reranker` is the application of `rerank/server`, to serve at `/reranker` to whoever may check. Raises UsageError
    if the setting public_url is no address or has a path, below which the page's links would break.
    """
    served = served or Served()
    web = Web(service, served)
    settings, store = service.checker.settings, getattr(service.checker.store, "path", None)
    if (url := settings.public_url) is not None and ((parts := http_parts(url)) is None or parts.path.strip("/")):
        example = "such as https://ccheck.example.org"
        raise UsageError(f"CCHECK_PUBLIC_URL is {url}. The page needs an address without a path, {example}")
    hide(settings.data_dir, settings.cache_dir, *([store.parent] if isinstance(store, Path) else []))
    stack = contextlib.AsyncExitStack()

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        loading = asyncio.create_task(web.load())
        async with stack:
            if mcp is not None:
                await stack.enter_async_context(mcp.run())
            if reranker is not None:
                await stack.enter_async_context(reranker.router.lifespan_context(reranker))
            yield
            await web.jobs.close(served.limits.timeout)
            loading.cancel()

    app = FastAPI(
        title="ccheck",
        version=__version__,
        summary="Check claims against scientific papers.",
        lifespan=lifespan,
        docs_url=None,  # these pages load scripts from elsewhere
        redoc_url=None,
    )
    app.state.web, app.state.limits = web, served.limits
    for kind in (HTTPException, CcheckError, RequestValidationError, Exception):
        app.add_exception_handler(kind, _problem)
    for router in (direct, rest, state, pages):
        app.include_router(router)
    app.openapi = functools.partial(_openapi, app)  # type: ignore[method-assign]
    mcp = None
    if importlib.util.find_spec("mcp") is not None:
        from .mcp import mount

        mcp = mount(app, web)
    larger = dict.fromkeys(("/files", "/papers", "/v1/checks/many"), served.limits.upload)
    if reranker is not None:
        app.mount("/reranker", Keyed(web, reranker, "check"))
        larger["/reranker/"] = reranker.state.limits.body
    given: dict[str, Any] = {"larger": larger, "measured": web.measured, "public": settings.public_url}
    app.add_middleware(Guard, most=served.limits.body, **given)
    if not served.keys:
        app.add_middleware(host_check, names=served.hosts, key=KEYS)
    return app


async def _problem(request: Request, error: Exception) -> Response:
    """Whatever goes wrong is a problem; whoever needs a key and uses a browser signs in."""
    problem = problem_of(error, named=bool(request.path_params))
    if problem.status == 401 and for_people(request.scope):
        return sign_in_page(request, request.app.state.web)
    return problem.response(request.scope)


def _openapi(app: FastAPI) -> dict[str, Any]:
    """OpenAPI 3.1 of the REST routes, with the shape of problems."""
    if app.openapi_schema is None:
        made = get_openapi(title=app.title, version=app.version, summary=app.summary, routes=app.routes)
        schemas = made.setdefault("components", {}).setdefault("schemas", {})
        schemas["ProblemBody"] = ProblemBody.model_json_schema()
        key = {"type": "http", "scheme": "bearer", "description": f"a key of {KEYS}; a server on loopback needs none"}
        made["components"]["securitySchemes"] = {"key": key}
        made["security"] = [{}, {"key": []}]
        app.openapi_schema = made
    return app.openapi_schema
