"""The stages of a recipe: each is a table of its TOML, with its keys, defaults and limits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import BeforeValidator, Field, StringConstraints, field_validator, model_validator

from .layout import Analysis as Analysis
from .layout import Terms, Units, Vectors, Weights, Words
from .table import Table

ModelKind: TypeAlias = Literal["tokenizer", "embedding", "sparse", "images", "reranker", "language model", "stance"]
"""What a model is used as."""
Uses: TypeAlias = tuple[tuple[str | None, ModelKind], ...]


@dataclass(frozen=True, slots=True)
class Named:
    """Marks the key of a stage that names a model, or several, and says what it is used as.

    `when`: whether the stage uses it at all. None in the key stands for the model of the settings.
    """

    kind: ModelKind
    when: Callable[[Any], bool] = lambda stage: True


class Stage(Table):
    """A table of a recipe."""

    def uses(self) -> Uses:
        """The models that this table names, with what each is used as; None stands for the one in the settings."""
        return tuple(
            (name, mark.kind)
            for key, field in type(self).model_fields.items()
            for mark in field.metadata
            if isinstance(mark, Named) and mark.when(self)
            for value in [getattr(self, key)]
            for name in (value if isinstance(value, list) else [value])
        )


# -- keys that several stages have

Weight: TypeAlias = Annotated[float, Field(ge=1e-6, le=1e6)]
"""Outside of this, sums of weighted scores overflow, or Elasticsearch's floats make a weight 0."""
FusionWeight: TypeAlias = Annotated[Weight, Field(description="its weight in the fusion")]
RankConstant: TypeAlias = Annotated[int, Field(ge=1, le=1_000_000, description="rank constant")]
Returns: TypeAlias = Annotated[int, Field(ge=1, le=10_000, description="how many documents it returns")]
Reads: TypeAlias = Annotated[int, Field(ge=1, le=10_000, description="how many documents it reads")]
Required: TypeAlias = Annotated[bool, Field(description="false: skip it with a warning if it can't run")]
MaxTokens: TypeAlias = Annotated[int | None, Field(ge=32, le=131_072)]
Alpha: TypeAlias = Annotated[float, Field(ge=0, le=1, description="weight of the scores from before this stage")]
LanguageModel: TypeAlias = Annotated[
    str | None, Field(description="the language model; default: the one in the settings"), Named("language model")
]
QueryText: TypeAlias = Literal["claim", "rewrite", "expand", "hyde"]
"""The text that a retriever searches for: the claim itself, or a language model's version (see `RewritingStage`)."""
Granularity: TypeAlias = Annotated[
    str | None,
    Field(description="search units of this granularity instead of whole documents; depth then counts units"),
]
Parents: TypeAlias = Annotated[
    Literal["max", "sum", "first"] | None,
    Field(
        description="turn units into whole documents: by best score, sum of reciprocal ranks, or first; default: hits "
        "are units"
    ),
]
Prompts: TypeAlias = Annotated[
    Literal["own", "paper"],
    Field(description="paper: ask as the published system does (see below), not with ccheck's own prompts"),
]


def of_paper(prompt: str, prompts: Prompts) -> str:
    """The name of ccheck's prompt, or of the one that asks as the published system does."""
    return f"paper-{prompt}" if prompts == "paper" else prompt


File: TypeAlias = Annotated[Path | None, BeforeValidator(lambda value: None if value is False else value)]
"""`false` takes out the file that the recipe below names."""


class Bm25(Stage):
    """Finds documents with the claim's words, scored with BM25 (k1 = 1.2, b = 0.75).

    `fields` gives the boost of each field that is searched. `content` is title and text as one field, `additional` the
    texts that were made at ingest. With several fields, a document's score is its best field's, plus 0.3 times the
    scores of the others (a disjunction maximum). With an `analysis`, it searches title and text as terms of that
    analysis.
    """

    kind: Literal["bm25"] = "bm25"
    depth: Returns = 100
    weight: FusionWeight = 1.0
    fields: dict[str, Weight] = Field(default={"content": 1.0}, min_length=1)
    analysis: Analysis | None = None
    fuzziness: Literal["auto", 0, 1, 2] = Field(
        default=0,
        description="how many letters of a word may differ; auto: 0 for up to 2 letters, 1 for up to 5, else 2",
    )
    units: Granularity = None
    parents: Parents = None
    query: QueryText = "claim"
    required: Required = True

    @field_validator("fields", mode="before")
    @classmethod
    def _without_left_out(cls, fields: object) -> object:
        """`false` leaves a field out, also one that the recipe below names only by default."""
        if not isinstance(fields, dict):
            return fields
        return {name: boost for name, boost in fields.items() if boost is not False}

    @model_validator(mode="after")
    def _one_way(self) -> Bm25:
        if self.analysis is not None and set(self.fields) != {"content"}:
            raise ValueError("a retriever with an analysis searches the field content: leave out fields")
        if self.units is not None and (self.analysis is not None or set(self.fields) != {"content"} or self.fuzziness):
            raise ValueError("units have a single text field: leave out fields, analysis and fuzziness")
        return self

    @property
    def searches(self) -> Words | Terms | Units:
        if self.units is not None:
            return Units(self.units)
        return Terms(self.analysis) if self.analysis is not None else Words("additional" in self.fields)

    def uses(self) -> Uses:
        subwords = self.analysis.subwords if self.analysis is not None else None
        return ((subwords, "tokenizer"),) if subwords is not None else ()


