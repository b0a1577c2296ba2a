"""`ccheck train stance`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .. import opt
from ..common import counted, notice, print_answer
from . import train_shared as shared

if TYPE_CHECKING:
    from ...lab.measure.types import Classified

_FILES = ("train", "dev", "test", "corpus", "output")


@dataclass(frozen=True, kw_only=True)
class TrainStance(shared.Training):
    """What `ccheck train stance` is given."""

    train: tuple[str, ...] = opt.option(
        "Labelled pairs: JSON Lines with claim, evidence, label, or SciFact, Climate-FEVER, AVeriTeC. Repeatable.",
        "FILE",
        heading="Data",
    )
    dev: str | None = opt.option("Pairs that choose the best epoch.  [default: a part of --train]", "FILE")
    test: str | None = opt.option("Pairs to measure on.  [default: a part of --train, or --dev]", "FILE")
    corpus: str | None = opt.option("Documents, if the pairs have only their ids.", "FILE")


@opt.command
def stance(asked: TrainStance) -> None:
    """Train a stance classifier on labelled pairs.

    \b
    ccheck train stance --train pairs.jsonl --output my-stance
    ccheck train stance --train v.jsonl --corpus c.jsonl --base NLI-MODEL -o out
    ccheck query "..." --stance my-stance

    Unless --split says otherwise, test pairs share no document with the training pairs. To continue an interrupted
    training, use --resume.
    """
    from ...lab.train.inputs import read_stance_data
    from ...lab.train.options import StanceOptions
    from ...lab.train.stance import train_stance

    chosen, files = shared.prepared(StanceOptions, asked, _FILES, needed=("train", "output"))
    trains = [files["train"]] if isinstance(files["train"], str) else list(files["train"])
    with shared.running(asked) as runtime:
        data = read_stance_data(
            trains, chosen, dev=files["dev"], test=files["test"], corpus=files["corpus"], notify=runtime.notify
        )
        for message in data.messages:
            runtime.notify(message)
        made = train_stance(data, chosen, shared.output_of(asked, files), runtime)
    facts = {
        "kind": "stance",
        "output": str(made.folder),
        "base": chosen.base,
        "phases": [one.to_dict() for one in made.phases],
        "figures": {
            name: {"model": own.to_dict(), "floor": floor.to_dict()} for name, (own, floor) in made.figures.items()
        },
        "most_frequent": made.most,
        "notes": list(made.notes),
    }
    figures = {
        f"weighted F1 {name} ({counted(own.count, 'pair')})": f"{_with_interval(own)}; {floor.weighted.f1:.4f} for "
        f"always answering {made.most}"
        for name, (own, floor) in made.figures.items()
    }
    print_answer(asked.as_json, facts, {"output": str(made.folder), "base": chosen.base} | figures)
    if not asked.as_json:
        notice(*made.notes)


def _with_interval(figures: Classified) -> str:
    low, high = figures.intervals.get("weighted_f1", (figures.weighted.f1, figures.weighted.f1))
    return f"{figures.weighted.f1:.4f} [{low:.4f}, {high:.4f}]"
