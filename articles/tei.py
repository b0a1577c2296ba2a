"""TEI XML as GROBID writes it (https://grobid.readthedocs.io/en/latest/TEI-encoding-of-results/)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..core.types import Value
from .builder import TABLE_CHARS, ArticleBuilder, Line
from .types import Article, Element, Kind
from .xml import all_text, attribute, child, children, find, name

if TYPE_CHECKING:
    from lxml.etree import _Element as Node

_LABEL = re.compile(r"^\W*(?:fig(?:ure)?|tab(?:le)?)\.?\s*[A-Z]?\d+\s*[.:|]*\s*", re.IGNORECASE)


def is_tei(root: Node) -> bool:
    return name(root) == "TEI" or (name(root) == "teiCorpus" and find(root, "TEI") is not None)


def read_tei(root: Node, identifier: str) -> Article:
    """The first text of the document. GROBID keeps figures after the text: their place says nothing."""
    tei = root if name(root) == "TEI" else find(root, "TEI")
    assert tei is not None
    builder = ArticleBuilder()
    header, text = find(tei, "teiHeader"), child(tei, "text")
    abstract = find(header, "abstract") if header is not None else None
    if abstract is not None and all_text(abstract):
        builder.open_section("Abstract")
        _division(abstract, builder)
        builder.close_section()
    for part in children(text, "body", "back") if text is not None else ():
        _division(part, builder)
    statement = find(header, "titleStmt") if header is not None else None
    title = find(statement, "title") if statement is not None else None
    return builder.article(identifier, all_text(title), _metadata(header))


def _metadata(header: Node | None) -> dict[str, Value]:
    data: dict[str, Value] = {}
    if header is None:
        return data
    for one in header.iter():
        if name(one) == "idno" and one.get("type") == "DOI":
            data.setdefault("doi", all_text(one))
        elif name(one) == "date" and (year := re.match(r"\d{4}", one.get("when") or "")):
            data.setdefault("year", int(year[0]))
    return data


def _division(node: Node, builder: ArticleBuilder) -> None:
    for one in children(node):
        tag = name(one)
        if tag == "div":
            if one.get("type") in ("references", "bibliography"):
                continue
            builder.open_section(all_text(child(one, "head")))
            _division(one, builder)
            builder.close_section()
        elif tag == "figure":
            _figure(one, builder)
        elif tag in ("p", "item", "formula", "quote", "ab", "s"):
            line = Line()
            _inline(one, line)
            builder.paragraph(line)
        elif tag == "list":
            _division(one, builder)


def _inline(node: Node, line: Line) -> None:
    start = line.length
    line.add(node.text)
    for one in node:
        _inline(one, line)
        if name(one) == "s":
            line.add(" ")
        line.add(one.tail)
    if name(node) == "ref" and node.get("type") in ("figure", "table"):
        line.link((node.get("target") or "").removeprefix("#"), start)


def _figure(node: Node, builder: ArticleBuilder) -> None:
    kind: Kind = "table" if node.get("type") == "table" else "figure"
    head, number = all_text(child(node, "head")), all_text(child(node, "label"))
    label = f"{kind.capitalize()} {number}" if number else head
    said = all_text(child(node, "figDesc"))
    # The heading is usually the label, sometimes with the caption's first sentence after it.
    own, said = _LABEL.sub("", head), _LABEL.sub("", said)
    caption = said if not own or said.startswith(own) else f"{own} {said}"
    graphic = child(node, "graphic")
    cells = [all_text(one) for one in node.iter() if name(one) == "cell"]
    image = attribute(graphic, "url") if graphic is not None else None
    content = " ".join(filter(None, cells))[:TABLE_CHARS]
    one = Element(attribute(node, "id") or "", kind, label, caption, image=image, content=content)
    builder.element(one, floating=True)
