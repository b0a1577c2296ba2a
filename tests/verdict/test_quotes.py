"""A quote is the document's own words, whole ones, with what turns their meaning."""

import pytest

from ccheck.core.types import Document
from ccheck.verdict.quotes import find_quote


def found(quote: str, text: str, title: str = "A title of four") -> str:
    sentence = find_quote(Document("d", title, text), quote, 0.7)
    field = {"text": text, "title": title}[sentence.field]
    assert field[sentence.start : sentence.end] == sentence.text and sentence.score == 0.7
    return sentence.text


def refused(quote: str, text: str, title: str = "") -> str:
    with pytest.raises(ValueError, match="quote") as caught:
        found(quote, text, title)
    return str(caught.value)


def test_the_documents_own_characters_are_given():
    assert found("rose by 20 cm since", "It rose by\n 20\u00a0cm  since 1900.") == "rose by\n 20\u00a0cm  since"
    assert found(" “the CO2 rise” - it's ", 'So "the CO₂ rise" – it’s here') == '"the CO₂ rise" – it’s'
    assert found("in effect it rose", "in\u200b ef\u00adfect it rose") == "in\u200b ef\u00adfect it rose"
    assert found("\u200b it rose fast \ufeff", "and it rose fast.") == "it rose fast"


def test_the_text_comes_before_the_title():
    document = Document("d", "Sea level rose fast", "x Sea level rose fast")
    sentence = find_quote(document, "Sea level rose", 1)
    assert (sentence.field, sentence.start, sentence.end) == ("text", 2, 16)
    sentence = find_quote(document, "Sea level rose fast", 1)
    assert sentence.field == "text"
    assert find_quote(Document("d", "Sea level rose fast", "Nothing."), "level rose fast", 1).field == "title"


@pytest.mark.parametrize(
    ("quote", "text", "said"),
    [
        *((empty, "Some text.", "empty") for empty in ("", " ", "\u200b", "\n\ufeff\t")),
        ("sea level fell fast", "Sea level fell fast", "not in the paper"),
        ("a b c", "a b", "not in the paper"),
        ("sea level", "The sea level rose.", "too short"),
    ],
)
def test_what_is_not_there_or_shows_nothing_is_refused(quote, text, said):
    assert said in refused(quote, text, "c")


def test_a_quote_has_three_words_or_is_all_there_is():
    assert found("sea level rose", "The sea level rose.") == "sea level rose"
    assert found("Sea level", " Sea  level\n") == "Sea  level"
    assert found("Rising seas", "Another text.", "Rising seas") == "Rising seas"


@pytest.mark.parametrize(
    ("quote", "text"),
    [
        ("effective in all adults", "It was ineffective in all adults."),
        ("effective in all adults", "It was non-effective in all adults."),
        ("effective in all adults", "It was non\u2011effective in all adults."),
        ("effective in all adults", "It was in\u00adeffective in all adults."),
        ("effective in all adult", "It is effective in all adults."),
        ("it was effective in cafe", "it was effective in cafe\u0301s"),
        ("the model is able to do", "the model is able to don't"),
        ("t be shown to rise", "It can't be shown to rise"),
        ("5 mm per year", "It rose by 1.5 mm per year"),
        ("it rose by 1", "it rose by 1.5 mm per year"),
        ("500 people were asked", "1,500 people were asked"),
        ("20 cm in a century", "It changed by -20 cm in a century"),
        ("20 cm in a century", "It changed by −20 cm in a century"),
        ("20 cm in a century", "−20 cm in a century"),
        ("18 cm in a century", "It rose 15–18 cm in a century"),
        ("it rose by 15", "it rose by 15-18 cm"),
        ("dependent on the dose", "It is dose_dependent on the dose"),
        ("level rise of 20", "a sea-level rise of 20 cm"),
    ],
)
def test_a_quote_begins_and_ends_where_words_and_numbers_do(quote, text):
    assert "inside a word or number" in refused(quote, text)


@pytest.mark.parametrize(
    ("quote", "text"),
    [
        ("sea level rose fast", "gauges—sea level rose fast—and"),
        ("sea level rose fast", "(sea level rose fast)"),
        ("sea level rose fast", "sea level rose fast.It is"),
        ("sea level rose fast", "2.sea level rose fast"),
        ("sea level rose fast", "It said:'sea level rose fast'"),
        ("sea level rose fast", "* -sea level rose fast"),
        ("rose by 20 cm in 1900", "it rose by 20 cm in 1900, 1901"),
        ("the levels of 1900 - 2018", "the levels of 1900 – 2018 cm"),
        ("2018 cm is the level", "the levels of 1900 – 2018 cm is the level"),
        ("rose by 20 cm", "rose by 20 cm-"),
        ("海平面 上升 了二十", "我们看到海平面 上升 了二十厘米"),
    ],
)
def test_what_stands_beside_whole_words_does_no_harm(quote, text):
    assert found(quote, text)


def test_a_word_that_stands_alone_later_is_found():
    text = "It was ineffective in all adults. It was effective in all adults of A."
    sentence = find_quote(Document("d", "", text), "effective in all adults", 1)
    assert sentence.start == text.rindex("effective")
    both = Document("d", "Effective in all adults", "inEffective in all adults")
    assert find_quote(both, "Effective in all adults", 1).field == "title"


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("It was not effective in all adults.", "not"),
        ("It was NOT effective in all adults.", "not"),
        ("It isn't effective in all adults.", "isn't"),
        ("It isn’t effective in all adults.", "isn't"),
        ("It was never effective in all adults.", "never"),
        ("A drug without effective in all adults.", "without"),
        ("No effective in all adults.", "no"),
        ('It was not "effective in all adults".', "not"),
        ("It was not (effective in all adults).", "not"),
        ("It was not at all effective in all adults.", "not"),
        ("It was not significantly effective in all adults.", "not"),
        ("It can not be shown to be effective in all adults.", None),
        ("It failed to be effective in all adults.", "failed"),
        ("It cannot be effective in all adults.", "cannot"),
        ("a lack of effective in all adults", "lack"),
        ("non effective in all adults", "non"),
        ("neither effective in all adults nor", "neither"),
    ],
)
def test_a_negation_before_a_quote_belongs_to_it(text, word):
    if word is not None:
        said = refused("effective in all adults", text)
        assert repr(word) in said and "turns its meaning" in said
    at = text.lower().replace("’", "'").find(word or "not")
    assert found(text[at:].rstrip(".)"), text)


@pytest.mark.parametrize(
    "text",
    [
        "It was not only effective in all adults.",
        "It was not. Effective in all adults.",
        "Was it not? effective in all adults",
        "No, effective in all adults.",
        "It was not cheap but effective in all adults.",
        "A knot effective in all adults.",
        "notably effective in all adults",
        "The note: effective in all adults",
        "It is the very, very, very, very, very effective in all adults",
    ],
)
def test_what_denies_something_else_does_not_count(text):
    quote = "effective in all adults"
    assert found(quote if quote in text else quote.capitalize(), text)


def test_long_texts_are_searched_in_linear_time():
    with pytest.raises(ValueError, match="inside a word"):
        find_quote(Document("d", "", "a a aa " * 6_000 + "x"), "a a a", 1)
