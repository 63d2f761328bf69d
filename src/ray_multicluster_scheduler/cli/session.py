"""What a command works on: the scheduler that it opens, and the jobs and clusters that it is given."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.text import Text

from ray_multicluster_scheduler.cli import lazy_imports
from ray_multicluster_scheduler.cli.console import INTERRUPTED
from ray_multicluster_scheduler.client.display import age
from ray_multicluster_scheduler.client.waiting import summary
from ray_multicluster_scheduler.clock import SystemClock
from ray_multicluster_scheduler.errors import InvalidRequest
from ray_multicluster_scheduler.text import did_you_mean, nearest

if TYPE_CHECKING:
    from ray_multicluster_scheduler.client.current import Client
    from ray_multicluster_scheduler.config import Config
    from ray_multicluster_scheduler.model.job import Lease
    from ray_multicluster_scheduler.runtime import Scheduler
    from ray_multicluster_scheduler.service.views import JobView


#: A mistyped name is compared with those of the newest jobs only: a history may hold a million.
_GUESSED_FROM = 1000


def open_config(argument: Path | None) -> Config:
    """Find and read the configuration of this command."""
    return lazy_imports.load_config(lazy_imports.find_config(argument, environ=os.environ, cwd=Path.cwd()))


@contextmanager
def opened_here(config: Path | None) -> Iterator[Scheduler]:
    """Open the configuration of this machine for a command that looks at the clusters themselves."""
    scheduler = lazy_imports.Scheduler.open(config)
    try:
        yield scheduler
    finally:
        scheduler.stop()


@contextmanager
def opened(config: Path | None) -> Iterator[Client]:
    """Open the store of the configuration, or the server that an address names, for one command.

    Whoever uses a store with open jobs makes sure that they are scheduled.
    """
    scheduler = lazy_imports.open_scheduler(config)
    try:
        lazy_imports.keep_scheduled(scheduler)
        yield scheduler
    finally:
        scheduler.stop()


def check_named_once(ids: Sequence[str] | None, group: str | None) -> None:
    """Refuse a command that names its jobs in two ways, or not at all."""
    if bool(ids) == (group is not None):
        raise InvalidRequest("name the jobs in one way: by ids, names or groups, or with --group")


def find_jobs(scheduler: Client, words: Sequence[str], group: str | None) -> list[JobView]:
    """Return the jobs that a command was given: by ids, names or groups, or with --group."""
    if group is None:
        found = [job for word in words for job in scheduler.service.find(word)]
        return list({job.submission_id: job for job in found}.values())
    in_group = list(lazy_imports.all_jobs(scheduler.service, lazy_imports.JobQuery(group=group), limit=None))
    if not in_group:
        newest = scheduler.service.list_jobs(lazy_imports.JobQuery(limit=_GUESSED_FROM)).jobs
        guess = nearest(group, {job.group for job in newest if job.group})
        raise InvalidRequest(
            f"no job belongs to a group {group!r}"
            + (f"; did you mean {guess!r}?" if guess else "; `raymc jobs` shows the known jobs")
        )
    return in_group[::-1]


def counted(jobs: Sequence[JobView]) -> str:
    """Write `10 jobs (8 SUCCEEDED, 2 FAILED)`."""
    count = "1 job" if len(jobs) == 1 else f"{len(jobs)} jobs"
    return f"{count} ({summary({job.submission_id: job for job in jobs})})"


def confirm(deed: str) -> None:
    """Ask before something that is hard to undo; refuse it where nobody can be asked."""
    if not sys.stdin.isatty():
        raise InvalidRequest(f"this would {deed}; say --yes where nobody can be asked")
    try:
        agreed = typer.confirm(f"{deed[:1].upper()}{deed[1:]}?", err=True)
    except typer.Abort:  # Ctrl-C, or the end of the input
        raise typer.Exit(INTERRUPTED) from None
    if not agreed:
        raise typer.Exit(1)


def check_cluster(scheduler: Client, name: str) -> None:
    """Refuse an unknown cluster: on a command line it is a typing mistake."""
    known = scheduler.list_clusters()
    if name not in known:
        raise InvalidRequest(
            f"no cluster is named {name!r} in {scheduler.where}; {did_you_mean(name, known)}"
        )


# Who schedules: which process, or nobody.


#: What was seen of the clusters longer ago may no longer be so.
STALE_S = 60.0


def leader_name(lease: Lease) -> str:
    """Name a leader so that it can be found: `process 4711 on host`."""
    host, _, rest = lease.holder.partition(":")
    return f"process {rest.partition(':')[0]} on {host}" if rest else lease.holder


def stale_note(scheduler: Client, jobs: Iterable[JobView]) -> Text | None:
    """Say how old it is what is shown of open jobs, if the clusters were not looked at lately."""
    if all(job.final for job in jobs):
        return None
    looks = [cluster.observed_at for cluster in scheduler.service.clusters() if cluster.observed_at]
    age_s = max(0.0, SystemClock().now() - max(looks)) if looks else None
    if age_s is not None and age_s < STALE_S:
        return None
    seen = "have not been looked at yet" if age_s is None else f"were last looked at {age(age_s)} ago"
    who = "the scheduler looks at them now" if scheduler.service.leader() else "no scheduler runs"
    return Text(f"The clusters {seen}; {who}.", style="yellow")