class Dense(Stage):
    """Finds documents whose best passage has the embedding nearest to the claim's (cosine).

    `model`: by default the one that made the store's vectors. `candidates` is the number of neighbours that an
    approximate index looks at (Elasticsearch's `num_candidates`); the local store is exact.
    """

    kind: Literal["dense"] = "dense"
    depth: Returns = 100
    weight: FusionWeight = 1.0
    model: Annotated[str | None, Named("embedding")] = Field(
        default=None, description="the embedding model, a folder or a name"
    )
    field: str | None = Field(default=None, description="the store's field of vectors; default: the model's")
    passages: bool = Field(
        default=True, description="false: ingest embeds each document as one text, cut at the model's window"
    )
    candidates: int | None = Field(default=None, ge=1, le=10_000)
    units: Granularity = None
    parents: Parents = None
    query: QueryText = "claim"
    required: Required = True

    @property
    def searches(self) -> Vectors | Units:
        if self.units is not None:
            return Units(self.units, dense=True, model=self.model)
        return Vectors(self.model, self.passages, self.field)


class Sparse(Stage):
    """Finds documents with the dot product of learned sparse vectors (SPLADE, Formal et al., SIGIR 2021)."""

    kind: Literal["sparse"] = "sparse"
    model: Annotated[str, Named("sparse")] = Field(
        default="naver/splade-v3", description="the sparse encoder, a folder or a name"
    )
    depth: Returns = 100
    weight: FusionWeight = 1.0
    query: QueryText = "claim"
    required: Required = True

    units: ClassVar[None] = None
    parents: ClassVar[None] = None

    @property
    def searches(self) -> Weights:
        return Weights(self.model)


Retriever: TypeAlias = Annotated[Bm25 | Dense | Sparse, Field(discriminator="kind")]


class LanguageModelStage(Stage):
    """How the recipe's language models are asked. Without a key, as the settings say."""

    max_tokens: int | None = Field(
        default=None,
        ge=1,
        le=131_072,
        description="largest answer in tokens, reasoning included; your own CCHECK_LLM_MAX_TOKENS wins",
    )
    temperature: Annotated[float, Field(ge=0, le=2)] | Literal["default"] = Field(
        default=0.0, description="default: whatever the server takes for the model"
    )
    thinking: bool | None = Field(
        default=None,
        description="for models that think only if their chat template says so, on vLLM, SGLang and llama.cpp "
        "(enable_thinking)",
    )
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high"] | None = Field(
        default=None, description="on servers that take it, such as OpenAI's, Gemini's and Ollama's"
    )

    def parameters(self) -> dict[str, Any]:
        """The parameters of a request."""
        chosen: dict[str, Any] = {} if self.temperature == "default" else {"temperature": self.temperature}
        if self.thinking is not None:
            chosen["chat_template_kwargs"] = {"enable_thinking": self.thinking}
        if self.reasoning_effort is not None:
            chosen["reasoning_effort"] = self.reasoning_effort
        return chosen


class RewritingStage(Stage):
    """Rewrites the claim with a language model, for retrievers whose `query` asks for it.

    `rewrite`: the claim in the plain words of papers; `expand`: the claim and a few sentences as an abstract would have
    them; `hyde`: hypothetical papers that would answer it. Dense retrievers take the mean of their embeddings (Gao
    et al., ACL 2023).
    """

    llm: LanguageModel = None
    prompts: Prompts = "own"
    papers: int = Field(default=1, ge=1, le=8, description="how many hypothetical papers hyde writes")
    with_claim: bool = Field(default=False, description="true: the claim's embedding is part of hyde's mean")
    required: bool = Field(default=True, description="false: if it fails, search for the claim itself")


class AdditionalStage(Stage):
    """Texts that a language model writes about each document at ingest; searches can find documents by them."""

    summary: bool = Field(default=True, description="a summary in the words that people search with")
    posts: int = Field(default=1, ge=0, le=10, description="how many social media posts about it")
    llm: LanguageModel = None


