"""Full texts: articles with their sections, figures, tables and supplements, read from JATS, TEI and JSON."""

from .reading import iter_articles, read_article
from .types import Article, Element, Mention, Section

__all__ = ["Article", "Element", "Mention", "Section", "iter_articles", "read_article"]
