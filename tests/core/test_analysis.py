"""Text as the terms of an `Analysis`."""

import gzip
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ccheck.core.analysis import MAX_TERM, foreign_language, open_analysis, query_terms, terms, terms_text
from ccheck.core.errors import InvalidData, NotFound
from ccheck.core.models import find_model
from ccheck.core.stages import Analysis

MINILM = "sentence-transformers/all-MiniLM-L6-v2"
TEXT = "The #COVID19 vaccines don't reduce 40% of naïve cases; it's α-Helix!"


@pytest.mark.parametrize(
    ("analysis", "expected"),
    [
        (Analysis(), "the covid19 vaccines don t reduce 40 of naïve cases it s α helix"),
        (Analysis(lowercase=False), "The COVID19 vaccines don t reduce 40 of naïve cases it s α Helix"),
        (Analysis(hashtags="remove"), "the vaccines don t reduce 40 of naïve cases it s α helix"),
        (Analysis(keep="%-"), "the covid19 vaccines don t reduce 40% of naïve cases it s α-helix"),
        (Analysis(keep="#", hashtags="keep"), "the #covid19 vaccines don t reduce 40 of naïve cases it s α helix"),
        (Analysis(punctuation="keep"), "the #covid19 vaccines don't reduce 40% of naïve cases; it's α-helix!"),
        (Analysis(stopwords="nltk"), "covid19 vaccines reduce 40 naïve cases α helix"),
        (Analysis(stopwords="lucene"), "covid19 vaccines don t reduce 40 naïve cases s α helix"),
        (Analysis(lowercase=False, stopwords="lucene"), "COVID19 vaccines don t reduce 40 naïve cases s α Helix"),
        (Analysis(punctuation="keep", stopwords="nltk"), "#covid19 vaccines reduce 40% naïve cases; α-helix!"),
        (Analysis(stopwords="nltk", stemming=True), "covid19 vaccin reduc 40 naïv case α helix"),
    ],
    ids=str,
)
def test_each_part_does_what_it_says(analysis: Analysis, expected: str) -> None:
    assert open_analysis(analysis)(TEXT) == expected.split()


def test_punctuation_parts_words_of_title_and_text_and_a_claim_has_at_most_so_many() -> None:
    cut = open_analysis(Analysis())
    assert cut("a—b…c€d©e「f」g＃h_i^j|k\u00a0l\u2003m") == list("abcdefghijklm")
    assert cut("x_y p>0.05 “q” ~5‰ №7 ½") == ["x", "y", "p", "0", "05", "q", "5", "7", "½"]
    assert terms_text(Analysis(), "A title", "Its text.") == "a title its text"
    long = "word " * 5_000
    assert len(query_terms(long)) == len(query_terms(long, Analysis())) == 1024
    assert query_terms("rising seas") == terms("rising seas") != query_terms("rising seas", Analysis())


HOSTILE = ["", " ", "\0", "\ud800", "a\u2028b\x85c\u00a0d\u3000e\x1cf", "\u00a8 \ufb01", "###", "#"]


@pytest.mark.parametrize("text", [*HOSTILE, "x" * 40_000, "😀" * 300], ids=range(10))
def test_terms_are_short_and_have_no_white_space(text: str) -> None:
    pytest.importorskip("tokenizers")
    for analysis in (Analysis(), Analysis(punctuation="keep", stemming=True), Analysis(subwords=MINILM)):
        found = open_analysis(analysis)(text)
        assert all(term and not any(character.isspace() for character in term) for term in found)
        assert all(len(term) <= MAX_TERM for term in found)
        assert " ".join(found).split(" ") == (found or [""])


def test_word_pieces_are_those_of_the_models_vocabulary() -> None:
    pytest.importorskip("tokenizers")
    settings = json.loads((find_model(MINILM).path / "tokenizer.json").read_text(encoding="utf-8"))
    vocabulary = set(settings["model"]["vocab"])
    cut = open_analysis(Analysis(subwords=MINILM))
    text = "Hyperparathyroidism raises immunoglobulins in electroencephalography, [SEP] and [MASK]"
    words = open_analysis(Analysis())(text)
    assert set(cut(text)) <= vocabulary and "##" in " ".join(cut(text))
    assert " ".join(cut(text)).replace(" ##", "") == " ".join(words)
    # The file of this tokenizer says that it cuts at so many tokens.
    assert settings["truncation"]["max_length"] < 900 < len(cut("immunoglobulin " * 300))


