"""Turning a model's reply into a value of the shape that was asked for, or into the reason why it is invalid."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from more_itertools import duplicates_everseen
from pydantic import BaseModel, ValidationError

from ..core.errors import misfits
from .types import T

LONGEST = 200_000
"""Characters of a reply; a longer one is not read."""
_THOUGHTS = re.compile(r"\A\s*<think>.*?</think>", re.DOTALL)
"""The thoughts that some models write before their reply, where the server leaves them in."""
_FENCE = re.compile(r"```[A-Za-z]*(.*)```", re.DOTALL)


def parse_reply(text: str, shape: type[T], check: Callable[[T], object] | None = None) -> T:
    """A reply as a value of `shape`: one JSON object with nothing around it but white space or one code fence.

    Raises BadReply, whose message is written for the model: what is wrong, in a few words.
    """
    found = find_object(text)
    try:
        value = shape.model_validate_json(json.dumps(found), strict=True)
    except ValidationError as error:
        raise BadReply("; ".join(misfits(error, "the object")[:5])) from None
    if check is not None:
        try:
            check(value)
        except ValueError as error:
            raise BadReply(str(error), value) from None
    return value


class BadReply(ValueError):
    """An invalid reply. `value` is what it says, if its shape was right."""

    def __init__(self, message: str, value: BaseModel | None = None) -> None:
        super().__init__(message)
        self.value = value


def find_object(text: str) -> dict[str, Any]:
    """The JSON object that a text is. Raises BadReply if it is anything else, or has anything else beside it.

    Only white space, one code fence and, before them, thoughts that ended (<think>...</think>) may be around it: an
    object amid prose may be an example, a draft or half of a reply.
    """
    if len(text) > LONGEST:
        raise BadReply(f"the reply has {len(text):,} characters; at most {LONGEST:,} are read")
    reply = _THOUGHTS.sub("", text).strip()
    if fenced := _FENCE.fullmatch(reply):
        reply = fenced.group(1).strip()
    if reply.startswith("<think>"):
        raise BadReply("it holds thoughts only, which don't end (</think>)")
    if not reply.startswith("{"):
        before = "there is text before the JSON object: reply with the object alone"
        raise BadReply(before if "{" in reply else "it has no JSON object")
    try:
        found, end = _DECODER.raw_decode(reply)
    except RecursionError:
        raise BadReply("the JSON is nested too deeply") from None
    except BadReply:
        raise
    except ValueError as error:
        raise BadReply(f"the JSON object is not complete or not valid: {error}") from None
    if reply[end:].strip():
        raise BadReply("there is text after the JSON object: reply with the object alone")
    assert isinstance(found, dict)
    return found


def check_numbers(name: str, numbers: Sequence[int], count: int, what: str) -> None:
    """Raises ValueError, whose message the model reads, unless they are different ones of the numbers 1 to `count`.

    `name` is the key of the reply that has them, and `what` is numbered.
    """
    if wrong := sorted(number for number in numbers if not 1 <= number <= count):
        raise ValueError(f"{name} has the number {wrong[0]}, and the {what} are numbered 1 to {count}")
    if (twice := next(duplicates_everseen(numbers), None)) is not None:
        raise ValueError(f"{name} has the number {twice} more than once")


def read_body(body: bytes) -> Any:
    """The JSON of a server's answer. Raises BadReply if an object says two things under one key, and ValueError or
    RecursionError for what is not JSON."""
    return _BODY.decode(body.decode())


def json_schema(shape: type[BaseModel]) -> dict[str, Any]:
    """The JSON schema of a shape, as strict modes of servers require it: every key required, no other one allowed.

    Docstrings of classes, which pydantic puts into it, are left out: they are written for people who read the code.
    """
    schema: dict[str, Any] = _strict(shape.model_json_schema())
    return schema


def _strict(node: Any) -> Any:
    if isinstance(node, list):
        return [_strict(item) for item in node]
    if not isinstance(node, dict):
        return node
    kept: dict[str, Any] = {}
    for key, value in node.items():
        if key == "properties" or key == "$defs":
            kept[key] = {name: _strict(inner) for name, inner in value.items()}
        elif key not in ("title", "default"):
            kept[key] = _strict(value)
    if "properties" in kept:
        kept.pop("description", None)
        kept |= {"required": list(kept["properties"]), "additionalProperties": False}
    return kept


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise BadReply("a key of the JSON object occurs twice")
    return found


def _no_constant(name: str) -> None:
    raise BadReply(f"{name} is not a JSON number")


_DECODER = json.JSONDecoder(object_pairs_hook=_without_doubles, parse_constant=_no_constant)
_BODY = json.JSONDecoder(object_pairs_hook=_without_doubles)
