"""Hard negatives: what is left out and what is drawn."""

import json

from cli_runs import BM25, ccheck, jsonl, works

from ccheck.core.types import Claim, Document, Evidence, Hit, Result
from ccheck.lab.train.mining import MiningOptions, Source, mine
from ccheck.search.local import LocalStore

TEXT = "The sea has risen by twenty centimetres since nineteen hundred, as tide gauges at all coasts have shown."


def document(name: str, text: str | None = None) -> Document:
    return Document(
        name, f"Title {name}", text or f"{name} is about {name} things of {name} and nothing else in it at all."
    )


CORPUS = {
    one.id: one
    for one in (document("good", TEXT), document("copy", f"{TEXT} Indeed."), *(document(f"d{n}") for n in range(40)))
}


class Checker:
    """A checker that has found these: `near` scores like the relevant document, which is third."""

    def check_many(self, claims, *, k):
        for claim in claims:
            names = ["d0", "d1", "good", "copy", *(f"d{n}" for n in range(2, 20))]
            scores = [0.99, 0.9, 0.91, 0.80, *(0.7 - 0.01 * n for n in range(18))]
            hits = [Hit(r, CORPUS[name], s) for r, (name, s) in enumerate(zip(names, scores, strict=True), 1)]
            yield Result(claim, tuple(Evidence(hit) for hit in hits[:k]), None, "r", "s")


CLAIMS = [Claim(f"claim {n}", f"c{n}") for n in range(6)]
QRELS = {f"c{n}": {"good": 1, "d5": 0} for n in range(6)}


def run(output, options):
    source = Source(Checker(), lambda ids: {id_: CORPUS[id_] for id_ in ids if id_ in CORPUS}, sorted(CORPUS))
    return mine(source, CLAIMS, QRELS, output, options)


def rows(output) -> list[dict]:
    return [json.loads(line) for line in output.read_text().splitlines()]


def test_what_could_bear_on_the_claim_is_left_out_and_the_seed_draws_from_the_first(tmp_path):
    output = tmp_path / "negatives.jsonl"
    mined = run(output, MiningOptions(hard=50, random=4))
    found = rows(output)
    assert (mined.rows, mined.claims, len(found)) == (6, 6, 6)
    assert mined.left_out == 12, "d0 and d1, of each claim"
    for row in found:
        assert set(row) == {"claim_id", "claim", "positive_id", "positive", "negatives"}
        assert row["positive_id"] == "good" and row["positive"] == f"Title good\n{TEXT}"
        hard = [one["id"] for one in row["negatives"] if one["kind"] == "hard"]
        assert hard == ["copy", *(f"d{n}" for n in range(2, 20))]  # d5 too, which was judged not to be relevant
        others = [one for one in row["negatives"] if one["kind"] == "random"]
        assert len({one["id"] for one in others}) == 4 and all(one["score"] is None for one in others)
        assert {one["id"] for one in others}.isdisjoint({"good", "d0", "d1", *hard})
        assert all(one["text"] == CORPUS[one["id"]].content for one in row["negatives"])
    without = tmp_path / "all.jsonl"
    run(without, MiningOptions(hard=50, random=0, margin=None))
    assert {one["id"] for one in rows(without)[0]["negatives"]} == {"copy", *(f"d{n}" for n in range(20))}
    outputs = [tmp_path / name for name in ("a", "b", "c")]
    for output, seed in zip(outputs, (1, 1, 2), strict=True):
        run(output, MiningOptions(keep=6, hard=2, random=2, seed=seed))
    assert outputs[0].read_text() == outputs[1].read_text() != outputs[2].read_text()
    drawn = {one["id"] for row in rows(outputs[0]) for one in row["negatives"] if one["kind"] == "hard"}
    assert drawn <= {"copy", *(f"d{n}" for n in range(2, 7))} and len(drawn) > 2


def test_the_command(tmp_path, monkeypatch):
    documents = [{"_id": one.id, "title": one.title, "text": one.text} for one in CORPUS.values()]
    corpus = jsonl(tmp_path / "corpus.jsonl", *documents)
    claims = jsonl(
        tmp_path / "claims.jsonl",
        {"_id": "c0", "text": "the sea has risen since nineteen hundred"},
        {"_id": "c1", "text": "d3 things"},
    )
    qrels = jsonl(tmp_path / "qrels.tsv", "query-id\tcorpus-id\tscore", "c0\tgood\t1", "c1\td3\t1")
    store, output = tmp_path / "store", tmp_path / "negatives.jsonl"
    assert ccheck("ingest", corpus, "--store", store, "--no-dense", "--quiet").code == 0
    asked = ("mine", "--claims", claims, "--qrels", qrels, "--store", store, "-o", output, *BM25)
    (said,) = works(*asked, "--hard", 2, "--random", 3, "--corpus", corpus, "--json").objects
    assert (said["rows"], said["claims"]) == (2, 2)
    found = rows(output)
    assert [row["positive_id"] for row in found] == ["good", "d3"]
    assert all(one["id"] not in ("good", "copy") for one in found[0]["negatives"])
    # What was ranked before is remembered, so that a mining that was stopped goes on where it was.
    first = output.read_text()
    with monkeypatch.context() as patch:
        patch.setattr(LocalStore, "rank", None)
        assert ccheck(*asked, "--hard", 2, "--random", 3, "--corpus", corpus).code == 0
    assert output.read_text() == first
    nothing = ccheck(*asked, "--hard", 0, "--random", 0)
    assert nothing.code == 2 and "nothing to mine" in nothing.err
    assert ccheck(*asked[:-4], "-o", claims, *BM25).code == 2
