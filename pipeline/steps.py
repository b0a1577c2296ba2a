"""The steps of a pipeline. Each fills in the states of some claims: retrieve, rerank, choose sentences, judge."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ..core.errors import CcheckError
from ..core.language import foreign_language
from ..core.stages import ListwiseStage
from ..core.types import Evidence, Hit, Ranking, Sentence, Stance, Verdict
from ..rerank.apply import Place, rerank_many
from ..verdict import Case, Judge, all_judged, choose_sentences, nothing_bears, with_stances
from .plan import Plan
from .queries import encode_claims, rewrite_claims
from .relevance import relevance, retrieval_is_weak
from .retrieval import search
from .run import ClaimState, Run, going


def retrieve(run: Run, states: Sequence[ClaimState]) -> None:
    """Fill in queries and hits."""
    asked = going(states)
    started = time.perf_counter()
    texts = rewrite_claims(run, asked)
    pairs = [(state, some) for state, some in zip(asked, texts, strict=True) if state.error is None]
    rewritten = time.perf_counter()
    encode_claims(run, [state for state, _ in pairs], [some for _, some in pairs])
    encoded = time.perf_counter()
    search(run, [state for state, _ in pairs])
    timings = {
        "rewrite": _milliseconds(rewritten - started, len(asked)),
        "embed": _milliseconds(encoded - rewritten, len(asked)),
        "retrieve": _milliseconds(time.perf_counter() - encoded, len(asked)),
    }
    if run.plan.rewriter is None:
        del timings["rewrite"]
    for state in going(asked):
        state.timings_ms |= timings


def estimate_relevance(run: Run, states: Sequence[ClaimState]) -> None:
    """Fill in the probability that something that was found bears on the claim, unless searches find too little."""
    if not run.estimates or run.plan.degraded:
        return
    embedder = run.plan.embedder
    fingerprint = embedder.spec.fingerprint if embedder is not None else None
    for state in going(states):
        if (language := foreign_language(state.text)) is not None:
            # The estimate compares words and cosines that mean nothing in this language.
            state.warnings += retrieval_is_weak(language, run.plan.retrievers, fingerprint)
            continue
        state.relevance = round(relevance(state.text, state.hits, run.plan.retrievers, fingerprint), 4)


def irrelevant(run: Run, state: ClaimState) -> bool:
    """Whether nothing that was found bears on the claim, so that nobody needs to judge it."""
    return not state.hits or (state.relevance is not None and state.relevance < run.least_relevance)


def why_not_judged(run: Run, state: ClaimState) -> str | None:
    """The reason why a judge would not be asked about a claim whose evidence is chosen; None if it would."""
    if state.error is not None:
        return str(state.error)
    if not state.evidence:
        return state.empty or "nothing was found for the claim"
    if irrelevant(run, state):
        return (
            f"the probability that anything found bears on the claim is below {run.least_relevance:g} "
            "(least_relevance in the recipe's [verdict]; 0 always asks)"
        )
    return None


def rerank(run: Run, states: Sequence[ClaimState]) -> None:
    """Put the hits into the order of the rerankers, one after the other, and keep the first `run.k`.

    A reranker that fails leaves the ranking as it was and a warning. With `run.strict` it is the claim's error.
    """
    asked = going(states)
    before = run.recipe.fusion.method if len(run.plan.retrievers) > 1 else run.plan.found_by
    spent = {id(state): 0.0 for state in asked}
    for name, (stage, reranker) in run.plan.rerankers.items():
        these = [state for state in going(asked) if state.hits]
        started = time.perf_counter()
        answers = rerank_many(
            [state.text for state in these],
            [Ranking(state.hits) for state in these],
            [state.reranked_by for state in these],
            reranker,
            stage,
            Place(name, before, {name: retriever.weight for name, retriever in run.plan.retrievers.items()}),
        )
        share = _milliseconds(time.perf_counter() - started, len(these))
        for state, answer in zip(these, answers, strict=True):
            spent[id(state)] += share
            if not isinstance(answer, CcheckError):
                ranking, used = answer
                state.hits, state.reranked_by = ranking.hits, name
                state.use("rerank", used)
                if run.trace:
                    state.stages[name] = tuple(dict.fromkeys(hit.document.id for hit in ranking.hits))
            elif run.strict:
                state.error = answer
            else:
                state.warnings.append(f"reranking with {name} failed and was skipped: {answer}")
    for state in going(asked):
        state.hits = state.hits[: run.k]
        state.timings_ms["rerank"] = round(spent[id(state)], 3)


def choose_evidence(run: Run, states: Sequence[ClaimState], documents: int | None) -> None:
    """Make the hits evidence, with sentences for the first `documents` of each claim; None: for all."""
    asked = going(states)
    started = time.perf_counter()
    vectors = [state.query.vector for state in asked if state.query is not None and state.query.vector is not None]
    matrix = None
    if vectors and len(vectors) == len(asked):
        import numpy as np

        matrix = np.stack(vectors)
    chosen = choose_sentences(
        [(state.text, [hit.read for hit in state.hits[:documents]]) for state in asked],
        run.recipe.evidence.sentences,
        run.plan.sentences_by,
        embed=run.plan.embedder.encode_documents if run.plan.embedder is not None else None,
        rerank=run.plan.sentence_scorer,
        match=run.plan.match,
        claim_vectors=matrix,
    )
    spent = _milliseconds(time.perf_counter() - started, len(asked))
    for state, some in zip(asked, chosen, strict=True):
        unread = [()] * (len(state.hits) - len(some))
        state.evidence = tuple(
            Evidence(hit, _in_document(hit, sentences))
            for hit, sentences in zip(state.hits, [*some, *unread], strict=True)
        )
        state.timings_ms["evidence"] = spent


def _in_document(hit: Hit, sentences: Sequence[Sentence]) -> tuple[Sentence, ...]:
    """Sentences of what was read of a hit (`Hit.read`), at their places in the stored document.

    Those of a unit whose text stands nowhere in the document are left out.
    """
    unit = hit.unit
    if unit is None:
        return tuple(sentences)
    return tuple(
        one if one.field == "title" else replace(one, start=unit.start + one.start, end=unit.start + one.end)
        for one in sentences
        if one.field == "title" or unit.start < unit.end
    )


def cases(run: Run, states: Sequence[ClaimState]) -> list[Case]:
    """Returns the cases to judge: the claims, each with the pieces of its evidence that are read."""
    return [
        Case(
            state.claim,
            tuple(
                piece if piece.hit.unit is None else replace(piece, hit=replace(piece.hit, document=piece.hit.read))
                for piece in state.evidence[: run.recipe.verdict.documents]
            ),
        )
        for state in going(states)
        if state.evidence and not irrelevant(run, state)
    ]


def judged(run: Run, states: Sequence[ClaimState]) -> Iterator[ClaimState]:
    """The claims with the stances of the plan's method, and the verdicts that follow, each as soon as it is there."""
    method = run.plan.method
    asked = cases(run, states)
    answers = zip(all_judged(method, asked), asked, strict=False) if method is not None else iter(())
    for state in states:
        if state.error is None and not state.hits and (language := foreign_language(state.text)) is not None:
            why = f"nothing was found, and the claim seems to be in {language}: retrieval may not have been made for it"
            state.verdict = Verdict(None, error=why)
            state.timings_ms["verdict"] = 0.0
        elif state.error is None and irrelevant(run, state):
            state.verdict = nothing_bears(state.relevance or 0.0, len(state.evidence), state.empty)
            state.timings_ms["verdict"] = 0.0
        elif state.error is None and method is None:
            state.verdict = Verdict(None, error=run.plan.no_method)
            state.timings_ms["verdict"] = 0.0
        elif state.error is None:
            started = time.perf_counter()
            one, case = next(answers)
            quotes = zip((piece.hit for piece in case.evidence), one.quotes, strict=False)
            one = replace(one, quotes=tuple(_in_document(hit, some) for hit, some in quotes))
            state.evidence = with_stances(state.evidence, one, run.recipe.evidence.sentences)
            read = zip(case.evidence, state.evidence, strict=False)
            concluding = -time.perf_counter()
            verdict, used = run.plan.conclude(
                state.claim, [replace(piece, stance=it.stance, sentences=it.sentences) for piece, it in read]
            )
            concluding += time.perf_counter()
            state.verdict = verdict
            state.use("verdict", one.usage + used)
            waited = time.perf_counter() - started
            state.timings_ms["verdict"] = _milliseconds(waited if one.seconds is None else concluding + one.seconds)
        yield state
    next(answers, None)  # where a method was interrupted it says so after its last answer


