"""Loading reranking models on this machine: a folder's configuration decides how its model scores.

Only safetensors are loaded, and a model's own code never runs.
"""

from __future__ import annotations

import inspect
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from ..core.errors import InvalidData, UsageError
from ..core.fingerprints import without_safetensors
from ..core.models import (
    FoundModel,
    best_device,
    keep_few_shapes,
    load_encoder,
    load_transformer,
    loading_quietly,
    positions,
    read_settings,
    require_models,
)
from ..core.runtime import Runtime
from ..core.stages import ModelStage
from ..core.text import first_line
from . import crossencoder, layerwise
from .padding import causal, classifier
from .tokens import Prompt, SpecialPairs, own_ids, prompt_pairs, template, tokeniser
from .types import Scorer

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
_TOKENIZERS = ("tokenizer.json", "*.model", "vocab.*")


@dataclass(frozen=True, slots=True)
class _Asked:
    """A folder, what its config.json says, and how it is to be loaded. `batch_tokens`: the ids in one forward pass."""

    found: FoundModel
    config: dict[str, Any]
    stage: ModelStage
    device: str
    batch_tokens: int

    @property
    def dtype(self) -> str:
        import torch

        if self.stage.dtype is not None or not self.device.startswith("cuda"):
            return self.stage.dtype or "float32"
        return "bfloat16" if torch.cuda.is_bf16_supported() else "float16"

    def length(self, most: int) -> int:
        """The most ids of a pair. Raises UsageError if more are asked for than the model reads."""
        wanted = self.stage.max_tokens
        if wanted is not None and wanted > most:
            raise UsageError(f"max_tokens is {wanted}: {self.found.name} reads at most {most}")
        return wanted or min(DEFAULT_MAX_TOKENS, most)


def load_scorer(name: str, runtime: Runtime, stage: ModelStage, batch_tokens: int | None = None) -> Scorer:
    """Find a reranking model (a folder, or a name) and load it, with the options of a stage.

    `stage.max_tokens`: how many ids a pair may have; of decoders this is FlagEmbedding's `max_length`, to which the
    prompt is added. `prompt` and `yes_token`: how a decoder is asked that is not in `PROMPTS`.

    Raises MissingExtra without torch, NotFound for a missing model or one without safetensors, UsageError for invalid
    options (or an unknown decoder without prompt and token), InvalidData for a folder that is not a reranker.
    """
    require_models("reranking on this machine")
    found = runtime.find(name)
    if not any(found.path.glob("*.safetensors")):
        raise without_safetensors(found.path)
    config = read_settings(found.path / "config.json", dict)
    parts = crossencoder.modules(found.path)
    architecture = " + ".join(parts) or (config.get("architectures") or ["nothing"])[0]
    decodes, layerwise_ = architecture.endswith("ForCausalLM"), architecture == layerwise.ARCHITECTURE
    if not decodes and not parts and not architecture.endswith("ForSequenceClassification"):
        raise InvalidData(f"{found.name} is not a reranker: its config.json says {architecture}")
    if not decodes and (stage.yes_token is not None or stage.prompt is not None):
        raise UsageError(f"{found.name} is not a decoder ({architecture}): remove prompt and yes_token")
    if stage.cutoff_layer is not None and not layerwise_:
        raise UsageError(f"{found.name} is not a layerwise model: remove cutoff_layer")
    if config.get("auto_map") and not runs_here(config):
        raise UsageError(
            f"{found.name} has an architecture that transformers lacks, and brings its author's Python code, which "
            "ccheck never runs. Serve it with another program, and name its URL with --rerank"
        )
    if not parts and not any(file for pattern in _TOKENIZERS for file in found.path.glob(pattern)):
        # transformers makes an empty one of nothing, for which every word is unknown.
        raise InvalidData(f"{found.name} has no tokenizer: save one into its folder (tokenizer.json)")
    device = best_device(runtime.device)
    asked = _Asked(found, config, stage, device, batch_tokens or batch_tokens_for(device))
    make = _crossencoder if parts else _layerwise if layerwise_ else _decoder if decodes else _encoder
    runtime.loading(found.name)
    keep_few_shapes()
    with loading_quietly(), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of a configuration's old spellings
        return make(asked)


def _decoder(asked: _Asked) -> Scorer:
    prompt = _prompt(asked)
    model, tokenizer = _load(asked, "AutoModelForCausalLM")
    places = model.config.max_position_embeddings
    pairs = prompt_pairs(tokenizer, prompt, lambda added: asked.length(places - added))
    yes = _token(asked.found, tokenizer, prompt.yes)
    no = None if prompt.no is None else _token(asked.found, tokenizer, prompt.no)
    return Scorer(asked.found.name, pairs, causal(model, yes, no, asked.batch_tokens), pairs.length)


def _crossencoder(asked: _Asked) -> Scorer:
    found = asked.found
    _check_activation(found, _sentence_transformers(asked))
    length = asked.length(asked.config.get("max_position_embeddings") or 1 << 20)
    model, _ = load_encoder("CrossEncoder", "a reranker", found, asked.device, asked.dtype, max_length=length)
    return crossencoder.scorer(found.name, model.eval(), length, asked.batch_tokens)


