"""Running ccheck as a user does, in this process or as a program of its own, and the stores that these tests share."""

from __future__ import annotations

import csv
import functools
import io
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from runtimes import on_cpu

from ccheck.cli import main, run
from ccheck.core import models
from ccheck.demo import CORPUS
from ccheck.encode import dense

if TYPE_CHECKING:
    from evaluation_data import Files

BM25 = ("--recipe", "bm25")
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def objects(self) -> list[dict[str, Any]]:
        """Standard output as JSON Lines; fails where a line is none."""
        return [json.loads(line) for line in self.out.split("\n")[:-1]]


def ccheck(*arguments: object, stdin: str | bytes = b"") -> Ran:
    """Run a command in this process."""
    given = io.TextIOWrapper(io.BytesIO(stdin if isinstance(stdin, bytes) else stdin.encode()), encoding="utf-8")
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", "backslashreplace", write_through=True) for _ in range(2))
    with pytest.MonkeyPatch.context() as patch:
        for name, stream in (("stdin", given), ("stdout", out), ("stderr", err)):
            patch.setattr(sys, name, stream)
        code = run([str(argument) for argument in arguments])
    said = [stream.buffer.getvalue().decode() for stream in (out, err)]
    return Ran(code, *said)


def works(*arguments: object) -> Ran:
    """Run a command that is to work: where it fails, so does the test, with what the command says."""
    ran = ccheck(*arguments)
    assert ran.code == 0, ran
    return ran


def entry_point(*arguments: object, **environ: str) -> Ran:
    """Run the program in this process from its very beginning, as its entry point does."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", "backslashreplace", write_through=True) for _ in range(2))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environ.items():
            patch.setenv(name, value)
        patch.setattr(sys, "argv", ["ccheck", *map(str, arguments)])
        for name, stream in (("stdin", io.StringIO()), ("stdout", out), ("stderr", err)):
            patch.setattr(sys, name, stream)
        with pytest.raises(SystemExit) as stop:
            main()
    assert isinstance(stop.value.code, int)
    return Ran(stop.value.code, *(stream.buffer.getvalue().decode() for stream in (out, err)))


def program(*arguments: object, **popen: Any) -> Ran:
    """Run a command as a program, without a terminal."""
    given = {"stdin": subprocess.DEVNULL} if "input" not in popen else {}
    done = subprocess.run(
        command(*arguments), **(given | {"capture_output": True, "timeout": 120, "check": False} | popen)
    )
    return Ran(done.returncode, *((said or b"").decode() for said in (done.stdout, done.stderr)))


def command(*arguments: object) -> list[str | bytes]:
    return [sys.executable, "-m", "ccheck", *(one if isinstance(one, bytes) else str(one) for one in arguments)]


def jsonl(path: Path, *records: Any) -> Path:
    """A file of one JSON value, or text as it is, a line."""
    lines = [record if isinstance(record, str) else json.dumps(record) for record in records]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def table(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    """A CSV or TSV file with a header."""
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, list(rows[0]), delimiter="\t" if path.suffix == ".tsv" else ",")
        writer.writeheader()
        writer.writerows(rows)
    return path


_load_embedder = dense.load_embedder


@functools.cache
def _loaded(name: str) -> dense.Embedder:
    return _load_embedder(name, on_cpu())


def needs_models() -> None:
    """Skips the test without the models extra. It is not imported: numpy runs the packaged model."""
    if find_spec("sentence_transformers") is None:
        pytest.skip("needs the extra models")


@pytest.fixture
def minilm(monkeypatch: pytest.MonkeyPatch) -> None:
    """The real model, loaded once for all tests."""
    needs_models()
    monkeypatch.setattr(dense, "load_embedder", lambda name, *_: _loaded(name))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.fixture
def no_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the models extra were not installed; `project/test_package.py` has an installation without it."""
    monkeypatch.setattr(models, "models_installed", lambda: False)


@pytest.fixture(scope="session")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A store with the sample corpus, for BM25; only to be read."""
    folder = tmp_path_factory.mktemp("papers") / "store"
    assert ccheck("ingest", CORPUS, "--store", folder, "--no-dense").code == 0
    yield folder


@pytest.fixture
def own_papers(papers: Path, tmp_path: Path) -> Path:
    """A copy of it, whose record of checks no other test has written to."""
    return shutil.copytree(papers, tmp_path / "papers")


@pytest.fixture(scope="session")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The same with embeddings; only to be read."""
    needs_models()
    folder = tmp_path_factory.mktemp("embedded")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dense, "load_embedder", lambda name, *_: _loaded(name))
        patch.setenv("CCHECK_CACHE_DIR", str(folder / "cache"))
        assert ccheck("ingest", CORPUS, "--store", folder / "store").code == 0
    yield folder / "store"


@pytest.fixture
def files(tmp_path: Path) -> Files:
    """The sample corpus' claims as files to evaluate with."""
    from evaluation_data import sample_files

    return sample_files(tmp_path)


@pytest.fixture
def no_server() -> str:
    """An address at which nobody listens."""
    import socket

    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{found.getsockname()[1]}"


def environment(**changes: str) -> dict[str, str]:
    return os.environ | changes


@pytest.fixture(scope="module")
def splade(tmp_path_factory: pytest.TempPathFactory) -> str:
    from tiny_sparse import make_splade

    return str(make_splade(tmp_path_factory.mktemp("models") / "splade"))


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> str:
    from runtimes import other_minilm

    return str(other_minilm(tmp_path_factory.mktemp("models") / "other"))
