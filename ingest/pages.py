"""Web pages as documents: AVeriTeC's knowledge store, and HTML.

A page is known by its address. It has the ids of the claims in whose collections it is (`claim_ids`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from ..core.types import Document
from .documents import ID_BYTES
from .fields import Plain, plain_record
from .lines import raw_chunks
from .records import Record, Reject
from .sources import Source

CLAIM_IDS = "claim_ids"
"""The metadata field with the claims to whose collections a page belongs."""
HTML_BYTES = 32 << 20
"""A larger HTML file is a reject."""
_LARGE = 1 << 20
"""Bytes of HTML from which on only trafilatura's own rules are used: its fallbacks take minutes."""
_OF_THE_ROW = ("claim_id", "type", "query", "url", "url2text")


def knowledge_row(data: dict[str, Any]) -> dict[str, Any] | None:
    """A row of AVeriTeC's knowledge store (`claim_id`, `url`, `url2text`: the page's sentences) as a record of a page.

    None for any other record. The row's `type` and `query` say how the page was found for one claim, and are left out.
    """
    sentences, url = data.get("url2text"), data.get("url")
    if not isinstance(sentences, list | str) or not isinstance(url, str):
        return None
    lines = sentences if isinstance(sentences, list) else [sentences]
    page: dict[str, Any] = {name: value for name, value in data.items() if name not in _OF_THE_ROW}
    page |= {"_id": page_id(url), "url": url, "text": "\n".join(line for line in lines if isinstance(line, str))}
    claim = data.get("claim_id")
    if isinstance(claim, str | int) and not isinstance(claim, bool):
        page[CLAIM_IDS] = [str(claim)]
    return page


def page_id(url: str) -> str:
    """The id of a page: its address, or if that is too long, a hash of it."""
    url = url.strip()
    if len(url.encode("utf-8", "replace")) <= ID_BYTES:
        return url
    return f"url:{hashlib.blake2b(url.encode('utf-8', 'replace'), digest_size=16).hexdigest()}"


def members(document: Document) -> list[str] | None:
    """The claims in whose collections a page is; None for a document that is in none."""
    value = document.metadata.get(CLAIM_IDS)
    return [str(one) for one in value] if isinstance(value, list) else None


def with_members(document: Document, claims: Iterable[str], *, first: bool = False) -> Document:
    """The page in these collections too, after those that it is in, or `first`."""
    own = members(document) or ()
    merged = list(dict.fromkeys((*claims, *own) if first else (*own, *claims)))
    metadata: Mapping[str, Any] = {**document.metadata, CLAIM_IDS: merged}
    return replace(document, metadata=metadata)


def read_html(source: Source, on_bytes: Callable[[int], None]) -> Iterator[Record | Reject]:
    """The one page of an HTML file: its main text, and what its `citation_*` or other metadata say."""
    from trafilatura import bare_extraction, html2txt, load_html

    if (source.size or 0) > HTML_BYTES:
        yield Reject(source.name, 1, f"the page has more than {HTML_BYTES:,} bytes")
        return
    html = b"".join(raw_chunks(source, on_bytes))
    found: Any = bare_extraction(
        html,
        with_metadata=True,
        include_comments=False,
        fast=len(html) > _LARGE,
        date_extraction_params={"extensive_search": False, "original_date": True},
    )
    text = (found.text if found is not None else None) or html2txt(html)
    if not text:
        yield Reject(source.name, 1, "no text was found in the page")
        return
    tree = load_html(html)
    data: dict[str, Any] = {"_id": source.label, "title": None, "text": text}
    if found is not None:
        data |= {"title": found.title, "date": found.date, "url": found.url, "source": found.sitename}
        if found.url:
            data["_id"] = page_id(found.url)
    if tree is not None:
        data |= _citation(tree)
    title = str(data["title"] or "")
    if title and text.startswith(title):  # its heading
        data["text"] = text[len(title) :].strip() or text
    yield Record(source.name, 1, {name: value for name, value in data.items() if value}, kind="HTML files")


def _citation(tree: Any) -> Plain:
    """What a publisher's page says of its paper in the `citation_*` tags that Google Scholar reads."""
    said: dict[str, list[str]] = {}
    for tag in tree.iter("meta"):
        name, value = str(tag.get("name") or tag.get("property") or ""), " ".join(str(tag.get("content") or "").split())
        if name.lower().startswith("citation_") and value:
            said.setdefault(name.lower().removeprefix("citation_"), []).append(value)
    return plain_record("Web pages", lambda place: said.get(place, []))
