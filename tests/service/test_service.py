"""The service finds checks again, keeps what people say of them, and holds nobody up."""

import asyncio
import dataclasses
import json
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from scripted_llm import Said, error, say, scripted, user_text

import ccheck
from ccheck.core.errors import NotFound, UsageError
from ccheck.core.settings import Settings
from ccheck.core.types import Claim
from ccheck.pipeline.batch import ClaimRecord
from ccheck.search.elastic import Connection, ElasticStore
from ccheck.service import Correction, Event, Service, open_service
from ccheck.service.record import Wanted
from ccheck.service.record_elastic import ElasticRecord
from ccheck.web.shown import readable, with_texts

PAPERS = [
    {"_id": "tea", "title": "Tea and health", "text": "Tea lowers blood pressure. It is a drink.", "year": 2001},
    {"_id": "sea", "title": "Sea level", "text": "Sea level rose by 20 cm since 1900. Coasts flood.", "year": 2015},
    {"_id": "ice", "title": "Ice", "text": "Sea ice melts. The level of lakes is stable.", "year": 2020},
]
CLAIM = "Sea level has risen."


@pytest.fixture
def service(tmp_path: Path):
    with open_service(str(tmp_path / "store"), recipe="bm25", rerank="none") as opened:
        opened.checker.ingest(PAPERS, dense=False)
        yield opened


def test_a_check_is_found_again_until_something_that_decides_it_changes(service: Service, tmp_path: Path) -> None:
    first = service.check(CLAIM, k=2, user="ann")
    assert (first.status, first.kept, first.user, first.error) == ("done", True, "ann", None)
    assert first.result is not None and [one["doc_id"] for one in first.result["evidence"]] == ["sea", "ice"]
    assert service.check(f"  {CLAIM} ", k=2) == first == service.find(first.id)
    again = service.check(CLAIM, k=2, fresh=True)
    assert again.id == first.id and again.created > first.created
    others = [service.check("Sea level has fallen.", k=2), service.check(CLAIM, k=1)]
    others += [service.check(CLAIM, k=2, filters=["year>=2016"]), service.check(CLAIM, k=2, recipe="default")]
    service.checker.ingest({"_id": "new", "text": "Sea level fell."}, dense=False)
    others.append(service.check(CLAIM, k=2))
    assert len({first.id, *(one.id for one in others)}) == 6
    assert {one["doc_id"] for one in (others[-1].result or {})["evidence"]} >= {"new"}
    with open_service(str(tmp_path / "store"), recipe="bm25", rerank="none") as other:
        assert other.check(CLAIM, k=2) == others[-1]
        assert [one.id for one in other.checks(Wanted(limit=2))] == [others[-1].id, others[-2].id]


def test_a_recorded_answer_is_the_one_that_query_prints(service: Service) -> None:
    (answered,) = (one for _, one in service.answers([ClaimRecord(ccheck.Claim(CLAIM))], k=2))
    check = service.check(CLAIM, k=2)
    assert check.result == json.loads(json.dumps(answered.answer))
    assert check.result is not None and check.result["settings"] == check.settings["key"]
    (named,) = service.check_many([ccheck.Claim(CLAIM, "7")], k=2)
    assert named.id == check.id


def test_claims_that_fail_are_checks_that_failed_and_are_tried_again(service: Service) -> None:
    seen = []
    good, bad = service.check_many([CLAIM, "..."], lambda event: seen.append((event.kind, event.data["check"])))
    assert (bad.status, bad.problem, good.run) == ("failed", "InvalidData", bad.run)
    assert bad.error is not None and "no word" in bad.error
    assert seen[-2:] == [("done", good.id), ("error", bad.id)]
    ((refused, _),) = service.answers([ClaimRecord(Claim("tea", "1"), "line 2: the id '1' is there already")])
    assert refused.status == "failed" and {one.id for one in service.checks()} == {good.id, bad.id}
    assert service.check("...").created > bad.created, "a failure is not kept as the answer"
    with pytest.raises(UsageError, match="not a packaged recipe"):
        service.check(CLAIM, recipe="/etc/passwd")
    with pytest.raises(UsageError, match="no option 'filter': did you mean 'filters'"):
        service.check(CLAIM, filter=["year>=2016"])  # type: ignore[call-arg]
    assert service.check(CLAIM, k=2, filters="year>=2016").settings["filters"] == ["year>=2016"]
    with pytest.raises(UsageError, match=r"k is \['5'\]"):
        service.check(CLAIM, k=["5"])  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="a claim is a text"):
        service.check(3)  # type: ignore[arg-type]


