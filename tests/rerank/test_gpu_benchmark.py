"""The benchmark for a GPU, which nobody here has, runs on a CPU at small size: all its sides, and one that fails."""

import os
import re
import subprocess
import sys

import pytest
from paths import ROOT

from ccheck.core.models import cpu_has_bfloat16

SMALL = ("--device", "cpu", "--size", "tiny", "--count", "4", "--texts", "8", "--rounds", "1")


@pytest.mark.usefixtures("minilm")
def test_the_benchmark_for_a_gpu_runs_on_a_cpu(tmp_path):
    pytest.importorskip("FlagEmbedding", reason="the flagembedding extra is not installed")
    # Whoever has vLLM gets a failed side: it must not end the others.
    (tmp_path / "vllm.py").write_text("raise ImportError('no GPU')\n")
    words = [sys.executable, ROOT / "benchmarks" / "gpu.py", *SMALL]
    done = subprocess.run(words, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(tmp_path)})
    said = done.stdout
    assert done.returncode == 0 and "vLLM: failed: its error is above" in said, done.stderr[-2000:]
    assert "no GPU" in done.stderr
    differences = {side: float(value) for side, value in re.findall(r"(.+): largest difference .* (\S+), of", said)}
    most = {"ccheck": 1, "FlagLLMReranker": 1, "embed peer": 1e-5}
    if cpu_has_bfloat16():
        most["embed bfloat16"] = 1e-2
    assert differences.keys() == most.keys(), said
    assert all(0 < differences[side] < most[side] for side in most), differences
    for row in ("ccheck +4 s", "FlagLLMReranker +4 s", "ccheck float32 +4 s", "embed +texts s", "embed peer +texts s"):
        assert re.search(rf"^{row} +\d", said, re.MULTILINE), said
    assert "embedding | sentence-transformers, throughput | " in said


def test_it_says_what_to_do_without_a_gpu():
    words = [sys.executable, ROOT / "benchmarks" / "gpu.py"]
    done = subprocess.run(words, capture_output=True, text=True, env=os.environ | {"CUDA_VISIBLE_DEVICES": ""})
    assert done.returncode == 2 and "--device cpu --size tiny" in done.stderr
