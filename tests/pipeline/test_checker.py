"""The pipeline and the Python API, on real stores."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from weights import other_minilm

import ccheck
from ccheck import Checker, Claim, Evidence, Stance, Verdict
from ccheck.core.errors import InvalidData
from ccheck.core.recipe import load_recipe
from ccheck.core.stages import VerdictStage
from ccheck.demo import CLAIMS
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
        (
            filters[1:2],
            "The zzzqqq",
            f"{nature} of {total} documents pass journal=Nature, but none of these {nature} has a word of the claim "
            "(zzzqqq)",
        ),
        ((), "Zzzqqq yyy", f"none of the {total} documents has a word of the claim (Zzzqqq, yyy)"),
        ((), "of the", "the claim has only words that are too common to search for"),
        ([parse_filter("published<1500")], "sea", f"none of {total} documents passes published<1500-01-01"),
        (
            filters[1:],
            "sea",
            f"passes journal=Nature and year>3000: journal=Nature leaves {nature}, year>3000 leaves 0",
        ),
    ):
        for result in words.check_many([Claim(claim), Claim(claim)], filters=some):
            assert not result.evidence and result.error is None
            assert said in result.warnings[-1] and said in str(result.verdict and result.verdict.rationale)
    (one, empty) = words.check_many([Claim("sea"), Claim("")], filters=filters[:2])
    assert one.evidence and not [warning for warning in one.warnings if "documents" in warning]
    assert empty.error is not None and not [warning for warning in empty.warnings if "documents" in warning]
    longest = "sea " * 25_000  # the limit that docs/security.md names
    (whole, long) = words.check_many([Claim(longest), Claim(f"{longest}x")])
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
        return [Stance("SUPPORTS", 0.9), Stance(None, error="?")], Verdict("SUPPORTS", 0.8)

    with Checker(words.settings, judge=judge) as checker:
        verdict = checker.check("sea level", k=2).verdict
    assert verdict == Verdict("SUPPORTS", 0.8, method="judge", judged=1, failed=1)


@pytest.mark.parametrize("wrong", ["raises", "too few", "no tuple"])
def test_a_judge_that_fails_is_an_error_and_never_a_label(words: Checker, wrong: str) -> None:
    def judge(claim: Claim, evidence: Sequence[Evidence]) -> tuple[list[Stance], Verdict]:
        if wrong == "raises":
            raise RuntimeError("out of tokens")
        return ([Stance("SUPPORTS")], Verdict("SUPPORTS")) if wrong == "too few" else None  # type: ignore[return-value]

    with Checker(words.settings, judge=judge) as checker:
        result = checker.check("sea level", k=3)
    assert result.verdict.label is None and result.verdict.error
    assert all(e.stance is not None and e.stance.label is None and e.stance.error for e in result.evidence)


def test_everything_that_is_promised_is_there() -> None:
    for name in ccheck.__all__:
        assert getattr(ccheck, name) is not None
    with pytest.raises(AttributeError):
        ccheck.nothing  # noqa: B018
