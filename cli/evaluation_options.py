"""The options that commands on claims with judgements share."""

from __future__ import annotations

import click

claims_help = "Claims: BEIR's queries, TREC topics, or a data set's own file."
qrels_help = "Relevance judgements: which documents are relevant to which claim."
claims_option = click.option("--claims", required=True, metavar="FILE", help=claims_help)
qrels_option = click.option("--qrels", required=True, metavar="FILE", help=qrels_help)
depth_option = click.option(
    "--depth",
    type=click.IntRange(1, 10_000),
    metavar="N",
    help="Number of documents to rank for each claim.  [default: 100, or as many as the metrics need]",
)
limit_option = click.option("--limit", type=click.IntRange(1), metavar="N", help="Use only the first N claims.")
sample_option = click.option("--sample", type=click.IntRange(1), metavar="N", help="Use only N random claims.")
seed_option = click.option("--seed", type=int, default=0, show_default=True, help="Random seed.")
fresh_option = click.option(
    "--fresh", is_flag=True, help="Compute everything again, and ignore what earlier runs computed."
)
