"""Pairs with stances that a tiny model can learn, and settings to learn them quickly."""

from pathlib import Path

from ccheck.lab.measure.pairs import StanceRow
from ccheck.lab.train.options import StanceOptions

THINGS = "the sea|the ice|carbon|coral|the forest|the wind|rain|the soil|the glacier|snow|the river|the crop".split("|")
LABELS = ("SUPPORTS", "REFUTES", "NOT_ENOUGH_INFO")


def rows_of(count: int = 96) -> list[StanceRow]:
    """Claims that something rises, with documents that say so, that deny it, or that are about another thing."""
    made = []
    for n in range(count):
        thing, other = THINGS[n // 3 % 12], THINGS[(n // 3 + 5) % 12]  # each thing has each label
        said = {
            "SUPPORTS": f"We found that {thing} rises in year {n}.",
            "REFUTES": f"We found that {thing} never rises in year {n}.",
            "NOT_ENOUGH_INFO": f"Little is known of {other} in year {n}.",
        }
        label = LABELS[n % 3]
        made.append(StanceRow(f"{thing} rises, case {n}", said[label], label, f"c{n}", f"d{n}", "Title"))
    return made


def options_for(base: Path, **changes) -> StanceOptions:
    settings = {"base": str(base), "epochs": 4, "batch": 16, "learning_rate": 3e-3, "max_tokens": 64}
    return StanceOptions(**{**settings, "precision": "float32", **changes})
