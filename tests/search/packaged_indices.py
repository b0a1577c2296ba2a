"""Indices as the vector stores of LangChain, LlamaIndex and Haystack write them, without their packages.

Their mappings and documents were read in langchain-elasticsearch 1.0.0, llama-index-vector-stores-elasticsearch 0.7.0
and elasticsearch-haystack 7.1.0 (with haystack-ai 3.4.1, split by its DocumentSplitter).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import httpx

Chunk = tuple[str, str, str]
"""The paper's id and title, and the text of the chunk."""
_VECTOR = {"type": "dense_vector", "dims": 3, "index": True, "similarity": "cosine"}


def langchain(client: httpx.Client, index: str, chunks: Sequence[Chunk]) -> None:
    """`ElasticsearchStore.from_documents`: only the vector is mapped, all else is found by the server."""
    _made(client, index, {"properties": {"vector": _VECTOR}})
    for number, (paper, title, text) in enumerate(chunks):
        metadata = {"source": f"papers/{paper}.pdf", "title": title, "page": number}
        _put(client, index, number, {"text": text, "metadata": metadata, "vector": [1, number, 0]})


def llama_index(client: httpx.Client, index: str, chunks: Sequence[Chunk]) -> None:
    """`ElasticsearchStore.add`: the ids of a node's document are keywords."""
    ids = {name: {"type": "keyword"} for name in ("document_id", "doc_id", "ref_doc_id")}
    properties = {"content": {"type": "text"}, "embedding": _VECTOR, "metadata": {"properties": ids}}
    _made(client, index, {"properties": properties})
    for number, (paper, title, text) in enumerate(chunks):
        node = json.dumps({"id_": str(number), "text": "", "metadata": {"title": title}, "class_name": "TextNode"})
        about = {"title": title, "_node_content": node, "_node_type": "TextNode"} | dict.fromkeys(ids, paper)
        _put(client, index, number, {"content": text, "embedding": [1, number, 0], "metadata": about})


def haystack(client: httpx.Client, index: str, chunks: Sequence[Chunk]) -> None:
    """`ElasticsearchDocumentStore.write_documents`: each string but the content is a keyword, metadata lie flat."""
    strings = {"path_match": "*", "match_mapping_type": "string", "mapping": {"type": "keyword"}}
    properties = {"embedding": {"type": "dense_vector", "index": True, "similarity": "cosine"}}
    properties["content"] = {"type": "text"}
    _made(client, index, {"properties": properties, "dynamic_templates": [{"strings": strings}]})
    for number, (paper, title, text) in enumerate(chunks):
        split = {"source_id": paper, "split_id": number, "split_idx_start": 0, "page_number": 1}
        document = {"id": str(number), "content": text, "embedding": [1, number, 0], "title": title, **split}
        _put(client, index, number, document)


PACKAGES: dict[str, Callable[[httpx.Client, str, Sequence[Chunk]], None]] = {
    "langchain": langchain,
    "llama_index": llama_index,
    "haystack": haystack,
}
"""Each makes an index of chunks, whose ids are their numbers."""


def _made(client: httpx.Client, index: str, mappings: dict[str, Any]) -> None:
    client.put(f"/{index}", json={"mappings": mappings}).raise_for_status()


def _put(client: httpx.Client, index: str, number: int, source: dict[str, Any]) -> None:
    client.put(f"/{index}/_doc/{number}", params={"refresh": "true"}, json=source).raise_for_status()
