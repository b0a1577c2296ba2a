"""Training of stance classifiers: sequence classification of claim and document, with transformers' Trainer.

The model inside a `StanceClassifier` is trained, so that it learns and is measured on what it will read in use: a long
document in windows. The window with the clearest stance decides.
"""

from __future__ import annotations

import hashlib
import json
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.analysis import clean, sentence_spans, terms
from ...core.errors import InvalidData
from ...core.models import find_model, loading_quietly
from ...core.runtime import Runtime
from ...core.types import Claim, Document, Label
from ...verdict.classifier import StanceClassifier, read_labels
from ...verdict.labels import STANCES
from ..measure.pairs import StanceRow, StanceRows, counted, judge_rows, read_rows
from .figures import Report, model_card, stance_counts, stance_figures, stance_value
from .loop import Output, Phase, Training, checkpointing, classifier_to_train, finish, require_training, work_folder
from .options import StanceOptions
from .retrieval_data import SEEN, UNSEEN
from .split import split_by_claim, split_by_document

if TYPE_CHECKING:
    import torch

LONGEST = 512
_ABOUT = (
    "It says what a document (the first text) says about a claim (the second): `ccheck query CLAIM --stance FOLDER`."
)


def train_stance(data: StanceData, options: StanceOptions, output: Output, runtime: Runtime) -> Report:
    """Train a stance classifier and write its folder, which `--stance` takes.

    Raises MissingExtra, NotFound for a missing base, InvalidData for an unusable base or rows of one label only, and
    UsageError for invalid settings and for an output or an unfinished training that already exists.
    """
    require_training()
    _check(data)
    with work_folder(output, _settings(options, data)) as work:
        training, start = Training(work, options, runtime), work / "start"
        if not start.is_dir():
            _prepare(options, start)
        method = StanceClassifier(str(start), runtime.using(device=training.device), max_tokens=options.max_tokens)
        pairs = _pairs(method, data.train, options.seed, runtime)
        if options.frozen:
            encoder = getattr(method.network, method.network.base_model_prefix)
            for name, parameter in encoder.named_parameters():
                parameter.requires_grad = name.startswith("pooler")

        def evaluate() -> float:
            return stance_value(stance_counts(data.dev, judge_rows(method, data.dev)[0]), options.metric)

        phase = Phase("stance", options.epochs)
        training = replace(training, evaluate=evaluate)
        trained = training.run(phase, lambda: _trainer(training, phase, method, pairs))
        counts = Counter(row.label for row in data.train)
        most = max(STANCES, key=lambda label: counts[label])
        figures, notes = stance_figures(method, data.groups, most)

        def save(folder: Path) -> None:
            with loading_quietly():
                # Not the classifier's tokenizer, which reads special tokens as words.
                shutil.copytree(start, folder, ignore=shutil.ignore_patterns("*.safetensors*"), dirs_exist_ok=True)
                method.network.save_pretrained(folder)

        beside = f"always saying {most}"
        report = Report("stance", output.folder, options.base, (trained,), figures, notes, beside)
        facts = [
            *data.messages,
            f"Trained on {counted(data.train)}",
            f"The best epoch was chosen by {options.metric} on {counted(data.dev)}",
        ]
        finish(work, output.folder, save, model_card(report, _ABOUT, facts, options), [trained])
        return report


def focal_loss(logits: torch.Tensor, labels: torch.Tensor, alpha: torch.Tensor, gamma: float) -> torch.Tensor:
    """The mean of -alpha_y (1 - p_y)^gamma log p_y. Shapes: [pairs, classes], [pairs], [classes]."""
    log_p = logits.float().log_softmax(-1).gather(1, labels[:, None]).squeeze(1)
    value: torch.Tensor = -(alpha[labels] * (1 - log_p.exp()) ** gamma * log_p).mean()
    return value


def class_weights(labels: Sequence[int]) -> list[float]:
    """The inverse frequency of each class, scaled so that they sum to the number of classes."""
    counts = Counter(labels)
    inverse = [1 / max(1, counts[number]) for number in range(len(STANCES))]
    return [len(STANCES) * value / sum(inverse) for value in inverse]


