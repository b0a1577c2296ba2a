"""What was measured, as JSON and as tables of figures on a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from ...core.errors import Incomplete, UsageError
from ...core.text import figure as figure
from ...core.text import seconds as seconds
from ..common import NO_WIDTH, print_json, printable, stdout

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from ...core.recipe import Recipe
    from ...core.settings import Settings
    from ...core.types import Usage
    from ...lab.measure.types import Classified, Comparison, Difference
    from ...llm.budget import Price

Rows: TypeAlias = Mapping[str, Mapping[str, Any]]
"""What was measured of each recipe, by its name, as JSON has it."""


def table(*columns: str, title: str | None = None) -> Table:
    """A table whose first column has names and whose others have figures. Its cells are text, never markup."""
    from rich import box
    from rich.table import Table

    class Figures(Table):
        def add_row(self, *cells: Any, **options: Any) -> None:
            super().add_row(*map(printable, cells), **options)

    made = Figures(box=box.SIMPLE_HEAD, title=title and printable(title), title_justify="left", pad_edge=False)
    for number, column in enumerate(columns):
        made.add_column(printable(column), justify="left" if number == 0 else "right", no_wrap=number > 0)
    return made


def print_table(console: Console, made: Table) -> None:
    """Print a table whole: in a terminal that is too narrow its lines go on below, where rich would cut figures off."""
    needed = console.measure(made, options=console.options.update(max_width=NO_WIDTH)).maximum
    console.width = max(console.width, needed)
    console.print(made)


def label_figures(classified: Classified) -> dict[str, str]:
    """The figures of labels, by what their columns are called."""
    error = classified.calibration_error
    return {
        "weighted F1": figure(classified.weighted.f1, classified.intervals.get("weighted_f1")),
        "precision": f"{classified.weighted.precision:.4f}",
        "recall": f"{classified.weighted.recall:.4f}",
        "macro F1": figure(classified.macro.f1, classified.intervals.get("macro_f1")),
        "accuracy": figure(classified.accuracy, classified.intervals.get("accuracy")),
        "calibration error": "–" if error is None else f"{error:.4f}",
        "labelled": f"{classified.count:,}",
        "partly judged": f"{classified.partial:,}",
        "failed": f"{classified.failed:,}",
        "not retrieved": f"{classified.missing:,}",
    }


def confusion(title: str, classified: Classified) -> Table:
    """A row for each true label, a column for each predicted one."""
    made = table("true \\ predicted", *classified.labels, title=title)
    for label, row in zip(classified.labels, classified.confusion, strict=True):
        made.add_row(label, *(f"{count:,}" for count in row))
    return made


def differences(compared: Comparison) -> Table:
    """Each run against the baseline, with p-values."""
    columns = ("metric", "difference", "p", "p (Holm)", "wins", "losses", "ties")
    made = table(f"against {compared.baseline}", *columns)
    for one in compared.differences:
        interval = "" if one.interval is None else f" [{one.interval[0]:+.3f}, {one.interval[1]:+.3f}]"
        made.add_row(
            one.run,
            one.metric,
            f"{one.difference:+.4f}{interval}",
            _p(one.p),
            _p(one.p_holm),
            *(f"{count:,}" for count in (one.wins, one.losses, one.ties)),
        )
    return made


def difference_json(one: Difference) -> dict[str, Any]:
    """A difference as JSON values, without the claims that changed."""
    known = ("run", "metric", "baseline", "value", "changes")
    data = {key: value for key, value in asdict(one).items() if key not in known}
    return data | {"interval": None if one.interval is None else list(one.interval)}


def differences_json(compared: Comparison | None, name: str | None) -> dict[str, Any]:
    """Those of one run or judge from the first, by metric; nothing if nothing was compared."""
    if compared is None:
        return {}
    own = {one.metric: difference_json(one) for one in compared.differences if one.run == name}
    return {"baseline": compared.baseline, "differences": own}


def _p(value: float) -> str:
    return f"{value:.4f}" if value >= 0.0002 else "≤0.0002"  # the least that a test at random can tell


# -- measured recipes


def about(recipe: Recipe, usage: Usage, settings: Settings) -> dict[str, Any]:
    """What stands beside a recipe's figures: what it cost, what its source published, and models that stand in."""
    from ...lab.papers.published import published
    from ...llm.budget import price_of

    return {
        "cost": cost_of(usage, price_of(settings)),
        "published": published(recipe),
        "replaced": dict(recipe.replace),
    }


