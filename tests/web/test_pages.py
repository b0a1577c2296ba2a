"""The service's pages as a browser without scripts sees them: forms, their tokens, exports, files, papers, keys."""

import csv
import errno
import hashlib
import io
import json
import re
import shutil
import threading
import zipfile
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from html_page import HOSTILE, Element, parse
from pdf_papers import Layout, sentence, write_paper
from rerank_servers import wait_until
from web_servers import CLAIM, KEYS, PAPERS, Web, web_server

from ccheck.core.errors import ServerError
from ccheck.web.access import Access, Counted, Key
from ccheck.web.jobs import FILES_AT_ONCE
from ccheck.web.page import for_owner, plainly
from ccheck.web.problems import Problem, json_text


def checked(web: Web, claim: str = CLAIM, **fields: str) -> tuple[str, Element]:
    answer = web.send("/checks", {"claim": claim, **fields})
    assert answer.status_code == 200, answer.text
    id_ = answer.url.path.rsplit("/", 1)[1]
    wait_until(lambda: id_ not in web.web.jobs.checks)
    return f"/checks/{id_}", web.page(f"/checks/{id_}")


def test_a_claim_is_checked_without_a_script(web):
    address, page = checked(web)
    assert page.one("h1").words == CLAIM and "Conflicting evidence" in page.one("div", id="verdict").words
    assert page.one("ul", class_="tally").words == "✓ 1 supporting ✗ 1 refuting ○ 1 leaving it open"
    assert [one.all("a")[0].words for one in page.all("div", class_="side")] == ["Sea level", "Tide gauges"]
    assert "Sea level rose by 20 cm since 1900." in [one.text for one in page.all("mark")]
    assert "https://doi.org/10.1000/sea" in [one.attributes["href"] for one in page.all("a")]
    said = "Coasts flood.", "Found by its words (rank 1)", "What was not found", "Only the 3 best matches"
    assert "journal" in (names := [one.attributes["label"] for one in page.all("optgroup")]) and "DOI" not in names
    (link,) = [one for one in page.all("input") if "readonly" in one.attributes]
    assert link.attributes["value"] == web.url + address
    assert [one for one in (*said, "no language model answered") if one not in page.words] == []
    answer = web.send("/checks", {"claim": CLAIM, "from": "2010", "to": "2000"})
    assert answer.status_code == 400 and "o year is from 2010 to 2000: 2010 is later" in answer.text


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        *((one, ["2 Tide gauges"]) for one in ("stance=REFUTES", "to=2010")),
        *((one, []) for one in ("stance=SUPPORTS&to=2010", "from=x&stance=%3Cscript%3E")),
        *(("from=2016", ["3 Ice"]), ("field=journal%3DNature", ["1 Sea level", "3 Ice"])),
        ("stance=&from=&to=&field=", ["1 Sea level", "2 Tide gauges", "3 Ice"]),
    ],
)
def test_evidence_is_filtered_by_parameters(web, query, shown):
    address, _ = checked(web)
    page = web.page(f"{address}?{query}")
    assert [one.one("h3").words for one in page.all("li", class_="document")] == shown
    assert f"{len(shown)} of 3 papers shown" in page.words


def test_a_check_is_exported_and_found_in_the_history(web):
    address, _ = checked(web)
    assert web.browser.get(f"{address}.json").json()["claim"] == CLAIM
    rows = list(csv.DictReader(io.StringIO(web.browser.get(f"{address}.csv").text)))
    assert [row["stance"] for row in rows] == ["SUPPORTS", "REFUTES", "NOT_ENOUGH_INFO"]
    assert "@article{church2015" in web.browser.get(f"{address}.bib").text
    answer = web.browser.get(f"{address}.md")
    assert answer.text.startswith(f"## Claim: {CLAIM}\n\n**C") and "attachment" in answer.headers["content-disposition"]
    assert web.browser.get(f"{address}.exe").status_code == 404
    checked(web, "Coffee is a drink.")
    page = web.page("/history?q=coffee")
    assert [one.all("a")[0].words for one in page.one("ol", class_="list").all("li")] == ["Coffee is a drink."]
    assert "Corrections of verdicts are left out" in page.words and "Coffee is a drink." in web.page("/").words
    assert "No check fits" in web.page("/history?q=nothing+of+it").words
    assert all(one["result"] for one in web.browser.get("/history.json?label=CONFLICTING").json())
    assert web.browser.get("/history?label=nope").status_code == 400


