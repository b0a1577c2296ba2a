"""Evaluating a recipe: what is measured of which claims, and what is said of the others."""

from __future__ import annotations

import json

import ir_measures
import pytest
from evaluation_data import ScriptedChecker
from ir_measures import RR, R, nDCG

from ccheck.core.errors import InvalidData, ServerError
from ccheck.core.recipe import load_recipe
from ccheck.core.types import Claim, Stance, Usage, Verdict
from ccheck.lab.measure.evaluate import MAX_LISTED, EvaluationData, evaluate
from ccheck.lab.measure.types import Gold

CLAIMS = [Claim(f"claim {id_}", id_) for id_ in ("a", "b", "c", "d")]
QRELS = {"a": {"1": 1, "2": 2}, "b": {"3": 1, "9": 0}, "c": {"4": 1}}
FINAL = {"a": ["2", "5", "1"], "b": ["5", "6"], "c": [], "d": ["1"]}
METRICS = ("nDCG@10", "R@2", "RR@5")


def test_the_means_are_those_of_ir_measures_over_the_claims_with_judgements():
    done: list[tuple[int, int]] = []
    told = ScriptedChecker(FINAL)
    made = evaluate(told, EvaluationData(CLAIMS, QRELS, metrics=METRICS, depth=7), lambda *now: done.append(now))
    run = {claim: {id_: -rank for rank, id_ in enumerate(ids)} for claim, ids in FINAL.items()}
    expected = ir_measures.calc_aggregate([nDCG @ 10, R @ 2, RR @ 5], QRELS, run)
    assert made.measured.mean == pytest.approx({str(measure): value for measure, value in expected.items()})
    assert told.asked == [(7, True)] and done == [(n, 4) for n in range(5)]
    assert made.judged_claims == 3 and made.measured.unanswered == ("c",)
    assert {claim: list(scores) for claim, scores in made.run.items()} == FINAL
    assert made.store == "told" and made.errors == {} and made.unjudged == 0
    # Of a claim: as the stages say, and in all as the clock saw it.
    assert made.seconds["retrieve"] == 0.002 and made.seconds["rerank"] == 0.004 and made.seconds["total"] > 0
    assert made.usage == Usage(4, 400, 80)
    assert made.usage_by_stage == {"rewrite": Usage(4, 160, 60), "verdict": Usage(0, 240, 20)}
    told = made.to_dict()
    assert told["tokens_per_claim"] == {"llm_calls": 1, "prompt_tokens": 100, "completion_tokens": 20, "cached": 0}
    by_stage = told["tokens_per_claim_by_stage"]
    assert list(by_stage) == ["rewrite", "verdict"] and by_stage["rewrite"]["prompt_tokens"] == 40
    whole = {name: sum(one[name] for one in by_stage.values()) for name in by_stage["verdict"]}
    assert whole == told["tokens_per_claim"]


def test_judgements_of_claims_that_were_not_asked_count_in_no_mean():
    some = evaluate(ScriptedChecker(FINAL), EvaluationData(CLAIMS[:1], QRELS, metrics=METRICS))
    assert some.judged_claims == 1 and some.measured.unanswered == () and some.measured.mean["R@2"] == 0.5


def test_a_claim_that_failed_is_named_and_in_no_mean():
    made = evaluate(
        ScriptedChecker({**FINAL, "a": ServerError("gone")}), EvaluationData(CLAIMS, QRELS, metrics=METRICS)
    )
    assert made.errors == {"a": "gone"} and "a" not in made.run and made.judged_claims == 2
    assert made.to_dict()["errors"] == [{"claim": "a", "error": "gone"}]
    with pytest.raises(ServerError, match="Claim a: gone"):
        evaluate(ScriptedChecker(dict.fromkeys(FINAL, ServerError("gone"))), EvaluationData(CLAIMS, QRELS))
    with pytest.raises(InvalidData, match="Claim a: gone"):
        evaluate(ScriptedChecker(dict.fromkeys(FINAL, InvalidData("gone"))), EvaluationData(CLAIMS, QRELS))


@pytest.mark.parametrize(
    ("claims", "qrels", "said"),
    [
        ([], QRELS, "no claims"),
        ([Claim("x")], QRELS, "without an id"),
        ([CLAIMS[0], CLAIMS[0]], QRELS, "the id 'a'"),
        (CLAIMS, {"z": {"1": 1}}, "none of the 4 claims has judgements"),
    ],
)
def test_what_can_not_be_measured_says_why(claims, qrels, said):
    with pytest.raises(InvalidData, match=said):
        evaluate(ScriptedChecker(FINAL), EvaluationData(claims, qrels))


