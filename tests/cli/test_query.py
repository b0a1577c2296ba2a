import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest
from cli_runs import BM25, Ran, ccheck, jsonl
from html_page import parse

from ccheck.core.errors import ServerError
from ccheck.core.install import install_command
from ccheck.demo import CLAIMS, CORPUS
from ccheck.encode import dense
from ccheck.lab.measure.datasets import read_run
from ccheck.pipeline.checker import Checker
from ccheck.search.local import LocalStore

SEA = "sea level has risen 20 cm since 1900"
DOCUMENTS = {record["_id"]: record for record in map(json.loads, CORPUS.read_text(encoding="utf-8").splitlines())}


@pytest.fixture
def query(papers: Path):
    return lambda *arguments, stdin="": ccheck("query", *arguments, "--store", papers, *BM25, stdin=stdin)


def test_a_ranking_is_read_at_a_glance(query):
    ran = query(SEA, "-k", "2")
    assert ran.code == 0
    lines = ran.out.split("\n")
    assert lines[0] == f"Claim  {SEA}"
    first = next(iter(line for line in lines if line.startswith("  1  ")))
    number = re.fullmatch(r"  1  (?P<title>.+) \((?P<year>\d{4})\)  (supports|refutes|leans .+|leaves it open)", first)
    shown = next(record for record in DOCUMENTS.values() if record["title"] == number["title"])
    assert int(number["year"]) == shown["year"]
    below = lines[lines.index(first) + 1 :]
    sure, *_, sentence, facts = below[: below.index("")]
    assert re.fullmatch(r"     confidence 0\.\d\d(, (low|moderate|high))?", sure)
    assert re.sub(r"  \[\w+\]$", "", sentence).strip() in shown["text"]
    assert re.fullmatch(rf"     [\d.]+ · bm25 #1 · doi:{re.escape(shown['doi'])} · {shown['_id']}", facts)
    assert sum(line.startswith("  2  ") for line in lines) == 1 and not any(line.startswith("  3  ") for line in lines)
    verdict, kept = lines[-3:-1]
    assert re.fullmatch(r"Kept as [0-9a-f]{16} \(ccheck show, ccheck correct\)", kept)
    assert re.match(r"         Judged by packaged stance model: a lead to read, not a finding", verdict)
    assert re.search(r"^Verdict  [A-Z_]+ \(0\.\d\d, (low|moderate|high) confidence\)  ", ran.out, re.MULTILINE)
    assert "\x1b" not in ran.out and not re.search(r"[ \t]+$", ran.out, re.MULTILINE)


def test_json_is_what_the_page_promises(query):
    (answer,) = query(SEA, "--json").objects
    assert list(answer) == [
        *("claim", "relevance", "verdict", "evidence", "recipe", "store", "scored_by"),
        *("fused_by", "warnings", "timings_ms", "usage", "usage_by_stage"),
        "settings",
    ]
    assert answer["claim"] == {"id": None, "text": SEA}
    assert answer["verdict"]["label"] in ("SUPPORTS", "REFUTES", "NOT_ENOUGH_INFO", "CONFLICTING")
    assert answer["verdict"]["method"].startswith("packaged stance model: a lead")
    assert all(0 < piece["stance"]["confidence"] <= 1 for piece in answer["evidence"])
    assert [piece["rank"] for piece in answer["evidence"]] == list(range(1, 11))
    for piece in answer["evidence"]:
        document = DOCUMENTS[piece["doc_id"]]
        assert piece["title"] == document["title"] and piece["metadata"]["year"] == document["year"]
        assert piece["scores"]["bm25"] == piece["score"] and piece["ranks"] == {"bm25": piece["rank"]}
        for sentence in piece["sentences"]:
            assert document[sentence["field"]][sentence["start"] : sentence["end"]] == sentence["text"]


def test_a_filter_that_nothing_passes_is_shown_and_one_that_is_a_mistake_is_no_answer(query, tmp_path):
    ran = query(SEA, "--filter", "year>=3000")
    assert ran.code == 0 and "No document with year>=3000 bears on this claim." in ran.out
    reason = f"none of {len(DOCUMENTS)} documents passes year>=3000"
    assert f"nothing was found for the claim: {reason}" in ran.out and reason not in ran.err  # said once
    assert reason in query(SEA, "--filter", "year>=3000", "--verdict", "none").err
    assert query(SEA, "--filter", "year>=3000", "--json").objects[0]["warnings"] == [reason]
    claims = jsonl(tmp_path / "claims.jsonl", {"text": SEA}, {"text": "ice"})
    for asked in ([SEA], ["--claims", claims]):
        ran = query(*asked, "--filter", "yaer>=2000")
        assert (ran.code, ran.out) == (2, "") and "did you mean 'year'?" in ran.err


