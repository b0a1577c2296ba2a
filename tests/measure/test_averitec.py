"""AVeriTeC's own measures, its files, and a recipe measured with them."""

import json
from pathlib import Path
from typing import Any

import pytest
from averitec_rows import PREDICTIONS, ROWS, words_shared
from cli_runs import ccheck
from needs import absent
from scripted_llm import Said, say, scripted, user_text

from ccheck.core.errors import InvalidData, NotFound, UsageError
from ccheck.core.question import Citation, QuestionAnswer
from ccheck.core.recipe import load_recipe
from ccheck.core.types import Claim, Document, Evidence, Hit, Result, Verdict
from ccheck.lab.measure.averitec import (
    Meteor,
    matched,
    mismatches,
    open_meteor,
    prediction,
    read_gold,
    read_predictions,
    require_questions,
    score,
    write_predictions,
)
from ccheck.pipeline.claims import read_claims

PUBLISHED = {
    "Q-METEOR": 0.5565537593740518,
    "QA-METEOR": 0.484453860871897,
    **{f"AVeriTeC@{limit}": 0.7 for limit in (0.1, 0.2, 0.25, 0.3)},
    "AVeriTeC@0.4": 0.5,
    "AVeriTeC@0.5": 0.4,
    "accuracy": 0.7,
    "macro-F1": 0.7595238095238095,
}
"""What the task's scoring code gives for these rows: its METEOR by NLTK 3.10.4 on WordNet 3.0 and punkt_tab, its
matching by scipy, its F1 by scikit-learn, written down from a script that runs the same calls on `averitec_rows`."""


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    (tmp_path / "gold.json").write_text(json.dumps(ROWS, indent=1))
    (tmp_path / "predictions.json").write_text(json.dumps(PREDICTIONS))
    return tmp_path / "gold.json", tmp_path / "predictions.json"


@pytest.fixture(scope="module")
def meteor() -> Meteor:
    try:
        return open_meteor()
    except NotFound as error:
        absent("nltk-data", str(error))


def test_the_measures_are_those_of_the_published_scoring_code(files: tuple[Path, Path], meteor: Meteor) -> None:
    made = score(read_gold(files[0]), read_predictions(files[1]), meteor)
    assert made["metrics"] == pytest.approx(PUBLISHED, abs=1e-12)


def test_pairs_are_matched_one_to_one_ten_count_and_answers_have_their_explanations(files: tuple[Path, Path]) -> None:
    gold, predictions = read_gold(files[0]), read_predictions(files[1])
    assert [len(one.evidence) for one in predictions][6] == 12
    made = score(gold, predictions, words_shared)
    assert score(gold, predictions[::-1], words_shared) == made
    fewer = score(gold, predictions[:-1], words_shared)
    assert fewer["missing"] == 1
    assert fewer["metrics"]["accuracy"] == pytest.approx(made["metrics"]["accuracy"] - 0.1)
    empty, strange = (predictions[0].__class__(id_, "", None, ()) for id_ in "0x")
    assert mismatches(gold, [empty, *predictions[2:], strange]) == [
        "1 of 10 claims without a prediction, counted as wrong: 1",
        "1 of 10 claims without a label, counted as wrong: 0",
        "1 of 10 predictions of no claim here, left out: x",
    ]
    with pytest.raises(InvalidData, match="belong together"):
        score(gold, [strange], words_shared)
    assert gold[0].evidence == ("Did the mayor buy a bridge? No. The town owns it.",)
    assert gold[2].evidence == ("How many bridges are there? No answer could be found.",)
    assert len(gold[3].evidence) == 3 and gold[3].label == "CONFLICTING"
    table = {("a", "x"): 0.9, ("a", "y"): 0.8, ("b", "x"): 0.7, ("b", "y"): 0.1}
    assert matched("ab", "xy", lambda one, other: table[one, other]) == pytest.approx((0.8 + 0.7) / 2)
    assert matched("a", "xy", lambda one, other: table[one, other]) == pytest.approx(0.9 / 2)
    assert matched("", "xy", lambda one, other: 1.0) == 0.0


