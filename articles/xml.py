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
    for entity in root.iter(etree.Entity):  # a named HTML reference becomes its text, a document's own nothing
        meant = html.unescape(str(entity.text))
        entity.tail = ("" if meant == entity.text else meant) + (entity.tail or "")
    etree.strip_elements(root, etree.Entity, with_tail=False)
    return root


def name(node: Node) -> str:
    """The name of an element without its namespace."""
    return str(node.tag).rpartition("}")[2]


def children(node: Node, *names: str) -> Iterator[Node]:
    """The child elements with one of these names, or all."""
    return (one for one in node if not names or name(one) in names)


def child(node: Node, *names: str) -> Node | None:
    """The first child element with one of these names."""
    return next(children(node, *names), None)


def find(node: Node, *wanted: str) -> Node | None:
    """The element itself or its first descendant with one of these names, in the order of the document."""
    return next(node.iter(*(f"{{*}}{one}" for one in wanted)), None)


def all_text(node: Node | None, skip: frozenset[str] = frozenset()) -> str:
    """The text of an element and of what is in it, white space as single spaces."""

    def pieces(one: Node) -> Iterator[str]:
        if name(one) not in skip:
            yield one.text or ""
            for inner in one:
                yield from pieces(inner)
                yield inner.tail or ""

    return " ".join("".join(pieces(node)).split()) if node is not None else ""


def attribute(node: Node, wanted: str) -> str | None:
    """The value of an attribute, whatever its namespace."""
    return next((str(value) for key, value in node.attrib.items() if str(key).rpartition("}")[2] == wanted), None)
