"""`ccheck evaluate` against direct calls of the same stages, in claims per second on SciFact's claims.

    python benchmarks/evaluate.py FOLDER --rounds 5

FOLDER contains `corpus.jsonl.gz`, `queries.jsonl` and `qrels.tsv` in BEIR's format. Both sides rank with the default
recipe without its rerankers and judge, over the same local store, with the model loaded. The bare side embeds all
claims in one call, calls the store once, and runs ir-measures. The command also fills an empty memory, keeps and
measures the rankings of each stage, and computes intervals. The sides alternate. The script prints both, and the ratio
by round with its spread.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import click
from common import in_turns, machine, spread

from ccheck.core.analysis import clean
from ccheck.core.recipe import changed, load_recipe
from ccheck.core.runtime import Runtime
from ccheck.core.settings import Settings, resolve
from ccheck.core.types import Query
from ccheck.encode.dense import DEFAULT_MODEL, load_embedder
from ccheck.ingest import IngestOptions
from ccheck.lab.measure.evaluate import EvaluationData, retrieval_only
from ccheck.lab.measure.metrics import only
from ccheck.lab.measure.session import open_session, read_evaluation_data
from ccheck.pipeline.checker import Checker
from ccheck.search import Search, answer, open_store


@click.command()
@click.argument("folder", type=click.Path(exists=True, path_type=Path))
@click.option("--rounds", default=5, show_default=True)
@click.option("--limit", type=int, help="Use only this many claims, from the start.")
@click.option("--store", type=click.Path(path_type=Path), help="Keep the store here and reuse it.")
def main(folder: Path, rounds: int, limit: int | None, store: Path | None) -> None:
    without = {"rerankers.late": False, "rerankers.rerank": False}
    recipe = changed(retrieval_only(load_recipe("default")), without)
    with tempfile.TemporaryDirectory() as scratch:
        place = store or Path(scratch) / "store"
        settings = resolve({"store": str(place)}).settings
        if not place.exists():
            with Checker(settings) as checker:
                checker.ingest(str(folder / "corpus.jsonl.gz"), options=IngestOptions(cache_dir=settings.cache_dir))
        data = read_evaluation_data(str(folder / "queries.jsonl"), str(folder / "qrels.tsv"))
        data = replace(data, claims=data.claims[:limit])
        data = replace(data, qrels=only(data.qrels, [str(claim.id) for claim in data.claims]))
        print(machine(f"{len(data.claims)} claims"))

        def command(number: int) -> Callable[[], float]:
            empty = settings.model_copy(update={"cache_dir": Path(scratch) / str(number)})
            return lambda: _command(empty, recipe, data)

        _bare(settings, recipe, data)  # the first one warms the caches up
        found = []
        for number in range(rounds):
            ours, plain = in_turns([command(number), lambda: _bare(settings, recipe, data)])
            assert abs(ours.answer - plain.answer) < 1e-9, (ours, plain)
            found.append((ours, plain))
        print(f"throughput: {spread([plain.wall / ours.wall for ours, plain in found])}")
        print(f"by CPU time: {spread([plain.cpu / ours.cpu for ours, plain in found])}")
        print(f"nDCG@10 of both: {ours.answer:.4f}")


_RUNTIME = Runtime()


def _command(settings: Settings, recipe: object, data: EvaluationData) -> float:
    """What the command does after its options are read."""
    with open_session(_RUNTIME.using(**dict(settings))) as opened:  # models are loaded once for both sides
        ((_, made),) = opened.evaluate_all({"": recipe}, data)
    return made.measured.mean["nDCG@10"]


def _bare(settings: Settings, recipe: object, data: EvaluationData) -> float:
    import ir_measures

    with open_store(settings) as store:
        embedder = load_embedder(DEFAULT_MODEL, _RUNTIME.using(**dict(settings)))
        texts = [clean(claim.text) for claim in data.claims]
        queries = [Query(text, vector) for text, vector in zip(texts, embedder.encode_queries(texts), strict=True)]
        search = Search(queries, recipe.retrievers, recipe.fusion, data.depth, details=False)
        rankings = answer(store, search)
        run = {
            claim.id: {hit.document.id: -hit.rank for hit in ranking.hits}  # as ranked, where scores are equal
            for claim, ranking in zip(data.claims, rankings, strict=True)
        }
    measures = [ir_measures.parse_measure(name) for name in data.metrics]
    found = ir_measures.calc_aggregate(measures, data.qrels, run)
    return found[ir_measures.parse_measure("nDCG@10")]


if __name__ == "__main__":
    main()