@pytest.mark.parametrize(
    "row", [{"claim": "x"}, ROWS[0] | {"label": "Maybe"}, ROWS[0] | {"questions": [{"answers": []}]}, {"evidence": 3}]
)
def test_other_rows_are_named(tmp_path: Path, row: dict[str, Any]) -> None:
    (tmp_path / "bad.jsonl").write_text(json.dumps(row))
    with pytest.raises(InvalidData, match=r"bad\.jsonl can't be used: line 1"):
        read_gold(tmp_path / "bad.jsonl")


def test_the_prediction_file_is_the_tasks(tmp_path: Path) -> None:
    page = Document("p1", "", "The sea rose.", {"url": "https://example.org/p1"})
    answered = QuestionAnswer("How?", ("q",), "By 20 cm.", (Citation("p1", 0, 13, "The sea rose."),))
    questions = (answered, QuestionAnswer("Who?", (), "No answer could be found."), QuestionAnswer("?", error="late"))
    evidence, verdict = (Evidence(Hit(1, page, 1.0)),), Verdict("CONFLICTING")
    result = Result(Claim("The sea rose.", "7"), evidence, verdict, "r", "s", questions=questions)
    write_predictions(tmp_path / "p.json", [prediction(result)])
    (line,) = json.loads((tmp_path / "p.json").read_text())
    assert line == {
        "claim_id": "7",
        "claim": "The sea rose.",
        "pred_label": "Conflicting Evidence/Cherrypicking",
        "evidence": [
            dict(zip(("question", "answer", "url", "scraped_text"), pair, strict=True))
            for pair in (
                ("How?", "By 20 cm.", "https://example.org/p1", "The sea rose."),
                ("Who?", "No answer could be found.", "", ""),
            )
        ],
    }
    assert read_predictions(tmp_path / "p.json")[0].label == "CONFLICTING"


def test_claims_of_averitec_have_their_date_and_are_numbered_from_0(tmp_path: Path) -> None:
    where = {"location_ISO_code": None}
    rows = [{"claim": text, "claim_date": f"{day}-8-2020"} | where for day, text in enumerate("ab", 5)]
    (tmp_path / "dev.json").write_text(json.dumps(rows))
    assert read_claims(tmp_path / "dev.json") == [Claim("a", "0", "2020-08-05"), Claim("b", "1", "2020-08-06")]


@pytest.mark.parametrize("failing", [0, 1, 10])
def test_a_judge_of_ev2r_that_fails_is_an_error_and_no_score(files, monkeypatch, tmp_path, failing):
    """One prediction has no evidence: nobody is asked about it, and its recall is 0."""
    counts = {"reference_facts": 4, "reference_covered": 2, "predicted_facts": 3, "predicted_covered": 1}

    def answer(request: dict[str, Any]) -> Said:
        fails = any(json.dumps(row["claim"]) in user_text(request) for row in ROWS[:failing])
        return say("It looks fine.") if fails else say({"reasoning": "Half of it."} | counts)

    monkeypatch.setattr("ccheck.lab.measure.averitec.open_meteor", lambda: words_shared)
    monkeypatch.setenv("CCHECK_CACHE_DIR", str(tmp_path / "cache"))
    with scripted(answer, user=monkeypatch):
        files[1].write_text(json.dumps([*PREDICTIONS, PREDICTIONS[0] | {"claim_id": "x"}]))
        ran = ccheck("evaluate", files[1], "--averitec", files[0], "--ev2r", "m", "--json", "--quiet")
    (line,) = ran.objects
    said = [line["metrics"][name] for name in ("Ev2R-Q-recall", "Ev2R-QA-recall", "Ev2R@0.5")]
    assert line["metrics"]["accuracy"] == 0.7 and f"predictions.json: {line['warnings'][0]}\n" in ran.err
    if not failing:
        assert ran.code == 0 and said == pytest.approx([0.45, 0.45, 0.7])
        return
    assert ran.code == 7 and f"m could not judge {min(failing, 9)} of 10 claims" in ran.err
    assert said == ([None] * 3 if failing == 10 else pytest.approx([4 / 9, 4 / 9, 6 / 9]))


def test_a_recipe_without_questions_is_refused() -> None:
    with pytest.raises(UsageError, match="asks no questions"):
        require_questions(load_recipe("bm25"))
