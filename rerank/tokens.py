"""Text to token ids, in several threads at a time, and pairs of a query and a passage cut to a model's length.

If a pair is too long, the passage is cut: the query loses only what is beyond three quarters of the length, and a
prompt nothing. The ids are those of FlagEmbedding 1.4 (`FlagLLMReranker`, `FlagReranker`), which builds a pair from
pieces that are tokenised apart, or those of sentence-transformers' CrossEncoder, which cuts the longer of the two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from ..core.errors import InvalidData
from ..core.special_tokens import words_only
from .types import Encoded

Ids: TypeAlias = list[int]
Tokenise: TypeAlias = Callable[[Sequence[str]], list[Ids]]


def tokeniser(tokenizer: Any) -> Tokenise:
    """A function from texts to ids without a limit, safe in several threads at a time.

    It adds no special tokens, and finds none in the texts. A tokenizer of transformers changes its own state
    (truncation, padding) when it is called, and fails under a second thread ("Already borrowed"); the copy that is used
    here is never changed. Raises InvalidData for a tokenizer that is written in Python.
    """
    copy = _unlimited(tokenizer)
    words_only(copy)

    def tokenise(texts: Sequence[str]) -> list[Ids]:
        clean = [well_formed(text) for text in texts]
        return [encoding.ids for encoding in copy.encode_batch_fast(clean, add_special_tokens=False)]

    return tokenise


def _unlimited(tokenizer: Any) -> Any:
    """A copy of a tokenizer of transformers, as the tokenizers library has it, that neither cuts nor pads."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise InvalidData("the model's tokenizer is not one of the tokenizers library (tokenizer.json)")
    copy = type(backend).from_str(backend.to_str())
    copy.no_truncation()
    copy.no_padding()
    return copy


def well_formed(text: str) -> str:
    """The text with U+FFFD for surrogates without their other half, which no tokenizer takes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


@dataclass(frozen=True, slots=True)
class Prompt:
    """How a decoder is asked: `A: query`, a line break, `B: passage`, a line break, and the question.

    `yes` is the token whose logit at the end is the score; with `no`, the logit of that token is subtracted. `before`
    stands before all of it, in place of the token that begins a text, and does not count for the pair's length.
    """

    text: str
    yes: str = "Yes"
    no: str | None = None
    before: str = ""
    query: str = "A: "
    passage: str = "B: "
    separator: str = "\n"


@dataclass(frozen=True, slots=True)
class PromptPairs:
    """Pairs for a decoder, piece by piece as FlagLLMReranker builds them.

    `separator` and `question` are the ids of the prompt's own parts, which may have special tokens. `length` limits
    what stands before the line break and the question as FlagEmbedding's `max_length` does.
    """

    tokenise: Tokenise
    prompt: Prompt
    separator: tuple[int, ...]
    question: tuple[int, ...]
    start: tuple[int, ...]
    length: int
    keep_end: bool = False

    def __call__(self, query: str, passages: Sequence[str]) -> list[Encoded]:
        if not passages:
            return []
        asked, *texts = self.tokenise(
            [self.prompt.query + query, *(self.prompt.passage + passage for passage in passages)]
        )
        end = [*self.separator, *self.question]
        head = [*self.start, *_cut(asked, self.length * 3 // 4, self.keep_end), *self.separator]
        taken = len(head) - (len(self.start) if self.prompt.before else len(end))
        room = min(self.length, self.length - taken)
        query_cut = len(asked) > self.length * 3 // 4
        return [
            Encoded((*head, *_cut(ids, room, self.keep_end), *end), query_cut or len(ids) > room, prefix=len(head))
            for ids in texts
        ]


def prompt_pairs(tokenizer: Any, prompt: Prompt, length: Callable[[int], int]) -> PromptPairs:
    """Pairs by a tokenizer of transformers. `length`: how many ids a pair has to which so many may be added."""
    bos = tokenizer.bos_token_id
    start = [] if bos in (None, tokenizer.pad_token_id) else [bos]
    if prompt.before:
        start = own_ids(tokenizer, prompt.before)
    separator, question = own_ids(tokenizer, prompt.separator), own_ids(tokenizer, prompt.text)
    return PromptPairs(
        tokeniser(tokenizer),
        prompt,
        tuple(separator),
        tuple(question),
        tuple(start),
        length(2 * (len(separator) + len(question)) + len(start)),
        tokenizer.truncation_side == "left",
    )


def own_ids(tokenizer: Any, text: str) -> Ids:
    """The ids of a text that is the prompt's own: special tokens in it are found."""
    return list(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])