def test_a_reranker_that_is_not_there_is_said_once_for_all_claims(query, tmp_path, no_server, monkeypatch):
    monkeypatch.setenv("CCHECK_RERANK_RETRY_SECONDS", "0")
    claims = jsonl(tmp_path / "claims.jsonl", *({"text": text} for text in (SEA, "ice", "coal")))
    ran = query("--claims", claims, "--rerank", no_server, "--verdict", "none")
    assert ran.code == 0 and ran.err.count("can't be reached") == 1
    assert ran.err.count("reranking with rerank failed and was skipped") == 1


def test_a_claim_from_standard_input_and_files_in_another_encoding(query, tmp_path):
    assert query("-", stdin=f"\n{SEA}\n").out.split("\n")[0] == f"Claim  {SEA}"
    assert query("-", stdin=b"\xef\xbb\xbfsea level \xff").code == 0
    for name, before, after in (("a.csv", "claim\n", ""), ("a.txt", "", ""), ("a.jsonl", '{"text": "', '"}')):
        (tmp_path / name).write_bytes(f"{before}Tea doesn’t{after}".encode("cp1252"))
        ran = query("--claims", tmp_path / name)
        assert ran.code == 5 and "not valid UTF-8" in ran.err and "iconv" in ran.err
        (tmp_path / name).write_bytes(f"{before}Tea doesn’t{after}".encode("utf-16"))
        assert "Tea doesn’t" in query("--claims", tmp_path / name).out
    (tmp_path / "a.txt").write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\n\xff\n")
    ran = query("--claims", tmp_path / "a.txt")
    assert (ran.code, ran.out) == (5, "") and "is a binary file, not text" in ran.err


USAGE = {
    "give either a claim or a file": [[], ["a claim", "--claims", "x.jsonl"]],
    "the claim is empty": [[" \t"], ["-"]],
    "Write, for example, 'year>=2010'": [["x", "--filter", "foo"]],
    "is not a date like 2015-01-31": [["x", "--filter", "published<2015-13"]],
    "Invalid value for '-k'": [["x", "-k", "0"], ["x", "-k", "many"]],
    "unexpected extra argument": [["sea", "level"]],
    "there is no folder": [["x", "--run", "no/such/run"]],
    "must be the name of a file": [["x", "--run", "-"]],
    "needs a file of claims": [["x", "--resume"]],
    "leave out --no-record": [["--claims", str(CLAIMS), "--resume", "--no-record"]],
}


@pytest.mark.parametrize(("message", "arguments"), [(m, a) for m, tries in USAGE.items() for a in tries])
def test_usage_errors_say_what_to_do(papers, message, arguments):
    ran = ccheck("query", *BM25, *arguments, "--store", papers)
    assert (ran.code, ran.out) == (2, "") and message in ran.err


def test_what_is_missing_is_named_and_a_store_without_vectors_is_searched_by_bm25_with_a_warning(papers):
    for arguments, message in (
        (["x", "--store", "local:nothing"], "ccheck ingest FILE --store local:nothing"),
        (["x", "--store", papers, "--recipe", "defualt"], "did you mean 'default'?"),
        (["x", "--store", papers, "--recipe", "none-of-them"], "the packaged recipes are averitec-questions, bm25"),
        (["--claims", "nothing.jsonl", "--store", papers], "there is no file nothing.jsonl"),
    ):
        ran = ccheck("query", *arguments)
        assert (ran.code, ran.out) == (4, "") and message in ran.err, arguments
    ran = ccheck("query", SEA, "--store", papers, "-k", "1", "--rerank", "none")
    assert ran.code == 0 and "bm25 #1" in ran.out and "BM25 only" in ran.err
    assert ran.err.endswith("has no vectors. To add them, ingest again\n")
    assert ccheck("query", SEA, "--store", papers, "--json").objects[0]["warnings"]
    assert ccheck("query", SEA, "--store", papers, "-q").err == ""
    assert ccheck("query", SEA, "--store", papers, "--recipe", "dense").code == 4


@pytest.mark.usefixtures("no_models")
def test_vectors_without_the_models_extra(embedded, monkeypatch):
    ran = ccheck("query", SEA, "--store", embedded, "-k", "1")
    assert ran.code == 0 and "bm25 #" in ran.out and "dense #" in ran.out and ran.err == ""
    monkeypatch.setattr(dense, "read_bert_folder", lambda path: None)
    ran = ccheck("query", SEA, "--store", embedded, "-k", "1", "--verdict", "none")
    assert ran.code == 0 and "bm25 #1" in ran.out and f": {install_command('models')}\n" in ran.err
    ran = ccheck("query", SEA, "--store", embedded, "--recipe", "dense")
    assert (ran.code, ran.out) == (3, "") and install_command("models") in ran.err


