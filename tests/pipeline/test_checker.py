"""The pipeline and the Python API, on real stores."""

import datetime
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from runtimes import other_minilm

import ccheck
from ccheck import Checker, Claim, Evidence, Stance, Verdict
from ccheck.core.errors import CcheckError, InvalidData, ServerError, UsageError
from ccheck.core.recipe import load_recipe
from ccheck.core.stages import VerdictStage
from ccheck.demo import CLAIMS
from ccheck.rerank.types import Scores
from ccheck.search import parse_filter


@pytest.fixture
def words(papers: Path) -> Iterator[Checker]:
    """The sample corpus without embeddings."""
    with ccheck.open(str(papers)) as checker:
        yield checker


@pytest.fixture
def unjudged(words: Checker) -> Iterator[Checker]:
    """The same without verdicts, which take most of a claim's time."""
    silent = load_recipe("default").model_copy(update={"verdict": VerdictStage(method="none")})
    with Checker(words.settings, recipe=silent) as checker:
        yield checker


@pytest.fixture
def hybrid(embedded: Path) -> Iterator[Checker]:
    with ccheck.open(str(embedded), device="cpu") as checker:
        yield checker


def test_the_readme_example(hybrid: Checker) -> None:
    result = hybrid.check("Sea level has risen 20 cm since 1900.")
    assert result.verdict.label is not None
    assert result.verdict.method.startswith("packaged stance model")
    assert {"church-white-2011", "frederikse-2020"} <= {e.document.id for e in result.evidence[:3]}
    best = result.evidence[0]
    assert set(best.hit.scores) == {"bm25", "dense", "rrf", "late"}
    for evidence in result.evidence:
        for sentence in evidence.sentences:
            assert evidence.document.text[sentence.start : sentence.end] == sentence.text
    assert result.warnings == ()
    assert result.recipe == "default"
    assert set(result.timings_ms) == {"embed", "retrieve", "rerank", "evidence", "verdict"}


def test_every_sample_claim_finds_its_papers(hybrid: Checker) -> None:
    rows = [json.loads(line) for line in CLAIMS.read_text(encoding="utf-8").splitlines()]
    results = list(hybrid.check_many([Claim(row["text"], row["_id"]) for row in rows]))
    assert [result.claim.id for result in results] == [row["_id"] for row in rows]
    found = wanted = 0
    for row, result in zip(rows, results, strict=True):
        ids = {evidence.document.id for evidence in result.evidence}
        relevant = {piece["doc_id"] for piece in row["evidence"]}
        assert ids & relevant, row["text"]
        found += len(ids & relevant)
        wanted += len(relevant)
    assert found / wanted >= 0.85


def test_many_claims_are_answered_as_one_by_one(unjudged: Checker) -> None:
    texts = [json.loads(line)["text"] for line in CLAIMS.read_text(encoding="utf-8").splitlines()] * 8
    together = [[e.document.id for e in r.evidence] for r in unjudged.check_many(map(Claim, texts))]
    assert together == [[e.document.id for e in unjudged.check(text).evidence] for text in texts[:20]] * 8


