"""Rerankers that are encoders with a head for one label: query and passage in one sequence, scored at its first token.

`PackedEncoder` lays sequences end to end without padding and computes the last layer at the first tokens only. BERT,
RoBERTa, XLM-RoBERTa, CamemBERT and ELECTRA share its arithmetic. Any other sequence classifier runs its own forward
pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from .linear import joined, rounded, slices
from .packing import rows, states_at
from .padding import Padded, token_types

if TYPE_CHECKING:
    import torch

PACKED = {
    "BertForSequenceClassification": "bert",
    "CamembertForSequenceClassification": "roberta",
    "ElectraForSequenceClassification": "electra",
    "RobertaForSequenceClassification": "roberta",
    "XLMRobertaForSequenceClassification": "roberta",
}
"""Architectures whose arithmetic is the one below, and under which name their body lies."""


class PackedEncoder:
    """The forward pass of an encoder of one of the architectures in `PACKED`."""

    def __init__(self, model: Any, types: tuple[int, int], batch_tokens: int) -> None:
        """`types`: the token types of the query's part and of the passage's."""
        self._model, self._halves, self._batch_tokens = model, types, batch_tokens
        self._body = getattr(model, PACKED[type(model).__name__])
        layers = self._body.encoder.layer
        self._layers = [_Layer(layer, apart=i == len(layers) - 1) for i, layer in enumerate(layers)]
        # RoBERTa's positions begin after the padding id, which no text has.
        self._first = model.config.pad_token_id + 1 if PACKED[type(model).__name__] == "roberta" else 0

    def __call__(self, sequences: Sequence[tuple[int, ...]], prefixes: Sequence[int]) -> Iterator[tuple[int, float]]:
        import torch

        for row in rows(sequences, [0] * len(sequences), self._batch_tokens):
            places: list[int] = []
            types: list[int] = []
            for i in row.members:
                places += range(self._first, self._first + len(sequences[i]))
                types += token_types(self._halves, len(sequences[i]), prefixes[i])
            empty = rounded(len(row.ids), self._body.embeddings.word_embeddings.weight.device) - len(row.ids)
            with torch.inference_mode():
                x = self._embed(*(some + some[-1:] * empty for some in (row.ids, places, types)))
                starts = [span.start for span in row.spans]
                values = self._head(states_at(starts, self._layers, x, row, causal=False)).float().tolist()
            yield from zip(row.members, values, strict=True)

    def _embed(self, ids: list[int], places: list[int], types: list[int]) -> torch.Tensor:
        import torch

        parts = self._body.embeddings
        words, positions, kinds = (
            table(torch.tensor(index, device=table.weight.device))
            for table, index in (
                (parts.word_embeddings, ids),
                (parts.position_embeddings, places),
                (parts.token_type_embeddings, types),
            )
        )
        x: torch.Tensor = parts.LayerNorm(words + kinds + positions)
        if hasattr(self._body, "embeddings_project"):
            x = self._body.embeddings_project(x)
        return x

    def _head(self, firsts: torch.Tensor) -> torch.Tensor:
        """Logits, [sequences]."""
        pooler = getattr(self._body, "pooler", None)
        states = firsts[:, None]
        if pooler is not None:
            states = pooler(states)
        logits: torch.Tensor = self._model.classifier(states)
        return logits[:, 0]


class _Layer:
    """A layer's maps; with `apart`, its queries apart from its keys and values."""

    def __init__(self, layer: Any, *, apart: bool) -> None:
        attention, output = layer.attention.self, layer.attention.output
        self._size = attention.attention_head_size
        self.scale = self._size**-0.5
        parts = (attention.query, attention.key, attention.value)
        self._apart = apart
        if apart:
            self._queries = joined(parts[:1])
        self._attention = joined(parts[1:] if apart else parts)
        self._out, self._first_norm = joined([output.dense]), output.LayerNorm
        self._inner = joined([layer.intermediate.dense], layer.intermediate.intermediate_act_fn)
        self._outer, self._second_norm = joined([layer.output.dense]), layer.output.LayerNorm

    def heads(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Queries, keys and values, or the last two: [tokens, heads, size]."""
        import torch

        found = torch.cat([self._attention(x[some]) for some in slices(x)])
        return found.view(len(x), -1, self._size).chunk(2 if self._apart else 3, 1)

    def query(self, x: torch.Tensor) -> torch.Tensor:
        """The queries of a layer that has them apart."""
        return self._queries(x).view(len(x), -1, self._size)

    def add(self, x: torch.Tensor, attended: torch.Tensor) -> None:
        """Make of x, in place, what the layer makes of it after attention."""
        for some in slices(x):
            part = self._out(attended[some].flatten(1))
            part += x[some]
            part = self._first_norm(part)
            outer = self._outer(self._inner(part))
            outer += part
            x[some] = self._second_norm(outer)


def packs(config: Any) -> bool:
    """Whether a model's arithmetic is that of `PackedEncoder`."""
    kind = getattr(config, "position_embedding_type", None) or "absolute"
    return (config.architectures or [""])[0] in PACKED and kind == "absolute" and not config.is_decoder


def own(model: Any, types: tuple[int, int] | None, batch_tokens: int) -> Padded:
    """The forward pass of any sequence classifier with one label; `types` is None for a model that takes none."""
    padding = model.config.pad_token_id or 0
    return Padded(lambda given: model(**given).logits[:, 0], model.device, batch_tokens, padding, types=types)
