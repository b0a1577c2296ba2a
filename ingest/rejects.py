"""The file that lists what could not be ingested."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TextIO

from ..errors import UsageError
from .readers import Reject
from .sources import REJECTS_SUFFIX, Source, stem


class RejectFile:
    """Rejects as JSON Lines: `{"file", "line", "reason", "record"}`. The file is made with the first of them."""

    def __init__(self, sources: Sequence[Source], path: Path | None = None) -> None:
        """`path`, or by default NAME.rejects.jsonl next to the only file that is read, else ccheck.rejects.jsonl here.

        Raises UsageError where it is one of the files that are read.
        """
        only = sources[0].path if len(sources) == 1 else None
        self.path = path or (
            only.with_name(stem(only) + REJECTS_SUFFIX) if only and only.is_file() else Path(f"ccheck{REJECTS_SUFFIX}")
        )
        if any(source.path and source.path.resolve() == self.path.resolve() for source in sources):
            raise UsageError(f"rejects can't be written to {self.path}: it is read from; name another file")
        self.notices: list[str] = []
        self._fixed = path is not None
        self._stream: TextIO | None = None
        self._writable = True

    @property
    def written(self) -> bool:
        return self._stream is not None

    def write(self, reject: Reject) -> None:
        """Add a reject. A file that can't be written is a notice: the good records must not wait for it."""
        if self._stream is None and self._writable:
            self._stream = self._open()
        if self._stream is None:
            return
        held = {"file": reject.file, "line": reject.line, "reason": reject.reason, "record": reject.record}
        try:
            # Not ASCII escapes, so that the record reads as it was; lone surrogates can't be written otherwise.
            line = json.dumps(held, ensure_ascii=False)
            self._stream.write(line.encode("utf-8", "backslashreplace").decode() + "\n")
            self._stream.flush()
        except OSError as error:
            self._give_up(error)

    def close(self) -> None:
        if self._stream is not None:
            with contextlib.suppress(OSError):
                self._stream.close()

    def __enter__(self) -> RejectFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _open(self) -> TextIO | None:
        try:
            return self.path.open("w", encoding="utf-8")
        except OSError as error:
            here = Path(self.path.name)
            if self._fixed or here.resolve() == self.path.resolve():
                self._give_up(error)
                return None
            self.notices.append(f"rejects are written to {here}: {self.path} can't be ({error.strerror})")
            self.path, self._fixed = here, True
            return self._open()

    def _give_up(self, error: OSError) -> None:
        self.notices.append(f"rejects are not written: {self.path}: {error.strerror}")
        self.close()
        self._stream, self._writable = None, False
