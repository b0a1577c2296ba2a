"""Two texts that the packaged embedding model reads together, with an adapter."""

from __future__ import annotations

import numpy as np
import pytest
import threadpoolctl
from safetensors.numpy import save_file

from ccheck.core.errors import InvalidData
from ccheck.core.models import find_model
from ccheck.encode.bert_folder import read_bert_folder
from ccheck.encode.numpy_bert import load_bert, load_cross_encoder

NAME = "encoder.layer.3.attention.self.query"
PAIRS = [
    ("Sea level rose by 20 cm.", "It rose by about 20 centimetres between 1900 and 2018."),
    ("Tea helps", "Tea [SEP] does not help. " * 40),
    ("x " * 80, "short"),
]


@pytest.fixture(scope="module")
def folder():
    return read_bert_folder(find_model("sentence-transformers/all-MiniLM-L6-v2").path)


def tensors(**others):
    draw = np.random.default_rng(0)
    made = {
        f"{NAME}.a": draw.normal(size=(4, 384)) / 20,
        f"{NAME}.b": draw.normal(size=(384, 4)),
        "head.weight": draw.normal(size=(3, 768)),
        "head.bias": draw.normal(size=3),
    } | others
    return {name: np.asarray(values, np.float16) for name, values in made.items() if values is not None}


def test_it_is_the_model_with_the_changed_weights(folder, tmp_path):
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    some = tensors()
    save_file(some, tmp_path / "adapter.safetensors")
    made = load_cross_encoder(folder, tmp_path / "adapter.safetensors", 48)(PAIRS)
    model = transformers.AutoModel.from_pretrained(folder.path, local_files_only=True).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder.path, local_files_only=True)
    a, b, weight, bias = (torch.tensor(values.astype(np.float32)) for values in some.values())
    # Of 48 tokens the claim gets 22, and the text what is left; special tokens in a text are words.
    shown = [PAIRS[0], ("Tea helps", "Tea [ sep ] does not help. " * 40), ("x " * 22, "short")]
    with torch.no_grad():
        model.get_parameter(f"{NAME}.weight").add_(b @ a)
        for row, (claim, text) in enumerate(shown):
            read = tokenizer(claim, text, return_tensors="pt", truncation="only_second", max_length=48)
            states = model(**read).last_hidden_state[0]
            expected = torch.cat([states[0], states.mean(0)]) @ weight.T + bias
            assert made[row] == pytest.approx(expected.numpy(), abs=1e-3)


def test_weights_are_changed_in_one_thread(folder):
    """Several would wait for each other, busily: on busy cores, a first verdict took .4 s of CPU more."""

    def threads(_=None):
        # Others (scipy, torch) have theirs, which numpy does not use.
        return {one["num_threads"] for one in threadpoolctl.threadpool_info() if "numpy" in one["filepath"]}

    seen = []
    with threadpoolctl.threadpool_limits(2, "blas"):
        load_bert(folder).changed(lambda _: seen.append(threads()))
        assert threads() == {2}
    assert seen == [{1}]


@pytest.mark.parametrize(
    "others",
    [
        {"head.bias": None},
        {"head.weight": np.zeros((3, 384))},
        {"head.bias": [0, np.nan, 0]},
        {f"{NAME}.a": None},
        {f"{NAME}.b": np.zeros((12, 4))},
        {"encoder.layer.9.output.dense.a": np.zeros((4, 384)), "encoder.layer.9.output.dense.b": np.zeros((384, 4))},
    ],
)
def test_an_adapter_that_does_not_fit_is_named(folder, tmp_path, others):
    file = tmp_path / "adapter.safetensors"
    save_file(tensors(**others), file)
    with pytest.raises(InvalidData, match=r"adapter\.safetensors"):
        load_cross_encoder(folder, file, 48)


def test_a_missing_or_broken_adapter_is_named(folder, tmp_path):
    with pytest.raises(InvalidData, match="none"):
        load_cross_encoder(folder, tmp_path / "none", 48)
    (tmp_path / "broken").write_bytes(b"no tensors")
    with pytest.raises(InvalidData, match="broken"):
        load_cross_encoder(folder, tmp_path / "broken", 48)
