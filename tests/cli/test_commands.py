"""`ccheck demo`, `index`, `recipes`, `config`, `doctor`, and what they all have in common."""

import contextlib
import inspect
import json
import logging
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from cli_runs import BM25, ccheck
from click.shell_completion import BashComplete
from http_stub import Reply, http_stub

from ccheck.cli import COMMANDS, cli
from ccheck.cli.common import warnings_said
from ccheck.cli.demo import SHOWN
from ccheck.core import errors, models
from ccheck.core.recipe import load_recipe, models_used, recipe_names
from ccheck.demo import CLAIMS, CORPUS
from ccheck.encode.dense import MINILM


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        yield (*path, name), command
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))


ALL = [((), cli), *commands(cli)]


def test_a_bug_is_called_one(monkeypatch, capsys, caplog):
    def broken() -> list[str]:
        raise RuntimeError("two and two \x1b[31mmake five")

    monkeypatch.setattr("ccheck.core.recipe.recipe_names", broken)
    ran = ccheck("recipes", "list")
    assert ran.code == 1 and "a bug in ccheck: RuntimeError: two and two [31mmake five" in ran.err
    assert "CCHECK_DEBUG=1" in ran.err
    monkeypatch.setenv("CCHECK_DEBUG", "1")
    with pytest.raises(RuntimeError):
        ccheck("recipes", "list")
    with warnings_said(), contextlib.suppress(RuntimeError):  # as a server that goes on logs it
        logging.getLogger("elastic_transport.node_pool").warning("Node has failed for 1 times in a row")
        try:
            broken()
        finally:
            logging.getLogger("ccheck.web").exception("a bug in a job")
    assert "1 times" not in caplog.text
    assert re.search(
        r"ccheck: a bug in a job\n.*in broken\n.*two and two \[31mmake", capsys.readouterr().err, re.DOTALL
    )


def test_what_the_system_refuses_is_no_bug(papers):
    name = "a" * 5_000
    query = "query", "--store", papers
    for words in (("ingest", "--no-dense"), (*query, "--claims"), (*query, "x", "--recipe"), ("recipes", "show")):
        ran = ccheck(*words, name)
        assert ran.code == 4 and "File name too long" in ran.err and "a bug" not in ran.err, words
    ran = ccheck("query", "x", "--store", name)
    assert ran.code in (4, 7) and "a bug" not in ran.err


@pytest.mark.usefixtures("no_models")
def test_demo():
    ran = ccheck("demo")
    shown = json.loads(CLAIMS.read_text(encoding="utf-8").splitlines()[SHOWN])["text"]
    assert ran.code == 0 and ran.out.startswith(f"Claim  {shown}\n")
    claim, first_paper, *_, verdict, steps = ran.out.strip().split("\n\n")
    assert claim == f"Claim  {shown}" and first_paper.startswith("  1  ")
    assert verdict.startswith("Verdict  ") and "Judged by packaged stance model" in verdict
    assert steps.count("  # ") == 3 and "ccheck query --store local:demo" in steps
    again = ccheck("demo", "vaccines cause autism", "-k", "1", "-q")
    assert again.code == 0 and again.out.startswith("Claim  vaccines cause autism\n") and again.err == ""


@pytest.mark.slow
def test_the_demo_names_the_program_as_the_shell_finds_it(tmp_path, monkeypatch):
    """`make demo` leaves it in a folder that is not in PATH."""
    monkeypatch.setattr(sys, "argv", [str(tmp_path / ".venv" / "bin" / "ccheck")])
    monkeypatch.setenv("PATH", str(tmp_path))
    assert f"\n  {Path('.venv/bin/ccheck')} query --store local:demo" in ccheck("demo").out
    program = tmp_path / "ccheck"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert "\n  ccheck query --store local:demo" in ccheck("demo").out


def test_index_list():
    ran = ccheck("index", "list")
    assert (ran.code, ran.out) == (0, "") and "Make one with ccheck ingest FILE" in ran.err
    for name in ("one", "two"):
        ccheck("ingest", CORPUS, "--no-dense", "--store", f"local:{name}", "-q")
    damaged = Path("home/data/damaged/documents.sqlite")
    damaged.parent.mkdir()
    damaged.write_text("not a database")
    ran = ccheck("index", "list")
    lines = ran.out.splitlines()
    assert ran.code == 0 and [line.split()[0] for line in lines] == ["local:damaged", "local:one", "local:two"]
    assert "can't" in lines[0] or "not a store" in lines[0]
    assert {line.index("71 documents") for line in lines[1:]} == {lines[0].index(lines[0].split()[1])}
    assert [told["documents"] for told in ccheck("index", "list", "--json").objects] == [None, 71, 71]


