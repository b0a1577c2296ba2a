"""The spellings of labels in data sets, models and answers, and which of our labels each means."""

from __future__ import annotations

import unicodedata
from typing import get_args

from ..core.errors import InvalidData
from ..core.text import nearest
from ..core.types import Label

LABELS: tuple[Label, ...] = get_args(Label)
"""All labels; a verdict can have each of them."""
STANCES: tuple[Label, ...] = ("SUPPORTS", "REFUTES", "NOT_ENOUGH_INFO")
"""The labels that one document can have for a claim."""

SPELLINGS: dict[Label, tuple[str, ...]] = {
    # FEVER, SciFact, Climate-FEVER, VitaminC, HealthVer, COVID-Fact, ClimateCheck, AVeriTeC, PUBHEALTH, FNC-1, NLI.
    "SUPPORTS": (
        *("SUPPORTS", "support", "supported", "supporting", "supportive", "SUP"),
        *("entailment", "entails", "entailed", "entail"),
        *("agree", "agrees", "confirms", "confirmed", "true", "correct", "verified"),
    ),
    "REFUTES": (
        *("REFUTES", "refute", "refuted", "refuting", "REF"),
        *("contradiction", "contradicts", "contradict", "contradicted", "contradictory"),
        *("disagree", "disagrees", "denies", "false", "incorrect"),
    ),
    "NOT_ENOUGH_INFO": (
        *("NOT_ENOUGH_INFO", "not enough information", "NEI", "not enough evidence", "NEE", "no info"),
        *(
            "not enough info available",
            "insufficient information",
            "insufficient evidence",
            "insufficient",
            "no evidence",
        ),
        *("neutral", "open", "unproven", "unverified", "unverifiable", "unknown", "inconclusive"),
        *("unrelated", "irrelevant", "not relevant", "discuss"),
    ),
    "CONFLICTING": (
        *("CONFLICTING", "conflicting evidence", "conflicting evidence/cherrypicking", "cherrypicking", "conflict"),
        *("DISPUTED", "mixed", "mixed evidence", "mixture", "half true"),
    ),
}
"""Capitals, spaces, hyphens and underscores don't count."""


def _key(text: str) -> str:
    return "".join(c for c in unicodedata.normalize("NFKC", text).casefold() if c.isalnum())


_LABELS: dict[str, Label] = {_key(spelling): label for label, spellings in SPELLINGS.items() for spelling in spellings}


def parse_label(text: str) -> Label:
    """Our label for a spelling of a data set or a model.

    Raises InvalidData for one that is not known, naming those that are: a guess would be a wrong label.
    """
    label = _LABELS.get(_key(text))
    if label is None:
        near = nearest(_key(text), _LABELS)
        known = "; ".join(f"{label} ({', '.join(spellings[1:4])}, ...)" for label, spellings in SPELLINGS.items())
        hint = f" Did you mean {_LABELS[near]}?" if near else ""
        raise InvalidData(f"unknown label {text[:80]!r}.{hint} Known labels: {known}")
    return label


def parse_stance(text: str) -> Label:
    """As `parse_label`, for what one document says: CONFLICTING is not a stance. Raises InvalidData."""
    label = parse_label(text)
    if label not in STANCES:
        raise InvalidData(
            f"the label {text[:80]!r} is for a whole claim. A single document can have {', '.join(STANCES)}"
        )
    return label
