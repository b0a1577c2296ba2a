"""`ccheck evaluate`, as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path

import ir_measures
import pytest
from cli_runs import ccheck
from scripted_llm import KEY, Said, say, scripted

from ccheck.lab.measure.runs import read_run
from ccheck.lab.papers import published
from ccheck.search.local.store import LocalStore

RECIPE = """
name = "{name}"
extends = "default"
[rerankers]
rerank = false
"""


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The default recipe without a reranker, with figures that somebody published."""
    file = tmp_path / "mine.toml"
    file.write_text(RECIPE.format(name="mine"), encoding="utf-8")
    rows = {"All of it": published.Row(published=(0.512, 0.4))}
    table = published.Table(title="T", on="other claims", split="test", metrics=("nDCG@10", "MRR@5"), rows=rows)
    monkeypatch.setattr(published, "tables_of", lambda name: {"3": table} if name == "mine" else {})
    return file


def ranked(file: Path) -> dict[str, list[str]]:
    return {claim: list(scores) for claim, scores in read_run(file).items()}


def test_one_recipe_as_json(papers, files, tmp_path):
    run = tmp_path / "x.run"
    ran = ccheck("evaluate", "bm25", *files.options, "--store", papers, "--json", "--run", run)
    assert ran.code == 0, ran.err
    (said,) = ran.objects
    assert said["recipe"] == "bm25" and said["claims"] == 12 and said["errors"] == [] and said["depth"] == 100
    # The same as ir-measures makes of the files.
    expected = ir_measures.calc_aggregate(
        [ir_measures.nDCG @ 10, ir_measures.R @ 100],
        [
            ir_measures.Qrel(*line.split("\t")[:2], int(line.split("\t")[2]))
            for line in files.qrels.read_text().splitlines()[1:]
        ],
        ir_measures.read_trec_run(str(run)),
    )
    assert said["metrics"] == pytest.approx({str(measure): value for measure, value in expected.items()})
    for name, value in said["metrics"].items():
        low, high = said["intervals"][name]
        assert low <= value <= high
    assert said["stages"] == {"bm25": said["metrics"]} and said["stances"] is said["verdicts"] is None
    assert said["seconds_per_claim"]["total"] > 0 and said["tokens_per_claim"]["llm_calls"] == 0
    assert set(ranked(run)) == {str(n) for n in range(1, 13)}


@pytest.mark.usefixtures("minilm")
def test_several_recipes_in_a_table(embedded, files, recipe, tmp_path):
    ran = ccheck(
        *("evaluate", "bm25", "dense", recipe, *files.options, "--store", embedded),
        *("--metric", "nDCG@10", "--metric", "R@5", "--run", tmp_path / "runs"),
    )
    assert ran.code == 0, ran.err
    rows = {line.split()[0]: line for line in ran.out.splitlines() if line.strip()}
    assert {"bm25", "dense", "mine", "published:"} <= set(rows)
    assert "0.512" in rows["published:"] and "other claims" in rows["published:"]
    assert sorted(file.name for file in (tmp_path / "runs").iterdir()) == ["bm25.run", "dense.run", "mine.run"]
    # The fused ranking of an evaluation is the one of a query.
    asked = ccheck(
        "query", "--claims", files.claims, "--recipe", recipe, "-k", 20, "--store", embedded, "--verdict", "none"
    )
    for answer in asked.objects:
        ids = [piece["doc_id"] for piece in answer["evidence"]]
        assert ranked(tmp_path / "runs" / "mine.run")[answer["claim"]["id"]][: len(ids)] == ids
    alone = ccheck("evaluate", recipe, *files.options, "--store", embedded)
    assert "Stages" in alone.out
    assert [word for word in ("bm25", "dense", "rrf") if f"\n {word} " in alone.out] == ["bm25", "dense", "rrf"]