def test_a_stance_is_told_while_other_documents_are_judged(tmp_path: Path) -> None:
    first = threading.Event()
    told = []

    def answer(request: dict[str, Any]) -> Said:
        quote = "Sea ice melts." if "Sea ice melts." in user_text(request) else "Sea level rose by 20 cm since 1900."
        if quote == "Sea ice melts." and not first.wait(60):
            return error(500, "the first stance was not told")
        sure = 0.6 if "ice" in quote else 0.9
        return say({"rationale": "r", "quote": quote, "label": "SUPPORTS", "confidence": sure})

    def tell(event: Event) -> None:
        if event.kind == "stance":
            told.append((event.data["doc_id"], event.data["label"], event.data["leans"]))
            first.set()

    with scripted(answer) as llm:
        model = {"llm_model": "m", "llm_base_url": llm.url, "llm_api_key": "k", "cache_dir": tmp_path / "cache"}
        with open_service(str(tmp_path / "store"), recipe="bm25", rerank="none", **model) as service:
            service.checker.ingest(PAPERS, dense=False)
            check = service.check("Sea level has risen.", tell, k=2)
    assert check.label == "SUPPORTS"
    assert told == [("sea", "SUPPORTS", False), ("ice", "SUPPORTS", True)]


def test_corrections_stay_beside_the_answer(service: Service) -> None:
    check = service.check(CLAIM, k=2)
    said = ("wrong stance", "sea", "SUPPORTS", "it says so", "ann"), ("not relevant", "ice", None, None, "bob")
    given = [Correction(check.id, *one) for one in (*said, ("wrong verdict", None, "SUPPORTS"))]
    for one in given:
        service.correct(one)
    corrected = service.check(CLAIM, k=2)
    assert dataclasses.replace(corrected, corrections=()) == check, "never over the model's answer"
    assert [dataclasses.replace(one, created="") for one in corrected.corrections] == given
    assert service.check(CLAIM, k=2, fresh=True).corrections == corrected.corrections
    service.correct(Correction(check.id, "wrong stance", "sea", "REFUTES"))
    labels, notices = [("sea", "REFUTES", PAPERS[1]["text"]), ("ice", "NOT_ENOUGH_INFO", PAPERS[2]["text"])], []
    assert [(pair["doc_id"], pair["label"], pair["text"]) for pair in service.pairs(notices.append)] == labels
    said = "labelled differently by different people: 1. The last label counts"
    assert notices == ["left out: 1 whose correction is of a verdict, and not of a paper", said]
    with pytest.raises(UsageError, match="'ice' by somebody without a name"):
        service.correct(Correction(check.id, "withdrawn", "ice"))
    service.correct(Correction(check.id, "withdrawn", "ice", user="bob"))
    service.correct(Correction(check.id, "withdrawn", "sea"))  # ann's stands
    assert [(pair["doc_id"], pair["label"]) for pair in service.pairs()] == [("sea", "SUPPORTS")]
    corrected = service.find(check.id)
    assert [one.doc_id for one in corrected.standing] == ["sea", None] and corrected.corrected == corrected.standing[1]
    wanted = [Wanted(corrected=True, ids=ids) for ids in ([check.id, "x"], ["x"], [])]
    assert [len(service.checks(one)) for one in wanted] == [1, 0, 0]


