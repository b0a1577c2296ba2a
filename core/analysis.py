"""Words as both stores index them: the same text gives the same terms here, in tantivy and in Elasticsearch.

A token is a run of letters and digits after the word rules of Unicode's UAX #29 (so 3.2, 1,000, don't and e.g. stay
whole, and each ideograph stands alone), lowercased, folded to ASCII, not a stopword, stemmed by Porter's second English
stemmer. `es_mappings/` has the same analyzer under the name `ccheck_english`; a test compares the two.
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tantivy

MAX_CLAIM_TERMS = 1024
"""How many words of a claim are searched for; Elasticsearch refuses queries of more clauses than about this."""

STOPWORDS = (
    "a an and are as at be but by for if in into is it no not of on or such that the their then there these they this "
    "to was will with"
).split()
"""Lucene's English stopwords."""

_LETTER = r"[[\p{Alphabetic}\p{M}_]&&[^\p{Han}\p{Hiragana}]]"
_DIGIT = r"\p{Nd}"
TOKEN = rf"(?:{_LETTER}+(?:[.'’:·]{_LETTER}+)*|{_DIGIT}+(?:[.,;'’]{_DIGIT}+)*)+|[\p{{Han}}\p{{Hiragana}}]"
"""A token, in the syntax of Rust's regex crate."""

_WORD = re.compile(r"[^\W_]+(?:[.,'’:·][^\W_]+)*")


@functools.cache
def analyzer() -> tantivy.TextAnalyzer:
    from tantivy import Filter, TextAnalyzerBuilder, Tokenizer

    builder = TextAnalyzerBuilder(Tokenizer.regex(TOKEN)).filter(Filter.lowercase()).filter(Filter.ascii_fold())
    return builder.filter(Filter.custom_stopword(STOPWORDS)).filter(Filter.stemmer("english")).build()


def clean(text: str) -> str:
    """Text without what no index takes: lone surrogates and NUL."""
    return text.encode("utf-8", "ignore").decode("utf-8").replace("\0", " ")


def terms(text: str) -> list[str]:
    """The indexed terms of a text, in order."""
    return list(analyzer().analyze(clean(text)))


def clip(text: str, limit: int = MAX_CLAIM_TERMS) -> str:
    """The text up to its `limit`-th word."""
    text = clean(text)
    for count, match in enumerate(_WORD.finditer(text), 1):
        if count == limit:
            return text[: match.end()]
    return text


def matches(text: str, query: str) -> list[tuple[int, int]]:
    """Where words of `text` match the query as BM25 does: (start, end) of each, in order."""
    wanted = set(terms(query))
    return [match.span() for match in _WORD.finditer(text) if wanted and _term_set(match.group()) & wanted]


@functools.lru_cache(maxsize=1 << 16)
def _term_set(word: str) -> frozenset[str]:
    return frozenset(terms(word))
