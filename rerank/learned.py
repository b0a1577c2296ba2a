"""Documents ordered by gradient-boosted trees over the scores, ranks and words that they and the claim share.

`ccheck train learned-reranker` writes the file: JSON, evaluated with numpy alone. Trees vote over features that need
no model beyond those of the retrievers (Friedman, Greedy function approximation, 2001, for the trees).
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.analysis import clean, terms
from ..core.errors import InvalidData, NotFound
from ..core.types import Hit
from .types import Scores

if TYPE_CHECKING:
    from numpy.typing import NDArray

KIND = "ccheck learned reranker"
VERSION = 1
MAX_BYTES = 64 << 20
FUSIONS = ("rrf", "minmax")
OF_SCORER = ("score", "scaled", "rank")
SHARED = (
    "fused rank",
    "fused scaled",
    "claim words in title",
    "claim words in text",
    "rare claim words",
    "claim pairs of words",
    "claim numbers",
    "numbers in claim",
    "claim length",
    "document length",
)
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")


def feature_names(scorers: Sequence[str]) -> list[str]:
    """The names of the columns of `features`. `scorers`: retrievers, then rerankers."""
    return [*(f"{name} {one}" for name in scorers for one in OF_SCORER), *SHARED]


def directions(scorers: Sequence[str]) -> list[int]:
    """How relevance can go with each feature: 1 up, -1 down, 0 either way. A better score never counts against."""
    up = ("score", "scaled", "title", "text", "claim words", "pairs of words", "claim numbers")
    return [
        -1 if name.endswith("rank") else int(name.endswith(up) and name != "numbers in claim")
        for name in feature_names(scorers)
    ]


def features(
    claim: str, hits: Sequence[Hit], retrievers: Sequence[str], rerankers: Sequence[str] = ()
) -> NDArray[np.float32]:
    """The features of the hits of one claim, shape [hits, features].

    Of each retriever, and of each reranker that ran before: its score, the same scaled to 0..1 over these hits, and the
    rank. A document that it did not find or read has the lowest score of those that it did here, and a rank of one more
    than the last. Rare words are weighted by how few of these hits have them.
    """
    rows = len(hits)
    columns: list[Sequence[float]] = []
    for name in (*retrievers, *rerankers):
        found = [hit.scores[name] for hit in hits if name in hit.scores]
        # Of rerankers no place is kept: it follows from their scores.
        places = [
            (hit.ranks.get(name) if name in retrievers else 1 + sum(score > hit.scores[name] for score in found))
            if name in hit.scores
            else None
            for hit in hits
        ]
        last = max((place for place in places if place is not None), default=0) + 1
        low, high = min(found, default=0.0), max(found, default=0.0)
        scores = [hit.scores.get(name, low) for hit in hits]
        columns += [scores, _scaled(scores, low, high), [last if place is None else place for place in places]]
    joined = next((name for name in FUSIONS if all(name in hit.scores for hit in hits)), next(iter(retrievers), ""))
    fused = [hit.scores.get(joined, hit.score) for hit in hits]
    columns += [
        [hit.ranks.get(joined, hit.rank) for hit in hits],
        _scaled(fused, min(fused, default=0.0), max(fused, default=0.0)),
    ]
    wanted = terms(claim)
    words, pairs = set(wanted), set(itertools.pairwise(wanted))
    read = [hit.read for hit in hits]
    titles = [set(terms(document.title)) for document in read]
    texts = [terms(document.text) for document in read]
    bags = [title.union(text) for title, text in zip(titles, texts, strict=True)]
    rarity = {word: math.log((rows + 1) / (sum(word in bag for bag in bags) + 0.5)) for word in words}
    whole = sum(rarity.values())
    numbers = set(_NUMBER.findall(claim))
    columns += [
        [_share(len(words & title), len(words)) for title in titles],
        [_share(len(words.intersection(text)), len(words)) for text in texts],
        [_share(sum(rarity[word] for word in words & bag), whole) for bag in bags],
        [_share(len(pairs.intersection(itertools.pairwise(text))), len(pairs)) for text in texts],
        [_share(len(numbers.intersection(_NUMBER.findall(hit.text))), len(numbers)) for hit in hits],
        [len(numbers)] * rows,
        [len(wanted)] * rows,
        [math.log1p(len(text)) for text in texts],
    ]
    return np.array(columns, dtype=np.float32).reshape(len(columns), rows).T


def _scaled(scores: Sequence[float], low: float, high: float) -> list[float]:
    return [(score - low) / (high - low) if high > low else 0.0 for score in scores]


def _share(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Tree:
    """A regression tree: of each node the feature that is asked for (-1: a leaf), the threshold up to which it goes
    left, its children, and the value. All of shape [nodes]; children come after their parent."""

    feature: NDArray[np.int64]
    threshold: NDArray[np.float64]
    left: NDArray[np.int64]
    right: NDArray[np.int64]
    value: NDArray[np.float64]

    def __call__(self, rows: NDArray[np.float32]) -> NDArray[np.float64]:
        """The values for rows of features, shape [rows, features] to [rows]."""
        place = np.zeros(len(rows), dtype=np.int64)
        inside = np.flatnonzero(self.feature[place] >= 0)
        while inside.size:
            at = place[inside]
            goes_left = rows[inside, self.feature[at]] <= self.threshold[at]
            place[inside] = np.where(goes_left, self.left[at], self.right[at])
            inside = inside[self.feature[place[inside]] >= 0]
        return self.value[place]

    def to_dict(self) -> dict[str, list[Any]]:
        return {name: getattr(self, name).tolist() for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class LearnedModel:
    """Trees whose sum over `base` is the logit of a document's relevance. `about` is what else the file says.

    `rerankers`: those before it, whose scores it reads too.
    """

    retrievers: tuple[str, ...]
    base: float
    trees: tuple[Tree, ...]
    about: Mapping[str, Any]
    rerankers: tuple[str, ...] = ()

    def logits(self, rows: NDArray[np.float32]) -> NDArray[np.float64]:
        """Shape [rows, features] to [rows]."""
        total = np.full(len(rows), self.base)
        for tree in self.trees:
            total += tree(rows)
        return total

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": KIND,
            "version": VERSION,
            **self.about,
            "retrievers": list(self.retrievers),
            "rerankers": list(self.rerankers),
            "features": feature_names((*self.retrievers, *self.rerankers)),
            "base": self.base,
            "trees": [tree.to_dict() for tree in self.trees],
        }


class LearnedReranker:
    """Scores hits by a learned model. A `HitReranker`: it needs their scores, and so runs before other rerankers."""

    def __init__(self, model: LearnedModel, name: str) -> None:
        self._model = model
        self.name = name

    def score_hits(self, query: str, hits: Sequence[Hit]) -> Scores:
        """The logits of relevance. Raises InvalidData for hits of other stages than the model was made for."""
        if not hits:
            return Scores((), ())
        made_for = {*self._model.retrievers, *self._model.rerankers}
        found = {name for hit in hits for name in hit.scores} - set(FUSIONS)
        if found != made_for:
            raise InvalidData(
                f"{self.name} was trained with scores of {', '.join(sorted(made_for))}, but these documents "
                "have scores of "
                f"{', '.join(sorted(found)) or 'nothing'}. Train one for this recipe with ccheck train "
                "learned-reranker, and put it before rerankers that it was not trained with"
            )
        values = self._model.logits(features(clean(query), hits, self._model.retrievers, self._model.rerankers))
        return Scores(tuple(values.tolist()), (False,) * len(hits))


def load_learned(path: Path) -> LearnedReranker:
    """The reranker in a file. Raises NotFound, or InvalidData for a file of another kind."""
    path = path.expanduser()
    if not path.is_file():
        raise NotFound(f"there is no file {path}: make it with ccheck train learned-reranker --output {path}")
    what_to_do = "make it again with ccheck train learned-reranker"
    try:
        if path.stat().st_size > MAX_BYTES:
            raise InvalidData(f"{path} is larger than a learned reranker can be: {what_to_do}")
        return LearnedReranker(parse_learned(json.loads(path.read_text(encoding="utf-8"))), f"learned:{path}")
    except OSError as error:
        raise NotFound(f"{path} can't be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise InvalidData(
            f"{path} is not a learned reranker ({type(error).__name__}: {error}): {what_to_do}"
        ) from error


def parse_learned(data: Mapping[str, Any]) -> LearnedModel:
    """Reads what `LearnedModel.to_dict` returned. Raises ValueError, KeyError or TypeError for anything else."""
    if data["kind"] != KIND or data["version"] != VERSION:
        raise ValueError(f"kind {str(data['kind'])[:40]!r}, version {str(data['version'])[:10]!r}")
    retrievers = tuple(str(name) for name in data["retrievers"])
    rerankers = tuple(str(name) for name in data.get("rerankers", ()))
    names = feature_names((*retrievers, *rerankers))
    if list(data["features"]) != names:
        raise ValueError("it has other features than this version of ccheck makes")
    trees = tuple(_tree(tree, len(names)) for tree in data["trees"])
    base = float(data["base"])
    if not math.isfinite(base) or not retrievers:
        raise ValueError("it has no base or no retrievers")
    own = ("kind", "version", "retrievers", "rerankers", "features", "base", "trees")
    about = {key: value for key, value in data.items() if key not in own}
    return LearnedModel(retrievers, base, trees, about, rerankers)


def _tree(data: Mapping[str, Any], count: int) -> Tree:
    feature, left, right = (np.array(data[name], dtype=np.int64) for name in ("feature", "left", "right"))
    threshold, value = (np.array(data[name], dtype=np.float64) for name in ("threshold", "value"))
    nodes = len(feature)
    if nodes == 0 or any(part.shape != (nodes,) for part in (feature, threshold, left, right, value)):
        raise ValueError("a tree's lists are of different lengths")
    inner = feature >= 0
    numbers = np.arange(nodes)
    children = np.stack([left[inner], right[inner]])
    # Children come after their parent, so that no path goes in circles.
    if (feature >= count).any() or (children <= numbers[inner]).any() or (children >= nodes).any():
        raise ValueError("a tree refers to a node or feature that does not exist")
    if not (np.isfinite(value).all() and np.isfinite(threshold[inner]).all()):
        raise ValueError("a tree has numbers that are not finite")
    return Tree(feature, threshold, left, right, value)
