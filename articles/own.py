"""ccheck's own JSON for articles, which docs/articles.md describes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ..core.errors import InvalidData
from ..core.types import Value
from .builder import ArticleBuilder, Float
from .types import Article, Kind


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _OwnSection(_Strict):
    title: str = ""
    paragraphs: list[str] = []
    sections: list[_OwnSection] = []


class _OwnElement(_Strict):
    id: str
    label: str
    caption: str = ""
    kind: Kind | None = None
    image: str | None = None
    parent: str | None = None
    content: str = ""


class _OwnArticle(_Strict):
    id: str | None = None
    title: str = ""
    abstract: str = ""
    sections: list[_OwnSection] = Field(default=[])
    elements: list[_OwnElement] = []
    metadata: dict[str, str | int | float | bool | None] = {}


def is_own(value: Mapping[str, Any]) -> bool:
    """Whether it is one, among records of any kind, which have a text and may list the titles of its sections."""
    sections = value.get("sections")
    return (
        isinstance(sections, list)
        and "text" not in value
        and all(isinstance(one, dict) and ("paragraphs" in one or "sections" in one) for one in sections)
    )


def read_own(value: Mapping[str, Any], identifier: str) -> Article:
    """Raises InvalidData, naming the first field that does not fit."""
    try:
        own = _OwnArticle.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise InvalidData(f"{where}: {first['msg']} (docs/articles.md describes the format)") from error
    builder = ArticleBuilder()
    if own.abstract:
        builder.open_section("Abstract")
        builder.paragraph(own.abstract)
        builder.close_section()
    for section in own.sections:
        _section(section, builder)
    for one in own.elements:
        kind: Kind = one.kind or ("table" if one.label.lower().startswith("tab") else "figure")
        found = Float(one.id, kind, one.label, one.caption, one.image, one.parent, one.content)
        builder.element(found, floating=True)
    metadata: dict[str, Value] = dict(own.metadata)
    return builder.article(own.id or identifier, own.title, metadata)


def _section(section: _OwnSection, builder: ArticleBuilder) -> None:
    builder.open_section(section.title)
    for one in section.paragraphs:
        builder.paragraph(one)
    for inner in section.sections:
        _section(inner, builder)
    builder.close_section()
