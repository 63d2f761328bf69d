"""Options and arguments that many commands share."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand

from ray_multicluster_scheduler.cli.options.completion import complete_clusters, complete_groups, complete_ids
from ray_multicluster_scheduler.clock import SystemClock
from ray_multicluster_scheduler.model.resources import GIB
from ray_multicluster_scheduler.text import bytes_of, seconds_of

ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="The clusters.yaml to use, instead of the one that is found.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON; an unknown value is null.")]
WatchOption = Annotated[bool, typer.Option("--watch", help="Stay and refresh until Ctrl-C.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
GroupOption = Annotated[
    str | None,
    typer.Option(
        "--group", metavar="GROUP", help="All jobs of this group (array).", autocompletion=complete_groups
    ),
]
_WHICH = "submission id or its beginning, name, or group"
JobsArgument = Annotated[
    list[str], typer.Argument(metavar="ID", help=f"Which jobs: {_WHICH}.", autocompletion=complete_ids)
]
#: The same for a command that has another way to name jobs, such as --group.
IdsArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="ID", help=f"Which jobs: {_WHICH}.", autocompletion=complete_ids),
]
ClusterArgument = Annotated[
    str, typer.Argument(metavar="CLUSTER", help="Name of the cluster.", autocompletion=complete_clusters)
]


# Times and sizes as parsers of Typer options.


T = TypeVar("T")


def seconds(text: str) -> float:
    """Read a length of time, which needs a unit."""
    return _read(lambda: seconds_of(text))


def plain_seconds(text: str) -> float:
    """Read a length of time; a plain number is in seconds."""
    return _read(lambda: seconds_of(text, plain=True))


def gib(text: str) -> float:
    """Read a size; a plain number, however large, is in GiB."""
    return _read(lambda: bytes_of(text, plain=GIB)) / GIB


def whole_bytes(text: str) -> int:
    """Read a size; a plain number is in bytes."""
    return int(_read(lambda: bytes_of(text, plain=1)))


def moment(text: str) -> float:
    """Read a date, or a length of time before now, as seconds since the epoch."""
    try:
        return datetime.fromisoformat(text.strip()).timestamp()  # without a zone: of this machine
    except ValueError:
        pass
    try:
        return SystemClock().now() - seconds_of(text)
    except ValueError as problem:
        raise typer.BadParameter(f"{problem}, or a date: 2026-11-17 or '2026-11-17 22:00'") from None


def _read(parse: Callable[[], T]) -> T:
    try:
        return parse()
    except ValueError as problem:
        raise typer.BadParameter(str(problem)) from None


# Examples of the commands, by all their words, for `--help` and for the page about the command line.


EXAMPLES = {
    "submit": """\
raymc submit -- python /data/train.py --epochs 3
raymc submit --working-dir . --cpus 4 --memory 8GiB --timeout 2h -- python train.py
raymc submit --array 0-199 --name parts -- python /data/part.py --part {i}
raymc submit --dry-run --cluster mac -- python /data/train.py""",
    "jobs": """\
raymc jobs --state running,queued
raymc jobs --name nightly --since 7d
raymc jobs --group sweep --limit 0 --json""",
    "status": "raymc status sub_2f1c66a0b3d1",
    "logs": """\
raymc logs -f sub_2f1c66a0b3d1
raymc logs nightly --tail 20
raymc logs -f sweep-0 sweep-1""",
    "explain": "raymc explain sub_2f1c66a0b3d1",
    "wait": "raymc wait nightly --timeout 1h",
    "stop": """\
raymc stop sub_2f1c66a0b3d1
raymc stop --group nightly
raymc stop --all-mine --yes""",
    "retry": """\