def cost_of(usage: Usage, price: Price | None) -> float | None:
    """The cost of the calls; None without prices, and for a judge that asks no server: its tokens are free."""
    if price is None or not (usage.llm_calls or usage.cached):
        return None
    return price.of(usage.prompt_tokens, usage.completion_tokens)


def print_rows(
    measured: Iterable[tuple[str, dict[str, Any], Sequence[str]]], as_json: bool, show: Callable[[Rows], None]
) -> None:
    """Print what was measured of each recipe: as JSON one by one, or for people all of it at the end.

    Of each there is a name, the row, and what failed. What is done is shown, also where a later one can't be measured.
    Raises Incomplete if something failed.
    """
    rows: dict[str, dict[str, Any]] = {}
    failed: list[str] = []
    try:
        for name, row, failures in measured:
            rows[name] = row
            failed += [f"{Path(name).name}: {one}" for one in failures]
            if as_json:
                print_json({"recipe": name} | row)
    finally:
        if rows and not as_json:
            show(rows)
    if failed:
        raise Incomplete("; ".join(failed))


def print_figures(rows: Rows, metrics: Sequence[str], count: str = "claims") -> None:
    """The table of measured recipes, with published figures below each; `count` is the key of how many there were."""
    made = table("recipe", *map(_in_words, metrics), count, f"per {count.removesuffix('s')}")
    for name, row in rows.items():
        intervals, timing = row.get("intervals") or {}, row.get("seconds_per_claim")
        timing = {"total": row["seconds"] / row[count]} if "seconds" in row else timing
        cells = [
            "unknown" if (value := row["metrics"].get(metric)) is None else figure(value, intervals.get(metric))
            for metric in metrics
        ]
        star = " *" if row.get("remembered") else ""
        made.add_row(Path(name).name, *cells, f"{row[count]:,}", f"{seconds(timing['total'])}{star}" if timing else "")
        for old, new in row.get("replaced", {}).items():
            made.add_row(f"  {new} stands in for {old}", style="dim")
        known: dict[tuple[str, ...], str] = {}
        for one in row.get("published", ()):
            values = {_canonical(metric): value for metric, value in one["metrics"].items()}
            figures = tuple(f"{values[key]:.4g}" if (key := _canonical(one)) in values else "" for one in metrics)
            if any(figures):  # tables repeat the rows of other tables
                where = f"table {one['table']}, {one['row']} ({one['on']}, {one['split']})"
                known.setdefault(figures, f"  published: {where}")
        for figures, said in known.items():
            made.add_row(said, *figures, style="dim")
    console = stdout()
    print_table(console, made)
    for name, row in rows.items():
        if row.get("cost") is not None:
            console.print(f"{Path(name).name}: {row['cost']:.4f}, at your prices", style="dim")
    if any(row.get("remembered") for row in rows.values()):
        console.print("* partly from the cache, which took no time", style="dim")


def _in_words(name: str) -> str:
    """`weighted F1` of `weighted_f1`."""
    return name.replace("_f1", "_F1").replace("_", " ")


def _canonical(metric: str) -> str:
    """The name by which ir-measures knows a metric; as it is where a source measured something else."""
    from ...lab.measure.metrics import check_metrics

    with suppress(UsageError):
        return check_metrics([metric])[0]
    return metric
