"""Ingestion: reading files, cleaning, cutting into passages, encoding, and writing to a store."""

from .encoders import DenseEncoder, Encoders, default_chunking, encoders_of, layout_of
from .fields import Fields
from .options import IngestOptions, Phase, PlannedQuestions, Preview, Progress, Report
from .preview import dry_run, planned_questions
from .readers import full_texts, read
from .records import Record, Reject
from .run import ingest
from .sources import Reading

__all__ = [
    "DenseEncoder",
    "Encoders",
    "Fields",
    "IngestOptions",
    "Phase",
    "PlannedQuestions",
    "Preview",
    "Progress",
    "Reading",
    "Record",
    "Reject",
    "Report",
    "default_chunking",
    "dry_run",
    "encoders_of",
    "full_texts",
    "ingest",
    "layout_of",
    "planned_questions",
    "read",
]
