"""The queries that docs/elasticsearch.md shows for Kibana's console, on real servers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from filling import fill
from stores import SERVERS

from ccheck.core.layout import (
    MAIN_VECTORS,
    AdditionalTexts,
    Chunking,
    DenseField,
    Embedding,
    Layout,
    SparseField,
    UnitField,
    analysis_key,
    named_fields,
)
from ccheck.core.recipe import load_recipe
from ccheck.core.stages import Bm25
from ccheck.core.types import Document, Entry, Passage, SparseVector, Unit, UnitEntry
from ccheck.search.elastic import Connection, ElasticStore

PAGE = (Path(__file__).parents[2] / "docs" / "elasticsearch.md").read_text(encoding="utf-8")
SHOWN = re.findall(r"<!-- tested on a server -->\n```console\nGET papers/_search\n(.*?)\n```", PAGE, re.DOTALL)


@pytest.mark.parametrize("server", SERVERS.values())
def test_what_is_shown_finds_the_document(
    server: str, elasticsearch_index: str, request: pytest.FixtureRequest
) -> None:
    url: Any = request.getfixturevalue(server)
    bm25 = load_recipe("climatecheck-ensemble").retrievers["bm25"]
    assert isinstance(bm25, Bm25) and bm25.analysis is not None
    assert f"terms.{analysis_key(bm25.analysis)}" in PAGE
    layout = Layout(
        named_fields([DenseField(Embedding("m", 4, "f" * 64, 128), Chunking(128, 128, 16))]),
        SparseField("s", 30_522, "d" * 64, 512),
        (bm25.analysis,),
        AdditionalTexts("a", True, 1, "p"),
        {"sentence": UnitField("sentence")},
    )
    weights = SparseVector(np.array([2504, 2712], np.int32), np.array([0.5, 1.5], np.float32))
    passages = {MAIN_VECTORS: (Passage(0, 22, np.full(4, 0.5, np.float32)),)}
    sea = Entry(
        Document("sea", "Sea level", "Sea level has risen."),
        "1",
        passages,
        weights,
        ("Oceans climb the coast.",),
        {"sentence": (UnitEntry(Unit("sentence", 0, 0, 20, "Sea level has risen.")),)},
    )
    mug = Entry(Document("mug", "Green mugs", "A hot drink."), "1")
    with ElasticStore(Connection(url), elasticsearch_index) as store:
        fill(store, layout, [sea, mug])
        assert len(SHOWN) == 6
        for body in SHOWN:
            headers = {"content-type": "application/json"}
            found = httpx.post(f"{url}/{elasticsearch_index}/_search", content=body, headers=headers, timeout=60)
            assert found.status_code == httpx.codes.OK, (body, found.text)
            assert [hit["_id"] for hit in found.json()["hits"]["hits"]] == ["sea"], body
