"""`python -m ccheck.cli.reference > docs/cli.md`: every command and setting, as they describe themselves."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import click

from ..core.settings import FILE, FLAGS_ONLY, SECRETS, Settings, unasked, variables
from . import cli
from .option_groups import by_heading

HEAD = """\
# The command line

Written by `python -m ccheck.cli.reference > docs/cli.md`; change the commands, not this page.

Data go to standard output; progress and notices go to standard error, and `--quiet` leaves them out. If
standard output is not a terminal, ccheck prints no colours and wraps no lines. `-` is standard input. `--json` prints
one JSON object per line: [json.md](json.md).

| exit code | meaning |
| --- | --- |
| 0 | done |
| 1 | a bug; `CCHECK_DEBUG=1` shows where |
| 2 | usage: an option, a setting or an argument is not valid |
| 3 | an optional part is not installed; the message has the `pip install` |
| 4 | a file, store, index or model is missing |
| 5 | the data can't be used as they are |
| 6 | a server failed or can't be reached |
| 7 | done in part: some records or claims were bad, or there was no room for the output |
| 130 | interrupted |

To complete commands, options, recipes, stores and fields in bash, put `eval "$(_CCHECK_COMPLETE=bash_source ccheck)"`
into `~/.bashrc`. For zsh and fish, use `zsh_source` or `fish_source`. Everything else is completed as a file name.
Fields are completed for local stores only.
"""

STORES = """\
## Stores

| `--store`, `CCHECK_STORE` or `store` in a settings file | where the documents are |
| --- | --- |
| `local:NAME` | in a folder of that name in `data_dir`; `local:papers` is the default |
| a folder, such as `./papers` or `~/papers` | in that folder |
| `https://host:9200/INDEX` | in an index of Elasticsearch, `papers` by default |
| `elasticsearch:INDEX` | the same, on the server of `elasticsearch_url` or `elasticsearch_cloud_id` |
"""

SETTINGS = f"""\
## Settings

ccheck takes a setting from the first of these that has it: a flag, the environment, `{FILE}` in the current folder,
`{FILE}` in the user's configuration folder, the default. `ccheck config` shows the values in use and where they came
from. In a file, the first part of a setting's name can be a table:

```toml
store = "https://search.example.org:9200/papers"

[elasticsearch]
ca_certs = "/etc/ssl/elastic-ca.pem"
```

The file in the current folder may come from a stranger. The third column shows what it can set without your consent.
If it sets anything else, commands stop until you allow the file: [security.md](security.md#folders-and-settings).

The prefixes of Elastic's other tools work as well as `ELASTICSEARCH_`: `ES_`, `ELASTIC_` and `ES_LOCAL_`. Secrets are
taken from the environment only, and never printed.

| setting | in the environment | in a folder's file | default | meaning |
| --- | --- | --- | --- | --- |
"""


def reference() -> str:
    """The page."""
    context = click.Context(cli, info_name="ccheck", **cli.context_settings)
    return "\n".join([HEAD, *_group(cli, context, "##"), STORES, SETTINGS + "".join(_settings())])


def _group(group: click.Group, context: click.Context, heading: str) -> Iterator[str]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        inner = click.Context(command, info_name=name, parent=context)
        yield _command(command, inner, heading)
        if isinstance(command, click.Group):
            yield from _group(command, inner, f"{heading}#")


def _command(command: click.Command, context: click.Context, heading: str) -> str:
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    parts = [f"{heading} {context.command_path}", f"`{usage}`", *_paragraphs(command.help or "")]
    for heading, some in by_heading(command, context).items():
        rows = [_option(option, context) for option in some if option.name != "help"]
        if not rows:
            continue
        parts.append("\n".join([f"| {'option' if heading == 'Options' else heading} | |", "| --- | --- |", *rows]))
    return "\n\n".join(parts) + "\n"


def _paragraphs(text: str) -> Iterator[str]:
    """A docstring's paragraphs; the examples, which click keeps as they are, in a block."""
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        kept = paragraph.removeprefix("\b\n")
        yield paragraph if kept == paragraph else f"```sh\n{kept}\n```"


def _option(option: click.Option, context: click.Context) -> str:
    record = option.get_help_record(context)
    assert record is not None
    # Between the brackets that click adds itself, a vertical bar would end the cell.
    names, text = (part.replace("|", "\\|") for part in record)
    return f"| `{names}` | {' '.join(text.split())} |"


def _settings() -> Iterator[str]:
    for name, field in Settings.model_fields.items():
        default = "the user's" if field.default_factory else "–" if field.default is None else f"`{field.default}`"
        names = ", ".join(f"`{variable}`" for variable in variables(name)[:2])
        mark = unasked(name)
        never = name in SECRETS or name in FLAGS_ONLY
        here = mark.which if mark is not None else "never" if never else "with consent"
        yield f"| `{name}` | {names} | {here} | {default} | {field.description} |\n"


if __name__ == "__main__":
    click.echo(reference(), nl=False)
