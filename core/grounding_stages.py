"""The stages of a recipe that look inside articles: `[figures]` and `[passages]`, after Context24 (SDP at ACL 2024)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from .stages import Named, Required, Stage, Uses, Weight

Searched: TypeAlias = Literal["bm25", "dense", "hybrid"]

_RETRIEVER = "how texts are scored; hybrid: reciprocal rank fusion of both (k = 60)"
EmbeddingModel: TypeAlias = Annotated[
    str | None,
    Field(description="the embedding model of dense and hybrid; default: all-MiniLM-L6-v2"),
    Named("embedding", lambda stage: stage.retriever != "bm25"),
]
Instruction: TypeAlias = Annotated[
    str, Field(description="text before each claim when it is embedded, which some models need")
]
MergeWeight: TypeAlias = Annotated[Weight, Field(description="its weight in the merge of scores")]
K1: TypeAlias = Annotated[float, Field(ge=0, le=10, description="k1 of BM25; rank_bm25's is 1.5")]
_LLM = "the language model; default: the one in the settings"


class ElementRun(Stage):
    """Ranks figures and tables by the text that stands for each (element-guided).

    `text` says what stands for an element: its `caption`, a table's `cells`, the paragraph where the file `places` it,
    the `sentences` that cite it, the windows of `tokens` words that do, or `semantic` chunks (whole sentences of one
    paragraph, at most `characters`) that do. BM25's statistics cover all elements of all articles that you gave.
    """

    kind: Literal["element-guided"] = "element-guided"
    text: list[Literal["caption", "cells", "place", "sentences", "windows", "semantic"]] = Field(
        default=["caption", "windows"], min_length=1
    )
    captions: int = Field(default=1, ge=1, le=10, description="how many times the words of the caption count")
    neighbours: int = Field(default=0, ge=0, le=10, description="for sentences: how many on either side are added")
    tokens: int = Field(default=100, ge=16, le=8192, description="for windows: their size in words")
    characters: int = Field(default=1000, ge=100, le=100_000, description="for semantic: the largest chunk")
    retriever: Searched = Field(default="bm25", description=_RETRIEVER)
    k1: K1 = 1.2
    model: EmbeddingModel = None
    instruction: Instruction = ""
    rephrased: bool = Field(
        default=False, description="true: a language model says what the element presents, and this text stands for it"
    )
    llm: Annotated[str | None, Named("language model", lambda run: run.rephrased)] = Field(None, description=_LLM)
    weight: MergeWeight = 1.0
    required: Required = True


class ChunkRun(Stage):
    """Ranks figures and tables by the chunks of the article that cite them (chunk-guided).

    Chunks are ranked for the claim within the article. `rank-fusion`: an element's score is the sum of 1 / rank over
    the chunks that cite it. `first-mention`: elements in the order in which the ranked chunks mention them. `llm`: a
    language model orders them from the best chunks.
    """

    kind: Literal["chunk-guided"] = "chunk-guided"
    granularity: Literal["sentence", "paragraph", "window"] = "window"
    tokens: int = Field(default=512, ge=16, le=8192, description="for windows: their size in words")
    captions: bool = Field(default=False, description="true: each caption is a chunk too, which cites its element")
    order: Literal["rank-fusion", "first-mention", "llm"] = "rank-fusion"
    retriever: Searched = Field(default="bm25", description=_RETRIEVER)
    model: EmbeddingModel = None
    instruction: Instruction = ""
    llm: Annotated[str | None, Named("language model", lambda run: run.order == "llm")] = Field(None, description=_LLM)
    chunks: int = Field(default=20, ge=1, le=200, description="for llm: how many chunks it reads")
    weight: MergeWeight = 1.0
    required: Required = True


class ImageRun(Stage):
    """Ranks figures and tables by their images: the cosine of the claim's and the image's embedding (CLIP).

    It leaves out elements without an image. The paper does not say which of OpenAI's models it took.
    """

    kind: Literal["image"] = "image"
    model: Annotated[str, Named("images")] = Field(
        default="openai/clip-vit-large-patch14", description="a CLIP model, by its name or folder"
    )
    weight: MergeWeight = 1.0
    required: Required = True


Merge: TypeAlias = Literal["round-robin", "rank-and-score", "scores"]
_S = "for rank-and-score: each further run counts this many times less"


class MergedRun(Stage):
    """A run that is a merge of others, as the hierarchical runs over all granularities are. See `FiguresStage`."""

    kind: Literal["merged"] = "merged"
    runs: dict[str, Annotated[ElementRun | ChunkRun | ImageRun, Field(discriminator="kind")]] = Field(min_length=1)
    merge: Merge = "rank-and-score"
    s: float = Field(default=1.0, ge=1, le=100, description=_S)
    weight: MergeWeight = 1.0
    required: Required = True

    def uses(self) -> Uses:
        return tuple(use for run in self.runs.values() for use in run.uses())


FigureRun: TypeAlias = Annotated[ElementRun | ChunkRun | ImageRun | MergedRun, Field(discriminator="kind")]


class FiguresStage(Stage):
    """Which figures and tables of an article ground a claim: one or more runs, and how they are merged.

    `round-robin`: pass n appends what is new among the next n of each run. `rank-and-score`: the sum of
    1 / (rank * s ** (place of the run - 1)), the best run first; the paper gives s = 2 without a formula. `scores`: the
    weighted sum of scores, each divided by the run's best.
    """

    runs: dict[str, FigureRun] = Field(min_length=1)
    merge: Merge = "rank-and-score"
    s: float = Field(default=2.0, ge=1, le=100, description=_S)
    why: int = Field(default=3, ge=0, le=20, description="how many pieces of evidence each element shows")


class PassagesStage(Stage):
    """Which passages of an article show how it arrived at a claim.

    Takes the best `sentences`, each with `neighbours` sentences before it. With a list of `expressions`, it keeps only
    those that contain one of them, or all if none does. Then a language model can choose from them (`llm`); or it
    chooses from the whole article, without any of this (`llm-article`).
    """

    sentences: int = Field(default=5, ge=1, le=100)
    neighbours: int = Field(default=1, ge=0, le=5)
    retriever: Searched = Field(default="bm25", description=_RETRIEVER)
    k1: K1 = 1.2
    model: EmbeddingModel = None
    instruction: Instruction = ""
    expressions: Path | Literal["none", "packaged"] = Field(
        default="packaged", description="a file with one on each line, packaged or none"
    )
    clauses: bool = Field(default=False, description="true: clauses instead of sentences")
    select: Literal["none", "llm", "llm-article"] = Field(
        default="none", description="llm: a language model selects; llm-article: it reads the whole article"
    )
    llm: Annotated[str | None, Named("language model", lambda stage: stage.select != "none")] = Field(
        default=None, description=_LLM
    )
