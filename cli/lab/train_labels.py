"""`ccheck train stance` and `ccheck train learned-reranker`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...core.files import check_output
from .. import opt
from ..common import counted, notice, print_fields, print_json, settings_from, stdout
from ..opt import given, options
from ..progress import runtime
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


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedReranker:
    """The arguments and options of `ccheck learned-reranker`."""

    claims: str = given(opt.claims)
    qrels: str = given(opt.qrels)
    store: str | None = given(opt.store)
    recipe: str | None = given(opt.recipe("Recipe whose scores to learn from.  [env: CCHECK_RECIPE]"))
    output: str = given("--output", "-o", by=opt.file, required=True, help="JSON file to write.")
    depth: int = given(
        "--depth", by=opt.number, least=2, most=1000, default=50, help="Number of documents to rerank for each claim."
    )
    rerankers: bool = given(
        "--rerankers", is_flag=True, help="Run the recipe's rerankers first, and learn from their scores too."
    )
    seed: int = given("--seed", by=opt.number, least=0, default=0, help="Random seed.")
    trust_remote_code: bool | None = given(opt.remote_code)
    as_json: bool = given(opt.json)
    device: str | None = given(opt.device)
    quiet: bool = given(opt.quiet)


@opt.command(LearnedReranker)
def learned_reranker(asked: LearnedReranker) -> None:
    """Train a reranker over the retrievers' scores, in seconds and without torch.

    \b
    ccheck train learned-reranker --claims c.jsonl --qrels q.tsv -o l.json

    It reorders the top documents of the recipe's retrievers, using their scores and ranks and the words that they share
    with the claim. To use it, name the file as the model of a table [rerankers.learned] in a recipe: before its other
    rerankers or, if trained with --rerankers, after them.
    """
    from ...lab.train.from_store import learn_reranker_from_store
    from ...lab.train.learned_reranker import LearnedRerankerOptions, save_learned_reranker

    check_output(asked.output, "the learned reranker", (asked.claims, asked.qrels, asked.recipe))
    settings = settings_from(**opt.settings_of(asked))
    with runtime(settings, asked.quiet) as opened:
        trained = learn_reranker_from_store(
            opened,
            asked.claims,
            asked.qrels,
            LearnedRerankerOptions(depth=asked.depth, seed=asked.seed),
            rerankers=asked.rerankers,
        )
    save_learned_reranker(trained.model, Path(asked.output))
    if asked.as_json:
        print_json({"output": asked.output, **dict(trained.model.about), "notes": list(trained.notes)})
        return
    fields = {"output": asked.output, "retrievers": ", ".join(trained.model.retrievers)}
    if trained.model.rerankers:
        fields["rerankers"] = ", ".join(trained.model.rerankers)
    print_fields(stdout(), fields | shared.figure_fields(trained.figures))
    notice(*trained.notes)
