"""A client of OpenAI-compatible servers: one request, what its failures mean, and the parameters that each accepts."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal
from urllib.parse import urlsplit, urlunsplit

import httpx
from pydantic import BaseModel, ValidationError

from ..core.errors import ServerError, UsageError
from ..core.http import (
    MayPass,
    Patience,
    Waiting,
    fetch,
    is_lasting,
    open_client,
    public,
    redirected,
    retry_after,
    why_unreachable,
)
from ..core.keys import checked_key
from ..core.redaction import http_parts, redact, without_secrets
from .reply import BadReply, read_body
from .types import Message, Refused, Unreachable, estimate_tokens

MAX_BYTES = 8 << 20
"""Largest answer of a server; the rest is not read."""
WHOLE = frozenset({"stop", "eos", "eos_token", "stop_sequence", "end_turn"})
"""Finish reasons of complete answers: those of OpenAI, text-generation-inference and Anthropic. Null or a missing
reason means that the answer is not finished."""
CUT_OFF = frozenset({"length", "max_tokens", "model_length"})
"""Finish reasons of answers that a limit ended."""
SLOW = 5.0
"""Seconds after which it is said what is waited for."""
_LONGEST = 300
Limit = Literal["max_completion_tokens", "max_tokens"]
PARAMETERS = ("max_completion_tokens", "max_tokens", "temperature", "seed", "response_format", "reasoning_effort")
"""The parameters that a server may refuse."""
TOO_LONG = re.compile(r"context[ _](length|size|window|limit)|too (large|long)|exceeds the maximum", re.IGNORECASE)
"""The question or its answer does not fit, which no other parameters change."""
RECIPES = ("chat_template_kwargs", "enable_thinking", "reasoning_effort")
"""Those that only a recipe sends. Without them, another system would answer."""


@dataclass(frozen=True, slots=True)
class Completion:
    """A server's answer. Tokens are the server's count, or an estimate if it gives none."""

    text: str
    finish_reason: str | None
    refused: bool
    prompt_tokens: int
    completion_tokens: int


class Busy(MayPass):
    """The server is busy, slow or gone, which may pass. `counts`: the request may have been paid for."""

    def __init__(self, message: str, retry_after: float | None = None, *, counts: bool = False) -> None:
        super().__init__(message, retry_after)
        self.counts = counts


class BadRequest(ServerError):
    """The server does not take a request as it is; another one perhaps. `parameter`: the one that it names as wrong;
    `said`: its words."""

    def __init__(self, message: str, parameter: str | None, said: str) -> None:
        super().__init__(message)
        self.parameter, self.said = parameter, said


@dataclass(frozen=True, slots=True)
class _Fault:
    """The content of an error's body. `codes`: its code and its type."""

    said: str
    parameter: str | None = None
    codes: tuple[str, ...] = ()


class _Message(BaseModel):
    content: str | None = None
    refusal: str | None = None
    tool_calls: Any = None
    function_call: Any = None


class _Choice(BaseModel):
    message: _Message
    finish_reason: str | None = None
    error: Any = None


class _Usage(BaseModel):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _Body(BaseModel):
    choices: list[_Choice]
    usage: _Usage | None = None


