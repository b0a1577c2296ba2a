"""Sequences laid end to end in one row, without padding, and attention over them.

The ids that a query's sequences begin with (start token, query, marker of the passage) are laid once before them and
computed once: in a causal model they do not see what follows.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from .linear import rounded

if TYPE_CHECKING:
    import torch

LARGEST_MASK = 2048
"""A sequence with more ids of its own recomputes its shared part's attention, which needs no mask in memory."""
BLOCK = 96
"""Queries of a causal sequence that are attended together."""


class Span(NamedTuple):
    """Where a sequence lies in a row: what it shares with others, and its own part."""

    shared_start: int
    shared_end: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class PackedRow:
    """Sequences laid end to end.

    `ids` and `positions` (places within each sequence) are as long as the row. `spans` has the sequences, `shared` the
    beginnings that several of them have in common, `members` says which sequences they are.
    """

    ids: list[int]
    positions: list[int]
    spans: list[Span]
    shared: list[Span]
    members: list[int]


def rows(sequences: Sequence[tuple[int, ...]], prefixes: Sequence[int], tokens: int) -> Iterator[PackedRow]:
    """Lay sequences into rows of at most `tokens` ids; a sequence that is longer has a row of its own.

    `prefixes` says how many ids at the start of each are its query's; sequences that have those in common share them.
    With a prefix of 0 nothing is shared.
    """
    groups: dict[tuple[int, ...], list[int]] = {}
    for i, (ids, prefix) in enumerate(zip(sequences, prefixes, strict=True)):
        groups.setdefault(ids[:prefix], []).append(i)
    row = PackedRow([], [], [], [], [])
    for key, members in groups.items():
        length = _common([sequences[i] for i in members]) if key and len(members) > 1 else 0
        head = sequences[members[0]][:length]
        shared: tuple[int, int] | None = None
        for i in members:
            tail = sequences[i][length:]
            if row.members and len(row.ids) + len(tail) + (length if shared is None else 0) > tokens:
                yield row
                row, shared = PackedRow([], [], [], [], []), None
            if shared is None:
                start = len(row.ids)
                shared = start, start + length
                if length:
                    row.ids.extend(head)
                    row.positions.extend(range(length))
                    row.shared.append(Span(start, start, *shared))
            start = len(row.ids)
            row.ids.extend(tail)
            row.positions.extend(range(length, length + len(tail)))
            row.spans.append(Span(*shared, start, start + len(tail)))
            row.members.append(i)
    if row.members:
        yield row


def _common(sequences: Sequence[tuple[int, ...]]) -> int:
    """How many ids sequences have in common at the start; each keeps one of its own."""
    low, high = min(sequences), max(sequences)
    same = next((i for i, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), min(len(low), len(high)))
    return min(same, min(map(len, sequences)) - 1)


def states_at(
    places: list[int],
    layers: Sequence[Any],
    x: torch.Tensor,
    row: PackedRow,
    *,
    rotary: tuple[torch.Tensor, ...] = (),
    causal: bool,
) -> torch.Tensor:
    """The last layer's states at one place of each sequence of a row: [sequences, size].

    Of the last layer, keys and values are computed everywhere; queries, output and feed-forward at those places only.
    `x`: the embeddings, [tokens, size], which are changed. `rotary`: cosine and sine of each token's position.
    """
    import torch

    for layer in layers[:-1]:
        q, k, v = layer.heads(x, *rotary)
        layer.add(x, attend(q, k, v, row, scale=layer.scale, causal=causal))
    layer, count = layers[-1], len(places)
    wanted = rounded(count, x.device)
    chosen = torch.tensor(places + places[-1:] * (wanted - count), device=x.device)
    k, v = layer.heads(x, *rotary)
    x = x[chosen]
    q = layer.query(x, *(part[chosen] for part in rotary))
    out = torch.zeros_like(q)
    out[:count] = attend_last(q[:count], k, v, row, scale=layer.scale)
    layer.add(x, out)
    return x[:count]


