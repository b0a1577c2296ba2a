"""The stance model that ccheck carries: a small BERT that reads a claim and a document's nearest sentences.

`benchmarks/packaged_stance.py` makes the files and measures them; `packaged/README.md` is the model card.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ..core.analysis import (
    REFERS,
    as_sentence,
    clean,
    is_about_a_claim,
    names_only,
    sentence_spans,
    term_set,
    two_claims,
)
from ..core.errors import InvalidData
from ..core.runtime import Runtime
from ..core.types import Document, Label, Role, Stance
from .differences import REACH, differences
from .evidence import nearest_in_words
from .judge import NO_TEXT, PairStances, StanceMethod, likeliest
from .labels import STANCES
from .quantities import agrees_with_any, in_words, quantities
from .roles import roles_of
from .statements import Compared, compared, contradicts, repeats

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ..encode.numpy_bert import CrossEncoder

PACKAGED = "packaged"
"""The name by which `--stance` knows this model."""
NAME = "packaged stance model"
LEARNED_FROM = "SciFact, Climate-FEVER, FEVER, PubMedQA, CliniFact and Evidence Inference"
FOLDER = Path(__file__).parent / "packaged"
READER = "reader.safetensors"
NEAREST = 5
"""How many of a document's sentences are read: those that share most words with the claim, its last one among them."""

_BELIEF = re.compile(
    r"\b(?:(?:myth|rumou?r|saying|belief|believe|misconception|misreading|folklore)[sd]?|as follows)\b",
    re.IGNORECASE,
)
_ERROR = re.compile(
    r"(?:This|That|It|These|Those|Each|None|Such|Both|We (?:then |later )?(?:f[io]u?nd|noticed|discovered|learned))\b.*"
    r"\b(?:false|untrue|wrong|art[ei]facts?|errors?|mistakes?|repeated|replicated|no support|exchanged|retracted)\b"
    r"|(?:That|We (?:saw|observed|reported) (?:this|it))\b.{0,40}\b(?:at least|only|single)\b"
)
_LIMIT = re.compile(rf"\b(?:\w*n['’]t|not|cannot) (?:necessarily )?(?:{'|'.join(REACH)})\b")
"""Says how far a finding reaches, and not that what follows is not so."""
UNSAID = "no sentence is seen to state or deny the claim"
PLAIN = 0.5
"""The confidence from which a side decides where a sentence says the claim and nothing else, or denies it so. Chosen on
made-up pairs: few of the data sets' sentences are so plain."""
LONGEST = 100
"""The words of a claim; no claim of the data sets has more, and what comes later is not read."""
OTHER_WORDS = 3
"""A sentence that lacks fewer of a claim's words is like the claim."""
ABSTRACT = 60
"""How many words a text has that says what a paper found, and is not a part of something."""


