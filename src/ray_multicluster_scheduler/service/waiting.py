"""Waiting for jobs: what is looked at, and when it is enough. With a thread, or without one in asyncio."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from ray_multicluster_scheduler.errors import WaitTimeout
from ray_multicluster_scheduler.model.job import Job
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.ports import Clock, JobStore

#: How long one sleep lasts at most while waiting: changes wake it, this is for interrupts and time-outs.
LONGEST_NAP_S = 5.0
#: How long is not looked after news of other jobs only; how late the end of a job is noticed then.
SHORTEST_PAUSE_S = 0.02
LONGEST_PAUSE_S = 0.2


class Waiting:
    """Jobs that somebody waits for. A look costs what has changed since the last one."""

    def __init__(
        self, store: JobStore, clock: Clock, submission_ids: Sequence[str], *, timeout_s: float | None
    ) -> None:
        self._store = store
        self._clock = clock
        self._timeout_s = timeout_s
        self._started = clock.monotonic()
        self._event = store.last_event()
        self._pause_s = 0.0
        self.jobs: Mapping[str, Job] = _known(store, submission_ids)

    @property
    def over(self) -> bool:
        """Tell whether all of them have ended."""
        return all(job.final for job in self.jobs.values())

    def look(self, *, news: bool) -> None:
        """Read again what has changed; `news`: something has, maybe of other jobs only."""
        pending = [job.submission_id for job in self.jobs.values() if not job.final]
        self._event, moved = self._store.changed_since(pending, after=self._event)
        self.jobs = {**self.jobs, **self._store.get_many(sorted(moved))}
        of_others = news and not moved
        self._pause_s = min(LONGEST_PAUSE_S, max(SHORTEST_PAUSE_S, 2 * self._pause_s)) if of_others else 0.0

    @property
    def pause_s(self) -> float:
        """Return how long not to look: less often where there is much news of others, for the sake of all."""
        if self._timeout_s is None:
            return self._pause_s
        return max(0.0, min(self._pause_s, self._started + self._timeout_s - self._clock.monotonic()))

    def nap_s(self, tick_s: float) -> float:
        """Return how long to sleep unless something changes; `WaitTimeout` when the time is over."""
        if self._timeout_s is None:
            return min(tick_s, LONGEST_NAP_S)
        left = self._started + self._timeout_s - self._clock.monotonic()
        if left <= 0:
            raise _timed_out(self.jobs.values(), self._timeout_s)
        return min(tick_s, LONGEST_NAP_S, left)


def changes(store: JobStore, waiting: Waiting, *, tick_s: float) -> Iterator[Mapping[str, Job]]:
    """Yield the jobs at once, on each change, and every `tick_s`; ends when all have ended."""
    mark = store.wait_for_change(0, timeout_s=0)
    waiting.look(news=False)
    while True:
        yield waiting.jobs
        if waiting.over:
            return
        seen, mark = mark, store.wait_for_change(mark, timeout_s=waiting.nap_s(tick_s))
        waiting.look(news=mark > seen)
        time.sleep(waiting.pause_s)


async def changes_async(
    store: JobStore, waiting: Waiting, *, tick_s: float
) -> AsyncGenerator[Mapping[str, Job], None]:
    """The same for asyncio: it holds a thread only while it looks."""
    loop, news = asyncio.get_running_loop(), asyncio.Event()

    def ring() -> None:
        loop.call_soon_threadsafe(news.set)

    unsubscribe = store.subscribe(ring)
    try:
        while True:
            rung = news.is_set()
            news.clear()
            await asyncio.to_thread(waiting.look, news=rung)
            await asyncio.sleep(waiting.pause_s)
            yield waiting.jobs
            if waiting.over:
                return
            nap_s = waiting.nap_s(tick_s)  # not below: what it raises is a TimeoutError too
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(news.wait(), nap_s)
    finally:
        unsubscribe()


def failed(jobs: Iterable[Job]) -> list[Job]:
    """Return those that have ended without success."""
    return [job for job in jobs if job.final and job.state is not JobState.SUCCEEDED]


def _known(store: JobStore, submission_ids: Sequence[str]) -> dict[str, Job]:
    jobs = store.get_many(submission_ids)
    for submission_id in submission_ids:
        if submission_id not in jobs:
            store.get(submission_id)  # raises JobNotFound, with the words that help
    return jobs


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
