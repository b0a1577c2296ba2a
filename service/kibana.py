"""A dashboard and a data view of the record of checks, through Kibana's own APIs (dashboards as code: Kibana 9.5).

`es_mappings/kibana-dashboard.json` has the dashboard, whose panels are ES|QL over the record's index. What ccheck put
into Kibana says so in its description or name, so that what others made under the same ids is neither changed nor
removed.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote

import httpx

from .. import es_mappings
from ..core.errors import InvalidData, NotFound, ServerError, UsageError
from ..core.redaction import http_parts, redact
from ..search.elastic.client import Client
from ..search.elastic.install import State
from .record_elastic import record_alias

SECONDS = 30
MARK: Final = "made by ccheck kibana install"
_SPACE = re.compile(r"[a-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class Kibana:
    """Where Kibana is. A key is an Elasticsearch API key with Kibana's privileges."""

    url: str
    space: str = ""
    key: str | None = field(default=None, repr=False)

    def request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any] | None:
        """The answer; None for 404. Raises UsageError for a bad URL or space, ServerError for what Kibana refuses."""
        if http_parts(self.url) is None or (self.space and not _SPACE.fullmatch(self.space)):
            raise UsageError(
                "Kibana's URL is like https://kibana:5601, and a space's name is lowercase letters and digits"
            )
        where = self.url.rstrip("/") + (f"/s/{self.space}" if self.space else "") + path
        headers = {"kbn-xsrf": "ccheck"} | ({"Authorization": f"ApiKey {self.key}"} if self.key else {})
        try:
            answer = httpx.request(method, where, json=body, headers=headers, timeout=SECONDS)
        except httpx.InvalidURL as error:
            raise UsageError(f"Kibana's URL {redact(self.url)} is not an address: {error}") from error
        except httpx.HTTPError as error:
            raise ServerError(f"Kibana at {redact(self.url)} does not answer: {redact(str(error))}") from error
        if answer.status_code == httpx.codes.NOT_FOUND:
            return None
        if not answer.is_success:
            hint = ". Set KIBANA_API_KEY" if answer.status_code in (401, 403) else ""
            said = f"it leads to {answer.headers['location']}" if answer.has_redirect_location else answer.text[:300]
            raise ServerError(f"Kibana refuses {method} {path} ({answer.status_code}): {redact(said)}{hint}")
        try:
            found = answer.json() if answer.content else {}
        except ValueError as error:
            raise ServerError(f"{redact(self.url)} does not answer as Kibana does. Is this its address?") from error
        return found if isinstance(found, dict) else {}

    def require_space(self) -> None:
        """Raises NotFound without Kibana or the space. Nothing that is looked for would be found there."""
        name = self.space or "default"
        if (self.request("GET", f"/api/spaces/space/{name}") or {}).get("id") != name:
            raise NotFound(f"Kibana at {redact(self.url)} has no space {name!r}, or this is not Kibana's address")


@dataclass(frozen=True, slots=True)
class Saved:
    """A saved object: its path, the request that puts it there, and what it says of itself there."""

    what: str
    path: str
    method: str
    sent_to: str
    body: Mapping[str, Any] = field(repr=False)


def objects(store: str) -> list[Saved]:
    """The dashboard and the data view of a store's record, in the order to put them there: only Kibana 9.5 takes the
    first."""
    index = record_alias(store)
    name = f"ccheck-{store}"
    view = {"id": name, "title": index, "name": f"{index} ({MARK})", "timeFieldName": "@timestamp"}
    text = json.dumps(es_mappings.read("kibana-dashboard")).replace("ccheck-checks-STORE", index)
    dashboard: dict[str, Any] = json.loads(text.replace("STORE", store))
    path = f"/api/data_views/data_view/{quote(name)}"
    saved = Saved("data view", path, "POST", "/api/data_views/data_view", {"data_view": view, "override": True})
    path = f"/api/dashboards/{quote(name)}"
    digest = hashlib.sha256(json.dumps(dashboard, sort_keys=True).encode()).hexdigest()[:12]
    described = dashboard | {"description": f"{dashboard['description']} ({MARK}, {digest})"}
    return [Saved("dashboard", path, "PUT", path, described), saved]


def require_record(client: Client, store: str) -> None:
    """Raises NotFound without a record, for which every panel would show an error."""
    index = record_alias(store)
    try:
        client.on_index("GET", index)
    except NotFound:
        raise NotFound(
            f"there is no record of checks {index} yet. Check a claim first: ccheck query CLAIM --store …"
        ) from None


def state(kibana: Kibana, saved: Saved) -> State:
    """How Kibana differs. Raises InvalidData if somebody else made what is there."""
    there = kibana.request("GET", saved.path)
    if there is None:
        return "new"
    said = json.dumps(there)
    if MARK not in said:
        raise InvalidData(f"the {saved.what} {saved.path} in Kibana was not made by ccheck, and stays as it is")
    # Of a data view all that counts is in its name; a dashboard's description has the digest of what was sent.
    mark = saved.body["description"] if saved.what == "dashboard" else saved.body["data_view"]["name"]
    return "same" if json.dumps(mark)[1:-1] in said else "changed"


def put(kibana: Kibana, saved: Sequence[Saved]) -> None:
    for one in saved:
        if kibana.request(one.method, one.sent_to, one.body) is None:
            raise ServerError(f"Kibana at {redact(kibana.url)} has no {one.sent_to}. Dashboards need Kibana 9.5")


def remove(kibana: Kibana, saved: Sequence[Saved]) -> None:
    for one in reversed(saved):
        kibana.request("DELETE", one.path)
