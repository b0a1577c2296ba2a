"""Ingestion: reading files, cleaning, cutting into passages, embedding, and writing to a store."""

from .options import IngestOptions, Phase, Preview, Progress, Report, default_chunking, layout_for
from .readers import Record, Reject, read
from .run import dry_run, ingest

__all__ = [
    "IngestOptions",
    "Phase",
    "Preview",
    "Progress",
    "Record",
    "Reject",
    "Report",
    "default_chunking",
    "dry_run",
    "ingest",
    "layout_for",
    "read",
]
