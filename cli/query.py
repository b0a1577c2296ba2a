"""`ccheck query`: a claim, or a file of claims, against the papers of a store."""

from __future__ import annotations

import functools
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from ..core.errors import CcheckError, Incomplete, ServerError, UsageError, batch_error
from ..core.files import check_outputs, no_file, writing
from . import opt
from .common import (
    SHARED,
    argument_text,
    cost_said,
    counted,
    inform,
    notice,
    print_json,
    replacements,
    resolved_from,
    settings_from,
    shared_options,
    stdout,
    usage_said,
    user_name,
)
from .progress import checker, progress_bar

if TYPE_CHECKING:
    from ..core.recipe import Recipe
    from ..core.settings import Resolved
    from ..core.types import Claim, Result, Usage
    from ..pipeline.batch import Answered, ClaimRecord
    from ..pipeline.checker import Checker
    from ..search import Filter
    from ..service import Check, Service
    from ..web.client import Server
    from ..web.report import About


MOST_WARNINGS = 5
"""How many different warnings of a file's claims are said."""


OWN = (
    *("stance", "verdict", "model", "rerank_depth", "replace"),
    *("deep", "dry_run", "report", "run", "resume", "no_record"),
)
"""Options with which claims are checked here, whatever server runs."""
SERVED_K, SERVED_FILTERS = 100, 20
"""Most documents and conditions that a server takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What was asked, and how."""

    claim: str | None = opt.argument("[CLAIM]", required=False)
    claims: str | None = opt.option(
        "Check the claims in a file, or in JSON Lines from standard input (-). Prints one JSON object per claim.",
        "FILE",
        heading=opt.EVERYDAY,
    )
    store: str | None = opt.store
    filters: tuple[str, ...] = opt.option(
        "Search only documents whose metadata match: 'year>=2010', journal=Nature, 'published<2015-06'. Repeatable.",
        "COND",
        names=("--filter",),
    )
    k: int = opt.option("Number of documents to show.", least=1, most=10_000, default=10)
    explain: bool = opt.option("Show how each stage ranked each document.")
    deep: bool = opt.option(
        "For each paper whose full text is in the store, also show the figures and passages that ground its stance."
    )
    verdict: Literal["auto", "llm", "stance", "none"] | None = opt.option(
        "Verdict method: a language model on a server (llm), a stance classifier, or none.  [default: the recipe's, "
        "auto]",
        heading="Verdict",
    )
    llm: str | None = opt.llm
    stance: str | None = opt.stance
    dry_run: bool = opt.option("Print the prompts and estimate their tokens, without sending them.")
    no_record: bool = opt.option("Do not keep this check for ccheck history.  [env: CCHECK_RECORD=false]")
    show_request: bool = opt.option(
        "With --dry-run, print only the searches that Elasticsearch is sent, to paste into Kibana's console."
    )
    as_json: bool = opt.under("Output", opt.as_json)
    format_: Literal["bibtex", "csv", "md"] | None = opt.option(
        "Print the evidence as citations: BibTeX, CSV (one row for each document) or Markdown."
    )
    report: str | None = opt.option("Also write an HTML report to FILE.", "FILE")
    resume: bool = opt.option(
        "With --claims, keep the answers of an earlier run of the same command, and check only the claims that are "
        "missing or failed."
    )
    run: str | None = opt.option("Also write the rankings to FILE as a TREC run.", "FILE")
    recipe: str | None = opt.recipe(
        "Recipe to run. ccheck recipes list has them.  [env: CCHECK_RECIPE; default: default]", heading=opt.ADVANCED
    )
    replace: tuple[str, ...] = opt.replace
    rerank: str | None = opt.rerank
    rerank_depth: int | None = opt.option("Number of documents to rerank.", least=1, most=10_000)
    model: str | None = opt.model


