"""A result as a person reads it: on a terminal and through a pipe."""

import io
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from cli_runs import ESCAPE
from rich.console import Console

from ccheck.cli.progress import ingest_progress, notifier, progress_bar
from ccheck.cli.show import show_result
from ccheck.core.recipe import load_recipe
from ccheck.core.stages import ListwiseStage, ModelStage
from ccheck.core.types import Claim, Document, Evidence, Hit, Result, Sentence, Stance, Verdict
from ccheck.ingest import Progress

BEFORE = "Tide gauges were read at many places on many coasts by many people over the years of the century."
ROSE, RATE = "Sea level rose by 21 cm from 1900 to 2009.", "The rate was 1.7 mm a year."
AFTER = "Satellites have measured the height of the sea since 1993, over all of the oceans, day after day after day."
TEXT = f"The first sentence. {BEFORE} {ROSE} {RATE} {AFTER} The last sentence."
DOCUMENT = Document("d1", "Sea level", TEXT, {"year": 2011, "doi": "10.1000/182"})
RECIPE = load_recipe("default").model_copy(update={"rerankers": {"rerank": ModelStage(), "listwise": ListwiseStage()}})
SCORED_BY = (
    dict.fromkeys(RECIPE.retrievers, "retriever") | {"rrf": "fusion"} | dict.fromkeys(RECIPE.rerankers, "reranker")
)


def sentence(text: str) -> Sentence:
    return Sentence(text, "text", TEXT.index(text), TEXT.index(text) + len(text), 0.5)


def evidence(*sentences: str, stance: Stance | None = None, **hit: object) -> Evidence:
    given = {"rank": 1, "document": DOCUMENT, "score": 3.4, "scores": {"bm25": 12.5}, "ranks": {"bm25": 3}}
    return Evidence(Hit(**(given | hit)), tuple(map(sentence, sentences)), stance)


def shown(one: Evidence, *, terminal: bool = False, explain: bool = False) -> list[str]:
    console = {"force_terminal": True, "color_system": "256"} if terminal else {}
    lines = whole(Verdict(None, error="none"), one, explain=explain, **console).split("\n")
    return lines[2 : lines.index("", 2)]


def whole(verdict: Verdict, *pieces: Evidence, explain: bool = False, **console: Any) -> str:
    result = Result(Claim("sea level rose"), pieces, verdict, "default", "local:papers", scored_by=SCORED_BY)
    stream = io.StringIO()
    shown_on = Console(file=stream, width=1_000_000, highlight=False, **console)
    show_result(shown_on, result, lambda: RECIPE, explain=explain)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("label", "words", "sure", "colour"),
    [
        ("SUPPORTS", "supports", "0.88, high", "1;32"),
        ("REFUTES", "refutes", "0.88, high", "1;31"),
        ("NOT_ENOUGH_INFO", "leaves it open", "0.88, high", "1"),
        ("CONFLICTING", "supports and refutes", "0.88, high", "1;33"),
        ("REFUTES", "leans to refuting it", "0.88", "1;31"),  # "high" would contradict it
    ],
)
def test_the_stance_is_said_in_words_and_colour(label, words, sure, colour):
    one = evidence(ROSE, stance=Stance(label, 0.876, "It says\nso.", decides="leans" not in words))
    assert shown(one)[:2] == [f"  1  Sea level (2011)  {words}", f"     confidence {sure} · It says so."]
    assert f"\x1b[{colour}m{words}\x1b[0m" in shown(one, terminal=True)[0]


def test_what_is_not_known_is_left_out_a_failed_stance_is_no_label_and_each_sentence_has_its_line():
    assert shown(evidence(ROSE))[:2] == ["  1  Sea level (2011)", f"     {ROSE}"]
    assert shown(evidence(ROSE, stance=Stance("SUPPORTS")))[1] == f"     {ROSE}"
    assert shown(evidence(ROSE, stance=Stance("SUPPORTS", 1.0)))[1] == "     confidence 1.00, high"
    assert shown(evidence(ROSE, stance=Stance("SUPPORTS", None, "Why.")))[1] == "     Why."
    one = evidence(ROSE, stance=Stance(None, error="the model\x1b[31m timed out"))
    assert shown(one)[0] == "  1  Sea level (2011)  no stance: the model[31m timed out"
    assert "\x1b[33mno stance: the model[31m timed out\x1b[0m" in shown(one, terminal=True)[0]
    assert shown(evidence(RATE, ROSE))[1:-1] == [f"     {RATE}", f"     {ROSE}"]
    seen = shown(evidence(ROSE), terminal=True)[1]
    assert ESCAPE.sub("", seen) == f"     {ROSE}"
    assert "\x1b[1mSea\x1b[0m \x1b[1mlevel\x1b[0m \x1b[1mrose\x1b[0m by 21 cm" in seen


