"""`raymc logs`: what a job wrote, so far or as it goes on."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Annotated

import typer

from ray_multicluster_scheduler.cli import late
from ray_multicluster_scheduler.cli.job_display import where_it_is
from ray_multicluster_scheduler.cli.log_writer import LogWriter
from ray_multicluster_scheduler.cli.options import ConfigOption, IdArgument, opened
from ray_multicluster_scheduler.cli.render import say, write_line
from ray_multicluster_scheduler.cli.signals import INTERRUPTED
from ray_multicluster_scheduler.cli.waiting import follow, tell_end
from ray_multicluster_scheduler.errors import InvalidRequest
from ray_multicluster_scheduler.model.cluster import ClusterSpec
from ray_multicluster_scheduler.model.job import Job

if TYPE_CHECKING:
    from ray_multicluster_scheduler.runtime import Scheduler


def logs(
    word: IdArgument,
    *,
    config: ConfigOption = None,
    follow_it: Annotated[
        bool,
        typer.Option("--follow", "-f", help="Go on until it has ended; exit code 1 unless it succeeded."),
    ] = False,
    tail: Annotated[
        int | None, typer.Option("--tail", "-n", metavar="N", min=0, help="The last N lines only.")
    ] = None,
) -> None:
    """Write the log of a job to stdout; of a group, one after the other.

    It comes from the cluster while the job runs, and from our own copy afterwards.

    Ctrl-C ends the following; the job goes on.
    """
    if follow_it and tail is not None:
        raise InvalidRequest("--tail shows what is there now, --follow what comes: use one of them")
    with opened(config) as scheduler:
        jobs = scheduler.jobs.find(word)
        if not follow_it:
            for job in jobs:
                if len(jobs) > 1:
                    write_line(f"==> {job.submission_id} {where_it_is(job)} <==")
                _write(scheduler, job, tail)
            return
        if len(jobs) > 1:
            raise InvalidRequest(f"{word!r} is {len(jobs)} jobs; --follow goes with one of them")
        scheduler.start()
        try:
            tell_end(follow(scheduler, jobs[0].submission_id))
        except KeyboardInterrupt:
            say(f"{jobs[0].submission_id} goes on.")
            raise typer.Exit(INTERRUPTED) from None


def _write(scheduler: Scheduler, job: Job, tail: int | None) -> None:
    text = scheduler.store.load_log(job.submission_id, job.attempt) if job.final else None
    if text is None and job.cluster is not None and job.remote_id is not None and job.seen_at is not None:
        spec = scheduler.config.cluster(job.cluster)
        text = asyncio.run(_read(spec, job.remote_id, scheduler.config.settings.request_timeout_s))
    if text is None:
        say(f"{job.submission_id} has no log yet: it is {job.state.value}, {job.reason}.")
        return
    lines = text.splitlines(keepends=True)
    writer = LogWriter()
    writer.write("".join(lines if tail is None else lines[max(0, len(lines) - tail) :]))
    writer.close()


async def _read(spec: ClusterSpec, remote_id: str, timeout_s: float) -> str:
    async with late.open_ray_api(spec, os.environ, request_timeout_s=timeout_s) as api:
        return await api.job_logs(remote_id)
