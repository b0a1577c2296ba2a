"""The steps of a pipeline, each over some claims at a time: search, rerank, choose sentences, judge."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ..analysis import clean
from ..errors import CcheckError, InvalidData
from ..fusion import fuse, ranking_of
from ..memory import Memory, memory_key, recall
from ..recipe import Recipe
from ..rerank import AnyReranker, HitReranker
from ..rerank.apply import rerank_many
from ..search import Filter, Store
from ..stages import LearnedStage, ListwiseStage, RerankerStage, Retriever
from ..types import Claim, Evidence, Query, Ranking, Result, SparseVector, Stance, Vector, Verdict, add_usage
from ..verdict import Case, Judge, all_judged, choose_sentences_many, conclude, with_stances
from .plan import Plan, scores_texts
from .queries import questions, rewritten

MAX_CLAIM_CHARS = 100_000
Ranked = Sequence[tuple[str, float]]


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked of every claim: how many documents, which, and whether `Result.stages` is to be filled.

    A retriever hands on at least `k` documents; with a `trace` it keeps to its own depth, since what is measured is the
    recipe as it is written.
    """

    k: int
    filters: Sequence[Filter] = ()
    details: bool = True
    trace: bool = False

    def retrievers(self, plan: Plan) -> dict[str, Retriever]:
        return {
            name: stage if self.trace or stage.depth >= self.k else stage.model_copy(update={"depth": self.k})
            for name, stage in plan.retrievers.items()
        }

    def window(self, plan: Plan) -> int:
        """How many documents the rerankers and the caller look at."""
        return max([self.k, *(stage.depth for stage, _ in plan.rerankers.values())])


def retrieved(
    plan: Plan, recipe: Recipe, store: Store, claims: Sequence[Claim], asked: Asked, memory: Memory | None
) -> tuple[list[Result], dict[str, Vector]]:
    """Each claim with what was found as its evidence, without sentences, or with its error.

    And the embeddings of the claims by their text, where there is a model.
    """
    problems = [_problem(claim) for claim in claims]
    good = [claim for claim, problem in zip(claims, problems, strict=True) if problem is None]
    started = time.perf_counter()
    texts = [clean(claim.text) for claim in good]
    texts_made = rewritten(plan, recipe, texts)
    begun = time.perf_counter()
    found = questions(plan, recipe, texts, texts_made, memory)
    embedded = time.perf_counter()
    answers = iter(_searched(plan, recipe, store, found.queries, asked, memory))
    timings = {
        "embed": _milliseconds(embedded - begun, len(good)),
        "retrieve": _milliseconds(time.perf_counter() - embedded, len(good)),
    }
    if plan.rewriter is not None:
        timings = {"rewrite": _milliseconds(begun - started, len(good)), **timings}
    made = iter(zip(found.usages, found.warnings, found.queries, strict=True))
    results: list[Result] = []
    for claim, problem in zip(claims, problems, strict=True):
        result = Result(claim, (), None, recipe.name, store.name, plan.warnings)
        if problem is not None:
            results.append(replace(result, error=problem))
            continue
        (usage, warnings, _), (answer, stages) = next(made), next(answers)
        usage_by_stage = add_usage({}, "rewrite", usage)
        result = replace(result, usage_by_stage=usage_by_stage, warnings=(*plan.warnings, *warnings))
        if isinstance(answer, CcheckError):
            results.append(replace(result, error=answer))
        else:
            evidence = tuple(Evidence(hit) for hit in answer.hits)
            results.append(replace(result, evidence=evidence, timings_ms=timings, stages=stages))
    by_text = {
        claim.text: found.vectors[text] for claim, text in zip(good, texts, strict=True) if text in found.vectors
    }
    return results, by_text


def not_asked(plan: Plan, recipe: Recipe, store: Store, claims: Sequence[Claim], error: CcheckError) -> list[Result]:
    """Results of claims that could not be asked about."""
    return [
        Result(claim, (), None, recipe.name, store.name, plan.warnings, error=_problem(claim) or error)
        for claim in claims
    ]