def test_a_check_that_runs_says_so_and_loads_again(serve_web):
    web = serve_web()
    web.judge.go.clear()
    answer = web.send("/checks", {"claim": CLAIM})
    page = parse(answer.text)
    assert page.one("ol", role="log").attributes["aria-live"] == "polite"
    assert page.all("noscript") and page.all("meta", **{"http-equiv": "refresh"})
    assert web.judge.busy.wait(60)
    page = parse(web.send(f"{answer.url.path}/stop", {}).text)
    assert "Not checked" in page.words and "the check was stopped" in page.one("main").words.lower()
    web.judge.go.set()
    wait_until(lambda: not any(one.running for one in web.web.jobs.lost.values()))
    assert web.web.service.checks() == [] and "Not checked" in web.page(answer.url.path).words


def test_without_a_record_an_answer_is_shown_and_not_kept(serve_web):
    web = serve_web(record=False)
    address, page = checked(web)
    assert "Conflicting evidence" in page.one("div", id="verdict").words and not page.all("details", class_="correct")
    answer = web.browser.get("/history")
    assert answer.status_code == 400 and "keeps no record" in answer.text and "--no-record" not in answer.text
    assert web.send(f"{address}/corrections", {"label": "SUPPORTS"}).status_code == 400
    web.send("/files", {}, files={"file": ("c.txt", CLAIM)})
    (job,) = web.web.jobs.files.values()
    wait_until(lambda: not job.running)
    table = web.page(f"/files/{job.id}").one("tbody")
    assert "Conflicting evidence papers disagree" in table.words and not table.all("a"), "no check that nobody has"
    assert "Conflicting evidence," in (text := web.browser.get(f"/files/{job.id}.csv").text) and "/checks/" not in text


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("the store a is empty. Fill it with ccheck ingest FILE", "the store a is empty"),
        ("no language model is set: use --llm MODEL or CCHECK_LLM_MODEL, as it says", "no language model is set"),
        ("there is no store a (ccheck index list shows them). Create it with ccheck ingest", "there is no store a"),
        ("documents may be missing. To add them, run it again: ccheck ingest F.", "documents may be missing"),
        ("the depth 5 is too large; choose one with --rerank-depth", "the depth 5 is too large"),
        ("Is it 2010--2015? ccheck did not make it", "Is it 2010--2015? ccheck did not make it"),
    ],
)
def test_errors_name_no_flags_and_commands_but_on_a_command_line(message: str, said: str):
    assert plainly(message) == said
    data = {"error": message, "warnings": [message], "verdict": {"error": message}, "text": message}
    assert json.loads(json_text(data)) == data | {"error": said, "warnings": [said], "verdict": {"error": said}}
    token = for_owner.set(True)
    assert plainly(message) == message and json.loads(json_text(data)) == data
    for_owner.reset(token)


def test_a_store_that_is_missing_is_said_everywhere_without_flags_and_where_it_lies(serve_web, tmp_path):
    web = serve_web(papers=None)
    wait_until(lambda: not web.web.loading)
    assert "ccheck ingest" in web.web.missing and "Nothing can be checked yet" in web.page("/").text
    answer = web.client.post("/v1/checks", json={"claim": CLAIM})
    assert (answer.status_code, answer.json()["type"]) == (503, "urn:ccheck:NotFound")
    assert "--" not in answer.json()["detail"]
    assert web.client.get("/ready").json()["detail"] == "there is no store local:store"
    for said in (answer, web.browser.get("/"), web.client.get("/v1/collections"), web.client.get("/ready")):
        assert "store" in said.text and "ccheck ingest" not in said.text and str(tmp_path) not in said.text


