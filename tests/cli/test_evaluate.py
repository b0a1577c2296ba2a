import json
from pathlib import Path
from typing import Any

import pytest
from cli_runs import ccheck, jsonl, works
from scripted_llm import Said, error, say, scripted, user_text

from ccheck.cli.lab.tables import cost_of
from ccheck.core.types import Usage
from ccheck.lab.measure.datasets import read_run
from ccheck.lab.measure.pairs import risk_coverage
from ccheck.lab.papers import published
from ccheck.llm.budget import Price
from ccheck.search.local.store import LocalStore


def ranked(file: Path) -> dict[str, list[str]]:
    return {claim: list(scores) for claim, scores in read_run(file).items()}


def test_one_recipe_as_json(papers, files, tmp_path):
    run = tmp_path / "x.run"
    (said,) = works("evaluate", "bm25", *files.options, "--store", papers, "--json", "--run", run).objects
    assert said["recipe"] == "bm25" and said["claims"] == 12 and said["errors"] == [] and said["depth"] == 100
    assert list(said["metrics"]) == ["nDCG@10", "R@100"]
    assert all(low <= said["metrics"][name] <= high for name, (low, high) in said["intervals"].items())
    assert said["stages"] == {"bm25": said["metrics"]} and said["stances"] is said["verdicts"] is None
    assert said["seconds_per_claim"]["total"] > 0 and said["tokens_per_claim"]["llm_calls"] == 0
    assert set(ranked(run)) == {str(n) for n in range(1, 13)}


@pytest.mark.usefixtures("minilm")
def test_several_recipes_in_a_table(embedded, files, tmp_path, monkeypatch):
    (recipe := tmp_path / "mine.toml").write_text('extends = "default"\n[rerankers]\nrerank = false\n')
    rows = {"All of it": published.Row(published=(0.512, 0.4))}  # figures that somebody published
    table = published.Table(title="T", on="other claims", split="test", metrics=("nDCG@10", "MRR@5"), rows=rows)
    monkeypatch.setattr(published, "tables_of", lambda name: {"3": table} if name == "mine" else {})
    ran = works(
        *("evaluate", "bm25", "dense", recipe, *files.options, "--store", embedded),
        *("--metric", "nDCG@10", "--metric", "R@5", "--run", tmp_path / "runs"),
    )
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
    # Where `auto` chooses nothing, the recipe is compared with itself.
    monkeypatch.setattr("ccheck.core.models.best_device", lambda: "cpu")
    ran = ccheck("evaluate", "default", *files.options, "--store", papers, "--grid", "rerankers.rerank=true,false")
    assert ran.err.count("default: without rerank: auto chooses a reranking model only with a GPU") == 1


