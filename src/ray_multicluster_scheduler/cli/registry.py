"""The table of `raymc` commands: which there are and where; and how one of our errors ends a command."""

from __future__ import annotations

import importlib
import io
import logging
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup

from ray_multicluster_scheduler import __version__
from ray_multicluster_scheduler.cli.console import WarningHandler, held
from ray_multicluster_scheduler.cli.options.common import (
    CommandAfterDashes,
    PlainCommand,
    SeveralWords,
    hide_type,
    show_examples,
)
from ray_multicluster_scheduler.environment.options import ADDRESS_VAR
from ray_multicluster_scheduler.errors import SchedulerError
from ray_multicluster_scheduler.text import nearest

# A group of commands, each imported when it is used: neither `--help` nor a completion needs them.


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One command: where it is, and what the help text says of it."""

    #: `module:name` below `cli.commands`: a function, or a `typer.Typer` with commands of its own.
    where: str
    panel: str
    #: The first sentence of its own help.
    about: str
    #: More arguments of `typer.Typer.command`.
    options: Mapping[str, Any] = field(default_factory=dict)


#: A word that is not known is never taken for one of these: they end, remove or shut out something.
NEVER_GUESSED = frozenset(
    {"cancel", "copy", "delete", "down", "drain", "move", "prune", "restore", "revoke", "stop"}
)


class CommandGroup(TyperGroup):
    """A group that guesses which command was meant, but never one that destroys something."""

    #: Words of other tools, each with the command of ours that does that.
    hints: ClassVar[Mapping[str, str]] = {}

    def get_params(self, ctx: Any) -> Any:
        """Return the options, shown without types."""
        params = super().get_params(ctx)
        for param in params:
            hide_type(param)
        return params

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command that is to run; a word that is none of them is refused with a guess."""
        word = args[0]
        if word in self.hints and not ctx.resilient_parsing:
            ctx.fail(f"There is no command {word!r}: {self.hints[word]}")
        if word not in self.commands and not word.startswith("-") and not ctx.resilient_parsing:
            guess = nearest(word, [name for name in self.commands if name not in NEVER_GUESSED])
            ctx.fail(f"No such command {word!r}." + (f" Did you mean {guess!r}?" if guess else ""))
        return super().resolve_command(ctx, args)


