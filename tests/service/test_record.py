"""What a record must do, beside a local store and on Elasticsearch."""

import contextlib
import json
import os
import re
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from elastic_indices import node_client, node_store  # noqa: F401 (fixtures)

from ccheck import Checker, es_mappings
from ccheck.core.adjust import Changes, resolved
from ccheck.core.errors import CcheckError, Incomplete, InvalidData, NotFound, ServerError, UsageError
from ccheck.core.redaction import keep_secret
from ccheck.core.settings import Settings, resolve
from ccheck.search.elastic import Connection, ElasticStore
from ccheck.service import Check, Correction, Service, open_service
from ccheck.service import record as records
from ccheck.service.record import FileRecord, Record, Wanted
from ccheck.service.record_elastic import ElasticRecord

SERVERS = {"elasticsearch": "elasticsearch_url", "elasticsearch-8": "elasticsearch_8_url"}
SETTINGS = Settings(
    llm_prompt_price=2.0, llm_completion_price=8.0, llm_currency="EUR", public_url="https://facts.example/"
)


def check(number: int, **changes: Any) -> Check:
    stance = {"label": "REFUTES", "confidence": 0.9, "rationale": None, "error": None}
    evidence = {"rank": 1, "doc_id": "a", "title": "A", "stance": stance, "metadata": {"year": 2001}}
    result = {
        "claim": {"id": None, "text": f"Claim {number}."},
        "verdict": {"label": "REFUTES", "confidence": 0.8, "reason": None, "rationale": "so", "method": "m"},
        "evidence": [evidence, {**evidence, "rank": 2, "doc_id": "b", "stance": None, "metadata": {"year": "n.d."}}],
        "timings_ms": {"retrieve": 1.5, "verdict": 2.0},
        "usage": {"llm_calls": 1, "prompt_tokens": 1000, "completion_tokens": 500},
    }
    settings = {"key": "k", "recipe": "default", "k": 2, "filters": [], "models": ["m"], "store": "local:x"}
    created = f"2026-01-{1 + number:02}T00:00:00.000001+00:00"
    made = Check(id=f"{number:016x}", claim=f"Claim {number}.", status="done", result=result, created=created)
    return replace(made, settings=settings | {"generation": "g", "version": "1"}, user="ann", run="r", **changes)


@pytest.fixture(params=["file", *SERVERS])
def open_record(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Record]]:
    """Opens one and the same record anew at each call."""
    opened: list[Any] = []
    if request.param == "file":

        def open_one() -> Record:
            opened.append(FileRecord(tmp_path / "store.checks.sqlite"))
            return opened[-1]
    else:
        url = request.getfixturevalue(SERVERS[request.param])
        index = request.getfixturevalue("elasticsearch_index")

        def open_one() -> Record:
            opened.append(store := ElasticStore(Connection(url=url), index))
            return ElasticRecord(store, SETTINGS)

    yield open_one
    for one in opened:
        one.close()


def test_checks_are_kept_and_listed(open_record: Callable[[], Record]) -> None:
    record = open_record()
    assert record.get(["0" * 16]) == {} and record.list(Wanted()) == [] and record.forget("2027-01-01") == 0
    checks = [check(number) for number in range(5)]
    for one in checks:
        assert record.put(one) == replace(one, kept=True)
    other = open_record()
    kept = {one.id: replace(one, kept=True) for one in (checks[1], checks[3])}
    assert other.get([checks[1].id, "f" * 16, checks[3].id]) == kept
    assert [one.id for one in other.list(Wanted(limit=3))] == [one.id for one in checks[:1:-1]]
    assert [one.id for one in other.list(Wanted(before="2026-01-03", limit=9))] == [checks[1].id, checks[0].id]
    for said in ("20260103", "2026-W01-6", "2026-01-02T14:00-10:00", "2026-01-03T12:00+12:00"):
        assert other.list(Wanted(before=said)) == other.list(Wanted(before="2026-01-03"))
    with pytest.raises(UsageError, match="is not a time"):
        Wanted(before="0001-01-01T00:00+10:00")
    page = Wanted(before=checks[2].created, after=checks[2].id)
    assert [one.id for one in other.list(page)] == [checks[1].id, checks[0].id]
    assert [one.id for one in other.list(Wanted(search="claim 3"))] == [checks[3].id]
    assert other.list(Wanted(label="SUPPORTS")) == [] and len(other.list(Wanted(label="REFUTES"))) == 5
    again = replace(checks[0], created="2026-02-01T00:00:00.000000+00:00", result=None, status="failed", error="why")
    other.put(again)
    assert record.list(Wanted())[0] == replace(again, kept=True) and len(record.list(Wanted())) == 5


