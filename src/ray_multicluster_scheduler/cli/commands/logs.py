"""`raymc logs`: what a job wrote, so far or as it goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ray_multicluster_scheduler.cli.console import say, write_line
from ray_multicluster_scheduler.cli.follow_jobs import follow, follow_all, tell_end, tell_ends
from ray_multicluster_scheduler.cli.options.common import ConfigOption, JobsArgument
from ray_multicluster_scheduler.cli.session import find_jobs, opened
from ray_multicluster_scheduler.cli.signals import INTERRUPTED
from ray_multicluster_scheduler.cli.views.job_progress import where_it_is
from ray_multicluster_scheduler.cli.views.log_writer import LogWriter
from ray_multicluster_scheduler.errors import InvalidRequest

if TYPE_CHECKING:
    from ray_multicluster_scheduler.client.current import Handle
    from ray_multicluster_scheduler.service.views import JobView

#: Each log that is followed holds a connection to its cluster.
MOST_FOLLOWED = 50


def logs(
    words: JobsArgument,
    *,
    config: ConfigOption = None,
    follow_it: Annotated[
        bool,
        typer.Option(
            "--follow",
            "-f",
            help="Go on until it has ended; exit code 1 unless it succeeded. Of several jobs, each line "
            "begins with the job's id.",
        ),
    ] = False,
    tail: Annotated[
        int | None, typer.Option("--tail", "-n", metavar="N", min=0, help="The last N lines only.")
    ] = None,
) -> None:
    """Write the log of a job to stdout; of several, one after the other.

    It comes from the cluster while the job runs, and from our own copy afterwards.

    Ctrl-C ends the following; the job goes on.
    """
    if follow_it and tail is not None:
        raise InvalidRequest("--tail shows what is there now, --follow what comes: use one of them")
    with opened(config) as scheduler:
        jobs = find_jobs(scheduler, words, None)
        if not follow_it:
            for job in jobs:
                if len(jobs) > 1:
                    write_line(f"==> {job.submission_id} {where_it_is(job)} <==")
                _write(scheduler, job, tail)
            return
        if len(jobs) > MOST_FOLLOWED:
            raise InvalidRequest(f"these are {len(jobs)} jobs; --follow shows {MOST_FOLLOWED} at most")
        try:
            if len(jobs) == 1:
                tell_end(follow(scheduler, jobs[0].submission_id))
            else:
                tell_ends(scheduler, follow_all(scheduler, [job.submission_id for job in jobs]))
        except KeyboardInterrupt:
            say(f"{jobs[0].submission_id} goes on." if len(jobs) == 1 else f"{len(jobs)} jobs go on.")
            raise typer.Exit(INTERRUPTED) from None


def _write(scheduler: Handle, job: JobView, tail: int | None) -> None:
    text = scheduler.service.log(job.submission_id)
    if text is None:
        say(f"{job.submission_id} has no log yet: it is {job.state.value}, {job.message}.")
        return
    lines = text.splitlines(keepends=True)
    writer = LogWriter()
    writer.write("".join(lines if tail is None else lines[max(0, len(lines) - tail) :]))
    writer.close()
