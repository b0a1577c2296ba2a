"""AVeriTeC's own measures (Schlichtkrull et al., NeurIPS 2023, section 4; the shared task of 2024).

Predicted questions, and questions with their answers, are compared with the annotators' by METEOR and matched one to
one (Hungarian METEOR). The AVeriTeC score is the share of claims with the right label whose questions and answers score
above a threshold. Equal to the published scoring code on the same input.
"""

from __future__ import annotations

import functools
import io
import json
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from ...core.errors import CcheckError, InvalidData, NotFound, ServerError, UsageError, batch_error, require
from ...core.files import writing
from ...core.question import NO_ANSWER
from ...core.recipe import Recipe
from ...core.types import Claim, Label, Result, Usage, add_usage
from ...ingest.rows import take_all
from ...llm.model import LanguageModel
from ...llm.prompts import load_prompt, quoted
from ...llm.types import Failure, Question, Reply
from ...pipeline.checker import Checker
from ...verdict.labels import parse_label
from ...verdict.questions import VERACITY, page_url
from .metrics import some_of

SPELLINGS: dict[Label, str] = {label: spelling for spelling, label in VERACITY.items()}
"""AVeriTeC's spellings of our labels, in its order."""
LEVELS = (0.1, 0.2, 0.25, 0.3, 0.4, 0.5)
"""The thresholds at which the AVeriTeC score is reported. The task ranks by that at .25."""
MOST = 10
"""How many predicted questions, or questions with answers, count."""

Meteor = Callable[[str, str], float]
"""The METEOR of a candidate and a reference."""


@dataclass(frozen=True, slots=True)
class Gold:
    """A claim as its annotators left it: its label, their questions, and each with its answers (`evidence`)."""

    id: str
    claim: str
    label: Label
    questions: tuple[str, ...]
    evidence: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """A predicted question with its answer, in the names of the task's prediction file."""

    question: str
    answer: str
    url: str = ""
    scraped_text: str = ""


@dataclass(frozen=True, slots=True)
class Prediction:
    """A line of the task's prediction file. `label` is None if there is no verdict."""

    id: str
    claim: str
    label: Label | None
    evidence: tuple[Pair, ...]

    def to_dict(self) -> dict[str, Any]:
        """In the spelling of the task. An empty label matches none."""
        label = "" if self.label is None else SPELLINGS[self.label]
        evidence = [asdict(pair) for pair in self.evidence]
        return {"claim_id": self.id, "claim": self.claim, "pred_label": label, "evidence": evidence}


def read_gold(path: str | Path) -> list[Gold]:
    """The rows of AVeriTeC's data: JSON Lines, or one array. Claims without `claim_id` are numbered from 0.

    Raises NotFound, or InvalidData that names the bad rows.
    """
    return take_all(path, frozenset(), lambda record, number: _gold(record.data, number - 1))


def read_predictions(path: str | Path) -> list[Prediction]:
    """A prediction file of the task: one array, or JSON Lines. Raises NotFound or InvalidData."""
    return take_all(path, frozenset(), lambda record, number: _prediction(record.data, number - 1))


def write_predictions(path: str | Path, predictions: Sequence[Prediction]) -> None:
    """The task's prediction file. Raises UsageError if it can't be written."""
    with writing(path, "the predictions") as stream:
        json.dump([one.to_dict() for one in predictions], stream, ensure_ascii=False, indent=1)
        stream.write("\n")


def prediction(result: Result) -> Prediction:
    """Turns a result into the prediction that the task wants. Questions that failed are left out."""
    pages = {piece.document.id: piece.document for piece in result.evidence}
    pairs = []
    for one in result.questions or ():
        if one.answer is None:
            continue
        first = one.citations[0] if one.citations else None
        page = pages.get(first.doc_id) if first is not None else None
        url = (page_url(page) if page is not None else None) or (first.doc_id if first is not None else "")
        pairs.append(Pair(one.question, one.answer, url, first.text if first is not None else ""))
    label = result.verdict.label if result.verdict is not None else None
    return Prediction(result.claim.id or "", result.claim.text, label, tuple(pairs))