def _layerwise(asked: _Asked) -> Scorer:
    config, prompt = asked.config, _prompt(asked)
    layer = layerwise.check(asked.found.name, config, asked.stage.cutoff_layer)
    path = asked.found.path
    try:
        llama = layerwise.llama(config, layer)
        body, tokenizer, _ = load_transformer(path, "LlamaModel", "reranker", dtype=asked.dtype, config=llama)
        forward = layerwise.forward(body.to(asked.device), path, config, layer, asked.batch_tokens)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError) as error:
        raise InvalidData(f"{path} can't be loaded as a reranker: {first_line(error)}") from error
    places = config.get("max_position_embeddings", 2048)
    pairs = prompt_pairs(tokenizer, prompt, lambda added: asked.length(places - added))
    return Scorer(asked.found.name, pairs, forward, pairs.length)


def _encoder(asked: _Asked) -> Scorer:
    found, config, said = asked.found, asked.config, _sentence_transformers(asked)
    labels = len(config["id2label"]) if config.get("id2label") else config.get("num_labels", 2)
    if labels != 1:
        raise InvalidData(
            f"{found.name} is a classifier with {labels} labels, but a reranker has one (is it a stance model?)"
        )
    _check_activation(found, said)
    model, tokenizer = _load(asked, "AutoModelForSequenceClassification")
    length = asked.length(int(min(positions(model.config) or 1 << 20, tokenizer.model_max_length)))
    pairs, types = encoder_pairs(found.name, tokenizer, model, length, said=bool(said))
    return Scorer(found.name, pairs, classifier(model, types, asked.batch_tokens), pairs.length)


def encoder_pairs(
    name: str, tokenizer: Any, model: Any, length: int, *, said: bool
) -> tuple[SpecialPairs, tuple[int, int] | None]:
    """Pairs for an encoder, and their halves' token types if the model reads them. `said`: sentence-transformers saved
    the model. Raises InvalidData where the tokenizer can't make any."""
    special = template(tokenizer)
    if special is None:
        why = "it does not encode pairs of a query and a passage"
        raise InvalidData(f"ccheck can't use the tokenizer of {name}: {why}")
    types = "token_type_ids" in tokenizer.model_input_names
    pairs = SpecialPairs(
        tokeniser(tokenizer),
        special if types else replace(special, types=(0, 0)),
        length,
        # A model that sentence-transformers did not save is what FlagReranker loads.
        "passage" if model.config.model_type == "xlm-roberta" and not said else "longer",
        tokenizer.truncation_side == "left",
    )
    read = types and "token_type_ids" in inspect.signature(model.forward).parameters
    return pairs, special.types if read else None


def batch_tokens_for(device: str) -> int:
    """Ids in one forward pass. On a processor, more leave its caches: 4,096 took 1.2 to 1.5 times as long."""
    return 16_384 if device.startswith("cuda") else 1024


def _prompt(asked: _Asked) -> Prompt:
    found, text, yes = asked.found, asked.stage.prompt, asked.stage.yes_token
    names = {found.name, Path(found.name).name, str(asked.config.get("_name_or_path"))}
    known = next((prompt for name, prompt in PROMPTS.items() if names & {name, name.rpartition("/")[2]}), None)
    if known is None and (text is None or yes is None):
        raise UsageError(
            f"ccheck does not know the prompt of the causal model {found.name}: set prompt and yes_token "
            f"(known models: {', '.join(PROMPTS)})"
        )
    known = known or Prompt("")
    return replace(known, text=known.text if text is None else text, yes=known.yes if yes is None else yes)


def _load(asked: _Asked, kind: str) -> tuple[Any, Any]:
    """Model and tokenizer. Raises InvalidData if they can't be made of the folder, or don't belong together."""
    model, tokenizer, _ = load_transformer(asked.found.path, kind, "reranker", dtype=asked.dtype)
    rows = model.get_input_embeddings().weight.shape[0]
    if len(tokenizer) > rows:
        name = asked.found.name
        raise InvalidData(f"the tokenizer of {name} has {len(tokenizer)} tokens, but the model only {rows}")
    return model.to(asked.device), tokenizer


def runs_here(config: dict[str, Any]) -> bool:
    """Whether models of this kind need no code of their authors."""
    from transformers import CONFIG_MAPPING

    return config.get("model_type") in CONFIG_MAPPING or layerwise.ARCHITECTURE in (config.get("architectures") or ())


def _token(found: FoundModel, tokenizer: Any, yes: str) -> int:
    ids = own_ids(tokenizer, yes)
    if len(ids) != 1:
        raise UsageError(f"yes_token is {yes!r}, which is {len(ids)} tokens for {found.name}: choose a single token")
    return ids[0]


def _check_activation(found: FoundModel, said: dict[str, Any]) -> None:
    activation = str(said.get("activation_fn") or "Identity")
    if activation.rpartition(".")[2] not in KEEPS_ORDER:
        raise InvalidData(f"{found.name} turns its logits into scores with {activation}, which may change their order")


def _sentence_transformers(asked: _Asked) -> dict[str, Any]:
    """The settings that sentence-transformers wrote for a CrossEncoder, in any of the places that its versions use."""
    said = dict(asked.config.get("sentence_transformers") or {})
    if old := asked.config.get("sbert_ce_default_activation_function"):
        said.setdefault("activation_fn", old)
    return said | read_settings(asked.found.path / "config_sentence_transformers.json", dict)