def test_a_grid_measures_every_combination_and_nothing_twice(papers, files, tmp_path, monkeypatch):
    asked: list[tuple[str, int, int]] = []
    rank = LocalStore.rank

    def counted(self, search):
        asked.extend((name, stage.depth, len(search.queries)) for name, stage in search.retrievers.items())
        return rank(self, search)

    monkeypatch.setattr(LocalStore, "rank", counted)
    two = tmp_path / "two.toml"
    two.write_text(
        'name = "two"\n[retrievers.whole]\nkind = "bm25"\n'
        '[retrievers.title]\nkind = "bm25"\ndepth = 50\nfields = {title = 1.0}\n'
    )
    arguments = ("evaluate", two, *files.options, "--store", papers, "--metric", "R@5", "--grid", "fusion.k=10,60")
    grid = ("--grid", "retrievers.title.depth=3,50", "--grid", "retrievers.whole=true,false")
    ran = ccheck(*arguments, *grid, "--json")
    assert ran.code == 0 and "the claims that chose it" in ran.err, ran.err
    assert sorted(asked) == [("title", 3, 12), ("title", 50, 12), ("whole", 100, 12)]  # nine points, three rankings
    base, *points = ran.objects
    assert base["recipe"] == "two" and "settings" not in base and "differences" not in base
    assert [list(point["settings"].values()) for point in points] == [
        [k, depth, whole] for k in (10, 60) for depth in (3, 50) for whole in (True, False)
    ]
    assert points[0]["recipe"] == "fusion.k=10 retrievers.title.depth=3 retrievers.whole=true"
    assert all(point["baseline"] == "two" and "p_holm" in point["differences"]["R@5"] for point in points)
    best = tmp_path / "best.toml"
    best.write_text(f'extends = "{two}"\nfusion.k = 10\nretrievers.title.depth = 3\n')
    assert ccheck("evaluate", best, *arguments[2:-2], "--json").objects[0]["metrics"] == points[0]["metrics"]
    shown = ccheck(*arguments)
    assert "fusion.k=60" in shown.out and "against two" in shown.out
    ran = ccheck("evaluate", "bm25", *files.options, "--store", papers, "--grid", "retrievers.bm25=true,false")
    assert ran.code == 0 and "1 combination left out, because no retriever is left" in ran.err


def test_claims_that_fail_are_named_and_the_exit_code_says_so(papers, files):
    with files.claims.open("a") as more:
        more.write(json.dumps({"_id": "long", "text": "x " * 60_000}) + "\n")
    with files.qrels.open("a") as more:
        more.write("long\tkeeling-1960\t1\n")
    ran = ccheck("evaluate", "bm25", *files.options, "--store", papers, "--json")
    assert ran.code == 7 and "1 of 13 claims failed and are left out of the means. Claim long" in ran.err
    assert ran.objects[0]["claims"] == 12 and ran.objects[0]["errors"][0]["claim"] == "long"


