"""Loading the reranking models of this machine: which scorer a folder's configuration asks for.

Only safetensors are loaded and no code of a model's author runs.
"""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from ..errors import InvalidData, NotFound, UsageError
from ..models import FoundModel, best_device, check_device, find_model, loading_quietly, require_models
from . import decoder, encoder
from .tokens import Long, Prompt, PromptPairs, SpecialPairs, Template, template, tokeniser
from .types import Scorer

DEFAULT_MAX_TOKENS = 512
DTYPES = ("float32", "bfloat16", "float16")
_BGE = Prompt(
    "Given a query A and a passage B, determine whether the passage contains an answer to the query by providing a "
    "prediction of either 'Yes' or 'No'."
)
PROMPTS: Final = {
    "BAAI/bge-reranker-v2-gemma": _BGE,
    "BAAI/bge-reranker-v2-minicpm-layerwise": _BGE,
}
"""How the decoders that are known are asked (FlagEmbedding 1.4, `BaseLLMReranker`)."""
KEEPS_ORDER = {"Identity", "Sigmoid", "Tanh", "LogSigmoid", "Softplus"}
"""Activation functions that sentence-transformers can apply and that leave the order of logits as it is."""


def load_scorer(
    name: str,
    *,
    device: str | None = None,
    max_tokens: int | None = None,
    long: Long = "cut",
    cutoff_layer: int | None = None,
    yes_token: str | None = None,
    prompt: str | None = None,
    dtype: str | None = None,
    batch_tokens: int | None = None,
    on_load: Callable[[], None] = lambda: None,
) -> Scorer:
    """Find a reranking model (a folder, or a name) and load it.

    `device` as torch names it, by default the fastest there is. `max_tokens`: how many ids a pair may have, by default
    the model's own limit, at most 512; of decoders this is FlagEmbedding's `max_length`, to which the prompt is added.
    `long`: what a passage beyond that is: cut, or scored by windows of which the best counts. `cutoff_layer`: of a
    layerwise model, the layer that scores. `yes_token` and `prompt`: how a decoder is asked that is not in `PROMPTS`.
    `dtype`: one of `DTYPES`; by default bfloat16 on a GPU that has it, else float32. `batch_tokens`: the ids in one
    forward pass. `on_load` is called before what takes long.

    Raises MissingExtra without torch, NotFound where there is no such model or it has no safetensors, UsageError for
    options that make no sense (an unknown decoder without prompt and token among them), InvalidData for a folder that
    is no reranker.
    """
    require_models("reranking on this machine")
    found = find_model(name)
    if not any(found.path.glob("*.safetensors")):
        raise NotFound(f"{found.path} holds no safetensors weights; other formats are not loaded")
    settings = _config(found)
    if max_tokens is not None and max_tokens < 32:
        raise UsageError(f"max_tokens is {max_tokens}: a reranker needs 32 at least")
    if dtype is not None and dtype not in DTYPES:
        raise UsageError(f"there is no precision {dtype!r}: choose {', '.join(DTYPES)}")
    if cutoff_layer is not None:
        raise UsageError(f"{found.name} is no layerwise model: leave cutoff_layer out")
    architecture = (settings.get("architectures") or ["nothing"])[0]
    kind = architecture.rpartition("For")[2]
    if kind not in ("CausalLM", "SequenceClassification"):
        raise InvalidData(f"{found.name} is no reranker: its config.json says {architecture}")
    if kind != "CausalLM" and (yes_token is not None or prompt is not None):
        raise UsageError(f"{found.name} is no decoder ({architecture}): leave prompt and yes_token out")
    on_load()
    device = _device(device)
    batch_tokens = batch_tokens or (16_384 if device.startswith("cuda") else 4096)
    asked = _prompt(found, settings, prompt, yes_token) if kind == "CausalLM" else None
    with loading_quietly():
        model, tokenizer = _load(found, kind, device, dtype)
    keep_end = tokenizer.truncation_side == "left"
    if asked is not None:
        pairs = PromptPairs(tokeniser(tokenizer), asked, _start(tokenizer), 0, long, keep_end)
        most = model.config.max_position_embeddings - pairs.longest
        pairs = replace(pairs, length=_length(found, max_tokens, most))
        yes = _token(found, pairs, asked.yes)
        if decoder.packs(model.config, pairs.longest):
            return decoder.PackedDecoder(found.name, model, pairs, yes, batch_tokens)
        return decoder.PaddedDecoder(found.name, model, pairs, yes, batch_tokens)
    _check_head(found, model.config, settings)
    special = template(tokenizer)
    length = _length(found, max_tokens, _own_length(model.config, tokenizer))
    if special is None:
        raise InvalidData(f"the tokenizer of {found.name} can't be used: it has no pairs of a query and a passage")
    by_flag = model.config.model_type == "xlm-roberta" and not _sentence_transformers(found, settings)
    ids = SpecialPairs(tokeniser(tokenizer), special, length, long, "passage" if by_flag else "longer", keep_end)
    types = "token_type_ids" in tokenizer.model_input_names
    if encoder.packs(model.config):
        if not types:
            ids = replace(ids, template=Template(special.before, special.between, special.after, (0, 0)))
        return encoder.PackedEncoder(found.name, model, ids, batch_tokens)
    types = types and "token_type_ids" in inspect.signature(model.forward).parameters
    return encoder.PaddedEncoder(found.name, model, ids, batch_tokens, types)


