"""The papers' ways of asking: what is shown, what is answered, and what becomes of it."""

from __future__ import annotations

import json

import pytest
from scripted_llm import KEY, say, scripted, user_text

from ccheck.core.recipe import load_recipe
from ccheck.core.runtime import Runtime
from ccheck.core.settings import resolve
from ccheck.core.stages import ListwiseStage, RewritingStage, VerdictStage
from ccheck.core.types import Claim, Document, Evidence, Hit
from ccheck.llm import open_llm
from ccheck.verdict import Case
from ccheck.verdict.llm import LlmStances

EXAMPLES = load_recipe("climatecheck-hybrid").rerankers["listwise"].examples


def cases(claims, documents=2):
    texts = [[f"abstract {n}-{m}" for m in range(documents)] for n in range(claims)]
    return [
        Case(Claim(f"claim {n}"), tuple(Evidence(Hit(1, Document(text, "", text), 1.0)) for text in some))
        for n, some in enumerate(texts)
    ]


@pytest.fixture
def ask(tmp_path, monkeypatch):
    def asked(answer, use):
        with scripted(answer) as server:
            settings = resolve(
                {"llm_base_url": server.url, "llm_api_key": KEY, "llm_model": "m", "cache_dir": str(tmp_path / "cache")}
            ).settings
            with open_llm(Runtime(settings)) as llm:
                return use(llm), server.requests

    return asked


def stances(ask, stage, some, answer):
    made, requests = ask(answer, lambda llm: list(LlmStances(llm, stage)(some)))
    return [one for judged in made for one in judged.stances], requests


def system(request):
    return request["messages"][0]["content"]


def test_one_step_asks_for_the_label_alone(ask):
    stage = VerdictStage(prompts="paper")
    found, (request,) = stances(ask, stage, cases(1, 1), lambda request: say({"label": "REFUTES"}))
    assert (found[0].label, found[0].confidence, found[0].rationale, found[0].error) == ("REFUTES", None, None, None)
    assert request["response_format"]["json_schema"]["schema"]["required"] == ["label"]
    assert "rationale" not in system(request) and "quote" not in system(request)


def test_hybrid_thinks_silently_and_shows_the_six_examples_to_every_claim(ask):
    stage = VerdictStage(strategy="hybrid", prompts="paper", examples=EXAMPLES, shots=18)
    _, requests = stances(ask, stage, cases(2, 1), lambda request: say({"label": "SUPPORTS"}))
    shown = [[json.loads(line) for line in system(one).splitlines() if line.startswith("{")] for one in requests]
    assert shown[0] == shown[1] and len(shown[0]) == 6
    for example in shown[0]:
        labels = sorted(one["label"] for one in example["abstracts"])
        assert labels == ["NOT_ENOUGH_INFO", "REFUTES", "SUPPORTS"]
    assert "without writing anything down" in system(requests[0])
    bare, (request,) = stances(
        ask, stage.model_copy(update={"examples": None}), cases(1, 1), lambda request: say({"label": "SUPPORTS"})
    )
    assert bare[0].label == "SUPPORTS" and "Examples" not in system(request)


def test_a_batch_has_pairs_of_several_claims_and_one_digit_each(ask):
    stage = VerdictStage(strategy="batch", prompts="paper", batch=6, open_share=0.3)

    def answer(request):
        numbers = [json.loads(line)["number"] for line in user_text(request).splitlines() if line.startswith("{")]
        return say({"answers": [1 + (number - 1) % 3 for number in numbers]})

    found, requests = stances(ask, stage, cases(5), answer)
    assert [one.label for one in found] == ["NOT_ENOUGH_INFO", "SUPPORTS", "REFUTES"] * 3 + ["NOT_ENOUGH_INFO"]
    assert len(requests) == 2
    first = max(requests, key=lambda request: len(user_text(request)))
    claims = {json.loads(line)["claim"] for line in user_text(first).splitlines() if line.startswith("{")}
    assert len(claims) == 3 and "climate scientist" in system(first) and "30%" in system(first)


def test_a_batch_without_a_digit_for_each_pair_is_no_answer(ask):
    stage = VerdictStage(strategy="batch", prompts="paper")
    found, requests = stances(ask, stage, cases(1), lambda request: say({"answers": [1]}))
    assert [one.label for one in found] == [None, None] and "1 digits" in str(found[0].error)
    assert len(requests) == 2, "asked once more"


def test_the_listwise_reranker_shows_the_same_examples_evidence_first(ask):
    from ccheck.rerank.listwise import ListwiseReranker, load_examples

    examples = load_examples(EXAMPLES)
    assert len(examples) == 6 and all(len(one.passages) == 3 for one in examples)
    labels = {
        (pair["claim"], pair["evidence"]): pair["label"]
        for pair in map(json.loads, EXAMPLES.read_text(encoding="utf-8").splitlines())
    }
    for one in examples:
        ordered = [labels[one.claim, one.passages[number - 1]] for number in one.order]
        assert ordered[2] == "NOT_ENOUGH_INFO" and "NOT_ENOUGH_INFO" not in ordered[:2]
    scores, (request,) = ask(
        lambda request: say({"order": [2, 1]}),
        lambda llm: ListwiseReranker(llm, ListwiseStage(examples=EXAMPLES, prompts="paper"))("claim", ["a", "b"]),
    )
    assert scores.values == (0.0, 1.0) and "evidentiary" in system(request)
    assert sum(message["role"] == "assistant" for message in request["messages"]) == 6


def test_expand_searches_for_the_corrected_post_and_its_abstract(ask):
    from ccheck.pipeline.rewriting import rewrite

    (made,), (request,) = ask(
        lambda request: say({"corrected": "Ice melts.", "sentences": "The loss of ice was observed."}),
        lambda llm: rewrite(["ice melst"], ["expand"], RewritingStage(prompts="paper"), llm),
    )
    assert made.texts == {"expand": ("Ice melts. The loss of ice was observed.",)}
    assert "corrected" in system(request)


def test_claims_are_judged_together_until_a_prompt_is_full():
    from ccheck.pipeline.checker import at_once

    verdict = load_recipe("climatecheck-ensemble").verdict  # 50 pairs of 10 documents a claim
    assert (at_once(verdict, 8), at_once(verdict, 64), at_once(verdict, 2)) == (5, 60, 5)
    assert at_once(VerdictStage(), 8) == 8
