"""`raymc login` and `logout`: which server this user's commands and programs use, without variables."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from typing import Annotated

import typer

from ray_multicluster_scheduler.cli import lazy_imports
from ray_multicluster_scheduler.cli.console import say
from ray_multicluster_scheduler.cli.signals import INTERRUPTED
from ray_multicluster_scheduler.config.find import login_path
from ray_multicluster_scheduler.config.server_url import server_url
from ray_multicluster_scheduler.errors import InvalidRequest


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
