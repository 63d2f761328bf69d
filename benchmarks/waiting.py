"""Waiting: processor time of one committed change while nobody, a hundred or two thousand wait for jobs.

Each waiter is a coroutine that waits for a job of its own. The changes are moves of these jobs, one commit
each, with pauses between them: the next one comes when all have been told. `asking`: every waiter subscribes
to the store and looks for itself after each change, in a thread of the executor, as ours did before the hub.
"""

from __future__ import annotations

import asyncio
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from benchmarks.measure import Line, Report, Size, in_turns, main, percentile, ratio, summary
from ray_multicluster_scheduler.clock import SystemClock
from ray_multicluster_scheduler.model.job import Job, JobSpec, Transition
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.service.events import EventHub, Waiting, changes_async
from ray_multicluster_scheduler.store import Store, open_store

FEW, MANY = 100, 2_000
CHANGES = {Size.SMOKE: 5, Size.QUICK: 100, Size.FULL: 200}
ROUNDS = {Size.SMOKE: 1, Size.QUICK: 3, Size.FULL: 5}
#: Between two changes: in it, everybody has been told of the first.
PAUSE_S = 0.01
#: Where each waiter asks for itself, that takes longer, so that fewer changes are made.
ASKING_PAUSE_S = 0.2
ASKING_SHARE = 4

#: Yields its job when that has changed, and maybe from time to time.
Watch = Callable[[str], AsyncIterator[Mapping[str, Job]]]


class Waiters:
    """Coroutines on an event loop of their own that wait, each for one job."""

    def __init__(self, watch: Watch, ids: list[str]) -> None:
        self._watch = watch
        self._ready = threading.Event()
        #: When each was last told of its job.
        self.told_at: dict[str, float] = {}
        self._left = len(ids)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, args=(ids,))
        self._thread.start()
        self._ready.wait()

    def close(self) -> None:
        """Cancel them all."""
        self._loop.call_soon_threadsafe(self._all.cancel)
        self._thread.join()

    def _run(self, ids: list[str]) -> None:
        self._all = self._loop.create_task(self._wait_for(ids))
        try:
            self._loop.run_until_complete(self._all)
        except asyncio.CancelledError:
            pass
        finally:
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()

    async def _wait_for(self, ids: list[str]) -> None:
        if not ids:
            self._ready.set()
        await asyncio.gather(*(self._wait(each) for each in ids), asyncio.Event().wait())

    async def _wait(self, submission_id: str) -> None:
        known: Job | None = None
        async for jobs in self._watch(submission_id):
            if known is None:
                self._left -= 1
                if not self._left:
                    self._ready.set()
            if jobs[submission_id] is not known:
                known, self.told_at[submission_id] = jobs[submission_id], time.perf_counter()


async def asking(store: Store, submission_id: str) -> AsyncIterator[Mapping[str, Job]]:
    """Look at the store after each change of any job, as waiters did before the hub."""
    loop, news, seen = asyncio.get_running_loop(), asyncio.Event(), 0
    unsubscribe = store.changes.subscribe(lambda: loop.call_soon_threadsafe(news.set))
    try:
        while True:
            news.clear()
            seen, moved = await asyncio.to_thread(store.history.changed_since, [submission_id], after=seen)
            if moved:
                yield await asyncio.to_thread(store.jobs.get_many, [submission_id])
            await news.wait()
    finally:
        unsubscribe()


