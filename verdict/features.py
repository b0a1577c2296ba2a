"""Stances from a linear model over features of a claim and a document.

The features are the embeddings u of the claim and v of the document's nearest sentence, as u, v, |u - v| and u * v
(Conneau et al., EMNLP 2017, join sentences for inference like that), and counts: words, numbers and negations that this
sentence shares with the claim, the mean of `polarity.relations` over the `NEAR` nearest sentences, and how much of the
claim the whole document covers. `ccheck train stance --method features` trains it, in seconds after the embedding.
"""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.analysis import clean, sentence_spans, terms
from ..core.errors import InvalidData, NotFound
from ..core.models import check_device, find_model, fingerprint, loading_quietly, require_models
from ..core.special_tokens import words_only_in
from ..core.types import Document, Stance
from .classifier import read_labels
from .judge import NO_TEXT, Case, Judged, in_groups, likeliest
from .labels import STANCES
from .polarity import RELATIONS, read_words, relations

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MODEL_TYPE = "ccheck-pair-features"
VERSION = 2
MAX_SENTENCES = 64
"""Most sentences of a document that are embedded: those that share most words with the claim."""
NEAR = 3
"""How many of the nearest sentences are compared with the claim word by word."""
COUNTS = 26 + RELATIONS
"""The number of features that are not embeddings."""
ONE_SENTENCE = COUNTS - 8
"""The place among them of the one that is 1 for a document of one sentence, else 0."""
EMBEDDING_SCALE = 3.0
"""Factor for the embeddings, which are unit vectors, beside counts of deviation 1: they share one regularisation."""
LARGEST = 5.0
"""Standardised counts are clipped here, so that no rare one decides alone."""
_DENIAL = re.compile(
    r"\b(?:not|no|never|without|cannot|neither|nor|none|lack\w*|fail\w*|absen\w*|false|myth|wrong|little|few|less|decrea\w*"
    r"|reduc\w*|inhibit\w*|low\w*|down\w*|declin\w*|prevent\w*|cool\w*)\b|n't\b",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"\d+(?:\.\d+)?")


def is_feature_model(folder: Path) -> bool:
    """Whether a folder holds a model of this kind."""
    try:
        data = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(data, dict) and data.get("model_type") == MODEL_TYPE


class FeatureStances:
    """Tells what documents say about claims, with a linear model of pair features. A `StanceMethod`."""

    def __init__(self, folder: str, device: str | None = None, *, on_load: Callable[[], None] = lambda: None) -> None:
        """Read the model; the embedding model is loaded with the first claim, after `on_load`.

        Raises MissingExtra without torch, NotFound where the folder or its embedding model is missing, InvalidData for
        a folder that holds no such model, or where the embedding model has other weights than it was trained with.
        """
        require_models("judging with a stance model")
        path = Path(folder).expanduser().resolve()
        self.name = f"stance:{path}"
        self.labels = read_labels(path)
        self._weights = _read(path, len(self.labels))
        made_with = self._weights["embedding"]
        found = find_model(made_with["model"])
        if fingerprint(found.path) != made_with["fingerprint"]:
            raise InvalidData(
                f"{path} was trained on embeddings of {made_with['model']}, but that model has other weights here. "
                "Install the same one, or train the stance model again"
            )
        self._device, self._on_load, self._path = device, on_load, found.path

    def __call__(self, cases: Sequence[Case]) -> Iterator[Judged]:
        """One for each case, in order. A document that can't be read gets a stance without a label."""
        for group in in_groups(cases):
            yield from self._judge(group)

    def _judge(self, cases: Sequence[Case]) -> Iterator[Judged]:
        """The texts of these cases are embedded together."""
        pieces = [(case.claim.text, piece.document) for case in cases for piece in case.evidence]
        readable = [bool(sentences_of(document)) for _, document in pieces]
        pairs = [pair for pair, one in zip(pieces, readable, strict=True) if one]
        rows = iter(pair_features(pairs, self._embed) if pairs else ())
        stances = iter([self._stance(next(rows)) if one else Stance(None, error=NO_TEXT) for one in readable])
        for case in cases:
            yield Judged(tuple(next(stances) for _ in case.evidence))

    def _stance(self, row: NDArray[np.float32]) -> Stance:
        import numpy as np

        values = self._weights["coefficients"] @ scaled(row, self._weights) + self._weights["intercept"]
        values = np.exp(values - values.max())
        values /= values.sum()
        return likeliest([float(values[self.labels.index(label)]) for label in STANCES])

    @functools.cached_property
    def _embed(self) -> Callable[[Sequence[str]], NDArray[np.float32]]:
        if self._device is not None:
            check_device(self._device)
        self._on_load()
        return embedding(self._path, self._device)


