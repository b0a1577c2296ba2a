"""The parameters of a request: OpenAI-compatible servers differ in those that they accept."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal
from urllib.parse import urlsplit

Limit = Literal["max_completion_tokens", "max_tokens"]
PARAMETERS = ("max_completion_tokens", "max_tokens", "temperature", "seed", "response_format")
"""The parameters that a server may refuse."""


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

    def parameters(self, name: str, schema: dict[str, Any], max_tokens: int) -> dict[str, Any]:
        """The request's parameters, for a reply of `schema`, which is called `name`."""
        chosen: dict[str, Any] = {}
        if self.format == "json_schema":
            shape = {"name": name, "strict": True, "schema": schema}
            chosen["response_format"] = {"type": "json_schema", "json_schema": shape}
        elif self.format == "json_object":
            chosen["response_format"] = {"type": "json_object"}
        if self.limit is not None:
            chosen[self.limit] = max_tokens
        if self.temperature:
            chosen["temperature"] = 0
        if self.seed:
            chosen["seed"] = 0
        return chosen

    def weaker(self, parameter: str | None, said: str) -> Dialect | None:
        """The next one to try after a server refused this one; None if there is none left.

        `parameter` is the one that the server named; many servers name it only in what they `said`. Where they name
        none, the format is changed, which servers refuse most often.
        """
        named = parameter if parameter in PARAMETERS else said.lower()
        if self.limit is not None and ("max_tokens" in named or "max_completion_tokens" in named):
            return replace(self, limit=self.other_limit, other_limit=None)
        if self.temperature and "temperature" in named:
            return replace(self, temperature=False)
        if self.seed and "seed" in named:
            return replace(self, seed=False)
        if self.format == "json_schema":
            return replace(self, format="json_object")
        return replace(self, format="text") if self.format == "json_object" else None


def dialect_of(url: str) -> Dialect:
    """The first one to try with a server."""
    if (urlsplit(url).hostname or "").endswith("openai.com"):
        return Dialect(limit="max_completion_tokens", other_limit="max_tokens")
    return Dialect()
