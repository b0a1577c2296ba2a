"""The stance model that ccheck carries."""

import json
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from cli_runs import BM25, ccheck
from scripted_llm import KEY, say, scripted

from ccheck.core.errors import InvalidData, NotFound
from ccheck.core.runtime import Runtime
from ccheck.core.settings import resolve
from ccheck.core.stages import VerdictStage
from ccheck.core.types import Claim, Document, Evidence, Hit, Stance
from ccheck.demo import CLAIMS, CORPUS
from ccheck.lab.measure.pairs import read_rows
from ccheck.verdict import open as opening
from ccheck.verdict.evidence import nearest_in_words
from ccheck.verdict.judge import Case, PairStances, likeliest
from ccheck.verdict.labels import STANCES
from ccheck.verdict.packaged_model import (
    FOLDER,
    PackagedStances,
    decides,
    is_packaged,
    may_support,
    probabilities,
    read_weights,
    sentences_of,
    what_was_found,
)
from ccheck.verdict.statements import compared, contradicts, repeats

SEA = Document("sea", "", "Global mean sea level rose by 20 cm between 1900 and 2018.")
FISH = Document("fish", "", "Cod live in cold water and eat small fish.")


def case(claim: str, *documents: Document) -> Case:
    return Case(Claim(claim), tuple(Evidence(Hit(rank, one, 1.0)) for rank, one in enumerate(documents, 1)))


def judged(claim: str, *documents: Document):
    (answer,) = PackagedStances(Runtime())([case(claim, *documents)])
    return answer.stances


def test_stances_have_calibrated_probabilities_and_an_empty_document_an_error():
    about, apart, empty = judged("The global mean sea level rose.", SEA, FISH, Document("none", "", " "))
    assert about.label == "SUPPORTS" and apart.label == "NOT_ENOUGH_INFO"
    assert empty.label is None and "neither title nor text" in str(empty.error)
    for stance in (about, apart):
        assert set(stance.probabilities) == set(STANCES) and sum(stance.probabilities.values()) == pytest.approx(1)
        assert stance.confidence == stance.probabilities[stance.label]


def test_below_the_threshold_it_does_not_guess():
    unsure = likeliest((0.38, 0.35, 0.27), 0.4)
    assert (unsure.label, unsure.confidence) == ("NOT_ENOUGH_INFO", 0.27)
    assert likeliest((0.41, 0.35, 0.24), 0.4).label == "SUPPORTS"


def test_the_last_sentence_is_read_and_the_nearest_ones_by_a_claim_that_ends():
    made = PackagedStances(Runtime())
    asked: list[tuple[str, str]] = []

    def refuted(pairs):
        asked.extend(pairs)
        return np.tile(np.array([-9.0, 9.0, -9.0], np.float32), (len(pairs), 1))

    made.__dict__["_reader"] = refuted
    far, near, other, last = "Cod live in cold water.", "Sea level varies.", "Ice melts.", "Tides were measured."
    long = Document("long", "", f"{far} {far} {SEA.text} {other} {near} {last}")
    pairs = [("Sea level rose by 40 cm since 1900", one) for one in (SEA, Document("title", far, ""), long)]
    stances = made.read([*pairs, ("Sea level rose", Document("none", "", " "))])
    claim = "Sea level rose by 40 cm since 1900."
    assert asked == [(claim, SEA.text), (claim, far), (claim, f"{far} {SEA.text} {other} {near} {last}")]
    assert [stance.label for stance in stances] == ["REFUTES"] * 3 + [None]
    assert nearest_in_words("Ice melts.", [far, other, "Hens lay eggs.", "Tea is hot."], 2) == [1, 3]  # the later one


TRIAL = "Rats drank tea for a week. Their weight was measured. Tea had no effect on weight. Further studies are needed."


def test_what_is_said_of_a_claim_or_by_others_decides_nothing():
    made = PackagedStances(Runtime())
    made.__dict__["_reader"] = lambda pairs: np.tile(np.array([9.0, -9.0, -9.0], np.float32), (len(pairs), 1))
    told = [f"{one} that tea had no effect on weight." for one in ("It is a myth", "People claimed", "It isn't true")]
    other = (
        "Tea had an effect on weight.",
        "Tea had not been measured.",
        "Weight",
        "Tea had no effect on weight and rats had it.",
    )
    claims = ("Tea had no effect on weight.", *told, *other, "Tea had no effect on weight, " * 20)
    believed = f"It is believed that tea has been measured. {TRIAL}"
    texts = (*[TRIAL] * 4, f"Early studies suggested that tea had an effect on weight. {TRIAL}", believed, *[TRIAL] * 3)
    stances = made.read([(claim, Document("one", "", text)) for claim, text in zip(claims, texts, strict=True)])
    assert [stance.decides for stance in stances] == [True, *[False] * 8]
    why = ["", *["is about another claim"] * 3, "a sentence says this of something else", "no sentence says that"]
    why += ["seems to state nothing", "makes two", "too long"]
    assert [stance.label == "SUPPORTS" for stance in stances] == [not one for one in why]
    assert all(one in (stance.rationale or "") for stance, one in zip(stances, why, strict=True))


