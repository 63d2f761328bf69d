"""Command lines that Click alone reads otherwise than they are meant."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand

_SEVERAL = ("--operators", "--columns")


class CommandAfterDashes(TyperCommand):
    """Wants `--` before the command, so that an option is never taken for the other side's."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse what stands before `--`; what follows belongs to the job."""
        command = args[args.index("--") + 1 :] if "--" in args else []
        if not command and not ctx.resilient_parsing and not set(args) & set(ctx.help_option_names):
            ctx.fail(
                "the command is missing; it comes last, after `--`: raymc submit -- python /data/train.py"
            )
        rest: list[str] = super().parse_args(ctx, args)
        before = len(ctx.params.get("command") or ()) - len(command)
        if before > 0 and not ctx.resilient_parsing:
            extra = " ".join(ctx.params["command"][:before])
            ctx.fail(f"{extra!r} stands before `--`: options come first, then `--`, then the whole command")
        return rest


class SeveralWords(TyperCommand):
    """Lets `--operators A B` mean what it says: Click knows one value per option only."""

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