def test_a_store_that_hangs_holds_no_page_up(serve_web, monkeypatch):
    web = serve_web()
    wait_until(lambda: not web.web.loading)
    monkeypatch.setattr("ccheck.web.shared.PATIENCE", 0.1)
    go = threading.Event()
    monkeypatch.setattr(web.web.service.checker.store, "count", lambda: go.wait(60) and 3)
    monkeypatch.setattr(web.web.service.record, "list", lambda wanted: (_ for _ in ()).throw(ServerError("gone")))
    assert "The store does not answer" in (said := web.page("/").words) and "Recent checks can't be read now" in said
    go.set()


def test_every_page_is_json_too(serve_web):
    web = serve_web(papers=[*PAPERS, {"_id": "x.json", "title": "Other", "text": "Nothing of it."}])
    check, _ = checked(web)
    file = web.send("/files", {}, files={"file": ("c.txt", CLAIM)}).url.path
    added = web.send("/papers", {}, files=[("file", ("p.jsonl", json.dumps(PAPERS[0])))]).url.path
    wait_until(lambda: not any(job.running for job in web.web.jobs.ingests.values()))

    def data(path: str) -> object:
        answer = web.browser.get(f"{path}.json")
        assert answer.status_code == 200 and answer.headers["content-type"] == "application/json", path
        return answer.json()

    home = data("/home")
    assert home["collection"]["documents"] == 4 and home["recent"][0]["claim"] == CLAIM and "default" in home["recipes"]
    assert data(check) == web.client.get(f"/v1{check}").json() and data("/history")[0]["id"] == check[-16:]
    assert [one["claim"] for one in data(file)["claims"]] == [CLAIM]
    assert data("/papers")["store"] and data(added)["counts"]["updated"] == 1
    assert data("/documents/sea") == web.client.get("/v1/documents/sea").json()
    assert web.page("/documents/x.json").one("h1").words == "Other" and data("/documents/x.json")["id"] == "x.json"
    missing = web.browser.get("/documents/no.json")
    assert missing.status_code == 404 and missing.headers["content-type"] == "application/problem+json"


def test_a_correction_takes_two_clicks_and_is_shown(serve_web):
    web = serve_web()
    address, page = checked(web)
    (form,) = [one for one in page.all("form") if any(i.attributes.get("value") == "ice" for i in one.all("input"))]
    assert form.attributes["action"] == f"{address}/corrections"
    enter, *buttons = form.all("button")
    assert "disabled" in enter.attributes, "Enter records no label"
    assert [one.attributes["value"] for one in buttons] == ["SUPPORTS", "REFUTES", "not relevant"]
    web.send(f"{address}/corrections", {"doc_id": "ice", "label": "REFUTES", "note": "lakes", "user": "Eve"})
    web.send(f"{address}/corrections", {"doc_id": "sea", "what": "not relevant"})
    page = web.page(web.send(f"{address}/corrections", {"label": "SUPPORTS"}).url.path)
    said = [one.words for one in page.all("p", class_="correction")]
    assert said[0].startswith("Corrected: supported") and said[1].startswith("Corrected: not relevant")
    assert said[2].startswith("Corrected: the paper refutes – lakes (Eve, ")
    assert "Conflicting evidence corrected: supported" in web.page("/history").words  # the answer stays
    rows = {row["doc_id"]: row for row in csv.DictReader(io.StringIO(web.browser.get(f"{address}.csv").text))}
    assert (rows["ice"]["corrected_verdict"], rows["ice"]["corrected_stance"]) == ("SUPPORTS", "REFUTES")
    assert "Corrected: **REFUTES**: lakes (Eve, 20" in (text := web.browser.get(f"{address}.md").text)
    assert [text.count(f"Corrected: **{one}**") for one in ("SUPPORTS", "not relevant")] == [1, 1]
    for about in ({"doc_id": "ice", "user": "Eve"}, {}):
        page = web.page(web.send(f"{address}/corrections", {"what": "withdrawn", **about}).url.path)
        assert web.send(f"{address}/corrections", {"what": "withdrawn", **about}).status_code == 400
    assert page.words.count("their earlier correction is withdrawn") == 2 and page.words.count("Withdraw my") == 1
    assert web.browser.get(f"{address}.md").text.count("Corrected") == web.page("/history").words.count("1 correction")
    assert web.send(f"{address}/corrections", {"doc_id": "nobody", "label": "REFUTES"}).status_code == 400
    assert web.send(f"{address}/corrections", {"label": "MAYBE"}).status_code == 422


