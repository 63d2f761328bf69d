"""Waiting for jobs until they end or a timeout passes, in a thread or in asyncio."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Iterable, Iterator, Mapping, Sequence

from ray_multicluster_scheduler.errors import JobNotFound, WaitTimeout
from ray_multicluster_scheduler.model.job import Job
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.ports import Clock
from ray_multicluster_scheduler.service.event_hub import EventHub
from ray_multicluster_scheduler.service.subscription import Changed

#: Longest sleep while waiting. Changes end it early; the limit is for interrupts and timeouts.
LONGEST_NAP_S = 5.0


class Waiting:
    """The jobs of one wait. An update costs only as much as has changed since the last one."""

    def __init__(self, clock: Clock, submission_ids: Sequence[str], *, timeout_s: float | None) -> None:
        self._clock = clock
        self._timeout_s = timeout_s
        self._started = clock.monotonic()
        self._open = dict.fromkeys(submission_ids)
        self.jobs: Mapping[str, Job] = {}

    @property
    def ids(self) -> Collection[str]:
        """The ids of the jobs that are not known to have ended."""
        return self._open

    @property
    def over(self) -> bool:
        """Tell whether all of them have ended."""
        return not self._open

    def look(self, changed: Changed) -> None:
        """Note what has become of some of the jobs; raises `JobNotFound` for one that is not there."""
        found: dict[str, Job] = {}
        for submission_id in [each for each in self._open if each in changed]:
            job = changed[submission_id]
            if job is None:
                raise JobNotFound(submission_id)
            found[submission_id] = job
            if job.final:
                del self._open[submission_id]
        if found:
            self.jobs = {**self.jobs, **found}

    def nap_s(self, tick_s: float) -> float:
        """Return how long to sleep unless something changes; `WaitTimeout` when the time is over."""
        if self._timeout_s is None:
            return min(tick_s, LONGEST_NAP_S)
        left = self._started + self._timeout_s - self._clock.monotonic()
        if left <= 0:
            raise _timed_out(self.jobs.values(), self._timeout_s)
        return min(tick_s, LONGEST_NAP_S, left)


def changes(hub: EventHub, waiting: Waiting, *, tick_s: float) -> Iterator[Mapping[str, Job]]:
    """Yield the jobs at once, on each change, and every `tick_s`; ends when all have ended."""
    with hub.subscribe(waiting.ids) as subscription:
        if waiting.ids:
            waiting.look(subscription.wait())
        while True:
            yield waiting.jobs
            if waiting.over:
                return
            waiting.look(subscription.wait(waiting.nap_s(tick_s)))


async def changes_async(
    hub: EventHub, waiting: Waiting, *, tick_s: float
) -> AsyncGenerator[Mapping[str, Job], None]:
    """Like `changes`, for asyncio: no thread waits."""
    with hub.subscribe_async(waiting.ids) as subscription:
        if waiting.ids:
            waiting.look(await subscription.wait())
        while True:
            yield waiting.jobs
            if waiting.over:
                return
            waiting.look(await subscription.wait(waiting.nap_s(tick_s)))


def failed(jobs: Iterable[Job]) -> list[Job]:
    """Return the jobs that have ended without success."""
    return [job for job in jobs if job.final and job.state is not JobState.SUCCEEDED]


def _timed_out(jobs: Iterable[Job], timeout_s: float) -> WaitTimeout:
    jobs = list(jobs)
    pending, bad = [job for job in jobs if not job.final], failed(jobs)
    message = f"not all jobs have ended within {timeout_s:g} s; they go on:" + _lines(pending)
    if bad:
        message += "\nand these did not succeed:" + _lines(bad)
    return WaitTimeout(
        message, [job.submission_id for job in pending], failed=[job.submission_id for job in bad]
    )


def _lines(jobs: Iterable[Job]) -> str:
    return "".join(f"\n  - {job.submission_id}: {_where(job)}, {job.reason}" for job in jobs)


def _where(job: Job) -> str:
    return f"{job.state.value} on {job.cluster!r}" if job.cluster else job.state.value