class UnitsStage(Stage):
    """Parts of each document that are searched by themselves: sentences, paragraphs or windows."""

    cut: Literal["sentence", "paragraph", "window", "chunk"] = Field(
        default="sentence",
        description="chunk: as much as fits in characters, cut where the meaning breaks (headings, paragraphs, "
        "sentences, words)",
    )
    tokens: int = Field(default=256, ge=16, le=8192, description="for windows: the largest number of words")
    overlap: int = Field(
        default=0, ge=0, le=4096, description="for windows: how many words of the previous window are repeated"
    )
    characters: int = Field(
        default=2048, ge=100, le=100_000, description="for chunks: the largest number of characters"
    )
    dense: bool = Field(default=False, description="true: make vectors with the store's main model")

    @model_validator(mode="after")
    def _windows_move_on(self) -> UnitsStage:
        if self.overlap >= self.tokens:
            raise ValueError(f"overlap is {self.overlap}; it must be below tokens, which is {self.tokens}")
        return self


class IngestStage(Stage):
    """The parts that an ingest adds to the store beyond those that the retrievers search."""

    titles: bool = Field(
        default=True,
        description="false: titles become metadata, so that only the text is searched, reranked and judged",
    )
    additional: AdditionalStage | None = None
    units: dict[Annotated[str, StringConstraints(pattern="^[a-z0-9][a-z0-9-]*$")], UnitsStage] = Field(
        default={}, description="granularities by name; stores name a field after each"
    )


class Fusion(Stage):
    """How the retrievers' rankings become one.

    `rrf`: score(d) = sum of weight / (k + rank(d)) (Cormack, Clarke and Büttcher, SIGIR 2009). `minmax`: each
    retriever's scores are scaled to 0..1 over the documents that it returned, then summed by weight; k is not used.
    """

    method: Literal["rrf", "minmax"] = "rrf"
    k: RankConstant = 60


class ModelStage(Stage):
    """Reorders documents with a model that reads claim and document together.

    `model`: a name, a folder, the URL of a server, or `auto` (the sidecar of the settings, else what suits this
    machine). A document that is longer than `max_tokens` allows is cut.

    With an `alpha`, which all rerankers can have, documents are ordered by alpha * before + (1 - alpha) * own, both
    scaled to 0..1 over those that it reads. `before` are the scores of the reranker before it, else of the retrieval.
    """

    kind: Literal["model"] = "model"
    model: Annotated[str, Named("reranker", lambda stage: stage.model != "auto" and "://" not in stage.model)] = "auto"
    depth: Reads = 100
    alpha: Alpha = 0.0
    max_tokens: MaxTokens = Field(default=None, description="default: the model's own limit, at most 512")
    cutoff_layer: int | None = Field(
        default=None, ge=1, le=1000, description="for layerwise models: the layer that scores"
    )
    prompt: str | None = Field(default=None, description="for other decoders: the text after claim and document")
    yes_token: str | None = Field(default=None, description="for other decoders: the token whose logit is the score")
    dtype: Literal["float32", "bfloat16", "float16"] | None = Field(
        default=None, description="default: bfloat16 on a GPU that has it, float16 on others, float32 on a processor"
    )
    required: Required = True


class LateStage(Stage):
    """Reorders documents with late interaction: it matches each token of the claim with the closest one of the text.

    `model` is a BERT-type embedding model, whose token embeddings are used as they are.
    `documents`: embed the documents' tokens with a table that has one vector for each token (`static`, only with the
    packaged model), or let the model read them in their text, which takes a hundred times as long (`contextual`).
    A document that is longer than `max_tokens` is cut.
    """

    kind: Literal["late"] = "late"
    model: Annotated[str, Named("embedding")] = Field(
        default="ccheck/bge-small-en-v1.5-int8", description="a name or a folder"
    )
    documents: Literal["static", "contextual"] = "static"
    depth: Reads = 30
    alpha: Alpha = 0.5
    before: Literal["ranking", "retrievers"] = Field(
        default="ranking",
        description="the scores from before: those of the ranking, or the weighted sum of the retrievers' own, each "
        "scaled to 0..1",
    )
    window: int = Field(
        default=48,
        ge=0,
        le=131_072,
        description="how many tokens the matches may span; the best span counts; 0: the whole document",
    )
    idf: bool = Field(default=True, description="rare tokens count more")
    max_tokens: MaxTokens = Field(default=None, description="default: all of a static document, else the model's own")
    required: Required = True


class EnsembleStage(Stage):
    """Combines the rankings of several models with reciprocal ranks."""

    kind: Literal["ensemble"] = "ensemble"
    models: Annotated[list[str], Named("reranker")] = Field(min_length=1)
    k: RankConstant = 60
    depth: Reads = 100
    alpha: Alpha = 0.0
    max_tokens: MaxTokens = None
    required: Required = True