class PackagedWeights(BaseModel):
    """The content of `packaged/model.json`. The reader has the packaged embedding model's vocabulary. It reads `tokens`
    of a claim and a document, and its outputs over `temperature` (Guo et al. 2017) are the logits of `STANCES`.

    `threshold` is the probability below which neither side is named, `decisive` that from which a side decides a
    verdict; `alike` from which it does where a sentence is like the claim, and is not seen to state or deny it; and
    `reworded` from which it does where an abstract says it in other words, so that no shared word can have misled it.
    On sets of claims that it did not learn from, it decided the share `decided` of the pairs, and `right` of these.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    model_type: Literal["ccheck-packaged-stance"] = "ccheck-packaged-stance"
    tokens: int = Field(ge=16, le=512)
    temperature: float = Field(gt=0, le=100)
    threshold: float = Field(ge=0, le=1)
    decisive: dict[Label, float]
    alike: float = Field(ge=0, le=1)
    reworded: dict[Label, float]
    decided: float = Field(ge=0, le=1)
    right: float = Field(ge=0, le=1)


class PackagedStances(PairStances):
    """Tells what documents say about claims, with the model that ccheck carries."""

    english_only = True

    def __init__(self, runtime: Runtime, folder: Path = FOLDER) -> None:
        """The reader is loaded with the first claim. Raises InvalidData for a broken file."""
        from ..encode.dense import DEFAULT_MODEL

        self._folder, self._weights = folder, read_weights(folder)
        self._vocabulary = runtime.find(DEFAULT_MODEL)
        self.name = (
            f"{NAME}: a lead to read, not a finding (on sets of claims that it did not learn from, it "
            f"decided {self._weights.decided:.1%}, and {self._weights.right:.0%} of these right)"
        )

    def read(self, pairs: Sequence[tuple[str, Document]]) -> list[Stance]:
        """See `PairStances`."""
        near = [nearest(*pair) for pair in pairs]
        said = iter(self._said([(pair, some) for pair, some in zip(pairs, near, strict=True) if some]))
        return [next(said) if some else Stance(None, error=NO_TEXT) for some in near]

    def _said(self, pairs: Sequence[tuple[tuple[str, Document], list[str]]]) -> Iterator[Stance]:
        """The stances of claims and documents, each with its nearest sentences."""
        if not pairs:
            return
        outputs = self._reader([as_read(claim, some) for (claim, _), some in pairs])
        for row, ((claim, document), some) in zip(probabilities(outputs, self._weights), pairs, strict=True):
            read = stands(claim, document, some)
            said = read.stated and says(claim, document, some)
            if said:
                row = _unrefuted(row)
            stance = likeliest(row, self._weights.threshold, supports=may_support(read))
            why = self._why_open(stance, claim, document, some, read, said)
            if why is not None:
                # A sentence with the claim's words on something else, or on what may be, does not support the claim.
                others = read.missing > (2 if why and why == unfit(claim) else 1) and not read.contrary
                supports = others or (may_support(read) and why in ("", UNSAID))
                if stance.label == "REFUTES" and gives_its_numbers(claim, some):
                    row = _unrefuted(row)
                stance = likeliest(row, self._weights.threshold, supports=supports)
            yield replace(stance, decides=why is None, rationale=f"undecided: {why}" if why else None)

    def _why_open(
        self, stance: Stance, claim: str, document: Document, some: Sequence[str], read: Compared, said: bool
    ) -> str | None:
        """What keeps a stance from deciding; None if it decides, empty if it is too unsure anyway. `said`: the document
        says the claim."""
        levels = self._weights.reworded if is_reworded(document, read) else self._weights.decisive
        if stance.label not in levels:
            return ""
        least = levels[stance.label]
        if (stance.confidence or 0) < (PLAIN if read.missing <= 1 else least):
            return ""
        if why := unfit(claim):
            return why
        # Roles are read only of the few documents whose stance is sure.
        sentences, every = what_was_found(document, some, claim), compared(claim, some)
        found = compared(claim, sentences)._replace(missing=read.missing)
        supports = stance.label == "SUPPORTS"
        limited = not supports and any(_LIMIT.search(one) and compared(claim, [one]).missing <= 1 for one in some)
        given = not supports and gives_its_numbers(claim, some)
        otherwise = supports and not found.stated and says_otherwise(claim, every)
        plain = said if supports else any(contradicts(claim, one) for one in sentences)
        plain = plain and found.stated == supports and not (found.apart or found.unsure)
        if plain or (decides(stance, found, least, self._weights.alike) and not (otherwise or given or limited)):
            return None
        reasons = {
            "no sentence says that it was found": not sentences,
            "a sentence states the claim": not supports and every.stated,
            "a sentence gives the claim's numbers": given,
            "a sentence says that this does not follow": limited,
            "a sentence says this of something else, or turns it round": every.apart or every.opposed,
            "a sentence has another word in its place": every.exchanged,
            "a sentence says what may be, or goes together": every.unsure,
        }
        return next((reason for reason, true in reasons.items() if true), UNSAID)

    @functools.cached_property
    def _reader(self) -> CrossEncoder:
        from ..encode.bert_folder import read_bert_folder
        from ..encode.numpy_bert import load_cross_encoder

        folder = read_bert_folder(self._vocabulary.path)
        assert folder is not None
        return load_cross_encoder(folder, self._folder / READER, self._weights.tokens)


def is_packaged(method: StanceMethod | None) -> bool:
    """Whether a method is the packaged model, also calibrated."""
    return isinstance(getattr(method, "method", method), PackagedStances)


def read_weights(folder: Path = FOLDER) -> PackagedWeights:
    """Raises InvalidData for a file that is missing or broken: it belongs to the installation."""
    try:
        return PackagedWeights.model_validate_json((folder / "model.json").read_bytes())
    except (OSError, ValidationError) as error:
        raise InvalidData(f"{folder / 'model.json'} is not a stance model: {error}. Install ccheck again") from error


def sentences_of(document: Document) -> list[str]:
    """The sentences of a document's text; its title if it has no text."""
    text = clean(document.text).strip()
    found = [text[start:end] for start, end in sentence_spans(text)] if text else []
    return found or [title for title in (clean(document.title).strip(),) if title]


