"""The sentences that are shown."""

import math
import time
from collections.abc import Sequence

import pytest

from ccheck.core.analysis import sentence_spans
from ccheck.core.errors import InvalidData
from ccheck.core.runtime import Runtime
from ccheck.core.settings import Settings
from ccheck.core.types import Document, Sentence
from ccheck.rerank.open import open_matcher
from ccheck.verdict import evidence
from ccheck.verdict.differences import differences
from ccheck.verdict.evidence import Match, choose_sentences
from ccheck.verdict.quantities import in_words
from ccheck.verdict.roles import roles_in, with_roles
from ccheck.verdict.statements import compared

TEXT = (
    "Sea level rose by 3.2 mm per year (Fig. 2; Smith et al. 2011).  It was measured by J. A. Church, i.e. by tide "
    "gauges. Does the sea rise? E. coli was not found in bed. Tea is. The end"
)


def chosen(
    claim: str, documents: Sequence[Document], count: int, match: Match | None = None
) -> list[tuple[Sentence, ...]]:
    """The sentences of one claim's documents."""
    return choose_sentences([(claim, documents)], count, match)[0]


def test_sentences_are_split_as_scientists_write() -> None:
    assert [TEXT[start:end] for start, end in sentence_spans(TEXT)] == [
        "Sea level rose by 3.2 mm per year (Fig. 2; Smith et al. 2011).",
        "It was measured by J. A. Church, i.e. by tide gauges.",
        "Does the sea rise?",
        *("E. coli was not found in bed.", "Tea is."),
        "The end",
    ]
    assert sentence_spans("") == sentence_spans(" \n ") == ()
    text = "AIMS\n \nWe asked\nwhy.\r\n\r\nRESULTS\n\n\nIt rose, as the\n\nfigure shows. It fell.\n\n"
    assert [text[start:end] for start, end in sentence_spans(text)] == [
        "AIMS",
        "We asked\nwhy.",
        "RESULTS",
        "It rose, as the\n\nfigure shows.",
        "It fell.",
    ]


def test_the_best_sentence_has_the_claims_rare_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evidence, "NOT_FOUND", 1)
    text = "The sea is wet. The sea is deep. The sea is cold. The cobalt is blue."
    ((*four,),) = chosen("cobalt in the sea", [Document("a", "", text)], 4)
    # Of four sentences three have "sea" and one has "cobalt": log(1 + 4 / (1 + 3)) and log(1 + 4 / (1 + 1)).
    sea, cobalt = math.log(2), math.log(3)
    assert [(s.text, s.score) for s in four] == [
        ("The cobalt is blue.", pytest.approx(cobalt / (sea + cobalt), abs=1e-6)),
        *((f"The sea is {how}.", pytest.approx(sea / (sea + cobalt), abs=1e-6)) for how in ("wet", "deep", "cold")),
    ]


def test_rarity_is_among_all_documents_of_the_claim() -> None:
    one = Document("a", "", "The sea is wet. The cobalt is blue.")
    two = Document("b", "", "A cobalt mine. More cobalt here. Cobalt again.")
    (alone,) = chosen("cobalt in the sea", [one], 2)
    assert alone[0].score == alone[1].score and alone[0].text == "The sea is wet."  # the first one of equals
    beside, _ = chosen("cobalt in the sea", [one, two], 2)
    sea, cobalt = math.log(1 + 5 / 2), math.log(1 + 5 / 5)
    assert [s.score for s in beside] == pytest.approx([sea / (sea + cobalt), cobalt / (sea + cobalt)], abs=1e-6)
    # A word of the claim that no sentence has is the rarest.
    ((sentence,),) = chosen("sea tungsten", [Document("a", "", "The sea is wet.")], 1)
    assert sentence.score == pytest.approx(math.log(1.5) / (math.log(1.5) + math.log(2)), abs=1e-6)


def test_what_only_asks_comes_after_what_was_found() -> None:
    documents = [Document("b", "", "Nothing in here. Nothing at all."), Document("c", "x", ""), Document("a", "", TEXT)]
    first, second, third = chosen("The sea rises by 3.2 mm each year", documents, 2)
    assert first == second == ()
    assert [sentence.text for sentence in third] == [
        "Sea level rose by 3.2 mm per year (Fig. 2; Smith et al. 2011).",
        "Does the sea rise?",
    ]
    for sentence in third:
        assert TEXT[sentence.start : sentence.end] == sentence.text
        assert sentence.field == "text"
        assert 0 < sentence.score <= 1
    asked, told = (chosen("sea rises", [Document("a", "", t)], 1)[0][0] for t in ("Sea rises?", "Sea rises."))
    assert (asked.score, told.score) == (evidence.NOT_FOUND, 1.0)


