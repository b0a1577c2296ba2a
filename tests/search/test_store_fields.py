"""What every store must do with the fields that recipes ask for: the same tests for both kinds."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import store_documents
from searching import bm25, fill, info_of, rank_all, write
from store_documents import BM25, FULL, LAYOUT, PLAIN, SECOND, STEMMED, ids, search, unit
from store_documents import VECTORS as MAIN
from store_units import ranked

from ccheck.core.analysis import open_analysis, terms
from ccheck.core.errors import CcheckError, NotFound
from ccheck.core.layout import MAIN_VECTORS, Layout
from ccheck.core.stages import Analysis, Bm25, Dense, Retriever, Sparse
from ccheck.core.types import Document, Entry, Passage, Query, SparseVector
from ccheck.search import Store, parse_filter

DOCUMENTS = store_documents.DOCUMENTS[:4]
WEIGHTS = {"sea": {3: 1.5, 7: 0.5, 40: 0.25}, "ice": {3: 0.5, 8: 2.0}, "flu": {50: 1.0, 99: 1.75}, "tea": {0: 1.25}}
ADDITIONAL = {
    "sea": ("Oceans climb along every coast.", "wow, the beaches vanish"),
    "flu": ("A jab keeps grandparents out of hospital.",),
}


second = partial(unit, dimensions=4)
OTHER = {"sea": second(0, 1), "ice": second(0, 0, 1), "flu": second(1), "tea": second(0, 0, 0, 1)}


def sparse(weights: Mapping[int, float]) -> SparseVector:
    tokens = sorted(weights)
    return SparseVector(np.array(tokens, np.int32), np.array([weights[token] for token in tokens], np.float32))


def entry(document: Document, digest: str = "1") -> Entry:
    id_, end = document.id, len(document.text)
    return Entry(
        document,
        digest,
        {MAIN_VECTORS: (Passage(0, end, MAIN[id_]),), SECOND: (Passage(0, end, OTHER[id_]), Passage(0, 0, OTHER[id_]))},
        sparse(WEIGHTS[id_]),
        ADDITIONAL.get(id_, ()),
    )


def filled(store: Store) -> Store:
    """The store with every kind of field and the four documents."""
    fill(store, FULL, [entry(document) for document in DOCUMENTS])
    return store


def one(retriever: Retriever) -> dict[str, Retriever]:
    return {retriever.kind: retriever}


@pytest.fixture
def store(make_store: Callable[..., Store]) -> Store:
    return filled(make_store())


@pytest.mark.parametrize(
    ("layout", "retriever"),
    [
        (Layout(), Dense()),
        (LAYOUT, Bm25(analysis=PLAIN)),
        (LAYOUT, Bm25(fields={"additional": 1.0})),
        (LAYOUT, Bm25(fields={"content": 1.0, "additional": 0.5})),
        (LAYOUT, Dense(field=SECOND)),
        (LAYOUT, Sparse()),
    ],
    ids=["vectors", "analysis", "additional", "content and additional", "dense", "sparse"],
)
def test_a_field_that_the_store_lacks(make_store: Callable[..., Store], layout: Layout, retriever: Retriever) -> None:
    store, passages = make_store(), {name: (Passage(0, 4, MAIN["sea"]),) for name in layout.dense}
    fill(store, layout, [Entry(DOCUMENTS[0], "1", passages)])
    query = Query("sea", MAIN["sea"], {"sparse": sparse({3: 1.0})})
    with pytest.raises(NotFound, match=r"ccheck ingest .*--(recipe|model)"):
        rank_all(store, [query], one(retriever))


def test_documents_are_found_by_their_additional_texts(store: Store) -> None:
    additional = Bm25(fields={"additional": 1.0})
    assert list(ranked(store, Query("beach"), additional)) == ["sea"]
    assert list(ranked(store, Query("jab"), additional)) == ["flu"]
    assert ranked(store, Query("influenza"), additional) == {}
    assert ranked(store, Query("jab"), Bm25()) == {}
    both = Bm25(fields={"content": 1.0, "additional": 0.5})
    assert set(ranked(store, Query("jab ice"), both)) == {"ice", "flu"}
    assert store.get(["sea"])["sea"] == DOCUMENTS[0]


def test_each_field_of_vectors_answers_for_itself(store: Store) -> None:
    dense = Dense(field=SECOND)
    found = ranked(store, Query("", OTHER["flu"]), dense)
    assert next(iter(found.items())) == ("flu", pytest.approx(1, abs=1e-5))
    assert len(found) == 4
    assert list(ranked(store, Query("", MAIN["ice"]), Dense(depth=1))) == ["ice"]
    assert list(ranked(store, Query("", MAIN["ice"]), Dense(field="passages", depth=1))) == ["ice"]
    both: dict[str, Retriever] = {"main": Dense(depth=1), "second": dense.model_copy(update={"depth": 1})}
    assert set(ids(search(store, Query("", MAIN["sea"], {"second": OTHER["tea"]}), both))) == {"sea", "tea"}
    with pytest.raises(CcheckError, match="dimensions"):
        rank_all(store, [Query("", MAIN["sea"])], {"second": dense})


def test_further_vectors_change_and_go_with_their_document(store: Store) -> None:
    sea = entry(DOCUMENTS[0], "2")
    changed = replace(sea, passages={**sea.passages, SECOND: (Passage(0, 4, second(1, 0, 0, 1)),)})
    store.upsert([changed])
    store.delete(["tea"])
    store.publish()
    found = ranked(store, Query("", second(1, 0, 0, 1)), Dense(field=SECOND))
    assert found == pytest.approx({"sea": 1, "flu": 0.5**0.5, "ice": 0}, abs=1e-5)


def dots(query: Mapping[int, float], documents: Mapping[str, Mapping[int, float]]) -> dict[str, float]:
    found = {id_: sum(query.get(token, 0.0) * weight for token, weight in of.items()) for id_, of in documents.items()}
    return {id_: score for id_, score in found.items() if score > 0}


def asked(weights: Mapping[int, float]) -> Query:
    return Query("", None, {"sparse": sparse(weights)})


CLOSE = 0.01
"""Elasticsearch keeps weights with 8 bits of precision."""


def test_sparse_scores_are_dot_products(store: Store) -> None:
    for weights in ({3: 1.0}, {3: 0.5, 8: 0.25, 99: 1.0}, {0: 2.0, 1: 3.0}, {1: 1.0, 2: 1.0}):
        expected = dots(weights, WEIGHTS)
        found = ranked(store, asked(weights), Sparse())
        assert found == pytest.approx(expected, rel=CLOSE)
        assert list(found) == sorted(expected, key=lambda id_: -expected[id_])
    assert ranked(store, Query("sea"), Sparse()) == {}
    assert ranked(store, asked({}), Sparse()) == {}
    assert list(ranked(store, asked({3: 1.0}), Sparse(depth=1))) == ["sea"]


def test_sparse_with_updates_deletes_and_filters(store: Store) -> None:
    store.upsert([replace(entry(DOCUMENTS[0], "2"), sparse=sparse({8: 3.0}))])
    store.upsert([replace(entry(DOCUMENTS[3], "2"), sparse=None)])
    store.delete(["flu"])
    store.publish()
    assert ranked(store, asked({0: 1.0, 50: 1.0}), Sparse()) == {}
    query = asked({3: 1.0, 8: 1.0})
    assert ranked(store, query, Sparse()) == pytest.approx({"sea": 3.0, "ice": 2.5}, rel=CLOSE)
    assert list(ranked(store, query, Sparse(), filters=[parse_filter("year>2015")])) == ["ice"]
    write(store, [entry(document) for document in DOCUMENTS])
    assert ranked(store, asked({3: 1.0, 99: 1.0}), Sparse()) == pytest.approx(
        {"flu": 1.75, "sea": 1.5, "ice": 0.5}, rel=CLOSE
    )


def state(store: Store) -> str:
    info = info_of(store)
    assert info.state
    return info.state


def test_the_state_changes_with_what_is_stored(make_store: Callable[..., Store], store: Store) -> None:
    seen = [state(store)]
    assert state(make_store()) == state(store) == seen[0]
    rank_all(store, [Query("sea")], BM25)
    assert state(store) == seen[0]
    write(store, [entry(DOCUMENTS[0], "2")])
    seen.append(state(store))
    store.delete(["tea"])
    store.publish()
    seen.append(state(store))
    assert state(make_store()) == seen[-1]
    other = make_store("other")
    fill(other, FULL, [entry(document) for document in DOCUMENTS])
    seen.append(state(other))
    assert len(set(seen)) == 4


def test_a_store_gains_fields(make_store: Callable[..., Store]) -> None:
    store = make_store()
    plain = [Entry(d, "1", {MAIN_VECTORS: entry(d).passages[MAIN_VECTORS]}) for d in DOCUMENTS]
    fill(store, LAYOUT, plain)
    reader = make_store()
    assert list(ranked(reader, Query("influenza"), Bm25())) == ["flu"]
    before = state(store)
    store.prepare(FULL)
    assert info_of(store).layout == FULL
    # The local store has words at once, since it has the texts; all else comes with the documents.
    words = ["ice", "sea"] if store.name.startswith("local:") else []
    assert list(ranked(store, Query("RAISES, risen!"), Bm25(analysis=PLAIN))) == words
    assert ranked(store, asked({3: 1.0}), Sparse()) == {}
    assert ranked(store, Query("", OTHER["flu"]), Dense(field=SECOND)) == {}
    write(store, [entry(document, "2") for document in DOCUMENTS[:2]])
    for one_of in (store, reader, make_store()):
        assert list(ranked(one_of, Query("RAISES, risen!"), Bm25(analysis=PLAIN))) == ["ice", "sea"]
        assert list(ranked(one_of, asked({3: 1.0}), Sparse())) == ["sea", "ice"]
        assert next(iter(ranked(one_of, Query("", OTHER["sea"]), Dense(field=SECOND)))) == "sea"
        assert list(ranked(one_of, Query("beach"), Bm25(fields={"additional": 1.0}))) == ["sea"]
        assert list(ranked(one_of, Query("influenza"), Bm25())) == ["flu"]
        assert next(iter(ranked(one_of, Query("", MAIN["tea"]), Dense()))) == "tea"
    assert state(store) != before


def test_a_field_of_another_analysis(store: Store) -> None:
    """Without stemming "risen" is not "rise"; with it, "vaccinated" is "vaccination"."""
    assert list(ranked(store, Query("RAISES, risen!"), Bm25(analysis=PLAIN))) == ["ice", "sea"]
    assert ranked(store, Query("raised vaccinated"), Bm25(analysis=PLAIN)) == {}
    assert set(ranked(store, Query("raised vaccinated"), Bm25(analysis=STEMMED))) == {"ice", "flu"}
    assert list(ranked(store, Query("40%"), Bm25(analysis=STEMMED))) == ["flu"]
    assert ranked(store, Query("40"), Bm25(analysis=STEMMED)) == {}


def test_scores_of_an_analysis_are_bm25s(store: Store) -> None:
    cut = open_analysis(PLAIN)
    lengths = [len(cut(f"{document.title}\n{document.text}")) for document in DOCUMENTS]
    ((id_, score),) = ranked(store, Query("influenza"), Bm25(analysis=PLAIN)).items()
    assert (id_, score) == ("flu", pytest.approx(bm25(2, lengths[2], sum(lengths) / 4, 1, 4), rel=1e-4))
    twice = ranked(store, Query("influenza influenza"), Bm25(analysis=PLAIN))
    assert twice == {"flu": pytest.approx(2 * score, rel=1e-4)}


def test_subwords_of_a_model(make_store: Callable[..., Store]) -> None:
    pytest.importorskip("tokenizers")
    pieces = Analysis(keep="%", hashtags="remove", subwords="sentence-transformers/all-MiniLM-L6-v2")
    store = make_store()
    gland = Document("gland", "Hypoparathyroidism", "Too little of a hormone.")
    fill(store, Layout(analyses=(pieces,)), [Entry(gland, "1"), Entry(DOCUMENTS[2], "1")])
    assert list(ranked(store, Query("HYPERPARATHYROIDISM!"), Bm25())) == []
    assert list(ranked(store, Query("HYPERPARATHYROIDISM!"), Bm25(analysis=pieces))) == ["gland"]
    assert next(iter(ranked(store, Query("40%"), Bm25(analysis=pieces)))) == "flu"
    assert info_of(make_store()).layout.analyses == (pieces,)


@pytest.mark.parametrize(
    "text", ["", "?!", "the of", "\0 \ud800", "x" * 40_000, '( AND "quote: ~2 [a TO b]', "w " * 5_000]
)
def test_hostile_claims_of_an_analysis(store: Store, text: str) -> None:
    for fuzziness in (0, "auto"):
        retriever = Bm25(analysis=STEMMED, fuzziness=fuzziness)  # type: ignore[arg-type]
        assert set(ranked(store, Query(f"influenza {text}"), retriever)) >= {"flu"}


def test_hostile_documents_of_an_analysis(store: Store) -> None:
    texts = ["", "\0", "x" * 40_000 + " zebra", "\u2028zebra\u00a0\u3000\x85zebra", "« zebra »"]
    write(store, [Entry(Document(f"h{number}", "", text), "1") for number, text in enumerate(texts)])
    assert set(ranked(store, Query("zebra"), Bm25(analysis=PLAIN))) == {"h2", "h3", "h4"}


def fuzzy(**options: Any) -> Bm25:
    return Bm25(fuzziness=options.pop("fuzziness", "auto"), **options)


def test_words_that_are_spelt_nearly_so(store: Store) -> None:
    assert ranked(store, Query("inflenza"), Bm25()) == {}
    assert list(ranked(store, Query("inflenza"), fuzzy())) == ["flu"]
    assert list(ranked(store, Query("inlfuenza"), fuzzy(fuzziness=1))) == ["flu"]  # a transposition is one edit
    assert ranked(store, Query("inlfuneza"), fuzzy(fuzziness=1)) == {}
    assert list(ranked(store, Query("inlfuneza"), fuzzy(fuzziness=2))) == ["flu"]
    assert ranked(store, Query("ixflxexza"), fuzzy()) == {}
    # Up to two letters none may differ, up to five one.
    assert ranked(store, Query("bm"), fuzzy()) == {}
    assert list(ranked(store, Query("icy"), fuzzy())) == ["ice"]
    assert list(ranked(store, Query("grien gxxen"), fuzzy(fields={"title": 1.0}))) == ["tea"]


def test_scores_of_fuzzy_matches_are_lucenes(store: Store) -> None:
    lengths = [len(terms(f"{document.title}\n{document.text}")) for document in DOCUMENTS]
    ((stem,), (given,)), score = map(terms, ("influenza", "inflenza")), bm25(2, lengths[2], sum(lengths) / 4, 1, 4)
    # One edit away: 1 - 1 / the length of the shorter one.
    boost = 1 - 1 / min(len(stem), len(given))
    assert ranked(store, Query("inflenza"), fuzzy()) == {"flu": pytest.approx(boost * score, rel=1e-4)}
    assert ranked(store, Query("influenza"), fuzzy()) == {"flu": pytest.approx(score, rel=1e-4)}


def test_the_words_near_one_share_the_most_frequents_weight(make_store: Callable[..., Store]) -> None:
    """The rewrite `top_terms_blended_freqs`: each term near counts as if it were as frequent as the most frequent."""
    store = make_store()
    store.prepare(Layout(analyses=(PLAIN,)))
    texts = ["zebra one", "zebra two", "zebra three", "zebro four", "zabra zebra", "giraffe five"]
    write(store, [Entry(Document(id_, "", text), "1") for id_, text in zip("abcdef", texts, strict=True)])
    found = ranked(store, Query("zebro"), fuzzy(analysis=PLAIN))
    weight = bm25(1, 2, 2, 4, 6)
    assert found == pytest.approx({"d": weight} | dict.fromkeys("abce", weight * (1 - 1 / 5)), rel=1e-4)
    two = ranked(store, Query("zebro"), fuzzy(analysis=PLAIN, fuzziness=2))
    assert two["e"] == pytest.approx(weight * (1 - 1 / 5 + 1 - 2 / 5), rel=1e-4)


def test_at_most_fifty_words_are_near(make_store: Callable[..., Store]) -> None:
    store = make_store()
    letters = "abcdefghijklmnopqrstuvwxyz"
    near = [f"quack{a}{b}" for a in letters for b in letters][:120]
    fill(store, Layout(analyses=(PLAIN,)), [Entry(Document(word, "", word), "1") for word in [*near, "quackl"]])
    found = list(ranked(store, Query("quack"), fuzzy(analysis=PLAIN, fuzziness=2, depth=200)))
    # The one of one edit, and of those of two the first by the alphabet.
    assert found[0] == "quackl"
    assert sorted(found[1:]) == sorted(near)[:49]


def test_fuzzy_matching_over_several_fields_and_filters(store: Store) -> None:
    both = fuzzy(fields={"title": 2.0, "additional": 1.0})
    assert list(ranked(store, Query("beeches"), both)) == ["sea"]
    assert list(ranked(store, Query("vacinnes"), both)) == ["flu"]
    assert ranked(store, Query("vacinnes"), both, filters=[parse_filter("year!=2015")]) == {}