def test_claims_that_fail_and_ids_that_do_not_match_are_named(papers, files, no_server, monkeypatch):
    with files.claims.open("a") as more:
        more.write(json.dumps({"_id": "long", "text": "x " * 60_000}) + '\n{"_id": "unjudged", "text": "seas rise"}\n')
    with files.qrels.open("a") as more:
        more.write("long\tkeeling-1960\t1\nelsewhere\tkeeling-1960\t1\n1\tno-such-paper\t1\n")
    ran = ccheck("evaluate", "bm25", *files.options, "--store", papers, "--json")
    assert ran.code == 7 and "1 of 14 claims failed and are left out of the means. Claim long" in ran.err
    assert ran.objects[0]["claims"] == 12 and ran.objects[0]["errors"][0]["claim"] == "long"
    for said in ("without judgements", "unjudged", "elsewhere", "no-such-paper", "not in the store"):
        assert said in ran.err and said in str(ran.objects[0]["warnings"])
    arguments = ("evaluate", "bm25", *files.options, "--store", papers, "--quiet")
    assert "unjudged" in ccheck(*arguments).err and "unjudged" not in ccheck(*arguments, "--json").err
    monkeypatch.setenv("CCHECK_RERANK", no_server)
    monkeypatch.setenv("CCHECK_RERANK_RETRY_SECONDS", "0")
    ran = ccheck(*arguments)
    assert (ran.code, ran.out) == (6, "") and "no claim that has judgements could be checked" in ran.err
    files.qrels.write_text("query-id\tcorpus-id\tscore\n1\tno-such-paper\t1\n")
    ran = ccheck(*arguments)
    assert (ran.code, ran.out) == (5, "") and "1 of 1 judged document not in" in ran.err


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["nosuch"], 4, "no file named 'nosuch'"),
        (["bm25", "bm25"], 2, "given twice"),
        (["bm25", "--metric", "nonsense@3"], 2, "nonsense"),
        (["bm25", "--metric", "nDCG@10,R@100"], 2, "give --metric once for each"),
        (["bm25", "--replace", "big=small"], 2, "has no model 'big' to replace"),
        (["bm25", "--replace", "big"], 2, "write MODEL=OTHER"),
        (["bm25", "--run", "no/where.run"], 2, "can't be written"),
        (["bm25", "--verdicts", "nosuch.jsonl"], 4, "nosuch.jsonl"),
        (["bm25", "dense"], 4, "has no vectors"),
        (["default", "bm25", "--grid", "fusion.k=1"], 2, "--grid changes one recipe"),
        (["default", "--grid", "fusion.k=1", "--run", "a.run"], 2, "--grid changes one recipe"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_is_wrong_is_said(papers, files, arguments, code, said):
    ran = ccheck("evaluate", *arguments, *files.options, "--store", papers)
    assert (ran.code, ran.out) == (code, "") and said in ran.err


def test_what_a_language_model_says_is_measured(papers, files, monkeypatch):
    """The model says of all documents that they leave the claim open; then it fails at some questions."""
    monkeypatch.setenv("CCHECK_LLM_RETRY_SECONDS", "1")
    answer = say({"rationale": "Of something else.", "quote": "", "label": "NOT_ENOUGH_INFO", "confidence": 0.9})
    files.claims.write_text("".join(files.claims.read_text().splitlines(keepends=True)[:2]))
    arguments = ("evaluate", "bm25", *files.options, "--verdicts", files.verdicts, "--store", papers)
    with scripted([answer], user=monkeypatch) as server:
        (said,) = works(*arguments, "--llm", "m", "--json").objects
        shown = ccheck(*arguments, "--llm", "m")
        asked = len(server.requests)
    labels = [json.loads(line) for line in files.verdicts.read_text().splitlines()]
    true = [row["label"] for row in labels if row["claim_id"] in ("1", "2")]
    stances = said["stances"]
    assert stances["count"] + stances["missing"] == len(true) and stances["failed"] == 0
    assert stances["calibration_error"] == pytest.approx(abs(0.9 - stances["accuracy"]))
    assert said["tokens_per_claim"]["llm_calls"] == asked / 2 and said["tokens_per_claim"]["prompt_tokens"] > 0
    assert said["tokens_per_claim_by_stage"] == {"verdict": said["tokens_per_claim"]}
    remembered = f"0 calls, 0 + 0 tokens; {asked} answers from the cache, at no cost"
    assert f"bm25, language model: {remembered}" in " ".join(shown.out.split())
    assert "bm25: stances" in shown.out and "weighted F1" in shown.out and "true \\ predicted" in shown.out
    count = iter(range(100))
    with scripted(lambda request: answer if next(count) < 5 else Said(status=500, body={}), user=monkeypatch):
        ran = ccheck(*arguments, "--llm", "other", "--json")
    assert ran.code == 7 and f"stances and verdicts failed. Claim {ran.objects[0]['errors'][0]['claim']}: " in ran.err
    assert ran.objects[0]["stances"]["failed"] > 0 and ran.objects[0]["metrics"] == said["metrics"]
    packaged, (warning, *_) = ccheck(*arguments), ccheck(*arguments, "--json").objects[0]["warnings"]
    assert "learned from SciFact" in warning and f"ccheck: bm25: {warning}\n" in packaged.err


def test_an_interrupt_shows_what_is_done(papers, files, monkeypatch):
    """At the second recipe somebody has had enough; the first one's row is there."""
    rank, calls = LocalStore.rank, iter(range(9))

    def interrupted(self, search):
        if next(calls):
            raise KeyboardInterrupt
        return rank(self, search)

    monkeypatch.setattr(LocalStore, "rank", interrupted)
    (other := Path("other.toml")).write_text('extends = "bm25"\nretrievers.bm25.depth = 7\n')
    ran = ccheck("evaluate", "bm25", other, *files.options, "--store", papers)
    assert ran.code == 130 and "interrupted" in ran.err
    assert "\n bm25 " in ran.out and "other" not in ran.out


MINE = """
extends = "bm25"
[ablations.titles]
description = "titles alone"
retrievers.bm25.fields = {content = false, title = 1.0}
[ablations.shallow]
description = "two documents"
retrievers.bm25.depth = 2
"""


def test_ablations_side_by_side_with_paired_tests(papers, files, tmp_path):
    (mine := tmp_path / "mine.toml").write_text(MINE)
    arguments = ("evaluate", mine, "--ablation", "titles,shallow", *files.options, "--store", papers, "--metric", "R@5")
    ran = works(*arguments, "--json", "--run", tmp_path / "runs")
    whole, _, shallow = ran.objects
    assert [one["recipe"] for one in ran.objects] == ["mine", "mine:titles", "mine:shallow"]
    assert "differences" not in whole and shallow["baseline"] == "mine"
    told = shallow["differences"]["R@5"]
    assert told["difference"] == pytest.approx(shallow["metrics"]["R@5"] - whole["metrics"]["R@5"])
    assert told["difference"] < 0 and 0 < told["p"] <= told["p_holm"] <= 1 and told["claims"] == 12
    runs = {file.name for file in (tmp_path / "runs").iterdir()}
    assert runs == {"mine-shallow.run", "mine-titles.run", "mine.run"}
    # The same test as ccheck compare makes of the runs.
    compared = ccheck(
        *("compare", tmp_path / "runs" / "mine.run", tmp_path / "runs" / "mine-shallow.run"),
        *("--qrels", files.qrels, "--metric", "R@5", "--json"),
    ).objects[1]["differences"]["R@5"]
    assert [compared[key] == told[key] for key in ("difference", "p", "wins", "losses")] == [True] * 4
    assert "against mine" in ccheck(*arguments).out
    data = (*files.options, "--store", papers, "--quiet", "--ablation")
    assert len(ccheck("evaluate", mine, *data, "all", "--json").objects) == 3
    wrong = ccheck("evaluate", mine, *data, "title")
    assert wrong.code == 4 and "did you mean 'titles'?" in wrong.err
    assert ccheck("evaluate", mine, "bm25", *data, "titles").code == ccheck("evaluate", "bm25", *data, "all").code == 2


PAIRS: list[dict[str, Any]] = [
    {"claim": "the sea rises", "evidence": "this sentence tells: yes", "label": "SUPPORTS"},
    {"claim": "the sea rises", "evidence": ["this sentence tells: no.", "Indeed."], "label": "CONTRADICT"},
    {"claim": "ice melts", "evidence": "this sentence tells: yes, too", "label": "NEI"},
    {"claim": "ice melts", "evidence": "this sentence tells: maybe", "label": "neutral"},
    {"claim": "tea helps", "evidence": "this sentence tells: broken", "label": "Supported"},
]


def answer(request: dict[str, Any]) -> Said:
    asked = user_text(request)
    if "broken" in asked:
        return error(400, "no")
    label = "SUPPORTS" if ": yes" in asked else "REFUTES" if ": no" in asked else "NOT_ENOUGH_INFO"
    return say({"rationale": "so", "quote": "this sentence tells", "label": label, "confidence": 0.8})


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("CCHECK_LLM_RETRY_SECONDS", "0")

    def run(pairs: list[dict[str, Any]], *more: str):
        file = jsonl(tmp_path / "pairs.jsonl", *pairs)
        with scripted(answer, user=monkeypatch):
            return ccheck("evaluate", "--pairs", str(file), "--llm", "m", *more)

    return run


def test_a_judge_is_measured_and_what_it_cannot_judge_is_wrong(ask):
    ran = ask(PAIRS, "--json", "--out", "answers.jsonl")
    (found,) = ran.objects
    assert ran.code == 7 and "1 of 5 pairs could not be judged" in ran.err
    assert set(found) == {
        *("pairs", "judged", "method", "metrics", "intervals", "confusion", "usage", "seconds", "cost"),
        *("recipe", "published", "replaced", "labels", "decided", "warnings"),
    }
    assert found["cost"] is None, "without prices"
    assert (found["pairs"], found["judged"], found["method"]) == (5, 4, "llm:m (one-step)")
    # Of five labels three are right; the one that is missing is a label of its own, which no pair has.
    # F1 is 1/2 of two that support, 1 of one that refutes, and 2/3 of two that leave it open.
    assert found["metrics"]["weighted_f1"] == pytest.approx((2 / 2 + 1 + 2 * 2 / 3) / 5, abs=1e-4)
    assert found["metrics"]["macro_f1"] == pytest.approx((1 / 2 + 1 + 2 / 3) / 3, abs=1e-4)
    assert found["metrics"]["accuracy"] == 0.6
    assert found["metrics"]["calibration_error"] == pytest.approx(0.05)  # .8 said, 3 of 4 right
    assert found["metrics"]["risk_coverage"] == pytest.approx(1 / 4)  # in whatever order
    assert risk_coverage([0.8, 0.9, 0.8], [False, True, True]) == pytest.approx((0 + 1 / 2 / 2 + 1 / 3) / 3)
    assert found["labels"]["SUPPORTS"] == {"precision": 0.5, "recall": 0.5}
    assert found["decided"] == {
        "pairs": 3, "right": 2, "refuted": 1, "refuted_said_supports": 0, "refuted_decided_supports": 0
    }  # fmt: skip
    for name, (low, high) in (one for one in found["intervals"].items() if one[1] is not None):
        assert low <= found["metrics"][name] <= high, name
    assert found["confusion"]["SUPPORTS"] == {"SUPPORTS": 1, "REFUTES": 0, "NOT_ENOUGH_INFO": 0, "not judged": 1}
    assert found["confusion"]["NOT_ENOUGH_INFO"]["SUPPORTS"] == 1
    assert found["usage"]["llm_calls"] >= 4 and found["seconds"] > 0
    # What was said of each pair, in order.
    written = [json.loads(line) for line in Path("answers.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [one["claim"] for one in written] == [pair["claim"] for pair in PAIRS]
    assert written[1] == {
        "id": None, "claim": "the sea rises", "doc_id": None, "label": "REFUTES", "answer": "REFUTES",
        "confidence": 0.8, "probabilities": None, "decides": True, "error": None, "role": None,
    }  # fmt: skip
    assert [one["decides"] for one in written] == [True, True, True, False, False]
    assert (written[4]["answer"], written[4]["confidence"]) == (None, None) and written[4]["error"]
    assert ccheck("evaluate", "bm25", "--out", "answers.jsonl").code == 2


def test_documents_are_read_from_the_store(ask, tmp_path):
    store = tmp_path / "papers"
    corpus = jsonl(tmp_path / "corpus.jsonl", {"_id": "d1", "title": "A title", "text": "this sentence tells: yes"})
    assert ccheck("ingest", str(corpus), "--store", f"local:{store}", "--no-dense").code == 0
    pairs = [{"claim": f"{id_} rises", "doc_id": id_, "label": "supports"} for id_ in ("d1", "gone")]
    ran = ask(pairs, "--json", "--store", f"local:{store}")
    (found,) = ran.objects
    assert ran.code == 7 and "the store has no document 'gone'" in ran.err
    assert (found["judged"], found["metrics"]["accuracy"]) == (1, 0.5)
    assert ask(pairs[1:], "--store", f"local:{store}").code == 5
    assert ask(pairs, "--store", f"local:{tmp_path / 'nowhere'}").code == 4


def test_bad_lines_are_named_and_options_of_the_other_measurement_refused(tmp_path):
    file = tmp_path / "pairs.jsonl"
    for bad in ({"claim": "a", "label": "SUPPORTS"}, {"claim": "a", "evidence": "b", "label": "DISPUTED"}, "{"):
        ran = ccheck("evaluate", "--pairs", jsonl(file, PAIRS[0], bad), "--json")
        assert ran.code == 5 and "line 2" in ran.err and not ran.out, bad
    file.write_text("")
    assert ccheck("evaluate", "--pairs", str(file)).code == 5
    assert ccheck("evaluate", "--pairs", str(tmp_path / "none.jsonl")).code == 4
    file = jsonl(tmp_path / "pairs.jsonl", PAIRS[0])
    ran = ccheck("evaluate", "--pairs", str(file), "--qrels", "q.tsv")
    assert ran.code == 2 and "--qrels can't be used with --pairs" in ran.err
    assert ccheck("evaluate", "default", "--claims", "c").code == 2
    assert ccheck("evaluate").code == 2
    ran = ccheck("evaluate", "default", "--claims", "c", "--qrels", "q", "--ev2r", "m")
    assert ran.code == 2 and "--averitec" in ran.err


STAND_IN = "DeBERTa-v3-base-mnli-climatecheck"
LABELS = {"ice": "Refutes", "sea": "Supports", "tea": "Not Enough Information"}


def mistaken(request):
    """Right about all but what is about ice, which it takes for support."""
    system, asked = request["messages"][0]["content"], request["messages"][-1]["content"]
    about = next(word for word in LABELS if word in asked)
    if "EVIDENCE" in system:
        return say({"label": "UNKNOWN" if about == "tea" else "EVIDENCE"})
    return say({"label": "NOT_ENOUGH_INFO" if about == "tea" else "SUPPORTS"})


@pytest.fixture
def server(tmp_path, monkeypatch):
    with scripted(mistaken, user=monkeypatch) as server:
        monkeypatch.setenv("CCHECK_CACHE_DIR", str(tmp_path / "cache"))
        monkeypatch.setenv("CCHECK_LLM_PROMPT_PRICE", "2")
        monkeypatch.setenv("CCHECK_LLM_COMPLETION_PRICE", "8")
        yield server


@pytest.fixture
def pairs(tmp_path):
    rows = [f"{number},{word} rises,{number},{word},{label}" for number, (word, label) in enumerate(LABELS.items())]
    (tmp_path / "pairs.csv").write_text("\n".join(["claim_id,claim,abstract_id,abstract,annotation", *rows]))
    return tmp_path / "pairs.csv"


def test_each_way_of_asking_is_measured_on_the_task_s_own_file(pairs, server):
    ways = "few-shots-hybrid,zero-shot-two-step,zero-shot-one-step"
    ran = works("evaluate", "climatecheck-hybrid", "--ablation", ways, "--pairs", pairs, "--json")
    names = ["climatecheck-hybrid", *(f"climatecheck-hybrid:{way}" for way in ways.split(","))]
    assert [one["recipe"] for one in ran.objects] == names
    for one in ran.objects:
        # By hand: SUPPORTS 1 of 2 right, NOT_ENOUGH_INFO 1 of 1, REFUTES never given.
        assert one["metrics"]["weighted_precision"] == pytest.approx((0.5 + 1 + 0) / 3, abs=1e-4)
        assert one["metrics"]["weighted_recall"] == pytest.approx(2 / 3, abs=1e-4)
        assert one["metrics"]["weighted_f1"] == pytest.approx((2 / 3 + 1 + 0) / 3, abs=1e-4)
        assert one["metrics"]["calibration_error"] is None, "the paper's prompts ask for no confidence"
        assert one["published"][0]["table"] == "3"
        # A call of the scripted server has 100 + 20 tokens.
        assert one["cost"] == pytest.approx(one["usage"]["llm_calls"] * (100 * 2 + 20 * 8) / 1e6)
    assert "differences" not in ran.objects[0]
    for one in ran.objects[1:]:
        assert one["baseline"] == "climatecheck-hybrid", "against the whole recipe, paired over the claims"
        assert (one["differences"]["weighted_f1"]["difference"], one["differences"]["weighted_f1"]["ties"]) == (0, 3)
    calls = {one["recipe"]: one["usage"]["llm_calls"] for one in ran.objects}
    assert list(calls.values()) == [3, 3, 5, 3], "two steps ask about the tea only once"
    assert sum("Examples, a claim a line" in one["messages"][0]["content"] for one in server.requests) == 3


def test_a_person_sees_cost_published_figures_and_differences(pairs, server):
    """A model of the table can have a stand-in: here the packaged stance model."""
    arguments = ("evaluate", "climatecheck-hybrid", "--ablation", "deberta-mnli", "--pairs", pairs)
    ran = ccheck(*arguments, "--replace", f"{STAND_IN}=packaged")
    told = ccheck(*arguments, "--replace", f"{STAND_IN}=packaged", "--json").objects[1]
    assert ran.code == 0 and "learned from SciFact" in ran.err, ran.err
    published = ("published: table 3, Zero-shot-hybrid", " 0.6957 ", "published: table 3, DeBERTa-v3-base-mnli")
    for said in (*published, "per pair", " ms ", "0.0011, at your prices", "p (Holm)", "against climatecheck-hybrid"):
        assert said in ran.out
    assert told["cost"] is None and told["replaced"] == {STAND_IN: "packaged"}
    assert ccheck("evaluate", "--pairs", pairs, "--replace", "a=b").code == 2
    wrong = ccheck(*arguments, "--replace", "gpt-5=m")
    assert wrong.code == 2 and "no model 'gpt-5' to replace" in wrong.err
    price = Price(2.0, 8.0)
    assert cost_of(Usage(prompt_tokens=3_000), price) is None, "tokens without a call"
    assert cost_of(Usage(3, 3_000, 60), price) == pytest.approx(0.00648) and cost_of(Usage(3, 3_000, 60), None) is None
    assert cost_of(Usage(cached=3), price) == 0.0
