"""Reranking by a language model that puts passages into order.

RankGPT (Sun et al., EMNLP 2023): the model reads a window of passages and answers with a permutation; the window moves
from the last passages to the first, so that a good one can come up from the bottom in one pass.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from more_itertools import map_reduce

from ..core.errors import CcheckError, InvalidData, UsageError
from ..core.stages import ListwiseStage, of_paper
from ..core.types import Usage
from ..llm.model import LanguageModel
from ..llm.prompts import LabelledPair, load_pairs, load_prompt, numbered, quoted
from ..llm.reply import check_numbers
from ..llm.types import Failure, Message, Question, Refused, Reply
from .types import BatchReranker, Request, Scores, WrongKey

LONGEST = 6_000
"""Characters of a passage that the model reads: an abstract has 1,500 to 2,500."""
_MAX_EXAMPLES = 20
PLACEHOLDERS = ("claim", "count", "passages")


class Order(Reply):
    """What the model answers: the passages' numbers, the best first."""

    order: list[int]


@dataclass(slots=True)
class _State:
    """A query on its way through the windows."""

    query: str
    passages: Sequence[str]
    order: list[int]
    usage: Usage = field(default_factory=Usage)
    error: CcheckError | None = None

    def scores(self) -> Scores:
        ranks = {index: rank for rank, index in enumerate(self.order, 1)}
        last = max(1, len(self.passages) - 1)
        values = tuple(1 - (ranks[index] - 1) / last for index in range(len(self.passages)))
        cut = tuple(len(passage) > LONGEST for passage in self.passages)
        return Scores(values, cut, logits=False, usage=self.usage)


class ListwiseReranker(BatchReranker):
    """Orders passages with a language model. Results show its `name`.

    The scores are 1 - (rank - 1) / (N - 1). If a window gets no valid answer, the query has an error, since an order of
    only some passages is not a ranking. It is WrongKey if the server answers no question.
    """

    def __init__(self, llm: LanguageModel, stage: ListwiseStage) -> None:
        """The stage's examples are shown before each question. Raises UsageError for a stride beyond the window, and
        what `load_examples` raises."""
        if stage.stride > stage.window:
            raise UsageError(f"stride is {stage.stride}; it must not be above window, which is {stage.window}")
        self.name = f"listwise:{llm.name}"
        self._llm, self._window, self._stride = llm, stage.window, stage.stride
        prompt = of_paper("listwise", stage.prompts)
        self._prompt = load_prompt(__package__, prompt, PLACEHOLDERS, llm.prompts_dir)
        examples = [] if stage.examples is None else load_examples(stage.examples)
        self._shown = [message for example in examples for message in self._turns(example)]

    def many(self, requests: Sequence[Request]) -> list[Scores | CcheckError]:
        """All queries step through their windows together, so that the server always has questions."""
        states = [_State(query, passages, list(range(len(passages)))) for query, passages in requests]
        spans = [windows(len(state.passages), self._window, self._stride) for state in states]
        for step in range(max(map(len, spans), default=0)):
            going = [
                (state, *some[step])
                for state, some in zip(states, spans, strict=True)
                if step < len(some) and state.error is None
            ]
            self._step(going)
        for state in states:
            if isinstance(state.error, Refused):
                state.error = WrongKey(str(state.error))
        return [state.error or state.scores() for state in states]

    def _step(self, going: Sequence[tuple[_State, int, int]]) -> None:
        questions = []
        for state, start, end in going:
            system, question = self._question(state.query, [state.passages[index] for index in state.order[start:end]])
            questions.append(Question((system, *self._shown, question), Order, functools.partial(_check, end - start)))
        done = 0
        try:
            for outcome, (state, start, end) in zip(self._llm.ask_many(questions), going, strict=True):
                done += 1
                state.usage += outcome.usage
                if isinstance(outcome, Failure):
                    state.error = outcome.error
                else:
                    state.order[start:end] = permuted(state.order[start:end], outcome.value.order)
        except CcheckError as error:
            for state, _, _ in going[done:]:
                state.error = error

    def _turns(self, example: Sequence[LabelledPair]) -> tuple[Message, Message]:
        """The documents of one claim as a question, and the answer: what leaves the claim open comes last."""
        _, question = self._question(example[0].claim, [pair.evidence for pair in example])
        places = sorted(range(len(example)), key=lambda place: example[place].label == "NOT_ENOUGH_INFO")
        return question, {"role": "assistant", "content": json.dumps({"order": [place + 1 for place in places]})}

    def _question(self, claim: str, passages: Sequence[str]) -> tuple[Message, Message]:
        listed = numbered("passage", passages, LONGEST)
        return self._prompt.messages(claim=quoted(claim), count=str(len(passages)), passages=listed)


def windows(count: int, window: int, stride: int) -> list[tuple[int, int]]:
    """(start, end) of each window, from the last to the first, all of the same size. None for one passage."""
    if count < 2:
        return []
    found = []
    end = count
    while True:
        start = max(0, end - window)
        found.append((start, min(count, start + window)))
        if start == 0:
            return found
        end -= stride


def permuted(items: Sequence[int], order: Sequence[int]) -> list[int]:
    """The items in an order of numbers from 1; those that it leaves out come after, as they were."""
    named = [number - 1 for number in order]
    return [items[index] for index in [*named, *(i for i in range(len(items)) if i not in set(named))]]


def load_examples(path: Path) -> list[list[LabelledPair]]:
    """The examples in a JSON Lines file of {"claim", "evidence", "label"}: the pairs of each claim that has several.

    Raises NotFound or InvalidData, which names the line.
    """
    examples = [pairs for pairs in map_reduce(load_pairs(path), lambda pair: pair.claim).values() if len(pairs) > 1]
    if not 1 <= len(examples) <= _MAX_EXAMPLES:
        raise InvalidData(
            f"{path} has {len(examples)} claims with several labelled documents; it needs 1 to {_MAX_EXAMPLES}"
        )
    return examples


def _check(size: int, reply: Order) -> None:
    """Raises ValueError unless it is a permutation of some of 1 to `size`."""
    if not reply.order:
        raise ValueError("order is empty")
    check_numbers("order", reply.order, size, "passages")
