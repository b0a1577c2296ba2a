"""A list of expressions for `ccheck passages --expressions`, learned from labelled passages.

    python benchmarks/learned_expressions.py LABELLED > own.txt

LABELLED has rows with `article` and `passages`, or is Context24's task2-train-dev.json. As in Bölücü et al. (SDP 2024,
4.2), an expression is the longest sequence of tokens that a passage shares with one of another article, if it has a
verb, an adjective or a noun. Without a tagger, a word counts as one of these if it is in no closed class (articles,
pronouns, prepositions, conjunctions, auxiliaries, adverbs in -ly) and has letters.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence

from ccheck.articles.passages import tokens
from ccheck.lab.measure.context24 import read_gold

_CLOSED = frozenset(
    """
    a an the this that these those some any no each every all both either neither such
    i we you he she it they me us him her them my our your his its their one who whom which whose what
    of in on at by for with from to into onto over under above below between among through during before after
    about against within without across along around behind beyond near per than via as upon toward towards up down out
    off     and or but nor so yet if because while whereas although though since until unless when where how why whether
    is are was were be been being am do does did done has have had having can could may might must shall
    should will would     not also only very more most less least then there here thus
    hence too even just both same other another
    """.split()
)


def is_content(token: str) -> bool:
    """Whether a token can be a verb, an adjective or a noun."""
    return token not in _CLOSED and not token.endswith("ly") and any(character.isalpha() for character in token)


def learn(passages: Sequence[tuple[str, str]], *, most_words: int = 8) -> list[str]:
    """The expressions of labelled passages, (article, text) each, those found in most passages first.

    A sequence counts as shared only between passages of two articles, since those of one repeat its own words. It has
    two to `most_words` tokens and no punctuation.
    """
    texts = list(dict.fromkeys(passages))
    holders: dict[tuple[str, ...], set[str]] = {}
    sequences: list[list[tuple[str, ...]]] = []
    for article, text in texts:
        words = tokens(text)
        own: dict[tuple[str, ...], None] = {}
        for length in range(most_words, 1, -1):
            for start in range(len(words) - length + 1):
                sequence = tuple(words[start : start + length])
                if all(word[0].isalnum() for word in sequence) and any(map(is_content, sequence)):
                    own[sequence] = None
        sequences.append(list(own))
        for sequence in own:
            holders.setdefault(sequence, set()).add(article)
    found: Counter[str] = Counter()
    for own_sequences in sequences:
        shared = [one for one in own_sequences if len(holders[one]) > 1]
        longest = max((len(one) for one in shared), default=0)
        found.update(" ".join(one) for one in shared if len(one) == longest)
    return [name for name, _ in sorted(found.items(), key=lambda item: (-item[1], item[0]))]


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    labelled = [(claim.article or claim.id, text) for claim in read_gold(sys.argv[1]) for text in claim.passages]
    print("\n".join(learn(labelled)))
