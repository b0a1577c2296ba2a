"""Problems as answers: RFC 9457 for programs, a page for people. A problem's type is the class of ccheck's error."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

from fastapi.exceptions import RequestValidationError
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, Response
from starlette.types import Scope

from ..core import errors
from ..core.errors import CcheckError, InvalidData
from ..core.text import json_line
from ..ingest.records import NOT_UTF8
from ..service import Check, Event
from .client import TYPE
from .page import TOLD, environment, for_owner, placeless, plainly, told

STATUS: Mapping[type[CcheckError], int] = {
    errors.UsageError: 400,
    errors.MissingExtra: 501,
    errors.NotFound: 404,
    errors.StoreChanged: 409,
    errors.InvalidData: 422,
    errors.ServerError: 502,
    errors.Incomplete: 500,
}
JSON = "ccheck.json"
"""In a request's scope if its address ended in `.json`, which `Guard` has taken off."""


class Problem(HTTPException):
    """A request that is answered with an error. `type`: the name of ccheck's error, if it is one."""

    def __init__(
        self, status: int, detail: str, headers: Mapping[str, str] | None = None, type_: str | None = None
    ) -> None:
        super().__init__(status, detail, dict(headers or {}))
        self.status, self.type = status, type_

    def __str__(self) -> str:
        return self.detail

    @property
    def title(self) -> str:
        """`UsageError` is `Usage error`; others by their status."""
        if self.type is None:
            return HTTPStatus(self.status).phrase
        return re.sub("(?<!^)([A-Z])", lambda found: f" {found[1].lower()}", self.type)

    def to_dict(self) -> dict[str, Any]:
        kind = "about:blank" if self.type is None else f"{TYPE}{self.type}"
        return {"type": kind, "title": self.title, "status": self.status, "detail": self.detail}

    def response(self, scope: Scope) -> Response:
        """As JSON, or as a page for a browser that opened an address of pages."""
        if for_people(scope):
            given = {"problem": self, "visitor": None, "loading": False, "missing": None}
            given["sent"] = scope["method"] == "POST"
            page = environment().get_template("problem.html").render(given)
            return HTMLResponse(page, self.status, self.headers)
        return Response(json_text(self.to_dict()), self.status, self.headers, "application/problem+json")


@contextmanager
def disk_told() -> Iterator[None]:
    """Raises Problem 507 where what was sent could not be written, as the disk is full."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise Problem(507, "the server's disk is full: what you sent was not read") from error


def json_text(content: Any) -> str:
    """A line of JSON for whoever asks, which does not say where the store lies. A recorded check is as it was kept."""
    if isinstance(content, Check):
        if content.text is None or (not for_owner.get() and TOLD.search(content.text)):
            return json_text(content.to_dict())
        corrections = json_line([one.to_dict() for one in content.corrections]).rstrip()
        return placeless(f'{content.text.rstrip()[:-1]}, "corrections": {corrections}, "kept": true}}\n')
    return placeless(json_line(told(content)))


def sse(number: int, event: Event) -> bytes:
    """An event as a server sends it, with its number, from which a client that lost its connection goes on."""
    return f"id: {number}\nevent: {event.kind}\ndata: {json_text(dict(event.data))}\n".encode()


def for_people(scope: Scope) -> bool:
    """Whether a request is a browser's, for a page."""
    accepts = Headers(scope=scope).get("accept", "")
    return "text/html" in accepts and not scope["path"].startswith(("/v1/", "/mcp")) and JSON not in scope


def problem_of(error: Exception, *, named: bool = False) -> Problem:
    """The problem that an error is. `named`: the request named what is not found; else the server lacks it (503)."""
    match error:
        case Problem():
            return error
        case CcheckError():
            status = next((status for kind, status in STATUS.items() if isinstance(error, kind)), 500)
            return Problem(
                503 if status == 404 and not named else status, plainly(str(error)), type_=type(error).__name__
            )
        case RequestValidationError():
            first = error.errors()[0]
            place = ".".join(str(one) for one in first["loc"] if one != "body") or "the body"
            said = first["msg"]
            if first["type"] == "json_invalid":
                place, said = "the body", f"not valid JSON at character {place}"
            elif isinstance(first.get("input"), bytes):  # FastAPI leaves a body of any other type as it is
                said = "it must be JSON, sent with Content-Type: application/json"
            return problem_of(InvalidData(f"{place}: {said}"))
        case HTTPException(__cause__=UnicodeDecodeError(start=byte)):
            return problem_of(InvalidData(f"the body: {NOT_UTF8} at byte {byte + 1}"))
        case HTTPException():
            return Problem(error.status_code, str(error.detail), error.headers)
    return Problem(500, "a bug in the server; its log has the details")
