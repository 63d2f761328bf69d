"""`raymc stop` and `raymc cancel`: stop jobs by their ids, as a group, or all of one's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ray_multicluster_scheduler.cli import lazy_imports
from ray_multicluster_scheduler.cli.follow_jobs import stop_and_watch
from ray_multicluster_scheduler.cli.options.common import ConfigOption, GroupOption, IdsArgument, YesOption
from ray_multicluster_scheduler.cli.session import confirm, counted, find_jobs, opened
from ray_multicluster_scheduler.client.progress import summary
from ray_multicluster_scheduler.errors import InvalidRequest
from ray_multicluster_scheduler.model.states import FINAL, JobState

if TYPE_CHECKING:
    from ray_multicluster_scheduler.client.current import Handle
    from ray_multicluster_scheduler.service.views import JobView


#: Of more jobs than these only the numbers are told.
MOST_LINES = 20


def stop(
    ids: IdsArgument = None,
    *,
    config: ConfigOption = None,
    group: GroupOption = None,
    all_mine: Annotated[bool, typer.Option("--all-mine", help="All your jobs that have not ended.")] = False,
    yes: YesOption = False,
) -> None:
    """Stop jobs, waiting or running, and wait until they have ended.

    For a group or all of yours it asks first. Exit code: 0 all have ended, 1 not all.
    """
    _check_one_way(ids, group, all_mine=all_mine)
    with opened(config) as scheduler:
        jobs = _mine(scheduler) if all_mine else find_jobs(scheduler, ids or [], group)
        pending = [job for job in jobs if not job.final]
        if not pending:
            ended = summary({job.submission_id: job for job in jobs}) if jobs else "you have no open jobs"
            typer.echo(f"Nothing to stop: {ended}.")
            return
        if not yes and (all_mine or group is not None or len(jobs) > len(ids or [])):
            confirm(f"stop {counted(pending)}")
        stopped = stop_and_watch(
            scheduler, [job.submission_id for job in pending], reason=f"stopped by {scheduler.user}"
        )
        if len(pending) > MOST_LINES:
            typer.echo(summary(stopped))
        else:
            for job in pending:
                typer.echo(f"{job.submission_id}: {stopped[job.submission_id].state.value}")
        if not all(job.final for job in stopped.values()):
            raise typer.Exit(1)


def _check_one_way(ids: list[str] | None, group: str | None, *, all_mine: bool) -> None:
    ways = [bool(ids), group is not None, all_mine]
    if sum(ways) != 1:
        raise InvalidRequest(
            "name the jobs in one way: by ids, names or groups, or with --group or --all-mine"
        )


def _mine(scheduler: Handle) -> list[JobView]:
    states = tuple(state for state in JobState if state not in FINAL)
    query = lazy_imports.JobQuery(states=states, user=scheduler.user)
    return list(lazy_imports.all_jobs(scheduler.service, query, limit=None))
