"""Training rerankers: on pairs made from the corpus, on judged pairs, and on negatives that the model finds hard.

The phases are those of climatecheck-hybrid (Kiepura and Lam, 2025, section 4.1.2) with one before them; margin ranking
is climatecheck-ensemble's (Wang et al., 2025, section 3.2.2). Ids and scores are those of `rerank/`, so that what is
trained is what reranks.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from more_itertools import chunked

from ...core.errors import InvalidData, UsageError
from ...core.files import write_text
from ...core.types import Claim, Document
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
from .negatives import Drawn, describe, draw_negatives, once_per_claim
from .options import RerankerOptions
from .rerank_model import RerankModel, load_rerank_model
from .retrieval_data import RetrievalData, read_negatives, weak_pairs

if TYPE_CHECKING:
    import torch

    from ...rerank.types import Encoded

Candidates: TypeAlias = Callable[[Sequence[Claim], int], Mapping[str, Mapping[str, float]]]
"""Finds the best documents for claims, at most the given number each: claim id -> document id -> score, best first."""
METRICS = ("nDCG@10", "RR@10", "R@10")
_SCORED_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class RerankerRow:
    """A claim with passages: for `bce` one, and `label` says whether it is relevant; else the relevant one first."""

    claim: str
    passages: tuple[str, ...]
    label: float = 1.0


def train_reranker(
    options: RerankerOptions,
    data: RetrievalData,
    output: Path,
    candidates: Candidates,
    *,
    resume: bool = False,
    overwrite: bool = False,
    device: str | None = None,
    listener: Listener | None = None,
) -> Report:
    """Train a reranker and save it where `ccheck query --rerank FOLDER` and recipes find it.

    Raises MissingExtra without the libraries, UsageError for invalid settings or folders, and NotFound or InvalidData
    for a base or data that can't be used.
    """
    require_training()
    metrics = metric_names(options, METRICS)
    if options.epochs + options.second_epochs == 0 and not options.weak_pairs:
        raise UsageError("nothing to train: epochs, second_epochs and weak_pairs are all 0")
    device, listener = training_device(device), listener or Silent()
    settings = json.dumps({"reranker": options.model_dump(mode="json"), "data": data.digest()}, sort_keys=True)
    work = work_folder(output, settings, resume=resume, overwrite=overwrite)
    made = load_rerank_model(options, device)
    whole = len(data.documents)
    measured = [claim for claims in data.groups.values() for claim in claims]
    found = candidates(measured, max(options.eval_depth, 100))
    judge = _Judge(made, options, data, device, found)
    before = found if made.new_head else judge.reranked(measured)

    said: list[str] = []

    def trainer(phase: Phase) -> Any:
        rows, negatives = _rows(phase.name, options, data, candidates, judge, work)
        said.append(f"{phase.name}: {negatives}")
        listener.message(said[-1])
        listener.message(f"{phase.name}: {len(rows):,} rows, {phase.epochs} epochs")
        return _trainer(made, options, rows, work / phase.name, device, phase.epochs, phase.learning_rate)

    planned = [
        Phase("weak", options.weak_epochs if options.weak_pairs else 0, options.weak_learning_rate),
        Phase("first", options.epochs, options.learning_rate),
        Phase("second", options.second_epochs, options.learning_rate),
    ]
    measuring = judge.development if data.chosen_by else None
    phases, undone = run_phases(planned, made.model, work, options, trainer, measuring, listener)
    listener.message("measuring")
    after = judge.reranked(measured)
    values = figures(data, before, after, metrics)
    notes = [*_notes(options, made, whole, bool(measured)), *said, *undone, *notes_on(values, metrics[0])]
    card = retrieval_card(
        "reranker",
        f"ccheck query CLAIM --rerank {output.name}",
        options,
        data,
        phases,
        values,
        notes,
        {"loss": options.loss, "precision": mixed_precision(options, device), "tokens": made.pairs.length},
    )
    finish(work, output, made.save, card, [phase.phase for phase in phases])
    return Report("reranker", output, options.base, tuple(phases), values, tuple(notes))


def margin_ranking_loss(positive: torch.Tensor, negative: torch.Tensor, margin: float) -> torch.Tensor:
    """The mean of max(0, margin - (positive - negative)), both [rows]."""
    import torch

    return torch.relu(margin - (positive - negative)).mean()


def softmax_loss(scores: torch.Tensor, sizes: Sequence[int]) -> torch.Tensor:
    """The mean of -log softmax of the first of each group. `scores`: the groups one after the other."""
    import torch

    return torch.stack([torch.logsumexp(group, 0) - group[0] for group in torch.split(scores, list(sizes))]).mean()


def loss_of(scores: torch.Tensor, rows: Sequence[RerankerRow], options: RerankerOptions) -> torch.Tensor:
    """The loss of a batch; `scores` are logits of the rows' passages, one after the other."""
    import torch
    from torch.nn.functional import binary_cross_entropy_with_logits

    if options.loss == "bce":
        labels = torch.tensor([row.label for row in rows], device=scores.device)
        return binary_cross_entropy_with_logits(scores, labels)
    if options.loss == "softmax":
        return softmax_loss(scores, [len(row.passages) for row in rows])
    if options.margin_of == "probabilities":
        scores = torch.sigmoid(scores)
    return margin_ranking_loss(scores[0::2], scores[1::2], options.margin)


