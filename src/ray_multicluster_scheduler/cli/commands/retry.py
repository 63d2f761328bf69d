"""`raymc retry`: run jobs that failed or were stopped again, as new jobs."""

from __future__ import annotations

from typing import Annotated

import typer

from ray_multicluster_scheduler.cli.commands.submit import hand_over, wait_for
from ray_multicluster_scheduler.cli.options.common import ConfigOption, GroupOption, IdsArgument
from ray_multicluster_scheduler.cli.options.submit import NoWait
from ray_multicluster_scheduler.cli.session import check_named_once, find_jobs, opened
from ray_multicluster_scheduler.errors import InvalidRequest


def retry(
    ids: IdsArgument = None,
    *,
    config: ConfigOption = None,
    group: GroupOption = None,
    no_wait: NoWait = False,
    as_json: Annotated[bool, typer.Option("--json", help="With --no-wait: JSON for programs.")] = False,
) -> None:
    """Run jobs again that have failed or were stopped, as new jobs with the same options.

    Of a group, those of its jobs that did not succeed. `train` is repeated as `train.2`.
    """
    check_named_once(ids, group)
    if as_json and not no_wait:
        raise InvalidRequest("--json goes with --no-wait: while waiting, stdout is for the log")
    with opened(config) as scheduler:
        old = [job.submission_id for job in find_jobs(scheduler, ids or [], group)]
        accepted = scheduler.service.retry(old)
        if no_wait:
            hand_over(scheduler, lambda: accepted, as_json=as_json)
            return
        wait_for(scheduler, [job.submission_id for job in accepted], lambda: accepted)
