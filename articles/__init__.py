"""Full texts: articles with their sections, figures, tables and supplements, read from JATS, TEI and JSON."""

from .types import Article, Element, Mention, Section

__all__ = ["Article", "Element", "Mention", "Section"]
