"""Papers on a topic from OpenAlex, PubMed and Europe PMC, through their public APIs, into a JSON Lines file.

The APIs: docs.openalex.org (works, cursor paging), ncbi.nlm.nih.gov/books/NBK25501 (E-utilities: esearch with history,
efetch), europepmc.org/RestfulWebService (search, cursorMark). The file's lines are what the service says about a paper,
or of PubMed's XML the plain record (see `fields.py`). A file that is not complete has another beside it,
.FILE.state.json (hidden, so that nobody ingests it), from which the next run continues.
"""

from __future__ import annotations

import io
import json
import logging
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import httpx

from ..core.closing import Closing
from ..core.errors import InvalidData, NotFound, ServerError, UsageError
from ..core.files import check_output, write_text
from ..core.http import BUSY, Body, MayPass, pause, retry_after
from ..core.text import json_line
from .fields import field_of
from .records import Record
from .references import read_pubmed
from .sources import Source

Service: TypeAlias = Literal["openalex", "pubmed", "europepmc"]
SERVICES: tuple[Service, ...] = get_args(Service)
PAGE = 200
PUBMED_MOST = 9_999
"""NCBI does not hand out more of one search."""
ANSWER_BYTES = 128 << 20
ANSWER_SECONDS = 600.0
"""How long one answer may take: without a limit, a server that sends a byte now and then is waited for as long as it
likes."""
TRIES, LONGEST_WAIT = 5, 60.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class State:
    """How far a fetch is: `bytes` of the file hold `records` papers, and `cursor` leads to the next page."""

    service: Service
    topic: str
    cursor: str
    records: int = 0
    bytes: int = 0
    total: int | None = None
    done: bool = False


def fetch(
    client: Client,
    topic: str,
    file: Path,
    limit: int = 1_000,
    on_progress: Callable[[State], None] = lambda state: None,
) -> State:
    """Write up to `limit` papers on a topic to a file, or continue one that was interrupted.

    Raises NotFound if there are none, UsageError for a file that is there and not of this fetch, ServerError where the
    service fails, InvalidData for an answer of another shape; what was fetched until then stays.
    """
    state = _begun(client.service, topic, check_output(file, "the papers"))
    page = _SERVICES[client.service].page
    while not state.done and state.records < limit:
        try:
            papers, cursor, total = page(client, topic, state, min(PAGE, limit - state.records))
        except ServerError as error:
            kept = f"{state.records:,} papers are in {file}: run the same command again to continue"
            raise ServerError(f"{error}. {kept if state.records else 'Nothing was fetched'}") from error
        if not papers and not cursor and not state.records:
            raise NotFound(f"{client.service} found no papers on {topic!r}. Try fewer or other words")
        papers = papers[: limit - state.records]
        with file.open("r+b" if state.bytes else "wb") as stream:
            stream.truncate(state.bytes)
            stream.seek(state.bytes)
            stream.write("".join(json_line(paper) for paper in papers).encode())
            stream.flush()
            os.fsync(stream.fileno())
            size = stream.tell()
        records = state.records + len(papers)
        state = replace(state, cursor=cursor or "", records=records, bytes=size, total=total, done=not cursor)
        write_text(_state_file(file), json.dumps(asdict(state)), "the state of the fetch")
        on_progress(state)
    if state.done:
        _state_file(file).unlink(missing_ok=True)
    return state


def _state_file(file: Path) -> Path:
    return file.with_name(f".{file.name}.state.json")


