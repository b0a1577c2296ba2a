"""Scoring texts with words, embeddings, or both; language models describe them, and order and select them by number."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..core.errors import NotFound, UsageError
from ..core.fusion import Scored, fuse
from ..core.grounding_stages import ChunkRun, ElementRun, PassagesStage
from ..core.stages import Fusion
from ..core.types import Vector
from ..llm.model import LanguageModel
from ..llm.prompts import load_prompt, numbered, quoted
from ..llm.reply import check_numbers
from ..llm.types import Reply
from .types import Element

Key = TypeVar("Key", bound=tuple[str, int])
FindImage: TypeAlias = Callable[[str, Element], Path | None]
"""An article's id and an element to the element's image, if it is there."""
_HYBRID = Fusion()
K1, B = 1.2, 0.75


@dataclass(frozen=True, slots=True)
class TextEncoder:
    """An embedding model: texts to float32 vectors of unit length, shape [texts, dimensions]."""

    documents: Callable[[Sequence[str]], Sequence[Vector]]
    queries: Callable[[Sequence[str]], Sequence[Vector]]


@dataclass(frozen=True, slots=True)
class ImageEncoder:
    """A model of images and texts: both become float32 vectors of unit length; None for an image that can't be read."""

    images: Callable[[Sequence[Path]], Sequence[Vector | None]]
    queries: Callable[[Sequence[str]], Sequence[Vector]]


class Bm25Index:
    """Scores as Lucene has them: idf = ln(1 + (N - n + .5) / (n + .5)), tf / (tf + k1 * (1 - b + b * length / mean)).

    Lengths are exact; search engines round them to a byte. `texts` are the terms of each text, and b is 0.75.
    """

    def __init__(self, texts: Sequence[Sequence[str]], k1: float = K1) -> None:
        lengths = np.array([len(text) for text in texts], np.float64)
        mean = float(lengths.mean()) if len(texts) else 0.0
        self._norms = k1 * (1 - B + B * lengths / (mean or 1.0))
        self._count = len(texts)
        postings: dict[str, list[tuple[int, int]]] = {}
        for number, text in enumerate(texts):
            for term, times in Counter(text).items():
                postings.setdefault(term, []).append((number, times))
        self._postings = {
            term: (np.array([one for one, _ in found], np.int32), np.array([times for _, times in found], np.float64))
            for term, found in postings.items()
        }

    def scores(self, terms: Sequence[str]) -> NDArray[np.float64]:
        """One score for each text, shape [texts]."""
        scores = np.zeros(self._count)
        for term, times in Counter(terms).items():
            if term in self._postings:
                rows, frequencies = self._postings[term]
                rarity = math.log(1 + (self._count - len(rows) + 0.5) / (len(rows) + 0.5))
                scores[rows] += times * rarity * frequencies / (frequencies + self._norms[rows])
        return scores


def _no_llm(name: str | None) -> LanguageModel:
    raise UsageError("this recipe asks a language model. Choose one with --llm MODEL")


@dataclass(frozen=True, slots=True)
class Models:
    """The models that a recipe names, by that name; None is the default one.

    `llm` opens a language model. `find_image` gives the images of runs of the kind image.
    """

    embedders: Mapping[str | None, TextEncoder] = field(default_factory=dict)
    images: Mapping[str, ImageEncoder] = field(default_factory=dict)
    llm: Callable[[str | None], LanguageModel] = _no_llm
    find_image: FindImage = lambda article, element: None


def searched(
    run: ElementRun | ChunkRun | PassagesStage,
    claim: str,
    keys: Sequence[Key],
    words: Callable[[], NDArray[np.float64]],
    texts: Callable[[], Sequence[str]],
    models: Models,
) -> Scored[Key]:
    """Keys by their scores, best first; with words alone only those that share one with the claim.

    `words` gives the score of each key, `texts` what is embedded for it, where the run's retriever needs them.
    """
    rankings: dict[str, Scored[Key]] = {}
    if keys and run.retriever in ("bm25", "hybrid"):
        scores = words()
        order = np.argsort(-scores, kind="stable")
        rankings["bm25"] = [(keys[row], float(scores[row])) for row in order if scores[row] > 0]
    if keys and run.retriever in ("dense", "hybrid"):
        encoder = models.embedders[run.model]
        cosines = np.asarray(encoder.documents(texts())) @ encoder.queries([run.instruction + claim])[0]
        order = np.argsort(-cosines, kind="stable")
        rankings["dense"] = [(keys[row], float(cosines[row])) for row in order]
    if run.retriever == "hybrid":
        return fuse(rankings, dict.fromkeys(rankings, 1.0), _HYBRID)
    return next(iter(rankings.values()), [])