def test_a_file_of_claims_fills_a_table_and_what_failed_is_tried_again(serve_web):
    web = serve_web()
    web.judge.go.clear()
    lines = {"a": CLAIM, "b": "...", "c": "Ice is cold."}.items()
    file = "".join(json.dumps({"_id": id_, "text": text}) + "\n" for id_, text in lines)
    answer = web.send("/files", {"k": "1"}, files={"file": ("claims.jsonl", file)})
    page = parse(answer.text)
    assert page.one("div", id="live").attributes["data-refresh"] and "1 of 3 claims done, 1 failed" in page.words
    web.judge.go.set()
    job = web.web.jobs.files[answer.url.path.rsplit("/", 1)[1]]
    wait_until(lambda: not job.running)
    page = web.page(answer.url.path)
    rows = [one.words for one in page.one("tbody").all("tr")]
    assert "Conflicting evidence" in rows[0] and "Not checked" in rows[1] and "only marks" in rows[1]
    assert not [one for one in page.all("button") if "again" in one.text]  # what is no claim will never be one
    job.rows[2].error = "the server was gone"
    assert [one for one in web.page(answer.url.path).all("button") if "Check 1 claim again" in one.text]
    web.send(f"{answer.url.path}/retry", {})
    wait_until(lambda: not job.running)
    assert [web.web.service.find(row.check).settings["k"] for row in job.rows if not row.error] == [1, 1]
    web.send(f"/checks/{job.rows[0].check}/corrections", {"label": "SUPPORTS"})
    given = web.browser.get(f"{answer.url.path}.json").json()["claims"]
    assert [one["status"] for one in given] == ["done", "failed", "done"] and given[0]["corrected"]["user"] is None
    lists = [web.page(one).words.count("Judged by words") for one in (answer.url.path, "/history", "/home")]
    bom, *table = web.browser.get(f"{answer.url.path}.csv").text
    assert lists == [1] * 3 and "corrected: supported" in web.page(answer.url.path).words and bom == "\ufeff"
    first, mark, last = csv.DictReader(io.StringIO("".join(table)))
    assert first["address"] == f"{web.url}/checks/{job.rows[0].check}" and first["supporting_doi"] == "10.1000/sea"
    assert (mark["claim_id"], mark["verdict_in_words"]) == ("b", "Not checked") and "only marks" in mark["problem"]
    assert last["claim_id"] == "c" and checked(web, last["claim"], k="1")[1].one("p", class_="number").words == "Claim"


def test_a_file_of_claims_outlives_its_server_and_says_what_is_unfinished(tmp_path):
    with web_server(tmp_path) as start:
        web = start()
        web.send("/files", {"k": "1"}, files={"file": ("first.csv", asked := f"id,text\na,{CLAIM}\nb,...\n")})
        (first,) = web.web.jobs.files.values()
        wait_until(lambda: not first.running)
        web.judge.go.clear()
        again = {"k": "1", "fresh": "1"}  # the first answer is not what was asked for
        place = web.send("/files", again, files={"file": ("second.csv", f"{asked}c,Ice is cold.\n")}).url.path
        assert web.judge.busy.wait(60)
        web.web.service.record.close()  # as if the power went: nothing more is written
        web.web.service.record = None
        web.judge.go.set()
    with web_server(tmp_path) as start:
        web = start(papers=None)
        table = web.browser.get(f"/files/{first.id}.json").json()
        assert [one["status"] for one in table["claims"]] == ["done", "failed"] and not table["running"]
        assert table["claims"][0]["label"] == "CONFLICTING" and "only marks" in table["claims"][1]["error"]
        page = web.page(place)
        rows = [one.words for one in page.one("tbody").all("tr")]
        assert "1 of 3 claims done, 1 failed" in page.words and "unfinished" in rows[0] and "unfinished" in rows[2]
        web.send(f"{place}/retry", {})
        wait_until(lambda: not any(job.running for job in web.web.jobs.files.values()))
        done = web.browser.get(f"{place}.json").json()["claims"]
        assert [one["status"] for one in done] == ["done", "failed", "done"]
        assert web.browser.get("/files/2026-01-01T00:00:00.000-0123456789abcdef").status_code == 404


