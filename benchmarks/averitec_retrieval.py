"""Which retrieval finds the passage with the annotators' answer: a claim or its questions as queries, on AVeriTeC.

    python benchmarks/averitec_retrieval.py FILE [--store STORE] [--model MODEL]

FILE has AVeriTeC's rows. The pages are the texts of all gold answers, by their source. So every page is somebody's
answer, and the other claims' pages are distractors. An answer is found if its chunk is among the first 10. Answers of
the type Unanswerable have no page and are left out. The model of the embeddings stands in for jina-embeddings-v3.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import common
import numpy as np

from ccheck import Checker
from ccheck.core.recipe import load_recipe
from ccheck.core.settings import resolve
from ccheck.core.stages import Fusion
from ccheck.core.types import Filter, Query
from ccheck.search import Search
from ccheck.search import answer as search_answer

MINILM = "sentence-transformers/all-MiniLM-L6-v2"
VARIANTS: Mapping[str, tuple[tuple[str, ...], Fusion]] = {
    "dense": (("dense",), Fusion(k=4)),
    "BM25": (("bm25",), Fusion(k=4)),
    "sum": (("bm25", "dense"), Fusion(method="minmax")),
    "RRF": (("bm25", "dense"), Fusion(k=4)),
}
K = 10


@dataclass(frozen=True)
class Wanted:
    """A gold answer: the claim and question that it belongs to, and where it stands."""

    claim: str
    claim_text: str
    question: str
    page: str
    start: int
    end: int


def pages_of(rows: Sequence[Mapping[str, Any]]) -> tuple[list[dict[str, Any]], list[Wanted]]:
    """Rows of a knowledge store, and the answers that are to be found in them."""
    texts: dict[str, str] = {}
    claims: dict[str, dict[str, None]] = {}
    wanted: list[Wanted] = []
    for number, row in enumerate(rows):
        claim = str(row.get("claim_id", number))
        for question in row["questions"]:
            for answer in question["answers"]:
                if answer["answer_type"] == "Unanswerable":
                    continue
                url = answer.get("source_url") or f"none:{claim}:{len(wanted)}"
                explanation = answer.get("boolean_explanation")
                text = " ".join(" ".join(filter(None, (answer["answer"], explanation))).split())
                before = texts.get(url, "")
                start = len(before) + 2 if before else 0
                texts[url] = f"{before}\n\n{text}" if before else text
                claims.setdefault(url, {})[claim] = None
                wanted.append(Wanted(claim, row["claim"], question["question"], url, start, start + len(text)))
    made = [{"claim_id": claim, "url": url, "url2text": [texts[url]]} for url in texts for claim in claims[url]]
    return made, wanted


def interval(hits: Mapping[str, list[bool]], seed: int = 0) -> str:
    """Recall with its 95% bootstrap interval over the claims."""
    sums = np.array([[sum(values), len(values)] for values in hits.values()], float)
    rng = np.random.default_rng(seed)
    drawn = sums[rng.integers(len(sums), size=(2_000, len(sums)))].sum(axis=1)
    low, high = np.quantile(drawn[:, 0] / drawn[:, 1], [0.025, 0.975])
    total = sums.sum(axis=0)
    return f"{total[0] / total[1]:.3f} [{low:.3f}, {high:.3f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--store", help="default: a temporary local store")
    parser.add_argument("--model", default=MINILM)
    given = parser.parse_args()
    rows = list(common.rows(given.file))
    knowledge, wanted = pages_of(rows)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "knowledge.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in knowledge), encoding="utf-8")
        values: dict[str, Any] = {
            "store": given.store or f"{folder}/store",
            "cache_dir": Path(folder) / "cache",
            "llm_base_url": "http://127.0.0.1:9/v1",  # nobody is asked
        }
        recipe = load_recipe("averitec-questions", {"jinaai/jina-embeddings-v3-hf": given.model})
        with Checker(resolve(values).settings, recipe=recipe) as checker:
            started = time.perf_counter()
            report = checker.ingest(str(file))
            print(
                f"{report.added} pages, {report.units['chunk']} chunks, {time.perf_counter() - started:.1f} s, "
                f"{len(wanted)} answers of {len({one.claim for one in wanted})} claims, {checker.store.name}"
            )
            measure(checker, wanted)
            if given.store:
                checker.store.drop()


def measure(checker: Checker, wanted: Sequence[Wanted]) -> None:
    kinds: dict[str, list[tuple[str, ...]]] = {
        "claim": [(one.claim_text,) for one in wanted],
        "gold question": [(one.question,) for one in wanted],
        "claim and gold question": [(one.claim_text, one.question) for one in wanted],
    }
    print(f"{len(wanted)} answers of {len({one.claim for one in wanted})} claims")
    retrievers = checker.plan().retrievers
    encoder = checker.plan().encoders["dense"]
    texts = list(dict.fromkeys(text for queries in kinds.values() for some in queries for text in some))
    vectors = dict(zip(texts, encoder.encode_queries(texts), strict=True))
    print("| query | collection | " + " | ".join(VARIANTS) + " |")
    print("| --- | --- | " + " | ".join("---" for _ in VARIANTS) + " |")
    for kind, queries in kinds.items():
        for scope in ("all claims' pages", "its own claim's pages"):
            asked = [
                [
                    replace(
                        Query(text, own={"dense": vectors[text]}),
                        filters=(Filter("claim_ids", "=", one.claim),) if scope.startswith("its") else (),
                    )
                    for text in some
                ]
                for one, some in zip(wanted, queries, strict=True)
            ]
            cells = []
            for names, fusion in VARIANTS.values():
                chosen_retrievers = {name: retrievers[name] for name in names}
                hits: dict[str, list[bool]] = {}
                for start in range(0, len(asked), 64):
                    some = asked[start : start + 64]
                    search = Search([query for one in some for query in one], chosen_retrievers, fusion, K)
                    rankings = search_answer(checker.store, search, questions=list(map(len, some)), pooled=True)
                    for one, ranking in zip(wanted[start:], rankings, strict=False):
                        hits.setdefault(one.claim, []).append(_found(one, ranking))
                cells.append(interval(hits))
            print(f"| {kind} | {scope} | " + " | ".join(cells) + " |", flush=True)


def _found(one: Wanted, ranking: Any) -> bool:
    """Whether a hit holds the beginning of the answer."""
    if isinstance(ranking, Exception):
        raise ranking
    return any(
        hit.document.id == one.page and hit.unit is not None and hit.unit.start <= one.start < hit.unit.end
        for hit in ranking.hits
    )


if __name__ == "__main__":
    main()