def test_a_claim_is_found_by_its_words_and_not_by_what_is_in_them(open_record: Callable[[], Record]) -> None:
    record = open_record()
    for number, claim in enumerate(("Mice like rice.", "The (ice) melts; it is ICE.", "疫苗有效")):
        record.put(check(number, claim=claim))
    assert [one.id for one in record.list(Wanted(search="ice"))] == [check(1).id]
    assert [one.id for one in record.list(Wanted(search="rice mice"))] == [check(0).id]
    assert [one.id for one in record.list(Wanted(search="有效"))] == [check(2).id]


def test_corrections_of_many_at_once_are_all_kept(open_record: Callable[[], Record]) -> None:
    record, one = open_record(), check(1)
    record.put(one)

    def correct(number: int) -> None:
        mine = open_record() if number % 4 == 0 else record
        mine.correct(Correction(one.id, "not relevant", "a", note=str(number), created=f"2026-01-01T00:00:{number:02}"))
        if number % 3 == 0:
            mine.put(one)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(correct, range(12)))
    found = record.get([one.id])[one.id]
    assert sorted(int(made.note or "") for made in found.corrections) == list(range(12))
    assert replace(found, corrections=()) == replace(one, kept=True)
    assert [made.id for made in record.list(Wanted(corrected=True))] == [one.id]
    with pytest.raises(NotFound, match="has no check"):
        record.correct(Correction("f" * 16, "not relevant", "a"))


def test_old_checks_are_forgotten_but_not_what_people_said(open_record: Callable[[], Record]) -> None:
    record = open_record()
    for number in range(4):
        record.put(check(number))
    record.correct(Correction(check(0).id, "wrong verdict", label="SUPPORTS", created="2026-01-01T00:00:00"))
    record.list(Wanted())  # which shows a server's index the writes
    assert record.forget("2026-01-03T00:00:00") == 1
    assert [one.id for one in record.list(Wanted())] == [check(number).id for number in (3, 2, 0)]


def test_known_secrets_are_never_written(open_record: Callable[[], Record]) -> None:
    keep_secret("hunter2-hunter2-hunter2")
    record = open_record()
    record.put(check(1, claim="The key is hunter2-hunter2-hunter2.", error="hunter2-hunter2-hunter2"))
    record.correct(Correction(check(1).id, "wrong verdict", note="hunter2-hunter2-hunter2", created="2026-01-01"))
    found = record.get([check(1).id])[check(1).id]
    assert found.claim == "The key is ***." and found.error == found.corrections[0].note == "***"


def test_a_check_that_is_too_large_is_refused(open_record: Callable[[], Record], monkeypatch) -> None:
    monkeypatch.setattr(records, "MOST_BYTES", 2000)
    record = open_record()
    with pytest.raises(Incomplete, match="use a smaller -k"):
        record.put(check(1, claim="x" * 2000))
    assert record.get([check(1).id]) == {}


def changed_by(file: Path, sql: str) -> None:
    with contextlib.closing(sqlite3.connect(file)) as database, database:
        database.execute(sql)


TRIGGER = "CREATE TRIGGER t AFTER INSERT ON corrections BEGIN DELETE FROM checks; END"