def embedding(path: Path, device: str | None = None) -> Callable[[Sequence[str]], NDArray[np.float32]]:
    """Texts to unit vectors, shape [texts, dimensions], with a model of sentence-transformers in a folder."""
    with loading_quietly():
        from sentence_transformers import SentenceTransformer

        model = SentenceTransformer(
            str(path),
            device=device,
            trust_remote_code=False,
            local_files_only=True,
            model_kwargs={"use_safetensors": True},
        )
    words_only_in(model)

    def embed(texts: Sequence[str]) -> NDArray[np.float32]:
        import numpy as np

        vectors = model.encode(list(texts), normalize_embeddings=True, show_progress_bar=False, batch_size=64)
        return np.asarray(vectors, dtype=np.float32)

    return embed


def sentences_of(document: Document) -> list[str]:
    """The sentences of a document's text; its title if it has no text."""
    text = clean(document.text).strip()
    found = [text[start:end] for start, end in sentence_spans(text)] if text else []
    return found or [title for title in (clean(document.title).strip(),) if title]


def pair_features(
    pairs: Sequence[tuple[str, Document]],
    embed: Callable[[Sequence[str]], NDArray[np.float32]],
    *,
    read: int = MAX_SENTENCES,
) -> NDArray[np.float32]:
    """The features of claims and documents, shape [pairs, 4 * dimensions + COUNTS]. Each text is embedded once.

    Of a document with more than `read` sentences, those are embedded that share most words with the claim. A document
    must have a sentence or a title.
    """
    import numpy as np

    if not pairs:
        return np.zeros((0, 0), dtype=np.float32)
    rows = []
    for u, v, counts, _ in _compared(pairs, embed, read):
        rows.append(np.concatenate([u, v, np.abs(u - v), u * v, counts]))
    return np.stack(rows)


def counts_and_nearest(
    pairs: Sequence[tuple[str, Document]],
    embed: Callable[[Sequence[str]], NDArray[np.float32]],
    *,
    read: int = MAX_SENTENCES,
) -> tuple[NDArray[np.float32], list[list[str]]]:
    """Those of `pair_features` that are not embeddings, shape [pairs, COUNTS], and the `NEAR` sentences of each
    document that are nearest to its claim, in the document's order."""
    import numpy as np

    compared = list(_compared(pairs, embed, read))
    counts = np.array([counts for _, _, counts, _ in compared], dtype=np.float32).reshape(-1, COUNTS)
    return counts, [near for *_, near in compared]


def _compared(
    pairs: Sequence[tuple[str, Document]], embed: Callable[[Sequence[str]], NDArray[np.float32]], read: int
) -> Iterator[tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32], list[str]]]:
    """For each pair the vectors of the claim and of the nearest sentence, the counts, and the nearest sentences."""
    import numpy as np

    all_sentences = [sentences_of(document) for _, document in pairs]
    chosen = [_nearest_words(clean(claim), some, read) for (claim, _), some in zip(pairs, all_sentences, strict=True)]
    titles = [clean(document.title).strip() for _, document in pairs]
    texts = dict.fromkeys(
        [clean(claim) for claim, _ in pairs]
        + [some[place] for some, places in zip(all_sentences, chosen, strict=True) for place in places]
        + [title for title in titles if title]
    )
    vectors = embed(list(texts)) if texts else np.zeros((0, 0), np.float32)
    place_of = {text: number for number, text in enumerate(texts)}
    for (claim, _), some, places, title in zip(pairs, all_sentences, chosen, titles, strict=True):
        u = vectors[place_of[clean(claim)]]
        near = vectors[[place_of[some[place]] for place in places]]
        cosines = near @ u
        order = np.argsort(-cosines, kind="stable")
        best = int(order[0])
        words = read_words(clean(claim))
        nearest = [places[number] for number in order[:NEAR]]
        said = [relations(words, read_words(some[place])) for place in nearest]
        counts = [
            *_counts(clean(claim), some[places[best]], title),
            *np.mean(said, axis=0),
            *_coverage(words.kinds, [*some, title]),
            *_placed(cosines[order], places[best], len(some)),
            float(vectors[place_of[title]] @ u) if title else 0.0,
        ]
        yield u, near[best], np.array(counts, dtype=np.float32), [some[place] for place in sorted(nearest)]


