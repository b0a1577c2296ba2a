"""The structure of an index. If ccheck did not make it: which fields are searched and shown, and why others are not."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from ...core.errors import InvalidData
from ...core.layout import MAIN_VECTORS, Layout
from ...core.profiles import StoreProfile
from .client import Client
from .fields import (
    CONFLICT,
    LANGUAGE,
    NUMBERS,
    SEMANTIC,
    TEXT_TYPES,
    VECTOR_TYPES,
    Field,
    Index,
    by_last_part,
    fields_of,
    flatten,
    text_of,
)
from .mappings import ADDITIONAL, FORMAT, OURS, UNITS

TITLES = ("title", "headline", "name", "paper_title", "article_title", "doc_title", "subject")
TEXTS = (
    "abstract", "text", "body", "content", "page_content", "summary", "body_text", "full_text", "fulltext", "passage",
    "chunk",
)  # fmt: skip
DATES = ("published", "publication_date", "published_at", "publication_time", "pub_date", "date", "published_date")
TITLE_TYPES = (*TEXT_TYPES, "keyword", "constant_keyword", "wildcard")
"""The types of fields that can be shown as a title. BM25 searches only `TEXT_TYPES`."""
SAMPLED: Final = 10
"""How many documents of a field are read to learn what it holds."""
MOST_SAMPLED: Final = 100
"""How many fields are sampled so."""
WORDS = ("title", "text", "content")
"""The fields of words of every index that ccheck made."""
LEAST_WORDS, SHARE = 2.0, 0.25
"""A field that nobody named is a text where its values have more words than an identifier, on average, and at least a
share of those that the wordiest field has."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The contents of a field in a sample of documents that have it.

    `documents` says how many were looked at. `texts` are the field's texts in their `_source`.
    """

    documents: int
    texts: tuple[str, ...]

    @property
    def words(self) -> float:
        """The average number of words in a text."""
        return sum(len(text.split()) for text in self.texts) / len(self.texts) if self.texts else 0.0


Sampling = Callable[[Mapping[str, Field]], Mapping[str, Sample]]


def read_index(mappings: Mapping[str, Any], names: StoreProfile, where: str, sampling: Sampling) -> Index:
    """Understand what `GET /NAME/_mapping` answered for a name; `where` is how messages call it.

    `sampling` looks at documents of an index that ccheck did not make. Raises InvalidData for an index of a later
    ccheck, for an alias that mixes ccheck's indices with others, and if nothing can be searched.
    """
    concrete = tuple(sorted(mappings))
    fields = unified({index: fields_of(mappings[index]["mappings"]) for index in concrete})
    metas = {index: mappings[index]["mappings"].get("_meta", {}).get(OURS) for index in concrete}
    ours = {index: meta for index, meta in metas.items() if isinstance(meta, dict) and "format" in meta}
    if ours and len(concrete) > 1:
        raise InvalidData(
            f"{where} stands for {len(concrete)} indices ({', '.join(concrete)}), and ccheck made "
            f"{', '.join(ours)}: a store is one index. A rollover adds an index, for example. Remove the others from "
            "the alias (POST _aliases), or name one index with --store"
        )
    if ours:
        return _made_here(concrete, ours[concrete[0]], fields, where)
    return replace(choose(fields, names, sampling, where), concrete=concrete)


def _made_here(concrete: tuple[str, ...], meta: Mapping[str, Any], fields: Mapping[str, Field], where: str) -> Index:
    try:
        layout = Layout.from_dict(meta["layout"]) if meta.get("layout") else Layout()
        readable = int(meta["format"]) <= FORMAT
    except (AttributeError, KeyError, TypeError, ValueError):
        readable = False
    if not readable:
        raise InvalidData(
            f"{where} has a format that this version of ccheck can't read. ccheck {meta.get('version')} made it. "
            "Upgrade ccheck"
        )
    vectors = {name: f"{name}.vector" for name in layout.dense}
    named = [*vectors.values(), *(f"{UNITS}.{name}.vector" for name, one in layout.units.items() if one.embedding)]
    if lacking := [name for name in (*WORDS, *named) if name not in fields]:
        raise InvalidData(
            f"the mapping of {where} has no {', '.join(lacking)}. If a role of your key hides fields (field_security), "
            "let it show them. If the index was copied, copy its whole mapping. Otherwise, delete it and ingest again"
        )
    additional = {ADDITIONAL: (ADDITIONAL,)} if layout.additional is not None else {}
    return Index(
        name=where,
        concrete=concrete,
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
        source={"includes": ["title", "text", "metadata", "published", "pages"]},
    )


def unified(by_index: Mapping[str, Mapping[str, Field]]) -> dict[str, Field]:
    """The fields of all indices behind an alias. One that differs between them in what matters is a `CONFLICT`."""
    fields: dict[str, Field] = {}
    for mapped in by_index.values():
        for name, one in mapped.items():
            known = fields.setdefault(name, one)
            if known == one or known.type == CONFLICT:
                continue
            if _alike(known) == _alike(one):
                fields[name] = replace(
                    known,
                    keyword=known.keyword if known.keyword == one.keyword else None,
                    words=tuple(name for name in known.words if name in one.words),
                    indexed=known.indexed and one.indexed,
                    in_source=known.in_source and one.in_source,
                )
            else:
                differing = {index: some[name] for index, some in by_index.items() if name in some}
                said = ", ".join(f"{_described(one)} in {index}" for index, one in differing.items())
                nested = any(one.nested for one in differing.values())
                dimensions = next((one.dimensions for one in differing.values() if one.dimensions), None)
                fields[name] = Field(CONFLICT, dimensions, nested=nested, why=f"the indices differ: it is {said}")
    return fields


def choose(fields: Mapping[str, Field], names: StoreProfile, sampling: Sampling, where: str) -> Index:
    """How to search an index that ccheck did not make.

    BM25 searches the title and the text that are shown, as far as it can, unless a recipe names other fields. Raises
    InvalidData for a field of the settings that can't be used, and if there is nothing to search.
    """
    names, chosen_words = _without_multi_fields(fields, names)
    left_out = {name: why for name, one in fields.items() if (why := _why_not(name, one))}
    searchable = {name: how for name, one in fields.items() if (how := _searched_as(name, one))} | chosen_words
    searchable = {name: how for name, how in searchable.items() if name not in left_out}
    nested = [name for name in searchable if fields[name].nested]
    texts = [name for name in searchable if name not in nested]
    titles = [name for name, one in fields.items() if one.type in TITLE_TYPES and name not in left_out]
    semantic = [name for name, one in fields.items() if one.type == SEMANTIC and name not in left_out]
    vectors = [name for name, one in fields.items() if one.type == "dense_vector" and name not in left_out]
    _check_named(fields, names, left_out, where)

    wanted = [*(names.text or ()), *([names.title] if names.title else [])]
    likely = [*by_last_part(TITLES, titles), *by_last_part(TEXTS, texts), *semantic, *texts, *nested]
    samples = sampling({name: fields[name] for name in list(dict.fromkeys([*wanted, *likely]))[:MOST_SAMPLED]})
    empty = not any(sample.documents for sample in samples.values())
    nowhere = set() if empty else {name for name, sample in samples.items() if not sample.documents}
    for name, sample in samples.items():
        if sample.documents and not sample.texts:
            left_out[name] = "its text is not in _source (excluded, or copied there from other fields)"
        elif name in nowhere:
            left_out[name] = "no document has it"
    for name in wanted:
        if name in left_out and samples[name].documents:
            raise InvalidData(f"the field {name} of {where} can't be shown: {left_out[name]}. Name another field")

    shown = [name for name in texts if name not in left_out]
    title = names.title or next(by_last_part(TITLES, [name for name in titles if name not in left_out]), None)
    others = [name for name in shown if name != title]
    alike = LANGUAGE.sub("", title) if title is not None and names.title is None else None
    languages = [name for name in others if LANGUAGE.sub("", name) == alike]
    inner = {name: samples[name].words for name in nested if name in samples and name not in left_out}
    outer = {name: samples[name].words for name in others if name in samples}
    text = (
        names.text
        or tuple(by_last_part(TEXTS, others))
        or tuple(name for name in _wordiest(outer | inner) if name in outer)
        or tuple(name for name in semantic if name not in left_out)[:1]
        or tuple(by_last_part(TEXTS, inner))
        or _wordiest(inner)
        or tuple(others if empty else ())
    )
    for name in nested:
        if name not in text:
            left_out.setdefault(name, "it is in nested documents, and the index has other texts")
    held = {name: why for name, why in left_out.items() if name not in nowhere}
    notices = tuple(_notices(fields, held, where, text)) if names.text is None else ()
    words = tuple(
        name for name in dict.fromkeys([*([title] if title else []), *languages, *text]) if name in searchable
    )
    if not words and not semantic:
        said = "; ".join(f"{name}: {why}" for name, why in list(left_out.items())[:10])
        if fields and not any(one.in_source for one in fields.values()):
            raise InvalidData(
                f"{where} keeps no _source, so ccheck could find documents but not show their text. Index them again "
                "with _source, or into another index with ccheck ingest"
            )
        advice = (
            "Name its text fields in a profile of the settings ([stores])"
            if searchable
            else "BM25 searches fields of the type text: add one, such as a multi-field of a keyword (PUT "
            "INDEX/_mapping), and index the documents again (POST INDEX/_update_by_query)"
        )
        raise InvalidData(f"{where} has no text field that ccheck can search{f' ({said})' if said else ''}. {advice}")
    stood_for = {fields[name].of for name in (title, *text) if name}
    for name in texts:
        if name not in (title, *languages, *text) and name not in stood_for:
            words_held = samples[name].words if name in samples else 0
            few = f", {words_held:.0f} words on average" if words_held else ""
            left_out.setdefault(name, f"does not look like a text field{few}")
    for name in vectors[1:] if names.vector is None else [name for name in vectors if name != names.vector]:
        left_out[name] = "ccheck searches another field of vectors; a recipe's `field` can name this one"
    if title is not None and title not in texts:
        left_out[title] = f"shown as the title, but not searched: it is {_described(fields[title])}"
    vectors.sort(key=lambda name: name != names.vector)
    semantic.sort(key=lambda name: name != names.vector)
    published = next(by_last_part(DATES, [name for name, one in fields.items() if one.type == "date"]), None)
    searched: dict[str, tuple[str, ...]] = {
        name: (how,) for name, how in searchable.items() if name in texts or name in text
    }
    searched["content"] = tuple(searchable[name] for name in words)
    searched["title"] = tuple(searchable[name] for name in words if name == title)
    searched["text"] = tuple(searchable[name] for name in words if name in text)
    heavy = [name for name, known in fields.items() if known.type in VECTOR_TYPES]
    # Where a server keeps what it made of a text beside it.
    heavy += [f"{name}.inference" if name in text else name for name in semantic]
    source = {"excludes": heavy} if heavy else {}
    if names.metadata is not None:
        paths = [fields[one].of or one for one in (title, *text, published) if one is not None]
        source["includes"] = [*dict.fromkeys([*paths, *(f"{path}.text" for path in paths), *names.metadata])]
    return Index(
        name=where,
        fields=fields,
        title=title,
        text=text,
        searched=searched,
        vector=next(iter(vectors), None),
        published=published,
        vectors={name: name for name in (*vectors, *semantic)},
        source=source,
        semantic=tuple(semantic),
        left_out=left_out,
        notices=notices,
    )


def sampled(client: Client, name: str, fields: Mapping[str, Field]) -> Mapping[str, Sample]:
    """Looks at some documents that have a field, for each of these fields."""
    bodies: list[Mapping[str, Any]] = []
    for one, known in fields.items():
        path = known.of or one
        source = {"includes": [path, f"{path}.*"], "excludes": [f"{path}.inference"]}
        # A keyword ignores long values, which its words do not.
        query: dict[str, Any] = {"bool": {"should": [{"exists": {"field": name}} for name in (one, *known.words)]}}
        if known.within:
            query = {"nested": {"path": known.within, "query": query, "ignore_unmapped": True}}
        bodies.append({"query": query, "size": SAMPLED, "_source": source, "sort": ["_doc"]})
    samples: dict[str, Sample] = {}
    for (one, known), response in zip(fields.items(), client.searches(name, bodies), strict=True):
        hits = response["hits"]["hits"]
        values = (flatten(hit.get("_source", {})) for hit in hits)
        path = known.of or one
        found = (text_of(some.get(path, some.get(f"{path}.text"))) for some in values)
        samples[one] = Sample(len(hits), tuple(text for text in found if text.strip()))
    return samples


def _check_named(fields: Mapping[str, Field], names: StoreProfile, left_out: Mapping[str, str], where: str) -> None:
    """Raise InvalidData for a field of the settings that is not there or can't be used so."""
    wanted: list[tuple[str, tuple[str, ...], str]] = []
    worded = tuple(one.type for one in fields.values() if one.words)
    wanted += [(name, (*TEXT_TYPES, *worded), "BM25 finds no words in it") for name in names.text or ()]
    wanted += [(names.title, TITLE_TYPES, "it holds no text")] if names.title else []
    wanted += [(names.vector, ("dense_vector", SEMANTIC), "it holds no vectors")] if names.vector else []
    for name, types, otherwise in wanted:
        if name not in fields:
            texts = [one for one, known in fields.items() if known.type in TEXT_TYPES]
            vectors = [one for one, known in fields.items() if known.type == "dense_vector"]
            raise InvalidData(
                f"{where} has no field {name!r}. Its text fields are {', '.join(texts) or 'none'}, its vectors "
                f"{', '.join(vectors) or 'none'}"
            )
        why = left_out.get(name) or (
            f"it is {_described(fields[name])}: {otherwise}" if fields[name].type not in types else ""
        )
        if why:
            raise InvalidData(f"the field {name} of {where}, which the settings name, can't be used: {why}")


