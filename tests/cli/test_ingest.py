import gzip
import json
from pathlib import Path

import pytest
from cli_runs import BM25, ccheck, jsonl, works
from scripted_llm import Said, say, scripted, user_text

from ccheck.core.text import per_second
from ccheck.demo import CORPUS
from ccheck.encode import dense

GOOD = [
    {"_id": "1", "title": "Sea", "text": "Sea level rises."},
    {"title": "No id", "text": "Ice melts."},
    {"_id": 4, "text": "Numbers are ids, too."},
]
BAD = [
    ({"_id": "1", "title": "Sea", "text": "Another text."}, "line 1 has another document"),
    ({"_id": "3", "title": " ", "text": " "}, "empty text"),
    ("not json", "not valid JSON"),
    ([1, 2], "expected a JSON object"),
]


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    return jsonl(tmp_path / "mixed.jsonl", *GOOD, *(record for record, _ in BAD))


def found(store: object, claim: str, *more: str) -> list[str]:
    ran = works("query", claim, "--store", store, *BM25, "--json", *more)
    return [piece["doc_id"] for piece in ran.objects[0]["evidence"]]


def test_a_first_and_a_second_time(tmp_path):
    first = ccheck("ingest", CORPUS, "--no-dense")
    assert (first.code, first.out) == (0, "") and first.err.startswith("ccheck: local:papers: 71 added in ")
    second = ccheck("ingest", CORPUS, "--no-dense")
    assert second.code == 0 and "71 unchanged" in second.err
    assert ccheck("index", "info", "--json").objects[0]["documents"] == 71


def test_what_is_bad_is_listed_and_nothing_good_is_lost(mixed, tmp_path):
    ran = ccheck("ingest", mixed, "--no-dense", "--json")
    assert ran.code == 7 and ran.objects[0]["added"] == 3 and ran.objects[0]["rejected"] == 4
    assert "4 records could not be used. " in ran.err and "mixed.jsonl.rejects.jsonl lists them" in ran.err
    rejects = [json.loads(line) for line in (tmp_path / "mixed.jsonl.rejects.jsonl").read_text().splitlines()]
    assert [reject["line"] for reject in rejects] == [4, 5, 6, 7]
    assert all(reason in reject["reason"] for reject, (_, reason) in zip(rejects, BAD, strict=True))
    assert found("local:papers", "sea level") == ["1"] and found("local:papers", "numbers") == ["4"]
    assert len(found("local:papers", "ice")) == 1 and "1 record without an id" in ran.err


def test_dry_run_shows_and_stores_nothing(mixed):
    ran = ccheck("ingest", CORPUS, "--no-dense", "--dry-run")
    assert ran.code == 0 and "nothing was stored" in ran.err and ran.out.count("\nmetadata.doi") == 3
    starts = {line.index(line.split(None, 1)[1]) for line in ran.out.splitlines() if line}
    assert len(starts) == 1  # names and values in two columns
    documents = ccheck("ingest", mixed, "--no-dense", "--dry-run", "--json").objects
    assert [document["text"] for document in documents] == [record["text"] for record in GOOD]
    assert ccheck("index", "info").code == 4


def test_what_is_missing_says_so_before_a_model_is_loaded(tmp_path, monkeypatch):
    monkeypatch.setattr(dense, "load_embedder", lambda *_: pytest.fail("loaded a model"))
    (tmp_path / "papers.jsonl").touch()
    meant = f"papres.jsnl: did you mean {tmp_path / 'papers.jsonl'}?"
    for source, message in ((tmp_path / "papres.jsnl", meant), ("nothing-*.jsonl", "no readable file matches")):
        ran = ccheck("ingest", source)
        assert (ran.code, ran.out) == (4, "") and message in ran.err


