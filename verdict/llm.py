"""Stances from a language model over HTTP.

The strategies: `one-step`; `two-step` (is there evidence; on which side) and `hybrid` (both steps in one question, with
examples if there are any) as in section 4.2 and appendix C of the paper on ClimateCheck's hybrid system; `batch` (many
pairs in one question, answers by number) as in section 3.3 of the one on its winning system. The prompts are ccheck's
own, with a reason, a quotation and a confidence; with `prompts = "paper"` they are the papers', which ask for the label
alone.

Claims and documents are put into prompts as JSON strings: they can't end their own quotation marks or begin a line, and
the reply's shape is fixed whatever they say. A stance that could not be made has an error and no label.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from more_itertools import chunked

from ..core.stages import VerdictStage
from ..core.types import Claim, Document, Sentence, Stance, Usage
from ..llm.model import LanguageModel
from ..llm.prompts import LabelledPair, load_pairs, load_prompt, quoted, refuse_unknown
from ..llm.types import Answer, Failure, Message, Question, estimate_tokens
from .judge import NO_TEXT, Case, Judged
from .replies import (
    Batch,
    Digits,
    EvidenceOnly,
    Hybrid,
    LabelOnly,
    OneStep,
    Polarity,
    Relevance,
    SideOnly,
    check_batch,
    check_single,
    meant,
    meant_by_number,
)

PROMPTS = {
    "one-step": ("claim", "document"),
    "two-step-relevance": ("claim", "document"),
    "two-step-polarity": ("claim", "document"),
    "hybrid": ("claim", "document", "examples"),
    "batch": ("count", "pairs", "guidance"),
    "paper-one-step": ("claim", "document"),
    "paper-two-step-relevance": ("claim", "document"),
    "paper-two-step-polarity": ("claim", "document"),
    "paper-hybrid": ("claim", "document", "examples"),
    "paper-batch": ("count", "pairs", "guidance"),
}
"""The prompts of this room and the placeholders that each must have."""
LONGEST = 40_000
"""Characters of a document that a model reads, about 10,000 tokens: an abstract and far more."""
_EXAMPLE = 4_000
_REPLIES: dict[str, tuple[Any, int]] = {
    "one-step": (OneStep, 120),
    "two-step-relevance": (Relevance, 60),
    "two-step-polarity": (Polarity, 120),
    "hybrid": (Hybrid, 125),
    "batch": (Batch, 45),
    "paper-one-step": (LabelOnly, 10),
    "paper-two-step-relevance": (EvidenceOnly, 10),
    "paper-two-step-polarity": (SideOnly, 10),
    "paper-hybrid": (LabelOnly, 10),
    "paper-batch": (Digits, 3),
}
"""The shape of the reply to each prompt, and about how many tokens it has for each pair."""

_Pair: TypeAlias = tuple[Claim, Document]
_Made: TypeAlias = tuple[Stance, tuple[Sentence, ...], Usage]


@dataclass(frozen=True, slots=True)
class PlannedPrompt:
    """A question that would be asked. Tokens are estimates; `cached`: the answer is there and costs nothing."""

    messages: tuple[Message, ...]
    prompt_tokens: int
    completion_tokens: int
    cached: bool


class LlmStances:
    """Tells what documents say about claims, with a language model. `name` is its name in results."""

    def __init__(self, llm: LanguageModel, stage: VerdictStage) -> None:
        """Raises NotFound or InvalidData for examples or prompts that can't be used."""
        self.name = f"llm:{llm.name} ({stage.strategy}{', paper' if stage.prompts == 'paper' else ''})"
        self.llm = llm
        self._stage, self._paper = stage, stage.prompts == "paper"
        self._size = stage.batch if stage.strategy == "batch" else 1
        refuse_unknown(llm.prompts_dir)
        self._steps = stage.asks()
        self._prompts = {name: load_prompt(__package__, name, PROMPTS[name], llm.prompts_dir) for name in self._steps}
        pairs = load_pairs(stage.examples) if stage.strategy == "hybrid" and stage.examples is not None else []
        self._examples = (_labelled_abstracts if self._paper else _labelled)(pairs[: stage.shots])

    def __call__(self, cases: Sequence[Case]) -> Iterator[Judged]:
        """See `StanceMethod`.

        A question of `batch` that holds pairs of several cases is in the usage of the first of them.
        """
        batches = self._batches(cases)
        outcomes = self.llm.ask_many(self._question(self._steps[0], pairs) for pairs in batches)
        left = iter(batches)
        ready: list[_Made] = []
        for case in cases:
            made: list[_Made] = []
            relevant: list[tuple[int, Answer[Any]]] = []
            for place, document in enumerate(_documents(case)):
                if _is_blank(document):
                    made.append((Stance(None, error=NO_TEXT), (), Usage()))
                    continue
                if not ready:
                    outcome = next(outcomes)
                    ready = _answers(outcome, next(left))
                    if len(self._steps) > 1 and isinstance(outcome, Answer) and outcome.value.relevant:
                        relevant.append((place, outcome))
                made.append(ready.pop(0))
                if not relevant or relevant[-1][0] != place:
                    case.tell(place, made[-1][0])
            if relevant:
                self._add_sides(case, relevant, made)
            yield Judged(
                tuple(stance for stance, _, _ in made),
                tuple(quotes for _, quotes, _ in made),
                sum((usage for _, _, usage in made), Usage()),
            )

    def _add_sides(self, case: Case, relevant: Sequence[tuple[int, Answer[Any]]], made: list[_Made]) -> None:
        """The second step: puts the sides of relevant documents into `made`."""
        documents = _documents(case)
        asked = (self._question(self._steps[1], [(case.claim, documents[place])]) for place, _ in relevant)
        for (place, outcome), side in zip(relevant, self.llm.ask_many(asked), strict=True):
            made[place] = _combined(outcome, side, documents[place])
            case.tell(place, made[place][0])

    def plan_prompts(self, cases: Sequence[Case]) -> list[PlannedPrompt]:
        """Plans the prompts without sending them. With `two-step`, every document has the second question, too."""
        planned = []
        for pairs in self._batches(cases):
            for name in self._steps:
                question = self._question(name, pairs)
                tokens, cached = _REPLIES[name][1] * len(pairs), self.llm.is_cached(question)
                planned.append(PlannedPrompt(question.messages, estimate_tokens(question.messages), tokens, cached))
        return planned

    # -- the questions

    def _batches(self, cases: Sequence[Case]) -> list[list[_Pair]]:
        """The pairs that are asked about, together in one question."""
        pairs = ((case.claim, one) for case in cases for one in _documents(case) if not _is_blank(one))
        return list(chunked(pairs, self._size))

    def _question(self, name: str, pairs: Sequence[_Pair]) -> Question[Any]:
        prompt, (shape, tokens) = self._prompts[name], _REPLIES[name]
        if self._stage.strategy == "batch":
            values = {"count": str(len(pairs)), "pairs": self._numbered(pairs), "guidance": self._guidance()}
            size = len(pairs)
            return Question(prompt.messages(**values), shape, lambda reply: check_batch(reply, size), tokens * size)
        ((claim, document),) = pairs
        read = _read(document)
        values = {"claim": quoted(claim.text), "document": quoted(self._shown(read))}
        if "examples" in PROMPTS[name]:
            values["examples"] = self._examples
        return Question(prompt.messages(**values), shape, lambda reply: check_single(reply, read))

    def _shown(self, read: Document) -> object:
        return read.content if self._paper else {"title": read.title, "text": read.text}

    def _numbered(self, pairs: Sequence[_Pair]) -> str:
        key = "abstract" if self._paper else "paper"
        return "\n".join(
            quoted({"number": number, "claim": claim.text, key: self._shown(_read(document))})
            for number, (claim, document) in enumerate(pairs, 1)
        )

    def _guidance(self) -> str:
        share = self._stage.open_share
        if share is None:
            return ""
        if self._paper:
            return f"\nTry to give 1 for no less than {share:.0%} of the pairs.\n"
        return f"Of pairs like these, expect at least {share:.0%} to be NOT_ENOUGH_INFO.\n"


