"""Pages for people. They work without a script; every one is also JSON, at the same address with `.json`."""

from __future__ import annotations

import asyncio
import itertools
import re
import secrets
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from more_itertools import chunked
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData, UploadFile

from ..core.citation import citation_of, doi_url
from ..core.errors import CcheckError, InvalidData, MissingExtra, NotFound, StoreChanged, UsageError
from ..core.recipe import recipe_names
from ..core.types import Document
from ..ingest import numbered
from ..ingest.documents import FILE_HASH
from ..pipeline.run import MAX_CLAIM_CHARS
from ..service import Check, How, Wanted
from ..service.record import permalink
from . import pdfs
from .access import FORM, SESSION, SESSION_SECONDS, Caller, Right, needed
from .citing import Citing
from .jobs import STOPPED, FileJob
from .page import environment, placeless, static_files
from .pdf_pages import marked_pages, spans_of
from .problems import JSON, Problem, disk_told, problem_of
from .rest import ClaimSent, CorrectionSent, document_found
from .sent import claims_in, harmless
from .shared import PATIENCE, Shared, Web, json_answer
from .shown import choices, filtered, readable, with_texts
from .views import claim_view

EXPORTS = {"csv": ("csv", "text/csv"), "bib": ("bibtex", "application/x-bibtex"), "md": ("md", "text/markdown")}
"""The format and the media type of what a check's address with this ending gives."""
RECENT, LISTED = 6, 30
MAX_DOCUMENT = 200_000
"""Characters of a document that its page shows."""
MOST_FILES = 100
"""Files in one upload."""
STRANGER = Caller(None, frozenset(), "stranger")
"""Who is shown where to sign in."""
pages = APIRouter(include_in_schema=False)


class Page:
    """A request for a page: who asks, the form that was sent, and its answer."""

    def __init__(self, request: Request, web: Web, caller: Caller, form: FormData | None = None) -> None:
        self.request, self.web, self.caller, self.form = request, web, caller, form or FormData()

    @property
    def as_json(self) -> bool:
        return JSON in self.request.scope

    def text(self, name: str) -> str:
        """A field of the form."""
        value = self.form.get(name)
        return value.strip() if isinstance(value, str) else ""

    def query(self, *names: str) -> dict[str, str]:
        """These parameters of the address."""
        return {name: self.request.query_params.get(name, "") for name in names}

    def show(self, template: str, data: Any, status: int = 200, **given: Any) -> Response:
        """The page, or `data` if JSON is wanted. A browser that has none gets the cookie that its forms need."""
        if self.as_json:
            return json_answer(data, status)
        web, cookie = self.web, self.request.cookies.get(FORM) or secrets.token_urlsafe(24)
        shared = {
            "served": given.pop("served", {}) | {"token": web.access.token(cookie)},
            "visitor": self.caller,
            "loading": web.loading,
            "missing": web.missing,
            "most": MAX_CLAIM_CHARS,
        }
        made = environment().get_template(template).render(shared | given)
        response = HTMLResponse(made, status, headers={"Cache-Control": "no-store"})
        if FORM not in self.request.cookies:
            self.set_cookie(response, FORM, cookie)
        return response

    def set_cookie(self, response: Response, name: str, value: str) -> None:
        secure = self.web.served.secure
        response.set_cookie(name, value, max_age=SESSION_SECONDS, httponly=True, samesite="lax", secure=secure)


async def _opened(request: Request, web: Shared) -> Page:
    return Page(request, web, web.caller(request, "read"))


def _form(*rights: Right) -> Any:
    """The form of a page that was sent by who has these rights. Raises Problem if it was forged."""

    async def sent(request: Request, web: Shared) -> AsyncIterator[Page]:
        caller = web.caller(request, *rights)
        with disk_told():
            async with request.form(max_files=MOST_FILES, max_fields=100) as form:
                web.access.refuse_forged(request, form.get("token"))
                yield Page(request, web, caller, form)

    return Depends(sent)


