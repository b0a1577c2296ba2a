"""The papers' prompts piece by piece, and the words that say the same in ccheck's prompts."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from importlib.resources import files
from typing import NamedTuple

_HEAD = """## The papers' prompts

With `prompts = "paper"`, a language model is asked as the paper asks it, in ccheck's words. The replies are the
paper's: a label, a digit or a permutation, without reason, quotation or confidence. Three things differ on purpose.
Replies are JSON objects with that one value, because every reply is checked against a shape. Claims and abstracts are
quoted as JSON, and the model is told that they are data. If a reply can't be used, ccheck asks once more. If that fails
too, the result is an error, never a label. The prompts for additional documents (listings 4 and 5 of checkthat-4b) are
ccheck's own.

| piece of the paper's prompt | ccheck's prompt | its words |
| --- | --- | --- |"""


class Piece(NamedTuple):
    """A piece of a prompt in a paper, and words of the prompt (a file of the repository) that say the same."""

    source: str
    piece: str
    prompt: str
    words: str


def pieces() -> Iterator[Piece]:
    """Every piece, in the order of the papers."""
    text = (files(__package__ or "") / "recipe_prompts.toml").read_text(encoding="utf-8")
    for source in tomllib.loads(text)["source"]:
        for piece, words in source["pieces"]:
            yield Piece(source["name"], piece, source["prompt"], words)


def prompts_section() -> list[str]:
    """The section of docs/recipes.md on the papers' prompts."""
    lines = [_HEAD]
    before = ""
    for one in pieces():
        if one.source != before:
            lines.append(f"| **{one.source}** | | |")
            before = one.source
        lines.append(f"| {one.piece} | `{one.prompt}` | {one.words} |")
    return [*lines, ""]
