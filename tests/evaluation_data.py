"""The sample corpus' claims as evaluation files, and a checker that ranks as it is told."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cli_runs import jsonl

from ccheck.core.errors import CcheckError
from ccheck.core.recipe import Recipe, load_recipe
from ccheck.core.types import Claim, Document, Evidence, Hit, Result, Stance, Usage, Verdict
from ccheck.demo import CLAIMS


@dataclass(frozen=True)
class Files:
    claims: Path
    qrels: Path
    verdicts: Path

    @property
    def options(self) -> tuple[object, ...]:
        return "--claims", self.claims, "--qrels", self.qrels


def sample_files(folder: Path, count: int = 12) -> Files:
    """The first claims of the sample, what is relevant to them, and the true labels."""
    rows = [json.loads(line) for line in CLAIMS.read_text(encoding="utf-8").splitlines()][:count]
    pairs = [(row["_id"], piece["doc_id"], piece["label"]) for row in rows for piece in row["evidence"]]
    qrels = folder / "qrels.tsv"
    lines = [f"{claim}\t{document}\t1" for claim, document, _ in pairs]
    qrels.write_text("\n".join(["query-id\tcorpus-id\tscore", *lines, ""]), encoding="utf-8")
    claims = ({"_id": row["_id"], "text": row["text"]} for row in rows)
    verdicts = ({"claim_id": claim, "doc_id": document, "label": label} for claim, document, label in pairs)
    return Files(jsonl(folder / "queries.jsonl", *claims), qrels, jsonl(folder / "verdicts.jsonl", *verdicts))


@dataclass
class ScriptedChecker:
    """A checker whose rankings are given, by claim; an error in the place of one fails the claim."""

    final: Mapping[str, Sequence[str] | CcheckError]
    stages: Mapping[str, Mapping[str, Sequence[str]]] = field(default_factory=dict)
    """By claim, then by stage."""
    stances: Mapping[tuple[str, str], Stance] = field(default_factory=dict)
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)
    warnings: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    recipe: Recipe = field(default_factory=lambda: load_recipe("default"))
    asked: list[tuple[int, bool]] = field(default_factory=list)

    def check_many(self, claims: Iterable[Claim], *, k: int, trace: bool) -> Iterator[Result]:
        self.asked.append((k, trace))
        for claim in claims:
            found = self.final[claim.id]
            usage = {"rewrite": Usage(1, 40, 15), "verdict": Usage(0, 60, 5)}
            if isinstance(found, CcheckError):
                yield Result(claim, (), None, self.recipe.name, "told", usage_by_stage=usage, error=found)
                continue
            evidence = tuple(
                Evidence(Hit(rank, Document(id_, "", ""), 1 / rank), stance=self.stances.get((claim.id, id_)))
                for rank, id_ in enumerate(found, 1)
            )
            yield Result(
                claim,
                evidence,
                self.verdicts.get(claim.id),
                self.recipe.name,
                "told",
                self.warnings.get(claim.id, ()),
                {"retrieve": 2.0, "rerank": 4.0},
                usage,
                stages={name: tuple(ids) for name, ids in self.stages.get(claim.id, {}).items()},
            )
