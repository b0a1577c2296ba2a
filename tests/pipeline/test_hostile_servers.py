"""No misbehaving server gets a label, a key, a second host, more memory than its limit, or thousands of requests.

`benchmarks/hostile_servers.py` asks more of them, and counts.
"""

import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import hostile_replies
import pytest
from hostile_replies import CLAIM, KEY, TEXT, HostileServer, Raw, completion, hostile
from hurry import TENTH
from scripted_llm import error, say, scripted

from ccheck.core import http
from ccheck.core.errors import CcheckError, ServerError
from ccheck.core.runtime import Runtime
from ccheck.core.settings import Settings
from ccheck.core.stages import VerdictStage
from ccheck.core.types import Claim, Document, Evidence, Hit, Stance
from ccheck.llm.model import LanguageModel, open_llm
from ccheck.llm.types import Refused
from ccheck.rerank.remote import RemoteReranker
from ccheck.verdict.judge import Case, all_judged
from ccheck.verdict.llm import LlmStances
from ccheck.verdict.replies import OneStep

pytestmark = pytest.mark.usefixtures("hurried")

CASE = Case(Claim(CLAIM), (Evidence(Hit(1, Document("d", "On vaccines", TEXT), 1.0)),))
NAMES = list(hostile_replies.replies(""))
RANKING = b'{"results": [{"index": 0, "relevance_score": 0.9}, {"index": 1, "relevance_score": 0.1}]}'


@pytest.fixture
def server() -> Iterator[HostileServer]:
    with hostile() as one:
        yield one


def stance_by(model: LanguageModel) -> Stance:
    (judged,) = all_judged(LlmStances(model, VerdictStage()), [CASE])
    return judged.stances[0]


@pytest.mark.parametrize("reason", ["stop", "eos", "eos_token", "stop_sequence", "end_turn"])
def test_the_answer_that_all_of_them_hold_would_be_a_stance_by_any_word_for_a_whole_one(server, open_model, reason):
    server.answer = Raw(completion(finish_reason=reason))
    assert stance_by(open_model(server.url)).label == "SUPPORTS"


@pytest.mark.parametrize("kind", sorted({name.split(":")[0].split(" ")[0] for name in NAMES}))
def test_no_misbehaving_reply_is_a_label(kind, server, open_model, caplog):
    caplog.set_level("DEBUG")
    with hostile() as elsewhere:
        answers = hostile_replies.replies(elsewhere.url)
        for name in NAMES:
            if name.split(":")[0].split(" ")[0] != kind:
                continue
            server.requests, server.answer = 0, answers[name]
            stance = stance_by(open_model(server.url, llm_timeout=20))
            assert stance.label is None and stance.error, name
            logged = [record.getMessage() for record in caplog.records if record.name.startswith("ccheck")]
            assert KEY not in f"{stance.error}{logged}", name
            assert server.requests <= 7, name  # the weaker dialects
        assert elsewhere.requests == 0


def test_the_error_says_where_a_redirect_leads(server, open_model):
    server.answer = Raw(b"", 307, {"Location": "http://127.0.0.1:9/v1"})
    with pytest.raises(Refused, match=r"redirects to http://127\.0\.0\.1:9/v1 \(307\).*OPENAI_BASE_URL"):
        list(LlmStances(open_model(server.url), VerdictStage())([CASE]))


CHILD = """
import resource, sys
from pathlib import Path
from ccheck.core.errors import CcheckError
from ccheck.core.runtime import Runtime
from ccheck.core.settings import Settings
from ccheck.llm.model import open_llm
from ccheck.rerank.remote import RemoteReranker
from ccheck.verdict.replies import OneStep

settings = Settings(llm_model="m", llm_base_url=sys.argv[1], cache_dir=Path(sys.argv[2]), llm_retry_seconds=0)
llm = open_llm(Runtime(settings))
ask = RemoteReranker(sys.argv[1], retry_seconds=0)
def one_by_one(n):
    for asked in (lambda: llm.ask(({"role": "user", "content": str(n)},), OneStep), lambda: ask("sea", ["a", "b"])):
        try:
            asked()
        except CcheckError:
            continue
        sys.exit("there was an answer")
one_by_one(0)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for n, line in enumerate(sys.stdin, 1):
    one_by_one(n)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, flush=True)
"""


