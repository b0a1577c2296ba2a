"""`ccheck config` and `ccheck doctor`: the settings in force, and what works here."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import asdict
from itertools import chain
from typing import TYPE_CHECKING

import click

from ..core.errors import Incomplete, InvalidData, ServerError, UsageError
from ..core.settings import shown
from . import opt
from .common import notice, print_fields, print_hanging, print_json, printable, resolved_from, stdout

if TYPE_CHECKING:
    from ..core.settings import Settings
    from ..pipeline.doctor import Finding


@click.group(invoke_without_command=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON Lines: one object per line.")
@click.pass_context
def config(context: click.Context, *, as_json: bool) -> None:
    """Show the settings and where each one comes from.

    \b
    ccheck config
    CCHECK_STORE=https://host:9200/papers ccheck config
    ccheck config trust

    A setting comes from the first of these that has it: a flag, the environment, this folder's ccheck.toml, your own
    ccheck.toml, the default. The Elasticsearch settings can also be set with the names that Elastic's tools use:
    ELASTICSEARCH_URL, ES_URL and so on. Secrets are read only from the environment and are never printed.

    The ccheck.toml of a folder may come from someone else, so only its harmless settings apply at once. Settings that
    decide where your claims and keys go, which models and prompts are used, and what is spent apply only after you
    have trusted the file with ccheck config trust.
    """
    if context.invoked_subcommand is not None:
        return
    from ..core.settings import Settings, config_files, variables, waiting

    resolved = resolved_from(show_pending=True)
    here = config_files()[1]
    origins = resolved.settings.origins
    values = {name: shown(getattr(resolved.settings, name)) for name in Settings.model_fields}
    if as_json:
        for name, value in values.items():
            print_json({"name": name, "value": value, "from": origins[name], "variables": variables(name)})
        for name, value in resolved.pending.items():
            print_json({"name": name, "value": shown(value), "from": str(here), "pending": True})
        return
    rows = {
        name: f"{'–' if values[name] is None else str(values[name]):<22} {origins[name]:<16} {field.description or ''}"
        for name, field in Settings.model_fields.items()
    }
    console = stdout()
    print_fields(console, rows)
    console.print()
    console.print(
        "To change a setting, set CCHECK_ and its name in capitals in the environment, or its name in "
        f"{' or '.join(str(file) for file in reversed(config_files()))}",
        soft_wrap=True,
    )
    if resolved.pending:
        notice(waiting(here, resolved.pending))


@config.command("trust")
def trust_command() -> None:
    """Trust the ccheck.toml of this folder as it is now.

    \b
    ccheck config trust

    Read the file first. All its settings apply until it changes, or a recipe that it names, or a prompt in its
    prompts_dir. Your keys still go only to servers that you name yourself, and code that comes with weights still does
    not run.
    """
    from ..core.settings import accept

    file, allowed = accept()
    notice(f"{file.resolve()} is trusted as it is now")
    for name, value in allowed.items():
        notice(f"it sets {name} = {shown(value)}")


@config.command("distrust")
def distrust_command() -> None:
    """Stop trusting the ccheck.toml of this folder.

    \b
    ccheck config distrust
    """
    from ..core.settings import accept

    file, _ = accept(withdraw=True)
    notice(f"{file.resolve()} is no longer trusted")


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

    Checks Python, packages and extras, the device, the models, the recipe, the store, the record of its checks and
    Elasticsearch (its version, its licence, and whether it has its own RRF), and lists the settings that differ from
    the defaults. "absent" parts are optional and missing. "failed" parts are needed and do not work; the exit code is
    that of the first one.

    For an index that ccheck did not make, it shows the profile: the fields that are searched and shown. With --model,
    it embeds some stored texts and compares them with the stored vectors.
    """
    from rich.text import Text

    from ..pipeline.doctor import findings

    resolved = resolved_from(show_pending=True, store=store, embedding_model=model)
    failure = 0
    console = stdout()
    colours = {"ok": "green", "absent": "yellow", "failed": "red"}
    for finding in chain(findings(resolved, write_profile=write_profile), _record(resolved.settings)):
        failure = failure or finding.exit_code
        if as_json:
            print_json(asdict(finding))
            continue
        head = Text.assemble((f"{finding.status:<8}", colours[finding.status]), (f"{finding.part:<15}", "bold"))
        print_hanging(console, head, printable(finding.detail), len(head))
    if failure:
        raise click.exceptions.Exit(failure)


def _record(settings: Settings) -> Iterator[Finding]:
    """Whether the record of checks can be read; nothing if the store's own finding says what is wrong."""
    from ..pipeline.doctor import Finding
    from ..search import open_store
    from ..service.service import record_of

    brief = settings.model_copy(update={"elasticsearch_retry_seconds": 0})
    with contextlib.suppress(UsageError, ServerError), open_store(brief) as store:
        if settings.record and (record := record_of(store, settings)) is not None:
            try:
                with contextlib.closing(record):
                    record.refuse_unwritable()
                    record.get(["0" * 16])
                yield Finding("record", "ok", record.name)
            except (InvalidData, Incomplete) as error:
                yield Finding("record", "failed", str(error), error.exit_code)
