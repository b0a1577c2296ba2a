"""REST: `/v1/…`, health and metrics. Bodies and answers are JSON; errors are problems (RFC 9457)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import Annotated, Any, Literal, TypeAlias

from anyio import CancelScope
from fastapi import APIRouter, Body, Header, Path, Query, Request, Response
from fastapi.responses import StreamingResponse
from fastapi.routing import APIRoute
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError
from starlette.concurrency import run_in_threadpool

from ..core.errors import CcheckError
from ..core.recipe import load_recipe, recipe_names
from ..core.types import Document
from ..pipeline.batch import ClaimRecord
from ..pipeline.run import MAX_CLAIM_CHARS
from ..service import Check, Correction, Description, Event, How, Wanted
from ..service.types import What
from .access import Caller
from .client import CLAIMS
from .jobs import KEEP_ALIVE
from .page import plainly
from .problems import Problem, json_text, problem_of, sse
from .sent import claims_in
from .shared import Checker, Reader, Shared, Web, json_answer, web_of

QUICK_SECONDS = 2.0
"""How long a request for a check waits for it, unless it says otherwise."""
MOST_WAIT = 60.0
NDJSON = "application/x-ndjson"
STREAMED = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
"""nginx would hold back what is sent."""

Answers: TypeAlias = dict[int | str, dict[str, Any]]
"""What OpenAPI says of answers, by status."""
Id = Annotated[str, Path(pattern="^[0-9a-f]{16}$", description="the id of a check: 16 hexadecimal digits")]


class ProblemBody(BaseModel):
    """An error, as RFC 9457 has it. `type` is `urn:ccheck:` and the class of ccheck's error, or `about:blank`."""

    type: str
    title: str
    status: int
    detail: str


class _Sent(BaseModel):
    model_config = ConfigDict(extra="forbid")


class HowToCheck(_Sent):
    """How to check. What is left out has its default."""

    k: int = Field(10, ge=1, le=100, description="how many documents")
    filters: list[Annotated[str, Field(max_length=500)]] = Field(
        [], max_length=20, description='conditions on metadata, such as "year>=2010"'
    )
    recipe: str | None = Field(None, max_length=100, description="a packaged recipe, instead of the server's")
    fresh: bool = Field(False, description="check again, also if the record has this check")

    def how(self, caller: Caller) -> How:
        return How(k=self.k, filters=self.filters, recipe=self.recipe, fresh=self.fresh, user=caller.name)


class ClaimSent(HowToCheck):
    """A claim to check."""

    claim: Annotated[str, StringConstraints(strip_whitespace=True)] = Field(min_length=1, max_length=MAX_CLAIM_CHARS)
    wait: float = Field(QUICK_SECONDS, ge=0, le=MOST_WAIT, description="seconds to wait for the answer")


class FileSent(HowToCheck):
    """How to check a file of claims."""

    name: str = Field("claims.txt", max_length=500, description="the file's name, whose ending tells its format")


class ChecksAsked(_Sent):
    """Which recorded checks to list."""

    search: str | None = Field(None, max_length=500)
    label: str | None = Field(None, max_length=40)
    limit: int = Field(20, ge=1, le=200)
    before: str | None = Field(None, max_length=40, description="older than this time (ISO 8601)")


class SearchAsked(_Sent):
    """What to search for."""

    query: str = Field(min_length=1, max_length=10_000)
    k: int = Field(10, ge=1, le=100)
    filters: list[str] = Field([], max_length=20)


class CorrectionSent(_Sent):
    """What is wrong with a check. `doc_id` is the document concerned, none for the verdict."""

    what: What
    doc_id: str | None = Field(None, max_length=2000)
    label: Literal["SUPPORTS", "REFUTES", "NOT_ENOUGH_INFO", "CONFLICTING"] | None = None
    note: str | None = Field(None, max_length=2000)
    user: str | None = Field(None, max_length=100, description="who says so; a key's name counts more")

    def value(self, check: str, caller: Caller) -> Correction:
        return Correction(
            check, self.what, self.doc_id, self.label, self.note or None, caller.name or self.user or None
        )


class Search(BaseModel):
    """Documents, best first, each as in the evidence of a check, without a stance."""

    query: str
    hits: list[dict[str, Any]]


class DocumentFound(BaseModel):
    """A document of the store."""

    id: str
    title: str
    text: str
    metadata: dict[str, Any]
    published: str | None


class RecipeFound(BaseModel):
    """A packaged recipe."""

    name: str
    description: str


def document_found(document: Document) -> dict[str, Any]:
    """JSON values of a `DocumentFound`."""
    return {name: getattr(document, name) for name in DocumentFound.model_fields}


