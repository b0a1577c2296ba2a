"""Turns errors of the Elasticsearch client into messages that name the server, the index, and what to do."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

from elastic_transport import ApiError, ConnectionTimeout, SerializationError, TlsError
from elasticsearch import UnsupportedProductError
from urllib3.exceptions import ConnectTimeoutError

from ...core.errors import CcheckError, InvalidData, NotFound, ServerError
from ...core.http import BUSY, redirected, why_unreachable
from ...core.redaction import redact
from .connection import Connection

PASSING = frozenset(
    {
        "circuit_breaking_exception",
        "connect_transport_exception",
        "es_rejected_execution_exception",
        "master_not_discovered_exception",
        "no_shard_available_action_exception",
        "node_closed_exception",
        "node_disconnected_exception",
        "node_not_connected_exception",
        "process_cluster_event_timeout_exception",
        "unavailable_shards_exception",
    }
)
"""The same as types of errors: inside an answer the status can be missing, or 500."""
CERTIFICATES = "ELASTICSEARCH_CA_CERTS"
"""The setting for the certificates that a server's own must be signed with."""
WHOLE = {"allow_partial_search_results": False}
"""Makes a search fail unless all shards answer."""
_UNKNOWN_RETRIEVER = re.compile(r"unknown (retriever|field \[(retriever|weight)\])")
_STATUS = {"security_exception": 403, "index_not_found_exception": 404, "routing_missing_exception": 400}
"""The status of errors that come without one in a part of an answer; all others are the server's fault."""
_FIELDS_LIMIT = "index.mapping.total_fields.limit"
_TOO_MANY_CLAUSES = frozenset({"too_many_clauses", "too_many_nested_clauses"})
_REJECTED = re.compile(r"rejected execution of .*\[name = (?:[^/,\]]*/)?([\w-]+).*", re.DOTALL)
"""A rejection's reason is a page of Java objects, with the pool's name among them."""
OWN_ALIAS = re.compile(r"-writes-[0-9a-f]{16}$")
"""The end of the name that an index is written to by (`bound`); people know the index."""
_BLOCKED = "cluster_block_exception"
_WRITE_BLOCK = "FORBIDDEN/8/"
"""The part of the server's reason that only a write block has."""
_CLOSED = "FORBIDDEN/4/"
"""The same of a closed index, to which somebody writes."""
_SHARD_GONE = re.compile(r"missing shards|No shard available|primary shard is not active|^all shards failed$")
_WHY_GONE = "GET _cluster/allocation/explain on the server says why a shard is gone"
_UNUSABLE = " Consider using `allow_partial_search_results`"
"""Advice of the server to its clients."""
_BESIDE = re.compile(r"^ccheck-(checks|companion)-")
"""Begins the names of what belongs to a store: `ccheck doctor` says with the store what a key may do there."""
_LONGEST = 600
_MOST_ERRORS = 50


class Busy(Exception):
    """A part of an answer says that the same may succeed later; see `may_pass`. `others`: other parts succeeded."""

    def __init__(self, status: int, body: Any, others: bool = False) -> None:
        super().__init__(f"{status}: {reason_of(body)[1]}")
        self.status, self.body, self.others = status, body, others


class TooManyClauses(InvalidData):
    """The claim's words became more clauses than the server accepts in a query."""


class Denied(ServerError):
    """The key or user lacks a privilege."""


class WriteBlocked(ServerError):
    """The index takes no writes (`index.blocks.write`): somebody set that, or a migration is about to end."""


class AlreadyExists(InvalidData):
    """The index is there already."""