def test_probabilities_have_the_temperature_of_the_file():
    weights = read_weights().model_copy(update={"temperature": 0.5})
    made = probabilities(np.log(np.array([[1.0, 2.0, 3.0]], np.float32)), weights)
    assert made[0] == pytest.approx([1 / 14, 4 / 14, 9 / 14])


def test_a_broken_file_is_named(tmp_path):
    with pytest.raises(InvalidData, match="Install ccheck again"):
        read_weights(tmp_path)
    data = json.loads((FOLDER / "model.json").read_text())
    (tmp_path / "model.json").write_text(json.dumps(data | {"temperature": 0}))
    with pytest.raises(InvalidData, match="temperature"):
        read_weights(tmp_path)
    (tmp_path / "model.json").write_text(json.dumps(data))
    with pytest.raises(InvalidData, match=r"reader\.safetensors"):
        next(PackagedStances(Runtime(), tmp_path)([Case(Claim("Sea level rose."), (Evidence(Hit(1, SEA, 1.0)),))]))


def test_the_card_tells_the_figures_of_the_file():
    card = (FOLDER / "README.md").read_text(encoding="utf-8")
    figures = json.loads((FOLDER / "figures.json").read_text(encoding="utf-8"))
    weights = read_weights()
    assert all(figures["made"][name] == getattr(weights, name) for name in ("decisive", "alike", "decided", "right"))
    for kind in ("left out", "in field", "measured only"):
        for one in figures[kind].values():
            assert f"{one['weighted_f1']:.3f}" in card and f"{one['calibration_error']:.3f}" in card
            assert kind == "left out" or f"{one['decided_right']} of {one['decided']}" in card
    assert "CC BY 4.0" in card and "CC BY-SA 3.0" in card


def test_what_decides_is_right_on_claims_that_it_did_not_learn_from():
    figures = json.loads((FOLDER / "figures.json").read_text(encoding="utf-8"))
    for name, one in (figures["in field"] | figures["measured only"]).items():
        assert one["refuted_decided_supported"] <= 0.03 * one["refuted"], name
        assert one["decided_right"] >= 0.85 * one["decided"] or one["decided"] < 12, name


def test_what_a_sentence_states_or_denies_decides_sooner():
    same = compared("The sea rose by 20 cm.", ["Nobody knows.", "By 20 cm the sea rose"])
    other = compared("The sea rose by 25 cm.", ["The sea rose by 20 cm."])
    apart = compared("The sea rose.", ["Nobody knows."])
    assert compared("The sea did not rise.", ["The sea rises."])[3:6] == (True, False, False)
    assert compared("The sea rises.", ["The sea does not rise."])[3:6] == (True, False, True)
    for said, one, least in ((Stance("SUPPORTS", 0.7), same, 0.6), (Stance("REFUTES", 0.75), other, 0.7)):
        assert decides(said, one, least, 0.8) and not decides(said, apart, least, 0.8)
    others = compared("Men die.", ["Women die."]), compared("Rum harms the old liver.", ["Rum harms no old heart."])
    assert not any(decides(Stance(side, 0.9), one, 0.6, 0.8) for one in others for side in ("SUPPORTS", "REFUTES"))
    assert all(decides(Stance(side, 0.8), apart, 0.6, 0.8) for side in ("SUPPORTS", "REFUTES"))
    assert may_support(same) and not may_support(other) and not decides(Stance("REFUTES", 1.0), same, 0.6, 0.8)
    assert likeliest([0.9, 0.05, 0.05], supports=False).label == "NOT_ENOUGH_INFO"


def test_an_abstract_that_says_it_in_other_words_decides_sooner():
    made = PackagedStances(Runtime())
    made.__dict__["_reader"] = lambda pairs: np.tile(np.array([2.8, 0.0, 0.0], np.float32), (len(pairs), 1))
    text = "Ice was measured in some of our many tests, and rain in all of them. " * 5
    claims = "Winters bring fewer storms", "Ice was measured in snow and rain"
    stances = made.read([(claim, Document("d", "", one)) for one in (text, text[:40]) for claim in claims])
    assert [stance.decides for stance in stances] == [True, False, False, False]
    assert 0.7 < (stances[0].confidence or 0) < 0.82


