"""`ccheck query` with judges and `ccheck calibrate`, as a user meets them."""

import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from cli_runs import BM25, ccheck, command, jsonl, works
from scripted_llm import KEY, Said, error, say, scripted, user_text

SEA = "sea level has risen 20 cm since 1900"
SUPPORTS = {"rationale": "It says so.", "quote": "", "label": "SUPPORTS", "confidence": 0.9}
OPEN = {"rationale": "It is about something else.", "quote": "", "label": "NOT_ENOUGH_INFO", "confidence": 0.8}


def judge(request: dict[str, Any]) -> Said:
    """Papers on the sea support the claim, by their own first words; all others leave it open."""
    asked = user_text(request)
    quote = "Observed sea level rose on average by about 1.6 millimetres a year from 1900 to 2018"
    return say({**SUPPORTS, "quote": quote}) if quote in asked else say(OPEN)


@pytest.fixture
def at(papers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Arguments for a query that asks the language model of a server."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("CCHECK_LLM_RETRY_SECONDS", "1")
    monkeypatch.setenv("CCHECK_LLM_CONCURRENCY", "3")

    def arguments(url: str, *more: str) -> list[object]:
        monkeypatch.setenv("OPENAI_BASE_URL", url)
        return ["query", "--store", papers, *BM25, "--llm", "m", "-k", "3", *more]

    return arguments


def test_a_language_model_judges_and_a_second_run_costs_nothing(at):
    with scripted(judge) as server:
        first = ccheck(*at(server.url, SEA, "--json"))
        again = ccheck(*at(server.url, SEA, "--json"))
        assert first.code == again.code == 0 and len(server.requests) == 3
        shown = ccheck(*at(server.url, SEA))
    (answer,) = first.objects
    labels = {piece["doc_id"]: piece["stance"]["label"] for piece in answer["evidence"]}
    assert labels["frederikse-2020"] == "SUPPORTS" and set(labels.values()) == {"SUPPORTS", "NOT_ENOUGH_INFO"}
    assert answer["verdict"]["label"] == "SUPPORTS" and answer["verdict"]["method"] == "llm:m (one-step)"
    assert answer["usage"] == {"llm_calls": 3, "prompt_tokens": 300, "completion_tokens": 60, "cached": 0}
    paper = next(piece for piece in answer["evidence"] if piece["doc_id"] == "frederikse-2020")
    assert paper["sentences"][0]["text"].startswith("Observed sea level rose on average")
    (answer,) = again.objects
    assert answer["usage"]["llm_calls"] == 0 and answer["usage"]["cached"] == 3
    assert "3 calls, 300 + 60 tokens" in first.err and "3 answers from the cache, at no cost" in again.err
    assert "supports" in shown.out and "Verdict  SUPPORTS" in shown.out
    assert all(KEY not in text for ran in (first, again, shown) for text in (ran.out, ran.err))


@pytest.fixture
def claims(tmp_path: Path) -> Path:
    return jsonl(tmp_path / "claims.jsonl", {"_id": "1", "text": SEA}, {"_id": "2", "text": "green tea and weight"})


def test_a_server_that_dies_half_way_leaves_the_rest_and_exit_code_7(at, claims, tmp_path):
    def fails_on_the_second(request: dict[str, Any]) -> Said:
        return Said(status=500, body={}) if "green tea and weight" in user_text(request) else judge(request)

    with scripted(fails_on_the_second) as server:
        ran = ccheck(*at(server.url, "--claims", str(claims), "--verdict", "llm", "--report", str(tmp_path / "r.html")))
    first, second = ran.objects
    assert ran.code == 7 and "1 of 2 claims could not be judged completely" in ran.err
    # Why, without a look into the answers and without a terminal.
    assert ran.err.count("The first: ") == ran.err.count("Trying again for up to 1 s") == 1
    assert first["verdict"]["label"] == "SUPPORTS"
    stances = [piece["stance"] for piece in second["evidence"]]
    assert any(stance["error"] for stance in stances) and all(stance["label"] or stance["error"] for stance in stances)
    assert "no stance" in (tmp_path / "r.html").read_text(encoding="utf-8")


def test_a_wrong_key_is_said_once_and_nothing_more_is_asked(at, papers, tmp_path):
    claims = jsonl(tmp_path / "claims.jsonl", *({"_id": str(n), "text": f"{SEA} {n}"} for n in range(30)))
    with scripted([error(401, f"Incorrect API key {KEY}")]) as server:
        one = ccheck(*at(server.url, SEA, "--verdict", "llm"))
        asked = len(server.requests)
        ran = ccheck(*at(server.url, "--claims", str(claims), "--verdict", "llm"))
        assert len(server.requests) - asked <= 8  # those under way when the first was refused
        (tmp_path / "r.toml").write_text('[retrievers.bm25]\n[rerankers.listwise]\n[verdict]\nmethod = "none"\n')
        order = ccheck("query", SEA, "--store", papers, "--recipe", tmp_path / "r.toml", "--llm", "m")
    assert order.code == 6 and "refused the key" in order.err and not order.out
    assert one.code == 6 and one.out.count("refused the key") == 1 and "Verdict  none: " in one.out
    assert one.err.count("refused the key") == one.err.count("judged") == 1
    stances = [piece["stance"] for found in ran.objects for piece in found["evidence"]]
    assert ran.code == 6 and len(ran.objects) == 30 and all("refused the key" in stance["error"] for stance in stances)
    assert all(found["verdict"]["failed"] == len(found["evidence"]) for found in ran.objects)
    assert KEY not in one.out + one.err + ran.out + ran.err


def test_a_dry_run_asks_nobody(at, monkeypatch):
    monkeypatch.setenv("CCHECK_LLM_PROMPT_PRICE", "2")
    monkeypatch.setenv("CCHECK_LLM_COMPLETION_PRICE", "8")
    with scripted(judge) as server:
        ran = ccheck(*at(server.url, SEA, "--dry-run"))
        assert ran.code == 0 and server.requests == []
    first, *prompts = ran.objects
    assert first["pipeline"]["verdict"]["method"] == "llm" and first["pipeline"]["verdict"]["model"] == "m"
    assert len(prompts) == 3 and all(SEA in json.dumps(prompt["messages"]) for prompt in prompts)
    assert "would ask 3 questions of about" in ran.err and "less than 0.01 at your prices" in ran.err
    with_none = ccheck(*at("http://127.0.0.1:9/v1", SEA, "--dry-run", "--verdict", "none"))
    assert with_none.code == 2 and "the judge is not a language model" in with_none.err


def test_an_interrupt_leaves_what_was_answered(at, claims, tmp_path):
    def the_first(request: dict[str, Any]) -> Said:
        return judge(request) if SEA in user_text(request) else Said(hang=300)

    with scripted(the_first) as server:
        arguments = at(server.url, "--claims", str(claims), "--report", str(tmp_path / "r.html"))
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": dict(os.environ)}
        running = subprocess.Popen(command(*arguments), **pipes)  # type: ignore[call-overload]
        while len(server.requests) < 4:
            assert running.poll() is None
            time.sleep(0.02)
        time.sleep(0.5)
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=60)
    assert running.returncode == 130 and "interrupted" in err
    (answer,) = [json.loads(line) for line in out.splitlines()]
    assert None not in [piece["stance"]["label"] for piece in answer["evidence"]]
    assert SEA in (tmp_path / "r.html").read_text(encoding="utf-8")