def test_an_empty_answer_says_which_stage_left_nothing_with_counts(words: Checker) -> None:
    filters = [parse_filter("year>=1"), parse_filter("journal=Nature"), parse_filter("year>3000")]
    total = words.store.count()
    nature = words.store.count(filters[1:2])
    assert 0 < nature < total == words.store.count(filters[:1])
    for some, claim, said in (
        (filters[2:], "the climate of the earth", f"none of {total} documents passes year>3000"),
        (filters[1:2], "The zzzqqq", f"{nature} of {total} documents pass journal=Nature, but none of these {nature}"),
        ((), "Zzzqqq yyy", f"none of the {total} documents has a word of the claim (Zzzqqq, yyy)"),
        ((), "of the", "the claim has only words that are too common to search for"),
        ([parse_filter("published<1500")], "sea", f"none of {total} documents passes published<1500-01-01"),
        (filters[1:], "sea", f"passes journal=Nature and year>3000: journal=Nature leaves {nature}, year>3000 leaves"),
        ([parse_filter("journal=nature"), filters[0]], "sea", f"year>=1 leaves {total}; did you mean 'Nature'?"),
    ):
        for result in words.check_many([Claim(claim), Claim(claim)], filters=some):
            assert not result.evidence and result.error is None
            assert said in result.warnings[-1] and said in str(result.verdict and result.verdict.rationale)
    words._plan = replace(words.plan(), degraded=True)  # as where an ingest was broken off
    assert "missing: none of what can be searched has a word" in words.check("Zzzqqq yyy").warnings[-1]
    words.forget_plan()
    (one, empty) = words.check_many([Claim("sea"), Claim("")], filters=filters[:2])
    assert one.evidence and not [warning for warning in one.warnings if "documents" in warning]
    assert empty.error is not None and not [warning for warning in empty.warnings if "documents" in warning]
    longest = f"sea{' x' * 49_998}."  # the limit that docs/security.md names
    (whole, long) = words.check_many([Claim(longest), Claim(f"{longest}x")], k=1)
    assert whole.error is None and whole.evidence
    assert isinstance(long.error, InvalidData) and "100,000" in str(long.error) and not long.evidence


def test_another_model_is_refused_at_query(embedded: Path, tmp_path: Path) -> None:
    other = other_minilm(tmp_path / "other")
    with (
        ccheck.open(str(embedded), embedding_model=str(other)) as checker,
        pytest.raises(InvalidData, match=r"bge-small-en-v1.5-int8.*other weights.*--model"),
    ):
        checker.check("sea")


def test_what_a_judge_could_not_judge_is_counted(words: Checker) -> None:
    def judge(claim: Claim, evidence: Sequence[Evidence]) -> tuple[list[Stance], Verdict]:
        return [Stance("SUPPORTS", 0.9), Stance(None, error="?")], Verdict("SUPPORTS", 1)

    with Checker(words.settings, judge=judge) as checker:
        verdict = checker.check("sea level", k=2).verdict
    assert verdict == Verdict("SUPPORTS", 1, method="judge", judged=1, failed=1) and type(verdict.confidence) is float


GOOD, THREE = Verdict("SUPPORTS"), [Stance("SUPPORTS", 1)] * 3
ANSWERS: list[tuple[Any, str]] = [
    (None, "the judge <lambda> returned None. It must return a Stance for each piece of evidence"),
    ((["SUPPORTS"] * 3, GOOD), "It must return a Stance"),
    ((THREE[:1], GOOD), "the judge <lambda> gave 1 stances for 3 documents"),
    (([*THREE[:2], replace(THREE[0], label="SUPPORTED")], GOOD), "the label 'SUPPORTED', not one of SUPPORTS, REFUTES"),
    (([*THREE[:2], Stance("SUPPORTS", float("nan"))], GOOD), "the confidence nan, not a number between 0 and 1"),
    ((THREE, replace(GOOD, label="TRUE")), "the label 'TRUE'"),
    ((THREE, Verdict("SUPPORTS", 5)), "the confidence 5,"),
]


@pytest.mark.parametrize(("answer", "said"), ANSWERS)
def test_a_judge_that_fails_is_an_error_and_never_a_label(words: Checker, answer: Any, said: str) -> None:
    with Checker(words.settings, judge=lambda claim, evidence: answer) as checker:
        result = checker.check("sea level", k=3)
    assert result.verdict.label is None and said in result.verdict.error
    assert all(e.stance is not None and e.stance.label is None and e.stance.error for e in result.evidence)


def test_everything_that_is_promised_is_there() -> None:
    assert all(getattr(ccheck, name) is not None for name in ccheck.__all__)
    with pytest.raises(AttributeError):
        ccheck.nothing  # noqa: B018


