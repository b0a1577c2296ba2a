"""What words of claim and sentence say of each other, counted by hand."""

from __future__ import annotations

import pytest

from ccheck.verdict.features import RELATIONS, read_words, relations

NAMES = (
    "shared of_sentence pairs missing same opposite turned denied opposed directed ways ways_denied claim_denies "
    "denies differs numbers missing_numbers other_values claim_direction direction"
).split()


def related(claim: str, sentence: str) -> dict[str, float]:
    found = relations(read_words(claim), read_words(sentence))
    assert len(found) == len(NAMES) == RELATIONS
    return dict(zip(NAMES, found, strict=True))


def test_words_have_stems_directions_and_denials():
    words = read_words("Ice isn't melting faster, by 1,000 km.")
    assert words.words == ("ice", "isn't", "melting", "faster", "by", "1,000", "km")
    assert words.directions == (0, 0, 0, 1, 0, 0, 0) and words.denials == (False, True, *[False] * 5)
    assert words.stems[2] == "melt" and words.stems[4] == "" and "" not in words.kinds


def test_a_turned_word_is_an_opposite_direction():
    agrees = related("Statins lower the risk of stroke", "The risk of stroke is lower with statins")
    turned = related("Statins lower the risk of stroke", "The risk of stroke is higher with statins")
    assert agrees["shared"] == 1 and agrees["missing"] == 0 and agrees["opposite"] == 0 < agrees["same"]
    assert turned["same"] == 0 < turned["opposite"] and turned["opposed"] == 1 and turned["ways"] == -1
    assert agrees["opposed"] == 0


def test_a_denial_turns_the_direction():
    found = related("Statins reduce stroke", "Statins do not reduce stroke")
    # statin, reduc and stroke are shared, all next to the denial.
    assert (found["turned"], found["denied"]) == (1, 1) and (found["same"], found["opposite"]) == (0, 1)
    assert (found["ways"], found["ways_denied"], found["differs"]) == (1, -1, 1)
    both = related("Statins do not reduce stroke", "Statins do not reduce stroke")
    assert (both["same"], both["opposite"], both["turned"], both["ways_denied"]) == (1, 0, 0, 1)


def test_a_denial_far_from_the_shared_words_does_not():
    sentence = "Statins reduce stroke in all of the groups of patients while tea with milk did not"
    found = related("Statins reduce stroke", sentence)
    assert found["turned"] == 0 and found["same"] == 1 and found["differs"] == 1


def test_numbers_are_compared_with_their_units():
    found = related("Sea level rose by 20 cm in 1900", "Sea level rose by 35 cm since 1900")
    assert (found["numbers"], found["missing_numbers"], found["other_values"]) == (1, 1, 1)
    assert related("it rose by 20 cm", "it rose by 35 km")["other_values"] == 0


@pytest.mark.parametrize("claim", ["", "...", "not", "20"])
def test_texts_without_words_are_no_error(claim):
    assert all(isinstance(float(value), float) for value in relations(read_words(claim), read_words("the sea rose")))
    assert len(relations(read_words("the sea rose"), read_words(claim))) == RELATIONS