def scaled(row: NDArray[np.float32], weights: dict[str, Any]) -> NDArray[np.float64]:
    """The features as the linear model takes them: the counts, which are the last ones, standardised and cut."""
    import numpy as np

    taken = row.astype(np.float64)
    counts = (taken[..., -COUNTS:] - weights["mean"]) / weights["scale"]
    taken[..., -COUNTS:] = np.clip(counts, -LARGEST, LARGEST)
    taken[..., :-COUNTS] *= EMBEDDING_SCALE
    return taken


def _nearest_words(claim: str, sentences: Sequence[str], most: int) -> list[int]:
    """The places of up to `most` sentences that share most words with the claim, in the document's order."""
    if len(sentences) <= most:
        return list(range(len(sentences)))
    wanted = set(terms(claim))
    shared = [len(wanted.intersection(terms(sentence))) for sentence in sentences]
    return sorted(sorted(range(len(sentences)), key=lambda number: (-shared[number], number))[:most])


def _counts(claim: str, sentence: str, title: str) -> list[float]:
    """The 13 counts and shares of words, numbers and denials in claim and sentence."""
    words, others = set(terms(claim)), set(terms(sentence))
    numbers, given = set(_NUMBER.findall(claim)), set(_NUMBER.findall(sentence))
    denied, denies = len(_DENIAL.findall(claim)), len(_DENIAL.findall(sentence))
    shared = len(words & others)
    return [
        shared / max(1, len(words)),
        shared / max(1, len(others)),
        len(words.intersection(terms(title))) / max(1, len(words)),
        len(numbers & given),
        len(numbers - given),
        len(numbers),
        len(given),
        denied,
        denies,
        abs(denied - denies),
        (denied > 0) != (denies > 0),
        len(words),
        len(others),
    ]


def _coverage(words: set[str], texts: Sequence[str]) -> list[float]:
    """How much of the claim's words the whole document has: 2 numbers."""
    given = set().union(*(read_words(text).kinds for text in texts))
    return [len(words & given) / max(1, len(words)), len(words - given)]


def _placed(cosines: NDArray[np.float32], best: int, count: int) -> list[float]:
    """Where of `count` sentences the nearest one stands, and how near those are that were read: 10 numbers.

    The cosines are sorted.
    """
    second = min(1, len(cosines) - 1)
    return [
        math.log1p(count),
        best / max(1, count - 1),
        best == count - 1,
        count == 1,
        float(cosines[0]),
        float(cosines[second]),
        float(cosines[0] - cosines[second]),
        float(cosines[:NEAR].mean()),
        float(cosines.mean()),
        float(cosines.std()),
    ]


def _read(path: Path, labels: int) -> dict[str, Any]:
    """The weights of a folder, and the embedding model that they are for."""
    import numpy as np
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        config = json.loads((path / "config.json").read_text(encoding="utf-8"))
        if config["model_type"] != MODEL_TYPE or config["version"] != VERSION:
            raise ValueError(f"model_type {config['model_type']!r}, version {config['version']!r}")
        made_with = {name: str(config["embedding"][name]) for name in ("model", "fingerprint")}
        weights: dict[str, Any] = dict(load_file(path / "model.safetensors"))
        width = 4 * int(config["embedding"]["dimensions"]) + COUNTS
        shapes = {"coefficients": (labels, width), "intercept": (labels,), "mean": (COUNTS,), "scale": (COUNTS,)}
        for name, shape in shapes.items():
            if weights[name].shape != shape or not np.isfinite(weights[name]).all():
                raise ValueError(
                    f"{name} has the shape {weights[name].shape} instead of {shape}, or has values that are not numbers"
                )
    except FileNotFoundError as error:
        raise NotFound(f"{path} is not a stance model: {Path(error.filename or '').name} is missing") from error
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise InvalidData(
            f"{path} is not a stance model of pair features ({type(error).__name__}: {error}). Make it again with "
            "ccheck train stance --method features"
        ) from error
    return {**weights, "embedding": made_with}
