"""Full texts: articles with their sections, figures and tables, read from JATS, TEI and JSON."""

from .types import Article, Element, Mention, Section

__all__ = ["Article", "Element", "Mention", "Section"]
