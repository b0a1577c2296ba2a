"""Training rerankers: on pairs made from the corpus, on judged pairs, and on negatives that the model finds hard.

The phases are those of climatecheck-hybrid (Kiepura and Lam, 2025, section 4.1.2) with one before them; margin ranking
is climatecheck-ensemble's (Wang et al., 2025, section 3.2.2). Ids and scores are those of `rerank/`, so that what is
trained is what reranks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from more_itertools import chunked, flatten

from ...core.errors import UsageError
from ...core.models import find_model, loading_quietly, positions, read_settings
from ...core.runtime import Runtime
from ...core.types import Claim, Document
from ...rerank.load import DEFAULT_MAX_TOKENS, encoder_pairs
from ...rerank.padding import classifier
from ...rerank.tokens import SpecialPairs
from ...rerank.types import Encoded
from .figures import Report
from .loop import Output, Phase, Training, checkpointing, classifier_to_train
from .options import RerankerOptions
from .ranker import checked, train_ranker
from .retrieval_data import Drawing, Drawn, RetrievalData, describe, draw_negatives, once_per_claim, read_negatives

if TYPE_CHECKING:
    import torch

Candidates: TypeAlias = Callable[[Sequence[Claim], int], Mapping[str, Mapping[str, float]]]
"""Finds the best documents for claims, at most the given number each: claim id -> document id -> score, best first."""
_SCORED_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class RerankerRow:
    """A claim with passages: for `bce` one, and `label` says whether it is relevant; else the relevant one first."""

    claim: str
    passages: tuple[str, ...]
    label: float = 1.0


def train_reranker(
    options: RerankerOptions, data: RetrievalData, output: Output, runtime: Runtime, candidates: Candidates
) -> Report:
    """Train a reranker and save it where `ccheck query --rerank FOLDER` and recipes find it. Raises as
    `train_ranker`."""
    return train_ranker(lambda training: Reranker(options, data, training, candidates), options, data, output, runtime)


def loss_of(scores: torch.Tensor, rows: Sequence[RerankerRow], options: RerankerOptions) -> torch.Tensor:
    """The loss of a batch; `scores` are logits of the rows' passages, one after the other."""
    import torch
    from torch.nn.functional import binary_cross_entropy_with_logits, margin_ranking_loss

    if options.loss == "bce":
        labels = torch.tensor([row.label for row in rows], device=scores.device)
        return binary_cross_entropy_with_logits(scores, labels)
    if options.loss == "margin":
        above = torch.ones(len(rows), device=scores.device)
        return margin_ranking_loss(scores[0::2], scores[1::2], above, options.margin)
    # The relevant one, the first of each group, out of the group.
    groups = torch.split(scores, [len(row.passages) for row in rows])
    return torch.stack([torch.logsumexp(group, 0) - group[0] for group in groups]).mean()


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


