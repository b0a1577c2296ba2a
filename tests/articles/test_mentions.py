"""Citations of figures and tables are found and resolved: panels, lists, ranges."""

from __future__ import annotations

import pytest

from ccheck.articles.builder import find_citations, resolve
from ccheck.articles.types import Element, Mention


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("see Fig. 2", ["figure 2"]),
        ("FIGURE 3.1 and Tab. IV", ["figure 3.1", "table IV"]),
        ("Figs. 2a\N{EN DASH}c and S4", ["figure 2:ABC", "figure S4"]),
        ("Figures 1, 3 and 5A, B", ["figure 1", "figure 3", "figure 5:AB"]),
        ("Tables 2\N{EN DASH}4", ["table 2", "table 3", "table 4"]),
        ("Figs 2 to 4 show", ["figure 2", "figure 3", "figure 4"]),
        ("Figure 1(A)", ["figure 1:A"]),
        ("Fig. 1 and Table 2", ["figure 1", "table 2"]),
        ("S4 Fig, Table S2", ["table S2"]),
        ("figures of speech; a table for 2; data 3 times", []),
        ("Fig. 2 a mutation; Figure 3 A large effect", ["figure 2", "figure 3"]),
        ("Table 1990", []),
        ("Fig. 1\N{EN DASH}900", ["figure 1", "figure 900"]),
        ("Figure 2A and 2C", ["figure 2:A", "figure 2:C"]),
        ("Figure A1 of the appendix", ["figure A1"]),
        ("Extended Data Fig. 1a and Fig. 2", ["figure ED1:A", "figure 2"]),
        ("Supplementary Figs 1 to 3, Table 3", ["figure S1", "figure S2", "figure S3", "table 3"]),
        ("Supplementary Table S1; Additional file 2", ["table S1"]),
        ("Supporting Figure 2, Additional Table 1", ["figure S2", "table S1"]),
        ("as in S4 Fig. 12 mice were fed", []),
        ("evidence supporting Figure 3", ["figure 3"]),
    ],
)
def test_citations(text: str, expected: list[str]) -> None:
    found = [
        f"{one.kind} {one.number}" + (f":{''.join(one.panels)}" if one.panels else "") for one in find_citations(text)
    ]
    assert found == expected


def element(identifier: str, label: str, parent: str | None = None) -> Element:
    kind = "table" if label.startswith("Tab") else "figure"
    return Element(identifier, kind, label, "", 0, 0, parent=parent)


def texts(text: str, one: Element) -> list[str]:
    return [text[mention.start : mention.end] for mention in one.mentions]


def test_a_part_of_a_figure_has_its_own_mentions_and_the_whole_has_all() -> None:
    text = "Fig. 1A is red, Fig. 1B blue, Fig. 2 is neither, and Fig. 7 is missing."
    whole, part, other = resolve(
        text, [element("w", "Figure 1"), element("a", "Figure 1A", "w"), element("o", "Figure 2")]
    )
    assert texts(text, whole) == ["Fig. 1A", "Fig. 1B"]
    assert texts(text, part) == ["Fig. 1A"]
    assert texts(text, other) == ["Fig. 2"]


def test_the_files_own_links_count_once_and_only_for_known_elements() -> None:
    text = "as in Fig. 1 and the last panel"
    links = [("w", Mention(6, 12)), ("w", Mention(21, 31)), ("gone", Mention(0, 2))]
    [one] = resolve(text, [element("w", "Figure 1")], links)
    assert texts(text, one) == ["Fig. 1", "last panel"]


def test_long_texts_take_time_in_proportion() -> None:
    text = "Fig. 1, " * 20_000 + "Fig." * 20_000 + "1" * 50_000
    assert len(find_citations(text)) == 20_000
