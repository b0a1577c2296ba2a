"""How a sentence differs from a claim whose words it shares."""

from __future__ import annotations

import time

import pytest

from ccheck.verdict.differences import differences, quantities


@pytest.mark.parametrize(
    ("claim", "sentence", "expected"),
    [
        (
            "Vaccination cuts admission by 30 %.",
            "Vaccination cut admission by 3 % (95% CI 2 to 5%).",
            "number 30 % 3 %",
        ),
        (
            "Sea level has risen 20 m since 1900",
            "Sea level rose by a little under 20 centimetres.",
            "number 20 m 20 centimetres",
        ),
        ("The trial had 35 patients", "The trial had twelve patients.", "number 35 twelve"),
        ("More than 20 % of children are overweight", "15 % of children are overweight", "number 20 % 15 %"),
        ("Sea level is falling", "Sea level is rising faster than before.", "direction falling rising"),
        ("Aspirin increases deaths", "Aspirin reduced the risk of death by 23 %.", "direction increases reduced"),
        ("Antarctica is gaining ice", "Antarctica lost 2,720 billion tonnes of ice.", "direction gaining lost"),
        ("Ivermectin reduces admission", "Ivermectin did not reduce admission.", "negation reduces not reduce"),
        ("MMR vaccine causes autism", "MMR vaccination is not associated with autism.", "negation  not"),
        ("The polio vaccine does not work", "The polio vaccine works.", "negation not "),
        (
            "Metformin lowers mortality in lung cancer",
            "Metformin lowered mortality in breast cancer.",
            "word lung breast",
        ),
    ],
)
def test_what_differs_is_told(claim: str, sentence: str, expected: str) -> None:
    assert [f"{one.kind} {one.claim} {one.sentence}" for one in differences(claim, sentence)] == [expected]


@pytest.mark.parametrize(
    ("claim", "sentence"),
    [
        (
            "Sea level has risen 20 cm since 1900",
            "Sea level rose by 1.6 mm a year from 1900, in all a little under 20 cm.",
        ),
        ("Sea level has risen 20 cm since 1900", "Sea level rises by 1.6 mm a year."),
        ("More than 20 % of children are overweight", "25 % of children are overweight"),
        ("Emissions of steel fell by 50 percent", "Emissions of steel fell from 40 to 20 percent."),
        ("Aspirin reduces deaths", "Aspirin lowered the number of deaths and did not cause bleeding."),
        ("Seas rose by 0.2 m", "Seas rose by about 19 cm."),
        ("Aspirin increases deaths", "Statins reduced the cholesterol of patients."),
    ],
)
def test_what_says_the_same_or_something_else_altogether_differs_in_nothing(claim: str, sentence: str) -> None:
    assert differences(claim, sentence) == ()


def test_amounts_are_compared_in_one_unit() -> None:
    assert {(one.dimension, round(one.value, 6)) for one in quantities("20 cm, 0.2 m and 3.2 mm per year")} == {
        ("length", 0.2),
        ("lengthyear", 0.0032),
    }


def test_a_long_text_is_read_in_its_time() -> None:
    started = time.process_time()
    differences("1 " * 20_000 + "95% CI " * 5_000, "up to " * 20_000 + "not more 3 " * 5_000)
    assert time.process_time() - started < 10
