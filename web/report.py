"""The report: results as one HTML page that needs nothing else.

The page holds its own styles and script, a policy that lets it fetch nothing, and no markup from elsewhere: see
`page.py`.
"""

from __future__ import annotations

import functools
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from ..core.adjust import printed
from ..core.files import writing
from ..core.settings import SECRETS, shown
from ..core.text import shortened
from ..core.words import OPEN, VERDICTS
from .page import environment
from .views import claim_view

if TYPE_CHECKING:
    from ..core.recipe import Recipe
    from ..core.settings import Resolved
    from ..core.types import Result
    from ..service import Correction

RARE = ("ingest", "rewriting")
"""The parts of a recipe that do nothing where it does not name them."""

PRIVATE = {
    *("data_dir", "cache_dir", "cache_bytes", "elasticsearch_username", "elasticsearch_ca_certs"),
    *SECRETS,
}
"""Settings that a report does not show."""

About = Mapping[str, str | Sequence[str]]


@contextmanager
def writing_report(path: str | Path, about: About) -> Iterator[Callable[..., None]]:
    """Yields what takes each result in turn, with its corrections; the page is there when the context ends well, and
    else nothing changes.

    `about` is what the page says at its end of models, recipe and settings, by heading; it is read when the page is
    put together. It must hold no secrets: `about_run` makes one without. Results are put into words as they come and
    kept on disk, so their number is not bounded by memory. Raises UsageError, at once, where the file can't be
    written.
    """
    summary = _Summary()
    with (
        writing(path, "the report") as page,
        tempfile.TemporaryFile("w+", encoding="utf-8", newline="\n", dir=Path(path).parent) as claims,
    ):
        section = environment().get_template("claim.html")
        yield lambda *given: claims.writelines(section.generate(summary.add(*given)))
        claims.seek(0)
        page.writelines(environment().get_template("report.html").generate(_page(summary, about, claims)))


def about_run(resolved: Resolved, recipe: Recipe, models: Sequence[str] = ()) -> dict[str, list[str]]:
    """A report's facts about a run: the models that the caller names, the recipe's stages, the settings that are set.

    A page is made to be sent: it has no secrets, URLs come without their passwords, and what only says where things
    lie on this machine is left out.
    """
    given = printed(recipe)
    stages = [f"{placeless(old)} is replaced by {placeless(new)}" for old, new in given.pop("replace", {}).items()]
    unused = set(RARE) - recipe.model_fields_set
    stages += [f"{name}: {_plain(stage)}" for name, stage in given.items() if stage and name not in unused]
    settings = [
        f"{name} = {placeless(str(shown(getattr(resolved.settings, name))))} (from {Path(origin).name})"
        for name, origin in resolved.settings.origins.items()
        if origin != "default" and name not in PRIVATE
    ]
    about = {
        "Models": [f"{kind}{sign}{placeless(name)}" for kind, sign, name in (one.partition(": ") for one in models)],
        f"Recipe {recipe.name}": stages,
        "Settings": settings or ["all defaults"],
    }
    return {heading: lines for heading, lines in about.items() if lines}


_PLACE = re.compile(r"^((?:[\w-]+:)?)(?!//)(?:/|~/|\.{1,2}/|[A-Za-z]:\\).*[/\\](?=.)", re.DOTALL)


def placeless(name: str) -> str:
    """A model, a store or a file by its last name, if it is a path on this machine; anything else as it is."""
    return _PLACE.sub(r"\1", name.rstrip("/") if "://" not in name else name)


def _plain(value: object) -> str:
    """A part of a recipe in words: `bm25 (kind bm25, depth 100), dense (…)`."""
    if isinstance(value, Mapping):
        given = {key: one for key, one in value.items() if one not in ({}, [])}
        parts = {key: f"({_plain(one)})" if isinstance(one, Mapping) else _plain(one) for key, one in given.items()}
        return ", ".join(f"{key} {part}" for key, part in parts.items())
    return " ".join(placeless(str(one)) for one in value) if isinstance(value, list) else placeless(str(value))


# -- what the templates are given


@dataclass
class _Summary:
    """The page's summary of all claims."""

    claims: list[tuple[str, str, str, str]] = field(default_factory=list)
    """Each claim's text, its outcome, why it is open, and the outcome in words."""
    recipes: dict[str, None] = field(default_factory=dict)
    stores: dict[str, None] = field(default_factory=dict)
    warned: dict[str, int] = field(default_factory=dict)
    """Each warning with the number of the claim that has it in full."""

    def add(self, result: Result, corrections: Sequence[Correction] = ()) -> dict[str, Any]:
        view = claim_view(result, len(self.claims) + 1, self.warned, corrections)
        self.claims.append((shortened(result.claim.text, 160), view["outcome"], view["reason"], view["short"]))
        self.recipes[result.recipe] = self.stores[placeless(result.store)] = None
        return view


def _page(summary: _Summary, about: About, claims: IO[str]) -> dict[str, Any]:
    from markupsafe import Markup

    blocks = iter(functools.partial(claims.read, 1 << 16), "")
    counts = Counter(outcome for _, outcome, _, _ in summary.claims)
    reasons = Counter(reason for _, _, reason, _ in summary.claims)
    return {
        "summary": summary,
        "counts": {outcome: counts[outcome] for outcome in VERDICTS if counts[outcome]},
        "reasons": {reason: reasons[reason] for reason in OPEN if reasons[reason]},
        "about": {heading: [said] if isinstance(said, str) else list(said) for heading, said in about.items()},
        "claims": (Markup(block) for block in blocks),  # noqa: S704 - made by claim.html
        "date": datetime.now(UTC),
    }
