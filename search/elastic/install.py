"""What `ccheck index install` puts into a cluster, so that others can search without ccheck; and taking it out again.

Each piece says whose it is: templates in their `_meta`, roles in their `metadata`, scripts in a comment. What somebody
else made under the name of a piece is neither changed nor removed.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

import numpy as np
from elastic_transport import ApiError, TransportError

from ... import es_mappings
from ...core.errors import CcheckError, InvalidData, UsageError
from ...core.stages import Bm25, Dense
from ...core.types import Query
from ..store import Search
from .client import Client
from .doctor import NATIVE_LICENCES
from .errors import translate
from .fields import Index
from .queries import Body
from .search import NATIVE, Searcher
from .store import ElasticStore

State: TypeAlias = Literal["new", "changed", "same", "absent"]
ROLES = ("reader", "enricher", "administrator", "recorder", "auditor")
COMPONENTS = ("ccheck-settings", "ccheck-fields", "ccheck-vectors", "ccheck-sparse")
MARK = "{{! made by ccheck index install }}"
"""Begins every search template of ours."""
OURS = "ccheck index install"
RERANKED, RERANK_WINDOW = 10, 50
"""How many hits the reranked template shows unless asked, and how many are reranked."""
_QUERY_VECTOR = re.compile(r'"query_vector": \[[^\]]*\]')
_CLAIM, _SIZE, _FILTERS = "ccheckclaim", "ccheck-size", [{"term": {"ccheck-filters": ""}}]


_PATHS = {
    "component template": "/_component_template",
    "index template": "/_index_template",
    "inference endpoint": "/_inference/rerank",
    "search template": "/_scripts",
    "search application": "/_application/search_application",
    "role": "/_security/role",
}


@dataclass(frozen=True, slots=True)
class Piece:
    """One thing in the cluster: where it is, and what ccheck puts there. `repr` shows no secret."""

    what: str
    path: str
    body: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Reranker:
    """A reranking server that Elasticsearch is to call: the URL of its Cohere format, and its key."""

    url: str
    key: str | None = field(default=None, repr=False)


def pieces(
    store: ElasticStore, search: Search, reranker: Reranker | None, roles: bool = False, application: bool = False
) -> list[Piece]:
    """Everything for a store, in the order in which it is put there. `search`: what claims are searched with. `roles`:
    those of `es_mappings/roles` too, which only a server with security takes. `application`: one with the same search.

    Raises NotFound for a store that does not exist, and UsageError for a search that no template can hold, or for an
    application if the licence has no `rrf`.
    """
    found, own = [], _name(store)
    if store.searched({}).made_here:  # the further indices of another owner are made by that owner's templates
        found += [_piece("component template", name, _owned(name)) for name in COMPONENTS]
        template = _owned("ccheck-template") | {"index_patterns": [f"{store.index}-0*"]}
        template["_meta"] = _meta(template, f"the indices of the store {store.index}")
        found.append(_piece("index template", own, template))
    if reranker is not None:
        found.append(_piece("inference endpoint", own, endpoint(reranker)))
    if fuses(store.client):
        bodies = search_templates(store, search, own if reranker is not None else None)
        for name, source in bodies.items():
            found.append(_piece("search template", name, {"script": {"lang": "mustache", "source": MARK + source}}))
        if application:
            concrete, source = sorted(store.searched(search.retrievers).concrete), MARK + next(iter(bodies.values()))
            kept: Body = {"lang": "mustache", "source": source, "params": {"filters": []}}
            # By its own name: Elasticsearch would take the application's alias off an index that is named by another.
            found.append(_piece("search application", own, {"indices": concrete, "template": {"script": kept}}))
    elif application:
        raise UsageError("the server's licence has no rrf, which the search application needs: trial or Enterprise")
    return [*found, *(role_of(store, name) for name in ROLES if roles)]


def leftovers(store: ElasticStore) -> list[Piece]:
    """What `pieces` may have put there, whatever was asked for, in the order in which it is taken out."""
    own = _name(store)
    found = [_piece("search template", f"{own}-{which}") for which in ("search", "reranked")]
    found += [_piece(kind, own) for kind in ("search application", "inference endpoint", "index template")]
    found += [_piece("role", f"{own}-{name}") for name in ROLES]
    return [*found, *(_piece("component template", name) for name in COMPONENTS)]


def fuses(client: Client) -> bool:
    """Whether the server's licence has `rrf`."""
    return client.request("GET", "/_license").get("license", {}).get("type") in NATIVE_LICENCES


