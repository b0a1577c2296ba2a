"""The files of a training, read and put together as the commands of `ccheck train` do it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ...pipeline.claims import read_claims
from ..measure.datasets import read_corpus, read_qrels
from ..measure.rows import read_rows
from .options import RetrievalOptions, StanceOptions
from .retrieval_data import RetrievalData, retrieval_data
from .stance_data import StanceData, join_files, stance_data


def read_retrieval_data(
    corpus: str,
    claims: str,
    qrels: str,
    options: RetrievalOptions,
    *,
    dev_claims: str | None = None,
    dev_qrels: str | None = None,
) -> RetrievalData:
    """Reads the data to train and measure a retrieval model on. Its messages say what was left out.

    Raises NotFound, UsageError, MissingExtra (Parquet), or InvalidData.
    """
    documents, rejected = read_corpus(corpus, titles=options.titles)
    judged = read_qrels(qrels)
    dev = (read_claims(dev_claims), read_qrels(dev_qrels) if dev_qrels else judged) if dev_claims else None
    data = retrieval_data(documents.values(), read_claims(claims), judged, options, dev)
    left_out = f"{len(rejected):,} records of the corpus were left out. The first: {rejected[0]}" if rejected else ""
    return replace(data, messages=(left_out, *data.messages)) if left_out else data


def read_stance_data(
    train: Sequence[str],
    options: StanceOptions,
    *,
    dev: str | None = None,
    test: str | None = None,
    corpus: str | None = None,
    notify: Callable[[str], None] = lambda message: None,
) -> StanceData:
    """Reads the data to train and measure a stance model on. `notify` is told what each file of `train` holds.

    Raises NotFound, MissingExtra (Parquet), or InvalidData.
    """
    files = [read_rows(file, corpus) for file in train]
    for file, rows in zip(train, files, strict=True):
        notify(f"{file}: {rows.describe()}")
    return stance_data(
        join_files(files),
        options,
        read_rows(dev, corpus).rows if dev else (),
        read_rows(test, corpus).rows if test else (),
    )
