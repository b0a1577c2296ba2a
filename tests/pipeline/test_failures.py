"""What becomes of claims when a store fails on the way."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ccheck
from ccheck.core.errors import CcheckError, ServerError
from ccheck.core.types import Claim
from ccheck.pipeline.checker import Checker

TEXTS = ("sea", "ice", "", "sea level", "climate", "vaccines")
CLAIMS = [Claim(text, str(number)) for number, text in enumerate(TEXTS)]


@pytest.fixture
def words(papers: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Checker]:
    """Claims are searched two at a time, by words."""
    monkeypatch.setattr("ccheck.pipeline.checker.BATCH", 2)
    with ccheck.open(str(papers), recipe="bm25") as checker:
        yield checker


def failing(checker: Checker, monkeypatch: pytest.MonkeyPatch, batches: set[int], error: CcheckError) -> None:
    search, calls = checker.store.rank, iter(range(100))

    def searched(*arguments: Any, **options: Any) -> Any:
        if next(calls) in batches:
            raise error
        return search(*arguments, **options)

    monkeypatch.setattr(checker.store, "rank", searched)


def test_claims_that_are_wrong_in_themselves_are_no_answer(words: Checker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch of empty claims asks the store nothing, so that the first that does tells whether it works."""
    failing(words, monkeypatch, {0}, ServerError("a wrong key"))
    with pytest.raises(ServerError, match="a wrong key"):
        list(words.check_many([Claim("", "1"), Claim(" ", "2"), *CLAIMS]))


def test_what_is_measured_stops_at_a_failure(words: Checker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures over a part of the claims would mislead; an evaluation goes on from its memory."""
    monkeypatch.setattr("ccheck.pipeline.checker.MEASURED_BATCH", 2)
    rankings, calls = words.store.rank, iter(range(100))

    def ranked(*arguments: Any, **options: Any) -> Any:
        if next(calls) == 1:
            raise ServerError("it is gone")
        return rankings(*arguments, **options)

    monkeypatch.setattr(words.store, "rank", ranked)
    with pytest.raises(ServerError, match="it is gone"):
        list(words.check_many(CLAIMS, trace=True))