@pytest.mark.parametrize(
    ("said", "claim", "sentence"),
    [
        ("", "Hooks cut bycatch in the east.", "Hooks cut bycatch in the west but raised it in the east."),
        ("", "Clerks lived outside.", "Clerks lived in the centre and smiths lived outside."),
        ("stated", "Homes won 36%.", "Homes won 43% in spring and 36% in autumn."),
        ("", "Homes won 36% in spring.", "Homes won 43% in spring and 36% in autumn."),
        ("", "Spanish borrowed words from Basque.", "Basque borrowed words from Spanish."),
        ("repeats", "Jabs did not lower the risk.", "We found that jabs did not reduce the risk."),
        ("repeats", "Jabs raised the risk.", "Jabs significantly raised the risk (hazard ratio 1.3)."),
        ("stated", "Jabs raised the risk.", "Jabs raised the risk (hazard ratio 1.3; P = 0.4)."),
        ("repeats", "Tea was linked to gout.", "Tea was associated with gout."),
        ("repeats", "In Spain, words were borrowed.", "Words were borrowed in Spain."),
        ("", "Foxes outperform hares.", "Foxes were outperformed by hares."),
        ("repeats", "Ice loss accelerated.", "We conclude that ice loss has therefore accelerated."),
        ("repeats", "Foxes outperform hares.", "Hares are outperformed by foxes."),
        ("repeats", "Rays mature earlier than skates.", "Rays matured earlier than skates while sharks grew."),
        ("contradicts", "Spiders have six legs.", "Spiders have eight legs, but insects fly."),
        ("contradicts", "Airlines lost 17 million.", "Airlines lost 1.7 million while hotels shut."),
        ("", "Hires made fewer contacts.", "Managers, unlike hires, made fewer contacts."),
        ("", "Tea prevents gout.", "Tea, which is said to prevent gout, was drunk."),
        ("", "Users disliked the smell.", "Users were content, but their neighbours disliked the smell."),
        ("", "Annealed samples failed early.", "Annealed samples have not failed early."),
        ("repeats", "Experts spoke less than novices.", "Novices spoke more than experts."),
        ("", "GPT-4 passes the exam.", "GPT-3 passes the exam."),
        ("", "In 2018 it was won.", "In 2019 it was won."),
        ("", "Type 1 fibres shrank.", "Type 2 fibres shrank."),
        ("", "Dogs ate more without bells than with bells.", "Dogs ate more with bells than without."),
        ("", "Jabs reduced stays.", "Jabs hardly reduced stays."),
        ("", "Spiders have six legs.", "There is no evidence that spiders have six legs."),
    ],
)
def test_what_a_clause_says_of_a_claim(said: str, claim: str, sentence: str):
    told = compared(claim, [sentence]).stated, repeats(claim, sentence), contradicts(claim, sentence)
    assert told == (said in ("stated", "repeats"), said == "repeats", said == "contradicts")


def demo_papers() -> dict[str, Document]:
    rows = map(json.loads, CORPUS.read_text(encoding="utf-8").splitlines())
    return {row["_id"]: Document(row["_id"], row["title"], row["text"]) for row in rows}


def test_what_a_paper_asked_supports_nothing():
    """Only the sentence that says what others claimed has every word of the claim."""
    paper = demo_papers()["madsen-2002"]
    asked = next(one for one in sentences_of(paper) if "might cause autism" in one)
    assert what_was_found(paper, [asked], asked) == []
    claims = ["measles vaccine causes autism", "combined measles vaccine might cause autism", "vaccines cause autism"]
    assert not any(stance.decides for stance in PackagedStances(Runtime()).read([(claim, paper) for claim in claims]))
    assert what_was_found(Document("d", "", "The sea rose."), ["The sea rose."], "") == ["The sea rose."]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [("other-subjects", 1, 0), ("near-misses", 343, 14), ("realistic", 110, 3), ("conclusions", 17, 1)],
)
def test_what_is_decided_about_other_subjects_is_right(name: str, right: int, wrong: int):
    """Claims about subjects that the model was not made from, each with a passage. A near miss shares most words."""
    rows = [*map(json.loads, Path(__file__).with_name(f"{name}.jsonl").read_text("utf-8").splitlines())]
    stances = PackagedStances(Runtime()).read([(row["claim"], Document("d", "", row["text"])) for row in rows])
    decided = [(row, it.label == row["label"]) for row, it in zip(rows, stances, strict=True) if it.decides]
    assert sum(good for _, good in decided) >= right
    assert sum(not good for _, good in decided) <= wrong, [row for row, good in decided if not good]


