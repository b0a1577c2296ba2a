"""The record of checks in an index of its own on Elasticsearch, with flat fields for Kibana (`ccheck-checks.json`).

The index is `ccheck-checks-STORE-000001` behind the alias `ccheck-checks-STORE`. A check's id is the document's, so
that whatever is sent twice is there once. Writes go through the alias, and the server refuses them if that is gone
(`require_alias`): nothing of others is ever written to, and no index comes into being by a write.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import socket
from collections import Counter
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any
from urllib.parse import quote

from .. import es_mappings
from ..core.citation import citation_of
from ..core.errors import InvalidData, NotFound, ServerError
from ..core.redaction import without_secrets
from ..core.settings import Settings
from ..core.types import Document
from ..llm.budget import price_of
from ..search.elastic import ElasticStore, bound
from ..search.elastic.errors import AlreadyExists, Denied, part_error
from ..search.elastic.ownership import RECORD
from .record import kept_check, missing, permalink, stored, text_of, within_limit
from .types import Check, Correction, Wanted

PREFIX = "ccheck-checks-"
FORMAT = 1
FORGOTTEN_AT_ONCE = 10_000
"""How many old checks one call of `forget` removes at most. The next process goes on."""
FILE = "file"
"""The status of a document that records a file of claims, and not a check."""
_WRITE = {"require_alias": "true", "timeout": "10s"}
"""The server waits so long for a shard that is gone, instead of a minute; the client says whether to try again."""
log = logging.getLogger(__name__)
TRIES = 20
"""How often a correction is tried while others write to the same check."""


def record_alias(index: str) -> str:
    """The alias of the record of a store's checks."""
    return PREFIX + re.sub(r"[^a-z0-9._-]+", "-", index.lower()).strip("-.")


