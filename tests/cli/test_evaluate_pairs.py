"""`ccheck evaluate --pairs`, as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli_runs import ccheck, jsonl
from scripted_llm import KEY, Said, error, say, scripted, user_text
from sklearn.metrics import f1_score

from ccheck.cli.lab.tables import cost_of
from ccheck.core.types import Usage
from ccheck.llm.budget import Price

PAIRS: list[dict[str, Any]] = [
    {"claim": "the sea rises", "evidence": "this sentence tells: yes", "label": "SUPPORTS"},
    {"claim": "the sea rises", "evidence": ["this sentence tells: no.", "Indeed."], "label": "CONTRADICT"},
    {"claim": "ice melts", "evidence": "this sentence tells: yes, too", "label": "NEI"},
    {"claim": "ice melts", "evidence": "this sentence tells: maybe", "label": "neutral"},
    {"claim": "tea helps", "evidence": "this sentence tells: broken", "label": "Supported"},
]


def answer(request: dict[str, Any]) -> Said:
    asked = user_text(request)
    if "broken" in asked:
        return error(400, "no")
    label = "SUPPORTS" if ": yes" in asked else "REFUTES" if ": no" in asked else "NOT_ENOUGH_INFO"
    return say({"rationale": "so", "quote": "this sentence tells", "label": label, "confidence": 0.8})


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("CCHECK_LLM_RETRY_SECONDS", "0")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")

    def run(pairs: list[dict[str, Any]], *more: str):
        file = jsonl(tmp_path / "pairs.jsonl", *pairs)
        with scripted(answer) as server:
            monkeypatch.setenv("OPENAI_BASE_URL", server.url)
            return ccheck("evaluate", "--pairs", str(file), "--llm", "m", *more)

    return run


def test_a_judge_is_measured_and_what_it_cannot_judge_is_wrong(ask):
    ran = ask(PAIRS, "--json")
    (found,) = ran.objects
    assert ran.code == 7 and "1 of 5 pairs could not be judged" in ran.err
    assert set(found) == {
        *("pairs", "judged", "method", "metrics", "intervals", "confusion", "usage", "seconds", "cost"),
        *("recipe", "published", "replaced", "labels", "decided"),
    }
    assert found["cost"] is None, "without prices"
    assert (found["pairs"], found["judged"], found["method"]) == (5, 4, "llm:m (one-step)")
    # Of five labels three are right; the one that is missing is a label of its own, which no pair has.
    truth = ["S", "R", "N", "N", "S"]
    given = ["S", "R", "S", "N", "?"]
    expected = f1_score(truth, given, average="weighted", labels=["S", "R", "N"])
    assert found["metrics"]["weighted_f1"] == pytest.approx(expected, abs=1e-4)
    assert found["metrics"]["macro_f1"] == pytest.approx(
        f1_score(truth, given, average="macro", labels=["S", "R", "N"]), abs=1e-4
    )
    assert found["metrics"]["accuracy"] == 0.6
    assert found["metrics"]["calibration_error"] == pytest.approx(0.05)  # .8 said, 3 of 4 right
    assert found["metrics"]["risk_coverage"] == pytest.approx((1 + 1 / 2 + 1 / 3 + 1 / 4) / 4, abs=1e-4)
    assert found["labels"]["SUPPORTS"] == {"precision": 0.5, "recall": 0.5}
    assert found["decided"] == {
        "pairs": 3, "right": 2, "refuted": 1, "refuted_said_supports": 0, "refuted_decided_supports": 0
    }  # fmt: skip
    for name, (low, high) in (one for one in found["intervals"].items() if one[1] is not None):
        assert low <= found["metrics"][name] <= high, name
    assert found["confusion"]["SUPPORTS"] == {"SUPPORTS": 1, "REFUTES": 0, "NOT_ENOUGH_INFO": 0, "not judged": 1}
    assert found["confusion"]["NOT_ENOUGH_INFO"]["SUPPORTS"] == 1
    assert found["usage"]["llm_calls"] >= 4 and found["seconds"] > 0


def test_what_was_said_of_each_pair_is_written_in_order(ask, tmp_path):
    out = tmp_path / "answers.jsonl"
    assert ask(PAIRS, "--out", str(out), "--quiet").code == 7
    written = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert [one["claim"] for one in written] == [pair["claim"] for pair in PAIRS]
    assert written[1] == {
        "claim": "the sea rises", "label": "REFUTES", "answer": "REFUTES", "confidence": 0.8, "decides": True,
        "role": None,
    }  # fmt: skip
    assert [one["decides"] for one in written] == [True, True, True, False, False]
    assert (written[4]["answer"], written[4]["confidence"]) == (None, None)
    assert ccheck("evaluate", "bm25", "--out", str(out)).code == 2


def test_documents_are_read_from_the_store(ask, tmp_path):
    store = tmp_path / "papers"
    corpus = jsonl(tmp_path / "corpus.jsonl", {"_id": "d1", "title": "A title", "text": "this sentence tells: yes"})
    assert ccheck("ingest", str(corpus), "--store", f"local:{store}", "--no-dense").code == 0
    pairs = [
        {"claim": "the sea rises", "doc_id": "d1", "label": "supports"},
        {"claim": "ice melts", "doc_id": "gone", "label": "supports"},
    ]
    ran = ask(pairs, "--json", "--store", f"local:{store}")
    (found,) = ran.objects
    assert ran.code == 7 and "the store has no document 'gone'" in ran.err
    assert (found["judged"], found["metrics"]["accuracy"]) == (1, 0.5)
    missing = ask(pairs, "--store", f"local:{tmp_path / 'nowhere'}")
    assert missing.code == 4


def test_bad_lines_are_named(tmp_path):
    file = tmp_path / "pairs.jsonl"
    lines = [
        json.dumps({"claim": "a", "evidence": "b", "label": "perhaps"}),
        json.dumps({"claim": "a", "label": "SUPPORTS"}),
        json.dumps({"evidence": "b", "label": "SUPPORTS"}),
        json.dumps({"claim": "a", "evidence": "b", "label": "DISPUTED"}),
        "{",
    ]
    for number, line in enumerate(lines):
        file.write_text(json.dumps(PAIRS[0]) + "\n" + line + "\n")
        ran = ccheck("evaluate", "--pairs", str(file), "--json")
        assert ran.code == 5 and "line 2" in ran.err and not ran.out, number
    file.write_text("")
    assert ccheck("evaluate", "--pairs", str(file)).code == 5
    assert ccheck("evaluate", "--pairs", str(tmp_path / "none.jsonl")).code == 4


def test_options_of_the_other_measurement_are_refused(tmp_path):
    file = jsonl(tmp_path / "pairs.jsonl", PAIRS[0])
    ran = ccheck("evaluate", "--pairs", str(file), "--qrels", "q.tsv")
    assert ran.code == 2 and "--qrels can't be used with --pairs" in ran.err
    assert ccheck("evaluate", "default", "--claims", "c").code == 2
    assert ccheck("evaluate").code == 2
    ran = ccheck("evaluate", "default", "--claims", "c", "--qrels", "q", "--ev2r", "m")
    assert ran.code == 2 and "--averitec" in ran.err


# -- table 3 of climatecheck-hybrid's paper: the ways of asking a language model, each on the same labelled pairs


STAND_IN = "DeBERTa-v3-base-mnli-climatecheck"
LABELS = {"ice": "Refutes", "sea": "Supports", "tea": "Not Enough Information"}


def mistaken(request):
    """Right about all but what is about ice, which it takes for support."""
    system, asked = request["messages"][0]["content"], request["messages"][-1]["content"]
    about = next(word for word in LABELS if word in asked)
    if "EVIDENCE" in system:
        return say({"label": "UNKNOWN" if about == "tea" else "EVIDENCE"})
    return say({"label": "NOT_ENOUGH_INFO" if about == "tea" else "SUPPORTS"})


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A scripted language model, with prices."""
    with scripted(mistaken) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        monkeypatch.setenv("CCHECK_CACHE_DIR", str(tmp_path / "cache"))
        monkeypatch.setenv("CCHECK_LLM_PROMPT_PRICE", "2")
        monkeypatch.setenv("CCHECK_LLM_COMPLETION_PRICE", "8")
        yield server


