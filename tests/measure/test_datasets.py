"""Claims, judgements and true labels, from files as the data sets have them."""

import gzip
import json
import math
import pickle
import random
from pathlib import Path

import numpy as np
import pytest
import zstandard
from cli_runs import jsonl
from conftest import SHARED

from ccheck.core.errors import CcheckError, InvalidData, NotFound, UsageError
from ccheck.core.trec import result_lines
from ccheck.core.types import Claim, Document, Evidence, Hit, Result, Stance, Unit
from ccheck.demo import CLAIMS
from ccheck.lab.measure.datasets import (
    ranked,
    read_corpus,
    read_gold,
    read_qrels,
    read_run,
    strictly_decreasing,
    write_run,
)
from ccheck.pipeline.claims import read_claims


def text(name: str, *lines: str) -> Path:
    path = Path(name)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", errors="surrogateescape")
    return path


def test_beir_and_trec_topics():
    rows = {"_id": "q1", "text": " Seas rise. ", "metadata": {}}, {"_id": 2, "text": "b"}
    queries = jsonl(Path("queries.jsonl"), *rows)
    assert read_claims(queries) == [Claim("Seas rise.", "q1"), Claim("b", "2")]
    qrels = text("qrels.tsv", "query-id\tcorpus-id\tscore", "q1\td1\t1", "q1\td2\t0", "2\td1\t2")
    assert read_qrels(qrels) == {"q1": {"d1": 1, "d2": 0}, "2": {"d1": 2}}
    texts = ['"Hide the decline", they said', "It's cold", "seas, rising"]
    topics = text("topics.tsv", *(f"{n}\t{text}\n" for n, text in enumerate(texts)))
    assert [claim.text for claim in read_claims(topics)] == texts


@pytest.mark.parametrize("name", ["qrels", "qrels.txt", "qrels.qrels", "qrels.csv", "wrong.jsonl"])
def test_trec_qrels_by_whatever_name(name):
    qrels = read_qrels(text(name, "q1 0 d1 1", "q1 Q0 d,2 -1", "", "q2  0   d1  2"))
    assert qrels == {"q1": {"d1": 1, "d,2": -1}, "q2": {"d1": 2}}


@pytest.mark.parametrize("compress", [gzip.compress, zstandard.compress])
@pytest.mark.parametrize("name", ["qrels.tsv.gz", "qrels"])
def test_compressed_is_seen_by_the_bytes(name, compress):
    Path(name).write_bytes(compress(b"query-id\tcorpus-id\tscore\nq1\td1\t1\n"))
    assert read_qrels(name) == {"q1": {"d1": 1}}


COLUMNS = ("claim", "abstract", "abstract_id", "claim_id", "annotation")
CLIMATECHECK = [  # as in its Parquet files: ids are numbers
    dict(zip(COLUMNS, row, strict=True))
    for row in (
        ("CO2 is plant food.", "Plants ...", 7, 1, "Supports"),
        ("CO2 is plant food.", "Crops ...", 8, 1, "Refutes"),
        ("It is the sun.", "The sun ...", 9, 4, "Not Enough Information"),
    )
]


@pytest.mark.parametrize("kind", ["parquet", "jsonl", "json", "csv"])
def test_climatecheck(kind):
    path = Path(f"train.{kind}")
    if kind == "parquet":
        pyarrow = pytest.importorskip("pyarrow")
        pytest.importorskip("pyarrow.parquet").write_table(pyarrow.Table.from_pylist(CLIMATECHECK), path)
    elif kind == "csv":
        text(path.name, ",".join(COLUMNS), *(",".join(map(str, row.values())) for row in CLIMATECHECK))
    elif kind == "json":
        path.write_text(json.dumps(CLIMATECHECK, indent=1))
    else:
        jsonl(path, *CLIMATECHECK)
    assert read_claims(path) == [Claim("CO2 is plant food.", "1"), Claim("It is the sun.", "4")]
    assert read_qrels(path) == {"1": {"7": 1, "8": 1}, "4": {"9": 0}}
    gold = read_gold(path)
    assert gold.stances == {("1", "7"): "SUPPORTS", ("1", "8"): "REFUTES", ("4", "9"): "NOT_ENOUGH_INFO"}
    assert gold.verdicts == {}
    # Its gold files name documents as the collection does.
    row = "claim_id,abstract_id,abstract_original_index,annotation"
    assert read_qrels(text("gold.csv", row, "1,0,77,Supports")) == {"1": {"77": 1}}


