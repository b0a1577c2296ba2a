"""`ccheck query`: a claim, or a file of claims, against the papers of a store."""

from __future__ import annotations

import json
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from ..errors import Incomplete, InvalidData, UsageError
from .common import (
    checker,
    device_option,
    json_option,
    model_option,
    notice,
    options,
    quiet_option,
    settings_from,
    stderr,
    stdout,
    store_option,
)

if TYPE_CHECKING:
    from ..recipe import Recipe
    from ..search import Filter
    from ..types import Claim, Result


@click.command()
@click.argument("claim", required=False)
@options(
    click.option(
        "-k", default=10, show_default=True, type=click.IntRange(1, 10_000), help="How many documents to show."
    ),
    click.option(
        "--claims",
        metavar="FILE",
        help="Check many claims: JSON Lines with _id and text, or - for standard input; answers in JSON Lines.",
    ),
    click.option(
        "--filter", "filters", multiple=True, metavar="COND", help="Only documents with FIELD=VALUE, year>=2010, …"
    ),
    click.option("--before", metavar="DAY", help="Only documents surely published before this day (2015-01-31)."),
    click.option("--recipe", metavar="NAME|FILE", help="The pipeline; see ccheck recipes list.  [env: CCHECK_RECIPE]"),
    click.option("--fields", metavar="FIELD^BOOST,…", help="The text fields that BM25 searches, such as title^2,text."),
    click.option("--no-dense", is_flag=True, help="Without embeddings: BM25 only."),
    click.option("--verdict", type=click.Choice(["auto", "none"]), help="Who judges; none leaves the verdict out."),
    click.option("--explain", is_flag=True, help="Show each document's way through the ranking."),
    click.option("--run", "run_file", metavar="FILE", help="Also write the rankings as a TREC run."),
    json_option,
    store_option,
    model_option,
    device_option,
    quiet_option,
)
def query(
    claim: str | None,
    *,
    k: int,
    claims: str | None,
    filters: tuple[str, ...],
    before: str | None,
    recipe: str | None,
    fields: str | None,
    no_dense: bool,
    verdict: str | None,
    explain: bool,
    run_file: str | None,
    as_json: bool,
    store: str | None,
    model: str | None,
    device: str | None,
    quiet: bool,
) -> None:
    """Find the papers that bear on CLAIM and show the sentences that matter.

    \b
    ccheck query "sea level has risen 20 cm since 1900"
    ccheck query "vaccines cause autism" -k 3 --filter 'year>=2010' --explain
    ccheck query --claims claims.jsonl --run my.run > answers.jsonl

    CLAIM is read from standard input where it is -.
    """
    if (claim is None) == (claims is None):
        raise click.UsageError("give one claim, or a file of them by --claims")
    settings = settings_from(store=store, recipe=recipe, embedding_model=model, device=device)
    pipeline = _adjusted(settings.recipe, fields, no_dense, verdict)
    conditions = _conditions(filters, before)
    with ExitStack() as stack:
        run = stack.enter_context(_writing(run_file)) if run_file else None
        checked = stack.enter_context(checker(settings, quiet=quiet, recipe=pipeline))
        if claims is not None:
            failed = 0
            for result in _many(checked.check_many, claims, k, conditions, quiet):
                failed += result.error is not None
                print_json(result.to_dict())
                _write_run(run, result)
            for warning in () if quiet else checked.plan().warnings:
                notice(warning)
            if failed:
                raise Incomplete(f"{failed} of the claims could not be checked: see the objects with an error")
            return
        from ..types import Claim

        text = sys.stdin.read() if claim == "-" else str(claim)
        if not text.strip():
            raise UsageError('the claim is empty: ccheck query "what somebody said"')
        result = checked.check(Claim(text.strip()), k=k, filters=conditions)
        _write_run(run, result)
        if as_json:
            print_json(result.to_dict())
        else:
            from .show import show_result

            show_result(stdout(), result, pipeline, explain=explain)
        for warning in () if quiet else result.warnings:
            notice(warning)


