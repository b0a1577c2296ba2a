"""Rewrites claims with a language model, for retrievers that search for the result in place of the claim.

`rewrite` and `expand` as in appendix A of the CheckThat! 2025 system on task 4b, `hyde` as in its appendix D:
hypothetical documents, whose embeddings are searched with (Gao et al., ACL 2023, arXiv:2212.10496).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..core.analysis import clean
from ..core.errors import CcheckError
from ..core.stages import QueryText, RewritingStage
from ..core.types import Usage
from ..llm import Answer, Failure, LanguageModel, Prompt, Question, Refused, Reply, load_prompt, quoted

PROMPTS: dict[QueryText, tuple[str, ...]] = {"rewrite": ("claim",), "expand": ("claim",), "hyde": ("claim", "count")}
"""The prompts of this room, by the kind of text that they ask for, and the placeholders that each must have."""
LONGEST_CLAIM = 10_000
"""Characters of a claim that the model reads."""
LONGEST = 6_000
"""Characters of a text that it writes; what is longer is not what was asked for."""
_PAPER_TOKENS = 400
"""Tokens of a hypothetical paper, as JSON."""


@dataclass(frozen=True, slots=True)
class Rewritten:
    """The rewritten texts of a claim: one each of `rewrite` and `expand`, as many of `hyde` as papers were wanted.

    If one of them could not be made there are none, and `error` says why; `usage` has what was paid all the same.
    """

    texts: Mapping[QueryText, tuple[str, ...]]
    usage: Usage = field(default_factory=Usage)
    error: CcheckError | None = None


class Rewrite(Reply):
    """What the model answers when it is asked to rewrite."""

    rewritten: str


class Expansion(Reply):
    """What the model answers when it is asked to expand."""

    sentences: str


class CorrectedExpansion(Reply):
    """The same as the paper's prompt asks for it: the claim corrected, and sentences."""

    corrected: str
    sentences: str


class Paper(Reply):
    """A hypothetical paper."""

    title: str
    abstract: str


class Papers(Reply):
    """What the model answers when it is asked for hypothetical papers."""

    papers: list[Paper]


def rewrite(
    claims: Sequence[str], kinds: Collection[QueryText], stage: RewritingStage, llm: LanguageModel
) -> list[Rewritten]:
    """The texts of those kinds for each claim, or why they could not be made. `claim` is none of them.

    Each kind is one question a claim; all are asked together. `expand` gives the claim and the sentences after it
    (with the paper's prompts the corrected claim),
    `hyde` a title, a line end and an abstract for each paper.

    Raises InvalidData or NotFound for prompts that can't be used, and, of a stage that is required, Refused where the
    server answers no question at all.
    """
    wanted = [kind for kind in PROMPTS if kind in kinds]
    paper = stage.prompts == "paper"
    prompts = {
        kind: load_prompt(__package__, f"paper-{kind}" if paper else kind, PROMPTS[kind], llm.prompts_dir)
        for kind in wanted
    }
    answers = llm.ask_many(_questions(claims, prompts, stage.papers, paper))
    made: list[Rewritten] = []
    try:
        for claim in claims:
            made.append(_rewritten(claim, {kind: next(answers) for kind in wanted}))
    except Refused as error:
        if stage.required:
            raise
        made += [Rewritten({}, error=error)] * (len(claims) - len(made))
    return made


def _questions(
    claims: Sequence[str], prompts: Mapping[QueryText, Prompt], papers: int, paper: bool
) -> Iterator[Question[Any]]:
    for claim in claims:
        shown = quoted(claim[:LONGEST_CLAIM])
        for kind, prompt in prompts.items():
            if kind == "rewrite":
                yield Question(prompt.messages(claim=shown), Rewrite, lambda reply: _check(reply.rewritten))
            elif kind == "expand" and paper:
                yield Question(prompt.messages(claim=shown), CorrectedExpansion, _check_corrected)
            elif kind == "expand":
                yield Question(prompt.messages(claim=shown), Expansion, lambda reply: _check(reply.sentences))
            else:
                messages = prompt.messages(claim=shown, count=str(papers))
                yield Question(messages, Papers, _check_papers(papers), _PAPER_TOKENS * papers)


def _rewritten(claim: str, answers: Mapping[QueryText, Answer[Any] | Failure]) -> Rewritten:
    texts: dict[QueryText, tuple[str, ...]] = {}
    usage = sum((answer.usage for answer in answers.values()), Usage())
    for kind, answer in answers.items():
        if isinstance(answer, Failure):
            return Rewritten({}, usage, answer.error)
        reply = answer.value
        if isinstance(reply, Rewrite):
            texts[kind] = (_plain(reply.rewritten),)
        elif isinstance(reply, Expansion):
            texts[kind] = (f"{claim} {_plain(reply.sentences)}",)
        elif isinstance(reply, CorrectedExpansion):
            texts[kind] = (f"{_plain(reply.corrected)} {_plain(reply.sentences)}",)
        else:
            texts[kind] = tuple(f"{_plain(paper.title)}\n{_plain(paper.abstract)}" for paper in reply.papers)
    return Rewritten(texts, usage)


def _check_corrected(reply: CorrectedExpansion) -> None:
    _check(reply.corrected, "corrected")
    _check(reply.sentences, "sentences")


def _check(text: str, what: str = "the text") -> None:
    if not _plain(text):
        raise ValueError(f"{what} is empty")
    if len(text) > LONGEST:
        raise ValueError(f"{what} has {len(text):,} characters; the limit is {LONGEST:,}")


def _check_papers(count: int) -> Callable[[Papers], None]:
    def check(reply: Papers) -> None:
        if len(reply.papers) != count:
            raise ValueError(f"there are {len(reply.papers)} papers, but {count} were asked for")
        for number, paper in enumerate(reply.papers, 1):
            _check(paper.title, f"the title of paper {number}")
            _check(paper.abstract, f"the abstract of paper {number}")

    return check


def _plain(text: str) -> str:
    """On one line, without what no index takes."""
    return " ".join(clean(text).split())
