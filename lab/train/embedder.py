"""Training embedding models with sentence-transformers, whole or with LoRA. `EmbedderOptions` describes the losses."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...core.errors import InvalidData, UsageError
from ...core.files import write_text
from ...core.models import check_attention, find_model, fingerprint, loading_quietly
from ...core.special_tokens import words_only_in
from ...core.text import first_line
from ...core.types import Claim, Document, Vector
from .card import retrieval_card
from .figures import Report, development_value, figures, metric_names, notes_on
from .folders import finish, work_folder
from .loop import (
    Listener,
    Phase,
    Silent,
    arguments,
    autocast,
    checkpointing,
    mixed_precision,
    require_training,
    run_phases,
    training_device,
)
from .lora import add_lora, merged
from .negatives import draw_negatives
from .options import EmbedderOptions, TrainingOptions
from .retrieval_data import RetrievalData, read_negatives, weak_pairs

METRICS = ("nDCG@10", "R@100")
DEPTH = 100
"""How many documents a ranking that is measured has."""
_BATCH = 32


@dataclass(frozen=True, slots=True)
class EmbedderRow:
    """A claim, the id of a relevant document, ids of others that are not relevant to it.

    `texts`: what is embedded of the relevant one and the others, if that is not what `document_text` gives of them.
    """

    claim: Claim
    positive: str
    negatives: tuple[str, ...]
    texts: tuple[str, ...] = ()


def train_embedder(
    options: EmbedderOptions,
    data: RetrievalData,
    output: Path,
    *,
    resume: bool = False,
    overwrite: bool = False,
    device: str | None = None,
    listener: Listener | None = None,
) -> Report:
    """Train an embedding model and save it where `ccheck ingest --model FOLDER` finds it.

    Raises MissingExtra without the libraries, UsageError for invalid settings or folders, and NotFound or InvalidData
    for a base or data that can't be used.
    """
    require_training()
    metrics = metric_names(options, METRICS)
    if not options.epochs and not options.weak_pairs:
        raise UsageError("nothing to train: epochs and weak_pairs are both 0")
    device, listener = training_device(device), listener or Silent()
    settings = json.dumps({"embedder": options.model_dump(mode="json"), "data": data.digest()}, sort_keys=True)
    work = work_folder(output, settings, resume=resume, overwrite=overwrite)
    model, tokenizer_as_before = load_base(options, device)
    own_length = model.max_seq_length
    if options.max_tokens is not None:
        model.max_seq_length = options.max_tokens
    model.to(device)
    measured = [claim for claims in data.groups.values() for claim in claims]
    large = pool_of(data, measured, options.final_pool, options.seed)
    before_file = work / "before.json"
    if not before_file.is_file():
        if measured:
            listener.message(f"measuring the base model on {len(large):,} documents")
        write_text(before_file, json.dumps(rank(model, measured, large, options, device)))
    before: dict[str, dict[str, float]] = json.loads(before_file.read_text(encoding="utf-8"))
    adapted = add_lora(model.transformers_model, options.lora) if options.lora is not None else None
    if options.gradient_checkpointing and adapted is not None:
        model.transformers_model.enable_input_require_grads()
    chosen = data.chosen_by
    small = pool_of(data, chosen, options.pool, options.seed)

    def development() -> float:
        run = rank(model, chosen, small, options, device)
        return development_value(run, data.qrels, chosen, options.metric)

    said: list[str] = []

    def trainer(phase: Phase) -> Any:
        rows = weak_rows(options, data) if phase.name == "weak" else embedder_rows(options, data)
        if count := sum(len(row.negatives) for row in rows):
            judged = sum(len(set(data.judged_not(row.claim)).intersection(row.negatives)) for row in rows)
            said.append(
                f"{phase.name}: {count:,} negatives; {judged:,} of them were judged not relevant to their claim"
            )
            listener.message(said[-1])
        listener.message(f"{phase.name}: {len(rows):,} pairs, {phase.epochs} epochs")
        return _trainer(model, options, data, rows, work / phase.name, device, phase.epochs, phase.learning_rate)

    planned = [
        Phase("weak", options.weak_epochs if options.weak_pairs else 0, options.weak_learning_rate),
        Phase("embedder", options.epochs, options.learning_rate),
    ]
    measuring = development if chosen else None
    phases, undone = run_phases(planned, model, work, options, trainer, measuring, listener)
    listener.message("measuring")
    values = figures(data, before, rank(model, measured, large, options, device), metrics)
    notes = []
    if measured:
        notes.append(f"the figures rank {len(large):,} of {len(data.documents):,} documents with this model alone")
    notes += [*said, *undone]
    # A later phase can gain and still be below the base, where the one before it did harm.
    base_value = phases[0].history[0][2]
    gained = not chosen or any(value > base_value for phase in phases for _, _, value in phase.history[1:])
    if not gained:
        notes.append(f"no epoch improved {options.metric} over the base. Use the base")
    notes += notes_on(values, metrics[0])
    card = retrieval_card(
        "embedder",
        f"ccheck ingest CORPUS --model {output.name}",
        options,
        data,
        phases,
        values,
        notes,
        {"loss": options.loss, "precision": mixed_precision(options, device), "tokens": model.max_seq_length},
    )

    def save(folder: Path) -> None:
        if adapted is not None:
            merged(adapted)
        # What was cut in training need not be cut in use.
        model.max_seq_length = own_length
        tokenizer_as_before()
        with loading_quietly():
            model.save(str(folder), create_model_card=False, safe_serialization=True)

    finish(work, output, save, card, [phase.phase for phase in phases])
    use = [f"to use it, run ccheck ingest CORPUS --model {output}"] if gained else []
    return Report("embedder", output, options.base, tuple(phases), values, (*notes, *use))


def load_base(options: TrainingOptions, device: str) -> tuple[Any, Callable[[], None]]:
    """A SentenceTransformer on the CPU, and what makes its tokenizer the base's again, to be called before saving.

    It reads special tokens in texts as words. A plain encoder gets mean pooling. Raises NotFound or InvalidData.
    """
    import torch
    from sentence_transformers import SentenceTransformer

    found = find_model(options.base)
    fingerprint(found.path)  # NotFound without safetensors
    check_attention(found.path)
    changed = {}
    file = found.path / "config.json"
    if options.attention_dropout is not None and file.is_file():
        known = json.loads(file.read_text(encoding="utf-8"))
        names = ("attention_probs_dropout_prob", "attention_dropout")
        changed = {name: options.attention_dropout for name in names if name in known}
    half = options.lora is not None and device == "cuda"
    torch.manual_seed(options.seed)
    with loading_quietly():
        try:
            model = SentenceTransformer(
                str(found.path),
                device="cpu",
                trust_remote_code=False,
                local_files_only=True,
                model_kwargs={"use_safetensors": True, "dtype": torch.bfloat16 if half else torch.float32},
                config_kwargs=changed,
            )
        except Exception as error:
            # A folder can be broken in any way.
            raise InvalidData(f"{found.path} can't be loaded as an embedding model: {first_line(error)}") from error
    if model.transformers_model is None:
        raise InvalidData(f"{found.path} contains no transformer to train")
    return model, words_only_in(model)


def embedder_rows(options: EmbedderOptions, data: RetrievalData) -> list[EmbedderRow]:
    """The pairs or triplets of the training claims; negatives are mined ones and those judged, random ones fill up.

    Without mined or judged ones, `multiple-negatives` has those of the batch alone.
    """
    mined = read_negatives(options.negatives, data.documents) if options.negatives is not None else None
    triplet = options.loss == "triplet"
    wanted = max(1, options.hard) if triplet else options.hard
    if not triplet and not mined and not any(data.judged_not(claim) for claim in data.train):
        wanted = 0
    drawn = draw_negatives(
        data,
        data.train,
        {},
        hard=wanted,
        random_count=wanted,
        negatives_from=options.negatives_from,
        mined=mined,
        seed=options.seed,
    )
    rows = [EmbedderRow(row.claim, row.positive, row.negatives[:wanted]) for row in drawn]
    if triplet:
        return [EmbedderRow(row.claim, row.positive, (negative,)) for row in rows for negative in row.negatives]
    # If the corpus is so small that some have fewer, all have as many as the fewest: a batch is a table.
    fewest = min(len(row.negatives) for row in rows)
    return [EmbedderRow(row.claim, row.positive, row.negatives[:fewest]) for row in rows]


def weak_rows(options: EmbedderOptions, data: RetrievalData) -> list[EmbedderRow]:
    """Rows of `weak_pairs`; for triplets each with a random document. Raises InvalidData if there can be none."""
    pairs = weak_pairs(data, options.weak_pairs, options.seed)
    wanted = int(options.loss == "triplet")
    own = {str(claim.id): document.id for claim, document in pairs}
    claims = [claim for claim, _ in pairs]
    drawn = draw_negatives(data, claims, {}, hard=0, random_count=wanted, seed=options.seed, own=own)
    rows = []
    for (claim, document), row in zip(pairs, drawn, strict=True):
        negatives = row.negatives
        # Where the relevant one is without its title the other is too: it must not show by that.
        titled = bool(document.title) or not data.documents[document.id].title
        others = [data.documents[id_] for id_ in negatives]
        texts = [document.content, *(other.content if titled else other.text for other in others)]
        if len(negatives) == wanted:
            rows.append(EmbedderRow(claim, document.id, tuple(negatives), tuple(texts)))
    return rows


def pool_of(data: RetrievalData, claims: Sequence[Claim], size: int, seed: int) -> list[Document]:
    """The documents that are ranked: all judged ones of the claims, and others, drawn by the seed, up to `size`."""
    judged = {id_ for claim in claims for id_ in data.qrels[str(claim.id)] if id_ in data.documents}
    others = sorted(data.documents.keys() - judged)
    room = max(0, size - len(judged))
    if room < len(others):
        others = random.Random(seed).sample(others, room)  # noqa: S311 - a sample, not a secret
    return [data.documents[id_] for id_ in sorted([*judged, *others])]


def rank(
    model: Any, claims: Sequence[Claim], documents: Sequence[Document], options: TrainingOptions, device: str
) -> dict[str, dict[str, float]]:
    """The `DEPTH` documents of highest cosine for each claim."""
    if not claims:
        return {}
    queries, found = embed(model, claims, documents, options, device)
    return nearest(claims, queries, [document.id for document in documents], found)


def embed(
    model: Any, claims: Sequence[Claim], documents: Sequence[Document], options: TrainingOptions, device: str
) -> tuple[Vector, Vector]:
    """Claims and documents as unit vectors, [claims, dimensions] and [documents, dimensions]."""
    import numpy as np

    was_training = model.training
    model.eval()
    given = {"batch_size": _BATCH, "normalize_embeddings": True, "show_progress_bar": False}
    with autocast(options, device):
        queries = model.encode_query([claim.text for claim in claims], **given)
        found = model.encode_document([document.content for document in documents], **given)
    model.train(was_training)
    return np.asarray(queries, np.float32), np.asarray(found, np.float32)


def nearest(
    claims: Sequence[Claim], queries: Vector, ids: Sequence[str], documents: Vector
) -> dict[str, dict[str, float]]:
    """Rankings by the cosines of unit vectors."""
    import numpy as np

    run = {}
    for claim, scores in zip(claims, queries @ documents.T, strict=True):
        best = np.argsort(-scores, kind="stable")[:DEPTH]
        run[str(claim.id)] = {ids[i]: float(scores[i]) for i in best}
    return run


def _trainer(
    model: Any,
    options: EmbedderOptions,
    data: RetrievalData,
    rows: Sequence[EmbedderRow],
    folder: Path,
    device: str,
    epochs: int,
    learning_rate: float,
) -> Any:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments

    if not rows:
        raise InvalidData("nothing to train on: no claim has both a relevant document and a negative")
    own = {id_: data.documents[id_].content for id_ in data.visible}
    texts = [row.texts or tuple(own[id_] for id_ in (row.positive, *row.negatives)) for row in rows]
    names = ["positive", *(f"negative_{n}" for n in range(len(rows[0].negatives)))]
    columns = {
        "anchor": [row.claim.text for row in rows],
        **{name: [row[place] for row in texts] for place, name in enumerate(names)},
    }

    class EmbedderTrainer(checkpointing(SentenceTransformerTrainer)):  # type: ignore[misc] # made when it is called
        def add_model_card_callback(self, default_args_dict: dict[str, Any]) -> None:
            """None: ccheck writes the card, and theirs prints and embeds examples."""

    prompts = _prompts(model, list(columns))
    told = arguments(options, folder, device, epochs=epochs, learning_rate=learning_rate, rows=len(rows))
    if options.loss == "multiple-negatives":
        told["batch_sampler"] = "no_duplicates"  # a text is never a negative of itself
    if prompts:
        told["prompts"] = prompts
    return EmbedderTrainer(
        model=model,
        args=SentenceTransformerTrainingArguments(**told),
        train_dataset=Dataset.from_dict(columns),
        loss=_loss(model, options),
    )


def _loss(model: Any, options: EmbedderOptions) -> Any:
    from sentence_transformers.sentence_transformer import losses

    if options.loss == "triplet":
        metric = losses.TripletDistanceMetric.COSINE
        return losses.TripletLoss(model, distance_metric=metric, triplet_margin=options.margin)
    if options.chunk >= options.batch:
        # The same value, without computing everything twice.
        return losses.MultipleNegativesRankingLoss(model, scale=options.scale)
    return losses.CachedMultipleNegativesRankingLoss(model, scale=options.scale, mini_batch_size=options.chunk)


def _prompts(model: Any, columns: Sequence[str]) -> dict[str, str]:
    """The prompt that the model puts before claims or documents, for each column of the training data that has one."""
    known = dict(getattr(model, "prompts", None) or {})
    query = known.get("query") or ""
    document = next((known[name] for name in ("document", "passage", "corpus") if known.get(name)), "")
    told = {column: query if column == "anchor" else document for column in columns}
    return {column: prompt for column, prompt in told.items() if prompt}
