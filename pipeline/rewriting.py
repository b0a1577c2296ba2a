"""Rewrites claims with a language model, for retrievers that search for the result in place of the claim.

`rewrite` and `expand` as in appendix A of the CheckThat! 2025 system on task 4b, `hyde` as in its appendix D:
hypothetical documents, whose embeddings are searched with (Gao et al., ACL 2023, arXiv:2212.10496).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ..core.analysis import clean
from ..core.errors import CcheckError
from ..core.stages import QueryText, RewritingStage, of_paper
from ..core.types import Usage
from ..llm.model import LanguageModel
from ..llm.prompts import load_prompt, quoted
from ..llm.types import Answer, Failure, Question, Refused, Reply

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


Made: TypeAlias = Rewrite | Expansion | CorrectedExpansion | Papers


def rewrite(
    claims: Sequence[str], kinds: Collection[QueryText], stage: RewritingStage, llm: LanguageModel
) -> list[Rewritten]:
    """The texts of those kinds for each claim, or why they could not be made. `claim` is none of them.

    Each kind is one question a claim; all are asked together. `expand` gives the claim and the sentences after it
    (with the paper's prompts the corrected claim), `hyde` a title, a line end and an abstract for each paper.

    Raises InvalidData or NotFound for prompts that can't be used, and, of a stage that is required, Refused where the
    server answers no question at all.
    """
    paper = stage.prompts == "paper"
    shapes = {"rewrite": Rewrite, "expand": CorrectedExpansion if paper else Expansion, "hyde": Papers}
    wanted = [kind for kind in PROMPTS if kind in kinds]
    prompts = {
        kind: load_prompt(__package__, of_paper(kind, stage.prompts), PROMPTS[kind], llm.prompts_dir) for kind in wanted
    }

    def questions() -> Iterator[Question[Any]]:
        for claim in claims:
            values = {"claim": quoted(claim[:LONGEST_CLAIM]), "count": str(stage.papers)}
            for kind in wanted:
                messages = prompts[kind].messages(**{name: values[name] for name in PROMPTS[kind]})
                tokens = _PAPER_TOKENS * stage.papers if kind == "hyde" else 0
                yield Question(messages, shapes[kind], lambda reply: _texts("", reply, stage.papers), tokens)

    answers = llm.ask_many(questions())
    made: list[Rewritten] = []
    try:
        for claim in claims:
            made.append(_rewritten(claim, {kind: next(answers) for kind in wanted}, stage.papers))
    except Refused as error:
        if stage.required:
            raise
        made += [Rewritten({}, error=error)] * (len(claims) - len(made))
    return made


def _rewritten(claim: str, answers: Mapping[QueryText, Answer[Made] | Failure], papers: int) -> Rewritten:
    texts: dict[QueryText, tuple[str, ...]] = {}
    usage = sum((answer.usage for answer in answers.values()), Usage())
    for kind, answer in answers.items():
        if isinstance(answer, Failure):
            return Rewritten({}, usage, answer.error)
        texts[kind] = _texts(claim, answer.value, papers)
    return Rewritten(texts, usage)


def _texts(claim: str, reply: Made, papers: int) -> tuple[str, ...]:
    """The texts that a reply has. Raises ValueError, in words for the model, for one that can't be used."""
    if isinstance(reply, Rewrite):
        return (_plain(reply.rewritten),)
    if isinstance(reply, Expansion):
        return (f"{claim} {_plain(reply.sentences)}",)
    if isinstance(reply, CorrectedExpansion):
        return (f"{_plain(reply.corrected, 'corrected')} {_plain(reply.sentences, 'sentences')}",)
    if len(reply.papers) != papers:
        raise ValueError(f"there are {len(reply.papers)} papers, but {papers} were asked for")
    titles = [_plain(one.title, f"the title of paper {number}") for number, one in enumerate(reply.papers, 1)]
    abstracts = [_plain(one.abstract, f"the abstract of paper {number}") for number, one in enumerate(reply.papers, 1)]
    return tuple(map("\n".join, zip(titles, abstracts, strict=True)))


def _plain(text: str, what: str = "the text") -> str:
    """On one line, without what no index takes. Raises ValueError if nothing is left, or if it is too long."""
    plain = " ".join(clean(text).split())
    if not plain:
        raise ValueError(f"{what} is empty")
    if len(text) > LONGEST:
        raise ValueError(f"{what} has {len(text):,} characters; the limit is {LONGEST:,}")
    return plain
