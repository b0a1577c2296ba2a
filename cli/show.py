"""Prints a result for people to read at a glance."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from ..core.analysis import matches
from ..core.citation import citation_of, on_pages
from ..core.text import shortened
from ..core.types import Stance
from ..core.words import OPEN, as_shown, confidence_in_words, in_words, says, sure
from .common import print_hanging, printable

if TYPE_CHECKING:
    from rich.console import Console

    from ..core.question import QuestionAnswer
    from ..core.recipe import Recipe
    from ..core.types import Evidence, Hit, Result, StageKind, Verdict
    from ..service import Check

STYLES = {"SUPPORTS": "bold green", "REFUTES": "bold red", "CONFLICTING": "bold yellow", "NOT_ENOUGH_INFO": "bold"}
INDENT = 5
CLAIM_CHARS = 500
"""Characters of a claim that are shown."""
CAPTION_CHARS = 200
"""Characters of a figure's caption that are shown."""


def show_result(
    console: Console,
    result: Result,
    recipe: Callable[[], Recipe],
    *,
    filters: Sequence[str] = (),
    explain: bool = False,
) -> None:
    """Print the ranking with its sentences, then the verdict line.

    `recipe` has the stages; `explain` adds each document's way through those that ran.
    """
    claim = printable(result.claim.text)
    if len(claim) > CLAIM_CHARS:
        claim = f"{claim[:CLAIM_CHARS].rstrip()} … ({len(claim):,} characters)"
    print_hanging(console, Text("Claim  ", "bold"), claim, 7)
    console.print()
    if result.questions is not None:
        _show_questions(console, result.questions)
    elif not result.evidence:
        passing = f" with {printable(' and '.join(filters))}" if filters else ""
        degraded = any(warning.startswith("retrieval is degraded") for warning in result.warnings)
        none = "was found, but retrieval is degraded" if degraded else "bears on this claim"
        console.print(f"No document{passing} {none}.\n", soft_wrap=True)
    if _nothing_bears(result, recipe) and result.evidence:
        note = (
            f"Nothing in this collection seems to bear on the claim (probability {result.relevance:.2f}). What follows "
            "only shares words or a subject with it."
        )
        print_hanging(console, "", Text(note, "bold yellow"), 0)
        console.print()
    # What failed for many documents is said once, with the verdict.
    said = {result.verdict.error or ""} if result.verdict is not None else set()
    for evidence, part in as_shown(result):
        _show_evidence(console, evidence, part, result.claim.text, said)
        if explain:
            _show_way(console, evidence.hit, recipe(), result.scored_by)
        console.print()
    if explain and result.fused_by is not None:
        by = "the server, with its rrf retriever" if result.fused_by == "server" else "ccheck"
        print_hanging(console, "", Text(f"The retrievers' rankings were fused by {by}.", "dim"), 0)
    if result.verdict is not None:
        print_hanging(console, Text("Verdict  ", "bold"), _verdict(result.verdict), 9)
        if result.verdict.label is not None and result.verdict.error:
            print_hanging(console, " " * 9, Text(printable(result.verdict.error), "yellow"), 9)
        if result.verdict.label is not None:
            print_hanging(console, " " * 9, Text(f"Judged by {printable(result.verdict.method)}", "dim"), 9)


def show_record(console: Console, check: Check) -> None:
    """Print the id that a check is kept under, and what people said about it."""
    for one in check.corrections:
        said = f"{one.what}{f': {one.doc_id}' if one.doc_id else ''}{f' ({one.label})' if one.label else ''}"
        by = f"  {one.user or 'somebody'}, {one.created[:10]}"
        line = Text.assemble((printable(said), "bold yellow"), (printable(by), "dim"))
        print_hanging(console, Text("Corrected  ", "bold"), line, 11)
        if one.note:
            print_hanging(console, " " * 11, printable(one.note), 11)
    if check.kept:
        print_hanging(
            console, Text("Kept as ", "dim"), Text(f"{printable(check.id)} (ccheck show, ccheck correct)", "dim"), 8
        )


def _nothing_bears(result: Result, recipe: Callable[[], Recipe]) -> bool:
    """Whether the estimate of relevance decided, or would have if somebody had asked for a verdict."""
    if result.verdict is not None or result.relevance is None:
        return result.verdict is not None and result.verdict.method == "relevance"
    from ..core.stages import LEAST_RELEVANCE

    least = recipe().verdict.least_relevance
    return result.relevance < (LEAST_RELEVANCE if least is None else least)


def _show_questions(console: Console, questions: Sequence[QuestionAnswer]) -> None:
    """Each question with its answer, what the answer cites, and what was searched for."""
    for number, one in enumerate(questions, 1):
        print_hanging(console, Text(f"{f'Q{number}':>3}  ", "bold"), Text(printable(one.question), "bold cyan"), INDENT)
        if one.answer is not None:
            _print_below(console, one.answer, "" if one.answered else "yellow")
        if one.error is not None:
            _print_below(console, f"no answer: {one.error}", "yellow")
        for citation in one.citations:
            _print_below(console, f"{citation.doc_id} [{citation.start}:{citation.end}]", "dim")
        if one.queries:
            _print_below(console, f"searched for: {'; '.join(one.queries)}", "dim")
        console.print()
    if not questions:
        console.print("No question was asked about this claim.\n", soft_wrap=True)