@opt.command
def query(asked: Asked) -> None:
    """Check a claim against the papers of a store.

    \b
    ccheck query "sea level has risen about 20 cm since 1900"
    ccheck query "coffee causes cancer" -k 3 --filter 'year>=2010' --explain
    ccheck query "coffee causes cancer" --report page.html
    ccheck query --claims claims.jsonl > answers.jsonl
    ccheck query --claims claims.jsonl --resume > answers.jsonl

    Shows the documents that bear on CLAIM, best first, each with its most important sentence. If CLAIM is -, it is read
    from standard input. With --claims, a claim that can't be checked gets an object with its error, the other claims
    are still checked, and the exit code is 7. With --resume, the output has all claims, in the order of the file.

    If ccheck serve web runs with the same store, settings and folder, it checks the claims, which takes less time.
    CCHECK_SERVER can have the URL of another server, with the key in CCHECK_SERVER_KEY. No server is asked with options
    that need files, models or a store here, such as --store or --report.
    """
    if (asked.claim is None) == (asked.claims is None):
        raise click.UsageError("give either a claim or a file of claims (--claims)")
    if asked.resume and (asked.claims is None or asked.dry_run):
        raise click.UsageError("--resume needs a file of claims (--claims), and does not work with --dry-run")
    if asked.format_ is not None and asked.as_json:
        raise click.UsageError("--format prints no JSON: leave out --json")
    if asked.show_request and not asked.dry_run:
        raise click.UsageError("--show-request needs --dry-run")
    if (server := _server(asked)) is not None:
        _ask(server, asked)
        return
    from ..core.adjust import Changes, resolved
    from ..core.types import Claim
    from ..pipeline.batch import ClaimRecord
    from ..search import parse_filter
    from ..service import Service

    found = resolved_from(**opt.settings_of(asked))
    shared = ("llm", "stance", "rerank", "rerank_depth", "verdict")
    changes = Changes(**{name: getattr(asked, name) for name in shared}, replace=replacements(asked.replace))
    pipeline = resolved(found.settings, changes)
    filters = [parse_filter(text) for text in asked.filters]
    claims: Iterable[ClaimRecord]
    if asked.claims is not None:
        from ..pipeline.claims import iter_claims  # which takes longer to load than all else here

        claims = iter_claims(asked.claims)
    else:
        claims = [ClaimRecord(Claim(_claim_text(asked)))]
    if asked.claims != "-":  # those of a pipe are answered as they come
        claims = list(claims)
    if not asked.dry_run:
        reads = (asked.claims, found.settings.recipe)
        check_outputs([(asked.run, RUN), (asked.report, REPORT)], reads)
    with checker(found.settings, recipe=pipeline, deep=asked.deep) as checked:
        if asked.dry_run:
            sound = [claim for claim, problem in claims if problem is None]
            if asked.show_request:
                click.echo("\n\n".join(checked.requests(sound, k=asked.k, filters=filters)))
            else:
                _show_prompts(checked, asked, filters, sound)
            return
        keeps = found.settings.record and not asked.no_record
        if asked.resume and not keeps:
            raise UsageError("--resume keeps what is in the record of checks: leave out --no-record (CCHECK_RECORD)")
        with Service(checked, record=keeps, deep=asked.deep) as service:
            _check(service, asked, filters, claims, functools.partial(_about, found, checked))


def _server(asked: Asked) -> Server | None:
    """The running server that is to check the claims: the one that `CCHECK_SERVER` names, or one like this command."""
    url, connect = os.environ.get("CCHECK_SERVER"), None
    here = OWN + tuple(name for name in SHARED if url and name != "recipe")
    if own := [f"--{name.replace('_', '-')}" for name in here if getattr(asked, name)]:
        if url:
            inform(f"CCHECK_SERVER is not asked because of {', '.join(own)}")
        return None
    if not url:
        if asked.k > SERVED_K or len(asked.filters) > SERVED_FILTERS:
            return None
        from ..web.local import connected

        connect = functools.partial(connected, shared_options(asked))
        if (found := connect()) is None:
            return None
        found.close()
    from ..web.client import KEY, Server

    return Server(url or "http://localhost", os.environ.get(KEY) if url else None, connect)


def _ask(server: Server, asked: Asked) -> None:
    """Print the answers that a running server has, or makes. Raises the server's error."""
    from datetime import UTC, datetime

    from ..pipeline.batch import Answered

    how = {"k": asked.k, "filters": list(asked.filters), "recipe": asked.recipe if server.named else None}
    started = datetime.now(UTC).isoformat()

    def answered(check: Check) -> tuple[Check, Answered]:
        return check, Answered(server.result(check), check.result or {}, kept=check.created < started)

    checks = [server.check(_claim_text(asked), how)] if asked.claim is not None else _of_file(server, asked, how)

    def recipe() -> Recipe:
        from ..core.adjust import Changes, resolved  # which takes longer to load than all else here

        return resolved(settings_from(**opt.settings_of(asked)), Changes(llm=asked.llm, rerank=asked.rerank))

    show = _printer(recipe, asked)
    tally = _tell(map(answered, checks), asked, show, lambda *_: None, None)
    if tally.by_stage:
        inform(*usage_said(tally.by_stage, settings_from(**opt.settings_of(asked))))
    tally.finish(single=asked.claims is None)


def _of_file(server: Server, asked: Asked, how: Mapping[str, Any]) -> Iterator[Check]:
    """The checks of a file of claims. Raises NotFound or UsageError if it can't be read."""
    assert asked.claims is not None
    try:
        content = sys.stdin.buffer.read() if asked.claims == "-" else Path(asked.claims).read_bytes()
    except FileNotFoundError:
        raise no_file(asked.claims) from None
    return server.check_file(content, Path(asked.claims).name, how)


