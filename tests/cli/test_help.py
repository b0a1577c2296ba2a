"""What the commands say of themselves."""

from __future__ import annotations

import inspect
import re
import shlex

import click
import pytest
from cli_commands import ALL
from cli_runs import ccheck
from click.shell_completion import BashComplete

from ccheck.cli import COMMANDS, SYNONYMS, cli

every_command = pytest.mark.parametrize(("path", "command"), ALL, ids=[" ".join(path) or "ccheck" for path, _ in ALL])


def examples(command: click.Command) -> list[str]:
    """The lines of a command's help that click is told to leave as they are."""
    blocks = [part for part in inspect.cleandoc(command.help).split("\n\n") if part.startswith("\b\n")]
    return [line for block in blocks for line in block.removeprefix("\b\n").splitlines()]


@every_command
def test_every_option_has_help(path, command):
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help and parameter.help[0].isupper(), parameter.opts


@every_command
def test_help_has_an_example_and_fits_a_terminal(path, command):
    ran = ccheck(*path, "--help")
    assert ran.code == 0 and ran.err == "" and ccheck(*path, "-h").out == ran.out
    assert max(map(len, ran.out.splitlines())) <= 80
    assert "..." not in ran.out.partition("Commands:")[2]  # no command's line is cut short
    shown = examples(command)
    assert all(f"  {line}".rstrip() in ran.out for line in shown)
    assert any(line.startswith(" ".join(["ccheck", *path])) for line in shown)


@every_command
def test_examples_are_commands_with_options_that_exist(path, command):
    known = dict(ALL)
    for line in examples(command):
        words = shlex.split(line.partition("  ")[0].partition(" > ")[0])
        words = words[words.index("ccheck") + 1 :]
        called = max((one for one in known if tuple(words[: len(one)]) == one), key=len)
        options = {name for parameter in known[called].params for name in parameter.opts}
        assert {word for word in words[len(called) :] if re.match(r"--?[a-z]", word)} <= options, line


def test_the_three_that_matter_come_first_and_the_laboratory_last():
    shown = ccheck("--help").out
    headings = re.findall(r"^(\w[\w ]*):$", shown, re.MULTILINE)
    assert headings == ["Start here", "Every day", "Laboratory", "Servers", "Options"]
    assert re.findall(r"^  (\w+)  ", shown.partition("Start here:")[2].partition("Every day:")[0], re.MULTILINE) == [
        *("demo", "ingest", "query")
    ]


@pytest.mark.parametrize(
    ("word", "command"),
    [("check", "'query'"), ("qurey", "'query'"), ("verify", "'query'"), ("add", "'ingest'"), ("eval", "'evaluate'")],
)
def test_other_words_for_a_command_name_it(word, command):
    ran = ccheck(word, "x")
    assert ran.code == 2 and ran.out == "" and f"did you mean {command}?" in ran.err


def test_a_claim_without_a_command_is_for_query():
    ran = ccheck("sea level has risen")
    assert ran.code == 2 and "ccheck query" in ran.err
    assert "did you mean" not in ccheck("xyzzy").err


def test_synonyms_are_words_for_commands_that_exist_and_no_commands():
    words = [word for some in SYNONYMS.values() for word in some]
    assert set(SYNONYMS) <= set(COMMANDS) and len(words) == len(set(words)) and not set(words) & set(COMMANDS)


def test_the_list_of_commands_says_what_each_says_of_itself():
    for name, line in COMMANDS.items():
        command = cli.get_command(click.Context(cli), name)
        assert command.name == name and inspect.cleandoc(command.help).split("\n")[0] == line


def test_the_exit_codes_are_those_of_the_errors():
    from ccheck.core import errors

    said = " ".join(ccheck("--help").out.split())
    for error in vars(errors).values():
        if isinstance(error, type) and issubclass(error, errors.CcheckError):
            assert f" {error.exit_code} " in said


@pytest.mark.parametrize(
    "words",
    [
        "query --claims",
        "query --recipe",
        "ingest",
        "figures",
        "report",
        "calibrate",
        "compare a.run",
        "train stance -o",
    ],
)
def test_shells_complete_the_names_of_files(words):
    shell = BashComplete(cli, {}, "ccheck", "_CCHECK_COMPLETE")
    assert [(one.type, one.value) for one in shell.get_completions(words.split(), "my")] == [("file", "my")]