class ListwiseStage(Stage):
    """Lets a language model order the passages, in windows from the last to the first (RankGPT).

    Its own score of a document is 1 - (rank - 1) / (N - 1).
    """

    kind: Literal["listwise"] = "listwise"
    llm: LanguageModel = None
    depth: int = Field(default=20, ge=2, le=1000, description="how many documents it reads")
    window: int = Field(default=20, ge=2, le=100)
    stride: int = Field(default=10, ge=1, le=100)
    alpha: Alpha = 0.4
    examples: File = Field(default=None, description="labelled pairs of several documents a claim; JSON Lines")
    prompts: Prompts = "own"
    required: Required = True


RerankerStage: TypeAlias = Annotated[
    ModelStage | LateStage | EnsembleStage | ListwiseStage, Field(discriminator="kind")
]


class EvidenceStage(Stage):
    """How many sentences of each document are shown: those that share most with the claim."""

    sentences: int = Field(default=1, ge=0, le=10)


class QuestionsStage(Stage):
    """Checks a claim with questions: a language model asks them, answers each from what is found, and judges the claim
    by the answers alone (Ftouhi et al., FEVER 2025: the system OldJoe at AVeriTeC).

    The model analyses the claim and writes `count` questions, and for each `queries` search queries. A question and its
    queries search together. The `depth` of a retriever then counts over all queries of a question, and [fusion] sums
    weight / (k + rank within the query) by hit, over queries and retrievers. The best `passages` go to the model, which
    answers from them, or says that they hold no answer.
    """

    llm: LanguageModel = None
    asker: Annotated[str | None, Named("language model", lambda stage: stage.asker is not None)] = Field(
        default=None, description="the language model that writes questions and queries; default: llm"
    )
    count: int = Field(default=4, ge=1, le=20, description="how many questions a claim gets")
    queries: int = Field(default=3, ge=0, le=10, description="how many search queries each question gets")
    passages: int = Field(default=10, ge=1, le=100, description="how many passages the model reads for an answer")
    context: int = Field(
        default=8192,
        ge=1024,
        le=1_048_576,
        description="the model's context, in tokens; passages that do not fit are left out, the last ones first",
    )
    parallel: int = Field(default=4, ge=1, le=64, description="how many questions of a claim are worked on at a time")
    deadline: float | None = Field(
        default=None, gt=0, description="seconds for each claim; what is ready by then is judged; default: no limit"
    )
    collection: str | None = Field(
        default=None,
        description="metadata field with the ids of the claims whose collections a page is in; a claim with an id "
        "searches only its own collection",
    )
    until_claim: bool = Field(default=True, description="true: leave out pages that are newer than the claim")


LEAST_RELEVANCE = 0.25
"""If the probability that anything bears on a claim is lower, the packaged stance model is not asked: it would take
shared words for support. For BM25 alone the limit is another (`pipeline/relevance.py`)."""


class VerdictStage(Stage):
    """Which judge gives the stances. `auto`: the best one that is configured; `none`: no judge.

    `llm` asks a language model over HTTP, in the way that `strategy` names. `stance` is a sequence classifier.
    """

    method: Literal["auto", "llm", "stance", "none"] = "auto"
    model: str | None = Field(default=None, description="the model of the method; default: the one in the settings")
    strategy: Literal["one-step", "two-step", "hybrid", "batch"] = "one-step"
    documents: int = Field(default=10, ge=1, le=1000, description="how many hits are judged")
    examples: File = Field(default=None, description="labelled pairs for hybrid; JSON Lines")
    shots: int = Field(default=4, ge=1, le=50, description="how many examples of the file are shown, the first ones")
    prompts: Prompts = "own"
    batch: int = Field(default=50, ge=1, le=200, description="pairs in one prompt of the strategy batch")
    open_share: float | None = Field(
        default=None, ge=0, le=1, description="for batch: the expected share of open pairs"
    )
    calibration: File = Field(default=None, description="a file that ccheck wrote from labelled pairs")
    least_relevance: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="if the probability that anything found bears on the claim is lower, the verdict is "
        f"NOT_ENOUGH_INFO without asking a judge; 0 always asks. Default: {LEAST_RELEVANCE} (0.22 with BM25 alone) "
        "for the packaged stance model, and 0 for a judge that you set up",
    )

    def uses(self) -> Uses:
        return ((self.model, "stance" if self.method == "stance" else "language model"),)

    def asks(self) -> tuple[str, ...]:
        """The prompts with which it asks a language model."""
        two = self.strategy == "two-step"
        names = ("two-step-relevance", "two-step-polarity") if two else (self.strategy,)
        return tuple(of_paper(name, self.prompts) for name in names)
