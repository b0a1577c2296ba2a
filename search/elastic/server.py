"""Requests to one server: all that ccheck asks of Elasticsearch goes through here."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import elastic_transport
import elasticsearch
import tenacity
from elastic_transport import ApiError, ConnectionTimeout, TlsError, TransportError

from ...errors import UsageError
from .connection import Connection
from .errors import BUSY, Busy, translate

ATTEMPTS = 3
"""How often a request is made that need not wait for a server to come back."""
THREADS = 4
_COMPATIBLE_WITH_8 = "application/vnd.elasticsearch+{}; compatible-with=8"
_log = logging.getLogger(__name__)


class Server:
    """The official client with retries and with errors that say what to do. Safe to use from several threads."""

    def __init__(self, connection: Connection) -> None:
        """Connects to nothing yet. Raises UsageError where the connection makes no sense."""
        self.connection = connection
        self._speaks_8 = False
        self._abandoned = threading.Event()
        self._waiting: set[threading.Event] = set()
        options: dict[str, Any] = {}
        if connection.name.startswith("https:"):
            options |= {"verify_certs": connection.verify_certs, "ssl_show_warn": False}
            if connection.ca_certs is not None:
                options["ca_certs"] = str(connection.ca_certs)
        if connection.api_key:
            options["api_key"] = connection.api_key
        elif connection.username:
            options["basic_auth"] = (connection.username, connection.password or "")
        if connection.cloud_id:
            options["http_compress"] = True
        try:
            self._client = elasticsearch.Elasticsearch(
                connection.name,
                request_timeout=connection.request_timeout,
                max_retries=0,
                connections_per_node=2 * THREADS,
                **options,
            )
        except (ValueError, OSError) as error:
            raise UsageError(f"no connection to {connection.name} can be made: {error}") from error

    def request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | bytes | None = None,
        *,
        params: Mapping[str, Any] | None = None,
        index: str | None = None,
        patient: bool = False,
    ) -> dict[str, Any]:
        """The server's answer. A body of bytes is newline-delimited JSON.

        A patient request waits up to `Connection.retry_seconds` for a server that is busy or gone; only for what may
        be done twice. Raises a CcheckError.
        """
        try:
            answer: dict[str, Any] = self.retrying(patient)(self.send, method, path, body, params)
            return answer
        except (ApiError, TransportError) as error:
            raise translate(error, self.connection, index) from error

    @contextmanager
    def stopping(self) -> Iterator[threading.Event]:
        """An event for `retrying`, which `abandon` sets, too."""
        event = threading.Event()
        self._waiting.add(event)
        if self._abandoned.is_set():
            event.set()
        try:
            yield event
        finally:
            self._waiting.discard(event)

    def abandon(self) -> None:
        """From now on nothing is tried again: what is waiting for the server gives up."""
        self._abandoned.set()
        for event in list(self._waiting):
            event.set()

    def retrying(self, patient: bool, stopped: threading.Event | None = None) -> tenacity.Retrying:
        """The policy of retries: exponential waits with jitter, until `stopped` is set."""
        stopped = stopped or self._abandoned
        enough: tenacity.stop.stop_base = tenacity.stop_after_attempt(ATTEMPTS)
        if patient:
            enough = tenacity.stop_after_delay(self.connection.retry_seconds) | tenacity.stop_when_event_set(stopped)
        return tenacity.Retrying(
            retry=tenacity.retry_if_exception(lambda error: _may_pass(error, patient)),
            stop=enough,
            wait=tenacity.wait_random_exponential(0.2, max=10 if patient else 1),
            sleep=tenacity.sleep_using_event(stopped),
            before_sleep=tenacity.before_sleep_log(_log, logging.INFO),
            reraise=True,
        )

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
        kind = "x-ndjson" if isinstance(body, bytes) else "json"
        speaks_8 = self._speaks_8
        headers = {"accept": "application/json", "content-type": f"application/{kind}"}
        if speaks_8:
            headers = {
                "accept": _COMPATIBLE_WITH_8.format("json"),
                "content-type": _COMPATIBLE_WITH_8.format(kind),
            }
        if body is None:
            del headers["content-type"]
        try:
            answer: dict[str, Any] = self._client.perform_request(
                method, path, params=params, headers=headers, body=body
            ).body
            return answer
        except ApiError as error:
            # A client of version 9 asks in the media type of version 9, which a server of version 8 refuses.
            if speaks_8 or "media_type_header_exception" not in str(error.body):
                raise
            self._speaks_8 = True
            return self.send(method, path, body, params)


def _may_pass(error: BaseException, patient: bool) -> bool:
    """Whether the same request may succeed a little later."""
    if isinstance(error, Busy):
        return True
    if isinstance(error, ApiError):
        return error.meta.status in BUSY
    if isinstance(error, ConnectionTimeout):
        return patient  # a search that took too long once will again
    return isinstance(error, elastic_transport.ConnectionError) and not isinstance(error, TlsError)