@pytest.mark.usefixtures("minilm")
def test_a_model_and_a_device_that_were_named_must_be_there(embedded, monkeypatch):
    ran = ccheck("query", SEA, "--store", embedded, "--model", "no-such-model")
    assert (ran.code, ran.out) == (4, "") and "no-such-model" in ran.err and "hf download" in ran.err
    monkeypatch.setenv("CCHECK_DEVICE", "nonsense")
    ran = ccheck("query", SEA, "--store", embedded)
    assert (ran.code, ran.out) == (2, "") and "'nonsense'" in ran.err


MIXED = [
    ({"_id": "a", "text": "sea level"}, "a", ""),
    ({"_id": "b", "text": " "}, "b", "line 3: claim b has no text"),
    ("not json", "3", "line 4: not valid JSON"),
    ({"_id": "c"}, "c", "line 5: claim c has no text. Its fields are _id"),
    ({"_id": None, "id": "", "text": "smoking"}, "5", ""),
    ([1], "6", "line 7: expected a JSON object"),
    ({"_id": 50, "text": "vaccines"}, "50", ""),
    ({"_id": "f", "text": 5}, "f", "line 9: claim f has no text. Its fields are _id, text"),
    ({"_id": " ", "text": "smokers"}, "9", "line 10: _id is not an id: ' '"),
]
"""Claims, after the first of which there is an empty line, their ids, and what is said of those that are none."""


def answers(ran: Ran) -> list[tuple[str, bool, str]]:
    return [(one["claim"]["id"], bool(one["evidence"]), one.get("error", "")) for one in ran.objects]


def test_each_claim_has_its_answer_in_its_place(query, tmp_path):
    plain = jsonl(tmp_path / "claims.jsonl", MIXED[0][0], "", *(record for record, *_ in MIXED[1:]))
    (tmp_path / "claims.jsonl.gz").write_bytes(gzip.compress(plain.read_bytes()))
    ran, packed = query("--claims", plain, "-k", "1"), query("--claims", tmp_path / "claims.jsonl.gz", "-k", "1")
    assert "JSON Lines or a table" in query("--claims", "-", stdin="Seas rise, and ice melts.\n").err
    assert answers(ran) == answers(packed) == answers(query("--claims", "-", "-k", "1", stdin=plain.read_bytes()))
    assert ran.code == 7 and "6 of 9 claims could not be checked" in ran.err
    assert "The first: line 3: claim b has no text" in ran.err
    for (id_, evidence, error), (_, wanted, said) in zip(answers(ran), MIXED, strict=True):
        assert (id_, evidence) == (wanted, not said) and error.startswith(said) and bool(error) == bool(said)


@pytest.mark.usefixtures("minilm")
def test_lone_surrogates_are_answered_as_the_rest(embedded, tmp_path):
    line = r'{"_id": "s\ud800", "text": "sea \ud83d level\u0000"}'
    ran = ccheck("query", "--claims", jsonl(tmp_path / "c.jsonl", line, {"text": SEA}), "--store", embedded)
    assert ran.code == 0 and all(one["evidence"] for one in ran.objects)
    assert ran.objects[0]["claim"] == {"id": "s\ud800", "text": "sea \ud83d level\0"}


def test_a_run_keeps_the_order_of_the_answers(query, tmp_path):
    ran = query("--claims", CLAIMS, "--run", tmp_path / "my.run", "--verdict", "none")
    answered = {one["claim"]["id"]: [piece["doc_id"] for piece in one["evidence"]] for one in ran.objects}
    assert {claim: list(scores) for claim, scores in read_run(tmp_path / "my.run").items()} == answered
    assert {line.split()[-1] for line in (tmp_path / "my.run").read_text().splitlines()} == {"bm25"}


def test_each_claim_needs_an_id_of_its_own(query, tmp_path):
    claims = jsonl(tmp_path / "c.jsonl", {"_id": "a", "text": "sea"}, {"_id": "a", "text": "coffee"}, {"text": "tea"})
    run, report = tmp_path / "my.run", tmp_path / "report.html"
    for arguments in ([], ["--run", run], ["--report", report]):
        ran = query("--claims", claims, *arguments)
        assert ran.code == 7 and answers(ran)[0][:2] == ("a", True) and answers(ran)[2][0] == "3"
        again = ran.objects[1]
        assert (again["claim"], again["evidence"], again["verdict"]) == ({"id": "a", "text": "coffee"}, [], None)
        assert "line 2: the claim on line 1 already has the id 'a'" in again["error"]
    found = read_run(run)
    assert found.keys() <= {"a", "3"} and next(iter(found["a"])) == ran.objects[0]["evidence"][0]["doc_id"]
    assert "the claim on line 1 already has the id" in report.read_text()


# -- `ccheck query --resume`: a batch that ended early is gone on with


TEXTS = ["sea level", "ice sheets", "vaccines", "climate", "ocean", "temperature"]


