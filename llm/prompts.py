"""Prompts: text files that come with the package. A file of the same name in your own folder replaces one.

A prompt has two sections, `[system]` and `[user]`, each of these words on a line of its own. `$name` or `${name}` is
replaced by a value, `$$` is a dollar sign (`string.Template`). Lines before the first section are comments.

What comes from outside (claims, documents, examples) is put in as JSON strings, made by `quoted`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ..core.errors import InvalidData, NotFound, misfits
from ..core.files import read_text
from .types import Message

_LONGEST = 100_000
_SECTION = re.compile(r"^\[(\w+)\][ \t]*$", re.MULTILINE)
_HARMFUL = re.compile(
    r"<(?=[^\s\d=.])"  # <|im_start|>, </s>, <start_of_turn>: what a chat template's special tokens begin with
    r"|\[(?=/?[A-Z_]{2,}\])"  # [INST]
    r"|[\u2028\u2029\u202a-\u202e\u2066-\u2069\x7f-\x9f\ufff9-\ufffb\ufeff\U000e0000-\U000e007f]"  # lines, hidden text
)


@dataclass(frozen=True, slots=True)
class Prompt:
    """The two sections of a prompt. `name` says where it came from."""

    name: str
    system: str
    user: str

    def messages(self, **values: str) -> tuple[Message, Message]:
        """The prompt with its values: a system and a user message."""
        return (
            {"role": "system", "content": Template(self.system).substitute(values)},
            {"role": "user", "content": Template(self.user).substitute(values)},
        )


def load_prompt(package: str, name: str, placeholders: Iterable[str], folder: Path | None = None) -> Prompt:
    """The prompt `name`.txt of `folder`, or else of `package`'s folder `prompts`.

    Each of the `placeholders` must be in it at least once, in either section, and no other.
    Raises InvalidData, which names the file and what is wrong with it, and NotFound where `folder` does not exist.
    """
    if folder is not None and not folder.is_dir():
        raise NotFound(f"the folder of prompts {folder} does not exist: correct CCHECK_PROMPTS_DIR (prompts_dir)")
    where = f"{name}.txt"
    if folder is not None and (own := folder / where).is_file():
        where, text = str(own), read_text(own, "the prompt")
    else:
        text = files(package).joinpath("prompts", where).read_text(encoding="utf-8")
    if len(text) > _LONGEST:
        raise InvalidData(f"the prompt {where} has {len(text):,} characters. At most {_LONGEST:,} are allowed")
    sections = _SECTION.split(text)[1:]
    found = dict(zip(sections[::2], (part.strip() for part in sections[1::2]), strict=True))
    if sections[::2] != ["system", "user"]:
        raise InvalidData(f"the prompt {where} must have the sections [system] and [user], once each and in this order")
    _check_placeholders(where, f"{found['system']}\n{found['user']}", sorted(placeholders))
    return Prompt(where, found["system"], found["user"])


def refuse_unknown(folder: Path | None) -> None:
    """Raises InvalidData if a folder of prompts has a file that no prompt is named after: a slip of the pen."""
    if folder is None or not folder.is_dir():
        return
    package = Path(__file__).parents[1]
    names = {file.name for kind in ("*", "lab/*") for file in package.glob(f"{kind}/prompts/*.txt")}
    if strange := sorted(file.name for file in folder.glob("*.txt") if file.name not in names):
        raise InvalidData(
            f"the folder of prompts {folder} has {strange[0]}, which is not the name of a prompt. "
            f"Prompts are {', '.join(sorted(names))}"
        )


def quoted(value: Any) -> str:
    """Text from outside as JSON on one line: it can't end its own string, begin a line or look like a model's
    special token, and is the same when the JSON is read."""
    return _HARMFUL.sub(_escape, json.dumps(_clean(value), ensure_ascii=False))


def numbered(name: str, texts: Iterable[str], most: int) -> str:
    """Texts from outside, an object on each line: its number, from 1, and under a name its first `most` characters."""
    return "\n".join(quoted({"number": number, name: text[:most]}) for number, text in enumerate(texts, 1))


def _check_placeholders(where: str, text: str, known: list[str]) -> None:
    template = Template(text)
    if not template.is_valid():
        raise InvalidData(f"the prompt {where} has a $ that does not begin a placeholder: write $$ for a dollar sign")
    found = set(template.get_identifiers())
    names = ", ".join(f"${name}" for name in known)
    for name in sorted(found.difference(known)):
        raise InvalidData(f"the prompt {where} has an unknown placeholder ${name}. Allowed: {names}")
    for name in sorted(set(known) - found):
        raise InvalidData(f"the prompt {where} lacks the placeholder ${name}. It needs {names}")


def _escape(match: re.Match[str]) -> str:
    return json.dumps(match.group())[1:-1] if not match.group().isascii() else f"\\u{ord(match.group()):04x}"


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "ignore").decode("utf-8")  # lone surrogates are not text
    if isinstance(value, dict):
        return {key: _clean(item) for key, item in value.items()}
    return [_clean(item) for item in value] if isinstance(value, list | tuple) else value


_MOST = 20_000

_Text = Annotated[str, Field(min_length=1)]


class LabelledPair(BaseModel):
    """A claim, what a document says, and what that says about the claim."""

    model_config = ConfigDict(frozen=True, str_strip_whitespace=True)

    claim: _Text
    evidence: _Text
    label: Literal["SUPPORTS", "REFUTES", "NOT_ENOUGH_INFO"]


def load_pairs(path: Path) -> list[LabelledPair]:
    """The pairs of a JSON Lines file of {"claim", "evidence", "label"}.

    Raises NotFound or InvalidData, which names the line.
    """
    pairs = []
    for number, line in enumerate(read_text(path, "the file of examples").splitlines(), 1):
        if not line.strip():
            continue
        try:
            pairs.append(LabelledPair.model_validate_json(line))
        except ValidationError as error:
            raise InvalidData(f"{path}, line {number}: {misfits(error, 'the line')[0]}") from error
    if not 1 <= len(pairs) <= _MOST:
        raise InvalidData(f"{path} has {len(pairs):,} examples. It needs 1 to {_MOST:,} of claim, evidence and label")
    return pairs
