"""A judge that was made for English leaves other languages unjudged, and says so."""

from __future__ import annotations

from collections.abc import Sequence

from cli_runs import BM25, ccheck
from scripted_llm import KEY, say, scripted

from ccheck.core.types import Claim, Document, Evidence, Hit, Stance
from ccheck.verdict.judge import Case, PairStances

GERMAN = Document("de", "", "Impfungen verursachen keinen Autismus, wie eine große Studie zeigt.")
ENGLISH = Document("en", "", "Vaccines do not cause autism.")


class Supports(PairStances):
    english_only = True

    def read(self, pairs: Sequence[tuple[str, Document]]) -> list[Stance]:
        return [Stance("SUPPORTS", 0.9)] * len(pairs)


def case(claim: str, *documents: Document) -> Case:
    return Case(Claim(claim), tuple(Evidence(Hit(rank, one, 1.0)) for rank, one in enumerate(documents, 1)))


def test_only_english_pairs_are_judged():
    cases = [case("Vaccines cause autism.", GERMAN, ENGLISH), case("Impfungen verursachen Autismus", GERMAN, ENGLISH)]
    mixed, foreign = Supports()(cases)
    assert [stance.label for stance in mixed.stances] == [None, "SUPPORTS"]
    assert "document seems to be in German" in str(mixed.stances[0].error)
    assert [stance.label for stance in foreign.stances] == [None, None]
    assert all("claim seems to be in German" in str(stance.error) for stance in foreign.stances)


def test_a_german_claim_is_not_judged_and_its_retrieval_is_said_to_be_weak(papers):
    ran = ccheck("query", "Impfungen verursachen Autismus", "--store", papers, *BM25, "-k", "3", "--json")
    (answer,) = ran.objects
    assert answer["verdict"]["label"] is None and "German" in " ".join(
        (answer["verdict"]["error"], *answer["warnings"])
    )
    assert any("retrieval is weak" in warning for warning in answer["warnings"])
    assert all(piece["stance"]["label"] is None for piece in answer["evidence"])


def test_a_language_model_judges_what_the_estimate_of_relevance_would_not(papers, monkeypatch):
    """Whoever sets up a judge wants it asked; a recipe can still set the gate."""
    for name, value in (("OPENAI_API_KEY", KEY), ("NO_PROXY", "127.0.0.1"), ("CCHECK_LLM_MODEL", "m")):
        monkeypatch.setenv(name, value)
    claim = "Kiwi birds and walnut shells play the violin in Denver"
    arguments = ("query", claim, "--store", papers, *BM25, "-k", "2", "--json")
    reply = {"rationale": "It is about something else.", "quote": "", "label": "NOT_ENOUGH_INFO", "confidence": 0.8}
    with scripted(lambda request: say(reply)) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        (answer,) = ccheck(*arguments).objects
        assert server.requests and answer["relevance"] < 0.2 and answer["verdict"]["method"].startswith("llm:m")
    (packaged,) = ccheck(*arguments, "--stance", "packaged").objects
    assert packaged["verdict"]["method"] == "relevance"


def test_a_dry_run_says_why_nothing_would_be_asked(papers, tmp_path, monkeypatch):
    recipe = tmp_path / "gate.toml"
    recipe.write_text('extends = "bm25"\n[verdict]\nleast_relevance = 0.9\n')
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    arguments = (
        "query",
        "Kiwi birds play the violin",
        "--store",
        papers,
        "--recipe",
        recipe,
        "--llm",
        "m",
        "--dry-run",
    )
    ran = ccheck(*arguments)
    assert "would ask 0 questions" in ran.err and "least_relevance" in ran.err, ran.err
