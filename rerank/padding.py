"""The forward pass of a reranking model on this machine, by transformers: sequences of like length in one batch,
padded, and no logits that nobody reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Padded:
    """`score` gives each sequence of a batch a score, from the model's inputs: ids, mask and, with `types` (those of a
    pair's two halves), token types."""

    score: Callable[[dict[str, Any]], torch.Tensor]
    device: torch.device
    batch_tokens: int
    padding: int = 0
    left: bool = False
    types: tuple[int, int] | None = None

    def __call__(self, sequences: Sequence[tuple[int, ...]], prefixes: Sequence[int]) -> list[tuple[int, float]]:
        import torch

        with torch.inference_mode():
            found = self.batches(sequences, prefixes)
            return [one for batch, scores in found for one in zip(batch, scores.float().tolist(), strict=True)]

    def batches(
        self, sequences: Sequence[tuple[int, ...]], prefixes: Sequence[int]
    ) -> Iterator[tuple[list[int], torch.Tensor]]:
        """The places of each batch's sequences with their scores; with gradients where torch computes them."""
        for batch in by_length(sequences, self.batch_tokens):
            ids, mask = padded([sequences[i] for i in batch], self.padding, left=self.left)
            given = {"input_ids": ids, "attention_mask": mask}
            if self.types is not None:
                types = [token_types(self.types, len(sequences[i]), prefixes[i]) for i in batch]
                given["token_type_ids"] = padded(types, 0, left=self.left)[0]
            yield batch, self.score({name: values.to(self.device) for name, values in given.items()})


def classifier(model: Any, types: tuple[int, int] | None, batch_tokens: int) -> Padded:
    """Of a sequence classifier with one label: its logit. `types` is None for a model that takes none."""
    padding = model.config.pad_token_id or 0
    return Padded(lambda given: model(**given).logits[:, 0], model.device, batch_tokens, padding, types=types)


def causal(model: Any, yes: int, no: int | None, batch_tokens: int) -> Padded:
    """Of a causal model: the logit of the token `yes` after the prompt, minus that of `no` where there is one."""

    def score(given: dict[str, Any]) -> torch.Tensor:
        logits = model(**given, position_ids=places(given), logits_to_keep=1, use_cache=False).logits[:, -1].float()
        scores: torch.Tensor = logits[:, yes] - (0 if no is None else logits[:, no])
        return scores

    return Padded(score, model.device, batch_tokens, left=True)


def places(given: dict[str, Any]) -> torch.Tensor:
    """The position of each id in its own sequence, where padding stands before it: [sequences, longest]."""
    found: torch.Tensor = (given["attention_mask"].cumsum(1) - 1).clamp(min=0)
    return found


def by_length(sequences: Sequence[tuple[int, ...]], tokens: int) -> list[list[int]]:
    """Which sequences go together, the longest first, so that a batch has at most `tokens` ids with its padding."""
    batches: list[list[int]] = []
    for i in sorted(range(len(sequences)), key=lambda i: -len(sequences[i])):
        if batches and (len(batches[-1]) + 1) * len(sequences[batches[-1][0]]) <= tokens:
            batches[-1].append(i)
        else:
            batches.append([i])
    return batches


def padded(
    sequences: Sequence[Sequence[int]], padding: int, *, left: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids and attention mask, [sequences, longest]."""
    import torch
    from torch.nn.utils.rnn import pad_sequence

    rows = [torch.tensor(sequence) for sequence in sequences]
    side = "left" if left else "right"
    ids = pad_sequence(rows, batch_first=True, padding_value=padding, padding_side=side)
    return ids, pad_sequence([torch.ones_like(row) for row in rows], batch_first=True, padding_side=side)


def token_types(halves: tuple[int, int], length: int, prefix: int) -> list[int]:
    """The token type of each id of a pair whose first `prefix` ids are the query's."""
    return [halves[0]] * prefix + [halves[1]] * (length - prefix)