@pytest.fixture
def batch(own_papers: Path, tmp_path: Path) -> Any:
    claims = jsonl(tmp_path / "claims.jsonl", *({"_id": f"c{n}", "text": text} for n, text in enumerate(TEXTS)))
    return lambda *more, **run: ccheck("query", "--claims", claims, "--store", own_papers, *BM25, *more, **run)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    seen: list[str] = []
    check_many = Checker.check_many

    def noted(self: Checker, claims: Any, **options: Any) -> Any:
        return check_many(self, (seen.append(claim.id) or claim for claim in claims), **options)

    monkeypatch.setattr(Checker, "check_many", noted)
    return seen


def told(ran: Ran) -> list[Any]:
    """The answers without times and last bits: a product's can depend on how many rows are judged together."""
    return [
        (
            *(a["claim"], a["settings"], a.get("error"), a["verdict"] and a["verdict"]["label"], a["warnings"]),
            *((piece["doc_id"], f"{piece['score']:.4f}", piece["stance"]["label"]) for piece in a["evidence"]),
        )
        for a in ran.objects
    ]


def test_a_batch_that_ended_early_is_gone_on_with(batch, asked, own_papers, tmp_path):
    whole = batch("--run", "whole.run", "--no-record")
    part = jsonl(tmp_path / "part.jsonl", *({"_id": f"c{n}", "text": TEXTS[n]} for n in (4, 1)))
    assert ccheck("query", "--claims", part, "--store", own_papers, *BM25).code == 0
    asked.clear()
    ran = batch("--resume", "--run", "resumed.run", "--report", "resumed.html")
    assert ran.code == 0 and asked == ["c0", "c2", "c3", "c5"] and told(ran) == told(whole)
    assert "2 answers kept" in ran.err
    assert len(parse(Path("resumed.html").read_text()).all("section", class_="claim")) == 6
    assert Path("resumed.run").read_text() == Path("whole.run").read_text() != ""
    asked.clear()
    assert batch("--resume").code == 0 and asked == []
    assert batch("--resume", "-k", "3").code == 0 and len(asked) == 6, "other settings"
    assert batch().code == 0 and len(asked) == 12, "unless it is asked for"


def test_a_repeated_claim_stays_an_error(own_papers: Path, tmp_path: Path) -> None:
    claims = jsonl(tmp_path / "twice.jsonl", *[{"_id": "a", "text": "sea level"}] * 2)
    asked = ("query", "--claims", claims, "--store", own_papers, *BM25)
    first, again = ccheck(*asked), ccheck(*asked, "--resume", "--run", "my.run")
    assert first.code == again.code == 7 and told(first) == told(again)
    assert [bool(one["evidence"]) for one in again.objects] == [True, False]
    hits = [line.split()[2] for line in Path("my.run").read_text().splitlines()]
    assert len(hits) == len(set(hits))


def test_a_record_that_can_t_be_read_is_an_error_of_resume(batch: Any, asked: list[str], own_papers: Path) -> None:
    """The answers in it may have been paid for."""
    assert batch().code == 0
    own_papers.with_name(f"{own_papers.name}.checks.sqlite").write_bytes(b"damaged " * 1000)
    asked.clear()
    ran = batch("--resume")
    assert (ran.code, ran.out, asked) == (5, "", []) and "is damaged" in ran.err
    assert batch().code == 0 and len(asked) == 6


def test_a_server_that_fails_before_the_first_answer(batch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: Any, **__: Any) -> Any:
        raise ServerError("it is gone")

    monkeypatch.setattr(LocalStore, "rank", gone)
    ran = batch()
    assert (ran.code, ran.out) == (6, "") and "it is gone" in ran.err
    monkeypatch.setattr(LocalStore, "rank", lambda _, search: [ServerError("too busy")] * len(search.queries))
    ran = batch()
    assert ran.code == 6 and [one["error"] for one in ran.objects] == ["too busy"] * 6
    assert "6 of 6 claims could not be checked" in ran.err


def test_a_store_that_fails_midway(batch: Any, asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    whole = batch("--no-record")
    monkeypatch.setattr("ccheck.pipeline.checker.BATCH", 2)
    rank, calls = LocalStore.rank, iter(range(10))

    def at_times(self: LocalStore, search: Any) -> Any:
        if next(calls) == 1:
            raise ServerError("it is gone")
        return rank(self, search)

    with monkeypatch.context() as patch:
        patch.setattr(LocalStore, "rank", at_times)
        ran = batch()
    assert ran.code == 7 and "2 of 6 claims could not be checked" in ran.err
    assert [one.get("error") for one in ran.objects] == [None, None, "it is gone", "it is gone", None, None]
    asked.clear()
    resumed = batch("--resume")
    assert resumed.code == 0 and asked == ["c2", "c3"] and told(resumed) == told(whole)