def test_index_rebuild(papers, own_papers, tmp_path, no_server):
    ran = ccheck("index", "rebuild", "--store", own_papers)
    assert ran.code == 0 and "was rebuilt: 71 documents" in ran.err
    query = ("query", "sea level", *BM25, "--no-record")
    assert ccheck(*query, "--store", own_papers).out == ccheck(*query, "--store", papers).out
    assert ccheck("index", "rebuild", "--store", tmp_path / "nothing").code == 4
    assert ccheck("index", "rebuild", "--store", f"{no_server}/papers").code == 2


def test_index_delete_asks(papers, tmp_path):
    shutil.copytree(papers, tmp_path / "copy")
    for answer, code in (("n\n", 0), ("\n", 0), ("", 2)):
        ran = ccheck("index", "delete", "--store", tmp_path / "copy", stdin=answer)
        assert ran.code == code and "with its 71 documents?" in " ".join(ran.err.split())
        assert ("Use --yes" in ran.err) == (answer == "")
        assert ccheck("index", "info", "--store", tmp_path / "copy").code == 0
    (tmp_path / "copy" / "notes.txt").write_text("mine")
    ran = ccheck("index", "delete", "--store", tmp_path / "copy", stdin="y\n")
    assert ran.code == 0 and str(tmp_path / "copy" / "notes.txt") in ran.err
    assert [file.name for file in (tmp_path / "copy").iterdir()] == ["notes.txt"]
    shutil.rmtree(tmp_path / "copy")
    shutil.copytree(papers, tmp_path / "copy")
    ran = ccheck("index", "delete", "--store", tmp_path / "copy", "--yes")
    assert ran.code == 0 and "was deleted" in ran.err and not (tmp_path / "copy").exists()
    assert ccheck("index", "delete", "--store", tmp_path / "copy", "--yes").code == 4
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "one.png").touch()
    assert ccheck("index", "delete", "--store", tmp_path / "photos", "--yes").code == 4
    assert (tmp_path / "photos" / "one.png").exists()


def test_recipes_list(monkeypatch):
    assert [line.split()[0] for line in ccheck("recipes", "list").out.splitlines()] == recipe_names()
    told = {one["name"]: one["lacks"] for one in ccheck("recipes", "list", "--json").objects}
    assert list(told) == recipe_names()
    # Those that run here, and what others lack.
    assert told["bm25"] == told["default"] == [] and "bge-m3-climatecheck" in told["climatecheck-hybrid"]
    monkeypatch.delitem(models.PACKAGED, MINILM)
    lines = {line.split()[0]: line for line in ccheck("recipes", "list").out.splitlines()}
    assert lines["figures"].endswith(f"Runs here without {MINILM}.") and lines["default"].endswith("Runs here.")
    assert lines["bm25"].endswith("Runs here.") and "Lacks naver/splade-v3, " in lines["climatecheck-hybrid"]
    # A reranker that `auto` does not find is named.
    monkeypatch.setattr(models, "best_device", lambda: "cpu")
    (found,) = ccheck("recipes", "check", "default", "--json").objects
    assert found["usable"] and "only with a GPU or a reranking server" in found["models"]["auto (optional)"]


@pytest.mark.parametrize("name", [name for name in recipe_names() if load_recipe(name).source is not None])
def test_a_published_system_is_shown_with_its_models_and_decisions(name):
    (found,) = ccheck("recipes", "check", name, "--json").objects
    assert found["decisions"] == load_recipe(name).decisions
    told = ccheck("recipes", "check", name).out
    if name == "climatecheck-hybrid":
        assert "naver/splade-v3" in told and "not installed" in told
    assert "decision 1 " in told and "As published, except" in told