def score(gold: Sequence[Gold], predictions: Sequence[Prediction], meteor: Meteor) -> dict[str, Any]:
    """The measures of predictions, which are matched with the claims by their ids: `ccheck evaluate --averitec --json`.

    Means over the claims, except for `macro-F1` and `f1`, those of the labels; the AVeriTeC score is there by
    threshold. `missing` are claims without a prediction or without a label: they count as wrong.

    Raises InvalidData if two predictions have one id, or none is of a claim.
    """
    require("measuring predictions", "evaluation", "sklearn", "scipy")
    from sklearn.metrics import f1_score

    by_id = {one.id: one for one in predictions}
    if len(by_id) < len(predictions):
        raise InvalidData("two predictions have the same claim_id")
    if not any(one.id in by_id for one in gold):
        raise InvalidData("no prediction is for one of the claims: do the files belong together?")
    made = [by_id.get(one.id, Prediction(one.id, one.claim, None, ())) for one in gold]
    questions = [
        matched([pair.question for pair in one.evidence[:MOST]], true.questions, meteor)
        for one, true in zip(made, gold, strict=True)
    ]
    evidence = [
        matched([f"{pair.question} {pair.answer}" for pair in one.evidence][:MOST], true.evidence, meteor)
        for one, true in zip(made, gold, strict=True)
    ]
    right = [one.label == true.label for one, true in zip(made, gold, strict=True)]
    by_label = f1_score(
        [true.label for true in gold],
        [one.label or "" for one in made],
        labels=list(SPELLINGS),
        average=None,
        zero_division=0,
    )
    f1 = dict(zip(SPELLINGS.values(), map(float, by_label), strict=True))
    count = len(gold)
    return {
        "claims": count,
        "missing": sum(one.label is None for one in made),
        "metrics": {
            "Q-METEOR": sum(questions) / count,
            "QA-METEOR": sum(evidence) / count,
            **{
                f"AVeriTeC@{level:g}": sum(ok and one > level for ok, one in zip(right, evidence, strict=True)) / count
                for level in LEVELS
            },
            "accuracy": sum(right) / count,
            "macro-F1": sum(f1.values()) / len(f1),
        },
        "f1": f1,
    }


def mismatches(gold: Sequence[Gold], predictions: Sequence[Prediction]) -> list[str]:
    """The mismatches between claims and predictions, a sentence each."""
    claims, labels = dict.fromkeys(one.id for one in gold), {one.id: one.label for one in predictions}
    none, empty = [one for one in claims if one not in labels], [one for one in claims if labels.get(one, "") is None]
    return [
        *some_of(none, claims, "claim", "without a prediction, counted as wrong"),
        *some_of(empty, claims, "claim", "without a label, counted as wrong"),
        *some_of([one for one in labels if one not in claims], labels, "prediction", "of no claim here, left out"),
    ]


def matched(candidates: Sequence[str], references: Sequence[str], meteor: Meteor) -> float:
    """Hungarian METEOR: the largest sum over a one-to-one matching, by the number of references."""
    if not candidates or not references:
        return 0.0
    from scipy.optimize import linear_sum_assignment

    table = np.array([[meteor(candidate, reference) for reference in references] for candidate in candidates])
    rows, columns = linear_sum_assignment(table, maximize=True)
    return float(table[rows, columns].sum()) / len(references)


def _gold(data: Mapping[str, Any], number: int) -> Gold:
    label, questions = data.get("label"), data.get("questions")
    if not isinstance(label, str) or not isinstance(questions, list) or not isinstance(data.get("claim"), str):
        raise InvalidData("this is not a row of AVeriTeC: it needs claim, label and questions")
    asked: list[str] = []
    evidence: list[str] = []
    for one in questions:
        if not isinstance(one, Mapping) or not isinstance(one.get("question"), str):
            raise InvalidData("a question has no text (question)")
        question = one["question"]
        asked.append(question)
        answers = one.get("answers") or []
        for answer in answers if isinstance(answers, list) else [answers]:
            if not isinstance(answer, Mapping) or not isinstance(answer.get("answer"), str):
                raise InvalidData("an answer has no text (answer)")
            explained = answer.get("boolean_explanation") if answer.get("answer_type") == "Boolean" else None
            evidence.append(f"{question} {answer['answer']}" + (f". {explained}" if explained is not None else ""))
        if not answers:
            evidence.append(f"{question} {NO_ANSWER}")
    return Gold(_id(data, number), data["claim"], parse_label(label), tuple(asked), tuple(evidence))


def _prediction(data: Mapping[str, Any], number: int) -> Prediction:
    label, evidence = data.get("pred_label", data.get("label")), data.get("evidence")
    if not isinstance(evidence, list):
        raise InvalidData("this is not a prediction: it needs claim_id, pred_label and evidence")
    pairs = []
    for one in evidence:
        if not isinstance(one, Mapping) or not all(isinstance(one.get(key), str) for key in ("question", "answer")):
            raise InvalidData("each piece of evidence needs question and answer")
        pairs.append(
            Pair(one["question"], one["answer"], str(one.get("url") or ""), str(one.get("scraped_text") or ""))
        )
    made = parse_label(label) if isinstance(label, str) and label else None
    return Prediction(_id(data, number), str(data.get("claim") or ""), made, tuple(pairs))