def test_the_sample_claims_are_claims_judgements_and_true_labels():
    rows = [json.loads(line) for line in CLAIMS.read_text(encoding="utf-8").splitlines()]
    assert [claim.id for claim in read_claims(CLAIMS)] == [row["_id"] for row in rows]
    gold = read_gold(CLAIMS)
    assert gold.verdicts == {row["_id"]: row["label"] for row in rows}
    assert gold.stances == {(row["_id"], one["doc_id"]): one["label"] for row in rows for one in row["evidence"]}
    qrels = read_qrels(CLAIMS)
    assert qrels["1"] == {"church-white-2011": 1, "frederikse-2020": 1, "nerem-2018": 0}
    assert {(claim, document) for claim, grades in qrels.items() for document in grades} == gold.stances.keys()


def test_evidence_in_a_list_and_in_scifacts_own_claims():
    cited = {"doc_id": "d", "label": "REFUTES", "sentences": [2]}
    path = jsonl(Path("a.jsonl"), {"id": 1, "evidence": [cited]}, {"id": 2, "evidence": []})
    assert read_qrels(path) == {"1": {"d": 1}} and read_gold(path).stances == {("1", "d"): "REFUTES"}
    # FEVER's own has pages and sentences, and no documents by their ids.
    other = jsonl(Path("b.jsonl"), {"id": 1, "label": "SUPPORTS", "evidence": [[[1, 2, "Sea_level", 0]]]})
    assert read_gold(other).verdicts == {"1": "SUPPORTS"}
    with pytest.raises(InvalidData, match="no judgements"):
        read_qrels(other)
    for wrong, said in ({"label": "NEI"}, "evidence without doc_id"), ({"doc_id": "e"}, "neither grade nor label"):
        with pytest.raises(InvalidData, match=f"line 1: claim 1 .*{said}"):
            read_qrels(jsonl(Path("c.jsonl"), {"id": 1, "evidence": [cited, wrong]}))
    evidence = {"31": [{"sentences": one, "label": "CONTRADICT"} for one in ([2, 4], [4])]}
    path = jsonl(
        Path("claims_dev.jsonl"),
        {"id": 1, "claim": "a", "evidence": evidence, "cited_doc_ids": [31, 32]},
        {"id": 2, "claim": "b", "evidence": {}, "cited_doc_ids": [33]},
    )
    assert read_claims(path) == [Claim("a", "1"), Claim("b", "2")]
    assert read_qrels(path) == {"1": {"31": 1, "32": 1}, "2": {"33": 1}}
    gold = read_gold(path)
    open_ = dict.fromkeys([("1", "32"), ("2", "33")], "NOT_ENOUGH_INFO")
    assert gold.stances == {("1", "31"): "REFUTES"} | open_
    assert gold.verdicts == {}