def test_dicts_frames_strings_and_filters(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    rows = [2, "Sea level rose.", 1990, None], [3, "Sea level rises.", 2015, 7]
    frame = pandas.DataFrame(rows, columns=["id", "abstract", "year", "gap"])
    day = datetime.date(2020, 1, 2)
    record = {"_id": "1", "text": "Ice <melts>.", "date": day, "note": float("nan"), "read": {day: 3}}
    settings = ccheck.open(tmp_path / "store", rerank="none").settings
    with ccheck.Checker(settings) as checker:
        assert checker.ingest(record, frame, dense=False).added == 3
        results = list(checker.check_many(["sea level", ccheck.Claim("ice")], filters=["year>=2010"]))
        assert [[piece.document.id for piece in result.evidence] for result in results] == [["3"], []]
        assert checker.store.get(["1"])["1"].published == "2020-01-02"
        assert str(checker.store.get(["3"])["3"].metadata["gap"]) == "7"
        alone = [checker.check("sea level", filters=one) for one in ("year>=2010", ccheck.Filter("year", ">=", "2010"))]
        assert [[piece.document.id for piece in result.evidence] for result in alone] == [["3"], ["3"]]
        by_value = checker.check("sea level", filters=[ccheck.Filter("year", "<", "2000")])
        assert [piece.document.id for piece in by_value.evidence] == ["2"]
        assert repr(by_value).startswith("<Result 'sea level': verdict") and "\n" not in repr(by_value)
        with pytest.raises(ccheck.CcheckError, match="can't ingest int"):
            checker.ingest(3)


@pytest.mark.parametrize("wrong", ["abc", ccheck.Claim("abc"), {"claim": "abc"}, None, 3, [3], ["a", 3]])
def test_what_is_no_claim_is_refused_with_what_to_do(unjudged: Checker, wrong: object) -> None:
    with pytest.raises(UsageError, match="claim"):
        list(unjudged.check_many(wrong))  # type: ignore[arg-type]
    if not isinstance(wrong, str | ccheck.Claim | None):
        with pytest.raises(UsageError, match="a claim is a text"):
            unjudged.check(wrong)  # type: ignore[arg-type]


def test_a_data_frame_is_not_taken_for_claims_and_its_empty_cells_stop_no_other(unjudged: Checker) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"claim": [None, "abc", float("nan"), pandas.NA]})
    with pytest.raises(UsageError, match="Name its column"):
        list(unjudged.check_many(frame))
    said = [str(result.error or result.claim.text) for result in unjudged.check_many(frame["claim"])]
    assert said == ["claim 1 is empty", "abc", "claim 3 is empty", "claim 4 is empty"]


PAIR = [{"_id": "a", "text": "Tea is hot.", "year": 2001}, {"_id": "b", "text": "Tea is very, very hot."}]


def refuting(claim: ccheck.Claim, evidence: Sequence[ccheck.Evidence]) -> tuple[list[ccheck.Stance], ccheck.Verdict]:
    return [ccheck.Stance("REFUTES", 0.9) for _ in evidence], ccheck.Verdict("REFUTES", 0.9)


def longest(claim: str, passages: Sequence[str]) -> list[float]:
    return [float(len(one)) for one in passages]


def failing(*given: object) -> Any:
    raise RuntimeError("no power")


def test_a_judge_and_a_reranker_of_ones_own_are_named_and_what_they_raise_is_said(tmp_path: Path) -> None:
    with ccheck.open(tmp_path / "store", recipe="bm25", judge=refuting, reranker=longest) as checker:
        checker.ingest(PAIR, dense=False)
        result = checker.check("tea is hot")
    assert [one.document.id for one in result.evidence] == ["b", "a"]
    assert result.evidence[0].hit.scores["longest"] == len("Tea is very, very hot.")
    assert result.verdict is not None and result.verdict.method == "refuting"
    assert result.to_dict()["scored_by"] == {"bm25": "retriever", "longest": "reranker"}

    short, shorter = (lambda claim, passages, made=made: made for made in ([1.0], Scores((1.0,), (False,))))
    few = "1 scores for 2 passages"
    for reranker, said in ((failing, "RuntimeError: no power"), (short, few), (shorter, few)):
        with ccheck.open(tmp_path / "store", recipe="bm25", judge=failing, reranker=reranker) as checker:
            checker.ingest(PAIR, dense=False)
            result = checker.check("tea is hot")
        assert [one.document.id for one in result.evidence] == ["a", "b"] and said in result.warnings[0]
        assert result.verdict == Verdict(None, None, None, "failing", "RuntimeError: no power", 0, 2, "not_judged")


