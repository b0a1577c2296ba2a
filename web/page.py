"""Templates, with a policy that lets a page fetch nothing from elsewhere, and no markup but ours.

Every text goes through `inert`, which takes secrets out of it, and is escaped by jinja2, also where a template forgot.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import re
from collections.abc import Mapping
from contextvars import ContextVar
from importlib.resources import files
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any

from .. import __version__
from ..core.redaction import without_secrets
from ..core.text import counted, printable, shortened
from ..core.words import LEANING, OPEN, VERDICTS, sure, why
from .views import SAID, in_short, judges

if TYPE_CHECKING:
    import jinja2

ERRORS = frozenset({"detail", "error", "missing", "reason", "warnings"})
"""The names of JSON values that are, or list, what went wrong."""
TOLD = re.compile(rf'"(?:{"|".join(ERRORS)})": (?!null|\[\]|"\w*")')
"""Finds JSON that `told` could change."""
_PLAIN = (str, int, float, NoneType)
_hidden: list[str] = []
for_owner: ContextVar[bool] = ContextVar("for_owner", default=False)
"""Whether whoever asks started the server."""
_COMMAND = r"(?:(?<![\w-])--[a-z]|\bccheck (?:demo|doctor|history|index|ingest|query|recipes|serve|show)\b)"
_ASIDE, _AFTER = re.compile(rf" \([^()]*{_COMMAND}[^()]*\)"), re.compile(rf"[:;,] (?=[^:;,]*{_COMMAND})")
_OUTSIDE_HTML = re.compile("[\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")


def inert(text: str) -> str:
    """Text without secrets, without what turns its direction, and without characters that HTML does not know."""
    lines = re.split("\r\n|\r|\n", placeless(without_secrets(text)))
    return "\n".join(printable(_OUTSIDE_HTML.sub("\ufffd", line)) for line in lines)


def hide(*folders: Path) -> None:
    """From now on no page and no answer shows where these are on this machine."""
    _hidden.extend(f"{folder}/" for folder in folders if len(folder.parts) > 2 and f"{folder}/" not in _hidden)
    _hidden.sort(key=len, reverse=True)


def placeless(text: str) -> str:
    """Text in which files of folders that are hidden have only their names, unless the owner of the server asks."""
    for folder in () if for_owner.get() else _hidden:
        text = text.replace(folder, "")
    return text


def plainly(message: str) -> str:
    """An error without the flags and commands that it names: whoever sees it here can't give them.

    Its first sentence says what happened, and is cut where it goes on with what to do. The others go if they name any.
    """
    if for_owner.get():  # a command line
        return message
    first, *rest = re.split(r"(?<=\.) ", _ASIDE.sub("", message))
    return " ".join([_AFTER.split(first)[0], *(one for one in rest if not re.search(_COMMAND, one))]).rstrip(". ")


def told(value: Any, name: str = "") -> Any:
    """JSON values in which errors are said as `plainly` does."""
    if isinstance(value, Mapping):
        return {
            key: one if key not in ERRORS and isinstance(one, _PLAIN) else told(one, key) for key, one in value.items()
        }
    if isinstance(value, list | tuple):
        return [told(one, name) for one in value]
    return plainly(value) if name in ERRORS and isinstance(value, str) else value


def packaged(*names: str) -> str:
    """Files of `templates/`, one after the other."""
    return "".join(files(__package__ or "").joinpath("templates", name).read_text(encoding="utf-8") for name in names)


@functools.cache
def static_files() -> dict[str, tuple[str, str]]:
    """The styles and the script of the service's pages: type and content by name."""
    style = packaged("page.css", "report.css", "service.css")
    return {"style.css": ("text/css", style), "script.js": ("text/javascript", packaged("service.js"))}


@functools.cache
def environment() -> jinja2.Environment:
    """The templates. They find the words of labels and, for a page that stands alone, `style` and `script` with the
    hashes that name them in its policy. `served`: a page of the service, which has forms.
    """
    import jinja2
    from markupsafe import Markup

    def finalize(value: object) -> object:
        return value if isinstance(value, Markup | int) else inert(str(value))

    made = jinja2.Environment(
        autoescape=True,
        loader=jinja2.FunctionLoader(packaged),
        finalize=finalize,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    style, script = packaged("page.css", "report.css"), packaged("report.js")
    made.filters["plainly"] = lambda said: plainly(str(said))
    made.filters |= {"shortened": shortened, "judges": judges, "why": why}
    made.filters["sentence"] = lambda said: re.sub(r"^[a-z]+(?=[ ,:']|$)", lambda word: word[0].capitalize(), said)
    made.globals |= {
        "style": Markup(style),  # noqa: S704 - packaged with ccheck
        "style_hash": csp_hash(style),
        "script": Markup(script),  # noqa: S704
        "script_hash": csp_hash(script),
        "verdicts": VERDICTS,
        "stances": SAID,
        "leaning": LEANING,
        "open": OPEN,
        "sure": sure,
        "in_short": in_short,
        "counted": counted,
        "version": __version__,
        # Browsers keep the files of one version for good.
        "mark": hashlib.sha256(str(static_files()).encode()).hexdigest()[:12],
        "served": None,
    }
    return made


def csp_hash(text: str) -> str:
    """Returns the hash that names an inline style or script in a content security policy."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
