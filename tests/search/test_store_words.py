"""How claims' words match in every store: the terms of an analysis, and words that are spelt nearly so."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from filling import write
from store_fields import DOCUMENTS, PLAIN, STEMMED, filled, names, ranked

from ccheck.core.analysis import open_analysis, terms
from ccheck.core.layout import Layout
from ccheck.core.stages import Analysis, Bm25
from ccheck.core.types import Document, Entry, Query
from ccheck.search import Store, parse_filter


@pytest.fixture
def store(make_store: Callable[..., Store]) -> Store:
    return filled(make_store())


# -- the words of an analysis


def test_a_field_of_another_analysis(store: Store) -> None:
    """Without stemming "risen" is not "rise"; with it, "vaccinated" is "vaccination"."""
    assert names(ranked(store, Query("RAISES, risen!"), Bm25(analysis=PLAIN))) == ["ice", "sea"]
    assert ranked(store, Query("raised vaccinated"), Bm25(analysis=PLAIN)) == []
    assert set(names(ranked(store, Query("raised vaccinated"), Bm25(analysis=STEMMED)))) == {"ice", "flu"}


def test_an_analysis_keeps_and_removes_what_it_says(store: Store) -> None:
    assert names(ranked(store, Query("40%"), Bm25(analysis=STEMMED))) == ["flu"]
    assert ranked(store, Query("40"), Bm25(analysis=STEMMED)) == []
    assert names(ranked(store, Query("40%"), Bm25(analysis=PLAIN))) == ["flu"]
    assert names(ranked(store, Query("weightloss"), Bm25(analysis=PLAIN))) == ["tea"]
    assert ranked(store, Query("weightloss"), Bm25(analysis=STEMMED)) == []
    assert ranked(store, Query("the of #weightloss"), Bm25(analysis=STEMMED)) == []


def test_scores_of_an_analysis_are_bm25s(store: Store) -> None:
    cut = open_analysis(PLAIN)
    lengths = [len(cut(f"{document.title}\n{document.text}")) for document in DOCUMENTS]
    ((id_, score),) = ranked(store, Query("influenza"), Bm25(analysis=PLAIN))
    assert (id_, score) == ("flu", pytest.approx(bm25(1, 2, lengths[2], lengths), rel=1e-4))
    ((_, twice),) = ranked(store, Query("influenza influenza"), Bm25(analysis=PLAIN))
    assert twice == pytest.approx(2 * score, rel=1e-4)


def bm25(df: int, tf: int, length: int, lengths: Sequence[int], total: int | None = None) -> float:
    total = total or len(lengths)
    mean = sum(lengths) / len(lengths)
    return math.log(1 + (total - df + 0.5) / (df + 0.5)) * 2.2 * tf / (tf + 1.2 * (0.25 + 0.75 * length / mean))


def test_subwords_of_a_model(make_store: Callable[..., Store]) -> None:
    pytest.importorskip("tokenizers")
    pieces = Analysis(keep="%", hashtags="remove", subwords="sentence-transformers/all-MiniLM-L6-v2")
    store = make_store()
    store.prepare(Layout(analyses=(pieces,)))
    store.upsert(
        [Entry(Document("gland", "Hypoparathyroidism", "Too little of a hormone."), "1"), Entry(DOCUMENTS[2], "1")]
    )
    store.publish()
    assert names(ranked(store, Query("HYPERPARATHYROIDISM!"), Bm25())) == []
    assert names(ranked(store, Query("HYPERPARATHYROIDISM!"), Bm25(analysis=pieces))) == ["gland"]
    assert names(ranked(store, Query("40%"), Bm25(analysis=pieces)))[0] == "flu"
    info = make_store().info()
    assert info is not None and info.layout.analyses == (pieces,)


@pytest.mark.parametrize(
    "text", ["", "?!", "the of", "\0 \ud800", "x" * 40_000, '( AND "quote: ~2 [a TO b]', "w " * 5_000]
)
def test_hostile_claims_of_an_analysis(store: Store, text: str) -> None:
    for fuzziness in (0, "auto"):
        retriever = Bm25(analysis=STEMMED, fuzziness=fuzziness)  # type: ignore[arg-type]
        assert set(names(ranked(store, Query(f"influenza {text}"), retriever))) >= {"flu"}


def test_hostile_documents_of_an_analysis(store: Store) -> None:
    for number, text in enumerate(["", "\0", "x" * 40_000 + " zebra", "\u2028zebra\u00a0\u3000\x85zebra", "« zebra »"]):
        document = Document(f"h{number}", "", text)
        given = Entry(document, "1")
        assert store.upsert([given]) == {}
    store.publish()
    assert set(names(ranked(store, Query("zebra"), Bm25(analysis=PLAIN)))) == {"h2", "h3", "h4"}


# -- fuzzy matching


def fuzzy(**options: Any) -> Bm25:
    return Bm25(fuzziness=options.pop("fuzziness", "auto"), **options)


def test_words_that_are_spelt_nearly_so(store: Store) -> None:
    assert ranked(store, Query("inflenza"), Bm25()) == []
    assert names(ranked(store, Query("inflenza"), fuzzy())) == ["flu"]
    assert names(ranked(store, Query("inlfuenza"), fuzzy(fuzziness=1))) == ["flu"]  # a transposition is one edit
    assert ranked(store, Query("inlfuneza"), fuzzy(fuzziness=1)) == []
    assert names(ranked(store, Query("inlfuneza"), fuzzy(fuzziness=2))) == ["flu"]
    assert ranked(store, Query("ixflxexza"), fuzzy()) == []
    # Up to two letters none may differ, up to five one.
    assert ranked(store, Query("bm"), fuzzy()) == []
    assert names(ranked(store, Query("icy"), fuzzy())) == ["ice"]
    assert ranked(store, Query("grien gxxen"), fuzzy(fields={"title": 1.0}))[0][0] == "tea"


def test_scores_of_fuzzy_matches_are_lucenes(store: Store) -> None:
    lengths = [len(terms(f"{document.title}\n{document.text}")) for document in DOCUMENTS]
    (stem,) = terms("influenza")
    (given,) = terms("inflenza")
    # One edit away: 1 - 1 / the length of the shorter one.
    ((id_, score),) = ranked(store, Query("inflenza"), fuzzy())
    boost = 1 - 1 / min(len(stem), len(given))
    assert (id_, score) == ("flu", pytest.approx(boost * bm25(1, 2, lengths[2], lengths), rel=1e-4))
    ((_, exact),) = ranked(store, Query("influenza"), fuzzy())
    assert exact == pytest.approx(bm25(1, 2, lengths[2], lengths), rel=1e-4)


def test_the_words_near_one_share_the_most_frequents_weight(make_store: Callable[..., Store]) -> None:
    """The rewrite `top_terms_blended_freqs`: each term near counts as if it were as frequent as the most frequent."""
    store = make_store()
    store.prepare(Layout(analyses=(PLAIN,)))
    texts = {
        "a": "zebra one",
        "b": "zebra two",
        "c": "zebra three",
        "d": "zebro four",
        "e": "zabra zebra",
        "f": "giraffe five",
    }
    write(store, [Entry(Document(id_, "", text), "1") for id_, text in texts.items()])
    found = dict(ranked(store, Query("zebro"), fuzzy(analysis=PLAIN)))
    lengths = [2] * 6
    weight = bm25(4, 1, 2, lengths)
    assert found == {
        "d": pytest.approx(weight, rel=1e-4),
        **{id_: pytest.approx(weight * (1 - 1 / 5), rel=1e-4) for id_ in "abce"},
    }
    two = dict(ranked(store, Query("zebro"), fuzzy(analysis=PLAIN, fuzziness=2)))
    assert two["e"] == pytest.approx(weight * (1 - 1 / 5 + 1 - 2 / 5), rel=1e-4)


def test_at_most_fifty_words_are_near(make_store: Callable[..., Store]) -> None:
    store = make_store()
    store.prepare(Layout(analyses=(PLAIN,)))
    letters = "abcdefghijklmnopqrstuvwxyz"
    near = [f"quack{a}{b}" for a in letters for b in letters][:120]
    write(store, [Entry(Document(word, "", word), "1") for word in [*near, "quackl"]])
    found = names(ranked(store, Query("quack"), fuzzy(analysis=PLAIN, fuzziness=2, depth=200)))
    # The one of one edit, and of those of two the first by the alphabet.
    assert found[0] == "quackl"
    assert sorted(found[1:]) == sorted(near)[:49]


def test_fuzzy_matching_over_several_fields_and_filters(store: Store) -> None:
    both = fuzzy(fields={"title": 2.0, "additional": 1.0})
    assert names(ranked(store, Query("beeches"), both)) == ["sea"]
    assert names(ranked(store, Query("vacinnes"), both)) == ["flu"]
    assert ranked(store, Query("vacinnes"), both, filters=[parse_filter("year!=2015")]) == []
