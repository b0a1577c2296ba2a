"""The fields of an index, and the values of a document's fields."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any, Final

from more_itertools import chunked

from ...core.layout import Layout
from ...core.types import Document, Scalar, Value
from ..filters import PUBLISHED, Kind
from .client import Client

TEXT_TYPES: Final = ("text", "match_only_text")
NUMBERS: Final = (
    "long", "integer", "short", "byte", "double", "float", "half_float", "scaled_float", "unsigned_long",
)  # fmt: skip
INTEGERS: Final = {
    name: (-(1 << bits), (1 << bits) - 1) for name, bits in {"long": 63, "integer": 31, "short": 15, "byte": 7}.items()
} | {"unsigned_long": (0, (1 << 64) - 1)}
"""The least and the greatest number that a field can hold. The server refuses to compare it with others."""
SEMANTIC: Final = "semantic_text"
"""The type of a field that the server itself embeds, claims too."""
VECTOR_TYPES: Final = ("dense_vector", "sparse_vector", "rank_vectors")
CONFLICT: Final = "conflict"
"""In place of a type: the indices behind an alias have several."""
COUNTED_AT_ONCE = 200
_METADATA: Final = "metadata."
_AS_NUMBER: Final = ".as_number"
_KINDS: dict[str, Kind] = {
    **dict.fromkeys(NUMBERS, "numbers"),
    **dict.fromkeys(("keyword", "constant_keyword", "wildcard", "version", "ip"), "text"),
    **dict.fromkeys(("text", "match_only_text"), "words"),
    **dict.fromkeys(("date", "date_nanos"), "dates"),
    "boolean": "booleans",
    "flattened": "keys",
}
DIGEST_IN_PLACE = "ccheck.digest"
"""What `ccheck index enrich --in-place` adds to a document beside its vector. It is not the document's own."""
_VAGUE = ("name", "subject")
"""Below an object they are an author's name, say, and no title."""
LANGUAGE = re.compile(r"\.[a-z]{2}$")

_TAG = re.compile(
    r"</?(?:a|b|br|blockquote|div|em|h[1-6]|hr|i|img|li|ol|p|span|strong|su[bp]|t[dhr]|table|ul)"
    r"(?:\s+[\w-]+=(?:\"[^\"<>]*\"|'[^'<>]*'))*\s*/?>",
    re.IGNORECASE,
)
"""A tag of HTML."""


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a mapping.

    `nested`: it lies in nested documents, in those of the path `within`. `indexed`: it can be searched, a vector by
    kNN. `in_source`: the mapping keeps it in `_source`. `keyword` and `words` are its multi-fields that keep it whole
    and that BM25 can search. A field of the type `alias` is described as the one that it stands for, `of`. `why`
    says how the indices of a `CONFLICT` differ.
    """

    type: str
    dimensions: int | None = None
    similarity: str = "cosine"
    keyword: str | None = None
    nested: bool = False
    indexed: bool = True
    in_source: bool = True
    why: str = ""
    within: str = ""
    words: tuple[str, ...] = ()
    of: str = ""


@dataclass(frozen=True, slots=True)
class Index:
    """An index, or an alias with what is behind it. `name` is how messages call it.

    `searched` has the index's fields for each field that a claim can be searched in: title, text and content, which is
    both, and the additional texts. `vector` is the main field of embeddings, `vectors` has all of them by the names
    that a recipe can use. `source` is what is read of a document, in the form of `_source`. Of an index that ccheck did
    not make `semantic` are the fields that the server embeds, `left_out` says why others are not used, and `notices`
    what of that its users should know; `group` is the field that tells the papers of chunks apart, with `chunks` for
    each on average, and `chunks_asked` in place of each.
    """

    name: str
    fields: Mapping[str, Field]
    title: str | None
    text: tuple[str, ...]
    searched: Mapping[str, tuple[str, ...]]
    vector: str | None
    published: str | None
    concrete: tuple[str, ...] = ()
    made_here: bool = False
    layout: Layout = field(default_factory=Layout)
    meta: Mapping[str, Any] = field(default_factory=dict)
    vectors: Mapping[str, str] = field(default_factory=dict)
    source: Mapping[str, list[str]] = field(default_factory=dict)
    semantic: tuple[str, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    notices: tuple[str, ...] = ()
    group: str | None = None
    chunks: float = 1.0
    chunks_asked: int = 1

    @property
    def dimensions(self) -> int | None:
        return self.fields[self.vector].dimensions if self.vector else None


def fields_of(mapping: Mapping[str, Any]) -> dict[str, Field]:
    """Every field of an index's mapping by its full name."""
    source = mapping.get("_source", {})
    fields = dict(_fields(mapping.get("properties", {}), source))
    return {name: replace(fields[one.of], of=one.of) if one.of in fields else one for name, one in fields.items()}


