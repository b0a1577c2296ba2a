"""A reranker for training: the token ids that it will read when it reranks, and scores with gradients.

Two kinds: sequence classifiers with one label (BERT, XLM-RoBERTa, ModernBERT and others of transformers), and causal
models whose logit of one token scores (bge-reranker-v2-gemma, Llama, Qwen2 and others). Any other encoder gets a new
head.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.errors import InvalidData, UsageError
from ...core.models import find_model, loading_quietly, positions
from ...core.text import first_line
from ...rerank.load import DEFAULT_MAX_TOKENS, PROMPTS, encoder_pairs, known_prompt, takes_token_types
from ...rerank.padding import by_length, padded, token_types
from ...rerank.tokens import Prompt, PromptPairs, SpecialPairs, own_ids, prompt_pairs
from ...rerank.types import Encoded
from .lora import add_lora, merged
from .options import RerankerOptions

if TYPE_CHECKING:
    import torch

HEADS = ("classifier", "score", "pooler", "head", "pre_classifier", "classification_head")
"""Names of the parts after the encoder, which may be new."""
ST_SETTINGS = "config_sentence_transformers.json"


@dataclass(frozen=True, slots=True)
class RerankModel:
    """`yes` is a decoder's token that scores, `types` are the token types of an encoder's halves, where it reads them.

    `new_head`: before training its scores say nothing. `settings`: what sentence-transformers wrote of the base, to be
    saved again.
    """

    name: str
    model: Any
    tokenizer: Any
    pairs: PromptPairs | SpecialPairs
    yes: int | None
    types: tuple[int, int] | None
    new_head: bool
    origin: str
    adapted: Any = None
    settings: str | None = None

    def encode(self, query: str, passages: Sequence[str]) -> list[Encoded]:
        """The ids of pairs."""
        return self.pairs(query, passages)

    def scores(self, model: Any, encoded: Sequence[Encoded], batch_tokens: int) -> torch.Tensor:
        """A logit for each pair, float32 with gradients: [pairs]. `model`: this one, as a trainer may have wrapped it.

        Pairs of like length go through together, so that little is padding.
        """
        import torch

        sequences = [one.ids for one in encoded]
        order: list[int] = []
        parts: list[torch.Tensor] = []
        for batch in by_length(sequences, batch_tokens):
            order += batch
            parts.append(self._forward(model, [encoded[i] for i in batch]))
        back = torch.empty(len(order), dtype=torch.long)
        back[torch.tensor(order)] = torch.arange(len(order))
        return torch.cat(parts).float()[back.to(parts[0].device)]

    def _forward(self, model: Any, encoded: Sequence[Encoded]) -> torch.Tensor:
        sequences = [one.ids for one in encoded]
        device = self.model.device
        if self.yes is not None:
            ids, mask = (tensor.to(device) for tensor in padded(sequences, 0, left=True))
            places = (mask.cumsum(1) - 1).clamp(min=0)
            found = model(
                input_ids=ids, attention_mask=mask, position_ids=places, logits_to_keep=1, use_cache=False
            ).logits[:, -1, self.yes]
        else:
            ids, mask = (tensor.to(device) for tensor in padded(sequences, self.model.config.pad_token_id or 0))
            given = {"input_ids": ids, "attention_mask": mask}
            if self.types:
                kinds = [token_types(self.types, len(one.ids), one.prefix) for one in encoded]
                given["token_type_ids"] = padded(kinds, 0)[0].to(device)
            found = model(**given).logits[:, 0]
        result: torch.Tensor = found
        return result

    def save(self, folder: Path) -> None:
        """A folder that `ccheck query --rerank` and transformers read: safetensors, LoRA merged."""
        model = merged(self.adapted) if self.adapted is not None else self.model
        with loading_quietly():
            model.save_pretrained(folder, safe_serialization=True)
            self.tokenizer.save_pretrained(folder)
        file = folder / "config.json"
        config = json.loads(file.read_text(encoding="utf-8"))
        # A decoder's prompt is looked up by this name.
        named = json.dumps({**config, "_name_or_path": self.origin}, indent=2, sort_keys=True)
        file.write_text(f"{named}\n", encoding="utf-8")
        if self.settings is not None:
            (folder / ST_SETTINGS).write_text(self.settings, encoding="utf-8")


def load_rerank_model(options: RerankerOptions, device: str) -> RerankModel:
    """The base of a training on the CPU, the seed drawn for what is new.

    Raises NotFound or InvalidData for a base that is missing or unusable, and UsageError for a decoder without a known
    prompt.
    """
    import torch
    import transformers

    found = find_model(options.base)
    with loading_quietly():
        try:
            config = transformers.AutoConfig.from_pretrained(found.path, trust_remote_code=False, local_files_only=True)
            tokenizer = transformers.AutoTokenizer.from_pretrained(
                found.path, trust_remote_code=False, local_files_only=True
            )
        except Exception as error:
            # A folder can be broken in any way.
            raise InvalidData(f"{found.path} can't be trained: {first_line(error)}") from error
    architecture = (config.architectures or [""])[0]
    decoder = architecture.endswith("ForCausalLM")
    if architecture.startswith("LayerWise"):
        raise UsageError(
            f"{found.name} is a layerwise model, which can't be trained. Choose another base, such as "
            "bge-reranker-v2-gemma"
        )
    origin = json.loads((found.path / "config.json").read_text(encoding="utf-8")).get("_name_or_path") or found.name
    torch.manual_seed(options.seed)
    if not decoder:
        config.num_labels = 1
    kind = "AutoModelForCausalLM" if decoder else "AutoModelForSequenceClassification"
    half = options.lora is not None and device == "cuda"
    with loading_quietly():
        try:
            model, info = getattr(transformers, kind).from_pretrained(
                found.path,
                config=config,
                dtype=torch.bfloat16 if half else torch.float32,
                trust_remote_code=False,
                local_files_only=True,
                use_safetensors=True,
                output_loading_info=True,
                **({} if decoder else {"ignore_mismatched_sizes": True}),
            )
        except Exception as error:
            raise InvalidData(f"{found.path} can't be loaded to train a reranker: {first_line(error)}") from error
    drawn = {*info["missing_keys"], *(one[0] for one in info["mismatched_keys"])}
    strange = sorted(name for name in drawn if decoder or not set(name.split(".")) & set(HEADS))
    if strange:
        raise InvalidData(
            f"{found.path} is incomplete: weights of its {architecture} are missing, for example {strange[0]}"
        )
    heads = [part for name, part in model.named_children() if name in HEADS] if drawn else []
    adapted = add_lora(model, options.lora, heads) if options.lora is not None else None
    if options.gradient_checkpointing and adapted is not None:
        model.enable_input_require_grads()
    file = found.path / ST_SETTINGS
    settings = file.read_text(encoding="utf-8") if file.is_file() and not drawn and not decoder else None
    nothing = prompt_pairs(tokenizer, Prompt(""))
    made = RerankModel(found.name, model, tokenizer, nothing, None, None, bool(drawn), str(origin), adapted, settings)
    if decoder:
        return _decoder(made, options, found.path)
    return _encoder(made, options, settings is not None or bool(getattr(config, "sentence_transformers", None)))


def _encoder(made: RerankModel, options: RerankerOptions, said: bool) -> RerankModel:
    """With the ids that `rerank/load.py` gives the saved folder."""
    tokenizer, config = made.tokenizer, made.model.config
    own = positions(config) or 1 << 20
    length = _length(made.name, options, min(own, tokenizer.model_max_length))
    pairs = encoder_pairs(tokenizer, config, length, said=said)
    if pairs is None:
        raise InvalidData(
            f"{made.name} can't be trained: its tokenizer does not support pairs of a query and a passage"
        )
    types = pairs.template.types if takes_token_types(tokenizer, made.model) else None
    return replace(made, pairs=pairs, types=types)


def _decoder(made: RerankModel, options: RerankerOptions, path: Path) -> RerankModel:
    known = known_prompt({made.origin, made.name, path.name})
    if known is not None and known.no is not None:
        raise UsageError(
            f"{made.name} scores by the difference of two tokens, which ccheck can't train. Choose another"
        )
    if known is None:
        raise UsageError(
            f"ccheck does not know how to prompt the causal model {made.name}. Choose an encoder, or one of "
            + ", ".join(PROMPTS)
        )
    pairs = prompt_pairs(made.tokenizer, known)
    pairs = replace(
        pairs, length=_length(made.name, options, made.model.config.max_position_embeddings - pairs.longest)
    )
    (yes,) = own_ids(made.tokenizer, known.yes)
    return replace(made, pairs=pairs, yes=yes)


def _length(name: str, options: RerankerOptions, most: int) -> int:
    if options.max_tokens is not None and options.max_tokens > most:
        raise UsageError(f"{name} reads at most {most} tokens, not {options.max_tokens}")
    return options.max_tokens or min(DEFAULT_MAX_TOKENS, most)
