"""Answers that are read again from a record, where others can write."""

import json
from typing import Any

import pytest
from report_results import MANY, RATE, ROSE, piece, result

from ccheck.core.answers import result_of
from ccheck.core.errors import InvalidData
from ccheck.core.question import Citation, QuestionAnswer
from ccheck.core.types import Claim, Stance, Unit, Usage

FULL = result(
    piece(ROSE, RATE, stance=Stance("SUPPORTS", 0.9, "It says so.", None, {"SUPPORTS": 0.9})),
    claim=Claim("Seas rise", "c1"),
    warnings=("half was left out",),
    timings_ms={"verdict": 12.0},
    usage_by_stage={"verdict": Usage(2, 1000, 30, 1)},
    scored_by={"bm25": "retriever"},
    relevance=0.9,
)


def test_an_answer_reads_back_as_it_was() -> None:
    asked = QuestionAnswer("How much?", ("sea rise",), "20 cm", (Citation("d1", 0, 4, "Tide"),))
    found = Unit("sentence", 1, 0, 4, "Tide")
    for one in (*MANY, FULL, result(questions=(asked,)), result(piece(ROSE, title=""))):
        saved = json.loads(json.dumps(one.to_dict()))
        assert result_of(saved).to_dict() == saved
    saved = FULL.to_dict()
    saved["evidence"][0]["unit"] = {name: getattr(found, name) for name in found.__slots__}
    saved["evidence"][0]["grounding"] = {"figures": [], "passages": [{"text": "Tide", "section": "Results"}]}
    (read, *_) = result_of(saved).evidence
    assert (read.hit.unit, read.grounding) == (found, saved["evidence"][0]["grounding"])


def changed(*path: str | int, to: object) -> dict[str, Any]:
    at = saved = json.loads(json.dumps(FULL.to_dict()))
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = to
    return saved


@pytest.mark.parametrize(
    "saved",
    [
        "no object",
        {"_id": "c1", "text": "a claim"},
        *(changed("evidence", 0, "rank", to=one) for one in ("first", 10**400)),
        *(changed("evidence", 0, "score", to=one) for one in (10**400, None)),
        *(changed("evidence", 0, name, to=one) for name, one in (("title", ["x"]), ("metadata", {"a": {"b": 1}}))),
        changed("evidence", 0, "stance", "label", to="</script>"),
        changed("evidence", 0, "stance", "probabilities", to={"SUPPORTS": "x"}),
        changed("evidence", 0, "sentences", 0, "field", to="secret"),
        changed("evidence", 0, "grounding", to={"figures": [{}]}),
        changed("verdict", "label", to="TRUE"),
        *(changed(name, to="SUPPORTS") for name in ("verdict", "evidence", "warnings", "questions")),
        *(changed(name, to=one) for name, one in (("evidence", {"a": 1}), ("questions", [{"answer": 1}]))),
        *(changed(name, to={"verdict": "long", "bm25": "oracle"}) for name in ("timings_ms", "scored_by")),
        changed("claim", to={"id": 7, "text": None}),
    ],
)
def test_what_is_no_answer_is_refused(saved: object) -> None:
    with pytest.raises(InvalidData):
        result_of(json.loads(json.dumps(saved)))
