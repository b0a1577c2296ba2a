"""Tables of figures on a terminal."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ...core.text import figure as figure
from ...core.text import seconds as seconds
from ..common import NO_WIDTH, printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from ...lab.measure.types import Classified, Comparison, Difference


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


def labels_row(name: str, classified: Classified) -> list[str]:
    """The figures of labels, as `LABEL_COLUMNS` calls them."""
    return [
        name,
        figure(classified.weighted.f1, classified.intervals.get("weighted_f1")),
        f"{classified.weighted.precision:.4f}",
        f"{classified.weighted.recall:.4f}",
        figure(classified.macro.f1, classified.intervals.get("macro_f1")),
        figure(classified.accuracy, classified.intervals.get("accuracy")),
        "–" if classified.calibration_error is None else f"{classified.calibration_error:.4f}",
        f"{classified.count:,}",
        f"{classified.partial:,}",
        f"{classified.failed:,}",
        f"{classified.missing:,}",
    ]


LABEL_COLUMNS = (
    *("weighted F1", "precision", "recall", "macro F1", "accuracy", "calibration error"),
    *("labelled", "partly judged", "failed", "not retrieved"),
)


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
    return f"{value:.4f}" if value >= 0.0001 else "< 0.0001"
