"""Loading reranking models on this machine: a folder's configuration decides how its model scores.

Only safetensors are loaded, and a model's own code runs only if the user allows it.
"""

from __future__ import annotations

import inspect
import json
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from ..core.errors import InvalidData, NotFound, UsageError
from ..core.models import (
    FoundModel,
    best_device,
    check_device,
    find_model,
    keep_few_shapes,
    loading_quietly,
    positions,
    require_models,
)
from ..core.runtime import Runtime
from ..core.stages import ModelStage
from ..core.text import first_line
from . import crossencoder, decoder, encoder, layerwise
from .decoder import PaddedDecoder
from .encoder import PackedEncoder, PaddedEncoder
from .local import ModelScorer
from .tokens import Long, Prompt, PromptPairs, SpecialPairs, own_ids, prompt_pairs, template, tokeniser
from .types import Forward

DEFAULT_MAX_TOKENS = 512
_BGE = Prompt(
    "Given a query A and a passage B, determine whether the passage contains an answer to the query by providing a "
    "prediction of either 'Yes' or 'No'."
)
_MXBAI = Prompt(
    "You are a search relevance expert who evaluates how well documents match search queries. For each query-document "
    "pair, carefully analyze the semantic relationship between them, then provide your binary relevance judgment (0 "
    "for not relevant, 1 for relevant).\nRelevance:<|im_end|>\n<|im_start|>assistant\n",
    yes="1",
    no="0",
    before="<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n"
    "<|im_start|>user\n",
    query="query: ",
    passage="document: ",
)
PROMPTS: Final = {
    "BAAI/bge-reranker-v2-gemma": _BGE,
    "BAAI/bge-reranker-v2-minicpm-layerwise": _BGE,
    "mixedbread-ai/mxbai-rerank-base-v2": _MXBAI,
    "mixedbread-ai/mxbai-rerank-large-v2": _MXBAI,
}
"""How the decoders that are known are asked (FlagEmbedding 1.4, `BaseLLMReranker`; mxbai-rerank, `MxbaiRerankV2`)."""
KEEPS_ORDER = {"Identity", "Sigmoid", "Tanh", "LogSigmoid", "Softplus"}
"""Activation functions that sentence-transformers can apply and that leave the order of logits as it is."""
_LOADING = (OSError, ValueError, KeyError, TypeError, AttributeError, ImportError, RuntimeError)
"""The exceptions that transformers raises for folders that are not what they say."""
_TOKENIZERS = ("tokenizer.json", "*.model", "vocab.*")