@pytest.mark.slow
def test_no_false_claim_of_the_demo_is_supported():
    papers = demo_papers()
    for claim in map(json.loads, CLAIMS.read_text(encoding="utf-8").splitlines()):
        pairs = [(claim["text"], papers[one["doc_id"]]) for one in claim["evidence"]]
        for one, stance in zip(claim["evidence"], PackagedStances(Runtime()).read(pairs), strict=True):
            assert not stance.decides or stance.label == one["label"] or one["label"] == "NOT_ENOUGH_INFO", claim


@pytest.mark.slow
def test_the_shipped_model_is_better_than_a_guess_on_data(scifact):
    """The figures of the folder say nothing about the weights beside them."""
    rows = list(read_rows(scifact / "verdicts.jsonl", scifact / "corpus.jsonl.gz").rows)
    rows = random.Random(0).sample(rows, 40)
    stances = PackagedStances(Runtime()).read([(row.claim, Document("d", row.title, row.text)) for row in rows])
    right = sum(stance.label == row.label for stance, row in zip(stances, rows, strict=True))
    assert right >= 24 and {stance.label for stance in stances} == set(STANCES)
    assert max(sum(label == row.label for row in rows) for label in STANCES) < 20


@pytest.mark.parametrize("method", ["auto", "stance"])
def test_it_judges_where_nothing_else_is_set_up(method, monkeypatch):
    def missing(name: str, **options: object):
        raise NotFound("not here") if "DeBERTa" in name else AssertionError(name)

    monkeypatch.setattr("ccheck.core.models.find_model", missing)
    settings = resolve({}).settings
    made = opening.open_method(VerdictStage(method=method), Runtime(settings))
    assert is_packaged(made) and "packaged stance model" in made.name
    named = opening.open_method(VerdictStage(method="stance", model="packaged"), Runtime(settings))
    assert is_packaged(named)


@pytest.mark.parametrize(("number", "open_"), [(20, True), (40, False)])
def test_a_paper_that_gives_the_claims_number_is_not_said_to_refute_it(number: int, open_: bool):
    paper = Document("d", "", "The sea rose by about 1.6 mm a year since 1900, which adds up to a little under 20 cm.")
    model = PackagedStances(Runtime())
    model.__dict__["_reader"] = lambda pairs: np.array([[0.0, 9.0, 0.0]] * len(pairs))
    (stance,) = model.read([(f"The sea has risen about {number} cm since 1900", paper)])
    assert (stance.label == "REFUTES") is stance.decides is not open_


def test_a_sentence_with_a_quantity_of_the_same_kind_is_near():
    texts = ["The sea was measured.", "Waves were seen.", "They found 21 centimetres in all.", "It took 3 days.", "Ah."]
    assert nearest_in_words("the sea has risen 20 cm", texts, 2) == [0, 2]


# -- a judge that was made for English leaves other languages unjudged, and says so


GERMAN = Document("de", "", "Impfungen verursachen keinen Autismus, wie eine große Studie zeigt.")
ENGLISH = Document("en", "", "Vaccines do not cause autism.")


class Supports(PairStances):
    english_only = True

    def read(self, pairs: Sequence[tuple[str, Document]]) -> list[Stance]:
        return [Stance("SUPPORTS", 0.9)] * len(pairs)


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
    for name, value in (("NO_PROXY", "127.0.0.1"), ("CCHECK_LLM_MODEL", "m")):
        monkeypatch.setenv(name, value)
    claim = "Kiwi birds and walnut shells play the violin in Denver"
    arguments = ("query", claim, "--store", papers, *BM25, "-k", "2", "--json")
    reply = {"rationale": "It is about something else.", "quote": "", "label": "NOT_ENOUGH_INFO", "confidence": 0.8}
    with scripted([say(reply)], user=monkeypatch) as server:
        (answer,) = ccheck(*arguments).objects
        assert server.requests and answer["relevance"] < 0.2 and answer["verdict"]["method"].startswith("llm:m")
    (packaged,) = ccheck(*arguments, "--stance", "packaged").objects
    assert packaged["verdict"]["method"] == "relevance"


def test_a_dry_run_says_why_nothing_would_be_asked(papers, tmp_path, monkeypatch):
    recipe = tmp_path / "gate.toml"
    recipe.write_text('extends = "bm25"\n[verdict]\nleast_relevance = 0.9\n')
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    ran = ccheck("query", "Kiwi birds play", "--store", papers, "--recipe", recipe, "--llm", "m", "--dry-run")
    assert "would ask 0 questions" in ran.err and "least_relevance" in ran.err, ran.err