def state(client: Client, piece: Piece) -> State:
    """How the cluster differs from a piece. Raises InvalidData if somebody else made what is there."""
    there = _there(client, piece)
    if there is None:
        # Elasticsearch would make an alias of this name the application's own.
        new, name = piece.body and "/_application/" in piece.path, piece.path.rpartition("/")[2]
        if new and (taken := client.request("GET", f"/{name}/_alias", params={"ignore_unavailable": True})):
            where = ", ".join(taken)
            raise InvalidData(f"{name}, the search application's name, is an alias or index already: {where}")
        return "absent" if not piece.body else "new"
    ours, kept = _identity(there)
    if not ours:
        raise InvalidData(
            f"the {piece.what} on {client.connection.url} was not made by ccheck, and stays as it is. Rename or "
            "remove it first"
        )
    return "same" if not piece.body or kept == _identity(piece.body)[1] else "changed"


def put(client: Client, piece: Piece) -> None:
    if "/_inference/" in piece.path and _there(client, piece) is not None:  # a PUT replaces all but these
        client.request("DELETE", piece.path)
    client.request("PUT", piece.path, piece.body)


def remove(client: Client, piece: Piece) -> str | None:
    """Take a piece out. Returns why it stays, if another template uses it."""
    try:
        client.request("DELETE", piece.path)
    except CcheckError as error:
        if "still in use" not in str(error):
            raise
        return "another index template uses it"
    return None


# -- search templates


def search_templates(store: ElasticStore, search: Search, endpoint: str | None) -> dict[str, str]:
    """The sources of the search templates, by name: what ccheck sends, with parameters in place of a claim.

    The parameters are `claim`, `vector` (the claim's embedding, if dense vectors are searched), `filters` (a list of
    queries, perhaps empty) and `size`. With an `endpoint`, a second template reranks with it.
    """
    index = store.searched(search.retrievers)
    native = _marked(store, index, search)
    found = {f"{_name(store)}-search": _source(native)}
    if endpoint is not None:
        fields = [name for name in index.text if not index.fields[name].nested] or ["text"]
        reranker = {
            "retriever": native["retriever"],
            "field": fields[0],
            "inference_id": endpoint,
            "inference_text": _CLAIM,
            "rank_window_size": RERANK_WINDOW,
        }
        reranked = {"retriever": {"text_similarity_reranker": reranker}, "size": _SIZE, "_source": native["_source"]}
        found[f"{_name(store)}-reranked"] = _source(reranked)
    return found


def _marked(store: ElasticStore, index: Index, search: Search) -> Body:
    """The body of a search whose claim, filters and size are marks."""
    dense = [one for one in search.retrievers.values() if isinstance(one, Dense)]
    unfit = [name for name, one in search.retrievers.items() if not isinstance(one, Bm25 | Dense) or _made_up(one)]
    query = Query(_CLAIM, np.arange(1, (index.dimensions or 0) + 1, dtype=np.float32) if dense else None)
    details = search.fusion.method == "rrf"  # `linear` does not say ranks
    asked = replace(search, queries=[query], k=1, filters=(), details=details, whole=False)
    store.rank(asked)  # after which it is known how the server fuses
    native = not unfit and store.fuses(index, asked) is not None
    found = Searcher(store.client, store.index, index, asked, _FILTERS, native).bodies(query).get(NATIVE)
    if found is None:
        raise UsageError(
            "a search template can hold BM25 and dense retrieval with equal depths, fused as the server's version can "
            "(weights with rrf: 9.2 or later)" + (f", but not the retriever {', '.join(unfit)}" if unfit else "")
        )
    return {**found, "size": _SIZE}


def _made_up(retriever: Bm25 | Dense) -> bool:
    """Whether ccheck makes what is searched for of the claim's words, or of another text than the claim."""
    words = isinstance(retriever, Bm25) and (retriever.analysis is not None or bool(retriever.fuzziness))
    return words or retriever.query != "claim"


def _source(body: Mapping[str, Any]) -> str:
    """The body as a mustache template."""
    source = json.dumps(body)
    for mark, parameter in (
        (json.dumps(_FILTERS), "{{#toJson}}filters{{/toJson}}"),
        (json.dumps(_SIZE), f"{{{{size}}}}{{{{^size}}}}{RERANKED}{{{{/size}}}}"),
        (_CLAIM, "{{claim}}"),
    ):
        source = source.replace(mark, parameter)
    return _QUERY_VECTOR.sub('"query_vector": {{#toJson}}vector{{/toJson}}', source)