def _id(data: Mapping[str, Any], number: int) -> str:
    value = data.get("claim_id")
    return str(number if value is None else value)


@dataclass(frozen=True, slots=True)
class Predicted:
    """A recipe's predictions for claims. `seconds` are per claim, by stage; `errors` are by the claim's id."""

    predictions: tuple[Prediction, ...]
    seconds: Mapping[str, float]
    usage_by_stage: Mapping[str, Usage]
    errors: Mapping[str, str]


def require_questions(recipe: Recipe) -> None:
    """Raises UsageError for a recipe that asks none."""
    if recipe.questions is None:
        raise UsageError(f"the recipe {recipe.name} asks no questions. Use one that does: averitec-questions")


def predict(
    checker: Checker, claims: Sequence[Claim], on_progress: Callable[[int, int], None] = lambda done, total: None
) -> Predicted:
    """Check the claims with a recipe that asks questions.

    Raises the error of a claim if all failed and nothing was answered.
    """
    made: list[Prediction] = []
    milliseconds: dict[str, float] = {}
    usage: Mapping[str, Usage] = {}
    errors: dict[str, CcheckError] = {}
    for result in checker.check_many(claims):
        made.append(prediction(result))
        for stage, used in result.usage_by_stage.items():
            usage = add_usage(usage, stage, used)
        for stage, spent in result.timings_ms.items():
            milliseconds[stage] = milliseconds.get(stage, 0.0) + spent
        problem = result.error or (result.verdict.error if result.verdict is not None else None)
        if problem is not None:
            # What a verdict lacks is the language model's answer.
            errors[str(result.claim.id)] = problem if isinstance(problem, CcheckError) else ServerError(problem)
        on_progress(len(made), len(claims))
    if errors and not any(one.label or one.evidence for one in made):
        raise batch_error("no claim could be checked", list(errors.values()), len(errors))
    seconds = {stage: round(spent / 1000 / max(1, len(made)), 3) for stage, spent in milliseconds.items()}
    return Predicted(tuple(made), seconds, usage, {claim: str(error) for claim, error in errors.items()})


# -- METEOR

_PARTS = {"wordnet": ("corpora/wordnet", "corpora/wordnet.zip"), "punkt_tab": ("tokenizers/punkt_tab/english",)}
_DEBIAN = Path("/usr/share/wordnet")
_HOW = (
    "Run python -m nltk.downloader wordnet punkt_tab (about 12 MB, from raw.githubusercontent.com), or install it from "
    "packages: WordNet with apt-get install wordnet-base; NLTK_DATA names the folder of Punkt's model"
)


def open_meteor() -> Meteor:
    """METEOR (Banerjee and Lavie, 2005) as AVeriTeC's scoring code computes it: `nltk`'s, on the words of
    `nltk.word_tokenize`.

    The data that it needs, WordNet 3.0 and Punkt's English model, are looked up where NLTK looks, and for WordNet where
    WNSEARCHDIR says.

    Raises MissingExtra without NLTK, NotFound for data that are not there.
    """
    require("METEOR", "evaluation", "nltk")
    from nltk.tokenize import word_tokenize
    from nltk.translate.meteor_score import single_meteor_score

    wordnet = _wordnet()
    for name, places in _PARTS.items():
        if not (name == "wordnet" and wordnet is not None) and not any(map(_there, places)):
            raise NotFound(f"METEOR needs NLTK's {name}, which is not installed. {_HOW}")
    more = {"wordnet": wordnet} if wordnet is not None else {}
    words = functools.lru_cache(maxsize=100_000)(word_tokenize)

    @functools.lru_cache(maxsize=100_000)
    def meteor(candidate: str, reference: str) -> float:
        return float(single_meteor_score(words(reference), words(candidate), **more))

    return meteor


def _there(place: str) -> bool:
    import nltk

    try:
        nltk.data.find(place)
    except LookupError:
        return False
    return True