@pytest.mark.parametrize("sql", ["CREATE TABLE checks (id)", "PRAGMA user_version = 7", TRIGGER])
def test_a_file_of_somebody_else_is_refused(tmp_path: Path, sql: str) -> None:
    file = tmp_path / "store.checks.sqlite"
    if "TRIGGER" in sql:
        with FileRecord(file) as record:
            record.put(check(1))
    changed_by(file, sql)
    with FileRecord(file) as record, pytest.raises(InvalidData, match=r"not a record .*format [027];"):
        record.put(check(1))


@pytest.mark.parametrize("writing", [False, True])
def test_it_is_read_in_a_folder_that_is_read_only(tmp_path: Path, monkeypatch, writing: bool) -> None:
    with FileRecord(tmp_path / "a.sqlite") as record:
        record.put(check(1))
        if not writing:
            record.close()
        before = sorted(tmp_path.iterdir())
        monkeypatch.setattr("os.access", lambda *asked: False)
        with FileRecord(tmp_path / "a.sqlite") as reader:
            assert list(reader.get([check(1).id])) == [one.id for one in reader.list(Wanted())] == [check(1).id]
            assert sorted(tmp_path.iterdir()) == before and len(before) == (3 if writing else 1)


def test_only_its_owner_reads_it_and_rows_that_somebody_changed_are_named(tmp_path: Path) -> None:
    with FileRecord(tmp_path / "a.sqlite") as record:
        record.put(check(1))
        assert {oct(file.stat().st_mode & 0o777) for file in tmp_path.glob("a.sqlite*")} == {"0o600"}
        changed_by(tmp_path / "a.sqlite", """UPDATE checks SET data = '{"id": 3}'""")
        with pytest.raises(InvalidData, match=f"the check {check(1).id} in .* can't be read"):
            record.list(Wanted())
    assert [file.name for file in tmp_path.glob("a.sqlite*")] == ["a.sqlite"]


def test_on_a_server_every_field_is_flat_and_nothing_else_is_touched(client, store, elasticsearch_index) -> None:
    alias = f"ccheck-checks-{elasticsearch_index}"
    before = client.get("/_cluster/state/metadata").json()["metadata"]
    record = ElasticRecord(store, SETTINGS)
    record.put(check(1))
    record.correct(Correction(check(1).id, "wrong verdict", label="SUPPORTS", created="2026-01-01T00:00:00"))
    (source,) = (hit["_source"] for hit in _refreshed(client, alias))
    data = json.loads(source.pop("data"))
    assert data["claim"] == source["claim"] == "Claim 1."
    expected = {"@timestamp": "2026-01-02T00:00:00.000001+00:00", "verdict": "REFUTES", "confidence": 0.8}
    expected |= {"supports": 0, "refutes": 1, "leaves_open": 0, "not_judged": 1, "documents": ["a", "b"]}
    expected |= {"cost": 0.006, "milliseconds": 3.5, "timings_ms": {"retrieve": 1.5, "verdict": 2.0}}
    expected |= {"permalink": f"https://facts.example/checks/{check(1).id}", "corrected": True, "user": "ann"}
    assert {name: source[name] for name in expected} == expected
    stance = {"year": 2001, "stance": "REFUTES", "confidence": 0.9}
    assert source["evidence"][0] == {"rank": 1, "doc_id": "a", "title": "A", **stance}
    mapped = set(es_mappings.read("ccheck-checks")["template"]["mappings"]["properties"])
    assert set(source) <= mapped and mapped - set(source) == {"data"}
    after = client.get("/_cluster/state/metadata").json()["metadata"]
    made = after["indices"].keys() - before["indices"].keys()
    # Other tests make theirs on the same server meanwhile.
    assert {name for name in made if elasticsearch_index in name or "test" not in name} == {f"{alias}-000001"}
    for part in ("templates", "index_template", "component_template", "index_lifecycle"):
        assert after.get(part) == before.get(part)


