"""A base class for objects that a `with` statement closes."""

from __future__ import annotations

from types import TracebackType
from typing import Self


class Closing:
    """Gives a class with `close` the methods that `with` calls."""

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
