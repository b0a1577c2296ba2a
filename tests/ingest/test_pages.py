"""Web pages: AVeriTeC's knowledge store, HTML, and pages of several claims."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ccheck.core.layout import UnitField
from ccheck.core.settings import resolve
from ccheck.ingest import Record, Reject, ingest, read
from ccheck.ingest.documents import make_document
from ccheck.ingest.encoders import Encoders
from ccheck.search import Filter, open_store

CHUNKS = Encoders(units={"chunk": UnitField("chunk", characters=2048)})
SEA = "https://example.org/sea"
HTML = """<html><head><title>The sea rises</title><link rel="canonical" href="{url}">
<meta property="og:site_name" content="The Guardian"><meta property="article:published_time" content="2020-10-05">
</head><body><nav>Home | Sport</nav><article><h1>The sea rises</h1><p>{text}</p></article>
<footer>Imprint</footer></body></html>"""
LONG = "The sea level has risen by more than 20 cm since 1900, as tide gauges on many coasts show. " * 5


def row(claim: int | str, url: str, *sentences: str) -> dict[str, Any]:
    return {"claim_id": claim, "type": "question", "query": "sea", "url": url, "url2text": list(sentences)}


def write(path: Path, *rows: dict[str, Any]) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(one) + "\n" for one in rows))
    return path


@pytest.fixture
def put(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Ingests files into a local store, which it gives with the report."""
    with open_store(resolve({"store": str(tmp_path / "store")}).settings) as store:
        yield lambda *sources: (store, ingest([str(one) for one in sources], store, CHUNKS))


def test_a_row_of_the_knowledge_store_is_a_page(tmp_path: Path, put: Callable[..., Any]) -> None:
    file = write(tmp_path / "kb" / "0.json", row(0, SEA, "The sea rises.", "It is high."), row(0, "x:1", "Tea."))
    store, report = put(file)
    page = store.get([SEA])[SEA]
    assert (page.text, page.title) == ("The sea rises.\nIt is high.", "")
    assert dict(page.metadata) == {"url": SEA, "claim_ids": ["0"]}
    assert report.added == 2 and report.units == {"chunk": 2}


def test_a_page_of_several_claims_is_stored_once(tmp_path: Path, put: Callable[..., Any]) -> None:
    write(tmp_path / "kb" / "0.json", row(0, SEA, "The sea rises."), row(0, "x:tea", "Tea."))
    write(tmp_path / "kb" / "1.json", row("1", SEA, "The sea rises."), row("1", "x:ice", "Ice."))
    store, report = put(tmp_path / "kb")
    assert (report.added, report.repeated, report.rejected) == (3, 1, 0)
    assert store.get([SEA])[SEA].metadata["claim_ids"] == ["0", "1"]
    assert [store.count([Filter("claim_ids", "=", claim)]) for claim in ("0", "1", "2")] == [2, 2, 0]
    # Another ingest adds to the collections and takes nothing away.
    later = write(tmp_path / "more" / "2.json", row(2, SEA, "The sea rises."))
    store, report = put(later)
    assert report.updated == 1 and store.get([SEA])[SEA].metadata["claim_ids"] == ["0", "1", "2"]
    store, report = put(tmp_path / "kb")
    assert (report.updated, report.unchanged, report.added) == (0, 3, 0)
    assert store.get([SEA])[SEA].metadata["claim_ids"] == ["0", "1", "2"] and store.count() == 3


def test_another_text_of_the_same_page_is_said(tmp_path: Path, put: Callable[..., Any]) -> None:
    rows = row(0, SEA, "The sea rises."), row(1, SEA, "Cookies?"), row(2, SEA, "The sea rises.")
    store, report = put(write(tmp_path / "kb" / "all.jsonl", *rows))
    page = store.get([SEA])[SEA]
    assert page.text == "The sea rises." and page.metadata["claim_ids"] == ["0", "1", "2"]
    assert any("1 pages came again with another text" in notice for notice in report.notices)


def test_a_page_of_5_mb_is_cut_into_chunks(tmp_path: Path, put: Callable[..., Any]) -> None:
    text = "The sea rises. " * 330_000  # without a single blank line
    store, report = put(write(tmp_path / "kb" / "0.json", row(0, SEA, text), row(0, "x:tea", "Tea.")))
    assert report.rejected == 0 and report.units["chunk"] >= len(text) // 2048
    first, last = store.get_units("chunk", [f"{SEA}#0", f"{SEA}#{report.units['chunk'] - 2}"]).values()
    stored = store.get([SEA])[SEA].text
    assert stored[first.start : first.end] == first.text and last.end == len(stored.rstrip())


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ({"url": SEA, "url2text": "The sea."}, "The sea."),
        ({"url": SEA, "url2text": ["The sea.", None, 3, "Tea."]}, "The sea.\nTea."),
        ({"url": 3, "url2text": ["The sea."], "text": "own"}, "own"),
        ({"url": SEA, "text": "own"}, "own"),
    ],
)
def test_rows_of_other_shapes(tmp_path: Path, data: dict[str, Any], text: str) -> None:
    (record,) = read([write(tmp_path / "kb" / "a.jsonl", data)])
    assert isinstance(record, Record) and record.data["text"] == text


def test_a_page_without_text_or_with_a_long_address(tmp_path: Path, put: Callable[..., Any]) -> None:
    far = "https://example.org/" + "x" * 600
    store, report = put(write(tmp_path / "kb" / "0.json", row(0, SEA), row(0, far, "Tea.")))
    assert (report.rejected, report.added, store.count()) == (1, 1, 1)


def test_html_is_a_page_with_its_main_text(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(HTML.format(url=SEA, text=LONG))
    (record,) = read([tmp_path])
    assert isinstance(record, Record)
    document = make_document(record.data).document
    assert document.id == SEA and document.title == "The sea rises" and document.published == "2020-10-05"
    assert document.metadata == {"date": "2020-10-05", "url": SEA, "source": "The Guardian"}
    assert LONG.strip() in document.text and "Imprint" not in document.text


@pytest.mark.parametrize("html", [b"", b"<html></html>", b"\x00\xff\xfe" * 100, b"<div>" * 100_000])
def test_html_without_text_is_a_reject(tmp_path: Path, html: bytes) -> None:
    (tmp_path / "a.htm").write_bytes(html)
    (reject,) = read([tmp_path])
    assert isinstance(reject, Reject) and "no text" in reject.reason