def test_checkthat_4b_whose_collection_is_a_pickle_and_not_read(monkeypatch):
    tweets = text(
        "subtask4b_query_tweets_dev.tsv",
        "post_id\ttweet_text\tcord_uid",
        "16\tcovid recovery: this ""study"" says\tvj6dp1n8",
        '69\t"Said ""twice"" and\tagain"\tw0lmpdpd',
    )  # fmt: skip
    texts = {"16": "covid recovery: this study says", "69": 'Said "twice" and\tagain'}
    assert read_claims(tweets) == [Claim(text, id_) for id_, text in texts.items()]
    assert read_qrels(tweets) == {"16": {"vj6dp1n8": 1}, "69": {"w0lmpdpd": 1}}
    with pytest.raises(InvalidData, match="no labels"):
        read_gold(tweets)
    Path("subtask4b_collection_data.pkl").write_bytes(pickle.dumps([{"cord_uid": "a"}]))
    for module in ("pickle", "pandas"):
        monkeypatch.setitem(__import__("sys").modules, module, None)
    Path("renamed.jsonl").write_bytes(Path("subtask4b_collection_data.pkl").read_bytes())
    for name in ("subtask4b_collection_data.pkl", "renamed.jsonl"):
        with pytest.raises(InvalidData, match=r"is a pickle.* python -c \"import pandas; pandas.read_pickle"):
            read_claims(name)
    with pytest.raises(UsageError, match=r"import pandas; pandas.read_pickle\('subtask4b_collection_data.pkl'\)"):
        read_corpus("subtask4b_collection_data.pkl")


def test_climate_fever_and_averitec(climate_fever):
    path = climate_fever
    gold = read_gold(path)
    assert len(read_claims(path)) == len(gold.verdicts) == 1028 and len(gold.stances) == 5140
    assert gold.stances["5", "Famine:386"] == gold.verdicts["5"] == "SUPPORTS"
    assert "CONFLICTING" in gold.verdicts.values() and "CONFLICTING" not in gold.stances.values()
    assert read_qrels(path)["5"]["Winter:20"] == 0 and read_qrels(path)["5"]["Famine:386"] == 1
    path = SHARED / "averitec" / "claims.jsonl"
    gold = read_gold(path)
    assert len(read_claims(path)) == len(gold.verdicts) == 281 and gold.verdicts["0"] == "REFUTES"
    assert set(gold.verdicts.values()) == {"SUPPORTS", "REFUTES", "NOT_ENOUGH_INFO", "CONFLICTING"}
    assert gold.stances == {}


def answer(claim: str | None, *hits: tuple[str, float]) -> str:
    evidence = [Evidence(Hit(rank, Document(id_, "", ""), score)) for rank, (id_, score) in enumerate(hits, 1)]
    return json.dumps(Result(Claim("text", claim), tuple(evidence), None, "default", "local:x").to_dict())


A_RUN = "q Q0 a 1 0.5 x"
SAME_ID = "line 2: the claim on line 1 already has the id '1'"