def with_reason(results: Sequence[Result], reason: Callable[[], str]) -> list[Result]:
    """With a warning where nothing was found."""
    return [
        result
        if result.evidence or result.error is not None
        else replace(result, warnings=(*result.warnings, reason()))
        for result in results
    ]


def filtered_out(store: Store, filters: Sequence[Filter]) -> str:
    """Why filters that are right left nothing for a claim, with counts."""
    total, passing = store.count(), store.count(filters)
    said = " and ".join(map(str, filters))
    if passing:
        return f"{passing:,} of {total:,} documents pass {said}, and none of them bears on this claim"
    if len(filters) == 1:
        return f"none of {total:,} documents passes {said}"
    each = ", ".join(f"{one} leaves {store.count([one]):,}" for one in filters)
    return f"none of {total:,} documents passes {said}: {each}"


Answer = tuple[Ranking | CcheckError, dict[str, tuple[str, ...]]]


def _searched(
    plan: Plan,
    recipe: Recipe,
    store: Store,
    queries: Sequence[Query | CcheckError],
    asked: Asked,
    memory: Memory | None,
) -> list[Answer]:
    """The ranking of each query, and what `Result.stages` has of it."""
    going = [query for query in queries if isinstance(query, Query)]
    found: Iterator[Answer] = iter(())
    if going and (asked.trace or memory is not None):
        found = _joined(plan, recipe, store, going, asked, memory)
    elif going:
        retrievers, window = asked.retrievers(plan), asked.window(plan)
        # Trees read the scores and ranks of each retriever.
        details = asked.details or any(isinstance(stage, LearnedStage) for stage, _ in plan.rerankers.values())
        rankings = store.search(going, retrievers, recipe.fusion, k=window, filters=asked.filters, details=details)
        found = ((ranking, {}) for ranking in rankings)
    return [(query, {}) if isinstance(query, CcheckError) else next(found) for query in queries]


def _joined(
    plan: Plan, recipe: Recipe, store: Store, queries: Sequence[Query], asked: Asked, memory: Memory | None
) -> Iterator[Answer]:
    """As `Store.search` does it, with what each retriever handed on kept apart."""
    retrievers = asked.retrievers(plan)
    rankings = _rankings(plan, store, queries, retrievers, asked.filters, memory)
    weights = {name: stage.weight for name, stage in retrievers.items()}
    fusion = recipe.fusion if len(retrievers) > 1 else None
    tops: list[list[tuple[str, float]]] = []
    for one in rankings:
        if isinstance(one, CcheckError):
            tops.append([])
        else:
            joined = fuse(one, weights, fusion) if fusion is not None else list(next(iter(one.values())))
            tops.append(joined[: asked.window(plan)])
    documents = store.get(list({id_: None for top in tops for id_, _ in top}))
    for one, top in zip(rankings, tops, strict=True):
        if isinstance(one, CcheckError):
            yield one, {}
            continue
        stages = {name: tuple(id_ for id_, _ in ranking) for name, ranking in one.items()} if asked.trace else {}
        if fusion is not None and asked.trace:
            stages[fusion.method] = tuple(id_ for id_, _ in top)
        yield ranking_of(top, one, documents, fusion), stages


def _rankings(
    plan: Plan,
    store: Store,
    queries: Sequence[Query],
    retrievers: Mapping[str, Retriever],
    filters: Sequence[Filter],
    memory: Memory | None,
) -> list[Mapping[str, Ranked] | CcheckError]:
    """What each retriever hands on for each query, of what the memory does not have."""
    if memory is None or plan.state is None:
        return list(store.rankings(queries, retrievers, filters=filters))
    import orjson

    by_name: dict[str, list[Ranked | CcheckError]] = {}
    for name, stage in retrievers.items():
        settings = stage.model_dump(mode="json", exclude={"weight", "required", "query", "model", "adapter"})
        state = [plan.state, settings, [str(one) for one in filters]]
        keys = [memory_key("ranking", state, _content(query, name)) for query in queries]

        def compute(places: list[int], name: str = name, stage: Retriever = stage) -> list[Ranked | CcheckError]:
            found = store.rankings([queries[place] for place in places], {name: stage}, filters=filters)
            return [one if isinstance(one, CcheckError) else one[name] for one in found]

        def dump(one: Ranked | CcheckError) -> bytes | None:
            return None if isinstance(one, CcheckError) else orjson.dumps([list(pair) for pair in one])

        def load(data: bytes) -> Ranked | CcheckError:
            return [(id_, score) for id_, score in orjson.loads(data)]

        by_name[name] = recall(memory, "ranking", keys, compute, dump, load)
    rankings: list[Mapping[str, Ranked] | CcheckError] = []
    for place in range(len(queries)):
        every = {name: found[place] for name, found in by_name.items()}
        error = next((one for one in every.values() if isinstance(one, CcheckError)), None)
        rankings.append(error or {name: one for name, one in every.items() if not isinstance(one, CcheckError)})
    return rankings


