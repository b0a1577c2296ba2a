"""Papers from public services: a server on loopback that answers as their documentation says."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qs

import pytest
from cli_runs import ccheck
from http_stub import Asked, Reply, http_stub
from memory_store import MemoryStore

import ccheck.ingest.fetch as fetching
from ccheck.core.errors import ServerError, UsageError
from ccheck.ingest import ingest
from ccheck.ingest.fetch import Client, Service, fetch

FORMATS = Path(__file__).parent / "formats"
TOTAL = 450


def parameters(asked: Asked) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(asked.query).items()}


def openalex(asked: Asked) -> Reply:
    """Cursors are opaque; the last page's is null."""
    given = parameters(asked)
    assert asked.path == "/works" and given["search"] == "sea level"
    start = 0 if given["cursor"] == "*" else int(given["cursor"].removeprefix("IlsxLjAs"))
    end = min(TOTAL, start + int(given["per-page"]))
    works = [
        {
            "id": f"https://openalex.org/W{number}",
            "title": f"Work {number}",
            "publication_date": "2015-01-01",
            "abstract_inverted_index": {"Seas": [0], "rise.": [1]},
        }
        for number in range(start, end)
    ]
    cursor = f"IlsxLjAs{end}" if end < TOTAL else None
    return Reply({"meta": {"count": TOTAL, "next_cursor": cursor}, "results": works, "group_by": []})


def europe_pmc(asked: Asked) -> Reply:
    """The last page repeats the cursor that it was asked with."""
    given = parameters(asked)
    assert asked.path == "/webservices/rest/search" and given["resultType"] == "core" and given["format"] == "json"
    start = 0 if given["cursorMark"] == "*" else int(given["cursorMark"])
    end = min(TOTAL, start + int(given["pageSize"]))
    found = [
        {"id": str(n), "source": "MED", "title": f"Article {n}.", "abstractText": "Seas rise.", "pubYear": "2015"}
        for n in range(start, end)
    ]
    mark = str(end) if end < TOTAL else given["cursorMark"]
    return Reply({"hitCount": TOTAL, "nextCursorMark": mark, "resultList": {"result": found}})


def pubmed(asked: Asked) -> Reply:
    given = parameters(asked)
    if asked.path.endswith("esearch.fcgi"):
        start = int(given["retstart"])
        ids = [str(number) for number in range(start, min(TOTAL, start + int(given["retmax"])))]
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


def no_wait(seconds: float) -> None:
    assert seconds >= 0


@pytest.mark.parametrize("service", SERVERS)
@pytest.mark.parametrize(("limit", "expected"), [(300, 300), (1_000, TOTAL)])
def test_all_pages_are_fetched_and_ingested(tmp_path: Path, service: Service, limit: int, expected: int) -> None:
    file = tmp_path / "seas.jsonl"
    with http_stub(SERVERS[service]) as server:
        state = fetch(Client(service, server.url, wait=no_wait), "sea level", file, limit)
    assert (state.records, state.total) == (expected, TOTAL)
    store = MemoryStore()
    report = ingest([str(file)], store)
    assert (report.added, report.exit_code) == (expected, 0)
    assert {entry.document.text for entry in store.entries.values()} == {"Seas rise."}


@pytest.mark.parametrize("service", SERVERS)
def test_an_interrupted_fetch_continues(tmp_path: Path, service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server fails after some pages, and half a line is in the file."""
    file = tmp_path / "seas.jsonl"
    answered = 0

    def failing(asked: Asked) -> Reply:
        nonlocal answered
        answered += 1
        return SERVERS[service](asked) if answered <= 3 else Reply({"error": "not today"}, 503)

    monkeypatch.setattr(fetching, "PAGE", 100)
    with http_stub(failing) as server, pytest.raises(ServerError, match="run the same command again to continue"):
        fetch(Client(service, server.url, wait=no_wait), "sea level", file)
    with file.open("a") as stream:
        stream.write('{"id": "half')
    with http_stub(SERVERS[service]) as server:
        state = fetch(Client(service, server.url, wait=no_wait), "sea level", file)
    ids = [json.loads(line).get("id") or json.loads(line).get("_id") for line in file.read_text().splitlines()]
    assert state.records == len(ids) == len(set(ids)) == TOTAL
    assert not file.with_name("seas.jsonl.state.json").exists()


def test_a_file_of_something_else_is_not_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"
    file.write_text("{}\n")
    with pytest.raises(UsageError, match="exists already"):
        fetch(Client("openalex", "http://127.0.0.1:1", wait=no_wait), "sea level", file)
    assert file.read_text() == "{}\n"


def test_a_busy_server_is_asked_again_and_no_key_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENALEX_API_KEY", "s3cret")
    waited: list[float] = []
    busy = [Reply({}, 429, {"retry-after": "7"})]

    with http_stub(lambda asked: busy.pop() if busy else openalex(asked)) as server:
        fetch(Client("openalex", server.url, wait=waited.append), "sea level", tmp_path / "f.jsonl", 5)
        assert any(7 <= one < 8 for one in waited) and all("s3cret" not in one.query for one in server.asked)


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with http_stub(openalex) as server:
        ran = ccheck("fetch", "openalex", "sea level", "--limit", "3", "--server", server.url)
    assert ran.code == 0 and "3 papers of 450 in sea-level.openalex.jsonl" in ran.err
    assert len((tmp_path / "sea-level.openalex.jsonl").read_text().splitlines()) == 3
