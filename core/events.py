"""Lines of JSON on standard error, for who runs a server: one for each request, and one for each check."""

from __future__ import annotations

import json
import sys
import threading
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from .redaction import without_secrets

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_writing = threading.Lock()
written = threading.Event()
"""Set where this process writes them."""


def event(kind: str, **facts: Any) -> None:
    """Write a line, if this process writes any. It holds no claim and no text, and no secret."""
    if written.is_set():
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = without_secrets(json.dumps({"@timestamp": at, "event": kind, **facts}))
        with _writing:
            sys.stderr.write(f"{line}\n")


def access_log(app: ASGIApp) -> ASGIApp:
    """The application with an event for each request, without what follows the ? of its address."""

    async def logged(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        import asyncio  # here: the command line, which writes events too, needs none of it

        started, size = time.perf_counter(), 0
        status: int | None = None

        async def counted(message: Message) -> None:
            nonlocal status, size
            status = message.get("status", status)
            size += len(message.get("body", b""))
            await send(message)

        try:
            await app(scope, receive, counted)
        except asyncio.CancelledError:  # the server stops, and has waited for this request as long as it may
            from starlette.responses import PlainTextResponse

            if status is None:
                await PlainTextResponse("the server stops\n", 503)(scope, receive, counted)
        finally:
            client = (scope.get("client") or [None])[0]
            spent = round((time.perf_counter() - started) * 1000, 1)
            asked = {"method": scope["method"], "path": scope["path"], "client": client}
            event("request", **asked, status=status or 500, bytes=size, ms=spent)

    return logged