class ElasticRecord:
    """See `FileRecord`. For any number of threads and processes. It uses the store's connection."""

    def __init__(self, store: ElasticStore, settings: Settings) -> None:
        """Asks the server nothing yet."""
        self._client, self._settings = store.client, settings
        self._alias = record_alias(store.index)
        self.name = f"{self._client.connection.url}/{self._alias}"
        self._there = False
        self._left_out: set[str] = set()
        """Fields that the index lacks, because an older version made it."""

    def put(self, check: Check) -> Check:
        text = within_limit(text_of(stored(check)))
        self._prepare()
        fields = self._fields(check, text)
        body = {"doc": fields, "doc_as_upsert": True}
        params = _WRITE | {"retry_on_conflict": "10", "_source": "corrections"}
        try:
            answer = self._request("POST", f"_update/{check.id}", body, params)
        except NotFound:  # somebody removed it
            self._there = False
            self._prepare()
            answer = self._request("POST", f"_update/{check.id}", body, params)
        with self._client.understanding():
            return _check(fields | answer["get"].get("_source", {}))

    def get(self, ids: Sequence[str]) -> dict[str, Check]:
        if not ids or not self._exists():
            return {}
        answer = self._request("POST", "_mget", {"ids": list(dict.fromkeys(ids))}, {"_source": "data,corrections"})
        with self._client.understanding():
            return {one["_id"]: _check(one["_source"]) for one in answer["docs"] if one.get("found")}

    def list(self, wanted: Wanted) -> list[Check]:
        if not self._exists():
            return []
        conditions: list[dict[str, Any]] = [{"exists": {"field": "@timestamp"}}]  # which files have not
        if wanted.search:
            conditions.append({"match": {"claim": {"query": wanted.search, "operator": "and"}}})
        if wanted.label is not None:
            conditions.append({"term": {"verdict": wanted.label}})
        if wanted.corrected:
            conditions.append({"term": {"corrected": True}})
        if wanted.ids is not None:
            conditions.append({"ids": {"values": list(wanted.ids)}})
        if wanted.before is not None:
            then = [{"term": {"@timestamp": wanted.before}}, {"range": {"id": {"gt": wanted.after}}}]
            earlier = {"range": {"@timestamp": {"lt": wanted.before}}}
            conditions.append({"bool": {"should": [earlier, {"bool": {"filter": then}}]}})
        body = {
            "query": {"bool": {"filter": conditions}},
            "sort": [{"@timestamp": "desc"}, {"id": "asc"}],
            "size": wanted.limit,
            "_source": ["data", "corrections"],
        }
        with contextlib.suppress(Denied):  # then the checks of the last second are listed a second later
            self._request("POST", "_refresh")
        answer = self._client.search(self._alias, body)
        with self._client.understanding():
            return [_check(hit["_source"]) for hit in answer["hits"]["hits"]]

    def correct(self, correction: Correction) -> None:
        added = json.loads(text_of(correction.to_dict()))
        for _ in range(TRIES):
            document = self._document(correction.check)
            with self._client.understanding():
                if not document.get("found"):
                    raise missing(correction.check)
                kept = document["_source"].get("corrections", [])
                body = {"doc": {"corrections": [*kept, added], "corrected": True}}
                params = _WRITE | {"if_seq_no": document["_seq_no"]}
                params |= {"if_primary_term": document["_primary_term"]}
            if added in kept:  # an earlier try was heard, and its answer lost
                return
            try:
                self._request("POST", f"_update/{correction.check}", body, params)
                return
            except InvalidData as error:
                if "version_conflict" not in str(error):
                    raise
        raise ServerError(f"others keep writing to the check {correction.check}. Try again")

    def put_file(self, id_: str, text: str) -> None:
        self._prepare()
        body = {"id": id_, "status": FILE, "data": within_limit(text)}
        self._request("PUT", f"_doc/{quote(id_)}", body, _WRITE)

    def file(self, id_: str) -> str | None:
        found = self._document(id_)
        with self._client.understanding():
            return found["_source"]["data"] if found.get("found") else None

    def forget(self, before: str) -> int:
        if not self._exists():
            return 0
        old_file = [{"term": {"status": FILE}}, {"range": {"id": {"lt": before}}}]
        old = [{"range": {"@timestamp": {"lt": before}}}, {"bool": {"filter": old_file}}]
        query = {"should": old, "minimum_should_match": 1, "must_not": [{"term": {"corrected": True}}]}
        body = {"query": {"bool": query}, "size": FORGOTTEN_AT_ONCE, "_source": False, "seq_no_primary_term": True}
        found = self._client.search(self._alias, body)
        with self._client.understanding():
            # What somebody corrects meanwhile has another number by then, and stays.
            lines = [
                json.dumps({"delete": {"_id": id_, "if_seq_no": number, "if_primary_term": term}})
                for id_, number, term in map(itemgetter("_id", "_seq_no", "_primary_term"), found["hits"]["hits"])
            ]
        if not lines:
            return 0
        answer = self._client.on_index("POST", self._alias, "_bulk", "".join(f"{line}\n" for line in lines).encode())
        with self._client.understanding():
            return sum(one["delete"]["status"] == 200 for one in answer["items"])

    def refuse_unwritable(self) -> None:
        """Raises InvalidData if the index takes no checks."""
        described = self._client.on_index("GET", self._alias) if self._exists() else {}
        for index, one in described.items():
            if blocks := bound.blocks(one):
                raise InvalidData(f"{self.name} takes no checks: {index} has {', '.join(blocks)}")

    def close(self) -> None:
        """Nothing: the connection is the store's."""

    # -- inside

    def _request(
        self, method: str, action: str, body: Mapping[str, Any] | None = None, params: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        # An answer waits until it is kept, and need not wait for room on a disk.
        answer = self._client.on_index(method, self._alias, action, body, params=params, full=False)
        for one in answer.get("docs", ()):
            if "error" in one:
                raise part_error(one, self._client.connection, self._alias)
        return answer

    def _document(self, id_: str) -> dict[str, Any]:
        """What the server says of a document as it was last written; nothing without a record."""
        answer = self._request("POST", "_mget", {"ids": [id_]}) if self._exists() else {"docs": [{}]}
        with self._client.understanding():
            (found,) = answer["docs"]
            return dict(found)

    def _exists(self) -> bool:
        """Whether the record is there. Raises InvalidData for an index of that name that is not a record."""
        if self._there:
            return True
        try:
            described = self._client.on_index("GET", self._alias)
        except NotFound:
            return False
        properties = _template()["mappings"]["properties"]
        with self._client.understanding():
            for index, one in described.items():
                made = one.get("mappings", {}).get("_meta", {}).get(RECORD, {})
                if made.get("format") != FORMAT or self._alias not in one.get("aliases", {}):
                    raise InvalidData(
                        f"{index} on {self._client.connection.url} is not a record of checks of this version of ccheck"
                        ", which writes to no other index. Rename it, or use --no-record"
                    )
                self._left_out = properties.keys() - one["mappings"]["properties"].keys()
        self._there = True
        return True

    def _prepare(self) -> None:
        """Make the index (the first process to ask does), or give it fields that it lacks."""
        if self._exists():
            if self._left_out:
                fields = {name: _template()["mappings"]["properties"][name] for name in self._left_out}
                with contextlib.suppress(Denied):  # then checks are kept without them
                    self._request("PUT", "_mapping", {"properties": fields})
                    self._left_out = set()
            return
        body = {**_template(), "aliases": {self._alias: {"is_write_index": True}}}
        with contextlib.suppress(AlreadyExists):
            self._client.request("PUT", f"/{quote(self._alias)}-000001", body, index=self._alias)
            log.warning("checks are kept in the new index %s-000001", self.name)
        if not self._exists():
            raise InvalidData(f"{self._alias}-000001 is there, but not its alias {self._alias}. Add the alias again")

    def _fields(self, check: Check, text: str) -> dict[str, Any]:
        """The document of a check."""
        result = check.result or {}
        verdict, evidence, usage = check.verdict, result.get("evidence", ()), result.get("usage", {})
        counts = Counter((one["stance"] or {}).get("label") for one in evidence)
        price = price_of(self._settings)
        tokens = usage.get("prompt_tokens", 0), usage.get("completion_tokens", 0)
        fields = {
            "@timestamp": check.created,
            **{name: getattr(check, name) for name in ("id", "claim", "user", "run")},
            **dict(zip(("status", "error", "problem"), check.outcome, strict=True)),
            "verdict": verdict.get("label"),
            **{name: verdict.get(name) for name in ("confidence", "reason", "rationale", "method")},
            "relevance": result.get("relevance"),
            "supports": counts["SUPPORTS"],
            "refutes": counts["REFUTES"],
            "leaves_open": counts["NOT_ENOUGH_INFO"],
            "not_judged": counts[None],
            "documents": list(dict.fromkeys(one["doc_id"] for one in evidence)),
            "evidence": [
                {
                    **{name: one[name] for name in ("rank", "doc_id", "title")},
                    "year": int(citation_of(Document(one["doc_id"], "", "", one["metadata"])).year or 0) or None,
                    "stance": (one["stance"] or {}).get("label"),
                    "confidence": (one["stance"] or {}).get("confidence"),
                }
                for one in evidence
            ],
            **{name: value for name, value in check.settings.items() if name != "key"},
            "llm_calls": usage.get("llm_calls", 0),
            "prompt_tokens": tokens[0],
            "completion_tokens": tokens[1],
            "cost": None if price is None else price.of(*tokens),
            "prompt_price": self._settings.llm_prompt_price,
            "completion_price": self._settings.llm_completion_price,
            "currency": self._settings.llm_currency,
            "timings_ms": result.get("timings_ms", {}),
            "milliseconds": sum(result.get("timings_ms", {}).values()),
            "host": socket.gethostname(),
            "permalink": permalink(self._settings, check.id),
        }
        kept = {name: value for name, value in fields.items() if name not in self._left_out}
        return {**json.loads(without_secrets(json.dumps(kept))), "data": text}


def _template() -> dict[str, Any]:
    """The settings and mappings of a new record."""
    template: dict[str, Any] = es_mappings.read("ccheck-checks")["template"]
    return template


def _check(source: Mapping[str, Any]) -> Check:
    return kept_check(source["data"], [json.dumps(one) for one in source.get("corrections", ())])