@dataclass(frozen=True, slots=True)
class Template:
    """The special tokens around a pair, as `<s>` query `</s></s>` passage `</s>`, and the token types of the halves."""

    before: tuple[int, ...]
    between: tuple[int, ...]
    after: tuple[int, ...]
    types: tuple[int, int]

    @property
    def special(self) -> int:
        return len(self.before) + len(self.between) + len(self.after)


@dataclass(frozen=True, slots=True)
class SpecialPairs:
    """Pairs for an encoder, at most `length` ids with the special tokens.

    `shorten`: `passage` cuts the query to three quarters of the length and then the passage, as FlagReranker does;
    `longer` cuts the longer of the two until both fit, as sentence-transformers' CrossEncoder does.
    """

    tokenise: Tokenise
    template: Template
    length: int
    shorten: Literal["passage", "longer"] = "passage"
    keep_end: bool = False

    def __call__(self, query: str, passages: Sequence[str]) -> list[Encoded]:
        if not passages:
            return []
        asked, *texts = self.tokenise([query, *passages])
        return [self._pair(asked, ids) for ids in texts]

    def _pair(self, asked: Ids, ids: Ids) -> Encoded:
        room = self.length - self.template.special
        if self.shorten == "longer":
            first, second = longest_first(len(asked), len(ids), room)
        else:
            first = min(len(asked), self.length * 3 // 4)
            second = min(len(ids), room - first)
        head = [*self.template.before, *_cut(asked, first, self.keep_end), *self.template.between]
        cut = first < len(asked) or second < len(ids)
        return Encoded((*head, *_cut(ids, second, self.keep_end), *self.template.after), cut, prefix=len(head))


def longest_first(first: int, second: int, room: int) -> tuple[int, int]:
    """To how many ids the two halves of a pair are cut, the longer one first (the tokenizers library's strategy)."""
    if first + second <= room:
        return first, second
    shorter = min(first, second)
    longer = max(shorter, room - shorter)
    if shorter + longer > room:
        shorter, longer = room // 2, room - room // 2
    return (shorter, longer) if first <= second else (longer, shorter)


def template(tokenizer: Any) -> Template | None:
    """The tokens that a tokenizer puts around a pair; None unless the pair is two halves of one token type each.

    Raises InvalidData for a tokenizer that does not know pairs.
    """
    encoding = _unlimited(tokenizer).encode("a", "a")
    halves = encoding.sequence_ids
    if 0 not in halves or 1 not in halves:
        raise InvalidData("the tokenizer returns no tokens for the text 'a': it is not a reranker's")
    start, end = halves.index(0), len(halves) - halves[::-1].index(0)
    second, last = halves.index(1), len(halves) - halves[::-1].index(1)
    ids, types = encoding.ids, encoding.type_ids
    if start > second or len(set(types[:second])) > 1 or len(set(types[second:])) > 1:
        return None
    return Template(tuple(ids[:start]), tuple(ids[end:second]), tuple(ids[last:]), (types[0], types[second]))


def _cut(ids: Ids, length: int, keep_end: bool) -> Ids:
    return (ids[len(ids) - length :] if keep_end else ids[:length]) if len(ids) > length else ids
