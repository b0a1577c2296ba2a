"""What language models cost: the cache of answers, limits, and the key."""

import json

import pytest
from llm_questions import GOOD, Number, many, numbered, patient_models, words  # noqa: F401 - a fixture
from scripted_llm import KEY, Said, error, say, scripted

from ccheck.core.errors import ServerError, UsageError
from ccheck.core.runtime import Runtime
from ccheck.core.settings import Settings
from ccheck.core.types import Usage
from ccheck.llm.budget import open_budget
from ccheck.llm.model import open_llm
from ccheck.llm.types import Answer, BudgetSpent, Failure, Question, Reply

PRICES = {"llm_prompt_price": 10, "llm_completion_price": 50}


def test_a_second_run_costs_nothing_and_says_so(open_model):
    with scripted(numbered) as server:
        first = list(open_model(server.url).ask_many(many(5)))
        model = open_model(server.url)
        second = list(model.ask_many(many(5)))
        assert model.is_cached(many(1)[0]) and not model.is_cached(Question(words("new"), Number))
    assert len(server.requests) == 5
    assert [a.value for a in first] == [a.value for a in second] and all(a.usage.cached for a in second)
    assert model.usage == Usage(cached=5)


def test_the_same_question_asked_twice_at_a_time_is_paid_once(open_model):
    with scripted([say(GOOD, hang=0.2)]) as server:
        outcomes = list(open_model(server.url).ask_many([many(1)[0]] * 6))
    assert len(server.requests) == 1 and [outcome.usage.cached for outcome in outcomes] == [0] + [1] * 5


@pytest.mark.parametrize("change", ["model", "messages", "schema", "url", "tokens"])
def test_the_cache_knows_what_an_answer_depends_on(open_model, change):
    class Other(Reply):
        number: int
        share: float

    with scripted([say(GOOD)]) as server, scripted([say(GOOD)]) as another:
        open_model(server.url).ask(words(), Number)
        model = open_model(
            another.url if change == "url" else server.url,
            llm_model="m2" if change == "model" else "m",
            llm_max_tokens=100 if change == "tokens" else 4096,
        )
        shape = Other if change == "schema" else Number
        assert not model.ask(words("Another" if change == "messages" else "How many?"), shape).usage.cached


def test_a_cached_answer_that_does_not_pass_the_check_any_more_is_asked_again(open_model):
    def check(value: Number) -> None:
        if value.number == 7:
            raise ValueError("not 7")

    with scripted([say(GOOD), say(GOOD | {"number": 8})]) as server:
        model = open_model(server.url)
        model.ask(words(), Number)
        assert model.ask(words(), Number, check=check).value.number == 8


def test_calls_stop_at_their_limit(open_model):
    with scripted(numbered) as server:
        model = open_model(server.url, llm_max_calls=3)
        outcomes = list(model.ask_many(many(10)))
        errors = [outcome.error for outcome in outcomes if isinstance(outcome, Failure)]
        assert (len(server.requests), len(errors)) == (3, 7)
        assert all(isinstance(error, BudgetSpent) and "CCHECK_LLM_MAX_CALLS" in str(error) for error in errors)
        again = list(open_model(server.url, llm_max_calls=7).ask_many(many(10)))  # goes on where it stopped
    assert all(isinstance(outcome, Answer) for outcome in again) and len(server.requests) == 10


def test_what_a_server_refuses_does_not_count(open_model):
    with scripted([error(503, "busy"), error(400, "no response_format here"), say(GOOD)]) as server:
        model = open_model(server.url, llm_max_calls=1)
        assert model.ask(words(), Number).value.number == 7
    assert model.budget.calls == 1
    with scripted([error(400, "too long")]) as server:
        model = open_model(server.url, llm_retry_seconds=0, **PRICES)
        with pytest.raises(ServerError, match="too long"):
            model.ask(words(), Number)
    assert (model.budget.calls, model.budget.cost) == (0, 0)


def test_cost_stops_at_its_limit(open_model):
    # 100 prompt tokens at 10 and 20 completion tokens at 50 a million: 0.002 a call.
    with scripted(numbered) as server:
        model = open_model(server.url, llm_max_cost=0.021, llm_concurrency=2, **PRICES)
        outcomes = list(model.ask_many(many(100)))
        answers = sum(isinstance(outcome, Answer) for outcome in outcomes)
    assert 8 <= answers <= 10 and len(server.requests) == answers
    assert model.budget.cost == pytest.approx(0.002 * answers)
    assert "CCHECK_LLM_MAX_COST" in str(outcomes[-1].error)


def test_a_request_that_timed_out_is_paid_for(open_model):
    # The server may have answered it, and counted: nobody knows, so the estimate stands.
    with scripted([Said(hang=600)]) as server:
        model = open_model(server.url, llm_timeout=0.3, llm_retry_seconds=0, llm_max_calls=1, **PRICES)
        with pytest.raises(ServerError, match="did not answer"):
            model.ask(words("x" * 4_000), Number)
        assert model.budget.calls == 1
        assert model.budget.cost == pytest.approx((1_000 * 10 + 300 * 50) / 1e6, rel=0.1)
        with pytest.raises((BudgetSpent, ServerError)):
            model.ask(words("more"), Number)
    assert len(server.requests) == 1


def test_a_limit_of_cost_needs_prices():
    with pytest.raises(UsageError, match="CCHECK_LLM_PROMPT_PRICE"):
        open_budget(Settings(llm_max_cost=1))


def test_two_models_can_share_a_budget(tmp_path):
    with scripted([say(GOOD)]) as server:
        settings = Settings(llm_model="a", llm_base_url=server.url, cache_dir=tmp_path, llm_max_calls=1)
        with Runtime(settings) as runtime:
            first, second = open_llm(runtime), open_llm(runtime, "b")
            first.ask(words(), Number)
            with pytest.raises(BudgetSpent):
                second.ask(words(), Number)


def test_the_key_is_in_no_output_cache_log_or_error(open_model, tmp_path, capfd, caplog):
    caplog.set_level("DEBUG")
    leak = {"number": 7, "share": 0.5}
    said = [error(400, f"bad {KEY}"), error(500, f"{KEY} failed"), Said(json.dumps(leak | {"note": KEY})), say(leak)]
    with scripted([*said, error(401, f"key {KEY}")]) as server:
        model = open_model(server.url)
        model.ask(words(), Number)
        with pytest.raises(ServerError) as caught:
            model.ask(words("more"), Number)
        assert server.keys[-1] == f"Bearer {KEY}"
    model.close()
    shown = capfd.readouterr()
    assert KEY not in f"{caught.value!r}{caught.value}{shown.out}{shown.err}{caplog.text}{vars(model)}"
    assert all(KEY.encode() not in file.read_bytes() for file in (tmp_path / "cache").iterdir())


def test_a_key_that_would_go_over_the_network_unencrypted_is_told(open_model):
    assert open_model("http://127.0.0.1:1/v1").notice is None
    assert open_model("https://llm.example.org/v1").notice is None
    assert open_model("http://llm.example.org/v1", llm_api_key=None).notice is None
    notice = open_model("http://llm.example.org/v1").notice
    assert "llm.example.org unencrypted" in notice and KEY not in notice
