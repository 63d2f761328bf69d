"""`raymc delete`: forget jobs that have ended, by their ids or as a group."""

from __future__ import annotations

import typer

from ray_multicluster_scheduler.cli.console import write_json
from ray_multicluster_scheduler.cli.options.common import (
    ConfigOption,
    GroupOption,
    IdsArgument,
    JsonOption,
    YesOption,
)
from ray_multicluster_scheduler.cli.session import check_named_once, confirm, counted, find_jobs, opened


def delete(
    ids: IdsArgument = None,
    *,
    config: ConfigOption = None,
    group: GroupOption = None,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Forget jobs that have ended, with their logs, here and on their clusters.

    For more jobs than were named, such as a group, it asks first. All of them or none: one that has not ended
    is to be stopped first. Their submission ids are free again.
    """
    check_named_once(ids, group)
    with opened(config) as scheduler:
        jobs = find_jobs(scheduler, ids or [], group)
        if not yes and len(jobs) > len(ids or []):
            confirm(f"delete {counted(jobs)} with their logs, here and on their clusters")
        found = [job.submission_id for job in jobs]
        scheduler.service.delete(found)
    if as_json:
        write_json({"deleted": found})
        return
    for submission_id in found:
        typer.echo(f"{submission_id}: deleted")
