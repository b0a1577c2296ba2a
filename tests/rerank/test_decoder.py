"""Decoders that score by the logit of `Yes`: the same scores as a plain forward pass, and as FlagEmbedding's."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from reranker_pairs import PASSAGES, QUERIES, flag_embedding, plain_ids, score, unchanged_by_others
from tiny_rerankers import PROMPT, TEXTS, load_scorer, make_decoder

from ccheck.core.errors import InvalidData, UsageError
from ccheck.rerank.several import LocalReranker

pytest.importorskip("sentence_transformers", reason="the models extra is not installed")


@pytest.fixture(scope="module")
def gemma(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_decoder(tmp_path_factory.mktemp("models") / "gemma")


def plain_scores(folder: Path, query: str, passages: list[str], length: int) -> list[float]:
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


@pytest.mark.parametrize("length", [32, 64, 512])
@pytest.mark.parametrize("query", QUERIES)
def test_scores_are_those_of_a_plain_forward_pass(gemma: Path, query: str, length: int) -> None:
    scorer = load_scorer(str(gemma), device="cpu", max_tokens=length)
    values = score(scorer, QUERIES[query], PASSAGES)
    assert values == pytest.approx(plain_scores(gemma, QUERIES[query], PASSAGES, length), abs=1e-4)
    assert max(values) - min(values) > 0.1


@pytest.mark.parametrize(
    ("architecture", "config"),
    [
        ("gemma", {"num_key_value_heads": 4, "num_hidden_layers": 1}),
        ("llama", {"num_key_value_heads": 2, "attention_bias": True}),
        (
            "llama",
            {
                "rope_parameters": {
                    "rope_type": "llama3",
                    "rope_theta": 50_000.0,
                    "factor": 8.0,
                    "low_freq_factor": 1.0,
                    "high_freq_factor": 4.0,
                    "original_max_position_embeddings": 64,
                }
            },
        ),
        ("mistral", {"sliding_window": None}),
        ("mistral", {"sliding_window": 40}),
        ("qwen2", {"tie_word_embeddings": False}),
        ("gemma2", {"sliding_window": 40, "final_logit_softcapping": 0.5}),
    ],
)
def test_other_architectures_score_as_a_plain_forward_pass_does(
    tmp_path: Path, architecture: str, config: dict[str, Any]
) -> None:
    folder = make_decoder(tmp_path / architecture, architecture=architecture, **config)
    scorer = load_scorer(str(folder), device="cpu", max_tokens=96, batch_tokens=1000)
    expected = plain_scores(folder, QUERIES["short"], PASSAGES, 96)
    assert score(scorer, QUERIES["short"], PASSAGES) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("length", [64, 512])
@pytest.mark.parametrize("query", ["short", "ends with a line break", "long"])
def test_scores_are_flag_embeddings(gemma: Path, query: str, length: int) -> None:
    flag = flag_embedding()
    # FlagEmbedding refuses the one, and reads special tokens in the other.
    passages = [passage for passage in PASSAGES if "\ud800" not in passage and "<eos>" not in passage]
    reference = flag.FlagLLMReranker(str(gemma), devices=["cpu"])
    expected = reference.compute_score([[QUERIES[query], passage] for passage in passages], max_length=length)
    scorer = load_scorer(str(gemma), device="cpu", max_tokens=length)
    assert score(scorer, QUERIES[query], passages) == pytest.approx(expected, abs=1e-4)


def test_the_passage_is_cut_and_the_query_and_prompt_are_not(gemma: Path) -> None:
    scorer = load_scorer(str(gemma), device="cpu", max_tokens=64)
    empty, long = scorer.encode("sea level", ["", "ice melts " * 200])
    assert (empty.cut, long.cut) == (False, True)
    head, end = empty.ids[: empty.prefix], empty.ids[empty.prefix + 1 :]
    assert long.ids[: long.prefix] == head and long.ids[-len(end) :] == end
    assert all(one.cut for one in scorer.encode("sea level " * 100, ["ice"]))


def test_what_is_scored_beside_it_changes_no_score(gemma: Path) -> None:
    scorer = load_scorer(str(gemma), device="cpu", batch_tokens=300)
    unchanged_by_others(scorer, ("sea level", "statins", "sea", "A", ""), PASSAGES)


def test_bfloat16_keeps_the_order_of_what_differs(gemma: Path) -> None:
    exact = score(load_scorer(str(gemma), device="cpu"), "sea level", list(TEXTS))
    half = score(load_scorer(str(gemma), device="cpu", dtype="bfloat16"), "sea level", list(TEXTS))
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


def test_an_unknown_causal_model_is_refused_and_never_guessed(tmp_path: Path, gemma: Path) -> None:
    folder = str(shutil.copytree(gemma, tmp_path / "unknown"))
    config = json.loads((gemma / "config.json").read_text())
    (tmp_path / "unknown" / "config.json").write_text(json.dumps({**config, "_name_or_path": "somebody/model"}))
    with pytest.raises(UsageError, match="set prompt and yes_token"):
        load_scorer(folder, device="cpu")
    with pytest.raises(UsageError, match="set prompt and yes_token"):
        load_scorer(folder, device="cpu", prompt="Is it?")
    with pytest.raises(UsageError, match="single token"):
        load_scorer(folder, device="cpu", prompt="Is it?", yes_token="Yes or no")
    asked = load_scorer(folder, device="cpu", prompt=PROMPT, yes_token="Yes")
    known = load_scorer(str(gemma), device="cpu")
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
