"""A result as a person reads it at a glance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from ..analysis import matches
from .common import print_hanging, printable

if TYPE_CHECKING:
    from rich.console import Console

    from ..recipe import Recipe
    from ..search import Filter
    from ..types import Evidence, Hit, Result, Verdict

STYLES = {"SUPPORTS": "bold green", "REFUTES": "bold red", "CONFLICTING": "bold yellow", "NOT_ENOUGH_INFO": "bold"}
INDENT = 5
CLAIM_CHARS = 500
"""How much of a claim is shown."""


def show_result(
    console: Console, result: Result, recipe: Recipe, *, filters: Sequence[Filter] = (), explain: bool = False
) -> None:
    """Print the ranking with its sentences, then the verdict line."""
    claim = printable(result.claim.text)
    if len(claim) > CLAIM_CHARS:
        claim = f"{claim[:CLAIM_CHARS].rstrip()} … ({len(claim):,} characters)"
    print_hanging(console, Text("Claim  ", "bold"), claim, 7)
    console.print()
    if not result.evidence:
        passing = " and ".join(f"{one.field}{one.operator}{one.value}" for one in filters)
        passing = f" with {printable(passing)}" if passing else ""
        console.print(f"No document{passing} bears on this claim.\n", markup=False, soft_wrap=True)
    for evidence in result.evidence:
        _show_evidence(console, evidence, result.claim.text)
        if explain:
            _show_way(console, evidence.hit, recipe)
        console.print()
    if result.verdict is not None:
        print_hanging(console, Text("Verdict  ", "bold"), _verdict(result.verdict), 9)


def _show_evidence(console: Console, evidence: Evidence, claim: str) -> None:
    document = evidence.document
    year = document.metadata.get("year") or (document.published or "")[:4]
    title = printable(document.title) or printable(document.text[:80])
    head = Text.assemble((title, "bold cyan"), f" ({printable(str(year))})" if year else "")
    if evidence.stance is not None and evidence.stance.label is not None:
        head.append(f"  {evidence.stance.label}", STYLES[evidence.stance.label])
    print_hanging(console, Text(f"{evidence.hit.rank:>3}  ", "bold"), head, INDENT)
    for sentence in evidence.sentences:
        _print_below(console, _marked(sentence.text, claim))
    doi = document.metadata.get("doi")
    facts = [f"{evidence.hit.score:.4g}", *_found_by(evidence.hit), *([f"doi:{doi}"] if doi else []), document.id]
    _print_below(console, Text(printable(" · ".join(facts)), "dim"))


def _print_below(console: Console, text: Text) -> None:
    print_hanging(console, " " * INDENT, text, INDENT)


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
    for name in recipe.retrievers:
        found = f"rank {hit.ranks[name]}, score {hit.scores[name]:.4f}" if name in hit.ranks else "not found"
        _print_below(console, Text(f"{name}: {found}", "dim"))
    if recipe.fusion.method in hit.scores:
        total = f"{_sum(hit.ranks, recipe)}{hit.scores[recipe.fusion.method]:.5f}"
        _print_below(console, Text(f"{recipe.fusion.method}: {total}", "dim"))


def _sum(ranks: Mapping[str, int], recipe: Recipe) -> str:
    if recipe.fusion.method != "rrf":
        return "weighted sum of scaled scores = "
    shares = (f"{recipe.retrievers[name].weight:g}/({recipe.fusion.k} + {rank})" for name, rank in ranks.items())
    return " + ".join(shares) + " = "


def _verdict(verdict: Verdict) -> Text:
    if verdict.label is None:
        return Text(printable(f"none: {verdict.error}"), "yellow")
    line = Text(verdict.label, STYLES[verdict.label])
    if verdict.confidence is not None:
        line.append(f" ({verdict.confidence:.2f})", "default")
    return line.append(f"  {printable(verdict.rationale)}" if verdict.rationale else "", "default")
