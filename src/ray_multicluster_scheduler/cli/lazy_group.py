"""A group of commands, each imported when it is used: neither `--help` nor a completion needs them."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup

from ray_multicluster_scheduler.cli.options.parsing import PlainCommand
from ray_multicluster_scheduler.cli.signals import held


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


class LazyGroup(TyperGroup):
    """Shows commands by their entries and loads the one that is asked for."""

    entries: ClassVar[Mapping[str, Entry]] = {}

    def __init__(self, **settings: Any) -> None:
        shown = {
            name: TyperCommand(name, help=entry.about, rich_help_panel=entry.panel)
            for name, entry in self.entries.items()
        }
        super().__init__(**{**settings, "commands": shown})

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command that is to run or to be completed, and load it."""
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
            return group
        alone = typer.Typer(add_completion=False)
        alone.command(name, rich_help_panel=entry.panel, **{"cls": PlainCommand, **entry.options})(found)
        return typer.main.get_command(alone)
