"""A client of a running service, for the command line: the same check, without loading models here."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import httpx

from ..core import errors
from ..core.errors import CcheckError, InvalidData, ServerError
from ..core.http import why_unreachable
from ..service.types import Check, check_from

URL, KEY = "CCHECK_SERVER", "CCHECK_SERVER_KEY"
TYPE = "urn:ccheck:"
"""What the type of a problem begins with, before the class of ccheck's error."""
MOST_BYTES = 64 << 20
"""Largest answer that is read."""
WAIT_SECONDS = 30.0
"""How long one request waits for the check."""


def check_on(server: str, key: str | None, claim: str, how: Mapping[str, Any]) -> Check:
    """The check that a server makes of a claim, or has. Raises its error, or ServerError if it can't be asked."""
    if not server.startswith(("http://", "https://")):
        raise ServerError(f"{URL} is {server!r}: write the address of ccheck serve web, such as http://127.0.0.1:8350")
    headers = {"Accept-Encoding": "identity"} | ({"Authorization": f"Bearer {key}"} if key else {})
    # A server on this machine is asked directly, whatever proxies the environment names.
    with httpx.Client(base_url=server, headers=headers, timeout=WAIT_SECONDS + 30, trust_env=False) as client:
        answer = _asked(client, "POST", "/v1/checks", {"claim": claim, "wait": WAIT_SECONDS, **how})
        while (check := _check(server, answer)).status == "running":
            time.sleep(0.5)
            answer = _asked(client, "GET", f"/v1/checks/{check.id}")
    if check.status == "failed":
        raise error_of({"type": f"{TYPE}{check.problem}", "detail": check.error})
    return check


def _asked(client: httpx.Client, method: str, path: str, body: Any = None) -> bytes:
    """The body of a good answer. Raises the error that a problem stands for."""
    server = str(client.base_url)
    try:
        with client.stream(method, path, json=body) as answer:
            read = b""
            for part in answer.iter_raw():
                read += part
                if len(read) > MOST_BYTES:
                    raise ServerError(f"the answer of {server} is larger than {MOST_BYTES:,} bytes")
    except httpx.HTTPError as error:
        why = why_unreachable(error)
        raise ServerError(f"{URL}: {server} can't be asked: {why}. Is ccheck serve web running there?") from error
    if answer.status_code in (200, 202):
        return read
    try:
        problem = httpx.Response(answer.status_code, content=read).json()
        assert isinstance(problem, dict)
    except (ValueError, AssertionError):
        raise ServerError(f"{server} answered with the status {answer.status_code}") from None
    raise error_of(problem)


def _check(server: str, body: bytes) -> Check:
    try:
        return check_from(httpx.Response(200, content=body).json())
    except CcheckError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise InvalidData(f"{server} is not a ccheck server of this version: {type(error).__name__}") from error


def error_of(problem: Mapping[str, Any]) -> CcheckError:
    """The error that a server's problem is, for a client of it."""
    kind = getattr(errors, str(problem.get("type", "")).removeprefix(TYPE), None)
    detail = str(problem.get("detail") or problem.get("title") or "no reason was given")
    if isinstance(kind, type) and issubclass(kind, CcheckError) and kind is not errors.MissingExtra:
        return kind(detail)
    return errors.ServerError(f"the server refused: {detail}")