STAGED = {
    "a": {"bm25": ["1", "5", "2"], "dense": ["5", "2"], "rrf": ["5", "1", "2"], "rerank": ["2", "5", "1"]},
    # The reranker failed here: what it would have changed is as it was.
    "b": {"bm25": ["5"], "dense": ["6", "3"], "rrf": ["5", "6", "3"]},
    "c": {"bm25": [], "dense": [], "rrf": [], "rerank": []},
    "d": {"bm25": ["1"], "dense": [], "rrf": ["1"], "rerank": ["1"]},
}


def test_each_stage_is_measured():
    made = evaluate(ScriptedChecker(FINAL, STAGED), EvaluationData(CLAIMS, QRELS, metrics=METRICS))
    assert list(made.stages) == ["bm25", "dense", "rrf", "rerank"]
    assert made.stages["rerank"]["b"] == ("5", "6", "3") and made.stages["dense"]["d"] == ()
    for name, measured in made.stages_measured.items():
        rankings = {claim: STAGED[claim].get(name, STAGED[claim]["rrf"]) for claim in STAGED}
        run = {claim: {id_: -rank for rank, id_ in enumerate(ids)} for claim, ids in rankings.items()}
        expected = ir_measures.calc_aggregate([nDCG @ 10, R @ 2, RR @ 5], QRELS, run)
        assert measured.mean == pytest.approx({str(measure): value for measure, value in expected.items()})
    assert set(made.to_dict()["stages"]) == {"bm25", "dense", "rrf", "rerank"}
    # Stages are measured at the depth of the evaluation, but known to their own.
    shallow = evaluate(ScriptedChecker(FINAL, STAGED), EvaluationData(CLAIMS, QRELS, metrics=["R@100"], depth=1))
    assert shallow.stages_measured["bm25"].mean["R@100"] == pytest.approx((0.5 + 0 + 0) / 3)
    assert shallow.stages["bm25"]["a"] == ("1", "5", "2")


def test_verdicts_are_compared_with_the_true_ones():
    gold = Gold(
        {("a", "2"): "SUPPORTS", ("a", "1"): "REFUTES", ("b", "3"): "REFUTES", ("z", "1"): "SUPPORTS"},
        {"a": "SUPPORTS", "b": "REFUTES", "z": "SUPPORTS"},
    )
    stances = {
        ("a", "2"): Stance("SUPPORTS", 0.9),
        ("a", "1"): Stance(None, error="why"),
        ("d", "1"): Stance("REFUTES"),
    }
    verdicts = {"a": Verdict("SUPPORTS", 0.8), "b": Verdict(None, error="why")}
    made = evaluate(ScriptedChecker(FINAL, {}, stances, verdicts), EvaluationData(CLAIMS, QRELS, gold))
    # b's document was not retrieved, a's other one could not be judged, z was not asked.
    assert (made.stances.count, made.stances.failed, made.stances.missing) == (1, 1, 1)
    assert (made.verdicts.count, made.verdicts.failed, made.verdicts.missing) == (1, 1, 0)
    assert made.stances.accuracy == 1 and made.unjudged == 2
    said = json.loads(json.dumps(made.to_dict()))
    assert said["stances"]["weighted"]["f1"] == 1 and said["verdicts"]["calibration_error"] == pytest.approx(0.2)
    with pytest.raises(InvalidData, match="none of the claims has a true label"):
        evaluate(ScriptedChecker(FINAL), EvaluationData(CLAIMS, QRELS, Gold({}, {"z": "SUPPORTS"})))


def test_only_what_the_recipe_has_judged_counts():
    recipe = load_recipe("default")
    recipe = recipe.model_copy(update={"verdict": recipe.verdict.model_copy(update={"documents": 1})})
    gold = Gold({("a", "2"): "SUPPORTS", ("a", "5"): "REFUTES"})
    stances = {("a", "2"): Stance("SUPPORTS"), ("a", "5"): Stance("SUPPORTS")}
    made = evaluate(ScriptedChecker(FINAL, {}, stances, recipe=recipe), EvaluationData(CLAIMS, QRELS, gold))
    assert (made.stances.count, made.stances.missing) == (1, 1) and made.verdicts is None


def test_warnings_are_said_once_with_how_many_claims_had_them():
    warnings = {"a": ("all", "some"), "b": ("all",), "c": ("all",), "d": ("all",)}
    made = evaluate(ScriptedChecker(FINAL, warnings=warnings), EvaluationData(CLAIMS, QRELS))
    assert made.warnings == ("all", "1 of 4 claims: some")
    many = {"a": tuple(f"warning {n}" for n in range(MAX_LISTED + 5))}
    made = evaluate(ScriptedChecker(FINAL, warnings=many), EvaluationData(CLAIMS, QRELS))
    assert len(made.warnings) == MAX_LISTED + 1 and made.warnings[-1] == "and 5 other warnings"
