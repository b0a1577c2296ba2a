"""What files are read to, for tests of their readers."""

from pathlib import Path

import pytest

from ccheck.core.types import Document
from ccheck.ingest import Record, Reject, lines, read, readers
from ccheck.ingest.documents import make_document
from ccheck.ingest.records import LINE_BYTES


def parts(*files: str | Path, line_bytes: int = LINE_BYTES) -> tuple[list[Record], list[Reject]]:
    with pytest.MonkeyPatch.context() as patch:
        for module in (lines, readers):
            patch.setattr(module, "LINE_BYTES", line_bytes)
        found = list(read(list(files)))
    return [one for one in found if isinstance(one, Record)], [one for one in found if isinstance(one, Reject)]


def documents(*files: str | Path) -> list[Document]:
    """The documents of files in which nothing is bad."""
    records, rejects = parts(*files)
    assert not rejects
    return [make_document(one.data, untyped=one.untyped).document for one in records]
