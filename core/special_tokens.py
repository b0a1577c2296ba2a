"""Reads special tokens in texts as words: `[SEP]`, `</s>` or `<|im_start|>` ends no sequence and begins no role.

Tokenizers look for their special tokens in every text that they are given. Here they are told not to. What a tokenizer
itself puts around a text is not looked for, and stays.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import InvalidData

if TYPE_CHECKING:
    import tokenizers


def read_tokenizer(file: Path) -> tokenizers.Tokenizer:
    """The tokenizer of a tokenizer.json, which neither cuts nor pads. Raises InvalidData."""
    import tokenizers

    try:
        tokenizer = tokenizers.Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises nothing narrower
        raise InvalidData(f"{file} can't be read as a tokenizer: {error}") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def words_only(tokenizer: Any) -> Callable[[], None]:
    """Have a tokenizer read special tokens in texts as the characters they consist of. Returns what undoes that.

    `tokenizer` is one of transformers or of the tokenizers library. Vocabularies of SentencePiece's unigram kind have
    special tokens as words too: those are broken up by a space, behind all that the tokenizer replaces in a text, so
    that no other spelling becomes one.
    """
    backend = getattr(tokenizer, "backend_tokenizer", tokenizer if hasattr(tokenizer, "encode_batch") else None)
    changes = [] if backend is tokenizer else [(tokenizer, "split_special_tokens", tokenizer.split_special_tokens)]
    if backend is not None:
        changes += [(backend, name, getattr(backend, name)) for name in ("encode_special_tokens", "normalizer")]

    def undo() -> None:
        for changed, name, value in changes:
            setattr(changed, name, value)

    if backend is not tokenizer:
        tokenizer.split_special_tokens = True  # with every call, transformers passes it on to the backend
    if backend is None:
        return undo
    backend.encode_special_tokens = True
    added = backend.get_added_tokens_decoder()
    reached = [
        token.content
        for id_, token in added.items()
        if token.special and id_ in backend.encode(token.content, add_special_tokens=False).ids
    ]
    if reached:
        from tokenizers import normalizers

        before = [] if backend.normalizer is None else [backend.normalizer]
        after = [normalizers.Replace(token, _apart(token)) for token in reached if len(token) > 1]
        backend.normalizer = normalizers.Sequence([*before, *after])
    return undo


def words_only_in(model: Any) -> Callable[[], None]:
    """The same for all that a model of sentence-transformers tokenises. Returns what makes its tokenizers as before.

    If its own prompts or its chat template have special tokens, its tokenizer must find those: there the texts are
    changed before the prompt is put to them.
    """
    tokenizers = {
        id(one): one
        for module in model.modules()
        for name in ("tokenizer", "processor")
        if hasattr(one := getattr(module, name, None), "encode") or hasattr(one, "encode_batch")
    }
    undone = []
    for tokenizer in tokenizers.values():
        special = special_tokens(tokenizer)
        own = " ".join(
            [str(getattr(tokenizer, "chat_template", None) or ""), *(getattr(model, "prompts", None) or {}).values()]
        )
        if not any(token in own for token in special):
            undone.append(words_only(tokenizer))
            continue
        model.preprocess = functools.partial(_preprocessed, model.preprocess, special)

    def undo() -> None:
        for one in undone:
            one()

    return undo


def special_tokens(tokenizer: Any) -> list[str]:
    """The special tokens that a tokenizer finds in texts."""
    of_library = hasattr(tokenizer, "get_added_tokens_decoder")
    decoder = tokenizer.get_added_tokens_decoder() if of_library else tokenizer.added_tokens_decoder
    return [token.content for token in decoder.values() if token.special]


def broken_up(text: str, tokens: Iterable[str]) -> str:
    """The text with a space behind the first character of each of `tokens` in it, in upper or lower case."""
    longest_first = sorted((token for token in tokens if len(token) > 1), key=len, reverse=True)
    if not longest_first:
        return text
    pattern = "|".join(map(re.escape, longest_first))
    return re.sub(pattern, lambda match: _apart(match[0]), text, flags=re.IGNORECASE)


def _apart(token: str) -> str:
    return f"{token[0]} {token[1:]}"


def _preprocessed(preprocess: Callable[..., Any], tokens: list[str], inputs: Any, *args: Any, **options: Any) -> Any:
    return preprocess(_broken_up_in(inputs, tokens), *args, **options)


def _broken_up_in(inputs: Any, tokens: list[str]) -> Any:
    """Breaks up tokens in texts, pairs of texts and messages."""
    if isinstance(inputs, str):
        return broken_up(inputs, tokens)
    if isinstance(inputs, Mapping):
        return {key: value if key == "role" else _broken_up_in(value, tokens) for key, value in inputs.items()}
    if isinstance(inputs, list | tuple):
        return type(inputs)(_broken_up_in(one, tokens) for one in inputs)
    return inputs
