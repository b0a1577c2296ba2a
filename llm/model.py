"""A language model behind an OpenAI-compatible server, asked for answers of a given shape.

The server gets the JSON schema of the reply, and the reply is validated in any case. If it is invalid, the question is
asked once more, with what was wrong; a second invalid reply is an error of that question.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from ..core import event_loop
from ..core.cache import Cache, memory_key
from ..core.errors import CcheckError, ServerError, UsageError
from ..core.http import LeftAlone, Patience
from ..core.keys import Key, key_for
from ..core.redaction import redact
from ..core.runtime import Connection, Runtime
from ..core.types import Usage
from .budget import Budget, open_budget
from .client import CUT_OFF, TOO_LONG, WHOLE, BadRequest, Busy, ChatClient, Completion, dialect_of
from .reply import BadReply, json_schema, parse_reply
from .types import Answer, Failure, InvalidReply, Message, Question, Refused, T, Unreachable, estimate_tokens

_CACHE_BYTES = 256 << 20
"""Beyond it the oldest answers are forgotten."""
_OPENAI = "https://api.openai.com/"
_FORMAT = 2
"""Increase it when this code would get another answer to the same question, so that old answers are forgotten."""
_MAX_HUNG = 3
"""How often ccheck checks, at the cost of a timeout each, whether a server still hangs."""
_LEFT_ALONE = 60.0
"""Seconds after which a server that refused, or hung so often, is asked again: a program can run for months."""
_PATIENCE = "CCHECK_LLM_RETRY_SECONDS"
_QUOTED_REPLY = 4_000
"""Characters of an unusable reply that the model is shown again."""


class LanguageModel(Connection):
    """A model that answers questions. `name` is the server's name for the model.

    Questions are asked `llm_concurrency` at a time, with a fixed seed where the server takes one.
    Close it, or use it in `with`.
    """

    def __init__(self, runtime: Runtime, model: str, client: ChatClient, budget: Budget, cache: Cache) -> None:
        """See `open_llm`."""
        settings, way = runtime.settings, runtime.language_model
        self.name = model
        self.prompts_dir: Path | None = settings.prompts_dir
        self.budget = budget
        self.usage = Usage()
        """The usage of all questions so far, failed ones included."""
        self._client, self._cache = client, cache
        self.most_at_once = settings.llm_concurrency
        """How many questions it asks at a time."""
        own = "llm_max_tokens" in settings.model_fields_set or way.max_tokens is None
        self._max_tokens = settings.llm_max_tokens if own else way.max_tokens or 0
        self._way = way.parameters()
        self._dialect = self._answered_in = dialect_of(client.url)
        self._slots = asyncio.Semaphore(self.most_at_once)
        self._in_flight: WeakValueDictionary[bytes, asyncio.Lock] = WeakValueDictionary()
        self._gone: str | None = None
        self._refused, self._refusing, self._hanging = "", LeftAlone(), LeftAlone(_MAX_HUNG)
        self._probing = asyncio.Lock()
        self._failed_probes = 0
        self.answered = False
        """Whether its server answered anything yet."""
        self._resume_at = 0.0

    @property
    def notice(self) -> str | None:
        """A warning for the user: the key is sent unencrypted, or the cache of answers is unavailable."""
        return "; ".join(filter(None, (self._client.notice, self._cache.notice))) or None

    def ask(
        self, messages: Sequence[Message], reply_schema: type[T], *, check: Callable[[T], object] | None = None
    ) -> Answer[T]:
        """Ask one question.

        Raises InvalidReply after two invalid replies, Refused if the server answers no question, BudgetSpent, and
        ServerError for other failures.
        """
        outcome = event_loop.run(self.answer(Question(tuple(messages), reply_schema, check)))
        if isinstance(outcome, Failure):
            raise outcome.error
        return outcome

    def ask_many(self, questions: Iterable[Question[T]]) -> Iterator[Answer[T] | Failure]:
        """The answer to each question or its failure, in order, each as soon as possible.

        Raises Refused if the server answers no question at all. If it ends early, what was under way is cancelled. What
        was answered is in the cache.
        """
        todo = iter(questions)
        waiting: deque[Future[Answer[T] | Failure]] = deque()
        try:
            while True:
                while len(waiting) < 4 * self.most_at_once and (question := next(todo, None)) is not None:
                    waiting.append(event_loop.submit(self.answer(question)))
                if not waiting:
                    return
                outcome = waiting[0].result()
                waiting.popleft()
                if isinstance(outcome, Failure) and isinstance(outcome.error, Refused) and not self.answered:
                    raise outcome.error
                yield outcome
        finally:
            for future in waiting:
                future.cancel()

    def is_cached(self, question: Question[T]) -> bool:
        """Whether the question would cost nothing."""
        return self._known(question, self._key(question)) is not None

    def close(self) -> None:
        """End the connections. Questions under way fail."""
        event_loop.run(self._client.close())
        self._cache.close()

    # -- in the event loop

    async def answer(self, question: Question[T]) -> Answer[T] | Failure:
        """The answer to one question, for coroutines in `event_loop`. Cancelling it cancels the request."""
        key = self._key(question)
        # The same question at the same time waits for the one answer, and finds it in the cache.
        in_flight = self._in_flight.setdefault(key, asyncio.Lock())
        async with in_flight, self._slots:
            known = self._known(question, key)
            if known is not None:
                self.answered = True
                outcome: Answer[T] | Failure = Answer(known, Usage(cached=1))
            else:
                spent: list[Usage] = []
                try:
                    value, text = await self._converse(question, spent)
                except CcheckError as error:
                    outcome = Failure(error, sum(spent, Usage()))
                else:
                    self._cache.put({key: text.encode("utf-8", "surrogatepass")})
                    outcome = Answer(value, sum(spent, Usage()))
            self.usage += outcome.usage
            return outcome

    async def _converse(self, question: Question[T], spent: list[Usage]) -> tuple[T, str]:
        """The reply and its text. `spent` is filled with the usage of each call."""
        messages = question.messages
        problem = ""
        value: Any = None
        for _ in range(2):
            completion = await self._complete(messages, question, bool(problem))
            spent.append(Usage(1, completion.prompt_tokens, completion.completion_tokens))
            if completion.refused:
                raise InvalidReply(f"{self.name} or its server's content filter refused to answer this question")
            if completion.finish_reason in CUT_OFF:
                raise InvalidReply(
                    f"the answer of {self.name} was cut off after {completion.completion_tokens} tokens: allow more "
                    "with CCHECK_LLM_MAX_TOKENS, or use a model with a longer context"
                )
            if completion.finish_reason not in WHOLE:
                reason = redact(completion.finish_reason or "")[:40]
                given = f"the finish_reason {reason!r}" if reason else "no finish_reason"
                raise InvalidReply(f"the answer of {self.name} may be incomplete: its server gives {given}")
            try:
                return parse_reply(completion.text, question.reply, question.check), completion.text
            except BadReply as error:
                problem, value = redact(str(error)), error.value
            messages = (
                *question.messages,
                {"role": "assistant", "content": completion.text[:_QUOTED_REPLY] or "(nothing)"},
                {"role": "user", "content": f"That reply can't be used: {problem}. Give the whole answer again."},
            )
        raise InvalidReply(f"{self.name} answered twice, and neither reply is valid: {problem}", value)

    async def _complete(self, messages: tuple[Message, ...], question: Question[T], again: bool) -> Completion:
        """One answer, with retries.

        A server that was waited for in vain is not waited for again: one question at a time finds out whether it is
        back, and those that wait for this one share its failure.
        """
        if self._refusing:
            raise Refused(self._refused)
        if self._gone is not None:
            failed = self._failed_probes
            async with self._probing:
                if self._gone is not None:
                    if self._failed_probes > failed or self._hanging:
                        raise Unreachable(self._gone)
                    return await self._probe(messages, question, again)
        started = time.monotonic()
        try:
            return await self._client.patience.retry(lambda: self._request(messages, question, again))
        except Busy as error:
            self._gone = f"{error}; waited for {time.monotonic() - started:.0f} s ({_PATIENCE})"
            raise Unreachable(self._gone) from None
        except Unreachable as error:
            self._gone = str(error)
            raise

    async def _probe(self, messages: tuple[Message, ...], question: Question[T], again: bool) -> Completion:
        """One request to a server that was gone, without retries."""
        try:
            completion = await self._request(messages, question, again)
        except (Busy, Unreachable) as error:
            self._failed_probes += 1
            # It counts if it cost a whole timeout.
            self._hanging.failed(_LEFT_ALONE, int(isinstance(error, Busy) and error.counts))
            self._gone = str(error)
            raise Unreachable(self._gone) from None
        self._gone, self._hanging.failures = None, 0
        return completion

    async def _request(self, messages: tuple[Message, ...], question: Question[T], again: bool) -> Completion:
        """One request, in weaker dialects where the server refuses this one. Raises Busy for what may pass."""
        dialect, schema, named = self._dialect, json_schema(question.reply), True
        while True:
            # A server that asks one question to wait asks all of them.
            while (pause := self._resume_at - time.monotonic()) > 0:
                await asyncio.sleep(pause)
            asked = _with_schema(messages, schema) if again or dialect.format != "json_schema" else messages
            parameters = dialect.parameters(question.reply.__name__, schema, self._limit(question), self._way)
            size = estimate_tokens(asked)
            reserved = await self.budget.reserve(size)
            tokens: tuple[int, int] | None = None
            counts = True  # unless the server did not begin to answer
            try:
                completion = await self._client.complete(self.name, asked, parameters)
                tokens = completion.prompt_tokens, completion.completion_tokens
            except (Refused, Unreachable) as error:
                counts = False
                if isinstance(error, Refused) and not (error.one and self.answered):
                    self._refused = str(error)
                    self._refusing.failed(_LEFT_ALONE)
                raise
            except Busy as error:
                counts = error.counts
                if error.retry_after is not None and error.retry_after <= self._client.patience.longest:
                    self._resume_at = max(self._resume_at, time.monotonic() + error.retry_after)
                raise
            except BadRequest as error:
                counts = False
                weaker = dialect.weaker(error.parameter, error.said)
                if weaker is None:
                    hint = ". CCHECK_LLM_MAX_TOKENS is the answer's limit" if TOO_LONG.search(error.said) else ""
                    raise ServerError(f"{error}{hint}") from None
                dialect, named = weaker[0], named and weaker[1]
                continue
            finally:
                await self.budget.settle(reserved, size, tokens, counts=counts)
            if named or dialect == self._answered_in:  # one question alone may have been refused for what it is
                self._dialect = dialect
            self._answered_in, self.answered, self._refusing.failures = dialect, True, 0
            return completion

    def _known(self, question: Question[T], key: bytes) -> T | None:
        found = self._cache.get([key]).get(key)
        if found is None:
            return None
        with contextlib.suppress(BadReply):  # what is asked of a reply has changed
            return parse_reply(found.decode("utf-8", "surrogatepass"), question.reply, question.check)
        return None

    def _limit(self, question: Question[T]) -> int:
        limit = max(self._max_tokens, 2 * question.tokens)
        return limit if question.most is None else min(limit, question.most)

    def _key(self, question: Question[T]) -> bytes:
        """A hash of everything that the answer depends on: the same question is never paid for twice."""
        parts = {
            "format": _FORMAT,
            "url": self._client.url,
            "model": self.name,
            "messages": question.messages,
            "schema": json_schema(question.reply),
            "max_tokens": self._limit(question),
            **self._way,
            "seed": 0,
        }
        return memory_key(parts)


def open_llm(runtime: Runtime, model: str | None = None) -> LanguageModel:
    """The language model of the settings, or `model` on their server. Nothing is asked yet.

    All of a runtime spend from one budget. Notice is given once when ccheck has to wait for the server. Raises
    UsageError for incomplete settings.
    """
    settings = runtime.settings
    model = model or settings.llm_model
    if not model:
        raise UsageError(
            "no language model is set: use --llm MODEL or CCHECK_LLM_MODEL, with the name that its server uses"
        )
    return runtime.once(
        "language model", model, runtime.language_model.model_dump_json(), make=lambda: _open(runtime, model)
    )


def _open(runtime: Runtime, model: str) -> LanguageModel:
    settings = runtime.settings
    key = key_for(settings, "llm_api_key", settings.llm_base_url)
    if key == Key() and settings.llm_base_url.startswith(_OPENAI):
        raise UsageError(
            "OpenAI's server needs a key: set OPENAI_API_KEY, or set OPENAI_BASE_URL to your own server "
            "(such as http://127.0.0.1:11434/v1)"
        )
    file = settings.cache_dir / "answers.sqlite"
    cache = Cache(file, min(_CACHE_BYTES, settings.cache_bytes), "the cache of answers")
    patience = Patience(settings.llm_retry_seconds, runtime.notify)
    client = ChatClient(settings.llm_base_url, key.value, settings.llm_timeout, patience)
    client.notice = client.notice or key.withheld
    budget = runtime.once("budget", make=lambda: open_budget(settings))
    return LanguageModel(runtime, model, client, budget, cache)


def _with_schema(messages: tuple[Message, ...], schema: dict[str, Any]) -> tuple[Message, ...]:
    """For servers that don't pass the schema on: in words, in the message that the model trusts most."""
    shape = f"Reply with one JSON object and nothing else. It must match this JSON schema:\n{json.dumps(schema)}"
    first, *others = messages
    if first["role"] != "system":
        return ({"role": "system", "content": shape}, *messages)
    return ({"role": "system", "content": f"{first['content']}\n\n{shape}"}, *others)
