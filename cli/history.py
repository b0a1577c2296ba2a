"""`ccheck history`, `ccheck show` and `ccheck correct`: the record of checks, and what people say about them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

from ..core.errors import Incomplete, UsageError
from ..core.types import Label
from . import opt
from .common import counted, inform, print_hanging, print_json, printable, settings_from, stdout, user_name
from .progress import checker

if TYPE_CHECKING:
    from ..service import Check, Service
    from ..service.types import What

CLAIM_CHARS = 200
"""Characters of a claim in the list."""
_store = opt.option(
    f"Store that the checks were made with: {opt.STORE_FORMS}.  [env: CCHECK_STORE; default: local:papers]", "STORE"
)


@opt.command
def history(
    words: tuple[str, ...] = opt.argument("[WORD]...", required=False),
    *,
    label: Label | None = opt.option("Only checks with this verdict."),  # noqa: B008 - it declares
    before: str | None = opt.option("Only checks made before this time (UTC): 2026-01-31, or with a time.", "TIME"),
    corrected: bool = opt.option("Only checks that somebody corrected."),
    limit: int | None = opt.option("Number of checks to list.  [default: 20]", least=1, most=10_000),
    pairs: bool = opt.option(
        "Print corrections as labelled pairs, for ccheck evaluate --pairs and ccheck train stance."
    ),
    store: str | None = _store,
    as_json: bool = opt.as_json,
) -> None:
    """List the checks that were made.

    \b
    ccheck history
    ccheck history sea level --label REFUTES
    ccheck history --json > answers.jsonl
    ccheck history --pairs > pairs.jsonl

    The newest checks come first. With WORDs, only those whose claims have all of them.
    """
    from ..service import Wanted

    if pairs and (words or label or before or limit):
        raise UsageError("--pairs prints all pairs: WORD, --label, --before and --limit can't be used with it")
    with _service(store) as service:
        if pairs:
            count, notices = 0, list[str]()
            for pair in service.pairs(notices.append):
                print_json(pair)
                count += 1
            inform(counted(count, "pair"), *notices)
            return
        found = service.checks(Wanted(" ".join(words), label, limit or 20, before, corrected=corrected))
        for check in found:
            print_json(_answer(check)) if as_json else _list(check)
        if not found:
            fits = " that fits" if words or label or before or corrected else ""
            inform(f"no check{fits} in {service.record and service.record.name}. --store names another store's record")


def _list(check: Check) -> None:
    """One line: the id, the time, the verdict, the claim."""
    from rich.text import Text

    label = check.label or ("failed" if check.error else "no verdict")
    confidence = check.verdict.get("confidence")
    sure = "" if confidence is None else f" ({confidence:.2f})"
    count = f"  [{counted(len(check.standing), 'correction')}]" if check.standing else ""
    corrected = f"  [corrected: {check.corrected.label or check.corrected.what}]" if check.corrected else count
    head = f"{printable(check.id)}  {printable(check.created[:16])}  "
    line = Text.assemble((f"{label}{sure}", "bold"), f"  {printable(check.claim[:CLAIM_CHARS])}", (corrected, "yellow"))
    print_hanging(stdout(), Text(head, "dim"), line, len(head))


def _answer(check: Check) -> dict[str, Any]:
    """The object of `ccheck query --json`, with what the record knows beside it."""
    about = check.to_dict()
    return {**(about.pop("result") or {}), "check": about}


@opt.command
def show(id_: str = opt.argument("ID"), *, store: str | None = _store, as_json: bool = opt.as_json) -> None:
    """Show a check again, with its corrections.

    \b
    ccheck show 0f3c5a7e9b1d2468

    The output is that of ccheck query. Nothing is searched or judged.
    """
    from ..core.answers import result_of
    from .show import show_record, show_result

    with _service(store) as service:
        check = service.find(id_)
        if as_json:
            print_json(_answer(check))
        elif check.result is not None:
            show_result(stdout(), result := result_of(check.result), lambda: service.checker.recipe)
            show_record(stdout(), check)
            by = f" by {check.user}" if check.user else ""
            inform(f"checked {check.created[:16].replace('T', ' ')} UTC{by}", *result.warnings)
        if check.error is not None:
            raise Incomplete(f"the claim could not be checked: {check.error}")


@opt.command
def correct(
    id_: str = opt.argument("ID"),
    *,
    verdict: Label | None = opt.option("The verdict that is right."),  # noqa: B008 - it declares
    document: str | None = opt.option("Document that was misread, by its id.", "DOC"),
    stance: Literal["SUPPORTS", "REFUTES", "NOT_ENOUGH_INFO"] | None = opt.option("What that document says."),
    not_relevant: bool = opt.option("That document does not bear on the claim."),
    withdraw: bool = opt.option("Withdraw your corrections of the verdict, or of that document."),
    note: str | None = opt.option("Why.", "TEXT"),
    user: str | None = opt.option("Who says so.  [default: your user name]", "NAME"),
    store: str | None = _store,
    as_json: bool = opt.as_json,
) -> None:
    """Say what is wrong with a check.

    \b
    ccheck correct 0f3c5a7e9b1d2468 --verdict REFUTES --note "see Smith 2021"
    ccheck correct 0f3c5a7e9b1d2468 --document madsen-2002 --stance REFUTES
    ccheck correct 0f3c5a7e9b1d2468 --document madsen-2002 --not-relevant
    ccheck correct 0f3c5a7e9b1d2468 --document madsen-2002 --withdraw

    The answer stays as it is. The correction is kept, and shown beside it.
    """
    from ..service import Correction
    from .show import show_record

    if [verdict is not None, stance is not None, not_relevant, withdraw].count(True) != 1:
        raise UsageError(
            "say one thing: --verdict LABEL, --withdraw, or --document DOC with --stance LABEL or --not-relevant"
        )
    if not withdraw and (document is None) != (verdict is not None):
        raise UsageError("--stance and --not-relevant need --document DOC, and --verdict takes none")
    what: What = "not relevant" if not_relevant else "wrong stance" if verdict is None else "wrong verdict"
    what = "withdrawn" if withdraw else what
    with _service(store) as service:
        corrected = service.correct(Correction(id_, what, document, verdict or stance, note, user or user_name()))
        if as_json:
            print_json(_answer(corrected))
        else:
            show_record(stdout(), corrected)


@contextmanager
def _service(store: str | None) -> Iterator[Service]:
    """The service of a store, which need not exist any more: its record outlives it."""
    from ..service.service import Service

    with checker(settings_from(store=store)) as opened, Service(opened, record=True) as service:
        yield service