def test_a_file_is_kept_before_its_turn_comes_whatever_its_name(serve_web):
    web = serve_web()
    web.judge.go.clear()
    names = [f"{number} {'研究' * 60}.csv" for number in range(FILES_AT_ONCE + 1)]
    sent = [web.send("/files", {}, files={"file": (name, f"id,text\na,{name} rose.\n")}) for name in names]
    assert [one.status_code for one in sent] == [200] * len(names)
    last = sent[-1].url.path.rsplit("/", 1)[1]
    wait_until(lambda: web.web.service.record.file(last) is not None)
    assert web.browser.get(f"/files/{last}.json").json()["name"].endswith("研究.csv")
    web.send(f"{sent[0].url.path}/stop", {})
    web.judge.go.set()
    wait_until(lambda: not any(job.running for job in web.web.jobs.files.values()))
    assert "1 of 1 claim done. The check was stopped." in web.page(sent[0].url.path).words


def test_a_claim_that_no_judge_could_judge_is_tried_again(serve_web):
    web = serve_web()
    place = web.send("/files", {}, files={"file": ("c.txt", f"{CLAIM}\nboom rose.\nIt rose in part.")}).url.path
    (job,) = web.web.jobs.files.values()
    wait_until(lambda: not job.running)
    page = web.page(place)
    rows = [row.words for row in page.one("tbody").all("tr")]
    assert "3 of 3 claims done, 1 failed" in page.words and "judge broke" in rows[1]
    assert ["judged in part: it timed out" in one for one in rows] == [False, False, True]
    told = web.browser.get(f"{place}.json").json()["claims"]
    assert [(one["status"], bool(one["label"])) for one in told] == [("done", True), ("failed", False), ("done", True)]
    assert [one for one in page.all("button") if "Check 2 claims again" in one.text]
    web.judge.go.clear()
    web.send(f"{place}/retry", {})
    assert [len(row.all("a")) for row in web.page(place).one("tbody").all("tr")] == [1, 0, 0], "two wait"
    assert "It stops after those under way" in parse(web.send(f"{place}/stop", {}).text).words


def test_a_check_is_made_again_with_its_own_recipe(serve_web):
    web = serve_web()
    web.web.service.checker.ingest(PAPERS)  # with vectors
    for recipe in ("default", ""):
        address, page = checked(web, recipe=recipe)
        inputs = page.one("form", class_="again").all("input")
        fields = {one.attributes["name"]: one.attributes["value"] for one in inputs}
        assert fields["recipe"] == recipe
        assert checked(web, **fields)[0] == address


def test_a_file_that_has_no_claims_is_refused(web):
    assert ">empty.csv has no claims" in web.send("/files", {}, files={"file": ("empty.csv", "")}).text
    workbook = web.send("/files", {}, files={"file": ("claims.xlsx", b"PK\3\4\xff")}).text
    assert ">claims.xlsx is an Excel workbook" in workbook and "a sheet as CSV" in workbook
    refused = web.send("/files", {}, files={"file": ("x.bin", b"\0\1\2" * 9)})
    assert refused.status_code == 422 and "no claims that can be checked" in refused.text and "Go back" in refused.text
    assert "Choose a file" in web.send("/files", {}, files={"other": ("x", "y")}).text