def test_files_of_no_use_and_a_folder_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "empty.jsonl").touch()
    ran = ccheck("ingest", tmp_path / "empty.jsonl", "--no-dense")
    assert ran.code == 0 and "nothing to store: no records in 1 file" in ran.err
    assert [per_second(count, 10) for count in (2, 15, 12_345)] == ["0.2/s", "1.5/s", "1,234/s"]
    ran = ccheck("ingest", jsonl(tmp_path / "other.jsonl", {"_id": "1", "body": "words"}), "--no-dense")
    assert ran.code == 5 and "'_id', 'body'" in ran.err and "--text-field" in ran.err
    (tmp_path / "photo.png").write_bytes(b"\x89PNG")
    assert ccheck("ingest", tmp_path / "photo.png", "--no-dense").code == 2
    (tmp_path / "noise.jsonl").write_bytes(bytes(range(256)) * 20)
    assert ccheck("ingest", tmp_path / "noise.jsonl", "--no-dense").code == 5
    (tmp_path / "cut.jsonl.gz").write_bytes(gzip.compress(CORPUS.read_bytes())[:9000])
    ran = ccheck("ingest", tmp_path / "cut.jsonl.gz", "--no-dense", "--json")
    assert ran.code == 7 and ran.objects[0]["added"] > 0 and ran.objects[0]["rejected"] == 1
    (folder := tmp_path / "photos").mkdir()
    (folder / "one.png").write_bytes(b"\x89PNG")
    ran = ccheck("ingest", CORPUS, "--no-dense", "--store", folder)
    assert ran.code == 5 and "is not a ccheck store and not empty" in ran.err
    assert [file.name for file in folder.iterdir()] == ["one.png"]
    (folder / "documents.sqlite").write_text("not a database")
    ran = ccheck("ingest", CORPUS, "--no-dense", "--store", folder)
    assert ran.code == 5 and "can't be read as a store" in ran.err


@pytest.mark.parametrize("store", [" ", "local:", "htps://host/x", "elasticserach:x", "http://", "http://host:99999/x"])
def test_what_names_no_store(store):
    for arguments in (["ingest", CORPUS, "--no-dense"], ["query", "x"], ["index", "info"]):
        ran = ccheck(*arguments, "--store", store)
        assert ran.code == 2 and "https://host:9200/INDEX" in ran.err
    assert not [file for file in Path().iterdir() if file.name != "home"]


@pytest.mark.usefixtures("minilm")
def test_embeddings_are_added_by_a_second_ingest(tmp_path):
    few = jsonl(tmp_path / "few.jsonl", *CORPUS.read_text(encoding="utf-8").splitlines()[:2])
    assert all(document["passages"] >= 1 for document in ccheck("ingest", few, "--dry-run", "--json").objects)
    assert ccheck("ingest", few, "--no-dense").code == 0
    assert "2 updated" in ccheck("ingest", few).err
    assert "dense" in ccheck("query", "carbon dioxide", "--json").objects[0]["evidence"][0]["scores"]


ADDITIONAL = """
[ingest.additional]
llm = "llama-3.2"
posts = 2
[retrievers.bm25]
fields = { content = 1.0, additional = 1.0 }
[verdict]
method = "none"
"""


def writes(request: dict) -> Said:
    """A language model that knows a word which is in no paper."""
    if "Posts wanted" in user_text(request):
        return say({"posts": ["zyzzogeton swims", "so interesting"]})
    return say({"summary": "What a zyzzogeton does."})


def test_a_recipe_gets_what_it_searches(tmp_path, monkeypatch):
    few = jsonl(tmp_path / "few.jsonl", *CORPUS.read_text(encoding="utf-8").splitlines()[:6])
    (tmp_path / "r.toml").write_text(ADDITIONAL)
    with scripted(writes, user=monkeypatch) as server:
        ran = ccheck("ingest", few, "--recipe", "r.toml", "--no-dense", "--dry-run")
        assert ran.code == 0 and server.requests == []
        assert "would ask the language model 12 questions (2 for each of 6 new documents)" in ran.err
        assert ccheck("index", "info").code == 4  # nothing was stored
        (report,) = ccheck("ingest", few, "--recipe", "r.toml", "--no-dense", "--json").objects
        assert (report["added"], report["usage"]["llm_calls"], len(server.requests)) == (6, 12, 12)
        # Later ingests make the same, without being told.
        ran = ccheck("ingest", few, "--no-dense")
        assert ran.code == 0 and "6 unchanged" in ran.err and len(server.requests) == 12
        replaced = ("--replace", "llama-3.2=n", "--store", "local:another")
        assert "n stands in for llama-3.2" in ccheck("ingest", few, "--recipe", "r.toml", "--no-dense", *replaced).err
        assert [request["model"] for request in server.requests] == ["llama-3.2"] * 12 + ["n"] * 12
    ran = ccheck("query", "zyzzogeton", "--recipe", "r.toml", "--json")
    assert ran.code == 0 and ran.objects[0]["evidence"], ran.err
