"""Labelled pairs that a language model is shown before a question."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ..core.errors import InvalidData
from ..core.files import read_text

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
            problem = error.errors()[0]
            where = ".".join(map(str, problem["loc"])) or "the line"
            raise InvalidData(f"{path}, line {number}: {where}: {problem['msg']}") from error
    if not 1 <= len(pairs) <= _MOST:
        raise InvalidData(f"{path} has {len(pairs):,} examples. It needs 1 to {_MOST:,} of claim, evidence and label")
    return pairs
