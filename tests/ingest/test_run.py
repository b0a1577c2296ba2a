"""Whole ingests, into a store in memory."""

import io
import json
import threading
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock
from urllib.parse import parse_qsl

import numpy as np
import pytest
from cli_runs import ccheck, jsonl
from http_stub import Asked, Reply, http_stub
from memory_store import MemoryStore, rows
from tiny_embedder import TinyEmbedder, encoders_of

import ccheck.ingest.fetch as fetching
from ccheck.core.errors import Incomplete, NotFound, ServerError, UsageError
from ccheck.core.layout import MAIN_VECTORS, Chunking
from ccheck.core.types import Document
from ccheck.ingest import Encoders, IngestOptions, Progress, dry_run, ingest
from ccheck.ingest import run as run_module
from ccheck.ingest.encoders import DenseEncoder
from ccheck.ingest.fetch import Client, Service, fetch
from ccheck.ingest.seen import Seen


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache folder of the user stays out of it, and the current folder, too."""
    folder = tmp_path_factory.mktemp("elsewhere")
    monkeypatch.setattr("platformdirs.user_cache_path", lambda name: folder / "cache")
    (folder / "here").mkdir()
    monkeypatch.chdir(folder / "here")


def rejects_in(path: Path | str) -> list[dict]:
    return list(map(json.loads, Path(path).read_text(encoding="utf-8").splitlines()))


def counts(report) -> dict[str, int]:
    names = ("added", "updated", "unchanged", "repeated", "rejected")
    assert report.read == sum(getattr(report, name) for name in names)
    assert report.exit_code == (7 if report.rejected else 0)
    return {name: getattr(report, name) for name in names if getattr(report, name)}


def test_long_documents_have_several_passages(tmp_path: Path) -> None:
    store, embedder = MemoryStore(), TinyEmbedder()
    text = " ".join(f"Sentence {n} has exactly six words." for n in range(40))
    encoders = Encoders((DenseEncoder(embedder, Chunking(30, 20, 6)),))
    report = ingest([jsonl(tmp_path / "a.jsonl", {"_id": "1", "text": text})], store, encoders)
    passages = store.entries["1"].passages[MAIN_VECTORS]
    assert len(passages) == report.passages == 20
    for passage in passages:
        assert np.array_equal(passage.vector, embedder.vector(text[passage.start : passage.end]))


def test_what_changed_is_taken_again(tmp_path: Path) -> None:
    store, embedder = MemoryStore(), TinyEmbedder()
    records = rows(50)
    ingest([jsonl(tmp_path / "a.jsonl", *records)], store, encoders_of(embedder))
    records[7]["text"] = "Another text."
    records[8]["year"] = 2011
    path = jsonl(tmp_path / "a.jsonl", *records, {"_id": "new", "text": "New."})
    report = ingest([path], store, encoders_of(embedder))
    assert counts(report) == {"added": 1, "updated": 2, "unchanged": 48}
    assert store.entries["7"].document.text == "Another text."
    assert store.entries["8"].document.metadata == {"year": 2011}
    assert sorted(embedder.embedded[50:]) == ["New.", "Title 7\nAnother text."]


def test_the_same_bytes_read_otherwise_are_the_same_paper() -> None:
    texts = [Document("a", "t", text, {"file_sha256": mark}) for text, mark in map(tuple, ("x1", "y1", "x2", "y3"))]
    assert [run_module.same_paper(texts[0], one) for one in texts] == [True, True, True, False]


def test_the_first_of_two_files_stays_the_first(tmp_path: Path) -> None:
    store = MemoryStore()
    one = jsonl(tmp_path / "a.jsonl", *rows(3))
    two = jsonl(tmp_path / "b.jsonl", *rows(1), {"_id": "b", "text": "B."}, {"_id": "1", "text": "Other."})
    for first in ("added", "unchanged"):
        report = ingest([str(tmp_path)], store, options=IngestOptions(rejects=tmp_path / "r.rejects.jsonl"))
        assert counts(report) == {first: 4, "repeated": 1, "rejected": 1}
        assert store.entries["1"].document.text == "Text of paper 1."
        (reject,) = rejects_in(tmp_path / "r.rejects.jsonl")
        assert (reject["file"], reject["line"]) == (str(two), 3) and f"line 2 of {one}" in reject["reason"]


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = "\n".join([*map(json.dumps, rows(3)), "bad"])
    store = MemoryStore()
    for expected in ({"added": 3, "rejected": 1}, {"unchanged": 3, "rejected": 1}):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(lines.encode())))
        seen: list[Progress] = []
        report = ingest(["-"], store, on_progress=seen.append)
        assert counts(report) == expected
        assert seen[-1].bytes_total is None
    assert report.rejects == Path("ccheck.rejects.jsonl")
    assert rejects_in("ccheck.rejects.jsonl")[0]["file"] == "standard input"


def test_dry_run(tmp_path: Path) -> None:
    records = [{"_id": "1", "text": "word " * 200, "year": 2015}, "bad", {"_id": "2", "text": ""}, *rows(5)]
    path = jsonl(tmp_path / "a.jsonl", *records)
    preview = dry_run([path], encoders=encoders_of(TinyEmbedder()), n=2)
    assert [document.id for document in preview.documents] == ["1", "0"]
    assert preview.documents[0].published == "2015-12-31" and preview.passages == (7, 1)
    assert [(reject.line, reject.reason) for reject in preview.rejects][1] == (3, "empty text")
    assert (plain := dry_run([path])).passages is None and len(plain.documents) == 3
    assert [file.name for file in tmp_path.iterdir()] == ["a.jsonl"] and list(Path.cwd().iterdir()) == []


def test_everything_bad_is_counted_and_written(tmp_path: Path) -> None:
    path = jsonl(
        tmp_path / "corpus.jsonl",
        {"_id": "1", "title": "One", "text": "First."},
        "not json \x7f ünïcode",
        {"_id": "1", "title": "One", "text": "First."},
        {"_id": "1", "title": "One", "text": "Different."},
        {"_id": "2", "title": "", "text": " "},
        {"_id": "3", "title": "x" * 10_001, "text": "Long title."},
        {"text": "No id."},
        {"text": "No id.", "year": 1},
        "",
        {"_id": ["4"], "text": "Bad id."},
        {"_id": "5", "body": "No text field."},
        {"_id": "6", "text": "Last.", "date": "someday \ud800"},
    )
    report = ingest([path], store := MemoryStore())
    assert counts(report) == {"added": 3, "repeated": 2, "rejected": 6}
    assert (report.without_id, report.dates_unread, report.exit_code) == (1, 1, 7)
    assert report.rejects == tmp_path / "corpus.jsonl.rejects.jsonl"
    rejects = rejects_in(report.rejects)
    assert [list(reject) for reject in rejects] == [["file", "line", "reason", "record"]] * 6
    assert {reject["file"] for reject in rejects} == {str(path)}
    assert [reject["line"] for reject in rejects] == [2, 4, 5, 6, 10, 11]
    assert "line 1 has another document with the id '1', which was kept" in rejects[1]["reason"]
    assert rejects[0]["record"] == "not json \x7f ünïcode"
    assert json.loads(rejects[1]["record"])["text"] == "Different."
    assert len(rejects[3]["record"]) == 1000
    assert store.entries["1"].document.text == "First."


def test_what_the_store_refuses_is_rejected_and_a_missing_file_before_anything_is_made(tmp_path: Path) -> None:
    store = MemoryStore(lambda entries: {"1": "too odd"})
    path = jsonl(tmp_path / "a.jsonl", *rows(3))
    with pytest.raises(NotFound):
        ingest([path, str(tmp_path / "b.jsonl")], store)
    assert store.calls == []
    report = ingest([path], store)
    assert counts(report) == {"added": 2, "rejected": 1}
    (reject,) = rejects_in(report.rejects)
    assert (reject["line"], reject["reason"]) == (2, "the store refused it: too odd")
    store.on_upsert = None
    assert counts(ingest([path], store)) == {"added": 1, "unchanged": 2}


def test_where_rejects_go_and_where_they_can_not(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "corpus.jsonl", *rows(2), "bad")
    chosen = tmp_path / "mine.list"
    assert ingest([path], MemoryStore(), options=IngestOptions(rejects=chosen)).rejects == chosen
    assert len(rejects_in(chosen)) == 1
    with pytest.raises(UsageError, match="this command reads that file"):
        ingest([path], MemoryStore(), options=IngestOptions(rejects=Path(path)))
    # a single file in a folder is a single file
    assert ingest([str(tmp_path)], MemoryStore()).rejects == tmp_path / "corpus.jsonl.rejects.jsonl"
    (tmp_path / "corpus.jsonl.rejects.jsonl").unlink()
    (tmp_path / "corpus.jsonl.rejects.jsonl").mkdir()
    report = ingest([path], MemoryStore())
    assert report.rejects == Path("corpus.jsonl.rejects.jsonl") and len(rejects_in(report.rejects)) == 1
    assert "it must be the name of a file" in report.notices[0] and "jsonl.rejects.jsonl instead" in report.notices[1]
    with pytest.raises(UsageError, match="it must be the name of a file"):
        ingest([path], MemoryStore(), options=IngestOptions(rejects=tmp_path / "corpus.jsonl.rejects.jsonl"))
    Path("corpus.jsonl.rejects.jsonl").unlink()
    Path("corpus.jsonl.rejects.jsonl").mkdir()
    report = ingest([path], MemoryStore())
    assert counts(report) == {"added": 2, "rejected": 1} and report.rejects is None and len(report.notices) == 3


def test_going_on_after_the_store_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_module, "BATCH_DOCUMENTS", 10)
    closed: list[int] = []
    close = Seen.close
    monkeypatch.setattr(Seen, "close", lambda seen: closed.append(threading.get_ident()) or close(seen))
    on_upsert = Mock(side_effect=[None, None, None, ServerError("the server is gone")])
    store, embedder = MemoryStore(on_upsert), TinyEmbedder()
    path = jsonl(tmp_path / "a.jsonl", *rows(200))
    with pytest.raises(ServerError, match="the server is gone") as failed:
        ingest([path], store, encoders_of(embedder))
    # Its frames, and so the generators, are held. The collector runs in any thread, and the database belongs to one.
    assert failed.tb is not None and closed == [threading.get_ident()]
    assert len(store.entries) == 30 and len(embedder.embedded) <= 80  # it did not go on embedding for long
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("ccheck-store")]
    store.on_upsert = None
    report = ingest([path], store, encoders_of(embedder))
    assert counts(report) == {"added": 170, "unchanged": 30}
    assert len(embedder.embedded) == len(set(embedder.embedded)) == 200
    assert sorted(store.entries, key=int) == [str(n) for n in range(200)]


@pytest.mark.parametrize("stops", [KeyboardInterrupt, Incomplete])
def test_an_interrupt_keeps_what_was_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stops: type) -> None:
    monkeypatch.setattr(run_module, "BATCH_DOCUMENTS", 10)
    on_encode = Mock(side_effect=[*[None] * 5, stops, *[None] * 100])
    store = MemoryStore()
    path = jsonl(tmp_path / "a.jsonl", *rows(200))
    with pytest.raises(stops):
        ingest([path], store, encoders_of(TinyEmbedder(on_encode=on_encode)))
    assert 20 <= len(store.entries) <= 50 and store.calls[-1] == "publish"
    report = ingest([path], store, encoders_of(TinyEmbedder()))
    assert report.added + report.unchanged == len(store.entries) == 200


TOTAL = 450


def page(start: str, size: str) -> range:
    return range(int(start), min(TOTAL, int(start) + int(size)))


def openalex(asked: Asked) -> Reply:
    """Cursors are opaque; the last page's is null."""
    given = dict(parse_qsl(asked.query))
    assert asked.path == "/works" and given["search"] == "sea level"
    numbers = page(given["cursor"].removeprefix("IlsxLjAs").replace("*", "0"), given["per-page"])
    works = [
        {"id": f"https://openalex.org/W{n}", "title": f"{n}", "abstract_inverted_index": {"Seas": [0], "rise.": [1]}}
        for n in numbers
    ]
    cursor = f"IlsxLjAs{numbers.stop}" if numbers.stop < TOTAL else None
    return Reply({"meta": {"count": TOTAL, "next_cursor": cursor}, "results": works, "group_by": []})


