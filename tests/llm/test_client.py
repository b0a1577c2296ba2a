"""The client of language models, against a scripted server on loopback: what servers do, and what must come of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from llm_questions import GOOD, Number, many, numbered, patient_models, words  # noqa: F401 - a fixture
from pydantic import Field
from scripted_llm import KEY, Said, error, say, scripted, user_text

from ccheck.core.errors import ServerError, UsageError
from ccheck.core.runtime import Runtime
from ccheck.core.settings import Settings
from ccheck.core.stages import LanguageModelStage
from ccheck.core.types import Usage
from ccheck.llm.model import open_llm
from ccheck.llm.reply import find_object, json_schema
from ccheck.llm.types import InvalidReply, Reply


def test_a_request_has_the_schema_and_its_answer_what_it_cost(open_model):
    with scripted([say(GOOD)]) as server:
        answer = open_model(server.url).ask(words(), Number)
    assert (answer.value.number, answer.value.share, answer.usage) == (7, 0.5, Usage(1, 100, 20, 0))
    (request,) = server.requests
    shape = request["response_format"]["json_schema"]
    assert shape["strict"] is True and shape["schema"] == json_schema(Number)
    assert shape["schema"]["additionalProperties"] is False and shape["schema"]["required"] == ["number", "share"]
    assert (request["temperature"], request["seed"], request["model"]) == (0, 0, "m")
    assert server.keys == [f"Bearer {KEY}"]


class Noted(Reply):
    """For readers of the code."""

    notes: list[Noted] = Field(description="for the model")


def test_the_schema_describes_fields_and_has_no_docstrings():
    schema = json_schema(Noted)
    assert "readers of the code" not in str(schema)
    assert schema["$defs"]["Noted"]["properties"]["notes"]["description"] == "for the model"


def test_tokens_are_estimated_where_the_server_does_not_count(open_model):
    with scripted([say(GOOD, usage=None)]) as server:
        usage = open_model(server.url).ask(words("x" * 4000), Number).usage
    assert 900 < usage.prompt_tokens < 1200 and usage.completion_tokens > 0


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(GOOD),
        "\n ```json\n" + json.dumps(GOOD, indent=2) + "\n```\n",
        "```" + json.dumps(GOOD) + "```",
        '<think>perhaps {"number": 1, "share": 0} but no</think>' + json.dumps(GOOD),
        " <think>\n</think>\n```\n" + json.dumps(GOOD) + "\n```",
    ],
)
def test_white_space_a_code_fence_and_finished_thoughts_may_stand_around_a_reply(open_model, text):
    with scripted([Said(text)]) as server:
        assert open_model(server.url).ask(words(), Number).value.number == 7
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("seven", "no JSON object"),
        ('{"number": 7, "sha', "not complete"),
        (json.dumps(GOOD) + "\n" + json.dumps(GOOD), "text after the JSON object"),
        ("Sure! Here it is:\n```json\n" + json.dumps(GOOD) + "\n```", "text before the JSON object"),
        ("<think>perhaps " + json.dumps(GOOD), "thoughts only"),
        ('{"number": 7, "number": 8, "share": 0.5}', "twice"),
        ('{"number": 7, "share": NaN}', "NaN"),
        ('{"number": "7", "share": 0.5}', "number: Input should be a valid integer"),
    ],
)
def test_an_invalid_reply_is_asked_for_once_more_and_then_an_error(open_model, text, why):
    with scripted([Said(text)]) as server:
        model = open_model(server.url)
        with pytest.raises(InvalidReply, match=why):
            model.ask(words(), Number)
        assert len(server.requests) == 2 and model.usage == Usage(2, 200, 40)
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


def test_half_a_reply_is_told_as_such(open_model):
    half = Said('{"number": 7, "share": 0.5}', finish_reason="length")
    with scripted([half]) as server, pytest.raises(InvalidReply, match=r"cut off after 20 .*CCHECK_LLM_MAX_TOKENS"):
        open_model(server.url).ask(words(), Number)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "text",
    ["{ " * 90_000, '{"":' * 40_000, "{}" * 90_000, "<think>" * 25_000, "```" * 60_000],
    ids=lambda text: text[:7],
)
def test_hostile_text_is_parsed_without_going_over_it_again_and_again(text):
    with pytest.raises(ValueError, match=r"nested|not complete|text after|thoughts only|text before"):
        find_object(text + json.dumps(GOOD))
    assert find_object("<think>" * 20_000 + "</think>" + json.dumps(GOOD)) == GOOD


def only_takes(*formats: str, banned: tuple[str, ...] = ()) -> Callable[[dict[str, Any]], Said]:
    def answer(request: dict[str, Any]) -> Said:
        kind = request.get("response_format", {"type": "text"})["type"]
        if kind not in formats:
            return error(400, f"response_format {kind} is not supported")
        refused = next((name for name in banned if name in request), None)
        return say(GOOD) if refused is None else error(400, f"Unsupported parameter: '{refused}'")

    return answer


def test_a_server_that_refuses_the_schema_is_asked_for_an_object_and_then_for_text(open_model):
    formats = ["json_schema", "json_object", "text"]
    for taken in formats[1:]:
        with scripted(only_takes(taken)) as server:
            model = open_model(server.url)
            assert model.ask(words(taken), Number).value.number == 7 and model.usage.llm_calls == 1
            model.ask(words("more"), Number)
        kinds = [request.get("response_format", {"type": "text"})["type"] for request in server.requests]
        assert kinds == [*formats[: formats.index(taken) + 1], taken]
        assert '"share"' in server.requests[1]["messages"][0]["content"]  # the schema in words


def test_parameters_that_a_server_refuses_are_left_out(open_model):
    with scripted(only_takes("json_schema", banned=("temperature", "seed", "max_tokens"))) as server:
        model = open_model(server.url)
        model.ask(words(), Number)
        model.ask(words("more"), Number)
    assert len(server.requests) == 5
    last = server.requests[-1]
    assert last["max_completion_tokens"] == 4096 and not {"temperature", "seed", "max_tokens"} & set(last)


def test_a_recipe_says_how_its_models_are_asked(open_model):
    """The user's own budget wins, and what was answered in another way is asked again."""
    way = LanguageModelStage(max_tokens=65_536, temperature="default", thinking=True, reasoning_effort="high")
    with scripted([say(GOOD)]) as server:
        open_model(server.url).ask(words(), Number)
        assert not open_model(server.url, way).ask(words(), Number).usage.cached
        assert open_model(server.url, way).ask(words(), Number).usage.cached
        open_model(server.url, way, llm_max_tokens=4096).ask(words("How few?"), Number)
    usual, asked, own = server.requests
    assert (usual["temperature"], usual["max_tokens"]) == (0, 4096)
    assert "temperature" not in asked and asked["max_tokens"] == 65_536 and asked["reasoning_effort"] == "high"
    assert asked["chat_template_kwargs"] == {"enable_thinking": True} and own["max_tokens"] == 4096


