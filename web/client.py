"""A client of a running service, for the command line: the same checks, without loading models, or much else, here.

It imports next to nothing: a second `ccheck query` takes as long as Python and click need to start.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

from ..core import errors
from ..core.answers import built
from ..core.errors import CcheckError, InvalidData, ServerError, UsageError
from ..core.keys import checked_key
from ..core.redaction import http_parts
from ..core.text import counted
from ..core.types import Result
from ..service.types import Check, check_from

URL, KEY = "CCHECK_SERVER", "CCHECK_SERVER_KEY"
CLAIMS = "Ccheck-Claims"
"""The header with the number of claims in a file that is checked."""
TYPE = "urn:ccheck:"
"""What the type of a problem begins with, before the class of ccheck's error."""
MOST_BYTES = 64 << 20
"""Largest answer that is read."""
WAIT_SECONDS = 30.0
"""How long one request waits for the check."""
SILENT_SECONDS = 600.0
"""How long the next check of a file may take."""
HINT = "Is ccheck serve web running there?"
PROXY = "A proxy takes no file as large: send fewer claims, or raise its limit (nginx: client_max_body_size)"


class Server:
    """A running service, at an address or at a socket of this machine. Methods raise the server's own error, or
    ServerError if it can't be asked."""

    def __init__(
        self, url: str, key: str | None = None, connect: Callable[[], socket.socket | None] | None = None
    ) -> None:
        """`connect` connects to the socket of a server on this machine, else it is at `url`. Raises UsageError."""
        self.name, self.named, self._key, self._connect = url, connect is None, checked_key(KEY, key), connect
        if (parts := http_parts(url)) is None:
            raise UsageError(f"{URL} is {url!r}: write the address of ccheck serve web, such as http://127.0.0.1:8350")
        self._url = parts

    def check(self, claim: str, how: Mapping[str, Any]) -> Check:
        """The check that the server makes of a claim, or has."""
        sent = json.dumps({"claim": claim, "wait": WAIT_SECONDS, **how}).encode()
        answer = self._read(self._asked("POST", "/v1/checks", sent))
        while (check := self._check(answer)).status == "running":
            time.sleep(0.5)
            answer = self._read(self._asked("GET", f"/v1/checks/{check.id}"))
        if check.status == "failed":
            raise error_of({"type": f"{TYPE}{check.problem}", "detail": check.error})
        return check

    def check_file(self, content: bytes, name: str, how: Mapping[str, Any]) -> Iterator[Check]:
        """The checks of a file's claims, in order, each as soon as it is there. `name` tells its format."""
        given = {"name": name, **{key: value for key, value in how.items() if value is not None}}
        path = f"/v1/checks/many?{urlencode(given, doseq=True)}"
        answer = self._asked("POST", path, content, "application/octet-stream")
        for done in itertools.count():
            line = self._read(answer, line=True)
            if not line and str(done) == answer.headers.get(CLAIMS):
                return
            if not line.endswith(b"\n"):
                raise ServerError(f"{self.name} broke off after {counted(done, 'claim')}. Run the command again")
            yield self._check(line)

    def result(self, check: Check) -> Result:
        """What a check found. Raises InvalidData for what no server of this version says."""
        try:
            return built(check.result or {})
        except (TypeError, KeyError, ValueError, AttributeError) as error:
            raise self._strange(error) from error

    def _check(self, body: bytes) -> Check:
        try:
            data = json.loads(body)
            if "detail" in data:  # what stopped the other claims of a file
                raise error_of(data)
            return check_from(data)
        except (TypeError, KeyError, ValueError, AttributeError) as error:
            raise self._strange(error) from error

    def _strange(self, error: Exception) -> CcheckError:
        return InvalidData(f"{self.name} is not a ccheck server of this version: {type(error).__name__}")

    def _asked(
        self, method: str, path: str, body: bytes | None = None, kind: str = "application/json"
    ) -> http.client.HTTPResponse:
        """A good answer. Raises the error that a problem stands for."""
        headers = {"Content-Type": kind, "Accept-Encoding": "identity", "Connection": "close"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        made = http.client.HTTPSConnection if self._url.scheme == "https" else http.client.HTTPConnection
        # A server on this machine is asked directly, whatever proxies the environment names.
        connection = made(self._url.hostname or "", self._url.port, timeout=SILENT_SECONDS)
        try:
            if self._connect is not None:
                connection.sock = self._connect()
            answer = _answer(connection, method, self._url.path.rstrip("/") + path, body, headers)
        except (OSError, http.client.HTTPException) as error:
            from ..core.http import is_lasting, missing_certificates, why_unreachable  # which import much

            lacking = missing_certificates() if isinstance(error, ssl.SSLCertVerificationError) else None
            why = lacking or f"{why_unreachable(error)}{'' if is_lasting(error) else f'. {HINT}'}"
            raise ServerError(f"{URL}: {self.name} can't be asked: {why}") from error
        if answer.status in (HTTPStatus.OK, HTTPStatus.ACCEPTED):
            return answer
        try:
            problem = json.loads(self._read(answer))
            assert isinstance(problem, dict) and "detail" in problem
        except (ValueError, AssertionError):
            hint = PROXY if answer.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE else HINT
            raise ServerError(f"{self.name} answered with the status {answer.status}. {hint}") from None
        if answer.status == HTTPStatus.UNAUTHORIZED:
            said = f"does not know the key in {KEY}" if self._key else f"needs a key: set {KEY}"
            raise ServerError(f"{self.name} {said}")
        raise error_of(problem)

    def _read(self, answer: http.client.HTTPResponse, *, line: bool = False) -> bytes:
        try:
            read = (answer.readline if line else answer.read)(MOST_BYTES + 1)
        except (OSError, http.client.HTTPException) as error:
            raise ServerError(f"{self.name} broke off: {error or type(error).__name__}") from error
        if len(read) > MOST_BYTES:
            raise ServerError(f"the answer of {self.name} is larger than {MOST_BYTES:,} bytes")
        return read


def _answer(connection: http.client.HTTPConnection, *request: Any) -> http.client.HTTPResponse:
    """The answer to a request, also if the server answers before it has read all of it."""
    try:
        connection.request(*request)
    except (BrokenPipeError, ConnectionResetError):
        with contextlib.suppress(OSError, AttributeError, http.client.HTTPException):
            return connection.getresponse()
        raise
    return connection.getresponse()


def error_of(problem: Mapping[str, Any]) -> CcheckError:
    """The error that a server's problem is, for a client of it."""
    kind = getattr(errors, str(problem.get("type", "")).removeprefix(TYPE), None)
    detail = str(problem["detail"] or "no reason was given")
    if isinstance(kind, type) and issubclass(kind, CcheckError) and kind is not errors.MissingExtra:
        return kind(detail)
    return errors.ServerError(f"the server refused: {detail}")
