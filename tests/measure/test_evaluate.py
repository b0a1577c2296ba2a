"""Evaluating a recipe: what is measured of which claims, and what is said of the others."""

import json
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing

import ir_measures
import pytest
from evaluation_data import ScriptedChecker
from ir_measures import RR, R, nDCG

from ccheck.core.cache import Cache, memory_key, recall
from ccheck.core.errors import InvalidData, ServerError, UsageError
from ccheck.core.recipe import changed, load_recipe
from ccheck.core.types import Claim, Stance, Usage, Verdict
from ccheck.lab.measure.evaluate import MAX_LISTED, EvaluationData, evaluate
from ccheck.lab.measure.session import MAX_POINTS, CachedMemory, parse_grid, points_of
from ccheck.lab.measure.types import Gold

CLAIMS = [Claim(f"claim {id_}", id_) for id_ in ("a", "b", "c", "d")]
QRELS = {"a": {"1": 1, "2": 2}, "b": {"3": 1, "9": 0}, "c": {"4": 1}}
FINAL = {"a": ["2", "5", "1"], "b": ["5", "6"], "c": [], "d": ["1"]}
METRICS = ("nDCG@10", "R@2", "RR@5")


def by_ir_measures(rankings):
    run = {claim: {id_: -rank for rank, id_ in enumerate(ids)} for claim, ids in rankings.items()}
    expected = ir_measures.calc_aggregate([nDCG @ 10, R @ 2, RR @ 5], QRELS, run)
    return pytest.approx({str(measure): value for measure, value in expected.items()})


def test_the_means_are_those_of_ir_measures_over_the_claims_with_judgements():
    done: list[tuple[int, int]] = []
    told = ScriptedChecker(FINAL)
    made = evaluate(told, EvaluationData(CLAIMS, QRELS, metrics=METRICS, depth=7), lambda *now: done.append(now))
    assert made.measured.mean == by_ir_measures(FINAL)
    assert told.asked == [(7, True)] and done == [(n, 4) for n in range(5)]
    assert made.to_dict()["claims"] == 3
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


def test_claims_that_failed_or_were_not_asked_are_in_no_mean():
    some = evaluate(ScriptedChecker(FINAL), EvaluationData(CLAIMS[:1], QRELS, metrics=METRICS))
    assert some.to_dict()["claims"] == 1 and some.measured.mean["R@2"] == 0.5
    told = ScriptedChecker({**FINAL, "a": ServerError("gone")})
    made = evaluate(told, EvaluationData(CLAIMS, QRELS, metrics=METRICS))
    assert made.errors == {"a": "gone"} and "a" not in made.run and made.to_dict()["claims"] == 2
    assert made.to_dict()["errors"] == [{"claim": "a", "error": "gone"}]
    for error in (ServerError, InvalidData):
        with pytest.raises(error, match="from claim a on"):
            evaluate(ScriptedChecker(dict.fromkeys(FINAL, error("gone"))), EvaluationData(CLAIMS, QRELS))


def test_claims_without_judgements_say_so():
    with pytest.raises(InvalidData, match="none of the 4 claims has judgements"):
        evaluate(ScriptedChecker(FINAL), EvaluationData(CLAIMS, {"z": {"1": 1}}))


STAGED = {
    "a": {"bm25": ["1", "5", "2"], "dense": ["5", "2"], "rrf": ["5", "1", "2"], "rerank": ["2", "5", "1"]},
    # The reranker did not run here: what it would have changed is as it was.
    "b": {"bm25": ["5"], "dense": ["6", "3"], "rrf": ["5", "6", "3"]},
    "c": {"bm25": [], "dense": [], "rrf": [], "rerank": []},
    "d": {"bm25": ["1"], "dense": [], "rrf": ["1"], "rerank": ["1"]},
}


def test_each_stage_is_measured():
    made = evaluate(ScriptedChecker(FINAL, STAGED), EvaluationData(CLAIMS, QRELS, metrics=METRICS))
    assert list(made.stages_measured) == ["bm25", "dense", "rrf", "rerank"]
    for name, measured in made.stages_measured.items():
        rankings = {claim: STAGED[claim].get(name, STAGED[claim]["rrf"]) for claim in STAGED}
        assert measured.mean == by_ir_measures(rankings)
    assert set(made.to_dict()["stages"]) == {"bm25", "dense", "rrf", "rerank"}
    # Stages are measured at the depth of the evaluation.
    shallow = evaluate(ScriptedChecker(FINAL, STAGED), EvaluationData(CLAIMS, QRELS, metrics=["R@100"], depth=1))
    assert shallow.stages_measured["bm25"].mean["R@100"] == pytest.approx((0.5 + 0 + 0) / 3)