def load_scorer(
    name: str,
    runtime: Runtime,
    stage: ModelStage,
    batch_tokens: int | None = None,
) -> ModelScorer:
    """Find a reranking model (a folder, or a name) and load it, with the options of a stage.

    `stage.max_tokens`: how many ids a pair may have; of decoders this is FlagEmbedding's `max_length`, to which the
    prompt is added. `prompt` and `yes_token`: how a decoder is asked that is not in `PROMPTS`. `trust_remote_code` runs
    the Python code beside the weights, which jina-reranker-v2 needs: only of an author whom you trust with this
    machine. `batch_tokens`: the ids in one forward pass.

    Raises MissingExtra without torch, NotFound for a missing model or one without safetensors, UsageError for invalid
    options (or an unknown decoder without prompt and token), InvalidData for a folder that is not a reranker.
    """
    require_models("reranking on this machine")
    found = runtime.find(name, with_code=stage.trust_remote_code)
    if not any(found.path.glob("*.safetensors")):
        raise NotFound(f"{found.path} has no safetensors weights, and ccheck does not load other formats")
    config = _config(found)
    parts = crossencoder.modules(found.path)
    architecture = " + ".join(parts) or (config.get("architectures") or ["nothing"])[0]
    is_decoder = architecture.endswith("ForCausalLM")
    if not is_decoder and not parts and not architecture.endswith("ForSequenceClassification"):
        raise InvalidData(f"{found.name} is not a reranker: its config.json says {architecture}")
    if not is_decoder and (stage.yes_token is not None or stage.prompt is not None):
        raise UsageError(f"{found.name} is not a decoder ({architecture}): remove prompt and yes_token")
    is_layerwise = architecture == layerwise.ARCHITECTURE
    if stage.cutoff_layer is not None and not is_layerwise:
        raise UsageError(f"{found.name} is not a layerwise model: remove cutoff_layer")
    layer = layerwise.check(found.name, config, stage.cutoff_layer) if is_layerwise else 0
    if parts and stage.long != "cut":
        raise UsageError(f'{found.name} ({architecture}) can\'t read long passages in windows: use long = "cut"')
    if config.get("auto_map") and not stage.trust_remote_code and not is_layerwise and not _is_known(config):
        raise UsageError(
            f"{found.name} has an architecture that transformers lacks, and brings its author's Python code. That code "
            "runs only if you trust it: use --trust-remote-code, and trust_remote_code = true for it in a recipe"
        )
    asked = _prompt(found, config, stage.prompt, stage.yes_token) if is_decoder else _BGE
    if runtime.device is not None:
        check_device(runtime.device)
    runtime.loading(found.name)
    device = runtime.device or best_device()
    options = _Options(
        found,
        config,
        device,
        _dtype(device, stage.dtype),
        stage.max_tokens,
        stage.long,
        batch_tokens or batch_tokens_for(device),
        stage.trust_remote_code,
    )
    keep_few_shapes()
    with loading_quietly(), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of a configuration's old spellings
        if parts:
            return _crossencoder(options)
        if is_layerwise:
            return _layerwise(options, asked, layer)
        return _decoder(options, asked) if is_decoder else _encoder(options)


def is_decoder(name: str) -> bool:
    """Whether a model is asked by a prompt. Raises NotFound or InvalidData."""
    return bool((_config(find_model(name)).get("architectures") or [""])[0].endswith("ForCausalLM"))


@dataclass(frozen=True, slots=True)
class _Options:
    found: FoundModel
    config: dict[str, Any]
    device: str
    dtype: str
    max_tokens: int | None
    long: Long
    batch_tokens: int
    trust_remote_code: bool


def _decoder(options: _Options, asked: Prompt) -> ModelScorer:
    model, tokenizer = _load(options, "AutoModelForCausalLM")
    pairs = _prompt_pairs(options, tokenizer, asked, model.config.max_position_embeddings)
    yes = _token(options.found, tokenizer, asked.yes)
    no = None if asked.no is None else _token(options.found, tokenizer, asked.no)
    packs = _is_transformers_own(model) and decoder.packs(model.config, pairs.longest)
    forward = (decoder.packed if packs else PaddedDecoder)(model, yes, no, options.batch_tokens)
    return ModelScorer(options.found.name, pairs, forward, pairs.length)


def _crossencoder(options: _Options) -> ModelScorer:
    import torch

    found = options.found
    _check_activation(found, _sentence_transformers(found, options.config))
    length = _length(found, options.max_tokens, options.config.get("max_position_embeddings") or 1 << 20)
    dtype = getattr(torch, options.dtype)
    try:
        return crossencoder.load(
            found.name, found.path, length, options.device, dtype, options.batch_tokens, options.trust_remote_code
        )
    except _LOADING as error:
        raise InvalidData(f"sentence-transformers can't load {found.name}: {first_line(error)}") from error


def _layerwise(options: _Options, asked: Prompt, layer: int) -> ModelScorer:
    import torch

    config = options.config
    tokenizer = _tokenizer(options)
    pairs = _prompt_pairs(options, tokenizer, asked, config.get("max_position_embeddings", 2048))
    body, head = layerwise.load(options.found.path, config, layer, options.device, getattr(torch, options.dtype))
    forward = layerwise.forward(body, head, config, options.batch_tokens)
    return ModelScorer(options.found.name, pairs, forward, pairs.length)