def attend(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, row: PackedRow, *, scale: float, causal: bool
) -> torch.Tensor:
    """Attention within each sequence of a row. Shapes: q [tokens, heads, size], k and v [tokens, key heads, size].

    Returns [tokens, heads, size], zeros behind the row's ids. On a GPU in half precision by one call of flash attention
    for all, else one by one.
    """
    import torch

    if q.is_cuda and q.dtype in (torch.float16, torch.bfloat16) and q.shape[-1] <= 256:
        flash = _varlen()
        if flash is not None:
            kernel = functools.partial(flash, scale=scale, window_size=(-1, 0) if causal else (-1, -1))
            return _attend_at_once(q, k, v, row, kernel)
    out = torch.empty_like(q)
    out[len(row.ids) :] = 0
    q, k, v = (t.transpose(0, 1)[None] for t in (q, k, v))
    masks: dict[int, torch.Tensor] = {}
    for span in (*row.shared, *row.spans):
        shared, own = span.shared_end - span.shared_start, span.end - span.start
        queries, mask = q[:, :, span.start : span.end], None
        if causal and own > LARGEST_MASK:
            queries = _with_shared(q, span)
        elif causal and shared:
            if shared not in masks:
                size = max(s.end - s.start for s in row.spans if s.end - s.start <= LARGEST_MASK)
                masks[shared] = q.new_full((size, shared + size), float("-inf")).triu_(shared + 1)
            mask = masks[shared][:own, : shared + own]
        keys, values = _with_shared(k, span), _with_shared(v, span)
        # Masked keys cost as much as others: some queries at a time, with the keys up to the last of them.
        step = own if mask is None else BLOCK
        for first in range(0, own, step):
            some = min(step, own - first)
            seen = keys.shape[2] if mask is None else shared + first + some
            answer = torch.nn.functional.scaled_dot_product_attention(
                queries if mask is None else queries[:, :, first : first + some],
                keys[:, :, :seen],
                values[:, :, :seen],
                attn_mask=None if mask is None else mask[first : first + some, :seen],
                is_causal=causal and mask is None,
                scale=scale,
                enable_gqa=k.shape[1] != q.shape[1],
            )
            out[span.start + first : span.start + first + some] = answer[0, :, -some:].transpose(0, 1)
    return out


def attend_last(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, row: PackedRow, *, scale: float) -> torch.Tensor:
    """Attention of one position of each sequence to the whole of it.

    Shapes: q [sequences, heads, size], k and v [tokens, key heads, size]; returns [sequences, heads, size].
    """
    import torch

    out = torch.empty_like(q)
    k, v = (t.transpose(0, 1)[None] for t in (k, v))
    for i, span in enumerate(row.spans):
        out[i] = torch.nn.functional.scaled_dot_product_attention(
            q[i][None, :, None],
            _with_shared(k, span),
            _with_shared(v, span),
            scale=scale,
            enable_gqa=k.shape[1] != q.shape[1],
        )[0, :, 0]
    return out


def _with_shared(t: torch.Tensor, span: Span) -> torch.Tensor:
    import torch

    own = t[:, :, span.start : span.end]
    if span.shared_start == span.shared_end:
        return own
    return torch.cat((t[:, :, span.shared_start : span.shared_end], own), 2)


def _attend_at_once(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, row: PackedRow, kernel: Callable[..., torch.Tensor]
) -> torch.Tensor:
    """All sequences by one kernel.

    The shared part is laid out again before each sequence, its queries too: kernels differ in how they align a causal
    mask if there are more keys than queries.
    """
    import torch

    whole, own, limits, longest = _layout((*row.shared, *row.spans), q.device)
    if k.shape[1] != q.shape[1]:
        k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], 1) for t in (k, v))
    answer = kernel(q[whole], k[whole], v[whole], limits, limits, longest, longest)
    out = torch.empty_like(q)
    out[whole[own]] = answer[own]
    return out


@functools.lru_cache(maxsize=2)  # every layer asks for the same
def _layout(spans: tuple[Span, ...], device: torch.device) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, int]:
    """Sequences with what they share laid out again before each.

    Returns which places of the row they are made of, at which of those each has its own part, where each ends
    (int32, with 0 before), and how long the longest is.
    """
    import torch

    pieces = [torch.cat((torch.arange(s.shared_start, s.shared_end), torch.arange(s.start, s.end))) for s in spans]
    ends = torch.tensor([0, *map(len, pieces)]).cumsum(0)
    own = [torch.arange(end - (s.end - s.start), end) for s, end in zip(spans, ends[1:].tolist(), strict=True)]
    return torch.cat(pieces).to(device), torch.cat(own).to(device), ends.to(device, torch.int32), max(map(len, pieces))


@functools.cache
def _varlen() -> Callable[..., Any] | None:
    """torch's attention over sequences of different lengths, where this version has it as it is called here."""
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        return None
    return varlen_attn if {"scale", "window_size"} <= set(inspect.signature(varlen_attn).parameters) else None
