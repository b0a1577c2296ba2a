"""`ccheck query`: a claim, or a file of claims, against the papers of a store."""

from __future__ import annotations

import functools
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..core.adjust import Changes, adjusted
from ..core.errors import CcheckError, Incomplete, UsageError, batch_error
from ..core.files import check_outputs
from . import opt
from .common import (
    argument_text,
    counted,
    notice,
    print_json,
    print_text,
    replacements,
    resolved_from,
    stdout,
    usage_said,
)
from .opt import options
from .option_groups import GroupedCommand, option_group
from .outputs import REPORT, RUN, outputs
from .progress import checker, progress_bar

if TYPE_CHECKING:
    from ..core.answers import Saved
    from ..core.settings import Resolved
    from ..core.types import Usage
    from ..pipeline.batch import Answered, Key
    from ..pipeline.checker import Checker
    from ..pipeline.claims import ClaimRecord
    from ..search import Filter
    from .citing import Citing
    from .report import About


MOST_WARNINGS = 5
"""How many different warnings of a file's claims are said."""


@click.command(cls=GroupedCommand)
@click.argument("claim", required=False)
@options(
    option_group(
        "What to check",
        opt.file(
            "--claims", help="Check the claims in a file, or from standard input (-). Prints one JSON object per claim."
        ),
        opt.file(
            "--resume",
            help="With --claims, keep the answers in FILE from an earlier run of the same command, and check only the "
            "claims that are missing or failed.",
        ),
    ),
    option_group(
        "Where to look",
        opt.store,
        opt.filters("Search only documents whose metadata match: 'year>=2010', journal=Nature. Repeatable."),
        click.option(
            "--before",
            metavar="DATE",
            help="Search only documents published before this day, month or year, such as 2015.  [default: for recipes "
            "that ask questions, the claim's own date, if it has one]",
        ),
        click.option(
            "--after",
            metavar="DATE",
            help="Search only documents published after this day, month or year, such as 2009.",
        ),
        click.option(
            "--all-pages",
            is_flag=True,
            help="With a recipe that asks questions: search all pages, not only those of the claim's own collection.",
        ),
        click.option("--fields", metavar="FIELDS", help="Text fields for BM25 to search, with boosts: title^2,text."),
    ),
    option_group(
        "Recipe and models",
        opt.recipe("Recipe to run. ccheck recipes list has them.  [env: CCHECK_RECIPE; default: default]"),
        opt.replace,
        opt.model,
        click.option("--no-dense", is_flag=True, help="Search with BM25 only, without embeddings."),
        click.option(
            "--rerank",
            metavar="MODEL|URL|late|none",
            help="Reranker to apply to the hits: a model's name or folder, a server's URL, late, auto or none.  "
            "[env: CCHECK_RERANK; default: the recipe's]",
        ),
        opt.number("--rerank-depth", least=1, most=10_000, help="Number of documents to rerank."),
        click.option(
            "--verdict",
            type=click.Choice(["auto", "llm", "stance", "none"]),
            help="Verdict method: a language model (llm), a stance classifier, or none.  [default: the recipe's, auto]",
        ),
        opt.llm,
        opt.strategy,
        opt.file("--examples", help="Examples to show the language model: JSON Lines with claim, evidence and label."),
        opt.stance,
        click.option(
            "--deadline",
            type=click.FloatRange(0, min_open=True),
            metavar="SECONDS",
            help="With a recipe that asks questions: time limit for each claim. ccheck judges what is ready by then, "
            "and names what is not.",
        ),
        opt.max_calls,
        opt.max_cost,
        opt.device,
        opt.remote_code,
        click.option("--strict", is_flag=True, help="Treat a reranker that fails as an error, not as a warning."),
    ),
    option_group(
        "Output",
        opt.number("-k", least=1, most=10_000, default=10, help="Number of documents to show."),
        click.option("--explain", is_flag=True, help="Show how each stage ranked each document."),
        click.option(
            "--deep",
            is_flag=True,
            help="For each paper whose full text is in the store, also show the figures and passages that ground its "
            "stance.",
        ),
        click.option(
            "--dry-run", is_flag=True, help="Print the prompts and estimate their tokens, without sending them."
        ),
        opt.json,
        click.option(
            "--format",
            "format_",
            type=click.Choice(["bibtex", "csv", "md"]),
            help="Print the evidence as citations: BibTeX, CSV (one row for each document) or Markdown.",
        ),
        opt.file("--run", "run_file", help="Also write the rankings to FILE as a TREC run."),
        opt.file("--report", help="Also write an HTML report to FILE."),
        opt.quiet,
    ),
)
def query(
    claim: str | None,
    *,
    k: int,
    claims: str | None,
    filters: tuple[str, ...],
    before: str | None,
    after: str | None,
    recipe: str | None,
    replace: tuple[str, ...],
    fields: str | None,
    no_dense: bool,
    rerank: str | None,
    rerank_depth: int | None,
    verdict: str | None,
    llm: str | None,
    strategy: str | None,
    examples: str | None,
    stance: str | None,
    deadline: float | None,
    all_pages: bool,
    max_calls: int | None,
    max_cost: float | None,
    dry_run: bool,
    trust_remote_code: bool | None,
    strict: bool,
    deep: bool,
    explain: bool,
    resume: str | None,
    run_file: str | None,
    report: str | None,
    as_json: bool,
    format_: str | None,
    store: str | None,
    model: str | None,
    device: str | None,
    quiet: bool,
) -> None:
    """Check a claim against the papers of a store.

    \b
    ccheck query "sea level has risen 20 cm since 1900"
    ccheck query "coffee causes cancer" -k 3 --filter 'year>=2010' --explain
    ccheck query --claims claims.jsonl --run my.run > answers.jsonl
    ccheck query --claims claims.jsonl --resume answers.jsonl > all.jsonl
    ccheck query "coffee causes cancer" --recipe averitec-questions --deadline 90

    Shows the documents that bear on CLAIM, best first, each with its most important sentence. If CLAIM is -, it is read
    from standard input. With --claims, a claim that can't be checked gets an object with its error, the other claims
    are still checked, and the exit code is 7. With --resume, the output has all claims, in the order of the file.
    """
    from ..pipeline.batch import settings_key

    if (claim is None) == (claims is None):
        raise click.UsageError("give either a claim or a file of claims (--claims)")
    if resume is not None and (claims is None or dry_run):
        raise click.UsageError("--resume needs a file of claims (--claims), and does not work with --dry-run")
    flags: dict[str, Any] = {
        "store": store,
        "recipe": recipe,
        "embedding_model": model,
        "device": device,
        "rerank": rerank,
        "llm_model": llm,
        "stance_model": stance,
        "llm_max_calls": max_calls,
        "llm_max_cost": max_cost,
        "trust_remote_code": trust_remote_code,
    }
    resolved = resolved_from(**flags)
    changes = Changes(
        fields, no_dense, rerank_depth, verdict, strategy, examples, replacements(replace), deadline, all_pages
    )
    pipeline = adjusted(resolved.settings, changes)
    asked = _Asked(
        k, _conditions(filters, before, after), run_file, report, quiet, resume, _citing(format_, as_json, resume)
    )
    text = ""
    if claim is not None:
        text = (_standard_input() if claim == "-" else argument_text(claim)).strip()
        if not text:
            raise UsageError('the claim is empty: ccheck query "what somebody said"')
    if not dry_run:
        check_outputs([(run_file, RUN), (report, REPORT)], (claims, examples, resume, resolved.settings.recipe))
    with checker(resolved.settings, quiet=quiet, recipe=pipeline, strict=strict, deep=deep) as checked:
        about = functools.partial(_about, resolved, checked)
        key = settings_key(resolved.settings, checked.recipe, checked.store.name, k, asked.filters, strict)
        key = f"{key}-deep" if deep else key
        if dry_run:
            _show_prompts(checked, asked, claims, text)
        elif claims is not None:
            _check_file(checked, asked, claims, about, key)
        else:
            _check_one(checked, asked, text, as_json, explain, about, key)


