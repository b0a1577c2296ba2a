"""What the client of language models makes of servers that fail, hang or go, and of an interrupt."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
import time
from typing import Any

import pytest
from hurry import TENTH
from llm_questions import GOOD, Number, many, numbered, patient_models, words  # noqa: F401 - a fixture
from scripted_llm import KEY, Said, error, say, scripted, user_text

from ccheck.core.errors import ServerError
from ccheck.core.http import retry_after
from ccheck.llm import Answer, Failure, Refused

pytestmark = pytest.mark.usefixtures("hurried")


# -- failures


def test_retry_after_is_honoured(open_model):
    with scripted([error(429, "slow down", retry_after="0.3"), say(GOOD)]) as server:
        assert open_model(server.url).ask(words(), Number).usage.llm_calls == 1
    assert server.at[1] - server.at[0] >= 0.3


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
    (Said(status=429, body={"error": {"message": "pay", "code": "insufficient_quota"}}), "requires payment"),
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
        with pytest.raises(ServerError, match=r"did not answer within 0.5 s; CCHECK_LLM_TIMEOUT"):
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


def test_a_server_that_is_not_there_is_named(open_model):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/v1"
        with pytest.raises(
            ServerError, match=f"{url} can't be reached: the connection was refused.*Is the server running"
        ):
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
        model = open_model(server.url, llm_concurrency=2, llm_retry_seconds=TENTH)
        outcomes = []
        for outcome in model.ask_many(many(60)):
            outcomes.append(outcome)
            if len(outcomes) == 5:
                server.close()
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
        outcomes = list(open_model(server.url, llm_concurrency=2, llm_retry_seconds=TENTH).ask_many(many(60)))
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


def test_who_waits_while_a_server_is_found_to_be_still_gone_does_not_ask_it_too(open_model):
    down = error(503, "down")
    with scripted([Said(status=down.status, body=down.body, hang=0.2)]) as server:
        model = open_model(server.url, llm_concurrency=8)
        model._gone = "down"
        outcomes = list(model.ask_many(many(8)))
    assert len(server.requests) == 1 and all(isinstance(outcome, Failure) for outcome in outcomes)


def test_a_server_that_hangs_for_all_does_not_cost_a_timeout_for_each(open_model):
    with scripted([Said(hang=600)]) as server:
        model = open_model(server.url, llm_timeout=0.3, llm_retry_seconds=0, llm_concurrency=4)
        outcomes = list(model.ask_many(many(100)))
    assert all("did not answer within" in str(outcome.error) for outcome in outcomes) and len(outcomes) == 100
    assert len(server.requests) <= 4 + 3


# -- an interrupt


INTERRUPTED = """
import sys, time
from pathlib import Path
from pydantic import Field
from ccheck.llm import Answer, Question, Reply, open_llm
from ccheck.core.runtime import Runtime
from ccheck.core.settings import Settings

class Number(Reply):
    number: int
    share: float = Field(ge=0, le=1)

settings = Settings(llm_model="m", llm_base_url=sys.argv[1], cache_dir=Path(sys.argv[2]), llm_concurrency=4)
llm = open_llm(Runtime(settings))
questions = [Question(({"role": "user", "content": f"question {n}"},), Number) for n in range(20)]
try:
    for outcome in llm.ask_many(questions):
        print(outcome.value.number if isinstance(outcome, Answer) else type(outcome.error).__name__, flush=True)
except KeyboardInterrupt:
    print("interrupted", flush=True)
    sys.exit(130)
"""


def test_an_interrupt_waits_for_nothing(tmp_path):
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
    assert lines == ["interrupted"]
