"""What files are read to, for tests of their readers."""

from pathlib import Path

from ccheck.core.types import Document
from ccheck.ingest import Record, Reject, read
from ccheck.ingest.documents import make_document


def parts(*files: str | Path, **options: object) -> tuple[list[Record], list[Reject]]:
    found = list(read(list(files), **options))  # type: ignore[arg-type]
    return [one for one in found if isinstance(one, Record)], [one for one in found if isinstance(one, Reject)]


def documents(*files: str | Path) -> list[Document]:
    """The documents of files in which nothing is bad."""
    records, rejects = parts(*files)
    assert not rejects
    return [make_document(one.data, untyped=one.untyped).document for one in records]
