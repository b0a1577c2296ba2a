"""`ccheck train embedder`, `adapter` and `reranker`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...core.errors import UsageError
from .. import opt
from ..common import notice, print_fields, print_json, replacements, settings_from, stdout
from ..opt import options
from . import train_shared as shared

if TYPE_CHECKING:
    from ...lab.train.figures import Report
    from ...lab.train.loop import Listener
    from ...lab.train.options import RetrievalOptions
    from ...lab.train.retrieval_data import RetrievalData

NEEDED = ("corpus", "claims", "qrels", "output")
FILES = (*NEEDED, "dev_claims", "dev_qrels")
"""Keys that a TOML file can have besides the settings, with the same names as the options."""


data_options = options(
    opt.file("--corpus", help="Documents, in any format that ccheck ingest reads."),
    opt.file("--claims", help=opt.CLAIMS_HELP),
    opt.file("--qrels", help="Relevance judgements: TSV with claim, document and grade."),
    opt.file("--dev-claims", help="Claims to measure on.  [default: a part of --claims]"),
    opt.file("--dev-qrels", help="Judgements of --dev-claims.  [default: --qrels]"),
    shared.output,
    shared.base,
    click.option("--preset", metavar="NAME", help="Settings of a published system. docs/training.md lists them."),
    shared.config,
)
"""The options of files, which all three have."""
training_options = options(
    opt.number("--epochs", least=0, help="Number of passes over the data."),
    opt.number("--batch", least=1, help="Rows per batch."),
    click.option("--learning-rate", type=float, metavar="X", help="Peak learning rate."),
    click.option("--metric", metavar="NAME", help="Metric that chooses the best epoch.  [default: nDCG@10]"),
    shared.seed,
    shared.split,
    shared.others("clip=0.5"),
    shared.overwrite,
    opt.device,
    opt.json,
    opt.quiet,
)
"""The settings that are most often changed, which all three have; --set has the others."""
negatives = opt.file("--negatives", help="Hard negatives, from ccheck mine.")


@click.command()
@data_options
@options(
    click.option(
        "--loss",
        type=click.Choice(["multiple-negatives", "triplet"]),
        help="Loss function.  [default: multiple-negatives]",
    ),
    negatives,
)
@training_options
@shared.resume
def embedder(**given: Any) -> None:
    """Train an embedding model on claims and the documents that bear on them.

    \b
    ccheck train embedder --corpus c.jsonl --claims q.jsonl --qrels r.tsv -o out
    ccheck ingest c.jsonl --model out

    Unless --split says otherwise, the claims to measure on share no document with the training claims. To continue an
    interrupted training, use --resume.
    """
    from ...lab.train.embedder import train_embedder
    from ...lab.train.options import EmbedderOptions

    chosen, files = shared.prepared(EmbedderOptions, given, FILES, NEEDED)
    with shared.listening(given["quiet"]) as listener:
        data = _data(files, chosen, listener)
        report = train_embedder(chosen, data, Path(files["output"]), **shared.how(given, listener))
    _print(report, given["as_json"])


@click.command()
@data_options
@training_options
def adapter(**given: Any) -> None:
    """Train an adapter for the claims' embeddings; documents stay as they are.

    \b
    ccheck train adapter --corpus c.jsonl --claims q.jsonl --qrels r.tsv -o out

    To use it, set adapter = "out" on a recipe's dense retriever. --base is the embedding model of the store.
    """
    from ...lab.train.adapter import train_adapter
    from ...lab.train.options import AdapterOptions

    chosen, files = shared.prepared(AdapterOptions, given, FILES, NEEDED)
    with shared.listening(given["quiet"]) as listener:
        data = _data(files, chosen, listener)
        report = train_adapter(chosen, data, Path(files["output"]), **shared.how(given, listener))
    _print(report, given["as_json"])


@click.command()
@data_options
@options(
    click.option("--loss", type=click.Choice(["bce", "margin", "softmax"]), help="Loss function.  [default: bce]"),
    negatives,
    click.option("--store", metavar="STORE", help="Store with the corpus.  [default: a temporary store]"),
    opt.recipe("Recipe whose retrieval finds candidates.  [default: default]"),
    opt.replace,
)
@training_options
@shared.resume
def reranker(replace: tuple[str, ...], **given: Any) -> None:
    """Train a reranking model on claims and the documents that bear on them.

    \b
    ccheck train reranker --corpus c.jsonl --claims q.jsonl --qrels r.tsv -o out
    ccheck train reranker --config mine.toml --set weak_pairs=2000
    ccheck train reranker --preset climatecheck-hybrid --config mine.toml
    ccheck query "..." --rerank out

    Unless --split says otherwise, the claims to measure on share no document with the training claims. To continue an
    interrupted training, use --resume.
    """
    from ...core.runtime import Runtime
    from ...lab.train.from_store import open_candidates
    from ...lab.train.options import RerankerOptions
    from ...lab.train.reranker import train_reranker

    chosen, files = shared.prepared(RerankerOptions, given, (*FILES, "store"), NEEDED)
    with shared.listening(given["quiet"]) as listener:
        data = _data(files, chosen, listener)
        settings = settings_from(store=files["store"], recipe=chosen.recipe, device=given["device"])
        corpus = str(files["corpus"]) if files["store"] is None else None
        with (
            Runtime(settings, listener.message) as opened,
            open_candidates(opened, data.documents, corpus=corpus, replace=replacements(replace)) as candidates,
        ):
            report = train_reranker(chosen, data, Path(files["output"]), candidates, **shared.how(given, listener))
    _print(report, given["as_json"])


def _data(files: Mapping[str, Any], chosen: RetrievalOptions, listener: Listener) -> RetrievalData:
    from ...lab.train.inputs import read_retrieval_data

    if files["dev_qrels"] and not files["dev_claims"]:
        raise UsageError("--dev-qrels needs --dev-claims")
    corpus, claims, qrels = (str(files[name]) for name in ("corpus", "claims", "qrels"))
    data = read_retrieval_data(
        corpus, claims, qrels, chosen, dev_claims=files["dev_claims"], dev_qrels=files["dev_qrels"]
    )
    for message in data.messages:
        listener.message(message)
    return data


def _print(report: Report, as_json: bool) -> None:
    if as_json:
        print_json(report.to_dict())
        return
    print_fields(stdout(), {"output": str(report.output), "base": report.base, **shared.figure_fields(report.figures)})
    notice(*report.notes)