def _why_not(name: str, one: Field) -> str:
    """Why a field of text or vectors can't be used; empty if it can, and for fields that nobody takes for one."""
    if one.type == CONFLICT:
        return one.why
    if one.type == "dense_vector":
        return "" if one.indexed else "its vectors are not indexed"
    if one.type not in (*TEXT_TYPES, SEMANTIC) and not one.words:
        if _likely(name) and one.type not in VECTOR_TYPES:
            return f"it is {_described(one)}, in which BM25 finds no words"
        return "it is in nested documents" if one.nested else ""
    if one.nested and one.type not in TEXT_TYPES:
        return "it is in nested documents"
    if not one.indexed and not one.words:
        return "its words are not indexed"
    return "" if one.in_source or one.type == SEMANTIC else "its text is not kept in _source"


def _likely(name: str) -> bool:
    """Whether a field is called as texts are."""
    return name.rpartition(".")[2].lower() in TEXTS


def _wordiest(words: Mapping[str, float]) -> tuple[str, ...]:
    """The fields of the longest texts, the longest first."""
    most = max(words.values(), default=0.0)
    enough = [name for name, count in words.items() if count >= max(LEAST_WORDS, SHARE * most)]
    return tuple(sorted(enough, key=lambda name: -words[name]))


def _notices(
    fields: Mapping[str, Field], left_out: Mapping[str, str], where: str, text: Sequence[str]
) -> Iterator[str]:
    """Yields notices about left-out fields that somebody would look for, because of their names or their vectors."""
    for name, why in left_out.items():
        likely = _likely(name) and not (fields[name].nested and text)
        if likely or (fields[name].type == CONFLICT and fields[name].dimensions):
            yield f"the field {name} of {where} is left out: {why}"