def test_bombs_stay_small(server, tmp_path):
    """Each is 256 MiB once decoded; the limits are 8 MiB for language models and 64 MiB for rerankers."""
    server.answer = Raw(b"warm", 500)
    words = [sys.executable, "-c", CHILD, server.url, str(tmp_path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as child:
        assert child.stdin is not None and child.stdout is not None
        for name, bomb in hostile_replies.bombs(256 << 20).items():
            endless = Raw(hostile_replies.endless(), bomb.status, length=None)
            server.answer = bomb if isinstance(bomb.body, bytes) else endless
            child.stdin.write("go\n")
            grown = int(child.stdout.readline()) >> 10
            assert grown < 160, f"{name}: {grown} MiB"
        child.stdin.close()


@pytest.mark.parametrize("cut", ["0-30000000", "0-30000000," * 1000, "9" * 4000, "-1", "0-1-2"])
def test_a_header_of_texts_that_were_cut_is_read_within_their_number(server, cut):
    server.answer = Raw(RANKING, headers={"X-Ccheck-Cut": cut})
    assert RemoteReranker(server.url)("sea", ["a", "b"]).cut == (False, False)
    server.answer = Raw(RANKING, headers={"X-Ccheck-Cut": "1"})
    assert RemoteReranker(server.url)("sea", ["a", "b"]).cut == (False, True)


def test_a_reranker_that_drips_its_headers_is_given_up(server):
    done = threading.Event()

    def drip() -> Iterator[bytes]:
        while not done.wait(0.05):
            yield b"x"

    server.answer = Raw(drip(), length=None)
    with pytest.raises(ServerError, match=r"did not answer within 0\.5 s"):
        RemoteReranker(server.url, timeout=0.5, retry_seconds=0)("sea", ["a", "b"])
    done.set()


@pytest.mark.parametrize("value", ["0", "0.001", "-5", "Wed, 21 Oct 2015 07:28:00 GMT"])
def test_a_server_that_says_at_once_is_not_asked_thousands_of_times(server, open_model, value):
    server.answer = Raw(b"again", 429, {"Retry-After": value})
    model = open_model(server.url, llm_retry_seconds=TENTH)
    for ask in (
        lambda: model.ask(({"role": "user", "content": "?"},), OneStep),
        lambda: RemoteReranker(server.url, retry_seconds=TENTH)("sea", ["a", "b"]),
    ):
        server.requests = 0
        with pytest.raises(CcheckError, match="429"):
            ask()
        assert 1 <= server.requests <= 2  # the second after .05 to .075 seconds


def test_one_question_may_be_forbidden_without_the_others(open_model):
    with scripted([say(hostile_replies.STANCE), error(403, "flagged"), say(hostile_replies.STANCE)]) as server:
        model = open_model(server.url, llm_concurrency=1)
        labels = []
        for number in range(3):
            (judged,) = all_judged(LlmStances(model, VerdictStage()), [Case(Claim(f"Claim {number}."), CASE.evidence)])
            labels.append(judged.stances[0].label)
    assert labels == ["SUPPORTS", None, "SUPPORTS"]


def test_who_was_never_there_is_said_at_once_and_given_up_soon(no_server, tmp_path, monkeypatch):
    monkeypatch.setattr(http, "FIRST_SECONDS", 0.2)
    said: list[tuple[float, str]] = []
    settings = Settings(llm_model="m", llm_base_url=no_server, cache_dir=tmp_path, llm_retry_seconds=600)
    model = open_llm(Runtime(settings, lambda message: said.append((time.monotonic(), message))))
    started = time.monotonic()
    for _ in range(2):
        with pytest.raises(ServerError, match="the connection was refused"):
            model.ask(({"role": "user", "content": "?"},), OneStep)
        assert len(said) == 1 and "can't be reached: the connection was refused" in said[0][1]
        assert "up to 0.2 s" in said[0][1]
    assert time.monotonic() - started < 60  # and not the ten minutes that it may take