# -- the reranker


def endpoint(reranker: Reranker) -> dict[str, Any]:
    """The body of an inference endpoint of the service `custom` (8.19, and 9.1 or later) for a server's Cohere format.

    A server that asks for no key gets the word `none`: Elasticsearch wants one.
    """
    return {
        "service": "custom",
        "service_settings": {
            "secret_parameters": {"api_key": reranker.key or "none"},
            "url": reranker.url,
            "headers": {"Authorization": "Bearer ${api_key}", "Content-Type": "application/json"},
            "request": '{"query": ${query}, "documents": ${input}}',
            "response": {
                "json_parser": {
                    "reranked_index": "$.results[*].index",
                    "relevance_score": "$.results[*].relevance_score",
                }
            },
        },
    }


# -- whose a piece is


def _name(store: ElasticStore) -> str:
    return f"ccheck-{store.index}"


def _piece(kind: str, name: str, body: Mapping[str, Any] = MappingProxyType({})) -> Piece:
    return Piece(f"{kind} {name}", f"{_PATHS[kind]}/{name}", body)


def role_of(store: ElasticStore, name: str) -> Piece:
    body = es_mappings.role(name, store.index)
    body["metadata"] = _meta(body, body["metadata"]["description"])
    return _piece("role", f"{_name(store)}-{name}", body)


def _owned(name: str) -> dict[str, Any]:
    body = es_mappings.read(name)
    return body | {"_meta": _meta(body, body.get("_meta", {}).get("description", name))}


def _meta(body: Mapping[str, Any], description: str) -> dict[str, str]:
    held = {name: value for name, value in body.items() if name not in ("_meta", "metadata")}
    digest = hashlib.sha256(json.dumps(held, sort_keys=True).encode()).hexdigest()[:16]
    return {"description": description, "made_by": OURS, "digest": digest}


def _there(client: Client, piece: Piece) -> Mapping[str, Any] | None:
    """What the cluster has under a piece's path, as it was sent; None if nothing."""
    try:
        answer = client.again(piece.path, lambda: client.send("GET", piece.path))
    except (ApiError, TransportError) as error:
        # A distribution without inference has no such path, and says 400; a licence without applications says 403.
        if isinstance(error, ApiError) and (
            error.meta.status == HTTPStatus.NOT_FOUND
            or "no handler found" in str(error.body)
            or ("/_application/" in piece.path and error.meta.status == HTTPStatus.FORBIDDEN)
        ):
            return None
        raise translate(error, client.connection, None) from error
    found: Mapping[str, Any] = answer
    with client.understanding():
        if "/_security/" in piece.path:
            found = answer[piece.path.rpartition("/")[2]]
        for several in {"component_templates", "index_templates", "endpoints"} & answer.keys():
            found = answer[several][0]
            found = found.get(several[:-1], found)
    return found


def _identity(body: Mapping[str, Any]) -> tuple[bool, Any]:
    """Whether ccheck made a piece, and what is compared of it: the server writes settings in other words, and shows no
    key."""
    if script := body.get("script", body.get("template", {}).get("script")):
        kept = [script.get("source"), script.get("params", {}), sorted(body.get("indices", ()))]
        return str(kept[0]).startswith(MARK), kept
    if "service" in body:
        settings = body.get("service_settings", {})
        ours = body["service"] == "custom" and "$.results[*].relevance_score" in json.dumps(settings)
        return ours, settings.get("url")
    meta = body.get("_meta", body.get("metadata", {}))
    return meta.get("made_by") == OURS, meta.get("digest")


def example(store: ElasticStore, installed: Sequence[Piece]) -> str:
    """How to search with what was installed, for Kibana's console."""
    vector = ', "vector": [0.01, …]' if "query_vector" in str([piece.body for piece in installed]) else ""
    params = f'"params": {{"claim": "sea level has risen"{vector}, "filters": [], "size": 10}}'
    asked = []
    for path in (piece.path for piece in installed):
        if "/_scripts/" in path:
            asked.append(f'GET {store.index}/_search/template\n{{"id": "{path.rpartition("/")[2]}", {params}}}')
        elif "/_application/" in path:
            asked.append(f"POST {path[1:]}/_search\n{{{params}}}")
    return "\n\n".join(asked)
