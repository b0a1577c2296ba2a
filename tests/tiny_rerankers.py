"""Rerankers with random weights: small ones of the true architectures, complete folders with their own tokenizers.

The tokenizers are trained so that they merge across the borders of the pieces of which a pair is made (`.` and a line
break, a line break and `B`), as the real ones do.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ccheck.core.models import loading_quietly
from ccheck.core.runtime import Runtime
from ccheck.core.settings import Settings
from ccheck.core.stages import ModelStage

if TYPE_CHECKING:
    from ccheck.rerank import Scorer

SMALL = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4}
TEXTS = (
    "Global mean sea level has risen by about 20 cm since 1900.",
    "The rate of rise has accelerated in recent decades, driven by thermal expansion and melting ice sheets.",
    "Vitamin D supplementation did not reduce the incidence of fractures in healthy adults (p = 0.31).",
    "Coral reefs have lost half of their living cover since the 1950s; bleaching is the main cause.",
    "We measured the uptake of carbon dioxide by forests on four continents.",
    "Statins lower the risk of stroke in patients with diabetes, and adverse events were rare.",
    "Tea with milk is popular in Britain.",
    "No association was found between coffee and atrial fibrillation in 386,258 participants.",
)
PROMPT = (
    "Given a query A and a passage B, determine whether the passage contains an answer to the query "
    "by providing a prediction of either 'Yes' or 'No'."
)
DECODERS = {"gemma": "Gemma", "gemma2": "Gemma2", "llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen2"}
ENCODERS = {
    "xlm-roberta": "XLMRoberta",
    "roberta": "Roberta",
    "bert": "Bert",
    "electra": "Electra",
    "deberta-v2": "DebertaV2",
    "modernbert": "ModernBert",
}


def make_decoder(
    folder: Path,
    *,
    architecture: str = "gemma",
    texts: Sequence[str] = TEXTS,
    learn: int = 600,
    name: str | None = "BAAI/bge-reranker-v2-gemma",
    seed: int = 0,
    **config: Any,
) -> Path:
    """Save a causal model and its tokenizer; `config` overrides what its configuration has.

    What the tokenizer learns can differ from one call to the next: copy a folder where two must be alike.
    `learn` is how large the tokenizer's vocabulary may become. `name` is what the configuration says the model was
    made from, by which its prompt is known; None says nothing.
    """
    import torch
    import transformers

    tokenizer = _bpe(texts, learn)
    sizes = SMALL | {
        "num_hidden_layers": 3,
        "num_key_value_heads": 1,
        "max_position_embeddings": 2048,
        "initializer_range": 0.1,
        "pad_token_id": 0,
        "eos_token_id": 1,
        "bos_token_id": 2,
    }
    if architecture.startswith("gemma"):
        sizes["head_dim"] = 16
    made = getattr(transformers, f"{DECODERS[architecture]}Config")(**{**sizes, "vocab_size": len(tokenizer), **config})
    torch.manual_seed(seed)
    model = getattr(transformers, f"{DECODERS[architecture]}ForCausalLM")(made)
    _save(folder, model, tokenizer)
    if name is not None:
        file = folder / "config.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | {"_name_or_path": name}))
    return folder


def make_layerwise(folder: Path, *, seed: int = 0, **config: Any) -> Path:
    """Save what bge-reranker-v2-minicpm-layerwise consists of: MiniCPM's layers with a head after each from the third.

    The weights are in several files, as those of large models are.
    """
    import torch
    from huggingface_hub import save_torch_state_dict
    from transformers import LlamaConfig, LlamaModel

    tokenizer = _bpe(TEXTS, 600)
    made = {
        **json.loads(Path(__file__).with_name("minicpm.json").read_text(encoding="utf-8")),
        "vocab_size": len(tokenizer),
        **SMALL,
        "num_hidden_layers": 5,
        **config,
    }
    names = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
    torch.manual_seed(seed)
    body = LlamaModel(LlamaConfig(**{name: made[name] for name in names}, initializer_range=0.1))
    weights = {f"model.{name}": weight.clone() for name, weight in body.state_dict().items()}
    for name in weights:
        if weights[name].dim() == 1:
            weights[name] += torch.randn_like(weights[name]) * 0.1
    heads = made["num_hidden_layers"] - made["start_layer"] + 1
    weights |= {f"lm_head.{i}.linear_head.weight": torch.randn(1, made["hidden_size"]) for i in range(heads)}
    with loading_quietly():
        tokenizer.save_pretrained(folder)
    save_torch_state_dict(weights, folder, max_shard_size=500_000)
    (folder / "config.json").write_text(json.dumps(made))
    return folder


def make_encoder(
    folder: Path,
    *,
    architecture: str = "xlm-roberta",
    texts: Sequence[str] = TEXTS,
    learn: int = 600,
    labels: int = 1,
    seed: int = 0,
    **config: Any,
) -> Path:
    """Save a sequence classifier and its tokenizer; `config` overrides what its configuration has."""
    import torch
    import transformers

    robertas = architecture in ("xlm-roberta", "roberta")
    tokenizer = _unigram(texts, learn) if robertas else _wordpiece(texts, learn)
    sizes = SMALL | {
        "num_hidden_layers": 3,
        "max_position_embeddings": 514 if robertas else 512,
        "initializer_range": 0.1,
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": tokenizer.cls_token_id,
        "eos_token_id": tokenizer.sep_token_id,
        "num_labels": labels,
    }
    if robertas:
        sizes["type_vocab_size"] = 1
    if architecture == "modernbert":
        sizes |= {"cls_token_id": tokenizer.cls_token_id, "sep_token_id": tokenizer.sep_token_id}
    made = getattr(transformers, f"{ENCODERS[architecture]}Config")(**{**sizes, "vocab_size": len(tokenizer), **config})
    torch.manual_seed(seed)
    _save(folder, getattr(transformers, f"{ENCODERS[architecture]}ForSequenceClassification")(made), tokenizer)
    return folder


def pairs_from_ids(tokenizer: Any) -> None:
    """Have FlagReranker make a pair from its ids, as with transformers 4: `<s>` query `</s></s>` passage `</s>`.

    With transformers 5, which lost `prepare_for_model`, it makes a text of the ids and tokenises that again: what the
    vocabulary lacks becomes the text `<unk>`, and the words beside it other tokens.
    """

    def prepare(first: list[int], second: list[int], *, max_length: int, **_: Any) -> dict[str, list[int]]:
        start, end = tokenizer.cls_token_id, tokenizer.sep_token_id
        second = second[: max_length - len(first) - 4]
        ids = [start, *first, end, end, *second, end]
        return {"input_ids": ids, "attention_mask": [1] * len(ids)}

    tokenizer.prepare_for_model = prepare


def _save(folder: Path, model: Any, tokenizer: Any) -> None:
    import torch

    with torch.no_grad():  # norms start as the identity and biases as zero, where a mistake would not show
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) * 0.1)
    with loading_quietly():
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)


def _bpe(texts: Sequence[str], vocab_size: int) -> Any:
    """As Gemma's: spaces are letters, nothing is split before, what is unknown falls back to bytes."""
    from tokenizers import Tokenizer, decoders, models, normalizers, trainers
    from transformers import PreTrainedTokenizerFast

    learner = Tokenizer(models.BPE())
    learner.normalizer = normalizers.Replace(" ", "▁")
    lines = [f"A: {text}\nB: {text}\n" for text in texts] + [PROMPT, "Yes", "No", "A: Yes", ".\nB", ". \n"] * 4
    learner.train_from_iterator(
        [piece for line in lines for piece in _windows(line)],
        trainers.BpeTrainer(vocab_size=vocab_size, show_progress=False, max_token_length=12),
    )
    learned = json.loads(learner.to_str())["model"]
    special = ["<pad>", "<eos>", "<bos>", "<unk>"]
    tokens = [*special, *(f"<0x{byte:02X}>" for byte in range(256)), *learned["vocab"]]
    if "Yes" not in learned["vocab"]:
        raise AssertionError("the tokenizer did not learn Yes as one token")
    made = Tokenizer(
        models.BPE(
            vocab={token: i for i, token in enumerate(tokens)},
            merges=[tuple(merge) for merge in learned["merges"]],
            unk_token="<unk>",
            byte_fallback=True,
            fuse_unk=True,
        )
    )
    made.normalizer = normalizers.Replace(" ", "▁")
    made.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    made.add_special_tokens(special)
    return PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="<pad>", eos_token="<eos>", bos_token="<bos>", unk_token="<unk>"
    )


