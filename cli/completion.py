"""Completion on the command line: of recipes, stores and fields, and of file names wherever ccheck knows nothing."""

from __future__ import annotations

import os

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    add_completion_class,
    split_arg_string,
)

from ..core.errors import CcheckError
from ..core.settings import Settings, resolve

BASH = """\
%(complete_func)s() {
    local IFS=$'\\n' completion value
    local word=${COMP_WORDS[COMP_CWORD]} line=${COMP_LINE:0:COMP_POINT}
    local typed=${line##*[[:space:]]}
    # bash replaces only what follows the last : or =
    local kept=${typed%%"${typed##*[:=]}"}
    for completion in $(COMP_WORDS=$line %(complete_var)s=bash_complete "$1"); do
        value=${completion#*,}
        case ${completion%%%%,*} in
            dir) compopt -o dirnames ;;
            file) compopt -o default ;;
            *)
                [[ $value == *= ]] && compopt -o nospace
                if [[ $word != [\\'\\"]* ]]; then
                    printf -v value %%q "$value"
                    value=${value#"$kept"}
                fi
                COMPREPLY+=("$value") ;;
        esac
    done
}
complete -o nosort -F %(complete_func)s %(prog_name)s
"""
"""click's own script gets the words as bash splits them, at : and = too, and splits completions with spaces."""


class _OrFiles(ShellComplete):
    """Completes file names if there is nothing else to complete."""

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem[str]]:
        found = super().get_completions(args, incomplete)
        return found or ([] if incomplete.startswith("-") else [CompletionItem(incomplete, "file")])


class Bash(_OrFiles, BashComplete):
    source_template = BASH

    def get_completion_args(self) -> tuple[list[str], str]:
        line = os.environ["COMP_WORDS"]
        words = split_arg_string(line)[1:]
        return (words, "") if line[-1:].isspace() or not words else (words[:-1], words[-1])


class Zsh(_OrFiles, ZshComplete):
    pass


class Fish(_OrFiles, FishComplete):
    pass


def complete(cli: click.Command, program: str, variable: str, instruction: str) -> int:
    """Prints what a shell asks for: the script to set completion up, or completions. Returns the exit code."""
    from click.shell_completion import shell_complete

    for kind in (Bash, Zsh, Fish):
        add_completion_class(kind)
    return shell_complete(cli, {}, program, variable, instruction)


def recipes(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """The packaged recipes, and after RECIPE: its ablations."""
    from ..core.recipe import load_recipe, recipe_names

    name, colon, _ = incomplete.partition(":")
    names = recipe_names()
    if colon and name in names:
        names = [f"{name}:{ablation}" for ablation in load_recipe(name).ablations]
    return _that_begin(names, incomplete)


def stores(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """The local stores in the data folder."""
    from ..search.local.files import DATABASE

    settings = _settings(context)
    if settings is None:
        return []
    return _that_begin(
        sorted(f"local:{file.parent.name}" for file in settings.data_dir.glob(f"*/{DATABASE}")), incomplete
    )


def conditions(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """The fields of a local store, each with the operators that fit. Servers are not asked."""
    from ..search import open_store

    settings = _settings(context)
    if settings is None or "://" in settings.store or settings.store.startswith("elasticsearch:"):
        return []
    try:
        with open_store(settings) as store:
            kinds = store.fields()
    except CcheckError:
        return []
    signs = dict.fromkeys(("numbers", "dates", "either"), ("=", ">=", "<="))
    names = [f"{name}{sign}" for name, kind in sorted(kinds.items()) for sign in signs.get(kind, ("=",))]
    return _that_begin(names, incomplete)


def _that_begin(values: list[str], incomplete: str) -> list[CompletionItem[str]]:
    return [CompletionItem(value) for value in values if value.startswith(incomplete)]


def _settings(context: click.Context) -> Settings | None:
    """The settings, with the store that the command line names. Whoever presses a key gets no errors."""
    try:
        return resolve({"store": context.params.get("store")}, show_pending=True).settings
    except CcheckError:
        return None
