"""Writes docs/reference/cli.md from the commands themselves.

python -m tests.docs.cli_page
"""

import inspect
import re
from collections.abc import Iterator
from typing import Any

import typer
from tests.support.pages import DOCS

from ray_multicluster_scheduler.cli.options.common import EXAMPLES
from ray_multicluster_scheduler.cli.registry import app

PAGE = DOCS / "reference" / "cli.md"

HEAD = """\
# Command line

Every command that needs clusters takes `--config FILE`; without it, [the usual places](../configuration.md)
are searched. `--help` after any command shows the same as this page, which is written from the commands.

## Exit codes

| code | meaning |
|---|---|
| 0 | all is well: every job that was waited for has succeeded |
| 1 | a job failed or was stopped, a check found a problem, or something was not done in time |
| 2 | a wrong command, configuration or store; one message says what to do |
| 130 | Ctrl-C |
| 143, 129 | SIGTERM, SIGHUP: jobs go on |

## Who schedules

No server is needed. One process for each store schedules: it places, sends and watches the jobs of all. The
first submitted job starts it in the background; it ends by itself when no job is open. Any command that meets
open jobs starts it again if it is gone, and those that wait do so while they wait. `raymc scheduler status`
and `stop` show and end it ([the scheduler](../scheduler.md)); `raymc serve` has one as its child
([the server](../server.md)). `clusters`, `doctor` and `config` only look. Jobs that run go on in any case.

## Help, and words of other tools

`-h` and `raymc help submit` show the same as `--help`. `list` and `ls` are `jobs`; `describe` and `show` are
`info`; `run`, `kill`, `rm` and the like name the command that does it.

## Shell completion

`--install-completion` sets it up for your shell: commands, options, ids of jobs, groups, names of clusters.
"""


def page() -> str:
    """Return the text of the page."""
    return HEAD + "".join(f"\n{section}" for section in _sections(typer.main.get_command(app), "raymc"))


def _sections(command: Any, name: str) -> Iterator[str]:
    for word in command.commands:
        each = command.load(word) if hasattr(command, "load") else command.commands[word]
        if each.hidden:
            continue
        full = f"{name} {word}"
        if hasattr(each, "commands"):
            yield from _sections(each, full)
        else:
            yield _section(each, full)


def _section(command: Any, name: str) -> str:
    arguments = [param for param in command.params if param.param_type_name == "argument"]
    options = [param for param in command.params if param.param_type_name == "option"]
    usage = " ".join([name, command.options_metavar, *(_argument(each) for each in arguments)])
    parts = [f"## {name}\n", f"```text\n{usage}\n```\n", _text(command.help)]
    if example := EXAMPLES.get(name.removeprefix("raymc ")):
        parts.append(f"```bash\n{example}\n```\n")
    if options:
        rows = "".join(f"| {_names(each)} | {_about(each)} |\n" for each in options)
        parts.append(f"| option | meaning |\n|---|---|\n{rows}")
    return "\n".join(parts)


def _argument(argument: Any) -> str:
    word = argument.metavar or argument.name.upper()
    if word.startswith("["):
        return str(word)
    word = f"{word}..." if argument.nargs == -1 else word
    return word if argument.required else f"[{word}]"


def _names(option: Any) -> str:
    value = "" if option.is_flag else f" {option.metavar or _kind(option)}"
    return ", ".join(f"`{name}{value}`" for name in option.opts).replace("|", "\\|")


def _kind(option: Any) -> str:
    return "NAME" if option.name == "state" else "TEXT" if isinstance(option.default, str) else "NUMBER"


def _about(option: Any) -> str:
    default = option.default
    shown = "" if default in (None, False, "", 0) or option.is_flag else f" Default: `{default}`."
    return re.sub(r"(\{i\})", r"`\1`", option.help).replace("|", "\\|") + shown


def _text(help_text: str) -> str:
    return inspect.cleandoc(help_text) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