def _fields(
    properties: Mapping[str, Any], source: Mapping[str, Any], prefix: str = "", within: str = ""
) -> Iterator[tuple[str, Field]]:
    for name, mapping in properties.items():
        path, type_ = prefix + name, mapping.get("type", "object")
        yield from _fields(mapping.get("properties", {}), source, f"{path}.", path if type_ == "nested" else within)
        if type_ in ("object", "nested"):
            continue
        if type_ == "alias":
            yield path, Field(type_, of=mapping.get("path", ""))
            continue
        subfields = mapping.get("fields", {})
        words = tuple(f"{path}.{sub}" for sub, one in subfields.items() if one.get("type") in TEXT_TYPES)
        keyword = next((f"{path}.{sub}" for sub in subfields if subfields[sub].get("type") == "keyword"), None)
        indexed = mapping.get("index", True) and mapping.get("element_type", "float") in ("float", "bfloat16")
        similarity = mapping.get("similarity", "cosine") if type_ == "dense_vector" else "cosine"
        kept = _in_source(path, source)
        yield (
            path,
            Field(
                type_, mapping.get("dims"), similarity, keyword, bool(within), indexed, kept, within=within, words=words
            ),
        )


def _in_source(path: str, source: Mapping[str, Any]) -> bool:
    """Whether the mapping's `_source` keeps a field: it or an object above it can be named, with wildcards."""
    if source.get("enabled") is False or source.get("mode") == "disabled":
        return False
    parts = path.split(".")
    above = [".".join(parts[:end]) for end in range(1, len(parts) + 1)]

    def among(patterns: list[str]) -> bool:
        return any(fnmatchcase(one, pattern) for one in above for pattern in patterns)

    includes, excludes = source.get("includes") or [], source.get("excludes") or []
    return (not includes or among(includes)) and not among(excludes)


def by_last_part(wanted: Iterable[str], names: Iterable[str]) -> Iterator[str]:
    """Those of `names` whose last part but for a language is wanted, in the order of `wanted`, the least deep first."""
    by_depth = sorted(names, key=lambda name: name.count("."))
    for want in wanted:
        for name in by_depth:
            above, _, last = LANGUAGE.sub("", name).rpartition(".")
            if last.lower() == want and not (above and want in _VAGUE):
                yield name


# -- values


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


def words_of(text: str) -> str:
    """A text without what a copy of it can differ in: white space, and the parts that it was joined from."""
    return " ".join(text.split())


def text_of(value: Value) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else "" if value is None else str(value)


def without_tags(text: str) -> str:
    """A text of others with spaces in place of HTML's tags, so that offsets stay true."""
    return _TAG.sub(lambda tag: " " * len(tag[0]), text) if "</" in text else text


