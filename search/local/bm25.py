"""BM25 with tantivy. The index is derived: it follows the database and can be thrown away.

A folder with an index is written once. Its successor is written to a new folder, which shares the files that stay
(tantivy never changes a file), and the database names that folder once it is complete. So readers always have the index
that matches what they read in the database, and no crash leaves an index that is ahead of it.
"""

from __future__ import annotations

import functools
import json
import math
import os
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ...core import analysis as words
from ...core.errors import InvalidData, UsageError
from ...core.layout import Layout, analysis_key
from ...core.stages import Analysis, Bm25
from ...core.types import document_text
from .files import DOCUMENTS, UNIT_BITS, Damaged, link, make_folder

if TYPE_CHECKING:
    import tantivy

FIELDS = ("content", "title", "text")
ADDITIONAL = "additional"
TIE = 0.3
"""When several fields are searched, the share of each field's score beside that of the best one."""
HEAP_BYTES = 128 << 20
_FEW = 20_000
"""Up to so many allowed documents are part of the query. Above, the ranking is read until enough have passed."""

Row: TypeAlias = Mapping[str, str | int]
"""The values of a document or a unit that are indexed, by field."""


@dataclass(frozen=True, slots=True)
class TextFields:
    """The fields of an index: `FIELDS` and these for documents, or those of `units`."""

    additional: bool = False
    analyses: tuple[Analysis, ...] = ()
    units: bool = False

    @classmethod
    def of(cls, layout: Layout, name: str = DOCUMENTS) -> TextFields:
        """Those of the index of that name."""
        if name != DOCUMENTS:
            return UNIT_FIELDS
        # Sorted, because the order of the analyses does not matter to the index.
        return cls(layout.additional is not None, tuple(sorted(layout.analyses, key=terms_field)))

    @property
    def names(self) -> tuple[str, ...]:
        if self.units:
            return ("content",)
        return (*FIELDS, *([ADDITIONAL] if self.additional else []))

    @property
    def document(self) -> str:
        """The field with the seq of the document."""
        return "document" if self.units else "seq"

    @property
    def bits(self) -> int:
        """How many bits the `seq` of a row has after the seq of its document."""
        return UNIT_BITS if self.units else 0

    def document_row(self, seq: int, title: str, text: str, additional: Sequence[str]) -> Row:
        found: dict[str, str | int] = {"seq": seq, "title": title, "text": text}
        found["content"] = document_text(title, text)
        if self.additional:
            found[ADDITIONAL] = "\n".join(additional)
        return found | {terms_field(analysis): words.terms_text(analysis, title, text) for analysis in self.analyses}


UNIT_FIELDS = TextFields(units=True)


def terms_field(analysis: Analysis) -> str:
    """The name of the field that holds the terms of an analysis."""
    return f"terms_{analysis_key(analysis)}"


def write(folder: Path, fields: TextFields, added: Iterable[Row], removed: Sequence[int], old: Path | None) -> None:
    """Make an index in a new folder: the one in `old` with some rows added and others removed, in one commit.

    `removed` are seqs of documents. Files of `old` that stay are shared. Raises OSError or Damaged if anything fails;
    the folder is unusable then.
    """
    import tantivy

    make_folder(folder)
    if old is not None:
        for file in (file for file in old.iterdir() if file.suffix != ".lock"):
            link(file, folder / file.name)
    schema = _schema(fields)
    with sheltered(folder):
        writer = _open(folder, fields).writer(HEAP_BYTES, 1)
        try:
            for row in added:
                writer.add_document(tantivy.Document.from_dict(dict(row), schema))
            if removed:
                writer.delete_documents_by_query(tantivy.Query.term_set_query(schema, fields.document, list(removed)))
            writer.commit()
            writer.wait_merging_threads()
        finally:
            del writer


def removed_in(folder: Path) -> tuple[int, int]:
    """How many removed documents or units are still in an index's statistics, and how many others it has."""
    segments = json.loads((folder / "meta.json").read_bytes())["segments"]
    removed = sum(segment["deletes"]["num_deleted_docs"] for segment in segments if segment["deletes"])
    return removed, sum(segment["max_doc"] for segment in segments) - removed