def test_of_several_checks_of_a_claim_the_last_correction_is_the_pair(service: Service) -> None:
    checks = [service.check(CLAIM, k=k) for k in (1, 2, 3)]
    for check, label in zip((checks[2], checks[0], checks[1]), ("SUPPORTS", "NOT_ENOUGH_INFO", "REFUTES"), strict=True):
        service.correct(Correction(check.id, "wrong stance", "sea", label))
    assert [(pair["doc_id"], pair["label"]) for pair in service.pairs(pytest.fail)] == [("sea", "REFUTES")]


CHANGED = "document has changed since the check"
SINCE = [({"text": "Goats eat grass."}, CHANGED), ({"title": "Goats"}, CHANGED), ({"year": 2016}, None)]
SINCE += [({}, "document is gone"), (None, "check was made again since")]


@pytest.mark.parametrize(("change", "why"), SINCE)
def test_a_label_is_exported_with_the_text_that_was_seen_or_not_at_all(service, monkeypatch, change, why) -> None:
    if change is None:  # its state is not known: another text has the same check
        monkeypatch.setattr(service.checker.store, "state", lambda: None)
    first = service.check(CLAIM, k=1)
    service.correct(Correction(first.id, "wrong stance", "sea", "REFUTES"))
    (seen,), notices = service.pairs(), list[str]()
    service.checker.ingest(PAPERS[1] | (change or {}), dense=False)
    if change == {}:
        service.checker.store.delete(["sea"])
    service.check(CLAIM, k=1)
    assert list(service.pairs(notices.append)) == ([] if why else [seen])
    assert bool(with_texts(readable(first), service).evidence[0].document.text) == (not why or change is None)
    assert notices == ([f"left out: 1 whose {why}"] if why else [])


class Judge:
    name, broken = "always 1", False

    def __call__(self, claim, evidence):
        if self.broken:
            raise OSError("the server is gone")
        return [ccheck.Stance("SUPPORTS", 1.0) for _ in evidence], ccheck.Verdict("SUPPORTS", 1.0)


def test_a_check_that_fails_takes_no_answer_from_the_record(tmp_path: Path, monkeypatch) -> None:
    told: list[dict[str, Any]] = []
    monkeypatch.setattr("ccheck.service.service.event", lambda kind, **facts: told.append(facts))
    judge = Judge()
    with open_service(str(tmp_path / "store"), recipe="bm25", rerank="none", judge=judge) as service:
        service.checker.ingest(PAPERS, dense=False)
        good = service.check(CLAIM)
        judge.broken = True
        failed = service.check(CLAIM, fresh=True)
        assert (failed.id, failed.label, failed.kept) == (good.id, None, False)
        with ElasticStore(Connection("http://127.0.0.1:9"), "x") as store:
            flat = ElasticRecord(store, Settings())._fields(failed, "")
        seen = [(one["status"], one["problem"]) for one in (told[0], told[1], flat)]
        assert seen == [("done", None), *[("failed", "Incomplete")] * 2] and "is gone" in flat["error"]
        assert service.find(good.id) == good == service.check(CLAIM)
        assert service.check("Ice melts.").kept, "nothing better is known"
        judge.broken = False
        assert service.check("Ice melts.").label == "SUPPORTS"


def test_old_checks_are_forgotten_each_day_that_a_service_runs(tmp_path: Path) -> None:
    with open_service(str(tmp_path / "store"), recipe="bm25", rerank="none", record_days=7) as service:
        service.checker.ingest(PAPERS, dense=False)
        check = service.check(CLAIM)
        assert service.record is not None and service._forgotten is not None
        service.record.put(dataclasses.replace(check, id="0" * 16, created="2020-01-01T00:00:00.000000+00:00"))
        service.check(CLAIM, fresh=True)
        assert len(service.checks()) == 2
        service._forgotten -= timedelta(days=1)
        service.check(CLAIM, fresh=True)
        assert [one.id for one in service.checks()] == [check.id]


