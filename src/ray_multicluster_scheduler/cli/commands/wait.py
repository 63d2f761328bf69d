"""`raymc wait`: wait for many jobs at once, by their ids or as a group."""

from __future__ import annotations

from typing import Annotated

import typer

from ray_multicluster_scheduler.cli.console import say
from ray_multicluster_scheduler.cli.follow_jobs import tell_ends, watch_all
from ray_multicluster_scheduler.cli.options.common import ConfigOption, GroupOption, IdsArgument
from ray_multicluster_scheduler.cli.options.units import plain_seconds
from ray_multicluster_scheduler.cli.session import check_named_once, find_jobs, opened
from ray_multicluster_scheduler.cli.signals import INTERRUPTED
from ray_multicluster_scheduler.errors import WaitTimeout


def wait(
    ids: IdsArgument = None,
    *,
    config: ConfigOption = None,
    group: GroupOption = None,
    timeout: Annotated[
        float | None,
        typer.Option(
            "--timeout",
            parser=plain_seconds,
            metavar="TIME",
            help="Longest wait, such as 90s or 2h; the jobs go on. A plain number is in seconds.",
        ),
    ] = None,
) -> None:
    """Wait until jobs have ended.

    Ctrl-C ends the waiting; the jobs go on. Exit code: 0 all succeeded, 1 not.
    """
    check_named_once(ids, group)
    with opened(config) as scheduler:
        jobs = find_jobs(scheduler, ids or [], group)
        try:
            ended = watch_all(scheduler, [job.submission_id for job in jobs], timeout_s=timeout)
        except WaitTimeout as error:
            say(f"{error}.")
            raise typer.Exit(1) from None
        except KeyboardInterrupt:
            say("No longer waiting; the jobs go on.")
            raise typer.Exit(INTERRUPTED) from None
        tell_ends(scheduler, list(ended.values()))
