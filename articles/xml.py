"""Articles in XML: JATS, the format of PubMed Central and PLOS (https://jats.nlm.nih.gov), and TEI, as GROBID makes it.

Files are strangers': no entities of their own, no network, no DTD, limits on size and depth.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from ..core.errors import InvalidData, why_unread
from ..core.text import whole_number
from ..core.types import Value
from .builder import TABLE_CHARS, ArticleBuilder, Line
from .types import Article, Element, Kind

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
    for entity in root.iter(etree.Entity):  # a named HTML reference becomes its text, a document's own nothing
        meant = html.unescape(str(entity.text))
        entity.tail = ("" if meant == entity.text else meant) + (entity.tail or "")
    etree.strip_elements(root, etree.Entity, with_tail=False)
    return root


def name(node: Node) -> str:
    """The name of an element without its namespace."""
    return str(node.tag).rpartition("}")[2]


def children(node: Node | None, *names: str) -> Iterator[Node]:
    """The child elements with one of these names, or all. Nothing is in None, here and below."""
    return (one for one in (() if node is None else node) if not names or name(one) in names)


def child(node: Node | None, wanted: str) -> Node | None:
    """The first child element of this name."""
    return next(children(node, wanted), None)


def find(node: Node | None, *wanted: str) -> Node | None:
    """The element itself or its first descendant with one of these names, in the order of the document."""
    return None if node is None else next(node.iter(*(f"{{*}}{one}" for one in wanted)), None)


def all_text(node: Node | None, skip: frozenset[str] = frozenset()) -> str:
    """The text of an element and of what is in it, white space as single spaces."""

    def pieces(one: Node) -> Iterator[str]:
        if name(one) not in skip:
            yield one.text or ""
            for inner in one:
                yield from pieces(inner)
                yield inner.tail or ""

    return " ".join("".join(pieces(node)).split()) if node is not None else ""


def attribute(node: Node | None, wanted: str) -> str | None:
    """The value of an attribute, whatever its namespace."""
    held = () if node is None else node.attrib.items()
    return next((str(value) for key, value in held if str(key).rpartition("}")[2] == wanted), None)


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


def read_jats(article: Node, identifier: str) -> Article:
    """Raises InvalidData if it has no text."""
    builder = ArticleBuilder()
    meta = find(article, "article-meta")
    for abstract in children(meta, "abstract"):
        with builder.section(all_text(child(abstract, "title")) or "Abstract"):
            _blocks(abstract, builder, floating=False)
    for part in children(article, "body", "back"):
        _blocks(part, builder, floating=name(part) == "back")
    for group in children(article, "floats-group", "floats-wrap"):
        _blocks(group, builder, floating=True)
    title = all_text(find(meta, "article-title"), frozenset(("fn", "xref")))
    return builder.article(identifier, title, _metadata(meta, child(article, "front")))


def _metadata(meta: Node | None, front: Node | None) -> dict[str, Value]:
    data: dict[str, Value] = {}
    if meta is None:
        return data
    for one in children(meta, "article-id"):
        kind = one.get("pub-id-type")
        if kind in ("doi", "pmid", "pmc", "pmcid") and (said := all_text(one)):
            data[str(kind)] = said
    if (journal := find(front, "journal-title")) is not None:
        data["journal"] = all_text(journal)
    years = [whole_number(all_text(child(date, "year"))) for date in children(meta, "pub-date")]
    if years := [year for year in years if year is not None]:
        data["year"] = min(years)
    names = [
        " ".join(filter(None, (all_text(child(one, "given-names")), all_text(child(one, "surname")))))
        for one in meta.iterfind(".//{*}contrib[@contrib-type='author']/{*}name")
    ]
    if names:
        data["authors"] = list(names[:50])
    return data


def _blocks(node: Node, builder: ArticleBuilder, *, floating: bool) -> None:
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
            _float(one, builder, floating=floating)
        elif tag in ("sec", "app", "ack", "boxed-text"):
            end_loose()
            title = all_text(child(one, "title")) or all_text(find(one, "title") if tag == "boxed-text" else None)
            apart = one.get("sec-type") == "display-objects" or _KEPT_APART.fullmatch(title) is not None
            with builder.section(title):
                _blocks(one, builder, floating=floating or apart)
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
            _float(one, builder, floating=floating)
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


def _float(node: Node, builder: ArticleBuilder, *, floating: bool, parent: str | None = None) -> None:
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
    image = attribute(find(node, "graphic", "media"), "href")
    said = " ".join(filter(None, (all_text(one, _NO_TEXT) for one in children(child(node, "caption")))))
    foot = " ".join(all_text(one, _NO_TEXT) for one in children(node, "table-wrap-foot"))
    cells = [all_text(one) for one in node.iter() if name(one) in ("th", "td")] if kind == "table" else []
    content = " ".join(filter(None, cells))[:TABLE_CHARS]
    label, caption_ = all_text(child(node, "label")), f"{said} {foot}".strip()
    made = Element(identifier, kind, label, caption_, image=image, parent=parent, content=content)
    builder.element(made, floating=floating)
    for inner in children(node, *_GROUPS, "fig"):
        _float(inner, builder, floating=floating, parent=identifier or None)


# -- TEI

_LABEL = re.compile(r"^\W*(?:fig(?:ure)?|tab(?:le)?)\.?\s*[A-Z]?\d+\s*[.:|]*\s*", re.IGNORECASE)


def read_tei(tei: Node, identifier: str) -> Article:
    """GROBID keeps figures after the text: their place says nothing. Raises InvalidData if it has no text."""
    builder = ArticleBuilder()
    header = find(tei, "teiHeader")
    abstract = find(header, "abstract")
    if all_text(abstract):
        with builder.section("Abstract"):
            _division(abstract, builder)
    for part in children(child(tei, "text"), "body", "back"):
        _division(part, builder)
    return builder.article(identifier, all_text(find(find(header, "titleStmt"), "title")), _tei_metadata(header))


def _tei_metadata(header: Node | None) -> dict[str, Value]:
    data: dict[str, Value] = {}
    for one in header.iter() if header is not None else ():
        if name(one) == "idno" and one.get("type") == "DOI":
            data.setdefault("doi", all_text(one))
        elif name(one) == "date" and (year := re.match(r"\d{4}", one.get("when") or "")):
            data.setdefault("year", int(year[0]))
    return data


def _division(node: Node | None, builder: ArticleBuilder) -> None:
    for one in children(node):
        tag = name(one)
        if tag == "div":
            if one.get("type") in ("references", "bibliography"):
                continue
            with builder.section(all_text(child(one, "head"))):
                _division(one, builder)
        elif tag == "figure":
            _figure(one, builder)
        elif tag in ("p", "item", "formula", "quote", "ab", "s"):
            line = Line()
            _tei_inline(one, line)
            builder.paragraph(line)
        elif tag == "list":
            _division(one, builder)


def _tei_inline(node: Node, line: Line) -> None:
    start = line.length
    line.add(node.text)
    for one in node:
        _tei_inline(one, line)
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
    image = attribute(child(node, "graphic"), "url")
    cells = [all_text(one) for one in node.iter() if name(one) == "cell"]
    content = " ".join(filter(None, cells))[:TABLE_CHARS]
    one = Element(attribute(node, "id") or "", kind, label, caption, image=image, content=content)
    builder.element(one, floating=True)


FILE_BYTES = 64 << 20
FORMATS = "JATS XML and GROBID's TEI XML"
_ENDINGS = re.compile(r"(?:(?<=.)\.(?:gz|zst|xml|nxml|jats|tei))+$", re.IGNORECASE)


def parse_article(data: bytes, file: str) -> Article:
    """The first article of a file's bytes; `file` is its name. Its id is the name without the ending.

    Raises InvalidData if it can't be read as one.
    """
    if len(data) > FILE_BYTES:
        raise InvalidData(f"the file is too large: more than {FILE_BYTES:,} bytes")
    try:
        root = parse(data)
        if name(root) in ("TEI", "teiCorpus") and (tei := find(root, "TEI")) is not None:
            return read_tei(tei, article_id(file))
        if (article := find(root, "article")) is not None and find(root, "article-meta", "body") is not None:
            return read_jats(article, article_id(file))
    except Exception as error:
        raise InvalidData(why_unread(error)) from error
    raise InvalidData(f"XML of an unknown kind (its root element is {name(root)}). Read are {FORMATS}")


def article_id(file: str) -> str:
    """The name of a file without its folders and ending: `journal.pone.0001` for `a/journal.pone.0001.xml`."""
    return _ENDINGS.sub("", PurePosixPath(file.replace("\\", "/")).name)