def test_what_a_recipe_asks_for_is_not_left_out(open_model):
    """Without it, another system would answer."""
    way = LanguageModelStage(thinking=False)
    refused = error(400, "Unrecognized request argument supplied: chat_template_kwargs")
    with scripted([refused]) as server, pytest.raises(ServerError, match="chat_template_kwargs"):
        open_model(server.url, way).ask(words(), Number)
    assert len(server.requests) == 1


def test_the_parameter_that_a_server_names_is_changed_whatever_else_its_message_says(open_model):
    def answer(request: dict[str, Any]) -> Said:
        if request.get("response_format", {}).get("type") != "json_schema":
            return say(GOOD)
        message = "the model seed-oss-36b does not support json_schema at any temperature"
        return Said(status=400, body={"error": {"message": message, "param": "response_format"}})

    with scripted(answer) as server:
        open_model(server.url).ask(words(), Number)
    first, second = server.requests
    assert {**second, "messages": 0, "response_format": 0} == {**first, "messages": 0, "response_format": 0}
    assert second["response_format"] == {"type": "json_object"}


def test_one_question_that_is_refused_for_what_it_is_changes_nothing_for_others(open_model):
    def answer(request: dict[str, Any]) -> Said:
        if "long" in (asked := user_text(request)):
            return error(400, "'max_tokens' is too large: 4096. This model's maximum context length is 4096 tokens")
        return error(400, "no") if "odd" in asked and request["response_format"]["type"] == "json_schema" else say(GOOD)

    with scripted(answer) as server:
        model = open_model(server.url)
        with pytest.raises(ServerError, match=r"is too large.*CCHECK_LLM_MAX_TOKENS"):
            model.ask(words("long"), Number)
        for asked in ("odd", "plain", "odd one", "odder", "plain too"):
            model.ask(words(asked), Number)
    assert {request["max_tokens"] for request in server.requests} == {4096}
    formats = [request["response_format"]["type"].removeprefix("json_") for request in server.requests]
    assert " ".join(formats) == "schema schema object schema schema object schema object object"


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


def test_what_is_missing_is_named():
    for given, said in (
        (Settings(), "--llm MODEL"),
        (Settings(llm_model="m"), "OPENAI_API_KEY"),
        (Settings(llm_model="m", llm_base_url="localhost:8000"), "OPENAI_BASE_URL"),
        (Settings(llm_model="m", llm_base_url="http://user:pass@localhost:8000/v1"), "OPENAI_API_KEY"),
        (Settings(llm_model="m", llm_api_key="sk-é 1"), "OPENAI_API_KEY contains characters"),
    ):
        with pytest.raises(UsageError, match=said):
            open_llm(Runtime(given))
