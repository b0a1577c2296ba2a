"""Pairs, id by id, with a tokenizer that needs no library: each letter is an id."""

from __future__ import annotations

from typing import Any

import pytest

from ccheck.core.errors import InvalidData
from ccheck.rerank.tokens import (
    Prompt,
    PromptPairs,
    SpecialPairs,
    Template,
    template,
    tokeniser,
    well_formed,
)


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


@pytest.mark.parametrize(
    ("length", "query", "passage", "expected"),
    [
        (8, "q", "pppp", ("^Aq|Bpppp|?", False, 4)),
        # Beside the start token, the query and a line break there is room for as much as the length and the prompt.
        (8, "q", "pppppppp", ("^Aq|Bppppp|?", True, 4)),
        (8, "q", "ppppp", ("^Aq|Bppppp|?", False, 4)),
        (8, "qqqqq", "p", ("^Aqqqqq|Bp|?", False, 8)),
        (8, "qqqqqq", "p", ("^Aqqqqq|Bp|?", True, 8)),
        (8, "qqqqqq", "ppp", ("^Aqqqqq|Bp|?", True, 8)),
        (8, "q", "", ("^Aq|B|?", False, 4)),
    ],
)
def test_pairs_of_a_prompt(length: int, query: str, passage: str, expected: Any) -> None:
    assert read(prompted(length), query, passage) == expected


def test_pairs_of_a_prompt_without_a_start_are_not_longer_than_the_length_allows() -> None:
    # A passage alone has the length, even where the prompt would leave room for more.
    assert read(prompted(8, start=()), "", "p" * 20) == ("A|Bppppppp|?", True, 2)
    assert prompted(8).longest == 8 + 2 * 2 + 1
    assert prompted(8)("q", []) == []


def test_pairs_of_a_prompt_keep_the_end_where_the_tokenizer_cuts_the_start() -> None:
    assert read(prompted(8, keep_end=True), "123456789", "abcdefghij") == ("^456789|ij|?", True, 8)


@pytest.mark.parametrize(
    ("shorten", "query", "passage", "expected"),
    [
        ("passage", "q", "pppp", ("<q//pppp>", False, 4)),
        ("passage", "q", "ppppppp", ("<q//ppppppp>", False, 4)),
        ("passage", "q", "pppppppp", ("<q//ppppppp>", True, 4)),
        ("passage", "q" * 10, "pp", ("<qqqqqqqqq//>", True, 12)),
        ("longer", "q" * 10, "pp", ("<qqqqqq//pp>", True, 9)),
        ("longer", "qq", "p" * 10, ("<qq//pppppp>", True, 5)),
        ("longer", "q" * 10, "p" * 10, ("<qqqq//pppp>", True, 7)),
        ("longer", "qqqq", "pppp", ("<qqqq//pppp>", False, 7)),
    ],
)
def test_pairs_of_special_tokens(shorten: Any, query: str, passage: str, expected: Any) -> None:
    if shorten == "passage" and len(query) == 10:  # three quarters of the length are more than there is room for
        assert read(special(13, shorten=shorten), query, passage) == expected
    else:
        assert read(special(12, shorten=shorten), query, passage) == expected


def test_pairs_of_special_tokens_keep_the_end_where_the_tokenizer_cuts_the_start() -> None:
    assert read(special(12, keep_end=True), "q", "abcdefghij") == ("<q//defghij>", True, 4)
    assert read(special(12, keep_end=True), "1234567890", "") == ("<234567890//>", True, 12)
    assert special(12)("q", []) == []


def test_surrogates_without_their_half_are_replaced() -> None:
    assert well_formed("a\ud800b") == "a\ufffdb"
    assert well_formed("a\ud83d\ude00b") == "a😀b"
    assert well_formed("aéb") == "aéb"


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
