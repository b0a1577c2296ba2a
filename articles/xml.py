"""XML from strangers: no entities of their own, no network, no DTD, limits on size and depth."""

from __future__ import annotations

import html
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..core.errors import InvalidData

if TYPE_CHECKING:
    from lxml.etree import _Element as Node


def parse(data: bytes) -> Node:
    """The root of a document. Raises InvalidData, with line and column, if it is not well-formed XML."""
    from lxml import etree

    parser = etree.XMLParser(
        resolve_entities=False, no_network=True, load_dtd=False, dtd_validation=False, huge_tree=False,
        remove_comments=True, remove_pis=True, recover=False,
    )  # fmt: skip
    try:
        root = etree.fromstring(data, parser)
    except (etree.XMLSyntaxError, ValueError) as error:
        raise InvalidData(f"not well-formed XML: {error}") from error
    if root is None:
        raise InvalidData("not well-formed XML: it has no element")
    return root


def name(node: Node) -> str:
    """The name of an element without its namespace; empty for a comment or an instruction."""
    return node.tag.rpartition("}")[2] if isinstance(node.tag, str) else ""


def children(node: Node, *names: str) -> Iterator[Node]:
    """The child elements with one of these names, or all."""
    return (one for one in node if (own := name(one)) and (not names or own in names))


def child(node: Node, *names: str) -> Node | None:
    """The first child element with one of these names."""
    return next(children(node, *names), None)


def find(node: Node, *wanted: str) -> Node | None:
    """The element itself or its first descendant with one of these names, in the order of the document."""
    return next(node.iter(*(f"{{*}}{one}" for one in wanted)), None)


def entity(node: Node) -> str:
    """The text that a named HTML reference (&alpha;, &nbsp;) stands for; empty for a document's own entities."""
    said = str(node.text or "")
    meant = html.unescape(said)
    return "" if meant == said else meant


def is_entity(node: Node) -> bool:
    from lxml import etree

    return node.tag is etree.Entity


def all_text(node: Node | None, skip: frozenset[str] = frozenset()) -> str:
    """The text of an element and of what is in it, white space as single spaces."""
    parts: list[str] = []

    def walk(one: Node) -> None:
        if is_entity(one):
            parts.append(entity(one))
            return
        if name(one) in skip:
            return
        parts.append(one.text or "")
        for inner in one:
            walk(inner)
            parts.append(inner.tail or "")

    if node is not None:
        walk(node)
    return " ".join("".join(parts).split())


def attribute(node: Node, wanted: str) -> str | None:
    """The value of an attribute, whatever its namespace."""
    return next((str(value) for key, value in node.attrib.items() if str(key).rpartition("}")[2] == wanted), None)
