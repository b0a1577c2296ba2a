"""The client of language models, against a scripted server on loopback: what servers do, and what must come of it."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import Field
from scripted_llm import KEY, Said, error, say, scripted, user_text

from ccheck.errors import MissingExtra, ServerError, UsageError
from ccheck.llm import (
    Answer,
    BudgetSpent,
    Failure,
    InvalidReply,
    LanguageModel,
    Message,
    Question,
    Refused,
    Reply,
    open_budget,
    open_llm,
)
from ccheck.llm.cache import AnswerCache
from ccheck.llm.reply import find_object, json_schema
from ccheck.llm.server import retry_after
from ccheck.settings import Settings
from ccheck.types import Usage

pytest.importorskip("openai", reason="needs the extra llm")


class Number(Reply):
    number: int
    share: float = Field(ge=0, le=1)


GOOD = {"number": 7, "share": 0.5}


@pytest.fixture
def open_model(tmp_path: Path):
    """Opens models of a server and closes them after the test."""
    opened: list[LanguageModel] = []

    def open_one(url: str, **settings: Any) -> LanguageModel:
        values = {"llm_model": "m", "llm_api_key": KEY, "cache_dir": tmp_path / "cache", "llm_retry_seconds": 30}
        opened.append(open_llm(Settings.model_validate(values | {"llm_base_url": url} | settings)))
        return opened[-1]

    yield open_one
    for model in opened:
        model.close()


def words(text: str = "How many?") -> tuple[Message, ...]:
    return ({"role": "system", "content": "Count."}, {"role": "user", "content": text})


def many(count: int) -> list[Question[Number]]:
    return [Question(words(f"question {number}"), Number) for number in range(count)]


def numbered(request: dict[str, Any]) -> Said:
    return say({"number": int(user_text(request).split()[1]), "share": 1})


# -- an answer


def test_an_answer_has_its_value_and_what_it_cost(open_model):
    with scripted([say(GOOD)]) as server:
        answer = open_model(server.url).ask(words(), Number)
    assert (answer.value.number, answer.value.share, answer.cached) == (7, 0.5, False)
    assert answer.usage == Usage(1, 100, 20) and answer.seconds > 0


def test_the_request_has_the_schema_and_asks_for_the_same_answer_each_time(open_model):
    with scripted([say(GOOD)]) as server:
        open_model(server.url).ask(words(), Number)
    (request,) = server.requests
    shape = request["response_format"]["json_schema"]
    assert shape["strict"] is True and shape["schema"] == json_schema(Number)
    assert shape["schema"]["additionalProperties"] is False and shape["schema"]["required"] == ["number", "share"]
    assert (request["temperature"], request["seed"], request["model"]) == (0, 0, "m")
    assert server.keys == [f"Bearer {KEY}"]


def test_tokens_are_estimated_where_the_server_does_not_count(open_model):
    with scripted([say(GOOD, usage=None)]) as server:
        usage = open_model(server.url).ask(words("x" * 4000), Number).usage
    assert 900 < usage.prompt_tokens < 1200 and usage.completion_tokens > 0


# -- the shape


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(GOOD),
        "Sure! Here it is:\n```json\n" + json.dumps(GOOD, indent=2) + "\n```\nAnything else?",
        "In the set {x, y} the answer is " + json.dumps(GOOD),
        '<think>perhaps {"number": 1, "share": 0} but no</think>' + json.dumps(GOOD),
        json.dumps(GOOD) + "\n" + json.dumps(GOOD),
    ],
)
def test_an_object_is_found_in_free_text_of_a_server_that_ignores_the_schema(open_model, text):
    with scripted([Said(text)]) as server:
        assert open_model(server.url).ask(words(), Number).value.number == 7
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("seven", "no JSON object"),
        ("", "no JSON object"),
        ("[7]", "no JSON object"),
        ('{"number": 7, "sha', "not complete"),
        ('{"a": {"number": 7, "share": 0.5}', "not complete"),
        ('{"number": 7, "share": 0.5} {"number": 8, "share": 0.5}', "2 JSON objects"),
        ('{"number": 7, "number": 8, "share": 0.5}', "twice"),
        ('{"number": 7, "share": NaN}', "NaN"),
        ('{"number": 7, "share": 1.5}', "share: Input should be less than or equal to 1"),
        ('{"number": "7", "share": 0.5}', "number: Input should be a valid integer"),
        ('{"number": 7}', "share: Field required"),
        ('{"number": 7, "share": 0.5, "note": "x"}', "note: Extra inputs"),
        ('{"a":' * 100_000, "nested too deeply|not complete|200,000"),
        ('{"number": ' + "9" * 5000 + ', "share": 0}', "not complete|integer"),
    ],
)
def test_an_invalid_reply_is_asked_for_once_more_and_then_an_error(open_model, text, why):
    with scripted([Said(text)]) as server:
        model = open_model(server.url)
        with pytest.raises(InvalidReply, match=why):
            model.ask(words(), Number)
        assert len(server.requests) == 2
        assert model.usage == Usage(2, 200, 40)
        with pytest.raises(InvalidReply):  # failures are not cached
            model.ask(words(), Number)
    assert len(server.requests) == 4


def test_the_model_is_told_what_was_wrong(open_model):
    with scripted([Said("seven"), say(GOOD)]) as server:
        answer = open_model(server.url).ask(words(), Number)
    assert answer.value.number == 7 and answer.usage == Usage(2, 200, 40)
    system, user, reply, complaint = server.requests[1]["messages"]
    assert '"share"' in system["content"] and user["content"] == "How many?"
    assert reply == {"role": "assistant", "content": "seven"} and "no JSON object" in complaint["content"]


def test_a_check_makes_a_reply_invalid(open_model):
    def check(value: Number) -> None:
        if value.number != 8:
            raise ValueError("number must be 8")

    with scripted([say(GOOD), say(GOOD | {"number": 8}), say(GOOD)]) as server:
        model = open_model(server.url)
        assert model.ask(words(), Number, check=check).value.number == 8
        assert "number must be 8" in server.requests[1]["messages"][-1]["content"]
        with pytest.raises(InvalidReply, match="number must be 8") as caught:
            model.ask(words("again"), Number, check=check)
    assert caught.value.value == Number(number=7, share=0.5)


def test_half_a_reply_is_told_as_such(open_model):
    half = Said('{"number": 7, "share": 0.5}', finish_reason="length")
    with scripted([half]) as server, pytest.raises(InvalidReply, match=r"cut off after 20 .*CCHECK_LLM_MAX_TOKENS"):
        open_model(server.url).ask(words(), Number)
    assert len(server.requests) == 1


def test_a_refusal_is_an_error(open_model):
    body = {"choices": [{"message": {"content": None, "refusal": "no"}, "finish_reason": "stop"}]}
    with scripted([Said(body=body)]) as server, pytest.raises(InvalidReply, match="refused to answer"):
        open_model(server.url).ask(words(), Number)


@pytest.mark.parametrize(
    ("text", "found"),
    [("{ " * 90_000 + json.dumps(GOOD), True), ('{"":' * 40_000, False), ("{}" * 90_000 + json.dumps(GOOD), False)],
)
def test_hostile_text_is_parsed_without_going_over_it_again_and_again(text, found):
    if found:
        assert find_object(text) == GOOD
    else:
        with pytest.raises(ValueError, match=r"nested|not complete|2 JSON objects"):
            find_object(text)


# -- dialects


def only_takes(*formats: str, banned: tuple[str, ...] = ()) -> Callable[[dict[str, Any]], Said]:
    def answer(request: dict[str, Any]) -> Said:
        kind = request.get("response_format", {"type": "text"})["type"]
        if kind not in formats:
            return error(400, f"response_format {kind} is not supported")
        for name in banned:
            if name in request:
                return error(400, f"Unsupported parameter: '{name}'")
        return say(GOOD)

    return answer


def test_a_server_that_refuses_the_schema_is_asked_for_an_object_and_then_for_text(open_model):
    with scripted(only_takes("json_object")) as server:
        model = open_model(server.url)
        model.ask(words(), Number)
        model.ask(words("more"), Number)
    kinds = [request.get("response_format", {"type": "text"})["type"] for request in server.requests]
    assert kinds == ["json_schema", "json_object", "json_object"]
    assert '"share"' in server.requests[1]["messages"][0]["content"]  # the schema in words

    with scripted(only_takes("text")) as server:
        model = open_model(server.url)
        assert model.ask(words("text"), Number).value.number == 7
        assert model.usage.llm_calls == 1
    assert len(server.requests) == 3


def test_parameters_that_a_server_refuses_are_left_out(open_model):
    with scripted(only_takes("json_schema", banned=("temperature", "seed", "max_tokens"))) as server:
        model = open_model(server.url)
        model.ask(words(), Number)
        model.ask(words("more"), Number)
    assert len(server.requests) == 5
    last = server.requests[-1]
    assert last["max_completion_tokens"] == 4096 and not {"temperature", "seed", "max_tokens"} & set(last)


def test_a_question_that_is_refused_in_every_dialect_changes_nothing_for_others(open_model):
    def answer(request: dict[str, Any]) -> Said:
        return error(400, "this model's context length is 100") if "long" in user_text(request) else say(GOOD)

    with scripted(answer) as server:
        model = open_model(server.url)
        with pytest.raises(ServerError, match="context length is 100"):
            model.ask(words("long"), Number)
        model.ask(words(), Number)
    assert server.requests[-1]["response_format"]["type"] == "json_schema"


# -- failures


def test_retry_after_is_honoured(open_model):
    with scripted([error(429, "slow down", retry_after="1"), say(GOOD)]) as server:
        assert open_model(server.url).ask(words(), Number).usage.llm_calls == 1
    assert server.at[1] - server.at[0] >= 1


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("7", 7), ("0.5", 0.5), ("-3", 0), ("Wed, 21 Oct 2015 07:28:00 GMT", 0), ("soon", None), ("nan", None)],
)
def test_retry_after_is_seconds_or_a_date(value, seconds):
    assert retry_after({"retry-after": value}) == seconds and retry_after({}) is None


def test_a_pause_that_is_longer_than_allowed_is_an_error_at_once(open_model):
    later = error(429, "slow down", retry_after="3600")
    with scripted([later]) as server, pytest.raises(ServerError, match=r"429.*CCHECK_LLM_RETRY_SECONDS"):
        open_model(server.url).ask(words(), Number)
    assert len(server.requests) == 1


def test_failures_that_may_pass_are_tried_again(open_model):
    with scripted([error(500, "oops"), error(503, "loading"), say(GOOD)]) as server:
        model = open_model(server.url)
        assert model.ask(words(), Number).value.number == 7
    assert model.usage.llm_calls == 1 and len(server.requests) == 3


@pytest.mark.parametrize(("said", "hint"), [
    (error(401, f"Incorrect API key provided: {KEY}"), "set OPENAI_API_KEY"),
    (error(404, "no such model"), "'m'.*--llm"),
    (Said(status=429, body={"error": {"message": "pay", "code": "insufficient_quota"}}), "paid"),
])  # fmt: skip
def test_what_no_question_can_pass_is_raised_for_all(open_model, said, hint):
    with scripted([said]) as server:
        model = open_model(server.url)
        with pytest.raises(Refused, match=hint) as caught:
            list(model.ask_many(many(50)))
    assert KEY not in str(caught.value)
    assert len(server.requests) < 50


def test_a_key_that_is_refused_later_is_an_error_of_the_questions_after(open_model):
    answers = [say(GOOD), error(401, "expired")]
    with scripted(answers) as server:
        outcomes = list(open_model(server.url, llm_concurrency=1).ask_many(many(3)))
    assert [isinstance(outcome, Answer) for outcome in outcomes] == [True, False, False]


@pytest.mark.parametrize("said", [Said(hang=60), say(GOOD, drip=0.05)])
def test_a_server_that_hangs_or_drips_is_given_up(open_model, said):
    with scripted([said]) as server:
        model = open_model(server.url, llm_timeout=0.5, llm_retry_seconds=0)
        with pytest.raises(ServerError, match=r"did not answer within 0.5 s \(CCHECK_LLM_TIMEOUT\)"):
            model.ask(words(), Number)


def test_a_server_that_is_not_there_is_named(open_model):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/v1"
        with pytest.raises(ServerError, match=f"{url} can't be reached.*is the server running"):
            open_model(url, llm_retry_seconds=0).ask(words(), Number)


@pytest.mark.parametrize(
    "body",
    [b"<html>proxy</html>", {"hello": 1}, {"choices": []}, [], b"{" * 9_000_000, {"error": {"message": "x"}}],
    ids=["html", "other", "empty", "list", "huge", "error"],
)
def test_an_answer_that_is_no_completion_is_an_error(open_model, body):
    with scripted([Said(body=body)]) as server, pytest.raises(ServerError, match=r"127\.0\.0\.1"):
        open_model(server.url).ask(words(), Number)


def test_an_endpoint_that_dies_half_way_loses_nothing(open_model):
    with scripted(numbered) as server:
        model = open_model(server.url, llm_concurrency=2, llm_retry_seconds=1)
        outcomes = []
        for outcome in model.ask_many(many(60)):
            outcomes.append(outcome)
            if len(outcomes) == 5:
                server.close()
        server._server.server_close = server._server.shutdown = lambda: None  # closed already
        asked = len(server.requests)
    answers = [outcome for outcome in outcomes if isinstance(outcome, Answer)]
    failures = [outcome for outcome in outcomes if isinstance(outcome, Failure)]
    assert [answer.value.number for answer in answers] == list(range(len(answers)))
    assert 5 <= len(answers) <= asked and len(outcomes) == 60
    assert all("can't be reached" in str(failure.error) for failure in failures)


def test_a_server_that_was_waited_for_in_vain_is_not_waited_for_again_and_again(open_model):
    def answer(request: dict[str, Any]) -> Said:
        return numbered(request) if int(user_text(request).split()[1]) < 5 else error(503, "down")

    with scripted(answer) as server:
        outcomes = list(open_model(server.url, llm_concurrency=2, llm_retry_seconds=1).ask_many(many(60)))
    assert [isinstance(outcome, Answer) for outcome in outcomes] == [number < 5 for number in range(60)]
    # Each of the others once, and some more for the two that waited; waiting for each would be two or three for each.
    assert len(server.requests) < 60 + 12


def test_a_server_that_comes_back_is_asked_again(open_model):
    down = threading.Event()
    down.set()

    def answer(request: dict[str, Any]) -> Said:
        return error(503, "down") if down.is_set() else say(GOOD)

    with scripted(answer) as server:
        model = open_model(server.url, llm_retry_seconds=0)
        with pytest.raises(ServerError):
            model.ask(words(), Number)
        down.clear()
        assert model.ask(words(), Number).value.number == 7
        assert model.ask(words("more"), Number).value.number == 7


def test_a_server_that_hangs_for_all_does_not_cost_a_timeout_for_each(open_model):
    with scripted([Said(hang=600)]) as server:
        model = open_model(server.url, llm_timeout=0.3, llm_retry_seconds=0, llm_concurrency=4)
        outcomes = list(model.ask_many(many(100)))
    assert all("did not answer within" in str(outcome.error) for outcome in outcomes) and len(outcomes) == 100
    assert len(server.requests) <= 4 + 3


def test_questions_wait_for_the_one_that_finds_out_that_the_server_is_back(open_model):
    def answer(request: dict[str, Any]) -> Said:
        number = int(user_text(request).split()[1])
        return error(503, "down") if number == 0 else say({"number": number, "share": 1}, hang=0.1)

    with scripted(answer) as server:
        model = open_model(server.url, llm_retry_seconds=0, llm_concurrency=1)
        next(model.ask_many(many(1)))
        outcomes = list(model.ask_many(many(20)[1:]))
    assert all(isinstance(outcome, Answer) for outcome in outcomes)


# -- many questions


def test_answers_come_in_order_and_no_more_are_asked_at_a_time_than_allowed(open_model):
    def answer(request: dict[str, Any]) -> Said:
        said = numbered(request)
        said.hang = 0.05 if int(user_text(request).split()[1]) % 3 == 0 else 0.01
        return said

    with scripted(answer) as server:
        outcomes = list(open_model(server.url, llm_concurrency=3).ask_many(many(30)))
        assert server.most == 3
    assert [outcome.value.number for outcome in outcomes] == list(range(30))


def test_an_answer_is_given_before_the_last_question_is_asked(open_model):
    with scripted(numbered) as server:
        stream = open_model(server.url, llm_concurrency=1).ask_many(many(1000))
        assert next(stream).value.number == 0
        stream.close()
    assert len(server.requests) < 20


def test_one_failing_question_is_alone(open_model):
    def answer(request: dict[str, Any]) -> Said:
        return Said("no idea") if "question 3" in user_text(request) else numbered(request)

    with scripted(answer) as server:
        outcomes = list(open_model(server.url).ask_many(many(8)))
    assert [isinstance(outcome, Failure) for outcome in outcomes] == [number == 3 for number in range(8)]
    assert outcomes[3].usage == Usage(2, 200, 40)


# -- money


def test_a_second_run_costs_nothing_and_says_so(open_model):
    with scripted(numbered) as server:
        first = list(open_model(server.url).ask_many(many(5)))
        model = open_model(server.url)
        second = list(model.ask_many(many(5)))
        assert model.is_cached(many(1)[0]) and not model.is_cached(Question(words("new"), Number))
    assert len(server.requests) == 5
    assert [a.value for a in first] == [a.value for a in second] and all(a.cached for a in second)
    assert model.usage == Usage(cached=5)


def test_the_same_question_asked_twice_at_a_time_is_paid_once(open_model):
    with scripted([say(GOOD, hang=0.2)]) as server:
        outcomes = list(open_model(server.url).ask_many([many(1)[0]] * 6))
    assert len(server.requests) == 1 and [outcome.cached for outcome in outcomes] == [False] + [True] * 5


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
        assert not model.ask(words("Another" if change == "messages" else "How many?"), shape).cached


def test_a_cached_answer_that_does_not_pass_the_check_any_more_is_asked_again(open_model):
    def check(value: Number) -> None:
        if value.number == 7:
            raise ValueError("not 7")

    with scripted([say(GOOD), say(GOOD | {"number": 8})]) as server:
        model = open_model(server.url)
        model.ask(words(), Number)
        assert model.ask(words(), Number, check=check).value.number == 8


def test_a_cache_that_is_broken_only_costs_money(open_model, tmp_path):
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "answers.sqlite").write_bytes(b"no database" * 1000)
    with scripted([say(GOOD)]) as server:
        model = open_model(server.url)
        assert model.ask(words(), Number).value.number == 7
    assert "answers.sqlite can't be used" in model.notice


def test_a_cache_of_no_bytes_is_left_on_no_disk(open_model, tmp_path):
    with scripted([say(GOOD)]) as server:
        model = open_model(server.url, cache_bytes=0)
        model.ask(words(), Number)
        assert model.ask(words(), Number).cached and not open_model(server.url).is_cached(Question(words(), Number))
    assert len(server.requests) == 1


def test_a_full_cache_forgets_the_oldest_answers(tmp_path):
    cache = AnswerCache(tmp_path, max_bytes=200_000)
    for number in range(400):
        cache.put(number.to_bytes(4), "x" * 1000)
    assert cache.get((399).to_bytes(4)) is not None and cache.get((0).to_bytes(4)) is None
    cache.close()


def test_the_cache_is_for_its_owner_only(open_model, tmp_path):
    with scripted([say(GOOD)]) as server:
        open_model(server.url).ask(words(), Number)
    if os.name == "posix":
        assert stat.S_IMODE((tmp_path / "cache" / "answers.sqlite").stat().st_mode) == 0o600


def test_calls_stop_at_their_limit(open_model):
    with scripted(numbered) as server:
        model = open_model(server.url, llm_max_calls=3)
        outcomes = list(model.ask_many(many(10)))
        assert len(server.requests) == 3
        assert [isinstance(outcome, Answer) for outcome in outcomes].count(True) == 3
        assert all(
            isinstance(outcome.error, BudgetSpent) and "--max-calls" in str(outcome.error)
            for outcome in outcomes
            if isinstance(outcome, Failure)
        )
        again = list(open_model(server.url, llm_max_calls=7).ask_many(many(10)))  # goes on where it stopped
    assert all(isinstance(outcome, Answer) for outcome in again) and len(server.requests) == 10


def test_what_a_server_refuses_does_not_count(open_model):
    with scripted([error(503, "busy"), error(400, "no response_format here"), say(GOOD)]) as server:
        model = open_model(server.url, llm_max_calls=1)
        assert model.ask(words(), Number).value.number == 7
    assert model.budget.calls == 1


def test_cost_stops_at_its_limit(open_model):
    # 100 prompt tokens at 10 and 20 completion tokens at 50 a million: 0.002 a call.
    prices = {"llm_prompt_price": 10, "llm_completion_price": 50}
    with scripted(numbered) as server:
        model = open_model(server.url, llm_max_cost=0.021, llm_concurrency=2, **prices)
        outcomes = list(model.ask_many(many(100)))
        answers = sum(isinstance(outcome, Answer) for outcome in outcomes)
    assert 8 <= answers <= 10 and len(server.requests) == answers
    assert model.budget.cost == pytest.approx(0.002 * answers)
    assert "--max-cost" in str(outcomes[-1].error)


def test_a_limit_of_cost_needs_prices():
    with pytest.raises(UsageError, match="CCHECK_LLM_PROMPT_PRICE"):
        open_budget(Settings(llm_max_cost=1))


def test_two_models_can_share_a_budget(tmp_path):
    with scripted([say(GOOD)]) as server:
        settings = Settings(llm_model="a", llm_base_url=server.url, cache_dir=tmp_path, llm_max_calls=1)
        budget = open_budget(settings)
        with open_llm(settings, budget=budget) as first, open_llm(settings, "b", budget=budget) as second:
            first.ask(words(), Number)
            with pytest.raises(BudgetSpent):
                second.ask(words(), Number)


# -- keys


def test_the_key_is_in_no_output_cache_log_or_error(open_model, tmp_path, capfd, caplog):
    caplog.set_level("DEBUG")
    leak = {"number": 7, "share": 0.5}
    said = [error(400, f"bad {KEY}"), error(500, f"{KEY} failed"), Said(f"{KEY} {json.dumps(leak)}")]
    with scripted([*said, error(401, f"key {KEY}")]) as server:
        model = open_model(server.url)
        model.ask(words(), Number)
        with pytest.raises(ServerError) as caught:
            model.ask(words("more"), Number)
        assert server.keys[-1] == f"Bearer {KEY}"
    model.close()
    shown = capfd.readouterr()
    assert KEY not in f"{caught.value!r}{caught.value}{shown.out}{shown.err}{caplog.text}{vars(model)}"
    for file in (tmp_path / "cache").iterdir():
        assert KEY.encode() not in file.read_bytes()


def test_a_key_that_would_go_over_the_network_unencrypted_is_told(open_model):
    assert open_model("http://127.0.0.1:1/v1").notice is None
    assert open_model("https://llm.example.org/v1").notice is None
    assert open_model("http://llm.example.org/v1", llm_api_key=None).notice is None
    notice = open_model("http://llm.example.org/v1").notice
    assert "llm.example.org unencrypted" in notice and KEY not in notice


# -- opening


def test_what_is_missing_is_named(monkeypatch):
    with pytest.raises(UsageError, match="--llm MODEL"):
        open_llm(Settings())
    with pytest.raises(UsageError, match="OPENAI_API_KEY"):
        open_llm(Settings(llm_model="m"))
    with pytest.raises(UsageError, match="OPENAI_BASE_URL"):
        open_llm(Settings(llm_model="m", llm_base_url="localhost:8000"))
    with pytest.raises(UsageError, match="OPENAI_API_KEY"):
        open_llm(Settings(llm_model="m", llm_base_url="http://user:pass@localhost:8000/v1"))
    with pytest.raises(UsageError, match="characters that no key can have"):
        open_llm(Settings(llm_model="m", llm_api_key="sk-é 1"))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"ccheck\[llm\]"):
        open_llm(Settings(llm_model="m", llm_base_url="http://localhost:1/v1"))


def test_importing_the_room_loads_nothing_heavy():
    code = "import sys, ccheck.llm; print({'openai', 'torch', 'tenacity'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "set()"


# -- an interrupt


INTERRUPTED = """
import sys, time
from pathlib import Path
from pydantic import Field
from ccheck.llm import Answer, Question, Reply, open_llm
from ccheck.settings import Settings