def translate(error: Exception, connection: Connection, index: str | None) -> CcheckError:
    """The error that a caller of ccheck sees for one of the client's."""
    server = connection.url
    if isinstance(error, UnsupportedProductError):
        return ServerError(
            f"{server} answers, but is not Elasticsearch (is it OpenSearch, or a proxy?): ccheck works with "
            "Elasticsearch 8.19 and 9.x"
        )
    if isinstance(error, Busy):
        return from_response(error.status, error.body, connection, index)
    if isinstance(error, ApiError):
        elsewhere = redirected(server, error.meta.status, error.meta.headers)
        if elsewhere is not None:
            return ServerError(elsewhere)
        return from_response(error.meta.status, error.body, connection, index)
    if isinstance(error.__cause__, CcheckError):
        return error.__cause__
    if isinstance(error, TlsError) and "Fingerprints did not match" in str(error.__cause__):
        return ServerError(
            f"no secure connection to {server}: none of its certificates has the fingerprint in "
            "ELASTICSEARCH_CA_FINGERPRINT. Is this your server? It prints the fingerprint at its first start"
        )
    if isinstance(error, TlsError):
        return ServerError(f"no secure connection to {server}: {why_unreachable(error, CERTIFICATES)}")
    if isinstance(error, ConnectionTimeout) and not isinstance(error.__cause__, ConnectTimeoutError):
        return ServerError(
            f"{server} did not answer within {connection.request_timeout:g} s. Is it overloaded? To wait "
            "longer, set CCHECK_ELASTICSEARCH_TIMEOUT"
        )
    if isinstance(error, SerializationError):
        said = redact(" ".join(str(error).split()))[:_LONGEST]
        return ServerError(f"{server} gave an answer that does not look like Elasticsearch's: {said}")
    return ServerError(
        f"{server} can't be reached: {why_unreachable(error, CERTIFICATES)}. Is it running, and is "
        "the address right (--store https://host:9200/papers, or ELASTICSEARCH_URL)?"
    )


def from_response(status: int, body: Any, connection: Connection, index: str | None) -> CcheckError:
    """The error for an answer of the server, or for one part of an answer."""
    index, where = _where(connection, index)
    kind, reason = reason_of(body)
    if status == 404 and kind in ("index_not_found_exception", "alias_missing", "aliases_not_found_exception"):
        return NotFound(f"there is no index {where}. Create it with ccheck ingest FILE --store {where}")
    if kind == "index_closed_exception" or _CLOSED in reason:
        return ServerError(f"{where} is closed. Somebody did that: open it with POST {index or 'INDEX'}/_open")
    if status == 401:
        return ServerError(
            f"{connection.url} does not accept the credentials ({reason}): "
            + (connection.withheld or "set ELASTICSEARCH_API_KEY, or ELASTICSEARCH_USERNAME and ELASTICSEARCH_PASSWORD")
        )
    if kind == _BLOCKED and status != 503:
        error = WriteBlocked if _WRITE_BLOCK in reason else ServerError
        return error(f"{where} does not accept changes: {reason.rstrip(';')}. {_block_remedy(reason, index)}")
    if status == 403:
        withheld = f". {connection.withheld}" if connection.withheld else ""
        return Denied(
            f"{where} denies access: {reason}. To see which privileges are missing, run ccheck doctor "
            f"--store {connection.url}/{_BESIDE.sub('', index or 'INDEX')}{withheld}"
        )
    if status == 413:
        return InvalidData(
            f"{where} refuses a request of this size: raise http.max_content_length, or the proxy's limit"
        )
    if too_many_clauses(body):
        return TooManyClauses(
            f"the claim has too many words for {where} ({reason}): shorten it, search fewer fields, or give the server "
            "more memory"
        )
    if may_pass(status, body):
        said = f"{where} is too busy or not ready ({status}, {reason.partition(_UNUSABLE)[0]}): try again later"
        return ServerError(f"{said}. {_WHY_GONE}" if _SHARD_GONE.search(reason) else said)
    if status >= 500 or status in (404, 405, 410):
        return ServerError(f"{where} failed ({status} {kind}): {reason}")
    refusal = f"{where} refuses the request ({status} {kind}): {reason}"
    if "total fields" in reason:  # Elasticsearch has no type of its own for this
        refusal += f'. Raise the limit: PUT {index or "INDEX"}/_settings {{"{_FIELDS_LIMIT}": 2000}}'
    return AlreadyExists(refusal) if kind == "resource_already_exists_exception" else InvalidData(refusal)


def _where(connection: Connection, index: str | None) -> tuple[str | None, str]:
    """The index as people know it, and with its server."""
    index = OWN_ALIAS.sub("", index) if index else None
    return index, f"{connection.url}/{index}" if index else connection.url


def _block_remedy(reason: str, index: str | None) -> str:
    if "read-only-allow-delete" in reason or "flood" in reason:
        return (
            "A disk of the cluster is full. Free some space, or add some: the server then lifts the block within a "
            "minute. Run the same command again to continue"
        )
    lift = f'PUT {index or "INDEX"}/_settings {{"index.blocks.read_only": null, "index.blocks.write": null}}'
    if "cluster read-only" in reason:
        lift = 'PUT _cluster/settings {"persistent": {"cluster.blocks.read_only": null}}'
    return f"Somebody made it read-only. Lift the block, then run the same command again to continue: {lift}"


