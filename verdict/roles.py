"""What each sentence of a paper does there: background, aim, method, result, conclusion or outlook.

A claim is answered by what a paper found, while its background and its aim repeat the claim's words. A heading says the
role where the text has one ("RESULTS: ...", a line "Methods"). Otherwise a linear model over the sentence's words and
place does, and the most probable sequence of roles is taken, as abstracts follow an order. Phrases decide before both:
"we investigated whether" is an aim wherever it stands. `benchmarks/roles.py` makes the model and measures it.
"""

from __future__ import annotations

import functools
import itertools
import re
import threading
import zlib
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, get_args

from cachetools import LRUCache, cached

from ..core.analysis import sentence_spans
from ..core.errors import InvalidData
from ..core.types import Role, Sentence

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Span: TypeAlias = tuple[int, int]

ROLES: tuple[Role, ...] = get_args(Role)
FOUND: frozenset[Role] = frozenset(("result", "conclusion"))
"""The roles of sentences that say what a paper found."""
FILE = Path(__file__).parent / "packaged" / "roles.safetensors"
BUCKETS = 1 << 14
"""The rows of the model's table; a word has the row of its checksum."""
FEWEST, MOST = 3, 60
"""Only in texts of so many sentences do place and order say something, as in abstracts."""

_SECTIONS: tuple[tuple[frozenset[Role], str], ...] = (
    (frozenset(("background", "aim")), "background introduction context importance rationale motivation"),
    (frozenset(("aim",)), "objective objectives aim aims purpose hypothesis goal goals question"),
    (
        frozenset(("method",)),
        "method methods methodology design setting settings participants patients subjects materials intervention "
        "interventions measurements measures outcomes sources extraction exposures exposure registration funding "
        "selection availability",
    ),
    (frozenset(("result",)), "result results finding findings observations"),
    (frozenset(("conclusion", "outlook")), "conclusion conclusions interpretation significance implications"),
    (frozenset(("background", "result", "conclusion", "outlook")), "discussion comment summary"),
)
_ROLES_OF = {word: roles for roles, words in _SECTIONS for word in words.split()}
_ANY = frozenset(ROLES)
_HEADING = re.compile(
    r"(?:#{1,6} |\d[\d.]* )?(?:"
    r"(?P<loud>[A-Z]{3,}(?:(?: AND |[ /&,-]+)[A-Z]+){0,5})(?=[:.]|[ \n]+[A-Z0-9(\[\"'≥≤]|$)"
    r"|(?P<plain>[A-Z][a-z]+(?:[ /&,-]+[A-Za-z]+){0,3})(?=: |\n|$))"
)
_STUDY = r"(?:assess|compare|describe|determine|evaluate|examine|explore|identify|investigate|study|test)"
_AIM = re.compile(
    r"\?$|\b(?:aims?|objectives?|purposes?|goals?) (?:of|for) (?:this|the|our|these)\b"
    r"|\b(?:we|study|trial|to) (?:aim|sought|hypothesi[sz]|set out)\w*"
    rf"|\b(?:was|were|is) (?:to|designed to|conducted to|undertaken to) (?:\w+ )?{_STUDY}\b"
    r"|\b(?:assess|ask|determin|evaluat|examin|explor|investigat|stud|test)\w* (?:whether|if)\b"
    rf"|\btest(?:ed)? the hypothesis\b|^To {_STUDY}\b",
    re.IGNORECASE,
)
_SAID = re.compile(
    r"\b(?:has|have|had) (?:previously |recently |long )?been "
    r"(?:suggested|proposed|hypothesi[sz]ed|postulated|speculated|claimed|assumed|thought)\b"
    r"|\b(?:is|are|was|were) (?:\w+ )?(?:thought|believed|assumed|hypothesi[sz]ed|claimed|postulated) (?:to|that)\b"
    r"|\b(?:remains?|is|are|was|were) (?:\w+ )?"
    r"(?:unclear|unknown|controversial|debated|uncertain|not known|not clear|poorly understood)\b"
    r"|\b(?:(?:think|believe|assume|fear|perceive|predict)s?|maintain(?:s|ed)|(?:fear|believ|testifi)e[ds]) that\b"
    r"|\b(?:argu(?:e[sd]?|ing)|contend(?:s|ed|ing)?|insist(?:s|ed|ing)?|blam(?:e[sd]?|ing)|perceives?)\b"
    r"|\b(?:told|advised|informed|warned|taught|says?|said) that\b"
    r"|\b(?:idea|notion|belief|myth|claim|assumption|rumou?r)s? that\b"
    r"|\blittle is known\b|\b(?:unclear|unknown|uncertain|not known) (?:whether|if)\b",
    re.IGNORECASE,
)
"""What others say, or nobody knows."""
_ANSWERED = re.compile(
    r"(?=.*\b(?:our|these|this|present|current|we|results?|data|findings|evidence|trials?|analys[ei]s)\b)"
    r".*\b(?:support|confirm|contradict|refut|reject|disprov|challeng|question|counter|strengthen|reinforc"
    r"|(?:in)?consistent with|argu\w* against|lend|cast doubt|evidence (?:for|against))\w*"
    r"|.*\bnot (?:be )?(?:supported|confirmed|upheld|borne out|replicated)\b",
    re.IGNORECASE | re.DOTALL,
)
"""What a paper found about what others say."""
_OUTLOOK = re.compile(
    r"\b(?:further|future|more|additional|larger|long-term)(?: \w+){0,4} (?:stud(?:y|ies)|research|trials?|work"
    r"|investigations?|evaluation)\b.{0,300}\b(?:need|requir|warrant|should|necessary|will|must|recommend)"
    r"|\b(?:needs?|warrants?|requires?|deserves?) (?:to be )?(?:further|future|additional|more|confirm\w*)\b",
    re.IGNORECASE,
)
_TOLD = re.compile(
    r"\b(?:we|they|the (?:authors?|team|paper)|(?:our|these|the|this) (?:results?|findings?|data|analys[ie]s|study"
    r"|trial|experiments?|observations?|estimates?)) (?:\w+ly )?(?:find|found|show(?:s|ed|n)?|observed?"
    r"|demonstrate[sd]?|reveal(?:s|ed)?|conclude[sd]?|report(?:s|ed)?|indicate[sd]?|suggest(?:s|ed)?|confirm(?:s|ed)?"
    r"|estimate[sd]?) (?:here )?(?:that|an?|no)\b"
    r"|\b(?:rose|increased|declined|decreased|fell|grew|dropped) (?:\w+ ){0,6}?(?:by|from) (?:\w+ ){0,3}?\d"
    r"|\b(?:rose|increased|declined|decreased|fell|grew|dropped|lost|gained|prevented|averted|saved) (?:on average )?"
    r"(?:an? |\w+ )?(?:about |some |roughly |nearly |only |almost |over )?\d"
    r"|\b(?:hazard|odds|risk|rate|incidence)s? ratios? (?:\w+ ){0,3}?(?:was|were|of) \d"
    r"|\b(?:conclude[sd]?|calculated) that\b|\b(?:was|were) (?:\w+ly )?(?:linked|related) to\b"
    r"|\b(?:was|were) (?:\w+ly )?(?:higher|lower|greater|larger|smaller|less|more|fewer|longer|shorter|better|worse"
    r"|associated|correlated|similar|reduced|increased|decreased)\b"
    r"|\b(?:no|not) (?:\w+ ){0,2}(?:differ(?:ence)?|effect|association)\b",
    re.IGNORECASE,
)
"""What was found, or was found earlier. Of trials' sentences with such words, 97% stand under results or conclusion."""
_EARLIER = re.compile(r"\b(?:previous|recent|earlier|prior)(?:ly)?\b", re.IGNORECASE)
_TOKEN = re.compile(r"[^\W\d_]+|\d+(?:[.,]\d+)*|[%<>=±?]")


