"""Stances and verdicts by a language model, against a scripted server on loopback."""

from __future__ import annotations

from typing import Any

import pytest
from scripted_llm import Said, error, say, user_text
from verdict_questions import OPEN, RISE, case, data_of, document, reply, shown

from ccheck.core.types import Claim, Stance, Usage

# -- one-step


def test_a_stance_has_its_label_confidence_reason_and_quote_with_exact_offsets(judge):
    (judged,) = judge(
        [say(reply(quote="sea level rose by 20 cm since 1900.  The rate is growing - fast"))], case(document(1))
    )
    (stance,), ((quote,),) = judged.stances, judged.quotes
    assert stance == Stance("SUPPORTS", 0.9, "It says so.")
    assert (quote.field, quote.text) == ("text", RISE[quote.start : quote.end])
    assert quote.text == "sea level rose by 20 cm  since 1900.\nThe rate is\u00a0growing – fast"
    assert judged.usage == Usage(1, 100, 20) and judge.name == "llm:m (one-step)"


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (reply(quote="sea level fell by 20 cm"), "quote is not in the paper"),
        (OPEN | {"quote": "nothing of the kind was seen"}, "quote is not in the paper"),
        (reply("SUPPORTED"), "label: Input should be 'SUPPORTS'"),
        (reply(confidence=90), "confidence: Input should be less than or equal to 1"),
        ({"label": "SUPPORTS"}, "Field required"),
    ],
)
def test_a_reply_that_makes_no_sense_is_asked_for_again_and_is_then_an_error(judge, said, why):
    (judged,) = judge(
        [say(said), say(said), say(reply())], case(document(1), document(2)), settings={"llm_concurrency": 1}
    )
    first, second = judged.stances
    assert first.label is None and first.confidence is None and why in (first.error or "")
    assert second.label == "SUPPORTS" and judged.quotes[0] == ()
    assert why in judge.requests[1]["messages"][-1]["content"]
    assert judged.usage == Usage(3, 300, 60)


def test_a_document_without_text_is_not_asked_about(judge):
    (judged,) = judge([say(reply())], case(document(1, " ", ""), document(2)))
    assert judged.stances[0].label is None and "neither title nor text" in judged.stances[0].error
    assert judged.stances[1].label == "SUPPORTS" and len(judge.requests) == 1


def test_failures_are_errors_of_their_pairs(judge):
    def answer(request: dict[str, Any]) -> Said:
        return error(500, "boom") if "second" in data_of(request, "Paper")["title"] else say(reply())

    judged = judge(answer, case(document(1), document(2, title="second"), document(3)), case(document(4)))
    labels = [[stance.label for stance in item.stances] for item in judged]
    assert labels == [["SUPPORTS", None, "SUPPORTS"], ["SUPPORTS"]]
    assert "boom" in judged[0].stances[1].error


# -- two-step


def test_two_steps_ask_for_the_side_only_where_there_is_evidence(judge):
    def answer(request: dict[str, Any]) -> Said:
        if "polarity" in request["response_format"]["json_schema"]["name"].lower():
            return say(reply("REFUTES", confidence=0.5))
        relevant = data_of(request, "Paper")["title"] != "off"
        return say({"rationale": "Because.", "relevant": relevant, "confidence": 0.8})

    (judged,) = judge(answer, case(document(1), document(2, title="off")), strategy="two-step")
    first, second = judged.stances
    assert (first.label, first.confidence) == ("REFUTES", pytest.approx(0.4)) and len(judged.quotes[0]) == 1
    assert (second.label, second.confidence) == ("NOT_ENOUGH_INFO", 0.8)
    assert len(judge.requests) == 3 and judged.usage == Usage(3, 300, 60)


def test_a_second_step_that_fails_is_an_error_and_never_open(judge):
    def answer(request: dict[str, Any]) -> Said:
        if "Polarity" in request["response_format"]["json_schema"]["name"]:
            return say(reply("NOT_ENOUGH_INFO"))
        return say({"rationale": "Because.", "relevant": True, "confidence": 0.8})

    (judged,) = judge(answer, case(document(1)), strategy="two-step")
    assert judged.stances[0].label is None and "label" in judged.stances[0].error
    assert judged.usage == Usage(3, 300, 60)


# -- hybrid