def _labelled(pairs: Sequence[LabelledPair]) -> str:
    """Pairs as ccheck's own prompt shows them; empty without pairs."""
    if not pairs:
        return ""
    listed = "\n".join(map(_example, pairs))
    return f"Labelled examples, one a line:\n{listed}\n\nNow the question.\n"


def _labelled_abstracts(pairs: Sequence[LabelledPair]) -> str:
    """Pairs as the paper of climatecheck-hybrid shows them (figure 3): a claim a line, with its labelled abstracts."""
    claims: dict[str, list[dict[str, str]]] = {}
    for pair in pairs:
        claims.setdefault(pair.claim, []).append({"label": pair.label, "abstract": pair.evidence[:_EXAMPLE]})
    lines = [quoted({"claim": claim, "abstracts": abstracts}) for claim, abstracts in claims.items()]
    return "\n".join(["\nExamples, a claim a line with the labels of its abstracts:", *lines, ""]) if lines else ""


def _example(pair: LabelledPair) -> str:
    relevant = pair.label != "NOT_ENOUGH_INFO"
    polarity = pair.label if relevant else "NONE"
    return quoted({"claim": pair.claim, "paper": pair.evidence[:_EXAMPLE], "relevant": relevant, "polarity": polarity})


def _answers(outcome: Answer[Any] | Failure, pairs: Sequence[_Pair]) -> list[_Made]:
    """One for each pair of a question; the first has the usage."""
    value = outcome.value if isinstance(outcome, Answer) else getattr(outcome.error, "value", None)
    quotes: tuple[Sentence, ...] = ()
    if isinstance(value, Batch | Digits):
        stances = meant_by_number(value, len(pairs))
    elif isinstance(outcome, Answer):
        stance, quotes = meant(outcome.value, pairs[0][1])
        stances = {1: stance}
    else:
        stances = {}
    why = str(outcome.error) if isinstance(outcome, Failure) else None
    return [
        (stances.get(number) or Stance(None, error=why), quotes, outcome.usage if number == 1 else Usage())
        for number in range(1, len(pairs) + 1)
    ]


def _combined(relevance: Answer[Any], outcome: Answer[Any] | Failure, document: Document) -> _Made:
    """P(label) = P(there is evidence) · P(side | there is evidence)."""
    ((stance, quotes, usage),) = _answers(outcome, [(Claim(""), document)])
    if stance.confidence is not None:
        stance = Stance(stance.label, relevance.value.confidence * stance.confidence, stance.rationale)
    return stance, quotes, relevance.usage + usage


def _documents(case: Case) -> list[Document]:
    return [evidence.document for evidence in case.evidence]


def _is_blank(document: Document) -> bool:
    return not document.title.strip() and not document.text.strip()


def _read(document: Document) -> Document:
    """The document as far as a model reads it, with the same offsets."""
    return Document(document.id, document.title[:LONGEST], document.text[:LONGEST])
