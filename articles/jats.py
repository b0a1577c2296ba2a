"""JATS XML, the format of PubMed Central and PLOS (https://jats.nlm.nih.gov)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..core.text import whole_number
from ..core.types import Value
from .builder import TABLE_CHARS, ArticleBuilder, Line
from .types import Article, Element, Kind
from .xml import all_text, attribute, child, children, find, name

if TYPE_CHECKING:
    from lxml.etree import _Element as Node

_FLOATS: dict[str, Kind] = {"fig": "figure", "table-wrap": "table"}
_GROUPS = ("fig-group", "table-wrap-group")
_BLOCKS = frozenset(
    ("p", "sec", "title", "list", "list-item", "def-list", "def-item", "def", "term", "disp-quote", "boxed-text", "ack",
     "app", "app-group", "statement", "verse-group", "verse-line", "disp-formula-group", "caption", "label", "abstract")
)  # fmt: skip
_SKIPPED = frozenset(
    ("tex-math", "ref-list", "table", "graphic", "inline-graphic", "media", "object-id", "alternatives", "fn-group",
     "fn", "glossary", "notes", "supplementary-material")
)  # fmt: skip
_NO_TEXT = frozenset(("tex-math", "graphic", "object-id", "table", "annotation"))
_KEPT_APART = re.compile(
    r"(?=.*(?:fig|tab|leg|cap))(?:list of )?(?:figures?|tables?|legends?|captions?|and|&|[\W\d])+", re.IGNORECASE
)
"""The title of a section at the end that holds figures and tables, wherever they belong."""


def is_jats(root: Node) -> bool:
    return find(root, "article") is not None and (
        find(root, "article-meta") is not None or find(root, "body") is not None
    )


def read_jats(root: Node, identifier: str) -> Article:
    """The first article of the document. Raises InvalidData if it has no text."""
    article = find(root, "article")
    article = root if article is None else article
    builder = ArticleBuilder()
    meta = find(article, "article-meta")
    front = child(article, "front")
    for abstract in children(meta, "abstract") if meta is not None else ():
        builder.open_section(all_text(child(abstract, "title")) or "Abstract")
        _blocks(abstract, builder, floating=False)
        builder.close_section()
    for part in children(article, "body", "back"):
        _blocks(part, builder, floating=name(part) == "back")
    for group in children(article, "floats-group", "floats-wrap"):
        _blocks(group, builder, floating=True)
    title = find(meta, "article-title") if meta is not None else None
    return builder.article(identifier, all_text(title, frozenset(("fn", "xref"))), _metadata(meta, front))


def _metadata(meta: Node | None, front: Node | None) -> dict[str, Value]:
    data: dict[str, Value] = {}
    if meta is None:
        return data
    for one in children(meta, "article-id"):
        kind = one.get("pub-id-type")
        if kind in ("doi", "pmid", "pmc", "pmcid") and (said := all_text(one)):
            data[str(kind)] = said
    journal = find(front, "journal-title") if front is not None else None
    if journal is not None:
        data["journal"] = all_text(journal)
    years = [whole_number(all_text(child(date, "year"))) for date in children(meta, "pub-date")]
    if years := [year for year in years if year is not None]:
        data["year"] = min(years)
    names = [
        " ".join(filter(None, (all_text(child(one, "given-names")), all_text(child(one, "surname")))))
        for contrib in meta.iter()
        if name(contrib) == "contrib" and contrib.get("contrib-type") == "author"
        for one in children(contrib, "name")
    ]
    if names:
        data["authors"] = list(names[:50])
    return data


def _blocks(node: Node, builder: ArticleBuilder, *, floating: bool, parent: str | None = None) -> None:
    """The paragraphs, sections and floats of an element."""
    loose = Line()

    def end_loose() -> None:
        nonlocal loose
        builder.paragraph(loose)
        loose = Line()

    loose.add(node.text)
    for one in node:
        tag = name(one)
        if tag in _FLOATS or tag in _GROUPS:
            end_loose()
            _float(one, builder, floating=floating, parent=parent)
        elif tag in ("sec", "app", "ack", "boxed-text"):
            end_loose()
            title = all_text(child(one, "title")) or all_text(find(one, "title") if tag == "boxed-text" else None)
            builder.open_section(title)
            apart = one.get("sec-type") == "display-objects" or _KEPT_APART.fullmatch(title) is not None
            _blocks(one, builder, floating=floating or apart)
            builder.close_section()
        elif tag == "p":
            end_loose()
            _paragraph(one, builder, floating=floating)
        elif tag in ("title", "label"):
            pass  # the section has it already
        elif tag in _BLOCKS:
            end_loose()
            _blocks(one, builder, floating=floating)
        elif tag not in _SKIPPED:
            _inline(one, loose, [])
        loose.add(one.tail)
    end_loose()


def _paragraph(node: Node, builder: ArticleBuilder, *, floating: bool) -> None:
    """One paragraph; floats and lists inside it come after it."""
    line = Line()
    inside: list[Node] = []
    _inline(node, line, inside)
    builder.paragraph(line)
    for one in inside:
        if name(one) in _FLOATS or name(one) in _GROUPS:
            _float(one, builder, floating=floating, parent=None)
        else:
            _blocks(one, builder, floating=floating)


def _inline(node: Node, line: Line, inside: list[Node]) -> None:
    """The running text of an element; blocks inside it are collected for later."""
    tag, start = name(node), line.length
    if tag in _SKIPPED:
        return
    line.add(node.text)
    for one in node:
        own = name(one)
        if own in _FLOATS or own in _GROUPS or own in ("list", "def-list", "disp-quote", "boxed-text"):
            inside.append(one)
            line.add(" ")
        else:
            if own in ("break", "disp-formula"):
                line.add(" ")
            _inline(one, line, inside)
        line.add(one.tail)
    if tag == "xref":  # an id of something else, such as a reference, leads to no element
        for identifier in (node.get("rid") or "").split():
            line.link(identifier, start)


def _float(node: Node, builder: ArticleBuilder, *, floating: bool, parent: str | None) -> None:
    tag = name(node)
    identifier = node.get("id") or ""
    if tag in _GROUPS:
        caption = child(node, "caption")
        if caption is not None or child(node, "label") is not None:
            label, said = all_text(child(node, "label")), all_text(caption, _NO_TEXT)
            whole: Kind = "figure" if tag == "fig-group" else "table"
            builder.element(Element(identifier, whole, label, said), floating=floating)
            parent = identifier or None
        for one in children(node, *_FLOATS, *_GROUPS):
            _float(one, builder, floating=floating, parent=parent)
        return
    kind = _FLOATS[tag]
    graphic = find(node, "graphic", "media")
    image = attribute(graphic, "href") if graphic is not None else None
    caption = child(node, "caption")
    said = " ".join(filter(None, (all_text(one, _NO_TEXT) for one in caption))) if caption is not None else ""
    foot = " ".join(all_text(one, _NO_TEXT) for one in children(node, "table-wrap-foot"))
    cells = [all_text(one) for one in node.iter() if name(one) in ("th", "td")] if kind == "table" else []
    content = " ".join(filter(None, cells))[:TABLE_CHARS]
    label, caption_ = all_text(child(node, "label")), f"{said} {foot}".strip()
    made = Element(identifier, kind, label, caption_, image=image, parent=parent, content=content)
    builder.element(made, floating=floating)
    for inner in children(node, *_GROUPS, "fig"):
        _float(inner, builder, floating=floating, parent=identifier or None)
