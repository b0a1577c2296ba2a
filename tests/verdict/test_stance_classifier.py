"""Stances by sequence classifiers: random weights of the true architectures, in folders as transformers saves them."""

import json
from pathlib import Path

import pytest
import torch
from runtimes import on_cpu
from tiny_rerankers import TEXTS, make_encoder

from ccheck.core.errors import InvalidData, NotFound
from ccheck.core.types import Claim, Document, Evidence, Hit
from ccheck.verdict.classifier import DEFAULT_STANCE_MODEL, MAX_WINDOWS, StanceClassifier, read_labels
from ccheck.verdict.judge import Case

NAMES = {0: "entailment", 1: "neutral", 2: "contradiction"}


def case(claim: str, *documents: Document) -> Case:
    return Case(Claim(claim), tuple(Evidence(Hit(rank, d, 1 / rank)) for rank, d in enumerate(documents, 1)))


def make(folder: Path, architecture: str = "deberta-v2", names: dict[int, str] = NAMES, **config) -> Path:
    sizes = {"type_vocab_size": 0, "relative_attention": True, "position_biased_input": False} | {
        "pos_att_type": ["p2c", "c2p"],
        "position_buckets": 256,
        "norm_rel_ebd": "layer_norm",
        "share_att_key": True,
    }
    labels = {"labels": len(names), "id2label": names, "label2id": {name: number for number, name in names.items()}}
    return make_encoder(
        folder, architecture=architecture, **{**(sizes if architecture == "deberta-v2" else {}), **labels, **config}
    )