ENDINGS = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".tif", ".tiff")


def image_finder(folders: Sequence[str | Path]) -> FindImage:
    """Finds an element's image in these folders and their subfolders, by names alone: no path of an article is opened.

    A file counts if it has the name that the article gives the image (with or without an ending), or if it lies in a
    folder with the article's id and has the name that Context24 gives the element (`FIG 1.png`). Links are not
    followed. Raises NotFound for a folder that does not exist.
    """
    by_name: dict[str, Path] = {}
    by_article: dict[tuple[str, str], Path] = {}
    for folder in folders:
        if not Path(folder).expanduser().is_dir():
            raise NotFound(f"there is no folder {folder} with images")
        for place, _, files in sorted(os.walk(Path(folder).expanduser())):
            for file in sorted(files):
                path = Path(place, file)
                if path.suffix.lower() in ENDINGS and path.is_file() and not path.is_symlink():
                    by_name.setdefault(_stem(file), path)
                    by_article.setdefault((path.parent.name, _stem(file)), path)

    def find(article: str, element: Element) -> Path | None:
        own = by_article.get((article, element.task_id.lower()))
        if own is not None or not element.image:
            return own
        named = _stem(element.image.replace("\\", "/").rpartition("/")[2])
        return by_article.get((article, named)) or by_name.get(named)

    return find


def _stem(name: str) -> str:
    """The name of an image without its ending. Other dots belong to it: `journal.pone.0058242.g001`."""
    name = name.lower()
    return next((name.removesuffix(ending) for ending in ENDINGS if name.endswith(ending)), name)


ELEMENTS, PASSAGES = ("claim", "count", "elements", "chunks"), ("claim", "count", "sentences")
ELEMENT = ("label", "text")
"""The placeholders of the prompts."""
CHUNK_CHARS = 6_000
"""Characters of a piece of the article that the model reads."""


class ElementOrder(Reply):
    """The numbers of elements, best first."""

    order: list[int]


class Selection(Reply):
    """The numbers of sentences."""

    selected: list[int]


class Description(Reply):
    """What an element presents."""

    description: str


def rephrased(llm: LanguageModel, label: str, text: str) -> str:
    """What the element with this label presents, given the text that stands for it."""
    prompt = load_prompt(__package__, "figure-description", ELEMENT, llm.prompts_dir)
    messages = prompt.messages(label=quoted(label), text=quoted(text[:CHUNK_CHARS]))
    return llm.ask(messages, Description).value.description


def ordered(llm: LanguageModel, claim: str, labels: Sequence[str], chunks: Sequence[str]) -> list[int]:
    """The numbers of the elements with these labels, from 0, best first."""
    prompt = load_prompt(__package__, "figures", ELEMENTS, llm.prompts_dir)
    read = "\n".join(quoted(text[:CHUNK_CHARS]) for text in chunks)
    elements = numbered("label", labels, CHUNK_CHARS)
    messages = prompt.messages(claim=quoted(claim), count=str(len(labels)), elements=elements, chunks=read)
    answer = llm.ask(
        messages, ElementOrder, check=lambda reply: check_numbers("order", reply.order, len(labels), "elements")
    )
    return [number - 1 for number in answer.value.order]


def selected(llm: LanguageModel, claim: str, texts: Sequence[str]) -> list[int]:
    """The numbers of the sentences, from 0, that ground the claim."""
    prompt = load_prompt(__package__, "grounding-passages", PASSAGES, llm.prompts_dir)
    sentences = numbered("sentence", texts, CHUNK_CHARS)
    messages = prompt.messages(claim=quoted(claim), count=str(len(texts)), sentences=sentences)
    answer = llm.ask(
        messages, Selection, check=lambda reply: check_numbers("selected", reply.selected, len(texts), "sentences")
    )
    return [number - 1 for number in answer.value.selected]
