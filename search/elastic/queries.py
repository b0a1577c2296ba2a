"""Requests: retrievers and filters in Elasticsearch's terms."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...analysis import clip, terms
from ...errors import InvalidData, UsageError
from ...stages import Bm25, Dense, Fusion, Retriever
from ...types import Query, Vector
from ..filters import PUBLISHED, Filter
from .schema import Index

Body = dict[str, Any]

TIE = 0.3
"""What a field adds that is not the best one, when several are searched."""
MAX_CANDIDATES = 10_000
"""Elasticsearch's own limit."""
_ORDER = [{"_score": "desc"}, {"_seq_no": "asc"}]
"""Equal scores: the document that was written first. Otherwise the server's threads race for their order."""
_RANGES = {"<": "lt", "<=": "lte", ">": "gt", ">=": "gte"}
_NUMBERS = ("long", "integer", "short", "byte", "double", "float", "half_float", "scaled_float", "unsigned_long")
_NOTHING: Body = {"match_none": {}}


def retriever_body(index: Index, query: Query, retriever: Retriever, filters: Sequence[Body]) -> Body | None:
    """The retriever as the search API takes it; None where the query gives it nothing to search for.

    Raises UsageError for a field that is not there, InvalidData for a vector of other dimensions.
    """
    if isinstance(retriever, Bm25):
        words = bm25(index, query.text, retriever)
        order = {"sort": _ORDER} if index.made_here else {}
        return words and {"standard": {"query": words} | order | _filter(filters)}
    if query.vector is None:
        return None
    return {"knn": knn(index, query.vector, retriever) | _filter(filters)}


def bm25(index: Index, text: str, retriever: Bm25) -> Body | None:
    boosts: dict[str, float] = {}
    for name, boost in retriever.fields.items():
        if name not in index.searched:
            known = ", ".join(sorted(index.searched))
            raise UsageError(f"{index.name} has no text field {name!r}; the fields are {known}")
        for actual in index.searched[name]:
            boosts[actual] = max(boost, boosts.get(actual, 0.0))
    text = clip(text)
    # In an index of another's making a stopword may count.
    if not (terms(text) if index.made_here else text.strip()):
        return None
    matches = [
        {"match": {name: {"query": text} | ({} if boost == 1 else {"boost": boost})}} for name, boost in boosts.items()
    ]
    if not matches:
        return None
    return matches[0] if len(matches) == 1 else {"dis_max": {"queries": matches, "tie_breaker": TIE}}


def knn(index: Index, vector: Vector, retriever: Dense) -> Body:
    if index.dimensions is not None and len(vector) != index.dimensions:
        raise InvalidData(
            f"the claim's embedding has {len(vector)} dimensions, the vectors of {index.name} have {index.dimensions}: "
            "search with the model that made them (CCHECK_EMBEDDING_MODEL)"
        )
    candidates = retriever.candidates or max(2 * retriever.depth, 100)
    return {
        "field": index.vector,
        "query_vector": vector.tolist(),
        "k": retriever.depth,
        "num_candidates": min(max(candidates, retriever.depth), MAX_CANDIDATES),
    }


def rrf(retrievers: Sequence[tuple[Body, Retriever]], fusion: Fusion) -> Body:
    """Reciprocal rank fusion on the server, which needs a licence."""
    weighted = any(retriever.weight != 1 for _, retriever in retrievers)
    return {
        "rrf": {
            "retrievers": [
                {"retriever": body, "weight": retriever.weight} if weighted else body for body, retriever in retrievers
            ],
            "rank_constant": fusion.k,
            "rank_window_size": retrievers[0][1].depth,
        }
    }


def fits_rrf(retrievers: Mapping[str, Retriever], fusion: Fusion, k: int) -> bool:
    """Whether the server's `rrf` ranks as fusion here does: it has one window for all."""
    depths = {retriever.depth for retriever in retrievers.values()}
    return fusion.method == "rrf" and len(retrievers) >= 2 and len(depths) == 1 and k <= min(depths)


def score_reader(index: Index, retriever: Retriever) -> Callable[[float], float]:
    """From the server's scores to ours: for BM25 the same, for kNN the cosine, of unit vectors."""
    if isinstance(retriever, Bm25):
        return float
    if index.similarity == "l2_norm":
        return lambda score: 1.0 - (1.0 / score - 1.0) / 2.0
    if index.similarity == "max_inner_product":
        return lambda score: score - 1.0 if score >= 1 else 1.0 - 1.0 / score
    return lambda score: 2.0 * score - 1.0


# -- filters


def filter_bodies(index: Index, filters: Sequence[Filter]) -> list[Body]:
    """Queries that a document must match. Raises UsageError where a field can't be compared so."""
    return [_condition(index, filter_) for filter_ in filters]


def _filter(filters: Sequence[Body]) -> Body:
    return {"filter": list(filters)} if filters else {}


def _condition(index: Index, filter_: Filter) -> Body:
    if filter_.operator == "!=":
        return _not(_condition(index, Filter(filter_.field, "=", filter_.value)))
    if filter_.field == PUBLISHED and index.published is not None:
        return _compare(index.published, filter_.operator, filter_.value)
    if index.made_here:
        return _metadata(f"metadata.{filter_.field}", filter_)
    return _foreign(index, filter_)


def _metadata(name: str, filter_: Filter) -> Body:
    """In an index that ccheck made: every field is a keyword, with its number beside it where it is one."""
    number, text = filter_.number, _compare(name, filter_.operator, filter_.value)
    as_number = f"{name}.as_number"
    if number is None:
        return text if filter_.operator == "=" else {"bool": {"filter": [text, _not({"exists": {"field": as_number}})]}}
    numeric = _compare(as_number, filter_.operator, number)
    return {"bool": {"should": [text, numeric]}} if filter_.operator == "=" else numeric


def _foreign(index: Index, filter_: Filter) -> Body:
    known = index.fields.get(filter_.field)
    if known is None:
        return _NOTHING
    if known.type in _NUMBERS:
        return _NOTHING if filter_.number is None else _compare(filter_.field, filter_.operator, filter_.number)
    if known.type == "boolean":
        is_truth = filter_.operator == "=" and filter_.value in ("true", "false")
        return {"term": {filter_.field: filter_.value}} if is_truth else _NOTHING
    if known.type not in ("text", "match_only_text"):
        return _compare(filter_.field, filter_.operator, filter_.value)
    if known.keyword is not None:
        return _compare(known.keyword, filter_.operator, filter_.value)
    if filter_.operator != "=":
        raise UsageError(f"the field {filter_.field!r} of {index.name} is text, which only = and != compare")
    return {"match_phrase": {filter_.field: filter_.value}}


def _compare(name: str, operator: str, value: str | float) -> Body:
    return {"term": {name: {"value": value}}} if operator == "=" else {"range": {name: {_RANGES[operator]: value}}}


def _not(body: Body) -> Body:
    return {"bool": {"must_not": [body]}}