def test_offsets_count_characters() -> None:
    text = "Ünïcödé 🌊 first. The sea 🌊 rises. End."
    ((sentence,),) = chosen("sea rises", [Document("a", "", text)], 1)
    assert text[sentence.start : sentence.end] == sentence.text == "The sea 🌊 rises."


def test_no_sentence_without_words_or_wish() -> None:
    documents = [Document("a", "", TEXT)]
    assert chosen("the of and", documents, 3) == [()]
    assert chosen("sea", documents, 0) == [()]
    assert chosen("sea", [], 3) == []


HEART = Document("h", "", "Heart attacks were rarer. The cost was moderate. Patients went home after a week.")


@pytest.fixture(scope="module")
def match() -> Match:
    """The comparison of tokens that ccheck has."""
    return open_matcher(Runtime(Settings()))


def test_a_model_finds_a_sentence_in_other_words(match):
    claim = "Fewer myocardial infarctions"
    assert chosen(claim, [HEART], 1) == [()]
    ((sentence,),) = chosen(claim, [HEART], 1, match)
    assert sentence.text == "Heart attacks were rarer." == HEART.text[sentence.start : sentence.end]
    assert 0 < sentence.score <= 1


def test_each_claim_is_matched_in_one_call_as_if_it_were_alone(match):
    asked: list[tuple[str, Sequence[str]]] = []

    def told(claim: str, sentences: Sequence[str]) -> Sequence[float]:
        asked.append((claim, sentences))
        return match(claim, sentences)

    documents = [HEART, Document("copy", "", HEART.text), Document("empty", "", "")]
    cases = [("Fewer myocardial infarctions", documents), ("Patients went home early", documents[:1]), ("none", [])]
    made = choose_sentences(cases, 2, told)
    assert [(claim, len(sentences)) for claim, sentences in asked] == [(cases[0][0], 3), (cases[1][0], 3)]
    assert made[0][0] == made[0][1] and made[0][2] == () and made[2] == []
    assert made == [choose_sentences([case], 2, match)[0] for case in cases]


def similar(claim: str, sentences: Sequence[str]) -> list[float]:
    return [{"sea up.": 1.0, "sea both.": 0.5, "sea away.": 0.0, "fog.": 0.25, "mud.": 0.0}[one] for one in sentences]


def test_the_score_is_six_tenths_tokens_and_four_tenths_words(monkeypatch):
    monkeypatch.setattr(evidence, "NOT_FOUND", 1)
    ((*mixed,),) = chosen("sea", [Document("a", "", "sea up. sea both. sea away. fog. mud.")], 5, similar)
    assert {sentence.text: sentence.score for sentence in mixed} == pytest.approx(
        {"sea up.": 1, "sea both.": 0.7, "sea away.": 0.4, "fog.": 0.15}, abs=1e-6
    )


@pytest.mark.parametrize("answer", [[0.5], [0.5, 0.5, 1.5], [0.5, float("nan"), 0.1]])
def test_scores_that_make_no_sense_are_an_error(answer):
    with pytest.raises(InvalidData):
        chosen("cost", [HEART], 1, lambda claim, sentences: answer)


def test_hostile_text_is_read_and_keeps_its_offsets(match):
    text = "The sea \ud83d rises\0 fast. " + "x" * 20_000 + " . 🌊 The sea is wet."
    (sentences,) = chosen("the sea rises \ud83d", [Document("a", "", text)], 3, match)
    assert sentences[0].text == "The sea \ud83d rises\0 fast."
    assert all(text[s.start : s.end] == s.text for s in sentences)


# -- how a sentence differs from a claim whose words it shares


