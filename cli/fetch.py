"""`ccheck fetch`: papers on a topic from public services."""

from __future__ import annotations

import re
from pathlib import Path

from ..core.errors import UsageError
from ..ingest.fetch import SERVICES, Service
from . import opt
from .common import counted, inform, notice
from .progress import progress_bar


@opt.command
def fetch(
    service: Service = opt.argument("|".join(SERVICES)),  # noqa: B008 - it declares
    topic: str = opt.argument("TOPIC"),
    *,
    limit: int = opt.option("Most papers to fetch.", least=1, default=1_000),
    output: str | None = opt.output("File to write.  [default: TOPIC.SERVICE.jsonl]"),
    email: str | None = opt.option("Your address. With it, the services answer faster.", "ADDRESS"),
    server: str | None = opt.option("Server to ask instead, with the same API.", "URL"),
) -> None:
    """Fetch papers on a topic from OpenAlex, PubMed or Europe PMC.

    \b
    ccheck fetch openalex "sea level rise" --limit 2000
    ccheck ingest sea-level-rise.openalex.jsonl

    Writes a JSON Lines file that ccheck ingest reads. If it is interrupted, run it again and it continues. Keys in
    OPENALEX_API_KEY and NCBI_API_KEY are used.
    """
    from ..ingest.fetch import Client
    from ..ingest.fetch import fetch as run

    topic = topic.strip()
    if not topic:
        raise UsageError('the topic is empty: ccheck fetch openalex "sea level rise"')
    slug = re.sub(r"[^\w]+", "-", topic.lower()).strip("-")[:60] or "papers"
    file = Path(output or f"{slug}.{service}.jsonl")
    try:
        with Client(service, server, email) as client, progress_bar("fetching", unit="papers") as update:
            state = run(
                client, topic, file, limit, lambda state: update(state.records, min(limit, state.total or limit))
            )
    except KeyboardInterrupt:
        if file.exists():
            notice(f"what was fetched is in {file}. Run the same command again to continue")
        raise
    total = f" of {state.total:,}" if state.total is not None else ""
    inform(f"{counted(state.records, 'paper')}{total} in {file}. Next: ccheck ingest {file}")