Opened = Annotated[Page, Depends(_opened)]
Sent = Annotated[Page, _form("check")]


@pages.get("/static/{name}")
async def static(name: str) -> Response:
    if (file := static_files().get(name)) is None:
        raise Problem(404, "there is no such file")
    return Response(file[1], media_type=file[0], headers={"Cache-Control": "public, max-age=31536000, immutable"})


# -- checks


@pages.head("/")
@pages.get("/")
@pages.get("/home")
@pages.head("/home")
async def home(page: Opened) -> Response:
    described, recent = await asyncio.gather(page.web.describe(), _recent(page.web))
    recipes = [] if described is None else described.recipes
    data: dict[str, Any] = {"missing": page.web.missing, "recipes": recipes}
    data["collection"], data["recent"] = described and described.to_dict(), recent and [one.to_dict() for one in recent]
    claim = page.query("claim")["claim"][:MAX_CLAIM_CHARS]
    return page.show("home.html", data, described=described, recent=recent, recipes=recipes, claim=claim)


@pages.post("/checks")
async def check(page: Sent) -> Response:
    job = await page.web.jobs.check(page.text("claim"), page.caller, **_how(page))
    await job.ended(0.3)  # the page of a quick check is its answer at once, also without a script
    return _to(f"/checks/{job.id}")


@pages.get("/checks/{id}")
async def find(page: Opened, id: str) -> Response:  # noqa: A002
    id_, _, ending = id.partition(".")
    check = await page.web.find(id_)
    if ending in EXPORTS:
        if check.status == "running":
            raise Problem(409, "the check is not done yet")
        format_, kind = EXPORTS[ending]
        return _download(Citing(format_).text(readable(check), check, _link(page, id_)), kind, f"{id_}.{ending}")
    if ending:
        raise Problem(404, f"a check has no form .{ending}: there are json, {', '.join(EXPORTS)}")
    if check.status == "running":
        return page.show("progress.html", check, check=check, callers=page.web.jobs.checks[id_].callers)
    return await run_in_threadpool(_result_page, page, check)


@pages.post("/checks/{id}/corrections")
async def correct(page: Sent, id: str) -> Response:  # noqa: A002
    fields = {name: page.text(name) or None for name in ("what", "doc_id", "label", "note", "user")}
    fields["what"] = fields["what"] or ("wrong stance" if fields["doc_id"] else "wrong verdict")
    try:
        sent = CorrectionSent.model_validate(fields)
    except ValueError as error:
        raise InvalidData("the correction can't be read. Load the page and send it again") from error
    await page.web.service.correct_async(sent.value(id, page.caller))
    return _to(f"/checks/{id}#{'verdict' if sent.doc_id is None else 'evidence'}")


@pages.post("/checks/{id}/stop")
async def stop(page: Sent, id: str) -> Response:  # noqa: A002
    job = page.web.jobs.stop(id, page.caller)
    return _to(f"/checks/{id}" if job is None or job.stopped else "/")


@pages.get("/history")
async def history(page: Opened) -> Response:
    query = page.query("q", "label", "before")
    wanted = Wanted(query["q"] or None, query["label"] or None, LISTED, query["before"] or None)
    found = await page.web.service.checks_async(wanted)
    older = found[-1].created if len(found) == LISTED else None
    return page.show("history.html", [one.to_dict() for one in found], checks=found, query=query, older=older)


# -- files of claims


@pages.post("/files")
async def send(page: Sent) -> Response:
    (upload,) = _uploads(page, most=1)
    name, most = harmless(upload.filename or "", "claims.txt"), page.web.limited.claims(page.caller)
    records = await run_in_threadpool(claims_in, await upload.read(), name, most)
    if all(one.problem is not None for one in records):
        raise InvalidData(f"{name} has no claims that can be checked: {records[0].problem}")
    await page.web.service.refuse_unusable_async(**(how := _how(page)))
    job = page.web.jobs.file(name, records, page.caller, **how)
    await job.changed(0.3)
    return _to(f"/files/{job.id}")


