"""Elasticsearch's own security on a real server: what the keys of es_mappings/roles may do, and what ccheck says."""

import hashlib
import json
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import httpx
import pytest
from certificates import Certificate
from cli_runs import BM25, Ran, ccheck, jsonl, works
from elasticsearch_nodes import START_SECONDS, Node, new_node
from searching import answer_all

from ccheck import es_mappings
from ccheck.core.errors import CcheckError
from ccheck.core.settings import resolve
from ccheck.core.stages import Bm25
from ccheck.core.types import Query
from ccheck.search.elastic import ElasticStore, connection_from, diagnose, install

USER, PASSWORD = "elastic", "a-password-of-the-tests"


@dataclass(frozen=True)
class Secured:
    """A server whose certificate signed itself; whoever shows that certificate is a superuser, too."""

    node: Node
    certificate: Certificate
    http: httpx.Client
    """Requests of the superuser `elastic`."""

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.node.port}"

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(ssl.PEM_cert_to_DER_cert(self.certificate.file.read_text(encoding="ascii"))).hexdigest()

    def key(self, *roles: Mapping[str, Any]) -> str:
        """A new API key with these roles alone."""
        body = {"name": "a key", "role_descriptors": {str(number): role for number, role in enumerate(roles)}}
        return str(self.http.post("/_security/api_key?refresh=true", json=body).raise_for_status().json()["encoded"])


def role(name: str, store: str) -> dict[str, Any]:
    """A role of es_mappings/roles as who reads the documentation makes it: with another name for papers."""
    described: dict[str, Any] = json.loads(json.dumps(es_mappings.read(f"roles/{name}")).replace("papers", store))
    return described


@contextmanager
def secured(certificate: Certificate) -> Iterator[Secured]:
    """A started server with a trial licence; skips the test where the jars can't be run."""
    settings = {
        "discovery.type": "single-node",
        "transport.port": 0,
        "xpack.security.http.ssl": {
            "enabled": True,
            "certificate": certificate.file.name,
            "key": certificate.key.name,
            "certificate_authorities": certificate.file.name,
            "client_authentication": "optional",
        },
        "xpack.security.authc.realms.pki.certificates": {"order": 1, "certificate_authorities": certificate.file.name},
        # The least that the server accepts: no test looks at the strength of its hashes.
        "xpack.security.authc.password_hashing.algorithm": "bcrypt4",
    }
    with new_node(settings=settings, password=PASSWORD) as node:
        config = node.home / "config"
        config.mkdir(parents=True)
        for file in (certificate.file, certificate.key):
            (config / file.name).write_bytes(file.read_bytes())
        (config / "role_mapping.yml").write_text('superuser: ["CN=localhost"]\n', encoding="utf-8")
        node.launch()
        node.await_port()
        trusted = ssl.create_default_context(cafile=str(certificate.file))
        server = f"https://127.0.0.1:{node.port}"
        with httpx.Client(base_url=server, auth=(USER, PASSWORD), verify=trusted, timeout=60) as http:
            deadline = time.monotonic() + START_SECONDS
            while not http.get("/_cluster/health").is_success:
                assert time.monotonic() < deadline, "the node does not answer"
                time.sleep(0.2)
            yield Secured(node, certificate, http)


STORE = ("--store", "elasticsearch:papers")
SEARCH = ("query", "sea level has risen", *BM25, "--json", *STORE)
SEA = {"_id": "sea", "title": "Sea level", "text": "Sea level has risen by 20 cm since 1900.", "year": 2011}
ICE = {"_id": "ice", "title": "Ice", "text": "Glaciers lose ice, which raises the sea level.", "year": 2019}
TEA = {"_id": "tea", "title": "Tea", "text": "Green tea changes no weight.", "year": 2015}

Acting: TypeAlias = Callable[..., None]


@pytest.fixture(scope="module")
def server(certificate: Certificate) -> Iterator[Secured]:
    with secured(certificate) as started:
        yield started


