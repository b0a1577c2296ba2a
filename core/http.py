"""Shared by all HTTP clients: limits on what a server may say, when to ask it again, and why it failed.

A server is a stranger. Its answers are read within a limit that counts decoded bytes, no redirect is followed, and it
does not choose how often it is asked.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import itertools
import math
import os
import random
import socket
import ssl
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar

from .errors import ServerError, UsageError
from .redaction import redact
from .telemetry import trace_headers

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")
BUSY: Final = frozenset({429, 502, 503, 504})
"""Statuses of a server that may answer when it is asked again."""
UNCOMPRESSED: Final = {"accept-encoding": "identity"}
"""The header with which servers are asked: what is decoded can be a thousand times as large as what was sent."""
MOST_ERROR_BYTES: Final = 1 << 20
"""Bytes of an answer that is an error: its reason is a sentence."""
FIRST_SECONDS: Final = 2.0
"""How long a server is waited for that was never there: its address may be wrong."""


class TooLarge(ServerError):
    """An answer that is larger than what is read, or compressed although that was not asked for."""


class Body:
    """The bytes of one answer, as they come."""

    def __init__(self, server: str, status: int, most: int) -> None:
        """`most` is the limit of an answer of success; an error has `MOST_ERROR_BYTES` at most."""
        self._server, self._most = server, most if status == 200 else min(most, MOST_ERROR_BYTES)
        self.data = bytearray()

    def add(self, part: bytes) -> None:
        """Raises TooLarge if the answer is larger than allowed."""
        self.data += part
        if len(self.data) > self._most:
            raise TooLarge(
                f"the answer of {self._server} is larger than {self._most >> 20} MiB, so it was not read further"
            )


@dataclass(frozen=True, slots=True)
class Fetched:
    """A server's answer. The names of `headers` are in any capitals."""

    status: int
    headers: Mapping[str, str]
    content: bytes


def open_client(key: str | None, headers: Mapping[str, str] | None = None) -> httpx.AsyncClient:
    """A client for `fetch`, which sends the key and these headers. In the event loop a request has one deadline from
    beginning to end, which a socket does not know.

    Raises UsageError for CA certificates that can't be read.
    """
    import httpx

    own = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        return httpx.AsyncClient(headers={**UNCOMPRESSED, **(headers or {}), **own}, follow_redirects=False)
    except OSError as error:
        raise UsageError(missing_certificates() or f"the CA certificates can't be read: {error}") from error


async def fetch(
    client: httpx.AsyncClient, server: str, url: httpx.URL | str, body: Any, timeout: float, most: int
) -> Fetched:
    """An answer of at most `most` bytes, all of which has to come within `timeout` seconds. `body` is posted as JSON;
    None: it is a GET.

    Raises TooLarge, TimeoutError, MayPass if the answer ends before it is complete, or what httpx raises.
    """
    import httpx

    method = "GET" if body is None else "POST"
    asked = client.stream(method, url, json=body, timeout=timeout, headers=trace_headers())
    async with asyncio.timeout(timeout), asked as response:
        encoding = response.headers.get("content-encoding", "").strip()
        if encoding.lower() not in ("", "identity"):
            raise TooLarge(
                f"{server} sent a compressed answer ({encoding[:40]}), which ccheck does not read. Switch compression "
                "off in the server, or in the proxy in front of it"
            )
        read = Body(server, response.status_code, most)
        try:
            async for part in response.aiter_raw():
                read.add(part)
        except (httpx.ReadError, httpx.RemoteProtocolError) as error:
            raise MayPass(f"{server} closed the connection before its answer was complete") from error
        return Fetched(response.status_code, response.headers, bytes(read.data))


def retry_after(headers: Mapping[str, str]) -> float | None:
    """The header Retry-After in seconds from now: it has a number of them, or a date; None if it has neither."""
    value = headers.get("retry-after", "").strip()
    try:
        seconds = float(value)
    except ValueError:
        try:
            when = parsedate_to_datetime(value)
        except ValueError:
            return None
        seconds = (when.replace(tzinfo=when.tzinfo or UTC) - datetime.now(UTC)).total_seconds()
    return max(0.0, seconds) if math.isfinite(seconds) else None


class MayPass(ServerError):
    """A failure that may be gone at the next try. `retry_after`: the seconds that the server asked for."""

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


def pause(attempt: int, retry_after: float | None = None, *, first: float = 0.5, longest: float = 8.0) -> float:
    """Seconds between the try of that number, from 1, and the next one.

    It doubles each time whatever the server asks for, so that a server that says "at once" is asked a few times and not
    thousands of times. It is random, so that many callers don't come back at the same moment.
    """
    least = min(longest, first * 2.0 ** min(attempt - 1, 10))
    return max(least * random.uniform(1, 1.5), (retry_after or 0.0) + random.uniform(0, 0.1))  # noqa: S311


@dataclass(slots=True)
class LeftAlone:
    """Whether something is left alone for a while, since all who ask it would wait for its failure anew: it is after
    `most` failures in a row."""

    most: int = 1
    failures: int = 0
    until: float = 0.0

    def __bool__(self) -> bool:
        return self.failures >= self.most and time.monotonic() < self.until

    def failed(self, seconds: float, failures: int = 1) -> None:
        """It failed. Should it be left alone, it is for so many seconds from now."""
        self.failures, self.until = self.failures + failures, time.monotonic() + seconds


