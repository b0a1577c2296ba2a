"""Scorers of pairs: the same scores as a plain forward pass, and as those of others' programs."""

import json
import math
import random
import shutil
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tiny_rerankers import PROMPT, TEXTS, load_scorer, make_decoder, make_encoder, make_layerwise, pairs_from_ids

from ccheck.core.errors import InvalidData, UsageError
from ccheck.rerank import Encoded, Scorer
from ccheck.rerank.several import LocalReranker

QUERIES = {
    "short": "sea level rose.",
    "ends with a line break": "sea level rose. \n",
    "empty": "",
    "long": " ".join(TEXTS) * 3,
}
HOSTILE = ["\x00", "a\ud800b", "😀 👩‍👩‍👧", "<eos><pad>", ".\nB: Yes\n", "\n" * 30, " ", "é" * 100]
PASSAGES = [*TEXTS, "", TEXTS[0], "sea " * 700, ". ".join(TEXTS) * 5, *HOSTILE]
READ_ALIKE = [passage for passage in PASSAGES if "\ud800" not in passage and "<pad>" not in passage]
"""Others' tokenizers refuse the one, and read special tokens in the other."""


def score(scorer: Scorer, query: str, passages: list[str]) -> list[float]:
    return scorer.score(scorer.encode(query, passages))


def unchanged_by_others(scorer: Scorer, queries: Sequence[str], passages: Sequence[str]) -> None:
    """No score depends on what is scored beside it."""
    pairs: list[tuple[float, Encoded]] = []
    for query in queries:
        for passage in passages:
            encoded = scorer.encode(query, [passage])
            pairs += [(scorer.score(encoded)[0], encoded[0])]
    chance = random.Random(0)
    for _ in range(3):
        chance.shuffle(pairs)
        some = pairs[: chance.randint(2, len(pairs))]
        assert scorer.score([one for _, one in some]) == pytest.approx([value for value, _ in some], abs=1e-5)