@pytest.fixture
def acting(server: Secured, monkeypatch: pytest.MonkeyPatch) -> Acting:
    """Gives the settings a key with a role of es_mappings/roles for a store, or with one of the test's own."""
    monkeypatch.setenv("ELASTICSEARCH_URL", server.url)
    monkeypatch.setenv("ELASTICSEARCH_CA_CERTS", str(server.certificate.file))
    monkeypatch.setattr("ccheck.search.elastic.reading.SCANNED_AT_ONCE", 2)  # several pages

    def act(named: str | dict[str, Any], store: str = "papers") -> None:
        key = server.key(role(named, store) if isinstance(named, str) else {"indices": [{"names": [store], **named}]})
        monkeypatch.setenv("ELASTICSEARCH_API_KEY", key)

    return act


@pytest.fixture
def papers(server: Secured, acting: Acting, tmp_path: Path) -> Iterator[Path]:
    """The file behind the store papers, which an administrator made and an enricher filled."""
    file = jsonl(tmp_path / "papers.jsonl", SEA, ICE, TEA)
    acting("administrator")
    works("index", "create", *STORE, *BM25)
    acting("enricher")
    works("ingest", file, *STORE, "--no-dense")
    acting("reader")
    yield file
    for line in server.http.get("/_cat/indices/papers-*", params={"h": "index"}).text.split():
        server.http.delete(f"/{line}").raise_for_status()


def denied(ran: Ran, action: str) -> None:
    """It failed for the want of this privilege, and says who knows more."""
    assert ran.code == 6 and f"denies access: action [indices:{action}] is unauthorized" in ran.err, ran
    assert "which privileges are missing, run ccheck doctor --store https://127.0.0.1:" in ran.err
    assert "-writes-" not in ran.err.rpartition("ccheck doctor")[2]  # people know the index


def found(index: str = "papers") -> list[str]:
    """The ids of what a query finds, as the command asks for it."""
    with ElasticStore(connection_from(resolve().settings), index) as store:
        (ranking,) = answer_all(store, [Query("sea level has risen")], {"bm25": Bm25()}, k=10)
        if isinstance(ranking, CcheckError):
            raise ranking
        return [hit.document.id for hit in ranking.hits]


def privileges(index: str = "papers") -> tuple[bool, str]:
    (said,) = (one for one in diagnose(connection_from(resolve().settings), index) if one[0] == "privileges")
    return said[1:]


def test_a_reader_searches_through_the_alias_and_changes_nothing(papers: Path, server: Secured) -> None:
    server.http.put("/_security/role/ccheck-reader", json=role("reader", "papers")).raise_for_status()
    (result,) = works(*SEARCH).objects
    assert [one["doc_id"] for one in result["evidence"]] == ["sea", "ice"]
    assert "20 cm" in works("index", "show", "sea", *STORE).out
    assert "3" in works("index", "info", *STORE).out
    assert [one["_id"] for one in works("index", "export", *STORE).objects] == ["sea", "ice", "tea"]
    denied(ccheck("index", "info", "--store", "elasticsearch:papers-000001"), "admin/get")
    denied(ccheck("ingest", papers, *STORE, "--no-dense"), "monitor/settings/get")
    denied(ccheck("index", "remove", "sea", *STORE, "--yes"), "monitor/settings/get")
    denied(ccheck("index", "delete", *STORE, "--yes"), "data/read/search")
    ok, said = privileges()
    assert ok and said.startswith("can search; can't write to the store: grant monitor, maintenance, write, indices:")
    assert "can't create, migrate or delete indices: grant monitor, read_ilm on the cluster; " in said
    assert "companion" not in said and said.endswith("itself: for the server's rrf, grant read on papers-*")


