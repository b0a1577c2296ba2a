"""The socket at which a server on this machine is found by `ccheck query`, if both have the same store and settings.

It is named after all that decides on settings, so that whoever has something else finds nothing. Its folder is in the
user's runtime folder and belongs to the user alone: who can open the socket is the user.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import socket
import stat
import sys
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import platformdirs

from .. import __version__

READ = ("CCHECK_", "ELASTIC", "ES_", "OPENAI_", "HF_", "HUGGING_FACE_")
"""What the variables begin with that settings and models are found by."""
UNREAD = ("CCHECK_SERVE", "CCHECK_WEB_", "CCHECK_API_KEYS", "CCHECK_DEBUG")


def connected(given: Mapping[str, Any]) -> socket.socket | None:
    """A connection to the server that has these options, this environment and this folder, if it runs."""
    with contextlib.suppress(OSError, AttributeError):  # no folder, no server, or a system without such sockets
        path = _path_of(given)
        if _is_own(path.parent):
            found = socket.socket(socket.AF_UNIX)
            try:
                found.connect(str(path))
            except OSError:
                found.close()
                raise
            return found
    return None


@contextlib.contextmanager
def listening(given: Mapping[str, Any]) -> Iterator[list[socket.socket]]:
    """The socket to serve at, for the user alone; none if another server has it, or this machine can't give one."""
    from filelock import FileLock

    with contextlib.ExitStack() as stack:
        made: list[socket.socket] = []
        with contextlib.suppress(OSError, AttributeError):
            path = _path_of(given)
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if _is_own(path.parent):
                # Held while the socket is there. If another server has it, Timeout is an OSError.
                stack.enter_context(FileLock(f"{path}.lock", timeout=0, mode=0o600))
                path.unlink(missing_ok=True)  # of a server that was killed
                one = stack.enter_context(socket.socket(socket.AF_UNIX))
                one.bind(str(path))
                stack.callback(path.unlink, missing_ok=True)
                path.chmod(0o600)
                made.append(one)
        yield made


def _is_own(folder: Path) -> bool:
    """Whether a folder is the user's, and nobody else can put anything there."""
    found = folder.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077


def _path_of(given: Mapping[str, Any]) -> Path:
    files = [platformdirs.user_config_path("ccheck") / "ccheck.toml", Path("ccheck.toml")]
    parts = [
        *(__version__, sys.prefix, str(Path.cwd()), str(platformdirs.user_data_path("ccheck"))),
        sorted((name, value) for name, value in given.items() if value),
        sorted(
            (name, value)
            for name, value in os.environ.items()
            if name.startswith(READ) and not name.startswith(UNREAD) and value
        ),
        [file.read_bytes().hex() if file.is_file() else None for file in files],
    ]
    digest = hashlib.sha256(json.dumps(parts).encode()).hexdigest()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # without XDG_RUNTIME_DIR it is a folder that is as safe
        return platformdirs.user_runtime_path("ccheck") / f"{digest[:16]}.sock"