@pages.get("/files/{id}")
async def table(page: Opened, id: str) -> Response:  # noqa: A002
    job = await page.web.jobs.find_file(id.removesuffix(".csv"), page.caller)
    if id.endswith(".csv"):
        return _download(await run_in_threadpool(_table, page, job), "text/csv", f"{job.id[-16:]}.csv")
    ids = [row.check for row in job.rows if row.check is not None and row.kept]
    wanted = Wanted(corrected=True, ids=ids, limit=min(len(ids), 10_000))
    corrected = {one.id: one.corrected for one in (await page.web.service.checks_async(wanted) if ids else ())}
    return page.show("file.html", job.to_dict(corrected), job=job, corrected=corrected)


@pages.post("/files/{id}/{what}")
async def act(page: Sent, id: str, what: str) -> Response:  # noqa: A002
    job = await page.web.jobs.find_file(id, page.caller)
    if what == "retry":
        page.web.jobs.retry(job, page.caller)
    elif what == "stop":
        job.stopped = STOPPED
    else:
        raise Problem(404, "there is no such page")
    return _to(f"/files/{id}")


# -- papers


@pages.get("/papers")
async def papers(page: Opened) -> Response:
    described = await (page.web.service.describe_async() if page.as_json else page.web.describe())
    data = None if described is None else described.to_dict()
    return page.show("papers.html", data, described=described, ingests=[*page.web.jobs.ingests.values()][::-1])


@pages.post("/papers")
async def add(page: Annotated[Page, _form("write")]) -> Response:
    folder, kept = tempfile.TemporaryDirectory(prefix="ccheck-papers-"), page.web.served.pdfs
    # Ids begin with the name of the folder, so they are those that the folder of PDFs would give.
    into = Path(folder.name, "added" if kept is None else kept.resolve().name)
    try:
        paths = await run_in_threadpool(_saved, _uploads(page, MOST_FILES), into)
    except BaseException:
        folder.cleanup()
        raise
    job = page.web.jobs.ingest(paths, page.caller, folder, kept)
    await job.changed(0.3)
    return _to(f"/papers/added/{job.id}")


@pages.get("/papers/added/{id}")
async def added(page: Opened, id: str) -> Response:  # noqa: A002
    job = page.web.jobs.ingests.get(id)
    if job is None:
        raise Problem(404, "this ingest is not kept any more")
    return page.show("ingest.html", job.to_dict(), job=job)


@pages.get("/documents/{id:path}")
async def document(page: Opened, id: str) -> Response:  # noqa: A002
    if page.as_json and f"{id}.json" in await run_in_threadpool(page.web.service.documents, [f"{id}.json"]):
        del page.request.scope[JSON]  # it belongs to the document's id
        id = f"{id}.json"  # noqa: A001
    found = await page.web.service.document_async(id)
    cited, text = citation_of(found), found.text[:MAX_DOCUMENT]
    data = document_found(found)
    pdf = pdfs.pdf_of(page.web.served.pdfs, found) is not None
    return page.show("document.html", data, document=found, cited=cited, url=doi_url(cited.doi), text=text, pdf=pdf)


async def _with_pdf(page: Page, id_: str) -> tuple[Document, Path]:
    """A document and its PDF. Raises NotFound."""
    found = await page.web.service.document_async(id_)
    if (path := pdfs.pdf_of(page.web.served.pdfs, found)) is None:
        raise NotFound("this server has no PDF of this paper")
    return found, path


@pages.get("/pdf/{id:path}")
async def pdf(page: Opened, id: str) -> Response:  # noqa: A002
    found, path = await _with_pdf(page, id)
    content = await run_in_threadpool(pdfs.unchanged, path, found.metadata[FILE_HASH])
    if content is None:
        raise StoreChanged(pdfs.CHANGED)
    named = f"inline; filename*=UTF-8''{quote(path.name)}"
    return Response(content, media_type="application/pdf", headers={"Content-Disposition": named, **pdfs.HEADERS})