def test_an_enricher_writes_and_removes_no_index(papers: Path, acting: Acting, server: Secured) -> None:
    acting("enricher")
    assert "1 document removed" in works("index", "remove", "tea", *STORE, "--yes").err
    assert "1 added" in works("ingest", papers, *STORE, "--no-dense").err
    assert "3 updated" in works("ingest", papers, *STORE).err  # with vectors: the mapping grows
    assert found() == ["sea", "ice"]
    acting("reader")  # may not search the point in time that the server's rrf opens
    (result,) = works("query", "sea level has risen", "--json", *STORE).objects
    assert result["fused_by"] == "ccheck" and result["evidence"][0]["doc_id"] == "sea", result
    acting("enricher")
    denied(ccheck("index", "delete", *STORE, "--yes"), "admin/delete")
    denied(ccheck("index", "migrate", *STORE, "--shards", "2"), "admin/create")
    ran = ccheck("ingest", papers, "--store", "elasticsearch:papers-2", "--no-dense")
    assert ran.code == 6 and "Ask an administrator to run ccheck index create --store" in ran.err
    actions = {"actions": [{"remove_index": {"index": "papers-000001"}}]}
    headers = {"authorization": f"ApiKey {server.key(role('enricher', 'papers'))}"}
    assert server.http.post("/_aliases", json=actions, headers=headers, auth=None).status_code == 403  # type: ignore[arg-type]
    ok, said = privileges()
    assert ok and said.startswith("can search; can write to the store; can't create, migrate or delete indices: ")


def test_an_administrator_moves_and_removes_the_store(papers: Path, acting: Acting) -> None:
    acting("administrator")
    works("index", "migrate", *STORE, "--shards", "2")
    assert "papers-000002  in use" in works("index", "list", *STORE).out
    works("index", "revert", *STORE)
    assert found() == ["sea", "ice"]
    ok, said = privileges()
    assert ok and said.startswith(
        "can search; can write to the store; can create, migrate or delete indices; can't keep"
    )
    findings = {part: said for part, _, said in diagnose(connection_from(resolve().settings), "papers")}
    assert findings["licence"].startswith("trial") and "green" in findings["cluster"]
    works("index", "delete", "--store", "elasticsearch:papers-000002", "--yes")
    works("index", "delete", *STORE, "--yes")
    acting("reader")
    ran = ccheck("index", "info", *STORE)
    assert ran.code == 4 and "papers" in ran.err


def test_a_companion_is_made_and_searched(server: Secured, acting: Acting) -> None:
    for one in (SEA, ICE):
        body = {"headline": one["title"], "body": one["text"]}
        server.http.put(f"/articles/_doc/{one['_id']}?refresh=true", json=body).raise_for_status()
    theirs = ("--store", "elasticsearch:articles")
    acting("reader", "articles")
    ok, said = privileges("articles")
    assert ok and said.startswith("can search; can search a companion; can't write to the store: ")
    assert "can't make a companion: grant write, create_index, manage, monitor on ccheck-companion-articles; " in said
    ran = ccheck("index", "enrich", *theirs)
    assert ran.code == 6 and "denies access" in ran.err
    acting("enricher", "articles")
    assert "2 made" in works("index", "enrich", *theirs).err
    acting("reader", "articles")
    assert "companion-articles: 2 documents" in works("index", "info", *theirs).out
    assert found("articles") == ["sea", "ice"]
    acting({"privileges": ["read", "view_index_metadata"]}, "articles")  # their index alone
    assert "companion" not in works("index", "info", *theirs).out
    assert found("articles") == ["sea", "ice"]
    acting("enricher", "articles")
    works("index", "enrich", *theirs, "--undo", "--yes")
    assert "2 made" in works("index", "enrich", *theirs, "--in-place", "--yes").err