def _windows(text: str, size: int = 40) -> list[str]:
    """Pieces of a text that overlap: byte pairs are learned from them faster than from one long word."""
    return [text[i : i + size] for i in range(0, len(text), size // 2)]


def _unigram(texts: Sequence[str], vocab_size: int) -> Any:
    """As XLM-RoBERTa's: `<s> a </s></s> b </s>`."""
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    made = Tokenizer(models.Unigram())
    made.normalizer = normalizers.Sequence(
        [normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")]
    )
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    made.train_from_iterator(
        texts,
        trainers.UnigramTrainer(vocab_size=vocab_size, special_tokens=special, unk_token="<unk>", show_progress=False),
    )
    made.decoder = decoders.Metaspace()
    made.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    ends = {"bos_token": "<s>", "eos_token": "</s>", "cls_token": "<s>", "sep_token": "</s>"}
    others = {"pad_token": "<pad>", "unk_token": "<unk>", "mask_token": "<mask>"}
    return PreTrainedTokenizerFast(tokenizer_object=made, model_max_length=512, **ends, **others)


def _wordpiece(texts: Sequence[str], vocab_size: int) -> Any:
    """BERT's: `[CLS] a [SEP] b [SEP]`, b of another token type."""
    from tokenizers import BertWordPieceTokenizer
    from transformers import BertTokenizer

    learner = BertWordPieceTokenizer()
    learner.train_from_iterator(texts, vocab_size=vocab_size, min_frequency=0, show_progress=False)
    return BertTokenizer(vocab=learner.get_vocab(), model_max_length=512)


def load_scorer(name: str, *, device: str | None = "cpu", batch_tokens: int | None = None, **options: Any) -> Scorer:
    """The scorer of a model, with options of a recipe's stage."""
    from ccheck.rerank.load import load_scorer

    return load_scorer(name, Runtime(Settings(device=device)), ModelStage.model_validate(options), batch_tokens)