def europe_pmc(asked: Asked) -> Reply:
    """The last page repeats the cursor that it was asked with."""
    given = dict(parse_qsl(asked.query))
    assert asked.path == "/webservices/rest/search" and given["resultType"] == "core" and given["format"] == "json"
    numbers = page(given["cursorMark"].replace("*", "0"), given["pageSize"])
    found = [
        {"id": str(n), "source": "MED", "title": f"Article {n}.", "abstractText": "Seas rise.", "pubYear": "2015"}
        for n in numbers
    ]
    mark = str(numbers.stop) if numbers.stop < TOTAL else given["cursorMark"]
    return Reply({"hitCount": TOTAL, "nextCursorMark": mark, "resultList": {"result": found}})


def pubmed(asked: Asked) -> Reply:
    given = dict(parse_qsl(asked.query))
    if asked.path.endswith("esearch.fcgi"):
        ids = [str(number) for number in page(given["retstart"], given["retmax"])]
        return Reply({"header": {}, "esearchresult": {"count": str(TOTAL), "idlist": ids}})
    assert asked.path == "/entrez/eutils/efetch.fcgi" and given["retmode"] == "xml"
    article = (
        "<PubmedArticle><MedlineCitation><PMID>{0}</PMID><Article><ArticleTitle>Article {0}.</ArticleTitle><Abstract>"
        "<AbstractText>Seas rise.</AbstractText></Abstract></Article></MedlineCitation></PubmedArticle>"
    )
    body = "".join(article.format(one) for one in given["id"].split(","))
    data = f'<?xml version="1.0"?><PubmedArticleSet>{body}</PubmedArticleSet>'.encode()
    return Reply(data, headers={"content-type": "text/xml"})