def _encoder(options: _Options) -> ModelScorer:
    found = options.found
    said = _sentence_transformers(found, options.config)
    _check_labels(found, options.config, said)
    model, tokenizer = _load(options, "AutoModelForSequenceClassification")
    length = _length(found, options.max_tokens, _own_length(model.config, tokenizer))
    pairs = encoder_pairs(tokenizer, model.config, length, long=options.long, said=bool(said))
    if pairs is None:
        raise InvalidData(
            f"ccheck can't use the tokenizer of {found.name}: it does not encode pairs of a query and a passage"
        )
    halves = pairs.template.types
    forward: Forward
    if _is_transformers_own(model) and encoder.packs(model.config):
        forward = PackedEncoder(model, halves, options.batch_tokens)
    else:
        takes_types = takes_token_types(tokenizer, model)
        forward = PaddedEncoder(model, halves if takes_types else None, options.batch_tokens)
    return ModelScorer(found.name, pairs, forward, pairs.length)


def encoder_pairs(tokenizer: Any, config: Any, length: int, *, long: Long = "cut", said: bool) -> SpecialPairs | None:
    """Pairs for an encoder; None where the tokenizer can't make any. `said`: sentence-transformers saved the model."""
    special = template(tokenizer)
    if special is None:
        return None
    types = "token_type_ids" in tokenizer.model_input_names
    return SpecialPairs(
        tokeniser(tokenizer),
        special if types else replace(special, types=(0, 0)),
        length,
        long,
        # A model that sentence-transformers did not save is what FlagReranker loads.
        "passage" if config.model_type == "xlm-roberta" and not said else "longer",
        tokenizer.truncation_side == "left",
    )


def takes_token_types(tokenizer: Any, model: Any) -> bool:
    """Whether an encoder reads which half of a pair a token belongs to."""
    return (
        "token_type_ids" in tokenizer.model_input_names
        and "token_type_ids" in inspect.signature(model.forward).parameters
    )


def known_prompt(names: set[str]) -> Prompt | None:
    """How a decoder is asked that `PROMPTS` has under one of these names, with or without its author's."""
    return next((prompt for name, prompt in PROMPTS.items() if names & {name, name.rpartition("/")[2]}), None)


def _prompt_pairs(options: _Options, tokenizer: Any, asked: Prompt, places: int) -> PromptPairs:
    pairs = prompt_pairs(tokenizer, asked, options.long)
    return replace(pairs, length=_length(options.found, options.max_tokens, places - pairs.longest))


def batch_tokens_for(device: str) -> int:
    """Ids in one forward pass. More make no model faster, and small requests to a server would wait longer."""
    return 16_384 if device.startswith("cuda") else 4096


def _dtype(device: str, wanted: str | None) -> str:
    import torch

    if wanted is not None or not device.startswith("cuda"):
        return wanted or "float32"
    return "bfloat16" if torch.cuda.is_bf16_supported() else "float16"


def _config(found: FoundModel) -> dict[str, Any]:
    file = found.path / "config.json"
    try:
        settings = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise InvalidData(f"the model's {file} can't be read: {error}") from error
    if not isinstance(settings, dict):
        raise InvalidData(f"the model's {file} is not a JSON object")
    return settings


def _prompt(found: FoundModel, config: dict[str, Any], text: str | None, yes: str | None) -> Prompt:
    known = known_prompt({found.name, Path(found.name).name, str(config.get("_name_or_path"))})
    if known is not None:
        return replace(known, text=known.text if text is None else text, yes=known.yes if yes is None else yes)
    if text is None or yes is None:
        raise UsageError(
            f"ccheck does not know the prompt of the causal model {found.name}: set prompt and yes_token "
            f"(known models: {', '.join(PROMPTS)})"
        )
    return Prompt(text, yes)


