"""`ccheck train`: models from labels."""

from __future__ import annotations

import click

from .. import opt

KINDS = {
    "embedder": "Train an embedding model on claims and the documents that bear on them.",
    "reranker": "Train a reranking model on claims and the documents that bear on them.",
    "stance": "Train a stance classifier on labelled pairs.",
}
MODULES = dict.fromkeys(KINDS, "lab.train_retrieval") | {"stance": "lab.train_labels"}


@click.group(cls=opt.LazyGroup, sections={"Commands": KINDS}, modules=MODULES)
def train() -> None:
    """Train models on labelled data.

    \b
    ccheck train reranker --corpus c.jsonl --claims q.jsonl --qrels r.tsv -o out
    ccheck train embedder --preset climatecheck-hybrid --config mine.toml
    """