@pytest.mark.parametrize(
    ("claim", "sentence", "expected"),
    [
        ("The jab cuts admission by 30 %.", "The jab cut admission by 3 % (95% CI 2 to 5%).", "number 30 % 3 %"),
        ("Sea level rose 20 m", "Sea level rose by a little under 20 centimetres.", "number 20 m 20 centimetres"),
        ("The trial had 35 patients", "The trial had twelve patients.", "number 35 twelve"),
        ("Pressure fell by 3,5 mmHg", "Pressure fell by 3.0 mm Hg (95% CI 2,5-3,5 mmHg).", "number 3,5 mmHg 3.0 mm Hg"),
        ("More than 20 % of children are overweight", "15 % of children are overweight", "number 20 % 15 %"),
        ("Sea level is falling", "Sea level is rising faster than before.", "direction falling rising"),
        ("Antarctica is gaining ice", "Antarctica lost 2,720 billion tonnes of ice.", "direction gaining lost"),
        ("Ivermectin reduces admission", "Ivermectin did not reduce admission.", "negation reduces not reduce"),
        ("MMR vaccine causes autism", "MMR vaccination is not associated with autism.", "negation  not"),
        ("The polio vaccine does not work", "The polio vaccine works.", "negation not "),
        ("Metformin lowers deaths in lung cancer", "Metformin lowered deaths in breast cancer.", "word lung breast"),
        ("Aspirin prevents strokes in women", "Aspirin prevents strokes in men.", "condition women men"),
        ("Tea with milk is hot", "Tea without milk is hot.", "condition with milk without milk"),
        ("Smoking doubled strokes", "Smoking tripled strokes", "number doubled tripled"),
        ("Smoking causes cancer", "Cancer causes smoking.", "order smoking … causes causes … smoking"),
        ("Light is faster than sound", "Sound is faster than light.", "order light … faster faster … light"),
        ("Cats harm twice as many men as boys", "Cats harm twice as many boys as men.", "order men … as as … men"),
        ("The drug is unsafe", "The drug is safe.", "negation unsafe safe"),
        ("Tea helps the heart", "Tea helps the heart of mice.", "condition  mice"),
        ("Less than 6 hours kill", "More than 9 hours kill", "condition 6 hours 9 hours"),
        ("Tea helps", "Tea may help", "certainty  may"),
        ("Tea causes strokes", "Tea was linked to strokes", "certainty causes linked"),
    ],
)
def test_what_differs_is_told(claim: str, sentence: str, expected: str) -> None:
    assert [f"{one.kind} {one.claim} {one.sentence}" for one in differences(claim, sentence)] == [expected]


@pytest.mark.parametrize(
    ("sentence", "says"),
    [
        ("RR 0.92 (95% CI 0.68 to 1.24).", "RR 0.92 (no significant difference)."),
        ("OR, 0.93; 95% CI, 0.90-0.97", "OR, 0.93, significant"),
        ("a risk of 0.9, with a 95 percent interval from 0.6 to 1.2,", "a risk of 0.9, no significant difference,"),
        ("it differed by a mean difference of 2 [95% CI −8 to 12]", "it differed by a mean difference of 2 (no sig"),
        ("HR 0.8 (confidence interval (CI) 0.7 to 0.9; P=0.01)", "HR 0.8 (significant; P=0.01, sig"),
        ("44% (95% CI: 34-56), p < .1, p > .001", "44% (95% CI: 34-56), p < .1, p > .001"),
        ("(P = 0.34), (NS)", "(P = 0.34, no significant difference), (NS), no"),
    ],
)
def test_what_statistics_say_is_read_in_words(sentence: str, says: str) -> None:
    assert in_words(sentence).startswith(says)


@pytest.mark.parametrize(
    ("claim", "sentence"),
    [
        ("Sea level has risen 20 cm since 1900", "Sea level rose 1.6 mm a year from 1900, in all just under 20 cm."),
        ("More than 20 % of children are overweight", "25 % of children are overweight"),
        ("Emissions of steel fell by 50 percent", "Emissions of steel fell from 40 to 20 percent."),
        ("Aspirin reduces deaths", "Aspirin lowered the number of deaths and did not cause bleeding."),
        ("Seas rose by 0.2 m", "Seas rose by about 19 cm, 1.6 mm a year."),
        ("In groups 1,2 and 3 it rose 0,350 mm", "In groups 1, 2 and 3 it rose 0.35 mm (p < 0,05)."),
        ("Seas rose by 1,5", "Seas rose by 1.5 in 12,345 years."),
        ("Schools started at 8:45", "Schools started at 7:50 before, in a ratio of 1:2."),
        ("The trial had 17 187 patients", "The trial had 17,187 patients."),
        ("Deaths are higher with rum than with tea", "Deaths are lower with tea than with rum in 20 ms."),
        ("5 % of men and 7 % of boys", "7 % of boys had IL-6 and CD-8 and 5 % of men"),
        ("Smoking causes cancer within 20 ms", "Cancer is caused by smoking within 0.02 seconds."),
        ("Aspirin increases deaths", "Statins reduced the cholesterol of patients."),
        ("Zinc helps children with diarrhea", "Zinc helps children with diarrhoea in the fibre centre."),
        ("Aspirin prevents 23,400 strokes", "Strokes were less frequent with aspirin: 10,000 to 30,000, or 23,400."),
    ],
)
def test_what_says_the_same_or_something_else_altogether_differs_in_nothing(claim: str, sentence: str) -> None:
    assert differences(claim, sentence) == ()