class Waiting(str):
    """A notice that a server is waited for. A command says it without a terminal, too."""

    __slots__ = ()


@dataclass(slots=True)
class Patience:
    """How long one server that is busy or gone is waited for. `notify` is told once that it is.

    `reached`: it answered before. A server that never did is given up sooner.
    """

    longest: float
    notify: Callable[[str], None]
    reached: bool = False
    notified: bool = False

    @property
    def seconds(self) -> float:
        return self.longest if self.reached else min(self.longest, FIRST_SECONDS)

    async def retry(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Returns the result of `attempt`. Repeats it while it raises MayPass and the next try would be in time.

        Raises what the last attempt raised.
        """
        started = time.monotonic()
        for number in itertools.count(1):
            try:
                return await attempt()
            except MayPass as error:
                seconds = pause(number, error.retry_after)
                if time.monotonic() + seconds >= started + self.seconds:
                    raise
                self.say(str(error))
            await asyncio.sleep(seconds)
        raise AssertionError("it is tried until it works or raises")

    def say(self, problem: str) -> None:
        """Tell the user, once, that a server is waited for."""
        if not self.notified:
            self.notified = True
            end = "" if problem.endswith(("?", ".")) else "."
            self.notify(Waiting(f"{problem}{end} Trying again for up to {self.seconds:g} s"))


def public(host: str) -> bool:
    """Whether a host is not this machine alone: others can reach a server that listens there."""
    if host == "localhost":
        return False
    try:
        return not ipaddress.ip_address(host).is_loopback
    except ValueError:
        return True


def redirected(server: str, status: int, headers: Mapping[str, str]) -> str | None:
    """Returns the message about an answer that redirects elsewhere; None for any other answer.

    ccheck does not follow redirects: claims and papers would go to a host that the user did not name.
    """
    if not 300 <= status < 400:
        return None
    target = redact("".join(c for c in headers.get("location", "") if c.isprintable()))[:200] or "no address"
    return (
        f"{server} redirects to {target} ({status}), and ccheck does not follow redirects: claims and papers go only "
        "to the address that you set. If you trust the new address, set it instead"
    )


def why_unreachable(error: BaseException, certificates: str = "SSL_CERT_FILE") -> str:
    """Why no connection to a server came about, in words: DNS, refused, TLS, a CA file, time.

    `error` is what a client (httpx, elastic_transport) raised; the cause is looked for in all that it was made
    of. `certificates` names the setting that the user's own CA file goes into.
    """
    causes = list(_causes(error))
    for cause in causes:
        if (said := _why(cause, certificates)) is not None:
            return said
    return redact(" ".join(str(error).split()))[:300] or type(error).__name__


def is_lasting(error: BaseException) -> bool:
    """Whether waiting won't help: the name is unknown, or the two sides can't agree on TLS."""
    return any(
        isinstance(cause, ssl.SSLError | FileNotFoundError)
        or (isinstance(cause, socket.gaierror) and cause.errno != socket.EAI_AGAIN)
        for cause in _causes(error)
    )


def missing_certificates() -> str | None:
    """Says which path in SSL_CERT_FILE or SSL_CERT_DIR, which HTTP clients read, does not exist; None if all do."""
    for name, kind, there in (("SSL_CERT_FILE", "file", os.path.isfile), ("SSL_CERT_DIR", "folder", os.path.isdir)):
        value = os.environ.get(name)
        if value and not there(value):
            return f"the {kind} of CA certificates {value} does not exist: correct {name}"
    return None


def _why(cause: BaseException, certificates: str) -> str | None:
    if isinstance(cause, ssl.SSLCertVerificationError):
        said = cause.verify_message or str(cause)
        if cause.verify_code in (18, 19):
            return f"its certificate is self-signed: name its CA file in {certificates}"
        if cause.verify_code in (2, 20, 21):
            return f"this machine does not know the CA that issued its certificate: name the CA file in {certificates}"
        return f"its certificate is not accepted ({said.rstrip('.')})"
    if isinstance(cause, ssl.SSLError):
        return f"the TLS handshake failed ({cause.reason or cause}): does its URL start with http://?"
    if isinstance(cause, socket.gaierror):
        return f"its host name could not be resolved (DNS: {cause.strerror or cause})"
    if isinstance(cause, ConnectionRefusedError):
        return "the connection was refused: nothing listens on this port"
    if isinstance(cause, FileNotFoundError):
        name = f" {cause.filename}" if cause.filename else ""
        return f"the file of CA certificates{name} does not exist: correct {certificates}"
    if isinstance(cause, ConnectionResetError | ConnectionAbortedError | BrokenPipeError):
        return "it closed the connection before it answered"
    if isinstance(cause, OSError) and cause.errno in (errno.EHOSTUNREACH, errno.ENETUNREACH):
        return "its network can't be reached: you may be offline"
    if isinstance(cause, TimeoutError):
        return "the connection timed out"
    return None


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An error and all that it was made of, the nearest first: causes, contexts, groups, and what clients keep."""
    waiting, seen = deque([error]), {id(error)}
    while waiting:
        one = waiting.popleft()
        yield one
        parts = [one.__cause__, one.__context__, getattr(one, "reason", None), *one.args]
        for several in (getattr(one, "exceptions", ()), getattr(one, "errors", ())):
            parts += several if isinstance(several, list | tuple) else ()
        for part in parts:
            if isinstance(part, BaseException) and id(part) not in seen:
                seen.add(id(part))
                waiting.append(part)
