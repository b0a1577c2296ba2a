"""Draw what growth.py kept: CPU time, memory and disk of each side as the documents grow, on logarithmic axes.

    pip install matplotlib && python benchmarks/growth_plot.py

It writes benchmarks/results/growth.svg.
"""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams |= {"svg.hashsalt": "ccheck", "svg.fonttype": "none"}  # the same figures make the same file
import matplotlib.pyplot as plt  # noqa: E402

FOLDER = Path(__file__).parent / "results"
PANELS = {
    "all": "ingest and publish, s of CPU",
    "claim": "a further claim, s of CPU",
    "own MiB": "memory for claims,\nwithout mapped files, MiB",
    "disk MB": "disk, MB",
}
SIDES = {"ccheck": "ccheck", "bare": "tantivy, numpy and SQLite", "lancedb": "LanceDB"}


def main() -> None:
    kept = json.loads((FOLDER / "growth.json").read_text(encoding="utf-8"))
    counts = sorted({int(key.split()[0]) for key in kept["taken"]["ccheck"]})
    figure, panels = plt.subplots(1, len(PANELS), figsize=(14, 3.4), layout="constrained")
    for panel, (measure, title) in zip(panels, PANELS.items(), strict=True):
        for (side, name), marker in zip(SIDES.items(), "os^", strict=True):
            taken = kept["taken"][side]
            middles = [statistics.median(taken[f"{count} {measure}"]) for count in counts]
            panel.loglog(counts, middles, marker=marker, label=name)
        panel.set(title=title, xlabel="documents")
        panel.grid(alpha=0.3)
    panels[0].legend()
    figure.savefig(FOLDER / "growth.svg", metadata={"Date": None, "Description": f"growth.py {kept['commit']}"})


if __name__ == "__main__":
    main()