def document(index: Index, id_: str, source: Mapping[str, Any]) -> Document:
    """A document from its `_source`."""
    if index.made_here:
        # Somebody else can have written it, with any value that the mapping takes.
        metadata, published = source.get("metadata"), source.get("published")
        return Document(
            id_,
            text_of(source.get("title")),
            text_of(source.get("text")),
            flatten(metadata) if isinstance(metadata, dict) else {},
            published[:10] if isinstance(published, str) else None,
            _pages(source.get("pages")),
        )
    values = flatten(source)
    title = text_of(values.pop(_path(index, index.title), None)) if index.title else ""
    texts = [values.pop(_path(index, name), None) or values.pop(f"{name}.text", None) for name in index.text]
    # A list is one text, except of nested documents, which are passages.
    parts = [
        "\n\n".join(map(str, value)) if isinstance(value, list) and index.fields[name].nested else text_of(value)
        for name, value in zip(index.text, texts, strict=True)
    ]
    # A copy of a text, such as the one that the server itself embeds, is neither read twice nor metadata.
    different = {words_of(part): part for part in reversed(parts) if part}
    text = without_tags("\n\n".join(reversed(different.values())))
    values = {name: value for name, value in values.items() if words_of(text_of(value)) not in different}
    values.pop(DIGEST_IN_PLACE, None)
    published = values.get(index.published) if index.published else None
    return Document(id_, title, text, values, published[:10] if isinstance(published, str) else None)


def _pages(stored: Any) -> tuple[int, ...]:
    """Where pages begin, or nothing for what is not that."""
    starts = stored if isinstance(stored, list) and all(type(one) is int for one in stored) else []
    return tuple(starts) if starts[:1] == [0] and starts == sorted(starts) else ()


def _path(index: Index, name: str) -> str:
    """Where a field's value is in `_source`."""
    return index.fields[name].of or name


# -- what filters can compare


def field_kinds(client: Client, name: str, index: Index) -> dict[str, Kind]:
    """See `Store.fields`. Which fields are empty the server knows without looking at documents."""
    asked = {"fields": "*", "include_empty_fields": False, "filters": "-metadata"}
    types: Mapping[str, Mapping[str, Any]] = client.on_index("GET", name, "_field_caps", params=asked)["fields"]
    return dict(_made_here(client, name, types) if index.made_here else _found(index, types))


def _made_here(client: Client, name: str, types: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, Kind]]:
    """Every field of metadata is a keyword, with its number beside it if it is one."""
    if any(one == PUBLISHED or one.startswith(f"{PUBLISHED}.") for one in types):
        yield PUBLISHED, "dates"
    own = [one for one in types if one.startswith(_METADATA) and "keyword" in types[one]]
    numeric = [one for one in own if "double" in types.get(one + _AS_NUMBER, {})]
    with_text = _with_text(client, name, numeric)
    for one in own:
        if one == _METADATA + PUBLISHED:
            continue  # filters mean the document's own date by this name
        kind: Kind = "text" if one not in numeric else "either" if one in with_text else "numbers"
        yield one.removeprefix(_METADATA), kind


def _with_text(client: Client, name: str, fields: Sequence[str]) -> set[str]:
    """Those fields with numbers in which a document has something else."""
    found: set[str] = set()
    for some in chunked(fields, COUNTED_AT_ONCE):
        others = {
            str(place): {
                "bool": {
                    "filter": [{"exists": {"field": one}}],
                    "must_not": [{"range": {one + _AS_NUMBER: {"gte": -sys.float_info.max}}}],
                }
            }
            for place, one in enumerate(some)
        }
        body = {"size": 0, "track_total_hits": False, "aggs": {"others": {"filters": {"filters": others}}}}
        answer = client.search(name, body)
        buckets = answer["aggregations"]["others"]["buckets"]
        found |= {some[int(place)] for place, bucket in buckets.items() if bucket["doc_count"]}
    return found


def _found(index: Index, types: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, Kind]]:
    if index.published in types:
        yield PUBLISHED, "dates"
    for one, known in index.fields.items():
        if one == PUBLISHED == index.published or one not in types:
            continue
        kinds = {_KINDS.get(type_, "other") for type_ in types[one]}
        kind: Kind = kinds.pop() if len(kinds) == 1 else "mixed"
        if kind == "words" and known.keyword is not None:
            kind = "text"
        yield one, "nested" if known.nested else kind
