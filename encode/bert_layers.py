"""The layers of a BERT, by numpy."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

_ROWS = 32
"""Rows that stay in a processor's cache while a function of several steps is applied to them."""

Linear = tuple["Floats", "Floats"]
"""Weight, shape [out, in], and bias."""


def read_layer(
    weights: dict[str, Floats], number: int, heads: int, epsilon: float
) -> Callable[[Floats, list[slice]], Floats]:
    """A layer of the model: from the states of all tokens to the next ones."""
    import numpy as np

    name = f"encoder.layer.{number}"
    parts = [named(weights, f"{name}.attention.self.{part}") for part in ("query", "key", "value")]
    dimensions = parts[0][0].shape[0]
    scale = np.float32(1 / math.sqrt(dimensions // heads))
    inside = np.concatenate([weight for weight, _ in parts]), np.concatenate([bias for _, bias in parts])
    # The queries' scale is put into the weights.
    inside[0][:dimensions] *= scale
    inside[1][:dimensions] *= scale
    outside, attention_norm = (named(weights, f"{name}.attention.output.{part}") for part in ("dense", "LayerNorm"))
    wide, narrow = named(weights, f"{name}.intermediate.dense"), named(weights, f"{name}.output.dense")
    norm = named(weights, f"{name}.output.LayerNorm")

    def layer(states: Floats, spans: list[slice]) -> Floats:
        mixed = _attention(_linear(states, inside), spans, heads)
        attended = _linear(mixed, outside)
        attended += states
        normalise(attended, attention_norm, epsilon)
        hidden = _linear(attended, wide)
        _gelu(hidden)
        result = _linear(hidden, narrow)
        result += attended
        normalise(result, norm, epsilon)
        return result

    return layer


def _attention(inside: Floats, spans: list[slice], heads: int) -> Floats:
    """`inside` has query, key and value of each token side by side."""
    import numpy as np

    dimensions = inside.shape[1] // 3
    mixed = np.empty((len(inside), dimensions), np.float32)
    for span in spans:
        parts = inside[span].reshape(-1, 3, heads, dimensions // heads)
        query, key, value = (parts[:, number].transpose(1, 0, 2) for number in range(3))
        shares = query @ key.transpose(0, 2, 1)
        shares -= shares.max(-1, keepdims=True)
        np.exp(shares, out=shares)
        shares /= shares.sum(-1, keepdims=True)
        mixed[span] = (shares @ value).transpose(1, 0, 2).reshape(-1, dimensions)
    return mixed


def _linear(states: Floats, layer: Linear) -> Floats:
    made: Floats = states @ layer[0].T
    made += layer[1]
    return made


def normalise(states: Floats, norm: Linear, epsilon: float) -> None:
    """Layer normalisation, in place."""
    import numpy as np

    for rows in _blocks(states, 8 * _ROWS):
        rows -= rows.mean(-1, keepdims=True)
        variance = np.einsum("ij,ij->i", rows, rows) / np.float32(rows.shape[1])
        rows /= np.sqrt(variance + np.float32(epsilon))[:, None]
        rows *= norm[0]
        rows += norm[1]


# erf(x) in float32 is x P(x²) / Q(x²) for |x| < 4 and its sign beyond, as Eigen and XLA have it.
_P = (
    *(-2.72614225801306e-10, 2.77068142495902e-08, -2.10102402082508e-06, -5.69250639462346e-05),
    *(-7.34990630326855e-04, -2.95459980854025e-03, -1.60960333262415e-02),
)
_Q = (
    *(-1.45660718464996e-05, -2.13374055278905e-04, -1.68282697438203e-03, -7.37332916720468e-03),
    -1.42647390514189e-02,
)


def _gelu(states: Floats) -> None:
    """x/2 (1 + erf(x/√2)), in place."""
    import numpy as np

    for rows in _blocks(states, _ROWS):
        x = np.clip(rows * np.float32(math.sqrt(0.5)), -4, 4)
        square = x * x
        above, below = _polynomial(_P, square), _polynomial(_Q, square)
        x *= above
        x /= below
        x += 1
        rows *= x
        rows *= np.float32(0.5)


def _polynomial(coefficients: Sequence[float], x: Floats) -> Floats:
    import numpy as np

    made: Floats = x * np.float32(coefficients[0])
    for coefficient in coefficients[1:-1]:
        made += np.float32(coefficient)
        made *= x
    made += np.float32(coefficients[-1])
    return made


def _blocks(states: Floats, rows: int) -> Iterator[Floats]:
    """Views of so many rows each."""
    return (states[start : start + rows] for start in range(0, len(states), rows))


def named(weights: dict[str, Floats], name: str) -> Linear:
    return weights[f"{name}.weight"], weights[f"{name}.bias"]
