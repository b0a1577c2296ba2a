"""Starting the server: models are loaded and checked before the port is open."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ...core.errors import ServerError, UsageError, require

if TYPE_CHECKING:
    import uvicorn
    from fastapi import FastAPI

    from .guard import Limits

GRACE_SECONDS = 5
"""How much longer than a request may take the server waits for those that it took, when it is told to stop."""


def require_server() -> None:
    """Raises MissingExtra without FastAPI and uvicorn."""
    require("the reranking server", "server", "fastapi", "uvicorn", "prometheus_client")


def named_model(given: str) -> tuple[str, str]:
    """What requests call a model, and its place: `NAME`, `FOLDER` (called by its last part), or `ALIAS=` one of them.

    Raises UsageError for an alias of nothing.
    """
    alias, equals, rest = given.partition("=")
    if not equals or Path(given).expanduser().exists() or "/" in alias:
        alias, rest = "", given
    if not rest:
        raise UsageError(f"--model {given}: the name of the model is missing; write --model ALIAS=NAME")
    folder = Path(rest).expanduser()
    return alias or (folder.resolve().name if folder.exists() else rest), rest


def listen(host: str, port: int) -> socket.socket:
    """A port of our own, which answers nobody before `serve`; 0 takes a free one.

    Raises ServerError if it is not available.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        taken = socket.socket(family, kind, protocol)
        try:
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            taken.bind(address)
        except OSError:
            taken.close()
            raise
        return taken
    except OSError as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ServerError(f"can't listen on {host}:{port}: {reason}; choose others with --host and --port") from error


def run_server(app: FastAPI, listening: socket.socket, limits: Limits, started: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM; what was taken is finished. `started` is told the URL."""
    import uvicorn

    host, port = listening.getsockname()[:2]

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            if self.started:
                started(f"http://{f'[{host}]' if ':' in host else host}:{port}")

    config = configuration(app, limits)
    # uvicorn raises the signal again when it is done, but a requested stop is not a failure.
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        Server(config).run(sockets=[listening])
    finally:
        signal.signal(signal.SIGTERM, before)


def configuration(app: FastAPI, limits: Limits) -> uvicorn.Config:
    """How uvicorn serves the application."""
    import uvicorn

    from .guard import MOST_OF_A_HEAD, protocol

    return uvicorn.Config(
        app,
        http=protocol(limits),
        ws="none",
        h11_max_incomplete_event_size=MOST_OF_A_HEAD,
        log_level="warning",
        access_log=False,
        server_header=False,
        lifespan="on",
        timeout_graceful_shutdown=int(limits.timeout) + GRACE_SECONDS,
    )


def public(host: str) -> bool:
    """Whether other machines can reach a server that listens there."""
    import ipaddress

    if host == "localhost":
        return False
    try:
        return not ipaddress.ip_address(host).is_loopback
    except ValueError:
        return True
