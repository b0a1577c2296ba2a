"""Ingestion: reading files, cleaning, cutting into passages, encoding, and writing to a store."""

from .encoders import Encoders, layout_of
from .options import IngestOptions, Preview, Progress, Report
from .preview import dry_run, planned_questions
from .readers import full_texts, read
from .records import Record, Reject
from .run import ingest
from .sources import numbered

__all__ = [
    "Encoders",
    "IngestOptions",
    "Preview",
    "Progress",
    "Record",
    "Reject",
    "Report",
    "dry_run",
    "full_texts",
    "ingest",
    "layout_of",
    "numbered",
    "planned_questions",
    "read",
]
