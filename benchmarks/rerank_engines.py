"""CrossEncoder with other engines for `rerank.py`, and which library multiplies in a side.

sentence-transformers takes its ONNX and OpenVINO backends from optimum, which doesn't install beside transformers 5.23.
So its model is exported here, and CrossEncoder does all but the forward pass: it tokenises, sorts and pads.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

ENGINES = {
    "CrossEncoder ONNX": ("onnxruntime", "onnx"),
    "CrossEncoder ONNX int8": ("onnxruntime", "onnx"),
    "CrossEncoder OpenVINO": ("openvino",),
    "CrossEncoder OpenVINO bfloat16": ("openvino",),
    "CrossEncoder OpenVINO int8": ("openvino", "nncf"),
}
"""The packages that each side needs."""
NAMES = ("input_ids", "attention_mask")


def missing(side: str) -> list[str]:
    return [name for name in ENGINES.get(side, ()) if find_spec(name) is None]


def use_engine(cross: Any, side: str, sample: Sequence[tuple[str, str]]) -> str:
    """Have a CrossEncoder run its forward pass in the engine of the side, on one thread. Returns what multiplies there.

    `sample`: pairs with which int8 is calibrated.
    """
    _, engine, *precision = side.split(" ")
    given = [{name: value.numpy() for name, value in _read(cross, [pair]).items()} for pair in sample]
    make = _onnx if engine == "ONNX" else _openvino
    run, library = make(cross.model.eval(), given, precision[0] if precision else "float32")
    import torch
    from transformers.modeling_outputs import SequenceClassifierOutput

    def forward(**read: Any) -> Any:
        logits = run({name: read[name].numpy() for name in NAMES})
        return SequenceClassifierOutput(logits=torch.from_numpy(np.array(logits)))

    cross.model.forward = forward
    return library


def _read(cross: Any, pairs: Sequence[tuple[str, str]]) -> dict[str, Any]:
    read = cross.tokenizer([a for a, _ in pairs], [b for _, b in pairs], truncation=True, max_length=512, padding=True)
    import torch

    return {name: torch.tensor(read[name]) for name in NAMES}


def _plain(model: Any) -> Any:
    """The model as a function of two tensors, for the exporters."""
    import torch

    class Logits(torch.nn.Module):
        def forward(self, input_ids: Any, attention_mask: Any) -> Any:
            return self.model(input_ids=input_ids, attention_mask=attention_mask).logits

    plain = Logits()
    plain.add_module("model", model)
    return plain


def _ones() -> tuple[Any, Any]:
    import torch

    return torch.ones(2, 8, dtype=torch.long), torch.ones(2, 8, dtype=torch.long)


def _onnx(model: Any, given: Sequence[dict[str, Any]], precision: str) -> tuple[Callable[[Any], Any], str]:
    import onnxruntime
    import torch

    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch, "model.onnx")
        axes = {name: {0: "pairs", 1: "tokens"} for name in NAMES}
        how = {"input_names": [*NAMES], "output_names": ["logits"], "dynamic_axes": axes, "dynamo": False}
        torch.onnx.export(_plain(model), _ones(), str(file), **how)
        if precision == "int8":
            from onnxruntime.quantization import QuantType, quantize_dynamic

            quantize_dynamic(file, file.with_name("int8.onnx"), weight_type=QuantType.QInt8, per_channel=True)
            file = file.with_name("int8.onnx")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    return lambda read: session.run(["logits"], read)[0], f"MLAS of ONNX Runtime {onnxruntime.__version__}, {precision}"


def _openvino(model: Any, given: Sequence[dict[str, Any]], precision: str) -> tuple[Callable[[Any], Any], str]:
    import openvino

    made = openvino.convert_model(_plain(model), example_input=_ones())
    for place, name in zip(made.inputs, NAMES, strict=True):
        place.get_tensor().set_names({name})
    if precision == "int8":
        import nncf

        with contextlib.redirect_stdout(sys.stderr):  # it draws its progress there
            made = nncf.quantize(made, nncf.Dataset(given), model_type=nncf.ModelType.TRANSFORMER)
    hint = "bf16" if precision == "bfloat16" else "f32"
    how = {"INFERENCE_PRECISION_HINT": hint, "INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1}
    compiled = openvino.compile_model(made, "CPU", how)
    request = compiled.create_infer_request()
    request.infer(given[0])  # it chooses what multiplies when it sees a shape
    kinds = Counter(
        node.rt_info["primitiveType"].astype(str)
        for node in compiled.get_runtime_model().get_ops()
        if node.rt_info["layerType"].astype(str) in ("FullyConnected", "MatMul")
    )
    said = ", ".join(f"{kind} ({count})" for kind, count in kinds.items())
    return lambda read: request.infer(read)[0], f"OpenVINO: {said}"


def torch_multiplies_with(run: Callable[[], Any]) -> str:
    """The libraries that torch calls for products of matrices, with the number of calls, as they say themselves."""
    import torch

    with tempfile.TemporaryFile() as said:
        sys.stdout.flush()
        before = os.dup(1)
        os.dup2(said.fileno(), 1)
        try:
            with torch.backends.mkl.verbose(1), torch.backends.mkldnn.verbose(1):
                run()
        finally:
            ctypes.CDLL(None).fflush(None)
            os.dup2(before, 1)
            os.close(before)
        said.seek(0)
        text = said.read().decode(errors="replace")
    calls = Counter(f"MKL {name}" for name in re.findall(r"^MKL_VERBOSE (\w*GEMM\w*)\(", text, re.MULTILINE))
    found = re.findall(r"^onednn_verbose,.*?exec,cpu,(?:matmul|inner_product),([^,]+),", text, re.MULTILINE)
    calls.update(f"oneDNN {name}" for name in found)
    return ", ".join(f"{name} ({count})" for name, count in calls.most_common()) or "neither MKL nor oneDNN"