def test_keys_that_do_not_fit(papers: Path, acting: Acting, monkeypatch: pytest.MonkeyPatch) -> None:
    acting("reader", "others")
    denied(ccheck(*SEARCH), "admin/get")
    ok, said = privileges()
    assert not ok and said.startswith("can't search: grant read, view_index_metadata on papers (es_mappings/roles/")
    acting({"privileges": ["indices:data/read/search*", "indices:data/read/msearch*", "view_index_metadata"]})
    assert found() == ["sea", "ice"]
    denied(ccheck("index", "show", "sea", *STORE), "data/read/mget")
    monkeypatch.setenv("ELASTICSEARCH_API_KEY", "d3Jvbmc6d3Jvbmc=")
    ran = ccheck(*SEARCH)
    assert ran.code == 6 and "does not accept the credentials (unable to authenticate with provided" in ran.err
    assert "d3Jvbmc6d3Jvbmc=" not in ran.err
    monkeypatch.delenv("ELASTICSEARCH_API_KEY")
    ran = ccheck(*SEARCH)
    assert ran.code == 6 and "missing authentication credentials" in ran.err
    monkeypatch.setenv("ELASTICSEARCH_USERNAME", USER)
    monkeypatch.setenv("ELASTICSEARCH_PASSWORD", PASSWORD)
    assert found() == ["sea", "ice"]


def test_a_role_may_hide_documents_but_no_words(papers: Path, acting: Acting) -> None:
    read = {"privileges": ["read", "view_index_metadata"]}
    acting({**read, "query": {"term": {"id": "ice"}}})
    assert found() == ["ice"]
    for hidden in ("text", "content"):
        acting({**read, "field_security": {"grant": ["*"], "except": [hidden]}})
        ran = ccheck(*SEARCH)
        assert ran.code == 5 and f"has no {hidden}. If a role of your key hides fields (field_security)" in ran.err


def test_certificates(papers: Path, server: Secured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ELASTICSEARCH_CA_CERTS")
    ran = ccheck(*SEARCH)
    assert ran.code == 6 and "its certificate is self-signed: name its CA file in ELASTICSEARCH_CA_CERTS" in ran.err
    monkeypatch.setenv("ELASTICSEARCH_CA_FINGERPRINT", "0" * 64)
    ran = ccheck(*SEARCH)
    assert ran.code == 6 and "none of its certificates has the fingerprint in ELASTICSEARCH_CA_FINGERPRINT" in ran.err
    monkeypatch.setenv("ELASTICSEARCH_CA_FINGERPRINT", server.fingerprint)
    assert found() == ["sea", "ice"]
    monkeypatch.delenv("ELASTICSEARCH_API_KEY")
    monkeypatch.setenv("ELASTICSEARCH_CLIENT_CERT", str(server.certificate.file))
    monkeypatch.setenv("ELASTICSEARCH_CLIENT_KEY", str(server.certificate.key))
    assert found() == ["sea", "ice"]  # the certificate is the user


def test_installed_roles_do_what_they_say_and_are_taken_out(papers, server, monkeypatch):
    record = "/ccheck-checks-papers-000001"
    monkeypatch.delenv("ELASTICSEARCH_API_KEY")
    monkeypatch.setenv("ELASTICSEARCH_USERNAME", USER)
    monkeypatch.setenv("ELASTICSEARCH_PASSWORD", PASSWORD)
    before = server.http.get("/_security/role").json()
    with ElasticStore(connection_from(resolve().settings), "papers") as store:
        pieces = [install.role_of(store, name) for name in install.ROLES]
        assert [install.state(store.client, one) for one in pieces] == ["new"] * 5
        for one in pieces:
            install.put(store.client, one)
        assert [install.state(store.client, one) for one in pieces] == ["same"] * 5
        server.http.put(f"{record}/_doc/1", json={"verdict": "SUPPORTS"}).raise_for_status()
        body = {"password": "a-long-password", "roles": ["ccheck-papers-auditor"]}
        server.http.put("/_security/user/ann?refresh=true", json=body).raise_for_status()
        ann = {"auth": ("ann", "a-long-password")}
        assert server.http.get(f"{record}/_search", **ann).status_code == 200
        assert server.http.put(f"{record}/_doc/2", json={}, **ann).status_code == 403
        assert server.http.get("/papers/_search", **ann).status_code == 403
        for one in install.leftovers(store):
            if "/_security/" in one.path:
                assert install.state(store.client, one) == "same" and install.remove(store.client, one) is None
    assert server.http.get("/_security/role").json() == before
    server.http.delete("/_security/user/ann").raise_for_status()
    server.http.delete(record).raise_for_status()
