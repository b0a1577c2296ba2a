"""Commands from declarations: the parameters of a function, or the fields of one dataclass, have options as defaults.

The name and the type of an option are those of the parameter: `rerank_depth: int | None` is `--rerank-depth N`, a
`bool` is a flag, a `Literal` a choice, a `tuple` can be given several times. The options that several commands share
stand below (`opt.store`).
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import logging
import re
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import click

from ..core.telemetry import finish, span

LOG = "ccheck"
"""The logger above those of all modules."""
QUIET = "ccheck.quiet"
PATHS = frozenset({"FILE", "FOLDER", "ARTICLE", "RUN", "PAIRS", "RECIPE"})
"""What metavars call files and folders."""


@dataclasses.dataclass(frozen=True, eq=False)
class _Declared:
    """An option or argument, but for what its parameter says."""

    kind: type[click.Parameter]
    names: tuple[str, ...]
    least: float | None
    most: float | None
    heading: str | None
    more: Mapping[str, Any]


def option(
    help: str,  # noqa: A002 - click's name for it
    metavar: str | None = None,
    *,
    names: tuple[str, ...] = (),
    least: float | None = None,
    most: float | None = None,
    heading: str | None = None,
    **more: Any,
) -> Any:
    """An option. `names` if it is not called like its parameter; `least` and `most` are limits of a number.

    It stands in `--help` under its heading, or under that of the option before. `more` is for
    `click.Option`.
    """
    return _Declared(click.Option, names, least, most, heading, {"metavar": metavar, "help": help, **more})


def argument(metavar: str, *, required: bool = True, **more: Any) -> Any:
    """An argument; a parameter that is a `tuple` takes any number of them."""
    return _Declared(click.Argument, (), None, None, None, {"metavar": metavar, "required": required, **more})


def under(heading: str, shared: Any) -> Any:
    """A shared option, as the first one under a heading."""
    return dataclasses.replace(shared, heading=heading)


def _parameter(name: str, hint: Any, declared: _Declared) -> click.Parameter:
    types_ = [one for one in get_args(hint) if one is not types.NoneType] if _is_union(hint) else [hint]
    several = get_origin(types_[0]) is tuple
    kind = get_args(types_[0])[0] if several else types_[0]
    how = dict(declared.more)
    if kind is bool:
        how |= {"is_flag": True, "default": None if _is_union(hint) else False}
    elif get_origin(kind) is Literal:
        how.setdefault("type", click.Choice(get_args(kind)))
    elif kind is int:
        how |= {"type": click.IntRange(declared.least, declared.most), "metavar": how["metavar"] or "N"}  # type: ignore[arg-type]
    elif kind is float:
        how |= {"type": click.FloatRange(declared.least, declared.most), "metavar": how["metavar"] or "X"}
    elif not PATHS.isdisjoint(re.findall("[A-Z]+", how["metavar"] or "")):
        how["type"] = click.Path(readable=False)  # so that shells complete names of files
    if declared.kind is click.Argument:
        return click.Argument([name], nargs=-1 if several else 1, **how)
    words = declared.names or (f"-{name}" if len(name) == 1 else f"--{name.rstrip('_').replace('_', '-')}",)
    made = click.Option([name, *words], multiple=several, show_default=how.get("default") is not None, **how)
    made.heading = declared.heading  # type: ignore[attr-defined]
    return made


def _is_union(hint: Any) -> bool:
    return get_origin(hint) in (Union, types.UnionType)


def command(function: Callable[..., None]) -> click.Command:
    """Make a command of a function: of its parameters, or of the fields of the dataclass that is its only one."""
    hints = get_type_hints(function)
    first, declared = next(iter(hints.values())), None
    if isinstance(first, type) and dataclasses.is_dataclass(first):
        declared, hints = first, get_type_hints(first)
    fields = inspect.signature(declared or function).parameters
    params = [_parameter(one, hints[one], field.default) for one, field in fields.items()]
    callback = (lambda **given: function(declared(**given))) if declared is not None else function
    # What says and shows asks `is_quiet`, so that nobody hands it down.
    quiet = {"expose_value": False, "callback": _quieted, "help": "Show no progress and no notices."}
    params.append(click.Option(["--quiet", "-q"], is_flag=True, **quiet))  # type: ignore[arg-type]
    own = function.__name__.rstrip("_").replace("_", "-")
    return Command(own, params=params, callback=callback, help=inspect.getdoc(function))


def with_environment(made: click.Command, prefix: str) -> click.Command:
    """The command, whose options are also set by environment variables that begin so."""
    for one in made.params:
        one.envvar, one.show_envvar = f"{prefix}_{str(one.name).upper()}", True  # type: ignore[attr-defined]
    return made


class Command(click.Command):
    """A command whose help has a list for each heading, and which is a trace for whoever traces."""

    def invoke(self, context: click.Context) -> Any:
        if "serve" in context.command_path:  # each check is a trace
            return super().invoke(context)
        try:
            with span(context.command_path):
                return super().invoke(context)
        finally:
            if not finish() and not is_quiet():
                click.echo("ccheck: the collector of traces and metrics did not take the last of them", err=True)

    def format_options(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        lists: dict[str, list[tuple[str, str]]] = {}
        for one in self.get_params(context):
            if isinstance(one, click.Option) and (record := one.get_help_record(context)) is not None:
                heading = getattr(one, "heading", None) or (list(lists)[-1] if lists else "Options")
                lists.setdefault(heading, []).append(record)
        for heading, records in lists.items():
            with formatter.section(heading):
                formatter.write_dl(records)


class LazyGroup(click.Group):
    """Commands under headings (`sections`), each imported when it is called.

    `modules` has the module of each command that does not have the command's own name, relative to this package.
    """

    def __init__(
        self, *given: Any, sections: Mapping[str, Sequence[str]], modules: Mapping[str, str], **more: Any
    ) -> None:
        super().__init__(*given, **more)
        self.sections, self.modules = sections, modules

    def list_commands(self, context: click.Context) -> list[str]:
        return [name for names in self.sections.values() for name in names]

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in self.list_commands(context):
            return None
        found = importlib.import_module(f".{self.modules.get(name, name)}", __package__)
        made = getattr(found, name.replace("-", "_"), None) or getattr(found, f"{name}_")
        assert isinstance(made, click.Command)
        return made

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        for heading, names in self.sections.items():
            with formatter.section(heading):
                formatter.write_dl([(name, self._first_line(name)) for name in names])

    def _first_line(self, name: str) -> str:
        """The first line of a command's help, read from its module's source: to import all of them takes long."""
        module = self.modules.get(name, name).replace(".", "/")
        source = (Path(__file__).parent / f"{module}.py").read_text(encoding="utf-8")
        found = re.search(rf'^def {name}_?\(.*?^    """(.+?)$', source, re.DOTALL | re.MULTILINE)
        return found[1] if found is not None else ""