UNFIT = {("wrong stance", "seа", "REFUTES"): "no document", ("wrong stance", "sea", None): "say what"}
UNFIT |= {("wrong stance", "sea", "MAYBE"): "no label", ("wrong stance", "sea", "CONFLICTING"): "say what"}
UNFIT |= {("wrong verdict", "sea", "REFUTES"): "without a document", ("not relevant", None, None): "no document"}
UNFIT |= {("not relevant", "sea", "REFUTES"): "use wrong stance", ("withdrawn", "sea", None): "no correction of 'sea'"}


@pytest.mark.parametrize(("correction", "said"), UNFIT.items())
def test_a_correction_that_does_not_fit_is_refused(service: Service, correction, said) -> None:
    check = service.check(CLAIM, k=2)
    with pytest.raises(UsageError, match=said):
        service.correct(Correction(check.id, *correction))
    with pytest.raises(NotFound, match="ccheck history"):
        service.correct(Correction("0123456789abcdef", *correction))
    assert service.find(check.id).corrections == ()


def test_the_event_loop_reads_what_is_at_hand_and_waits_for_nothing(service: Service, monkeypatch) -> None:
    first, store = service.check(CLAIM, k=1), service.checker.store
    read_by: list[str] = []
    read = service._found
    monkeypatch.setattr(service, "_found", lambda *way: read_by.append(threading.current_thread().name) or read(*way))

    def found(**how: Any) -> tuple[str, Any]:
        return asyncio.run(service.recorded_async(CLAIM, **{"k": 1, **how}))

    assert found() == (first.id, first) and found(user="ann")[1] == first and found(fresh=True) == (first.id, None)
    for held in (store._guard, service.record._lock):  # another thread searches, writes, or loads
        waits = threading.Thread(target=found)
        with held:
            waits.start()
            waits.join(0.2)
            assert waits.is_alive()
        waits.join(60)
    assert found(recipe="bm25") == (first.id, first)
    service.checker.ingest({"_id": "new", "text": "Sea level fell."}, dense=False)
    assert found()[1] is None and found()[1] is None
    by_pool = [name.startswith("ccheck-service") for name in read_by]
    assert by_pool == [False] * 3 + [True] * 4 + [False]


def test_what_happens_is_told_as_it_happens(service: Service) -> None:
    seen = []
    check = service.check(CLAIM, lambda event: seen.append(event), k=2, recipe="default")
    assert {event.data["check"] for event in seen} == {check.id}
    by_kind = {event.kind: dict(event.data) for event in seen}
    assert list(by_kind) == ["queries", "hits", "sentences", "stance", "verdict", "done"]
    assert by_kind["queries"]["claim"] == [CLAIM]
    assert [one["doc_id"] for one in by_kind["hits"]["documents"]] == ["sea", "ice"]
    assert check.result is not None and by_kind["verdict"]["label"] == check.result["verdict"]["label"]
    stances = {event.data["doc_id"]: event.data["label"] for event in seen if event.kind == "stance"}
    assert stances == {one["doc_id"]: one["stance"]["label"] for one in check.result["evidence"]}
    json.dumps([dict(event.data) for event in seen])
    seen.clear()
    assert service.check(CLAIM, lambda event: seen.append(event), k=2, recipe="default") == check
    assert [event.kind for event in seen] == ["done"], "what is recorded is not done again"


def test_an_answer_of_a_function_without_a_name_is_not_found_again(tmp_path: Path) -> None:
    def anonymous(claim, evidence):
        return Judge()(claim, evidence)

    ids = set()
    for judge, again in ((Judge(), True), (anonymous, False)):
        with open_service(str(tmp_path / "store"), recipe="bm25", rerank="none", judge=judge) as service:
            service.checker.ingest(PAPERS, dense=False)
            first = service.check(CLAIM)
            assert (service.check(CLAIM) == first) == again
            ids.add(first.id)
            assert first.settings["models"][-1].endswith("always 1" if again else "anonymous")
    assert len(ids) == 2
