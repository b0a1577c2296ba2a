"""What ccheck's servers share (extra `server`): limits, and what holds before a request is read: connections, hosts."""

from __future__ import annotations

import asyncio
import ipaddress
import signal
import socket
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import uvicorn
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from .errors import ServerError
from .events import access_log

MOST_OF_A_HEAD = 32 << 10
"""Bytes of a request's line and headers."""
GRACE_SECONDS = 3
"""How much longer than a request may take the server waits for those that it took, when it is told to stop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """`body` in bytes, `requests` at once, `timeout` in seconds, from a request's arrival to its answer.

    `head`: the seconds that a connection may stay open while no request of it is answered. `connections`: open at once.
    """

    body: int = 16 << 20
    requests: int = 256
    timeout: float = 60
    connections: int = 512
    head: float = 10


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


def run_server(
    app: ASGIApp,
    listening: list[socket.socket],
    limits: Limits,
    started: Callable[[str], None],
    stopping: Callable[[], None] = lambda: None,
) -> None:
    """Serve until SIGINT or SIGTERM; what was taken is finished. `started` is told the URL of
    the first socket.

    `stopping` is called in the event loop before the server waits for the answers under way: it ends those that would
    never end by themselves.
    """
    host, port = listening[0].getsockname()[:2]

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            if self.started:
                started(f"http://{f'[{host}]' if ':' in host else host}:{port}")

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            stopping()
            await super().shutdown(sockets)

    config = configuration(app, limits)
    # uvicorn raises the signal again when it is done, but a requested stop is not a failure.
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        Server(config).run(sockets=listening)
    finally:
        signal.signal(signal.SIGTERM, before)


def configuration(app: ASGIApp, limits: Limits) -> uvicorn.Config:
    """How uvicorn serves the application."""
    return uvicorn.Config(
        access_log(app),
        http=protocol(limits),
        ws="none",
        h11_max_incomplete_event_size=MOST_OF_A_HEAD,
        log_level="warning",
        access_log=False,
        server_header=False,
        lifespan="on",
        timeout_graceful_shutdown=int(limits.timeout) + GRACE_SECONDS,
    )


def protocol(limits: Limits) -> type[H11Protocol]:
    """uvicorn's HTTP with a limit of open connections, and of the time in which none of a connection's is answered.

    uvicorn's own timeouts begin with the first answer, and end with each byte: without these, whoever sends nothing, or
    a byte now and then, holds a connection for ever.
    """

    class Guarded(H11Protocol):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            self._too_long: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            if len(self.connections) > limits.connections:
                self._close(b"503 Service Unavailable\r\nretry-after: 1", f"more than {limits.connections} connections")
            else:
                self._watch()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_watching()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            if not self.transport.is_closing():
                super().data_received(data)
                self._watch()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            self._watch()

        def _watch(self) -> None:
            """The time runs while no request is answered, whatever bytes come."""
            if self.transport.is_closing() or (self.cycle is not None and not self.cycle.response_complete):
                self._stop_watching()
            elif self._too_long is None:
                self._too_long = self.loop.call_later(limits.head, self._late)

        def _stop_watching(self) -> None:
            if self._too_long is not None:
                self._too_long.cancel()
                self._too_long = None

        def _late(self) -> None:
            self._too_long = None
            if self.transport.get_write_buffer_size():
                self.transport.abort()  # what was answered is not read
            else:
                self._close(b"408 Request Timeout", f"no complete request headers within {limits.head:g} s")

        def _close(self, status: bytes, why: str) -> None:
            body = f"{why}\n".encode()
            head = b"HTTP/1.1 %b\r\nconnection: close\r\ncontent-type: text/plain\r\ncontent-length: %d\r\n\r\n"
            self.transport.write(head % (status, len(body)) + body)
            self.transport.close()

    return Guarded


def host_check(app: ASGIApp, names: Collection[str], key: str) -> ASGIApp:
    """Refuses requests for another host than this server: 421.

    A page of another site can let its own name lead to this machine (DNS rebinding); a browser then lets it ask this
    server and read the answers. Such a request names that site as its host. An address can't be made to lead elsewhere.
    `key`: the environment variable with the server's key.
    """

    async def checked(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not known_host(Headers(scope=scope).getlist("host"), names):
            said = f"unknown host: the server must be told this name, or have a key in {key}\n"
            await PlainTextResponse(said, 421)(scope, receive, send)
        else:
            await app(scope, receive, send)

    return checked


def known_host(given: Collection[str], names: Collection[str]) -> bool:
    """Whether the headers `Host` name an address, this machine, or one of the names. No browser sends none."""
    if len(given) != 1:
        return not given
    (host,) = given
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    name = name.lower().removesuffix(".")
    if name == "localhost" or name.endswith(".localhost") or name in {one.lower() for one in names}:
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