def print_json(data: Any) -> None:
    sys.stdout.write(json.dumps(data, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def _adjusted(name: str, fields: str | None, no_dense: bool, verdict: str | None) -> Recipe:
    """The recipe with what the flags change."""
    from ..recipe import Bm25, Dense, VerdictStage, load_recipe

    recipe = load_recipe(name)
    stages = dict(recipe.retrievers)
    if no_dense:
        stages = {key: stage for key, stage in stages.items() if not isinstance(stage, Dense)}
        if not stages:
            raise UsageError(f"the recipe {recipe.name} has nothing but dense retrieval: leave out --no-dense")
    if fields is not None:
        wanted = _fields(fields)
        stages = {
            key: stage.model_copy(update={"fields": wanted}) if isinstance(stage, Bm25) else stage
            for key, stage in stages.items()
        }
    update: dict[str, Any] = {"retrievers": stages}
    if verdict is not None:
        update["verdict"] = VerdictStage.model_validate({"method": verdict})
    return recipe.model_copy(update=update)


def _fields(text: str) -> dict[str, float]:
    fields = {}
    for part in text.split(","):
        name, caret, boost = part.strip().partition("^")
        try:
            fields[name] = float(boost) if caret else 1.0
        except ValueError as error:
            raise UsageError(f"the boost of {part.strip()!r} is not a number: write title^2,text") from error
        if not name or not fields[name] > 0:
            raise UsageError(f"{part.strip()!r} in --fields is not FIELD or FIELD^BOOST with a boost above 0")
    return fields


def _conditions(filters: tuple[str, ...], before_day: str | None) -> list[Filter]:
    from ..search import before, parse_filter

    return [parse_filter(text) for text in filters] + ([before(before_day)] if before_day else [])


def _many(check_many: Any, file: str, k: int, conditions: list[Filter], quiet: bool) -> Iterator[Result]:
    """Results for the claims of a file, in order; a line that is no claim is a result with its error."""
    from dataclasses import replace

    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    problems: deque[str | None] = deque()

    def claims() -> Iterator[Claim]:
        for claim, problem in read_claims(file):
            problems.append(problem)
            yield claim

    console = stderr()
    progress = Progress(
        TextColumn("claims"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=console, transient=True
    )
    with progress if console.is_terminal and not quiet else nullcontext():
        total = Path(file).read_bytes().count(b"\n") if file.endswith(".jsonl") and Path(file).is_file() else None
        task = progress.add_task("claims", total=total)
        for result in check_many(claims(), k=k, filters=conditions):
            problem = problems.popleft()
            yield result if problem is None else replace(result, error=InvalidData(problem))
            progress.advance(task)


def read_claims(file: str) -> Iterable[tuple[Claim, str | None]]:
    """Claims of a JSON Lines file (BEIR's queries) or of standard input, each with what is wrong with it, if anything.

    A claim without an id gets its line's number. Raises NotFound for a file that is not there.
    """
    from ..ingest import Reject, read
    from ..types import Claim

    for record in read([file]):
        if isinstance(record, Reject):
            yield Claim("", str(record.line)), f"line {record.line}: {record.reason}"
            continue
        id_, text = record.data.get("_id", record.data.get("id", record.line)), record.data.get("text")
        if isinstance(text, str):
            yield Claim(text, str(id_)), None
        else:
            keys = ", ".join(record.data)
            yield Claim("", str(id_)), f"line {record.line}: there is no text; its fields are {keys or 'none'}"


def _writing(file: str) -> IO[str]:
    try:
        return Path(file).open("w", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"the run {file} can't be written: {error.strerror}") from error


def _write_run(run: IO[str] | None, result: Result) -> None:
    """A TREC run: claim, Q0, document, rank, score, tag; scores strictly decrease, so that no tool reorders ties."""
    if run is None:
        return
    from urllib.parse import quote

    from ..types import strictly_decreasing

    scores = strictly_decreasing([evidence.hit.score for evidence in result.evidence])
    claim = quote(result.claim.id or "1", safe="".join(map(chr, range(33, 127))).replace("%", ""))
    for evidence, score in zip(result.evidence, scores, strict=True):
        document = quote(evidence.document.id, safe="".join(map(chr, range(33, 127))).replace("%", ""))
        run.write(f"{claim} Q0 {document} {evidence.hit.rank} {score!r} {result.recipe}\n")
