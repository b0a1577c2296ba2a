"""A reranker for training: the token ids that it will read when it reranks, and scores with gradients.

It is a sequence classifier of transformers with one label (BERT, XLM-RoBERTa, ModernBERT and others). Any other encoder
gets a new head.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.errors import InvalidData, UsageError
from ...core.models import find_model, loading_quietly, positions, read_settings
from ...rerank.load import DEFAULT_MAX_TOKENS, encoder_pairs, takes_token_types
from ...rerank.padding import by_length, padded, token_types
from ...rerank.tokens import SpecialPairs
from ...rerank.types import Encoded
from .loop import classifier_to_train
from .options import RerankerOptions

if TYPE_CHECKING:
    import torch

BATCH_TOKENS = 16_384
"""Token ids in one forward pass."""
ST_SETTINGS = "config_sentence_transformers.json"


@dataclass(frozen=True, slots=True)
class RerankModel:
    """`pairs` gives the ids of a query and passages. `types` are the token types of a pair's halves, where the model
    reads them.

    `new_head`: before training its scores say nothing. `settings`: what sentence-transformers wrote of the base, to be
    saved again.
    """

    model: Any
    tokenizer: Any
    pairs: SpecialPairs
    types: tuple[int, int] | None
    new_head: bool
    settings: str | None

    def scores(self, model: Any, encoded: Sequence[Encoded]) -> torch.Tensor:
        """A logit for each pair, float32 with gradients: [pairs]. `model`: this one, as a trainer may have wrapped it.

        Pairs of like length go through together, so that little is padding.
        """
        import torch

        batches = by_length([one.ids for one in encoded], BATCH_TOKENS)
        found = torch.cat([self._forward(model, [encoded[i] for i in batch]) for batch in batches])
        order = torch.tensor([i for batch in batches for i in batch])
        return found.float()[order.argsort().to(found.device)]

    def _forward(self, model: Any, encoded: Sequence[Encoded]) -> torch.Tensor:
        device = self.model.device
        ids, mask = padded([one.ids for one in encoded], self.model.config.pad_token_id or 0)
        given = {"input_ids": ids.to(device), "attention_mask": mask.to(device)}
        if self.types:
            kinds = [token_types(self.types, len(one.ids), one.prefix) for one in encoded]
            given["token_type_ids"] = padded(kinds, 0)[0].to(device)
        logits: torch.Tensor = model(**given).logits[:, 0]
        return logits

    def save(self, folder: Path) -> None:
        """A folder that `ccheck query --rerank` and transformers read."""
        with loading_quietly():
            self.model.save_pretrained(folder, safe_serialization=True)
            self.tokenizer.save_pretrained(folder)
        if self.settings is not None:
            (folder / ST_SETTINGS).write_text(self.settings, encoding="utf-8")


def load_rerank_model(options: RerankerOptions) -> RerankModel:
    """The base of a training on the CPU, the seed drawn for what is new.

    Raises NotFound or InvalidData for a base that is missing or unusable, and UsageError for a decoder.
    """
    found = find_model(options.base)
    made_as = read_settings(found.path / "config.json", dict).get("architectures") or ()
    if any(str(name).endswith("ForCausalLM") for name in made_as):
        raise UsageError(f"{found.name} is a decoder, which ccheck can't train as a reranker. Choose an encoder")
    model, tokenizer, drawn = classifier_to_train(found, "reranker", options.seed, num_labels=1)
    config = model.config
    file = found.path / ST_SETTINGS
    settings = file.read_text(encoding="utf-8") if file.is_file() and not drawn else None
    most = min(positions(config) or 1 << 20, tokenizer.model_max_length)
    if options.max_tokens is not None and options.max_tokens > most:
        raise UsageError(f"{found.name} reads at most {most} tokens, not {options.max_tokens}")
    # The ids are those that `rerank/load.py` gives the saved folder.
    said = settings is not None or bool(getattr(config, "sentence_transformers", None))
    pairs = encoder_pairs(tokenizer, config, options.max_tokens or min(DEFAULT_MAX_TOKENS, most), said=said)
    if pairs is None:
        raise InvalidData(
            f"{found.name} can't be trained: its tokenizer does not support pairs of a query and a passage"
        )
    types = pairs.template.types if takes_token_types(tokenizer, model) else None
    return RerankModel(model, tokenizer, pairs, types, drawn, settings)