def _show_evidence(console: Console, evidence: Evidence, part: str, claim: str, said: set[str]) -> None:
    """`part`: see `as_shown`. `said` has the errors that need not be told again, and gets this one's."""
    document = evidence.document
    cited = citation_of(document)
    title = printable(document.title) or printable(shortened(document.text, 80))
    year = printable(str(document.metadata.get("year") or cited.year)).strip()
    head = Text.assemble((title, "bold cyan"), f" ({year})" if year else "")
    if evidence.stance is not None:
        head.append("  ").append(_stance(evidence.stance, part, said))
    print_hanging(console, Text(f"{evidence.hit.rank:>3}  ", "bold"), head, INDENT)
    if cited.retracted:
        _print_below(console, "This paper was retracted.", "bold red")
    stance = evidence.stance or Stance(None)
    if reason := " · ".join(filter(None, (confidence_in_words(stance), (stance.rationale or "").strip()))):
        _print_below(console, reason)
    if cited.authors or cited.journal:
        _print_below(console, " · ".join(part for part in (cited.names(), cited.journal) if part), "dim")
    for sentence in evidence.sentences:
        about = printable(", ".join(filter(None, (in_words(sentence), on_pages(sentence)))))
        _print_below(console, _marked(sentence.text, claim).append(f"  [{about}]" if about else "", "dim"))
    for line in _grounding(evidence):
        _print_below(console, line)
    doi = cited.doi or document.metadata.get("doi")
    found_by = [f"{name} #{rank}" for name, rank in evidence.hit.ranks.items()]
    facts = [f"{evidence.hit.score:.4g}", *found_by, *([f"doi:{doi}"] if doi else []), document.id]
    _print_below(console, " · ".join(facts), "dim")


def _grounding(evidence: Evidence) -> Iterator[Text]:
    """The figures and passages of the full text that ground the stance."""
    for figure in (evidence.grounding or {}).get("figures", ()):
        label, image = printable(figure["label"]), printable(figure["image"] or "")
        caption = printable(figure["caption"][:CAPTION_CHARS])
        yield Text.assemble((label, "bold"), f"  {caption}", (f"  [{image}]" if image else "", "dim"))
    for passage in (evidence.grounding or {}).get("passages", ()):
        section = printable(passage["section"])
        yield Text.assemble((f"{section}: " if section else "", "dim"), f"“{printable(passage['text'])}”")


def _print_below(console: Console, text: str | Text, style: str = "") -> None:
    print_hanging(console, " " * INDENT, Text(printable(text), style) if isinstance(text, str) else text, INDENT)


def _stance(stance: Stance, part: str, said: set[str]) -> Text:
    if not stance.read:
        return Text(says(stance, part), "dim")
    if stance.label is None:
        error = stance.error or "not judged"
        if any(error in one for one in said):
            return Text("no stance", "yellow")
        said.add(error)
        return Text(f"no stance: {printable(error)}", "yellow")
    return Text(printable(says(stance, part)), STYLES[stance.label])


def _marked(sentence: str, claim: str) -> Text:
    """A sentence with the words of the claim in bold."""
    sentence = printable(sentence)
    text = Text(sentence)
    for start, end in matches(sentence, claim):
        text.stylize("bold", start, end)
    return text


def _show_way(console: Console, hit: Hit, recipe: Recipe, scored_by: Mapping[str, StageKind]) -> None:
    """How a document came to its place: each retriever's rank and score, the fusion's sum, the rerankers' scores."""
    read = [name for name, kind in scored_by.items() if kind == "reranker" and name in hit.scores]
    before = hit.ranks.get(recipe.fusion.method)
    for name, kind in scored_by.items():
        if kind == "retriever":
            way = f"rank {hit.ranks[name]}, score {hit.scores[name]:.4f}" if name in hit.ranks else "not found"
        elif kind == "fusion":
            if name not in hit.scores:
                continue
            way = f"{_sum(hit.ranks, recipe)}{hit.scores[name]:.5f}"
        else:
            way = f"score {hit.scores[name]:#.3g}" if name in read else "not read"
            if read[-1:] == [name] and (alpha := getattr(recipe.rerankers.get(name), "alpha", 0)):
                way += f", with {alpha:g} of the previous stage's scores: {hit.score:.4f}"
            if read[-1:] == [name] and before is not None:
                way += f", from place {before} to {hit.rank}"
            way += " (cut to fit)" if name in hit.cut else ""
        _print_below(console, f"{name}: {way}", "dim")


def _sum(ranks: Mapping[str, int], recipe: Recipe) -> str:
    if recipe.fusion.method != "rrf":
        return "weighted sum of scaled scores = "
    found = {name: stage.weight for name, stage in recipe.retrievers.items() if name in ranks}
    return " + ".join(f"{weight:g}/({recipe.fusion.k} + {ranks[name]})" for name, weight in found.items()) + " = "


def _verdict(verdict: Verdict) -> Text:
    if verdict.label is None:
        return Text(printable(f"none: {verdict.error}"), "yellow")
    line = Text(verdict.label, STYLES[verdict.label])
    if verdict.confidence is not None:
        line.append(f" ({verdict.confidence:.2f}, {sure(verdict.confidence)} confidence)", "default")
    if verdict.reason is not None:
        line.append(f"  {OPEN[verdict.reason]}{':' if verdict.rationale else ''}", "bold")
    return line.append(f"  {printable(verdict.rationale)}" if verdict.rationale else "", "default")