@pytest.mark.parametrize(
    ("read", "lines", "said"),
    [
        (read_qrels, ["q1 0 d1 1", "q1 0 d2 yes", "q1 0 d"], "the grade 'yes' is not a whole number up to 1000; line"),
        (read_qrels, ["q1 0 d1 1000000000"], "line 1: the grade '1000000000' is not a whole number up to 1000"),
        (read_qrels, ["q1 0 d1 1", "q1 0 d1 0"], "line 2: the pair of claim q1 and document d1 has a different grade"),
        (read_qrels, ["query-id\tcorpus-id\tscore", "q1\t\t1"], "line 2: there is a label or grade but no document"),
        (read_qrels, ["query-id\tcorpus-id\tscore", "\td\t1"], "line 2: the claim's id is empty"),
        (read_qrels, ["query-id\tcorpus-id\tscore", "q\td"], "line 2: the row has 2 columns and the header 3"),
        (read_qrels, ["query-id\tcorpus-id", "q\td"], "line 2: claim q and document d have neither grade nor label"),
        (read_qrels, ['{"claim_id": 1, "doc_id": 2, "label": "perhaps so"}'], "unknown label 'perhaps so'"),
        (read_qrels, ['{"claim_id": true, "doc_id": 2, "score": 1}'], "line 1: claim_id is not an id: 'True'"),
        (read_claims, ['{"_id": "1", "text": "a"}', '{"_id": "1", "text": "a"}'], SAME_ID),
        (read_claims, ['{"_id": "1", "text": "a"}', "", '{"_id": "2"}'], "line 3: claim 2 has no text"),
        (read_claims, ['{"_id": "1", "text": "a"}', '{"_id": "2", "text": "?!"}'], "line 2: claim 2 has no word"),
        (read_claims, ['{"_id": "1", "text": "a"}', '{"_id": "2"'], "line 2: not valid JSON"),
        (read_claims, ["1\ta\tb"], "line 1: 3 columns without a header. Give the columns names (id, claim)"),
        (read_claims, ['{"claim_id": 1, "claim": "a", "doc_id": 1}', '{"claim_id": 1, "claim": "b"}'], SAME_ID),
        (read_gold, ['{"claim_id": 1, "doc_id": 2, "label": "mixed"}'], "the label 'mixed' is for a whole claim"),
        (
            read_gold,
            ['{"claim_id": 1, "doc_id": 2, "label": "NEI"}', '{"claim_id": 1, "doc_id": 2, "label": "true"}'],
            "line 2: the pair of claim 1 and document 2 has a different label on line 1",
        ),
        (read_gold, ['{"claim_id": 1, "evidence": {"3": []}}'], "the evidence of claim 1 in document 3 is no"),
        (read_gold, ['{"claim_id": 1, "evidences": [{}]}'], "line 1: claim 1 has evidence without evidence_id"),
        (read_gold, ['{"claim_id": 1, "doc_id": 2, "label": "NEI", "sentences": [0.5]}'], "line 1: sentences must"),
        (read_run, [A_RUN, "q Q0 d 1 0.5"], "line 2: 5 columns where a run has 6"),
        (read_run, [A_RUN, "q Q0 d 1 high x"], "line 2: the score 'high' is not a number"),
        (read_run, [A_RUN, "q Q0 d 1 nan x"], "line 2: the score 'nan' is not a number"),
        (read_run, [A_RUN, "q Q0 a 2 0.1 x"], "line 2: document a of claim q appears twice"),
        (read_run, [A_RUN, "q Q0 \x00\udcff 2 0.1 x"], "line 2: not valid UTF-8"),
        (read_run, [answer(None)], "line 1: the claim has no id"),
        (read_run, ['{"recipe": "bm25"}'], "line 1: neither a line of a TREC run nor a result of ccheck query"),
        (read_run, [answer("1", ("a", 1.0), ("a", 0.5))], "line 1: claim 1 has a document twice"),
    ],
)  # fmt: skip
def test_bad_lines_are_named(read, lines, said):
    path = text("file", *lines)
    with pytest.raises(InvalidData) as caught:
        read(path)
    assert said in str(caught.value) and str(caught.value).startswith("file can't be used: ")


def test_many_bad_lines_are_counted_and_files_that_are_none_said():
    with pytest.raises(InvalidData, match=r"line 1: .*; line 5: .*; and 3 more\. Correct"):
        read_qrels(text("qrels", *["q d x"] * 8))
    Path("qrels").write_bytes(b"q1 0 d1 1\nq1 0 \xff 1\n")
    with pytest.raises(InvalidData, match="line 2: not valid UTF-8"):
        read_qrels("qrels")
    Path("broken.gz").write_bytes(gzip.compress(b"q1 0 d1 1\n" * 5000)[:-20])
    with pytest.raises(InvalidData, match=r"broken\.gz can't be used: line \d+: "):
        read_qrels("broken.gz")
    with pytest.raises(NotFound, match="there is no file nowhere"):
        read_claims("nowhere")
    with pytest.raises(NotFound, match="is a folder"):
        read_claims(Path.cwd())
    with pytest.raises(InvalidData, match="Its fields are Nr, Behauptung"):
        read_claims(text("german.csv", "Nr;Behauptung", "1;Das Meer steigt, sagt er."))
    with pytest.raises(InvalidData, match="empty has no claims"):
        read_claims(text("empty", "", " "))


