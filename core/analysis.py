"""Words and sentences of a text.

Words are those that both stores index: the same text gives the same terms here, in tantivy and in Elasticsearch.

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

_ALONE = r"\p{Han}\p{Hiragana}"
_KATAKANA = r"\p{Katakana}\x{30FC}\x{FF70}"
_UNSPACED = r"\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
_TAIL = r"\p{M}\p{Cf}\p{Pc}"
_LETTER = rf"[\p{{Alphabetic}}&&[^{_ALONE}{_KATAKANA}{_UNSPACED}]]"
_LETTERS = rf"{_LETTER}[[\p{{Alphabetic}}{_TAIL}]&&[^{_ALONE}{_KATAKANA}{_UNSPACED}\x{{200B}}]]*"
_DIGITS = rf"[\p{{Nd}}٫][[\p{{Nd}}٫{_TAIL}]&&[^\x{{200B}}]]*"
_POINT = ".'‘’․﹒＇．"
_PICTURE = r"\p{Extended_Pictographic}[\x{FE0F}\p{Emoji_Modifier}]*"
TOKEN = "|".join(
    [
        r"\p{Hebrew}[\p{Hebrew}\p{M}]*(?:[\"״]\p{Hebrew}[\p{Hebrew}\p{M}]*)+",
        rf"\p{{Pc}}*(?:{_LETTERS}(?:[{_POINT}:·‧︓﹕：]{_LETTERS})*|{_DIGITS}(?:[{_POINT},;;،٬⁄︐︔﹐﹔，；]{_DIGITS})*)+",
        rf"[{_ALONE}]\p{{M}}*",
        rf"[{_KATAKANA}][{_KATAKANA}\p{{M}}]*",
        rf"[[{_UNSPACED}]&&[\p{{Alphabetic}}\p{{M}}]]+",
        rf"{_PICTURE}(?:\x{{200D}}{_PICTURE})*",
        r"\p{Regional_Indicator}{2}",
    ]
)
"""A token, in the syntax of Rust's regex crate."""

_IDEOGRAPH = (
    "\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3041-\u309f\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
_PIECE = re.compile(rf"[{_IDEOGRAPH}\u2190-\u2bff\U0001f000-\U0001faff]|[^\W_{_IDEOGRAPH}]+")
"""At most a token: hostile text makes many of what looks like one word."""
_WORD = re.compile(rf"[{_IDEOGRAPH}]|[^\W_{_IDEOGRAPH}]+(?:[.,'’:·][^\W_{_IDEOGRAPH}]+)*")


@functools.cache
def analyzer() -> tantivy.TextAnalyzer:
    from tantivy import Filter, TextAnalyzerBuilder, Tokenizer

    builder = TextAnalyzerBuilder(Tokenizer.regex(TOKEN)).filter(Filter.ascii_fold()).filter(Filter.lowercase())
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
    for count, match in enumerate(_PIECE.finditer(text), 1):
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


def sentence_spans(text: str) -> list[tuple[int, int]]:
    """(start, end) of each sentence, without the white space around it; knows et al., Fig. and decimals."""
    from nupunkt import sent_spans  # loads its model

    spans = []
    for start, end in sent_spans(text):
        sentence = text[start:end]
        left, right = len(sentence.lstrip()), len(sentence.rstrip())
        if left:
            spans.append((end - left, start + right))
    return spans