def is_quiet() -> bool:
    """Whether the command that runs was called with `--quiet`."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(QUIET))


def _quieted(context: click.Context, option: click.Parameter, quiet: bool) -> None:
    """Without what is logged, too: `warnings_said` makes notices of it."""
    context.meta[QUIET] = quiet
    if quiet:
        log, level = logging.getLogger(LOG), logging.getLogger(LOG).level
        log.setLevel(logging.ERROR)
        context.call_on_close(lambda: log.setLevel(level))


EVERYDAY, ADVANCED = "Everyday options", "Advanced"
"""Headings of several commands."""
as_json = option("Print JSON Lines: one object per line.", names=("--json",))

# -- where to look, and the models

STORE_FORMS = "a folder, local:NAME, https://host:9200/INDEX or elasticsearch:INDEX"
store = option(f"Store with the documents: {STORE_FORMS}.  [env: CCHECK_STORE; default: local:papers]", "STORE")
model = option(
    "Embedding model: folder or name. [env: CCHECK_EMBEDDING_MODEL; default: the store's, else bge-small-en-v1.5-int8]",
    "NAME",
)
device = option("Device that models run on: cpu, cuda or mps.  [env: CCHECK_DEVICE]", "NAME")
llm = option("Language model, on the server at OPENAI_BASE_URL.  [env: CCHECK_LLM_MODEL]", "MODEL")
stance = option("Stance classifier: a folder or a name.  [env: CCHECK_STANCE_MODEL]", "MODEL")
rerank = option(
    "Reranker to apply to the hits: a model's name or folder, a server's URL (or several, with commas between), "
    "late, auto or none.  "
    "[env: CCHECK_RERANK; default: the recipe's]",
    "MODEL|URL|late|none",
)
replace = option("Use OTHER wherever the recipe names MODEL. The output says so. Repeatable.", "MODEL=OTHER")
yes = option("Do not ask for confirmation.")


def recipe(help: str, **more: Any) -> Any:  # noqa: A002 - click's name for it
    """`--recipe`, which means something else in each command."""
    return option(help, "NAME|FILE", **more)


def output(help: str, metavar: str = "FILE", **more: Any) -> Any:  # noqa: A002 - click's name for it
    """`--output`, which is `-o` too."""
    return option(help, metavar, names=("--output", "-o"), **more)


# -- claims with judgements

CLAIMS_HELP = "Claims: BEIR's queries, TREC topics, or a data set's own file."
QRELS_HELP = "Relevance judgements: which documents are relevant to which claim."
claims = option(CLAIMS_HELP, "FILE", required=True)
qrels = option(QRELS_HELP, "FILE", required=True)
metrics = option(
    "Metric, as ir-measures names it (nDCG@10), or MRR@5 or ClimateCheck. Repeatable.  [default: nDCG@10, R@100]",
    "M",
    names=("--metric",),
)
seed = option("Random seed.", least=0, default=0)

SETTINGS = {
    "device": "device",
    "llm": "llm_model",
    "model": "embedding_model",
    "recipe": "recipe",
    "rerank": "rerank",
    "stance": "stance_model",
    "store": "store",
}
"""Fields of options that set a setting."""


def settings_of(declared: Any) -> dict[str, Any]:
    """The settings that a command's options name; None for those that were not given."""
    fields = {field.name for field in dataclasses.fields(declared)}
    return {setting: getattr(declared, name) for name, setting in SETTINGS.items() if name in fields}
