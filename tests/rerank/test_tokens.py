"""Pairs, id by id, with a tokenizer that needs no library: each letter is an id."""

from __future__ import annotations

from typing import Any

import pytest

from ccheck.core.errors import InvalidData
from ccheck.rerank.tokens import Prompt, PromptPairs, SpecialPairs, Template, template, tokeniser


def letters(texts: Any) -> list[list[int]]:
    return [[ord(letter) for letter in text] for text in texts]


def text(ids: Any) -> str:
    return "".join(map(chr, ids))


def prompted(length: int, **given: Any) -> PromptPairs:
    start = given.pop("start", (ord("^"),))
    return PromptPairs(letters, Prompt("?", query="A", passage="B"), (ord("|"),), (ord("?"),), start, length, **given)


def special(length: int, **given: Any) -> SpecialPairs:
    return SpecialPairs(letters, Template((ord("<"),), (ord("/"), ord("/")), (ord(">"),), (0, 1)), length, **given)


def read(pairs: Any, query: str, passage: str) -> tuple[str, bool, int]:
    (encoded,) = pairs(query, [passage])
    return text(encoded.ids), encoded.cut, encoded.prefix


def test_pairs_of_a_prompt_keep_the_end_where_the_tokenizer_cuts_the_start() -> None:
    assert read(prompted(8, keep_end=True), "123456789", "abcdefghij") == ("^456789|ij|?", True, 8)


def test_pairs_of_special_tokens_keep_the_end_where_the_tokenizer_cuts_the_start() -> None:
    assert read(special(12, keep_end=True), "q", "abcdefghij") == ("<q//defghij>", True, 4)
    assert read(special(12, keep_end=True), "1234567890", "") == ("<234567890//>", True, 12)
    assert special(12)("q", []) == []


def test_a_tokenizer_without_a_backend_is_refused() -> None:
    for read in (tokeniser, template):
        with pytest.raises(InvalidData, match=r"tokenizer\.json"):
            read(object())


def pair_tokenizer(pair: str) -> Any:
    """One whose words are letters, with a template for pairs."""
    tokenizers = pytest.importorskip("tokenizers")

    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({"<": 0, ">": 1, "a": 2, "b": 3}, unk_token="b"))
    made.post_processor = tokenizers.processors.TemplateProcessing(
        single="< $A >", pair=pair, special_tokens=[("<", 0), (">", 1)]
    )
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.enable_truncation(3)
    made.enable_padding(length=9)

    class Fast:
        backend_tokenizer = made

    return Fast()


@pytest.mark.parametrize(
    ("pair", "expected"),
    [
        ("< $A > $B:1 >:1", Template((0,), (1,), (1,), (0, 1))),
        ("< < $A > > $B > > <", Template((0, 0), (1, 1), (1, 1, 0), (0, 0))),
        ("$A $B:1", Template((), (), (), (0, 1))),
        ("< $B > $A >", None),  # the passage first
        ("<:1 $A > $B:1 >:1", None),  # halves of two token types
        ("< $A > $B:1 >", None),
    ],
)
def test_the_template_of_a_pair(pair: str, expected: Template | None) -> None:
    assert template(pair_tokenizer(pair)) == expected


def test_a_tokenizer_that_makes_nothing_of_a_letter_is_no_rerankers() -> None:
    nothing = pair_tokenizer("< $A > $B >")
    nothing.backend_tokenizer.normalizer = pytest.importorskip("tokenizers").normalizers.Replace("a", "")
    with pytest.raises(InvalidData, match="no tokens for the text 'a'"):
        template(nothing)


def test_the_copy_of_a_tokenizer_has_no_limit_and_no_padding() -> None:
    assert tokeniser(pair_tokenizer("$A $B"))(["a a a b", ""]) == [[2, 2, 2, 3], []]
    assert Template((1,), (2, 3), (4,), (0, 0)).special == 4