def test_verdicts_are_compared_with_the_true_ones_where_the_recipe_judged():
    gold = Gold(
        {("a", "2"): "SUPPORTS", ("a", "1"): "REFUTES", ("b", "3"): "REFUTES", ("z", "1"): "SUPPORTS"},
        {"a": "SUPPORTS", "b": "REFUTES", "z": "SUPPORTS"},
    )
    stances = {("a", "2"): Stance("SUPPORTS", 0.9), ("a", "1"): Stance(None, error="why")}
    verdicts = {"a": Verdict("SUPPORTS", 0.8), "b": Verdict(None, error="why")}
    told = ScriptedChecker(FINAL, {}, stances | {("d", "1"): Stance("REFUTES")}, verdicts)
    made = evaluate(told, EvaluationData(CLAIMS, QRELS, gold))
    # b's document was not retrieved, a's other one could not be judged, z was not asked.
    assert (made.stances.count, made.stances.failed, made.stances.missing) == (1, 1, 1)
    assert (made.verdicts.count, made.verdicts.failed, made.verdicts.missing) == (1, 1, 0)
    assert made.stances.accuracy == 1 and made.unjudged == 2
    assert made.failures == ("2 stances and verdicts failed. Claim a: why",)
    said = json.loads(json.dumps(made.to_dict()))
    assert said["errors"] == [{"claim": claim, "error": "why"} for claim in "ab"]
    assert said["stances"]["weighted"]["f1"] == 1 and said["verdicts"]["calibration_error"] == pytest.approx(0.2)
    with pytest.raises(InvalidData, match="none of the claims has a true label"):
        evaluate(ScriptedChecker(FINAL), EvaluationData(CLAIMS, QRELS, Gold({}, {"z": "SUPPORTS"})))
    recipe = load_recipe("default")
    recipe = recipe.model_copy(update={"verdict": recipe.verdict.model_copy(update={"documents": 1})})
    gold = Gold({("a", "2"): "NOT_ENOUGH_INFO", ("a", "5"): "REFUTES"})
    stances = {("a", "2"): Stance(None, read=False), ("a", "5"): Stance("SUPPORTS")}  # what is left unread is left open
    made = evaluate(ScriptedChecker(FINAL, {}, stances, recipe=recipe), EvaluationData(CLAIMS, QRELS, gold))
    assert (made.stances.count, made.stances.missing) == (1, 1) and made.verdicts is None


def test_warnings_are_said_once_with_how_many_claims_had_them():
    warnings = {"a": ("all", "some"), "b": ("all",), "c": ("all",), "d": ("all",)}
    made = evaluate(ScriptedChecker(FINAL, warnings=warnings), EvaluationData(CLAIMS, QRELS))
    assert made.warnings == ("all", "1 of 4 claims: some")
    many = {"a": tuple(f"warning {n}" for n in range(MAX_LISTED + 5))}
    made = evaluate(ScriptedChecker(FINAL, warnings=many), EvaluationData(CLAIMS, QRELS))
    assert len(made.warnings) == MAX_LISTED + 1 and made.warnings[-1] == "and 5 other warnings"


DEFAULT = load_recipe("default")


def test_values_are_written_as_in_toml():
    for said, values in {
        "10, 20,60": [10, 20, 60],
        "rrf,minmax": ["rrf", "minmax"],
        "[1,2],[3]": [[1, 2], [3]],
        '"x,y"': ["x,y"],
        "true,false": [True, False],
        "0.5,1e-3": [0.5, 0.001],
    }.items():
        assert parse_grid([f"fusion.k={said}", "x=1"]) == {"fusion.k": values, "x": [1]}


@pytest.mark.parametrize(
    ("grid", "said"),
    [
        (["fusion.k"], "is not KEY=VALUE"),
        (["fusion..k=3"], "is not KEY=VALUE"),
        (["fusion.k="], "is not KEY=VALUE"),
        (["fusion.k=1,1"], "a value twice"),
        (["fusion.k=1", "fusion.k=2"], "twice"),
        (["fusion.k=1,[2"], "is not TOML"),
    ],
)
def test_a_grid_that_is_none_says_why(grid, said):
    with pytest.raises(UsageError, match=said.replace("[", r"\[")):
        parse_grid(grid)


def test_a_point_changes_what_it_names_and_nothing_else():
    ((settings, recipe),) = points_of(DEFAULT, {"fusion.k": [10]})
    assert (settings, recipe.fusion.k) == ({"fusion.k": 10}, 10)
    assert recipe.retrievers == DEFAULT.retrievers and recipe.verdict == DEFAULT.verdict
    with pytest.raises(UsageError, match="At most"):
        points_of(DEFAULT, {"fusion.k": range(1, MAX_POINTS + 2)})
    with pytest.raises(UsageError, match="no combination of the grid has a retriever"):
        points_of(DEFAULT, {"retrievers.bm25": [False], "retrievers.dense": [False]})
    without = changed(DEFAULT, {"retrievers.dense": False, "rerankers.rerank": True})
    assert list(without.retrievers) == ["bm25"] and without.rerankers == DEFAULT.rerankers
    assert DEFAULT.retrievers.keys() == {"bm25", "dense"}  # it is as it was


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"fusion.kk": 3}, "default with fusion.kk = 3: fusion: unknown key kk: did you mean 'k'"),
        ({"retrievers.bm52.depth": 3}, "did you mean 'bm25'"),
        ({"retrievers.sparse": False}, "to leave out"),
        ({"fusion.k": "many"}, "fusion.k"),
        ({"retrievers.bm25.depth": 0}, "depth"),
        ({"retrievers.bm25.depth.x": 1}, "no 'depth'"),
    ],
    ids=str,
)
def test_a_setting_that_the_recipe_does_not_take_says_why(settings, said):
    with pytest.raises(UsageError, match=said):
        changed(DEFAULT, settings)


