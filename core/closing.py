"""A base class for objects that a `with` statement closes."""

from __future__ import annotations

from typing import Self


class Closing:
    """Gives a class with `close` the methods that `with` calls."""

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()
