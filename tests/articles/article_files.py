"""Small articles in every format, for tests of the readers and of what ranks their figures."""

from pathlib import Path

FILES = Path(__file__).parent / "files"
JATS = (FILES / "jats.xml").read_text(encoding="utf-8").rstrip()
PMC = (FILES / "pmc.xml").read_text(encoding="utf-8")
"""As PubMed Central has the files of other publishers."""
TEI = (FILES / "grobid.tei.xml").read_text(encoding="utf-8")
