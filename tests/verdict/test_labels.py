"""The spellings of labels."""

from __future__ import annotations

import json

import pytest

from ccheck.core.errors import InvalidData
from ccheck.verdict.labels import _LABELS, LABELS, SPELLINGS, STANCES, parse_label


@pytest.mark.parametrize(
    ("spelling", "label"),
    [
        ("SUPPORTS", "SUPPORTS"),
        ("Supported", "SUPPORTS"),
        ("ENTAILMENT", "SUPPORTS"),
        ("CONTRADICT", "REFUTES"),
        ("refuted", "REFUTES"),
        ("Contradiction", "REFUTES"),
        ("NEI", "NOT_ENOUGH_INFO"),
        (" not enough info\n", "NOT_ENOUGH_INFO"),
        ("Not-Enough-Information", "NOT_ENOUGH_INFO"),
        ("Not Enough Evidence", "NOT_ENOUGH_INFO"),
        ("neutral", "NOT_ENOUGH_INFO"),
        ("DISPUTED", "CONFLICTING"),
        ("Conflicting Evidence/Cherrypicking", "CONFLICTING"),
        ("ＮＥＩ", "NOT_ENOUGH_INFO"),
    ],
)
def test_spellings_of_data_sets(spelling, label):
    assert parse_label(spelling) == label


def test_every_label_is_its_own_first_spelling_and_none_means_two_things():
    assert [spellings[0] for spellings in SPELLINGS.values()] == list(SPELLINGS) == list(LABELS)
    assert len(_LABELS) == sum(map(len, SPELLINGS.values()))


@pytest.mark.parametrize("spelling", ["LABEL_0", "", "0", "not_entailment", "SUPPORTS REFUTES", "¯\\_(ツ)_/¯"])
def test_what_is_not_known_is_an_error_that_names_what_is(spelling):
    with pytest.raises(InvalidData, match="unknown label") as caught:
        parse_label(spelling)
    assert all(label in str(caught.value) for label in LABELS)


def test_a_misspelling_gets_a_hint_and_a_long_one_is_cut():
    with pytest.raises(InvalidData, match="Did you mean REFUTES"):
        parse_label("REFUTTES")
    with pytest.raises(InvalidData) as caught:
        parse_label("x" * 100_000)
    assert len(str(caught.value)) < 600


def test_the_labels_of_the_evaluation_data_are_known(scifact):
    labels = {json.loads(line)["label"] for line in (scifact / "verdicts.jsonl").read_text().splitlines()}
    assert {parse_label(label) for label in labels} == set(STANCES)
