"""The routes: authorisation, limits on what is read of a request, dialects of answers, and when work is dropped."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import functools
import hmac
import json
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, TypeVar

import orjson
from fastapi import FastAPI, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import BaseModel, ValidationError
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect

from ... import __version__
from ...core.errors import misfits
from ...core.serving import host_check
from ..types import Scorer
from .dialects import (
    COHERE,
    CUT,
    TEI,
    CohereRerank,
    Dialect,
    Ranked,
    Refusal,
    TeiRerank,
    cohere_ranking,
    listed,
    tei_ranking,
)
from .guard import KEY, Access, Limits
from .service import Service

HUNG_UP, TOO_SLOW = 499, 408
MOST_OF_A_HEADER = 6000
"""Characters. Clients reject headers that are longer than they expect."""
DRAIN_BYTES, DRAIN_SECONDS = 256 << 20, 5
"""How much of the rest of a refused body is read."""
_log = logging.getLogger(__name__)
S = TypeVar("S", bound=BaseModel)
Work = Callable[[Request, bytes], Awaitable[Response]]


def create_app(
    name: str,
    scorer: Scorer,
    limits: Limits = Limits(),  # noqa: B008 - frozen
    access: Access | None = Access(),  # noqa: B008 - frozen
) -> FastAPI:
    """The application that serves a reranker, called `name` in requests. Without `access`, whoever mounts it has asked
    for keys and hosts.

    The scorer must have passed `check_scorer`: the server is ready as soon as it runs.
    """
    service = Service(name, scorer, limits, access or Access())

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(service.stop)

    app = FastAPI(
        title="ccheck",
        version=__version__,
        summary="Rerankers with the APIs of TEI (also Elasticsearch), Cohere and Jina.",
        lifespan=lifespan,
    )
    app.state.service, app.state.limits = service, limits
    app.add_exception_handler(Refusal, lambda request, refusal: _refused(TEI, refusal))
    if access is not None and access.key is None:
        app.add_middleware(host_check, names=access.hosts, key=KEY)
    _add_reranking(app, service)
    _add_state(app, service)
    return app


def _add_reranking(app: FastAPI, service: Service) -> None:
    async def tei(request: Request, body: bytes) -> Response:
        try:
            sent = _parsed(TeiRerank, body)
        except Refusal:
            if b'"texts"' in body or b'"documents"' not in body:
                raise
            # Jina's shape, which vLLM and others take at this path.
            return await cohere(request, body, "1", TEI)
        model = sent.model or request.query_params.get("model")
        raw = sent.raw_scores
        if raw is None:
            raw = request.query_params.get("raw_scores", "").lower() in ("1", "true")
        ranked = await service.rerank(model, sent.query, sent.texts, raw=raw, dialect=TEI)
        return _json(tei_ranking(ranked, sent.return_text), ranked)

    async def cohere(request: Request, body: bytes, version: str, dialect: Dialect = COHERE) -> Response:
        sent = _parsed(CohereRerank, body)
        ranked = await service.rerank(sent.model, sent.query, sent.documents, raw=False, dialect=dialect)
        return _json(cohere_ranking(ranked, sent, version), ranked)

    def route(path: str, said: str, schema: type[BaseModel], dialect: Dialect, work: Work) -> None:
        async def answered(request: Request) -> Response:
            return await _answer(service, request, dialect, work)

        # For the OpenAPI page, since a route reads its body itself.
        body = {"required": True, "content": {"application/json": {"schema": schema.model_json_schema()}}}
        app.post(path, description=said, openapi_extra={"requestBody": body}, tags=["rerank"])(answered)

    said = "TEI's and Elasticsearch's. Query parameters raw_scores and model stand in for keys that can't be sent."
    route("/rerank", said, TeiRerank, TEI, tei)
    for version in ("1", "2"):
        said = f"Cohere's version {version}, and Jina's."
        route(f"/v{version}/rerank", said, CohereRerank, COHERE, functools.partial(cohere, version=version))


def _add_state(app: FastAPI, service: Service) -> None:
    @app.get("/health", tags=["state"])
    async def health() -> Response:
        """200 where requests are taken, else 503. Needs no key."""
        if service.model.healthy:
            return _json({"status": "ok"})
        return _refused(TEI, Refusal(503, "the model keeps failing. Restart the server. Its log has the details"))

    @app.get("/info", tags=["state"])
    async def info(request: Request) -> Response:
        """TEI's keys."""
        _authorise(service, request)
        return _json(
            {
                "server": "ccheck",
                "version": __version__,
                "model_id": service.name,
                "model_type": {"reranker": {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}},
                "max_input_length": service.scorer.max_tokens,
                "max_client_batch_size": service.limits.texts,
                "max_concurrent_requests": service.limits.requests,
                "max_batch_tokens": service.limits.batch_tokens,
                "auto_truncate": True,
            }
        )

    @app.get("/metrics", tags=["state"])
    async def metrics(request: Request) -> Response:
        """Prometheus's text format."""
        _authorise(service, request)
        return Response(service.metrics.page(), media_type=CONTENT_TYPE_LATEST)


