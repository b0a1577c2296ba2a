"""A result as a person reads it at a glance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rich.padding import Padding
from rich.text import Text

from ..analysis import matches
from .common import printable

if TYPE_CHECKING:
    from rich.console import Console

    from ..recipe import Recipe
    from ..types import Evidence, Hit, Result, Verdict

STYLES = {"SUPPORTS": "bold green", "REFUTES": "bold red", "CONFLICTING": "bold yellow", "NOT_ENOUGH_INFO": "bold"}


def show_result(console: Console, result: Result, recipe: Recipe, *, explain: bool = False) -> None:
    """Print the ranking with its sentences, then the verdict line."""
    console.print(Text.assemble(("Claim  ", "bold"), printable(result.claim.text)), soft_wrap=True)
    console.print()
    if not result.evidence:
        console.print("No document bears on this claim.\n")
    for evidence in result.evidence:
        _show_evidence(console, evidence, result.claim.text)
        if explain:
            _show_way(console, evidence.hit, recipe)
        console.print()
    if result.verdict is not None:
        console.print(_verdict_line(result.verdict))


def _show_evidence(console: Console, evidence: Evidence, claim: str) -> None:
    document = evidence.document
    year = document.metadata.get("year") or (document.published or "")[:4]
    title = printable(document.title) or printable(document.text[:80])
    head = Text.assemble(
        (f"{evidence.hit.rank:>3}  ", "bold"), (title, "bold cyan"), f" ({printable(str(year))})" if year else ""
    )
    if evidence.stance is not None and evidence.stance.label is not None:
        head.append(f"  {evidence.stance.label}", STYLES[evidence.stance.label])
    console.print(head)
    for sentence in evidence.sentences:
        console.print(Padding(_marked(sentence.text, claim), (0, 0, 0, 5), expand=False))
    doi = document.metadata.get("doi")
    facts = [f"{evidence.hit.score:.4g}", *_found_by(evidence.hit), *([f"doi:{doi}"] if doi else []), document.id]
    console.print(Padding(Text(printable(" · ".join(facts)), "dim"), (0, 0, 0, 5), expand=False))


def _marked(sentence: str, claim: str) -> Text:
    """A sentence with the words of the claim in bold."""
    sentence = printable(sentence)
    text = Text(sentence)
    for start, end in matches(sentence, claim):
        text.stylize("bold", start, end)
    return text


def _found_by(hit: Hit) -> list[str]:
    return [f"{name} #{rank}" for name, rank in hit.ranks.items()]


def _show_way(console: Console, hit: Hit, recipe: Recipe) -> None:
    """How a document came to its place: each retriever's rank and score, then the fusion's sum."""
    lines = [
        f"{name}: rank {hit.ranks[name]}, score {hit.scores[name]:.4f}" if name in hit.ranks else f"{name}: not found"
        for name in recipe.retrievers
    ]
    if recipe.fusion.method in hit.scores:
        lines.append(f"{recipe.fusion.method}: {_sum(hit.ranks, recipe)}{hit.scores[recipe.fusion.method]:.5f}")
    console.print(Padding(Text("\n".join(lines), "dim"), (0, 0, 0, 5), expand=False))


def _sum(ranks: Mapping[str, int], recipe: Recipe) -> str:
    if recipe.fusion.method != "rrf":
        return "weighted sum of scaled scores = "
    shares = (f"{recipe.retrievers[name].weight:g}/({recipe.fusion.k} + {rank})" for name, rank in ranks.items())
    return " + ".join(shares) + " = "


def _verdict_line(verdict: Verdict) -> Text:
    line = Text("Verdict  ", "bold")
    if verdict.label is None:
        return line.append(f"none: {verdict.error}", "yellow")
    line.append(verdict.label, STYLES[verdict.label])
    if verdict.confidence is not None:
        line.append(f" ({verdict.confidence:.2f})")
    return line.append(f"  {printable(verdict.rationale)}" if verdict.rationale else "")