@dataclass(frozen=True, slots=True)
class _Asked:
    """The flags that apply to every claim."""

    k: int
    filters: Sequence[Filter]
    run: str | None
    report: str | None
    quiet: bool
    resume: str | None
    citing: Citing | None = None


def _check_one(
    checked: Checker, asked: _Asked, text: str, as_json: bool, explain: bool, about: Callable[[], About], key: str
) -> None:
    from ..core.types import Claim
    from ..pipeline.batch import unjudged

    checked.plan()  # what is missing says so before an old file is overwritten
    with outputs(asked.run, asked.report, about) as write:
        # Not check(), which would not hear of an interrupt that came while the answer was made: it is shown first.
        for result in checked.check_many([Claim(text)], k=asked.k, filters=asked.filters):
            if result.error is not None:
                raise result.error
            if asked.citing is not None:
                print_text(asked.citing.text(result))
            elif as_json:
                print_json(result.to_dict() | {"settings": key})
            else:
                from .show import show_result

                ran = checked.recipe.model_copy(
                    update={
                        "retrievers": checked.plan().retrievers,
                        "rerankers": {name: stage for name, (stage, _) in checked.plan().rerankers.items()},
                    }
                )
                show_result(stdout(), result, ran, filters=asked.filters, explain=explain)
            write(result)
    if not asked.quiet:
        told = (result.verdict.rationale or "") if result.verdict is not None and not as_json else ""
        for warning in result.warnings:
            if warning not in told:
                notice(warning)
        notice(*usage_said(result.usage_by_stage))
    if unjudged(result):
        raise Incomplete("some documents could not be judged. The errors are shown with the documents and the verdict")