def test_ids_that_do_not_match_are_said(papers, files):
    with files.claims.open("a") as more:
        more.write(json.dumps({"_id": "unjudged", "text": "seas rise"}) + "\n")
    with files.qrels.open("a") as more:
        more.write("elsewhere\tkeeling-1960\t1\n1\tno-such-paper\t1\n")
    ran = ccheck("evaluate", "bm25", *files.options, "--store", papers)
    assert ran.code == 0
    for said in ("without judgements", "unjudged", "elsewhere", "no-such-paper", "not in the store"):
        assert said in ran.err
    assert ccheck("evaluate", "bm25", *files.options, "--store", papers, "--quiet").err == ""


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["nosuch"], 4, "no file named 'nosuch'"),
        (["bm25", "bm25"], 2, "given twice"),
        (["bm25", "--metric", "nDCG"], None, None),
        (["bm25", "--metric", "nonsense@3"], 2, "nonsense"),
        (["bm25", "--metric", "Bpref"], 5, "not relevant"),
        (["bm25", "--replace", "big=small"], 2, "has no model 'big' to replace"),
        (["bm25", "--replace", "big"], 2, "write MODEL=OTHER"),
        (["bm25", "--run", "no/where.run"], 2, "can't be written"),
        (["bm25", "--verdicts", "nosuch.jsonl"], 4, "nosuch.jsonl"),
        (["bm25", "dense"], 4, "has no vectors"),
        (["default", "--grid", "fusion.kk=1,2"], 2, "did you mean 'k'"),
        (["default", "--grid", "fusion.k"], 2, "is not KEY=VALUE"),
        (["default", "bm25", "--grid", "fusion.k=1"], 2, "--grid changes one recipe"),
        (["default", "--grid", "fusion.k=1", "--run", "a.run"], 2, "--grid changes one recipe"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_is_wrong_is_said(papers, files, arguments, code, said):
    ran = ccheck("evaluate", *arguments, *files.options, "--store", papers)
    assert ran.code == (code or 0), ran.err
    if said is not None:
        assert said in ran.err and ran.out == ""


def test_what_a_language_model_says_is_measured(papers, files, monkeypatch):
    """The model says of all documents that they leave the claim open; then it fails at some questions."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("CCHECK_LLM_RETRY_SECONDS", "1")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    answer = say({"rationale": "Of something else.", "quote": "", "label": "NOT_ENOUGH_INFO", "confidence": 0.9})
    files.claims.write_text("".join(files.claims.read_text().splitlines(keepends=True)[:2]))
    arguments = ("evaluate", "bm25", *files.options, "--verdicts", files.verdicts, "--store", papers)
    with scripted(lambda request: answer) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        ran = ccheck(*arguments, "--llm", "m", "--json")
        shown = ccheck(*arguments, "--llm", "m")
        asked = len(server.requests)
    assert ran.code == 0, ran.err
    (said,) = ran.objects
    labels = [json.loads(line) for line in files.verdicts.read_text().splitlines()]
    true = [row["label"] for row in labels if row["claim_id"] in ("1", "2")]
    stances = said["stances"]
    assert stances["count"] + stances["missing"] == len(true) and stances["failed"] == 0
    confusion = dict(zip(stances["labels"], stances["confusion"], strict=True))
    column = stances["labels"].index("NOT_ENOUGH_INFO")
    assert all(sum(row) == row[column] for row in confusion.values())
    assert stances["accuracy"] == pytest.approx(confusion["NOT_ENOUGH_INFO"][column] / stances["count"])
    assert stances["calibration_error"] == pytest.approx(abs(0.9 - stances["accuracy"]))
    assert said["tokens_per_claim"]["llm_calls"] == asked / 2 and said["tokens_per_claim"]["prompt_tokens"] > 0
    assert said["tokens_per_claim_by_stage"] == {"verdict": said["tokens_per_claim"]}
    remembered = f"verdict 0 calls, 0 + 0 tokens, {asked / 2:g} from the cache"
    assert f"bm25, language model calls per claim: {remembered}" in " ".join(shown.out.split())
    assert "bm25: stances" in shown.out and "weighted F1" in shown.out and "true \\ predicted" in shown.out
    count = iter(range(100))
    with scripted(lambda request: answer if next(count) < 5 else Said(status=500, body={})) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        ran = ccheck(*arguments, "--llm", "other", "--json")
    assert ran.code == 7 and "stances and verdicts failed" in ran.err
    assert ran.objects[0]["stances"]["failed"] > 0 and ran.objects[0]["metrics"] == said["metrics"]


def test_an_interrupt_shows_what_is_done(papers, files, monkeypatch):
    """At the second recipe somebody has had enough; the first one's row is there."""
    rank, calls = LocalStore.rank, iter(range(9))

    def interrupted(self, search):
        if next(calls):
            raise KeyboardInterrupt
        return rank(self, search)

    monkeypatch.setattr(LocalStore, "rank", interrupted)
    other = files.claims.parent / "other.toml"
    other.write_text('extends = "bm25"\n[retrievers.bm25]\ndepth = 7\n', encoding="utf-8")
    ran = ccheck("evaluate", "bm25", other, *files.options, "--store", papers)
    assert ran.code == 130 and "interrupted" in ran.err
    assert "\n bm25 " in ran.out and "other" not in ran.out


# -- `ccheck evaluate --ablation`, as a user runs it


MINE = """
extends = "bm25"
[ablations.titles]
description = "titles alone"
retrievers.bm25.fields = {content = false, title = 1.0}
[ablations.shallow]
description = "two documents"
retrievers.bm25.depth = 2
"""


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    (tmp_path / "mine.toml").write_text(MINE)
    return tmp_path / "mine.toml"


def test_ablations_side_by_side_with_paired_tests(papers, files, mine, tmp_path):
    arguments = ("evaluate", mine, "--ablation", "titles,shallow", *files.options, "--store", papers, "--metric", "R@5")
    ran = ccheck(*arguments, "--json", "--run", tmp_path / "runs")
    assert ran.code == 0, ran.err
    whole, _, shallow = ran.objects
    assert [one["recipe"] for one in ran.objects] == ["mine", "mine:titles", "mine:shallow"]
    assert "differences" not in whole and shallow["baseline"] == "mine"
    told = shallow["differences"]["R@5"]
    assert (
        told["difference"] == pytest.approx(shallow["metrics"]["R@5"] - whole["metrics"]["R@5"])
        and told["claims"] == 12
    )
    assert told["difference"] < 0 and 0 < told["p"] <= told["p_holm"] <= 1
    assert sorted(file.name for file in (tmp_path / "runs").iterdir()) == [
        "mine-shallow.run", "mine-titles.run", "mine.run",
    ]  # fmt: skip
    # The same test as ccheck compare makes of the runs.
    compared = ccheck(
        *("compare", tmp_path / "runs" / "mine.run", tmp_path / "runs" / "mine-shallow.run"),
        *("--qrels", files.qrels, "--metric", "R@5", "--json"),
    ).objects[1]["differences"]["R@5"]
    assert {key: compared[key] for key in ("difference", "p", "wins", "losses")} == {
        key: told[key] for key in ("difference", "p", "wins", "losses")
    }
    shown = ccheck(*arguments)
    assert "against mine" in shown.out


def test_all_ablations_and_wrong_ones(papers, files, mine):
    data = (*files.options, "--store", papers, "--quiet")
    assert len(ccheck("evaluate", mine, "--ablation", "all", *data, "--json").objects) == 3
    wrong = ccheck("evaluate", mine, "--ablation", "title", *data)
    assert wrong.code == 4 and "did you mean 'titles'?" in wrong.err
    assert ccheck("evaluate", mine, "bm25", "--ablation", "titles", *data).code == 2
    assert ccheck("evaluate", "bm25", "--ablation", "all", *data).code == 2
