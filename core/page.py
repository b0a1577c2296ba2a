"""Pages that need nothing else: HTML with its own styles, a policy that lets it fetch nothing, and only our markup.

Every text goes through `inert` and is escaped by jinja2, also where a template forgot.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from .errors import UsageError
from .text import printable

if TYPE_CHECKING:
    import jinja2

_OUTSIDE_HTML = re.compile("[\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")


def inert(text: str) -> str:
    """Text from elsewhere without what turns its direction, and without characters that HTML does not know."""
    return "\n".join(printable(_OUTSIDE_HTML.sub("\ufffd", line)) for line in re.split("\r\n|\r|\n", text))


def environment(package: str, style: str, script: str | None = None, **names: Any) -> jinja2.Environment:
    """Templates of a package, with its style sheet after the one that all pages share.

    A template finds `style`, `script` and their hashes for the policy, and `names`.
    """
    import jinja2
    from markupsafe import Markup

    def read(name: str, package: str = package) -> str:
        return files(package).joinpath(name).read_text(encoding="utf-8")

    def finalize(value: object) -> object:
        return value if isinstance(value, Markup | int) else inert(str(value))

    made = jinja2.Environment(
        autoescape=True,
        loader=jinja2.FunctionLoader(read),
        finalize=finalize,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    assert __package__ is not None
    styles = read("page.css", __package__) + read(style)
    made.globals |= {"style": Markup(styles), "style_hash": csp_hash(styles), **names}  # noqa: S704 - packaged with ccheck
    if script is not None:
        code = read(script)
        made.globals |= {"script": Markup(code), "script_hash": csp_hash(code)}  # noqa: S704
    return made


def csp_hash(text: str) -> str:
    """What a content security policy calls an inline style or script by."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


@contextmanager
def writing_page(path: str | Path) -> Iterator[IO[str]]:
    """Yields a file that takes the place of the one at `path` when the context ends well; else nothing changes.

    Raises UsageError, at once, where the file can't be written.
    """
    target = Path(path)
    if str(path) == "-" or (target.exists() and not target.is_file()):
        raise UsageError(f"the report {path} can't be written: it must be the name of a file")
    target = target.resolve()
    mode = target.stat().st_mode & 0o777 if target.exists() else 0o666 & ~_umask()
    with contextlib.ExitStack() as stack:
        try:
            if target.exists():
                target.open("r+b").close()  # one that may not be changed is not replaced either
            page = stack.enter_context(text_file(tempfile.NamedTemporaryFile, target.parent, delete=False))
        except OSError as error:
            raise UsageError(f"the report {path} can't be written: {error.strerror}") from error
        stack.callback(Path(page.name).unlink, missing_ok=True)
        yield page
        page.flush()
        os.fsync(page.fileno())
        page.close()
        Path(page.name).chmod(mode)
        Path(page.name).replace(target)


def text_file(make: Callable[..., Any], folder: Path, **options: Any) -> IO[str]:
    """A temporary file for text, by one of tempfile's functions."""
    file: IO[str] = make(
        "w+", encoding="utf-8", newline="\n", dir=folder, prefix=".ccheck-report-", suffix=".tmp", **options
    )
    return file


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
