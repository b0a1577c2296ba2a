"""Requests: retrievers and filters in Elasticsearch's terms."""

from __future__ import annotations

import ipaddress
import math
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, get_args

from ...core.analysis import clip, query_terms
from ...core.errors import InvalidData, NotFound, UsageError
from ...core.layout import analysis_key
from ...core.stages import Bm25, Dense, Retriever, Sparse
from ...core.types import Filter, Query, SparseVector, Vector
from ..filters import DOCUMENT_ID, NEGATED, PUBLISHED, as_number, dois_of, number_of, refuse_ordered_ids
from ..store import Search, not_held
from . import reading, units
from .fields import INTEGERS, NUMBERS, SEMANTIC, TEXT_TYPES, Index
from .mappings import SPARSE, TERMS

Body = dict[str, Any]
Fusing: TypeAlias = Literal["rrf", "weighted rrf", "linear"]
"""How a server can fuse: weights for `rrf` came with 9.2."""
FUSINGS: frozenset[str] = frozenset(get_args(Fusing))

TIE = 0.3
"""The weight of each field except the best one, when several are searched."""
MAX_CANDIDATES = 10_000
"""Elasticsearch's own limit."""
CLAUSES = 1024
"""Clauses of a query that every server accepts."""
EXPANSIONS = 50
"""The most similar words that a fuzzy word stands for: Elasticsearch's default."""
FUZZY_CLAUSES = 8_192
"""What the fuzzy words of a claim may become. A server with little memory for each processor accepts fewer clauses:
then they may become `CLAUSES`."""
_ORDER = [{"_score": "desc"}, {"_seq_no": "asc"}]
"""Equal scores: the document that was written first. Otherwise the server's threads race for their order."""
_RANGES = {"<": "lt", "<=": "lte", ">": "gt", ">=": "gte"}
_DAYS = re.compile(r"\d{4}(-\d\d){0,2}")
_ROUNDED = {len("2011"): "||/y", len("2011-03"): "||/M", len("2011-03-05"): "||/d"}
"""What rounds a date: down for its beginning, up for its end."""
_INITIAL_RANKS = re.compile(r"computed for initial ranks \[([\d, ]+)\]")
_SCALED = re.compile(r"computed for normalized scores \[([^\]]*)\]")
_NOTHING: Body = {"match_none": {}}


def check(index: Index, retriever: Retriever) -> None:
    """Raises NotFound for what the index does not hold, UsageError for a field that no index of ccheck has."""
    lacks = retriever.searches.missing(index.layout)
    if lacks is not None and index.made_here:
        raise not_held(index.name, lacks)
    match retriever:
        case Bm25(units=None, analysis=None):
            _boosts(index, retriever)
        case Dense(units=None):
            _vectors(index, retriever)
        case _ if lacks is not None:
            raise NotFound(
                f"{index.name} has no {lacks}, because ccheck did not make it. ccheck can search its text fields with "
                "BM25 and its dense vectors"
            )


def retriever_body(
    index: Index, name: str, query: Query, retriever: Retriever, filters: Sequence[Body], clauses: int = FUZZY_CLAUSES
) -> Body | None:
    """The retriever of that name as the search API takes it; None if the query gives it nothing to search for.

    `clauses`: what its fuzzy words may become. Raises what `check` does, and InvalidData for a vector of other
    dimensions.
    """
    words: Body | None
    if isinstance(retriever, Dense) and index.fields[field := _vectors(index, retriever)].type == SEMANTIC:
        text = clip(query.words(name))
        words = {"semantic": {"field": field, "query": text}} if text.strip() else None
    elif isinstance(retriever, Dense):
        near = knn(index, query.embedding(name), retriever, field)
        return near and {"knn": near | _filter(filters)}
    elif isinstance(retriever, Sparse):
        weights = query.weights(name)
        words = None if weights is None else sparse(weights)
    else:
        words = bm25(index, query.words(name), retriever, clauses)
    order = {"sort": _ORDER} if index.made_here else {}
    return words and {"standard": {"query": words} | order | _filter(filters)}