async def _answer(service: Service, request: Request, dialect: Dialect, work: Work) -> Response:
    """Do the work of a request within its limits. Whatever goes wrong is said in the caller's dialect."""
    started = time.perf_counter()
    path = request.url.path
    parts = request.stream()
    try:
        response = await _within_limits(service, request, parts, work)
    except Refusal as refusal:
        response = _refused(dialect, refusal)
    except ClientDisconnect:
        response = Response(status_code=HUNG_UP)
    except Exception:  # noqa: BLE001 - the caller is told, and the log
        _log.exception("a bug in answering %s", path)
        response = _refused(dialect, Refusal(500, "a bug in the server; its log has the details"))
    if response.status_code == HUNG_UP:
        service.metrics.gone.inc()
    elif response.status_code == TOO_SLOW or not await _drained(parts):
        response.headers["Connection"] = "close"
    service.metrics.requests.labels(path, str(response.status_code)).inc()
    service.metrics.seconds.labels(path).observe(time.perf_counter() - started)
    return response


async def _within_limits(service: Service, request: Request, parts: AsyncIterator[bytes], work: Work) -> Response:
    _authorise(service, request)
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise Refusal(415, "the body must be JSON, with the header Content-Type: application/json")
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise Refusal(415, "the body must not be compressed")
    seconds = service.limits.timeout
    ends = asyncio.get_running_loop().time() + seconds
    with service.bytes.some() as add:
        try:
            async with asyncio.timeout_at(ends):
                body = await _read(parts, service.limits, add)
        except TimeoutError as error:
            raise Refusal(TOO_SLOW, f"the request did not arrive within {seconds:g} s") from error
        # Only now: a slow sender takes nobody's place.
        with service.requests.some(1):
            try:
                async with asyncio.timeout_at(ends):
                    return await _unless_gone(request, work(request, body))
            except TimeoutError as error:
                raise Refusal(504, f"not done within {seconds:g} s: send fewer texts, or ask later") from error


async def _unless_gone(request: Request, work: Awaitable[Response]) -> Response:
    """The response, or none and no more work where the caller hung up."""
    working = asyncio.ensure_future(work)
    # The body was read: what is received next is that the connection was closed.
    gone = asyncio.ensure_future(request.receive())
    try:
        await asyncio.wait({working, gone}, return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else Response(status_code=HUNG_UP)
    finally:
        for task in (working, gone):
            task.cancel()
        # The caller is answered after the work was taken out of the queue: a worker that looks in between would do it.
        await asyncio.wait({working, gone})


async def _read(parts: AsyncIterator[bytes], limits: Limits, add: Callable[[int], None]) -> bytes:
    """The body. `add` is told of each part. Raises ClientDisconnect if the caller hung up."""
    read = bytearray()
    async for part in parts:
        if len(read) + len(part) > limits.body:
            most = f"{limits.body:,} bytes (--max-body)"
            raise Refusal(413, f"the body is larger than {most}. Send fewer texts (in Elasticsearch, rank_window_size)")
        add(len(part))
        read += part
    return bytes(read)


async def _drained(parts: AsyncIterator[bytes]) -> bool:
    """Whether the whole body has arrived. The rest of one that is refused is thrown away, within limits.

    Otherwise the caller, still sending, would find the connection reset and not read why.
    """
    rest = DRAIN_BYTES
    with contextlib.suppress(TimeoutError, ClientDisconnect):
        async with asyncio.timeout(DRAIN_SECONDS):
            async for part in parts:
                rest -= len(part)
                if rest < 0:
                    return False
            return True
    return False


def _authorise(service: Service, request: Request) -> None:
    key = service.access.key
    if key is None:
        return
    # Headers come as Latin-1, whatever their bytes were.
    given = [one.encode("latin-1") for one in _keys(request.headers)]
    if not any(hmac.compare_digest(one, key.encode()) for one in given):
        raise Refusal(401, "the key is missing or wrong: send the header Authorization: Bearer KEY")


def _keys(headers: Headers) -> Iterator[str]:
    """The keys that a request may bring, as clients send them: Bearer, Basic (the password), X-API-Key and api-key."""
    scheme, _, given = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        yield given.strip()
    elif scheme.lower() == "basic":
        with contextlib.suppress(ValueError):
            yield base64.b64decode(given.strip(), validate=True).decode("latin-1").partition(":")[2]
    yield from (headers[name].strip() for name in ("x-api-key", "api-key") if name in headers)


def _parsed(schema: type[S], body: bytes) -> S:
    try:
        return schema.model_validate_json(body)
    except ValidationError as error:
        raise Refusal(422, misfits(error, "the body")[0]) from error


def _json(content: Any, ranked: Ranked | None = None) -> Response:
    headers = {CUT: listed(ranked.cut, MOST_OF_A_HEADER)} if ranked is not None and ranked.cut else None
    return Response(orjson.dumps(content), media_type="application/json", headers=headers)


def _refused(dialect: Dialect, refusal: Refusal) -> Response:
    headers = {}
    if refusal.retry_after is not None:
        headers["Retry-After"] = str(refusal.retry_after)
    if refusal.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    content = json.dumps(dialect.error(refusal)).encode()  # orjson refuses lone surrogates
    return Response(content, refusal.status, headers=headers, media_type="application/json")
