"""Indices of chunks: which field says what paper a chunk is of, and rankings with each paper once."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Hashable, Mapping
from typing import Any, Final, TypeVar

from ...core.errors import InvalidData
from .client import Client
from .fields import NUMBERS, TEXT_TYPES, Field, Index, by_last_part

Key = TypeVar("Key", bound=Hashable)

GROUPS = ("ref_doc_id", "source_id", "parent_id", "document_id", "paper_id", "doc_id", "parent", "source")
"""The names of fields in which LlamaIndex, Haystack, LangChain and others keep a chunk's paper."""
WHOLE_VALUES: Final = ("keyword", "constant_keyword", *NUMBERS)
LARGEST = 1_000
"""A field that nobody named groups chunks only if no group has more."""
FEWEST, MOST = 3, 50
"""How many chunks are asked for in place of each paper, at the least and at the most."""
_VAGUE = ("parent", "source")
"""They can also name a publisher or a data set; then their values do not look like a file, an address or an id."""
_ID = re.compile(r"[/\\.:#\d]")


def with_papers(client: Client, name: str, index: Index, named: str | None) -> Index:
    """The index with the field that groups its chunks, `named` or found; an empty name groups nothing.

    Raises InvalidData for a name that can't group.
    """
    if named == "":
        return index
    if named is not None:
        known = index.fields.get(named)
        paper = None if known is None else _whole(named, known)
        if paper is None:
            raise InvalidData(
                f"the field {named} of {index.name} can't group chunks: it "
                f"{'does not exist' if known is None else 'is not a keyword or number outside nested documents'}"
            )
        chunks, papers, _ = _counted(client, name, paper)
        return _grouped(index, paper, chunks / papers if papers else 1.0)
    wholes = {one: field for one, known in index.fields.items() if (field := _whole(one, known)) is not None}
    for one in by_last_part(GROUPS, wholes):
        field = wholes[one]
        chunks, papers, largest = _counted(client, name, field)
        vague = one.rpartition(".")[2] in _VAGUE and not all(map(_ID.search, largest))
        if not vague and 0 < papers < chunks and max(largest.values()) <= LARGEST:
            return _grouped(index, field, chunks / papers)
    return index


def by_paper(
    rankings: Mapping[str, list[tuple[Key, float]]], papers: Mapping[Key, Hashable], depths: Mapping[str, int]
) -> dict[str, list[tuple[Key, float]]]:
    """Rankings of papers instead of chunks: each is in place of its best chunk, to the depth of the retriever.

    In all rankings a paper goes by the same chunk: the one that a retriever ranked highest, at equal ranks the first
    retriever's. A chunk without a paper is one.
    """
    best: dict[str, dict[Hashable, tuple[Key, float]]] = {}
    shown: dict[Hashable, tuple[int, Key]] = {}
    for name, ranking in rankings.items():
        ranked: dict[Hashable, tuple[Key, float]] = {}
        for key, score in ranking:
            ranked.setdefault(papers.get(key, (key,)), (key, score))
        best[name] = dict(list(ranked.items())[: depths[name]])
        for rank, (paper, (key, _)) in enumerate(best[name].items()):
            if paper not in shown or rank < shown[paper][0]:
                shown[paper] = rank, key
    return {name: [(shown[paper][1], score) for paper, (_, score) in one.items()] for name, one in best.items()}


def _grouped(index: Index, field: str, each: float) -> Index:
    asked = min(max(FEWEST, math.ceil(2 * each)), MOST)
    return dataclasses.replace(index, group=field, chunks=each, chunks_asked=asked)


def _whole(name: str, known: Field) -> str | None:
    """The field whose values are told apart for that one: itself, or the keyword beside a text."""
    if known.nested or known.of:
        return None
    if known.type in TEXT_TYPES:
        return known.keyword
    return name if known.type in WHOLE_VALUES else None


def _counted(client: Client, name: str, field: str) -> tuple[int, int, dict[str, int]]:
    """How many documents have the field, about how many values it has, and those of the most documents."""
    aggs: dict[str, Any] = {
        "chunks": {"value_count": {"field": field}},
        "papers": {"cardinality": {"field": field}},
        "largest": {"terms": {"field": field, "size": 10}},
    }
    body = {"size": 0, "track_total_hits": False, "aggs": aggs}
    found = client.search(name, body)["aggregations"]
    largest = {str(one["key"]): int(one["doc_count"]) for one in found["largest"]["buckets"]}
    return int(found["chunks"]["value"]), int(found["papers"]["value"]), largest