SERVERS: dict[Service, Callable[[Asked], Reply]] = {"openalex": openalex, "europepmc": europe_pmc, "pubmed": pubmed}


@pytest.mark.parametrize("service", SERVERS)
@pytest.mark.parametrize(("limit", "expected"), [(300, 300), (1_000, TOTAL)])
def test_all_pages_are_fetched_and_ingested(tmp_path: Path, service: Service, limit: int, expected: int) -> None:
    file = tmp_path / "seas.jsonl"
    with http_stub(SERVERS[service]) as server:
        state = fetch(Client(service, server.url, wait=float), "sea level", file, limit)
    assert (state.records, state.total, len(list(tmp_path.iterdir()))) == (expected, TOTAL, 1 + (limit < TOTAL))
    store = MemoryStore()
    report = ingest([str(tmp_path)], store)  # where the state of one that is not complete lies too
    assert (report.added, report.exit_code) == (expected, 0)
    assert {entry.document.text for entry in store.entries.values()} == {"Seas rise."}


@pytest.mark.parametrize("service", SERVERS)
def test_an_interrupted_fetch_continues(tmp_path: Path, service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server fails after some pages, and half a line is in the file."""
    file = tmp_path / "seas.jsonl"
    answers, gone = iter([SERVERS[service]] * 3), Reply({"error": "not today"}, 503)
    failing = http_stub(lambda asked: next(answers, lambda asked: gone)(asked))
    monkeypatch.setattr(fetching, "PAGE", 100)
    with failing as server, pytest.raises(ServerError, match="run the same command again to continue"):
        fetch(Client(service, server.url, wait=float), "sea level", file)
    with file.open("a") as stream:
        stream.write('{"id": "half')
    with http_stub(SERVERS[service]) as server:
        state = fetch(Client(service, server.url, wait=float), "sea level", file)
    ids = [json.loads(line).get("id") or json.loads(line).get("_id") for line in file.read_text().splitlines()]
    assert state.records == len(ids) == len(set(ids)) == TOTAL
    assert list(tmp_path.iterdir()) == [file]


def test_pubmed_is_asked_for_what_it_hands_out_and_a_page_of_books_is_not_the_end(tmp_path, monkeypatch):
    def books_first(asked: Asked) -> Reply:
        given = dict(parse_qsl(asked.query))
        assert int(given.get("retstart", 0)) + int(given.get("retmax", 0)) <= 9_999
        return Reply(b"<PubmedArticleSet/>") if given.get("id", "").startswith("0,") else pubmed(asked)

    monkeypatch.setattr(fetching, "PAGE", 3_000)
    monkeypatch.setitem(globals(), "TOTAL", 25_000)
    with http_stub(books_first) as server:
        state = fetch(Client("pubmed", server.url, wait=float), "sea level", tmp_path / "seas.jsonl", 25_000)
    assert (state.records, state.total, state.done) == (6_999, 25_000, True)


def test_a_busy_server_is_asked_again_and_no_key_or_file_is_lost(tmp_path: Path, monkeypatch, caplog) -> None:
    monkeypatch.setenv("OPENALEX_API_KEY", "s3cret")
    waited: list[float] = []
    busy = [Reply({}, 429, {"retry-after": "7"})]
    with http_stub(lambda asked: busy.pop() if busy else openalex(asked)) as server:
        fetch(Client("openalex", server.url, wait=waited.append), "sea level", tmp_path / "f.jsonl", 5)
        assert f"{server.url} is busy or not answering (HTTP 429); trying again in 7 s" in caplog.messages
        assert any(7 <= one < 8 for one in waited) and all("s3cret" not in one.query for one in server.asked)
    file = tmp_path / "mine.jsonl"
    file.write_text("{}\n")
    with pytest.raises(UsageError, match="exists already"):
        fetch(Client("openalex", "http://127.0.0.1:1"), "sea level", file)
    assert file.read_text() == "{}\n"


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with http_stub(openalex) as server:
        ran = ccheck("fetch", "openalex", "sea level", "--limit", "3", "--server", server.url)
        for place in (".", "-"):
            refused = ccheck("fetch", "openalex", "sea level", "-o", place, "--server", server.url)
            assert refused.code == 2 and f"can't be written to {place}: it must be the name of a file" in refused.err
    assert ran.code == 0 and "3 papers of 450 in sea-level.openalex.jsonl" in ran.err
    assert len((tmp_path / "sea-level.openalex.jsonl").read_text().splitlines()) == 3
    monkeypatch.setattr(Client, "get", Mock(side_effect=KeyboardInterrupt))
    ran = ccheck("fetch", "openalex", "tea")
    assert ran.code == 130 and "what was fetched" not in ran.err
