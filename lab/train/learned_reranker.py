"""Training a learned reranker: gradient-boosted trees over scores, ranks, and words that claim and document share.

Training takes seconds and needs scikit-learn, not torch. Using the file needs only numpy (`rerank/learned.py`). The
figures are out of fold: the claims of each fold are ranked by trees that saw neither them nor their documents.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ... import __version__
from ...core.errors import InvalidData
from ...core.extras import require
from ...core.files import write_text
from ...core.text import json_line
from ...core.types import Claim, Hit
from ...rerank.learned import LearnedModel, Tree, directions, features
from ..measure.metrics import only
from ..measure.types import Qrels
from .figures import Figure, figures_of_group, notes_on
from .retrieval_data import SEEN, UNSEEN, Checks
from .split import connected

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

METRIC = "nDCG@10"
CLAIMS_AT_LEAST = 20


@dataclass(frozen=True, slots=True)
class LearnedRerankerOptions:
    """How the trees are grown."""

    depth: int = 50
    """How many documents of each claim to learn from, and to reorder."""
    trees: int = 150
    leaves_deep: int = 3
    learning_rate: float = 0.05
    rows_in_leaf: int = 50
    regularization: float = 0.0
    folds: int = 5
    seed: int = 0


@dataclass(frozen=True, slots=True)
class LearnedReport:
    """A learned reranker with its out-of-fold figures, and notes for the user."""

    model: LearnedModel
    figures: tuple[Figure, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Example:
    """A claim with its hits and their features, shape [hits, features]."""

    claim: str
    hits: tuple[Hit, ...]
    rows: NDArray[np.float32]
    relevant: NDArray[np.bool_]


def train_learned_reranker(
    checker: Checks,
    retrievers: Sequence[str],
    claims: Sequence[Claim],
    qrels: Qrels,
    options: LearnedRerankerOptions,
    about: Mapping[str, Any],
    on_progress: Callable[[int, int], None] = lambda done, total: None,
    *,
    rerankers: Sequence[str] = (),
) -> LearnedReport:
    """Learn to order what a checker finds. Its recipe has these retrievers and rerankers.

    `about` is written into the file too. Raises MissingExtra without scikit-learn, InvalidData where too few claims
    have relevant documents, or the checker does not find them.
    """
    require("training a learned reranker", "evaluation", "sklearn")
    judged = [claim for claim in claims if any(grade > 0 for grade in qrels.get(str(claim.id), {}).values())]
    examples, notes = _examples(checker, retrievers, rerankers, judged, qrels, options, on_progress)
    scorers = (*retrievers, *rerankers)
    learnable = sum(bool(example.relevant.any()) for example in examples)
    if learnable < CLAIMS_AT_LEAST:
        why = "; ".join(notes) or "Check that the ids of claims, judgements and store match"
        raise InvalidData(
            f"only {learnable} claims have a relevant document among the first {options.depth}, and training needs "
            f"{CLAIMS_AT_LEAST}. {why[0].upper()}{why[1:]}"
        )
    found = tuple(
        _figure(group, examples, scorers, qrels, _folds(examples, qrels, options, by_document=group == UNSEEN), options)
        for group in (UNSEEN, SEEN)
    )
    base, trees = _grown(examples, scorers, options)
    model = LearnedModel(
        tuple(retrievers),
        base,
        trees,
        {
            "made_by": f"ccheck {__version__}",
            **about,
            "claims": len(examples),
            "options": asdict(options),
            "figures": [asdict(figure) for figure in found],
        },
        tuple(rerankers),
    )
    return LearnedReport(model, found, (*notes, *notes_on(found, METRIC)))


def save_learned_reranker(model: LearnedModel, path: Path) -> None:
    """Write the file that a recipe's learned stage names."""
    write_text(path, json_line(model.to_dict()), "the learned reranker")


def _examples(
    checker: Checks,
    retrievers: Sequence[str],
    rerankers: Sequence[str],
    claims: Sequence[Claim],
    qrels: Qrels,
    options: LearnedRerankerOptions,
    on_progress: Callable[[int, int], None],
) -> tuple[list[_Example], list[str]]:
    import numpy as np

    examples: list[_Example] = []
    failed: list[str] = []
    partial = 0
    for done, result in enumerate(checker.check_many(claims, k=options.depth), 1):
        on_progress(done, len(claims))
        if result.error is not None:
            failed.append(f"claim {result.claim.id}: {result.error}")
            continue
        hits = tuple(piece.hit for piece in result.evidence)
        if not {name for hit in hits for name in hit.scores}.issuperset((*retrievers, *rerankers)):
            partial += 1  # as it is when the trees are used: such a claim keeps the ranking before
            continue
        grades = qrels[str(result.claim.id)]
        examples.append(
            _Example(
                str(result.claim.id),
                hits,
                features(result.claim.text, hits, retrievers, rerankers),
                np.array([grades.get(hit.document.id, 0) > 0 for hit in hits], dtype=bool),
            )
        )
    notes = []
    if failed:
        notes.append(f"the search failed for {len(failed)} claims: {failed[0]}")
    if partial:
        notes.append(f"{partial} claims were left out, because a retriever or reranker found nothing for them")
    return examples, notes


Fold = tuple[list[int], list[int]]
"""Numbers of the examples to learn from and of those to rank."""


