"""`ccheck passages`: the passages of an article that say how a claim was found."""

from __future__ import annotations

import click

from .common import (
    completed,
    counted,
    device_option,
    json_option,
    llm_option,
    model_option,
    notice,
    options,
    print_hanging,
    print_json,
    quiet_option,
    replace_option,
    replacements,
    resolved_from,
    stdout,
    store_option,
)
from .grounding import answer_rows, article_option, check_gold, claims_option, gold_option, read_asked, say_unread
from .progress import notifier

_NOTHING = "no sentence shares a word with the claim"


@click.command()
@click.argument("arguments", nargs=-1, metavar="[ARTICLE|FOLDER|ZIP] [CLAIM]")
@options(
    click.option("-k", type=click.IntRange(1), metavar="N", help="Number of passages to show.  [default: all]"),
    claims_option,
    gold_option,
    article_option,
    click.option(
        "--recipe",
        shell_complete=completed("recipes"),
        metavar="NAME|FILE",
        default="context24-passages",
        show_default=True,
        help="Recipe with a table [passages].",
    ),
    click.option(
        "--expressions",
        metavar="FILE|none",
        help="Expressions that passages must contain; ccheck train expressions makes a file.",
    ),
    replace_option,
    llm_option,
    json_option,
    store_option,
    model_option,
    device_option,
    quiet_option,
)
def passages(
    arguments: tuple[str, ...],
    *,
    k: int | None,
    claims: str | None,
    gold: str | None,
    only: tuple[str, ...],
    recipe: str,
    expressions: str | None,
    replace: tuple[str, ...],
    llm: str | None,
    as_json: bool,
    store: str | None,
    model: str | None,
    device: str | None,
    quiet: bool,
) -> None:
    """Find the passages of an article that say how a claim was found.

    \b
    ccheck passages paper.xml "the slope of the regression line was the worst"
    ccheck passages papers.zip --claims claims.jsonl --json > passages.jsonl

    ARTICLE and --claims are as for ccheck figures.
    """
    from ..pipeline.grounding import open_passages, passages_stage
    from ..pipeline.resources import Resources
    from ..recipe import load_recipe

    check_gold(gold, claims)
    settings = resolved_from(store=store, embedding_model=model, device=device, llm_model=llm).settings
    stage = passages_stage(load_recipe(recipe, replacements(replace)))
    if expressions is not None:
        stage = stage.model_copy(update={"expressions": expressions})
    asked = read_asked(arguments, claims, only, settings, store is not None)
    say_unread(asked, quiet)
    resources = Resources(settings, notify=notifier(quiet))
    several = len(asked.articles) > 1
    try:
        ranker = open_passages(asked.articles, stage, resources)
        if asked.claim is not None:
            found = ranker.find(asked.claim, ranker.articles)[:k]
            if as_json:
                print_json([{**one.to_dict(), **({"article": one.article} if several else {})} for one in found])
            else:
                console = stdout()
                for number, one in enumerate(found, 1):
                    where = " · ".join(filter(None, [one.article if several else "", one.section]))
                    console.print(f"{number:>3}  {one.score:.3f}  {where}", markup=False)
                    print_hanging(console, "     ", one.text, 5)
            if not found and not quiet:
                notice(_NOTHING)
            return
        answers = answer_rows(
            asked,
            "passages",
            lambda claim: [
                {**one.to_dict(), **({"article": one.article} if claim.article is None else {})}
                for one in ranker.find(claim.text, asked.scope(claim))[:k]
            ],
            _NOTHING,
            quiet,
        )
        if gold is not None:
            from ..evaluation.context24 import passage_scores, read_gold

            marked = {one.id: one.passages for one in read_gold(gold) if one.passages and one.id in answers}
            scores = passage_scores({key: [one["text"] for one in found] for key, found in answers.items()}, marked)
            said = ", ".join(f"{name} {value:.3f}" for name, value in scores.items())
            notice(f"{said} over {counted(len(marked), 'claim')}")
    finally:
        resources.close()
