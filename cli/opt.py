"""Options that several commands share (`opt.store`), and short forms for others (`opt.number("--depth", least=1)`)."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import logging
from collections.abc import Callable
from typing import Any, TypeVar

import click

Option = Callable[[Any], Any]
Command = TypeVar("Command", bound=Callable[..., Any])
Declared = TypeVar("Declared")

LOG = "ccheck"
"""The logger above those of all modules."""


def options(*decorators: Option) -> Callable[[Command], Command]:
    """Several click options as one decorator, shown in this order."""
    return lambda command: functools.reduce(lambda inner, decorate: decorate(inner), reversed(decorators), command)


def rare(*decorators: Option) -> Option:
    """Options that work and are not in `--help`: nearly nobody needs them. docs/cli.md lists them."""

    def decorate(command: Any) -> Any:
        before = {id(one) for one in getattr(command, "__click_params__", ())}
        decorated = options(*decorators)(command)
        for option in decorated.__click_params__:
            option.hidden = option.hidden or id(option) not in before
        return decorated

    return decorate


def completed(what: str) -> Callable[..., list[Any]]:
    """An option's `shell_complete`: a function of `completion.py`, which nothing else needs to import."""
    return lambda *given: getattr(importlib.import_module(".completion", __package__), what)(*given)


def file(*names: str, **given: Any) -> Option:
    """An option that takes the name of a file."""
    return click.option(*names, metavar="FILE", **given)


def number(*names: str, least: int, most: int | None = None, **given: Any) -> Option:
    """An option that takes a whole number within limits; the help has its default."""
    return click.option(*names, type=click.IntRange(least, most), metavar="N", show_default=True, **given)


def decimal(*names: str, least: float, most: float | None = None, **given: Any) -> Option:
    """The same for any number."""
    return click.option(*names, type=click.FloatRange(least, most), metavar="X", show_default=True, **given)


def recipe(help: str, **given: Any) -> Option:  # noqa: A002 - click's name for it
    """`--recipe`, which means something else in each command."""
    return click.option(
        "--recipe", shell_complete=completed("recipes"), metavar="NAME|FILE", show_default=True, help=help, **given
    )


def filters(help: str) -> Option:  # noqa: A002 - click's name for it
    """`--filter`, which can be given several times."""
    return click.option(
        "--filter", "filters", shell_complete=completed("conditions"), multiple=True, metavar="COND", help=help
    )


def _quieted(context: click.Context, option: click.Parameter, quiet: bool) -> bool:
    """Without what is logged: `warnings_said` makes notices of it."""
    if quiet:
        log, level = logging.getLogger(LOG), logging.getLogger(LOG).level
        log.setLevel(logging.ERROR)
        context.call_on_close(lambda: log.setLevel(level))
    return quiet


quiet = click.option("--quiet", "-q", is_flag=True, callback=_quieted, help="Show no progress and no notices.")
json = click.option("--json", "as_json", is_flag=True, help="Print JSON Lines: one object per line.")

# -- where to look, and the models

STORE_FORMS = "a folder, local:NAME, https://host:9200/INDEX or elasticsearch:INDEX"
store = click.option(
    "--store",
    metavar="STORE",
    shell_complete=completed("stores"),
    help=f"Store with the documents: {STORE_FORMS}.  [env: CCHECK_STORE; default: local:papers]",
)
model = click.option(
    "--model",
    metavar="NAME",
    help="Embedding model: a folder or a name.  [env: CCHECK_EMBEDDING_MODEL; default: the store's, "
    "else all-MiniLM-L6-v2]",
)
device = click.option(
    "--device", metavar="NAME", help="Device that models run on: cpu, cuda or mps.  [env: CCHECK_DEVICE]"
)
llm = click.option(
    "--llm", metavar="MODEL", help="Language model, on the server at OPENAI_BASE_URL.  [env: CCHECK_LLM_MODEL]"
)
stance = click.option(
    "--stance", metavar="MODEL", help="Stance classifier: a folder or a name.  [env: CCHECK_STANCE_MODEL]"
)
strategy = click.option(
    "--strategy",
    type=click.Choice(["one-step", "two-step", "few-shot", "hybrid", "batch"]),
    help="Prompting strategy for the language model.",
)
replace = click.option(
    "--replace",
    multiple=True,
    metavar="MODEL=OTHER",
    help="Use OTHER wherever the recipe names MODEL. The output says so. Repeatable.",
)
remote_code = click.option(
    "--trust-remote-code",
    is_flag=True,
    default=None,
    help="Let models run the Python code that comes with their weights. That code can do anything you can do.",
)
max_calls = number("--max-calls", least=0, help="Largest number of calls to the language model.")
max_cost = decimal(
    "--max-cost",
    least=0,
    help="Most to spend on the language model, at the prices in the settings llm_prompt_price and "
    "llm_completion_price.",
)

