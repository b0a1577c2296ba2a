"""`ccheck report`: a page of saved answers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..core.answers import Saved, saved_answers
from ..core.errors import InvalidData
from ..core.words import STANCES
from ..web.page import inert
from ..web.report import writing_report
from . import opt
from .common import counted, inform

if TYPE_CHECKING:
    from ..service import Correction


@opt.command
def report(
    answers: str = opt.argument("ANSWERS"),
    *,
    output: str | None = opt.output("Page to write.  [default: ANSWERS with the ending .html]"),
) -> None:
    """Make a page of saved answers.

    \b
    ccheck query --claims claims.jsonl > answers.jsonl
    ccheck report answers.jsonl

    ANSWERS is what ccheck query printed with --claims or --json. Nothing is searched or judged again. Saved answers do
    not have the documents' texts, so the page has the evidence sentences alone. To see them in their texts, use ccheck
    query --report.
    """
    path = output or ("answers.html" if answers == "-" else str(Path(answers).with_suffix(".html")))
    source = "standard input" if answers == "-" else inert(Path(answers).name)
    about = {
        "Answers": [
            f"read from {source}",
            "Documents are shown by their evidence sentences. Their texts are not saved.",
        ]
    }
    count = 0
    with writing_report(path, about, reads=[answers]) as add:
        for saved in saved_answers(answers):
            add(saved.result, _corrections(saved))
            count += 1
        if not count:
            raise InvalidData(f"{answers} has no answers")
    inform(f"{counted(count, 'claim')} in {path}")


def _corrections(saved: Saved) -> tuple[Correction, ...]:
    """What people said about an answer of `ccheck history --json`. The file can be anybody's, so it is checked."""
    from pydantic import TypeAdapter, ValidationError

    from ..service import Correction

    check = saved.answer.get("check")
    try:
        said = TypeAdapter(tuple[Correction, ...]).validate_python((check or {}).get("corrections", ()))
    except (AttributeError, ValidationError):
        said = None
    if said is None or any(one.label not in (None, *STANCES) for one in said):
        raise InvalidData(f"{saved.where} has corrections that ccheck did not write")
    return said