def hybrid(relevant: bool, polarity: str, quote: str = "sea level rose by 20 cm") -> dict[str, Any]:
    return {"rationale": "So.", "quote": quote, "relevant": relevant, "polarity": polarity, "confidence": 0.7}


def test_hybrid_asks_for_relevance_and_polarity_at_once(judge):
    answers = [say(hybrid(True, "REFUTES")), say(hybrid(False, "NONE", ""))]
    (judged,) = judge(answers, case(document(1), document(2)), strategy="hybrid", settings={"llm_concurrency": 1})
    assert [stance.label for stance in judged.stances] == ["REFUTES", "NOT_ENOUGH_INFO"]
    assert "Labelled examples" not in user_text(judge.requests[0]) and len(judge.requests) == 2


@pytest.mark.parametrize("said", [hybrid(False, "SUPPORTS"), hybrid(True, "NONE")])
def test_a_hybrid_reply_that_contradicts_itself_is_invalid(judge, said):
    (judged,) = judge([say(said)], case(document(1)), strategy="hybrid")
    assert judged.stances[0].label is None and "polarity" in judged.stances[0].error


def test_hybrid_shows_the_first_examples_in_its_two_steps(judge, examples):
    judge([say(hybrid(True, "SUPPORTS"))], case(document(1)), strategy="hybrid", examples=examples, shots=2)
    seen = [(item["claim"], item["relevant"], item["polarity"]) for item in shown(judge.requests[0])]
    assert seen == [("Cats sleep a lot.", True, "SUPPORTS"), ("Sea level is falling.", True, "REFUTES")]


# -- batch


def pairs_of(request: dict[str, Any]) -> list[dict[str, Any]]:
    return [item for item in shown(request) if "number" in item]


def batch_reply(request: dict[str, Any], **other: Any) -> dict[str, Any]:
    answers = [
        {
            "number": pair["number"],
            "rationale": "So.",
            "label": "REFUTES" if "false" in pair["claim"] else "SUPPORTS",
            "confidence": 0.75,
        }
        for pair in pairs_of(request)
    ]
    return {"answers": answers} | other


def test_a_batch_holds_pairs_of_several_claims_and_is_answered_by_number(judge):
    cases = [
        case(*[document(number) for number in range(3)], claim=Claim("It is true.")),
        case(*[document(number) for number in range(4)], claim=Claim("It is false.")),
        case(document(1, "", ""), claim=Claim("Unread.")),
    ]
    judged = judge(lambda request: say(batch_reply(request)), *cases, strategy="batch", batch=5)
    assert [[stance.label for stance in item.stances] for item in judged] == [["SUPPORTS"] * 3, ["REFUTES"] * 4, [None]]
    assert sorted(len(pairs_of(request)) for request in judge.requests) == [2, 5]
    assert [item.usage.llm_calls for item in judged] == [1, 1, 0]


def test_a_large_batch_has_room_for_its_answers(judge):
    judge(lambda request: say(batch_reply(request)), case(*map(document, range(200))), strategy="batch", batch=200)
    assert judge.requests[0]["max_tokens"] > 200 * 80


def test_a_batch_says_which_share_of_open_pairs_to_expect(judge):
    judge(lambda request: say(batch_reply(request)), case(document(1)), strategy="batch", open_share=0.3)
    assert "at least 30%" in judge.requests[0]["messages"][0]["content"]
    judge(lambda request: say(batch_reply(request)), case(document(2)), strategy="batch")
    assert "%" not in judge.requests[0]["messages"][0]["content"]


@pytest.mark.parametrize(
    ("spoil", "why", "kept"),
    [
        (lambda answers: answers.pop(1), "lacks the numbers 2", [0, 2]),
        (lambda answers: answers.append(answers[0]), "number 1 more than once", []),
        (lambda answers: answers[0].update(number=9), "the number 9", []),
        (lambda answers: answers[0].update(label="MAYBE"), "label: Input should be", []),
    ],
)
def test_a_batch_that_is_answered_wrongly_gives_what_is_beyond_doubt(judge, spoil, why, kept):
    def answer(request: dict[str, Any]) -> Said:
        value = batch_reply(request)
        spoil(value["answers"])
        return say(value)

    (judged,) = judge(answer, case(*map(document, range(3))), strategy="batch")
    assert [place for place, stance in enumerate(judged.stances) if stance.label is not None] == kept
    assert all(why in stance.error for stance in judged.stances if stance.label is None)
    assert judged.usage == Usage(2, 200, 40)
