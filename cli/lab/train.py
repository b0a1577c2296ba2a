"""`ccheck train`: models from labels. Each kind is imported when it is called."""

from __future__ import annotations

import importlib

import click

KINDS = {
    "embedder": ("train_retrieval", "Train an embedding model on claims and the documents that bear on them."),
    "adapter": ("train_retrieval", "Train an adapter for the claims' embeddings; documents stay as they are."),
    "reranker": ("train_retrieval", "Train a reranking model on claims and the documents that bear on them."),
    "stance": ("train_labels", "Train a stance classifier on labelled pairs."),
    "expressions": ("train_expressions", "Learn expressions that are common in passages that ground claims."),
}
"""Every kind with the module of its command and its line in `ccheck train --help`."""


class LazyKinds(click.Group):
    """Knows its commands' names and help lines without importing them."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(KINDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in KINDS:
            return None
        command = getattr(importlib.import_module(f".{KINDS[name][0]}", __package__), name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in KINDS.items()])


@click.group(cls=LazyKinds)
def train() -> None:
    """Train models on labelled data.

    \b
    ccheck train reranker --corpus c.jsonl --claims q.jsonl --qrels r.tsv -o out
    ccheck train embedder --preset climatecheck-hybrid --config mine.toml
    """