@pytest.fixture
def pairs(tmp_path):
    """The task's own file."""
    rows = [f"{number},{word} rises,{number},{word},{label}" for number, (word, label) in enumerate(LABELS.items())]
    (tmp_path / "pairs.csv").write_text("\n".join(["claim_id,claim,abstract_id,abstract,annotation", *rows]))
    return tmp_path / "pairs.csv"


def test_each_way_of_asking_is_measured_on_the_task_s_own_file(pairs, server):
    ways = "few-shots-hybrid,zero-shot-two-step,zero-shot-one-step"
    ran = ccheck("evaluate", "climatecheck-hybrid", "--ablation", ways, "--pairs", pairs, "--json")
    assert ran.code == 0, ran.err
    names = ["climatecheck-hybrid", *(f"climatecheck-hybrid:{way}" for way in ways.split(","))]
    assert [one["recipe"] for one in ran.objects] == names
    for one in ran.objects:
        # By hand: SUPPORTS 1 of 2 right, NOT_ENOUGH_INFO 1 of 1, REFUTES never given.
        assert one["metrics"]["weighted_precision"] == pytest.approx((0.5 + 1 + 0) / 3, abs=1e-4)
        assert one["metrics"]["weighted_recall"] == pytest.approx(2 / 3, abs=1e-4)
        assert one["metrics"]["weighted_f1"] == pytest.approx((2 / 3 + 1 + 0) / 3, abs=1e-4)
        assert one["metrics"]["calibration_error"] is None, "the paper's prompts ask for no confidence"
        assert one["published"][0]["table"] == "3"
        # A call of the scripted server has 100 + 20 tokens.
        assert one["cost"] == pytest.approx(one["usage"]["llm_calls"] * (100 * 2 + 20 * 8) / 1e6)
    assert "differences" not in ran.objects[0]
    for one in ran.objects[1:]:
        assert one["baseline"] == "climatecheck-hybrid", "against the whole recipe, paired over the claims"
        assert (one["differences"]["weighted_f1"]["difference"], one["differences"]["weighted_f1"]["ties"]) == (0, 3)
    calls = {one["recipe"]: one["usage"]["llm_calls"] for one in ran.objects}
    assert list(calls.values()) == [3, 3, 5, 3], "two steps ask about the tea only once"
    shown = [one for one in server.requests if "Examples, a claim a line" in one["messages"][0]["content"]]
    assert len(shown) == 3
    examples = [json.loads(line) for line in shown[0]["messages"][0]["content"].splitlines() if line.startswith("{")]
    assert len(examples) == 6 and all(len(one["abstracts"]) == 3 for one in examples)


