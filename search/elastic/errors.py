"""What the Elasticsearch client raises, in words that say which server, which index, and what to do."""

from __future__ import annotations

from typing import Any

from elastic_transport import ApiError, ConnectionTimeout, SerializationError, TlsError, TransportError
from elasticsearch import UnsupportedProductError

from ...errors import CcheckError, InvalidData, NotFound, ServerError
from .connection import Connection

BUSY = frozenset({429, 502, 503, 504})
"""Statuses of a server that may answer when it is asked again."""
_LONGEST = 600


class Busy(Exception):
    """A part of an answer says what a status of `BUSY` would say of the whole."""

    def __init__(self, status: int, body: Any) -> None:
        super().__init__(f"{status}: {reason_of(body)[1]}")
        self.status, self.body = status, body


class TooManyClauses(InvalidData):
    """The words of a claim became more clauses than the server takes in a query."""


def translate(error: Exception, connection: Connection, index: str | None) -> CcheckError:
    """The error that a caller of ccheck sees for one of the client's."""
    server = connection.name
    if isinstance(error, UnsupportedProductError):
        return ServerError(
            f"{server} answers, but is not Elasticsearch (OpenSearch, or something in between?): ccheck works with "
            "Elasticsearch 8.19 and 9.x"
        )
    if isinstance(error, Busy):
        return from_response(error.status, error.body, connection, index)
    if isinstance(error, ApiError):
        return from_response(error.meta.status, error.body, connection, index)
    if isinstance(error, TlsError):
        return ServerError(
            f"no secure connection to {server}: {_cause(error, connection)}. Set ELASTICSEARCH_CA_CERTS to the file of "
            "the authority that signed its certificate; a server without TLS needs http:// in its address"
        )
    if isinstance(error, ConnectionTimeout):
        return ServerError(
            f"{server} did not answer within {connection.request_timeout:g} s: is it overloaded? "
            "CCHECK_ELASTICSEARCH_TIMEOUT allows more"
        )
    if isinstance(error, SerializationError):
        return ServerError(f"{server} answered something that is not Elasticsearch's: {_cause(error, connection)}")
    return ServerError(
        f"{server} can't be reached: {_cause(error, connection)}. Is it running, and is the address right "
        "(--store https://host:9200/papers, or ELASTICSEARCH_URL)?"
    )


def from_response(status: int, body: Any, connection: Connection, index: str | None) -> CcheckError:
    """The error for an answer of the server, or for one part of an answer."""
    where = f"{connection.name}/{index}" if index else connection.name
    kind, reason = reason_of(body)
    reason = connection.redact(reason)
    if status == 404 and kind in ("index_not_found_exception", "alias_missing", "aliases_not_found_exception"):
        return NotFound(f"there is no index {where}: make it with ccheck ingest FILE --store {where}")
    if status == 401:
        return ServerError(
            f"{connection.name} does not accept the credentials ({reason}): set ELASTICSEARCH_API_KEY, or "
            "ELASTICSEARCH_USERNAME and ELASTICSEARCH_PASSWORD"
        )
    if kind == "cluster_block_exception":
        return ServerError(
            f"{where} takes no changes: {reason}. Most often its disk is full: make room and run the same command again"
        )
    if status == 403:
        return ServerError(
            f"{where} refuses this: {reason}. To search, the key or user needs the index privileges read and "
            "view_index_metadata; to ingest, also write, create_index, manage and monitor"
        )
    if status == 413:
        return InvalidData(
            f"{where} refuses a request of this size: raise http.max_content_length, or the proxy's limit"
        )
    if too_many_clauses(body):
        return TooManyClauses(
            f"the claim has too many words for {where} ({reason}): shorten it, search fewer fields, or give the server "
            "more memory, by which it takes more"
        )
    if status in BUSY:
        return ServerError(f"{where} is too busy or not ready ({status}, {reason}): try again later")
    if status >= 500 or status in (404, 405, 410):
        return ServerError(f"{where} failed ({status} {kind}): {reason}")
    return InvalidData(f"{where} refuses the request ({status} {kind}): {reason}")


def is_licence(status: int, body: Any) -> bool:
    """Whether an answer says that the server's licence does not allow what was asked."""
    return status == 403 and "non-compliant" in reason_of(body)[1]


def too_many_clauses(body: Any) -> bool:
    """Whether an answer says that a query has more clauses than the server takes, or than it has memory for."""
    said = str(body)
    return "maxClauseCount" in said or "data for [query] would be" in said


def reason_of(body: Any) -> tuple[str, str]:
    """The type and the reason of an error, the innermost ones that say something."""
    error = body.get("error", body) if isinstance(body, dict) else body
    if not isinstance(error, dict):
        return "", str(error)[:_LONGEST]
    kind, reason = str(error.get("type", "")), str(error.get("reason", error))
    failed = error.get("failed_shards") or [{}]
    inner = failed[0].get("reason") or error.get("caused_by")
    while isinstance(inner, dict):
        if inner.get("reason") and str(inner["reason"]) not in reason:
            reason = f"{reason}: {inner['reason']}"
        inner = inner.get("caused_by")
    return kind, reason[:_LONGEST]


def _cause(error: Exception, connection: Connection) -> str:
    """The innermost message of a failed connection, without the objects' addresses that urllib3 puts before it."""
    errors = error.errors if isinstance(error, TransportError) else ()
    text = str(errors[0]) if errors else str(error)
    return connection.redact(text.rpartition(">: ")[2][:_LONGEST])
