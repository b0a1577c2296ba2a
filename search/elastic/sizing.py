"""Estimates what an index of many documents will need: disk, page cache, shards, hours of embedding.

The constants were measured with `benchmarks/elasticsearch_size.py`; its table is in benchmarks/README.md under "Size of
an index". They describe Elasticsearch 9.5 with indices as ccheck makes them, and scale with documents, characters and
dimensions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from .mappings import IndexType

PER_DOCUMENT, PER_PASSAGE = 78, 16
"""Bytes beside texts and vectors, in `_source` and of ids, doc values and numbers of writes."""
STORED_PER_CHARACTER = 0.634
"""Bytes of `_source` without vectors, compressed, for each character of title and text."""
SEARCHED_PER_CHARACTER = 0.318
"""Bytes of the inverted index for each character, without its terms."""
TERMS = 280
"""The terms, each kept once: so many bytes for the square root of all characters (new words get rarer, Heaps' law)."""
NEIGHBOURS, GRAPH_BESIDE = 32, 10
"""Neighbours of a vector in HNSW's lowest layer, and the bytes of a vector beside them: their lengths, upper layers."""
FLOAT_BYTES = 4
IN_SOURCE_PER_DIMENSION = 8.2
"""Bytes of a vector's JSON in `_source`, compressed, where the server keeps it there: before 9.2 (measured on 8.19)."""
EMBEDDED_PER_SECOND = 27.0
"""Abstracts by all-MiniLM-L6-v2 on two CPU cores: SciFact's 5,183 in 194 s (benchmarks/README.md, Ingest)."""
SHARD_BYTES, SHARD_DOCUMENTS = 50e9, 200e6
"""Elastic's own advice ("Size your shards"): at most 50 GB and 200 million documents, passages counted, in a shard."""
WATERMARK = 0.85
"""Above this share of a disk the server puts no further shards on it (`disk.watermark.low`)."""


@dataclass(frozen=True, slots=True)
class Size:
    """Bytes, and hours where a rate is known. `primary` is one copy of everything; `disk` is what to provide."""

    documents: int
    passages: int
    primary: int
    text: int
    vectors: int
    total: int
    disk: int
    page_cache: int
    shards: int
    cpu_hours: float
    gpu_hours: float | None


def quantised(index_type: IndexType, dims: int) -> int | None:
    """Bytes of one vector as the index compares it; None if that is the full vector."""
    if index_type.startswith("int8"):
        return dims + 16
    if index_type.startswith("int4"):
        return dims // 2 + 16
    if index_type.startswith("bbq"):
        return dims // 8 + 14
    return None


def graph_bytes(vectors: int) -> int:
    """HNSW's neighbours of one vector among so many.

    Lucene sorts them and keeps the gaps between their numbers, each in as few bytes as it needs. Numbers are spread
    evenly, so `exp(-limit / gap)` of the gaps are beyond a limit.
    """
    gap = max(vectors, 1) / NEIGHBOURS
    return round(NEIGHBOURS * (1 + sum(math.exp(-(256**more) / gap) for more in (1, 2, 3))) + GRAPH_BESIDE)


def text_bytes(documents: int, passages: int, characters: int) -> int:
    """All of an index but its vectors."""
    each = PER_DOCUMENT + characters * (STORED_PER_CHARACTER + SEARCHED_PER_CHARACTER)
    return round(documents * each + passages * PER_PASSAGE + TERMS * math.sqrt(documents * characters))


def size(
    documents: int,
    dims: int,
    *,
    passages_per_document: float = 1.0,
    index_type: IndexType = "int8_hnsw",
    replicas: int = 1,
    characters: int = 1_500,
    vectors_in_source: bool = False,
    cpu_rate: float = EMBEDDED_PER_SECOND,
    gpu_rate: float | None = None,
) -> Size:
    """`characters` are those of an average document; the rates are in passages a second. `dims` 0 is without vectors.

    `page_cache` is what searches read at every step: quantised vectors and graphs, of all copies. The full vectors stay
    on the disk, where the best candidates are scored again. Servers before 9.2 have `vectors_in_source`.
    """
    passages = round(documents * passages_per_document) if dims else 0
    small = quantised(index_type, dims)
    graph = graph_bytes(passages) if index_type.endswith("hnsw") else 0
    full = dims * FLOAT_BYTES
    in_source = round(dims * IN_SOURCE_PER_DIMENSION) if vectors_in_source else 0
    vectors = passages * (full + (small or 0) + graph + in_source)
    text = text_bytes(documents, passages, characters)
    primary = text + vectors
    shards = max(1, math.ceil(primary / SHARD_BYTES), math.ceil((documents + passages) / SHARD_DOCUMENTS))
    total = primary * (1 + replicas)
    # While a shard is merged, both its old and its new segments are there.
    merging = primary / shards * (1 + replicas)
    return Size(
        documents=documents,
        passages=passages,
        primary=primary,
        text=text,
        vectors=vectors,
        total=total,
        disk=round((total + merging) / WATERMARK),
        page_cache=passages * ((small if small is not None else full) + graph) * (1 + replicas),
        shards=shards,
        cpu_hours=passages / cpu_rate / 3600,
        gpu_hours=passages / gpu_rate / 3600 if gpu_rate is not None else None,
    )


def advice(found: Size, index_type: IndexType) -> list[str]:
    """Says, in sentences, how this size affects a recipe and its use, and what to change."""
    said = []
    if found.shards > 1:
        said.append(
            f"With {found.shards} shards BM25 counts words in each shard, so scores differ a little from those of one "
            "shard. Each kNN search takes its `candidates` from every shard"
        )
    if found.passages > 1_000_000 and index_type.endswith("hnsw"):
        said.append(
            "An approximate search misses more the more vectors there are: raise `candidates` of the dense retriever, "
            "and measure with judged claims (ccheck sweep)"
        )
    if found.passages > 10_000_000 and not index_type.startswith("bbq"):
        said.append("bbq_hnsw needs about a quarter of the page cache of int8_hnsw. It takes 64 dimensions or more")
    if found.documents > 10_000_000:
        said.append(
            'Leave fuzziness off (`fuzziness = "auto"` reads many more terms), keep `depth` at 100 to 1,000, and '
            "ingest from several machines"
        )
    return said
