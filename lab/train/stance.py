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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.analysis import clean, sentence_spans, terms
from ...core.errors import InvalidData
from ...core.models import find_model, loading_quietly
from ...core.runtime import Runtime
from ...core.types import Document, Label
from ...verdict.classifier import StanceClassifier, read_labels
from ...verdict.labels import STANCES
from ..measure.rows import StanceRow, counted, judge_rows
from .card import model_card
from .figures import Report, measure_rows, stance_figures, stance_value
from .folders import Output, finish, work_folder
from .loop import Phase, Training, checkpointing, classifier_to_train, require_training
from .options import StanceOptions
from .stance_data import StanceData

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
    training = Training(work_folder(output, _settings(options, data)), options, runtime)
    start = training.work / "start"
    if not start.is_dir():
        _prepare(options, start)
    method = StanceClassifier(str(start), runtime.using(device=training.device), max_tokens=options.max_tokens)
    pairs = _pairs(method, data.train, options.seed, runtime)
    if options.frozen:
        encoder = getattr(method.network, method.network.base_model_prefix)
        for name, parameter in encoder.named_parameters():
            parameter.requires_grad = name.startswith("pooler")

    def evaluate() -> float:
        return stance_value(measure_rows(data.dev, judge_rows(method, data.dev)[0], resamples=1), options.metric)

    phase = Phase("stance", options.epochs, options.learning_rate)
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
    finish(training.work, output.folder, save, model_card(report, _ABOUT, facts, options), [trained])
    return report


def focal_loss(logits: torch.Tensor, labels: torch.Tensor, alpha: torch.Tensor, gamma: float) -> torch.Tensor:
    """The mean of -alpha_y (1 - p_y)^gamma log p_y. Shapes: [pairs, classes], [pairs], [classes]."""
    log_p = logits.float().log_softmax(-1).gather(1, labels[:, None]).squeeze(1)
    value: torch.Tensor = -(alpha[labels] * (1 - log_p.exp()) ** gamma * log_p).mean()
    return value


def class_weights(labels: Sequence[int], classes: int = 3) -> list[float]:
    """The inverse frequency of each class, scaled so that they sum to the number of classes."""
    counts = Counter(labels)
    inverse = [1 / max(1, counts[number]) for number in range(classes)]
    return [classes * value / sum(inverse) for value in inverse]


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
