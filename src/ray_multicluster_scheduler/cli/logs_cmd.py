"""`raymc logs`: what a job wrote, so far or as it goes on."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Annotated

import typer

from ray_multicluster_scheduler.cli import late
from ray_multicluster_scheduler.cli.log_writer import LogWriter
from ray_multicluster_scheduler.cli.options import ConfigOption, IdArgument, find_job, opened
from ray_multicluster_scheduler.cli.render import say
from ray_multicluster_scheduler.cli.signals import INTERRUPTED
from ray_multicluster_scheduler.cli.waiting import follow, tell_end
from ray_multicluster_scheduler.model.cluster import ClusterSpec
from ray_multicluster_scheduler.model.job import Job

if TYPE_CHECKING:
    from ray_multicluster_scheduler.runtime import Scheduler


def logs(
    submission_id: IdArgument,
    *,
    config: ConfigOption = None,
    follow_it: Annotated[
        bool,
        typer.Option("--follow", "-f", help="Go on until it has ended; exit code 1 unless it succeeded."),
    ] = False,
) -> None:
    """Write the log of a job to stdout.

    It comes from the cluster while the job runs, and from our own copy afterwards.

    Ctrl-C ends the following; the job goes on.
    """
    with opened(config) as scheduler:
        job = find_job(scheduler.store, submission_id)
        if not follow_it:
            _write(scheduler, job)
            return
        scheduler.start()
        try:
            tell_end(follow(scheduler, submission_id))
        except KeyboardInterrupt:
            say(f"{submission_id} goes on.")
            raise typer.Exit(INTERRUPTED) from None


def _write(scheduler: Scheduler, job: Job) -> None:
    text = scheduler.store.load_log(job.submission_id, job.attempt) if job.final else None
    if text is None and job.cluster is not None and job.remote_id is not None and job.seen_at is not None:
        spec = scheduler.config.cluster(job.cluster)
        text = asyncio.run(_read(spec, job.remote_id, scheduler.config.settings.request_timeout_s))
    if text is None:
        say(f"{job.submission_id} has no log yet: it is {job.state.value}, {job.reason}.")
        return
    writer = LogWriter()
    writer.write(text)
    writer.close()


async def _read(spec: ClusterSpec, remote_id: str, timeout_s: float) -> str:
    async with late.open_ray_api(spec, os.environ, request_timeout_s=timeout_s) as api:
        return await api.job_logs(remote_id)
