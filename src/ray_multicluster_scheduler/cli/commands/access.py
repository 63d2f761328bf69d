"""Who may use a server: `raymc token`, `audit`, `login` and `logout`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from ray_multicluster_scheduler.cli import lazy_imports
from ray_multicluster_scheduler.cli.console import INTERRUPTED, say, stdout_console, write_json, write_line
from ray_multicluster_scheduler.cli.options.common import ConfigOption, JsonOption, PlainCommand, seconds
from ray_multicluster_scheduler.cli.registry import CommandGroup
from ray_multicluster_scheduler.cli.session import opened
from ray_multicluster_scheduler.client.display import Times, iso
from ray_multicluster_scheduler.config.find import login_path, server_url
from ray_multicluster_scheduler.errors import InvalidRequest

if TYPE_CHECKING:
    from ray_multicluster_scheduler.model.access import AuditEntry, Token
    from ray_multicluster_scheduler.service.administration import AuditPage


# `raymc token`: who may use the server.


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
        write_json([asdict(token) for token in tokens])
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


def _state(token: Token, now: float) -> str:
    if token.revoked_at is not None:
        return "revoked"
    return "expired" if token.expires_at is not None and token.expires_at <= now else "valid"


# `raymc audit`: who has changed what.


#: Entries that are asked for at once.
_PAGE = 1000


def audit(
    *,
    config: ConfigOption = None,
    user: Annotated[str | None, typer.Option("--user", metavar="USER", help="What this user did.")] = None,
    limit: Annotated[
        int, typer.Option("--limit", min=0, metavar="N", help="The newest N; 0 for all of them.")
    ] = 50,
    as_json: JsonOption = False,
) -> None:
    """List who has changed what, the newest first: jobs, clusters, tokens, configuration, refused logins."""
    with opened(config) as scheduler:
        admin = scheduler.service.admin
        entries = list(_entries(partial(admin.audit, user=user), limit))
    if as_json:
        write_json([asdict(entry) for entry in entries])
        return
    console = stdout_console()
    times = Times.of(console)
    table = Table("when", "user", "token", "from", "action", "outcome", "what", box=None, pad_edge=False)
    for entry in entries:
        cells = (
            times.when(entry.at),
            entry.user or "-",
            entry.token_id or "-",
            entry.address or "-",
            entry.action,
            entry.outcome,
            entry.target or "-",
        )
        table.add_row(*(Text(cell, overflow="fold") for cell in cells))
    console.print(table)


def _entries(page_of: Callable[..., AuditPage], limit: int) -> Iterator[AuditEntry]:
    """Yield entries page by page: as many as `limit`, 0 for all."""
    left, cursor = limit or None, None
    while left is None or left > 0:
        page = page_of(limit=_PAGE if left is None else min(left, _PAGE), cursor=cursor)
        yield from page.entries
        cursor = page.next_cursor
        if cursor is None:
            return
        left = None if left is None else left - len(page.entries)


# `raymc login` and `logout`: which server this user's commands and programs use, without variables.


def login(
    address: Annotated[
        str, typer.Argument(metavar="URL", help="The server, such as https://raymc.example.org.")
    ],
) -> None:
    """Use a server from now on: keep its address and a token in a file that only you can read.

    The token is asked for, or read from stdin; it is never a word of the command line, which others can see.
    Options and variables of the environment go before a login.
    """
    try:
        url = server_url(address)
    except ValueError as error:
        raise InvalidRequest(f"URL: {error}") from None
    token = _token(url)
    named = lazy_imports.server_at(url, named_by="the command line", environ=os.environ)
    server = replace(named, token=token or None, token_place="what was typed")  # noqa: S106 - words
    scheduler = lazy_imports.RemoteScheduler(server, environ=os.environ)
    try:
        clusters = len(scheduler.service.clusters())  # a wrong address or token is told now
    finally:
        scheduler.stop()
    path = login_path(os.environ)
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(f".{os.getpid()}")
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        json.dump({"address": url, "token": token}, file)
    fresh.replace(path)
    say(f"Logged in to {url}, with {clusters} cluster{'' if clusters == 1 else 's'}; kept in {path}.")


def logout() -> None:
    """Forget the server and the token of `raymc login`."""
    path = login_path(os.environ)
    try:
        path.unlink()
    except FileNotFoundError:
        say("Nobody is logged in here.")
    else:
        say(f"Logged out: {path} is gone. The token stays valid: `raymc token revoke` ends it.")


def _token(url: str) -> str:
    if not sys.stdin.isatty():
        return sys.stdin.readline().strip()
    try:
        typed: str = typer.prompt(
            f"Token for {url} (not shown; empty if it wants none)",
            hide_input=True,
            default="",
            show_default=False,
            err=True,
        )
    except typer.Abort:  # Ctrl-C, or the end of the input
        raise typer.Exit(INTERRUPTED) from None
    return typed.strip()