# -- claims with judgements

CLAIMS_HELP = "Claims: BEIR's queries, TREC topics, or a data set's own file."
QRELS_HELP = "Relevance judgements: which documents are relevant to which claim."
claims = file("--claims", required=True, help=CLAIMS_HELP)
qrels = file("--qrels", required=True, help=QRELS_HELP)
metrics = click.option(
    "--metric",
    "metrics",
    multiple=True,
    metavar="M",
    help="Metric, as ir-measures names it (nDCG@10), or MRR@5 or ClimateCheck. Repeatable.  [default: nDCG@10, R@100]",
)
depth = number(
    "--depth",
    least=1,
    most=10_000,
    help="Number of documents to rank for each claim.  [default: 100, or as many as the metrics need]",
)
limit = number("--limit", least=1, help="Use only the first N claims.")
sample = number("--sample", least=1, help="Use only N random claims.")
seed = click.option("--seed", type=int, default=0, show_default=True, help="Random seed.")
fresh = click.option("--fresh", is_flag=True, help="Compute everything again, and ignore what earlier runs computed.")


# -- a command's options as one typed value


def given(
    *declared: str | Option,
    by: Callable[..., Option] = click.option,
    heading: str | None = None,
    hidden: bool = False,
    **settings: Any,
) -> Any:
    """A field of the dataclass that declares a command's options: the names and settings of an option, or a made one.

    The field has the name that click gives the option. It stands in the command's `--help` under its heading, or under
    that of the field before. A hidden option works and is not in `--help`: for those that nearly nobody needs, and
    that a recipe or a setting can say too.
    """
    option = declared[0] if callable(declared[0]) else by(*declared, **settings)
    return dataclasses.field(metadata={"option": option, "heading": heading, "hidden": hidden})


SETTINGS = {
    "device": "device",
    "llm": "llm_model",
    "max_calls": "llm_max_calls",
    "max_cost": "llm_max_cost",
    "model": "embedding_model",
    "recipe": "recipe",
    "rerank": "rerank",
    "stance": "stance_model",
    "store": "store",
    "trust_remote_code": "trust_remote_code",
}
"""Fields of options that set a setting."""


def settings_of(declared: Any) -> dict[str, Any]:
    """The settings that a command's options name; None for those that were not given."""
    fields = {field.name for field in dataclasses.fields(declared)}
    return {setting: getattr(declared, name) for name, setting in SETTINGS.items() if name in fields}


def command(
    declared: type[Declared], name: str | None = None, group: click.Group | None = None
) -> Callable[[Callable[[Declared], None]], click.Command]:
    """Make a command of a function whose one argument holds what was given: a dataclass, with `given` fields."""

    def decorate(function: Callable[[Declared], None]) -> click.Command:
        fields = dataclasses.fields(declared)  # type: ignore[arg-type]
        callback = functools.wraps(function)(lambda **values: function(declared(**values)))
        decorated = options(*(field.metadata["option"] for field in fields))(callback)
        made = (group or click).command(name, cls=GroupedCommand)(decorated)
        for field, one in zip(fields, made.params, strict=True):
            assert one.name == field.name
            if isinstance(one, click.Option):
                one.heading = field.metadata["heading"]  # type: ignore[attr-defined]
                one.hidden = one.hidden or field.metadata["hidden"]
        return made

    return decorate


class GroupedCommand(click.Command):
    """A command whose help has a list for each heading."""

    def format_options(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        lists: dict[str, list[tuple[str, str]]] = {}
        for option in self.get_params(context):
            if isinstance(option, click.Option) and (record := option.get_help_record(context)) is not None:
                heading = getattr(option, "heading", None) or (list(lists)[-1] if lists else "Options")
                lists.setdefault(heading, []).append(record)
        for heading, records in lists.items():
            with formatter.section(heading):
                formatter.write_dl(records)