def row_weights(labels: Sequence[int], balanced: float) -> list[float]:
    """How often each row is drawn: by its label's count^-balanced."""
    counts = Counter(labels)
    return [counts[label] ** -balanced for label in labels]


# -- before


def _check(data: StanceData) -> None:
    for rows, what in ((data.train, "train on"), (data.dev, "measure on")):
        labels = {row.label for row in rows}
        if len(labels) < 2:
            said = ", ".join(labels) or "no label"
            raise InvalidData(
                f"the {len(rows)} pairs to {what} have {said} only. Pairs of at least two labels are needed"
            )


def _settings(options: StanceOptions, data: StanceData) -> str:
    """Identifies a training: one with other settings or data can't continue it."""
    digest = hashlib.sha256()
    for rows in (data.train, data.dev):
        digest.update(repr(rows).encode("utf-8", "surrogatepass"))
    return json.dumps({"options": options.model_dump(mode="json"), "data": digest.hexdigest()})


def _prepare(options: StanceOptions, folder: Path) -> None:
    """The base with three labels, as a folder that a StanceClassifier opens."""
    found = find_model(options.base)
    head: dict[str, Any] = {
        "num_labels": len(STANCES),
        "id2label": dict(enumerate(STANCES)),
        "label2id": {label: number for number, label in enumerate(STANCES)},
    }
    try:
        read_labels(found.path)
    except InvalidData:
        pass  # not a stance model: it gets a new head
    else:
        head = {}
    temporary = folder.with_name(f"{folder.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    model, tokenizer, _ = classifier_to_train(found, "stance model", options.seed, **head)
    own = int(getattr(model.config, "max_position_embeddings", 0) or LONGEST)
    # What uses the folder reads windows of the length that was trained on.
    tokenizer.model_max_length = min(options.max_tokens or LONGEST, own, tokenizer.model_max_length)
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
        model.config.pad_token_id = tokenizer.pad_token_id
    with loading_quietly():
        model.save_pretrained(temporary)
        tokenizer.save_pretrained(temporary)
    temporary.rename(folder)


def _pairs(method: StanceClassifier, rows: Sequence[StanceRow], seed: int, runtime: Runtime) -> list[dict[str, Any]]:
    """The pairs to train on, as ids and `labels`: the windows of each row whose label is known."""
    draw = random.Random(seed)  # noqa: S311
    pairs: list[dict[str, Any]] = []
    left_out = 0
    for row in rows:
        claim = clean(row.claim)
        premises = method.premises(Document(row.doc_id, row.title, row.text), claim)
        left_out += not premises
        for premise, label in _labelled(row, premises, draw):
            inputs = method.tokenizer(premise, claim, truncation="only_first", max_length=method.max_tokens)
            pairs.append({**inputs, "labels": method.labels.index(label)})
    if left_out:
        runtime.notify(
            f"{left_out} pairs are left out: they have no document, or their claim is too long for the model"
        )
    if not pairs:
        raise InvalidData("nothing to train on: all claims are too long for the model")
    return pairs


def _labelled(row: StanceRow, premises: Sequence[str], draw: random.Random) -> Iterator[tuple[str, Label]]:
    """The windows of a row with labels.

    If the deciding sentences are known, their windows get the row's label, and one other window gets NOT_ENOUGH_INFO.
    Otherwise one window is chosen: any one if the label is NOT_ENOUGH_INFO, else the one that shares most words with
    the claim.
    """
    if len(premises) <= 1:
        yield from ((premise, row.label) for premise in premises)
        return
    text = clean(row.text).strip()
    spans = sentence_spans(text)
    deciding = [text[slice(*spans[number])] for number in row.sentences if number < len(spans)]
    decides = [any(sentence in premise for sentence in deciding) for premise in premises]
    if row.label == "NOT_ENOUGH_INFO" or any(decides):
        others = [premise for premise, one in zip(premises, decides, strict=True) if not one]
        yield from ((premise, row.label) for premise, one in zip(premises, decides, strict=True) if one)
        if others:
            yield draw.choice(others), "NOT_ENOUGH_INFO"
        return
    wanted = set(terms(row.claim))
    yield max(premises, key=lambda premise: len(wanted.intersection(terms(premise)))), row.label


# -- the training


def _trainer(training: Training, phase: Phase, method: StanceClassifier, pairs: Sequence[Mapping[str, Any]]) -> Any:
    import torch
    from torch.utils.data import WeightedRandomSampler
    from transformers import DataCollatorWithPadding, Trainer, TrainingArguments

    options = training.options
    assert isinstance(options, StanceOptions)
    gamma, balanced, seed = options.gamma, options.balanced, options.seed
    labels = [pair["labels"] for pair in pairs]
    weights = class_weights(labels) if options.class_weights else [1.0] * len(STANCES)

    class Focal(checkpointing(Trainer)):  # type: ignore[misc] # made when it is called
        def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **parts: Any) -> Any:
            targets = inputs.pop("labels")
            outputs = model(**inputs)
            alpha = torch.tensor(weights, device=targets.device)
            loss = focal_loss(outputs.logits, targets, alpha, gamma)
            return (loss, outputs) if return_outputs else loss

        def _get_train_sampler(self, train_dataset: Any = None) -> Any:
            if not balanced:
                return super()._get_train_sampler(train_dataset)
            draw = torch.Generator().manual_seed(seed)
            return WeightedRandomSampler(row_weights(labels, balanced), len(labels), generator=draw)

    return Focal(
        model=method.network,
        args=TrainingArguments(**training.arguments(phase, len(pairs)), remove_unused_columns=False),
        train_dataset=pairs,
        data_collator=DataCollatorWithPadding(method.tokenizer),
    )


