"""A reranker on a server: ccheck's own, TEI, Cohere, Jina, vLLM, or another with the API of one of these.

The path of the URL selects the API; for other paths the server is asked:

| path of the URL | request |
| --- | --- |
| `…/v1/rerank`, `…/v2/rerank`, `…/v1`, `…/v2` | Cohere's: `query`, `documents` |
| any other: `…/rerank`, the server's root | TEI's (`query`, `texts`) if `/info` answers like TEI's, else Cohere's |

For Cohere's API at the root, the path is `/v1/rerank`.
"""

from __future__ import annotations

import contextlib
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import httpx
import orjson
from more_itertools import chunked
from pydantic import AliasChoices, BaseModel, Field, TypeAdapter, ValidationError

from .. import __version__
from ..core import event_loop
from ..core.errors import ServerError, UsageError, misfits
from ..core.http import (
    BUSY,
    Fetched,
    LeftAlone,
    MayPass,
    Patience,
    fetch,
    is_lasting,
    open_client,
    redirected,
    retry_after,
    why_unreachable,
)
from ..core.redaction import keep_secret, keep_secrets_of, redact
from .server.dialects import CUT
from .tokens import well_formed
from .types import Scores, WrongKey, refuse_equal

MOST_TEXTS = 1000
"""Texts in a request to a server that names no limit: Cohere's advice, and what ccheck's own takes."""
FEWER = "choose a smaller depth (--rerank-depth, or depth in the recipe)"
ASKED_SECONDS = 5.0
MOST_BYTES = 64 << 20
"""Largest answer."""
COMPARED_CHARACTERS = 1000
"""Passages that differ only after this may be the same to a model that cuts them."""
_LOST = (httpx.ConnectError, httpx.ConnectTimeout, httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError)


class _Item(BaseModel):
    """TEI's, or Cohere's."""

    index: Annotated[int, Field(ge=0, strict=True)]
    score: float = Field(validation_alias=AliasChoices("score", "relevance_score"), allow_inf_nan=False)


class _Cohere(BaseModel):
    results: list[_Item]


class _Info(BaseModel):
    model_id: str
    max_client_batch_size: int | None = Field(None, ge=1)


_TEI: TypeAdapter[list[_Item]] = TypeAdapter(list[_Item])


@dataclass(frozen=True, slots=True)
class _Route:
    """Where and with whose API (TEI's, or Cohere's) the server is asked, and the most texts that it takes at once."""

    tei: bool
    url: httpx.URL
    limit: int = MOST_TEXTS


class _Lost(MayPass):
    """No connection came about, or it ended before the answer."""


class _Slow(ServerError):
    """No answer within the timeout."""


