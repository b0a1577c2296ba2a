"""Pages for people. They work without a script; every one is also JSON, at the same address with `.json`."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import secrets
import tempfile
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from starlette.datastructures import FormData, UploadFile

from ..core.citation import citation_of, doi_url
from ..core.errors import CcheckError, InvalidData, UsageError
from ..core.recipe import recipe_names
from ..core.text import shortened
from ..core.types import Document
from ..pipeline.run import MAX_CLAIM_CHARS
from ..service import Check, Correction, How, Wanted
from .access import FORM, SESSION, SESSION_SECONDS, Caller, Right
from .citing import Citing
from .jobs import IngestJob, claims_in, harmless
from .page import environment, static_files
from .problems import Problem, json_text, problem_of
from .rest import ClaimSent, CorrectionSent
from .shown import choices, filtered, readable, with_texts
from .views import claim_view

if TYPE_CHECKING:
    from .app import Web

EXPORTS = {"csv": "text/csv", "bib": "application/x-bibtex", "md": "text/markdown"}
FORMATS = {"csv": "csv", "bib": "bibtex", "md": "md"}
RECENT, LISTED = 6, 30
MAX_DOCUMENT = 200_000
"""Characters of a document that its page shows."""
MOST_FILES = 100
"""Files in one upload."""


class Pages:
    """What every page needs: the caller, the token of its forms, and the template."""

    def __init__(self, web: Web) -> None:
        self.web = web

    def show(self, request: Request, caller: Caller | None, template: str, **given: Any) -> HTMLResponse:
        """A page. A browser that has none gets the cookie that its forms need."""
        cookie = request.cookies.get(FORM) or secrets.token_urlsafe(24)
        shared = {
            "served": given.pop("served", {}) | {"token": self.web.access.token(cookie)},
            "visitor": caller,
            "loading": self.web.loading,
            "missing": self.web.missing,
            "most": MAX_CLAIM_CHARS,
            "keys": bool(self.web.access.keys),
        }
        page = environment().get_template(template).render(shared | given)
        response = HTMLResponse(page, headers={"Cache-Control": "no-store"})
        if FORM not in request.cookies:
            self.set_cookie(response, FORM, cookie, SESSION_SECONDS)
        return response

    def set_cookie(self, response: Response, name: str, value: str, seconds: int) -> None:
        response.set_cookie(
            name, value, max_age=seconds, httponly=True, samesite="strict", secure=self.web.served.secure
        )

    @contextlib.asynccontextmanager
    async def form(self, request: Request, *rights: Right) -> AsyncIterator[tuple[Caller, FormData]]:
        """The caller and the form that was sent. Raises Problem if it was forged."""
        caller = self.web.caller(request, *rights)
        async with request.form(max_files=MOST_FILES, max_fields=100) as form:
            self.web.access.refuse_forged(request, form.get("token"))
            yield caller, form


def pages(app: FastAPI, web: Web) -> None:
    """Add the pages to the application."""
    router = APIRouter(include_in_schema=False)
    made = Pages(web)

    @router.get("/static/{name}")
    async def static(name: str) -> Response:
        if (file := static_files().get(name)) is None:
            raise Problem(404, "there is no such file")
        headers = {"Cache-Control": "public, max-age=31536000, immutable"}
        return Response(file[1], media_type=file[0], headers=headers)

    _check_pages(router, web, made)
    _file_pages(router, web, made)
    _paper_pages(router, web, made)
    _sign_in(router, web, made)
    app.include_router(router)


def _check_pages(router: APIRouter, web: Web, made: Pages) -> None:
    @router.get("/")
    async def home(request: Request) -> Response:
        caller = web.caller(request, "read")
        described, recent = await asyncio.gather(web.describe(), _recent(web))
        return made.show(
            request,
            caller,
            "home.html",
            described=described,
            recent=recent,
            recipes=recipe_names(),
            claim=request.query_params.get("claim", "")[:MAX_CLAIM_CHARS],
        )

    @router.post("/checks")
    async def check(request: Request) -> Response:
        async with made.form(request, "check") as (caller, form):
            job = await web.jobs.check(_text(form, "claim"), caller, **_how(form, caller))
            # The page of a quick check is its answer at once, also without a script.
            if job.task is not None:
                await asyncio.wait([job.task], timeout=0.3)
            if job.error is not None:
                raise problem_of(job.error)
            return _to(f"/checks/{job.id}")

    @router.get("/checks/{name}")
    async def find(request: Request, name: str) -> Response:
        id_, _, ending = name.partition(".")
        caller = web.caller(request, "read")
        check = await web.find(id_)
        if ending == "json":
            return _json(check.to_dict())
        if ending in EXPORTS:
            if check.status == "running":
                raise Problem(409, "the check is not done yet")
            text = Citing(FORMATS[ending]).text(readable(check))
            named = {"Content-Disposition": f'attachment; filename="ccheck-{id_}.{ending}"'}
            return Response(text, media_type=EXPORTS[ending], headers=named)
        if ending:
            raise Problem(404, f"a check has no form .{ending}: there are json, {', '.join(EXPORTS)}")
        if check.status == "running":
            return made.show(request, caller, "progress.html", check=check)
        return await web.in_thread(functools.partial(_result_page, web, made, request, caller, check))

    @router.post("/checks/{id}/corrections")
    async def correct(request: Request, id: str) -> Response:  # noqa: A002
        async with made.form(request, "check") as (caller, form):
            fields = {name: _text(form, name) or None for name in ("what", "doc_id", "label", "note", "user")}
            fields["what"] = fields["what"] or ("wrong stance" if fields["doc_id"] else "wrong verdict")
            try:
                sent = CorrectionSent.model_validate(fields)
            except ValueError as error:
                raise problem_of(
                    InvalidData("the correction can't be read. Load the page and send it again")
                ) from error
            try:
                await web.service.correct_async(sent.value(id, caller))
            except CcheckError as error:
                raise problem_of(error, named=True) from None
            return _to(f"/checks/{id}#{'verdict' if sent.doc_id is None else 'evidence'}")

    @router.post("/checks/{id}/stop")
    async def stop(request: Request, id: str) -> Response:  # noqa: A002
        async with made.form(request, "check"):
            if (job := web.jobs.checks.get(id)) is not None:
                job.stop()
                await job.changed(2)
            return _to(f"/checks/{id}")

    @router.get("/history")
    @router.get("/history.json")
    async def history(request: Request) -> Response:
        caller = web.caller(request, "read")
        query = {name: request.query_params.get(name, "") for name in ("q", "label", "before")}
        wanted = Wanted(query["q"] or None, query["label"] or None, LISTED, query["before"] or None)
        found = await web.service.checks_async(wanted)
        if request.url.path.endswith(".json"):
            return _json([one.to_dict() for one in found])
        older = found[-1].created if len(found) == LISTED else None
        return made.show(request, caller, "history.html", checks=_listed(found), query=query, older=older)


def _file_pages(router: APIRouter, web: Web, made: Pages) -> None:
    @router.post("/files")
    async def send(request: Request) -> Response:
        async with made.form(request, "check") as (caller, form):
            (upload,) = _uploads(form, most=1)
            name, most = harmless(upload.filename or "", "claims.txt"), web.limited.claims(caller)
            records = await web.in_thread(claims_in, await upload.read(), name, most)
            job = web.jobs.file(name, records, caller, **_how(form, caller))
            await job.changed(0.3)
            return _to(f"/files/{job.id}")

    @router.get("/files/{id}")
    async def table(request: Request, id: str) -> Response:  # noqa: A002
        caller = web.caller(request, "read")
        job = await web.jobs.find_file(id.removesuffix(".json"), caller)
        return _json(job.to_dict()) if id.endswith(".json") else made.show(request, caller, "file.html", job=job)

    @router.post("/files/{id}/{what}")
    async def act(request: Request, id: str, what: str) -> Response:  # noqa: A002
        async with made.form(request, "check") as (caller, _):
            job = await web.jobs.find_file(id, caller)
            if what == "retry":
                web.jobs.retry(job, caller)
            elif what == "stop":
                job.stop()
            else:
                raise Problem(404, "there is no such page")
            return _to(f"/files/{id}")


def _paper_pages(router: APIRouter, web: Web, made: Pages) -> None:
    @router.get("/papers")
    @router.get("/papers.json")
    async def papers(request: Request) -> Response:
        caller = web.caller(request, "read")
        described = await web.describe()
        if request.url.path.endswith(".json"):
            return _json((described or await web.service.describe_async()).to_dict())
        ingests = list(web.jobs.ingests.values())[::-1]
        return made.show(request, caller, "papers.html", described=described, ingests=ingests)

    @router.post("/papers")
    async def add(request: Request) -> Response:
        async with made.form(request, "write") as (caller, form):
            folder = tempfile.TemporaryDirectory(prefix="ccheck-papers-")
            try:
                paths = await web.in_thread(_saved, _uploads(form, MOST_FILES), Path(folder.name))
            except BaseException:
                folder.cleanup()
                raise
            job = web.jobs.ingest(paths, caller, folder)
            await job.changed(0.3)
            return _to(f"/papers/added/{job.id}")

    @router.get("/papers/added/{id}")
    async def added(request: Request, id: str) -> Response:  # noqa: A002
        caller = web.caller(request, "read")
        job: IngestJob | None = web.jobs.ingests.get(id.removesuffix(".json"))
        if job is None:
            raise Problem(404, "this ingest is not kept any more")
        return _json(job.to_dict()) if id.endswith(".json") else made.show(request, caller, "ingest.html", job=job)

    @router.get("/documents/{id:path}")
    async def document(request: Request, id: str) -> Response:  # noqa: A002
        caller = web.caller(request, "read")
        try:
            found: Document = await web.service.document_async(id)
        except CcheckError as error:
            raise problem_of(error, named=True) from None
        cited = citation_of(found)
        shown = {"cited": cited, "url": doi_url(cited.doi), "text": found.text[:MAX_DOCUMENT]}
        return made.show(request, caller, "document.html", document=found, **shown)


def _sign_in(router: APIRouter, web: Web, made: Pages) -> None:
    @router.post("/sign-in")
    async def sign_in(request: Request) -> Response:
        web.limited.requests.spend(request.client.host if request.client is not None else "local", 10)
        async with request.form(max_files=0, max_fields=10) as form:
            web.access.refuse_forged(request, form.get("token"))
            key = web.access.known(_text(form, "key").strip())
            if key is None:
                page = made.show(request, None, "sign_in.html", wrong=True, next=_local(_text(form, "next")))
                page.status_code = 401
                return page
            response = _to(_local(_text(form, "next")))
            made.set_cookie(response, SESSION, web.access.session(key), SESSION_SECONDS)
            return response

    @router.post("/sign-out")
    async def sign_out(request: Request) -> Response:
        async with made.form(request):
            response = _to("/")
            response.delete_cookie(SESSION)
            return response

    def asked(request: Request) -> Response:
        page = made.show(request, None, "sign_in.html", wrong=False, next=_local(str(request.url.path)))
        page.status_code = 401
        return page

    web.sign_in = asked


def _result_page(web: Web, made: Pages, request: Request, caller: Caller, check: Check) -> Response:
    """A check that is done."""
    query = {name: request.query_params.get(name, "") for name in ("stance", "from", "to", "field")}
    result = with_texts(readable(check), web.service)
    view = claim_view(result, 1, {})
    shown = filtered(view["documents"], query)
    corrections: dict[str | None, list[Correction]] = {}
    for one in check.corrections:
        corrections.setdefault(one.doc_id, []).append(one)
    served = {"check": check, "query": query, "choices": choices(view["documents"]), "corrections": corrections}
    return made.show(
        request,
        caller,
        "check.html",
        served=served | {"all": len(view["documents"]), "kept": check.kept},
        check=check,
        link=str(request.url.replace(query="", fragment="")),
        **view | {"documents": shown},
    )


async def _recent(web: Web) -> list[Mapping[str, Any]] | None:
    """The last checks; None if the record can't be read now. The history then says why."""
    if web.service.record is None:
        return []
    try:
        return _listed(await asyncio.wait_for(web.service.checks_async(Wanted(limit=RECENT)), 5))
    except (CcheckError, TimeoutError):
        return None