@contextmanager
def sheltered(folder: Path) -> Iterator[None]:
    """Turn tantivy's errors and panics into Damaged. Errors of the rows that it is given pass through."""
    try:
        yield
    except InvalidData:
        raise
    except BaseException as error:
        if not isinstance(error, ValueError) and not is_panic(error):
            raise
        raise Damaged(folder, f"can't be used as a BM25 index: {error}", derived=True) from error


def is_panic(error: BaseException) -> bool:
    """Whether this is a panic in tantivy: pyo3's class derives from BaseException, and no module exports it."""
    return type(error).__name__ == "PanicException"


def _open(folder: Path, fields: TextFields) -> tantivy.Index:
    import tantivy

    index = tantivy.Index(_schema(fields), str(folder), reuse=True)
    # Without this, a thread watches the folder and reads the files of each commit, whoever changes them meanwhile.
    index.config_reader("manual")
    index.register_tokenizer("ccheck", words.analyzer())
    whitespace = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.whitespace()).build()
    index.register_tokenizer("terms", whitespace)
    return index


def open_index(folder: Path, fields: TextFields) -> Bm25View:
    """The index in a folder that does not change any more. Raises Damaged, derived, unless it has these fields."""
    links, readable = None, folder
    if not os.access(folder, os.W_OK):
        # tantivy needs a lock even to read, so it gets a temporary folder with links to these files.
        links = tempfile.TemporaryDirectory(prefix="ccheck-bm25-")
        readable = Path(links.name)
        for file in (file for file in folder.iterdir() if file.suffix != ".lock"):
            (readable / file.name).symlink_to(file.absolute())
    with sheltered(folder):
        return Bm25View(_schema(fields), _open(readable, fields).searcher(), fields, links)


@dataclass(frozen=True, slots=True)
class Bm25View:
    """An index of documents by seq, or of units by id, as it was when this was made. For any number of threads."""

    schema: tantivy.Schema
    searcher: tantivy.Searcher
    fields: TextFields
    links: tempfile.TemporaryDirectory[str] | None = None
    dictionaries: dict[str, Dictionary] = field(default_factory=dict)

    def check(self, retriever: Bm25) -> None:
        """Raise UsageError for a field that no index has."""
        unknown = [name for name in retriever.fields if name not in self.fields.names]
        if unknown:
            raise UsageError(
                f"the store has no text field {unknown[0]!r}. Its fields are {', '.join(self.fields.names)}"
            )

    def search(self, text: str, retriever: Bm25, allowed: NDArray[np.bool_] | None = None) -> list[tuple[int, float]]:
        """The best documents or units as (seq or id, score), best first.

        `allowed[seq]` says whether a document, or its units, may be found.
        """
        import tantivy

        query, depth = self._query(text, retriever), retriever.depth
        if query is None:
            return []
        if allowed is None:
            return self._top(query, depth)
        if int(allowed.sum()) <= _FEW:
            seqs = np.flatnonzero(allowed).tolist()
            these = tantivy.Query.term_set_query(self.schema, self.fields.document, seqs)
            among = tantivy.Query.const_score_query(these, 0.0)
            both = tantivy.Query.boolean_query([(tantivy.Occur.Must, query), (tantivy.Occur.Must, among)])
            return self._top(both, depth)
        limit = depth
        while True:
            limit *= 4
            hits = self._top(query, limit)
            passed = [hit for hit in hits if allowed[hit[0] >> self.fields.bits]]
            if len(passed) >= depth or len(hits) < limit:
                return passed[:depth]

    def _top(self, query: tantivy.Query, depth: int) -> list[tuple[int, float]]:
        """The best rows. Equal scores are in the order of ingestion, also at the end of the ranking."""
        limit = depth + 1
        while True:
            hits = self.searcher.search(query, limit, count=False).hits
            if len(hits) < limit or hits[-1][0] < hits[depth - 1][0]:
                break
            limit *= 4  # those that are equal to the last are not all here: tantivy orders them in its own way
        seqs = self.searcher.fast_field_values("seq", [address for _, address in hits])
        found = [(int(seq or 0), score) for seq, (score, _) in zip(seqs, hits, strict=True)]
        return sorted(found, key=lambda hit: (-hit[1], hit[0]))[:depth]

    def _query(self, text: str, retriever: Bm25) -> tantivy.Query | None:
        import tantivy

        # Not tantivy's query parser: it fails on quotes, brackets, colons, and many words.
        asked = Counter(words.query_terms(text, retriever.analysis))
        boosts: Mapping[str, float] = retriever.fields
        if retriever.analysis is not None:
            boosts = {terms_field(retriever.analysis): retriever.fields["content"]}
        by_field = []
        for name, boost in boosts.items():
            clauses = []
            for term, times in asked.items():
                for near, weight in self._expanded(name, term, retriever):
                    query = tantivy.Query.term_query(self.schema, name, near, index_option="freq")
                    if times * boost * weight != 1:
                        query = tantivy.Query.boost_query(query, times * boost * weight)
                    clauses.append((tantivy.Occur.Should, query))
            if clauses:
                by_field.append(tantivy.Query.boolean_query(clauses))
        if len(by_field) <= 1:
            return by_field[0] if by_field else None
        return tantivy.Query.disjunction_max_query(by_field, TIE)

    def _expanded(self, name: str, term: str, retriever: Bm25) -> list[tuple[str, float]]:
        """The terms that stand for a term of the claim, with their weights."""
        edits = allowed_edits(term, retriever.fuzziness)
        if edits == 0:
            return [(term, 1.0)]
        if name not in self.dictionaries:
            self.dictionaries[name] = Dictionary(self.searcher.terms_with_prefix(name, ""), self.searcher.num_docs)
        return self.dictionaries[name].expand(term, edits)


