"""Options, arguments and helpers that every command shares."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ray_multicluster_scheduler.cli import late
from ray_multicluster_scheduler.cli.completion import complete_clusters, complete_groups, complete_ids
from ray_multicluster_scheduler.errors import InvalidRequest, JobNotFound
from ray_multicluster_scheduler.model.job import Job
from ray_multicluster_scheduler.policy.guess import nearest
from ray_multicluster_scheduler.ports import JobStore

if TYPE_CHECKING:
    from ray_multicluster_scheduler.config import Config
    from ray_multicluster_scheduler.runtime import Scheduler


#: Who mistypes a name means one of the newest jobs, and a history may hold a million.
_GUESSED_FROM = 1000

ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="The clusters.yaml to use; without it RAY_MULTICLUSTER_CONFIG, ./clusters.yaml and the home.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON; an unknown value is null.")]
WatchOption = Annotated[bool, typer.Option("--watch", help="Stay and refresh until Ctrl-C.")]
GroupOption = Annotated[
    str | None,
    typer.Option(
        "--group", metavar="GROUP", help="All jobs of this group (array).", autocompletion=complete_groups
    ),
]
IdArgument = Annotated[
    str, typer.Argument(metavar="ID", help="Submission id of the job.", autocompletion=complete_ids)
]
IdsArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="[ID]...", help="Submission ids of the jobs.", autocompletion=complete_ids),
]
ClusterArgument = Annotated[
    str, typer.Argument(metavar="CLUSTER", help="Name of the cluster.", autocompletion=complete_clusters)
]


def open_config(argument: Path | None) -> Config:
    """Find and read the configuration of this command."""
    return late.load_config(late.find_config(argument, environ=os.environ, cwd=Path.cwd()))


@contextmanager
def opened(config: Path | None) -> Iterator[Scheduler]:
    """Open the configuration and its store for one command. Starts no engine; ends one that was started."""
    scheduler = late.Scheduler.open(config)
    try:
        yield scheduler
    finally:
        scheduler.stop()


def find_job(store: JobStore, submission_id: str) -> Job:
    """Return a job, or raise `JobNotFound` with the nearest id."""
    known = store.get_many([submission_id])
    if submission_id not in known:
        ids = [job.submission_id for job in store.list_jobs(limit=_GUESSED_FROM)]
        raise JobNotFound(submission_id, nearest=nearest(submission_id, ids))
    return known[submission_id]


def find_jobs(store: JobStore, ids: Sequence[str], group: str | None) -> list[Job]:
    """Return the jobs that a command was given, by their ids or by their group."""
    if group is None:
        return [find_job(store, submission_id) for submission_id in dict.fromkeys(ids)]
    found = list(store.list_jobs(group=group))
    if not found:
        groups = {job.spec.group for job in store.list_jobs(limit=_GUESSED_FROM) if job.spec.group}
        guess = nearest(group, groups)
        raise InvalidRequest(
            f"no job belongs to a group {group!r}"
            + (f"; did you mean {guess!r}?" if guess else "; `raymc jobs` shows the known jobs")
        )
    return found[::-1]
