"""`ccheck kibana`: the record of checks in Kibana."""

from __future__ import annotations

import json
import os

import click

from ..core.keys import checked_key
from . import opt
from .common import confirmed, inform, settings_from
from .index_servers import SERVER_ONLY

KEY = "KIBANA_API_KEY"
"""The environment variable with the key."""


@click.group()
def kibana() -> None:
    """Put a dashboard of the record of checks into Kibana.

    \b
    ccheck kibana install --url https://kb:5601 --store https://es:9200/papers
    """


@opt.command
def install(
    *,
    url: str = opt.option("Kibana's address. Its key is KIBANA_API_KEY.", "URL", required=True),
    space: str | None = opt.option("Kibana space.  [default: the default space]", "NAME"),
    store: str | None = opt.store,
    undo: bool = opt.option("Take out what this command put into Kibana."),
    dry_run: bool = opt.option("Print the requests, and change nothing."),
    yes: bool = opt.yes,
) -> None:
    """Put a data view and a dashboard into Kibana.

    \b
    ccheck kibana install --url https://kb:5601 --store https://es:9200/papers
    ccheck kibana install --url https://kb:5601 --store https://es/papers --undo

    The dashboard needs Kibana 9.5 or later.
    """
    from ..search import open_elastic_store
    from ..service import kibana as installing

    there = installing.Kibana(url, space or "", checked_key(KEY, os.environ.get(KEY)))
    with open_elastic_store(settings_from(store=store), SERVER_ONLY) as opened:
        if undo or not dry_run:
            there.require_space()
        if undo:
            due = [one for one in installing.objects(opened.index) if installing.state(there, one) != "new"]
            doing, do = "Remove", installing.remove
        else:
            installing.require_record(opened.client, opened.index)
            found = installing.objects(opened.index)
            if dry_run:
                requests = (f"{one.method} {one.sent_to}\n{json.dumps(one.body, indent=2)}" for one in found)
                click.echo("\n\n".join(requests))
                return
            due = [one for one in found if installing.state(there, one) != "same"]
            doing, do = "Put", installing.put
    for one in due:
        click.echo(f"{doing.lower():>8}  {one.what} {one.path.rpartition('/')[2]}")
    if not due:
        inform("nothing to do: Kibana has what this command would leave there")
    elif not dry_run and confirmed(f"{doing} {'this' if len(due) == 1 else 'these'}?", yes=yes):
        do(there, due)
        inform("done")


kibana.add_command(install)
