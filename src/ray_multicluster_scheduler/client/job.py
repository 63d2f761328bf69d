"""A job as an object: its id, which can be asked, waited for and stopped. And several as a list.

`Job` is a `str`, so that all programs that take an id go on; `Jobs` is a `list` of them. Neither keeps
anything of the scheduler: each question is asked anew, of the scheduler that this process uses then.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

import yaml

from ray_multicluster_scheduler.client import waiting
from ray_multicluster_scheduler.client.current import keep_scheduled, working_scheduler
from ray_multicluster_scheduler.client.job_info import JobInfo
from ray_multicluster_scheduler.client.result import value_of
from ray_multicluster_scheduler.client.scope import remembered
from ray_multicluster_scheduler.client.tracebacks import each_ends_at_the_caller, ends_at_the_caller
from ray_multicluster_scheduler.errors import InvalidRequest, JobNotFound, WaitTimeout
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.service.arguments import amount, whole, words
from ray_multicluster_scheduler.service.query import JobQuery, all_jobs, one_job
from ray_multicluster_scheduler.service.views import AttemptView, Explanation, JobView
from ray_multicluster_scheduler.text import seconds_of

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ray_multicluster_scheduler.service.api import Service

log = logging.getLogger(__name__)

#: How long `stop` waits for the job to have ended.
STOP_TIMEOUT_S = 30.0
#: Ray's words for the states of a job, and what is said of one that nobody knows.
JobStatus: TypeAlias = Literal["PENDING", "RUNNING", "SUCCEEDED", "FAILED", "STOPPED", "UNKNOWN"]
#: While somebody waits for jobs, durations are shown anew this often.
SHOW_EVERY_S = 1.0


@each_ends_at_the_caller
class Job(str):
    """The id of a job, and the job.

    It equals its id, is formatted, hashed and written to JSON like it, and is pickled as a plain `str`, so
    that a program without this package can read it. What it tells is asked for each time; a job that nobody
    knows any more raises `JobNotFound`.
    """

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        return str, (str(self),)

    @property
    def status(self) -> JobStatus:
        """PENDING, RUNNING, SUCCEEDED, FAILED, STOPPED, or UNKNOWN: what `get_job_status` says."""
        try:
            return cast(JobStatus, self._view().status)
        except JobNotFound:
            return "UNKNOWN"

    @property
    def state(self) -> JobState:
        """Where it is, more exactly: QUEUED, PLACED, SUBMITTED, RUNNING, UNREACHABLE, …"""
        return self._view().state

    @property
    def done(self) -> bool:
        """Tell whether it has ended."""
        return self._view().final

    @property
    def cluster(self) -> str | None:
        """The cluster that it is or was on; None: it has none yet."""
        return self._view().cluster

    @property
    def attempts(self) -> tuple[AttemptView, ...]:
        """Its placements on clusters, oldest first, with what was sent there and how each ended."""
        service, job = self._asked()
        return service.attempts(job.submission_id)

    @property
    def submitted_at(self) -> datetime:
        """When it was accepted."""
        return _moment(self._view().accepted_at)

    @property
    def started_at(self) -> datetime | None:
        """When its last attempt began to run."""
        return _moment_or_none(self._view().started_at)

    @property
    def ended_at(self) -> datetime | None:
        """When it ended; None while it has not."""
        return _moment_or_none(self._view().ended_at)

    def info(self) -> JobInfo:
        """Return all that is known of it; see `get_job_info`."""
        service, job = self._asked()
        return JobInfo(service.detail(job.submission_id).model_dump(mode="json"))

    def logs(self, tail: int | None = None) -> str:
        """Return its log so far, or the last lines of it; empty where there is none."""
        service, job = self._asked()
        text = service.log(job.submission_id) or ""
        if tail is None:
            return text
        lines = text.splitlines(keepends=True)
        return "".join(lines[max(0, len(lines) - whole("tail", tail, least=0)) :])

    def follow(self) -> Iterator[str]:
        """Yield the lines of its log, without their ends, as they are written, until it has ended."""
        service, job = self._asked()
        return _lines(service.tail(job.submission_id))

    def wait(self, timeout: float | None = None) -> Job:
        """Wait until it has succeeded, and return it.

        Raises what `wait_for_all_jobs` raises: a RuntimeError with the end of its log if it failed or was
        stopped, a TimeoutError if it has not ended in time.
        """
        waiting.wait_for_all_jobs([self], timeout=timeout)
        return self

    def result(self, timeout: float | None = None) -> Any:
        """Wait until it has succeeded, and return the result that it has left: see `set_result`.

        JSON comes back as objects, everything else as bytes. What it has left as a URL is fetched from there
        (with fsspec). Raises what `wait` raises, and `NoResult` if it has left none.
        """
        self.wait(timeout)
        service, job = self._asked()
        return value_of(service.result(job.submission_id))

    def __await__(self) -> Generator[Any, None, Job]:
        """Wait like `wait`, without a thread."""
        yield from waiting.wait_for_all_jobs_async([self]).__await__()
        return self

    def stop(self) -> bool:
        """Stop it, waiting or running, and wait until it has ended; see `stop_job`."""
        try:
            service, job = self._asked()
            if job.final:
                return False
            service.stop([job.submission_id])
            for jobs in service.changes([job.submission_id], timeout_s=STOP_TIMEOUT_S, tick_s=1.0):
                job = jobs[job.submission_id]
        except (JobNotFound, WaitTimeout) as error:
            log.warning("not stopped: %s", error)
            return False
        return job.state is JobState.STOPPED

    def retry(self) -> Job:
        """Run it again as a new job, which is returned; see `retry_job`."""
        return _retried([str(self)])[0]

    def explain(self) -> JobExplanation:
        """Return why it is where it is, and what would let it start. It prints like `raymc explain`."""
        service, job = self._asked()
        return JobExplanation(**dict(service.explain(job.submission_id)))

    def summary(self) -> str:
        """Tell in a line where it is: `sub_2f1c RUNNING on mac for 3 min`."""
        from ray_multicluster_scheduler.client.display import as_text  # noqa: PLC0415 - see `_shown`

        return as_text(self.__rich__(), width=10_000)

    def __rich__(self) -> RenderableType:
        from ray_multicluster_scheduler.client.display import job_line  # noqa: PLC0415 - see `_shown`

        return job_line(self._view(), time.time())

    def _repr_html_(self) -> str:
        from ray_multicluster_scheduler.client.display import as_html  # noqa: PLC0415 - see `_shown`

        return as_html(self.__rich__())

    def _view(self) -> JobView:
        return self._asked()[1]

    def _asked(self) -> tuple[Service, JobView]:
        service = working_scheduler().service
        return service, one_job(service, str(self))


@each_ends_at_the_caller
class Jobs(list[Job]):
    """Several jobs: an array, or what `jobs()` has found. A question about all is asked at once."""

    def counts(self) -> Counter[str]:
        """Return how many are in which state."""
        return Counter(job.state.value for job in self._views())

    @property
    def failed(self) -> Jobs:
        """Those that have failed or were stopped."""
        return Jobs(Job(job.submission_id) for job in waiting.failed(self._views()))

    @property
    def done(self) -> bool:
        """Tell whether all have ended."""
        return all(job.final for job in self._views())

    def wait(self, timeout: float | None = None, *, fail_fast: bool = True, progress: bool = True) -> Jobs:
        """Wait until all have succeeded, and return them; raises what `wait_for_all_jobs` raises.

        On a terminal and in a notebook a table shows them meanwhile, elsewhere lines of the log at INFO;
        `progress=False` shows nothing.
        """
        if not self:
            return self
        timeout = amount("timeout", timeout)
        service = working_scheduler().service
        with _live_table(progress=progress) as show, waiting.reporting_interrupts(service, self):
            for jobs in service.changes(list(map(str, self)), timeout_s=timeout, tick_s=SHOW_EVERY_S):
                show(jobs)
                if fail_fast or all(job.final for job in jobs.values()):
                    waiting.raise_if_failed(service, jobs)
        return self

    def __await__(self) -> Generator[Any, None, Jobs]:
        """Wait like `wait`, without a thread and without a table."""
        yield from waiting.wait_for_all_jobs_async(self).__await__()
        return self

    def as_completed(self, timeout: float | None = None) -> Iterator[Job]:
        """Yield each job when it has ended, the first one first, however it ended.

        Raises a TimeoutError if not all have ended within `timeout` seconds.
        """
        if not self:
            return
        timeout = amount("timeout", timeout)
        open_jobs = dict.fromkeys(map(str, self))
        service = working_scheduler().service
        for jobs in service.changes(list(open_jobs), timeout_s=timeout, tick_s=SHOW_EVERY_S):
            for ended in _newly_ended(open_jobs, jobs):
                yield Job(ended)

    def stop(self) -> int:
        """Ask for all that have not ended to be stopped; return how many those are. It does not wait."""
        pending = [job.submission_id for job in self._views() if not job.final]
        working_scheduler().service.stop(pending)
        return len(pending)

    def retry(self) -> Jobs:
        """Run those that failed or were stopped again, as new jobs, which are returned."""
        again = [str(job) for job in self.failed]
        return _retried(again) if again else Jobs()

    def summary(self) -> str:
        """Tell how many are in which state: `3 RUNNING, 7 SUCCEEDED`."""
        return waiting.summary({job.submission_id: job for job in self._views()})

    def __rich__(self) -> RenderableType:
        from ray_multicluster_scheduler.client.display import jobs_table  # noqa: PLC0415 - see `_shown`

        return jobs_table(self._views(), time.time())

    def _repr_html_(self) -> str:
        from ray_multicluster_scheduler.client.display import as_html  # noqa: PLC0415 - see `_shown`

        return as_html(self.__rich__())

    def _views(self) -> list[JobView]:
        """Return those that are still known, in this order."""
        known = working_scheduler().service.get_many(list(map(str, self)))
        return [known[each] for each in self if each in known]


class JobExplanation(Explanation):
    """Why a job is where it is. Printed, it reads like `raymc explain`."""

    def __str__(self) -> str:
        from ray_multicluster_scheduler.client.display import as_text  # noqa: PLC0415 - see `_shown`

        return as_text(self.__rich__())

    __repr__ = __str__

    def __rich__(self) -> RenderableType:
        from rich.console import Group  # noqa: PLC0415 - see `_shown`
        from rich.text import Text  # noqa: PLC0415

        from ray_multicluster_scheduler.client.display import explanation, state_text  # noqa: PLC0415

        head = Text.assemble((self.submission_id, "bold"), " ", state_text(self.state), f": {self.message}")
        return Group(head, *explanation(self, plain=False))

    def _repr_html_(self) -> str:
        from ray_multicluster_scheduler.client.display import as_html  # noqa: PLC0415 - see `_shown`

        return as_html(self.__rich__())


def written_as_text(kind: type[str]) -> None:
    """Let `yaml.safe_dump`, which refuses what it does not know, write such an id like any other text."""
    yaml.SafeDumper.add_representer(kind, lambda dumper, job: dumper.represent_str(str(job)))


written_as_text(Job)
yaml.SafeDumper.add_representer(JobInfo, yaml.SafeDumper.represent_dict)
yaml.SafeDumper.add_representer(Jobs, yaml.SafeDumper.represent_list)


async def ended(submission_ids: Sequence[str], timeout: float | None) -> AsyncIterator[str]:
    """Yield each id when its job has ended, as `Jobs.as_completed` does; no thread waits."""
    if not submission_ids:
        return
    timeout = amount("timeout", timeout)
    open_jobs = dict.fromkeys(map(str, submission_ids))
    service = (await asyncio.to_thread(working_scheduler)).service
    changes = service.changes_async(list(open_jobs), timeout_s=timeout, tick_s=SHOW_EVERY_S)
    async with aclosing(changes):
        async for jobs in changes:
            for each in _newly_ended(open_jobs, jobs):
                yield each


@ends_at_the_caller
def job(submission_id: str) -> Job:
    """Return the job with this id, or the newest with this `job_id`; raises `JobNotFound`."""
    return Job(one_job(working_scheduler().service, submission_id).submission_id)


@ends_at_the_caller
def jobs(
    *,
    state: str | JobState | Iterable[str] | None = None,
    since: datetime | timedelta | str | float | None = None,
    name: str | None = None,
    text: str | None = None,
    user: str | None = None,
    cluster: str | None = None,
    group: str | None = None,
    tag: str | None = None,
    limit: int | None = 100,
) -> Jobs:
    """Return jobs that match every given filter, the newest first.

    Args:
        state: One state, or several: those of `Job.state`.
        since: Accepted since then: a moment, how long ago (`timedelta`, "2h"), or seconds since the epoch.
        name: The `job_id` that they were given.
        text: A part of the id, the name or the command.
        user: Whose they are.
        cluster: Where they are, or were last.
        group: The group that they were submitted with.
        tag: One of the tags that they were submitted with.
        limit: At most so many; None: all.
    """
    asked = [state] if isinstance(state, str) else state
    query = JobQuery(
        states=None if asked is None else tuple(map(state_of, words("state", asked))),
        since=time_of(since),
        job_id=name,
        text=text,
        user=user,
        cluster=cluster,
        group=group,
        tag=tag,
    )
    found = all_jobs(working_scheduler().service, query, limit=limit)
    return Jobs(Job(each.submission_id) for each in found)


def state_of(word: str) -> JobState:
    """Return the state of this name, in any case."""
    try:
        return JobState(word.upper())
    except ValueError:
        known = ", ".join(state.value for state in JobState)
        raise InvalidRequest(f"unknown state {word!r}; use one of {known}") from None


def _retried(submission_ids: Sequence[str]) -> Jobs:
    with remembered() as ids:
        scheduler = working_scheduler()
        ids += [job.submission_id for job in scheduler.service.retry(submission_ids)]
    keep_scheduled(scheduler, at_once=True)
    return Jobs(map(Job, ids))


def time_of(at: datetime | timedelta | str | float | None) -> float | None:
    """Return a moment, or how long ago it was, in seconds since the epoch."""
    if isinstance(at, str):
        try:
            return time.time() - seconds_of(at)
        except ValueError as problem:
            raise InvalidRequest(f"since: {problem}") from None
    if isinstance(at, timedelta):
        return time.time() - at.total_seconds()
    if isinstance(at, datetime):
        if at.tzinfo is None:
            raise InvalidRequest(
                f"since: {at.isoformat()} has no time zone; use datetime.now().astimezone() - …"
            )
        return at.timestamp()
    return amount("since", at)


def _moment(at: float) -> datetime:
    return datetime.fromtimestamp(at, timezone.utc).astimezone()


def _moment_or_none(at: float | None) -> datetime | None:
    return None if at is None else _moment(at)


def _lines(pieces: Iterable[str]) -> Iterator[str]:
    begun = ""
    for piece in pieces:
        *whole, begun = (begun + piece).split("\n")
        yield from whole
    if begun:
        yield begun


def _newly_ended(open_jobs: dict[str, None], jobs: Mapping[str, JobView]) -> Iterator[str]:
    ended = [each for each in open_jobs if each in jobs and jobs[each].final]
    for each in sorted(ended, key=lambda name: jobs[name].ended_at or jobs[name].changed_at):
        del open_jobs[each]
        yield each


# What a waiting person sees of several jobs. Rich is imported only where somebody looks.


@contextmanager
def _live_table(*, progress: bool) -> Iterator[waiting.Show]:
    """Yield a function that shows these jobs as they are now: in a notebook, on a terminal, or in the log."""
    if not progress:
        yield lambda _jobs, _why="": None
    elif sys.stderr.isatty() and waiting.notebook() is None:
        from rich.console import Console  # noqa: PLC0415
        from rich.live import Live  # noqa: PLC0415

        with Live(console=Console(stderr=True), refresh_per_second=4) as live:
            yield lambda jobs, _why="": live.update(waiting.table_of(jobs))
    else:
        with waiting.progress_display(0) as show:
            yield show