def judge_with(judge: Judge, state: ClaimState) -> ClaimState:
    """The claim with what a user's own judge says; whatever it raises is that verdict's error, never a label."""
    if state.error is not None:
        return state
    started = time.perf_counter()
    try:
        stances, verdict = judge(state.claim, state.evidence)
        state.evidence = tuple(
            replace(piece, stance=stance) for piece, stance in zip(state.evidence, stances, strict=True)
        )
        failed = sum(stance.label is None for stance in stances)
        state.verdict = replace(verdict, judged=len(stances) - failed, failed=failed)
    except Exception as error:  # noqa: BLE001
        message = f"{type(error).__name__}: {error}"
        state.evidence = tuple(replace(piece, stance=Stance(None, error=message)) for piece in state.evidence)
        state.verdict = Verdict(None, method="judge", error=message, failed=len(state.evidence))
    state.timings_ms["verdict"] = _milliseconds(time.perf_counter() - started)
    return state


def without_questions(plan: Plan) -> Plan:
    """The plan without what would ask a language model before anything is judged."""
    scoring = {name: pair for name, pair in plan.rerankers.items() if not isinstance(pair[0], ListwiseStage)}
    return replace(plan, rerankers=scoring, rewriter=None)


def _milliseconds(seconds: float, claims: int = 1) -> float:
    """A claim's share of the time that a batch took."""
    return round(seconds * 1000 / max(1, claims), 3)