def sure(request: dict[str, Any], confidences: tuple[float, ...] = (0.95, 0.97, 0.99)) -> Said:
    """Says SUPPORTS of two in three and REFUTES of the third, with more confidence than it should."""
    quote, paper, says = re.search(r"Paper (\d+) says (\d)\.", user_text(request)).group(0, 1, 2)
    label, confidence = "REFUTES" if says == "0" else "SUPPORTS", confidences[int(paper) // 3 % len(confidences)]
    return say({"rationale": "So.", "quote": quote, "label": label, "confidence": confidence})


def test_calibrate_mends_what_a_judge_is_too_sure_of(at, papers, tmp_path, monkeypatch):
    texts = [f"Paper {number} says {number % 3}." for number in range(90)]
    rows = [{"claim": f"claim {n}", "evidence": text, "label": "SUPPORTS"} for n, text in enumerate(texts)]
    pairs = jsonl(tmp_path / "pairs.jsonl", *rows)
    with scripted(sure, user=monkeypatch):
        made = tmp_path / "calibration.json"
        (facts,) = works("calibrate", pairs, "--llm", "m", "-o", made, "--json").objects
        assert facts["pairs"] == 90 and facts["accuracy"] == pytest.approx(2 / 3, abs=0.001)
        assert facts["error_before"] > 0.25 and facts["error_after"] < 0.1 and facts["output"] == str(made)
        # With the documents in another file.
        ids = [{"claim": row["claim"], "doc_id": str(n), "label": row["label"]} for n, row in enumerate(rows)]
        corpus = jsonl(tmp_path / "c.jsonl", *({"_id": str(n), "text": row["evidence"]} for n, row in enumerate(rows)))
        ran = ccheck("calibrate", jsonl(tmp_path / "ids.jsonl", *ids), "--corpus", corpus, "--llm", "m", "--json")
        assert ran.objects == [facts | {"output": None}], ran.err
        assert "not help" not in ran.err
    for code, confidence, said in ((0, 2 / 3, "not help: on other claims, an error of 0"), (5, 0.505, "don't tell")):
        with scripted(lambda request, confidence=confidence: sure(request, (confidence,)), user=monkeypatch):
            ran = ccheck("calibrate", pairs, "--llm", f"m{confidence:.3f}", "--json", "--quiet")
            assert ran.code == code and said in ran.err, ran.err
    with scripted(judge) as other:
        recipe = tmp_path / "mine.toml"
        recipe.write_text(f'[retrievers.bm25]\n[verdict]\nmethod = "llm"\ncalibration = "{made}"\n')
        at(other.url)
        answer = ccheck("query", SEA, "--store", papers, "--recipe", recipe, "--llm", "m", "-k", 2, "--json")
    confidences = [piece["stance"]["confidence"] for piece in answer.objects[0]["evidence"]]
    assert answer.code == 0 and all(confidence < 0.75 for confidence in confidences)
