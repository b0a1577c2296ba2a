"""How many of the ten best hits are further chunks of a paper that is among them already, with and without grouping.

    python benchmarks/elasticsearch_chunks.py scifact --url http://127.0.0.1:9200

The folder has BEIR's files. Each abstract is cut into chunks of 60 words, in an index as other programs make it: ccheck
finds by itself that `paper_id` names the paper of a chunk. An empty `group` in a store's profile groups nothing.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import click
import data
import elasticsearch
from elasticsearch import helpers
from elasticsearch_common import machine, server

from ccheck.core.stages import Bm25
from ccheck.core.types import Query, Ranking
from ccheck.search import Search, answer
from ccheck.search.elastic import Connection, ElasticStore
from ccheck.search.elastic.fields import FieldNames

INDEX, WORDS, K, AT_A_TIME = "ccheck-benchmark-chunks", 60, 10, 64


@click.command()
@click.argument("folder", type=click.Path(exists=True, path_type=Path))
@click.option("--url", help="Server to use.  [default: start one]")
@click.option("--claims", default=200, show_default=True)
def main(folder: Path, url: str | None, claims: int) -> None:
    with server(url) as address:
        client = elasticsearch.Elasticsearch(address, request_timeout=60)
        client.options(ignore_status=404).indices.delete(index=INDEX)
        keyword, text = {"type": "keyword"}, {"type": "text"}
        properties = {"paper_id": keyword, "title": text, "text": text}
        client.indices.create(index=INDEX, mappings={"properties": properties})
        papers = data.rows(folder / "corpus.jsonl.gz")
        made, _ = helpers.bulk(client, (chunk for paper in papers for chunk in chunks(paper)))
        client.indices.refresh(index=INDEX)
        asked = [Query(row["text"]) for row in itertools.islice(data.rows(folder / "queries.jsonl"), claims)]
        print(f"{machine(address)}; {made:,} chunks, {len(asked)} claims", flush=True)
        for name, group in (("not grouped", ""), ("grouped", None)):
            hits, further = counted(address, asked, group)
            print(f"{name}: {further:,} of {hits:,} hits are further chunks of a paper already shown", flush=True)
        client.indices.delete(index=INDEX)


def chunks(record: dict[str, str]) -> list[dict[str, str]]:
    words = record["text"].split()
    parts = [" ".join(words[start : start + WORDS]) for start in range(0, len(words), WORDS)]
    same = {"_index": INDEX, "paper_id": record["_id"], "title": record["title"]}
    return [{**same, "_id": f"{record['_id']}-{number}", "text": part} for number, part in enumerate(parts)]


def counted(url: str, queries: list[Query], group: str | None) -> tuple[int, int]:
    """All hits, and those whose paper had a better one."""
    hits = papers = 0
    with ElasticStore(Connection(url), INDEX, FieldNames(group=group)) as store:
        store.info()
        for start in range(0, len(queries), AT_A_TIME):
            for found in answer(store, Search(queries[start : start + AT_A_TIME], {"bm25": Bm25()}, k=K)):
                assert isinstance(found, Ranking)
                hits += len(found.hits)
                papers += len({hit.document.metadata["paper_id"] for hit in found.hits})
    return hits, hits - papers


if __name__ == "__main__":
    main()