def _wordnet() -> Any:
    """A reader of a WordNet that NLTK did not install; None if there is none."""
    import nltk
    from nltk.corpus.reader import WordNetCorpusReader

    class Reader(WordNetCorpusReader):  # type: ignore[misc]
        def open(self, file: str) -> Any:
            """A file of WordNet's. Debian leaves out the names of the lexicographers' files, which METEOR never asks
            for, and without which NLTK reads nothing."""
            if file == "lexnames" and not (Path(str(self.root)) / file).exists():
                return io.StringIO("".join(f"{number}\tfile{number}\t0\n" for number in range(45)))
            return super().open(file)

        def map_wn(self, version: str = "wordnet") -> None:
            """To the wordnets of other languages, which METEOR does not use."""

    for folder in (os.environ.get("WNSEARCHDIR"), _DEBIAN):
        if folder and (Path(folder) / "data.noun").is_file():
            nltk.data.path.append(str(folder))  # NLTK reads no files elsewhere
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that it does not read other languages
                return Reader(str(folder), None)
    return None


# -- Ev2R

EV2R = ("Ev2R-Q-recall", "Ev2R-QA-recall", "Ev2R@0.5")
LEVEL = 0.5
PLACEHOLDERS = ("claim", "reference", "predicted")
_TOKENS = 800


class Covered(Reply):
    """Facts of both lists, and how many of each the other covers."""

    reasoning: str
    reference_facts: int = Field(ge=0)
    reference_covered: int = Field(ge=0)
    predicted_facts: int = Field(ge=0)
    predicted_covered: int = Field(ge=0)


@dataclass(frozen=True, slots=True)
class Ev2r:
    """How much of the annotators' evidence a prediction covers, as a large language model judges (Akhtar et al., 2024).

    The measure of the shared task of 2025: recall of the questions, recall of the questions with answers, and the share
    of claims with the right label whose second recall is at least .5. The figures depend on the model, and on the
    prompt, which is not the task's own word for word. Means are over the claims that could be judged; `failed` others
    have the first's `error`.

    The `metrics` are None if no claim could be judged.
    """

    metrics: Mapping[str, float | None]
    failed: int
    error: str | None


def ev2r(gold: Sequence[Gold], predictions: Sequence[Prediction], llm: LanguageModel) -> Ev2r:
    """The measure, two questions a claim. A claim without predicted evidence has the recall 0 without being asked.

    Raises Refused if the server answers no question.
    """
    prompt = load_prompt(__package__, "ev2r", PLACEHOLDERS, llm.prompts_dir)
    by_id = {one.id: one for one in predictions}
    pairs = [(true, by_id.get(true.id)) for true in gold]
    asked: list[tuple[int, int]] = []
    questions: list[Question[Covered]] = []
    for place, (true, made) in enumerate(pairs):
        evidence = made.evidence[:MOST] if made is not None else ()
        kinds: list[tuple[Sequence[str], Sequence[str]]] = [
            (true.questions, [pair.question for pair in evidence]),
            (true.evidence, [f"{pair.question} {pair.answer}" for pair in evidence]),
        ]
        for kind, (reference, predicted) in enumerate(kinds):
            if reference and predicted:
                asked.append((place, kind))
                values = {"claim": quoted(true.claim), "reference": quoted(list(reference))}
                messages = prompt.messages(**values, predicted=quoted(list(predicted)))
                questions.append(Question(messages, Covered, _check, _TOKENS))
    recalls: dict[tuple[int, int], float] = {}
    errors: dict[int, str] = {}
    for (place, kind), outcome in zip(asked, llm.ask_many(questions), strict=True):
        if isinstance(outcome, Failure):
            errors.setdefault(place, str(outcome.error))
        else:
            recalls[place, kind] = outcome.value.reference_covered / outcome.value.reference_facts
    reason = next(iter(errors.values()), None)
    judged = [place for place in range(len(pairs)) if place not in errors]
    # If no question was answered, the claims without evidence alone would make a score.
    if not judged or (asked and not recalls):
        return Ev2r(dict.fromkeys(EV2R), len(errors), reason)
    mean = [sum(recalls.get((place, kind), 0.0) for place in judged) / len(judged) for kind in (0, 1)]
    right = [
        recalls.get((place, 1), 0.0) >= LEVEL
        and (made := pairs[place][1]) is not None
        and made.label == pairs[place][0].label
        for place in judged
    ]
    metrics = dict(zip(EV2R, (*mean, sum(right) / len(judged)), strict=True))
    return Ev2r(metrics, len(errors), reason)


def _check(reply: Covered) -> None:
    if not reply.reference_facts:
        raise ValueError("the reference has at least one fact")
    if reply.reference_covered > reply.reference_facts or reply.predicted_covered > reply.predicted_facts:
        raise ValueError("more facts are covered than there are")