async def awaited(*given: object) -> Any:
    """What nobody awaits."""


@pytest.mark.parametrize(
    "wrong", [{"judge": "packaged"}, {"judge": awaited}, {"reranker": 5}, {"reranker": awaited}, {"verdict": "nune"}]
)
def test_what_can_not_judge_or_rerank_is_refused_before_any_claim(tmp_path: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=f"^{next(iter(wrong))} is "):
        ccheck.open(tmp_path / "store", **wrong)


def test_a_result_as_a_data_frame(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pandas")
    with ccheck.open(tmp_path / "store", recipe="bm25", rerank="none") as checker:
        checker.ingest(PAIR, dense=False)
        result = checker.check("tea is hot")
    frame = result.to_frame()
    assert list(frame["doc_id"]) == [one.document.id for one in result.evidence] == ["a", "b"]
    assert frame["metadata.year"][0] == 2001 and frame["scores.bm25"][0] == result.evidence[0].hit.score
    weak = replace(result.evidence[0], stance=Stance("SUPPORTS", 0.5, decides=False))
    assert list(replace(result, evidence=(weak,)).to_frame()["leans"]) == [True]
    assert list(replace(result, evidence=()).to_frame()["doc_id"]) == []
    with ccheck.open(tmp_path / "store", recipe="bm25", rerank="none", verdict="none") as checker:
        alone = checker.check("tea is hot")
    assert list(alone.to_frame()["doc_id"]) == ["a", "b"] and "stance" not in alone.to_frame() and not alone.verdict
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ccheck.CcheckError, match="pip install pandas"):
        result.to_frame()


# -- what becomes of claims when a store fails on the way


TEXTS = ("sea", "ice", "", "sea level", "climate", "vaccines")
SIX = [Claim(text, str(number)) for number, text in enumerate(TEXTS)]


@pytest.fixture
def by_words(papers: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Checker]:
    """Claims are searched two at a time, by words."""
    monkeypatch.setattr("ccheck.pipeline.checker.BATCH", 2)
    with ccheck.open(str(papers), recipe="bm25") as checker:
        yield checker


def failing_in(checker: Checker, monkeypatch: pytest.MonkeyPatch, batches: set[int], error: CcheckError) -> None:
    search, calls = checker.store.rank, iter(range(100))

    def searched(*arguments: Any, **options: Any) -> Any:
        if next(calls) in batches:
            raise error
        return search(*arguments, **options)

    monkeypatch.setattr(checker.store, "rank", searched)


def test_wrong_claims_are_no_answer_and_what_is_measured_stops(by_words: Checker, monkeypatch) -> None:
    """A batch of empty claims asks the store nothing, so that the first that does tells whether it works."""
    failing_in(by_words, monkeypatch, {0}, ServerError("a wrong key"))
    with pytest.raises(ServerError, match="a wrong key"):
        list(by_words.check_many([Claim("", "1"), Claim(" ", "2"), *SIX]))
    # Figures over a part of the claims would mislead; an evaluation goes on from its memory.
    monkeypatch.setattr("ccheck.pipeline.checker.MEASURED_BATCH", 2)
    failing_in(by_words, monkeypatch, {1}, ServerError("it is gone"))
    with pytest.raises(ServerError, match="it is gone"):
        list(by_words.check_many(SIX, trace=True))