def with_hidden(client: Client, name: str, index: Index, mappings: Mapping[str, Any]) -> Index:
    """The index with a notice about documents in indices behind the alias that have none of the fields of words."""
    words = {one for one in (index.title, *index.text) if one and one in index.searched}
    hidden = [one for one in index.concrete if words.isdisjoint(fields_of(mappings[one]["mappings"]))] if words else []
    if not hidden or not (many := client.count(name, {"terms": {"_index": hidden}})):
        return index
    notice = (
        f"BM25 can't find the documents in {', '.join(hidden)} ({many:,}), which have no {' or '.join(sorted(words))}. "
        "Name their text fields too, in a profile of the settings ([stores])"
    )
    return replace(index, notices=(*index.notices, notice))


def _alike(one: Field) -> tuple[object, ...]:
    """Returns the properties that fields of several indices must share to be searched and compared alike."""
    family = "number" if one.type in NUMBERS else "text" if one.type in TEXT_TYPES else one.type
    return family, one.nested, one.within, one.dimensions, one.similarity, one.of


def _searched_as(name: str, one: Field) -> str | None:
    """The name by which BM25 searches a field: its own, or that of a multi-field, as of a keyword."""
    if one.type in TEXT_TYPES:
        return name
    return one.words[0] if one.words and not one.nested else None