@dataclass(frozen=True, slots=True)
class Roles:
    """The roles of a text's sentences, in order; `found` has the probability of each that it says what was found.

    In a text of fewer than `FEWEST` sentences a role is known only if a heading or a phrase says it, and `found` is
    otherwise 1.
    """

    roles: tuple[Role | None, ...]
    found: tuple[float, ...]


def roles_in(text: str, spans: Sequence[Span], model: RoleModel | None = None) -> Roles:
    """The roles of the sentences of a text, which stand at `spans`."""
    import numpy as np

    if not spans:
        return Roles((), ())
    allowed, bodies = _allowed(text, spans)
    told = [roles is not _ANY for roles in allowed]
    model = model or packaged_roles()
    open_ = np.array([[role in roles for role in ROLES] for roles in allowed])
    chances = model.probabilities(bodies, open_)
    known = [one or len(spans) >= FEWEST for one in told]
    wanted = np.array([role in FOUND for role in ROLES])
    found = np.where(known, np.round(chances[:, wanted].sum(1), 4), 1.0)
    named = zip(chances.argmax(1), known, strict=True)
    return Roles(tuple(ROLES[best] if sure else None for best, sure in named), tuple(found.tolist()))


@functools.lru_cache(maxsize=256)
def roles_of(text: str) -> Roles:
    """The roles of all sentences of a text."""
    return roles_in(text, sentence_spans(text))


def with_roles(sentences: Sequence[Sentence], text: str) -> tuple[Sentence, ...]:
    """Sentences of a text that have no role, each with the role of the text's own sentence in which it begins."""
    if not any(one.field == "text" and one.role is None for one in sentences):
        return tuple(sentences)
    spans, roles = sentence_spans(text), roles_of(text).roles
    starts = [start for start, _ in spans]
    return tuple(
        replace(one, role=roles[max(0, bisect_right(starts, one.start) - 1)])
        if roles and one.field == "text" and one.role is None
        else one
        for one in sentences
    )