raymc retry sub_2f1c66a0b3d1
raymc retry nightly --no-wait""",
    "delete": "raymc delete sub_2f1c66a0b3d1",
    "login": "raymc login https://raymc.example.org",
    "drain": 'raymc drain mac --reason "new disks"',
    "db backup": "raymc db backup jobs-backup.db",
    "db restore": "raymc db restore jobs-backup.db",
    "db move": "raymc db move --to postgresql://raymc@db.example.org/raymc",
    "local up": "raymc local up --names centos,mac --cpus 4,2",
}


_MAY_BE_SECRET = frozenset({"--env", "-e", "--runtime-env-json", "--metadata-json"})
_SEVERAL = ("--operators", "--columns")
#: What the validator says, and what is meant.
_PLAIN_WORDS = (
    (r"Input should be a valid integer.*", "a whole number is wanted, such as 4"),
    (r"Input should be a valid number.*", "a number is wanted, such as 4 or 0.5"),
    (r"Input should be greater than or equal to (\S+)", r"it must be \1 or more"),
    (r"Input should be less than or equal to (\S+)", r"it must be \1 or less"),
    (r"Value error, (.*)", r"\1"),
)
#: How the type of a value is called, where an option says nothing better.
_KINDS = {"int": "NUMBER", "float": "NUMBER", "str": "TEXT", "Path": "FILE"}


class PlainCommand(TyperCommand):
    """A command whose help has examples and no types, and whose error messages are plain."""

    def __init__(self, name: str | None, **settings: Any) -> None:
        super().__init__(name, **settings)
        for param in self.params:
            hide_type(param)

    def get_help_option(self, ctx: Any) -> Any:
        """Return `--help`, shown without a type."""
        option = super().get_help_option(ctx)
        if option is not None:
            hide_type(option)
        return option

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse; an invalid value is refused in plain words."""
        try:
            rest: list[str] = super().parse_args(ctx, args)
        except typer.BadParameter as error:
            for words, plain in _PLAIN_WORDS:
                error.message = re.sub(words, plain, error.message, flags=re.DOTALL)
            raise
        return rest


def hide_type(param: Any) -> None:
    """Show `NUMBER` or nothing where Typer shows `<int range>`, `<bool>` and `<list[str]>`."""
    shown = param.metavar
    if param.param_type_name == "argument" or getattr(param, "is_flag", False):
        shown = ""
    elif shown is None:
        shown = _KINDS.get(param.bare_type().split("[")[0].split(" ")[0], "WORD")
    param.display_type_rich = lambda ctx: shown  # noqa: ARG005 - Typer calls it with one
    param._get_number_range_help_str = lambda: None  # a wide column for what an error says as well


def show_examples(command: Any, words: str) -> None:
    """Put the examples of a command, named by all its words, below its help."""
    if words in EXAMPLES:
        command.epilog = f"\b\nExamples:\n{EXAMPLES[words]}"  # \b: the lines stay as they are


class CommandAfterDashes(PlainCommand):
    """Wants `--` before the command, so that options of `submit` and of the command are never mixed up."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse what stands before `--`; what follows belongs to the job."""
        command = args[args.index("--") + 1 :] if "--" in args else []
        if not command and not ctx.resilient_parsing and not set(args) & set(ctx.help_option_names):
            ctx.fail(self._what_is_missing(args))
        rest: list[str] = super().parse_args(ctx, args)
        before = len(ctx.params.get("command") or ()) - len(command)
        if before > 0 and not ctx.resilient_parsing:
            extra = " ".join(ctx.params["command"][:before])
            ctx.fail(f"{extra!r} stands before `--`: options come first, then `--`, then the whole command")
        return rest

    def _what_is_missing(self, args: list[str]) -> str:
        options: list[Any] = [param for param in self.params if param.param_type_name == "option"]
        with_value = {name for each in options if not each.is_flag for name in each.opts}
        words = iter(enumerate(args))
        for position, word in words:
            if word in with_value:
                next(words, None)
            elif not word.startswith("-") and "--" not in args:
                mended = [*_without_secrets(args[:position]), "--", *args[position:]]
                return f"`--` is missing before the command: raymc submit {shlex.join(mended)}"
        return "the command is missing; it comes last, after `--`: raymc submit -- python /data/train.py"


def _without_secrets(words: Sequence[str]) -> Iterator[str]:
    """Yield options without the values that may be secrets."""
    option = ""
    for word in words:
        name, has_value, _ = word.partition("=")
        if option in _MAY_BE_SECRET:
            yield "..."
        elif word.startswith("-e") and word != "-e":
            yield "-e..."
        else:
            yield f"{name}=..." if has_value and name in _MAY_BE_SECRET else word
        option = word


class SeveralWords(PlainCommand):
    """Lets `--operators A B` give two values: Click takes only one value per option."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Repeat the option before each further word."""
        repeated: list[str] = []
        option = None
        for word in args:
            if word.startswith("-"):
                option = word if word in _SEVERAL else None
            elif option is not None and repeated[-1] != option:
                repeated.append(option)
            repeated.append(word)
        rest: list[str] = super().parse_args(ctx, repeated)
        return rest