def _without_multi_fields(fields: Mapping[str, Field], names: StoreProfile) -> tuple[StoreProfile, dict[str, str]]:
    """The settings' names, a multi-field (`title.en`) replaced by its field, which is shown; and what is searched."""
    owners = {sub: name for name, one in fields.items() for sub in one.words}
    named = [*(names.text or ()), *([names.title] if names.title else [])]
    text = None if names.text is None else tuple(dict.fromkeys(owners.get(name, name) for name in names.text))
    title = owners.get(names.title, names.title) if names.title else None
    searched = {owners[name]: name for name in named if name in owners}
    return names.model_copy(update={"text": text, "title": title}), searched


def _described(one: Field) -> str:
    dimensions = f" of {one.dimensions} dimensions" if one.dimensions else ""
    similarity = f" ({one.similarity})" if one.dimensions and one.similarity != "cosine" else ""
    return f"{'nested ' if one.nested else ''}{one.type}{dimensions}{similarity}"


# -- which paper a chunk is of

Key = TypeVar("Key", bound=Hashable)

GROUPS = ("ref_doc_id", "source_id", "parent_id", "document_id", "paper_id", "doc_id", "parent", "source")
"""The names of fields in which LlamaIndex, Haystack, LangChain and others keep a chunk's paper."""
WHOLE_VALUES: Final = ("keyword", "constant_keyword", *NUMBERS)
LARGEST = 1_000
"""A field that nobody named groups chunks only if no group has more."""
FEWEST, MOST = 3, 50
"""How many chunks are asked for in place of each paper, at the least and at the most."""
_UNSURE = ("parent", "source")
"""They can also name a publisher or a data set; then their values do not look like a file, an address or an id."""
_ID = re.compile(r"[/\\.:#\d]")