def _problems(*statuses: int) -> Answers:
    body = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/ProblemBody"}}}
    return {status: {"description": "a problem", "content": body} for status in statuses}


def _answers(good: Any, *problems: int) -> Answers:
    """A type's JSON, or a text of the media type that is named; and these problems."""
    said = {"content": {good: {}}} if isinstance(good, str) else {"model": good}
    return {200: said} | _problems(*problems)


_CHECKED: Answers = {202: {"model": Check, "headers": {"Location": {"schema": {"type": "string"}}}}}
_FILE = {"requestBody": {"required": True, "content": {NDJSON: {"schema": {"type": "string"}}}}}
_REFUSED = _problems(400, 401, 403, 422, 429, 500, 501, 502, 503)


class _Direct(APIRoute):
    """FastAPI describes `check`, and handles a request that is not as described. One that is goes to `check` directly:
    to take it apart and validate it twice would cost as much as an answer of the record."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        otherwise = super().get_route_handler()

        async def handler(request: Request) -> Response:
            try:
                if request.headers.get("content-type") != "application/json":
                    return await otherwise(request)
                sent = ClaimSent.model_validate_json(await request.body())
            except ValidationError:
                return await otherwise(request)
            web = await web_of(request)
            return await check(sent, web, web.caller(request, "check"))

        return handler


direct = APIRouter(prefix="/v1", responses=_REFUSED, route_class=_Direct)
rest = APIRouter(prefix="/v1", responses=_REFUSED)
state = APIRouter(tags=["state"], responses=_problems(500))


@direct.post("/checks", tags=["checks"], responses=_CHECKED | _answers(Check, 409, 413))
async def check(sent: Annotated[ClaimSent, Body()], web: Shared, asked: Checker) -> Response:
    """Check a claim. 200 with the check if it is there within `wait` seconds, else 202 with its `Location`."""
    job = await web.jobs.check(sent.claim, asked, **sent.how(asked))
    await job.ended(sent.wait)
    where = {"Location": f"/v1/checks/{job.id}"}
    if job.check.status == "running":
        return json_answer(job.check, 202, where | {"Retry-After": "2"})
    return json_answer(job.check, 200, where)


@rest.post("/checks/many", tags=["checks"], responses=_answers(NDJSON, 413, 507), openapi_extra=_FILE)
async def check_many(
    request: Request, how: Annotated[FileSent, Query()], web: Shared, asked: Checker
) -> StreamingResponse:
    """Check a file of claims: a text or a JSON object a line, or another format that `name` tells (`claims.csv`).

    One check a line comes back, in the order of the claims; `Ccheck-Claims` says how many there are. A line that takes
    long begins with spaces, so that no proxy closes the connection."""
    records = await run_in_threadpool(claims_in, await request.body(), how.name, web.limited.claims(asked))
    await web.service.refuse_unusable_async(**how.how(asked))
    web.limited.start(asked, len(records))
    return StreamingResponse(_many(web, records, asked, how), 200, STREAMED | {CLAIMS: str(len(records))}, NDJSON)


@rest.get("/checks", tags=["checks"], responses=_answers(list[Check]))
async def checks(web: Shared, _: Reader, asked: Annotated[ChecksAsked, Query()]) -> Response:
    """The recorded checks, the newest first."""
    wanted = Wanted(**asked.model_dump())
    return json_answer([one.to_dict() for one in await web.service.checks_async(wanted)])


@rest.get("/checks/{id}", tags=["checks"], responses=_answers(Check, 404))
async def find(id: Id, web: Shared, request: Request) -> Response:  # noqa: A002
    """A check: of the record, or one that runs (`status` is `running`)."""
    return json_answer(await web.find_own(id, request))


@rest.delete("/checks/{id}", tags=["checks"], status_code=202, responses=_problems(404))
async def stop(id: Id, web: Shared, asked: Checker) -> Response:  # noqa: A002
    """Stop a check that you asked for. It goes on if other callers wait for it."""
    job = web.jobs.stop(id, asked)
    if job is None:
        raise Problem(404, f"no check {id} of yours runs", type_="NotFound")
    return json_answer(job.check, 202)


@rest.get("/checks/{id}/events", tags=["checks"], responses=_answers("text/event-stream", 404))
async def events(
    id: Id,  # noqa: A002
    web: Shared,
    request: Request,
    last_event_id: Annotated[str | None, Header(max_length=10)] = None,
) -> StreamingResponse:
    """What happens while a check runs (server-sent events), from the beginning or after `Last-Event-ID`. Of one that
    has ended, only the last event is certain to be there."""
    after = int(last_event_id) + 1 if last_event_id is not None and last_event_id.isdecimal() else 0
    check, job = await web.find_own(id, request), web.jobs.find(id)
    stream = _ended(check) if job is None else job.stream(after, web.jobs.closing)
    return StreamingResponse(stream, media_type="text/event-stream", headers=STREAMED)


@rest.post("/checks/{id}/corrections", tags=["checks"], responses=_answers(Check, 404))
async def correct(id: Id, sent: Annotated[CorrectionSent, Body()], web: Shared, asked: Checker) -> Response:  # noqa: A002
    """Say what is wrong with a check. It is kept beside the answer, and shown with it."""
    web.refuse_foreign(id, asked)
    return json_answer(await web.service.correct_async(sent.value(id, asked)))


@rest.get("/corrections", tags=["checks"], responses=_answers(NDJSON))
async def pairs(web: Shared, _: Reader) -> Response:
    """Corrections as labelled pairs, for `ccheck evaluate --pairs` and `ccheck train stance`.

    The header `Ccheck-Notice` says how many were left out, and why."""
    notices: list[str] = []
    lines = await run_in_threadpool(lambda: "".join(map(json_text, web.service.pairs(notices.append))))
    return Response(lines, 200, {"Ccheck-Notice": "; ".join(notices)} if notices else None, NDJSON)


@rest.get("/search", tags=["collection"], response_model=Search, responses=_problems(409))
async def search(web: Shared, _: Reader, asked: Annotated[SearchAsked, Query()]) -> Response:
    """The documents that a claim would be checked against."""
    found = await web.service.search_async(asked.query, k=asked.k, filters=asked.filters)
    return json_answer({"query": asked.query, "hits": [one.to_dict() for one in found]})


@rest.get("/documents/{id:path}", tags=["collection"], response_model=DocumentFound, responses=_problems(404))
async def document(id: Annotated[str, Path(max_length=2000)], web: Shared, _: Reader) -> Response:  # noqa: A002
    """A document with its text."""
    return json_answer(document_found(await web.service.document_async(id)))


@rest.get("/recipes", tags=["collection"], response_model=list[RecipeFound])
async def recipes(_: Reader) -> Response:
    """The packaged recipes."""
    found = await asyncio.to_thread(lambda: [load_recipe(name) for name in recipe_names()])
    return json_answer([{"name": one.name, "description": one.description} for one in found])


@rest.get("/collections", tags=["collection"], responses=_answers(list[Description]))
async def collections(web: Shared, _: Reader) -> Response:
    """What is searched, and with what."""
    return json_answer([(await web.service.describe_async()).to_dict()])


@state.head("/health", include_in_schema=False)
@state.get("/health", responses=_answers(dict[str, str]))
async def health() -> Response:
    """200 while the server runs. Needs no key."""
    return json_answer({"status": "ok"})


@state.head("/ready", include_in_schema=False)
@state.get("/ready", responses=_answers(dict[str, str], 503))
async def ready(web: Shared) -> Response:
    """200 once the models are loaded and the store can be searched, else 503 with what is missing. Needs no key."""
    if web.loading:
        raise Problem(503, "the models are being loaded", {"Retry-After": "5"})
    await web.look()
    if web.missing is not None:
        raise Problem(503, plainly(web.missing))
    return json_answer({"status": "ready"})


@state.get("/metrics", responses=_answers("text/plain", 401, 403))
async def metrics(web: Shared, _: Reader) -> Response:
    """Prometheus's text format."""
    return Response(generate_latest(web.metrics), media_type=CONTENT_TYPE_LATEST)


async def _ended(check: Check) -> AsyncIterator[bytes]:
    yield sse(0, Event("error" if check.status == "failed" else "done", {"check": check.id, **check.to_dict()}))


async def _many(web: Web, records: Sequence[ClaimRecord], asked: Caller, how: HowToCheck) -> AsyncIterator[str]:
    """Checks as lines; what stops them all is the last line, a problem."""
    coming = None
    try:
        answers = web.service.answers(records, **how.how(asked))
        for left in range(len(records), 0, -1):
            web.limited.refuse_spent(asked)
            coming = asyncio.ensure_future(web.jobs.next_of(answers, left))
            while not (await asyncio.wait([coming], timeout=KEEP_ALIVE))[0]:
                yield " "
            check, answered = coming.result()
            web.limited.used(asked, 0 if answered.kept else check.tokens)
            yield json_text(check)
    except (CcheckError, Problem) as error:
        yield json_text(problem_of(error).to_dict())
    finally:
        if coming is not None:
            with CancelScope(shield=True):  # the client may be gone, and what it asked for still run
                await asyncio.gather(coming, return_exceptions=True)
        web.limited.end(asked)
