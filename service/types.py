"""The values that the service takes and gives: plain, frozen, and JSON by `to_dict`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict, get_args

if TYPE_CHECKING:
    from ..core.recipe import Recipe
    from ..core.types import Filter

Status: TypeAlias = Literal["done", "running", "failed"]
What: TypeAlias = Literal["wrong verdict", "wrong stance", "not relevant", "withdrawn"]
"""What somebody found wrong: the verdict, what one document was said to say, or that the document is there at all.
`withdrawn`: what the same user said before of the verdict, or of the document, counts no more."""
EventKind: TypeAlias = Literal["queries", "hits", "reranked", "sentences", "stance", "verdict", "done", "error"]


class How(TypedDict, total=False):
    """How to check; what is left out has its default.

    `k`: how many documents, by default 10. `filters`: conditions such as "year>=2010". `recipe`: a packaged recipe's
    name or a value, instead of the service's. `fresh`: check again even if the record has the check. `user`: who asks.
    """

    k: int
    filters: Sequence[str | Filter]
    recipe: str | Recipe | None
    fresh: bool
    user: str | None


def refuse_unknown(how: Mapping[str, Any]) -> None:
    """Raises UsageError for a name that `How` does not have, whose wish would not be heard: `filter`, say."""
    from ..core.errors import UsageError
    from ..core.text import did_you_mean

    known = How.__annotations__
    for name in how.keys() - known.keys():
        raise UsageError(f"a check has no option {name!r}: {did_you_mean(name, known, 'it has ' + ', '.join(known))}")


def refuse_unknown_label(label: str | None) -> None:
    """Raises UsageError if there is a label, and it is not one of ccheck's."""
    from ..core.errors import UsageError
    from ..core.types import Label

    if label is not None and label not in get_args(Label):
        raise UsageError(f"{label!r} is no label: use {', '.join(get_args(Label))}")


@dataclass(frozen=True, slots=True)
class Correction:
    """What a person says about a check. It stands beside the model's answer, and never replaces it.

    `doc_id` is the document concerned, None for the verdict. `label` is the right one, None if that was not said.
    `created` is the time in UTC (ISO 8601).
    """

    check: str
    what: What
    doc_id: str | None = None
    label: str | None = None
    note: str | None = None
    user: str | None = None
    created: str = ""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def standing(corrections: Iterable[Correction]) -> list[Correction]:
    """Those that were not withdrawn; each user withdraws only their own."""
    found: list[Correction] = []
    for one in corrections:
        if one.what == "withdrawn":
            found = [each for each in found if (each.doc_id, each.user) != (one.doc_id, one.user)]
        else:
            found.append(one)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A claim that was checked, under an id that it gets again if nothing that decides the answer has changed.

    `result` is the object that `ccheck query --json` prints, None while the check runs. `error` says why the claim
    could not be checked, and `problem` is the name of that error's class in `ccheck.core.errors`. `created` is the time
    in UTC (ISO 8601). `settings` has what the id is made of, but for the claim: `key` (of settings and recipe),
    `recipe`, `k`, `filters`, `models`, `store`, `generation` (of the store) and `version` (of ccheck). `run` is shared
    by the checks of one file. `kept` says whether the record has it.
    """

    id: str
    claim: str
    status: Status
    result: Mapping[str, Any] | None = None
    error: str | None = None
    problem: str | None = None
    created: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    user: str | None = None
    run: str | None = None
    corrections: tuple[Correction, ...] = ()
    kept: bool = False
    text: str | None = field(init=False, compare=False, repr=False)
    """The JSON that the record has of it, which is without corrections."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", None)  # `kept_check` sets it: what is made otherwise differs from the record

    @property
    def standing(self) -> list[Correction]:
        """The corrections that were not withdrawn."""
        return standing(self.corrections)

    @property
    def corrected(self) -> Correction | None:
        """The last correction of the verdict that stands."""
        return next((one for one in self.standing[::-1] if one.doc_id is None), None)

    @property
    def verdict(self) -> Mapping[str, Any]:
        """The verdict in `result`; nothing without one."""
        verdict: Mapping[str, Any] = (self.result or {}).get("verdict") or {}
        return verdict

    @property
    def label(self) -> str | None:
        """The verdict's label; None without a verdict."""
        return self.verdict.get("label")

    @property
    def outcome(self) -> tuple[Status, str | None, str | None]:
        """Status, error and problem, as operators count them: without a verdict because a judge failed, it failed.
        Then, and if only some documents were judged, the problem is `Incomplete`."""
        from ..pipeline.batch import unjudged

        why = unjudged(self.result or {}) if self.status == "done" else None
        if why is None:
            return self.status, self.error, self.problem
        return "failed" if self.label is None else "done", why, "Incomplete"

    @property
    def tokens(self) -> int:
        """How many tokens of language models it took."""
        usage = (self.result or {}).get("usage") or {}
        return int(usage.get("prompt_tokens") or 0) + int(usage.get("completion_tokens") or 0)

    def to_dict(self) -> dict[str, Any]:
        """JSON values; `check_from` reads them."""
        data = {name: getattr(self, name) for name in self.__slots__ if name != "text"}
        return data | {"corrections": [one.to_dict() for one in self.corrections]}


def check_from(data: Mapping[str, Any]) -> Check:
    """The check whose `to_dict` this is. Raises TypeError, KeyError or ValueError for anything else."""
    return Check(**{**data, "corrections": tuple(Correction(**one) for one in data["corrections"])})


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which checks to list, the newest first.

    Those whose claim has all words of `search`, in any order and case, with this `label`, made before the time `before`
    (ISO 8601), or then and with an id greater than `after`. `corrected`: only those with corrections, and of these
    `ids`.
    """

    search: str | None = None
    label: str | None = None
    limit: int = 20
    before: str | None = None
    after: str = "~"
    corrected: bool = False
    ids: Sequence[str] | None = None

    def __post_init__(self) -> None:
        """Raises UsageError if `label` is none, or `before` not a time: that would find all checks, or none."""
        from datetime import UTC, datetime

        refuse_unknown_label(self.label)
        try:
            if self.before:
                time = datetime.fromisoformat(self.before)
                time = time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
                # The times of checks are compared as texts.
                object.__setattr__(self, "before", time.isoformat(timespec="microseconds"))
        except (ValueError, OverflowError):
            from ..core.errors import UsageError

            raise UsageError(f"{self.before!r} is not a time: write 2026-01-31 or 2026-01-31T12:00") from None


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened on the way of a check. `data` has JSON values, and the check's id as `check`.

    In order, each but the last two as often as it happens: `queries` (the texts searched with), `hits` and `reranked`
    (documents, best first), `sentences` (of a document), `stance` (of a document), `verdict`, and at the end `done`
    (the check) or `error`.
    """

    kind: EventKind
    data: Mapping[str, Any]


OnEvent: TypeAlias = Callable[[Event], None]


@dataclass(frozen=True, slots=True)
class Description:
    """What a service searches, and with what. `missing` says why it can't check now; None if it can. `recipes`: the
    packaged ones for which the store has what they search."""

    store: str
    documents: int
    fields: Mapping[str, str]
    models: Sequence[str]
    recipe: str
    record: str | None
    missing: str | None = None
    recipes: Sequence[str] = ()

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"ready": self.missing is None}