@pytest.fixture
def byte_pairs(tmp_path: Path) -> Path:
    """A folder with nothing but a byte-level tokenizer, as GPT-2's, trained on a few words."""
    tokenizers = pytest.importorskip("tokenizers")
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=400,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<s>"],
        show_progress=False,
    )
    tokenizer.train_from_iterator(["we saw the vaccine and the vaccines work"] * 20, trainer)
    folder = tmp_path / "model"
    folder.mkdir()
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def test_a_word_has_the_same_subwords_wherever_it_stands(byte_pairs: Path, tmp_path: Path) -> None:
    cut = open_analysis(Analysis(subwords=str(byte_pairs)))
    assert cut("vaccine the") == ["Ġvaccine", "Ġthe"]
    assert cut("the vaccine") == ["Ġthe", "Ġvaccine"]
    assert cut("vaccines")[0] == cut("the vaccines")[1]
    assert cut("the<s>") == cut("the < s >") != []
    tokenizers = pytest.importorskip("tokenizers")
    pieces = [("<unk>", 0.0), ("▁the", -1.0), ("▁", -2.0), ("s", -2.0)]
    tokenizer = tokenizers.Tokenizer(tokenizers.models.Unigram(pieces, 0))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    tokenizer.add_special_tokens(["<unk>"])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    cut = open_analysis(Analysis(subwords=str(tmp_path)))
    assert cut("the s the") == ["▁the", "▁", "s", "▁the"]
    assert cut("theq") == ["▁the"]


def test_what_subwords_lack_is_said(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no/such-model"):
        open_analysis(Analysis(subwords="no/such-model"))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    with pytest.raises(NotFound, match=r"no tokenizer\.json"):
        open_analysis(Analysis(subwords=str(tmp_path)))
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(InvalidData, match="can't be read as a tokenizer"):
        open_analysis(Analysis(subwords=str(tmp_path)))


OTHERS = {
    "German": "Rotes Fleisch erhöht das Darmkrebsrisiko. | Salz ist ungesund. | Die Titanic sank 1912",
    "French": "La viande rouge augmente le risque de cancer. | Les antibiotiques ne tuent pas les virus",
    "Spanish": "La carne roja aumenta el riesgo de cáncer. | Vacunas causan autismo",
    "Italian": "La carne rossa aumenta il rischio di cancro. | Gli antibiotici non uccidono i virus",
    "Portuguese": "A carne vermelha aumenta o risco de cancro. | Os antibióticos não matam vírus",
    "Dutch": "Rood vlees verhoogt het risico op kanker. | Vaccins veroorzaken autisme",
    "Polish": "Czerwone mięso zwiększa ryzyko raka. | Antybiotyki nie zabijają wirusów",
    "Russian": "Красное мясо повышает риск рака. | Антибиотики не действуют на вирусы",
    "Chinese": "红肉会增加患癌症的风险。 | 抗生素不能杀死病毒 | 疫苗导致自闭症",
    "Japanese": "赤身の肉はがんのリスクを高める。 | 抗生物質はウイルスに効かない",
    "Korean": "붉은 고기는 암 위험을 높인다. | 항생제는 바이러스를 죽이지 않는다",
    "Arabic": "اللحوم الحمراء تزيد من خطر الإصابة بالسرطان. | المضادات الحيوية لا تقتل الفيروسات",
    "Danish": "Vacciner er ikke årsag til autisme for børn",
    "Romanian": "Fumatul are efecte grave asupra sănătății",
    "Czech": "Očkování by mohlo způsobit autismus",
    "Turkish": "Kırmızı et kanser riskini artırır. | Antibiyotikler virüsleri öldürmez",
}
"""Sentences of each language, parted by bars."""
ENGLISH = [
    *("Escherichia coli", "Drosophila melanogaster lifespan", "Homo sapiens", "Mycobacterium tuberculosis", "COVID-19"),
    *("CX3CR1 CD4 IL-2", "BRCA1, TP53, PTEN", "C6H12O6 + 6 O2 → 6 CO2 + 6 H2O", "E = mc²", "β-amyloid", "H2O", "12 %"),
    *("Vaccines cause autism", "De novo mutations cause autism", "Aspirin prevents stroke.", "TNF-α levels rise", ""),
    *("5'-nucleotidase metabolizes 6MP.", "In vitro fertilisation causes diabetes", "Ginkgo biloba improves memory"),
    *("5G causes COVID-19.", "seas rise", "Bees die.", "TNF-α levels fall", "SUGAR MAKES KIDS HYPER!!!"),
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
        "assert foreign_language('Vaccines do not cause autism; sea level has risen since 1900.') is None\n"
        "assert 'fasttext' not in sys.modules\n"
        "assert foreign_language('Kaffee senkt das Risiko von Leberkrebs') == 'German'\n"
        "assert 'requests' not in sys.modules\n"
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