def test_papers_are_added_with_progress_and_rejects_and_a_full_disk_is_said(serve_web, monkeypatch):
    web = serve_web(papers=None)
    lines = "".join(json.dumps(one) + "\n" for one in PAPERS) + '{"_id": "bad"}\nno json\n'
    answer = web.send("/papers", {}, files=[("file", ("../../x papers.jsonl", lines))])
    job = web.web.jobs.ingests[answer.url.path.rsplit("/", 1)[1]]
    wait_until(lambda: not job.running)
    page = web.page(answer.url.path)
    assert "3 papers added, 0 updated, 0 already there, 2 rejected" in page.words
    rejects = web.browser.get(f"{answer.url.path}.json").json()["rejects"]
    assert [(one["file"], one["line"]) for one in rejects] == [("x papers.jsonl", 4), ("x papers.jsonl", 5)]
    assert "ccheck-papers-" not in answer.text + page.text and web.client.get("/ready").status_code == 200
    assert "3 papers" in web.page("/papers").words
    refused = web.send("/papers", {}, files=[("file", ("x.bin", "?"))]).url.path
    wait_until(lambda: not any(job.running for job in web.web.jobs.ingests.values()))
    assert "It failed. x.bin: " in (said := web.page(refused).words) and "ccheck-papers-" not in said
    for name, content, said in (("e.csv", "", "the file is empty"), ("t.csv", "title\nTea", "without an abstract")):
        place = web.send("/papers", {}, files=[("file", (name, content))]).url.path
        wait_until(lambda: not any(job.running for job in web.web.jobs.ingests.values()))
        assert said in web.page(place).words
    assert "1 record without an id got one from their content." in web.page(place).words
    full = Mock(side_effect=OSError(errno.ENOSPC, "No space left on device"))
    monkeypatch.setattr("ccheck.web.pages.shutil.copyfileobj", full)
    refused = web.send("/papers", {}, files=[("file", ("p.jsonl", "{}"))])
    assert refused.status_code == 507 and "disk is full" in refused.text and "ccheck-papers-" not in refused.text
    monkeypatch.setattr("ccheck.web.jobs.Path.write_bytes", full)
    assert web.client.post("/v1/checks/many", content="one").json()["status"] == 507
    assert web.client.get("/health").status_code == 200


def test_no_paper_is_lost_to_another_of_its_name_and_what_is_not_kept_is_said(serve_web, tmp_path):
    (folder := tmp_path / "pdfs").mkdir()
    web = serve_web(papers=None, pdfs=folder)
    wait_until(lambda: not web.web.loading)

    def added(**files: bytes) -> dict[str, object]:
        sent = [("file", (name.split("/")[0], content)) for name, content in files.items()]
        place = web.send("/papers", {}, files=sent).url.path
        wait_until(lambda: not web.web.jobs.ingests[place.rsplit("/", 1)[1]].running)
        assert "Nothing can be checked yet" not in (page := web.page(place).words) and "ccheck-papers-" not in page
        return web.browser.get(f"{place}.json").json()

    for number in (20, 30, 40):
        write_paper(tmp_path / f"{number}.pdf", Layout(), number)
    coffee, tea, milk = ((tmp_path / f"{number}.pdf").read_bytes() for number in (20, 30, 40))
    first = {"paper.pdf": coffee, "x.txt": b"Some tea.", "x.txt/": b"More tea.", "x.txt//": b"No tea."}
    assert added(**first)["counts"]["added"] == 4
    second = added(**{"paper.pdf": tea, "x.txt": b"All tea."})
    assert (second["counts"]["added"], second["counts"]["updated"], len(second["notices"])) == (2, 0, 2)
    assert "paper.pdf is stored as pdfs/paper (2).pdf" in str(second["notices"])
    assert [added(**{"paper.pdf": one})["counts"]["unchanged"] for one in (tea, coffee)] == [1, 1]
    (folder / "new.pdf").write_bytes(tea)
    assert added(**{"new.pdf": milk})["counts"]["added"] == 1
    for name, content in {"paper": coffee, "paper (2)": tea, "new (2)": milk}.items():
        assert web.client.get(f"/pdf/pdfs/{name}.pdf").content == content
    for text in ("Inner tea.", "Other tea."):
        with zipfile.ZipFile(packed := io.BytesIO(), "w") as archive:
            archive.writestr("inner.txt", text)
        zipped = added(**{"a.zip": packed.getvalue()})
        assert zipped["counts"]["added"] == 1 and "PDFs in a.zip" in zipped["notices"][-1]
    shutil.rmtree(folder)
    gone = added(**{"gone.pdf": milk})
    assert gone["error"] is None and gone["counts"]["added"] == 1 and "gone.pdf can't be opened" in gone["notices"][0]


