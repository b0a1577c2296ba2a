"""What checking with questions costs beside the language model: seconds by stage, and tokens by stage.

    python benchmarks/questions.py FILE [--pages 1000] [--large 2] [--answers 20] [--questions 1 4 10] [--bm25]

FILE has AVeriTeC's rows. 20 of its claims are checked with the recipe averitec-questions against the pages of all
gold answers. The language model is a server on this machine that answers at once: the claim's gold questions, queries
made of the question's words, the first passage as answer. So the seconds are ccheck's own. Tokens are ccheck's
estimates of the real prompts. all-MiniLM-L6-v2 stands in for jina-embeddings-v3; with --bm25 there are no embeddings.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path += [str(Path(__file__).parents[1] / "tests"), str(Path(__file__).parent)]

from averitec_retrieval import MINILM, pages_of
from question_llm import asked_of, cite_first, questioned
from scripted_llm import Said

from ccheck import Checker, Claim
from ccheck.questions.replies import distinct
from ccheck.recipe import load_recipe
from ccheck.settings import resolve
from ccheck.stages import IngestStage, UnitsStage
from ccheck.types import Usage, add_usage

CLAIMS = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--pages", type=int, default=1000, help="pages a claim in the last measurement")
    parser.add_argument("--large", type=int, default=2, help="claims with so many pages")
    parser.add_argument("--answers", type=int, default=20, help="gold answers that such a page is put together of")
    parser.add_argument("--questions", type=int, nargs="*", default=[1, 4, 10], help="questions a claim, on few pages")
    parser.add_argument("--bm25", action="store_true", help="search with BM25 alone")
    given = parser.parse_args()
    rows = [json.loads(line) for line in given.file.read_text(encoding="utf-8").splitlines()]
    knowledge, _ = pages_of(rows)
    claims = [Claim(row["claim"], str(row["claim_id"])) for row in rows[:CLAIMS]]
    texts = [" ".join(row["url2text"]) for row in knowledge]
    # Longer pages, put together of other claims' answers.
    large = [
        {
            "claim_id": claim.id,
            "url": f"https://example.org/{claim.id}/{number}",
            "url2text": [texts[(number + 97 * step) % len(texts)] for step in range(given.answers)],
        }
        for claim in claims[: given.large]
        for number in range(given.pages)
    ]
    with tempfile.TemporaryDirectory() as folder:
        for count in given.questions:
            check(Path(folder), f"{count} questions", knowledge, rows, claims, count, given.bm25)
        check(
            Path(folder), f"4 questions, {given.pages} pages a claim", large, rows, claims[: given.large], 4, given.bm25
        )


def check(
    folder: Path,
    title: str,
    knowledge: list[dict[str, Any]],
    rows: list[dict[str, Any]],
    claims: list[Claim],
    count: int,
    bm25: bool,
) -> None:
    by_text = {row["claim"]: [one["question"] for one in row["questions"]] for row in rows}

    def questions(text: str) -> dict[str, Any]:
        claim = json.loads(
            next(line for line in text.splitlines() if line.startswith("Claim: ")).removeprefix("Claim: ")
        )
        words = claim.split()
        made = [question.rstrip("? ") + "?" for question in by_text[claim]]
        made += [f"What is known about {' '.join(words[place : place + 4])}?" for place in range(len(words))]
        made += [f"What else is known, in part {number}?" for number in range(count)]
        return {
            "analysis": "It is analysed.",
            "questions": distinct(made)[:count],
        }

    def queries(text: str) -> dict[str, Any]:
        question = asked_of(text)
        return {"queries": [question.lower(), f"according to reports {question}", " ".join(question.split()[::-1])]}

    name = str(abs(hash(str(knowledge[:2]))))
    file = folder / f"{name}.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in knowledge), encoding="utf-8")
    recipe = load_recipe("averitec-questions", {"jinaai/jina-embeddings-v3": MINILM})
    if bm25:
        recipe = recipe.model_copy(update={"retrievers": {"bm25": recipe.retrievers["bm25"]}, "replace": {}})
        recipe = recipe.model_copy(update={"ingest": IngestStage(units={"chunk": UnitsStage(cut="chunk")})})
    stage = recipe.questions
    assert stage is not None
    recipe = recipe.model_copy(update={"questions": stage.model_copy(update={"count": count, "deadline": 84.6})})

    def answer(text: str) -> Any:
        return cite_first(text) | {"answer": f"Yes. {cite_first(text)['answer']}"}

    def veracity(text: str) -> Any:
        return {"reasoning": "The answers say so.", "label": "Supported"}

    says = {"Questions": questions, "Queries": queries, "PassageAnswer": answer, "Veracity": veracity}
    # Without the server's own count, ccheck estimates the tokens.
    told = {kind: lambda text, one=one: Said(json.dumps(one(text)), usage=None) for kind, one in says.items()}
    with questioned(**told) as llm:
        values = {
            "store": str(folder / f"{name}-store"),
            "cache_dir": folder / f"{name}-{count}",
            "llm_base_url": llm.url,
        }
        with Checker(resolve(values).settings, recipe=recipe) as checker:
            started = time.perf_counter()
            report = checker.ingest(str(file))
            print(
                f"\n{title}: {report.read} pages ({report.units.get('chunk', 0)} chunks ingested in "
                f"{time.perf_counter() - started:.1f} s), {len(claims)} claims"
            )
            checker.plan()
            started = time.perf_counter()
            results = list(checker.check_many(claims))
            total = time.perf_counter() - started
    usage: dict[str, Usage] = {}
    for result in results:
        assert result.questions is not None and len(result.questions) == count, result.verdict
        assert all(one.error is None for one in result.questions), result.questions
        for name, used in result.usage_by_stage.items():
            usage = dict(add_usage(usage, name, used))
    print(f"{total / len(claims):.2f} s a claim by the clock")
    print("| stage | seconds a claim | calls | prompt tokens | completion tokens |\n| --- | --- | --- | --- | --- |")
    for name in ("questions", "queries", "retrieve", "answers", "verdict", "evidence", "total"):
        mean = sum(result.timings_ms.get(name, 0.0) for result in results) / len(results) / 1000
        one = usage.get(name, Usage())
        calls, prompts, completions = (
            value / len(claims) for value in (one.llm_calls, one.prompt_tokens, one.completion_tokens)
        )
        print(f"| {name} | {mean:.2f} | {calls:.0f} | {prompts:,.0f} | {completions:,.0f} |", flush=True)


if __name__ == "__main__":
    main()