def _content(query: Query, name: str) -> bytes:
    """What a retriever is asked, as bytes."""
    own = query.own.get(name)
    if isinstance(own, SparseVector):
        return own.ids.tobytes() + b":" + own.weights.tobytes()
    if own is not None and not isinstance(own, str):
        return own.tobytes()
    return query.words(name).encode("utf-8", "surrogatepass")


def reranked(plan: Plan, recipe: Recipe, results: Sequence[Result], asked: Asked, *, strict: bool) -> list[Result]:
    """The results with their first `asked.k` documents in the order of the last reranker.

    One that fails leaves the ranking before it and a warning; with `strict` it is the claim's error.
    """
    done = list(results)
    before = recipe.fusion.method if len(plan.retrievers) > 1 else plan.found_by
    spent = [0.0] * len(done)
    previous = [""] * len(done)
    for name, (stage, reranker) in plan.rerankers.items():
        places = [place for place, result in enumerate(done) if result.error is None and result.evidence]
        started = time.perf_counter()
        rankings = [Ranking(tuple(piece.hit for piece in done[place].evidence)) for place in places]
        texts = [clean(done[place].claim.text) for place in places]
        answers = rerank_many(texts, rankings, reranker, stage, name, before, [previous[place] for place in places])
        share = _milliseconds(time.perf_counter() - started, len(places))
        for place, answer in zip(places, answers, strict=True):
            spent[place] += share
            result = done[place]
            if isinstance(answer, CcheckError):
                if strict:
                    done[place] = replace(result, evidence=(), error=answer)
                else:
                    warning = f"not reranked by {name}, which failed: {answer}"
                    done[place] = replace(result, warnings=(*result.warnings, warning))
                continue
            ranking, used = answer
            previous[place] = name
            stages = result.stages
            if asked.trace:
                stages = {**stages, name: tuple(hit.document.id for hit in ranking.hits)}
            evidence = tuple(Evidence(hit) for hit in ranking.hits)
            usage = add_usage(result.usage_by_stage, "rerank", used)
            done[place] = replace(result, evidence=evidence, usage_by_stage=usage, stages=stages)
    return [
        result
        if result.error is not None
        else replace(
            result, evidence=result.evidence[: asked.k], timings_ms={**result.timings_ms, "rerank": round(ms, 3)}
        )
        for result, ms in zip(done, spent, strict=True)
    ]


def with_sentences(
    plan: Plan, recipe: Recipe, results: Sequence[Result], vectors: Mapping[str, Vector], documents: int | None
) -> list[Result]:
    """The results with sentences for their first `documents`; None: for all."""
    found = [result for result in results if result.error is None]
    started = time.perf_counter()
    stage = recipe.evidence
    matrix = None
    if vectors and found:
        import numpy as np

        matrix = np.stack([vectors[result.claim.text] for result in found])
    chosen = iter(
        choose_sentences_many(
            [(result.claim.text, [piece.document for piece in result.evidence[:documents]]) for result in found],
            stage.sentences,
            plan.sentences_by,
            embed=plan.embedder.encode_documents if plan.embedder is not None else None,
            rerank=_sentence_scorer(plan.rerankers),
            claim_vectors=matrix,
        )
    )
    spent = _milliseconds(time.perf_counter() - started, len(found))
    answers: list[Result] = []
    for result in results:
        if result.error is None:
            sentences = list(next(chosen))
            evidence = tuple(
                replace(piece, sentences=some) for piece, some in zip(result.evidence, sentences, strict=False)
            )
            result = replace(
                result,
                evidence=(*evidence, *result.evidence[len(evidence) :]),
                timings_ms={**result.timings_ms, "evidence": spent},
            )
        answers.append(result)
    return answers