def _schema(fields: TextFields) -> tantivy.Schema:
    import tantivy

    builder = tantivy.SchemaBuilder().add_unsigned_field("seq", indexed=True, fast=True)
    if fields.units:
        builder = builder.add_unsigned_field("document", indexed=True)
    for name in fields.names:
        builder = builder.add_text_field(name, tokenizer_name="ccheck", index_option="freq")
    for analysis in fields.analyses:
        builder = builder.add_text_field(terms_field(analysis), tokenizer_name="terms", index_option="freq")
    return builder.build()


# -- fuzzy matching

MAX_EXPANSIONS = 50
MAX_LENGTH = 255
"""Longer terms match exactly only; Lucene indexes none."""
_KEPT = 50_000
"""How many expansions are remembered."""


def allowed_edits(term: str, fuzziness: Literal["auto", 0, 1, 2]) -> int:
    """How many edits may lie between a term and another; `auto`: none up to 2 characters, 1 up to 5, else 2."""
    if fuzziness != "auto":
        return fuzziness
    return 0 if len(term) < 3 else 1 if len(term) < 6 else 2


class Dictionary:
    """The terms of one field with the number of documents that have them: finds those near a term of a claim, weighted
    as in a fuzzy match query of Elasticsearch.

    There a term of the claim stands for those of the index within some edits (insertion, deletion, substitution, or the
    swap of two neighbours: optimal string alignment), at most 50 of them, the nearest first and then by their bytes
    (Lucene's FuzzyQuery). Each has the boost 1 - edits / length of the shorter one, and all are weighed as if they were
    as frequent as the most frequent of them (the rewrite `top_terms_blended_freqs_50`), so that a rare misspelling in
    the index does not outweigh the word itself. If two words of the claim stand for one term, their shares are summed;
    Lucene adds their boosts and weighs both like one of the two, whichever its hashes, which differ from process to
    process, bring first. https://lucene.apache.org/core/10_0_0/core/org/apache/lucene/search/FuzzyQuery.html
    """

    def __init__(self, terms: Sequence[tuple[str, int]], documents: int) -> None:
        lengths = np.fromiter((len(term) for term, _ in terms), np.int64, len(terms))
        order = np.argsort(lengths, kind="stable")
        self._terms = [terms[place][0] for place in order.tolist()]
        self._frequencies = np.fromiter((count for _, count in terms), np.int64, len(terms))[order]
        self._lengths = lengths[order]
        self._codes = np.frombuffer("".join(self._terms).encode("utf-32-le"), np.uint32)
        self._starts = np.cumsum(self._lengths) - self._lengths
        self._signs = np.bitwise_or.reduceat(_bits(self._codes), self._starts) if terms else np.zeros(0, np.uint64)
        self._documents = documents
        self.expand = functools.lru_cache(_KEPT)(self._expand)
        """From a term of the claim and its edits to the terms that it stands for, with factors for their scores."""

    def _expand(self, term: str, edits: int) -> list[tuple[str, float]]:
        if not 0 < len(term) <= MAX_LENGTH:
            return [(term, 1.0)]
        places, distances = self._near(term, edits)
        shorter = np.minimum(self._lengths[places], len(term))
        boosts = np.where(distances == 0, 1.0, 1.0 - distances / shorter)
        found = [(self._terms[place], place, boost) for place, boost in zip(places.tolist(), boosts, strict=True)]
        found.sort(key=lambda one: (-one[2], one[0].encode()))
        found = found[:MAX_EXPANSIONS]
        if not found:
            return []
        frequencies = self._frequencies[[place for _, place, _ in found]]
        common = self._idf(int(frequencies.max()))
        return [
            (near, float(boost) * common / self._idf(frequency))
            for (near, _, boost), frequency in zip(found, frequencies.tolist(), strict=True)
            if boost > 0
        ]

    def _idf(self, frequency: int) -> float:
        # Documents that are gone count in a term's frequency until segments merge.
        documents = max(self._documents, frequency)
        return math.log(1 + (documents - frequency + 0.5) / (frequency + 0.5))

    def _near(self, term: str, edits: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The places of the terms within so many edits, and the edits."""
        codes = np.frombuffer(term.encode("utf-32-le"), np.uint32)
        first, last = np.searchsorted(self._lengths, [len(term) - edits, len(term) + edits + 1])
        # Each edit brings in or takes away one character at most.
        sign = np.bitwise_or.reduce(_bits(codes))
        signs = self._signs[first:last]
        similar = (np.bitwise_count(signs & ~sign) <= edits) & (np.bitwise_count(sign & ~signs) <= edits)
        places = np.flatnonzero(similar) + first
        if not len(places):
            return places, places
        distances = self._distances(places, codes, edits)
        near = distances <= edits
        return places[near], distances[near]

    def _distances(self, places: NDArray[np.int64], codes: NDArray[np.uint32], edits: int) -> NDArray[np.int64]:
        """The edits between each of these terms and `codes`, or more than `edits` where they are that many."""
        length, width = len(codes), len(codes) + edits
        lengths = self._lengths[places]
        columns = np.arange(width)
        inside = columns < lengths[:, None]
        others = self._codes[np.where(inside, self._starts[places][:, None] + columns, 0)]
        others = np.where(inside, others, 0).T.copy()  # by character, so that each is one run in memory
        far = np.full(len(places), edits + 1, np.int8)
        before: dict[int, NDArray[np.int8]] = {}
        above = {column: np.full(len(places), column, np.int8) for column in range(edits + 1)}
        for row in range(1, length + 1):
            here: dict[int, NDArray[np.int8]] = {}
            for column in range(max(0, row - edits), min(width, row + edits) + 1):
                if column == 0:
                    here[0] = np.full(len(places), row, np.int8)
                    continue
                same = others[column - 1] == codes[row - 1]
                cell = above.get(column - 1, far) + ~same
                cell = np.minimum(cell, above.get(column, far) + 1)
                cell = np.minimum(cell, here.get(column - 1, far) + 1)
                if row > 1 and column > 1 and column - 2 in before:
                    swapped = (others[column - 1] == codes[row - 2]) & (others[column - 2] == codes[row - 1])
                    cell = np.where(swapped, np.minimum(cell, before[column - 2] + 1), cell)
                here[column] = np.minimum(cell, far).astype(np.int8)
            before, above = above, here
        answer = np.full(len(places), edits + 1, np.int64)
        for column, cells in above.items():
            at_end = lengths == column
            answer[at_end] = cells[at_end]
        return answer


def _bits(codes: NDArray[np.uint32]) -> NDArray[np.uint64]:
    """A bit for each character, of 64; ASCII's letters and digits have their own."""
    return np.left_shift(np.uint64(1), ((codes + np.where(codes >= 97, 25, 0)) & 63).astype(np.uint64))
