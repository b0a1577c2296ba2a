"""Ten claims in AVeriTeC's format and ten predictions for them, all made up for the tests.

Among them: several answers to a question, answers of the type Boolean with and without an explanation, a question
without answers, more than ten predicted questions, a prediction without evidence, and texts of several sentences.
"""

from typing import Any

SUPPORTED, REFUTED = "Supported", "Refuted"
CONFLICTING, OPEN = "Conflicting Evidence/Cherrypicking", "Not Enough Evidence"


def _answer(text: str, kind: str = "Extractive", explanation: str | None = None) -> dict[str, Any]:
    more = {} if explanation is None else {"boolean_explanation": explanation}
    return {"answer": text, "answer_type": kind, "source_url": "https://example.org/a", **more}


def _row(number: int, claim: str, label: str, questions: list[tuple[str, list[dict[str, Any]]]]) -> dict[str, Any]:
    asked = [{"question": question, "answers": answers} for question, answers in questions]
    return {"claim_id": str(number), "claim": claim, "label": label, "claim_date": "31-10-2020", "questions": asked}


def _prediction(number: int, claim: str, label: str, pairs: list[tuple[str, str]]) -> dict[str, Any]:
    evidence = [{"question": question, "answer": answer, "url": "", "scraped_text": ""} for question, answer in pairs]
    return {"claim_id": str(number), "claim": claim, "pred_label": label, "evidence": evidence}


CLAIMS = [f"The mayor of town {number} bought {number} bridges." for number in range(10)]
ROWS = [
    _row(0, CLAIMS[0], REFUTED, [("Did the mayor buy a bridge?", [_answer("No", "Boolean", "The town owns it.")])]),
    _row(1, CLAIMS[1], SUPPORTED, [("Who owns the bridge?", [_answer("The mayor has owned it since 2019.")])]),
    _row(2, CLAIMS[2], OPEN, [("How many bridges are there?", [])]),
    _row(
        3,
        CLAIMS[3],
        CONFLICTING,
        [
            ("What did the paper say?", [_answer("That three were sold."), _answer("It later took that back.")]),
            ("Were bridges sold?", [_answer("Yes", "Boolean")]),
        ],
    ),
    _row(4, CLAIMS[4], REFUTED, [("Was it Mr. Smith?", [_answer("No. He was abroad. The U.S. visit took a week.")])]),
    _row(5, CLAIMS[5], REFUTED, [("When was the sale?", [_answer("In March")]), ("Who paid?", [_answer("Nobody")])]),
    _row(6, CLAIMS[6], SUPPORTED, [("What is a bridge worth?", [_answer("About 5 million euros, by an estimate")])]),
    _row(7, CLAIMS[7], REFUTED, [("Is the photo genuine?", [_answer("No", "Boolean", "It shows another town.")])]),
    _row(8, CLAIMS[8], OPEN, [("Does a contract exist?", [_answer("No answer could be found.", "Unanswerable")])]),
    _row(9, CLAIMS[9], SUPPORTED, [("Where are the bridges?", [_answer("All nine cross the river near the mill.")])]),
]
PREDICTIONS = [
    _prediction(0, CLAIMS[0], REFUTED, [("Did the mayor purchase bridges?", "No. The bridge belongs to the town.")]),
    _prediction(1, CLAIMS[1], REFUTED, [("Who owns the bridge?", "Since 2019 the mayor owns it.")]),
    _prediction(2, CLAIMS[2], OPEN, [("How many bridges exist?", "No answer could be found."), ("Why?", "Unknown.")]),
    _prediction(
        3, CLAIMS[3], CONFLICTING, [("What did the newspaper say?", "Three were sold."), ("Was it right?", "No.")]
    ),
    _prediction(4, CLAIMS[4], REFUTED, [("Was it Mr. Smith?", "No. He travelled. The visit to the U.S. took weeks.")]),
    _prediction(5, CLAIMS[5], SUPPORTED, []),
    _prediction(6, CLAIMS[6], SUPPORTED, [(f"What is bridge {n} worth?", f"{n} million euros") for n in range(12)]),
    _prediction(7, CLAIMS[7], OPEN, [("Are the pictures real?", "They show a different city.")]),
    _prediction(8, CLAIMS[8], OPEN, [("Is there a contract?", "None was found in the archives.")]),
    _prediction(9, CLAIMS[9], SUPPORTED, [("In which place are they?", "They cross rivers near mills.")]),
]


def words_shared(candidate: str, reference: str) -> float:
    """In place of METEOR where its values do not matter."""
    one, other = set(candidate.lower().split()), set(reference.lower().split())
    return len(one & other) / max(1, len(one | other))