def test_a_card_leads_to_its_pages_and_a_pdf_opens_while_it_is_unchanged(serve_web, tmp_path):
    folder = tmp_path / "pdfs"
    (folder / "sub").mkdir(parents=True)
    layout = Layout(header="Tides 7")
    write_paper(file := folder / "sub" / "sea paper.pdf", layout, 150)
    (tmp_path / "secret.pdf").write_bytes(file.read_bytes())
    (folder / "linked.pdf").symlink_to(tmp_path / "secret.pdf")
    hashed = {"title": "x", "text": "y", "file_sha256": hashlib.sha256(file.read_bytes()).hexdigest()}
    outside = [{"_id": name, **hashed} for name in ("../secret.pdf", "secret.pdf", "linked.pdf")]
    web = serve_web(papers=[*PAPERS, *outside], pdfs=folder)
    web.web.service.checker.ingest(str(folder), dense=False)
    _, page = checked(web, sentence(120))
    (card,) = [one for one in page.all("li", class_="document") if "sea paper.pdf" in one.words]
    opened = {one.words: one.attributes["href"] for one in card.all("a") if "/pdf" in one.attributes["href"]}
    words = f"p. {layout.pages[120][0]}"
    assert opened[words].startswith("/pdf-pages/pdfs/sub/sea%20paper.pdf?at=")
    assert sentence(120) in [one.words for one in web.page(opened[words]).all("blockquote")]
    answer = web.client.get("/pdf/pdfs/sub/sea paper.pdf")
    assert answer.content == file.read_bytes() and answer.headers["content-type"] == "application/pdf"
    (policy,) = answer.headers.get_list("content-security-policy")
    assert "default-src 'none'" in policy and "object-src 'self'" in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "/pdf/" in web.browser.get("/documents/pdfs/sub/sea paper.pdf").text
    for path in ("../secret.pdf", "secret.pdf", "pdfs/linked.pdf", "..%2fsecret.pdf", "linked.pdf", "sea", "no.pdf"):
        assert web.client.get(f"/pdf/{path}").status_code == 404, path
    file.write_bytes(file.read_bytes() + b"%")
    assert web.client.get("/pdf/pdfs/sub/sea paper.pdf").status_code == 409
    dropped = [("dropped.pdf", (tmp_path / "secret.pdf").read_bytes()), ("broken.pdf", b"%PDF-1.4 no")]
    web.send("/papers", {}, files=[("file", one) for one in dropped])
    wait_until(lambda: not any(job.running for job in web.web.jobs.ingests.values()))
    assert web.client.get("/pdf/pdfs/dropped.pdf").status_code == 200 and not (folder / "broken.pdf").exists()


def test_a_pdf_needs_the_right_to_read_and_a_folder(serve_web, tmp_path):
    write_paper(tmp_path / "a.pdf", Layout(), 20)
    web = serve_web(keys=KEYS, papers=None, pdfs=tmp_path)
    web.web.service.checker.ingest(str(tmp_path / "a.pdf"), dense=False)
    for key, status in (("reader-0123456789", 200), ("checker-012345678", 403), ("nobody", 401)):
        asked = web.client.get(f"/pdf/{tmp_path.name}/a.pdf", headers={"Authorization": f"Bearer {key}"})
        assert asked.status_code == status
    other = serve_web(papers=None)
    assert other.client.get(f"/pdf/{tmp_path.name}/a.pdf").json()["detail"] == "this server has no PDF of this paper"


@pytest.mark.parametrize("path", ["/checks", "/files", "/papers", "/sign-in", "/checks/0123456789abcdef/corrections"])
def test_forms_of_others_are_refused(web, path):
    for token in ("", "0" * 64, "é"):
        answer = web.send(path, {"claim": CLAIM}, token=token)
        assert answer.status_code == 403 and "Load the page again" in answer.text


