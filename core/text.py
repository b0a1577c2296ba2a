"""Text from elsewhere, made safe to show, JSON that is safe to show, and figures in words."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal

_TURNING = r"\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
"""Characters that change the direction of the text around them."""
CONTROLS = rf"\x00-\x08\x0b-\x1f\x7f-\x9f{_TURNING}"
"""Characters that could steer a terminal or turn the text beside them, for a character class of a regular expression.

Line feeds and tabs are not among them.
"""
TEXT_CHARS = 8_000_000
"""The most characters that the text of a document may have, whatever it was read from: some 3,000 pages."""
_SEPARATORS = r"\u2028\u2029"
_CONTROL = re.compile(f"[{CONTROLS}]")
_SEPARATOR = re.compile(rf"[{_SEPARATORS}]")
_SPACE = re.compile(rf"[\t\n{_SEPARATORS}]")
_DIGITS = re.compile(r"[0-9]{1,18}")
_UNSAFE_IN_JSON = re.compile(rf"[\x7f-\x9f{_TURNING}{_SEPARATORS}\ud800-\udfff]")


def nearest(name: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The known name that is most like this one, whatever its case; None if none is. `cutoff` is the least likeness."""
    import difflib

    folded = {one.casefold(): one for one in sorted(known, reverse=True)}
    near = difflib.get_close_matches(name.casefold(), folded, 1, cutoff)
    return folded[near[0]] if near else None


def did_you_mean(name: str, known: Iterable[str], otherwise: str = "", cutoff: float = 0.6) -> str:
    """The end of a message about an unknown name: the one that it is most like, else what `otherwise` says."""
    near = nearest(name, known, cutoff)
    return f"did you mean {near!r}?" if near is not None else otherwise


def per_second(count: int, seconds: float) -> str:
    """`1,234/s`, or of what is slow `0.2/s`."""
    rate = count / max(seconds, 1e-9)
    return f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.2g}/s"


def without_controls(text: str) -> str:
    """Text without what could steer a terminal or turn the text beside it; lines and tabs stay."""
    return _SEPARATOR.sub("\n", _CONTROL.sub("", text))


def printable(text: str) -> str:
    """The same on one line."""
    return _SPACE.sub(" ", _CONTROL.sub("", text))


def json_line(data: Any) -> str:
    r"""A line of JSON, in which what `without_controls` takes out, and lone surrogates, stand as \uXXXX.

    So it can be shown and written as UTF-8, and reads back as it was. JSON has no infinite numbers and no NaN: they are
    null.
    """
    try:
        text = json.dumps(data, ensure_ascii=False, allow_nan=False)
    except ValueError:
        text = json.dumps(_finite(data), ensure_ascii=False, allow_nan=False)
    return _UNSAFE_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text) + "\n"


def _finite(data: Any) -> Any:
    if isinstance(data, float):
        return data if math.isfinite(data) else None
    if isinstance(data, Mapping):
        return {key: _finite(value) for key, value in data.items()}
    return [_finite(value) for value in data] if isinstance(data, list | tuple) else data


def is_unicode(text: str) -> bool:
    """Whether it can be written as UTF-8: arguments and file names of other bytes hold lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def whole_number(text: str) -> int | None:
    """The number that ASCII digits stand for; None for any other text, also `²` and numbers of thousands of digits."""
    return int(text) if _DIGITS.fullmatch(text) else None


def unfloated(value: Any) -> Any:
    """3.0 as 3: what a table writes where a column of integers has gaps. Anything else as it is."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def name_of(thing: object) -> str:
    """What a program's own function or object is called in results: its `name`, else that of its definition."""
    defined: str = getattr(thing, "__qualname__", type(thing).__qualname__)
    return str(getattr(thing, "name", None) or defined.rpartition("<locals>.")[2])


def shortened(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit].rstrip()} …"


def first_line(error: Exception) -> str:
    """Returns the first line of a library's error, without the pages that some add to it."""
    return str(error).strip().partition("\n")[0] or type(error).__name__


def counted(count: int, what: str) -> str:
    """`1 record`, `2,000 records`."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def figure(value: float, interval: tuple[float, float] | None = None, sign: Literal["", "+"] = "") -> str:
    """`0.7131 [0.683, 0.742]`; with the sign also of positive values."""
    return f"{value:{sign}.4f}" + (f" [{interval[0]:.3f}, {interval[1]:.3f}]" if interval is not None else "")


def seconds(value: float) -> str:
    return f"{value:.3g} s" if value >= 1 else f"{value * 1000:.3g} ms"