@pytest.mark.slow
def test_no_bytes_are_a_bug():
    """Files of the known kinds with bytes changed: what is wrong is an error of ours, whoever reads them."""
    rng = random.Random(0)
    files = [
        *(b'{"_id": "1", "text": "a"}\n{"_id": 2, "claim": "b", "doc_id": 4, "label": "NEI", "sentences": [1]}\n',),
        *(b"query-id\tcorpus-id\tscore\nq\td\t1\n", b"q 0 d 1\nq Q0 d 1 0.5 x\n", b"1\ta claim\n"),
        b'[{"claim_id": 1, "claim": "x", "evidences": [{"evidence_id": 3, "evidence_label": "SUPPORTS"}]}]',
        b'{"id": 1, "claim": "x", "evidence": {"1": [{"sentences": [1], "label": "SUPPORT"}]}, "cited_doc_ids": [1]}',
        b'{"claim": {"id": "1", "text": "x"}, "evidence": [{"doc_id": "a", "score": 1.0}]}\n',
        b"claim,abstract_id,claim_id,annotation\r\na,1,2,Supports\r\n",
    ]
    values = [b"null", b"[]", b"{}", b"1e999", b"true", b'"\\ud800"', b'""', b"NaN", b"\r", b'"', b"\xff", b"\x00"]
    refused = 0
    for number in range(1500):
        # Parquet is read in a process of its own, which takes its time.
        data = bytearray(b"PAR1aaaa" if number < 4 else rng.choice(files))
        for _ in range(rng.randrange(1, 4)):
            place = rng.randrange(len(data) + 1)
            data[place : place + rng.randrange(5)] = rng.choice(values)
        Path("file").write_bytes(data)
        for read in (read_claims, read_qrels, read_gold, read_run):
            try:
                read("file")
            except CcheckError:
                refused += 1
    assert 1500 < refused < 6000


