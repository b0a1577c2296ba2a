"""What an index is made of: one that ccheck made, and one that it finds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...errors import InvalidData
from ...types import Document, Scalar, Value
from ..store import MAIN_VECTORS, Layout, analysis_key
from .mappings import ADDITIONAL, FORMAT, ID, OURS, SPARSE, TERMS

if TYPE_CHECKING:
    from ...settings import Settings

TITLES = ("title", "headline", "name", "paper_title", "doc_title", "subject")
TEXTS = ("abstract", "text", "body", "content", "summary", "body_text", "full_text", "fulltext", "passage", "chunk")
DATES = ("published", "publication_date", "published_at", "publication_time", "pub_date", "date", "published_date")
_TEXT_TYPES = ("text", "match_only_text")
_VECTOR_TYPES = ("dense_vector", "sparse_vector", "rank_vectors", "semantic_text")


@dataclass(frozen=True, slots=True)
class FieldNames:
    """Fields of an index that ccheck did not make; what is None is found from its mapping."""

    title: str | None = None
    text: tuple[str, ...] | None = None
    vector: str | None = None


def field_names_from(settings: Settings) -> FieldNames:
    """The fields that the settings name."""
    return FieldNames(
        settings.elasticsearch_title_field, settings.elasticsearch_text_fields, settings.elasticsearch_vector_field
    )


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a mapping. `nested`: it lies in nested documents. `indexed`: as vector, a kNN search can use it."""

    type: str
    dimensions: int | None = None
    similarity: str = "cosine"
    keyword: str | None = None
    nested: bool = False
    indexed: bool = True


@dataclass(frozen=True, slots=True)
class Index:
    """An index, or an alias with what is behind it. `name` is how messages call it.

    `searched` has the index's fields for each field that a claim can be searched in: title, text and content, which is
    both, and the additional texts. `vector` is the main field of embeddings, `vectors` has all of them by the names
    that a recipe can use, `terms` those of analyses by their keys, `sparse` is that of sparse vectors. `id` is a field
    that repeats the documents' ids. `source` is what is read of a document, in the form of `_source`.
    """

    name: str
    concrete: tuple[str, ...]
    is_alias: bool
    made_here: bool
    layout: Layout
    meta: Mapping[str, Any]
    fields: Mapping[str, Field]
    title: str | None
    text: tuple[str, ...]
    searched: Mapping[str, tuple[str, ...]]
    vector: str | None
    published: str | None
    vectors: Mapping[str, str] = field(default_factory=dict)
    terms: Mapping[str, str] = field(default_factory=dict)
    sparse: str | None = None
    id: str | None = None
    source: Mapping[str, list[str]] = field(default_factory=dict)

    @property
    def dimensions(self) -> int | None:
        return self.fields[self.vector].dimensions if self.vector else None


def read_index(name: str, mappings: Mapping[str, Any], names: FieldNames, where: str) -> Index:
    """Understand what `GET /NAME/_mapping` answered; `where` is how messages call it.

    Raises InvalidData for an index of a later ccheck, and where no text field can be found.
    """
    concrete = tuple(sorted(mappings))
    metas = [mappings[index]["mappings"].get("_meta", {}).get(OURS) for index in concrete]
    is_alias = name not in mappings
    fields: dict[str, Field] = {}
    for index in concrete:
        fields |= dict(_fields(mappings[index]["mappings"].get("properties", {})))
    ours = {
        index: meta for index, meta in zip(concrete, metas, strict=True) if isinstance(meta, dict) and "format" in meta
    }
    if ours and len(concrete) > 1:
        raise InvalidData(
            f"{where} stands for {len(concrete)} indices ({', '.join(concrete)}), and ccheck made "
            f"{', '.join(ours)}: a store is one index. A rollover adds an index, for example. Take the others off the "
            "alias (POST _aliases), or name one index by --store"
        )
    if ours:
        return _made_here(concrete, is_alias, ours[concrete[0]], fields, where)
    return _found(concrete, is_alias, fields, names, where)


def _made_here(
    concrete: tuple[str, ...], is_alias: bool, meta: Mapping[str, Any], fields: Mapping[str, Field], where: str
) -> Index:
    try:
        layout = Layout.from_dict(meta.get("layout") or {})
        readable = int(meta["format"]) <= FORMAT
    except (KeyError, TypeError, ValueError):
        readable = False
    if not readable:
        raise InvalidData(
            f"{where} was made by ccheck {meta.get('version')} in a format that this one can't read: upgrade ccheck"
        )
    vectors = {name: f"{name}.vector" for name in layout.dense_fields if f"{name}.vector" in fields}
    keys = [analysis_key(analysis) for analysis in layout.analyses]
    additional = {ADDITIONAL: (ADDITIONAL,)} if layout.additional is not None and ADDITIONAL in fields else {}
    return Index(
        name=where,
        concrete=concrete,
        is_alias=is_alias,
        made_here=True,
        layout=layout,
        meta=meta,
        fields=fields,
        title="title",
        text=("text",),
        searched={"content": ("content",), "title": ("title",), "text": ("text",)} | additional,
        vector=vectors.get(MAIN_VECTORS),
        published="published.day",
        vectors=vectors,
        terms={key: f"{TERMS}.{key}" for key in keys if f"{TERMS}.{key}" in fields},
        sparse=SPARSE if layout.sparse is not None and SPARSE in fields else None,
        id=ID if ID in fields else None,
        source={"includes": ["title", "text", "metadata", "published"]},
    )


