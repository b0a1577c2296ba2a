"""What `ccheck evaluate` and `ccheck sweep` share: data, a store and models for all recipes, progress, figures."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from ..errors import UsageError
from .common import NO_WIDTH, counted, notice, printable, stderr

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from ..evaluation.evaluate import Evaluation
    from ..evaluation.memory import DiskMemory
    from ..evaluation.types import Classified, Gold, Interval, Qrels
    from ..pipeline.resources import Resources
    from ..recipe import Recipe
    from ..search import Store
    from ..settings import Settings
    from ..types import Claim

DEPTH = 100

claims_option = click.option(
    "--claims", required=True, metavar="FILE", help="The claims: BEIR, TREC or a data set's own."
)
qrels_option = click.option(
    "--qrels", required=True, metavar="FILE", help="Which documents are relevant to which claim."
)
depth_option = click.option(
    "--depth",
    type=click.IntRange(1, 10_000),
    metavar="N",
    help=f"How many documents are ranked.  [default: {DEPTH}, or what the metrics need]",
)
limit_option = click.option("--limit", type=click.IntRange(1), metavar="N", help="Only the first N claims.")
sample_option = click.option("--sample", type=click.IntRange(1), metavar="N", help="Only N claims, drawn by --seed.")
seed_option = click.option("--seed", type=int, default=0, show_default=True, help="For what is drawn by chance.")
fresh_option = click.option("--fresh", is_flag=True, help="Compute everything again, whatever earlier runs have left.")


@dataclass(frozen=True, slots=True)
class Given:
    """What is measured on, and what is measured. `gold` is None where no verdicts are."""

    claims: list[Claim]
    qrels: Qrels
    gold: Gold | None
    metrics: tuple[str, ...]
    depth: int


def given(
    claims: str,
    qrels: str,
    *,
    verdicts: str | None = None,
    metrics: Sequence[str] = (),
    depth: int | None = None,
    limit: int | None = None,
    sample: int | None = None,
    seed: int = 0,
) -> Given:
    """Read the files. Raises NotFound, InvalidData, UsageError or MissingExtra."""
    from ..evaluation.datasets import read_claims, read_gold, read_qrels
    from ..evaluation.metrics import DEFAULT_METRICS, check_metrics, only

    wanted = tuple(dict.fromkeys(metrics or DEFAULT_METRICS))
    check_metrics(wanted)
    judged, all_claims = read_qrels(qrels), read_claims(claims)
    chosen = all_claims
    if sample is not None:
        places = sorted(random.Random(seed).sample(range(len(chosen)), min(sample, len(chosen))))  # noqa: S311
        chosen = [chosen[place] for place in places]
    if limit is not None:
        chosen = chosen[:limit]
    if len(chosen) < len(all_claims):
        judged = only(judged, [str(claim.id) for claim in chosen])
    gold = read_gold(verdicts) if verdicts is not None else None
    deepest = max([DEPTH, *(int(cut) for name in wanted for cut in re.findall(r"@(\d+)$", name))])
    return Given(chosen, judged, gold, wanted, depth or deepest)


def load_recipes(names: Sequence[str], replacements: Mapping[str, str]) -> dict[str, Recipe]:
    """Recipes by what they are called in tables: their names or, where two have the same, what was given.

    Each gets the replacements of the models that it names. Raises NotFound, InvalidData, or UsageError where no recipe
    names a model.
    """
    from ..recipe import load_recipe, models_of

    if len(set(names)) < len(names):
        raise UsageError("a recipe is given twice")
    loaded = {name: load_recipe(name) for name in names}
    used: set[str] = set()
    for name, recipe in loaded.items():
        own = {old: new for old, new in replacements.items() if old in models_of(recipe)}
        used |= own.keys()
        if own:
            loaded[name] = load_recipe(name, own)
    for old in replacements:
        if old not in used:
            load_recipe(names[0], {old: replacements[old]})  # which says what it names instead
    called = [recipe.name for recipe in loaded.values()]
    return {recipe.name if called.count(recipe.name) == 1 else name: recipe for name, recipe in loaded.items()}


@dataclass(frozen=True, slots=True)
class Session:
    """A store, models that are loaded once, and what was computed before, for any number of recipes."""

    settings: Settings
    store: Store
    loaded: Resources
    memory: DiskMemory
    quiet: bool

    def check(self, recipe: Recipe, *, judged: bool) -> None:
        """Raise what would keep a recipe from running. `judged`: it must have a judge."""
        from ..pipeline.checker import Checker

        with Checker(self.settings, recipe=recipe, resources=self.loaded, store=self.store) as checker:
            plan = checker.plan()
        if judged and plan.method is None:
            why = plan.no_method or "its verdict method is none"
            raise UsageError(f"nobody judges in the recipe {recipe.name}: {why}")

    def known(self, ids: Sequence[str]) -> Collection[str]:
        """Which of some documents the store has."""
        found: set[str] = set()
        for start in range(0, len(ids), 500):
            found |= self.store.get(ids[start : start + 500]).keys()
        return found

    def evaluate(self, recipe: Recipe, asked: Given, name: str) -> Evaluation:
        """See `evaluate`; progress is shown where there is a terminal."""
        from ..evaluation.evaluate import evaluate
        from ..pipeline.checker import Checker

        before = dict(self.memory.hits)
        with (
            Checker(self.settings, recipe=recipe, resources=self.loaded, store=self.store) as checker,
            _progress(name, self.quiet) as on_progress,
        ):
            made = evaluate(
                checker,
                asked.claims,
                asked.qrels,
                asked.gold,
                asked.metrics,
                depth=asked.depth,
                verdicts=asked.gold is not None,
                on_progress=on_progress,
            )
        hits = {kind: count - before.get(kind, 0) for kind, count in self.memory.hits.items()}
        return replace(made, remembered={kind: count for kind, count in hits.items() if count})


@contextmanager
def session(settings: Settings, *, quiet: bool, fresh: bool) -> Iterator[Session]:
    """Open the store of the settings. Raises UsageError, NotFound or InvalidData."""
    from ..evaluation.memory import open_memory
    from ..pipeline.resources import Resources
    from ..search import open_store

    console = stderr()
    say: Callable[[str], None] = lambda message: None  # noqa: E731
    if console.is_terminal and not quiet:
        say = lambda message: console.print(f"{message} …", style="dim", markup=False)  # noqa: E731
    with open_memory(settings, fresh=fresh) as memory, open_store(settings) as store:
        if memory.notice and not quiet:
            notice(memory.notice)
        loaded = Resources(settings, memory, say)
        try:
            yield Session(settings, store, loaded, memory, quiet)
        finally:
            loaded.close()


@contextmanager
def _progress(name: str, quiet: bool) -> Iterator[Callable[[int, int], None]]:
    from rich.markup import escape
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    console = stderr()
    if quiet or not console.is_terminal:
        yield lambda done, total: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True, redirect_stdout=False) as progress:
        task = progress.add_task(escape(name), total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


# -- figures


def figure(value: float, interval: Interval | None = None) -> str:
    """`0.7131 [0.683, 0.742]`."""
    return f"{value:.4f}" + (f" [{interval[0]:.3f}, {interval[1]:.3f}]" if interval is not None else "")


def seconds(value: float) -> str:
    return f"{value:.3g} s" if value >= 1 else f"{value * 1000:.3g} ms"


def table(*columns: str, title: str | None = None) -> Table:
    """A table whose first column has names and whose others have figures. Its cells are text, never markup."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    class Figures(Table):
        def add_row(self, *cells: Any, **options: Any) -> None:
            super().add_row(*(Text(printable(one)) if isinstance(one, str) else one for one in cells), **options)

    made = Figures(
        box=box.SIMPLE_HEAD, title=Text(printable(title)) if title else None, title_justify="left", pad_edge=False
    )
    for number, column in enumerate(columns):
        made.add_column(Text(printable(column)), justify="left" if number == 0 else "right", no_wrap=number > 0)
    return made


