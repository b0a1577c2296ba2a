"""Requests to one server: all that ccheck asks of Elasticsearch goes through here."""

from __future__ import annotations

import io
import json
import logging
import math
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.client import HTTPResponse
from types import SimpleNamespace
from typing import Any, TypeVar
from urllib.parse import quote

import elastic_transport
import elasticsearch
from elastic_transport import (
    ApiError,
    ConnectionTimeout,
    NodeConfig,
    SerializationError,
    TlsError,
    TransportError,
    Urllib3HttpNode,
)
from elasticsearch.serializer import JsonSerializer
from urllib3 import HTTPHeaderDict, Timeout
from urllib3.exceptions import ConnectTimeoutError, ReadTimeoutError

from ...core.errors import CcheckError, NotFound, ServerError, UsageError
from ...core.http import Body, LeftAlone, is_lasting, pause, retry_after, why_unreachable
from ...core.redaction import redact
from ...core.telemetry import trace_headers
from .connection import Connection
from .errors import CERTIFICATES, WHOLE, Busy, busy_part, may_pass, part_error, reason_of, refuse_parts, translate

T = TypeVar("T")

ATTEMPTS = 3
"""Attempts for a server that never answered, or that nobody waits for."""
_OF_ONE = re.compile(r"(/_(?:update|doc))/.*")
"""The part of a path that names one document: it is the same kind of request for all."""
SAID_AFTER = 1.0
"""Seconds of silence, with the next pause, after which the user hears that ccheck waits."""
_JSON, _NDJSON = "application/JSON", "application/X-NDJSON"
"""What every server takes. The client makes small letters version 9's own types, which version 8 refuses."""
_log = logging.getLogger(__name__)


def path_of(index: str, action: str = "") -> str:
    """The path of an index, an alias or a pattern, or of an action of it."""
    return f"/{quote(index, safe='')}" + (f"/{action}" if action else "")


