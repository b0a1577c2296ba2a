"""The errors that ccheck raises on purpose.

    CcheckError                 exit code
    ├── UsageError              2  an option or a value is not valid
    ├── MissingExtra            3  an optional part is not installed
    ├── NotFound                4  a file, store, index or model is missing
    ├── InvalidData             5  the data can't be used as they are
    ├── ServerError             6  a server refused, failed or can't be reached; a store that another process writes
    └── Incomplete              7  done in part

Each message says what is wrong and what to do about it, and holds no secret. A `CcheckError` is never a bug of ccheck;
anything else that escapes is one (exit code 1).
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .redaction import redact

if TYPE_CHECKING:
    from pydantic import ValidationError


class CcheckError(Exception):
    """Base of the errors that a caller can act on."""

    exit_code = 1

    def __init__(self, *parts: object) -> None:
        super().__init__(*(redact(part) if isinstance(part, str) else part for part in parts))


class UsageError(CcheckError):
    """An option, a setting or an argument is not valid."""

    exit_code = 2


class MissingExtra(CcheckError):
    """An optional part is not installed; the message holds the exact command that installs it."""

    exit_code = 3

    def __init__(self, purpose: str, extra: str) -> None:
        from .install import install_command

        super().__init__(f"{purpose} needs an optional part that is not installed: {install_command(extra)}")


def require(purpose: str, extra: str, *modules: str) -> None:
    """Raises MissingExtra unless these modules, which the extra brings, are installed. Imports none of them."""
    if not all(importlib.util.find_spec(name) for name in modules):
        raise MissingExtra(purpose, extra)


class NotFound(CcheckError):
    """A file, store, index or model does not exist. `model` is the name of a missing model."""

    exit_code = 4

    def __init__(self, *parts: object, model: str | None = None) -> None:
        super().__init__(*parts)
        self.model = model


class StoreChanged(CcheckError):
    """A store's vectors now come from another model than the one that the queries were made for: plan again."""

    exit_code = 5


class InvalidData(CcheckError):
    """Data that can't be used as they are."""

    exit_code = 5


class ServerError(CcheckError):
    """A server refused a request, failed, or can't be reached; or another process is writing to a local store.

    Nothing was done.
    """

    exit_code = 6


class Incomplete(CcheckError):
    """The work was done in part; what is missing was reported."""

    exit_code = 7


def why_unread(error: Exception) -> str:
    """What a record did to its reader, in the words of a reject: a stranger's record raises whatever it likes."""
    if isinstance(error, CcheckError):
        return str(error)
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, MemoryError):
        return "it needs too much memory"
    return redact(f"{type(error).__name__}: {str(error)[:200]}" if str(error) else type(error).__name__)


def misfits(error: ValidationError, whole: str) -> list[str]:
    """Where a value does not fit its model, and why, as `place: reason`. `whole` is what a message calls the value."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    return [f"{'.'.join(map(str, one['loc'])) or whole}: {one['msg']}" for one in found]


def batch_error(message: str, errors: Sequence[CcheckError], total: int) -> CcheckError:
    """The error of a batch of `total`, some of which failed: Incomplete, unless all of them did.

    If all failed, it is a ServerError if one of them is, since another try may help, else the first one's kind. The
    message ends with that of the first one, for people who read the terminal and not the answers.
    """
    message = f"{message}. The first: {errors[0]}"
    if len(errors) < total:
        return Incomplete(message)
    kind = next((ServerError for one in errors if isinstance(one, ServerError)), type(errors[0]))
    return kind(message) if kind in (UsageError, NotFound, InvalidData, ServerError) else InvalidData(message)
