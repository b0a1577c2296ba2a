"""The PDFs that papers were read from, for people to look at: those of one folder, as long as they are unchanged."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from urllib.parse import quote

from ..core.citation import on_pages, stands_in
from ..core.types import Document, Evidence, Sentence
from ..ingest.documents import FILE_HASH
from ..ingest.sniff import COMPRESSIONS

MOST_BYTES = 256 << 20
"""A larger file is not shown."""
CHANGED = "the PDF has changed since the paper was read from it. Ingest it again"
HEADERS = {
    # The viewer of a browser is a plugin with styles of its own. Nothing in the file may load or send anything.
    "content-security-policy": "default-src 'none'; object-src 'self'; style-src 'unsafe-inline'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "cache-control": "no-store",
}


def pdf_of(folder: Path | None, document: Document) -> Path | None:
    """Where the document's PDF should be; None if it was not read from one, or the folder does not have it as it is.

    The folder is the one that was ingested, whose name begins the id, or the one that it lies in.
    """
    packed = document.id.endswith(tuple(COMPRESSIONS))
    if folder is None or FILE_HASH not in document.metadata or "\0" in document.id or packed:
        return None
    folder = folder.resolve()
    try:
        for path in ((folder.parent / document.id).resolve(), (folder / document.id).resolve()):
            if path.is_relative_to(folder) and path.is_file() and path.stat().st_size <= MOST_BYTES:
                return path
    except OSError:  # a name that is too long, say
        pass
    return None


def unchanged(path: Path, file_hash: object) -> bytes | None:
    """The bytes of the file, if they are those that the document was read from."""
    content = path.read_bytes()
    same = hashlib.sha256(content).hexdigest() == file_hash
    return content if same and content.startswith(b"%PDF-") else None


def taken(folder: Path | None, document: Document) -> bool:
    """Whether the folder has another PDF in the document's place."""
    path = pdf_of(folder, document)
    try:
        return path is not None and unchanged(path, document.metadata[FILE_HASH]) is None
    except OSError:
        return True


def keep(paths: Sequence[Path], renamed: Mapping[str, str], folder: Path) -> Iterator[str]:
    """Copies the PDFs that the folder does not have, under the names that their ids end with. Yields what people should
    know of it."""
    for path in paths:
        kept = folder / PurePosixPath(renamed.get(str(path), path.name)).name
        if path.suffix.lower() == ".zip":
            yield f"PDFs in {path.name} were read, but not kept to be opened here. Unpack it and add them to keep them"
        elif path.suffix.lower() == ".pdf" and not kept.exists():
            try:
                shutil.copyfile(path, kept)
            except OSError as error:
                with suppress(OSError):
                    kept.unlink()
                yield f"{path.name} can't be opened here: its copy could not be kept ({error.strerror or error})"


def links(evidence: Evidence) -> Iterator[tuple[str, str]]:
    """Words and address of each page that sentences begin on, which marks them; of the PDF, if that can't be known."""
    document, by_page = quote(evidence.document.id), dict[int, list[Sentence]]()
    for one in evidence.sentences:
        if one.page is not None:
            by_page.setdefault(one.page, []).append(one)
    if not by_page:
        yield "page not known", f"/pdf/{document}"
    for page, found in sorted(by_page.items()):
        known = all(stands_in(evidence.document, one) for one in found)
        marked = "&".join(f"at={one.start}-{one.end}" for one in found)
        yield on_pages(*found), f"/pdf-pages/{document}?{marked}" if known else f"/pdf/{document}#page={page}"