@pages.get("/pdf-pages/{id:path}")
async def pdf_page(page: Opened, id: str) -> Response:  # noqa: A002
    """The pages of a PDF with sentences marked. The page is still useful if they can't be drawn."""
    found, path = await _with_pdf(page, id)
    spans = spans_of(page.request.query_params.getlist("at"), found)
    page.web.limited.requests.spend(page.caller.id, 10)
    shown, problem = list[dict[str, Any]](), None
    try:
        async with asyncio.timeout(PATIENCE):
            await page.web.drawing.acquire()
        try:
            shown = await run_in_threadpool(marked_pages, path, found, spans)
        finally:
            page.web.drawing.release()
    except TimeoutError:
        problem = Problem(503, "too many pages are being drawn. Load this one again in some seconds")
    except (InvalidData, MissingExtra) as error:
        problem = problem_of(error)
    listed = [{name: value for name, value in one.items() if name != "png"} for one in shown]
    data = {"doc_id": found.id, "title": found.title, "error": problem and problem.detail, "pages": listed}
    sentences = [found.text[start:end] for start, end in spans]
    given = {"document": found, "pages": shown, "sentences": sentences, "first": found.page_at(spans[0][0])}
    return page.show("pdf_page.html", data, 200 if problem is None else problem.status, problem=problem, **given)


# -- keys


@pages.post("/sign-in")
async def sign_in(request: Request, web: Shared) -> Response:
    async with request.form(max_files=0, max_fields=10) as form:
        web.access.refuse_forged(request, form.get("token"))
        page = Page(request, web, STRANGER, form)
        address = _local(page.text("next"))
        key = web.access.known(page.text("key"))
        if key is None:  # of the limit, which all behind a proxy may share, a right key needs nothing
            web.limited.requests.spend(request.client.host if request.client is not None else "local", 10)
            return page.show("sign_in.html", None, 401, wrong=True, next=address)
        needed(["read"], key)  # without it, every page is refused, and so is the way to sign out
        response = _to(address)
        page.set_cookie(response, SESSION, web.access.session(key))
        return response


@pages.post("/sign-out")
async def sign_out(page: Annotated[Page, _form()]) -> Response:
    response = _to("/")
    response.delete_cookie(SESSION)
    return response


def sign_in_page(request: Request, web: Web) -> Response:
    """Asks for a key, and then leads to the page that was wanted, or that the form was on which can't be sent now."""
    came_from = re.sub(r"^\w+://[^/]*", "", request.headers.get("referer", ""))
    asked = f"{quote(request.url.path)}?{request.url.query}".rstrip("?")
    wanted = asked if request.method == "GET" else came_from
    return Page(request, web, STRANGER).show("sign_in.html", None, 401, wrong=False, next=_local(wanted))


# --


def _result_page(page: Page, check: Check) -> Response:
    """A check that is done."""
    if page.as_json:
        return json_answer(check)
    query = page.query("stance", "from", "to", "field")
    view = claim_view(with_texts(readable(check), page.web.service), 1, {}, check.corrections)
    documents = view["documents"]
    served = {"check": check, "query": query, "choices": choices(documents)}
    shown = [one["evidence"] for one in documents if pdfs.pdf_of(page.web.served.pdfs, one["evidence"].document)]
    served |= {"pdfs": {one.document.id: list(pdfs.links(one)) for one in shown}, "all": len(documents)}
    name = str(check.settings.get("recipe"))
    other = name if name != page.web.service.checker.recipe.name and name in recipe_names() else ""
    served |= {"corrects": check.kept and "check" in page.caller.rights, "recipe": other}
    given = view | {"documents": filtered(documents, query), "link": _link(page, check.id)}
    return page.show("check.html", None, served=served, check=check, **given)


