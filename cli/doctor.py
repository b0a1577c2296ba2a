"""`ccheck doctor`: what works here."""

from __future__ import annotations

from dataclasses import asdict

import click

from . import opt
from .common import print_hanging, print_json, printable, resolved_from, stdout


@opt.command
def doctor(
    *,
    store: str | None = opt.store,
    model: str | None = opt.model,
    as_json: bool = opt.as_json,
    write_profile: bool = opt.option("Add the fields found in the store to your settings file."),
) -> None:
    """Check the installation and say how to fix what does not work.

    \b
    ccheck doctor
    ccheck doctor --store https://host:9200/papers

    Checks Python, packages and extras, the device, the models, the recipe, the store and Elasticsearch (its version,
    its licence, and whether it has its own RRF), and lists the settings that differ from the defaults. "absent" parts
    are optional and missing. "failed" parts are needed and do not work; the exit code is that of the first one.

    For an index that ccheck did not make, it shows the profile: the fields that are searched and shown. With --model,
    it embeds some stored texts and compares them with the stored vectors.
    """
    from rich.text import Text

    from ..pipeline.doctor import findings

    resolved = resolved_from(show_pending=True, store=store, embedding_model=model)
    failure = 0
    console = stdout()
    colours = {"ok": "green", "absent": "yellow", "failed": "red"}
    for finding in findings(resolved, write_profile=write_profile):
        failure = failure or finding.exit_code
        if as_json:
            print_json(asdict(finding))
            continue
        head = Text.assemble((f"{finding.status:<8}", colours[finding.status]), (f"{finding.part:<15}", "bold"))
        print_hanging(console, head, printable(finding.detail), len(head))
    if failure:
        raise click.exceptions.Exit(failure)
