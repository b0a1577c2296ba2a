"""Stances and verdicts from a language model over HTTP.

The strategies: `one-step`; `two-step` (is there evidence; on which side), `few-shot` and `hybrid` (both steps in one
question) as in section 4.2 and appendix C of the paper on ClimateCheck's hybrid system; `batch` (many pairs in one
question, answers by number) as in section 3.3 of the one on its winning system. The prompts are ccheck's own, with a
reason, a quotation and a confidence; with `prompts = "paper"` they are the papers', which ask for the label alone.

Claims and documents are put into prompts as JSON strings: they can't end their own quotation marks or begin a line, and
the reply's shape is fixed whatever they say. A stance that could not be made has an error and no label.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from more_itertools import chunked
from pydantic import BaseModel

from ..core.errors import UsageError
from ..core.stages import VerdictStage
from ..core.types import Claim, Document, Evidence, Sentence, Stance, Usage, Verdict
from ..llm import (
    Answer,
    Failure,
    Interrupted,
    LanguageModel,
    Message,
    Question,
    estimate_tokens,
    load_prompt,
    quoted,
    refuse_unknown,
)
from ..llm import Prompt as PromptText
from .conclude import conclude, counted
from .examples import ExampleChooser, LabelledPair, labelled_abstracts, load_pairs
from .judge import NO_TEXT, Case, Judged
from .replies import (
    Batch,
    Conclusion,
    Digits,
    EvidenceOnly,
    Hybrid,
    LabelOnly,
    OneStep,
    Polarity,
    Quoting,
    Relevance,
    SideOnly,
    check_batch,
    check_digits,
    check_quoting,
    check_rationale,
    quote_of,
    stance_of,
    sure_answers,
)

if TYPE_CHECKING:
    from ..core.types import Vector

PROMPTS = {
    "one-step": ("claim", "document"),
    "two-step-relevance": ("claim", "document"),
    "two-step-polarity": ("claim", "document"),
    "few-shot": ("claim", "document", "examples"),
    "hybrid": ("claim", "document", "examples"),
    "batch": ("count", "pairs", "guidance"),
    "conclude": ("claim", "evidence"),
    "paper-one-step": ("claim", "document"),
    "paper-two-step-relevance": ("claim", "document"),
    "paper-two-step-polarity": ("claim", "document"),
    "paper-hybrid": ("claim", "document", "examples"),
    "paper-batch": ("count", "pairs", "guidance"),
}
"""The prompts of this room and the placeholders that each must have."""
PROMPTS_ELSEWHERE = (
    *("listwise", "rewrite", "expand", "hyde", "additional-summary", "additional-posts"),
    *("questions", "queries", "answer", "veracity", "ev2r"),
    *("figures", "figure-description", "grounding-passages"),
    *("paper-listwise", "paper-rewrite", "paper-expand", "paper-hyde"),
)
LONGEST = 40_000
"""Characters of a document that a model reads, about 10,000 tokens: an abstract and far more."""
_EXAMPLE = 4_000
_REPLY_TOKENS: dict[Any, int] = {
    OneStep: 120,
    Relevance: 60,
    Polarity: 120,
    Hybrid: 125,
    LabelOnly: 10,
    EvidenceOnly: 10,
    SideOnly: 10,
}
_BATCH_TOKENS, _DIGIT_TOKENS = 45, 3

T = TypeVar("T", bound=BaseModel)
_Made = tuple[Stance, tuple[Sentence, ...], Usage]


@dataclass(frozen=True, slots=True)
class PlannedPrompt:
    """A question that would be asked. Tokens are estimates; `cached`: the answer is there and costs nothing.

    `conditional`: it is asked only where the question before it, of the same document, is answered by yes.
    """

    messages: tuple[Message, ...]
    prompt_tokens: int
    completion_tokens: int
    cached: bool
    conditional: bool = False


class LlmStances:
    """Tells what documents say about claims, with a language model. `name` is its name in results."""

    def __init__(
        self, llm: LanguageModel, stage: VerdictStage, embed: Callable[[list[str]], Vector] | None = None
    ) -> None:
        """`embed` turns texts into unit vectors, for examples by similarity; without it their words are compared.

        Of the stage, `strategy`, `examples` and `shots` (few-shot and hybrid), `batch` and `open_share` (batch) count.
        Raises UsageError for few-shot without examples, NotFound or InvalidData for examples or prompts that can't be
        used.
        """
        self.name = f"llm:{llm.name} ({stage.strategy}{', paper' if stage.prompts == 'paper' else ''})"
        self.llm = llm
        self._stage = stage
        refuse_unknown(llm.prompts_dir, (*PROMPTS, *PROMPTS_ELSEWHERE))
        self._paper = stage.prompts == "paper"
        names = ("two-step-relevance", "two-step-polarity") if stage.strategy == "two-step" else (stage.strategy,)
        # The paper's few-shot is its hybrid prompt with examples.
        own = {name: f"paper-{name}".replace("few-shot", "hybrid") if self._paper else name for name in names}
        self._prompts: dict[str, PromptText] = {name: _prompt(llm, file) for name, file in own.items()}
        self._pairs: list[LabelledPair] = []
        self._chooser: ExampleChooser | None = None
        if stage.strategy in ("few-shot", "hybrid") and stage.examples is not None:
            self._pairs = load_pairs(stage.examples)
            if stage.choice == "similar":
                self._chooser = ExampleChooser(self._pairs, embed)
        elif stage.strategy == "few-shot":
            raise UsageError(
                "the strategy few-shot needs examples. Name a JSON Lines file of claim, evidence and label in the "
                "recipe (verdict.examples), or use the strategy one-step"
            )

    def __call__(self, cases: Sequence[Case]) -> Iterator[Judged]:
        """See `StanceMethod`.

        At an interrupt what was answered is still given, and then KeyboardInterrupt is raised. A question of `batch`
        that holds pairs of several cases is in the usage of the first of them.
        """
        if self._stage.strategy == "batch":
            return self._batched(cases)
        return self._two_steps(cases) if self._stage.strategy == "two-step" else self._one_by_one(cases)

    def plan_prompts(self, cases: Sequence[Case]) -> list[PlannedPrompt]:
        """Plans the prompts without sending them. With `two-step`, every document has the second question, too."""
        if self._stage.strategy == "batch":
            return [
                self._planned(self._batch_question(some), self._batch_tokens * len(some))
                for some in self._batches(cases)
            ]
        planned = []
        for claim, document in _pairs(cases):
            if self._stage.strategy == "two-step":
                relevance = self._relevance(claim, document)
                planned.append(self._planned(relevance, _REPLY_TOKENS[relevance.reply]))
                polarity = self._polarity(claim, document)
                planned.append(self._planned(polarity, _REPLY_TOKENS[polarity.reply], conditional=True))
            else:
                question = self._question(claim, document)
                planned.append(self._planned(question, _REPLY_TOKENS[question.reply]))
        return planned

    def _planned(self, question: Question[T], tokens: int, *, conditional: bool = False) -> PlannedPrompt:
        messages = question.messages
        return PlannedPrompt(messages, estimate_tokens(messages), tokens, self.llm.is_cached(question), conditional)

    # -- one document, one question

    def _one_by_one(self, cases: Sequence[Case]) -> Iterator[Judged]:
        stream = _Stream(self.llm.ask_many(self._question(claim, document) for claim, document in _pairs(cases)))
        for case in cases:
            made = []
            for document in _documents(case):
                made.append(_unread() if _is_blank(document) else _quoting(stream.take(), document))
            yield from stream.deliver(made)
        stream.finish()
        stream.check()

    def _question(self, claim: Claim, document: Document) -> Question[Any]:
        values = {"claim": quoted(claim.text), "document": _document(document)}
        if self._paper:
            values["document"] = quoted(_read(document).content)
            if self._stage.strategy != "one-step":
                values["examples"] = labelled_abstracts(self._shown_pairs(claim, document), _EXAMPLE)
            return Question(self._prompts[self._stage.strategy].messages(**values), LabelOnly)
        if self._stage.strategy != "one-step":
            values["examples"] = self._examples(claim, document)
        shape: type[Quoting] = Hybrid if self._stage.strategy == "hybrid" else OneStep
        messages = self._prompts[self._stage.strategy].messages(**values)
        return Question(messages, shape, lambda reply: check_quoting(reply, _read(document)))

    def _shown_pairs(self, claim: Claim, document: Document) -> list[LabelledPair]:
        if self._chooser is not None:
            return self._chooser.choose(claim.text, document.text, self._stage.shots)
        return self._pairs[: self._stage.shots]

    def _examples(self, claim: Claim, document: Document) -> str:
        if not self._pairs:
            return ""
        hybrid = self._stage.strategy == "hybrid"
        lines = []
        for pair in self._shown_pairs(claim, document):
            shown = {"claim": pair.claim, "paper": pair.evidence[:_EXAMPLE]}
            if hybrid:
                relevant = pair.label != "NOT_ENOUGH_INFO"
                shown |= {"relevant": relevant, "polarity": pair.label if relevant else "NONE"}  # type: ignore[dict-item]
            else:
                shown["label"] = pair.label
            lines.append(quoted(shown))
        listed = "\n".join(lines)
        return f"Labelled examples, one a line:\n{listed}\n\nNow the question.\n" if hybrid else listed

    # -- two questions

    def _two_steps(self, cases: Sequence[Case]) -> Iterator[Judged]:
        first = _Stream(self.llm.ask_many(self._relevance(claim, document) for claim, document in _pairs(cases)))
        for case in cases:
            outcomes = [None if _is_blank(document) else first.take() for document in _documents(case)]
            relevant = [
                document
                for document, outcome in zip(_documents(case), outcomes, strict=True)
                if isinstance(outcome, Answer) and outcome.value.relevant
            ]
            # After an interrupt nothing more is asked.
            asked = () if first.stopping else [self._polarity(case.claim, document) for document in relevant]
            second = _Stream(self.llm.ask_many(asked), interrupted=first.stopping)
            made = []
            for document, outcome in zip(_documents(case), outcomes, strict=True):
                if outcome is None:
                    made.append(_unread())
                elif isinstance(outcome, Failure):
                    made.append(_failed(outcome))
                elif outcome.value.relevant:
                    made.append(_combined(outcome, second.take(), document))
                else:
                    reply = outcome.value
                    made.append((_left_open(reply), (), outcome.usage))
            second.finish()
            yield from second.deliver(made)
        first.finish()
        first.check()

    def _relevance(self, claim: Claim, document: Document) -> Question[Any]:
        if self._paper:
            return self._of_paper("two-step-relevance", claim, document, EvidenceOnly)
        messages = self._prompts["two-step-relevance"].messages(claim=quoted(claim.text), document=_document(document))
        return Question(messages, Relevance, check_rationale)

    def _of_paper(self, prompt: str, claim: Claim, document: Document, shape: type[T]) -> Question[T]:
        shown = {"claim": quoted(claim.text), "document": quoted(_read(document).content)}
        return Question(self._prompts[prompt].messages(**shown), shape)

    def _polarity(self, claim: Claim, document: Document) -> Question[Any]:
        if self._paper:
            return self._of_paper("two-step-polarity", claim, document, SideOnly)
        messages = self._prompts["two-step-polarity"].messages(claim=quoted(claim.text), document=_document(document))
        return Question(messages, Polarity, lambda reply: check_quoting(reply, _read(document)))

    # -- many documents, one question

    def _batched(self, cases: Sequence[Case]) -> Iterator[Judged]:
        batches = self._batches(cases)
        stream = _Stream(self.llm.ask_many(self._batch_question(some) for some in batches))
        sizes = iter([len(some) for some in batches])
        ready: list[_Made] = []
        for case in cases:
            made = []
            for document in _documents(case):
                if _is_blank(document):
                    made.append(_unread())
                    continue
                if not ready:
                    ready = _answers(stream.take(), next(sizes))
                made.append(ready.pop(0))
            yield from stream.deliver(made)
        stream.finish()
        stream.check()

    def _batches(self, cases: Sequence[Case]) -> list[list[tuple[Claim, Document]]]:
        return list(chunked(_pairs(cases), self._stage.batch))

    @property
    def _batch_tokens(self) -> int:
        return _DIGIT_TOKENS if self._paper else _BATCH_TOKENS

    def _batch_question(self, pairs: Sequence[tuple[Claim, Document]]) -> Question[Any]:
        share = self._stage.open_share
        if self._paper:
            lines = [
                quoted({"number": number, "claim": claim.text, "abstract": _read(document).content})
                for number, (claim, document) in enumerate(pairs, 1)
            ]
            guidance = "" if share is None else f"\nTry to give 1 for no less than {share:.0%} of the pairs.\n"
            messages = self._prompts["batch"].messages(count=str(len(pairs)), pairs="\n".join(lines), guidance=guidance)
            return Question(messages, Digits, lambda reply: check_digits(reply, len(pairs)), _DIGIT_TOKENS * len(pairs))
        lines = [
            quoted({"number": number, "claim": claim.text, "paper": _shown(document)})
            for number, (claim, document) in enumerate(pairs, 1)
        ]
        guidance = "" if share is None else f"Of pairs like these, expect at least {share:.0%} to be NOT_ENOUGH_INFO.\n"
        messages = self._prompts["batch"].messages(count=str(len(pairs)), pairs="\n".join(lines), guidance=guidance)
        return Question(messages, Batch, lambda reply: check_batch(reply, len(pairs)), _BATCH_TOKENS * len(pairs))


def conclude_by_model(llm: LanguageModel, claim: Claim, evidence: Sequence[Evidence]) -> tuple[Verdict, Usage]:
    """The claim's verdict by one more question over the evidence with its stances, and what it cost.

    Documents without a stance are left out, and weigh on the verdict as on the rule's (`counted`). If none has one,
    nothing is asked, and the verdict has no label. Raises NotFound or InvalidData for a prompt of the user's that can't
    be used; what fails else is the verdict's error.
    """
    method = f"llm:{llm.name} (conclusion)"
    prompt = _prompt(llm, "conclude")
    read = [item for item in evidence if item.stance is not None and item.stance.label is not None]
    if not read:
        return conclude(evidence, method), Usage()
    if any(item.stance is not None and item.stance.interrupted for item in evidence):
        error = "interrupted before all of the evidence was judged"
        return counted(Verdict(None, method=method, error=error), evidence), Usage()
    lines = []
    for number, item in enumerate(read, 1):
        stance = item.stance
        assert stance is not None
        lines.append(
            quoted(
                {
                    "number": number,
                    "title": item.document.title[:500],
                    "stance": stance.label,
                    "confidence": None if stance.confidence is None else round(stance.confidence, 3),
                    "rationale": stance.rationale,
                    "sentences": [sentence.text[:2_000] for sentence in item.sentences],
                }
            )
        )
    messages = prompt.messages(claim=quoted(claim.text), evidence="\n".join(lines))
    (outcome,) = llm.ask_many([Question(messages, Conclusion, check_rationale)])
    if isinstance(outcome, Failure):
        return counted(Verdict(None, method=method, error=str(outcome.error)), evidence), outcome.usage
    reply = outcome.value
    made = stance_of(reply.label, reply.confidence, reply.rationale)
    return counted(Verdict(made.label, made.confidence, made.rationale, method), evidence), outcome.usage


class _Stream(Generic[T]):
    """The outcomes of questions, one after the other, and what becomes of an interrupt between them.

    `stopping`: there was one. `take` still gives what was answered before it; `interrupted`: nothing more will come.
    """

    def __init__(self, outcomes: Iterator[Answer[T] | Failure], *, interrupted: bool = False) -> None:
        self._outcomes = outcomes
        self.stopping = self.interrupted = interrupted

    def take(self) -> Answer[T] | Failure:
        outcome = self._next()
        if outcome is None:
            outcome = Failure(Interrupted())
        self.stopping |= isinstance(outcome, Failure) and isinstance(outcome.error, Interrupted)
        return outcome

    def finish(self) -> None:
        """Nothing more is to be taken. Notices an interrupt that came after the last one was."""
        if not self.interrupted:
            self._next()

    def deliver(self, made: Sequence[_Made]) -> Iterator[Judged]:
        """Yields the answer for a case, then raises the interrupt if nothing more will come."""
        if not self.stopping or any(stance.label is not None for stance, _, _ in made):
            yield Judged(
                tuple(stance for stance, _, _ in made),
                tuple(quotes for _, quotes, _ in made),
                sum((usage for _, _, usage in made), Usage()),
            )
        self.check()

    def check(self) -> None:
        if self.interrupted:
            raise KeyboardInterrupt

    def _next(self) -> Answer[T] | Failure | None:
        if not self.interrupted:
            try:
                return next(self._outcomes, None)
            except KeyboardInterrupt:
                self.stopping = self.interrupted = True
        return None


def _quoting(outcome: Answer[Quoting] | Failure, document: Document) -> _Made:
    if isinstance(outcome, Failure):
        return _failed(outcome)
    reply = outcome.value
    if isinstance(reply, LabelOnly | SideOnly):
        return Stance(reply.label), (), outcome.usage
    return stance_of(reply.label, reply.confidence, reply.rationale), quote_of(reply, document), outcome.usage


def _left_open(reply: Relevance | EvidenceOnly) -> Stance:
    if isinstance(reply, EvidenceOnly):
        return Stance("NOT_ENOUGH_INFO")
    return stance_of("NOT_ENOUGH_INFO", reply.confidence, reply.rationale)


def _combined(relevance: Answer[Relevance], polarity: Answer[Polarity] | Failure, document: Document) -> _Made:
    """P(label) = P(there is evidence) · P(side | there is evidence)."""
    stance, quotes, usage = _quoting(polarity, document)  # type: ignore[arg-type]
    if stance.confidence is not None and stance.label is not None:
        confidence = relevance.value.confidence * stance.confidence
        stance = stance_of(stance.label, confidence, stance.rationale or "")
    return stance, quotes, relevance.usage + usage


def _answers(outcome: Answer[Any] | Failure, size: int) -> list[_Made]:
    """One for each pair of a batch; the first has the usage."""
    if isinstance(outcome, Answer) and isinstance(outcome.value, Digits):
        return [(Stance(label), (), Usage() if n else outcome.usage) for n, label in enumerate(outcome.value.labels)]
    if isinstance(outcome, Failure):
        last = getattr(outcome.error, "value", None)
        items = sure_answers(last, size) if isinstance(last, Batch) else {}
    else:
        items = {item.number: item for item in outcome.value.answers}
    made: list[_Made] = []
    for number in range(1, size + 1):
        usage = outcome.usage if number == 1 else Usage()
        item = items.get(number)
        if item is not None:
            made.append((stance_of(item.label, item.confidence, item.rationale), (), usage))
        else:
            assert isinstance(outcome, Failure)
            made.append((_unjudged(outcome), (), usage))
    return made


def _failed(failure: Failure) -> _Made:
    return _unjudged(failure), (), failure.usage


def _unjudged(failure: Failure) -> Stance:
    return Stance(None, error=str(failure.error), interrupted=isinstance(failure.error, Interrupted))


def _unread() -> _Made:
    return Stance(None, error=NO_TEXT), (), Usage()


def _prompt(llm: LanguageModel, name: str) -> PromptText:
    return load_prompt(__package__, name, PROMPTS[name], llm.prompts_dir)


def _pairs(cases: Sequence[Case]) -> Iterator[tuple[Claim, Document]]:
    """The pairs that are asked about."""
    for case in cases:
        for document in _documents(case):
            if not _is_blank(document):
                yield case.claim, document


def _documents(case: Case) -> list[Document]:
    return [evidence.document for evidence in case.evidence]


def _is_blank(document: Document) -> bool:
    return not document.title.strip() and not document.text.strip()


def _read(document: Document) -> Document:
    """The document as far as a model reads it, with the same offsets."""
    return Document(document.id, document.title[:LONGEST], document.text[:LONGEST])


def _shown(document: Document) -> dict[str, str]:
    read = _read(document)
    return {"title": read.title, "text": read.text}


def _document(document: Document) -> str:
    return quoted(_shown(document))
