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
_ADVICE = {
    "Convert it: soffice --headless --convert-to docx FILE": ".doc .odt .rtf",
    "Convert it: soffice --headless --convert-to xlsx FILE": ".xls .ods",
    "Convert it: pandoc FILE -o FILE.txt -t plain": ".epub .tex .md",
    "Convert it: ps2pdf FILE": ".ps",
    "Convert it: djvutxt FILE FILE.txt": ".djvu",
    "Export it as a Word file (.docx)": ".pages",
    "Unpack it first, then ingest what was in it": ".tar .tgz .bz2 .xz .7z",
    "In EndNote, choose File > Export and the style RefMan (RIS) Export": ".enl .enw",
    "In Zotero, choose File > Export Library and the format RIS or CSV": ".rdf .sqlite",
    "Recognise its text first: tesseract FILE FILE": ".png .jpg .tiff",
    _PICKLE: ".pkl .pickle",
}
HINTS = {ending: advice for advice, endings in _ADVICE.items() for ending in endings.split()}
"""Advice on how to turn a file of another kind into one that ccheck reads, by the end of its name."""