class Reranker:
    """A reranker while it is trained: a `Learner`. It reorders what a retrieval found."""

    kind, use = "reranker", "ccheck query CLAIM --rerank"
    metrics: tuple[str, ...] = ("nDCG@10", "RR@10", "R@10")

    def __init__(
        self, options: RerankerOptions, data: RetrievalData, training: Training, candidates: Candidates
    ) -> None:
        self.options, self.data, self.training, self._candidates = options, data, training, candidates
        self.phases = [Phase("first", options.epochs)]
        if options.second_epochs:
            self.phases.append(Phase("second", options.second_epochs))
        # The same ones in every process: they are in the order of the claims' file.
        every = max(1, -(-len(data.chosen_by) // options.eval_claims))
        self.choosing = data.chosen_by[::every]
        self._made = load_rerank_model(options)
        self.model = self._made.model.to(training.device)
        self.tokens = self._made.pairs.length
        measured = [claim for claims in data.groups.values() for claim in claims]
        self._found = candidates(measured, max(options.eval_depth, 100))
        self._trained = not self._made.new_head
        order = "the base's order" if self._trained else "the retrieval's own order, as the base is not a reranker"
        said = (
            f"the figures rerank the first {options.eval_depth} documents of a retrieval over {len(data.documents):,}"
        )
        self.notes = [f"{said}. The figure before training is for {order}"] if measured else []

    def rank(self, claims: Sequence[Claim], *, final: bool) -> dict[str, dict[str, float]]:
        """The first `eval_depth` by the model, those below as they were. Before it is trained, a new head says
        nothing, and the figures are those of the retrieval."""
        found = {str(claim.id): list(self._found.get(str(claim.id), {})) for claim in claims}
        if self._trained:
            found = self._reordered(claims, found, self.options.eval_depth)
        return {claim: {id_: -float(place) for place, id_ in enumerate(ids)} for claim, ids in found.items()}

    def _reordered(
        self, claims: Sequence[Claim], found: Mapping[str, Sequence[str]], depth: int
    ) -> dict[str, list[str]]:
        """Rankings whose first documents are in the model's order."""
        made = {}
        for claim in claims:
            ids = list(found.get(str(claim.id), ()))
            head = ids[:depth]
            scores = dict(zip(head, self._score(claim, [self.data.documents[id_] for id_ in head]), strict=True))
            made[str(claim.id)] = [*sorted(head, key=lambda id_: -scores[id_]), *ids[depth:]]
        return made

    def _score(self, claim: Claim, documents: Sequence[Document]) -> list[float]:
        values: list[float] = []
        encoded = self._made.pairs(claim.text, [document.content for document in documents]) if documents else []
        with self.training.judging(self.model):
            for part in chunked(encoded, _SCORED_AT_ONCE):
                values += self._made.scores(self.model, part).tolist()
        return values

    def trainer(self, phase: Phase) -> Any:
        rows, negatives = self._rows(second=phase.name == "second")
        self._trained = True
        self.notes.append(f"{phase.name}: {negatives}")
        self.training.runtime.notify(self.notes[-1])
        self.training.runtime.notify(f"{phase.name}: {len(rows):,} rows, {phase.epochs} epochs")
        return self.trainer_on(rows, phase)

    def _rows(self, *, second: bool) -> tuple[list[RerankerRow], str]:
        """The rows of a phase, and how many negatives of each kind they have."""
        options, data = self.options, self.data
        mined = ranked = None
        if options.negatives is not None and not second:
            mined = read_negatives(options.negatives, data.documents)
        else:
            found = self._candidates(data.train, options.depth)
            hidden = data.hidden
            ranked = {claim: [id_ for id_ in scores if id_ not in hidden] for claim, scores in found.items()}
            if second or options.mined_by == "base":
                ranked = self._reordered(data.train, ranked, options.depth)
        how = Drawing(
            options.hard,
            options.random,
            "top" if second else options.hard_choice,
            options.keep,
            options.negatives_from,
            options.seed + second,
        )
        drawn = draw_negatives(data, data.train, how, ranked, mined)
        if options.loss == "bce" and options.negatives_per == "claim":
            drawn = once_per_claim(drawn)
        passages = {id_: data.documents[id_].content for id_ in data.visible}
        return reranker_rows(drawn, passages, options), describe(data, drawn)

    def trainer_on(self, rows: Sequence[RerankerRow], phase: Phase) -> Any:
        """The Trainer of transformers on some rows."""
        import torch
        from transformers import Trainer, TrainingArguments

        made, options = self._made, self.options

        class RerankerTrainer(checkpointing(Trainer)):  # type: ignore[misc] # made when it is called
            def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **rest: Any) -> Any:
                batch: _Batch = inputs["batch"]
                return loss_of(made.scores(model, batch.encoded), batch.rows, options)

        def collate(chosen: Sequence[RerankerRow]) -> dict[str, Any]:
            encoded = [pair for row in chosen for pair in made.pairs(row.claim, row.passages)]
            # The tensor is for the libraries, which look for one to tell how large a batch is.
            return {"batch": _Batch(list(chosen), encoded), "size": torch.zeros(len(chosen))}

        return RerankerTrainer(
            model=self.model,
            args=TrainingArguments(**self.training.arguments(phase, len(rows)), remove_unused_columns=False),
            train_dataset=checked(rows),
            data_collator=collate,
        )

    def save(self, folder: Path) -> None:
        self._made.save(folder)


@dataclass(frozen=True, slots=True)
class _Batch:
    rows: list[RerankerRow]
    encoded: list[Encoded]


BATCH_TOKENS = 16_384
"""Token ids in one forward pass."""
ST_SETTINGS = "config_sentence_transformers.json"


@dataclass(frozen=True, slots=True)
class RerankModel:
    """A sequence classifier of transformers with one label (BERT, XLM-RoBERTa, ModernBERT and others): the token ids
    that it will read when it reranks, and scores with gradients. Any other encoder gets a new head.

    `pairs` gives the ids of a query and passages. `types` are the token types of a pair's halves, where the model
    reads them.

    `new_head`: before training its scores say nothing. `settings`: what sentence-transformers wrote of the base, to be
    saved again.
    """

    model: Any
    tokenizer: Any
    pairs: SpecialPairs
    types: tuple[int, int] | None
    new_head: bool
    settings: str | None

    def scores(self, model: Any, encoded: Sequence[Encoded]) -> torch.Tensor:
        """A logit for each pair, float32 with gradients: [pairs]. `model`: this one, as a trainer may have wrapped it.

        Pairs of like length go through together, so that little is padding.
        """
        import torch

        plain = classifier(self.model, self.types, BATCH_TOKENS)
        forward = replace(plain, score=lambda given: model(**given).logits[:, 0])
        batches = forward.batches([one.ids for one in encoded], [one.prefix for one in encoded])
        places, scores = zip(*batches, strict=True)
        found = torch.cat(scores).float()
        return found[torch.tensor(list(flatten(places))).argsort().to(found.device)]

    def save(self, folder: Path) -> None:
        """A folder that `ccheck query --rerank` and transformers read."""
        with loading_quietly():
            self.model.save_pretrained(folder, safe_serialization=True)
            self.tokenizer.save_pretrained(folder)
        if self.settings is not None:
            (folder / ST_SETTINGS).write_text(self.settings, encoding="utf-8")


def load_rerank_model(options: RerankerOptions) -> RerankModel:
    """The base of a training on the CPU, the seed drawn for what is new.

    Raises NotFound or InvalidData for a base that is missing or unusable, and UsageError for a decoder.
    """
    found = find_model(options.base)
    made_as = read_settings(found.path / "config.json", dict).get("architectures") or ()
    if any(str(name).endswith("ForCausalLM") for name in made_as):
        raise UsageError(f"{found.name} is a decoder, which ccheck can't train as a reranker. Choose an encoder")
    model, tokenizer, drawn = classifier_to_train(found, "reranker", options.seed, num_labels=1)
    config = model.config
    file = found.path / ST_SETTINGS
    settings = file.read_text(encoding="utf-8") if file.is_file() and not drawn else None
    most = min(positions(config) or 1 << 20, tokenizer.model_max_length)
    if options.max_tokens is not None and options.max_tokens > most:
        raise UsageError(f"{found.name} reads at most {most} tokens, not {options.max_tokens}")
    # The ids are those that `rerank/load.py` gives the saved folder.
    said = settings is not None or bool(getattr(config, "sentence_transformers", None))
    length = options.max_tokens or min(DEFAULT_MAX_TOKENS, most)
    pairs, types = encoder_pairs(found.name, tokenizer, model, length, said=said)
    return RerankModel(model, tokenizer, pairs, types, drawn, settings)
