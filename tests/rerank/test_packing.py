"""Sequences laid end to end, and attention over them."""

from __future__ import annotations

import functools
import random
from collections.abc import Sequence

import pytest

from ccheck.rerank.packing import PackedRow, _attend_at_once, attend, attend_last, rows
from ccheck.rerank.types import Encoded, Scorer

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


def read(row: PackedRow) -> list[list[int]]:
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
        kernel = functools.partial(flash, scale=0.3, window_size=(-1, 0) if causal else (-1, -1))
        assert torch.allclose(_attend_at_once(q, k, v, row, kernel), expected, atol=1e-5)
        # A few queries at a time, long sequences without a mask, and rows behind the last sequence.
        monkeypatch.setattr("ccheck.rerank.packing.BLOCK", 4)
        assert torch.allclose(attend(q, k, v, row, scale=0.3, causal=causal), expected, atol=1e-5)
        monkeypatch.setattr("ccheck.rerank.packing.LARGEST_MASK", 5)
        more = [torch.cat((t, torch.full((3, *t.shape[1:]), float("nan")))) for t in (q, k, v)]
        found = attend(*more, row, scale=0.3, causal=causal)
        assert torch.allclose(found[:-3], expected, atol=1e-5)
        assert torch.equal(found[-3:], torch.zeros(3, 4, 8))
        monkeypatch.undo()


@pytest.mark.parametrize(
    ("sequences", "shared"),
    [
        # More than the query can be in common, and each keeps an id of its own.
        ([(1, 1, 3, 4), (1, 1, 3, 5)], 3),
        ([(1, 1, 3), (1, 1, 3, 5)], 2),
        ([(1, 1, 3), (1, 1, 3)], 2),
        ([(1, 1), (1, 1, 3)], 1),
        ([(1, 1, 4, 9), (1, 1, 2, 9), (1, 1, 3, 9)], 2),
    ],
)
def test_what_sequences_have_in_common_is_laid_once(sequences: list[tuple[int, ...]], shared: int) -> None:
    (row,) = rows(sequences, [2] * len(sequences), 100)
    assert [span.end - span.start for span in row.shared] == [shared]
    assert all(span.end > span.start for span in row.spans)
    assert len(row.ids) == shared + sum(len(one) - shared for one in sequences)
    for alone in (rows(sequences[:1], [2], 100), rows(sequences, [0] * len(sequences), 100)):
        (row,) = alone
        assert not row.shared and all(span.shared_start == span.shared_end for span in row.spans)


def test_equal_ids_are_scored_once() -> None:
    asked = []

    def forward(sequences: Sequence[tuple[int, ...]], prefixes: Sequence[int]) -> list[tuple[int, float]]:
        asked.extend(zip(sequences, prefixes, strict=True))
        return [(place, float(sum(sequence))) for place, sequence in enumerate(sequences)][::-1]

    encoded = [Encoded((1, 2), False, 1), Encoded((3,), False, 1), Encoded((1, 2), False, 1), Encoded((3,), False)]
    scorer = Scorer("m", lambda query, passages: [], forward, 8)
    assert scorer.score(encoded) == [3.0, 3.0, 3.0, 3.0]
    assert asked == [((1, 2), 1), ((3,), 1), ((3,), 0)]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_on_a_gpu_attention_at_once_is_that_of_one_by_one() -> None:
    torch.manual_seed(0)
    sequences, prefixes = some_sequences(random.Random(0))
    for row in rows(sequences, prefixes, 10_000):
        q, k, v = (torch.randn(len(row.ids), heads, 64, device="cuda") for heads in (8, 1, 1))
        half = attend(*(t.bfloat16() for t in (q, k, v)), row, scale=0.125, causal=True)
        assert torch.allclose(half.float(), attend(q, k, v, row, scale=0.125, causal=True), atol=0.05)