class Client:
    """The official client with retries and with errors that say what to do. Safe to use from several threads.

    A server that answered before and is now busy or gone is asked again for `Connection.retry_seconds`, counted from
    its last good answer: patience that was used up is not spent again on the next request. Whoever was too busy must
    answer the same kind of request well to be waited for again, since a mapping can be had where no search can. Kinds
    that it goes on to answer are waited for. What hung for that long in all is left alone for a while. An address that
    never answered is not waited for. A warning is logged when the wait begins, which the command line shows.
    """

    def __init__(self, connection: Connection) -> None:
        """Connects to nothing yet. Raises UsageError or NotFound if the connection makes no sense."""
        self.connection = connection
        self.unfused: set[str] = set()
        """In which ways the server does not fuse, as it said once."""
        self._answered = False
        self._heard_at = 0.0
        self._silent: dict[str, float] = {}
        """Since when it was too busy for a kind of request; under "" since when it can't be reached."""
        self._said: set[str] = set()
        self._hung: dict[str, LeftAlone] = {}
        """The kinds of request that hung; each is left alone for as long as its last try took."""
        self.abandoned = threading.Event()
        self._waiting: set[threading.Event] = set()
        self.writing = threading.BoundedSemaphore(connection.concurrency)
        """Held around each request that writes documents."""
        options: dict[str, Any] = {}
        if connection.url.startswith("https:"):
            options |= _tls(connection)
        if connection.api_key:
            options["api_key"] = connection.api_key
        elif connection.username:
            options["basic_auth"] = (connection.username, connection.password or "")
        addresses = [connection.url, *connection.hosts]
        try:
            self._client = elasticsearch.Elasticsearch(
                addresses,
                request_timeout=connection.request_timeout,
                # Another host is asked at once when one can't be reached. All other waiting is `again`'s.
                max_retries=len(addresses) - 1,
                retry_on_status=(),
                node_class=LimitedNode,
                connections_per_node=connection.concurrency + 2,
                http_compress=connection.compress,
                serializers=dict.fromkeys((_JSON, _NDJSON), JsonSerializer()),
                **options,
            )
        except (ValueError, OSError) as error:
            raise UsageError(f"ccheck can't connect to {connection.url}: {error}") from error

    def request(  # noqa: PLR0913 - the others are by name
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | bytes | None = None,
        *,
        params: Mapping[str, Any] | None = None,
        index: str | None = None,
        patient: bool = True,
        slow: bool = False,
        full: bool = True,
    ) -> dict[str, Any]:
        """The server's whole answer. A body of bytes is newline-delimited JSON.

        An answer with a part that may succeed later is asked for again. `patient`, `slow` and `full` are those of
        `again`; only for what may be done twice. Raises a CcheckError, also for an answer in which a part is missing.
        """

        def attempt() -> dict[str, Any]:
            answer = self.send(method, path, body, params)
            if (busy := busy_part(answer)) is not None:
                raise busy
            return answer

        try:
            answer = self.again(path, attempt, patient=patient, slow=slow, full=full)
        except (ApiError, TransportError, Busy) as error:
            raise translate(error, self.connection, index) from error
        with self.understanding():
            refuse_parts(answer, self.connection, index)
        return answer

    def on_index(
        self, method: str, index: str, action: str = "", body: Mapping[str, Any] | bytes | None = None, **how: Any
    ) -> dict[str, Any]:
        """`request` for an action of an index, such as `_search`, or for the index itself."""
        return self.request(method, path_of(index, action), body, index=index, **how)

    def search(self, index: str, body: Mapping[str, Any], *, slow: bool = False, **params: Any) -> dict[str, Any]:
        """The answer of all shards of an index to a search."""
        return self.on_index("POST", index, "_search", body, params=params | WHOLE, slow=slow)

    def searches(self, index: str, bodies: Sequence[Mapping[str, Any]], *, slow: bool = False) -> list[dict[str, Any]]:
        """The answers to several searches, sent in one request. Raises the error of any of them."""
        if not bodies:
            return []
        lines = "".join(f"{json.dumps(WHOLE)}\n{json.dumps(body)}\n" for body in bodies).encode()
        answers: list[dict[str, Any]] = self.on_index("POST", index, "_msearch", lines, slow=slow)["responses"]
        with self.understanding():
            for answer in answers:
                if "error" in answer:
                    raise part_error(answer, self.connection, index)
                refuse_parts(answer, self.connection, index)
        return answers

    def count(self, index: str, query: Mapping[str, Any] | None = None) -> int:
        """How many documents of an index match."""
        answer = self.on_index("POST" if query else "GET", index, "_count", {"query": query} if query else None)
        with self.understanding():
            return int(answer["count"])

    def again(
        self,
        path: str,
        attempt: Callable[[], T],
        stopped: threading.Event | None = None,
        *,
        patient: bool = True,
        slow: bool = False,
        full: bool = True,
    ) -> T:
        """Returns the result of `attempt`, which requests `path`. It is repeated while its error may pass.

        `attempt` raises `Busy` for a part of an answer that says to come back later. Not `patient`: a few tries,
        whatever the server did before. `slow`: also after an answer took too long; a search that did so once will
        again, unless the host was at fault: if there are several, one other is asked. `full`: also while an index takes
        no writes because a disk is full. Nothing is tried again once `stopped` is set.
        """
        stopped = stopped or self.abandoned
        failed_since: float | None = None
        others = bool(self.connection.hosts)
        attempts = tries = 0
        kind = _OF_ONE.sub(r"\1", path)
        if self._hung.get(kind):
            raise ConnectionTimeout("it hung until a moment ago")
        while True:
            began = time.monotonic()
            try:
                answer = attempt()
            except (ApiError, TransportError, Busy) as error:
                attempts, tries, now = attempts + 1, tries + 1, time.monotonic()
                if isinstance(error, Busy) and error.others:  # it goes on, if slowly
                    tries, failed_since, self._heard_at = 1, None, now
                    self._silent.pop(kind, None)
                if isinstance(error, ConnectionTimeout) and others:
                    others = False  # the client asks the one that took too long last of all
                elif not _passes(error, slow, full):
                    if isinstance(error, ApiError):
                        self._heard(kind)
                    elif isinstance(error, ConnectionTimeout):
                        # As often as takes the time for which a server is waited for.
                        most = math.ceil(self.connection.retry_seconds / self.connection.request_timeout)
                        self._hung.setdefault(kind, LeftAlone(most)).failed(now - began)
                    raise
                busy = isinstance(error, ApiError | Busy)
                self._silent.setdefault(kind if busy else "", now)
                failed_since = failed_since or now
                self._answered = self._answered or busy
                since, longest = min([failed_since, *self._silences(kind).values()]), self.connection.retry_seconds
                if stopped.is_set() or (patient and self._answered and now - since >= longest):
                    raise
                if not (patient and self._answered) and (attempts >= ATTEMPTS or is_lasting(error)):
                    raise
                asked = retry_after(error.meta.headers) if patient and isinstance(error, ApiError) else None
                seconds = pause(tries, asked, first=0.1, longest=5 if patient else 0.5)
                seconds = min(seconds, max(0.05, since + longest - time.monotonic()))
                if patient:
                    self._say(error, kind, seconds)
                stopped.wait(seconds)
            else:
                self._heard(kind)
                return answer

    def _silences(self, kind: str) -> dict[str, float]:
        """Since when there is no good answer to this kind of request, and to others if there was none to any since."""
        return {one: at for one, at in list(self._silent.items()) if one == kind or at >= self._heard_at}

    def _say(self, error: Exception, kind: str, pause: float) -> None:
        """Log, once for each silence, that ccheck waits for a server that answered before."""
        silences, now = self._silences(kind), time.monotonic()
        silent = now - min(silences.values(), default=now) + pause
        if self._said & silences.keys() or not self._answered or silent < SAID_AFTER:
            return
        self._said |= silences.keys()
        if isinstance(error, ApiError | Busy):
            wrong = f"is busy or not ready ({reason_of(error.body)[1]})"
        else:
            wrong = f"is not answering ({why_unreachable(error, CERTIFICATES)})"
        seconds = self.connection.retry_seconds
        _log.warning("%s %s; trying again for up to %g s", self.connection.url, redact(wrong), seconds)

    def _heard(self, kind: str) -> None:
        self._answered, self._heard_at = True, time.monotonic()
        for one in ("", kind):
            self._silent.pop(one, None)
            self._hung.pop(one, None)
            self._said.discard(one)

    @contextmanager
    def understanding(self) -> Iterator[None]:
        """Around what reads an answer: ServerError if that is not of Elasticsearch's shape."""
        try:
            yield
        except (KeyError, TypeError, ValueError, IndexError, AttributeError, StopIteration) as error:
            raise ServerError(
                f"{self.connection.url} gave an answer that does not look like Elasticsearch's "
                f"({type(error).__name__} for {redact(str(error))[:100]}). Is there a proxy in front of the server?"
            ) from error

    @contextmanager
    def stopping(self) -> Iterator[threading.Event]:
        """An event for `again`, which `abandon` sets, too."""
        event = threading.Event()
        self._waiting.add(event)
        if self.abandoned.is_set():
            event.set()
        try:
            yield event
        finally:
            self._waiting.discard(event)

    def abandon(self) -> None:
        """From now on nothing is tried again: what is waiting for the server gives up."""
        self.abandoned.set()
        for event in list(self._waiting):
            event.set()

    def close(self) -> None:
        self._client.close()

    def send(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | bytes | None = None,
        params: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """One attempt; raises what the client raises."""
        # The server's slow logs and task lists show the id.
        headers = {"accept": _JSON, "x-opaque-id": "ccheck", **trace_headers()}
        if body is not None:
            headers["content-type"] = _NDJSON if isinstance(body, bytes) else _JSON
        answer = self._client.perform_request(method, path, params=params, headers=headers, body=body).body
        if not isinstance(answer, dict):
            raise SerializationError(f"{str(answer)[:100]!r} instead of a JSON object")
        return answer


def _tls(connection: Connection) -> dict[str, Any]:
    """The client's options for a secure connection.

    Raises NotFound for a missing file, UsageError for one that can't be used.
    """
    files = {
        "ca_certs": (CERTIFICATES, connection.ca_certs),
        "client_cert": ("ELASTICSEARCH_CLIENT_CERT", connection.client_cert),
        "client_key": ("ELASTICSEARCH_CLIENT_KEY", connection.client_key),
    }
    for variable, file in files.values():
        if file is not None and not file.is_file():
            raise NotFound(f"{variable} names {file}, which does not exist")
    context = ssl.create_default_context()
    if connection.client_cert is not None:
        try:
            context.load_cert_chain(connection.client_cert, connection.client_key)
        except OSError as error:
            raise UsageError(
                f"the certificate in {connection.client_cert} (ELASTICSEARCH_CLIENT_CERT) and its private key "
                f"(ELASTICSEARCH_CLIENT_KEY) can't be used: {error}. Both must be PEM files, and belong together"
            ) from error
    if connection.ca_fingerprint:
        # The client takes a certificate of ours beside a fingerprint only in a context.
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return {"ssl_assert_fingerprint": connection.ca_fingerprint, "ssl_context": context, "ssl_show_warn": False}
    options: dict[str, Any] = {"verify_certs": connection.verify_certs, "ssl_show_warn": False}
    return options | {name: str(file) for name, (_, file) in files.items() if file is not None}


def _passes(error: BaseException, slow: bool, full: bool) -> bool:
    """Whether the same request may succeed a little later."""
    if isinstance(error, Busy):
        return True
    if isinstance(error, ApiError):
        return may_pass(error.meta.status, error.body, full)
    if isinstance(error, ConnectionTimeout):
        return slow or isinstance(error.__cause__, ConnectTimeoutError)
    if isinstance(error, TlsError) or isinstance(error.__cause__, CcheckError):  # an answer beyond what is read
        return False
    return isinstance(error, elastic_transport.ConnectionError)


# -- a connection that reads answers within a limit

CONNECT_SECONDS = 5.0
"""The longest time for a connection and its TLS handshake: a server of plain http can wait for ever for that to end."""
MOST_BYTES = 512 << 20
"""Decoded bytes of an answer: a thousand documents of half a megabyte each. An error has far fewer, see `Body`."""
_BLOCK = 1 << 20


class _Timely(io.RawIOBase):
    """What a socket receives, with its timeout for all of it: for the socket, each byte begins it anew."""

    def __init__(self, sock: socket.socket, raw: io.RawIOBase) -> None:
        self._socket, self._raw, self._seconds = sock, raw, sock.gettimeout() or 60.0
        self._ends = time.monotonic() + self._seconds

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        if (left := self._ends - time.monotonic()) <= 0:
            raise TimeoutError
        self._socket.settimeout(left)
        try:
            return self._raw.readinto(buffer)
        finally:
            self._socket.settimeout(self._seconds)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Timed(HTTPResponse):
    """An answer that is read so."""

    def __init__(self, sock: socket.socket, *how: Any, **more: Any) -> None:
        super().__init__(sock, *how, **more)
        self.fp = io.BufferedReader(_Timely(sock, self.fp.detach()))


class LimitedNode(Urllib3HttpNode):
    """The client's own connection, which otherwise takes as much time and memory as the server's answer likes to.

    It decodes block by block and ends the connection at the limit: `TooLarge` is then the cause of the client's error.
    """

    def __init__(self, config: NodeConfig) -> None:
        super().__init__(config)
        self.pool.ConnectionCls = type("Connection", (self.pool.ConnectionCls,), {"response_class": _Timed})
        urlopen, server = self.pool.urlopen, f"{config.scheme}://{config.host}:{config.port}"

        def limited(method: str, target: str, **options: Any) -> SimpleNamespace:
            seconds = options.pop("timeout", None)
            seconds = float(seconds) if isinstance(seconds, int | float) else float(config.request_timeout or 60)
            options["timeout"] = Timeout(connect=min(seconds, CONNECT_SECONDS), read=seconds)
            started = time.monotonic()
            try:
                response = urlopen(method, target, preload_content=False, **options)
            except ReadTimeoutError as error:
                if config.scheme == "https" and time.monotonic() - started < seconds:
                    raise ServerError(
                        f"no secure connection to {server}: it did not answer the TLS handshake within "
                        f"{CONNECT_SECONDS:g} s. Does its URL start with http://?"
                    ) from error
                raise
            try:
                body = Body(server, response.status, MOST_BYTES)
                for block in response.stream(_BLOCK, decode_content=True):
                    body.add(block)
            except BaseException:
                response.close()
                raise
            response.release_conn()
            data = bytes(body.data)
            if response.status >= 400:
                _correct(response.headers, data)
            return SimpleNamespace(status=response.status, headers=response.headers, data=data)

        self.pool.urlopen = limited  # type: ignore[assignment]


def _correct(headers: HTTPHeaderDict, data: bytes) -> None:
    """A proxy's error page may claim to be JSON, or claim nothing: the client could not read it, and its status, which
    says whether to ask again, would be lost."""
    try:
        json.loads(data)
    except (ValueError, RecursionError):
        headers["content-type"] = "text/plain"
