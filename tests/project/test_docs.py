"""The documents are true: what they show runs, what they link to is there, what they describe is what there is."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
import tomllib
from collections import Counter
from pathlib import Path

import pytest
from cli_runs import ccheck, works

from ccheck.core import errors, settings
from ccheck.core.errors import InvalidData
from ccheck.core.recipe import recipe_names
from ccheck.core.settings import Settings, unasked
from ccheck.core.types import Claim, Document, Evidence, Hit, Result, Sentence, Stance, Verdict
from ccheck.demo import CLAIMS, CORPUS
from ccheck.web.access import keys_from

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    file for file in ROOT.rglob("*.md") if not {".venv", "build", "dist"} & set(file.relative_to(ROOT).parts)
)
PROBLEM = re.compile(r"no script|not understood|does not exist|names no")
TESTED = re.compile(r"<!-- tested -->\n+```(\w+)\n(.*?)```", re.DOTALL)
BLOCKS = [
    pytest.param(language, block, id=f"{file.relative_to(ROOT)}:{i}")
    for file in PAGES
    for i, (language, block) in enumerate(TESTED.findall(file.read_text(encoding="utf-8")), 1)
]


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.fixture
def one_cache(tmp_path_factory, monkeypatch):
    """The papers are embedded once for all examples."""
    monkeypatch.setenv("CCHECK_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "cache-of-docs"))


@pytest.mark.usefixtures("minilm", "one_cache")
@pytest.mark.parametrize(("language", "block"), BLOCKS)
def test_what_is_shown_runs(language, block):
    shutil.copy(CORPUS, "corpus.jsonl")
    claims = CLAIMS.read_text(encoding="utf-8").splitlines(keepends=True)
    Path("claims.jsonl").write_text("".join(claims[:6]), encoding="utf-8")
    shutil.copy(ROOT / "tests" / "ingest" / "formats" / "zotero.csv", "My Library.csv")
    Path("claims.txt").write_text("Sea level varies with temperature.\nVaccines cause autism.\nThe moon is cheese.\n")
    if language == "python":
        exec(compile(block, "README", "exec"), {})
        return
    assert language == "sh"
    if "ingest" not in block:
        assert ccheck("ingest", "corpus.jsonl").code == 0
    for line in block.splitlines():
        words = shlex.split(line, comments=True)
        if not words:
            continue
        words, into = (words[:-2], words[-1]) if ">" in words else (words, None)
        assert words[0] == "ccheck"
        ran = ccheck(*words[1:])
        assert ran.code == 0, (line, ran.err)
        if into:
            Path(into).write_text(ran.out, encoding="utf-8")
    if "evidence.md" in block:
        assert "<https://doi.org/10.1073/pnas.1517056113>" in Path("evidence.md").read_text(encoding="utf-8")
        answers = [json.loads(line) for line in Path("answers.jsonl").read_text(encoding="utf-8").splitlines()]
        assert len(answers) == 3 and all(0 <= one["relevance"] <= 1 for one in answers)


@pytest.mark.usefixtures("minilm", "one_cache")
def test_the_readme_shows_what_ccheck_prints():
    ((command, shown),) = re.findall(r"<!-- printed by: ccheck (.*) -->\n((?:(?: {4}.*)?\n)+)", read("README.md"))
    assert ccheck("ingest", CORPUS).code == 0
    ran = ccheck(*shlex.split(command))
    assert textwrap.dedent(shown).strip() in ran.out, ran.out


def test_the_readme_has_tested_blocks_and_every_extra_links_lead_somewhere_and_keys_are_long_enough():
    assert {language for language, _ in TESTED.findall(read("README.md"))} == {"sh", "python"}
    extras = tomllib.loads(read("pyproject.toml"))["project"]["optional-dependencies"]
    named = re.findall(r"^\| `pip install '\.\[(\w+)\]'` \|", read("README.md"), re.MULTILINE)
    assert {*named, "dev"} == set(extras)
    broken = []
    for file in PAGES:
        for target in re.findall(r"\]\(([^)\s]+)\)", file.read_text(encoding="utf-8")):
            if re.match(r"[a-z]+:", target):
                continue
            path, _, anchor = target.partition("#")
            led = (file.parent / path) if path else file
            if not led.exists() or (anchor and anchor not in anchors(led)):
                broken.append(f"{file.relative_to(ROOT)}: {target}")
    assert broken == []
    texts = [file.read_text(encoding="utf-8") for file in (*PAGES, ROOT / "cli" / "serve.py")]
    shown = [given for text in texts for given in re.findall(r'CCHECK_API_KEYS="?(\w+:.*?)"? ccheck', text)]
    assert len(shown) == 3 and all(map(keys_from, shown))


def claims_of_docs(*folder: Path) -> tuple[int, str]:
    """The exit code of the script, for the repository or a folder, and the problems that it names."""
    code = "import pathlib as p, sys, claims_of_docs as c; sys.exit(c.main(*map(p.Path, sys.argv[1:])))"
    words = [sys.executable, "-c", code, *map(str, folder)]
    done = subprocess.run(words, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(ROOT / "scripts")})
    return done.returncode, done.stdout + done.stderr


def test_every_measured_figure_names_the_script_that_measured_it():
    code, said = claims_of_docs()
    assert code == 0, [line for line in said.splitlines() if PROBLEM.search(line)]
    assert "benchmarks/scifact.py" in said


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("It reaches .749.", "no script"),
        ("It is made in about a minute.", "no script"),
        ("It takes 3.2 s.\n\n<!-- example -->\nIt takes 4 s.", "README.md:1: takes 3.2 s"),
        ("<!-- measured: benchmarks/gone.py a07701b 2026-11-23 -->\nIt reaches .749.", "does not exist"),
        ("<!-- measured: benchmarks/here.py -->\nIt reaches .749.", "not understood"),
        ("<!-- measured: benchmarks/here.py a07701b 2026-11-23 -->\nNone here.\n\nIt reaches .749.", "README.md:4"),
        ("<!-- measured: by row -->\n| `here.py` | 1.25 |\n", "the row names no script, commit and date"),
        ("<!-- measured: by row -->\n| `here.py` | 1.25 | a07701b 2026-11-23 |\n", ""),
        ("<!-- measured: benchmarks/here.py a07701b 2026-11-23 -->\n\nIt reaches .749, with `.5`.", ""),
    ],
)
def test_a_figure_without_its_script_is_found(tmp_path, text, problem):
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "here.py").touch()
    (tmp_path / "README.md").write_text(text)
    code, said = claims_of_docs(tmp_path)
    assert code == (1 if problem else 0) and problem in said, said


def anchors(file: Path) -> set[str]:
    """The names of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", file.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_page_on_the_command_line_names_exit_codes_and_what_a_folder_may_set():
    page = read("docs/cli.md")
    codes = {one.exit_code for one in vars(errors).values() if hasattr(one, "exit_code")}
    assert {int(code) for code in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)} == codes | {0, 130}
    allowed = page.partition("can set only")[2].partition("commands")[0]
    named = {word for word in re.findall(r"`(\w+)`", allowed) if word in Settings.model_fields}
    assert named - {"none"} == {name for name in Settings.model_fields if unasked(name) is not None}
    assert all(all(name in page for name in names) for names in settings._OTHER_NAMES.values())