def test_a_record_of_an_older_version_gains_fields(client, store, elasticsearch_index) -> None:
    alias, template = f"ccheck-checks-{elasticsearch_index}", es_mappings.read("ccheck-checks")["template"]
    for name in ("currency", "prompt_price"):
        del template["mappings"]["properties"][name]
    client.put(f"/{alias}-000001", json=template | {"aliases": {alias: {}}}).raise_for_status()
    assert ElasticRecord(store, SETTINGS).list(Wanted()) == []  # whoever only reads changes nothing
    assert "currency" not in client.get(f"/{alias}").json()[f"{alias}-000001"]["mappings"]["properties"]
    ElasticRecord(store, SETTINGS).put(check(1))
    (source,) = (hit["_source"] for hit in _refreshed(client, alias))
    assert (source["currency"], source["prompt_price"]) == ("EUR", 2.0)


def _refreshed(client: httpx.Client, index: str) -> list[dict[str, Any]]:
    client.post(f"/{index}/_refresh").raise_for_status()
    return client.post(f"/{index}/_search").json()["hits"]["hits"]


@pytest.mark.parametrize("theirs", ["the index has the name", "the alias leads to theirs", "the alias is gone"])
def test_an_index_of_somebody_else_is_never_written_to(client, store, elasticsearch_index, theirs) -> None:
    alias = f"ccheck-checks-{elasticsearch_index}"
    record = ElasticRecord(store, SETTINGS)
    if theirs == "the alias is gone":
        record.put(check(1))
        client.delete(f"/{alias}-000001/_alias/{alias}").raise_for_status()
        index, said = f"{alias}-000001", "Add the alias again"
    elif theirs == "the index has the name":
        client.put(f"/{alias}").raise_for_status()
        index, said = alias, "is not a record"
    else:
        index, said = f"{elasticsearch_index}-theirs", "is not a record"
        client.put(f"/{index}", json={"aliases": {alias: {}}}).raise_for_status()
    before = [client.get(f"/{index}/_mapping").json(), len(_refreshed(client, index))]
    with pytest.raises(InvalidData, match=said):
        record.put(check(2))
    assert [client.get(f"/{index}/_mapping").json(), len(_refreshed(client, index))] == before


@contextlib.contextmanager
def tea_service(store: str) -> Iterator[Service]:
    with open_service(store, recipe="bm25", rerank="none") as service:
        service.checker.ingest({"_id": "tea", "text": "Tea lowers blood pressure."}, dense=False)
        yield service


def test_a_service_on_a_server_keeps_its_checks_there(elasticsearch_url, elasticsearch_index) -> None:
    with tea_service(f"{elasticsearch_url}/{elasticsearch_index}") as service:
        made = service.check("Tea lowers blood pressure.", k=1)
        assert made.kept and service.check("Tea lowers blood pressure.", k=1) == made == service.find(made.id)
        service.correct(Correction(made.id, "wrong stance", "tea", "REFUTES"))
        assert [(pair["doc_id"], pair["label"]) for pair in service.pairs()] == [("tea", "REFUTES")]
        service.checker.ingest({"_id": "tea", "text": "Tea is a drink."}, dense=False)
        assert service.check("Tea lowers blood pressure.", k=1).id != made.id and not list(service.pairs())
    assert service.record.name == f"{elasticsearch_url}/ccheck-checks-{elasticsearch_index}"


def test_a_server_that_refuses_the_record_still_answers(elasticsearch_url, elasticsearch_index, caplog) -> None:
    with httpx.Client(base_url=elasticsearch_url, timeout=60) as server:
        server.put(f"/ccheck-checks-{elasticsearch_index}").raise_for_status()
    with tea_service(f"{elasticsearch_url}/{elasticsearch_index}") as service:
        for _ in range(2):
            made = service.check("Tea lowers blood pressure.", k=1)
            assert (made.status, made.kept) == ("done", False)
        assert len([one for one in caplog.records if "not recorded" in one.message]) == 1
        with pytest.raises(CcheckError, match="is not a record"):
            service.checks()


