"""`ccheck train embedder`, `adapter` and `reranker`."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..errors import UsageError
from . import opt
from .common import notice, print_fields, print_json, replacements, settings_from, stdout
from .opt import Command, options

if TYPE_CHECKING:
    from ..training.figures import Report
    from ..training.loop import Listener
    from ..training.options import RetrievalOptions
    from ..training.retrieval_data import RetrievalData

FILES = ("corpus", "claims", "qrels", "dev_claims", "dev_qrels", "output")
"""What a TOML of settings can have beside the settings, under the same names as the options."""


WEAK_PAIRS = opt.number("--weak-pairs", least=0, help="Number of synthetic pairs from the corpus, to learn from first.")


def data_options(command: Command) -> Command:
    """The options of files, which all three have."""
    return options(
        opt.file("--corpus", help="Documents, in any format that ccheck ingest reads."),
        opt.file("--claims", help=opt.CLAIMS_HELP),
        opt.file("--qrels", help="Relevance judgements: TSV with claim, document and grade."),
        opt.file("--dev-claims", help="Claims to measure on.  [default: a part of --claims]"),
        opt.file("--dev-qrels", help="Judgements of --dev-claims.  [default: --qrels]"),
        click.option("--output", "-o", metavar="FOLDER", help="Folder to write the model to."),
        click.option("--base", metavar="MODEL", help="Model to start from.  [default: all-MiniLM-L6-v2]"),
        click.option("--preset", metavar="NAME", help="Settings of a published system; docs/training.md lists them."),
        opt.file("--config", help="TOML file with settings and file names. Command-line options take precedence."),
    )(command)


def training_options(command: Command) -> Command:
    """The settings that are most often changed, which all three have; --set has the others."""
    return options(
        opt.number("--epochs", least=0, help="Number of passes over the data."),
        opt.number("--batch", least=1, help="Rows per batch."),
        click.option("--learning-rate", type=float, metavar="X", help="Peak learning rate."),
        click.option("--metric", metavar="NAME", help="Metric that chooses the best epoch.  [default: nDCG@10]"),
        opt.number("--seed", least=0, help="Random seed.  [default: 0]"),
        click.option(
            "--split",
            type=click.Choice(["document", "claim"]),
            help="What training and test data must not share.  [default: document]",
        ),
        click.option(
            "--set",
            "settings",
            multiple=True,
            metavar="KEY=VALUE",
            help="Any other setting, as TOML: clip=0.5. Repeatable.",
        ),
        click.option("--overwrite", is_flag=True, help="Replace the output if it exists."),
        opt.device,
        opt.json,
        opt.quiet,
    )(command)


resume_option = click.option("--resume", is_flag=True, help="Continue a training that was interrupted.")
batches_options = options(
    opt.number("--accumulate", least=1, help="Batches per optimizer step."),
    opt.number("--max-tokens", least=8, help="Longest input, in tokens."),
    click.option(
        "--precision",
        type=click.Choice(["auto", "float32", "bfloat16", "float16"]),
        help="Number format of the forward pass.  [default: auto]",
    ),
    opt.file("--negatives", help="Hard negatives, from ccheck mine."),
)


@click.command()
@data_options
@options(
    click.option(
        "--loss",
        type=click.Choice(["multiple-negatives", "triplet"]),
        help="Loss function.  [default: multiple-negatives]",
    ),
    click.option("--margin", type=float, metavar="X", help="Margin of the triplet loss, as a cosine.  [default: 0.3]"),
    WEAK_PAIRS,
)
@batches_options
@training_options
@resume_option
def embedder(**given: Any) -> None:
    """Train an embedding model on claims and the documents that bear on them.

    \b
    ccheck train embedder --corpus c.jsonl --claims q.jsonl --qrels r.tsv -o out
    ccheck ingest c.jsonl --model out

    Unless --split says otherwise, the claims to measure on share no document with the training claims. To continue an
    interrupted training, use --resume.
    """
    from ..training.embedder import train_embedder
    from ..training.options import EmbedderOptions

    chosen, run = _prepared(EmbedderOptions, given)
    with listening(run.quiet) as listener:
        data = _data(run, chosen, listener)
        report = train_embedder(
            chosen,
            data,
            run.output,
            resume=run.resume,
            overwrite=run.overwrite,
            device=run.device,
            listener=listener,
        )
    _print(report, run.as_json)


@click.command()
@data_options
@training_options
def adapter(**given: Any) -> None:
    """Train an adapter for the claims' embeddings; documents stay as they are.

    \b
    ccheck train adapter --corpus c.jsonl --claims q.jsonl --qrels r.tsv -o out

    To use it, set adapter = "out" on a recipe's dense retriever. --base is the embedding model of the store.
    """
    from ..training.adapter import train_adapter
    from ..training.options import AdapterOptions

    chosen, run = _prepared(AdapterOptions, given)
    with listening(run.quiet) as listener:
        data = _data(run, chosen, listener)
        report = train_adapter(chosen, data, run.output, overwrite=run.overwrite, device=run.device, listener=listener)
    _print(report, run.as_json)


@click.command()
@data_options
@options(
    click.option("--loss", type=click.Choice(["bce", "margin", "softmax"]), help="Loss function.  [default: bce]"),
    click.option("--margin", type=float, metavar="X", help="Margin of the margin loss.  [default: 0.2]"),
    opt.number(
        "--second-epochs", least=0, help="Number of epochs of a second phase, on the negatives that are still hard."
    ),
    WEAK_PAIRS,
    opt.number("--depth", least=1, help="Depth of the ranking that negatives come from.  [default: 200]"),
    click.option("--store", metavar="STORE", help="Store with the corpus.  [default: a temporary store]"),
    opt.recipe("Recipe whose retrieval finds candidates.  [default: default]"),
    opt.replace,
)
@batches_options
@training_options
@resume_option
def reranker(replace: tuple[str, ...], **given: Any) -> None:
    """Train a reranking model on claims and the documents that bear on them.

    \b
    ccheck train reranker --corpus c.jsonl --claims q.jsonl --qrels r.tsv -o out
    ccheck train reranker --config mine.toml --weak-pairs 2000
    ccheck train reranker --preset climatecheck-hybrid --config mine.toml
    ccheck query "..." --rerank out

    Unless --split says otherwise, the claims to measure on share no document with the training claims. To continue an
    interrupted training, use --resume.
    """
    from ..training.from_store import open_candidates
    from ..training.options import RerankerOptions
    from ..training.reranker import train_reranker

    chosen, run = _prepared(RerankerOptions, given, also=("store",))
    with listening(run.quiet) as listener:
        data = _data(run, chosen, listener)
        settings = settings_from(store=run.store, recipe=chosen.recipe, device=run.device)
        corpus = run.corpus if run.store is None else None
        with open_candidates(
            settings, data.documents, corpus=corpus, replace=replacements(replace), notify=listener.message
        ) as candidates:
            report = train_reranker(
                chosen,
                data,
                run.output,
                candidates,
                resume=run.resume,
                overwrite=run.overwrite,
                device=run.device,
                listener=listener,
            )
    _print(report, run.as_json)


class _Run:
    """The files and flags of a command that are not settings of its training."""

    def __init__(self, values: Mapping[str, Any], flags: Mapping[str, Any]) -> None:
        for name in ("corpus", "claims", "qrels", "output"):
            if not values.get(name):
                raise UsageError(f"--{name} is missing (or {name} in the --config file)")
        self.corpus, self.claims, self.qrels = (str(values[name]) for name in ("corpus", "claims", "qrels"))
        self.dev_claims, self.dev_qrels = (values.get(name) for name in ("dev_claims", "dev_qrels"))
        if self.dev_qrels and not self.dev_claims:
            raise UsageError("--dev-qrels needs --dev-claims")
        self.output = Path(str(values["output"]))
        self.store = values.get("store")
        self.device: str | None = flags["device"]
        self.resume, self.overwrite = bool(flags.get("resume")), bool(flags["overwrite"])
        self.quiet, self.as_json = bool(flags["quiet"]), bool(flags["as_json"])


T = TypeVar("T", bound="RetrievalOptions")


def _prepared(kind: type[T], given: dict[str, Any], also: tuple[str, ...] = ()) -> tuple[T, _Run]:
    """The settings of a training and what it reads and writes. Raises UsageError, NotFound or InvalidData."""
    from ..training.loop import require_training
    from ..training.options import load_options, read_config

    require_training()
    config = read_config(Path(given["config"])) if given["config"] else {}
    preset = given["preset"] or config.pop("preset", None)
    config.pop("preset", None)
    files = {name: config.pop(name) for name in (*FILES, *also) if name in config}
    files |= {name: given[name] for name in (*FILES, *also) if given.get(name) is not None}
    flags = {name: given[name] for name in kind.model_fields if name in given}
    flags |= settings_of(given["settings"])
    return load_options(kind, preset, config, flags), _Run(files, given)


def settings_of(given: Sequence[str]) -> dict[str, Any]:
    """`lora={r=8}` and the like. A value that is not TOML is a text."""
    found: dict[str, Any] = {}
    for one in given:
        key, equals, value = one.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"--set {one}: write it as KEY=VALUE")
        try:
            found[key.strip()] = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            found[key.strip()] = value
    return found


def _data(run: _Run, chosen: RetrievalOptions, listener: Listener) -> RetrievalData:
    from ..training.inputs import read_retrieval_data

    data = read_retrieval_data(
        run.corpus, run.claims, run.qrels, chosen, dev_claims=run.dev_claims, dev_qrels=run.dev_qrels
    )
    for message in data.messages:
        listener.message(message)
    return data


@contextmanager
def listening(quiet: bool) -> Iterator[Listener]:
    """A line for what happens, and on a terminal a bar with the loss and the time left."""
    from ..training.loop import Silent
    from .progress import progress_bar

    if quiet:
        yield Silent()
        return
    with progress_bar("training", quiet) as update:

        class Shown:
            def step(self, phase: str, step: int, steps: int, loss: float | None, seconds_left: float | None) -> None:
                update(step, steps, facts="" if loss is None else f"loss {loss:.4f}", name=phase)

            def measured(self, phase: str, epoch: float, metric: str, value: float) -> None:
                notice(f"{phase}, epoch {epoch:.4g}: {metric} {value:.4f}")

            def message(self, text: str) -> None:
                notice(text)

        yield Shown()


def _print(report: Report, as_json: bool) -> None:
    if as_json:
        print_json(report.to_dict())
        return
    fields = {"output": str(report.output), "base": report.base}
    fields |= {
        f"{figure.metric} {figure.group} ({figure.claims})": f"{figure.describe()}, {figure.change()}"
        for figure in report.figures
    }
    print_fields(stdout(), fields)
    notice(*report.notes)
