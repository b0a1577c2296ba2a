"""BM25 with tantivy. The index is derived: it follows the database and can be thrown away."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ... import analysis
from ...errors import UsageError

if TYPE_CHECKING:
    import tantivy

FIELDS = ("content", "title", "text")
TIE = 0.3
"""What a field adds that is not the best one, when several are searched."""
HEAP_BYTES = 128 << 20
_FEW = 20_000
"""Up to so many allowed documents are looked up by their number; above, the ranking is read until enough passed."""


class Bm25Index:
    """A tantivy index of documents by their seq."""

    def __init__(self, folder: Path, *, create: bool = False) -> None:
        import tantivy

        if create:
            folder.mkdir(parents=True, exist_ok=True)
        self._schema = _schema()
        if not os.access(folder, os.W_OK):
            # tantivy locks even to read: give it a folder of its own that leads to these files.
            self._links = tempfile.TemporaryDirectory(prefix="ccheck-bm25-")
            for file in (file for file in folder.iterdir() if file.suffix != ".lock"):
                Path(self._links.name, file.name).symlink_to(file.absolute())
            folder = Path(self._links.name)
        self._index = tantivy.Index(self._schema, str(folder), reuse=True)
        self._index.register_tokenizer("ccheck", analysis.analyzer())
        self._index.config_reader("manual")
        self._searcher = self._index.searcher()

    @staticmethod
    def exists(folder: Path) -> bool:
        import tantivy

        return folder.is_dir() and bool(tantivy.Index.exists(str(folder)))

    def reload(self) -> None:
        """See what has been committed since."""
        self._index.reload()
        self._searcher = self._index.searcher()

    def last(self) -> int:
        """The highest seq that is in the index; 0 where there is none."""
        import tantivy

        found = self._searcher.search(tantivy.Query.all_query(), 1, count=False, order_by_field="seq").hits
        return int(found[0][0]) if found else 0

    def update(self, added: Iterable[tuple[int, str, str]], removed: Sequence[int]) -> None:
        """Take in documents (seq, title, text) and leave out others, in one commit."""
        import tantivy

        writer = self._index.writer(HEAP_BYTES, 1)
        try:
            # A kill within a commit that had deletes leaves a file that makes the same commit fail for ever.
            writer.garbage_collect_files()
            for seq, title, text in added:
                content = f"{title}\n{text}"
                fields = {"seq": seq, "content": content, "title": title, "text": text}
                writer.add_document(tantivy.Document.from_dict(fields, self._schema))
            if removed:
                writer.delete_documents_by_query(tantivy.Query.term_set_query(self._schema, "seq", list(removed)))
            writer.commit()
            writer.wait_merging_threads()
        finally:
            del writer
        self.reload()

    def search(
        self,
        text: str,
        depth: int,
        fields: Mapping[str, float],
        allowed: NDArray[np.bool_] | None = None,
    ) -> list[tuple[int, float]]:
        """The `depth` best documents as (seq, score); `allowed[seq]` says which may be found."""
        import tantivy

        query = self._query(text, fields)
        if query is None:
            return []
        if allowed is None:
            return self._top(query, depth)
        if int(allowed.sum()) <= _FEW:
            seqs = np.flatnonzero(allowed).tolist()
            among = tantivy.Query.const_score_query(tantivy.Query.term_set_query(self._schema, "seq", seqs), 0.0)
            both = tantivy.Query.boolean_query([(tantivy.Occur.Must, query), (tantivy.Occur.Must, among)])
            return self._top(both, depth)
        limit = depth
        while True:
            limit *= 4
            hits = self._top(query, limit)
            passed = [hit for hit in hits if allowed[hit[0]]]
            if len(passed) >= depth or len(hits) < limit:
                return passed[:depth]

    def _top(self, query: tantivy.Query, limit: int) -> list[tuple[int, float]]:
        hits = self._searcher.search(query, limit, count=False).hits
        seqs = self._searcher.fast_field_values("seq", [address for _, address in hits])
        return [(int(seq or 0), score) for seq, (score, _) in zip(seqs, hits, strict=True)]

    def _query(self, text: str, fields: Mapping[str, float]) -> tantivy.Query | None:
        import tantivy

        unknown = [name for name in fields if name not in FIELDS]
        if unknown:
            raise UsageError(f"there is no text field {unknown[0]!r}; the fields are {', '.join(FIELDS)}")
        # Not tantivy's query parser: it fails on quotes, brackets, colons, and many words.
        words = Counter(analysis.terms(analysis.clip(text)))
        if not words:
            return None
        by_field = []
        for name, boost in fields.items():
            clauses = []
            for word, times in words.items():
                term = tantivy.Query.term_query(self._schema, name, word, index_option="freq")
                if times * boost != 1:
                    term = tantivy.Query.boost_query(term, times * boost)
                clauses.append((tantivy.Occur.Should, term))
            by_field.append(tantivy.Query.boolean_query(clauses))
        return by_field[0] if len(by_field) == 1 else tantivy.Query.disjunction_max_query(by_field, TIE)


def wipe(folder: Path) -> None:
    """Remove an index; the next update builds it anew."""
    shutil.rmtree(folder, ignore_errors=True)


def _schema() -> tantivy.Schema:
    import tantivy

    builder = tantivy.SchemaBuilder().add_unsigned_field("seq", indexed=True, fast=True)
    for name in FIELDS:
        builder = builder.add_text_field(name, tokenizer_name="ccheck", index_option="freq")
    return builder.build()
