"""Training of models that rank documents, embedders and rerankers: phases, the figures before and after, the card."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from ...core.errors import InvalidData
from ...core.runtime import Runtime
from ...core.types import Claim
from ..measure.metrics import check_metrics
from ..measure.types import Run
from .figures import Report, development_value, figures, model_card, notes_on
from .loop import (
    BEST,
    Output,
    Phase,
    Trained,
    Training,
    finish,
    load_weights,
    require_training,
    save_weights,
    work_folder,
)
from .options import RetrievalOptions
from .retrieval_data import SEEN, UNSEEN, RetrievalData

NOTHING = "nothing to train on: no claim has both a relevant document and a negative"


class Learner(Protocol):
    """A model while it is trained.

    `phases` are to run one after the other, `choosing` the claims that choose the best weights. `tokens` is how much it
    reads, `use` the command that uses it, without its folder.
    """

    kind: str
    use: str
    metrics: tuple[str, ...]
    model: Any
    phases: list[Phase]
    choosing: tuple[Claim, ...]
    tokens: int
    notes: list[str]

    def rank(self, claims: Sequence[Claim], *, final: bool) -> Run:
        """Rankings by the model as it is. `final`: for the figures, not to choose the best weights."""
        ...

    def trainer(self, phase: Phase) -> Any:
        """Called when it is the phase's turn."""
        ...

    def save(self, folder: Path) -> None: ...


def train_ranker(
    open_learner: Callable[[Training], Learner],
    options: RetrievalOptions,
    data: RetrievalData,
    output: Output,
    runtime: Runtime,
) -> Report:
    """Train a model and save it with its card. A later phase that gains nothing is undone, with a note.

    Raises MissingExtra without the libraries, UsageError for invalid settings or folders, and NotFound or InvalidData
    for a base or data that can't be used.
    """
    require_training()
    check_metrics([options.metric])
    settings = json.dumps({"options": options.model_dump(mode="json"), "data": data.digest()}, sort_keys=True)
    with work_folder(output, settings) as work:
        training = Training(work, options, runtime)
        learner = open_learner(training)
        metrics = check_metrics([options.metric, *learner.metrics])
        measured = [claim for claims in data.groups.values() for claim in claims]
        if measured:
            runtime.notify("measuring the base")
        before = learner.rank(measured, final=True)

        def development() -> float:
            run = learner.rank(learner.choosing, final=False)
            return development_value(run, data.qrels, learner.choosing, options.metric)

        training = replace(training, evaluate=development if learner.choosing else None)
        done: list[Trained] = []
        undone = []
        for phase in learner.phases:
            trained = training.run(phase, functools.partial(learner.trainer, phase))
            if done and not trained.gained:
                load_weights(learner.model, work / done[-1].phase / BEST)
                save_weights(learner.model, work / phase.name / BEST)
                undone.append(f"the phase {phase.name} brought no gain in {options.metric} and was undone")
            done.append(trained)
        runtime.notify("measuring")
        found = figures(data, before, learner.rank(measured, final=True), metrics)
        notes = [*learner.notes, *undone]
        # A later phase can gain and still be below the base, where the one before it did harm.
        begins = done[0].history[0][2]
        gained = not learner.choosing or any(value > begins for phase in done for _, _, value in phase.history[1:])
        if not gained:
            notes.append(f"no epoch improved {options.metric} over the figure before training. Do without this model")
        notes += notes_on(found, metrics[0])
        report = Report(learner.kind, output.folder, options.base, tuple(done), found, tuple(notes))
        learned_from = [
            f"{len(data.documents):,} documents, {len(data.train):,} claims to train on",
            *data.messages,
            f"**{UNSEEN}**: training saw no document of these claims, neither as relevant nor as a negative",
            f"**{SEEN}**: training did not see these claims. It may have seen their documents",
        ]
        facts = {"precision": training.precision, "tokens": learner.tokens}
        use = f"To use it: `{learner.use} {output.folder.name}`."
        card = model_card(report, use, learned_from, options, facts)
        finish(work, output.folder, learner.save, card, done)
        if gained:
            report = replace(report, notes=(*notes, f"to use it, run {learner.use} {output.folder}"))
        return report


def checked(rows: Sequence[Any]) -> list[Any]:
    """Rows to train on. Raises InvalidData if there are none."""
    if not rows:
        raise InvalidData(NOTHING)
    return list(rows)