class LazyGroup(CommandGroup):
    """Shows commands by their entries and loads the one that is asked for."""

    entries: ClassVar[Mapping[str, Entry]] = {}
    #: Other words for commands that change nothing; the help does not list them.
    aliases: ClassVar[Mapping[str, str]] = {}

    def __init__(self, **settings: Any) -> None:
        shown = {
            name: TyperCommand(name, help=entry.about, rich_help_panel=entry.panel)
            for name, entry in self.entries.items()
        }
        super().__init__(**{**settings, "commands": shown})

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command that is to run or to be completed, and load it."""
        if args[0] in self.aliases:
            args = [self.aliases[args[0]], *args[1:]]
        name, command, rest = super().resolve_command(ctx, args)
        return name, command if name is None else self.load(name), rest

    def load(self, name: str) -> Any:
        """Import the module of a command and turn what it defines into a Typer command."""
        entry = self.entries[name]
        module, _, attribute = entry.where.partition(":")
        with held():
            found = getattr(
                importlib.import_module(f"ray_multicluster_scheduler.cli.commands.{module}"), attribute
            )
        if isinstance(found, typer.Typer):
            group = typer.main.get_group(found)
            group.name = name
            for word, command in group.commands.items():
                show_examples(command, f"{name} {word}")
            return group
        alone = typer.Typer(add_completion=False)
        alone.command(name, rich_help_panel=entry.panel, **{"cls": PlainCommand, **entry.options})(found)
        command = typer.main.get_command(alone)
        show_examples(command, name)
        return command


_JOBS, _CLUSTERS, _SERVER = "Jobs", "Clusters", "Server"


class Commands(LazyGroup):
    """What `raymc --help` lists. A test compares each sentence with the command's own help."""

    aliases: ClassVar[Mapping[str, str]] = {"list": "jobs", "ls": "jobs", "describe": "info", "show": "info"}
    hints: ClassVar[Mapping[str, str]] = {
        "run": "`raymc submit -- COMMAND` runs one.",
        "rerun": "`raymc retry ID` runs a job again.",
        "queue": "`raymc jobs --state queued` lists what waits.",
        "tail": "`raymc logs -f ID` follows a log, `raymc logs ID --tail 20` shows its end.",
        "kill": "`raymc stop ID` stops a job.",
        "rm": "`raymc delete ID` forgets a job that has ended, `raymc stop ID` stops one.",
    }

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Answer `version` and `help` too, which everybody types once."""
        if args == ["version"]:
            _tell_version(asked=True)
        if args[0] == "help" and not ctx.resilient_parsing:
            if args[1:]:
                return super().resolve_command(ctx, [args[1], *args[2:], "--help"])
            typer.echo(ctx.get_help())
            raise typer.Exit
        return super().resolve_command(ctx, args)

    entries: ClassVar[Mapping[str, Entry]] = {
        "submit": Entry(
            where="submit:submit",
            panel=_JOBS,
            about="Run a command on the best cluster and wait for it, with its log.",
            options={"cls": CommandAfterDashes, "options_metavar": "[OPTIONS] --"},
        ),
        "pipeline": Entry(
            where="pipeline:pipeline",
            panel=_JOBS,
            about="Preprocess a file: scale, encode, fill in, tokenize, with Ray Data or with pandas.",
            options={"cls": SeveralWords},
        ),
        "jobs": Entry(
            where="jobs:jobs",
            panel=_JOBS,
            about="List jobs, the newest first, that match every filter.",
        ),
        "status": Entry(where="job:status", panel=_JOBS, about="Say in one line where a job is."),
        "info": Entry(
            where="job:info",
            panel=_JOBS,
            about="Show all that is known of a job; secrets are hidden.",
        ),
        "logs": Entry(
            where="job:logs",
            panel=_JOBS,
            about="Write the log of a job to stdout; of several, one after the other.",
        ),
        "result": Entry(
            where="job:result",
            panel=_JOBS,
            about="Write the result that a job has left to stdout or to a file.",
        ),
        "events": Entry(
            where="job:events",
            panel=_JOBS,
            about="List every move of a job: from where to where, when and why.",
        ),
        "explain": Entry(
            where="explain:explain",
            panel=_JOBS,
            about="Say why a job is where it is, and what would let it start.",
        ),
        "wait": Entry(
            where="job_actions:wait",
            panel=_JOBS,
            about="Wait until jobs have ended.",
        ),
        "stop": Entry(
            where="job_actions:stop",
            panel=_JOBS,
            about="Stop jobs, waiting or running, and wait until they have ended.",
        ),
        "cancel": Entry(
            where="job_actions:stop",
            panel=_JOBS,
            about="Stop jobs, waiting or running, and wait until they have ended.",
        ),
        "retry": Entry(
            where="job_actions:retry",
            panel=_JOBS,
            about="Run jobs again that have failed or were stopped, as new jobs with the same options.",
        ),
        "delete": Entry(
            where="job_actions:delete",
            panel=_JOBS,
            about="Forget jobs that have ended, with their logs, here and on their clusters.",
        ),
        "prune": Entry(
            where="job_actions:prune",
            panel=_JOBS,
            about="Remove jobs that ended long ago, with their logs, attempts and events, and give their "
            "space back.",
        ),
        "clusters": Entry(
            where="clusters:clusters",
            panel=_CLUSTERS,
            about="Show every cluster: health, used, claimed and total resources, running jobs, versions.",
        ),
        "ps": Entry(
            where="clusters:ps",
            panel=_CLUSTERS,
            about="Show what runs inside each cluster and why: jobs, actors, tasks, bridges, Ray Client "
            "sessions.",
        ),
        "doctor": Entry(
            where="doctor:doctor",
            panel=_CLUSTERS,
            about="Check every cluster: address, dashboard, token, versions, environment, ports.",
        ),
        "drain": Entry(
            where="clusters:drain",
            panel=_CLUSTERS,
            about="Send no new jobs to a cluster; what runs there may end.",
        ),
        "undrain": Entry(
            where="clusters:undrain", panel=_CLUSTERS, about="Let a cluster have new jobs again."
        ),
        "top": Entry(
            where="top:top",
            panel=_CLUSTERS,
            about="Watch clusters and jobs on one screen; q or Ctrl-C ends it.",
        ),
        "serve": Entry(
            where="serve:serve",
            panel=_CLUSTERS,
            about="Serve Ray clients, REST and a dashboard over all clusters, and schedule, until Ctrl-C.",
        ),
        "scheduler": Entry(
            where="scheduler:scheduler_app",
            panel=_CLUSTERS,
            about="The process that schedules the jobs of a store.",
        ),
        "config": Entry(
            where="config:config_app",
            panel=_CLUSTERS,
            about="Check the configuration, or let a server read it again.",
        ),
        "login": Entry(
            where="access:login",
            panel=_SERVER,
            about="Use a server from now on: keep its address and a token in a file that only you can read.",
        ),
        "logout": Entry(
            where="access:logout", panel=_SERVER, about="Forget the server and the token of `raymc login`."
        ),
        "token": Entry(
            where="access:token_app",
            panel=_SERVER,
            about="Make, list and revoke the tokens of the server's users.",
        ),
        "audit": Entry(
            where="access:audit",
            panel=_SERVER,
            about="List who has changed what, the newest first: jobs, clusters, tokens, configuration, "
            "refused logins.",
        ),
        "db": Entry(
            where="db:db_app",
            panel=_SERVER,
            about="Check, back up, restore and move the store: where jobs and history are kept.",
        ),
        "local": Entry(
            where="local:local_app",
            panel=_CLUSTERS,
            about="Start and stop real Ray clusters on this machine.",
        ),
    }


app = typer.Typer(
    name="raymc",
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)


def _tell_version(asked: bool) -> None:  # noqa: FBT001 - Typer calls it so
    if asked:
        typer.echo(f"raymc {__version__}")
        raise typer.Exit


@app.callback()
def raymc(
    ctx: typer.Context,
    *,
    address: Annotated[
        str | None,
        typer.Option(metavar="URL", help="The server to use, instead of RAY_MULTICLUSTER_ADDRESS."),
    ] = None,
    _version: Annotated[
        bool,
        typer.Option("--version", help="Show the version and leave.", callback=_tell_version, is_eager=True),
    ] = False,
) -> None:
    """Run work on many Ray clusters as if they were one."""
    if address is not None:
        former = os.environ.get(ADDRESS_VAR)
        os.environ[ADDRESS_VAR] = address
        ctx.call_on_close(partial(_set_back, former))


def _set_back(address: str | None) -> None:
    if address is None:
        del os.environ[ADDRESS_VAR]
    else:
        os.environ[ADDRESS_VAR] = address


def run() -> None:
    """Run the command that was typed; a user's mistake never shows a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a log may hold what this terminal cannot show
            stream.reconfigure(errors="replace")
    warnings, lines = logging.getLogger("ray_multicluster_scheduler"), WarningHandler()
    warnings.addHandler(lines)
    try:
        app(prog_name="raymc")
    except SchedulerError as error:
        _tell(error)
        sys.exit(2)
    finally:
        warnings.removeHandler(lines)


def _tell(error: SchedulerError) -> None:
    from rich.text import Text  # noqa: PLC0415 - not for every TAB

    from ray_multicluster_scheduler.cli.console import say  # noqa: PLC0415 - not for every TAB

    say(Text.assemble(("error:", "bold red"), f" {error}"))
