"""Language models over real HTTP with a real model. It is too small to be right: what is tested is the way."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from question_llm import RECIPE
from smollm2 import model_folder, served

from ccheck import Checker
from ccheck.core.errors import ServerError
from ccheck.core.recipe import load_recipe
from ccheck.core.runtime import Runtime
from ccheck.core.settings import Settings, resolve
from ccheck.core.stages import ListwiseStage, VerdictStage
from ccheck.core.types import Claim, Document, Evidence, Hit
from ccheck.llm import InvalidReply, LanguageModel, Reply, open_llm
from ccheck.rerank.listwise import ListwiseReranker
from ccheck.verdict.judge import Case
from ccheck.verdict.llm import LlmStances


class Number(Reply):
    n: int


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """The address of the server and its model's name."""
    folder = model_folder()
    with served(folder, tmp_path_factory.mktemp("smollm2") / "log.txt") as url:
        yield url, str(folder)


@pytest.fixture
def open_model(server: tuple[str, str], tmp_path: Path):
    opened: list[LanguageModel] = []

    def open_one(**settings: Any) -> LanguageModel:
        url, name = server
        values = {"llm_model": name, "llm_base_url": url, "cache_dir": tmp_path / "cache", "llm_timeout": 200}
        opened.append(open_llm(Runtime(Settings.model_validate(values | settings))))
        return opened[-1]

    yield open_one
    for model in opened:
        model.close()


def turns(*texts: str) -> tuple[dict[str, str], ...]:
    roles = ("user", "assistant") * len(texts)
    return tuple({"role": role, "content": text} for role, text in zip(roles, texts, strict=False))


def test_a_real_model_answers_in_the_shape_that_was_asked_for(open_model):
    messages = turns("JSON for n=1?", '{"n": 1}', "JSON for n=2?", '{"n": 2}', "JSON for n=3?")
    model = open_model(llm_max_tokens=24)
    answer = model.ask(messages, Number)
    assert isinstance(answer.value.n, int) and answer.usage.llm_calls >= 1
    assert answer.usage.prompt_tokens > 20 and 0 < answer.usage.completion_tokens <= 48
    again = open_model(llm_max_tokens=24).ask(messages, Number)
    assert again.cached and again.value == answer.value and again.usage.llm_calls == 0


def test_free_text_of_a_real_model_is_an_error_and_never_a_label(open_model):
    paper = Document("d1", "Sea level", "Tide gauges show that sea level rose by 20 cm since 1900.")
    case = Case(Claim("Sea level has risen 20 cm since 1900."), (Evidence(Hit(1, paper, 1.0)),))
    model = open_model(llm_max_tokens=24)
    (judged,) = LlmStances(model, VerdictStage())([case])
    (stance,) = judged.stances
    assert judged.usage.llm_calls in (1, 2) and judged.usage.prompt_tokens > 300
    # 24 tokens are too few for a whole reply, so there is no right answer to this.
    assert stance.label is None and stance.confidence is None
    assert "cut off after 24 tokens" in stance.error or "neither reply is valid" in stance.error


def test_a_real_model_puts_passages_into_order_or_the_order_stays_unknown(open_model):
    passages = ["Whales sing.", "The sea rose by 20 cm."]
    reranker = ListwiseReranker(open_model(llm_max_tokens=24), ListwiseStage())
    try:
        scores = reranker("Sea level rises.", passages)
    except InvalidReply as error:
        assert "order" in str(error) or "cut off" in str(error) or "JSON" in str(error)
    else:
        assert sorted(scores.values) == [0.0, 1.0] and scores.usage.llm_calls in (1, 2)


def test_a_model_that_the_server_does_not_have_is_an_error(open_model):
    with pytest.raises(ServerError, match=r"127\.0\.0\.1.*nobody/nothing"):
        open_model(llm_model="nobody/nothing", llm_retry_seconds=0).ask(turns("x"), Number)


def test_a_claim_is_checked_with_questions_by_a_real_model(server: tuple[str, str], tmp_path: Path) -> None:
    """Whatever so small a model says: questions with answers or errors, and a verdict or why there is none."""
    url, name = server
    (tmp_path / "pages.jsonl").write_text('{"_id": "sea", "text": "The sea level rose by 20 cm since 1900."}\n')
    (tmp_path / "r.toml").write_text(RECIPE.format(more="count = 1\ndeadline = 30"))
    values = {
        "store": str(tmp_path / "store"),
        "cache_dir": tmp_path / "cache",
        "llm_model": name,
        "llm_max_tokens": 64,
    }
    recipe = load_recipe(str(tmp_path / "r.toml"))
    with Checker(resolve(values | {"llm_base_url": url}).settings, recipe=recipe) as checker:
        checker.ingest(str(tmp_path / "pages.jsonl"))
        result = checker.check("The sea level rose.")
    assert result.questions is not None and result.verdict is not None
    assert result.verdict.label is not None or result.verdict.error
    assert all((one.answer is None) == (one.error is not None) for one in result.questions)