def _begun(service: Service, topic: str, file: Path) -> State:
    """The state of an earlier run of the same fetch, or that at the beginning."""
    first = State(service, topic, "0" if service == "pubmed" else "*")
    known = _state_file(file)
    if not known.exists():
        if file.exists() and file.stat().st_size:
            raise UsageError(f"{file} exists already. Name another file with --output, or remove it")
        return first
    try:
        state = State(**json.loads(known.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise UsageError(f"{known} can't be read. Remove it and {file} to fetch from the start") from error
    if (state.service, state.topic) != (service, topic):
        raise UsageError(f"{file} has papers on {state.topic!r} from {state.service}. Name another file with --output")
    if not file.exists() or file.stat().st_size < state.bytes:
        raise UsageError(f"{file} is shorter than {known} says. Remove both to fetch from the start")
    return state


class Client(Closing):
    """Asks a service, not too often, and again if it is busy."""

    def __init__(
        self,
        service: Service,
        server: str | None = None,
        email: str | None = None,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        """`server` is asked instead of the service. Raises UsageError if it is no web address."""
        known = _SERVICES[service]
        base = (server or known.base).rstrip("/")
        if not base.startswith(("http://", "https://")):
            raise UsageError(f"{base}: the server must begin with http:// or https://")
        self.service, self.base, self._pause, self._wait = service, base, known.pause, wait
        self._last = 0.0
        key = os.environ.get(known.key, "") if server is None else ""
        self._own = {"api_key": key} if key else {}
        if email:
            self._own |= {"mailto": email} if service == "openalex" else {"email": email, "tool": "ccheck"}
        agent = "ccheck/0.1" + (f" (mailto:{email})" if email else "")
        self._client = httpx.Client(headers={"user-agent": agent}, timeout=60, follow_redirects=False)

    def close(self) -> None:
        self._client.close()

    def json(self, path: str, parameters: Mapping[str, str | int]) -> Mapping[str, Any]:
        data = self.get(path, parameters)
        try:
            answer = json.loads(data)
        except ValueError as error:
            raise InvalidData(f"{self.base} did not answer with JSON") from error
        if not isinstance(answer, dict):
            raise InvalidData(f"{self.base} answered with JSON that is not an object")
        return answer

    def get(self, path: str, parameters: Mapping[str, str | int]) -> bytes:
        attempt = 0
        while True:
            attempt += 1
            rest = self._pause - (time.monotonic() - self._last)
            if rest > 0:
                self._wait(rest)
            try:
                return self._once(f"{self.base}{path}", parameters)
            except MayPass as error:
                if attempt == TRIES:
                    raise ServerError(f"{self.base} can't be reached ({error})") from error
                seconds = min(LONGEST_WAIT, pause(attempt, error.retry_after, first=1, longest=LONGEST_WAIT))
                _log.warning("%s is busy or not answering (%s); trying again in %.0f s", self.base, error, seconds)
                self._wait(seconds)
            finally:
                self._last = time.monotonic()

    def _once(self, url: str, parameters: Mapping[str, str | int]) -> bytes:
        try:
            with self._client.stream("GET", url, params={**parameters, **self._own}) as answer:
                if answer.status_code in BUSY or answer.status_code == 500:
                    raise MayPass(f"HTTP {answer.status_code}", retry_after(answer.headers))
                if answer.status_code != 200:
                    raise ServerError(f"{url} answered with HTTP {answer.status_code}")
                body, ends = Body(self.base, 200, ANSWER_BYTES), time.monotonic() + ANSWER_SECONDS
                for piece in answer.iter_bytes():
                    body.add(piece)
                    if time.monotonic() > ends:
                        raise MayPass(f"no whole answer within {ANSWER_SECONDS:g} s")
                return bytes(body.data)
        except httpx.HTTPError as error:
            raise MayPass(f"{type(error).__name__}: {error}".removesuffix(": ")) from error


_Page: TypeAlias = "tuple[list[dict[str, Any]], str | None, int | None]"


def _openalex(client: Client, topic: str, state: State, count: int) -> _Page:
    answer = client.json("/works", {"search": topic, "per-page": count, "cursor": state.cursor})
    found = _records(client, answer.get("results"))
    return found, field_of(answer, "meta.next_cursor") if found else None, field_of(answer, "meta.count")


def _europe_pmc(client: Client, topic: str, state: State, count: int) -> _Page:
    parameters: dict[str, str | int] = {"query": topic, "format": "json", "resultType": "core"}
    parameters |= {"pageSize": count, "cursorMark": state.cursor}
    answer = client.json("/webservices/rest/search", parameters)
    found = _records(client, field_of(answer, "resultList.result"))
    cursor = answer.get("nextCursorMark")
    return found, cursor if found and cursor != state.cursor else None, answer.get("hitCount")


def _pubmed(client: Client, topic: str, state: State, count: int) -> _Page:
    start = int(state.cursor)
    asked: dict[str, str | int] = {"db": "pubmed", "term": topic, "retmode": "json", "retstart": start}
    asked["retmax"] = min(count, PUBMED_MOST - start)
    result = client.json("/entrez/eutils/esearch.fcgi", {**asked, "sort": "relevance"}).get("esearchresult")
    if not isinstance(result, dict) or not isinstance(result.get("idlist"), list):
        raise InvalidData(f"{client.base} gave no list of ids: {str(result)[:200]}")
    ids, total = [str(one) for one in result["idlist"]], int(result.get("count") or 0)
    if not ids:
        return [], None, total
    xml = client.get("/entrez/eutils/efetch.fcgi", {"db": "pubmed", "id": ",".join(ids), "retmode": "xml"})
    read = list(read_pubmed(Source("PubMed", None, "xml"), io.BytesIO(xml)))
    papers = [one.data for one in read if isinstance(one, Record)]
    if len(papers) < len(read):
        raise InvalidData(f"{client.base} sent XML that can't be read")
    after = start + len(ids)
    return papers, str(after) if after < min(total, PUBMED_MOST) else None, total


def _records(client: Client, found: Any) -> list[dict[str, Any]]:
    if not isinstance(found, list):
        raise InvalidData(f"{client.base} gave no list of papers")
    return [one for one in found if isinstance(one, dict)]


@dataclass(frozen=True, slots=True)
class _Service:
    """Where a service is, and how it is asked for a page.

    `key`: the environment variable with a key, which only raises what the service allows, and goes to it alone.
    `pause`: the seconds between requests; OpenAlex allows 10 a second, NCBI 3 without a key.
    """

    base: str
    key: str
    pause: float
    page: Callable[[Client, str, State, int], _Page]


_SERVICES: Mapping[Service, _Service] = {
    "openalex": _Service("https://api.openalex.org", "OPENALEX_API_KEY", 0.11, _openalex),
    "pubmed": _Service("https://eutils.ncbi.nlm.nih.gov", "NCBI_API_KEY", 0.35, _pubmed),
    "europepmc": _Service("https://www.ebi.ac.uk/europepmc", "", 0.2, _europe_pmc),
}