def _check_file(checked: Checker, asked: _Asked, file: str, about: Callable[[], About], key: str) -> None:
    """Print an object for each claim of a file, in order. Raises Incomplete if some could not be checked."""
    from ..core.types import add_usage
    from ..pipeline.batch import check_batch, earlier_answers, unjudged
    from ..pipeline.claims import iter_claims

    # What is missing, the claims or the store, says so before an old run is overwritten.
    claims: Iterable[ClaimRecord] = iter_claims(file)
    warnings = checked.plan().warnings
    done = failed = 0
    warned: Counter[str] = Counter()
    why = ""
    errors: list[CcheckError] = []
    by_stage: Mapping[str, Usage] = {}
    earlier: Mapping[Key, Saved] = {}
    if asked.resume is not None:
        claims = list(claims)
        _refuse_own_output(asked.resume)
        earlier = earlier_answers(asked.resume, key, {(claim.id, claim.text) for claim, _ in claims})
    with outputs(asked.run, asked.report, about) as write:
        answers = check_batch(checked, claims, k=asked.k, filters=asked.filters, key=key, earlier=earlier)
        for result, answer, kept in _with_progress(answers, file, asked.quiet):
            done += 1
            errors += [result.error] if result.error is not None else []
            if unjudged(result):
                failed += 1
                why = why or (result.verdict.error or "" if result.verdict is not None else "")
            warned.update(one for one in dict.fromkeys(result.warnings) if one not in warnings and not kept)
            for stage, usage in result.usage_by_stage.items() if not kept else ():
                by_stage = add_usage(by_stage, stage, usage)
            if asked.citing is not None:
                print_text(asked.citing.text(result))
            else:
                print_json(answer)
            write(result)
    if not asked.quiet:
        notice(*warnings)
        for warning, claims_with_it in warned.most_common(MOST_WARNINGS):
            notice(f"{counted(claims_with_it, 'claim')}: {warning}")
        if len(warned) > MOST_WARNINGS:
            notice(f"{counted(len(warned) - MOST_WARNINGS, 'other warning')}: see the claims' objects")
        if not done:
            notice(f"{file} has no claims")
        if asked.resume is not None:
            notice(f"{counted(len(earlier), 'answer')} kept from {asked.resume}")
        notice(*usage_said(by_stage))
    if errors:
        said = f"{len(errors):,} of {counted(done, 'claim')} could not be checked. Their objects have the errors"
        raise batch_error(said, errors, done)
    if failed:
        raise Incomplete(
            f"{failed:,} of {counted(done, 'claim')} could not be judged completely. Their objects have the errors"
            + (f". The first: {why}" if why else "")
        )


