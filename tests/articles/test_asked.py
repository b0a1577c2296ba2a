"""Language models that order figures and select passages, asked over HTTP (a scripted server) by the commands."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from article_files import JATS
from cli_runs import ccheck
from question_llm import kind_of
from scripted_llm import ScriptedLlm, say, scripted, user_text

FIGURES = """
[retrievers.bm25]
[verdict]
method = "none"
[figures.runs.asked]
kind = "chunk-guided"
granularity = "sentence"
order = "llm"
"""
CLAIM = "weights of heavy snails"


@pytest.fixture
def paper(tmp_path: Path) -> Path:
    (tmp_path / "snails.xml").write_text(JATS)
    (tmp_path / "ask.toml").write_text(FIGURES)
    return tmp_path / "snails.xml"


@contextmanager
def model(monkeypatch: pytest.MonkeyPatch, *replies: Any) -> Iterator[ScriptedLlm]:
    """Answers each request with the next reply, the last one again and again."""
    left = list(replies)
    with scripted(lambda request: say(left.pop(0) if len(left) > 1 else left[0])) as llm:
        monkeypatch.setenv("OPENAI_BASE_URL", llm.url)
        yield llm


def test_a_model_orders_the_elements_from_the_best_sentences(paper: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with model(monkeypatch, {"order": [2, 3]}) as llm:
        ran = ccheck("figures", paper, CLAIM, "--recipe", paper.with_name("ask.toml"), "--llm", "m", "--json")
    assert ran.code == 0, ran.err
    assert [one["task_id"] for one in json.loads(ran.out)] == ["FIG 2", "TAB 1", "FIG 1"]
    (request,) = llm.requests
    assert kind_of(request) == "ElementOrder"
    asked = user_text(request)
    assert json.dumps(CLAIM) in asked and '{"number": 3, "label": "TAB 1"}' in asked
    assert "Weights are listed in Table 1." in asked and "thicker in cold water" not in asked


@pytest.mark.parametrize("way", ["bm25-claude", "claude-article"])
def test_a_model_selects_passages(paper: Path, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    """From what was retrieved, or from the whole article. The answer is text of the article, whatever it says."""
    with model(monkeypatch, {"selected": [2]}) as llm:
        arguments = ("--recipe", f"context24-passages:{way}", "--llm", "m", "--json")
        ran = ccheck("passages", paper, CLAIM, *arguments)
    assert ran.code == 0, ran.err
    (found,) = json.loads(ran.out)
    (request,) = llm.requests
    assert kind_of(request) == "Selection"
    numbered = [json.loads(line) for line in user_text(request).splitlines() if line.startswith('{"number"')]
    assert found["text"] == numbered[1]["sentence"]
    assert ("Moss was eaten" in user_text(request)) == (way == "claude-article")


def test_numbers_that_are_not_there_are_asked_for_again_and_then_an_error(
    paper: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ("figures", paper, CLAIM, "--recipe", paper.with_name("ask.toml"), "--llm", "m", "--json")
    with model(monkeypatch, {"order": [9]}, {"order": [1]}) as llm:
        assert json.loads(ccheck(*arguments).out)[0]["task_id"] == "FIG 1"
        assert "9 is not one of the numbers 1 to 3" in json.dumps(llm.requests[1]["messages"])
    with model(monkeypatch, {"order": [9]}) as llm:
        ran = ccheck(*arguments, "--llm", "another")
        assert ran.code == 6 and "neither reply is valid: 9 is not one of the numbers" in ran.err and not ran.out


def test_a_model_says_what_each_element_presents(paper: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """BM25 then has the model's words alone."""
    replies = [{"description": "Growth."}, {"description": "The weights of heavy snails."}, {"description": "Tables."}]
    with model(monkeypatch, *replies) as llm:
        arguments = ("--recipe", "context24-figures:bm25-rephrased", "--llm", "m", "--json")
        ran = ccheck("figures", paper, CLAIM, *arguments)
    assert ran.code == 0, ran.err
    assert [one["task_id"] for one in json.loads(ran.out)] == ["FIG 2", "FIG 1", "TAB 1"]
    assert [kind_of(request) for request in llm.requests] == ["Description"] * 3
    assert {request["model"] for request in llm.requests} == {"m"}, "--llm wins over the recipe's model"
    assert not any("temperature" in request for request in llm.requests), "the recipe leaves it to the server"
    assert 'Label: "FIG 1"' in user_text(llm.requests[0]) and "Snails of the coast grew" in user_text(llm.requests[0])
