"""Language models over real HTTP with a real model. It is too small to be right: what is tested is the way."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from question_llm import RECIPE
from smollm2 import model_folder, served

from ccheck import Checker
from ccheck.core.recipe import load_recipe
from ccheck.core.settings import resolve
from ccheck.core.stages import ListwiseStage, VerdictStage
from ccheck.core.types import Claim, Document, Evidence, Hit
from ccheck.llm.model import LanguageModel
from ccheck.llm.types import InvalidReply, Reply
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
def real_model(server: tuple[str, str], open_model: Callable[..., LanguageModel]) -> Callable[[], LanguageModel]:
    url, name = server
    return lambda: open_model(url, llm_model=name, llm_timeout=200, llm_max_tokens=24)


def test_a_real_model_answers_in_the_shape_that_was_asked_for(real_model):
    texts = ("JSON for n=1?", '{"n": 1}', "JSON for n=2?", '{"n": 2}', "JSON for n=3?")
    messages = tuple({"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(texts))
    model = real_model()
    answer = model.ask(messages, Number)
    assert isinstance(answer.value.n, int) and answer.usage.llm_calls >= 1
    assert answer.usage.prompt_tokens > 20 and 0 < answer.usage.completion_tokens <= 48
    again = real_model().ask(messages, Number)
    assert again.usage.cached and again.value == answer.value and again.usage.llm_calls == 0


def test_free_text_of_a_real_model_is_an_error_and_never_a_label(real_model):
    paper = Document("d1", "Sea level", "Tide gauges show that sea level rose by 20 cm since 1900.")
    case = Case(Claim("Sea level has risen 20 cm since 1900."), (Evidence(Hit(1, paper, 1.0)),))
    model = real_model()
    (judged,) = LlmStances(model, VerdictStage())([case])
    (stance,) = judged.stances
    assert judged.usage.llm_calls in (1, 2) and judged.usage.prompt_tokens > 300
    # 24 tokens are too few for a whole reply, so there is no right answer to this.
    assert stance.label is None and stance.confidence is None
    assert "cut off after 24 tokens" in stance.error or "neither reply is valid" in stance.error


def test_a_real_model_puts_passages_into_order_or_the_order_stays_unknown(real_model):
    passages = ["Whales sing.", "The sea rose by 20 cm."]
    reranker = ListwiseReranker(real_model(), ListwiseStage())
    try:
        scores = reranker("Sea level rises.", passages)
    except InvalidReply as error:
        assert "order" in str(error) or "cut off" in str(error) or "JSON" in str(error)
    else:
        assert sorted(scores.values) == [0.0, 1.0] and scores.usage.llm_calls in (1, 2)


def test_a_claim_is_checked_with_questions_by_a_real_model(server: tuple[str, str], tmp_path: Path) -> None:
    """Whatever so small a model says: questions with answers or errors, and a verdict or why there is none."""
    url, name = server
    (tmp_path / "pages.jsonl").write_text('{"_id": "sea", "text": "The sea level rose by 20 cm since 1900."}\n')
    (tmp_path / "r.toml").write_text(RECIPE.format(more="count = 1\ndeadline = 30"))
    values = {"llm_model": name, "llm_base_url": url, "llm_max_tokens": 64, "cache_dir": tmp_path / "cache"}
    settings = resolve(values | {"store": str(tmp_path / "store")}).settings
    with Checker(settings, recipe=load_recipe(str(tmp_path / "r.toml"))) as checker:
        checker.ingest(str(tmp_path / "pages.jsonl"))
        result = checker.check("The sea level rose.")
    assert result.questions is not None and result.verdict is not None
    assert result.verdict.label is not None or result.verdict.error
    assert all((one.answer is None) == (one.error is not None) for one in result.questions)