def _listed(checks: Iterable[Check]) -> list[Mapping[str, Any]]:
    return [
        {
            "check": one,
            "outcome": "ERROR" if one.status == "failed" else one.label or "NONE",
            "claim": shortened(one.claim, 200),
            "day": one.created[:16].replace("T", " "),
        }
        for one in checks
    ]


def _how(form: FormData, caller: Caller) -> How:
    """How to check, from the fields of a form. Raises Problem."""
    filters = [f"year{sign}{_text(form, name)}" for name, sign in (("from", ">="), ("to", "<=")) if _text(form, name)]
    filters += [line.strip() for line in _text(form, "filters").splitlines() if line.strip()]
    try:
        sent = ClaimSent.model_validate(
            {
                "claim": "-",
                "k": _text(form, "k") or 10,
                "filters": filters,
                "recipe": _text(form, "recipe") or None,
                "fresh": bool(form.get("fresh")),
            }
        )
    except ValueError as error:
        raise problem_of(
            UsageError("the number of papers is from 1 to 100, and there are at most 20 filters")
        ) from error
    return sent.how(caller)


def _text(form: FormData, name: str) -> str:
    value = form.get(name)
    return value.strip() if isinstance(value, str) else ""


def _uploads(form: FormData, most: int) -> list[UploadFile]:
    """The files of a form. Raises Problem without one."""
    found = [one for one in form.getlist("file") if isinstance(one, UploadFile) and one.filename]
    if not found:
        raise problem_of(UsageError("choose a file first"))
    if len(found) > most:
        raise problem_of(UsageError(f"{len(found)} files: at most {most} can be sent at once"))
    return found


def _saved(uploads: Iterable[UploadFile], folder: Path) -> list[Path]:
    """The files in a folder of ours, each under the last part of its name, made harmless."""
    paths: list[Path] = []
    for number, one in enumerate(uploads):
        path = folder / harmless(one.filename or "", f"file-{number}")
        if path in paths:
            path = path.with_name(f"{number}-{path.name}")
        with path.open("wb") as out:
            while part := one.file.read(1 << 20):
                out.write(part)
        paths.append(path)
    return paths


def _local(address: str) -> str:
    """An address of this server; `/` for any other."""
    return address if address.startswith("/") and address[1:2] not in ("/", "\\") and address.isprintable() else "/"


def _to(address: str) -> RedirectResponse:
    return RedirectResponse(address, 303)


def _json(content: Any) -> Response:
    return Response(json_text(content), media_type="application/json", headers={"Cache-Control": "no-store"})
