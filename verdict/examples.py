"""Labelled pairs that a language model is shown before a question, chosen by how like the question they are."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ValidationError

from ..core.analysis import terms
from ..core.errors import InvalidData, NotFound
from ..core.types import Label
from ..llm import quoted
from .labels import parse_stance

_MOST = 20_000


@dataclass(frozen=True, slots=True)
class LabelledPair:
    """A claim, what a document says, and what that says about the claim."""

    claim: str
    evidence: str
    label: Label


class _Line(BaseModel):
    claim: str
    evidence: str
    label: str


def load_pairs(path: Path) -> list[LabelledPair]:
    """The pairs of a JSON Lines file of {"claim", "evidence", "label"}, labels in any spelling that is known.

    Raises NotFound or InvalidData, which names the line.
    """
    pairs = []
    try:
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                if not line.strip():
                    continue
                pairs.append(_pair(line, f"{path}, line {number}"))
                if len(pairs) > _MOST:
                    raise InvalidData(f"{path} has more than {_MOST:,} examples. Keep only the best")
    except FileNotFoundError as error:
        raise NotFound(f"the examples file {path} does not exist") from error
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidData(f"can't read the examples {path}: {error}") from error
    if not pairs:
        raise InvalidData(f"{path} contains no examples. Each line needs claim, evidence and label")
    return pairs


def labelled_abstracts(pairs: Sequence[LabelledPair], longest: int) -> str:
    """Pairs as the paper of climatecheck-hybrid shows them (figure 3): a claim a line, with its labelled abstracts.

    An abstract is cut after `longest` characters. Empty without pairs.
    """
    claims: dict[str, list[dict[str, str]]] = {}
    for pair in pairs:
        claims.setdefault(pair.claim, []).append({"label": pair.label, "abstract": pair.evidence[:longest]})
    lines = [quoted({"claim": claim, "abstracts": abstracts}) for claim, abstracts in claims.items()]
    return "\n".join(["\nExamples, a claim a line with the labels of its abstracts:", *lines, ""]) if lines else ""


class ExampleChooser:
    """Chooses the pairs whose claims are most like another one: by the cosine of their words, weighted by rarity."""

    def __init__(self, pairs: Sequence[LabelledPair]) -> None:
        self._pairs = tuple(pairs)
        counts = [set(terms(pair.claim)) for pair in pairs]
        found = Counter(term for bag in counts for term in bag)
        self._weights = {term: math.log(1 + len(counts) / number) for term, number in found.items()}
        self._bags = [self._unit(bag) for bag in counts]

    def choose(self, claim: str, evidence: str, count: int) -> list[LabelledPair]:
        """Up to `count` pairs, the most similar last, where a model heeds it most. The pair in question is left out."""
        wanted = self._unit(set(terms(claim)))
        asked = _normal(claim), _normal(evidence)
        candidates = (
            (math.fsum(wanted.get(term, 0.0) * weight for term, weight in bag.items()), -index)
            for index, (bag, pair) in enumerate(zip(self._bags, self._pairs, strict=True))
            if (_normal(pair.claim), _normal(pair.evidence)) != asked
        )
        return [self._pairs[-index] for _, index in reversed(heapq.nlargest(count, candidates))]

    def _unit(self, bag: set[str]) -> dict[str, float]:
        rarest = math.log(1 + len(self._pairs))
        weights = {term: self._weights.get(term, rarest) for term in sorted(bag)}
        length = math.sqrt(math.fsum(weight * weight for weight in weights.values())) or 1.0
        return {term: weight / length for term, weight in weights.items()}


def _pair(line: str, where: str) -> LabelledPair:
    try:
        found = _Line.model_validate_json(line)
        label = parse_stance(found.label)
    except ValidationError as error:
        problem = error.errors()[0]
        name = ".".join(map(str, problem["loc"])) or "the line"
        raise InvalidData(f"{where}: {name}: {problem['msg']}") from error
    except InvalidData as error:
        raise InvalidData(f"{where}: {error}") from error
    if not found.claim.strip() or not found.evidence.strip():
        raise InvalidData(f"{where}: the claim or the evidence is empty")
    return LabelledPair(found.claim, found.evidence, label)


def _normal(text: str) -> str:
    return " ".join(text.casefold().split())
