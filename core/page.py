"""Pages that need nothing else: HTML with its own styles, a policy that lets it fetch nothing, and only our markup.

Every text goes through `inert`, which takes secrets out of it, and is escaped by jinja2, also where a template forgot.
"""

from __future__ import annotations

import base64
import hashlib
import re
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from .redaction import without_secrets
from .text import printable

if TYPE_CHECKING:
    import jinja2

_SHARED = ("page.css", "page_head.html")
_OUTSIDE_HTML = re.compile("[\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")


def inert(text: str) -> str:
    """Text without secrets, without what turns its direction, and without characters that HTML does not know."""
    lines = re.split("\r\n|\r|\n", without_secrets(text))
    return "\n".join(printable(_OUTSIDE_HTML.sub("\ufffd", line)) for line in lines)


def environment(package: str, style: str, script: str | None = None, **names: Any) -> jinja2.Environment:
    """Templates of a package, with its style sheet after the one that all pages share.

    A template finds `style`, `script` and their hashes for the policy, and `names`. It sets `title` and includes
    `page_head.html`, which all pages share too.
    """
    import jinja2
    from markupsafe import Markup

    def read(name: str) -> str:
        place = __package__ or "" if name in _SHARED else package
        return files(place).joinpath(name).read_text(encoding="utf-8")

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
    styles = read("page.css") + read(style)
    made.globals |= {"style": Markup(styles), "style_hash": csp_hash(styles), **names}  # noqa: S704 - packaged with ccheck
    if script is not None:
        code = read(script)
        made.globals |= {"script": Markup(code), "script_hash": csp_hash(code)}  # noqa: S704
    return made


def csp_hash(text: str) -> str:
    """Returns the hash that names an inline style or script in a content security policy."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