def search_part(
    index: Index, name: str, query: Query, retriever: Retriever, filters: Sequence[Body], clauses: int = FUZZY_CLAUSES
) -> Body | None:
    """The body of a search that runs that retriever alone. See `retriever_body`."""
    if retriever.units is None:
        body = retriever_body(index, name, query, retriever, filters, clauses)
        return body and {"retriever": body}
    assert isinstance(retriever, Bm25 | Dense)
    inner = {"inner_hits": units.inner_hits(retriever.units, retriever.depth)}
    path = units.path_of(retriever.units)
    if isinstance(retriever, Dense):
        near = knn(index, query.embedding(name), retriever, f"{path}.vector")
        return near and {"knn": near | inner | _filter(filters), "sort": _ORDER}
    text = clip(query.words(name))
    if not query_terms(text):
        return None
    matched = {"path": path, "query": {"match": {f"{path}.content": text}}, "score_mode": "max"}
    return {"query": {"bool": {"must": [{"nested": matched | inner}]} | _filter(filters)}, "sort": _ORDER}


def bm25(index: Index, text: str, retriever: Bm25, clauses: int = FUZZY_CLAUSES) -> Body | None:
    if retriever.analysis is not None:
        boosts = {f"{TERMS}.{analysis_key(retriever.analysis)}": retriever.fields["content"]}
        found = query_terms(text, retriever.analysis)
        text = " ".join(found)
    else:
        boosts, text = _boosts(index, retriever), clip(text)
        # In an index of another's making a stopword may count.
        found = query_terms(text) if index.made_here else text.split()
    if not found or not boosts:
        return None
    match: Body = {"query": text}
    expansions = min(EXPANSIONS, clauses // (len(set(found)) * len(boosts)))
    if retriever.fuzziness and expansions > 1:
        match |= {"fuzziness": str(retriever.fuzziness).upper(), "max_expansions": expansions}
    matches = [
        _within(index, name, {"match": {name: match | ({} if boost == 1 else {"boost": boost})}})
        for name, boost in boosts.items()
    ]
    return matches[0] if len(matches) == 1 else {"dis_max": {"queries": matches, "tie_breaker": TIE}}


def _within(index: Index, name: str, query: Body) -> Body:
    """The query of a field in nested documents scores a document as the best of them; not every index has such ones."""
    within = index.fields[name].within if name in index.fields and not index.made_here else ""
    return (
        {"nested": {"path": within, "query": query, "score_mode": "max", "ignore_unmapped": True}} if within else query
    )


def knn(index: Index, vector: Vector | None, retriever: Dense, path: str) -> Body | None:
    if vector is None:
        return None
    dimensions = index.fields[path].dimensions
    if dimensions is not None and len(vector) != dimensions:
        raise InvalidData(
            f"the claim's embedding has {len(vector)} dimensions, the vectors of {index.name} have {dimensions}: "
            "search with the model that made them (CCHECK_EMBEDDING_MODEL)"
        )
    candidates = retriever.candidates or max(2 * retriever.depth, 100)
    return {
        "field": path,
        "query_vector": vector.tolist(),
        "k": retriever.depth,
        "num_candidates": min(max(candidates, retriever.depth), MAX_CANDIDATES),
    }


def sparse(vector: SparseVector) -> Body | None:
    """The dot product with all of the vector's weights, or with the greatest of more than every server takes."""
    weights = sorted(zip(vector.weights.tolist(), vector.ids.tolist(), strict=True), reverse=True)[:CLAUSES]
    if not weights:
        return None
    features = {str(token): weight for weight, token in weights}
    return {"sparse_vector": {"field": SPARSE, "query_vector": features, "prune": False}}


def _boosts(index: Index, retriever: Bm25) -> dict[str, float]:
    """The index's own fields that a claim is searched in, with their boosts."""
    boosts: dict[str, float] = {}
    for name, boost in retriever.fields.items():
        if name not in index.searched:
            known = ", ".join(sorted(index.searched))
            raise UsageError(f"{index.name} has no text field {name!r}. The fields are {known}")
        for actual in index.searched[name]:
            boosts[actual] = max(boost, boosts.get(actual, 0.0))
    if not boosts:
        raise NotFound(f"{index.name} has no text in {', '.join(retriever.fields)} that BM25 can search")
    return boosts


def _vectors(index: Index, retriever: Dense) -> str:
    """The field of vectors that a retriever searches."""
    found = index.vector if retriever.field is None else index.vectors.get(retriever.field)
    if found is not None:
        return found
    what = f"field of vectors {retriever.field!r}" if retriever.field else "vectors"
    known = f" (it has {', '.join(index.vectors)})" if index.vectors else ""
    raise NotFound(f"{index.name} has no {what}{known}: dense retrieval needs an indexed dense_vector field")


def fused(retrievers: Mapping[str, Body], search: Search) -> Body:
    """Fusion on the server, which needs a licence. Each retriever's score comes under its name."""
    named = [{kind: body | {"_name": name}} for name, one in retrievers.items() for kind, body in one.items()]
    weights = [retriever.weight for retriever in search.retrievers.values()]
    window = {"rank_window_size": max(retriever.depth for retriever in search.retrievers.values())}
    weighted = [{"retriever": one, "weight": weight} for one, weight in zip(named, weights, strict=True)]
    if search.fusion.method == "minmax":
        return {"linear": {"retrievers": [one | {"normalizer": "minmax"} for one in weighted]} | window}
    parts = named if set(weights) == {1} else weighted
    return {"rrf": {"retrievers": parts, "rank_constant": search.fusion.k} | window}


def initial_ranks(hit: Mapping[str, Any]) -> list[int] | None:
    """The rank that each retriever of an `rrf` gave a hit, 0 if it did not find it; None if the hit does not say.

    They are in the explanation (`RRFRankDoc.explain` in Elasticsearch's source), which filters can put one level down.
    """
    found = _explained(hit, _INITIAL_RANKS)
    return None if found is None else list(map(int, found))


def scaled(hit: Mapping[str, Any], names: Iterable[str]) -> bool | None:
    """Whether `linear` scaled the scores of a hit to 0..1; None if the hit does not say (`LinearRankDoc.explain`).

    Elasticsearch leaves the scores of a retriever as they are if they are all equal (`MinMaxScoreNormalizer`).
    """
    found, scores = _explained(hit, _SCALED), hit.get("matched_queries", {})
    if found is None:
        return None
    pairs = [(float(one), scores[name]) for name, one in zip(names, found, strict=True) if name in scores]
    return not any(math.isclose(one, score, rel_tol=1e-5) for one, score in pairs)


def _explained(hit: Mapping[str, Any], pattern: re.Pattern[str]) -> list[str] | None:
    """The list that the explanation of a hit, or a detail of it, has where the pattern says."""
    explained = hit.get("_explanation", {})
    for part in (explained, *explained.get("details", ())):
        if (found := pattern.search(part.get("description", ""))) is not None:
            return found[1].split(",")
    return None


def fusing(index: Index, search: Search) -> Fusing | None:
    """How the server can rank documents as fusion here does; None if it can't.

    It takes as many documents as its one window holds from each retriever; only a kNN search can return fewer. Its
    `linear` does not say ranks, and scales its own scores: those of kNN must be in proportion to ours.
    """
    stages = search.retrievers.values()
    window = max((stage.depth for stage in stages), default=0)
    if (
        len(stages) < 2
        or not 0 < search.k <= window
        # Elasticsearch trims the fused list to one window (`RRFRetrieverBuilder`): of two windows of 100 on SciFact, 73
        # of 173 documents are missing, with the ranks that their retrievers gave them.
        or search.whole
        or index.semantic
        or index.group
        or any(stage.units or (stage.depth != window and not isinstance(stage, Dense)) for stage in stages)
    ):
        return None
    if search.fusion.method == "rrf":
        return "rrf" if all(stage.weight == 1 for stage in stages) else "weighted rrf"
    found = [index.fields[_vectors(index, stage)].similarity for stage in stages if isinstance(stage, Dense)]
    return None if search.details or {*found} & {"l2_norm", "max_inner_product"} else "linear"


def score_reader(index: Index, retriever: Retriever) -> Callable[[float], float]:
    """From the server's scores to ours: for kNN the cosine, of unit vectors; for the others the same."""
    if not isinstance(retriever, Dense):
        return float
    if retriever.units is not None:
        return _cosine
    found = index.fields[_vectors(index, retriever)]
    if found.type == SEMANTIC:
        return float
    similarity = found.similarity
    if similarity == "l2_norm":
        return lambda score: 1.0 - (1.0 / score - 1.0) / 2.0
    if similarity == "max_inner_product":
        return lambda score: score - 1.0 if score >= 1 else 1.0 - 1.0 / score
    return _cosine


def _cosine(score: float) -> float:
    return 2.0 * score - 1.0


# -- filters


def filter_bodies(index: Index, filters: Sequence[Filter]) -> list[Body]:
    """Queries that a document must match. Raises UsageError for an order of ids; `refuse_unfit` knows what else."""
    refuse_ordered_ids(filters)
    return [_condition(index, filter_) for filter_ in filters]


def _filter(filters: Sequence[Body]) -> Body:
    return {"filter": list(filters)} if filters else {}


def _condition(index: Index, filter_: Filter) -> Body:
    if filter_.operator in NEGATED:
        return _not(_condition(index, Filter(filter_.field, NEGATED[filter_.operator], filter_.value)))
    if filter_.field == DOCUMENT_ID:
        return _has_id(index, filter_)
    if filter_.field == PUBLISHED and index.published is not None:
        if not index.made_here:
            return _dated(index.published, filter_)
        return _compare(index.published, filter_.operator, filter_.value)  # days, as keywords
    if index.made_here:
        return _metadata(f"metadata.{filter_.field}", filter_)
    return _foreign(index, filter_)


def _has_id(index: Index, filter_: Filter) -> Body:
    """Documents by their public ids, see `reading.public_id`."""
    by_id = reading.by_ids([filter_.value])
    home = reading.home_of(index, filter_.value)
    if home is None:
        return by_id
    there = [{"term": {"_index": home[0]}}, reading.by_ids([home[1]])]
    return {"bool": {"should": [by_id, {"bool": {"filter": there}}]}}


def _metadata(name: str, filter_: Filter) -> Body:
    """In an index that ccheck made: every field is a keyword, with its number beside it if it is one."""
    numbers = f"{name}.as_number"
    if (number := number_of(filter_)) is not None:
        return _compare(numbers, filter_.operator, number)
    text = _said(name, filter_)
    if filter_.operator == "=":
        return text
    # Not `exists`, which takes a * in a name for any letters.
    has_number = _compare(numbers, ">=", -sys.float_info.max)
    return {"bool": {"filter": [text, _not(has_number)]}}


def _foreign(index: Index, filter_: Filter) -> Body:
    known = index.fields.get(filter_.field)
    if known is None:  # or a key of an object that is kept whole (`flattened`)
        return _compare(filter_.field, filter_.operator, filter_.value)
    if known.type in INTEGERS and (number := as_number(filter_.value)) is not None:
        least, greatest = INTEGERS[known.type]
        if not least <= (int(filter_.value) if filter_.value.isdecimal() else number) <= greatest:
            raise UsageError(f"the filter {str(filter_)!r}: {filter_.field} holds numbers from {least} to {greatest}")
    if known.type == "ip":
        try:
            ipaddress.ip_network(filter_.value, strict=False)
        except ValueError as error:
            said = f"{filter_.field} holds IP addresses. Write, for example, {filter_.field}=192.0.2.1"
            raise UsageError(f"the filter {str(filter_)!r}: {said}, or =192.0.2.0/24") from error
    if known.type in NUMBERS:
        # Digits stay text, which the server reads exactly: a float would round a long id.
        value = filter_.value if filter_.value.isdecimal() else as_number(filter_.value)
        return _NOTHING if value is None else _compare(filter_.field, filter_.operator, value)
    if known.type in ("date", "date_nanos"):
        return _dated(filter_.field, filter_)
    if known.type in TEXT_TYPES and known.keyword is None:
        return {"match_phrase": {filter_.field: filter_.value}}
    return _said(known.keyword or filter_.field, filter_)


def _said(name: str, filter_: Filter) -> Body:
    """A text is compared exactly, but for a DOI."""
    if written := dois_of(filter_):
        return {"bool": {"should": [{"term": {name: {"value": one, "case_insensitive": True}}} for one in written]}}
    return _compare(name, filter_.operator, filter_.value)


def _compare(name: str, operator: str, value: str | float) -> Body:
    return {"term": {name: {"value": value}}} if operator == "=" else {"range": {name: {_RANGES[operator]: value}}}


def _dated(name: str, filter_: Filter) -> Body:
    """A date is compared whatever format the mapping has for it; a month or year stands for all of its days."""
    ends = ("gte", "lte") if filter_.operator == "=" else (_RANGES[filter_.operator],)
    value = filter_.value + (_ROUNDED[len(filter_.value)] if _DAYS.fullmatch(filter_.value) else "")
    return {"range": {name: dict.fromkeys(ends, value) | {"format": "strict_date_optional_time||epoch_millis"}}}


def _not(body: Body) -> Body:
    return {"bool": {"must_not": [body]}}