def test_a_person_sees_cost_published_figures_and_differences(pairs, server):
    """A model of the table can have a stand-in: here the packaged stance model."""
    arguments = ("evaluate", "climatecheck-hybrid", "--ablation", "deberta-mnli", "--pairs", pairs)
    ran = ccheck(*arguments, "--replace", f"{STAND_IN}=packaged")
    told = ccheck(*arguments, "--replace", f"{STAND_IN}=packaged", "--json").objects[1]
    assert ran.code == 0, ran.err
    for said in ("published: table 3, Zero-shot-hybrid", " 0.6957 ", "0.0011, at your prices", "p (Holm)"):
        assert said in ran.out
    assert "published: table 3, DeBERTa-v3-base-mnli" in ran.out and "against climatecheck-hybrid" in ran.out
    assert told["cost"] is None and told["replaced"] == {STAND_IN: "packaged"}
    assert ccheck("evaluate", "--pairs", pairs, "--replace", "a=b").code == 2
    wrong = ccheck(*arguments, "--replace", "gpt-5=m")
    assert wrong.code == 2 and "no model 'gpt-5' to replace" in wrong.err


def test_a_model_on_this_machine_costs_nothing():
    price = Price(2.0, 8.0)
    assert cost_of(Usage(prompt_tokens=3_000), price) is None, "tokens without a call"
    assert cost_of(Usage(3, 3_000, 60), price) == pytest.approx(0.00648) and cost_of(Usage(3, 3_000, 60), None) is None
    assert cost_of(Usage(cached=3), price) == 0.0