def nearest(claim: str, document: Document) -> list[str]:
    """The sentences of a document that are read for a claim, in its order; none without text and title."""
    found = sentences_of(document)
    places = nearest_in_words(clean(claim), found[:-1], NEAREST - 1)
    return [found[place] for place in places] + found[-1:]


def as_read(claim: str, sentences: Sequence[str]) -> tuple[str, str]:
    """What the reader gets of a claim and sentences. It learned from sentences: without its full stop, it is much less
    sure of a claim."""
    return clean(as_sentence(claim)), " ".join(map(in_words, sentences))


def probabilities(outputs: NDArray[np.floating[Any]], weights: PackagedWeights) -> NDArray[np.float64]:
    """The calibrated probabilities of `STANCES`, shape [pairs, 3], from what the reader gives, of the same shape."""
    import numpy as np

    values = outputs.astype(np.float64) / weights.temperature
    values = np.exp(values - values.max(axis=1, keepdims=True))
    made: NDArray[np.float64] = values / values.sum(axis=1, keepdims=True)
    return made


def _unrefuted(row: NDArray[np.float64]) -> NDArray[np.float64]:
    """The probabilities without REFUTES: a paper that says the claim, or gives its numbers, does not refute it."""
    rest = row * [label != "REFUTES" for label in STANCES]
    made: NDArray[np.float64] = rest / (rest.sum() or 1)
    return made


def what_was_found(document: Document, sentences: Sequence[str], claim: str) -> list[str]:
    """Those of a document's sentences that say what was found: not what others said, or what was asked or done. What
    says the claim and nothing else is said by the document, unless a heading or a phrase tells otherwise."""
    known = _with_roles(document, sentences)
    every = sentences_of(document)
    return [
        one
        for one, _, chance in known
        if (chance >= 0.5 or (chance and (repeats(claim, one) or contradicts(claim, one))))
        and not _taken_back(every, one, claim)
    ]


def says(claim: str, document: Document, sentences: Sequence[str]) -> bool:
    """Whether one of a document's sentences says what was found, and nothing but the claim; or a conclusion of a text
    as long as an abstract states the claim, and nothing that is read opposes it."""
    found = what_was_found(document, sentences, claim)
    if any(repeats(claim, one) for one in found):
        return True
    read = compared(claim, sentences)
    if len(document.text.split()) < ABSTRACT or not read.stated or read.opposed or read.apart:
        return False
    concluded = (one for one, role, _ in _with_roles(document, found) if role == "conclusion")
    return any(compared(claim, [one]).stated for one in concluded)


