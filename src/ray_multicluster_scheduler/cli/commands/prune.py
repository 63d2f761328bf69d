"""`raymc prune`: remove old history now, or see what would go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ray_multicluster_scheduler.cli.console import say, write_json, write_line
from ray_multicluster_scheduler.cli.options.common import ConfigOption, JsonOption
from ray_multicluster_scheduler.cli.options.units import seconds
from ray_multicluster_scheduler.cli.session import opened

if TYPE_CHECKING:
    from ray_multicluster_scheduler.service.views import PruneView

OlderOption = Annotated[
    float | None,
    typer.Option(
        "--older-than",
        parser=seconds,
        metavar="SPAN",
        help="Jobs that ended longer ago, such as 30d or 12h; the configuration's keep_jobs_days without it.",
    ),
]
CountOption = Annotated[
    int | None,
    typer.Option(
        "--keep",
        min=0,
        metavar="N",
        help="Keep N that have ended, the newest of each user; the configuration's keep_jobs without it.",
    ),
]
DryOption = Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")]


def prune(
    *,
    config: ConfigOption = None,
    older_than: OlderOption = None,
    keep: CountOption = None,
    dry_run: DryOption = False,
    as_json: JsonOption = False,
) -> None:
    """Remove jobs that ended long ago, with their logs, attempts and events, and give their space back.

    A scheduler does the same from time to time, by the configuration. Jobs that have not ended stay, and so
    do those that one of these waits for. Secrets and logs go earlier than jobs.
    """
    with opened(config) as scheduler:
        pruned = scheduler.service.prune(older_than_s=older_than, keep=keep, dry_run=dry_run)
    if as_json:
        write_json(pruned.model_dump(mode="json"))
        return
    _report(pruned)
    if not pruned.given_back:
        say(
            "An older version made this store: its free space is used again, and given back when you run "
            "`raymc prune` while no scheduler is running.",
            style="yellow",
        )


def _report(pruned: PruneView) -> None:
    what = f"{pruned.jobs} jobs and {pruned.logs} logs"
    before = _mib(pruned.bytes_before)
    if pruned.bytes_after is None:
        write_line(f"Would remove {what}; the store has {before}. Nothing was removed.")
        return
    write_line(
        f"Removed {what}, and the secrets of {pruned.secrets} jobs. "
        f"The store has {_mib(pruned.bytes_after)}; it had {before}."
    )


def _mib(size: int) -> str:
    return f"{size / 2**20:.1f} MiB"
