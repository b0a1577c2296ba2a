"""A page as a tree, for tests: strict where browsers guess."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser

HOSTILE = (
    "</script></style></title></p></mark></details>--><script>alert(1)</script><img src=x onerror=alert(1)>"
    "\"'`><svg/onload=alert(1)>{{ 7*7 }}{% raw %}&lt;b&gt;&amp;\u202e\u2066\u200f\x00\x1b[31m\x9b\r\ud800\ufffe<!--"
)
"""Text that breaks out of a page that does not escape it."""

VOID = {"meta", "link", "input", "br", "img"}


@dataclass
class Element:
    tag: str
    attributes: dict[str, str | None]
    children: list[Element | str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(child if isinstance(child, str) else child.text for child in self.children)

    @property
    def words(self) -> str:
        """The text with its white space as a browser shows it."""
        return " ".join(self.text.split())

    def all(self, tag: str = "", **wanted: str) -> list[Element]:
        """What is in it, by tag and attributes; `class_` is one of the classes."""
        class_ = wanted.pop("class_", None)
        return [
            one
            for one in self
            if tag in ("", one.tag)
            and all(one.attributes.get(name) == value for name, value in wanted.items())
            and (class_ is None or class_ in (one.attributes.get("class") or "").split())
        ]

    def one(self, tag: str = "", **wanted: str) -> Element:
        (found,) = self.all(tag, **wanted)
        return found

    def __iter__(self) -> Iterator[Element]:
        for child in self.children:
            if isinstance(child, Element):
                yield child
                yield from child


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open = [Element("", {})]

    def handle_decl(self, decl: str) -> None:
        assert decl == "DOCTYPE html"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(dict(attrs)) == len(attrs), (tag, attrs)
        element = Element(tag, dict(attrs))
        self.open[-1].children.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop().tag == tag

    def handle_data(self, data: str) -> None:
        self.open[-1].children.append(data)

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data}")


def parse(page: str) -> Element:
    """Fails where an element is not closed, an attribute is there twice, or there is a comment."""
    reader = _Reader()
    reader.feed(page)
    reader.close()
    assert [one.tag for one in reader.open] == [""]
    return reader.open[0].one("html")
