"""The PDFs that papers were read from, for people to look at: those of one folder, as long as they are unchanged."""

from __future__ import annotations

import hashlib
from pathlib import Path
from urllib.parse import quote, urlencode

from ..core.citation import on_pages
from ..core.types import Document, Evidence
from ..ingest.documents import FILE_HASH

MOST_BYTES = 256 << 20
"""A larger file is not shown."""
SEARCHED_WORDS = 8
"""Words of a sentence that a viewer looks for: a line or less, so that few are cut at its end."""
HEADERS = {
    # The viewer of a browser is a plugin with styles of its own. Nothing in the file may load or send anything.
    "content-security-policy": "default-src 'none'; object-src 'self'; style-src 'unsafe-inline'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "cache-control": "no-store",
}


def pdf_of(folder: Path | None, document: Document) -> Path | None:
    """Where the document's PDF should be; None if it was not read from one, or the folder does not have it."""
    if folder is None or FILE_HASH not in document.metadata or "\0" in document.id:
        return None
    try:
        path = (folder / document.id).resolve()
        within = path.is_relative_to(folder.resolve()) and path.is_file() and path.stat().st_size <= MOST_BYTES
    except OSError:  # a name that is too long, say
        return None
    return path if within else None


def unchanged(path: Path, document: Document) -> bytes | None:
    """The bytes of the file, if they are those that the document was read from."""
    content = path.read_bytes()
    same = hashlib.sha256(content).hexdigest() == document.metadata[FILE_HASH]
    return content if same and content.startswith(b"%PDF-") else None


def links(evidence: Evidence) -> list[tuple[str, str]]:
    """Words and address of the PDF at each page that evidence begins on. Firefox marks the sentence there, too."""
    address = f"/pdf/{quote(evidence.document.id)}"
    pages = {one.page: one for one in reversed(evidence.sentences) if one.page is not None}
    if not pages:
        return [("page not known", address)]
    found = []
    for page, one in sorted(pages.items()):
        words = " ".join(one.text.split()[:SEARCHED_WORDS])
        shown = urlencode({"page": page, "search": words, "phrase": "true"}, quote_via=quote)
        found.append((on_pages(one), f"{address}#{shown}"))
    return found