def part_error(part: Mapping[str, Any], connection: Connection, index: str | None) -> CcheckError:
    """The error of one part of an answer, which can be without a status."""
    kind, _ = reason_of(part)
    return from_response(part.get("status") or _STATUS.get(kind, 500), part, connection, index)


def refuse_parts(answer: Mapping[str, Any], connection: Connection, index: str | None) -> None:
    """Raise ServerError for an answer that some shards had no part in, or that stopped before its end."""
    _, where = _where(connection, index)
    shards = answer.get("_shards", {})
    if answer.get("timed_out"):
        raise ServerError(f"{where} stopped the search early (timed_out): try again later")
    if shards.get("failed"):
        failures = shards.get("failures") or [{}]
        _, reason = reason_of(failures[0].get("reason", "no reason given"))
        raise ServerError(
            f"{where} answered for only some of its documents: {shards['failed']} of {shards.get('total', '?')} "
            f"shards failed ({reason}). Look at GET _cat/shards on the server, then try again"
        )


def is_security(body: Any) -> bool:
    """Whether an answer says that the server's licence, or a privilege, does not allow what was asked."""
    return is_type(body, "security_exception")


def unknown_retriever(body: Any) -> bool:
    """Whether an answer says that the server's version does not know a retriever, or a key of one."""
    return any(_UNKNOWN_RETRIEVER.search(str(error.get("reason"))) for error in _errors(body))


def too_many_clauses(body: Any) -> bool:
    """Whether an answer says that a query has more clauses than the server takes, or than it has memory for."""
    return any(
        error.get("type") in _TOO_MANY_CLAUSES
        # A circuit breaker is named in its text only.
        or (error.get("type") == "circuit_breaking_exception" and "data for [query]" in str(error.get("reason")))
        for error in _errors(body)
    )


def may_pass(status: int, body: Any, full: bool = True) -> bool:
    """Whether an answer, or one part of it, says that the same may succeed a little later; `full`: when a disk has
    room again."""
    if too_many_clauses(body) or (not full and status == 429 and is_type(body, _BLOCKED)):
        return False
    return status in BUSY or any(error.get("type") in PASSING for error in _errors(body))


def busy_part(answer: Mapping[str, Any]) -> Busy | None:
    """Returns the error inside an answer (its own, a document's or a shard's) that may pass; None if there is none."""
    if "error" in answer:
        status = answer.get("status", 500)
        return Busy(status, answer) if may_pass(status, answer) else None
    failed = [(500, one["error"]) for one in _dicts(answer.get("docs")) if "error" in one]
    shards = answer.get("_shards")
    failures = _dicts(shards.get("failures")) if isinstance(shards, dict) else []
    failed += [(one.get("status", 500), one.get("reason")) for one in failures]
    return next((Busy(status, error) for status, error in failed if may_pass(status, error)), None)


def is_type(body: Any, kind: str) -> bool:
    """Whether an answer's error, or one that it came from, has this type."""
    return any(error.get("type") == kind for error in _errors(body))


def reason_of(body: Any) -> tuple[str, str]:
    """The type and the reason of an error, with the reasons of what it came from; without secrets."""
    error = body.get("error", body) if isinstance(body, dict) else body
    if not isinstance(error, dict):
        return "", redact(str(error))[:_LONGEST]
    said: list[str] = []
    for one in _errors(error):
        reason = _REJECTED.sub(r"the queue of its \1 threads is full", str(one.get("reason") or "")[: 5 * _LONGEST])
        if reason and not any(reason in before for before in said):
            said.append(reason)
    return str(error.get("type", "")), redact(": ".join(said) or str(error))[:_LONGEST]


def _errors(body: Any) -> Iterator[Mapping[str, Any]]:
    """An error and all that it came from, the outermost first.

    Why a search failed is in its first failed shard; why `rrf` did, in the suppressed errors of its retrievers.
    """
    waiting, seen = deque([body.get("error", body) if isinstance(body, dict) else body]), 0
    while waiting and seen < _MOST_ERRORS:
        error = waiting.popleft()
        if not isinstance(error, dict):
            continue
        seen += 1
        yield error
        waiting.extend([shard.get("reason") for shard in _dicts(error.get("failed_shards"))[:1]])
        waiting.append(error.get("caused_by"))
        waiting.extend(_dicts(error.get("suppressed")))
        waiting.extend(_dicts(error.get("root_cause")))


def _dicts(parts: Any) -> list[dict[str, Any]]:
    """The objects of a list; none of anything else."""
    return [part for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []
