"""What is done with jobs that are there: `raymc stop`, `cancel`, `retry`, `wait`, `delete` and `prune`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ray_multicluster_scheduler.cli import lazy_imports
from ray_multicluster_scheduler.cli.commands.submit import hand_over, wait_for
from ray_multicluster_scheduler.cli.console import INTERRUPTED, say, write_json, write_line
from ray_multicluster_scheduler.cli.follow_jobs import stop_and_watch, tell_ends, watch_all
from ray_multicluster_scheduler.cli.options.common import (
    ConfigOption,
    GroupOption,
    IdsArgument,
    JsonOption,
    YesOption,
    plain_seconds,
    seconds,
)
from ray_multicluster_scheduler.cli.options.submit import NoWait
from ray_multicluster_scheduler.cli.session import check_named_once, confirm, counted, find_jobs, opened
from ray_multicluster_scheduler.client.waiting import summary
from ray_multicluster_scheduler.errors import InvalidRequest, WaitTimeout
from ray_multicluster_scheduler.model.states import FINAL, JobState

if TYPE_CHECKING:
    from ray_multicluster_scheduler.client.current import Client
    from ray_multicluster_scheduler.service.views import JobView, PruneView


# `raymc stop` and `raymc cancel`: stop jobs by their ids, as a group, or all of one's own.


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


def _mine(scheduler: Client) -> list[JobView]:
    states = tuple(state for state in JobState if state not in FINAL)
    query = lazy_imports.JobQuery(states=states, user=scheduler.user)
    return list(lazy_imports.all_jobs(scheduler.service, query, limit=None))


# `raymc delete`: forget jobs that have ended, by their ids or as a group.


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


# `raymc retry`: run jobs that failed or were stopped again, as new jobs.


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


# `raymc prune`: remove old history now, or see what would go.


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


# `raymc wait`: wait for many jobs at once, by their ids or as a group.


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