def _config(found: FoundModel) -> dict[str, Any]:
    file = found.path / "config.json"
    try:
        settings = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise InvalidData(f"the model's {file} can't be read: {error}") from error
    if not isinstance(settings, dict):
        raise InvalidData(f"the model's {file} is no object")
    return settings


def _device(name: str | None) -> str:
    if name is not None:
        check_device(name)
    # oneDNN keeps a few MB for each shape that it met, and rows are all of different lengths.
    os.environ.setdefault("LRU_CACHE_CAPACITY", "1")
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "1")
    return name or best_device()


def _prompt(found: FoundModel, settings: dict[str, Any], text: str | None, yes: str | None) -> Prompt:
    origins = {found.name, Path(found.name).name, settings.get("_name_or_path")}
    known = next((prompt for name, prompt in PROMPTS.items() if origins & {name, name.rpartition("/")[2]}), None)
    if known is not None:
        return replace(known, text=known.text if text is None else text, yes=known.yes if yes is None else yes)
    if text is None or yes is None:
        raise UsageError(
            f"how the causal model {found.name} is asked is not known: give its prompt and the token that means yes "
            f"(known are {', '.join(PROMPTS)})"
        )
    return Prompt(text, yes)


def _load(found: FoundModel, kind: str, device: str, dtype: str | None) -> tuple[Any, Any]:
    import torch
    import transformers

    if dtype is None:
        bfloat16 = device.startswith("cuda") and torch.cuda.is_bf16_supported()
        dtype = "bfloat16" if bfloat16 else "float16" if device.startswith("cuda") else "float32"
    try:
        model, loading = getattr(transformers, f"AutoModelFor{kind}").from_pretrained(
            found.path,
            dtype=getattr(torch, dtype),
            use_safetensors=True,
            trust_remote_code=False,
            local_files_only=True,
            output_loading_info=True,
        )
        tokenizer = transformers.AutoTokenizer.from_pretrained(
            found.path, trust_remote_code=False, local_files_only=True
        )
    except (OSError, ValueError, KeyError, TypeError, ImportError, RuntimeError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise InvalidData(f"transformers can't load {found.name}: {reason}") from error
    missing = sorted(loading["missing_keys"])
    if missing:
        raise InvalidData(
            f"the weights of {found.name} are not complete: {missing[0]} is missing"
            + (f" and {len(missing) - 1} more" if missing[1:] else "")
        )
    return model.to(device).eval(), tokenizer


def _start(tokenizer: Any) -> tuple[int, ...]:
    start = tokenizer.bos_token_id
    return () if start is None or start == tokenizer.pad_token_id else (start,)


def _token(found: FoundModel, pairs: PromptPairs, yes: str) -> int:
    ids = pairs.tokenise([yes])[0]
    if len(ids) != 1:
        raise UsageError(f"{yes!r} is {len(ids)} tokens for {found.name}: name one that is a single token")
    return ids[0]


def _length(found: FoundModel, wanted: int | None, most: int) -> int:
    if wanted is not None and wanted > most:
        raise UsageError(f"{found.name} reads at most {most} tokens, not {wanted}")
    return wanted or min(DEFAULT_MAX_TOKENS, most)


def _own_length(config: Any, tokenizer: Any) -> int:
    """How many ids the model can read: RoBERTa's first places are for padding."""
    places = getattr(config, "max_position_embeddings", None) or 1 << 20
    if config.model_type in ("roberta", "xlm-roberta", "camembert"):
        places -= config.pad_token_id + 1
    return int(min(places, tokenizer.model_max_length))


def _check_head(found: FoundModel, config: Any, settings: dict[str, Any]) -> None:
    if config.num_labels != 1:
        raise InvalidData(
            f"{found.name} is a classifier of {config.num_labels} labels; a reranker has one (is it a stance model?)"
        )
    activation = _sentence_transformers(found, settings).get("activation_fn") or "torch.nn.modules.linear.Identity"
    if str(activation).rpartition(".")[2] not in KEEPS_ORDER:
        raise InvalidData(f"the scores of {found.name} come from {activation}, of which the order is not known")


def _sentence_transformers(found: FoundModel, settings: dict[str, Any]) -> dict[str, Any]:
    """What sentence-transformers wrote of a CrossEncoder, in any of the places where its versions did."""
    said = dict(settings.get("sentence_transformers") or {})
    old = settings.get("sbert_ce_default_activation_function")
    if old:
        said.setdefault("activation_fn", old)
    file = found.path / "config_sentence_transformers.json"
    if file.is_file():
        try:
            said |= json.loads(file.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, ValueError) as error:
            raise InvalidData(f"the model's {file} can't be read: {error}") from error
    return said