def test_with_keys_people_sign_in(serve_web):
    web = serve_web(keys=KEYS, requests=15)
    asked = web.browser.get("/history?q=sea&label=REFUTES")
    assert asked.status_code == 401 and "SameSite=lax" in asked.headers["set-cookie"] and "Sign in" in asked.text
    assert parse(asked.text).one("input", name="next").attributes["value"] == "/history?q=sea&label=REFUTES"
    token = re.findall('name="token" value="([0-9a-f]+)"', asked.text)[0]
    wrong = web.send("/sign-in", {"key": "anna-no", "next": "/history"}, token=token)
    assert wrong.status_code == 401 and "not known" in wrong.text
    assert web.send("/sign-in", {"key": "anna-no"}, token=token).status_code == 429  # which keeps no right key out
    refused = web.send("/sign-in", {"key": "checker-012345678"}, token=token)  # which would open no page
    assert "lacks the right read" in refused.text and "ccheck_session" not in web.browser.cookies
    answer = web.send("/sign-in", {"key": "reader-0123456789", "next": "//evil.example"}, token=token)
    assert answer.status_code == 200 and answer.url.path == "/" and answer.url.host == "127.0.0.1"
    assert web.send("/checks", {"claim": CLAIM}, token=token).status_code == 403  # it may only read
    assert "Add papers" not in web.page("/papers").words and "Check the file" not in (home := web.page("/")).words
    assert not home.all("textarea") and "to check" in home.words
    web.send("/sign-out", {}, token=token)
    # As after the server was started again, while somebody wrote into a form.
    asked = web.browser.post("/checks", headers={"Referer": f"{web.url}/?claim=x"})
    assert asked.status_code == 401 and parse(asked.text).one("input", name="next").attributes["value"] == "/?claim=x"
    assert web.browser.get("/history").status_code == 401


def test_a_session_ends_and_can_not_be_made_up_and_what_is_spent_comes_back(monkeypatch):
    access = Access([key := Key("anna", frozenset(["read"]), "s" * 16)])

    def asked(session: str) -> SimpleNamespace:
        return SimpleNamespace(client=None, headers={}, cookies={"ccheck_session": session}, scope={})

    session = access.session(key)
    assert access.caller(asked(session)).name == "anna"
    for made_up in ("", "anna", "anna.9999999999.x", session[:-1], Access([key]).session(key)):
        with pytest.raises(Problem):
            access.caller(asked(made_up))
    monkeypatch.setattr("ccheck.web.access.time.time", lambda: 9e9)
    with pytest.raises(Problem):
        access.caller(asked(session))
    now = 0.0
    monkeypatch.setattr("ccheck.web.access.time.monotonic", lambda: now)
    counted = Counted(2, 60, "checks")
    for who in "aab":
        counted.spend(who)
    with pytest.raises(Problem) as refused:
        counted.spend("a")
    assert 30 <= int(refused.value.headers["Retry-After"]) <= 31
    now = 31.0
    counted.spend("a")


def test_nothing_from_a_paper_or_a_claim_is_markup(serve_web):
    paper = {"_id": HOSTILE[:90], "title": HOSTILE, "text": f"{HOSTILE} sea rose."}
    paper |= {"journal": HOSTILE[:40], "year": HOSTILE[:9]}
    web = serve_web(papers=[paper, {"_id": "b", "title": "sea", "text": "sea fell", "journal": "x"}])
    unicode = HOSTILE.replace("\ud800", "")
    address, page = checked(web, f"sea {unicode}")
    web.send(f"{address}/corrections", {"label": "SUPPORTS", "note": unicode, "user": HOSTILE[:90]})
    for path in (address, "/", "/history", f"/documents/{page.all('a')[-1].text}"):
        text = web.browser.get(path).text
        assert "alert(1)" not in re.sub(r"&lt;.*?&gt;", "", text) or "<script>alert" not in text
        parsed = parse(text) if path != "/documents/" else page
        assert not parsed.all("img")
        assert all(one.attributes.get("src", "").startswith("/static/") for one in parsed.all("script"))
        assert not [name for one in parsed for name in one.attributes if name.startswith("on") or name == "style"]