def reranker_rows(drawn: Iterable[Drawn], passages: Mapping[str, str], options: RerankerOptions) -> list[RerankerRow]:
    """Rows of what `draw_negatives` gave, in the shape that the loss needs; `passages` by document id."""
    rows: list[RerankerRow] = []
    for row in drawn:
        claim, negatives = row.claim, row.negatives
        first = passages[row.positive]
        if options.loss == "bce":
            rows.append(RerankerRow(claim.text, (first,), 1.0))
            rows += [RerankerRow(claim.text, (passages[id_],), 0.0) for id_ in negatives]
        elif options.loss == "margin":
            rows += [RerankerRow(claim.text, (first, passages[id_])) for id_ in negatives]
        elif negatives:
            rows.append(RerankerRow(claim.text, (first, *(passages[id_] for id_ in negatives))))
    return rows


class _Judge:
    """Ranks what a retrieval found by the model as it is."""

    def __init__(
        self,
        made: RerankModel,
        options: RerankerOptions,
        data: RetrievalData,
        device: str,
        found: Mapping[str, Mapping[str, float]],
    ) -> None:
        self._made, self._options, self._data, self._device, self._found = made, options, data, device, found
        made.model.to(device)
        group = data.chosen_by
        # The same ones in every process: they are in the order of the claims' file.
        every = max(1, -(-len(group) // options.eval_claims))
        self._chosen = group[::every]

    def development(self) -> float:
        run = self.reranked(self._chosen)
        return development_value(run, self._data.qrels, self._chosen, self._options.metric)

    def reranked(self, claims: Sequence[Claim]) -> dict[str, dict[str, float]]:
        """The first `eval_depth` by the model, those below as they were."""
        run = {}
        for claim in claims:
            before = self._found.get(str(claim.id), {})
            ids = list(before)
            head = ids[: self._options.eval_depth]
            scores = dict(zip(head, self.score(claim, [self._data.documents[id_] for id_ in head]), strict=True))
            order = sorted(head, key=lambda id_: -scores[id_]) + ids[len(head) :]
            run[str(claim.id)] = {id_: -float(place) for place, id_ in enumerate(order)}
        return run

    def score(self, claim: Claim, documents: Sequence[Document]) -> list[float]:
        if not documents:
            return []
        encoded = self._made.encode(claim.text, [document.content for document in documents])
        was_training = self._made.model.training
        self._made.model.eval()
        values: list[float] = []
        with autocast(self._options, self._device):
            for part in chunked(encoded, _SCORED_AT_ONCE):
                values += self._made.scores(self._made.model, part, self._options.batch_tokens).tolist()
        self._made.model.train(was_training)
        return values


def _rows(
    phase: str, options: RerankerOptions, data: RetrievalData, candidates: Candidates, judge: _Judge, work: Path
) -> tuple[list[RerankerRow], str]:
    """The rows of a phase, and how many negatives of each kind they have.

    What they were made of is kept in the folder, so that resuming trains on the same.
    """
    file = work / f"{phase}-ranked.json"
    if phase == "weak":
        return _weak_rows(options, data, candidates, file)
    mined = None
    ranked: Mapping[str, Sequence[str]] = {}
    if phase == "second" or (options.negatives is None and options.mined_by == "base"):
        ranked = _kept(file, lambda: _ranked_by_model(options, data, candidates, judge))
    elif options.negatives is not None:
        mined = read_negatives(options.negatives, data.documents)
    else:
        ranked = _kept(file, lambda: _orders(candidates(data.train, options.depth)))
    drawn = draw_negatives(
        data,
        data.train,
        ranked,
        hard=options.hard,
        hard_choice="top" if phase == "second" else options.hard_choice,
        keep=options.keep,
        random_count=options.random,
        random_from=options.random_from,
        negatives_from=options.negatives_from,
        mined=mined,
        seed=options.seed + (phase == "second"),
    )
    if options.loss == "bce" and options.negatives_per == "claim":
        drawn = once_per_claim(drawn)
    passages = {id_: data.documents[id_].content for id_ in data.visible}
    return reranker_rows(drawn, passages, options), describe(data, drawn)


def _weak_rows(
    options: RerankerOptions, data: RetrievalData, candidates: Candidates, file: Path
) -> tuple[list[RerankerRow], str]:
    pairs = weak_pairs(data, options.weak_pairs, options.seed)
    claims = [claim for claim, _ in pairs]
    ranked = _kept(file, lambda: _orders(candidates(claims, options.depth)))
    drawn = draw_negatives(
        data,
        claims,
        ranked,
        hard=options.hard,
        hard_choice=options.hard_choice,
        random_count=options.random,
        seed=options.seed,
        own={str(claim.id): document.id for claim, document in pairs},
    )
    rows: list[RerankerRow] = []
    for (claim, document), row in zip(pairs, drawn, strict=True):
        # Where the relevant one is without its title the others are too: it must not show by that.
        titled = bool(document.title) or not data.documents[document.id].title
        passages = {
            id_: data.documents[id_].content if titled else data.documents[id_].text for id_ in row.negatives
        } | {document.id: document.content}
        assert claim.id == row.claim.id
        rows += reranker_rows([row], passages, options)
    return rows, describe(data, drawn)


def _ranked_by_model(
    options: RerankerOptions, data: RetrievalData, candidates: Candidates, judge: _Judge
) -> dict[str, list[str]]:
    """The documents that the retrieval found for each claim, in the model's order."""
    hidden, claims = data.hidden, {str(claim.id): claim for claim in data.train}
    ranked = {}
    for claim_id, scores in candidates(data.train, options.depth).items():
        ids = [id_ for id_ in scores if id_ not in hidden]
        values = judge.score(claims[claim_id], [data.documents[id_] for id_ in ids])
        ranked[claim_id] = [id_ for _, id_ in sorted(zip(values, ids, strict=True), key=lambda pair: -pair[0])]
    return ranked


def _orders(found: Mapping[str, Mapping[str, float]]) -> dict[str, list[str]]:
    return {claim: list(scores) for claim, scores in found.items()}


def _kept(file: Path, make: Callable[[], dict[str, list[str]]]) -> dict[str, list[str]]:
    if not file.is_file():
        write_text(file, json.dumps(make()))
    ranked: dict[str, list[str]] = json.loads(file.read_text(encoding="utf-8"))
    return ranked


def _trainer(
    made: RerankModel,
    options: RerankerOptions,
    rows: Sequence[RerankerRow],
    folder: Path,
    device: str,
    epochs: int,
    learning_rate: float,
) -> Any:
    import torch
    from transformers import Trainer, TrainingArguments

    if not rows:
        raise InvalidData("nothing to train on: no claim has both a relevant document and a negative")

    class RerankerTrainer(checkpointing(Trainer)):  # type: ignore[misc] # made when it is called
        def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **rest: Any) -> Any:
            batch: list[RerankerRow] = inputs["batch"].rows
            scores = made.scores(model, inputs["batch"].encoded, options.batch_tokens)
            return loss_of(scores, batch, options)

    def collate(chosen: Sequence[RerankerRow]) -> dict[str, Any]:
        encoded = [pair for row in chosen for pair in made.encode(row.claim, row.passages)]
        # The tensor is for the libraries, which look for one to tell how large a batch is.
        return {"batch": _Batch(list(chosen), encoded), "size": torch.zeros(len(chosen))}

    told = arguments(options, folder, device, epochs=epochs, learning_rate=learning_rate, rows=len(rows))
    return RerankerTrainer(
        model=made.model,
        args=TrainingArguments(**told, remove_unused_columns=False),
        train_dataset=list(rows),
        data_collator=collate,
    )


@dataclass(frozen=True, slots=True)
class _Batch:
    rows: list[RerankerRow]
    encoded: list[Encoded]


def _notes(options: RerankerOptions, made: RerankModel, documents: int, measured: bool) -> list[str]:
    notes = []
    if measured:
        notes.append(
            f"the figures rerank the first {options.eval_depth} documents of a retrieval over {documents:,}. The "
            "figure before training is for "
            + ("the retrieval's own order, as the base is not a reranker" if made.new_head else "the base's order")
        )
    if options.prompt is not None or options.yes_token is not None:
        notes.append(
            "a recipe that uses this model needs the same prompt and yes_token, see the settings in its README.md"
        )
    return notes
