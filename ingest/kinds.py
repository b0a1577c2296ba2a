"""The formats of files, and what to do about files of other kinds."""

from __future__ import annotations

from typing import Literal, TypeAlias

Format: TypeAlias = Literal[
    "jsonl",
    "json",
    "csv",
    "tsv",
    "parquet",
    "ris",
    "bibtex",
    "nbib",
    "wos",
    "xml",
    "html",
    "txt",
    "pdf",
    "docx",
    "xlsx",
    "zip",
]
Compression: TypeAlias = Literal["gzip", "zstd"]

FORMATS: dict[str, Format] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".parquet": "parquet",
    ".ris": "ris",
    ".bib": "bibtex",
    ".bibtex": "bibtex",
    ".nbib": "nbib",
    ".xml": "xml",
    ".nxml": "xml",
    ".jats": "xml",
    ".tei": "xml",
    ".html": "html",
    ".htm": "html",
    ".txt": "txt",
    ".pdf": "pdf",
    ".docx": "docx",
    ".xlsx": "xlsx",
    ".zip": "zip",
}
"""Formats by the end of a file's name. A `.txt` file can be any text format: its first bytes tell which."""
COMPRESSIONS: dict[str, Compression] = {".gz": "gzip", ".zst": "zstd"}
TABLES: tuple[Format, ...] = ("csv", "tsv")
LINES: tuple[Format, ...] = ("jsonl", "json", "txt", *TABLES)
"""Read in this process, see `apart.py`."""
KNOWN = f"{', '.join(FORMATS)}, each also with {' or '.join(COMPRESSIONS)}"

_PICKLE = (
    "Loading a pickle can run any code. If you trust its author, convert it: "
    "python -c \"import pandas; pandas.read_pickle('FILE').to_json('FILE.jsonl', orient='records', lines=True)\""
)
HINTS = {
    ".doc": "Convert it: soffice --headless --convert-to docx FILE",
    ".odt": "Convert it: soffice --headless --convert-to docx FILE",
    ".rtf": "Convert it: soffice --headless --convert-to docx FILE",
    ".pages": "Export it as a Word file (.docx)",
    ".xls": "Convert it: soffice --headless --convert-to xlsx FILE",
    ".ods": "Convert it: soffice --headless --convert-to xlsx FILE",
    ".epub": "Convert it: pandoc FILE -o FILE.txt -t plain",
    ".tex": "Convert it: pandoc FILE -o FILE.txt -t plain",
    ".md": "Convert it: pandoc FILE -o FILE.txt -t plain",
    ".ps": "Convert it: ps2pdf FILE",
    ".djvu": "Convert it: djvutxt FILE FILE.txt",
    ".tar": "Unpack it first: tar xf FILE, then ingest the folder",
    ".tgz": "Unpack it first: tar xf FILE, then ingest the folder",
    ".bz2": "Unpack it first: bunzip2 FILE",
    ".xz": "Unpack it first: unxz FILE",
    ".7z": "Unpack it first, then ingest the folder",
    ".enl": "In EndNote, choose File > Export and the type XML or RIS",
    ".enw": "In EndNote, choose File > Export and the type XML or RIS",
    ".rdf": "In Zotero, choose File > Export Library and the format RIS or CSV",
    ".sqlite": "Export its library as RIS or CSV first (in Zotero: File > Export Library)",
    ".pkl": _PICKLE,
    ".pickle": _PICKLE,
    ".png": "Recognise its text first: tesseract FILE FILE",
    ".jpg": "Recognise its text first: tesseract FILE FILE",
    ".tiff": "Recognise its text first: tesseract FILE FILE",
}
"""Advice on how to turn a file of another kind into one that ccheck reads."""
