"""`ccheck train`: models from labels."""

from __future__ import annotations

import signal
import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ...core.errors import UsageError
from .. import opt
from ..common import inform, print_answer, replacements, settings_from
from ..progress import runtime

if TYPE_CHECKING:
    from ...lab.train.figures import Report
    from ...lab.train.loop import Output
    from ...lab.train.options import RetrievalOptions, TrainingOptions
    from ...lab.train.retrieval_data import RetrievalData

NEEDED = ("corpus", "claims", "qrels", "output")
FILES = (*NEEDED, "dev_claims", "dev_qrels")
STANCE_FILES = ("train", "dev", "test", "corpus", "output")
"""Keys that a TOML file can have besides the settings, with the same names as the options."""


KINDS = ["embedder", "reranker", "stance"]


@click.group(cls=opt.LazyGroup, sections={"Commands": KINDS}, modules=dict.fromkeys(KINDS, "lab.train"))
def train() -> None:
    """Train models on labelled data.

    \b
    ccheck train reranker --corpus c.jsonl --claims q.jsonl --qrels r.tsv -o out
    ccheck train embedder --preset climatecheck-hybrid --config mine.toml
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends a training as Ctrl-C does


@dataclass(frozen=True, kw_only=True)
class Training:
    """The options that all trainings have; `--set` has the other settings."""

    output: str | None = opt.output("Folder to write the model to.", "FOLDER", heading="Files")
    base: str | None = opt.option("Model to start from.  [default: all-MiniLM-L6-v2]", "MODEL")
    preset: str | None = opt.option("Settings of a published system. docs/training.md lists them.", "NAME")
    config: str | None = opt.option(
        "TOML file with settings and file names. Command-line options take precedence.", "FILE"
    )
    settings: tuple[str, ...] = opt.option(
        "A setting of docs/training.md, as TOML: epochs=2. Repeatable.", "KEY=VALUE", names=("--set",)
    )
    resume: bool = opt.option("Continue a training that was interrupted.")
    device: str | None = opt.under("Running", opt.device)
    as_json: bool = opt.as_json


@dataclass(frozen=True, kw_only=True)
class Embedder(Training):
    """What `ccheck train embedder` is given."""

    corpus: str | None = opt.option("Documents, in any format that ccheck ingest reads.", "FILE", heading="Data")
    claims: str | None = opt.option(opt.CLAIMS_HELP, "FILE")
    qrels: str | None = opt.option("Relevance judgements: TSV with claim, document and grade.", "FILE")
    dev_claims: str | None = opt.option("Claims to measure on.  [default: a part of --claims]", "FILE")
    dev_qrels: str | None = opt.option("Judgements of --dev-claims.  [default: --qrels]", "FILE")
    negatives: str | None = opt.option("Hard negatives, from ccheck mine.", "FILE")


@dataclass(frozen=True, kw_only=True)
class Reranker(Embedder):
    """What `ccheck train reranker` is given."""

    store: str | None = opt.option("Store with the corpus.  [default: a temporary store]", "STORE")
    recipe: str | None = opt.recipe("Recipe whose retrieval finds candidates.  [default: default]")
    replace: tuple[str, ...] = opt.replace


@dataclass(frozen=True, kw_only=True)
class StanceTraining(Training):
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
def embedder(asked: Embedder) -> None:
    """Train an embedding model on claims and the documents that bear on them.

    \b
    ccheck train embedder --corpus c.jsonl --claims q.jsonl --qrels r.tsv -o out
    ccheck ingest c.jsonl --model out

    Unless split is set, the claims to measure on share no document with the training claims. To continue an interrupted
    training, use --resume.
    """
    from ...lab.train.embedder import train_embedder
    from ...lab.train.options import EmbedderOptions

    chosen, files, output = _prepared(EmbedderOptions, asked, FILES, NEEDED)
    with runtime(settings_from(device=asked.device), lines=True) as opened:
        report = train_embedder(chosen, _data(files, chosen), output, opened)
    _print(report, asked.as_json)


@opt.command
def reranker(asked: Reranker) -> None:
    """Train a reranking model on claims and the documents that bear on them.

    \b
    ccheck train reranker --corpus c.jsonl --claims q.jsonl --qrels r.tsv -o out
    ccheck train reranker --config mine.toml --set second_epochs=1
    ccheck train reranker --preset climatecheck-hybrid --config mine.toml
    ccheck query "..." --rerank out

    Unless split is set, the claims to measure on share no document with the training claims. To continue an interrupted
    training, use --resume.
    """
    from ...lab.train.mining import open_candidates
    from ...lab.train.options import RerankerOptions
    from ...lab.train.reranker import train_reranker

    chosen, files, output = _prepared(RerankerOptions, asked, (*FILES, "store"), NEEDED)
    corpus = str(files["corpus"]) if files["store"] is None else None
    replace = replacements(asked.replace)
    settings = settings_from(device=asked.device, store=files["store"], recipe=chosen.recipe)
    with runtime(settings, lines=True) as opened:
        data = _data(files, chosen)
        with open_candidates(opened, data.documents, corpus=corpus, replace=replace) as candidates:
            report = train_reranker(chosen, data, output, opened, candidates)
    _print(report, asked.as_json)


@opt.command
def stance(asked: StanceTraining) -> None:
    """Train a stance classifier on labelled pairs.

    \b
    ccheck train stance --train pairs.jsonl --output my-stance
    ccheck train stance --train v.jsonl --corpus c.jsonl --base NLI-MODEL -o out
    ccheck query "..." --stance my-stance

    Unless split is set, test pairs share no document with the training pairs. To continue an interrupted training, use
    --resume.
    """
    from ...lab.train.options import StanceOptions
    from ...lab.train.stance import read_stance_data, train_stance

    chosen, files, output = _prepared(StanceOptions, asked, STANCE_FILES, ("train", "output"))
    trains = [files["train"]] if isinstance(files["train"], str) else list(files["train"])
    with runtime(settings_from(device=asked.device), lines=True) as opened:
        data = read_stance_data(
            trains, chosen, dev=files["dev"], test=files["test"], corpus=files["corpus"], notify=opened.notify
        )
        inform(*data.messages)
        made = train_stance(data, chosen, output, opened)
    _print(made, asked.as_json)


T = TypeVar("T", bound="TrainingOptions")


def _prepared(
    kind: type[T], asked: Training, files: Sequence[str], needed: Collection[str]
) -> tuple[T, dict[str, Any], Output]:
    """The settings of a training, and what it reads and writes: all come from options or from the --config file.

    `files` are the names of the latter, which are not settings. Raises UsageError if one that is needed is missing,
    NotFound or InvalidData.
    """
    from ...lab.train.loop import Output, require_training
    from ...lab.train.options import load_options, read_config

    require_training()
    config = read_config(Path(asked.config)) if asked.config else {}
    preset = config.pop("preset", None)
    given = {field.name: getattr(asked, field.name) for field in fields(asked)}
    values = {name: given[name] or config.pop(name, None) for name in files}
    config = {name: value for name, value in config.items() if name not in files}
    flags = {name: given[name] for name in kind.model_fields if name in given}
    chosen = load_options(kind, asked.preset or preset, config, flags | _settings(asked.settings))
    for name in files:
        if name in needed and not values[name]:
            raise UsageError(f"--{name} is missing (or {name} in the --config file)")
    return chosen, values, Output(Path(values["output"]), asked.resume)


def _settings(given: Sequence[str]) -> dict[str, Any]:
    """`lora={r=8}` and the like. A value that is not TOML is a text."""
    found: dict[str, Any] = {}
    for one in given:
        key, equals, value = one.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"--set {one}: write it as KEY=VALUE")
        try:
            found[key.strip()] = tomllib.loads(f"value = {value}")["value"]
        except ValueError:
            found[key.strip()] = value
    return found


def _data(files: Mapping[str, Any], chosen: RetrievalOptions) -> RetrievalData:
    from ...lab.train.retrieval_data import read_retrieval_data

    if files["dev_qrels"] and not files["dev_claims"]:
        raise UsageError("--dev-qrels needs --dev-claims")
    corpus, claims, qrels = (str(files[name]) for name in ("corpus", "claims", "qrels"))
    data = read_retrieval_data(
        corpus, claims, qrels, chosen, dev_claims=files["dev_claims"], dev_qrels=files["dev_qrels"]
    )
    inform(*data.messages)
    return data


def _print(report: Report, as_json: bool) -> None:
    figures = {
        f"{one.metric} {one.group} ({one.claims})": f"{one.describe()}, {one.change()}" for one in report.figures
    }
    about = {"output": str(report.output), "base": report.base, "before": report.beside}
    print_answer(as_json, report.to_dict(), about | figures)
    if not as_json:
        inform(*report.notes)