def _link(page: Page, id_: str) -> str:
    """Where people find a check."""
    asked = page.request.base_url
    asked = asked.replace(scheme="https") if page.web.served.secure else asked
    return permalink(page.web.service.checker.settings, id_) or f"{asked}checks/{id_}"


def _download(text: str, kind: str, name: str) -> Response:
    named = {"Content-Disposition": f'attachment; filename="ccheck-{name}"'}
    mark = "\ufeff" * (kind == "text/csv")  # without it, spreadsheets take UTF-8 for another encoding
    return Response(mark + placeless(text), media_type=kind, headers=named)


def _table(page: Page, job: FileJob) -> str:
    """A file of claims for a spreadsheet, with what is recorded of their checks."""
    citing, lines = Citing("claims"), list[str]()
    for rows in chunked(job.rows, 100):
        kept = [row.check for row in rows if row.check is not None and row.kept]
        found = page.web.service.found(kept) if kept else {}
        for row in rows:
            claim = row.record.claim
            check = found.get(row.check or "") or Check(id="", claim=claim.text, status="failed", error=row.error)
            result = replace(readable(check), claim=claim)
            if not check.id and row.verdict.label:  # without a record, the job alone knows the verdict
                result = replace(result, error=None, verdict=row.verdict)
            lines.append(citing.text(result, check, _link(page, check.id)))
    return "".join(lines)


async def _recent(web: Web) -> list[Check] | None:
    """The last checks; None if the record can't be read now. The history then says why."""
    if web.service.record is None:
        return []
    try:
        return await asyncio.wait_for(web.service.checks_async(Wanted(limit=RECENT)), PATIENCE)
    except (CcheckError, TimeoutError):
        return None


def _how(page: Page) -> How:
    """How to check, from the fields of a form. Raises UsageError."""
    first, last = page.text("from"), page.text("to")
    if first.isdecimal() and last.isdecimal() and int(first) > int(last):
        raise UsageError(f"no year is from {first} to {last}: {first} is later than {last}")
    filters = [f"year{sign}{page.text(name)}" for name, sign in (("from", ">="), ("to", "<=")) if page.text(name)]
    filters += [line.strip() for line in page.text("filters").splitlines() if line.strip()]
    fields = {"k": page.text("k") or 10, "filters": filters, "recipe": page.text("recipe") or None}
    try:
        sent = ClaimSent.model_validate({"claim": "-", "fresh": bool(page.text("fresh")), **fields})
    except ValueError as error:
        raise UsageError("the number of papers is from 1 to 100, and there are at most 20 filters") from error
    return sent.how(page.caller)


def _uploads(page: Page, most: int) -> list[UploadFile]:
    """The files of a form. Raises UsageError without one."""
    found = [one for one in page.form.getlist("file") if isinstance(one, UploadFile) and one.filename]
    if not found:
        raise UsageError("choose a file first")
    if len(found) > most:
        raise UsageError(f"{len(found)} files: at most {most} can be sent at once")
    return found


def _saved(uploads: Iterable[UploadFile], folder: Path) -> list[Path]:
    """The files in a folder of ours, each under the last part of its name, made harmless."""
    paths: list[Path] = []
    folder.mkdir(exist_ok=True)
    for number, one in enumerate(uploads):
        asked = path = folder / harmless(one.filename or "", f"file-{number}")
        for again in itertools.count(2):
            if not path.exists():
                break
            path = numbered(asked, again)
        with path.open("wb") as out:
            shutil.copyfileobj(one.file, out, 1 << 20)
        paths.append(path)
    return paths


def _local(address: str) -> str:
    """An address of this server; `/` for any other."""
    return address if address.startswith("/") and address[1:2] not in ("/", "\\") and address.isprintable() else "/"


def _to(address: str) -> RedirectResponse:
    return RedirectResponse(address, 303)