def _found(
    concrete: tuple[str, ...], is_alias: bool, fields: Mapping[str, Field], names: FieldNames, where: str
) -> Index:
    texts = [name for name, known in fields.items() if known.type in _TEXT_TYPES and not known.nested]
    vectors = [name for name, known in fields.items() if known.type == "dense_vector" and known.indexed]
    title = names.title or next(_named(TITLES, texts), None)
    text = names.text or tuple(_named(TEXTS, texts)) or tuple(name for name in texts if name != title)
    vector = names.vector or next(iter(vectors), None)
    for name in (title, *text, vector):
        if name is not None and name not in fields:
            raise InvalidData(
                f"{where} has no field {name!r}; its text fields are {', '.join(texts) or 'none'}, its vectors "
                f"{', '.join(vectors) or 'none'}"
            )
    if not text and title is None:
        raise InvalidData(f"{where} has no text field that could be searched")
    heavy = [name for name, known in fields.items() if known.type in _VECTOR_TYPES]
    content = tuple(dict.fromkeys([*([title] if title else []), *text]))
    return Index(
        name=where,
        concrete=concrete,
        is_alias=is_alias,
        made_here=False,
        layout=Layout(),
        meta={},
        fields=fields,
        title=title,
        text=text,
        searched={name: (name,) for name in texts}
        | {"content": content, "title": (title,) if title else (), "text": text},
        vector=vector,
        published=next(_named(DATES, [name for name, known in fields.items() if known.type == "date"]), None),
        vectors={name: name for name in [*([vector] if vector else []), *vectors]},
        source={"excludes": heavy} if heavy else {},
    )


def _named(wanted: Iterable[str], names: Iterable[str]) -> Iterator[str]:
    """Those of `names` whose last part is wanted, in the order of `wanted`."""
    names = list(names)
    for want in wanted:
        yield from (name for name in names if name.rpartition(".")[2].lower() == want)


def _fields(properties: Mapping[str, Any], prefix: str = "", nested: bool = False) -> Iterator[tuple[str, Field]]:
    """Every field below `properties` by its full name; subfields too."""
    for name, mapping in properties.items():
        path, type_ = prefix + name, mapping.get("type", "object")
        yield from _fields(mapping.get("properties", {}), f"{path}.", nested or type_ == "nested")
        if type_ in ("object", "nested"):
            continue
        subfields = mapping.get("fields", {})
        keyword = next((f"{path}.{sub}" for sub in subfields if subfields[sub].get("type") == "keyword"), None)
        indexed = mapping.get("index", True) and mapping.get("element_type", "float") in ("float", "bfloat16")
        yield path, Field(type_, mapping.get("dims"), mapping.get("similarity", "cosine"), keyword, nested, indexed)


# -- documents


def document(index: Index, id_: str, source: Mapping[str, Any]) -> Document:
    """A document from its `_source`."""
    if index.made_here:
        # Somebody else can have written it, with any value that the mapping takes.
        metadata, published = source.get("metadata"), source.get("published")
        return Document(
            id_,
            _text(source.get("title")),
            _text(source.get("text")),
            flatten(metadata) if isinstance(metadata, dict) else {},
            published[:10] if isinstance(published, str) else None,
        )
    values = flatten(source)
    title = _text(values.pop(index.title, None)) if index.title else ""
    text = "\n\n".join(filter(None, (_text(values.pop(name, None)) for name in index.text)))
    published = values.get(index.published) if index.published else None
    return Document(id_, title, text, values, published[:10] if isinstance(published, str) else None)


def flatten(source: Mapping[str, Any], prefix: str = "") -> dict[str, Value]:
    """Nested objects' keys joined by dots; a list of objects becomes a list of each of their fields."""
    flat: dict[str, Value] = {}
    for key, value in source.items():
        if isinstance(value, dict):
            flat |= flatten(value, f"{prefix}{key}.")
        elif isinstance(value, list):
            scalars: list[Scalar] = []
            for item in value:
                if not isinstance(item, dict):
                    scalars.append(item if isinstance(item, Scalar) else str(item))
                    continue
                for inner, found in flatten(item, f"{prefix}{key}.").items():
                    already = flat.setdefault(inner, [])
                    if isinstance(already, list):
                        already.extend(found if isinstance(found, list) else [found])
            if scalars or not value:
                flat[prefix + key] = scalars
        else:
            flat[prefix + key] = value
    return flat


def _text(value: Value) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else "" if value is None else str(value)
