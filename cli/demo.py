"""`ccheck demo`: the sample corpus, and a claim checked against it."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from . import opt
from .common import argument_text, inform, settings_from, stdout
from .progress import checker, ingest_progress

if TYPE_CHECKING:
    from rich.console import Console

STORE = "local:demo"
SHOWN = 2
"""Which of the sample claims is checked. The first one's "20 cm" is not quite the paper's "a little under 20"."""
ANOTHER = "ivermectin prevents hospital admission"
"""A claim that the sample papers refute."""


@opt.command
def demo(
    claim: str | None = opt.argument("[CLAIM]", required=False),
    *,
    k: int = opt.option("Number of documents to show.", least=1, most=100, default=3),
    store: str = opt.option(f"Store for the corpus: {opt.STORE_FORMS}.", "STORE", default=STORE),
) -> None:
    """Ingest the sample corpus and check a claim against it.

    \b
    ccheck demo
    ccheck demo "ivermectin prevents hospital admission"

    The corpus has 71 summaries of well-known papers on climate, health, nutrition and energy.
    """
    from ..demo import CLAIMS, CORPUS
    from .show import show_result

    claims = [json.loads(line)["text"] for line in CLAIMS.read_text(encoding="utf-8").splitlines()]
    with checker(settings_from(store=store)) as checked:
        with ingest_progress() as on_progress:
            report = checked.ingest(str(CORPUS), on_progress=on_progress)
        result = checked.check(argument_text(claim or claims[SHOWN]), k=k)
        console = stdout()
        show_result(console, result, lambda: checked.recipe)
        inform(*dict.fromkeys((*report.notices, *result.warnings)))
    if claim is None:
        _show_next(console, f'query --store {checked.store.name} "{ANOTHER}"')


def _show_next(console: Console, another: str) -> None:
    steps = {
        another: "check another claim",
        "ingest YOUR_PAPERS.jsonl": "read your own papers",
        'query "YOUR CLAIM"': "check a claim against them",
    }
    name = _called()
    width = max(map(len, steps))
    console.print("\nNext:", style="bold")
    for step, what in steps.items():
        console.print(f"  {name} {step:<{width}}  # {what}", soft_wrap=True)


def _called() -> str:
    """How a shell starts ccheck: by its name, or by its path if it is in no folder of PATH (after `make demo`)."""
    started = Path(sys.argv[0])
    if started.name != "ccheck" or shutil.which("ccheck") is not None:
        return "ccheck"
    near = os.path.relpath(started)
    return str(started) if near.startswith(os.pardir) else near