def _claim_text(asked: Asked) -> str:
    """The claim of the command line, or of standard input. Raises UsageError."""
    given = sys.stdin.buffer.read().decode("utf-8-sig", "replace") if asked.claim == "-" else asked.claim or ""
    text = argument_text(given).strip()
    if not text:
        raise UsageError('the claim is empty: ccheck query "what somebody said"')
    return text


def _check(
    service: Service,
    asked: Asked,
    filters: Sequence[Filter],
    claims: Iterable[ClaimRecord],
    about: Callable[[], About],
) -> None:
    """Print the answer to each claim, in order. Raises the error of a single claim, or a `Tally`'s."""
    checked = service.checker
    checked.plan()  # what is missing, the claims or the store, says so before an old run is overwritten
    if asked.resume:
        service.found(["0" * 16])  # a record that can't be read has answers that would be paid for again
    show = _printer(lambda: _with_least(checked), asked)
    with outputs(asked.run, asked.report, about) as write:
        answers = service.answers(claims, k=asked.k, filters=filters, fresh=not asked.resume, user=user_name())
        tally = _tell(answers, asked, show, write, len(claims) if isinstance(claims, list) else None)
    if asked.resume:
        inform(f"{counted(tally.kept, 'answer')} kept")
    inform(*usage_said(tally.by_stage, checked.settings))
    tally.finish(single=asked.claims is None)


def _tell(
    answers: Iterable[tuple[Check, Answered]],
    asked: Asked,
    show: Callable[[Check, Answered], None],
    write: Callable[[Check, Result], None],
    total: int | None,
) -> Tally:
    """Print answers as they come, and then what they warned of. Raises the error of a single claim."""
    tally = Tally()
    # A terminal that shows the results needs no other progress.
    with progress_bar("checking", shown=asked.claims is not None and not sys.stdout.isatty(), unit="claims") as update:
        for check, one in answers:
            if asked.claims is None and one.result.error is not None:
                raise one.result.error
            tally.add(one)
            show(check, one)
            write(check, one.result)
            update(tally.done, total)
    if asked.claims is None:
        told = "" if asked.as_json else tally.rationale
        inform(*(warning for warning in tally.warned if warning not in told))
    else:
        inform(*tally.warnings(), *([] if tally.done else [f"{asked.claims} has no claims"]))
    return tally


def _with_least(checked: Checker) -> Recipe:
    """The recipe with the least relevance that the retrievers here have by default."""
    verdict = checked.recipe.verdict
    if verdict.least_relevance is None:
        verdict = verdict.model_copy(update={"least_relevance": checked.plan().least_relevance})
    return checked.recipe.model_copy(update={"verdict": verdict})


def _printer(recipe: Callable[[], Recipe], asked: Asked) -> Callable[[Check, Answered], None]:
    """What prints an answer: as citations, JSON, or for people to read."""
    if asked.format_ is not None:
        from ..service.record import permalink
        from ..web.citing import Citing

        citing, settings = Citing(asked.format_), settings_from(**opt.settings_of(asked))
        return lambda check, one: click.echo(citing.text(one.result, check, permalink(settings, check.id)), nl=False)
    if asked.as_json or asked.claims is not None:
        return lambda _, one: print_json(one.answer)

    def show(check: Check, one: Answered) -> None:
        from .show import show_record, show_result

        show_result(stdout(), one.result, recipe, filters=asked.filters, explain=asked.explain)
        show_record(stdout(), check)

    return show