def test_a_recipe_shown_is_one_that_can_be_used_and_one_that_is_none_is_said(tmp_path, papers):
    for name in recipe_names():
        (tmp_path / "mine.toml").write_text(ccheck("recipes", "show", name).out)
        assert load_recipe(str(tmp_path / "mine.toml")) == load_recipe(name)
        # 4: it is a recipe, and names models that are not on this machine.
        missing = models_used(load_recipe(name)).keys() - models.PACKAGED.keys()
        assert ccheck("recipes", "check", tmp_path / "mine.toml").code == (4 if missing else 0)
    file = tmp_path / "mine.toml"
    file.write_text('extends = "bm25"\nretrievers.bm25.depth = 7\n')
    told = ccheck("recipes", "check", file).out
    assert "mine.toml. Your own." in told and '{bm25 = {kind = "bm25", depth = 7, ' in " ".join(told.split())
    file.write_text('extends = "bm25"\nverdict.calibration = "none.json"\n')
    assert "none.json does not exist" in ccheck("recipes", "check", file).err
    file.write_text("[retrievers.bm25]\ndpeth = 1")
    for arguments in (["recipes", "check", file], ["query", "x", "--store", papers, "--recipe", file]):
        ran = ccheck(*arguments)
        assert ran.code == 5 and "unknown key dpeth: did you mean 'depth'?" in ran.err and "a bug" not in ran.err


def test_config(monkeypatch):
    monkeypatch.setenv("CCHECK_STORE", "local:mine")
    monkeypatch.setenv("ELASTIC_PASSWORD", "s3cret-word")
    ran = ccheck("config")
    assert "(set)" in ran.out and "s3cret" not in ran.out
    assert ran.code == 0 and ran.out.split()[:3] == ["store", "local:mine", "CCHECK_STORE"]
    told = {one["name"]: one for one in ccheck("config", "--json").objects}
    assert told["store"]["value"] == "local:mine" and told["store"]["from"] == "CCHECK_STORE"
    assert told["recipe"]["from"] == "default" and "ES_URL" in told["elasticsearch_url"]["variables"]


def findings(*arguments: object) -> tuple[int, dict[str, tuple[str, str]]]:
    ran = ccheck("doctor", *arguments, "--json")
    return ran.code, {told["part"]: (told["status"], told["detail"]) for told in ran.objects}


def test_doctor_when_all_is_well_or_a_server_is_not_in_use(papers, no_server, monkeypatch):
    monkeypatch.setitem(sys.modules, "trafilatura", None)
    code, found = findings("--store", papers)
    assert code == 0 and {found[part][0] for part in ("python", "packages", "recipe", "store")} == {"ok"}
    assert ("with OpenVINO" in found["model"][1]) == (found["fast"][0] == "ok")
    assert found["pages"][0] == "absent" and "trafilatura can't be loaded (" in found["pages"][1]
    assert "71 documents" in found["store"][1] and found["elasticsearch"][0] == "absent"
    lines = ccheck("doctor", "--store", papers).out.splitlines()
    assert f"ok      setting        store = {papers} (from flag)" in lines
    assert {line.split()[0] for line in lines} <= {"ok", "absent"} and len(lines) >= 9
    monkeypatch.setenv("ELASTICSEARCH_URL", no_server)
    code, found = findings("--store", papers, "--write-profile")
    assert code == 2 and "nothing was written" in found["profile"][1]  # ccheck made the store
    assert found["elasticsearch"][0] == "absent" and "not in use" in found["elasticsearch"][1]


def test_doctor_ends_with_the_code_of_what_failed_and_knows_a_misspelt_variable(no_server, monkeypatch):
    code, found = findings("--store", f"{no_server}/papers")
    assert code == 6 and found["elasticsearch"][0] == found["store"][0] == "failed"
    assert no_server in found["elasticsearch"][1]
    assert {findings("--store", one)[0] for one in ("ftp://nothing", "http://[::1", "local:my papers")} == {2}
    monkeypatch.setenv("CCHECK_RECIPE", "none-of-them")
    code, found = findings()
    assert code == 4 and found["recipe"][0] == found["store"][0] == "failed" and "setting" in found
    monkeypatch.setenv("CCHECK_STOER", "local:mine")
    monkeypatch.setenv("CCHECK_SERVE_DEVICE", "cpu")  # ccheck serve knows this one
    said = ccheck("doctor").out
    assert "CCHECK_STOER is not a ccheck setting: did you mean CCHECK_STORE?" in said
    assert "CCHECK_SERVE_DEVICE" not in said