# -- the data

GIVEN = "those to choose by"
CHOOSE_SHARE = 0.1
CHOOSE_AT_LEAST = 150
CHOOSE_AT_MOST = 0.25
"""The share of the remaining pairs that chooses the best epoch: a tenth, or more of few pairs, since the F1 of 50 pairs
has a 95% interval of about .3."""


@dataclass(frozen=True, slots=True)
class StanceData:
    """Pairs to learn from, to choose the best epoch by (`dev`), and groups to measure on."""

    train: tuple[StanceRow, ...]
    dev: tuple[StanceRow, ...]
    groups: Mapping[str, tuple[StanceRow, ...]]
    messages: tuple[str, ...] = ()


def join_files(files: Sequence[StanceRows]) -> list[StanceRow]:
    """The rows of several files; ids of different files are different ones."""
    if len(files) == 1:
        return list(files[0].rows)
    return [
        replace(row, claim_id=f"{number}:{row.claim_id}", doc_id=f"{number}:{row.doc_id}")
        for number, file in enumerate(files, 1)
        for row in file.rows
    ]


def split_rows(
    rows: Sequence[StanceRow], kind: str, dev_share: float, seed: int
) -> tuple[list[StanceRow], list[StanceRow]]:
    """Rows to learn from and to measure on, of different claims and, by `document`, of different documents.

    Raises as `split_by_document`.
    """
    claims: dict[str, Claim] = {}
    qrels: dict[str, dict[str, float]] = {}
    for row in rows:
        claims.setdefault(row.claim_id, Claim(row.claim, row.claim_id))
        qrels.setdefault(row.claim_id, {})[row.doc_id] = 1.0
    of = list(claims.values())
    by_document = kind == "document"
    how = dev_share, seed, "Label pairs of more claims, name pairs to measure on with --dev, or use --set split=pair"
    split = split_by_document(of, qrels, *how) if by_document else split_by_claim(of, *how)
    train, dev = ({claim.id for claim in part} for part in (split.train_claims, split.dev_claims))
    return [row for row in rows if row.claim_id in train], [row for row in rows if row.claim_id in dev]


def without_leaks(rows: Sequence[StanceRow], dev: Sequence[StanceRow]) -> list[StanceRow]:
    """The rows whose claim and document are not among those of `dev`."""
    claims = {" ".join(row.claim.casefold().split()) for row in dev}
    documents = {row.doc_id for row in dev} | {row.text for row in dev}
    return [
        row
        for row in rows
        if " ".join(row.claim.casefold().split()) not in claims
        and row.doc_id not in documents
        and row.text not in documents
    ]


