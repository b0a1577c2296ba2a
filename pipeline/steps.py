"""The steps of a pipeline. Each fills in the states of some claims: retrieve, rerank, choose sentences, judge."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from numbers import Real
from typing import Any, Literal, TypeAlias, TypeVar, get_args

import numpy as np
import orjson

from ..core.analysis import foreign_language
from ..core.cache import Memory, memory_key, recall
from ..core.errors import CcheckError, InvalidData
from ..core.fusion import Scored
from ..core.stages import QueryText, Retriever
from ..core.telemetry import span
from ..core.text import name_of
from ..core.types import (
    Evidence,
    Hit,
    Label,
    Query,
    Ranking,
    Sentence,
    SparseVector,
    Stance,
    Vector,
    Verdict,
    document_of,
    unit_key,
)
from ..encode.dense import Embedder
from ..encode.numpy_bert import unit_length
from ..encode.sparse import SparseEmbedder
from ..rerank.apply import Place, reranked, score_many
from ..rerank.types import WrongKey, all_or_error
from ..search import Ranks, Search, answer
from ..search.store import searched_units
from ..verdict import Case, Judge, all_judged, choose_sentences, conclude, no_claim, nothing_bears, with_stances
from .relevance import far_hits, relevance, retrieval_is_weak
from .run import ClaimState, Run, going

Role: TypeAlias = Literal["query", "document"]
"""How a text is encoded: some models have two ways."""
Ranked: TypeAlias = Scored[str]
_Said = TypeVar("_Said", Stance, Verdict)


def retrieve(run: Run, states: Sequence[ClaimState]) -> None:
    """Fill in queries and hits."""
    asked = going(states)
    started = time.perf_counter()
    _rewrite(run, asked)
    rewritten = time.perf_counter()
    run.told(
        asked,
        "queries",
        lambda state: [{"claim": [state.text], **{kind: list(some) for kind, some in state.rewritten.items()}}],
    )
    encode_claims(run, going(asked))
    encoded = time.perf_counter()
    search(run, going(asked))
    timings = {"rewrite": _milliseconds(rewritten - started, len(asked))} if run.plan.rewriter is not None else {}
    timings["embed"] = _milliseconds(encoded - rewritten, len(asked))
    timings["retrieve"] = _milliseconds(time.perf_counter() - encoded, len(asked))
    for state in going(asked):
        state.timings_ms |= timings
    run.told(asked, "hits", lambda state: [{"documents": documents_told(state.hits[: run.k])}])


# -- queries


@span("rewrite")
def _rewrite(run: Run, states: Sequence[ClaimState]) -> None:
    """Fill in the rewritten texts. A claim that could not be rewritten has a warning, or an error if required."""
    if run.plan.rewriter is None or not states:
        return
    from .rewriting import rewrite

    kinds = {stage.query for stage in run.plan.retrievers.values()} - {"claim"}
    made = rewrite([state.text for state in states], kinds, run.recipe.rewriting, run.plan.rewriter)
    for state, one in zip(states, made, strict=True):
        state.rewritten = one.texts
        state.use("rewrite", one.usage)
        if one.error is not None:
            state.warnings.append(f"the search used the claim itself, because it could not be rewritten: {one.error}")
            state.error = one.error if run.recipe.rewriting.required or run.strict else None


@span("embed")
def encode_claims(run: Run, states: Sequence[ClaimState]) -> None:
    """Fill in the queries of claims, whose texts are encoded together, equal ones once."""
    own: list[dict[str, str | Vector | SparseVector]] = [{} for _ in states]
    for name, stage in run.plan.retrievers.items():
        encoder = run.plan.encoders.get(name)
        # A claim that nobody rewrote is searched for as it is, and encoded as one.
        kinds: list[QueryText] = [stage.query if stage.query in state.rewritten else "claim" for state in states]
        for kind in dict.fromkeys(kinds):
            places = [place for place, one in enumerate(kinds) if one == kind]
            chosen = [states[place].rewritten.get(kind, (states[place].text,)) for place in places]
            made: Sequence[str | Vector | SparseVector]
            if encoder is not None:
                if kind == "hyde" and run.recipe.rewriting.with_claim:
                    chosen = [(*some, states[place].text) for place, some in zip(places, chosen, strict=True)]
                made = _encoded(encoder, chosen, "document" if kind == "hyde" else "query", run.memory)
            elif kind != "claim":
                made = ["\n".join(some) for some in chosen]
            else:
                continue
            for place, one in zip(places, made, strict=True):
                own[place][name] = one
    for state, asked in zip(states, own, strict=True):
        state.query = Query(state.text, own=asked)


def _encoded(
    encoder: Embedder | SparseEmbedder, texts: Sequence[tuple[str, ...]], role: Role, memory: Memory | None
) -> list[Vector | SparseVector]:
    """One for each tuple of texts: of several the mean embedding, of unit length (HyDE's equation 8)."""
    if isinstance(encoder, SparseEmbedder):
        texts = [("\n".join(some),) for some in texts]
    by_text = _each_once(encoder, list(dict.fromkeys(text for some in texts for text in some)), role, memory)
    encoded = []
    for some in texts:
        vector = by_text[some[0]]
        if len(some) > 1:
            vector = unit_length(np.mean([by_text[text] for text in some], axis=0))
        encoded.append(vector)
    return encoded


def _each_once(
    encoder: Embedder | SparseEmbedder, texts: Sequence[str], role: Role, memory: Memory | None
) -> dict[str, Any]:
    """Returns the encoding of each text. The model encodes only those that the memory does not have."""
    encode = encoder.encode_documents if role == "document" else encoder.encode_queries
    if memory is None:
        return dict(zip(texts, encode(texts), strict=True))
    sparse, spec = isinstance(encoder, SparseEmbedder), encoder.spec
    kind = "sparse" if sparse else "embedding"
    made_as = f"{role} in bfloat16" if isinstance(encoder, Embedder) and encoder.half and role == "document" else role
    made = recall(
        memory,
        kind,
        [memory_key(kind, spec.fingerprint, spec.max_tokens, made_as, text) for text in texts],
        lambda places: list(encode([texts[place] for place in places])),
        SparseVector.to_bytes if sparse else lambda vector: vector.astype("float32").tobytes(),
        SparseVector.from_bytes if sparse else lambda data: np.frombuffer(data, np.float32),
    )
    return dict(zip(texts, made, strict=True))


# -- search


@span("retrieve")
def search(run: Run, states: Sequence[ClaimState]) -> None:
    """Fill in the hits of claims that have a query, or their error; with a trace, each stage's ranking too."""
    asked = [(state, state.query) for state in states if state.query is not None]
    if not asked:
        return
    search = search_for(run, [query for _, query in asked])
    found = []
    for (state, query), ranking in zip(asked, answer(run.store, search, rank=partial(_rank, run)), strict=True):
        if isinstance(ranking, CcheckError):
            state.error = ranking
            continue
        state.hits, state.fused_by = ranking.hits, ranking.fused_by
        if run.trace:
            state.stages = _traced(run, ranking)
        if state.hits:
            found.append((state, query))
    try:
        # Whole documents become the parts that matched, where the store knows parts of documents.
        narrowed = run.store.narrowed([query for _, query in found], [state.hits for state, _ in found])
        for (state, _), hits in zip(found, narrowed, strict=True):
            state.hits = hits
    except CcheckError as error:
        for state, _ in found:
            state.error = error


def search_for(run: Run, queries: Sequence[Query]) -> Search:
    """What the store is asked for these queries."""
    details = run.reads_details or run.trace
    return Search(queries, run.retrievers, run.recipe.fusion, run.window, run.filters, details, run.trace)


def _traced(run: Run, ranking: Ranking) -> dict[str, tuple[str, ...]]:
    """The documents that each retriever found, and the fusion of several, best first."""
    stages = {name: [key for key, _ in ranked] for name, ranked in ranking.rankings.items()}
    if len(stages) > 1:
        stages[run.recipe.fusion.method] = [
            hit.document.id if hit.unit is None else unit_key(hit.document.id, hit.unit.number) for hit in ranking.hits
        ]
    of = str if searched_units(run.retrievers) is None else document_of
    return {name: tuple(dict.fromkeys(map(of, keys))) for name, keys in stages.items()}


def _rank(run: Run, search: Search) -> list[Ranks | CcheckError]:
    """Returns the rankings of each query. The store is asked for those that the memory does not have."""
    if run.memory is None or run.plan.info.state is None:
        return run.store.rank(search)
    by_name = {name: _recalled(run, search, name, stage) for name, stage in search.retrievers.items()}
    rankings: list[Ranks | CcheckError] = []
    for every in zip(*by_name.values(), strict=True):
        found = all_or_error(every)
        rankings.append(found if isinstance(found, CcheckError) else Ranks(dict(zip(by_name, found, strict=True))))
    return rankings


def _recalled(run: Run, search: Search, name: str, stage: Retriever) -> list[Ranked | CcheckError]:
    """The ranking of each query by one retriever."""
    settings = stage.model_dump(mode="json", exclude={"weight", "required", "query", "model"})
    place = [run.plan.info.state, settings]
    keys = [
        memory_key("ranking", [*place, [*map(str, (*search.filters, *query.filters))]], _content(query, name))
        for query in search.queries
    ]

    def compute(places: list[int]) -> list[Ranked | CcheckError]:
        queries = [search.queries[place] for place in places]
        asked = replace(search, queries=queries, retrievers={name: stage}, k=0, whole=True)
        return [one if isinstance(one, CcheckError) else one.rankings[name] for one in run.store.rank(asked)]

    return recall(run.memory, "ranking", keys, compute, orjson.dumps, lambda data: list(map(tuple, orjson.loads(data))))


def _content(query: Query, name: str) -> bytes:
    """Returns the query of one retriever as bytes."""
    own = query.own.get(name)
    if isinstance(own, SparseVector):
        return own.ids.tobytes() + b":" + own.weights.tobytes()
    if own is not None and not isinstance(own, str):
        return own.tobytes()
    return query.words(name).encode("utf-8", "surrogatepass")


# -- what was found


def estimate_relevance(run: Run, states: Sequence[ClaimState]) -> None:
    """Fill in the probability that something that was found bears on the claim, unless searches find too little."""
    if not run.estimates or run.plan.degraded:
        return
    fingerprint, gaps = run.plan.fingerprint, not run.plan.info.made_here
    for state in going(states):
        if (language := foreign_language(state.text)) is not None:
            # The estimate compares words and cosines that mean nothing in this language.
            state.warnings += retrieval_is_weak(language, run.plan.retrievers, fingerprint)
            continue
        state.relevance = round(relevance(state.text, state.hits, run.plan.retrievers, fingerprint, gaps), 4)


@span("rerank")
def rerank(run: Run, states: Sequence[ClaimState]) -> None:
    """Put the hits into the order of the rerankers, one after the other, and keep the first `run.k`.

    A reranker that fails leaves the ranking as it was and a warning. With `run.strict` it is the claim's error, as
    always where its server refuses the key.
    """
    before = run.recipe.fusion.method if len(run.plan.retrievers) > 1 else next(iter(run.plan.retrievers))
    weights = {name: retriever.weight for name, retriever in run.plan.retrievers.items()}
    for state in going(states):
        state.timings_ms["rerank"] = 0.0
    for name, (stage, reranker) in run.plan.rerankers.items():
        these = [state for state in going(states) if state.hits]
        started = time.perf_counter()
        requests = [(state.text, [hit.text for hit in state.hits[: stage.depth]]) for state in these]
        answers = score_many(reranker, requests)
        share = _milliseconds(time.perf_counter() - started, len(these))
        for state, scores in zip(these, answers, strict=True):
            state.timings_ms["rerank"] = round(state.timings_ms["rerank"] + share, 3)
            if not isinstance(scores, CcheckError):
                state.hits = reranked(state.hits, scores, stage, Place(name, before, weights), state.reranked_by)
                state.reranked_by = name
                state.use("rerank", scores.usage)
                if run.trace:
                    state.stages[name] = tuple(dict.fromkeys(hit.document.id for hit in state.hits))
            elif run.strict or isinstance(scores, WrongKey):
                state.error = scores
            else:
                state.warnings.append(f"reranking with {name} failed and was skipped: {scores}")
    for state in going(states):
        state.hits = state.hits[: run.k]
    if run.plan.rerankers:
        run.told(states, "reranked", lambda state: [{"documents": documents_told(state.hits)}])


@span("evidence")
def choose_evidence(run: Run, states: Sequence[ClaimState], documents: int | None) -> None:
    """Make the hits evidence, with sentences for the first `documents` of each claim; None: for all."""
    asked = going(states)
    started = time.perf_counter()
    chosen = choose_sentences(
        [(state.text, [hit.read for hit in state.hits[:documents]]) for state in asked],
        run.recipe.evidence.sentences,
        run.plan.match,
    )
    spent = _milliseconds(time.perf_counter() - started, len(asked))
    for state, some in zip(asked, chosen, strict=True):
        unread = [()] * (len(state.hits) - len(some))
        state.evidence = tuple(
            Evidence(hit, _in_document(hit, sentences))
            for hit, sentences in zip(state.hits, [*some, *unread], strict=True)
        )
        state.timings_ms["evidence"] = spent
    run.told(
        asked,
        "sentences",
        lambda state: [
            {"doc_id": piece.document.id, "sentences": [one.text for one in piece.sentences]}
            for piece in state.evidence
            if piece.sentences
        ],
    )


def documents_told(hits: Sequence[Hit]) -> list[dict[str, Any]]:
    """What is told of a ranking: each document's id, title and score, best first."""
    return [{"doc_id": one.document.id, "title": one.document.title, "score": one.score} for one in hits]


def tell_judged(run: Run, state: ClaimState) -> None:
    """Tell the stance of each document that was judged, but for those that were told while it was, then the verdict."""
    for place, piece in enumerate(state.evidence):
        if piece.stance is not None and place not in state.told:
            tell_stance(run, state, place, piece.stance)
    verdict = state.verdict
    run.told([state], "verdict", lambda _: [asdict(verdict)] if verdict is not None else [])


def tell_stance(run: Run, state: ClaimState, place: int, stance: Stance) -> None:
    """Tell what the document in this place says about the claim."""
    state.told.add(place)
    told = {"doc_id": state.evidence[place].document.id, **asdict(stance), "leans": stance.leans}
    run.told([state], "stance", lambda _: [told])


def _in_document(hit: Hit, sentences: Sequence[Sentence]) -> tuple[Sentence, ...]:
    """Sentences of what was read of a hit (`Hit.read`), at their places in the stored document.

    Those of a unit whose text stands nowhere in the document are left out.
    """
    unit = hit.unit
    if unit is not None:
        sentences = [
            one if one.field == "title" else replace(one, start=unit.start + one.start, end=unit.start + one.end)
            for one in sentences
            if one.field == "title" or unit.start < unit.end
        ]
    return tuple(one.on_pages_of(hit.document) for one in sentences)


# -- judging


def irrelevant(run: Run, state: ClaimState) -> bool:
    """Whether nothing that was found bears on the claim, so that nobody needs to judge it."""
    return not state.hits or (state.relevance is not None and state.relevance < run.least_relevance)


def why_not_judged(run: Run, state: ClaimState) -> str | None:
    """The reason why a judge would not be asked about a claim whose evidence is chosen; None if it would."""
    if state.error is not None:
        return str(state.error)
    if not state.evidence:
        return state.empty or "nothing was found for the claim"
    if (other := no_claim(state.wording)) is not None:
        return other.rationale
    if irrelevant(run, state):
        return (
            f"the probability that anything found bears on the claim is below {run.least_relevance:g} "
            "(least_relevance in the recipe's [verdict]; 0 always asks)"
        )
    return None


def cases(run: Run, states: Sequence[ClaimState]) -> list[Case]:
    """Returns the cases to judge: the claims, each with the pieces of its evidence that are read."""
    return [
        Case(
            state.claim,
            tuple(
                piece if piece.hit.unit is None else replace(piece, hit=replace(piece.hit, document=piece.hit.read))
                for piece in state.evidence[: run.recipe.verdict.documents]
            ),
            _far(run, state),
            partial(tell_stance, run, state),
        )
        for state in states
        if why_not_judged(run, state) is None
    ]


def _far(run: Run, state: ClaimState) -> frozenset[int]:
    """The places of the hits that need not be read, where it may be estimated what bears on the claim."""
    if state.relevance is None or not run.least_relevance:
        return frozenset()
    return far_hits(state.hits, run.plan.retrievers, run.plan.fingerprint)


def judged(run: Run, states: Sequence[ClaimState]) -> Iterator[ClaimState]:
    """The claims with the stances of the plan's method, and the verdicts that follow, each as soon as it is there."""
    method = run.plan.method
    assert method is not None
    asked = cases(run, states)
    answers = zip(all_judged(method, asked), asked, strict=False)
    for state in states:
        if state.error is None:
            state.timings_ms["verdict"] = 0.0
            if not state.hits and (language := foreign_language(state.text)) is not None:
                why = f"the claim seems to be in {language}: retrieval may not have been made for it"
                state.verdict = Verdict(None, error=f"nothing was found, and {why}")
            elif (other := no_claim(state.wording)) is not None:
                state.verdict = other
            elif irrelevant(run, state):
                state.verdict = nothing_bears(state.relevance or 0.0, len(state.evidence), state.empty)
            else:
                started = time.perf_counter()
                with span("verdict"):
                    one, case = next(answers)
                quotes = zip((piece.hit for piece in case.evidence), one.quotes, strict=False)
                one = replace(one, quotes=tuple(_in_document(hit, some) for hit, some in quotes))
                state.evidence = with_stances(state.text, state.evidence, one, run.recipe.evidence.sentences)
                state.verdict = conclude(state.evidence[: len(case.evidence)], method.name)
                state.use("verdict", one.usage)
                waited = time.perf_counter() - started
                state.timings_ms["verdict"] = _milliseconds(waited if one.seconds is None else one.seconds)
        yield state


@span("verdict")
def judge_with(judge: Judge, state: ClaimState) -> ClaimState:
    """The claim with what a user's own judge says; whatever it raises is that verdict's error, never a label."""
    if state.error is not None:
        return state
    started, name = time.perf_counter(), name_of(judge)
    try:
        said: Any = judge(state.claim, state.evidence)
        stances, verdict = said if isinstance(said, Sequence) and len(said) == 2 else ((), None)
        if not isinstance(verdict, Verdict) or not all(isinstance(one, Stance) for one in stances):
            wanted = "a Stance for each piece of evidence, in a list, and a Verdict"
            raise InvalidData(f"the judge {name} returned {said!r:.80}. It must return {wanted}")
        if len(stances) != len(state.evidence):
            raise InvalidData(f"the judge {name} gave {len(stances)} stances for {len(state.evidence)} documents")
        state.evidence = tuple(
            replace(piece, stance=_fit(name, stance)) for piece, stance in zip(state.evidence, stances, strict=True)
        )
        failed = sum(stance.label is None for stance in stances)
        method = name if verdict.method == "none" else verdict.method
        state.verdict = replace(_fit(name, verdict), method=method, judged=len(stances) - failed, failed=failed)
    except Exception as error:  # noqa: BLE001
        message = str(error) if isinstance(error, CcheckError) else f"{type(error).__name__}: {error}"
        state.evidence = tuple(replace(piece, stance=Stance(None, error=message)) for piece in state.evidence)
        state.verdict = Verdict(None, method=name, error=message, failed=len(state.evidence))
    state.timings_ms["verdict"] = _milliseconds(time.perf_counter() - started)
    return state


def _fit(judge: str, said: _Said) -> _Said:
    """What a judge said, if its label and its confidence are possible; else raises InvalidData."""
    labels: tuple[str, ...] = get_args(Label)
    sure: object = said.confidence
    if said.label not in (None, *labels):
        raise InvalidData(f"the judge {judge} gave the label {said.label!r}, not one of {', '.join(labels)}")
    if sure is not None and not (isinstance(sure, Real) and 0 <= float(sure) <= 1):
        raise InvalidData(f"the judge {judge} gave the confidence {sure!r}, not a number between 0 and 1")
    return replace(said, confidence=None if sure is None else float(sure))


def _milliseconds(seconds: float, claims: int = 1) -> float:
    """A claim's share of the time that a batch took."""
    return round(seconds * 1000 / max(1, claims), 3)
