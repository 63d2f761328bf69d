"""`raymc prune`: remove old history now, or see what would go."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Annotated

import typer

from ray_multicluster_scheduler.cli import late
from ray_multicluster_scheduler.cli.leading import leader_of
from ray_multicluster_scheduler.cli.options import ConfigOption, JsonOption, opened
from ray_multicluster_scheduler.cli.render import say, write_json, write_line
from ray_multicluster_scheduler.cli.time_spans import seconds
from ray_multicluster_scheduler.clock import SystemClock
from ray_multicluster_scheduler.model.retention import Keep, Pruned, Space

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
        help="Keep the newest N that have ended; the configuration's keep_jobs without it.",
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
        rules = _rules(late.keep_rules(scheduler.config.settings), older_than, keep)
        store, now = scheduler.store, SystemClock().now()
        before = store.space()
        if dry_run:
            _report(store.prunable(rules, now=now), before, before, dry_run=True, as_json=as_json)
            return
        pruned = late.prune_all(store, rules, now=now)
        given_back = store.compact(rewrite=leader_of(store) is None)
        _report(pruned, before, store.space(), dry_run=False, as_json=as_json)
        if not given_back and not as_json:
            say(
                "An older version made this store: its free space is used again, and given back when you run "
                "`raymc prune` while no scheduler is running.",
                style="yellow",
            )


def _rules(rules: Keep, older_than: float | None, keep: int | None) -> Keep:
    if older_than is not None:
        rules = replace(rules, jobs_s=older_than)
    return rules if keep is None else replace(rules, jobs=keep)


def _report(pruned: Pruned, before: Space, after: Space, *, dry_run: bool, as_json: bool) -> None:
    counts = {name: count for name, count in asdict(pruned).items() if name != "more"}
    if dry_run:
        del counts["secrets"]
    if as_json:
        write_json(
            {
                "dry_run": dry_run,
                **counts,
                "bytes_before": before.file_bytes,
                "bytes_after": None if dry_run else after.file_bytes,
            }
        )
        return
    what = f"{pruned.jobs} jobs and {pruned.logs} logs"
    if dry_run:
        write_line(f"Would remove {what}; the store has {_mib(before.file_bytes)}. Nothing was removed.")
        return
    write_line(
        f"Removed {what}, and the secrets of {pruned.secrets} jobs. "
        f"The store has {_mib(after.file_bytes)}; it had {_mib(before.file_bytes)}."
    )


def _mib(size: int) -> str:
    return f"{size / 2**20:.1f} MiB"