class ChatClient:
    """Asks one server for chat completions. `url` has no user, password or query in it, and no error shows the key."""

    def __init__(self, base_url: str, key: str | None, timeout: float, patience: Patience) -> None:
        """`timeout`: seconds for one request, from beginning to end. Raises UsageError for an invalid address."""
        self.patience = patience
        if (parts := http_parts(base_url)) is None:
            raise UsageError(
                "the language model's server needs an address such as http://127.0.0.1:8000/v1: correct OPENAI_BASE_URL"
            )
        if parts.username or parts.password:
            raise UsageError(
                "the address of the language model's server contains a user or password: remove it and set "
                "OPENAI_API_KEY"
            )
        self.url = urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/"), "", ""))
        key = checked_key("OPENAI_API_KEY", key)
        self.notice: str | None = None
        if key and parts.scheme == "http" and public(parts.hostname or ""):
            self.notice = (
                f"the key is sent to {parts.hostname} unencrypted, so others on the network can read it: use https"
            )
        self._timeout, self._said_slow = timeout, False
        self._client = open_client(key)

    async def complete(self, model: str, messages: Sequence[Message], parameters: dict[str, Any]) -> Completion:
        """Raises Busy, Unreachable, BadRequest, Refused, or ServerError for an invalid answer."""
        url, body = f"{self.url}/chat/completions", {"model": model, "messages": list(messages), **parameters}
        waiting = asyncio.get_running_loop().call_later(SLOW, self._say_slow, model)
        try:
            answer = await fetch(self._client, self.url, url, body, self._timeout, MAX_BYTES)
        except (TimeoutError, httpx.ReadTimeout, httpx.WriteTimeout):
            raise Busy(
                f"{self.url} did not answer within {self._timeout:g} s; CCHECK_LLM_TIMEOUT allows more time",
                counts=True,
            ) from None
        except MayPass as error:
            raise Busy(str(error), counts=True) from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            reason = self._short(why_unreachable(error)).rstrip(".")
            raise (Unreachable if is_lasting(error) else Busy)(
                f"{self.url} can't be reached: {reason}. Is the server running, and OPENAI_BASE_URL right?"
            ) from None
        finally:
            waiting.cancel()
        self.patience.reached = True
        if answer.status == 200:
            return self._read(answer.content, model, messages)
        try:
            said = read_body(answer.content)
        except (BadReply, ValueError, RecursionError):
            said = None
        otherwise = answer.content[:_LONGEST].decode("utf-8", "replace") or "no reason given"
        raise self._meaning(answer.status, self._fault(said, otherwise), answer.headers, model)

    async def close(self) -> None:
        await self._client.aclose()

    def _say_slow(self, model: str) -> None:
        """Say once what is waited for: a slow model looks like a program that hangs."""
        if not self._said_slow:
            self._said_slow = True
            said = f"waiting for {model} at {self.url}, which has not answered for {SLOW:g} s. It has "
            self.patience.notify(Waiting(f"{said}{self._timeout:g} s (CCHECK_LLM_TIMEOUT)"))

    def _read(self, body: bytes, model: str, messages: Sequence[Message]) -> Completion:
        try:
            data = read_body(body)
        except BadReply as error:
            raise ServerError(f"{self.url} answered with invalid JSON: {error}") from None
        except (ValueError, RecursionError):
            raise ServerError(f"{self.url} did not answer with JSON: check OPENAI_BASE_URL, including /v1") from None
        # Whatever stands beside an error is not an answer.
        if isinstance(data, dict) and data.get("error") not in (None, "", False):
            raise self._failed(data, model)
        try:
            answer = _Body.model_validate(data)
        except ValidationError:
            raise ServerError(f"{self.url} did not answer with a chat completion: check OPENAI_BASE_URL") from None
        if not answer.choices:
            raise ServerError(f"{self.url} returned a chat completion without an answer (choices)")
        choice = answer.choices[0]
        if choice.error not in (None, "", False):
            raise self._failed({"error": choice.error}, model)
        if len(answer.choices) > 1:
            raise ServerError(f"{self.url} gave {len(answer.choices)} answers to one question. None of them is used")
        if choice.message.tool_calls or choice.message.function_call:
            raise ServerError(f"{self.url} asked to call a tool, but ccheck offers none. The answer is not used")
        text = without_secrets(choice.message.content or "")
        used = answer.usage or _Usage()
        return Completion(
            text,
            choice.finish_reason,
            bool(choice.message.refusal) or choice.finish_reason == "content_filter",
            estimate_tokens(messages) if used.prompt_tokens is None else max(0, used.prompt_tokens),
            estimate_tokens([{"role": "assistant", "content": text}])
            if used.completion_tokens is None
            else max(0, used.completion_tokens),
        )

    def _failed(self, data: dict[str, Any], model: str) -> ServerError:
        """The exception for an error in a body of status 200."""
        inner = data["error"]
        code = inner.get("code") if isinstance(inner, dict) else None
        return self._meaning(code if isinstance(code, int) else 200, self._fault(data, ""), {}, model)

    def _meaning(self, status: int, fault: _Fault, headers: Mapping[str, str], model: str) -> ServerError:
        said = fault.said
        if (away := redirected(self.url, status, headers)) is not None:
            return Refused(f"{self._short(away)} (OPENAI_BASE_URL)")
        if status in (401, 403):
            what_to_do = self.notice or "set OPENAI_API_KEY to a valid one"
            return Refused(f"{self.url} refused the key ({status}: {said}): {what_to_do}", one=status == 403)
        if status == 402 or (status == 429 and "insufficient_quota" in fault.codes):
            return Refused(f"{self.url} requires payment first ({status}: {said})")
        if status == 404:
            return Refused(
                f"{self.url} does not know the model {model!r} or has no chat completions ({status}: {said}): correct "
                "--llm or OPENAI_BASE_URL"
            )
        if status in (408, 409, 425, 429) or status >= 500:
            wait = retry_after(headers)
            asks = f" and asks to wait {wait:,.0f} s" if wait and wait >= 1 else ""
            return Busy(f"{self.url} is busy or failing ({status}: {said}){asks}", wait)
        if status in (400, 422):
            return BadRequest(f"{self.url} refused the question ({status}: {said})", fault.parameter, said)
        return ServerError(f"{self.url} answered with an error ({status}: {said})")

    def _fault(self, body: Any, otherwise: str) -> _Fault:
        inner = body.get("error", body) if isinstance(body, dict) else None
        if isinstance(inner, str):
            return _Fault(self._short(inner))
        if not isinstance(inner, dict):
            return _Fault(self._short(otherwise))
        parts = [inner.get(name) for name in ("message", "detail", "param", "code")]
        parameter = inner.get("param")
        return _Fault(
            self._short("; ".join(str(part) for part in parts if part) or otherwise),
            parameter if isinstance(parameter, str) else None,
            tuple(str(inner.get(name)) for name in ("code", "type")),
        )

    @staticmethod
    def _short(text: str) -> str:
        return " ".join(redact(text).split())[:_LONGEST]