def test_the_way_of_a_reranked_document():
    scores = {"bm25": 12.5, "dense": 0.61, "rrf": 0.0325, "rerank": 3.4}
    one = evidence(scores=scores, ranks={"bm25": 3, "dense": 7, "rrf": 12}, cut=("rerank",))
    k = RECIPE.fusion.k
    weights = [f"{RECIPE.retrievers[name].weight:g}/({k} + {rank})" for name, rank in (("bm25", 3), ("dense", 7))]
    assert shown(one, explain=True)[-5:] == [
        "     bm25: rank 3, score 12.5000",
        "     dense: rank 7, score 0.6100",
        f"     rrf: {weights[0]} + {weights[1]} = 0.03250",
        "     rerank: score 3.40, from place 12 to 1 (cut to fit)",
        "     listwise: not read",
    ]
    scores = {"bm25": 12.5, "rrf": 0.0325, "rerank": -11.25, "listwise": 0.875}
    one = evidence(scores=scores, ranks={"bm25": 3, "rrf": 2}, score=0.925)
    assert shown(one, explain=True)[-2:] == [
        "     rerank: score -11.2",
        "     listwise: score 0.875, with 0.4 of the previous stage's scores: 0.9250, from place 2 to 1",
    ]
    assert shown(evidence(), explain=True)[-2:] == ["     rerank: not read", "     listwise: not read"]


def judged(verdict: Verdict, *stances: Stance) -> str:
    return whole(verdict, *(evidence(ROSE, stance=stance, rank=rank) for rank, stance in enumerate(stances, 1)))


def test_what_failed_for_many_documents_is_said_once_also_with_a_verdict():
    gone = Stance(None, error="the server is gone")
    text = judged(Verdict(None, error="none of 3 papers could be judged: the server is gone"), gone, gone, gone)
    assert text.count("the server is gone") == 1 and text.count("no stance") == 3
    other = Stance(None, error="the document has no text")
    text = judged(Verdict(None, error="none of 4 papers could be judged: the server is gone"), gone, other, gone, other)
    assert text.count("the server is gone") == 1 and text.count("no stance: the document has no text") == 1
    why = "1 of 2 papers could not be judged: the server is gone"
    verdict = Verdict("SUPPORTS", 0.7, "1 of 2 papers supports it", error=why, judged=1, failed=1)
    text = judged(verdict, Stance("SUPPORTS", 0.9), Stance(None, error="the server is gone"))
    assert f"Verdict  SUPPORTS (0.70, moderate confidence)  1 of 2 papers supports it\n         {why}\n" in text
    assert text.count("the server is gone") == 1


@pytest.mark.parametrize(
    ("confidence", "words"),
    [(0.644, "0.64, low"), (0.6451, "0.65, moderate"), (0.844, "0.84, moderate"), (0.8451, "0.85, high")],
)
def test_a_confidence_has_the_word_of_its_printed_digits(confidence, words):
    text = judged(Verdict("SUPPORTS", confidence, "so"), Stance("SUPPORTS", confidence, decides=True))
    assert f"Verdict  SUPPORTS ({words} confidence)  so\n" in text and f"confidence {words}\n" in text


class Terminal(io.StringIO):
    """A terminal that keeps what was written to it."""

    def isatty(self) -> bool:
        return True

    @property
    def lines(self) -> list[str]:
        """What stood in a line when the next one began, or the line was drawn anew."""
        return [line.rstrip() for line in re.split(r"[\r\n]+", ESCAPE.sub("", self.getvalue())) if line.strip()]


@contextmanager
def on_terminal() -> Iterator[Terminal]:
    # Not a fixture: pytest puts its own stream in place when the test is called.
    with pytest.MonkeyPatch.context() as patch:
        made = Terminal()
        patch.setattr(sys, "stderr", made)
        for name, value in (("TERM", "xterm"), ("COLUMNS", "120"), ("NO_COLOR", "1")):
            patch.setenv(name, value)
        yield made


def test_what_is_said_beside_a_bar_has_its_line_and_no_rate_comes_before_the_first_document(capsys, monkeypatch):
    with on_terminal() as terminal:
        say = notifier()
        with progress_bar("checking", unit="claims") as update:
            update(1, 4)
            say("loading a model")
            update(2, 4)
        assert "loading a model …" in terminal.lines
        say("later")
        assert terminal.lines[-1] == "later …"
    with on_terminal() as terminal:
        with ingest_progress() as show:
            show(Progress("reading", 0, 0, 500, 1000))
        assert terminal.lines and not any("documents" in line for line in terminal.lines)
        with ingest_progress() as show:
            show(Progress("writing", 3, 0, 500, 1000))
        assert any("3 documents" in line for line in terminal.lines)
    # Without a terminal, long work prints a line of progress from time to time.
    for every, said in ((60, ""), (0, "ccheck: writing: 50%, 0:00:00 left, 3")):
        monkeypatch.setattr("ccheck.cli.progress.EVERY", every)
        with ingest_progress() as show:
            show(Progress("writing", 3, 0, 500, 1000))
        assert capsys.readouterr().err.partition(" documents, ")[0] == said