def cases(recipe: Recipe, results: Sequence[Result]) -> list[Case]:
    """What there is to judge."""
    return [
        Case(result.claim, result.evidence[: recipe.verdict.documents])
        for result in results
        if result.error is None and result.evidence
    ]


def judged(plan: Plan, recipe: Recipe, results: Sequence[Result]) -> Iterator[Result]:
    """With the stances of the plan's method, and the verdicts that follow."""
    method = plan.method
    answers = all_judged(method, cases(recipe, results)) if method is not None else iter(())
    for result in results:
        if result.error is not None:
            yield result
        elif method is None:
            unread = Verdict(None, error=plan.no_method)
            yield replace(result, verdict=unread, timings_ms={**result.timings_ms, "verdict": 0.0})
        elif not result.evidence:
            yield replace(result, verdict=conclude((), method.name))
        else:
            started = time.perf_counter()
            one = next(answers)
            evidence = with_stances(result.evidence, one, recipe.evidence.sentences)
            verdict, used = plan.conclude(result.claim, evidence[: recipe.verdict.documents])
            yield replace(
                result,
                evidence=evidence,
                verdict=verdict,
                usage_by_stage=add_usage(result.usage_by_stage, "verdict", one.usage + used),
                timings_ms={**result.timings_ms, "verdict": _milliseconds(time.perf_counter() - started)},
            )
    next(answers, None)  # where a method was interrupted it says so after its last answer


def judged_by_user(judge: Judge, result: Result) -> Result:
    """With what a user's own judge says; whatever it raises is that verdict's error, never a label."""
    if result.error is not None:
        return result
    started = time.perf_counter()
    try:
        stances, verdict = judge(result.claim, result.evidence)
        evidence = tuple(replace(piece, stance=stance) for piece, stance in zip(result.evidence, stances, strict=True))
        failed = sum(stance.label is None for stance in stances)
        verdict = replace(verdict, judged=len(stances) - failed, failed=failed)
    except Exception as error:  # noqa: BLE001
        message = f"{type(error).__name__}: {error}"
        evidence = tuple(replace(piece, stance=Stance(None, error=message)) for piece in result.evidence)
        verdict = Verdict(None, method="judge", error=message, failed=len(evidence))
    spent = _milliseconds(time.perf_counter() - started)
    return replace(result, evidence=evidence, verdict=verdict, timings_ms={**result.timings_ms, "verdict": spent})


def _sentence_scorer(
    rerankers: Mapping[str, tuple[RerankerStage, AnyReranker]],
) -> Callable[[str, Sequence[str]], Sequence[float]] | None:
    """The last reranker that scores any text, for sentences."""
    scoring = [
        reranker
        for stage, reranker in rerankers.values()
        if scores_texts(stage) and not isinstance(reranker, HitReranker)
    ]
    return (lambda claim, texts: scoring[-1](claim, texts).normalized) if scoring else None


def without_questions(plan: Plan) -> Plan:
    """The plan without what would ask a language model before anything is judged."""
    scoring = {name: pair for name, pair in plan.rerankers.items() if not isinstance(pair[0], ListwiseStage)}
    return replace(plan, rerankers=scoring, rewriter=None)


def _problem(claim: Claim) -> CcheckError | None:
    """Why a claim can't be checked."""
    if not claim.text.strip():
        return InvalidData("the claim is empty")
    if len(claim.text) > MAX_CLAIM_CHARS:
        return InvalidData(
            f"the claim has {len(claim.text):,} characters; at most {MAX_CLAIM_CHARS:,} are searched for"
        )
    return None


def _milliseconds(seconds: float, claims: int = 1) -> float:
    """A claim's share of the time that a batch took."""
    return round(seconds * 1000 / max(1, claims), 3)