def stratified(rows: Sequence[StanceRow], share: float, seed: int) -> tuple[list[StanceRow], list[StanceRow]]:
    """The rows without, and with, a share of the pairs of each label, at least one; in their order."""
    places: dict[str, list[int]] = {}
    for place, row in enumerate(rows):
        places.setdefault(row.label, []).append(place)
    draw = random.Random(seed)  # noqa: S311 - a split, not a secret
    held = {
        place
        for label in sorted(places)
        for place in draw.sample(places[label], max(1, round(share * len(places[label]))))
    }
    return [row for i, row in enumerate(rows) if i not in held], [row for i, row in enumerate(rows) if i in held]


def stance_data(
    rows: Sequence[StanceRow],
    options: StanceOptions,
    dev: Sequence[StanceRow] = (),
    test: Sequence[StanceRow] = (),
) -> StanceData:
    """The pairs to train on, to choose the best epoch on (`dev`) and to measure on (`test`).

    Without `test`, `dev` is measured on; without both, a test group is split off. A split by document adds a second
    group, by claim alone, which tells learning from remembering. Without `dev`, it is split off the rest; after a
    split by pair, it is the test group.

    Raises InvalidData if too little is left.
    """
    messages: list[str] = []
    groups: dict[str, tuple[StanceRow, ...]] = {}
    left = kept = without_leaks(rows, [*dev, *test])
    if len(kept) < len(rows):
        messages.append(
            f"{len(rows) - len(kept):,} pairs are not trained on, because their claim or document is measured on"
        )
    if test:
        groups[UNSEEN] = tuple(test)
    elif dev:
        groups[GIVEN] = tuple(dev)
    elif options.split == "pair":
        left, dev = stratified(left, options.dev_share, options.seed)
        groups[GIVEN] = tuple(dev)
        messages.append("the pairs to choose by are drawn by label. Their claims and documents may be in training")
    else:
        left, unseen = split_rows(left, options.split, options.dev_share, options.seed)
        groups[UNSEEN if options.split == "document" else SEEN] = tuple(unseen)
        messages.append(f"{len(unseen):,} pairs are measured on, by {options.split}")
        if options.split == "document":
            left, seen = split_rows(left, "claim", options.dev_share / 2, options.seed)
            groups[SEEN] = tuple(seen)
            messages.append(f"{len(seen):,} more pairs are measured on, by claim. Their documents may be in training")
    if not dev and options.split == "pair":
        left, dev = stratified(left, options.dev_share, options.seed)
    if not dev:
        share = min(CHOOSE_AT_MOST, max(CHOOSE_SHARE, CHOOSE_AT_LEAST / max(1, len(left))))
        left, dev = split_rows(left, options.split, share, options.seed + 1)
    used = {*left, *dev, *chain(*groups.values())}
    lost = sum(row not in used for row in kept)
    said = f"{len(left):,} pairs to train on, {len(dev):,} to choose the best epoch on"
    messages.append(f"{said}; {lost:,} left out, because they share documents with others" if lost else said)
    return StanceData(tuple(left), tuple(dev), groups, tuple(messages))


def read_stance_data(
    train: Sequence[str],
    options: StanceOptions,
    *,
    dev: str | None = None,
    test: str | None = None,
    corpus: str | None = None,
    notify: Callable[[str], None] = lambda message: None,
) -> StanceData:
    """Reads the data to train and measure a stance model on. `notify` is told what each file of `train` holds.

    Raises NotFound, MissingExtra (Parquet), or InvalidData.
    """
    files = [read_rows(file, corpus) for file in train]
    for file, rows in zip(train, files, strict=True):
        notify(f"{file}: {rows.describe()}")
    return stance_data(
        join_files(files),
        options,
        read_rows(dev, corpus).rows if dev else (),
        read_rows(test, corpus).rows if test else (),
    )
