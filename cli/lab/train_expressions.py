"""`ccheck train expressions`."""

from __future__ import annotations

from ...core.errors import InvalidData
from .. import opt
from ..common import counted, notice


@opt.command
def expressions(
    *,
    passages: str = opt.option(
        "Labelled passages: rows with article and passages, or the task2-train-dev.json of Context24.",
        "FILE",
        required=True,
    ),
    output: str = opt.output("File to write the expressions to.", required=True),
    quiet: bool = opt.quiet,
) -> None:
    """Learn expressions that are common in passages that ground claims.

    \b
    ccheck train expressions --passages marked.jsonl -o expressions.txt
    ccheck passages paper.xml "..." --expressions expressions.txt

    An expression is the longest sequence of words that a passage shares with a passage of another article, if one of
    the words can be a verb, an adjective or a noun. The file has one a line, and you can edit it.
    """
    from ...articles.expressions import learn
    from ...core.files import check_output
    from ...lab.measure.context24 import read_gold

    check_output(output, "-o", (passages,))
    labelled = [(claim.article or claim.id, text) for claim in read_gold(passages) for text in claim.passages]
    found = learn(labelled)
    if not found.expressions:
        raise InvalidData(
            f"{passages} has {counted(len(labelled), 'passage')}, and no two articles share an expression. "
            "Label more passages"
        )
    found.save(output)
    if not quiet:
        notice(f"{counted(len(found.expressions), 'expression')} of {counted(len(labelled), 'passage')} in {output}")