class Changes:
    """Moves jobs back and forth, one commit each."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.ids = [f"job-{number}" for number in range(MANY)]
        spec = JobSpec(entrypoint="true", user="ann")
        self._jobs: list[Job] = list(store.jobs.add([(each, spec) for each in self.ids], now=time.time()))
        #: From the beginning of each commit until its waiter was told.
        self.delays_ms: dict[int, list[float]] = {}
        lease = store.leases.acquire("benchmark", ttl_s=3600, now=time.time())
        assert lease is not None
        self._epoch = lease.epoch

    def cost_ms(self, count: int, *, waiters: int, watch: Watch, pause_s: float) -> float:
        """Return the milliseconds of processor time of one change while so many wait."""
        waiting = Waiters(watch, self.ids[:waiters])
        changed_at: dict[str, float] = {}
        try:
            before = time.process_time()
            for number in range(count):
                changed_at[self._jobs[number % (waiters or MANY)].submission_id] = time.perf_counter()
                self._change(number % (waiters or MANY))
                time.sleep(pause_s)
            cost_ms = 1000 * (time.process_time() - before) / count
        finally:
            waiting.close()
        told = [waiting.told_at[each] - at for each, at in changed_at.items() if each in waiting.told_at]
        self.delays_ms.setdefault(waiters, []).extend(1000 * delay for delay in told if delay > 0)
        return cost_ms

    def _change(self, number: int) -> None:
        job = self._jobs[number]
        placed = job.state is JobState.QUEUED
        wanted = Transition(
            submission_id=job.submission_id,
            expected=job.state,
            attempt=job.attempt,
            new=JobState.PLACED if placed else JobState.QUEUED,
            reason="back and forth",
            changes={"cluster": "a" if placed else None},
        )
        (self._jobs[number],) = self.store.jobs.apply([wanted], epoch=self._epoch, now=time.time())


@contextmanager
def a_store() -> Iterator[Store]:
    """Open a store of files that are removed again."""
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(Path(folder) / "store")
        try:
            yield store
        finally:
            store.close()


def measure(size: Size) -> Report:
    """Measure what a change costs while many wait."""
    clock, count = SystemClock(), CHANGES[size]
    with a_store() as store:
        hub, made = EventHub(store, clock), Changes(store)

        def told(submission_id: str) -> AsyncIterator[Mapping[str, Job]]:
            return changes_async(hub, Waiting(clock, [submission_id], timeout_s=None), tick_s=3600.0)

        def ask(submission_id: str) -> AsyncIterator[Mapping[str, Job]]:
            return asking(store, submission_id)

        def side(waiters: int) -> float:
            return made.cost_ms(count, waiters=waiters, watch=told, pause_s=PAUSE_S)

        def side_that_asks() -> float:
            few = max(1, count // ASKING_SHARE)
            return made.cost_ms(few, waiters=FEW, watch=ask, pause_s=ASKING_PAUSE_S)

        sides = {
            "none": partial(side, 0),
            "one": partial(side, 1),
            "few": partial(side, FEW),
            "many": partial(side, MANY),
            "asking": side_that_asks,
        }
        found = in_turns(sides, rounds=ROUNDS[size])
        hub.close()
    delay = Line(
        what=f"from the change until its waiter is told, p99, {MANY:,} wait",
        value=percentile(made.delays_ms[MANY], 99),
        unit="ms",
        at_most=1000,
    )
    return Report(name="waiting", lines=(*_lines(found), delay), notes=(_NOTE,))


_NOTE = (
    "Processor time of the whole process, fsynced commit included; each waiter is a coroutine with a job of "
    "its own. `Asking the store` is how they waited before: each looked for itself after every change."
)


def _lines(found: dict[str, list[float]]) -> tuple[Line, ...]:
    def cost(what: str, side: str) -> Line:
        return summary(f"one change, {what}", found[side], unit="ms")

    return (
        cost("nobody waits", "none"),
        cost("one waits", "one"),
        cost(f"{FEW} wait", "few"),
        cost(f"{MANY:,} wait", "many"),
        cost(f"{FEW} wait, each asking the store", "asking"),
        ratio(f"{FEW} wait / nobody", found["few"], found["none"], at_most=3.0),
        ratio(f"{MANY:,} wait / nobody", found["many"], found["none"], at_most=4.0),
        ratio(f"{FEW} wait, each asking the store / nobody", found["asking"], found["none"]),
    )


if __name__ == "__main__":
    main(measure)