# -- what servers accept


@dataclass(frozen=True, slots=True)
class Dialect:
    """The parameters to send in addition to the model and the messages.

    `format`: how the shape of the reply is asked for; the reply is validated in any case. `limit`: the parameter that
    bounds the answer's length.
    """

    format: Literal["json_schema", "json_object", "text"] = "json_schema"
    limit: Limit | None = "max_tokens"
    other_limit: Limit | None = "max_completion_tokens"
    temperature: bool = True
    seed: bool = True

    def parameters(self, name: str, schema: dict[str, Any], max_tokens: int, way: Mapping[str, Any]) -> dict[str, Any]:
        """The request's parameters, for a reply of `schema`, called `name`, with those that a recipe sets (`way`)."""
        chosen = {key: value for key, value in way.items() if key != "temperature" or self.temperature}
        if self.format == "json_schema":
            shape = {"name": name, "strict": True, "schema": schema}
            chosen["response_format"] = {"type": "json_schema", "json_schema": shape}
        elif self.format == "json_object":
            chosen["response_format"] = {"type": "json_object"}
        if self.limit is not None:
            chosen[self.limit] = max_tokens
        if self.seed:
            chosen["seed"] = 0
        return chosen

    def weaker(self, parameter: str | None, said: str) -> tuple[Dialect, bool] | None:
        """The next one to try after a server refused this one, and whether the server named what it changes; None if
        no other one helps.

        `parameter` is the one that the server named; many servers name it only in what they `said`. Where they name
        none, the format is changed, which servers refuse most often.
        """
        named = parameter if parameter in PARAMETERS else said.lower()
        about_format = any(word in named for word in ("response_format", "json_", "schema"))
        if any(word in named for word in RECIPES) or (TOO_LONG.search(said) and not about_format):
            return None
        if self.limit is not None and ("max_tokens" in named or "max_completion_tokens" in named):
            return replace(self, limit=self.other_limit, other_limit=None), True
        if self.temperature and "temperature" in named:
            return replace(self, temperature=False), True
        if self.seed and "seed" in named:
            return replace(self, seed=False), True
        if self.format == "json_schema":
            return replace(self, format="json_object"), about_format
        return (replace(self, format="text"), about_format) if self.format == "json_object" else None


def dialect_of(url: str) -> Dialect:
    """The first one to try with a server."""
    if (urlsplit(url).hostname or "").endswith("openai.com"):
        return Dialect(limit="max_completion_tokens", other_limit="max_tokens")
    return Dialect()