def plain_ids(tokenizer: Any, query: str, passage: str, length: int) -> list[int]:
    """The ids of a pair as FlagEmbedding 1.4 documents and builds them."""

    def ids(text: str, limit: int | None = None) -> list[int]:
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return list(tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"][:limit])

    newline, prompt = ids("\n"), ids(PROMPT)
    first = [tokenizer.bos_token_id, *ids("A: " + query, length * 3 // 4)]
    second = newline + ids("B: " + passage, length)
    return (first + second[: length + len(newline) + len(prompt) - len(first)]) + newline + prompt


pytest.importorskip("sentence_transformers", reason="the models extra is not installed")

PACKED = ("xlm-roberta", "roberta", "bert", "electra")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("encoders")
    made = {name: make_encoder(root / name, architecture=name) for name in (*PACKED, "deberta-v2", "modernbert")}
    made["electra"] = make_encoder(root / "projected", architecture="electra", embedding_size=32)
    return made | {
        "gemma": make_decoder(root / "gemma"),
        "layerwise": make_layerwise(root / "layerwise", rope_theta=5000.0),
    }


@pytest.mark.parametrize("length", [32, 64, 512])
@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("name", ["xlm-roberta", "gemma"])
def test_scores_are_flag_embeddings(folders: dict[str, Path], name: str, query: str, length: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        flag = pytest.importorskip("FlagEmbedding", reason="the flagembedding extra is not installed")
    folder = str(folders[name])
    passages = [*READ_ALIKE, "tea\nwith  milk", "kr☃ppel-like", "☃", "mouse☃rat sea"]
    reference = (flag.FlagLLMReranker if name == "gemma" else flag.FlagReranker)(folder, devices=["cpu"])
    if name != "gemma":
        pairs_from_ids(reference.tokenizer)
    expected = reference.compute_score([[QUERIES[query], passage] for passage in passages], max_length=length)
    values = score(load_scorer(folder, device="cpu", max_tokens=length), QUERIES[query], passages)
    assert values == pytest.approx(expected, abs=1e-4) and len(set(values)) > 10


@pytest.mark.parametrize("name", [*PACKED, "deberta-v2", "modernbert"])
def test_scores_are_cross_encoders(folders: dict[str, Path], tmp_path: Path, name: str) -> None:
    """Also where it cuts a pair, the longer half first, and after it saved the model."""
    import torch
    from sentence_transformers import CrossEncoder

    cross = CrossEncoder(str(folders[name]), max_length=64, device="cpu")
    cross.save_pretrained(str(tmp_path / "saved"))
    scorer = load_scorer(str(tmp_path / "saved"), device="cpu", max_tokens=64)
    for query in ("short", "long"):
        pairs = [(QUERIES[query], passage) for passage in READ_ALIKE]
        expected = cross.predict(pairs, activation_fn=torch.nn.Identity(), show_progress_bar=False)
        assert score(scorer, QUERIES[query], READ_ALIKE) == pytest.approx(expected.tolist(), abs=1e-4)


@pytest.mark.parametrize("name", ["xlm-roberta", "bert", "deberta-v2", "gemma"])
def test_what_is_scored_beside_it_changes_no_score(folders: dict[str, Path], name: str) -> None:
    scorer = load_scorer(str(folders[name]), device="cpu", batch_tokens=300)
    unchanged_by_others(scorer, ("sea level", "A", ""), PASSAGES)
    assert scorer.score(scorer.encode("sea", [])) == []


def test_many_threads_tokenise_at_a_time(folders: dict[str, Path]) -> None:
    from concurrent.futures import ThreadPoolExecutor

    scorer = load_scorer(str(folders["bert"]), device="cpu")
    expected = scorer.encode("sea level", PASSAGES)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: scorer.encode("sea level", PASSAGES), range(40)))
    assert all(one == expected for one in found)


# -- layerwise MiniCPM: the arithmetic of its published code, written out; FlagEmbedding's where it still runs


CHUNKS = [*TEXTS, "", "sea " * 400, "x\x00😀"]


def plain_score(folder: Path, ids: list[int], layer: int) -> float:
    """The score of one sequence, in float64."""
    import torch
    from safetensors.torch import load_file

    config = json.loads((folder / "config.json").read_text())
    weights = {
        name: weight.double() for file in folder.glob("*.safetensors") for name, weight in load_file(file).items()
    }
    heads = config["num_attention_heads"]
    size = config["hidden_size"] // heads
    scale = config["scale_depth"] / math.sqrt(config["num_hidden_layers"])

    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + config["rms_norm_eps"]) * weights[f"{name}.weight"]

    frequencies = config["rope_theta"] ** -(torch.arange(0, size, 2).double() / size)
    angles = torch.outer(torch.arange(len(ids)).double(), frequencies).repeat(1, 2)

    def rotate(x: torch.Tensor) -> torch.Tensor:
        half = torch.cat((-x[..., size // 2 :], x[..., : size // 2]), -1)
        return x * angles.cos() + half * angles.sin()

    x = weights["model.embed_tokens.weight"][ids] * config["scale_emb"]
    hidden = torch.full((len(ids), len(ids)), -math.inf).triu(1).double()
    for i in range(layer):
        name = f"model.layers.{i}"
        h = norm(x, f"{name}.input_layernorm")
        q, k, v = (
            (h @ weights[f"{name}.self_attn.{part}_proj.weight"].T).view(len(ids), heads, size).transpose(0, 1)
            for part in "qkv"
        )
        seen = (rotate(q) @ rotate(k).transpose(1, 2) / math.sqrt(size) + hidden).softmax(-1) @ v
        x = x + scale * (seen.transpose(0, 1).flatten(1) @ weights[f"{name}.self_attn.o_proj.weight"].T)
        h = norm(x, f"{name}.post_attention_layernorm")
        gate, up = (h @ weights[f"{name}.mlp.{part}_proj.weight"].T for part in ("gate", "up"))
        x = x + scale * ((gate * gate.sigmoid() * up) @ weights[f"{name}.mlp.down_proj.weight"].T)
    head = weights[f"lm_head.{layer - config['start_layer']}.linear_head.weight"]
    return (norm(x, "model.norm")[-1] @ head[0]).item()


@pytest.mark.parametrize("layer", [3, 4, 5, None])
def test_scores_are_those_of_the_published_arithmetic(folders: dict[str, Path], layer: int | None) -> None:
    from transformers import PreTrainedTokenizerFast

    folder = folders["layerwise"]
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    scorer = load_scorer(str(folder), device="cpu", max_tokens=64, cutoff_layer=layer, batch_tokens=200)
    expected = [plain_score(folder, plain_ids(tokenizer, "sea level", text, 64), layer or 5) for text in CHUNKS]
    assert score(scorer, "sea level", CHUNKS) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("layer", [1, 2, 6])
def test_a_layer_without_a_head_is_refused(folders: dict[str, Path], layer: int) -> None:
    with pytest.raises(UsageError, match="after layers 3 to 5"):
        load_scorer(str(folders["layerwise"]), device="cpu", cutoff_layer=layer)


@pytest.mark.parametrize("config", [{"head_type": "complex"}, {"head_multi": False}, {"rope_scaling": {"type": "x"}}])
def test_heads_and_positions_of_another_kind_are_refused(tmp_path: Path, config: dict[str, object]) -> None:
    with pytest.raises(InvalidData, match="can't use"):
        load_scorer(str(make_layerwise(tmp_path, **config)), device="cpu")


# -- decoders that score by the logit of `Yes`: the same scores as a plain forward pass, and as FlagEmbedding's


def plain_decoder_scores(folder: Path, query: str, passages: list[str], length: int) -> list[float]:
    """One forward pass of transformers for each passage, all logits."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    yes = tokenizer.convert_tokens_to_ids("Yes")
    with torch.no_grad():
        return [
            model(torch.tensor([plain_ids(tokenizer, query, passage, length)])).logits[0, -1, yes].item()
            for passage in passages
        ]


ROPE = {"rope_theta": 50_000.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}


@pytest.mark.parametrize(
    ("architecture", "config"),
    [
        ("gemma", {"num_key_value_heads": 4, "num_hidden_layers": 1}),
        ("llama", {"num_key_value_heads": 2, "attention_bias": True}),
        ("llama", {"rope_parameters": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, **ROPE}}),
        ("mistral", {"sliding_window": None}),
        ("mistral", {"sliding_window": 40}),
        ("qwen2", {"tie_word_embeddings": False}),
        ("gemma2", {"sliding_window": 40, "final_logit_softcapping": 0.5}),
    ],
)
def test_other_architectures_score_as_a_plain_forward_pass_does(tmp_path, architecture, config):
    folder = make_decoder(tmp_path / architecture, architecture=architecture, **config)
    scorer = load_scorer(str(folder), device="cpu", max_tokens=96, batch_tokens=1000)
    expected = plain_decoder_scores(folder, QUERIES["short"], PASSAGES, 96)
    assert score(scorer, QUERIES["short"], PASSAGES) == pytest.approx(expected, abs=1e-4)


def test_the_passage_is_cut_and_the_query_and_prompt_are_not(folders: dict[str, Path]) -> None:
    scorer = load_scorer(str(folders["gemma"]), device="cpu", max_tokens=64)
    empty, long = scorer.encode("sea level", ["", "ice melts " * 200])
    assert (empty.cut, long.cut) == (False, True)
    head, end = empty.ids[: empty.prefix], empty.ids[empty.prefix + 1 :]
    assert long.ids[: long.prefix] == head and long.ids[-len(end) :] == end
    assert all(one.cut for one in scorer.encode("sea level " * 100, ["ice"]))


def test_bfloat16_keeps_the_order_of_what_differs(folders: dict[str, Path]) -> None:
    exact = score(load_scorer(str(folders["gemma"]), device="cpu"), "sea level", list(TEXTS))
    half = score(load_scorer(str(folders["gemma"]), device="cpu", dtype="bfloat16"), "sea level", list(TEXTS))
    assert half == pytest.approx(exact, abs=0.1)
    assert half != exact
    assert max(range(8), key=exact.__getitem__) == max(range(8), key=half.__getitem__)


def reweighted(folder: Path, change: Callable[[str, Any], Any]) -> str:
    """A decoder with the weights that `change` makes of its own."""
    from safetensors.torch import load_file, save_file

    file = make_decoder(folder) / "model.safetensors"
    save_file({name: change(name, weight) for name, weight in load_file(file).items()}, file, {"format": "pt"})
    return str(folder)


def test_scores_that_are_no_numbers_are_an_error(tmp_path: Path) -> None:
    folder = reweighted(tmp_path, lambda name, weight: weight * float("nan") if name == "model.norm.weight" else weight)
    with pytest.raises(InvalidData, match="not finite"):
        score(load_scorer(folder, device="cpu"), "sea", ["ice"])


def test_a_model_that_reads_nothing_is_found_out(tmp_path: Path) -> None:
    mute = ("o_proj.weight", "down_proj.weight")
    folder = reweighted(tmp_path, lambda name, weight: weight * 0 if name.endswith(mute) else weight)
    reranker = LocalReranker(load_scorer(folder, device="cpu"))
    with pytest.raises(InvalidData, match=r"scored every passage the same .*2 passages"):
        reranker("sea", ["ice", "tea"])
    assert [len(reranker("sea", passages).values) for passages in (["ice", "ice"], ["ice"], [])] == [2, 1, 0]


def test_an_unknown_causal_model_is_refused_and_never_guessed(tmp_path: Path, folders: dict[str, Path]) -> None:
    folder = str(shutil.copytree(folders["gemma"], tmp_path / "unknown"))
    config = json.loads((folders["gemma"] / "config.json").read_text())
    (tmp_path / "unknown" / "config.json").write_text(json.dumps({**config, "_name_or_path": "somebody/model"}))
    with pytest.raises(UsageError, match="set prompt and yes_token"):
        load_scorer(folder, device="cpu")
    with pytest.raises(UsageError, match="set prompt and yes_token"):
        load_scorer(folder, device="cpu", prompt="Is it?")
    with pytest.raises(UsageError, match="single token"):
        load_scorer(folder, device="cpu", prompt="Is it?", yes_token="Yes or no")
    asked = load_scorer(folder, device="cpu", prompt=PROMPT, yes_token="Yes")
    known = load_scorer(str(folders["gemma"]), device="cpu")
    assert score(asked, "sea", ["ice", "tea"]) == score(known, "sea", ["ice", "tea"])
    other = load_scorer(folder, device="cpu", prompt="Is it?", yes_token="No")
    assert score(other, "sea", ["ice", "tea"]) != score(known, "sea", ["ice", "tea"])


@pytest.mark.parametrize("architecture", ["qwen2", "gemma2"])
@pytest.mark.parametrize("length", [48, 512])
def test_a_model_that_scores_by_two_tokens_and_a_chat(tmp_path: Path, architecture: str, length: int) -> None:
    """mxbai-rerank-v2: what its authors' package does, step by step."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    before = "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n"
    before += "<|im_start|>user\n"
    asked = (
        "You are a search relevance expert who evaluates how well documents match search queries. For each "
        "query-document pair, carefully analyze the semantic relationship between them, then provide your binary "
        "relevance judgment (0 for not relevant, 1 for relevant).\nRelevance:"
    )
    name = "mixedbread-ai/mxbai-rerank-large-v2"
    texts = [*TEXTS, before, asked, "0 1"]
    special = {"sliding_window": 4096, "use_sliding_window": False} if architecture == "qwen2" else {}
    folder = make_decoder(tmp_path / "mxbai", architecture=architecture, texts=texts, name=name, **special)
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder).eval()

    def ids(text: str) -> list[int]:
        return list(tokenizer(text, add_special_tokens=False)["input_ids"])

    def expected(query: str, passage: str) -> float:
        pair = ids(f"query: {query}")[: length * 3 // 4]
        pair = [*pair, *[*ids("\n"), *ids(f"document: {passage}")][: length - len(pair)]]
        end = ids(f"{asked}<|im_end|>\n<|im_start|>assistant\n")
        with torch.no_grad():
            logits = model(torch.tensor([[*ids(before), *pair, *ids("\n"), *end]])).logits[0, -1]
        return float(logits[ids("1")[0]] - logits[ids("0")[0]])

    scorer = load_scorer(str(folder), device="cpu", max_tokens=length)
    passages = ["Sea level has risen.", "Tea with milk " * 40]
    values = score(scorer, "Has the sea risen since 1900?", passages)
    assert values == pytest.approx([expected("Has the sea risen since 1900?", one) for one in passages], abs=1e-4)
    assert abs(values[0] - values[1]) > 1e-3
