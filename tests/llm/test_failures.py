"""What the client of language models makes of servers that fail, hang or go, and of an interrupt."""

import threading
from typing import Any

import pytest
from hurry import TENTH
from llm_questions import GOOD, Number, many, numbered, patient_models, words  # noqa: F401 - a fixture
from scripted_llm import KEY, Said, error, say, scripted, user_text

from ccheck.core.errors import ServerError
from ccheck.core.http import retry_after
from ccheck.llm.types import Answer, Failure, Refused

pytestmark = pytest.mark.usefixtures("hurried")
HALF, CUT_OFF = say(GOOD, headers={"Content-Length": "999"}), "/v1 closed the connection before its answer was complete"
LATE = "did not answer within 0.5 s; CCHECK_LLM_TIMEOUT"


def test_a_broken_answer_is_asked_for_again_and_retry_after_is_honoured(open_model):
    with scripted([HALF, error(429, "slow down", retry_after="0.3"), say(GOOD)]) as server:
        assert open_model(server.url).ask(words(), Number).usage.llm_calls == 1
    assert server.at[2] - server.at[1] >= 0.3


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("7", 7), ("0.5", 0.5), ("-3", 0), ("Wed, 21 Oct 2015 07:28:00 GMT", 0), ("soon", None), ("nan", None)],
)
def test_retry_after_is_seconds_or_a_date(value, seconds):
    assert retry_after({"retry-after": value}) == seconds and retry_after({}) is None


def test_a_pause_that_is_longer_than_allowed_is_an_error_at_once(open_model):
    later = error(429, "slow down", retry_after="3600")
    with scripted([later]) as server, pytest.raises(ServerError, match=r"429.* 3,600 s; .*LLM_RETRY_SECONDS"):
        open_model(server.url).ask(words(), Number)
    assert len(server.requests) == 1


@pytest.mark.parametrize(("said", "hint"), [
    (error(401, f"Incorrect API key provided: {KEY}"), "set OPENAI_API_KEY"),
    (error(404, "no such model"), "'m'.*--llm"),
    (Said(status=429, body={"error": {"message": "pay", "code": "insufficient_quota"}}), "requires payment"),
])  # fmt: skip
def test_what_no_question_can_pass_is_raised_for_all(open_model, said, hint):
    with scripted([said]) as server:
        model = open_model(server.url)
        with pytest.raises(Refused, match=hint) as caught:
            list(model.ask_many(many(50)))
    assert KEY not in str(caught.value) and len(server.requests) < 50


def test_a_key_that_is_refused_later_is_an_error_of_the_questions_after(open_model):
    with scripted([say(GOOD), error(401, "expired")]) as server:
        outcomes = list(open_model(server.url, llm_concurrency=1).ask_many(many(3)))
    assert [isinstance(outcome, Answer) for outcome in outcomes] == [True, False, False]


@pytest.mark.parametrize(("said", "why"), [(Said(hang=60), LATE), (say(GOOD, drip=0.05), LATE), (HALF, CUT_OFF)])
def test_a_server_that_hangs_drips_or_breaks_off_is_given_up(open_model, said, why):
    with scripted([said]) as server:
        model = open_model(server.url, llm_timeout=0.5, llm_retry_seconds=0)
        with pytest.raises(ServerError, match=why):
            model.ask(words(), Number)


def test_a_slow_server_is_named_once(open_model, monkeypatch):
    monkeypatch.setattr("ccheck.llm.client.SLOW", 0.05)
    told: list[str] = []
    with scripted(lambda request: say(GOOD, hang=0.3)) as server:
        model = open_model(server.url)
        model._client.patience.notify = told.append
        for text in "ab":
            model.ask(words(text), Number)
    (message,) = told
    assert "waiting for m" in message and server.url in message and "CCHECK_LLM_TIMEOUT" in message


def test_an_endpoint_that_dies_half_way_loses_nothing(open_model):
    with scripted(numbered) as server:
        model = open_model(server.url, llm_concurrency=2, llm_retry_seconds=TENTH)
        outcomes = []
        for outcome in model.ask_many(many(60)):
            outcomes.append(outcome)
            if len(outcomes) == 5:
                server.close()
        asked = len(server.requests)
    answers = [outcome.value.number for outcome in outcomes if isinstance(outcome, Answer)]
    assert answers == list(range(len(answers))) and 5 <= len(answers) <= asked and len(outcomes) == 60
    assert all("can't be reached" in str(one.error) for one in outcomes if isinstance(one, Failure))


def test_a_server_that_was_waited_for_in_vain_is_not_waited_for_again_and_again(open_model):
    def answer(request: dict[str, Any]) -> Said:
        asked = user_text(request)
        return numbered(request) if int(asked.split()[1]) < 5 else error(503, f"down at {asked}")

    with scripted(answer) as server:
        outcomes = list(open_model(server.url, llm_concurrency=2, llm_retry_seconds=TENTH).ask_many(many(60)))
    assert [isinstance(outcome, Answer) for outcome in outcomes] == [number < 5 for number in range(60)]
    assert any(f"down at question {one}" in str(outcomes[-1].error) for one in (58, 59)), "as it is now"
    # Each of the others once, and some more for the two that waited; waiting for each would be two or three for each.
    assert len(server.requests) < 60 + 12


def test_who_waited_for_a_server_that_is_back_is_as_patient_as_all(open_model):
    said: dict[str, int] = {}

    def answer(request: dict[str, Any]) -> Said:
        number = user_text(request).split()[1]
        said[number] = said.get(number, 0) + 1
        # The first finds out that the server is back, while the second waits for it.
        busy = (number, said[number]) == ("1", 1)
        return error(503, "busy") if busy else say({"number": int(number), "share": 1}, hang=0.2)

    with scripted(answer) as server:
        model = open_model(server.url, llm_concurrency=2)
        model._gone = "down"
        outcomes = list(model.ask_many(many(2)))
    assert [isinstance(outcome, Answer) for outcome in outcomes] == [True, True]


@pytest.mark.parametrize("bad", [Said(hang=600), *(error(status, "not yet") for status in (401, 403, 404))])
def test_a_server_that_hung_or_refused_is_asked_again_later(open_model, monkeypatch, bad):
    down = threading.Event()
    down.set()
    with scripted(lambda _: bad if down.is_set() else say(GOOD)) as server:
        model = open_model(server.url, llm_timeout=0.3, llm_retry_seconds=0, llm_concurrency=1)
        outcomes = []
        for number in range(6):
            with pytest.raises(ServerError):
                model.ask(words(str(number)), Number)
            outcomes.append(len(server.requests))
        assert outcomes[-1] == outcomes[-2]  # it is left alone
        down.clear()
        with pytest.raises(ServerError):
            model.ask(words("soon"), Number)
        monkeypatch.setattr("ccheck.llm.model._LEFT_ALONE", 0)
        model._refusing.until = model._hanging.until = 0
        assert model.ask(words("later"), Number).value.number == 7
        assert model.ask(words("more"), Number).value.number == 7
