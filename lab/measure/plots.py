"""Plots of evaluations, as SVG."""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...core.extras import require
from ...core.page import inert
from ...core.text import shortened
from .types import Classified, Measured

if TYPE_CHECKING:
    from ...verdict.calibration import Reliability

WIDTH, HEIGHT = 7.0, 3.8
"""Inches, at 72 points."""
MAX_NAME = 40
_COLOURS = ("#0b4fb3", "#b35a0b", "#0f6130", "#8a1c7c", "#7a4a00", "#a3102a", "#3f4650", "#0a7d8c")


def recall_by_depth(curves: Mapping[str, Mapping[int, float]]) -> str:
    """Recall at several depths, a line for each name."""

    def draw(axes: Any) -> None:
        for number, (name, curve) in enumerate(curves.items()):
            axes.plot(
                list(curve), list(curve.values()), marker="o", markersize=3, label=_name(name), color=_colour(number),
                linestyle=("-", "--", ":", "-.")[number // len(_COLOURS) % 4],
            )  # fmt: skip
        depths = sorted({depth for curve in curves.values() for depth in curve})
        axes.set_xscale("log")
        axes.set_xticks(depths, [f"{depth:,}" for depth in depths])
        axes.minorticks_off()
        axes.set(xlabel="documents", ylabel="recall", ylim=(0, 1.02))
        axes.grid(alpha=0.25)
        axes.legend(loc="lower right", fontsize="small")

    return _drawn(draw)


def stages(measured: Mapping[str, Measured], metric: str) -> str:
    """A bar for each stage, with its 95% interval."""

    def draw(axes: Any) -> None:
        names = list(map(_name, measured))
        means = [one.mean[metric] for one in measured.values()]
        axes.bar(range(len(names)), means, color=[_colour(number) for number in range(len(names))], alpha=0.8)
        for place, (one, mean) in enumerate(zip(measured.values(), means, strict=True)):
            ends = one.intervals.get(metric)
            if ends is not None:
                low, high = max(0.0, mean - ends[0]), max(0.0, ends[1] - mean)
                axes.errorbar([place], [mean], yerr=[[low], [high]], color="#1c1e21", capsize=4)
            axes.annotate(f"{mean:.3f}", (place, 0.01), ha="center", fontsize="small", color="white")
        axes.set(ylabel=metric, ylim=(0, min(1.05, 1.25 * max([0.1, *means]))))
        axes.set_xticks(range(len(names)), names, rotation=0 if len(names) < 6 else 30)

    return _drawn(draw)


def differences(values: Sequence[float], metric: str) -> str:
    """The differences of all claims, from the largest loss to the largest win."""

    def draw(axes: Any) -> None:
        ordered = sorted(values)
        colours = ["#a3102a" if value < 0 else "#0f6130" for value in ordered]
        axes.vlines(range(len(ordered)), 0, ordered, colors=colours, linewidth=max(0.4, min(4, 300 / len(ordered))))
        axes.axhline(0, color="#565c64", linewidth=0.8)
        axes.set(xlabel="claims", ylabel=f"difference in {metric}")

    return _drawn(draw)


def reliability(measured: Reliability) -> str:
    """The share that is right by confidence; the bars are shares of all labels."""

    def draw(axes: Any) -> None:
        axes.plot([0, 1], [0, 1], linestyle="--", color="#565c64", label="perfectly calibrated")
        filled = [place for place in measured.bins if place.count]
        label = f"calibration error {measured.error:.3f}, {measured.pairs:,} pairs"
        confidences, shares = [place.confidence or 0.0 for place in filled], [place.accuracy or 0.0 for place in filled]
        axes.plot(confidences, shares, marker="o", color=_colour(0), label=label)
        middles = [(place.low + place.high) / 2 for place in measured.bins]
        counts = [place.count / measured.pairs for place in measured.bins]
        axes.bar(middles, counts, width=1 / len(measured.bins), alpha=0.2, color=_colour(0))
        axes.set(xlabel="confidence", ylabel="share that is right (bars: share of all)", xlim=(0, 1), ylim=(0, 1.02))
        axes.legend(loc="upper left", fontsize="small")

    return _drawn(draw)


def confusion(classified: Classified) -> str:
    """A row for each true label, a column for each predicted one; the shade is the share of the row."""

    def draw(axes: Any) -> None:
        rows = [[count / max(1, sum(row)) for count in row] for row in classified.confusion]
        axes.pcolormesh(rows, cmap="Blues", vmin=0, vmax=1)  # which is drawn, where imshow would be a picture within
        axes.invert_yaxis()
        names = [label.replace("_", " ").lower() for label in classified.labels]
        middles = [place + 0.5 for place in range(len(names))]
        axes.set_xticks(middles, names)
        axes.set_yticks(middles, names)
        for true, row in enumerate(classified.confusion):
            for predicted, count in enumerate(row):
                colour = "white" if rows[true][predicted] > 0.55 else "black"
                axes.text(predicted + 0.5, true + 0.5, f"{count:,}", ha="center", va="center", color=colour)
        axes.set(xlabel="predicted", ylabel="true")

    return _drawn(draw)


def depths(longest: int) -> list[int]:
    """1, 2, 5, 10, 20 … up to `longest`."""
    steps = [step * 10**power for power in range(math.ceil(math.log10(max(2, longest))) + 1) for step in (1, 2, 5)]
    return [step for step in steps if step <= longest] or [1]


def _colour(number: int) -> str:
    return _COLOURS[number % len(_COLOURS)]


def _name(text: str) -> str:
    """A name from outside, made safe for a plot."""
    return shortened(" ".join(inert(text).split()), MAX_NAME)


def _drawn(draw: Callable[[Any], None]) -> str:
    """The SVG of one pair of axes, the same for the same figures. Raises MissingExtra without matplotlib."""
    require("drawing", "evaluation", "matplotlib")
    import matplotlib
    from matplotlib.figure import Figure

    file = io.BytesIO()
    # Names come from recipes, in which $ does not mean mathematics.
    with matplotlib.rc_context({"svg.hashsalt": "ccheck", "svg.fonttype": "path", "text.parse_math": False}):
        figure = Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
        metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph .* missing from font")  # the table beside it has the whole name
            draw(figure.add_subplot())
            figure.savefig(file, format="svg", metadata=metadata)
    return file.getvalue().decode("utf-8")
