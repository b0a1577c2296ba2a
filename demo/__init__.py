"""Sample data: short summaries of well-known papers, and claims to check against them.

The files are described in the README beside this module.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

__all__ = ["CLAIMS", "CORPUS"]

_HERE: Final[Path] = Path(__file__).resolve().parent

CORPUS: Final[Path] = _HERE / "corpus.jsonl"
"""One paper summary per line (JSON Lines, UTF-8)."""

CLAIMS: Final[Path] = _HERE / "claims.jsonl"
"""One claim per line, with its expected label and evidence (JSON Lines, UTF-8)."""