def test_a_full_disk_under_the_record_holds_up_no_answer(elasticsearch_url, elasticsearch_index, caplog) -> None:
    with tea_service(f"{elasticsearch_url}/{elasticsearch_index}") as service:
        assert service.check("Tea is warm.", k=1).kept and "the new index" in caplog.text
        service.record.refuse_unwritable()
        settings = f"{elasticsearch_url}/ccheck-checks-{elasticsearch_index}/_settings"
        httpx.put(settings, json={"index.blocks.read_only_allow_delete": True}, timeout=60).raise_for_status()
        assert not service.check("Tea is cold.", k=1).kept
        assert "disk of the cluster is full" in caplog.text and "trying again" not in caplog.text
        with pytest.raises(InvalidData, match=r"has index\.blocks\.read_only_allow_delete"):
            service.record.refuse_unwritable()


def test_a_server_that_fails_the_record_holds_up_one_answer_and_not_each(tmp_path, monkeypatch, caplog) -> None:
    with tea_service(str(tmp_path / "store")) as service:
        tried, keep = [], service.record.put

        def put(check):
            tried.append(check)
            raise ServerError("the shard is gone")

        monkeypatch.setattr(service.record, "put", put)
        assert [service.check(f"Tea {number}").kept for number in range(3)] == [False] * 3
        assert len(tried) == 1 == len([one for one in caplog.records if "not recorded" in one.message])
        monkeypatch.setattr(service.record, "put", keep)
        service._paused_until = 0
        assert service.check("Tea again").kept


# -- processes that are killed while they check claims lose nothing that they said was kept; the benchmark does more


CHECKS = int(os.environ.get("CCHECK_TEST_RESTARTED_CHECKS", "200"))
"""More with more patience: 1,000 take some minutes."""
SCRIPT = Path(__file__).parents[2] / "benchmarks" / "record_kills.py"


@pytest.mark.parametrize("where", ["local", "elasticsearch"])
def test_killed_processes_lose_no_check_that_was_kept(request: pytest.FixtureRequest, where: str) -> None:
    checks = 200 if where == "local" else 50
    arguments = ["--checks", str(checks), "--threads", "8", "--processes", "2", "--seed", "3"]
    if where == "elasticsearch":
        index = request.getfixturevalue("elasticsearch_index")
        arguments += ["--store", f"{request.getfixturevalue('elasticsearch_url')}/{index}"]
    done = subprocess.run([sys.executable, SCRIPT, *arguments], capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    said = re.search(r"([\d,]+) answers of ([\d,]+) checks .* (\d+) killed: 0 lost, 0 changed, 0 twice", done.stdout)
    assert said is not None and int(said[3]) >= 2, done.stdout
    assert int(said[2].replace(",", "")) >= checks


def test_checks_are_kept_once_while_the_server_restarts(tmp_path: Path) -> None:
    """32 check at a time; the node is killed, stopped in order, and started again."""
    from elasticsearch_nodes import start_node

    papers = [{"_id": f"p{number}", "text": f"Paper {number} finds that tea {number} is warm."} for number in range(50)]
    with contextlib.ExitStack() as stack:
        node = stack.enter_context(start_node("basic", tmp_path))
        settings = resolve({"store": f"{node.url}/kept", "recipe": "bm25"}).settings
        recipe = resolved(settings, Changes(rerank="none", verdict="none"))
        checker = stack.enter_context(Checker(settings, recipe=recipe))
        checker.ingest(papers, dense=False)
        service = stack.enter_context(Service(checker))
        done: dict[str, Check] = {}
        with ThreadPoolExecutor(32) as pool:
            asked = [pool.submit(service.check, f"Tea {number} is warm.", k=3) for number in range(CHECKS)]
            for number, end in enumerate((node.kill, node.stop, node.kill), 1):
                while sum(one.done() for one in asked) < number * CHECKS / 4:
                    time.sleep(0.01)
                end()
                node.start()
            for one in asked:
                made = one.result()
                assert made.status == "done" and made.kept, made.error
                done[made.id] = made
        listed = [check.id for check in service.checks(Wanted(limit=2 * CHECKS))]
        assert len(done) == CHECKS and sorted(listed) == sorted(done)
        found = service.found(list(done))
        assert all((found[id_].claim, found[id_].result) == (one.claim, one.result) for id_, one in done.items())
