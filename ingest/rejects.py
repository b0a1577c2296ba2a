"""The file that lists what could not be ingested."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import IO

from ..core.closing import Closing
from ..core.errors import CcheckError
from ..core.files import check_output, writing
from ..core.text import json_line
from .records import Reject
from .sources import REJECTS_SUFFIX, Source, stem

WHAT = "the rejects"


class RejectFile(Closing):
    """Rejects as JSON Lines: `{"file", "line", "reason", "record"}`. The file is there once the run has ended, if there
    are any."""

    def __init__(self, sources: Sequence[Source], path: Path | None = None) -> None:
        """`path`, or by default NAME.rejects.jsonl next to the only file that is read, else ccheck.rejects.jsonl here.
        Raises UsageError if `path` is one of the files that are read, or can't be written.
        """
        self._reads = [source.path for source in sources]
        only = self._reads[0] if len(sources) == 1 else None
        here = Path(f"ccheck{REJECTS_SUFFIX}")
        beside = only.with_name(stem(only) + REJECTS_SUFFIX) if only is not None and only.is_file() else here
        self.path = path or beside
        if path is not None:
            check_output(path, WHAT, self._reads)
        # The usual places, until one can be written.
        self._places = [path] if path is not None else list(dict.fromkeys([beside, Path(beside.name)]))
        self.notices: list[str] = []
        self._stack = ExitStack()
        self._stream: IO[str] | None = None
        self.written = False

    def write(self, reject: Reject) -> None:
        """Add a reject. A file that can't be written is a notice: the good records must not wait for it."""
        while self._stream is None and self._places:
            self.path = self._places.pop(0)
            try:
                self._stream = self._stack.enter_context(writing(self.path, WHAT, self._reads))
            except CcheckError as error:
                self.notices.append(str(error))
                if self._places:
                    self.notices.append(f"the rejects go to {self._places[0]} instead")
        if self._stream is not None:
            self.written = True
            try:
                self._stream.write(json_line(asdict(reject)))
            except CcheckError as error:
                self._give_up(error)

    def close(self) -> None:
        """Put the file in its place."""
        try:
            self._stack.close()
        except CcheckError as error:
            self._give_up(error)

    def _give_up(self, error: CcheckError) -> None:
        self.notices.append(str(error))
        self._stream, self.written, self._places = None, False, []
