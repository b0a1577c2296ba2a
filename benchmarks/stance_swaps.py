"""Claims and evidence in which one shared word is exchanged: pairs that share every word and yet say different things.

Each exchange gives up to four pairs, so that no text alone tells the label: claim and evidence as they are (SUPPORTS),
both with the new word (SUPPORTS), and one of the two with it. What the last two are, refuted or open, depends on the
words: such a pair is only known not to support (`NOT_SUPPORTED`).
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from stance_data import NOT_SUPPORTED, SUPPORTS, Pair

from ccheck.core.analysis import terms

_WORD = re.compile(r"(?<![\w-])[A-Za-z][a-z]{3,}(?![\w-])")
_NEAREST, _UNLIKE, _LIKE = 25, 0.35, 0.8
"""A new word is one of the nearest in the embedding model; above `_LIKE` it may mean the same."""


class Swaps:
    """Words of the texts, each with those that can take its place."""

    def __init__(
        self, texts: Sequence[str], embed: Callable[[Sequence[str]], NDArray[np.float32]], most: int = 7000
    ) -> None:
        counts = Counter(word for text in texts for word in {found.group() for found in _WORD.finditer(text)})
        self._words = [word for word, count in counts.most_common(most) if count >= 4 and terms(word)]
        self._place = {word: number for number, word in enumerate(self._words)}
        self._stems = [terms(word)[0] for word in self._words]
        self._vectors = embed(self._words)

    def other(self, word: str, taken: set[str], draw: random.Random) -> str | None:
        """A word near in meaning, with another stem than those taken and as large a first letter."""
        place = self._place.get(word)
        if place is None:
            return None
        cosines = self._vectors @ self._vectors[place]
        found = [
            self._words[number]
            for number in np.argsort(-cosines)[: 4 * _NEAREST]
            if _UNLIKE < cosines[number] < _LIKE
            and self._stems[number] not in taken
            and self._stems[number][:4] != self._stems[place][:4]
            and self._words[number][0].isupper() == word[0].isupper()
            and word.endswith("s") == self._words[number].endswith("s")
        ]
        return draw.choice(found[:_NEAREST]) if found else None

    def of(self, claim: str, evidence: str, draw: random.Random) -> list[Pair]:
        """The pairs with an exchanged word; none if claim and evidence share no word that has a neighbour."""
        taken = set(terms(claim)) | set(terms(evidence))
        shared = {*_WORD.findall(claim)} & {*_WORD.findall(evidence)}
        words = sorted(word for word in shared if word in self._place)
        draw.shuffle(words)
        for word in words:
            if (new := self.other(word, taken, draw)) is None:
                continue
            pattern = re.compile(rf"(?<![\w-]){re.escape(word)}(?![\w-])")
            claimed, said = pattern.sub(new, claim), pattern.sub(new, evidence)
            return [
                Pair(claimed, evidence, NOT_SUPPORTED),
                Pair(claim, said, NOT_SUPPORTED),
                Pair(claimed, said, SUPPORTS),
            ]
        return []