def with_papers(client: Client, name: str, index: Index, named: str | None) -> Index:
    """The index with the field that groups its chunks, `named` or found; an empty name groups nothing.

    Raises InvalidData for a name that can't group.
    """
    if named == "":
        return index
    if named is not None:
        known = index.fields.get(named)
        paper = None if known is None else _whole(named, known)
        if paper is None:
            raise InvalidData(
                f"the field {named} of {index.name} can't group chunks: it "
                f"{'does not exist' if known is None else 'is not a keyword or number outside nested documents'}"
            )
        chunks, papers, _ = _counted(client, name, paper)
        return _grouped(index, paper, chunks / papers if papers else 1.0)
    wholes = {one: field for one, known in index.fields.items() if (field := _whole(one, known)) is not None}
    for one in by_last_part(GROUPS, wholes):
        field = wholes[one]
        chunks, papers, largest = _counted(client, name, field)
        vague = one.rpartition(".")[2] in _UNSURE and not all(map(_ID.search, largest))
        if not vague and 0 < papers < chunks and max(largest.values()) <= LARGEST:
            return _grouped(index, field, chunks / papers)
    return index


def by_paper(
    rankings: Mapping[str, list[tuple[Key, float]]], papers: Mapping[Key, Hashable], depths: Mapping[str, int]
) -> dict[str, list[tuple[Key, float]]]:
    """Rankings of papers instead of chunks: each is in place of its best chunk, to the depth of the retriever.

    In all rankings a paper goes by the same chunk: the one that a retriever ranked highest, at equal ranks the first
    retriever's. A chunk without a paper is one.
    """
    best: dict[str, dict[Hashable, tuple[Key, float]]] = {}
    shown: dict[Hashable, tuple[int, Key]] = {}
    for name, ranking in rankings.items():
        ranked: dict[Hashable, tuple[Key, float]] = {}
        for key, score in ranking:
            ranked.setdefault(papers.get(key, (key,)), (key, score))
        best[name] = dict(list(ranked.items())[: depths[name]])
        for rank, (paper, (key, _)) in enumerate(best[name].items()):
            if paper not in shown or rank < shown[paper][0]:
                shown[paper] = rank, key
    return {name: [(shown[paper][1], score) for paper, (_, score) in one.items()] for name, one in best.items()}


def _grouped(index: Index, field: str, each: float) -> Index:
    asked = min(max(FEWEST, math.ceil(2 * each)), MOST)
    return replace(index, group=field, chunks=each, chunks_asked=asked)


def _whole(name: str, known: Field) -> str | None:
    """The field whose values are told apart for that one: itself, or the keyword beside a text."""
    if known.nested or known.of:
        return None
    if known.type in TEXT_TYPES:
        return known.keyword
    return name if known.type in WHOLE_VALUES else None


def _counted(client: Client, name: str, field: str) -> tuple[int, int, dict[str, int]]:
    """How many documents have the field, about how many values it has, and those of the most documents."""
    aggs: dict[str, Any] = {
        "chunks": {"value_count": {"field": field}},
        "papers": {"cardinality": {"field": field}},
        "largest": {"terms": {"field": field, "size": 10}},
    }
    body = {"size": 0, "track_total_hits": False, "aggs": aggs}
    found = client.search(name, body)["aggregations"]
    largest = {str(one["key"]): int(one["doc_count"]) for one in found["largest"]["buckets"]}
    return int(found["chunks"]["value"]), int(found["papers"]["value"]), largest