def print_table(console: Console, made: Table) -> None:
    """Print a table whole: in a terminal that is too narrow its lines go on below, where rich would cut figures off."""
    needed = console.measure(made, options=console.options.update(max_width=NO_WIDTH)).maximum
    console.width = max(console.width, needed)
    console.print(made)


def labels_row(name: str, classified: Classified) -> list[str]:
    """The figures of labels, as `LABEL_COLUMNS` calls them."""
    reliability = classified.reliability
    return [
        name,
        figure(classified.weighted.f1, classified.intervals.get("weighted_f1")),
        f"{classified.weighted.precision:.4f}",
        f"{classified.weighted.recall:.4f}",
        figure(classified.macro.f1, classified.intervals.get("macro_f1")),
        figure(classified.accuracy, classified.intervals.get("accuracy")),
        "–" if reliability is None else f"{reliability.error:.4f}",
        f"{classified.count:,}",
        f"{classified.partial:,}",
        f"{classified.failed:,}",
        f"{classified.missing:,}",
    ]


LABEL_COLUMNS = (
    *("weighted F1", "precision", "recall", "macro F1", "accuracy", "calibration error"),
    *("labelled", "of them in part", "failed", "not retrieved"),
)


def confusion(title: str, classified: Classified) -> Table:
    """A row for each true label, a column for each predicted one."""
    made = table("true \\ predicted", *classified.labels, title=title)
    for label, row in zip(classified.labels, classified.confusion, strict=True):
        made.add_row(label, *(f"{count:,}" for count in row))
    return made


def failures(evaluations: Mapping[str, Evaluation]) -> str:
    """What could not be done, in words; empty where everything was."""
    said = []
    for name, one in evaluations.items():
        if one.errors:
            claim, reason = next(iter(one.errors.items()))
            said.append(
                f"{name}: {len(one.errors):,} of {counted(len(one.claims), 'claim')} failed and are in no mean; "
                f"claim {claim}: {reason}"
            )
        if one.unjudged:
            said.append(f"{name}: {one.unjudged:,} stances and verdicts could not be made")
        if one.verdicts is not None and one.verdicts.partial:
            verdicts = counted(one.verdicts.partial, "verdict")
            said.append(f"{name}: some documents of {verdicts} could not be judged")
        said += [f"{name}: {reason}" for reason in one.unmeasured]
    return "; ".join(said)


def warn(name: str, warnings: Sequence[str], seen: set[str]) -> None:
    """Say warnings, each once."""
    for warning in warnings:
        if warning not in seen:
            seen.add(warning)
            notice(f"{name}: {warning}")