DENIED = b'{"error": {"type": "security_exception", "reason": "who are you"}, "status": 401}'
ODD = [(200, b"<html>It works!</html>"), (200, b"[]"), (401, DENIED), (404, b"nothing here"), (500, b"oh no")]


@pytest.mark.parametrize(("status", "body"), ODD)
def test_a_server_that_is_no_elasticsearch(status, body, monkeypatch):
    monkeypatch.setenv("CCHECK_ELASTICSEARCH_RETRY_SECONDS", "0")
    with http_stub(lambda _: Reply(body, status, {"Content-Type": "application/json"})) as server:
        for arguments in (["query", "x"], ["ingest", CORPUS, "--no-dense"], ["index", "info"], ["doctor"]):
            ran = ccheck(*arguments, "--store", f"{server.url}/papers")
            assert ran.code in (4, 6) and "a bug" not in ran.err, (arguments, ran)
            assert server.url in ran.err + ran.out


@pytest.mark.parametrize(("path", "command"), ALL, ids=[" ".join(path) or "ccheck" for path, _ in ALL])
def test_help_names_every_option_has_an_example_and_fits_a_terminal(path, command):
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help and parameter.help[0].isupper(), parameter.opts
    ran = ccheck(*path, "--help")
    assert ran.code == 0 and ran.err == "" and ccheck(*path, "-h").out == ran.out
    assert max(map(len, ran.out.splitlines())) <= 80
    assert "..." not in ran.out.partition("Commands:")[2]  # no command's line is cut short
    # The lines that click is told to leave as they are.
    blocks = [part for part in inspect.cleandoc(command.help).split("\n\n") if part.startswith("\b\n")]
    shown = [line for block in blocks for line in block.removeprefix("\b\n").splitlines()]
    assert all(f"  {line}".rstrip() in ran.out for line in shown)
    assert any(line.startswith(" ".join(["ccheck", *path])) for line in shown)
    known = dict(ALL)
    for line in shown:
        words = shlex.split(line.partition("  ")[0].partition(" > ")[0])
        words = words[words.index("ccheck") + 1 :]
        called = max((one for one in known if tuple(words[: len(one)]) == one), key=len)
        options = {name for parameter in known[called].params for name in parameter.opts}
        assert {word for word in words[len(called) :] if re.match(r"--?[a-z]", word)} <= options, line


def test_help_has_the_three_that_matter_first_all_exit_codes_and_what_each_command_says_of_itself():
    shown = ccheck("--help").out
    headings = re.findall(r"^(\w[\w ]*):$", shown, re.MULTILINE)
    assert headings == ["Start here", "Every day", "Laboratory", "Servers", "Options"]
    assert re.findall(r"^  (\w+)  ", shown.partition("Start here:")[2].partition("Every day:")[0], re.MULTILINE) == [
        *("demo", "ingest", "query")
    ]
    codes = {error.exit_code for error in vars(errors).values() if hasattr(error, "exit_code")}
    assert [code for code in codes if f" {code} " not in " ".join(shown.split())] == []
    assert "variables, the one with WEB in its name wins" in " ".join(ccheck("serve", "web", "--help").out.split())
    ran = ccheck()
    assert ran.code == 2 and "Usage: ccheck" in ran.err and "ingest" in ran.err
    for name in COMMANDS:
        command = cli.get_command(click.Context(cli), name)
        line = inspect.cleandoc(command.help).split("\n")[0]
        assert command.name == name and re.search(rf"^  {name} +{re.escape(line[:50])}", shown, re.MULTILINE)


def test_a_misspelt_command_is_named():
    for word in ("qurey", "check", "search"):
        ran = ccheck(word, "x")
        assert ran.code == 2 and ran.out == "" and "did you mean 'query'?" in ran.err
    assert "did you mean" not in ccheck("xyzzy").err and "ccheck query" in ccheck("sea level has risen").err


@pytest.mark.parametrize("words", ["query --claims", "query --recipe", "ingest", "compare a.run", "train stance -o"])
def test_shells_complete_the_names_of_files(words):
    shell = BashComplete(cli, {}, "ccheck", "_CCHECK_COMPLETE")
    assert [(one.type, one.value) for one in shell.get_completions(words.split(), "my")] == [("file", "my")]
