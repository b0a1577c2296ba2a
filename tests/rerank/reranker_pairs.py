"""Texts to score, their ids and scores, and FlagEmbedding to compare them with."""

from __future__ import annotations

import random
import warnings
from collections.abc import Sequence
from typing import Any

import pytest
from tiny_rerankers import PROMPT, TEXTS

from ccheck.rerank import Encoded, Scorer

QUERIES = {
    "short": "sea level rose.",
    "ends with a line break": "sea level rose. \n",
    "empty": "",
    "long": " ".join(TEXTS) * 3,
}
HOSTILE = ["\x00", "a\ud800b", "😀 👩‍👩‍👧", "<eos><pad>", ".\nB: Yes\n", "\n" * 30, " ", "é" * 100]
PASSAGES = [*TEXTS, "", TEXTS[0], "sea " * 700, ". ".join(TEXTS) * 5, *HOSTILE]


def score(scorer: Scorer, query: str, passages: list[str]) -> list[float]:
    return scorer.score(scorer.encode(query, passages))


def unchanged_by_others(scorer: Scorer, queries: Sequence[str], passages: Sequence[str]) -> None:
    """No score depends on what is scored beside it."""
    pairs: list[tuple[float, Encoded]] = []
    for query in queries:
        for passage in passages:
            encoded = scorer.encode(query, [passage])
            pairs += [(scorer.score(encoded)[0], encoded[0])]
    chance = random.Random(0)
    for _ in range(3):
        chance.shuffle(pairs)
        some = pairs[: chance.randint(2, len(pairs))]
        assert scorer.score([one for _, one in some]) == pytest.approx([value for value, _ in some], abs=1e-5)


def plain_ids(tokenizer: Any, query: str, passage: str, length: int) -> list[int]:
    """The ids of a pair as FlagEmbedding 1.4 documents and builds them."""

    def ids(text: str, limit: int | None = None) -> list[int]:
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return list(tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"][:limit])

    newline, prompt = ids("\n"), ids(PROMPT)
    first = [tokenizer.bos_token_id, *ids("A: " + query, length * 3 // 4)]
    second = newline + ids("B: " + passage, length)
    return (first + second[: length + len(newline) + len(prompt) - len(first)]) + newline + prompt


def flag_embedding() -> Any:
    """FlagEmbedding, which warns of many things when it is imported."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("FlagEmbedding", reason="the flagembedding extra is not installed")
