"""Results of claims, of every kind that a report shows."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ccheck.core.errors import InvalidData
from ccheck.core.types import Claim, Document, Evidence, Hit, Result, Sentence, Stance, Verdict
from ccheck.web.report import writing_report

TEXT = (
    "Tide gauges were read at 290 places. Sea level rose by 21 cm from 1900 to 2009. The rate was 1.7 mm a year. "
    "Gauges stand on land that rises and sinks, and this was corrected for by a model of the crust and the mantle. "
    "Satellites have measured the height of the sea since 1993, with a rate of 3.2 mm a year over these years. "
    "There is a small acceleration over the whole record, which agrees with what others have found before. "
    "The oldest part of the record rests on few gauges, mostly on the coasts of Europe and North America."
)


def sentence(document: Document, text: str, field: str = "text", score: float = 0.5) -> Sentence:
    where = (document.title if field == "title" else document.text).index(text)
    return Sentence(text, field, where, where + len(text), score)


def document(text: str = TEXT, **changes: object) -> Document:
    values = {"id": "d1", "title": "Sea level", "metadata": {"year": 2011, "doi": "10.1007/s10712-011-9119-1"}}
    return Document(**(values | {"text": text} | changes))


def piece(
    *sentences: str, text: str = TEXT, stance: Stance | None = None, rank: int = 1, **changes: object
) -> Evidence:
    made = document(text, **changes)
    scores = {"bm25": 12.5, "dense": 0.61, "rrf": 0.0325, "rerank": 3.4}
    hit = Hit(rank, made, 3.4, scores, {"bm25": 3, "dense": 7, "rrf": 5}, ("rerank",))
    return Evidence(hit, tuple(sentence(made, one) for one in sentences), stance)


def result(*evidence: Evidence, text: str = "Seas rise", **changes: object) -> Result:
    values = {"verdict": Verdict("SUPPORTS", 0.81, "Both papers say so.", "llm:x (one-step)")}
    return Result(
        **({"claim": Claim(text), "evidence": evidence, "recipe": "r", "store": "local:s"} | values | changes)
    )


ROSE, RATE = "Sea level rose by 21 cm from 1900 to 2009.", "The rate was 1.7 mm a year."
MANY = [
    result(piece(ROSE, RATE, stance=Stance("SUPPORTS", 0.9, "It says so.")), piece(stance=Stance("REFUTES"), rank=2)),
    result(piece(stance=Stance(None, error="timed out")), verdict=Verdict("REFUTES")),
    result(piece(), verdict=Verdict("CONFLICTING"), claim=Claim("Both", "c7")),
    result(piece(stance=Stance("NOT_ENOUGH_INFO", 0.4)), verdict=Verdict("NOT_ENOUGH_INFO")),
    result(piece(), verdict=None),
    result(piece(), verdict=Verdict(None, error="no language model answered")),
    result(verdict=None, error=InvalidData("the claim is empty"), claim=Claim("")),
]


def write_report(path: Path, results: Iterable[Result], about: Any) -> None:
    with writing_report(path, about) as add:
        for one in results:
            add(one)
