"""`ccheck train embedder` and `ccheck train reranker`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ...core.errors import UsageError
from .. import opt
from ..common import notice, print_answer, replacements
from . import train_shared as shared

if TYPE_CHECKING:
    from ...core.runtime import Runtime
    from ...lab.train.figures import Report
    from ...lab.train.options import RetrievalOptions
    from ...lab.train.retrieval_data import RetrievalData

NEEDED = ("corpus", "claims", "qrels", "output")
FILES = (*NEEDED, "dev_claims", "dev_qrels")
"""Keys that a TOML file can have besides the settings, with the same names as the options."""


@dataclass(frozen=True, kw_only=True)
class Data(shared.Training):
    """The options that trainings on a corpus have."""

    corpus: str | None = opt.option("Documents, in any format that ccheck ingest reads.", "FILE", heading="Data")
    claims: str | None = opt.option(opt.CLAIMS_HELP, "FILE")
    qrels: str | None = opt.option("Relevance judgements: TSV with claim, document and grade.", "FILE")
    dev_claims: str | None = opt.option("Claims to measure on.  [default: a part of --claims]", "FILE")
    dev_qrels: str | None = opt.option("Judgements of --dev-claims.  [default: --qrels]", "FILE")
    metric: str | None = opt.option("Metric that chooses the best epoch.  [default: nDCG@10]", "NAME")


negatives_option = opt.option("Hard negatives, from ccheck mine.", "FILE")


@dataclass(frozen=True, kw_only=True)
class Embedder(Data):
    """What `ccheck train embedder` is given."""

    negatives: str | None = negatives_option
    loss: Literal["multiple-negatives", "triplet"] | None = opt.option("Loss function.  [default: multiple-negatives]")


@dataclass(frozen=True, kw_only=True)
class Reranker(Data):
    """What `ccheck train reranker` is given."""

    negatives: str | None = negatives_option
    store: str | None = opt.option("Store with the corpus.  [default: a temporary store]", "STORE")
    recipe: str | None = opt.recipe("Recipe whose retrieval finds candidates.  [default: default]")
    replace: tuple[str, ...] = opt.replace
    loss: Literal["bce", "margin", "softmax"] | None = opt.option("Loss function.  [default: bce]")


@opt.command
def embedder(asked: Embedder) -> None:
    """Train an embedding model on claims and the documents that bear on them.

    \b
    ccheck train embedder --corpus c.jsonl --claims q.jsonl --qrels r.tsv -o out
    ccheck ingest c.jsonl --model out

    Unless --split says otherwise, the claims to measure on share no document with the training claims. To continue an
    interrupted training, use --resume.
    """
    from ...lab.train.embedder import train_embedder
    from ...lab.train.options import EmbedderOptions

    chosen, files = shared.prepared(EmbedderOptions, asked, FILES, NEEDED)
    with shared.running(asked) as runtime:
        report = train_embedder(chosen, _data(files, chosen, runtime), shared.output_of(asked, files), runtime)
    _print(report, asked.as_json)


@opt.command
def reranker(asked: Reranker) -> None:
    """Train a reranking model on claims and the documents that bear on them.

    \b
    ccheck train reranker --corpus c.jsonl --claims q.jsonl --qrels r.tsv -o out
    ccheck train reranker --config mine.toml --set second_epochs=1
    ccheck train reranker --preset climatecheck-hybrid --config mine.toml
    ccheck query "..." --rerank out

    Unless --split says otherwise, the claims to measure on share no document with the training claims. To continue an
    interrupted training, use --resume.
    """
    from ...lab.train.from_store import open_candidates
    from ...lab.train.options import RerankerOptions
    from ...lab.train.reranker import train_reranker

    chosen, files = shared.prepared(RerankerOptions, asked, (*FILES, "store"), NEEDED)
    corpus = str(files["corpus"]) if files["store"] is None else None
    replace = replacements(asked.replace)
    with shared.running(asked, store=files["store"], recipe=chosen.recipe) as runtime:
        data = _data(files, chosen, runtime)
        with open_candidates(runtime, data.documents, corpus=corpus, replace=replace) as candidates:
            report = train_reranker(chosen, data, shared.output_of(asked, files), runtime, candidates)
    _print(report, asked.as_json)


def _data(files: Mapping[str, Any], chosen: RetrievalOptions, runtime: Runtime) -> RetrievalData:
    from ...lab.train.inputs import read_retrieval_data

    if files["dev_qrels"] and not files["dev_claims"]:
        raise UsageError("--dev-qrels needs --dev-claims")
    corpus, claims, qrels = (str(files[name]) for name in ("corpus", "claims", "qrels"))
    data = read_retrieval_data(
        corpus, claims, qrels, chosen, dev_claims=files["dev_claims"], dev_qrels=files["dev_qrels"]
    )
    for message in data.messages:
        runtime.notify(message)
    return data


def _print(report: Report, as_json: bool) -> None:
    figures = {
        f"{one.metric} {one.group} ({one.claims})": f"{one.describe()}, {one.change()}" for one in report.figures
    }
    print_answer(as_json, report.to_dict(), {"output": str(report.output), "base": report.base} | figures)
    if not as_json:
        notice(*report.notes)