class RemoteReranker:
    """Scores passages on a server. Safe to use from several threads.

    What was waited for in vain is left alone for as long as that took, since the next query would wait anew. A timeout
    counts if it is the second in a row: one query can be too large.
    """

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        timeout: float = 60,
        retry_seconds: float = 30,
        notify: Callable[[str], None] = lambda message: None,
    ) -> None:
        """Connects to nothing yet. `?model=` of the URL picks one of a server that has several.

        `timeout` is for one request, `retry_seconds` for waiting for a server that is busy or gone. A server that never
        answered is given up sooner. `notify` is called once when the wait begins. Raises UsageError for an invalid URL
        and for a missing file of CA certificates.
        """
        try:
            parsed = httpx.URL(url)
        except httpx.InvalidURL as error:
            raise UsageError(f"{url!r} is not the URL of a reranking server: {error}") from error
        if parsed.scheme not in ("http", "https") or not parsed.host:
            raise UsageError(f"{url!r} is not the URL of a reranking server (example: http://127.0.0.1:8080)")
        self.notice: str | None = None
        """A warning for the user about the connection."""
        self.model: str | None = None
        """What the server says that it serves, as soon as it was asked and if it says so."""
        keep_secret(api_key)
        keep_secrets_of(url)
        self._model = parsed.params.get("model")
        self._url = parsed.copy_remove_param("model").copy_with(fragment=None)
        if not self._url.query:
            self._url = self._url.copy_with(query=None)
        name = str(self._url.copy_with(username=None, password=None, query=None)).rstrip("/")
        self.name = redact(f"{name}?model={self._model}" if self._model else name)
        self._timeout, self._patience = timeout, Patience(retry_seconds, notify)
        self._client = open_client(api_key, {"User-Agent": f"ccheck/{__version__}"})
        # Nobody has to close it: its connections end with it.
        self.close = weakref.finalize(self, _close, self._client)
        self._found = threading.Lock()
        self._route: _Route | None = None
        self._error: ServerError | None = None
        self._left_alone = LeftAlone(2)

    def __call__(self, query: str, passages: Sequence[str]) -> Scores:
        """One score for each passage, in as many requests as the server's limit makes necessary.

        Raises ServerError if the server refuses (WrongKey: the key), fails, is gone for longer than `retry_seconds`, or
        gives an invalid answer; InvalidData if different passages all have the same score.
        """
        if not passages:
            return Scores((), ())
        with self._found:
            route = self._route = self._route or self._find_out()
        values: list[float] = []
        cut: list[bool] = []
        for piece in chunked(passages, route.limit):
            answer = self._ask(route, query, piece)
            if answer.status != 200:
                raise self._refused(answer)
            values += self._values(route, answer, len(piece))
            # Where the server says so: ccheck's own does.
            said = set(answer.headers.get(CUT, "").split(","))
            cut += (str(i) in said for i in range(len(piece)))
        refuse_equal(self.name, (passage[:COMPARED_CHARACTERS] for passage in passages), values)
        # A value outside 0..1 is a logit: some servers can be configured to leave the sigmoid out.
        logits = route.tei or not all(0 <= value <= 1 for value in values)
        return Scores(tuple(values), tuple(cut), logits)

    def _find_out(self) -> _Route:
        """How this server is asked."""
        path = self._url.path.rstrip("/")
        if path.endswith(("/v1", "/v2")):
            return _Route(False, self._url.copy_with(path=f"{path}/rerank"))
        if path.endswith(("/v1/rerank", "/v2/rerank")):
            return _Route(False, self._url)
        root = path.removesuffix("/rerank")
        seconds = min(self._timeout, ASKED_SECONDS)
        answer = self._retrying(self._url.copy_with(path=f"{root}/info"), None, seconds)
        if answer.status in (401, 403):
            raise self._refused(answer)
        if answer.status == 200:
            with contextlib.suppress(ValidationError):  # not TEI's
                info = _Info.model_validate_json(answer.content)
                self.model = info.model_id
                return _Route(
                    True, self._url.copy_with(path=f"{root}/rerank"), info.max_client_batch_size or MOST_TEXTS
                )
        return _Route(False, self._url if path.endswith("/rerank") else self._url.copy_with(path=f"{root}/v1/rerank"))

    def _ask(self, route: _Route, query: str, passages: Sequence[str]) -> Fetched:
        query, texts = well_formed(query), [well_formed(passage) for passage in passages]
        body: dict[str, Any] = (
            {"query": query, "texts": texts, "raw_scores": True, "truncate": True}
            if route.tei
            else {"query": query, "documents": texts, "top_n": len(texts), "return_documents": False}
        )
        if self._model:
            body["model"] = self._model
        return self._retrying(route.url, body, self._timeout)

    def _values(self, route: _Route, answer: Fetched, count: int) -> list[float]:
        """The scores by index. Raises ServerError for an answer that is not one score for each text."""
        try:
            read = answer.content
            items = _TEI.validate_json(read) if route.tei else _Cohere.model_validate_json(read).results
        except ValidationError as error:
            what = misfits(error, "the answer")[0]
            raise ServerError(
                f"{self.name} did not return a ranking: {what}. Is it a reranking server? The path of the URL selects "
                "the API: /rerank, /v1/rerank or /v2/rerank"
            ) from error
        scores = {item.index: item.score for item in items}
        if len(items) != count or sorted(scores) != list(range(count)):
            raise ServerError(f"{self.name} returned {len(items)} scores for {count} passages, not one for each")
        return [scores[index] for index in range(count)]

    def _retrying(self, url: httpx.URL, body: dict[str, Any] | None, timeout: float) -> Fetched:
        """The answer of a server that may be busy, or gone for a while. Raises ServerError."""
        if self._left_alone and self._error is not None:
            raise type(self._error)(str(self._error))
        started = time.monotonic()
        try:
            answer = event_loop.run(self._patience.retry(lambda: self._request(url, body, timeout)))
        except ServerError as error:
            if isinstance(error, _Lost):
                self._patience.reached = False  # it was waited for once: the next query need not wait as long
            self._left_alone.failed(time.monotonic() - started, 2 if isinstance(error, MayPass) else 1)
            self._error = error
            raise
        self._left_alone.failures = 0
        return answer

    async def _request(self, url: httpx.URL, body: dict[str, Any] | None, timeout: float) -> Fetched:
        """One request, whose whole answer has to come within the timeout. Raises MayPass or ServerError."""
        try:
            answer = await fetch(self._client, self.name, url, body, timeout, MOST_BYTES)
        except (TimeoutError, httpx.HTTPError) as error:
            raise self._failed(error, timeout) from error
        self._patience.reached = True
        if (away := redirected(self.name, answer.status, answer.headers)) is not None:
            raise ServerError(away)
        if answer.status in BUSY:
            raise MayPass(str(self._refused(answer)), retry_after(answer.headers))
        return answer

    def _failed(self, error: Exception, timeout: float) -> ServerError:
        """The error for a request without an answer: MayPass where it may be made again."""
        if isinstance(error, TimeoutError | httpx.TimeoutException) and not isinstance(error, _LOST):
            return _Slow(
                f"{self.name} did not answer within {timeout:g} s: {FEWER}, or allow more time with "
                "CCHECK_RERANK_TIMEOUT"
            )
        said = f"{self.name} can't be reached: {why_unreachable(error)}. Is it running, and the URL right?"
        return _Lost(said) if isinstance(error, _LOST) and not is_lasting(error) else ServerError(said)

    def _refused(self, answer: Fetched) -> ServerError:
        what_to_do = {
            401: ": set the key in CCHECK_RERANK_API_KEY",
            403: ": does the key in CCHECK_RERANK_API_KEY allow this?",
            404: ": check the URL and the model's name (?model=NAME at its end)",
            413: f": {FEWER}",
            422: f": if these were too many texts at once, {FEWER}",
            429: ": it is busy, try again later",
        }.get(answer.status, "")
        if answer.status in (401, 403) and self.notice is not None:
            what_to_do = f": {self.notice}"
        said = f"{self.name} refused ({answer.status}): {_reason(answer.content)}{what_to_do}"
        return WrongKey(said) if answer.status in (401, 403) else ServerError(said)


def _close(client: httpx.AsyncClient) -> None:
    event_loop.submit(client.aclose())


def _reason(content: bytes) -> str:
    """The reason in an error's body, in whichever dialect: its first line, at most 300 characters."""
    try:
        data: Any = orjson.loads(content)
    except orjson.JSONDecodeError:
        data = content.decode("utf-8", "replace")
    while isinstance(data, dict):
        data = next((data[key] for key in ("error", "message", "detail") if data.get(key)), str(data))
    return redact(str(data)).strip().partition("\n")[0][:300] or "it gives no reason"
