"""Linear layers in the layout that the CPU multiplies fastest.

oneDNN, which comes with torch, has a layout of its own for weights, and applies an activation to what it still has at
hand: on a CPU that takes two thirds of the time of plain matrices, with the same sums. The weights are laid out once,
when a model is loaded; what they were made of is let go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import torch

Linear: TypeAlias = "Callable[[torch.Tensor], torch.Tensor]"
ROWS = 256
"""Rows at a time on a CPU: what is made of them on the way stays in its caches."""
ROWS_ELSEWHERE = 2048
STEP = 32
"""Numbers of rows are multiples of it on a CPU: for each that it meets oneDNN compiles a program."""
_FUSED = {"GELUTanh": ("gelu", "tanh"), "GELUActivation": ("gelu", "none"), "SiLUActivation": ("swish", "")}
"""Activations of transformers, by the names of their classes, and what oneDNN calls them."""


def joined(parts: Sequence[Any], activation: Any = None) -> Linear:
    """Joins several `torch.nn.Linear` of one input into one multiplication, outputs side by side; then an activation.

    The parts lose their weights.
    """
    import torch

    weight = torch.cat([part.weight.detach() for part in parts]) if len(parts) > 1 else parts[0].weight.detach()
    biases = [part.weight.new_zeros(len(part.weight)) if part.bias is None else part.bias.detach() for part in parts]
    bias = None if all(part.bias is None for part in parts) else torch.cat(biases)
    for part in parts:
        part.weight = None
    if not laid_out(weight):

        def plain(x: torch.Tensor) -> torch.Tensor:
            y = torch.nn.functional.linear(x, weight, bias)
            return y if activation is None else activation(y)

        return plain
    name, algorithm = _FUSED.get(type(activation).__name__, ("none", ""))
    after = None if name != "none" else activation
    own = torch.ops.mkldnn._reorder_linear_weight(weight, ROWS)

    def fast(x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = torch.ops.mkldnn._linear_pointwise(x, own, bias, name, [], algorithm)
        return y if after is None else after(y)

    return fast


def laid_out(weight: torch.Tensor) -> bool:
    """Whether weights get oneDNN's layout: on x86 processors, where this torch has the operators for it."""
    import torch

    if weight.device.type != "cpu" or not torch.backends.cpu.get_cpu_capability().startswith("AVX"):
        return False
    own, names = torch.ops.mkldnn, ("_reorder_linear_weight", "_linear_pointwise")
    if not torch._C._has_mkldnn or not all(hasattr(own, name) for name in names):
        return False
    return weight.dtype == torch.float32 or (weight.dtype == torch.bfloat16 and bool(own._is_mkldnn_bf16_supported()))


def slices(x: torch.Tensor) -> Iterator[slice]:
    """The rows of x, some at a time."""
    size = ROWS if x.device.type == "cpu" else ROWS_ELSEWHERE
    return (slice(start, start + size) for start in range(0, len(x), size))


def rounded(count: int, device: torch.device) -> int:
    """How many rows are computed where `count` are wanted."""
    return -(-count // STEP) * STEP if device.type == "cpu" else count
