"""The fields of a mapping, and the values of a document's fields."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final

from ...core.profiles import profile_of, weighted
from ...core.types import Scalar, Value

if TYPE_CHECKING:
    from ...core.settings import Settings

TEXT_TYPES: Final = ("text", "match_only_text")
NUMBERS: Final = (
    "long", "integer", "short", "byte", "double", "float", "half_float", "scaled_float", "unsigned_long",
)  # fmt: skip
SEMANTIC: Final = "semantic_text"
"""The type of a field that the server itself embeds, claims too."""
VECTOR_TYPES: Final = ("dense_vector", "sparse_vector", "rank_vectors")
CONFLICT: Final = "conflict"
"""In place of a type: the indices behind an alias have several."""
_VAGUE = ("name", "subject")
"""Below an object they are an author's name, say, and no title."""


@dataclass(frozen=True, slots=True)
class FieldNames:
    """Fields of an index that ccheck did not make; what is None is found from its mapping. See `StoreProfile`."""

    title: str | None = None
    text: tuple[str, ...] | None = None
    vector: str | None = None
    group: str | None = None
    model: str | None = None
    metadata: tuple[str, ...] | None = None
    id: str | None = None
    weights: Mapping[str, float] = field(default_factory=dict)


def field_names_from(settings: Settings, store: str, index: str) -> FieldNames:
    """The fields that the settings name for a store: its profile's, or those of settings for all stores."""
    profile = profile_of(settings.stores, store, index)
    title = settings.elasticsearch_title_field or profile.title
    texts = settings.elasticsearch_text_fields or profile.text
    weights = dict(map(weighted, [*([title] if title else []), *(texts or ())]))
    return FieldNames(
        weighted(title)[0] if title else None,
        tuple(weighted(name)[0] for name in texts) if texts is not None else None,
        settings.elasticsearch_vector_field or profile.vector,
        profile.group,
        profile.model,
        profile.metadata,
        profile.id,
        weights,
    )


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a mapping.

    `nested`: it lies in nested documents, in those of the path `within`. `indexed`: it can be searched, a vector by
    kNN. `in_source`: the mapping keeps it in `_source`. `keyword` and `words` are its multi-fields that keep it whole
    and that BM25 can search. A field of the type `alias` is described as the one that it stands for, `of`. Of a
    `CONFLICT`, `why` has the words and `types` the types that it has.
    """

    type: str
    dimensions: int | None = None
    similarity: str = "cosine"
    keyword: str | None = None
    nested: bool = False
    indexed: bool = True
    in_source: bool = True
    why: str = ""
    types: frozenset[str] = frozenset()
    within: str = ""
    words: tuple[str, ...] = ()
    of: str = ""


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
    """Those of `names` whose last part is wanted, in the order of `wanted`, the least deep first."""
    by_depth = sorted(names, key=lambda name: name.count("."))
    for want in wanted:
        for name in by_depth:
            above, _, last = name.rpartition(".")
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