class Number(Reply):
    number: int
    share: float = Field(ge=0, le=1)

llm = open_llm(Settings(llm_model="m", llm_base_url=sys.argv[1], cache_dir=Path(sys.argv[2]), llm_concurrency=4))
questions = [Question(({"role": "user", "content": f"question {n}"},), Number) for n in range(20)]
try:
    for outcome in llm.ask_many(questions):
        print(outcome.value.number if isinstance(outcome, Answer) else type(outcome.error).__name__, flush=True)
except KeyboardInterrupt:
    print("interrupted", flush=True)
    sys.exit(130)
"""


def test_an_interrupt_delivers_what_is_done_and_waits_for_nothing(tmp_path):
    asked = threading.Event()

    def answer(request: dict[str, Any]) -> Said:
        number = int(user_text(request).split()[1])
        if number == 7:  # three of the four places hang, so what came through the fourth before this is answered
            asked.set()
        return Said(hang=600) if number in (1, 4, 5) else numbered(request)

    with scripted(answer) as server:
        child = subprocess.Popen(
            [sys.executable, "-c", INTERRUPTED, server.url, str(tmp_path)], stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None
        assert child.stdout.readline() == "0\n"
        assert asked.wait(60)
        time.sleep(0.3)  # for it to wait for the answer to question 1 again
        child.send_signal(signal.SIGINT)
        out, _ = child.communicate(timeout=60)
    lines = out.splitlines()
    assert child.returncode == 130 and lines[-1] == "interrupted"
    assert lines[:6] == ["Interrupted", "2", "3", "Interrupted", "Interrupted", "6"]
