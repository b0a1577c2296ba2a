"""Sequences laid end to end, and attention over them."""

from __future__ import annotations

import random

import pytest

from ccheck.rerank.packing import Row, _attend_at_once, attend, attend_last, rows

torch = pytest.importorskip("torch", reason="the models extra is not installed")


def some_sequences(chance: random.Random) -> tuple[list[tuple[int, ...]], list[int]]:
    """Sequences of several queries, side by side and mixed, and how many ids at the start are the query's."""
    queries = [tuple(chance.choices(range(9), k=chance.randint(1, 12))) for _ in range(4)]
    sequences, prefixes = [], []
    for _ in range(25):
        query = chance.choice(queries)
        sequences.append(query + tuple(chance.choices(range(3), k=chance.randint(1, 30))))
        prefixes.append(len(query))
    return sequences, prefixes


def read(row: Row) -> list[list[int]]:
    """The sequences that a row says it has."""
    return [[*row.ids[s.shared_start : s.shared_end], *row.ids[s.start : s.end]] for s in row.spans]


@pytest.mark.parametrize("tokens", [1, 40, 200, 10_000])
def test_rows_hold_every_sequence_once_and_no_more_than_they_may(tokens: int) -> None:
    chance = random.Random(tokens)
    sequences, prefixes = some_sequences(chance)
    seen = []
    for row in rows(sequences, prefixes, tokens):
        assert [tuple(ids) for ids in read(row)] == [sequences[i] for i in row.members]
        places = [[*row.positions[s.shared_start : s.shared_end], *row.positions[s.start : s.end]] for s in row.spans]
        assert all(one == list(range(len(one))) for one in places)
        assert len(row.ids) <= tokens or len(row.members) == 1
        seen += row.members
    assert sorted(seen) == list(range(len(sequences)))
    whole = sum(map(len, sequences))
    laid = sum(len(row.ids) for row in rows(sequences, prefixes, 10_000))
    assert laid < whole == sum(len(row.ids) for row in rows(sequences, [0] * 25, 10_000))


def plain(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, places: list[int], scale: float, causal: bool) -> object:
    """Attention of one sequence, written out in float64."""
    q, k, v = (t[places].transpose(0, 1).double() for t in (q, k, v))
    k, v = (t.repeat_interleave(len(q) // len(t), 0) for t in (k, v))
    weights = q @ k.transpose(1, 2) * scale
    if causal:
        weights += torch.full((len(places), len(places)), float("-inf")).triu(1)
    return (weights.softmax(-1) @ v).transpose(0, 1)


def flash(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *cumulated: object, **options: object) -> torch.Tensor:
    """What torch's varlen_attn computes, one sequence after the other."""
    ends, keys, longest, _ = cumulated
    assert torch.equal(ends, keys)
    assert ends.dtype == torch.int32
    spans = list(zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True))
    assert longest == max(end - start for start, end in spans)
    causal = options["window_size"] == (-1, 0)
    parts = [plain(q, k, v, list(range(start, end)), options["scale"], causal) for start, end in spans]
    return torch.cat(parts).to(q.dtype)


@pytest.mark.parametrize("key_heads", [1, 4])
@pytest.mark.parametrize("causal", [True, False])
def test_attention_is_within_each_sequence(monkeypatch: pytest.MonkeyPatch, causal: bool, key_heads: int) -> None:
    chance = random.Random(key_heads)
    torch.manual_seed(0)
    sequences, prefixes = some_sequences(chance)
    for row in rows(sequences, prefixes if causal else [0] * len(prefixes), 150):
        q, k, v = (torch.randn(len(row.ids), heads, 8) for heads in (4, key_heads, key_heads))
        expected = torch.empty_like(q)
        lasts = []
        for span in (*row.shared, *row.spans):
            places = [*range(span.shared_start, span.shared_end), *range(span.start, span.end)]
            whole = plain(q, k, v, places, 0.3, causal).float()
            expected[span.start : span.end] = whole[-(span.end - span.start) :]
            lasts += [whole[-1]]
        assert torch.allclose(attend(q, k, v, row, scale=0.3, causal=causal), expected, atol=1e-5)
        last = attend_last(q[[span.end - 1 for span in row.spans]], k, v, row, scale=0.3)
        assert torch.allclose(last, torch.stack(lasts[len(row.shared) :]), atol=1e-5)
        # As on a GPU, with the kernel's arithmetic done here.
        assert torch.allclose(_attend_at_once(q, k, v, row, flash, 0.3, causal), expected, atol=1e-5)
        monkeypatch.setattr("ccheck.rerank.packing.LARGEST_MASK", 5)
        assert torch.allclose(attend(q, k, v, row, scale=0.3, causal=causal), expected, atol=1e-5)
        monkeypatch.undo()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_on_a_gpu_attention_at_once_is_that_of_one_by_one() -> None:
    torch.manual_seed(0)
    sequences, prefixes = some_sequences(random.Random(0))
    for row in rows(sequences, prefixes, 10_000):
        q, k, v = (torch.randn(len(row.ids), heads, 64, device="cuda") for heads in (8, 1, 1))
        half = attend(*(t.bfloat16() for t in (q, k, v)), row, scale=0.125, causal=True)
        assert torch.allclose(half.float(), attend(q, k, v, row, scale=0.125, causal=True), atol=0.05)