def _folds(
    examples: Sequence[_Example], qrels: Qrels, options: LearnedRerankerOptions, *, by_document: bool
) -> list[tuple[Fold, frozenset[str]]]:
    """Folds of examples, with the documents that must not be learned from.

    By document, claims that share documents are in one fold, where such a group is not too large for it; what still
    shares documents with the fold is not learned from.
    """
    draw = random.Random(options.seed)  # noqa: S311 - a split, not a secret
    place = {example.claim: number for number, example in enumerate(examples)}
    if by_document:
        largest = max(1, len(examples) // options.folds)
        groups = [
            piece
            for group in connected({claim: qrels[claim].keys() for claim in place})
            for piece in ([group] if len(group) <= largest else [[one] for one in group])
        ]
    else:
        groups = [[claim] for claim in sorted(place)]
    draw.shuffle(groups)
    folds: list[list[str]] = [[] for _ in range(options.folds)]
    for group in sorted(groups, key=len, reverse=True):
        min(folds, key=len).extend(group)
    made: list[tuple[Fold, frozenset[str]]] = []
    for fold in folds:
        inside = set(fold)
        held = frozenset(key for claim in fold for key in qrels[claim]) if by_document else frozenset()
        learned = [
            number
            for claim, number in place.items()
            if claim not in inside and (not by_document or held.isdisjoint(qrels[claim]))
        ]
        made.append(((learned, [place[claim] for claim in fold]), held))
    return made


def _figure(
    group: str,
    examples: Sequence[_Example],
    scorers: Sequence[str],
    qrels: Qrels,
    folds: Sequence[tuple[Fold, frozenset[str]]],
    options: LearnedRerankerOptions,
) -> Figure:
    before: dict[str, dict[str, float]] = {}
    after: dict[str, dict[str, float]] = {}
    for (learned, ranked), held in folds:
        if not learned or not ranked:
            raise InvalidData("the claims share too many documents to be kept apart. Add claims")
        base, trees = _grown([examples[number] for number in learned], scorers, options, held)
        model = LearnedModel((), base, trees, {})
        for number in ranked:
            example = examples[number]
            before[example.claim] = {hit.document.id: -float(hit.rank) for hit in example.hits}
            values = model.logits(example.rows).tolist()
            after[example.claim] = {hit.document.id: value for hit, value in zip(example.hits, values, strict=True)}
    (figure,) = figures_of_group(group, only(qrels, list(before)), before, after, [METRIC])
    return figure


def _grown(
    examples: Sequence[_Example],
    scorers: Sequence[str],
    options: LearnedRerankerOptions,
    held: frozenset[str] = frozenset(),
) -> tuple[float, tuple[Tree, ...]]:
    """The trees and what they start from. Documents in `held` are not learned from."""
    import numpy as np

    rows = np.concatenate([example.rows for example in examples])
    relevant = np.concatenate([example.relevant for example in examples])
    seen = np.array([hit.document.id not in held for example in examples for hit in example.hits], dtype=bool)
    if not relevant[seen].any() or relevant[seen].all():
        raise InvalidData("nothing to learn: the documents found must include relevant and other ones. Add claims")
    return exported(fitted(rows[seen], relevant[seen], options, directions(scorers)), rows[seen][:1000])


def fitted(
    rows: NDArray[np.float32],
    relevant: NDArray[np.bool_],
    options: LearnedRerankerOptions,
    monotonic: Sequence[int] | None = None,
) -> Any:
    """scikit-learn's classifier for features, shape [rows, features], and whether each row is relevant.

    `monotonic`: how relevance may go with each feature, as `directions` has it.
    """
    from sklearn.ensemble import HistGradientBoostingClassifier

    return HistGradientBoostingClassifier(
        max_iter=options.trees,
        max_depth=options.leaves_deep,
        learning_rate=options.learning_rate,
        min_samples_leaf=min(options.rows_in_leaf, max(1, len(rows) // 20)),
        l2_regularization=options.regularization,
        monotonic_cst=list(monotonic) if monotonic is not None else None,
        early_stopping=False,
        random_state=options.seed,
    ).fit(rows, relevant)


def exported(classifier: Any, rows: NDArray[np.float32]) -> tuple[float, tuple[Tree, ...]]:
    """The terms that a fitted HistGradientBoostingClassifier of two classes adds up: its start, and its trees.

    They are not part of scikit-learn's public interface, so they are checked against its own answers for `rows`.
    """
    import numpy as np

    try:
        base = float(np.ravel(classifier._baseline_prediction)[0])
        trees = tuple(_exported_tree(one.nodes) for (one,) in classifier._predictors)
    except (AttributeError, KeyError, ValueError, TypeError) as error:
        raise InvalidData(f"ccheck can't read the trees of scikit-learn {_sklearn_version()}: {error}") from error
    own = LearnedModel((), base, trees, {}).logits(rows)
    if not np.allclose(own, classifier.decision_function(rows), atol=1e-6):
        raise InvalidData(
            f"ccheck does not read the trees of scikit-learn {_sklearn_version()} correctly. Install an earlier version"
        )
    return base, trees


def _exported_tree(nodes: Any) -> Tree:
    import numpy as np

    inner = ~nodes["is_leaf"].astype(bool)
    return Tree(
        np.where(inner, nodes["feature_idx"], -1).astype(np.int64),
        np.where(inner, nodes["num_threshold"], 0.0),
        np.where(inner, nodes["left"], -1).astype(np.int64),
        np.where(inner, nodes["right"], -1).astype(np.int64),
        nodes["value"].astype(np.float64),
    )


def _sklearn_version() -> str:
    from importlib.metadata import version

    return version("scikit-learn")