@dataclass(slots=True)
class Tally:
    """Counts over answers, and what they warned of and used."""

    done: int = 0
    kept: int = 0
    failed: int = 0
    unanswered: int = 0
    """A language model judged none of its documents."""
    why: str = ""
    rationale: str = ""
    errors: list[CcheckError] = field(default_factory=list)
    warned: Counter[str] = field(default_factory=Counter)
    by_stage: Mapping[str, Usage] = field(default_factory=dict)

    def add(self, one: Answered) -> None:
        from ..core.types import add_usage
        from ..pipeline.batch import unjudged

        result, answer, kept, _ = one
        verdict = result.verdict
        self.done += 1
        self.kept += kept
        if result.error is not None:
            self.errors.append(result.error)
        if unjudged(answer):
            self.failed += 1
            if verdict is not None and verdict.label is None and verdict.error and not verdict.judged:
                self.unanswered += verdict.method.startswith("llm")
            self.why = self.why or (verdict.error or "" if verdict is not None else "")
        self.rationale = (verdict.rationale or "") if verdict is not None else ""
        self.warned.update(set(result.warnings))
        if not kept:
            for stage, usage in result.usage_by_stage.items():
                self.by_stage = add_usage(self.by_stage, stage, usage)

    def warnings(self) -> Iterator[str]:
        """The warnings that all claims have, and those that most have."""
        found = self.warned.most_common()
        yield from (text for text, claims in found if claims == self.done)
        found = [(text, claims) for text, claims in found if claims < self.done]
        for text, claims in found[:MOST_WARNINGS]:
            yield f"{counted(claims, 'claim')}: {text}"
        if len(found) > MOST_WARNINGS:
            yield f"{counted(len(found) - MOST_WARNINGS, 'other warning')}: see the claims' objects"

    def finish(self, *, single: bool) -> None:
        """Raises the error that the command ends with, if something failed: ServerError if nothing was judged."""
        if self.errors:
            said = f"{len(self.errors):,} of {counted(self.done, 'claim')} could not be checked"
            raise batch_error(f"{said}. Their objects have the errors", self.errors, self.done)
        if not self.failed:
            return
        if single:
            if self.unanswered:
                raise ServerError(self.why)
            raise Incomplete(
                "some documents could not be judged. The errors are shown with the documents and the verdict"
            )
        first = f". The first: {self.why}" if self.why else ""
        if self.unanswered == self.done:
            raise ServerError(f"no document of {counted(self.done, 'claim')} could be judged{first}")
        said = f"{self.failed:,} of {counted(self.done, 'claim')} could not be judged completely"
        raise Incomplete(f"{said}. Their objects have the errors{first}")


def _about(resolved: Resolved, checked: Checker) -> About:
    """The facts about the run that a report shows."""
    from ..web.report import about_run

    plan = checked.plan()
    models = [
        *dict.fromkeys(f"embeddings: {encoder.spec.model}" for encoder in plan.encoders.values()),
        *(f"reranker: {reranker.name}" for _, reranker in plan.rerankers.values()),
        f"stances: {plan.method.name}" if plan.method is not None else "",
    ]
    return about_run(resolved, checked.recipe, [model for model in models if model])


def _show_prompts(checked: Checker, asked: Asked, filters: Sequence[Filter], claims: list[Claim]) -> None:
    """Print the resolved pipeline and what a language model would be asked, as JSON Lines.

    An estimate goes to standard error.
    """
    from ..core.adjust import printed

    print_json({"pipeline": printed(checked.recipe)})
    calls = tokens = answers = cached = 0
    skipped: list[str] = []
    for prompt in checked.prompts(claims, k=asked.k, filters=filters, skipped=skipped.append):
        cached += prompt.cached
        if not prompt.cached:
            calls, tokens, answers = calls + 1, tokens + prompt.prompt_tokens, answers + prompt.completion_tokens
        print_json(asdict(prompt))
    reasons = Counter(skipped).most_common(5)
    inform(
        *(f"would not ask about {counted(many, 'claim')}: {reason}" for reason, many in reasons),
        f"would ask {counted(calls, 'question')} of about {tokens:,} + {answers:,} tokens"
        f"{cost_said(checked.settings, tokens, answers)}; {counted(cached, 'answer')} already in the cache",
    )


RUN, REPORT = "the run", "the report"
"""The names of the files in messages."""


class _Nothing(Exception):
    """There is no result to write."""


@contextmanager
def outputs(
    run: str | None, report: str | None, about: Callable[[], About]
) -> Iterator[Callable[[Check, Result], None]]:
    """Yields what writes a result to the files that were asked for, a report with the check's corrections.

    Raises UsageError if one can't be written. An interrupt leaves files of what was done until then. If nothing was
    done, what was there before stays, with a notice.
    """
    interrupt: KeyboardInterrupt | None = None
    writers: list[Callable[[Check, Result], None]] = []
    done = 0
    with suppress(_Nothing), ExitStack() as stack:
        if run is not None:
            from ..core.trec import result_lines

            stream = stack.enter_context(writing(run, RUN))
            writers.append(lambda _, result: stream.writelines(result_lines(result)))
        if report is not None:
            from ..web.report import writing_report

            add = stack.enter_context(writing_report(report, about()))
            writers.append(lambda check, result: add(result, check.corrections))

        def write(check: Check, result: Result) -> None:
            nonlocal done
            for writer in writers:
                writer(check, result)
            done += 1

        try:
            yield write
        except KeyboardInterrupt as stop:
            interrupt = stop
        if not done:
            if files := " and ".join(file for file in (run, report) if file is not None):
                notice(f"no claim was checked, so nothing was written to {files}. What was there before is unchanged")
            raise _Nothing
    if interrupt is not None:
        raise interrupt
