"""`ccheck mine`: hard negatives from a recipe's ranking."""

from __future__ import annotations

from dataclasses import asdict

from ...core.files import check_output
from .. import opt
from ..common import counted, inform, print_answer, replacements, settings_from
from ..progress import runtime


@opt.command
def mine(
    *,
    claims: str = opt.claims,
    qrels: str = opt.qrels,
    store: str | None = opt.store,
    recipe: str | None = opt.recipe("Recipe whose ranking to mine.  [env: CCHECK_RECIPE]"),
    replace: tuple[str, ...] = opt.replace,
    output: str = opt.output("JSON Lines file to write.", required=True),
    rerank: str | None = opt.option(
        "Reranker to apply to the ranking first.  [env: CCHECK_RERANK; default: none]", "MODEL|URL|late|none"
    ),
    depth: int = opt.option("Number of documents of the ranking to consider.", least=1, most=10_000, default=1000),
    keep: int = opt.option("Number of top documents to draw hard negatives from.", least=1, most=10_000, default=500),
    hard: int = opt.option("Number of hard negatives for each relevant document.", least=0, most=1000, default=5),
    random: int = opt.option("Number of random documents for each relevant one.", least=0, most=1000, default=10),
    corpus: str | None = opt.option("Corpus to draw random documents from.  [default: all judged documents]", "FILE"),
    margin: float = opt.option(
        "Skip documents that score above this share of the relevant document's score; 0 skips none.",
        least=0,
        default=0.95,
    ),
    seed: int = opt.seed,
    as_json: bool = opt.as_json,
) -> None:
    """Find hard negatives: documents that rank high but are not relevant.

    \b
    ccheck mine --claims claims.jsonl --qrels qrels.tsv -o negatives.jsonl
    ccheck train reranker --negatives negatives.jsonl ...

    Skips unjudged documents that are probably relevant: those that score nearly as high as a relevant document. Each
    line has claim_id, claim, positive_id, positive and negatives. The margin is meant for cosines and reranker scores;
    with reciprocal ranks it skips whatever ranks above the relevant document.
    """
    from ...lab.train.mining import MiningOptions, mine_from_store

    target = check_output(output, "the mined negatives", (claims, qrels, corpus, recipe))
    settings = settings_from(store=store, recipe=recipe, rerank=rerank)
    chosen = MiningOptions(depth, keep, hard, random, margin or None, seed)
    with runtime(settings) as opened:
        models = replacements(replace)
        mined = mine_from_store(opened, claims, qrels, target, chosen, corpus=corpus, replace=models)
    inform(*mined.messages[:5])
    if len(mined.messages) > 5:
        inform(f"and {len(mined.messages) - 5} more claims without negatives")
    said = {"rows": counted(mined.rows, "row"), "claims": f"{mined.claims:,}", "left out": f"{mined.left_out:,}"}
    print_answer(as_json, {"output": output, **asdict(mined)}, said | {"output": output})
