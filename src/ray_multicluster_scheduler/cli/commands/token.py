"""`raymc token`: who may use the server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from ray_multicluster_scheduler.cli.console import say, stdout_console, write_json, write_line
from ray_multicluster_scheduler.cli.lazy_group import CommandGroup
from ray_multicluster_scheduler.cli.options.common import ConfigOption, JsonOption
from ray_multicluster_scheduler.cli.options.parsing import PlainCommand
from ray_multicluster_scheduler.cli.options.units import seconds
from ray_multicluster_scheduler.cli.session import opened
from ray_multicluster_scheduler.cli.views.times import Times, iso

if TYPE_CHECKING:
    from ray_multicluster_scheduler.service.admin_views import TokenView

NEVER = "never"

token_app = typer.Typer(
    cls=CommandGroup, help="Make, list and revoke the tokens of the server's users.", no_args_is_help=True
)


def _expiry(text: str) -> float:
    """Read a duration, or `never` as an endless one."""
    return float("inf") if text.strip().lower() == NEVER else seconds(text)


UserOption = Annotated[
    str | None, typer.Option("--user", metavar="USER", help="Whose token it is; yours without it.")
]
RoleOption = Annotated[
    str,
    typer.Option(
        "--role",
        metavar="ROLE",
        help="read: look at one's own jobs; read-all: at everybody's; submit: read, submit, stop one's own; "
        "operate: everybody's, drain; admin: also tokens and the configuration.",
    ),
]
ExpiresOption = Annotated[
    float,
    typer.Option("--expires", parser=_expiry, metavar="SPAN", help=f"Such as 12h, 90d, or {NEVER}."),
]


@token_app.command(cls=PlainCommand)
def create(
    *,
    config: ConfigOption = None,
    user: UserOption = None,
    role: RoleOption = "submit",
    expires: ExpiresOption = "90d",  # type: ignore[assignment]  # the parser makes a number of it
) -> None:
    """Make a token and write it to stdout. It is shown this once: only a digest of it is kept."""
    with opened(config) as scheduler:
        made = scheduler.service.admin.create_token(
            user or scheduler.user, role, expires_s=None if expires == float("inf") else expires
        )
    write_line(made.token)
    ends = "never expires" if made.expires_at is None else f"expires {iso(made.expires_at)}"
    say(f"Token {made.id} of {made.user}, role {made.role}, {ends}. It cannot be shown again.")


@token_app.command("list", cls=PlainCommand)
def list_tokens(*, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """List all tokens, expired and revoked ones included; never their secrets."""
    with opened(config) as scheduler:
        tokens = scheduler.service.admin.list_tokens()
    if as_json:
        write_json([token.model_dump(mode="json") for token in tokens])
        return
    if not tokens:
        say("There is no token: a server on this machine lets every local program in.")
        return
    console = stdout_console()
    times = Times.of(console)
    table = Table("id", "user", "role", "state", "created", "expires", "last used", box=None, pad_edge=False)
    for token in tokens:
        cells = (
            token.id,
            token.user,
            token.role,
            _state(token, times.now),
            times.when(token.created_at),
            NEVER if token.expires_at is None else iso(token.expires_at),
            times.when(token.used_at),
        )
        table.add_row(*(Text(cell, overflow="fold") for cell in cells))
    console.print(table)


@token_app.command(cls=PlainCommand)
def revoke(
    ids: Annotated[list[str], typer.Argument(metavar="ID", help="Which tokens; `raymc token list`.")],
    *,
    config: ConfigOption = None,
) -> None:
    """Revoke tokens. A running server refuses them within a second."""
    with opened(config) as scheduler:
        for token_id in ids:
            revoked = scheduler.service.admin.revoke_token(token_id)
            write_line(f"{revoked.id}: revoked (user {revoked.user}, role {revoked.role})")


def _state(token: TokenView, now: float) -> str:
    if token.revoked_at is not None:
        return "revoked"
    return "expired" if token.expires_at is not None and token.expires_at <= now else "valid"
