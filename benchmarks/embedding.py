"""The embedding of documents by numpy and by sentence-transformers: documents a second, CPU time, peak memory.

    python benchmarks/embedding.py FILE [--documents N] [--rounds N] [--copies N]

FILE holds JSON Lines with `title` and `text`, such as SciFact's `corpus.jsonl.gz`. Each engine has a process of its
own, one after the other, `--rounds` times. All get the same texts, as an ingest gives them: 512 at a time, those of
like length together. `--copies` repeats the documents with other titles. The script compares the vectors, and fails
where float32 vectors differ by more than 1e-5. `bfloat16` is sentence-transformers in the format that some processors
calculate in.
"""

from __future__ import annotations

import itertools
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import click
import common

from ccheck.core.runtime import Runtime
from ccheck.encode.dense import DEFAULT_MODEL

ENGINES = ("numpy", "torch", "bfloat16")


@click.command()
@click.argument("file", type=click.Path(path_type=Path, exists=True))
@click.option("--documents", default=512, show_default=True, help="Number of documents.")
@click.option("--copies", default=1, show_default=True, help="How often they are repeated, each time with new titles.")
@click.option("--rounds", default=1, show_default=True, help="How often each engine runs.")
@click.option("--engine", "engines", multiple=True, type=click.Choice(ENGINES), default=("numpy", "torch"))
@click.option("--child", hidden=True)
def main(file: Path, documents: int, copies: int, rounds: int, engines: tuple[str, ...], child: str | None) -> None:
    if child is not None:
        run(child, Path(file), Path(os.environ["VECTORS"]))
        return
    import numpy as np

    with tempfile.TemporaryDirectory() as scratch:
        texts = Path(scratch, "texts.json")
        texts.write_text(json.dumps(read(file, documents, copies)))
        count = len(json.loads(texts.read_text()))
        print(common.machine(f"load {os.getloadavg()[0]:.1f}", f"{count:,} documents"))
        print(f"{'':<10}{'docs/s':>9}{'CPU s':>9}{'CPU/doc':>9}{'load CPU':>9}{'peak MB':>9}")
        for _ in range(rounds):
            for engine in engines:
                command = [sys.executable, __file__, str(texts), "--child", engine]
                vectors = f"{scratch}/{engine}.npy"
                done = subprocess.run(command, env=os.environ | {"VECTORS": vectors}, capture_output=True, check=True)
                told: dict[str, Any] = json.loads(done.stdout)
                print(
                    f"{engine:<10}{count / told['wall']:>9.1f}{told['cpu']:>9.1f}{told['cpu'] / count:>9.4f}"
                    f"{told['loading']:>9.2f}{told['peak'] / 1024:>9.0f}",
                    flush=True,
                )
        made = {engine: np.load(f"{scratch}/{engine}.npy") for engine in engines}
        for engine in engines[1:]:
            difference = float(np.abs(made[engines[0]] - made[engine]).max())
            cosine = float((made[engines[0]] * made[engine]).sum(axis=1).min())
            print(f"{engines[0]} and {engine}: largest difference {difference:.1e}, least cosine {cosine:.7f}")
            assert "bfloat16" in (engine, engines[0]) or difference < 1e-5


def read(file: Path, documents: int, copies: int) -> list[str]:
    """Texts as they are embedded, in the order of an ingest."""
    rows = list(itertools.islice(common.rows(file), documents))
    texts = [
        "\n".join([f"{row.get('title', '')}{f' ({copy})' if copy else ''}", row["text"]])
        for copy in range(copies)
        for row in rows
    ]
    return sorted(texts, key=lambda text: -len(text))


def run(engine: str, texts: Path, to: Path) -> None:
    """Embed with one engine, and say in JSON what it took."""
    import numpy as np

    from ccheck.encode.cache import SLICE
    from ccheck.encode.dense import Embedder, load_embedder

    given: list[str] = json.loads(texts.read_text())
    started = time.process_time()
    embedder: Any = load_embedder(DEFAULT_MODEL, Runtime())
    if engine == "numpy":
        embedder.encode_queries(["sea level"])
        encode = embedder.encode_queries
    else:
        import torch

        def encode(some: list[str]) -> Any:
            with torch.autocast("cpu", torch.bfloat16, enabled=engine == "bfloat16"):
                return Embedder._encode(embedder, embedder._model.encode_document, some)

        encode(["sea level"])
    loading, wall, cpu = time.process_time() - started, time.perf_counter(), time.process_time()
    vectors = [encode(given[start : start + SLICE]) for start in range(0, len(given), SLICE)]
    told = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu, "loading": loading}
    np.save(to, np.concatenate(vectors))
    print(json.dumps(told | {"peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}))


if __name__ == "__main__":
    main()