MIB = 1 << 20


def numbered(count: int, size: int = 1000) -> dict[bytes, bytes]:
    return {number.to_bytes(4): bytes([number % 256]) * size for number in range(count)}


def test_what_was_put_is_there_in_another_process_but_without_bytes(tmp_path):
    cache = Cache(tmp_path / "a" / "b.sqlite", MIB, "the cache")
    cache.put(numbered(3, 5))
    assert cache.get(list(numbered(4))) == numbered(3, 5) and cache.get([]) == {}
    read = "from pathlib import *; from ccheck.core.cache import *; print(Cache(Path({!r}), 1 << 20, 'x').get([{}]))"
    key, command = (1).to_bytes(4), [sys.executable, "-c", read.format(str(cache.path), (1).to_bytes(4))]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert said.strip() == str({key: b"\x01" * 5})
    cache.put({key: b"other"})
    assert cache.get([key]) == {key: b"other"}
    assert stat.S_IMODE(cache.path.stat().st_mode) == 0o600 and cache.notice is None
    assert stat.S_IMODE(cache.path.parent.stat().st_mode) == 0o700
    cache.close()
    assert cache.get([key]) == {} and cache.put({b"k": b"v"}) is None
    (empty := tmp_path / "empty").mkdir()
    cache = Cache(empty / "x" / "x.sqlite", 0, "the cache")
    cache.put(numbered(3))
    assert len(cache.get(list(numbered(3)))) == 3 and cache.notice is None
    cache.close()
    assert list(empty.iterdir()) == []


def test_the_oldest_go_first_and_a_file_that_breaks_on_the_way_is_said(tmp_path):
    cache = Cache(tmp_path / "x.sqlite", 200_000, "the cache")
    for key, value in numbered(500).items():
        cache.put({key: value})
    kept = sorted(int.from_bytes(key) for key in cache.get(list(numbered(500))))
    assert 100 < len(kept) < 200 and kept == list(range(500 - len(kept), 500))
    cache.put({b"large": b"x" * MIB})  # more than it may hold: nothing is left of it, and it ends
    assert len(cache.get(list(numbered(500)))) == 0 and cache.notice is None
    cache.put({b"k": b"v"})
    assert cache.get([b"k"]) == {b"k": b"v"}
    cache.close()
    cache = Cache(tmp_path / "y.sqlite", MIB, "the cache")
    with closing(sqlite3.connect(tmp_path / "y.sqlite")) as other:
        other.execute("DROP TABLE entries")
    cache.put(numbered(2))
    assert "no such table" in cache.notice and cache.get(list(numbered(2))) == numbered(2)
    cache.close()


@pytest.mark.parametrize("broken", ["no database", "a folder", "no folder"])
def test_a_file_that_cant_be_used_is_said_and_the_run_goes_on(tmp_path, broken):
    path = tmp_path / "cache" / "x.sqlite"
    if broken == "no folder":
        (tmp_path / "cache").write_text("a file")
    else:
        path.parent.mkdir()
        path.mkdir() if broken == "a folder" else path.write_bytes(b"no database" * 1000)
    cache = Cache(path, MIB, "the cache of tests")
    assert cache.notice.startswith(f"the cache of tests {path} can't be used (")
    assert ("CCHECK_CACHE_DIR" if broken == "no folder" else "It is safe to delete") in cache.notice
    cache.put(numbered(3))
    assert cache.get(list(numbered(3))) == numbered(3)
    cache.close()


def test_the_memory_recalls_by_kind_and_key(tmp_path):
    asked: list[list[int]] = []

    def compute(places: list[int]) -> list[str]:
        asked.append(places)
        return [f"value {place}" for place in places]

    keys = [memory_key("k", number) for number in range(4)]
    with Cache(tmp_path / "m.sqlite", MIB, "it") as cache:
        memory = CachedMemory(cache)
        for some in (keys[:2], keys, keys):
            made = recall(memory, "ranking", some, compute, str.encode, bytes.decode)
            assert made == [f"value {place}" for place in range(len(some))]
        assert asked == [[0, 1], [2, 3]]
        assert memory.hits == {"ranking": 6}
    with Cache(tmp_path / "m.sqlite", MIB, "it") as cache:
        memory = CachedMemory(cache)
        memory.put("ranking", {keys[0]: b"new"})
        assert memory.get("ranking", keys[:2]) == {keys[0]: b"new", keys[1]: b"value 1"}
