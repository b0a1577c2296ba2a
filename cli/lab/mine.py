"""`ccheck mine`: hard negatives from a recipe's ranking."""

from __future__ import annotations

from dataclasses import asdict

import click

from ...core.files import check_output
from .. import opt
from ..common import counted, notice, print_fields, print_json, replacements, settings_from, stdout
from ..opt import options
from ..progress import runtime


@click.command()
@options(
    opt.claims,
    opt.qrels,
    opt.store,
    opt.recipe("Recipe whose ranking to mine.  [env: CCHECK_RECIPE]"),
    opt.replace,
    opt.file("--output", "-o", required=True, help="JSON Lines file to write."),
    click.option(
        "--rerank",
        metavar="MODEL|URL|late|none",
        help="Reranker to apply to the ranking first.  [env: CCHECK_RERANK; default: none]",
    ),
    opt.number("--depth", least=1, most=10_000, default=1000, help="Number of documents of the ranking to consider."),
    opt.number(
        "--keep", least=1, most=10_000, default=500, help="Number of top documents to draw hard negatives from."
    ),
    opt.number("--hard", least=0, most=1000, default=5, help="Number of hard negatives for each relevant document."),
    opt.number(
        "--random", "others", least=0, most=1000, default=10, help="Number of random documents for each relevant one."
    ),
    opt.file("--corpus", help="Corpus to draw random documents from.  [default: all judged documents]"),
    opt.decimal(
        "--margin",
        least=0,
        default=0.95,
        help="Skip documents that score above this share of the relevant document's score; 0 skips none.",
    ),
    opt.decimal(
        "--duplicates",
        least=0,
        most=1,
        default=0.5,
        help="Skip texts that have more than this share of their 5-word sequences in common with a relevant one.",
    ),
    opt.seed,
    click.option("--resume", is_flag=True, help="Continue a run that was interrupted."),
    opt.remote_code,
    opt.json,
    opt.device,
    opt.quiet,
)
def mine(
    claims: str,
    qrels: str,
    *,
    store: str | None,
    recipe: str | None,
    replace: tuple[str, ...],
    output: str,
    rerank: str | None,
    depth: int,
    keep: int,
    hard: int,
    others: int,
    corpus: str | None,
    margin: float,
    duplicates: float,
    seed: int,
    resume: bool,
    trust_remote_code: bool | None,
    as_json: bool,
    device: str | None,
    quiet: bool,
) -> None:
    """Find hard negatives: documents that rank high but are not relevant.

    \b
    ccheck mine --claims claims.jsonl --qrels qrels.tsv -o negatives.jsonl
    ccheck train reranker --negatives negatives.jsonl ...

    Skips unjudged documents that are probably relevant: those that score nearly as high as a relevant document, and its
    near duplicates. Each line has claim_id, claim, positive_id, positive and negatives. The margin is meant for
    cosines and reranker scores; with reciprocal ranks it skips whatever ranks above the relevant document.
    """
    from ...lab.train.from_store import mine_from_store
    from ...lab.train.mining import MiningOptions

    target = check_output(output, "the mined negatives", (claims, qrels, corpus, recipe))
    settings = settings_from(
        store=store, recipe=recipe, device=device, rerank=rerank, trust_remote_code=trust_remote_code
    )
    chosen = MiningOptions(depth, keep, hard, others, margin or None, duplicates, seed)
    with runtime(settings, quiet) as opened:
        mined = mine_from_store(
            opened,
            claims,
            qrels,
            target,
            chosen,
            corpus=corpus,
            replace=replacements(replace),
            resume=resume,
        )
    if not quiet:
        notice(*mined.messages[:5])
        if len(mined.messages) > 5:
            notice(f"and {len(mined.messages) - 5} more claims without negatives")
    if as_json:
        print_json({"output": output, **asdict(mined)})
        return
    facts = {"rows": counted(mined.rows, "row"), "claims": f"{mined.claims:,}"}
    left_out = {f"left out, {why}": f"{count:,}" for why, count in mined.left_out.items()}
    print_fields(stdout(), {**facts, **left_out, "output": output})
