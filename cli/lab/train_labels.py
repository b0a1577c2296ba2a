"""`ccheck train stance`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .. import opt
from ..common import counted, notice, print_fields, print_json, stdout
from ..opt import options
from . import train_shared as shared

if TYPE_CHECKING:
    from ...lab.measure.types import Classified
    from ...lab.train.stance_figures import StanceReport

_FILES = ("train", "dev", "test", "corpus", "output")


@click.command()
@options(
    opt.file(
        "--train",
        multiple=True,
        help="Labelled pairs: JSON Lines with claim, evidence, label, or SciFact, Climate-FEVER, AVeriTeC. Repeatable.",
    ),
    opt.file("--dev", help="Pairs that choose the best epoch.  [default: a part of --train]"),
    opt.file("--test", help="Pairs to measure on.  [default: a part of --train, or --dev]"),
    opt.file("--corpus", help="Documents, if the pairs have only their ids."),
    shared.output,
    shared.base,
    click.option("--preset", metavar="NAME", help="Settings of a published system: climatecheck-hybrid."),
    shared.config,
    opt.number("--epochs", least=1, help="Number of passes over the data."),
    opt.number("--batch", least=1, help="Pairs per batch.  [default: 32]"),
    click.option("--learning-rate", type=float, metavar="X", help="Peak learning rate.  [default: 5e-5]"),
    shared.seed,
    shared.split,
    shared.others("gamma=1"),
    shared.resume,
    shared.overwrite,
    opt.device,
    opt.json,
    opt.quiet,
)
def stance(**said: Any) -> None:
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

    chosen, files = shared.prepared(StanceOptions, said, _FILES, needed=("train", "output"))
    trains = [files["train"]] if isinstance(files["train"], str) else list(files["train"])
    with shared.listening(said["quiet"]) as listener:
        data = read_stance_data(
            trains, chosen, dev=files["dev"], test=files["test"], corpus=files["corpus"], notify=listener.message
        )
        for message in data.messages:
            listener.message(message)
        made = train_stance(
            data,
            chosen,
            Path(files["output"]),
            device=said["device"],
            overwrite=said["overwrite"],
            resume=said["resume"],
            listener=listener,
        )
    _print_stance(made, chosen.base, said["as_json"])


def _print_stance(made: StanceReport, base: str, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "kind": "stance",
                "output": str(made.folder),
                "base": base,
                "phases": [
                    {"phase": one.phase, "steps": one.steps, "best_step": one.best_step, "seconds": one.seconds}
                    for one in made.phases
                ],
                "figures": {
                    name: {"model": own.to_dict(), "floor": floor.to_dict()}
                    for name, (own, floor) in made.figures.items()
                },
                "most_frequent": made.most,
                "notes": list(made.notes),
            }
        )
        return
    fields = {"output": str(made.folder), "base": base}
    for name, (own, floor) in made.figures.items():
        fields[f"weighted F1 {name} ({counted(own.count, 'pair')})"] = (
            f"{_with_interval(own)}; {floor.weighted.f1:.4f} for always answering {made.most}"
        )
    print_fields(stdout(), fields)
    notice(*made.notes)


def _with_interval(figures: Classified) -> str:
    low, high = figures.intervals.get("weighted_f1", (figures.weighted.f1, figures.weighted.f1))
    return f"{figures.weighted.f1:.4f} [{low:.4f}, {high:.4f}]"