def _load(options: _Options, kind: str) -> tuple[Any, Any]:
    """Model and tokenizer. Raises InvalidData if transformers can't make them of the folder."""
    import torch
    import transformers

    name = options.found.name
    try:
        model, loading = getattr(transformers, kind).from_pretrained(
            options.found.path,
            dtype=getattr(torch, options.dtype),
            use_safetensors=True,
            trust_remote_code=options.trust_remote_code,
            local_files_only=True,
            output_loading_info=True,
        )
    except _LOADING as error:
        raise InvalidData(f"transformers can't load {name}: {first_line(error)}") from error
    missing = sorted(loading["missing_keys"])
    if missing:
        raise InvalidData(
            f"the weights of {name} are not complete: {missing[0]} is missing"
            + (f" and {len(missing) - 1} more" if missing[1:] else "")
        )
    tokenizer = _tokenizer(options)
    rows = model.get_input_embeddings().weight.shape[0]
    if len(tokenizer) > rows:
        raise InvalidData(f"the tokenizer of {name} has {len(tokenizer)} tokens, but the model only {rows}")
    return model.to(options.device).eval(), tokenizer


def _tokenizer(options: _Options) -> Any:
    import transformers

    if not any(file for pattern in _TOKENIZERS for file in options.found.path.glob(pattern)):
        # transformers makes an empty one of nothing, for which every word is unknown.
        raise InvalidData(f"{options.found.name} has no tokenizer: save one into its folder (tokenizer.json)")
    try:
        return transformers.AutoTokenizer.from_pretrained(
            options.found.path, trust_remote_code=options.trust_remote_code, local_files_only=True
        )
    except _LOADING as error:
        raise InvalidData(
            f"transformers can't load the tokenizer of {options.found.name}: {first_line(error)}"
        ) from error


def _is_known(config: dict[str, Any]) -> bool:
    """Whether transformers itself has models of this kind."""
    from transformers import CONFIG_MAPPING

    return config.get("model_type") in CONFIG_MAPPING


def _is_transformers_own(model: Any) -> bool:
    """Whether the model's arithmetic is the library's, and not that of code beside the weights."""
    return type(model).__module__.startswith("transformers.")


def _token(found: FoundModel, tokenizer: Any, yes: str) -> int:
    ids = own_ids(tokenizer, yes)
    if len(ids) != 1:
        raise UsageError(f"yes_token is {yes!r}, which is {len(ids)} tokens for {found.name}: choose a single token")
    return ids[0]


def _length(found: FoundModel, wanted: int | None, most: int) -> int:
    if wanted is not None and wanted > most:
        raise UsageError(f"max_tokens is {wanted}: {found.name} reads at most {most}")
    return wanted or min(DEFAULT_MAX_TOKENS, most)


def _own_length(config: Any, tokenizer: Any) -> int:
    """How many ids the model can read."""
    return int(min(positions(config) or 1 << 20, tokenizer.model_max_length))


def _check_labels(found: FoundModel, config: dict[str, Any], said: dict[str, Any]) -> None:
    labels = len(config["id2label"]) if config.get("id2label") else config.get("num_labels", 2)
    if labels != 1:
        raise InvalidData(
            f"{found.name} is a classifier with {labels} labels, but a reranker has one (is it a stance model?)"
        )
    _check_activation(found, said)


def _check_activation(found: FoundModel, said: dict[str, Any]) -> None:
    activation = str(said.get("activation_fn") or "Identity")
    if activation.rpartition(".")[2] not in KEEPS_ORDER:
        raise InvalidData(f"{found.name} turns its logits into scores with {activation}, which may change their order")


def _sentence_transformers(found: FoundModel, settings: dict[str, Any]) -> dict[str, Any]:
    """The settings that sentence-transformers wrote for a CrossEncoder, in any of the places that its versions use."""
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
