"""What checking with questions costs beside the language model: seconds by stage, and tokens by stage.

    python benchmarks/questions.py FILE [--questions 1 4 10] [--pages 10 100 300] [--large 1] [--bm25] [--folder F]

FILE has AVeriTeC's rows. 20 of its claims are checked with the recipe averitec-questions against the pages of all
gold answers. Then --large of them are checked against --pages long pages each, put together of the gold answers' texts
in random order, as there are no others here. The language model is a server on this machine that answers at once: the
claim's gold questions, queries made of the question's words, the first passage as answer. So the seconds are ccheck's
own. Tokens are ccheck's estimates of the real prompts. all-MiniLM-L6-v2, or --model, stands in for jina-embeddings-v3;
with --bm25 there are no embeddings. --folder keeps the stores, so that an ingest that was cut off goes on.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

sys.path += [str(Path(__file__).parents[1] / "tests"), str(Path(__file__).parent)]

import data
from averitec_retrieval import MINILM, pages_of
from question_llm import asked_of, cite_first, questioned
from scripted_llm import Said

from ccheck import Checker, Claim
from ccheck.core.recipe import load_recipe
from ccheck.core.settings import resolve
from ccheck.core.stages import IngestStage, UnitsStage
from ccheck.core.types import Usage, add_usage
from ccheck.verdict.questions import distinct

CLAIMS = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--pages", type=int, nargs="*", default=[10, 100, 300], help="long pages of a claim's own")
    parser.add_argument("--large", type=int, default=1, help="claims with so many pages")
    parser.add_argument("--characters", type=int, default=15_000, help="length of such a page")
    parser.add_argument("--questions", type=int, nargs="*", default=[1, 4, 10], help="questions a claim, on few pages")
    parser.add_argument("--folder", type=Path, help="where the stores stay.  [default: a temporary folder]")
    parser.add_argument("--model", default=MINILM, help="embedding model")
    parser.add_argument("--bm25", action="store_true", help="search with BM25 alone")
    given = parser.parse_args()
    model = None if given.bm25 else given.model
    rows = list(data.rows(given.file))
    knowledge, _ = pages_of(rows)
    claims = [Claim(row["claim"], str(row["claim_id"])) for row in rows[:CLAIMS]]
    texts = [" ".join(row["url2text"]) for row in knowledge]
    with tempfile.TemporaryDirectory() as scratch:
        folder = given.folder or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        for count in given.questions:
            check(folder / "few", f"{count} questions", knowledge, rows, claims, count, model)
        for number in given.pages:
            some = claims[: given.large]
            pages = [long_page(texts, claim, place, given.characters) for claim in some for place in range(number)]
            check(folder / "many", f"4 questions, {number} pages a claim", pages, rows, some, 4, model)


def long_page(texts: Sequence[str], claim: Claim, number: int, characters: int) -> dict[str, Any]:
    """A page of a claim's collection: texts in random order, until it is long enough."""
    random = Random(f"{claim.id}/{number}")
    page: list[str] = []
    while sum(map(len, page)) < characters:
        page.append(random.choice(texts))
    return {"claim_id": claim.id, "url": f"https://example.org/{claim.id}/{number}", "url2text": page}


def check(
    store: Path,
    title: str,
    knowledge: list[dict[str, Any]],
    rows: list[dict[str, Any]],
    claims: list[Claim],
    count: int,
    model: str | None,
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

    file = store.with_suffix(".jsonl")
    file.write_text("".join(json.dumps(row) + "\n" for row in knowledge), encoding="utf-8")
    recipe = load_recipe("averitec-questions", {"jinaai/jina-embeddings-v3": model or MINILM})
    if model is None:
        recipe = recipe.model_copy(update={"retrievers": {"bm25": recipe.retrievers["bm25"]}, "replace": {}})
        recipe = recipe.model_copy(update={"ingest": IngestStage(units={"chunk": UnitsStage(cut="chunk")})})
    stage = recipe.questions
    assert stage is not None
    recipe = recipe.model_copy(update={"questions": stage.model_copy(update={"count": count})})

    def answer(text: str) -> Any:
        return cite_first(text) | {"answer": f"Yes. {cite_first(text)['answer']}"}

    def veracity(text: str) -> Any:
        return {"reasoning": "The answers say so.", "label": "Supported"}

    says = {"Questions": questions, "Queries": queries, "PassageAnswer": answer, "Veracity": veracity}
    # Without the server's own count, ccheck estimates the tokens.
    told = {kind: lambda text, one=one: Said(json.dumps(one(text)), usage=None) for kind, one in says.items()}
    # A cache of its own: a language model's answers that are known cost nothing.
    with questioned(**told) as llm, tempfile.TemporaryDirectory() as cache:
        values = {"store": str(store), "cache_dir": Path(cache), "llm_base_url": llm.url}
        with Checker(resolve(values).settings, recipe=recipe) as checker:
            started, used = time.perf_counter(), time.process_time()
            report = checker.ingest(str(file))
            seconds, cpu = time.perf_counter() - started, time.process_time() - used
            print(
                f"\n{title}: {len(claims)} claims, {report.read} pages, {report.added} of them new "
                f"({report.units.get('chunk', 0)} chunks in {seconds:.1f} s, {cpu:.1f} s of CPU)",
                flush=True,
            )
            checker.plan()
            checker.check(Claim(rows[CLAIMS]["claim"]))  # another claim, which opens what is opened once
            started, used = time.perf_counter(), time.process_time()
            results = list(checker.check_many(claims))
            total, cpu = time.perf_counter() - started, time.process_time() - used
    usage_by_stage: dict[str, Usage] = {}
    for result in results:
        assert result.questions is not None and len(result.questions) == count, result.verdict
        assert all(one.error is None for one in result.questions), result.questions
        for name, used in result.usage_by_stage.items():
            usage_by_stage = dict(add_usage(usage_by_stage, name, used))
    print(f"{total / len(claims):.2f} s a claim by the clock, {cpu / len(claims):.2f} s of CPU")
    print("| stage | seconds a claim | calls | prompt tokens | completion tokens |\n| --- | --- | --- | --- | --- |")
    for name in ("questions", "queries", "retrieve", "answers", "verdict", "evidence", "total"):
        mean = sum(result.timings_ms.get(name, 0.0) for result in results) / len(results) / 1000
        one = usage_by_stage.get(name, Usage())
        calls, prompts, completions = (
            value / len(claims) for value in (one.llm_calls, one.prompt_tokens, one.completion_tokens)
        )
        print(f"| {name} | {mean:.2f} | {calls:.0f} | {prompts:,.0f} | {completions:,.0f} |", flush=True)


if __name__ == "__main__":
    main()
