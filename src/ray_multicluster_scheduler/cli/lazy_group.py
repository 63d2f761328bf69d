"""A group of commands, each imported when it is used: neither `--help` nor a completion needs them."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup

from ray_multicluster_scheduler.cli.options.parsing import PlainCommand, hide_type, show_examples
from ray_multicluster_scheduler.cli.signals import held
from ray_multicluster_scheduler.text.spelling import nearest


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
