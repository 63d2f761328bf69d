"""`raymc audit`: who has changed what."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from ray_multicluster_scheduler.cli.console import stdout_console, write_json
from ray_multicluster_scheduler.cli.options.common import ConfigOption, JsonOption
from ray_multicluster_scheduler.cli.session import opened
from ray_multicluster_scheduler.cli.views.times import Times

if TYPE_CHECKING:
    from ray_multicluster_scheduler.service.admin_views import AuditPage, AuditView

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
        write_json([entry.model_dump(mode="json") for entry in entries])
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


def _entries(page_of: Callable[..., AuditPage], limit: int) -> Iterator[AuditView]:
    """Yield entries page by page: as many as `limit`, 0 for all."""
    left, cursor = limit or None, None
    while left is None or left > 0:
        page = page_of(limit=_PAGE if left is None else min(left, _PAGE), cursor=cursor)
        yield from page.entries
        cursor = page.next_cursor
        if cursor is None:
            return
        left = None if left is None else left - len(page.entries)