def reference(folder: Path, premise: str, claim: str) -> dict[str, float]:
    """The probabilities by transformers, for the labels that we read."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    inputs = AutoTokenizer.from_pretrained(folder)(premise, claim, return_tensors="pt")
    with torch.inference_mode():
        return dict(zip(read_labels(folder), model(**inputs).logits.softmax(-1)[0].tolist(), strict=True))


@pytest.fixture(scope="module")
def deberta(tmp_path_factory) -> Path:
    return make(tmp_path_factory.mktemp("models") / "deberta")


DOCUMENTS = [
    Document("a", "Sea level", TEXTS[0]),
    Document("b", "", TEXTS[1]),
    Document("c", "Corals?", TEXTS[3] + " " + TEXTS[4]),
    Document("d", "Only a title", ""),
]


def test_probabilities_are_the_models_own(deberta):
    method = StanceClassifier(str(deberta), on_cpu(), half=False)
    assert method.name == f"stance:{deberta.name}"
    (judged,) = method([case("The sea rises.", *DOCUMENTS)])
    premises = [f"Sea level. {TEXTS[0]}", TEXTS[1], f"Corals? {TEXTS[3]} {TEXTS[4]}", "Only a title"]
    for stance, premise in zip(judged.stances, premises, strict=True):
        expected = reference(deberta, premise, "The sea rises.")
        assert stance.probabilities == pytest.approx(expected, abs=1e-4) and stance.error is None
        assert stance.confidence == max(stance.probabilities.values()) == stance.probabilities[stance.label]
    assert judged.quotes == () and read_labels(deberta) == ("SUPPORTS", "NOT_ENOUGH_INFO", "REFUTES")


@pytest.mark.parametrize("architecture", ["xlm-roberta", "bert", "modernbert"])
def test_other_architectures_and_the_names_in_any_order(tmp_path, architecture):
    names = {0: "REFUTED", 1: "Not Enough Info", 2: "Supported"}
    folder = make(tmp_path / "model", architecture, names)
    assert read_labels(folder) == ("REFUTES", "NOT_ENOUGH_INFO", "SUPPORTS")
    (judged,) = StanceClassifier(str(folder), on_cpu(), half=False)([case("The sea rises.", DOCUMENTS[1])])
    expected = reference(folder, TEXTS[1], "The sea rises.")
    assert judged.stances[0].probabilities == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("texts", [TEXTS, TEXTS[::-1]])
def test_a_document_longer_than_the_model_is_read_in_windows(deberta, texts):
    text = " ".join(texts)
    method = StanceClassifier(str(deberta), on_cpu(), max_tokens=64, half=False)
    claim, document = "The sea rises.", Document("a", "On things", text)
    (judged,) = method([case(claim, document)])
    room = 64 - 3 - method._count([claim])[0]
    windows = [premise for premise, _ in method._windows(document, claim, room)]
    assert len(windows) > 2 and all(premise.startswith("On things.\n") for premise in windows)
    assert " ".join(premise.removeprefix("On things.\n") for premise in windows) == text
    assert all(method._count([premise])[0] <= room for premise in windows)
    # The window counts that leaves the claim open least.
    expected = min((reference(deberta, premise, claim) for premise in windows), key=lambda one: one["NOT_ENOUGH_INFO"])
    assert judged.stances[0].probabilities == pytest.approx(expected, abs=1e-4)


def test_endless_documents_and_endless_sentences_cost_no_more_than_the_limit(deberta):
    method = StanceClassifier(str(deberta), on_cpu(), max_tokens=64, half=False)
    claim = "Penguins swim"
    room = 64 - 3 - method._count([claim])[0]
    endless = Document("a", "", " ".join([*TEXTS * 30, "Penguins swim in winter.", *TEXTS * 30]))
    windows = method._windows(endless, claim, room)
    assert len(windows) == MAX_WINDOWS
    assert any("Penguins swim in winter." in premise for premise, _ in windows)
    one = Document("b", "", "word " * 500)
    assert all(tokens <= room for _, tokens in method._windows(one, claim, room))
    assert "".join(premise for premise, _ in method._windows(one, claim, room)).count("word") > room // 2


def test_a_stance_does_not_depend_on_what_is_read_beside_it(deberta):
    method = StanceClassifier(str(deberta), on_cpu(), half=False)
    cases = [case(claim, *DOCUMENTS) for claim in ("The sea rises.", TEXTS[5])] + [case("Nothing was found.")]
    together = list(method(cases))
    assert [len(judged.stances) for judged in together] == [4, 4, 0]
    for one, judged in zip(cases, together, strict=True):
        for evidence, stance in zip(one.evidence, judged.stances, strict=True):
            ((alone,),) = [judged.stances for judged in method([Case(one.claim, (evidence,))])]
            assert alone.probabilities == pytest.approx(stance.probabilities, abs=1e-4)


def test_what_cant_be_read_is_an_error_of_that_pair(deberta):
    method = StanceClassifier(str(deberta), on_cpu(), half=False)
    surrogate = Document("s", "Sea \ud83d", "It rises\0. \udc00")
    empty, fine = next(method([case("The sea \ud83d rises.", Document("e", " ", ""), surrogate)])).stances
    assert empty.label is None and "neither title nor text" in empty.error
    assert fine.label is not None and fine.error is None
    long, short = method([case("sea " * 1000, *DOCUMENTS[:2]), case("sea", DOCUMENTS[0])])
    assert all(stance.label is None and "Shorten the claim" in stance.error for stance in long.stances)
    assert short.stances[0].label is not None


def test_numbers_that_are_none_are_errors_and_no_label(tmp_path):
    from safetensors.torch import load_file, save_file

    folder = make(tmp_path / "model")
    weights = load_file(folder / "model.safetensors")
    weights["classifier.weight"][0, 0] = float("nan")
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    (judged,) = StanceClassifier(str(folder), on_cpu(), half=False)([case("The sea rises.", *DOCUMENTS[:2])])
    assert [stance.label for stance in judged.stances] == [None, None]
    assert all("not numbers" in stance.error for stance in judged.stances)


@pytest.mark.parametrize(
    "names",
    [
        {0: "LABEL_0", 1: "LABEL_1", 2: "LABEL_2"},
        {0: "entailment", 1: "not_entailment"},
        {0: "SUPPORTS", 1: "REFUTES"},
        {0: "SUPPORTS", 1: "supported", 2: "REFUTES"},
        {0: "positive", 1: "neutral", 2: "negative"},
    ],
)
def test_outputs_without_a_meaning_are_refused_before_anything_is_loaded(tmp_path, names):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"id2label": names}))
    (folder / "model.safetensors").write_bytes(b"")
    with pytest.raises(InvalidData, match=r"\bset ") as caught:
        StanceClassifier(str(folder), on_cpu())
    assert '"id2label"' in str(caught.value) and str(folder / "config.json") in str(caught.value)


def test_other_formats_and_broken_files_are_refused(tmp_path, deberta):
    import shutil

    folder = tmp_path / "model"
    shutil.copytree(deberta, folder)
    (folder / "model.safetensors").write_bytes(b"\x10\0\0\0\0\0\0\0broken")
    with pytest.raises(InvalidData, match="can't be loaded"):
        list(StanceClassifier(str(folder), on_cpu(), half=False)([case("The sea rises.", DOCUMENTS[0])]))
    with pytest.raises(NotFound, match="not installed"):
        StanceClassifier(DEFAULT_STANCE_MODEL, on_cpu(download=False))
