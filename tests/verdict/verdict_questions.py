"""What the tests of a language model's stances share: documents, replies, and what makes stances of them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from scripted_llm import scripted, user_text

from ccheck.core.stages import VerdictStage
from ccheck.core.types import Claim, Document, Evidence, Hit
from ccheck.llm import LanguageModel
from ccheck.verdict.judge import Case, Judged
from ccheck.verdict.llm import LlmStances

RISE = "Tide gauges show that sea level rose by 20 cm  since 1900.\nThe rate is\u00a0growing – fast."
CLAIM = Claim("Sea level has risen 20 cm since 1900.")


def document(number: int, text: str | None = None, title: str = "Sea level") -> Document:
    """No two are the same, since the same question is not asked twice."""
    return Document(f"d{number}", title, f"{RISE} Paper {number}." if text is None else text)


def case(*documents: Document, claim: Claim = CLAIM) -> Case:
    return Case(claim, tuple(Evidence(Hit(rank, item, 1 / rank)) for rank, item in enumerate(documents, 1)))


def reply(label: str = "SUPPORTS", quote: str = "sea level rose by 20 cm since 1900", **more: Any) -> dict[str, Any]:
    return {"rationale": "It says so.", "quote": quote, "label": label, "confidence": 0.9} | more


OPEN = reply("NOT_ENOUGH_INFO", "", confidence=0.6)


@pytest.fixture
def judge(open_model: Callable[..., LanguageModel]) -> Callable[..., list[Judged]]:
    """What a scripted server's answers make of cases by a strategy; the server's requests are in `.requests`."""

    def run(answer: Any, *cases: Case, settings: dict[str, Any] | None = None, **stage: Any) -> list[Judged]:
        with scripted(answer) as server:
            run.requests = server.requests
            method = LlmStances(open_model(server.url, **(settings or {})), VerdictStage(**stage))
            run.name = method.name
            return list(method(cases))

    return run


@pytest.fixture
def examples(tmp_path: Path) -> Path:
    """Labelled pairs in a file."""
    pairs = [
        ("Cats sleep a lot.", "We watched 12 cats.", "SUPPORTS"),
        ("Sea level is falling.", "It rose.", "REFUTES"),
        ("Sea level has risen since 1900.", "Gauges say 20 cm.", "SUPPORTS"),
        ("Sea ice is growing.", "We studied whales.", "NOT_ENOUGH_INFO"),
    ]
    lines = [json.dumps({"claim": claim, "evidence": text, "label": label}) for claim, text, label in pairs]
    path = tmp_path / "pairs.jsonl"
    path.write_text("\n".join(lines) + "\n\n")
    return path


def data_of(request: dict[str, Any], key: str) -> Any:
    """The JSON that stands after `Key: ` in a question."""
    (line,) = re.findall(rf"^{key}: (.*)$", user_text(request), re.MULTILINE)
    return json.loads(line)


def shown(request: dict[str, Any]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in user_text(request).splitlines() if line.startswith("{")]