def _allowed(text: str, spans: Sequence[Span]) -> tuple[list[frozenset[Role]], list[str]]:
    """The roles that each sentence can have by its section and its phrases, and the sentence without its heading."""
    section: frozenset[Role] = _ANY
    allowed, bodies = [], []
    for start, end in spans:
        body = text[start:end]
        while heading := _HEADING.match(body):
            roles = _section(heading["loud"] or heading["plain"])
            if not roles:
                break
            section, body = roles, body[heading.end() :].lstrip(" :.-\n")
        bodies.append(body)
        phrase = _by_phrase(body) or section
        # A heading knows better than a phrase for what was found, which methods have, too.
        allowed.append((section & FOUND or section) if phrase is FOUND else phrase)
    return allowed, bodies


def _section(heading: str) -> frozenset[Role]:
    """The roles of a heading's words; none if it has no known word."""
    return frozenset().union(*(_ROLES_OF.get(word, frozenset()) for word in re.findall(r"\w+", heading.lower())))


def _by_phrase(sentence: str) -> frozenset[Role] | None:
    if _AIM.search(sentence):
        return frozenset(("aim",))
    if _OUTLOOK.search(sentence):
        return frozenset(("outlook",))
    if _SAID.search(sentence) and not _ANSWERED.match(sentence):
        return frozenset(("background",))
    return FOUND if _TOLD.search(sentence) and not _EARLIER.search(sentence) else None


# -- the model


@dataclass(frozen=True, slots=True)
class RoleModel:
    """A table with a row of weights for each feature's checksum, and the log-odds of a role after another."""

    weights: NDArray[np.float32]
    """Shape [BUCKETS, roles]."""
    steps: NDArray[np.float32]
    """Shape [roles + 1, roles]: the first row is for the first sentence."""

    def probabilities(self, sentences: Sequence[str], allowed: NDArray[np.bool_]) -> NDArray[np.float64]:
        """The probability of each role for each sentence, in `ROLES`' order, shape [sentences, roles]."""
        import numpy as np

        ordered = FEWEST <= len(sentences) <= MOST
        scores = np.stack([self.weights[rows].sum(0) for rows in feature_rows(sentences)]).astype(np.float64)
        scores = np.where(allowed, scores, -1e9)
        if ordered:
            scores = _summed(scores, self.steps)
        values = np.exp(scores - scores.max(1, keepdims=True))
        made: NDArray[np.float64] = values / values.sum(1, keepdims=True)
        return made


def _summed(scores: NDArray[np.float64], steps: NDArray[np.float32]) -> NDArray[np.float64]:
    """The log-probabilities of roles over all sequences (forward and backward), up to a constant for each sentence."""
    import numpy as np

    before, after = np.zeros_like(scores), np.zeros_like(scores)
    before[0] = steps[0]
    for place in range(1, len(scores)):
        before[place] = np.logaddexp.reduce((before[place - 1] + scores[place - 1])[:, None] + steps[1:], axis=0)
        last = -place - 1
        after[last] = np.logaddexp.reduce((after[last + 1] + scores[last + 1])[None, :] + steps[1:], axis=1)
    return before + scores + after


def feature_rows(sentences: Sequence[str]) -> list[list[int]]:
    """The rows of each sentence's features: its words and pairs of words, how it begins, and where it stands."""
    places = range(len(sentences)) if FEWEST <= len(sentences) <= MOST else [None] * len(sentences)
    return [
        [zlib.crc32(one.encode()) % BUCKETS for one in set(_features(sentence, place, len(sentences)))]
        for sentence, place in zip(sentences, places, strict=True)
    ]


def _features(sentence: str, place: int | None, count: int) -> Iterator[str]:
    words = [word if not word[0].isdigit() else "0" for word in _TOKEN.findall(sentence.lower())]
    yield from ("*", *words)
    yield from map(" ".join, itertools.pairwise(words))
    yield f"^ {' '.join(words[:2])}"
    if place is None:
        yield "@"
        return
    yield from (f"@{10 * place // count} of 10", f"@{min(place, 4)}", f"@-{min(count - place, 4)}")


@cached(LRUCache(1), condition=threading.Condition())  # one thread loads, the others wait
def packaged_roles() -> RoleModel:
    """The model that ccheck carries. Raises InvalidData for a file that is missing or broken."""
    import numpy as np
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        held = load_file(FILE)
        weights = held["weights"].astype(np.float32) * held["scale"]
        if weights.shape != (BUCKETS, len(ROLES)) or held["steps"].shape != (len(ROLES) + 1, len(ROLES)):
            raise ValueError("its tables have other shapes")
    except (OSError, KeyError, ValueError, SafetensorError) as error:
        raise InvalidData(f"{FILE} is not a model of roles: {error}. Install ccheck again") from error
    return RoleModel(weights, held["steps"])