def test_a_long_text_is_read_in_its_time() -> None:
    started = time.process_time()
    compared("a b c " * 300, [" ".join(f"a and {n} b c but" for n in range(3000))])
    differences("1 " * 20_000 + "95% CI " * 5_000, "up to " * 20_000 + "not more 3 " * 5_000)
    differences(" ".join(f"{n} causes tea" for n in range(20_000)), "tea causes rum, 3 than 4 " * 10_000)
    assert time.process_time() - started < 10


# -- what each sentence does in its paper


ABSTRACT = (
    "Statins are widely used to lower cholesterol in adults at risk of heart disease.",
    "We investigated whether atorvastatin reduces stroke in patients with diabetes.",
    "In this double-blind trial, 2,838 patients were randomly assigned to atorvastatin or placebo.",
    "The primary endpoint was a first stroke.",
    "Stroke occurred in 21 patients in the atorvastatin group and in 39 in the placebo group (p = 0.016).",
    "There was no significant difference in serious adverse events between the groups.",
    "In conclusion, atorvastatin is effective in preventing stroke in patients with diabetes.",
    "Further studies are needed in younger patients.",
)


def roles(text: str) -> list[str | None]:
    return list(roles_in(text, sentence_spans(text)).roles)


@pytest.mark.parametrize("heading", ["{}: ", "{} ", "{}\n", "## {}\n"])
def test_headings_tell_the_roles_of_what_follows(heading: str) -> None:
    parts = {"BACKGROUND": "Seas are wet.", "METHODS": "Ships sailed. They came back.", "RESULTS": "Gold is heavy."}
    text = "\n".join(heading.format(name) + said for name, said in parts.items())
    found = [role for role, (a, b) in zip(roles(text), sentence_spans(text), strict=True) if "." in text[a:b]]
    assert found == ["background", "method", "method", "result"]


@pytest.mark.parametrize(
    ("said", "role"),
    [
        ("It has been suggested that coffee causes cancer.", "background"),
        ("It is unclear whether coffee causes cancer.", "background"),
        ("Does coffee cause cancer?", "aim"),
        ("The aim of this study was to test coffee.", "aim"),
        ("Larger trials are needed to confirm this.", "outlook"),
        ("They found that coffee causes no cancer.", "result"),
        ("Cancer rose on average by about 1.6 cases a year.", "result"),
        ("We recently found that coffee causes no cancer.", None),
        ("METHODS The dose was reduced. CONCLUSION The idea that it kills was not upheld.", "method conclusion"),
        ("Coffee causes no cancer.", None),
        # In an abstract its order helps; a heading of two sections leaves the choice.
        (" ".join(ABSTRACT), "background aim method method result result conclusion outlook"),
        ("METHODS AND RESULTS We enrolled 12. Mortality was 12% (P<0.05). CONCLUSIONS Go.", "method result conclusion"),
    ],
)
def test_phrases_and_order_tell_the_roles_of_sentences(said: str, role: str | None) -> None:
    assert roles(said) == ([None] if role is None else role.split())


def test_what_was_found_leads_even_if_the_aim_repeats_the_claim() -> None:
    documents = [Document("a", "", " ".join(ABSTRACT))]
    (((first, *_),),) = choose_sentences([("Atorvastatin reduces stroke in patients with diabetes", documents)], 3)
    assert first.role == "conclusion" and first.text == ABSTRACT[6]


def test_a_quote_has_the_role_of_its_sentence() -> None:
    text = " ".join(ABSTRACT)
    start = text.index("no significant difference")
    (quote, title) = with_roles(
        [Sentence("no significant difference", "text", start, start + 25, 1.0), Sentence("A", "title", 0, 1, 1.0)], text
    )
    assert quote.role == "result" and title.role is None


def test_a_sentence_without_end_takes_time_in_proportion() -> None:
    started = time.process_time()
    assert roles("further work " * 4_000) == [None]
    assert time.process_time() - started < 5


def test_a_long_text_and_an_empty_one() -> None:
    assert roles("") == []
    long = " ".join(ABSTRACT * 10)
    assert len(roles(long)) == 80 and roles(long)[1] == "aim" and roles(long)[4] == "result"
