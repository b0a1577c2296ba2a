"""The pipeline after retrieval: reranking, sentences, stances, verdicts; and what fails on the way."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cli_runs import ccheck, jsonl

import ccheck as package
from ccheck import Checker, Claim, Stance
from ccheck.core.adjust import resolved
from ccheck.core.errors import CcheckError, InvalidData, NotFound, ServerError, UsageError
from ccheck.core.recipe import Recipe, changed, load_recipe
from ccheck.core.settings import resolve
from ccheck.core.stages import EvidenceStage, LateStage, ModelStage, VerdictStage
from ccheck.core.types import Sentence, Usage
from ccheck.pipeline.batch import unranked
from ccheck.rerank import Scores
from ccheck.rerank.types import WrongKey
from ccheck.verdict import Case, Judged

SEA = "sea level has risen 20 cm since 1900"


@pytest.fixture
def opened(papers: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Checker]]:
    """A checker of the sample corpus with a reranker and a stance method that are Python functions."""
    stack = ExitStack()

    def open_(
        rerank: Callable[[str, Sequence[str]], Scores] | None = None,
        method: Callable[[Sequence[Case]], Iterator[Judged]] | None = None,
        strict: bool = False,
        **update: Any,
    ) -> Checker:
        base = load_recipe("bm25")
        stages = {} if rerank is None else {"rerank": ModelStage(model="x", depth=12, required=False)}
        verdict = VerdictStage(method="none" if method is None else "stance")
        recipe = base.model_copy(update={"rerankers": stages, "verdict": verdict, **update})
        monkeypatch.setattr("ccheck.pipeline.plan.open_reranker", lambda *_: rerank)
        monkeypatch.setattr("ccheck.pipeline.plan.open_method", lambda *_: method)
        return stack.enter_context(_checker(papers, recipe, strict))

    with stack:
        yield open_


def _checker(papers: Path, recipe: Recipe, strict: bool = False) -> Checker:
    return Checker(resolve({"store": str(papers)}).settings, recipe=recipe, strict=strict)


class ByLength:
    name = "by length"

    def __init__(self) -> None:
        self.asked: list[int] = []

    def __call__(self, query: str, passages: Sequence[str]) -> Scores:
        self.asked.append(len(passages))
        values = tuple(len(text) / 1000 for text in passages)
        return Scores(values, (False,) * len(values), usage=Usage(1, 10, 2))


class Says:
    """The same label for all, or what `each` says of a case."""

    name = "test"

    def __init__(self, each: Callable[[Case], Judged]) -> None:
        self.each = each
        self.cases: list[Case] = []

    def __call__(self, cases: Sequence[Case]) -> Iterator[Judged]:
        for case in cases:
            self.cases.append(case)
            yield self.each(case)


def supports(case: Case) -> Judged:
    return Judged(tuple(Stance("SUPPORTS", 0.9) for _ in case.evidence), usage=Usage(2, 20, 4))


def test_documents_are_retrieved_to_the_rerankers_depth_and_cut_to_k_after_it(opened):
    reranker = ByLength()
    result = opened(reranker).check(SEA, k=3)
    assert reranker.asked == [12] and [piece.hit.rank for piece in result.evidence] == [1, 2, 3]
    lengths = [piece.hit.scores["rerank"] for piece in result.evidence]
    assert lengths == sorted(lengths, reverse=True)
    assert all("bm25" in piece.hit.ranks for piece in result.evidence)
    assert result.usage == Usage(1, 10, 2) and result.timings_ms["rerank"] >= 0
    assert result.to_dict()["usage"] == result.to_dict()["usage_by_stage"]["rerank"]
    assert result.to_dict()["usage"] == {"llm_calls": 1, "prompt_tokens": 10, "completion_tokens": 2, "cached": 0}


def fails(query: str, passages: Sequence[str], error: type[ServerError] = ServerError) -> Scores:
    raise error("the reranker at http://there does not answer")


def test_a_reranker_that_fails_leaves_the_ranking_before_it_or_where_strict_or_measured_is_an_error(opened):
    plain = opened().check(SEA)
    result = opened(fails).check(SEA)
    assert [piece.document.id for piece in result.evidence] == [piece.document.id for piece in plain.evidence]
    assert result.scored_by == {"bm25": "retriever", "rerank": "reranker"}
    (warning,) = result.warnings
    assert "rerank failed and was skipped: the reranker at http://there does not answer" in warning
    answers = result, plain, opened(ByLength()).check(SEA)
    assert [unranked(one.to_dict()) for one in answers] == [True, False, False], "it is not found again"
    with pytest.raises(WrongKey):
        next(opened(partial(fails, error=WrongKey)).check_many([SEA, "green tea and weight"]))
    for strict in (True, False):  # whoever measures is strict, too
        results = list(opened(fails, strict=strict).check_many([SEA, "green tea and weight"], trace=not strict))
        assert all(isinstance(result.error, ServerError) and not result.evidence for result in results)


def test_a_reranker_or_judge_that_is_not_there_is_a_warning_or_an_error(papers, monkeypatch):
    def absent(*_: object) -> None:
        raise NotFound("the model x is not here; do this")

    monkeypatch.setattr("ccheck.pipeline.plan.open_reranker", absent)
    recipe = load_recipe("bm25").model_copy(update={"verdict": VerdictStage(method="none")})
    for stage, strict in ((ModelStage(required=True), False), (ModelStage(required=False), True)):
        checker = _checker(papers, recipe.model_copy(update={"rerankers": {"r": stage}}), strict)
        with checker, pytest.raises(NotFound, match="do this"):
            checker.check(SEA)
    optional = recipe.model_copy(update={"rerankers": {"r": ModelStage(required=False)}})
    with _checker(papers, optional) as checker:
        assert checker.check(SEA).warnings == ("not reranked: the model x is not here; do this",)
    monkeypatch.setattr("ccheck.pipeline.plan.open_method", absent)
    for method in ("auto", "stance"):
        judged = load_recipe("bm25").model_copy(update={"verdict": VerdictStage(method=method)})
        with _checker(papers, judged) as checker, pytest.raises(CcheckError, match="do this"):
            checker.check(SEA)


def test_stances_lead_to_a_verdict_and_a_methods_own_quotes_come_first(opened):
    method = Says(supports)
    result = opened(method=method, verdict=VerdictStage(method="stance", documents=4)).check(SEA, k=6)
    assert [piece.stance is not None for piece in result.evidence] == [True] * 4 + [False] * 2
    assert result.verdict is not None and result.verdict.label == "SUPPORTS" and result.verdict.method == "test"
    assert result.usage == Usage(2, 20, 4) and result.usage_by_stage == {"verdict": Usage(2, 20, 4)}
    assert len(method.cases[0].evidence) == 4 and all(piece.sentences for piece in method.cases[0].evidence)

    def quotes(case: Case) -> Judged:
        own = []
        for piece in case.evidence:
            end = piece.document.text.index(".") + 1
            own.append((Sentence(piece.document.text[:end], "text", 0, end, 1.0),))
        return Judged(tuple(Stance("SUPPORTS", 0.9) for _ in case.evidence), tuple(own))

    result = opened(method=Says(quotes), evidence=EvidenceStage(sentences=3)).check(SEA, k=3)
    for piece in result.evidence:
        assert piece.sentences[0].start == 0 and len(piece.sentences) <= 3
        spans = sorted((sentence.start, sentence.end) for sentence in piece.sentences)
        assert all(before[1] <= after[0] for before, after in itertools.pairwise(spans))


def test_claims_that_fail_keep_their_place_among_those_that_are_judged(opened):
    claims = [Claim(SEA, "1"), Claim(" ", "2"), Claim("green tea and weight", "3"), Claim("zzzqqq", "4")] * 5
    results = list(opened(method=Says(supports)).check_many(claims, k=2))
    assert [result.claim.id for result in results] == ["1", "2", "3", "4"] * 5
    for result in results:
        if result.claim.id == "2":
            assert result.error is not None and result.verdict is None
        elif result.claim.id == "4":  # nothing was found, so nothing was read
            assert result.verdict is not None and result.verdict.label == "NOT_ENOUGH_INFO"
            assert result.verdict.confidence is None and "nothing was found" in str(result.verdict.rationale)
        else:
            assert result.verdict is not None and result.verdict.label == "SUPPORTS"


def test_a_method_that_dies_half_way_is_an_error_of_the_rest_and_never_a_label(opened):
    def dies(case: Case) -> Judged:
        if case.claim.id == "3":
            raise ServerError("the language model at http://there is gone")
        return supports(case)

    claims = [Claim(SEA, str(number)) for number in range(1, 6)]
    results = list(opened(method=Says(dies)).check_many(claims, k=2))
    labels = [result.verdict.label if result.verdict else "" for result in results]
    assert labels == ["SUPPORTS", "SUPPORTS", None, None, None]
    for result in results[2:]:
        assert all(piece.stance is not None and "is gone" in str(piece.stance.error) for piece in result.evidence)
        assert result.verdict is not None and result.verdict.error


def test_an_answer_is_there_before_the_next_claims_are_judged(opened):
    method = Says(supports)
    results = opened(method=method).check_many([Claim(SEA, str(number)) for number in range(40)])
    next(results)
    assert len(method.cases) <= 8
    assert len(list(results)) == 39 and len(method.cases) == 40


# -- what the settings say of a recipe is heeded alike by every command and in Python; stages have one name each


CLAIM = "vaccines cause autism"


class Stopped(CcheckError):
    """Enough was seen."""


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[Recipe]:
    recipes: list[Recipe] = []

    def stop(checker: Checker) -> None:
        recipes.append(checker.recipe)
        raise Stopped("seen")

    monkeypatch.setattr(Checker, "plan", stop)
    return recipes


@pytest.fixture
def measured(papers: Path, tmp_path: Path) -> tuple[object, ...]:
    claims = jsonl(tmp_path / "claims.jsonl", {"_id": "1", "text": CLAIM})
    (tmp_path / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\n1\tmadsen-2002\t1\n")
    return "--claims", claims, "--qrels", tmp_path / "qrels.tsv", "--store", papers


@pytest.mark.parametrize("rerank", ["none", "late", "auto", "some/model", "http://127.0.0.1:1/rerank"])
@pytest.mark.parametrize("recipe", ["default", "bm25"])
def test_the_reranker_of_the_environment(seen, papers, measured, monkeypatch, rerank, recipe):
    monkeypatch.setenv("CCHECK_RERANK", rerank)
    monkeypatch.setenv("CCHECK_RECIPE", recipe)
    wanted = {"none": [], "late": [load_recipe("default").rerankers["late"].model_dump()]}.get(rerank)
    with pytest.raises(Stopped):
        package.open(str(papers)).check(CLAIM)
    for command in (
        ("query", CLAIM, "--store", papers),
        ("evaluate", recipe, *measured),
        ("mine", *measured, "-o", "mined.jsonl"),
    ):
        before = len(seen)
        ccheck(*command)
        assert len(seen) == before + 1, command
    python, query, evaluate, mine = seen
    named = [LateStage().model, rerank] if rerank == "auto" else [rerank]
    if wanted is not None:
        assert [stage.model_dump() for stage in python.rerankers.values()] == wanted
    else:
        assert [stage.model for stage in python.rerankers.values()] == named  # type: ignore[union-attr]
    assert query == python
    assert evaluate.rerankers == python.rerankers
    ours, theirs = ([one.model_dump(exclude={"depth"}) for one in r.rerankers.values()] for r in (mine, python))
    assert ours == theirs


def test_evaluations_say_which_setting_takes_the_rerankers_place(seen, measured, monkeypatch):
    monkeypatch.setenv("CCHECK_RERANK", "http://me:of-the-reranker@127.0.0.1:1/rerank")
    ran = ccheck("evaluate", "default", *measured)
    assert "replaces the recipes' own (the setting rerank, from CCHECK_RERANK)" in ran.err
    assert "of-the-reranker" not in ran.err


@pytest.mark.parametrize(
    ("stages", "said"),
    [
        ('[rerankers.bm25]\nmodel = "m"', r"Rename \[rerankers.bm25\]: 'bm25' is taken"),
        ('[rerankers.rrf]\nmodel = "m"', r"Rename \[rerankers.rrf\]"),
        ('[rerankers.minmax]\nmodel = "m"', r"Rename \[rerankers.minmax\]"),
        ('[retrievers.rrf]\nkind = "bm25"', r"Rename \[retrievers.rrf\]"),
    ],
)
def test_two_stages_of_one_name_are_refused(stages, said, tmp_path):
    """The reranker's scores would stand where the retriever's were."""
    (tmp_path / "mine.toml").write_text(f'extends = "bm25"\n{stages}\n')
    with pytest.raises(InvalidData, match=said):
        load_recipe("mine.toml")


def test_by_whatever_way_a_stage_comes(tmp_path):
    (tmp_path / "mine.toml").write_text('[retrievers.late]\nkind = "bm25"\n[retrievers.rerank]\nkind = "bm25"\n')
    recipe = load_recipe("mine.toml")
    with pytest.raises(UsageError, match=r"Rename \[rerankers.late\]"):
        resolved(resolve({"rerank": "late"}).settings, recipe=recipe)
    with pytest.raises(UsageError, match=r"Rename \[rerankers.rerank\]"):
        resolved(resolve({"rerank": "some/model"}).settings, recipe=recipe)
    with pytest.raises(UsageError, match=r"Rename \[rerankers.late\]"):
        changed(recipe, {"rerankers.late": {"kind": "late"}})


def test_an_ingest_makes_what_the_settings_recipe_searches_in(tmp_path, monkeypatch):
    """Else the next query with the same settings would find nothing to search in."""
    (tmp_path / "mine.toml").write_text(
        'extends = "bm25"\n[retrievers.bm25.analysis]\nstemming = true\n[verdict]\nmethod = "none"\n'
    )
    monkeypatch.setenv("CCHECK_RECIPE", "mine.toml")
    corpus = jsonl(tmp_path / "corpus.jsonl", {"_id": "1", "title": "Tea", "text": "Tea is healthy."})
    assert ccheck("ingest", corpus, "--store", "one", "--no-dense").code == 0
    assert ccheck("query", "healthy tea", "--store", "one").code == 0
    with package.open("two") as checker:
        checker.ingest(str(corpus), dense=False)
        assert checker.check("healthy tea").evidence
