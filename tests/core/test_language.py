"""Telling other languages from English, without taking names and formulas for another language."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ccheck.core.analysis import foreign_language

OTHERS = {
    "German": "Rotes Fleisch erhöht das Darmkrebsrisiko. | Antibiotika wirken nicht gegen Viren | Salz ist ungesund.",
    "French": (
        "La viande rouge augmente le risque de cancer. | Les antibiotiques ne tuent pas les virus | Il pleut moins."
    ),
    "Spanish": (
        "La carne roja aumenta el riesgo de cáncer. | Los antibióticos no matan los virus | El hielo se derrite."
    ),
    "Italian": "La carne rossa aumenta il rischio di cancro. | Gli antibiotici non uccidono i virus",
    "Portuguese": "A carne vermelha aumenta o risco de cancro. | Os antibióticos não matam vírus",
    "Dutch": "Rood vlees verhoogt het risico op kanker. | Antibiotica werken niet tegen virussen",
    "Polish": "Czerwone mięso zwiększa ryzyko raka. | Antybiotyki nie zabijają wirusów",
    "Russian": "Красное мясо повышает риск рака. | Антибиотики не действуют на вирусы",
    "Chinese": "红肉会增加患癌症的风险。 | 抗生素不能杀死病毒",
    "Japanese": "赤身の肉はがんのリスクを高める。 | 抗生物質はウイルスに効かない",
    "Korean": "붉은 고기는 암 위험을 높인다. | 항생제는 바이러스를 죽이지 않는다",
    "Arabic": "اللحوم الحمراء تزيد من خطر الإصابة بالسرطان. | المضادات الحيوية لا تقتل الفيروسات",
    "Danish": "Vacciner er ikke årsag til autisme for børn | Børn kan have feber",  # with words that English has too
    "Romanian": "Fumatul are efecte grave asupra sănătății",
    "Czech": "Očkování by mohlo způsobit autismus",
    "Slovak": "Hladina more stúpla o dvadsať centimetrov",
    "Turkish": "Kırmızı et kanser riskini artırır. | Antibiyotikler virüsleri öldürmez",
}
"""Sentences of each language, parted by bars."""
ENGLISH = [
    *("Escherichia coli", "Drosophila melanogaster lifespan", "Homo sapiens", "Mycobacterium tuberculosis", "COVID-19"),
    *("CX3CR1 CD4 IL-2", "BRCA1, TP53, PTEN", "C6H12O6 + 6 O2 → 6 CO2 + 6 H2O", "E = mc²", "β-amyloid", "H2O", "12 %"),
    *("Vaccines cause autism", "De novo mutations cause autism", "Aspirin prevents stroke.", "TNF-α levels rise", ""),
    *("5'-nucleotidase metabolizes 6MP.", "In vitro fertilisation causes diabetes", "Ginkgo biloba improves memory"),
    *("Saccharomyces cerevisiae GAL4 activates GAL1", "Pyridostatin deregulates G2/M progression.", "9 > 8", "\ud800"),
    "\N{CJK UNIFIED IDEOGRAPH-6587} means text, and the sign is in many of the words for writing in Chinese.",
]


@pytest.mark.parametrize(("language", "texts"), OTHERS.items())
def test_other_languages_are_named(language: str, texts: str) -> None:
    for text in texts.split(" | "):
        assert foreign_language(text) == foreign_language(text.replace(" ", "\r\n")) == language, text


@pytest.mark.parametrize("text", ENGLISH)
def test_names_formulas_and_short_claims_are_not_another_language(text: str) -> None:
    assert foreign_language(text) is None


def test_common_english_is_known_without_loading_the_model() -> None:
    code = (
        "import sys\n"
        "from ccheck.core.analysis import foreign_language\n"
        "assert foreign_language('Vaccines do not cause autism.') is None\n"
        "assert 'py3langid' not in sys.modules\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr


def test_no_claim_or_abstract_of_the_evaluation_data_is_another_language(scifact, climate_fever) -> None:
    claims, sentences = [row["text"] for row in _lines(scifact / "queries.jsonl")], []
    for row in _lines(climate_fever):
        claims.append(row["claim"])
        sentences += [one["evidence"] for one in row["evidences"]]
    abstracts = [row["text"] for row in _lines(scifact / "corpus.jsonl.gz")]
    assert [text for text in (*claims, *sentences, *abstracts) if foreign_language(text)] == []


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8") as file:
        yield from map(json.loads, file)
