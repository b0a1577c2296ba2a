"""The pipeline with what published recipes name: sparse vectors, several embeddings, analyses, rewriting, a memory."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from runtimes import Kept, on_cpu
from scripted_llm import KEY, say, scripted, user_text

from ccheck import Checker, Claim
from ccheck.core.errors import InvalidData, NotFound
from ccheck.core.fusion import fuse
from ccheck.core.recipe import Recipe, load_recipe
from ccheck.core.runtime import Runtime
from ccheck.core.settings import Settings, resolve
from ccheck.core.types import Query
from ccheck.demo import CORPUS
from ccheck.encode.dense import DEFAULT_MODEL
from ccheck.search import Search

pytest.importorskip("sentence_transformers", reason="needs the extra models")
CLAIMS = [
    Claim("sea level has risen 20 cm since 1900", "sea"),
    Claim("coffee causes cancer", "coffee"),
    Claim("vaccines cause autism", "vaccine"),
]


RECIPE = """
[retrievers.bm25]
depth = 30
[retrievers.words]
kind = "bm25"
depth = 20
analysis = {stopwords = "nltk"}
[retrievers.dense]
depth = 30
[retrievers.whole]
kind = "dense"
model = "SECOND"
passages = false
depth = 10
[retrievers.sparse]
model = "SPLADE"
depth = 30
[fusion]
k = 60
[verdict]
method = "none"
"""


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory, splade: str, other: str) -> Recipe:
    file = tmp_path_factory.mktemp("recipe") / "many.toml"
    file.write_text(RECIPE.replace("SPLADE", splade).replace("SECOND", other))
    return load_recipe(str(file))


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory, recipe: Recipe) -> Settings:
    """Of a store that has what the recipe searches in."""
    folder = tmp_path_factory.mktemp("papers")
    made = resolve({"store": str(folder / "store"), "cache_dir": folder / "cache", "device": "cpu"}).settings
    with Checker(made, recipe=recipe) as checker:
        report = checker.ingest(str(CORPUS))
    assert report.added == 71
    return made


def test_five_retrievers_and_what_each_handed_on_at_its_own_depth(settings: Settings, recipe: Recipe) -> None:
    with Checker(settings, recipe=recipe) as checker:
        results = list(checker.check_many(CLAIMS, k=5, trace=True))
        plain = list(checker.check_many(CLAIMS, k=5))
        (traced,) = checker.check_many(CLAIMS[:1], k=50, trace=True)
        (deep,) = checker.check_many(CLAIMS[:1], k=50)
    for result, usual in zip(results, plain, strict=True):
        assert list(result.stages) == ["bm25", "words", "dense", "whole", "sparse", "rrf"]
        assert len(result.stages["dense"]) == 30 and len(result.stages["whole"]) == 10
        ids = [piece.document.id for piece in result.evidence]
        assert ids == list(result.stages["rrf"][:5]) == [piece.document.id for piece in usual.evidence]
        rankings = {name: [(id_, 0.0) for id_ in result.stages[name]] for name in recipe.retrievers}
        fused = fuse(rankings, dict.fromkeys(rankings, 1.0), recipe.fusion)
        assert [id_ for id_, _ in fused[:5]] == ids
        for piece in result.evidence:
            assert all(result.stages[name][rank - 1] == piece.document.id for name, rank in piece.hit.ranks.items())
        assert usual.stages == {}
    assert len(traced.stages["whole"]) == 10, "measuring goes no deeper than a retriever does"
    assert sum("whole" in piece.hit.ranks for piece in deep.evidence) > 10


def test_a_second_run_with_a_memory_searches_for_nothing_and_loads_no_model(settings, recipe, monkeypatch) -> None:
    memory = Kept()

    def run(recipe: Recipe = recipe) -> tuple[list[Any], dict[str, Query]]:
        """What was found, and what the store was asked for each claim."""
        asked: dict[str, Query] = {}
        with Runtime(settings, memory=memory) as loaded, Checker(loaded, recipe=recipe) as checker:
            rank = checker.store.rank

            def ranked(search: Search) -> Any:
                asked.update({query.text: query for query in search.queries})
                return rank(search)

            monkeypatch.setattr(checker.store, "rank", ranked)
            results = list(checker.check_many([*CLAIMS, CLAIMS[0]], k=8, trace=True))
        return [(result.stages, [piece.hit for piece in result.evidence]) for result in results], asked

    first, before = run()
    for module in ("dense", "sparse"):
        monkeypatch.setattr(f"ccheck.encode.{module}.load_encoder", lambda *_: pytest.fail("a model was loaded"))
    assert run() == (first, {}) and memory.missed == {"embedding": 6, "sparse": 3, "ranking": 15}
    # Another fusion or weight is no other search.
    found, asked = run(recipe.model_copy(update={"fusion": recipe.fusion.model_copy(update={"k": 1})}))
    assert found and not asked
    # The rankings are asked for again, with vectors that the memory gives.
    memory.values = {key: value for key, value in memory.values.items() if key[0] != "ranking"}
    second, after = run()
    assert second == first and memory.missed["sparse"] == len(after) == 3
    for text, query in after.items():
        made, was = query.weights("sparse"), before[text].weights("sparse")
        assert made is not None and was is not None and made.ids.size
        for one, other in ((made.ids, was.ids), (made.weights, was.weights)):
            assert one.dtype == other.dtype and one.tolist() == other.tolist()


def test_a_memory_forgets_what_another_state_of_the_store_gave(tmp_path: Path) -> None:
    made = resolve({"store": str(tmp_path / "store"), "cache_dir": tmp_path}).settings
    bm25 = load_recipe("bm25")
    memory = Kept()
    loaded = Runtime(made, memory=memory)
    with Checker(loaded, recipe=bm25) as checker:
        checker.ingest(str(CORPUS), dense=False)
        before = next(checker.check_many(CLAIMS[:1], trace=True))
        checker.ingest({"_id": "new", "title": CLAIMS[0].text, "text": CLAIMS[0].text}, dense=False)
        after = next(checker.check_many(CLAIMS[:1], trace=True))
    assert before.stages["bm25"][0] != "new" == after.stages["bm25"][0]


def test_what_a_store_lacks_comes_with_the_whole_command(tmp_path: Path, recipe: Recipe, splade: str) -> None:
    store = tmp_path / "a store"
    made = resolve({"store": str(store), "device": "cpu"}).settings
    with Checker(made, recipe=load_recipe("bm25")) as checker:
        checker.ingest(str(CORPUS), dense=False)
    hybrid = load_recipe("climatecheck-hybrid", {"naver/splade-v3": splade})
    words, sparse = (
        recipe.model_copy(update={"retrievers": {name: recipe.retrievers[name]}}) for name in ("words", "sparse")
    )
    for lacking, needed, rest in (
        (hybrid, "ingest FILE", f"climatecheck-hybrid --replace naver/splade-v3={splade}"),
        (words, "no terms of this analysis", "NAME"),
        (sparse, "no sparse vectors", "NAME"),
    ):
        with Checker(made, recipe=lacking) as checker, pytest.raises(NotFound, match=needed) as caught:
            checker.plan()
        assert str(caught.value).endswith(f": ccheck ingest FILE --recipe {rest} --store 'local:{store}'")
    optional = {name: stage.model_copy(update={"required": False}) for name, stage in recipe.retrievers.items()}
    optional["bm25"] = recipe.retrievers["bm25"]
    with Checker(made, recipe=recipe.model_copy(update={"retrievers": optional})) as checker:
        plan = checker.plan()
    assert list(plan.retrievers) == ["bm25"] and len(plan.warnings) == 4


def test_sparse_vectors_of_other_weights_are_refused(settings: Settings, recipe: Recipe, tmp_path: Path) -> None:
    from tiny_sparse import make_splade

    other = make_splade(tmp_path / "other", seed=1)
    stage = recipe.retrievers["sparse"].model_copy(update={"model": str(other)})
    only = recipe.model_copy(update={"retrievers": {"sparse": stage}})
    with Checker(settings, recipe=only) as checker, pytest.raises(InvalidData, match="other weights"):
        checker.plan()


def _answer(request: dict) -> object:
    system, claim = request["messages"][0]["content"], user_text(request)
    if '"papers": ' in system:
        return say({"papers": [{"title": "Tide gauges", "abstract": "Sea level by tide gauges."}] * 2})
    if '"sentences": ' in system:
        return say({"sentences": "Global mean sea level rose according to tide gauge records."})
    return say({"rewritten": f"mean sea level rise {len(claim)}"})


def _rewriting(base: Recipe, required: bool = True, **query: str) -> Recipe:
    stages = {name: base.retrievers[name].model_copy(update={"query": kind}) for name, kind in query.items()}
    how = base.rewriting.model_copy(update={"papers": 2, "with_claim": True, "required": required})
    return base.model_copy(update={"retrievers": stages, "rewriting": how})


@pytest.fixture
def llm_settings(settings: Settings, tmp_path: Path) -> Callable[[str], Settings]:
    values = {"llm_model": "m", "llm_api_key": KEY, "cache_dir": tmp_path, "llm_retry_seconds": 0}
    return lambda url: Settings.model_validate(settings.model_dump() | values | {"llm_base_url": url})


def test_each_retriever_searches_for_what_its_query_says(settings, recipe, llm_settings, monkeypatch) -> None:
    from ccheck.encode.dense import load_embedder

    asked = []
    with scripted(_answer) as server:
        changed = _rewriting(recipe, bm25="expand", dense="hyde", sparse="rewrite")
        with Checker(llm_settings(server.url), recipe=changed) as checker:
            rank = checker.store.rank
            monkeypatch.setattr(checker.store, "rank", lambda search: asked.extend(search.queries) or rank(search))
            (result,) = checker.check_many(CLAIMS[:1])
    assert len(server.requests) == 3
    assert result.usage.llm_calls == 3 and result.timings_ms["rewrite"] > 0
    assert result.usage_by_stage == {"rewrite": result.usage}
    (query,) = asked
    assert query.text == CLAIMS[0].text
    assert query.words("bm25").startswith(CLAIMS[0].text) and "tide gauge records" in query.words("bm25")
    embedder = load_embedder(DEFAULT_MODEL, on_cpu())
    texts = ["Tide gauges\nSea level by tide gauges."] * 2 + [CLAIMS[0].text]
    mean = embedder.encode_documents(texts).mean(axis=0)
    assert float(np.dot(query.embedding("dense"), mean / np.linalg.norm(mean))) > 0.999
    assert query.weights("sparse").ids.size


def test_where_rewriting_fails_the_claim_itself_is_searched_for_or_it_is_an_error(recipe, llm_settings) -> None:
    results = []
    with scripted(lambda request: say({"nonsense": 1})) as server:
        for query, required in (("rewrite", True), ("rewrite", False), ("claim", True)):
            with Checker(llm_settings(server.url), recipe=_rewriting(recipe, required, bm25=query)) as checker:
                results += [*checker.check_many(CLAIMS[:1]), *checker.check_many(CLAIMS[:1], trace=True)]
    failed, _, went_on, measured, plain, _ = results
    assert failed.error is not None and not failed.evidence and measured.error is not None
    assert failed.usage_by_stage["rewrite"].llm_calls == 2  # what came to nothing was paid too
    assert [piece.document.id for piece in went_on.evidence] == [piece.document.id for piece in plain.evidence]
    assert any("the search used the claim itself" in warning for warning in went_on.warnings)
    assert went_on.usage_by_stage["rewrite"].llm_calls == 2


def test_a_claim_that_nobody_rewrote_is_encoded_as_a_claim(recipe, llm_settings, monkeypatch) -> None:
    from ccheck.encode.dense import Embedder

    encoded: dict[str, list[str]] = {"documents": [], "queries": []}
    for role, seen in encoded.items():
        encode = getattr(Embedder, f"encode_{role}")
        monkeypatch.setattr(
            Embedder,
            f"encode_{role}",
            lambda self, texts, _encode=encode, _seen=seen: (_seen.extend(texts), _encode(self, texts))[1],
        )
    unread = recipe.model_copy(update={"evidence": recipe.evidence.model_copy(update={"sentences": 0})})
    changed = _rewriting(unread, required=False, dense="hyde")

    def sometimes(request: dict) -> object:
        return say({"nonsense": 1}) if CLAIMS[1].text in user_text(request) else _answer(request)

    with scripted(sometimes) as server, Checker(llm_settings(server.url), recipe=changed) as checker:
        first, second = checker.check_many(CLAIMS[:2])
    assert not first.warnings and any("the search used the claim itself" in one for one in second.warnings)
    assert "Tide gauges\nSea level by tide gauges." in encoded["documents"]
    assert CLAIMS[1].text in encoded["queries"] and CLAIMS[1].text not in encoded["documents"]