def test_the_pages_on_recipes_and_json_name_every_recipe_and_key():
    assert [name for name in recipe_names() if f"| `{name}` |" not in read("docs/recipes.md")] == []
    sentence = Sentence("Seas rise.", "text", 0, 10, 0.5)
    hit = Hit(1, Document("d", "Sea", "Seas rise."), 1.0, {"bm25": 1.0}, {"bm25": 1})
    evidence, verdict = Evidence(hit, (sentence,), Stance("SUPPORTS")), Verdict("SUPPORTS")
    result = Result(Claim("Seas rise."), (evidence,), verdict, "default", "local:papers", error=InvalidData("why"))
    page = read("docs/json.md")
    assert [key for key in keys(result.to_dict()) if key not in page] == []


@pytest.mark.parametrize(
    "arguments",
    [
        *(["ingest", CORPUS, "--no-dense", "--dry-run"], ["ingest", CORPUS, "--no-dense"]),
        *(["index", "info"], ["index", "list"], ["config"], ["doctor"]),
    ],
)
def test_the_page_on_json_names_the_keys_of_other_commands(arguments):
    ccheck("ingest", CORPUS, "--no-dense")
    ran = works(*arguments, "--json")
    assert [key for key in ran.objects[0] if f"`{key}`" not in read("docs/json.md")] == []


def keys(value: object) -> set[str]:
    if isinstance(value, list):
        return {key for one in value for key in keys(one)}
    if not isinstance(value, dict) or "bm25" in value:  # by retriever
        return set()
    return set(value) | {key for one in value.values() for key in keys(one)}


DOCUMENTS, ROWS = ([json.loads(line) for line in file.read_text("utf-8").splitlines()] for file in (CORPUS, CLAIMS))
DOI = re.compile(r"10\.\d{4,9}/\S+")


def test_documents_are_complete_and_short_and_cover_every_topic() -> None:
    topics = Counter(row["topic"] for row in DOCUMENTS)
    assert len(DOCUMENTS) >= 60 and min(topics.values()) >= 12
    assert topics.keys() == {"climate", "health", "nutrition", "energy"}
    for key in ("_id", "doi", "title", "text"):
        assert len({row[key].casefold() for row in DOCUMENTS}) == len(DOCUMENTS), key
    for row in DOCUMENTS:
        assert set(row) == {"_id", "title", "text", "year", "first_author", "journal", "doi", "topic"}
        assert row["_id"].endswith(f"-{row['year']}") and DOI.fullmatch(row["doi"])
        assert 90 <= len(row["text"].split()) <= 170, row["_id"]


def test_a_claim_s_label_follows_from_its_evidence() -> None:
    assert [row["_id"] for row in ROWS] == [str(number) for number in range(1, 21)]
    assert len({row["text"].casefold() for row in ROWS}) == 20 and len({row["label"] for row in ROWS}) == 4
    assert (ROWS[0]["text"], ROWS[0]["label"]) == ("sea level has risen 20 cm since 1900", "SUPPORTS")
    for row in ROWS:
        assert set(row) == {"_id", "text", "label", "evidence"} and row["text"] == " ".join(row["text"].split()) != ""
        assert all(piece.keys() == {"doc_id", "label"} for piece in row["evidence"])
        stances = {piece["doc_id"]: piece["label"] for piece in row["evidence"]}
        assert 1 <= len(stances) == len(row["evidence"]) <= 4 and stances.keys() <= {one["_id"] for one in DOCUMENTS}
        decided = set(stances.values()) - {"NOT_ENOUGH_INFO"}
        assert decided <= {"SUPPORTS", "REFUTES"}
        assert row["label"] == ("CONFLICTING" if len(decided) > 1 else decided.pop() if decided else "NOT_ENOUGH_INFO")
