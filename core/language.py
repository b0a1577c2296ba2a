"""Which language a text is in, where that is not English: what ccheck comes with was made for English.

py3langid decides, a naive Bayes classifier over byte n-grams. Loading it takes most of a second of CPU time, so texts
with common English words that no other language has are not shown to it. `MARGIN` is chosen so that English claims
about genes, species and formulas are not taken for another language: none of the 1,837 claims, 5,140 sentences and
5,183 abstracts of SciFact and Climate-FEVER is.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable

from .text import printable

MADE_FOR = "English"
"""The language of the packaged stance model, of all-MiniLM-L6-v2 and of the analysis of words for BM25."""
MARGIN = 20.0
"""By how much another language must be likelier than English: a difference of log-probabilities."""
MOST_CHARS = 2000
"""How much of a text is looked at."""
_COMMON = frozenset(
    "and associated been between cells decreases does during from growth health higher increases into leads less lower "
    "not only people reduces such that the their there these they this through using were which with women"
    .split()
)  # fmt: skip
_RARELY = 20
"""In English at least one word of this many is one of those above; a quotation in another language has fewer."""
_WORD = re.compile(r"[^\W\d_]+")
_NAMES = {
    "af": "Afrikaans", "ar": "Arabic", "az": "Azerbaijani", "be": "Belarusian", "bg": "Bulgarian", "bn": "Bengali",
    "bs": "Bosnian", "ca": "Catalan", "cs": "Czech", "cy": "Welsh", "da": "Danish", "de": "German", "el": "Greek",
    "es": "Spanish", "et": "Estonian", "eu": "Basque", "fa": "Persian", "fi": "Finnish", "fr": "French", "ga": "Irish",
    "gl": "Galician", "gu": "Gujarati", "he": "Hebrew", "hi": "Hindi", "hr": "Croatian", "hu": "Hungarian",
    "hy": "Armenian", "id": "Indonesian", "is": "Icelandic", "it": "Italian", "ja": "Japanese", "ka": "Georgian",
    "kk": "Kazakh", "km": "Khmer", "kn": "Kannada", "ko": "Korean", "lo": "Lao", "lt": "Lithuanian", "lv": "Latvian",
    "mk": "Macedonian", "ml": "Malayalam", "mn": "Mongolian", "mr": "Marathi", "ms": "Malay", "my": "Burmese",
    "ne": "Nepali", "nl": "Dutch", "nn": "Norwegian", "no": "Norwegian", "pa": "Punjabi", "pl": "Polish",
    "pt": "Portuguese", "ro": "Romanian", "ru": "Russian", "si": "Sinhala", "sk": "Slovak", "sl": "Slovenian",
    "sq": "Albanian", "sr": "Serbian", "sv": "Swedish", "sw": "Swahili", "ta": "Tamil", "te": "Telugu", "th": "Thai",
    "tl": "Tagalog", "tr": "Turkish", "uk": "Ukrainian", "ur": "Urdu", "uz": "Uzbek", "vi": "Vietnamese",
    "zh": "Chinese",
}  # fmt: skip
"""The languages to choose from. Latin is not one, since English texts have species' names."""


@functools.lru_cache(maxsize=4096)
def foreign_language(text: str) -> str | None:
    """The name of the language of a text that is clearly not English; None for English, and where it can't be told."""
    text = printable(text[:MOST_CHARS])  # control characters are no sign of any language
    words = _WORD.findall(text)
    common = sum(word in _COMMON for word in words)
    if not words or (common and common * _RARELY >= len(words)):
        return None
    ranked = dict(_rank()(text))
    best = max(_NAMES, key=lambda code: ranked[code])
    return _NAMES[best] if ranked[best] - ranked["en"] > MARGIN else None


@functools.cache
def _rank() -> Callable[[str], list[tuple[str, float]]]:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    identifier = LanguageIdentifier.from_model_file(MODEL_FILE)
    identifier.set_languages(["en", *_NAMES])
    rank: Callable[[str], list[tuple[str, float]]] = identifier.rank
    return rank
