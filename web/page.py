"""Templates, with a policy that lets a page fetch nothing from elsewhere, and no markup but ours.

Every text goes through `inert`, which takes secrets out of it, and is escaped by jinja2, also where a template forgot.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import re
from importlib.resources import files
from typing import TYPE_CHECKING

from .. import __version__
from ..core.redaction import without_secrets
from ..core.text import counted, printable
from ..core.words import OPEN, VERDICTS, sure
from .views import SAID, STANCE_COUNTS

if TYPE_CHECKING:
    import jinja2

_OUTSIDE_HTML = re.compile("[\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")


def inert(text: str) -> str:
    """Text without secrets, without what turns its direction, and without characters that HTML does not know."""
    lines = re.split("\r\n|\r|\n", without_secrets(text))
    return "\n".join(printable(_OUTSIDE_HTML.sub("\ufffd", line)) for line in lines)


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
    made.globals |= {
        "style": Markup(style),  # noqa: S704 - packaged with ccheck
        "style_hash": csp_hash(style),
        "script": Markup(script),  # noqa: S704
        "script_hash": csp_hash(script),
        "verdicts": VERDICTS,
        "stances": SAID,
        "stance_counts": STANCE_COUNTS,
        "open": OPEN,
        "sure": sure,
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
