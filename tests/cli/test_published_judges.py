"""Table 3 of climatecheck-hybrid's paper: the ways of asking a language model, each on the same labelled pairs."""

from __future__ import annotations

import json

import pytest
from cli_runs import ccheck
from scripted_llm import KEY, say, scripted

from ccheck.cli.lab.tables import cost_of
from ccheck.core.types import Usage
from ccheck.llm.budget import Price

STAND_IN = "DeBERTa-v3-base-mnli-climatecheck"
LABELS = {"ice": "Refutes", "sea": "Supports", "tea": "Not Enough Information"}


def answer(request):
    """Right about all but what is about ice, which it takes for support."""
    system, asked = request["messages"][0]["content"], request["messages"][-1]["content"]
    about = next(word for word in LABELS if word in asked)
    if "EVIDENCE" in system:
        return say({"label": "UNKNOWN" if about == "tea" else "EVIDENCE"})
    return say({"label": "NOT_ENOUGH_INFO" if about == "tea" else "SUPPORTS"})


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A scripted language model, with prices."""
    with scripted(answer) as server:
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