def _with_progress(answered: Iterable[Answered], file: str, quiet: bool) -> Iterator[Answered]:
    # A terminal that shows the results needs no other progress.
    with progress_bar("checking", quiet or sys.stdout.isatty(), unit="claims") as update:
        lines = _lines(file)
        for done, one in enumerate(answered, 1):
            yield one
            update(done, lines)


def _refuse_own_output(file: str) -> None:
    try:
        same = os.path.samestat(os.fstat(sys.stdout.fileno()), Path(file).stat())
    except (OSError, ValueError):
        return  # no such file, or standard output is not a file
    if same:
        raise UsageError(f"--resume reads {file}, and the output goes there too. Write it to another file")


def _about(resolved: Resolved, checked: Checker) -> About:
    """The facts about the run that a report shows."""
    from .report import about_run

    plan = checked.plan()
    models = [
        *dict.fromkeys(
            f"embeddings: {model.spec.model}"
            for encoder in plan.encoders.values()
            if (model := encoder.dense or encoder.sparse) is not None
        ),
        *(f"reranker: {reranker.name}" for _, reranker in plan.rerankers.values()),
        f"stances: {plan.method.name}" if plan.method is not None else "",
    ]
    return about_run(resolved, checked.recipe, [model for model in models if model])


def _show_prompts(checked: Checker, asked: _Asked, file: str | None, text: str) -> None:
    """Print what a language model would be asked, as JSON Lines, with an estimate on standard error."""
    from ..core.types import Claim
    from ..pipeline.claims import iter_claims

    claims = [Claim(text)] if file is None else [claim for claim, problem in iter_claims(file) if problem is None]
    calls = tokens = answers = cached = 0
    skipped: list[str] = []
    for prompt in checked.prompts(claims, k=asked.k, filters=asked.filters, skipped=skipped.append):
        cached += prompt.cached
        if not prompt.cached:
            calls, tokens, answers = calls + 1, tokens + prompt.prompt_tokens, answers + prompt.completion_tokens
        print_json(asdict(prompt))
    if not asked.quiet:
        settings = checked.settings
        prices = settings.llm_prompt_price, settings.llm_completion_price
        cost = ""
        if prices[0] is not None and prices[1] is not None:
            cost = f", at your prices about {(tokens * prices[0] + answers * prices[1]) / 1e6:.4f}"
        reasons = Counter(skipped)
        notice(*(f"would not ask about {counted(many, 'claim')}: {reason}" for reason, many in reasons.most_common(5)))
        notice(
            f"would ask {counted(calls, 'question')} of about {tokens:,} + {answers:,} tokens{cost}; "
            f"{counted(cached, 'answer')} already in the cache"
        )


def _citing(format_: str | None, as_json: bool, resume: str | None) -> Citing | None:
    from .citing import Citing

    if format_ is None:
        return None
    if as_json or resume is not None:
        raise click.UsageError("--format prints no JSON: leave out --json and --resume")
    return Citing(format_)


def _standard_input() -> str:
    return sys.stdin.buffer.read().decode("utf-8-sig", "replace")


def _conditions(filters: tuple[str, ...], before_day: str | None, after_day: str | None) -> list[Filter]:
    from ..search import after, before, parse_filter

    days = [before(before_day)] if before_day is not None else []
    days += [after(after_day)] if after_day is not None else []
    return [parse_filter(text) for text in filters] + days


def _lines(file: str) -> int | None:
    """How many lines a file has, if that is cheap to know."""
    if not file.endswith((".jsonl", ".ndjson")) or not Path(file).is_file():
        return None
    with Path(file).open("rb") as stream:
        return sum(block.count(b"\n") for block in iter(lambda: stream.read(1 << 20), b""))