def gives_its_numbers(claim: str, sentences: Sequence[str]) -> bool:
    """Whether a sentence gives all of a claim's measures, and is not seen to differ from it in more than a word. Times
    and doses are said of many things, so they are not looked at."""
    mine = [one for one in quantities(claim) if one.dimension not in ("", "time", "mass", "volume")]

    def gives(sentence: str) -> bool:
        given = quantities(sentence)
        agree = all(agrees_with_any(one, [it for it in given if it.dimension == one.dimension]) for one in mine)
        return agree and not {one.kind for one in differences(claim, sentence)} - {"word"}

    return bool(mine) and any(map(gives, sentences))


def _taken_back(every: Sequence[str], sentence: str, claim: str) -> bool:
    """Whether the sentences around one say that it is a belief, which the claim is not about, or was an error."""
    if sentence not in every:
        return False
    place = every.index(sentence)
    before, after = every[max(0, place - 3) : place], every[place + 1 : place + 3]
    beliefs = {belief[0] for one in before for belief in _BELIEF.finditer(one)}
    return not term_set(" ".join(beliefs)) <= term_set(claim) or any(map(_ERROR.match, after))


def _with_roles(document: Document, sentences: Sequence[str]) -> list[tuple[str, Role | None, float]]:
    """Each sentence with its role and the probability that it says what was found."""
    text = clean(document.text).strip()
    roles = roles_of(text)
    known = zip(sentence_spans(text), roles.roles, roles.found, strict=True)
    told = {text[start:end]: (role, chance) for (start, end), role, chance in known}
    return [(one, *told.get(one, (None, 0.0 if told else 1.0))) for one in sentences]


def stands(claim: str, document: Document, sentences: Sequence[str]) -> Compared:
    """How a claim stands to a document's sentences. What others believe or what was asked opposes nothing."""
    read = compared(claim, sentences)
    if may_support(read):
        return read  # the roles of its sentences are not needed
    said = [one for one, role, _ in _with_roles(document, sentences) if role not in ("background", "aim")]
    return read._replace(opposed=not may_support(compared(claim, said)))


@functools.lru_cache(maxsize=256)
def unfit(claim: str) -> str | None:
    """Why no paper decides a claim, whatever it says; None if one can."""
    _, second = two_claims(claim) or ("", "")
    if is_about_a_claim(claim):
        return "the claim is about another claim, which you can check alone"
    if REFERS.search(second):
        return "the claim makes two, which you can check alone"
    if len(claim.split()) > LONGEST:
        return "the text is too long to be one claim"
    return "the claim seems to state nothing" if names_only(claim) else None


def says_otherwise(claim: str, read: Compared) -> bool:
    """Whether sentences that may have any role have a claim's words, and say something else with them: of other things,
    turned round, what may be, or what others said. A comparison has to be stated."""
    return read.opposed or read.apart or read.exchanged or read.unsure or not read.missing or " than " in claim


def may_support(read: Compared) -> bool:
    """Whether nothing that was read differs from the claim, or a sentence says it all the same."""
    return read.stated or not read.opposed


def decides(stance: Stance, read: Compared, least: float, alike: float) -> bool:
    """Whether a stance for or against a claim is sure enough to decide a verdict: from `least`.

    Where a sentence has nearly all of the claim's words, and neither states the claim nor tells another number or
    direction, or denies it, the word that differs can be the one that matters: that needs the confidence `alike`. Where
    a sentence states the claim, REFUTES decides nothing.
    """
    if read.apart or (stance.label == "REFUTES" and read.stated):
        return False
    return (stance.confidence or 0) >= (alike if is_alike(stance, read) else least)


def is_alike(stance: Stance, read: Compared) -> bool:
    """Whether a sentence is like the claim, and is not seen to say what the stance says."""
    told = read.stated if stance.label == "SUPPORTS" else read.denied
    return not told and (read.exchanged or read.missing < OTHER_WORDS)


def is_reworded(document: Document, read: Compared) -> bool:
    """Whether a text as long as an abstract has half of a claim's words, or fewer, in each of its sentences, and none
    that is like the claim."""
    return len(document.text.split()) >= ABSTRACT and read.missing >= max(OTHER_WORDS, read.words / 2)
