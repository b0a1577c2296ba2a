"""A pipeline over units: what is found, read, judged and quoted is a part of a document."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from cli_runs import ccheck
from runtimes import Kept

from ccheck import Checker, Claim, Stance
from ccheck.core.errors import InvalidData, MissingExtra, NotFound, UsageError
from ccheck.core.recipe import Recipe, load_recipe
from ccheck.core.runtime import Runtime
from ccheck.core.settings import resolve
from ccheck.core.types import Hit, Query, Sentence, Unit
from ccheck.encode.dense import DEFAULT_MODEL
from ccheck.ingest import layout_of
from ccheck.pipeline.ingest import open_encoders
from ccheck.pipeline.run import Run
from ccheck.pipeline.steps import cases, choose_evidence, search
from ccheck.rerank import Scores
from ccheck.search import Filter
from ccheck.verdict import Case, Judged

CLAIM = "sea level rose by 20 cm"
RECIPE = """
[ingest.units.sentences]
cut = "sentence"
[retrievers.words]
kind = "bm25"
units = "sentences"
{more}
[verdict]
method = "none"
"""
DOCUMENTS = [
    {"_id": "sea", "title": "The sea", "text": "Tea is healthy. The sea level rose by 20 cm since 1900. Ice melts."},
    {"_id": "tea", "title": "Tea", "text": "Green tea is a drink. At sea level it boils at 100 degrees."},
]


def recipe(folder: Path, more: str = "") -> Recipe:
    file = folder / "units.toml"
    file.write_text(RECIPE.format(more=more))
    return load_recipe(str(file))


def opened(folder: Path, recipe: Recipe) -> Checker:
    return Checker(resolve({"store": str(folder / "store")}).settings, recipe=recipe)


@pytest.fixture
def checker(tmp_path: Path) -> Iterator[Checker]:
    with opened(tmp_path, recipe(tmp_path)) as checker:
        checker.ingest(DOCUMENTS)
        yield checker


def test_units_that_can_not_be_cut_here_are_refused_before_there_is_a_store(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "semantic_text_splitter", None)
    with opened(tmp_path, recipe(tmp_path, '[ingest.units.parts]\ncut = "chunk"')) as checker:
        with pytest.raises(MissingExtra, match="pages"):
            checker.ingest(DOCUMENTS)
        assert checker.store.info() is None
    assert "[pages]" in ccheck("recipes", "check", tmp_path / "units.toml").err


def test_a_hit_is_a_unit_of_a_document_or_a_parent(checker: Checker, tmp_path: Path) -> None:
    first, *others = checker.check(CLAIM).evidence
    unit = first.hit.unit
    assert unit is not None and (unit.granularity, unit.number) == ("sentences", 1)
    assert unit.text == first.hit.text == "The sea level rose by 20 cm since 1900."
    assert first.document.text == DOCUMENTS[0]["text"]
    assert [one.text for one in first.sentences] == [unit.text]
    assert all(first.document.text[sentence.start : sentence.end] == sentence.text for sentence in first.sentences)
    said = first.to_dict()
    place = {"start": unit.start, "end": unit.end, "text": unit.text}
    assert said["doc_id"] == "sea" and said["unit"] == {"granularity": "sentences", "number": 1, **place}
    assert {piece.document.id for piece in others} == {"tea"}
    with opened(tmp_path, recipe(tmp_path, 'parents = "max"')) as whole:
        result = whole.check(CLAIM)
    assert [piece.document.id for piece in result.evidence] == ["sea", "tea"]
    assert all(piece.hit.unit is None and "unit" not in piece.to_dict() for piece in result.evidence)


def test_traced_and_remembered_searches_find_the_same_and_a_scope_counts(checker: Checker) -> None:
    plain = checker.check(CLAIM).evidence
    (traced,) = checker.check_many([Claim(CLAIM)], trace=True)
    found, usual = ([(piece.hit.unit, piece.hit.score) for piece in one] for one in (traced.evidence, plain))
    assert found == usual
    assert traced.stages == {"words": ("sea", "tea")} and traced.relevance is None
    run = Run(checker.plan(), checker.recipe, checker.store, 10, memory=Kept())
    found = []
    for filters in ((), (Filter("_id", "=", "tea"),), ()):
        (state,) = run.states([Claim(CLAIM)])
        state.query = Query(CLAIM, filters=filters)
        search(run, [state])
        found.append([hit.document.id for hit in state.hits])
    assert found == [["sea", "tea"], ["tea"], ["sea", "tea"]]


def test_rerankers_and_judges_read_the_unit(tmp_path: Path, checker: Checker, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    class ByLength:
        name = "by length"

        def __call__(self, query: str, passages: Sequence[str]) -> Scores:
            read.extend(passages)
            return Scores(tuple(len(text) / 100 for text in passages), (False,) * len(passages))

    class Quotes:
        """Supports, and quotes the first word of each text."""

        name = "quotes"

        def __call__(self, cases: Sequence[Case]) -> Iterator[Judged]:
            for case in cases:
                texts = [piece.document.text for piece in case.evidence]
                read.extend(texts)
                words = [text.split(" ")[0] for text in texts]
                quotes = tuple((Sentence(word, "text", 0, len(word), 1.0),) for word in words)
                yield Judged((Stance("SUPPORTS", 0.9),) * len(texts), quotes)

    monkeypatch.setattr("ccheck.pipeline.plan.open_reranker", lambda *_: ByLength())
    monkeypatch.setattr("ccheck.pipeline.plan.open_method", lambda *_: Quotes())
    made = recipe(tmp_path, '[rerankers.length]\nmodel = "x"')
    made = made.model_copy(update={"verdict": made.verdict.model_copy(update={"method": "stance"})})
    with opened(tmp_path, made) as judging:
        result = judging.check(CLAIM)
    units = {piece.hit.unit.text for piece in result.evidence if piece.hit.unit is not None}
    assert units == set(read) and len(read) == 2 * len(units)
    assert result.scored_by == {"words": "retriever", "length": "reranker"}
    for piece in result.evidence:
        assert piece.document.text in {one["text"] for one in DOCUMENTS}
        assert all(piece.document.text[sentence.start : sentence.end] == sentence.text for sentence in piece.sentences)


def test_a_unit_that_stands_elsewhere_has_no_sentences(checker: Checker) -> None:
    run = Run(checker.plan(), checker.recipe, checker.store, 10)
    (state,) = run.states([Claim(CLAIM)])
    document = checker.store.get(["sea"])["sea"]
    caption = Unit("figures", 0, 0, 0, "Figure 1: the sea level rose by 20 cm.")
    state.hits = (Hit(1, document, 1.0, unit=caption), Hit(2, document, 0.5))
    choose_evidence(run, [state], None)
    elsewhere, whole = state.result(run).evidence
    assert elsewhere.sentences == () and whole.sentences
    assert cases(run, [state])[0].evidence[0].document.text == caption.text


def test_what_the_store_lacks_is_said_with_the_command(tmp_path: Path, checker: Checker) -> None:
    made = recipe(tmp_path)
    paragraphs = made.retrievers["words"].model_copy(update={"units": "paragraphs"})
    for lacking, error, said in (
        (made.model_copy(update={"retrievers": {"words": paragraphs}}), NotFound, "no units 'paragraphs'.*--recipe"),
        (recipe(tmp_path, '[retrievers.dense]\nunits = "sentences"'), NotFound, "no vectors of units.*--recipe"),
        (recipe(tmp_path, "[retrievers.bm25]"), UsageError, "different"),
    ):
        with opened(tmp_path, lacking) as another, pytest.raises(error, match=said):
            another.plan()


def test_an_ingest_cuts_what_the_recipe_searches_and_a_claim_is_encoded_for_it(tmp_path: Path) -> None:
    with opened(tmp_path, recipe(tmp_path, '[retrievers.dense]\nunits = "sentences"')) as checker:
        checker.ingest(DOCUMENTS)
        info = checker.store.info()
        models = {info.layout.units["sentences"].embedding.model, info.layout.dense["passages"].embedding.model}
        assert models == {DEFAULT_MODEL}
        best = checker.check("the ocean is higher than a century ago").evidence[0].hit
    assert best.unit is not None and best.unit.text == "The sea level rose by 20 cm since 1900."
    assert set(best.scores) >= {"dense", "rrf"}


def test_units_with_vectors_give_the_store_a_model_and_the_recipe_says_how_to_cut(tmp_path: Path) -> None:
    file = tmp_path / "units.toml"
    file.write_text(
        '[ingest.units.windows]\ncut = "window"\ntokens = 20\noverlap = 4\ndense = true\n[retrievers.bm25]\n'
    )
    with opened(tmp_path, load_recipe(str(file))) as checker:
        layout = layout_of(open_encoders(Runtime(checker.settings), None, checker.recipe))
    windows = layout.units["windows"]
    assert (windows.cut, windows.tokens, windows.overlap) == ("window", 20, 4)
    assert windows.embedding is not None and windows.embedding == layout.embedding
    file.write_text('[ingest.units.windows]\ncut = "window"\ntokens = 20\noverlap = 20\n[retrievers.bm25]\n')
    with pytest.raises(InvalidData, match="overlap is 20; it must be below tokens"):
        load_recipe(str(file))
    made = recipe(tmp_path)
    undefined = made.model_copy(update={"ingest": made.ingest.model_copy(update={"units": {}})})
    with opened(tmp_path, undefined) as checker, pytest.raises(InvalidData, match=r"\[ingest.units.sentences\]"):
        checker.ingest(DOCUMENTS)
