"""Plots of evaluations, as SVG."""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ...core.errors import require
from ...core.page import inert
from ...core.text import shortened

if TYPE_CHECKING:
    from .reliability import Reliability

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