TEXTS = ["Seas, they rise.", "Ice melts; it does."]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("claims.txt", "\n".join(TEXTS) + "\n\n"),
        ("claims.csv", 'Claim,Source\n"Seas, they rise.",a\nIce melts; it does.,b\n'),
        ("semicolons.csv", 'id;claim\n1;Seas, they rise.\n2;"Ice melts; it does."\n'),
        *(
            ("claims.jsonl", "".join(json.dumps({id_: n, name: f" {text} "}) + "\n" for n, text in enumerate(TEXTS, 1)))
            for id_, name in (("id", "claim"), ("claim_id", "claim"), ("qid", "query"), ("topic", "tweet_text"))
        ),
        ("queries.jsonl", "".join(json.dumps({"query": text}) + "\n" for text in TEXTS)),
        ("excel.csv", f'sep=;\nclaim;Nr\n{TEXTS[0]};7\n"{TEXTS[1]}";8\n'),
        ("topics.txt", f"1\t{TEXTS[0]}\n2\t{TEXTS[1]}\n"),
    ],
)
def test_claims_are_read_generously(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    claims = read_claims(tmp_path / name)
    assert [claim.text for claim in claims] == TEXTS and [claim.id for claim in claims] == ["1", "2"]


# -- TREC runs: what is written keeps its order in every tool, what is read is checked


def lines(path: str = "a.run") -> list[list[str]]:
    return [line.split() for line in Path(path).read_text(encoding="utf-8").splitlines()]


SCORES = {
    "ties": [0.5] * 300,
    "zeros": [0.0, -0.0, 0.0, 0.0],
    "apart in float64 only": [1 + i * 1e-12 for i in range(50, 0, -1)],
    "large": [1e30, 1e30, 16777217.0, 16777216.0],
    "tiny": [1e-300, 1e-310, 5e-324, 0.0],
    "negative": [-1.0, -1.0, -1.0000001, -1e20],
    "reciprocal ranks": [1 / (60 + rank) for rank in range(1, 200)],
    "random": sorted((round(random.Random(1).random(), 3) for _ in range(500)), reverse=True),
}


@pytest.mark.parametrize("scores", SCORES.values(), ids=SCORES)
def test_scores_fall_strictly_in_both_precisions(scores):
    # Ids against the order, so that a tie that a tool breaks by id would show.
    ids = [f"d{number:04}" for number in range(len(scores))]
    write_run("a.run", {"q": dict(zip(ids, scores, strict=True))}, "name")
    written = [line[4] for line in lines()]
    double, single = np.array(written, np.float64), np.array(written, np.float32)
    assert (np.diff(double) < 0).all() and (np.diff(single) < 0).all()
    assert [line[2] for line in lines()] == ids == list(read_run("a.run")["q"])
    # No further from the scores than the number of ties makes necessary.
    assert np.allclose(single, scores, rtol=1e-4, atol=1e-35)


def test_the_columns_the_order_of_equal_scores_and_that_reading_is_the_inverse_of_writing():
    write_run("a.run", {"q 1": {"b": 0.25, "a": 0.5}, "none": {}}, "my recipe")
    assert lines() == [
        ["q%201", "Q0", "a", "1", "0.5", "my%20recipe"],
        ["q%201", "Q0", "b", "2", "0.25", "my%20recipe"],
    ]
    write_run("a.run", {"q": {"a": 1.0}}, "")
    assert lines() == [["q", "Q0", "a", "1", "1.0", "ccheck"]]
    Path("a.run").write_text("q Q0 a 1 0.5 x\nq Q0 c 2 0.5 x\nq Q0 b 3 0.7 x\n")
    assert list(read_run("a.run")["q"]) == ["b", "c", "a"]
    rng = random.Random(3)
    run = {f"q{i}": {f"d{j}": rng.random() for j in rng.sample(range(99), 30)} for i in range(20)}
    write_run("a.run", run, "x")
    read = read_run("a.run")
    assert {claim: list(scores) for claim, scores in read.items()} == {claim: ranked(run[claim]) for claim in run}
    assert all(read[claim] == pytest.approx(run[claim], rel=1e-6) for claim in run)
    Path("a.run.gz").write_bytes(gzip.compress(Path("a.run").read_bytes()))
    assert read_run("a.run.gz") == read


def test_scores_of_a_run_fall_by_as_little_as_they_must():
    scores = strictly_decreasing([0.5, 0.5, 0.5, 0.4, 0.4, -1.0, -1.0, 0.0])
    assert (np.diff(scores) < 0).all() and strictly_decreasing([]) == []
    assert (scores[0], scores[1], scores[3]) == (0.5, math.nextafter(0.5, 0), 0.4)


@pytest.mark.parametrize("score", [math.nan, math.inf, -math.inf, 1e39])
def test_scores_that_no_run_can_hold(score):
    Path("a.run").write_text("as it was\n")
    with pytest.raises(InvalidData, match="claim q has a score that a run can't hold"):
        write_run("a.run", {"p": {"a": 1.0}, "q": {"a": score}}, "x")
    assert Path("a.run").read_text() == "as it was\n" and [path.name for path in Path.cwd().iterdir()] == ["a.run"]


def test_a_document_of_several_units_counts_once_by_its_best():
    document, other = Document("d", "", "The sea rises. Ice melts."), Document("e", "", "Ice.")
    units = [Unit("sentences", 0, 0, 14, "The sea rises."), Unit("sentences", 1, 15, 25, "Ice melts.")]
    stances = [Stance("SUPPORTS"), Stance("REFUTES"), Stance("NOT_ENOUGH_INFO")]
    hits = [Hit(1, document, 3.0, unit=units[0]), Hit(2, other, 2.0), Hit(3, document, 1.0, unit=units[1])]
    evidence = tuple(Evidence(hit, stance=stance) for hit, stance in zip(hits, stances, strict=True))
    result = Result(Claim("c", "1"), evidence, None, "r", "s")
    assert [line.split()[2] for line in result_lines(result)] == ["d", "e"]
    jsonl(Path("a.jsonl"), result.to_dict())
    assert read_run("a.jsonl") == {"1": {"d": 3.0, "e": 2.0}}
    assert [evidence.stance for evidence in result.by_document] == stances[:2]
