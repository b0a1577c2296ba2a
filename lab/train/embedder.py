"""Training embedding models with sentence-transformers, whole or with LoRA. `EmbedderOptions` describes the losses."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ...core.errors import InvalidData, UsageError
from ...core.models import find_model, fingerprint, load_encoder, loading_quietly
from ...core.runtime import Runtime
from ...core.types import Claim, Document, Vector
from .figures import Report
from .loop import Output, Phase, Training, checkpointing
from .options import EmbedderOptions, Lora
from .ranker import checked, train_ranker
from .retrieval_data import Drawing, Drawn, RetrievalData, draw_negatives, read_negatives

DEPTH = 100
"""How many documents a ranking that is measured has."""
_BATCH = 32


def train_embedder(options: EmbedderOptions, data: RetrievalData, output: Output, runtime: Runtime) -> Report:
    """Train an embedding model and save it where `ccheck ingest --model FOLDER` finds it. Raises as `train_ranker`."""
    return train_ranker(lambda training: Embedder(options, data, training), options, data, output, runtime)


class Embedder:
    """An embedding model while it is trained: a `Learner`."""

    kind, use = "embedder", "ccheck ingest CORPUS --model"
    metrics: tuple[str, ...] = ("nDCG@10", "R@100")

    def __init__(self, options: EmbedderOptions, data: RetrievalData, training: Training) -> None:
        self.options, self.data, self.training = options, data, training
        self.phases = [Phase("embedder", options.epochs)]
        self.choosing = data.chosen_by
        self.model, self._tokenizer_as_before = load_base(options, training.device)
        self._own_length = self.model.max_seq_length
        if options.max_tokens is not None:
            self.model.max_seq_length = options.max_tokens
        self.tokens: int = self.model.max_seq_length
        self.model.to(training.device)
        self._adapted: Any = None
        if options.lora is not None:
            self._adapted = add_lora(self.model.transformers_model, options.lora)
            if options.gradient_checkpointing:
                self.model.transformers_model.enable_input_require_grads()
        measured = [claim for claims in data.groups.values() for claim in claims]
        self._pools = {
            True: pool_of(data, measured, options.final_pool, options.seed),
            False: pool_of(data, self.choosing, options.pool, options.seed),
        }
        self.notes: list[str] = []
        if measured:
            count = len(self._pools[True])
            self.notes.append(f"the figures rank {count:,} of {len(data.documents):,} documents with this model alone")

    def rank(self, claims: Sequence[Claim], *, final: bool) -> dict[str, dict[str, float]]:
        """The `DEPTH` documents of highest cosine for each claim."""
        if not claims:
            return {}
        documents = self._pools[final]
        given = {"batch_size": _BATCH, "normalize_embeddings": True, "show_progress_bar": False}
        with self.training.judging(self.model):
            queries = self.model.encode_query([claim.text for claim in claims], **given)
            found = self.model.encode_document([document.content for document in documents], **given)
        return nearest(claims, queries, [document.id for document in documents], found)

    def trainer(self, phase: Phase) -> Any:
        rows = embedder_rows(self.options, self.data)
        if count := sum(len(row.negatives) for row in rows):
            judged = sum(len(set(self.data.judged_not(row.claim)).intersection(row.negatives)) for row in rows)
            self.notes.append(
                f"{phase.name}: {count:,} negatives; {judged:,} of them were judged not relevant to their claim"
            )
            self.training.runtime.notify(self.notes[-1])
        self.training.runtime.notify(f"{phase.name}: {len(rows):,} pairs, {phase.epochs} epochs")
        return self.trainer_on(rows, phase)

    def trainer_on(self, rows: Sequence[Drawn], phase: Phase) -> Any:
        """The Trainer of sentence-transformers on some rows."""
        from datasets import Dataset
        from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments

        own = {id_: self.data.documents[id_].content for id_ in self.data.visible}
        texts = [[own[id_] for id_ in (row.positive, *row.negatives)] for row in checked(rows)]
        names = ["positive", *(f"negative_{n}" for n in range(len(rows[0].negatives)))]
        columns = {
            "anchor": [row.claim.text for row in rows],
            **{name: [row[place] for row in texts] for place, name in enumerate(names)},
        }

        class EmbedderTrainer(checkpointing(SentenceTransformerTrainer)):  # type: ignore[misc] # made when it is called
            def add_model_card_callback(self, default_args_dict: dict[str, Any]) -> None:
                """None: ccheck writes the card, and theirs prints and embeds examples."""

        told = self.training.arguments(phase, len(rows))
        if self.options.loss == "multiple-negatives":
            told["batch_sampler"] = "no_duplicates"  # a text is never a negative of itself
        if prompts := _prompts(self.model, list(columns)):
            told["prompts"] = prompts
        return EmbedderTrainer(
            model=self.model,
            args=SentenceTransformerTrainingArguments(**told),
            train_dataset=Dataset.from_dict(columns),
            loss=_loss(self.model, self.options),
        )

    def save(self, folder: Path) -> None:
        if self._adapted is not None:
            self._adapted.merge_and_unload()
        # What was cut in training need not be cut in use.
        self.model.max_seq_length = self._own_length
        self._tokenizer_as_before()
        with loading_quietly():
            self.model.save(str(folder), create_model_card=False, safe_serialization=True)


def load_base(options: EmbedderOptions, device: str) -> tuple[Any, Callable[[], None]]:
    """A SentenceTransformer on the CPU, and what makes its tokenizer the base's again, to be called before saving.

    It reads special tokens in texts as words. A plain encoder gets mean pooling. Raises NotFound or InvalidData.
    """
    import torch

    found = find_model(options.base)
    fingerprint(found.path)  # NotFound without safetensors
    half = options.lora is not None and device == "cuda"
    torch.manual_seed(options.seed)
    dtype = torch.bfloat16 if half else torch.float32
    model, as_before = load_encoder("SentenceTransformer", "an embedding model", found, "cpu", dtype)
    if model.transformers_model is None:
        raise InvalidData(f"{found.path} contains no transformer to train")
    return model, as_before


def embedder_rows(options: EmbedderOptions, data: RetrievalData) -> list[Drawn]:
    """The pairs or triplets of the training claims; negatives are mined ones and those judged, random ones fill up.

    Without mined or judged ones, `multiple-negatives` has those of the batch alone.
    """
    mined = read_negatives(options.negatives, data.documents) if options.negatives is not None else None
    triplet = options.loss == "triplet"
    wanted = max(1, options.hard) if triplet else options.hard
    if not triplet and not mined and not any(data.judged_not(claim) for claim in data.train):
        wanted = 0
    how = Drawing(wanted, wanted, negatives_from=options.negatives_from, seed=options.seed)
    drawn = draw_negatives(data, data.train, how, mined=mined)
    rows = [replace(row, hard=row.negatives[:wanted], random=()) for row in drawn]
    if triplet:
        return [replace(row, hard=(negative,)) for row in rows for negative in row.negatives]
    # If the corpus is so small that some have fewer, all have as many as the fewest: a batch is a table.
    fewest = min((len(row.negatives) for row in rows), default=0)
    return [replace(row, hard=row.negatives[:fewest]) for row in rows]


def pool_of(data: RetrievalData, claims: Sequence[Claim], size: int, seed: int) -> list[Document]:
    """The documents that are ranked: all judged ones of the claims, and others, drawn by the seed, up to `size`."""
    judged = {id_ for claim in claims for id_ in data.qrels[str(claim.id)] if id_ in data.documents}
    others = sorted(data.documents.keys() - judged)
    room = max(0, size - len(judged))
    if room < len(others):
        others = random.Random(seed).sample(others, room)  # noqa: S311 - a sample, not a secret
    return [data.documents[id_] for id_ in sorted([*judged, *others])]


def nearest(
    claims: Sequence[Claim], queries: Vector, ids: Sequence[str], documents: Vector
) -> dict[str, dict[str, float]]:
    """Rankings by the cosines of unit vectors."""
    run = {}
    cosines = np.asarray(queries, np.float32) @ np.asarray(documents, np.float32).T
    for claim, scores in zip(claims, cosines, strict=True):
        best = np.argsort(-scores, kind="stable")[:DEPTH]
        run[str(claim.id)] = {ids[i]: float(scores[i]) for i in best}
    return run


def _loss(model: Any, options: EmbedderOptions) -> Any:
    from sentence_transformers.sentence_transformer import losses

    if options.loss == "triplet":
        metric = losses.TripletDistanceMetric.COSINE
        return losses.TripletLoss(model, distance_metric=metric, triplet_margin=options.margin)
    if options.chunk >= options.batch:
        # The same value, without computing everything twice.
        return losses.MultipleNegativesRankingLoss(model)
    return losses.CachedMultipleNegativesRankingLoss(model, mini_batch_size=options.chunk)


def _prompts(model: Any, columns: Sequence[str]) -> dict[str, str]:
    """The prompt that the model puts before claims or documents, for each column of the training data that has one."""
    known = dict(getattr(model, "prompts", None) or {})
    query = known.get("query") or ""
    document = next((known[name] for name in ("document", "passage", "corpus") if known.get(name)), "")
    told = {column: query if column == "anchor" else document for column in columns}
    return {column: prompt for column, prompt in told.items() if prompt}


ATTENTION = frozenset(
    "q_proj k_proj v_proj qkv_proj query key value query_proj key_proj value_proj Wqkv q_lin k_lin v_lin".split()
)
"""How architectures call the maps to queries, keys and values."""


def add_lora(model: Any, wanted: Lora) -> Any:
    """Freeze a model except for low-rank additions to its linear maps.

    Changes the model in place; `merge_and_unload` of what it returns adds them to the weights. Raises UsageError for
    modules that the model lacks.
    """
    import peft
    import torch

    names = {name.rpartition(".")[2] for name, part in model.named_modules() if isinstance(part, torch.nn.Linear)}
    targets = set(wanted.modules) or names & ATTENTION
    if not targets or not targets <= names:
        missing = ", ".join(sorted(targets - names)) or "attention"
        raise UsageError(f"lora: the model has no linear layer {missing}. It has {', '.join(sorted(names))}")
    layers = model.config.get_text_config().num_hidden_layers
    if wanted.last_layers is not None and wanted.last_layers > layers:
        raise UsageError(f"lora: the model has {layers} layers, not {wanted.last_layers}")
    # Names are like `encoder.layer.11.attention.self.query`. peft's own setting of layers misses those that begin with
    # the list of layers: `layers.11.self_attn.q_proj`.
    numbers = "|".join(map(str, range(layers - (wanted.last_layers or layers), layers)))
    config = peft.LoraConfig(
        r=wanted.r,
        lora_alpha=wanted.alpha,  # type: ignore[arg-type, unused-ignore] # peft divides it, whole or not
        lora_dropout=wanted.dropout,
        target_modules=rf"(\D*\.)?({numbers})\.(.*\.)?({'|'.join(sorted(targets))})",
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of peft about transformers: nothing that a user could change
        return peft.get_peft_model(model, config)
