"""Events of jobs: one thread reads them from the store, and whoever waits or follows gets them from there."""

from __future__ import annotations

import asyncio
import copy
import logging
import os
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from ray_multicluster_scheduler.errors import JobNotFound, SchedulerError, StoreBusy, StoreError, WaitTimeout
from ray_multicluster_scheduler.model.job import Job, JobEvent, PastMove
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.ports import Clock
from ray_multicluster_scheduler.service.caller import Caller
from ray_multicluster_scheduler.service.views import JobView

if TYPE_CHECKING:
    from ray_multicluster_scheduler.store import Store

# Subscriptions to the event hub, for threads and coroutines, with the changes not taken yet.


#: The newest rows of jobs that have changed; None: the job was removed.
Changed = Mapping[str, Job | None]


class Hub(Protocol):
    """The part of the event hub that a subscriber uses."""

    def check(self) -> None:
        """Raise in a forked child, which gets no notifications."""

    def take(self, subscriber: Subscriber) -> Changed:
        """Return the changes that the subscriber has not taken yet; raises the error that ended the hub."""

    def leave(self, subscriber: Subscriber) -> None:
        """Remove a subscriber."""


class Subscriber:
    """Subscribes to jobs by id, or (None) to all events. The hub's lock guards the fields."""

    def __init__(self, hub: Hub, ids: Iterable[str] | None) -> None:
        self._hub = hub
        self.ids = frozenset(ids or ())
        self.hears_all = ids is None
        #: True until it has got its first rows.
        self.fresh = bool(self.ids)
        #: At most one row per job: a newer row replaces one that was not taken.
        self.changed: dict[str, Job | None] = {}
        #: The error that ended the subscription.
        self.failure: BaseException | None = None
        #: True between a wake-up and the next `take`.
        self.woken = False

    def wake(self) -> None:
        """Wake the subscriber, from any thread; must not block."""
        raise NotImplementedError

    def clear_wake(self) -> None:
        """Let the next `wake` wake it again."""
        raise NotImplementedError

    def close(self) -> None:
        """Leave the hub."""
        self._hub.leave(self)

    def __enter__(self: S) -> S:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


S = TypeVar("S", bound=Subscriber)


class Subscription(Subscriber):
    """For a thread. The first `wait` returns all jobs, later ones only the changed jobs."""

    def __init__(self, hub: Hub, ids: Iterable[str] | None) -> None:
        super().__init__(hub, ids)
        self._news = threading.Event()

    def wake(self) -> None:
        """Wake the thread."""
        self._news.set()

    def clear_wake(self) -> None:
        """Let the thread sleep again."""
        self._news.clear()

    def wait(self, timeout_s: float | None = None) -> Changed:
        """Wait for a change, this long at most; return what has changed, which may be nothing."""
        self._hub.check()
        self._news.wait(timeout_s)
        return self._hub.take(self)


class AsyncSubscription(Subscriber):
    """For a coroutine of the event loop in which it is created: no thread waits."""

    def __init__(self, hub: Hub, ids: Iterable[str] | None) -> None:
        super().__init__(hub, ids)
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()

    def wake(self) -> None:
        """Wake the coroutine; raises RuntimeError when its loop is closed."""
        self._loop.call_soon_threadsafe(self._news.set)

    def clear_wake(self) -> None:
        """Let the coroutine sleep again; called in its loop."""
        self._news.clear()

    def nudge(self) -> None:
        """Let `wait` return at once, without a change; called in its loop."""
        self._news.set()

    async def wait(self, timeout_s: float | None = None) -> Changed:
        """Wait for a change, this long at most; return what has changed, which may be nothing."""
        self._hub.check()
        timer = None if timeout_s is None else self._loop.call_later(timeout_s, self._news.set)
        try:
            await self._news.wait()
        finally:
            if timer is not None:
                timer.cancel()
        return self._hub.take(self)


# The event hub: one thread reads changes from the store and passes them to all waiters of this process.
#
# The thread waits for notifications. After each change it reads the new events and each changed job once,
# and passes the rows to all subscribers of these jobs. A change costs a few queries, however many
# subscribers there are. The thread runs while there are subscribers.


#: Events per query.
PAGE = 1000
#: Events kept in memory for subscribers of all events. A slower subscriber reads the store.
KEPT_EVENTS = PAGE
#: Pause after a round that concerned no subscriber, and so the delay with which a change may be noticed.
SHORTEST_PAUSE_S = 0.02
LONGEST_PAUSE_S = 0.2
#: How often, without a change, the reader makes sure that somebody schedules.
ENSURE_EVERY_S = 1.0
#: How often all watched jobs are read: the removal of a job writes no event and sends no notification.
LOOK_AT_ALL_S = 60.0


class EventWithJob(NamedTuple):
    """An event, and its job as read together with it (None: the job was removed)."""

    event: JobEvent
    job: Job | None


@dataclass(frozen=True, slots=True)
class _Demand:
    """What the subscribers need in one round of reading."""

    fresh: Sequence[Subscriber]
    watched: Sequence[str]
    everything: bool
    look_at_all: bool


class EventHub:
    """Notifies any number of subscribers of changes to their jobs. Safe for threads and event loops."""

    def __init__(
        self, store: Store, clock: Clock, *, ensure_scheduled: Callable[[], None] = lambda: None
    ) -> None:
        """`ensure_scheduled` is called about every second while there are subscribers."""
        self._store = store
        self._clock = clock
        self._ensure_scheduled = ensure_scheduled
        self._process = os.getpid()
        self._lock = (
            threading.RLock()
        )  # not Lock: the garbage collector may close a subscription in this thread
        self._reader: threading.Thread | None = None
        self._subscribers: set[Subscriber] = set()
        #: Subscribers by job. A subscriber is added when it has got its first rows.
        self._watchers: dict[str, set[Subscriber]] = {}
        self._fresh: set[Subscriber] = set()
        self._closed: StoreError | None = None
        #: Set after a commit, and when a subscriber is added or removed.
        self._news = threading.Event()
        #: Set when a subscriber is added or removed: the next round must not be delayed.
        self._urgent = threading.Event()
        #: The last event that was passed on.
        self._seen = 0
        self._looked_at_all = 0.0
        #: All events after `_kept_after`, while there are subscribers of all events.
        self._kept: deque[EventWithJob] = deque()
        self._kept_after: int | None = None

    def subscribe(self, ids: Collection[str] | None) -> Subscription:
        """Subscribe the calling thread to these jobs, or (None) to all events, until it is closed."""
        return self._enter(Subscription(self, ids))

    def subscribe_async(self, ids: Collection[str] | None) -> AsyncSubscription:
        """Like `subscribe`, for a coroutine of the running event loop."""
        return self._enter(AsyncSubscription(self, ids))

    def kept_after(self, event_id: int) -> tuple[EventWithJob, ...] | None:
        """Return the kept events after this one; None: they are no longer kept, so read the store."""
        with self._lock:
            if self._kept_after is None or event_id < self._kept_after:
                return None
            newer = list(takewhile(lambda each: each.event.id > event_id, reversed(self._kept)))
        return tuple(reversed(newer))

    def read_after(self, event_id: int) -> tuple[tuple[EventWithJob, ...], int]:
        """Read a page of events after this one from the store; return it and the id that it reaches."""
        seen = self._seen
        events = self._store.history.events(after=event_id, limit=PAGE)
        jobs = self._store.jobs.get_many(list({event.submission_id for event in events}))
        found = tuple(EventWithJob(event, jobs.get(event.submission_id)) for event in events)
        last = events[-1].id if events else event_id
        return found, last if len(events) == PAGE else max(last, seen)

    def last_event(self) -> int:
        """Return the id of the newest event."""
        return self._store.history.last_event()

    def close(self) -> None:
        """Wake all subscribers with an error, and accept no new ones."""
        if self._process != os.getpid():
            return
        with self._lock:
            self._closed = StoreError("the scheduler in this process was stopped; jobs go on")
            reader = self._reader
        self._fail(self._closed)
        if reader is not None and reader is not threading.current_thread():
            reader.join()

    def check(self) -> None:
        """Raise in a forked child: it has no reader thread, and the lock may be held for ever."""
        if self._process != os.getpid():
            raise StoreError("this process was forked; what its parent waits for cannot be waited for here")

    def take(self, subscriber: Subscriber) -> Changed:
        """Return the changes that the subscriber has not taken yet; raises the error that ended the hub."""
        with self._lock:
            subscriber.clear_wake()
            subscriber.woken = False
            if subscriber.failure is not None:
                raise _raised(subscriber.failure)
            changed, subscriber.changed = subscriber.changed, {}
            return changed

    def leave(self, subscriber: Subscriber) -> None:
        """Remove a subscriber."""
        if self._process != os.getpid():
            return
        with self._lock:
            self._remove(subscriber)
            if not self._subscribers:
                self._hurry()

    # ---- subscribers

    def _enter(self, subscriber: S) -> S:
        self.check()
        with self._lock:
            if self._closed is not None:
                raise _raised(self._closed)
            self._subscribers.add(subscriber)
            if subscriber.fresh:
                self._fresh.add(subscriber)
            if self._reader is None:
                self._reader = threading.Thread(target=self._run, name="raymc-hub", daemon=True)
                self._reader.start()
            self._hurry()
        return subscriber

    def _remove(self, subscriber: Subscriber) -> None:
        self._subscribers.discard(subscriber)
        self._fresh.discard(subscriber)
        for submission_id in subscriber.ids:
            self._unwatch(submission_id, subscriber)

    def _unwatch(self, submission_id: str, subscriber: Subscriber) -> None:
        watchers = self._watchers.get(submission_id)
        if watchers is not None:
            watchers.discard(subscriber)
            if not watchers:
                del self._watchers[submission_id]

    def _hurry(self) -> None:
        self._urgent.set()
        self._news.set()

    # ---- the reader

    def _run(self) -> None:
        try:
            unsubscribe = self._store.changes.subscribe(self._news.set)
            try:
                self._follow()
            finally:
                unsubscribe()
        except SchedulerError as failure:  # of the store, or nobody can schedule
            self._fail(failure)
        except BaseException as bug:  # subscribers raise it too
            self._fail(bug)
            raise

    def _follow(self) -> None:
        self._begin(self._store.history.last_event())
        pause_s = 0.0
        while (demand := self._demand()) is not None:
            try:
                useful = self._round(demand)
            except StoreBusy as busy:  # the other subscribers get their changes in a later round
                self._refuse(demand.fresh, busy)
                self._news.set()
                useful = False
            pause_s = 0.0 if useful else min(LONGEST_PAUSE_S, max(SHORTEST_PAUSE_S, 2 * pause_s))
            self._urgent.wait(pause_s)
            with suppress(StoreBusy):  # asked again in a moment
                self._ensure_scheduled()  # what is waited for needs somebody who schedules
            if not self._news.is_set():
                pause_s = 0.0
                self._news.wait(ENSURE_EVERY_S)

    def _begin(self, seen: int) -> None:
        with self._lock:
            self._seen = seen
            self._looked_at_all = self._clock.monotonic()
            self._forget_kept()

    def _demand(self) -> _Demand | None:
        """Return what to read now; None: there are no subscribers, and this thread stops being the reader."""
        with self._lock:
            if not self._subscribers:
                self._reader = None
                return None
            self._news.clear()
            self._urgent.clear()
            due = self._looked_at_all + LOOK_AT_ALL_S <= self._clock.monotonic()
            return _Demand(
                fresh=tuple(self._fresh),
                watched=tuple(self._watchers),
                everything=any(each.hears_all for each in self._subscribers),
                look_at_all=due,
            )

    def _round(self, demand: _Demand) -> bool:
        """Read the changes and pass them on; returns whether they concerned any subscriber."""
        seen, events, moved = self._moved(demand)
        concerned = {event.submission_id for event in events} | moved
        wanted = concerned.union(*(each.ids for each in demand.fresh))
        if demand.look_at_all:
            wanted.update(demand.watched)
        rows = self._store.jobs.get_many(sorted(wanted)) if wanted else {}
        removed = {each for each in demand.watched if demand.look_at_all and _over(rows.get(each))}
        with self._lock:
            if demand.look_at_all:
                self._looked_at_all = self._clock.monotonic()
            woken = self._tell(concerned | removed, rows)
            woken |= self._tell_first(demand.fresh, rows)
            woken |= self._keep(demand, events, rows)
            self._seen = seen
            to_wake = [each for each in woken if not each.woken]
            for each in to_wake:
                each.woken = True
        self._wake(to_wake)
        return bool(woken)

    def _moved(self, demand: _Demand) -> tuple[int, tuple[JobEvent, ...], frozenset[str]]:
        """Return the newest event id, the new events if all are needed, and the ids of the changed jobs."""
        if not demand.everything:
            newest, moved = self._store.history.changed_since(demand.watched, after=self._seen)
            return newest, (), moved
        events = self._store.history.events(after=self._seen, limit=PAGE)
        if len(events) == PAGE:
            self._news.set()  # there may be more
        return events[-1].id if events else self._seen, events, frozenset()

    def _tell(self, moved: Iterable[str], rows: Mapping[str, Job]) -> set[Subscriber]:
        woken: set[Subscriber] = set()
        for submission_id in moved:
            for watcher in tuple(self._watchers.get(submission_id, ())):
                self._put(watcher, submission_id, rows.get(submission_id))
                woken.add(watcher)
        return woken

    def _tell_first(self, fresh: Sequence[Subscriber], rows: Mapping[str, Job]) -> set[Subscriber]:
        woken = self._fresh.intersection(fresh)  # the others were removed meanwhile
        self._fresh -= woken
        for subscriber in woken:
            subscriber.fresh = False
            for submission_id in subscriber.ids:
                self._watchers.setdefault(submission_id, set()).add(subscriber)
                self._put(subscriber, submission_id, rows.get(submission_id))
        return woken

    def _put(self, watcher: Subscriber, submission_id: str, job: Job | None) -> None:
        watcher.changed[submission_id] = job
        if _over(job):
            self._unwatch(submission_id, watcher)

    def _keep(self, demand: _Demand, events: Sequence[JobEvent], rows: Mapping[str, Job]) -> set[Subscriber]:
        """Keep the events for subscribers of all events; return these if there is something new."""
        if not demand.everything:
            self._forget_kept()
            return set()
        begins = self._kept_after is None
        if begins:
            self._kept_after = self._seen
        self._kept.extend(EventWithJob(event, rows.get(event.submission_id)) for event in events)
        while len(self._kept) > KEPT_EVENTS:
            self._kept_after = self._kept.popleft().event.id
        return {each for each in self._subscribers if each.hears_all} if begins or events else set()

    def _forget_kept(self) -> None:
        self._kept.clear()
        self._kept_after = None

    def _wake(self, subscribers: Iterable[Subscriber]) -> None:
        for subscriber in subscribers:
            try:
                subscriber.wake()
            except RuntimeError:  # its event loop is closed
                self.leave(subscriber)

    # ---- errors

    def _refuse(self, subscribers: Iterable[Subscriber], failure: BaseException) -> None:
        """Make these subscribers raise an error."""
        with self._lock:
            there = self._subscribers.intersection(subscribers)
            for each in there:
                each.failure = failure
                self._remove(each)
        self._wake(there)

    def _fail(self, failure: BaseException) -> None:
        """Make all subscribers raise an error; the next subscription starts a new reader."""
        with self._lock:
            if self._reader is threading.current_thread():
                self._reader = None
            everybody = tuple(self._subscribers)
        self._refuse(everybody, failure)
        self._hurry()


def _over(job: Job | None) -> bool:
    """Tell whether a job can no longer change."""
    return job is None or job.final


def _raised(failure: BaseException) -> SchedulerError:
    """Return a copy of an error for each subscriber, since they raise it in different threads."""
    if isinstance(failure, SchedulerError):
        return copy.copy(failure)
    error = SchedulerError(
        f"waiting for jobs has stopped in this process: {type(failure).__name__}: {failure}. Jobs go on. "
        "Start this program again; if that does not help, report it"
    )
    error.__cause__ = failure
    return error


# All events in order, from any of them on: first from the store, then live from the hub.


async def event_stream(hub: EventHub, after: int | None) -> AsyncGenerator[tuple[EventWithJob, ...], None]:
    """Yield the events after this one (None: the newest there is), each once, without an end.

    Nothing is buffered for a slow reader: it continues from the store where it was.
    """
    with hub.subscribe_async(None) as subscription:
        newest = await asyncio.to_thread(hub.last_event)
        # An id beyond the newest one comes from another store.
        position = newest if after is None else min(after, newest)
        while True:
            told = hub.kept_after(position)
            if told is not None:
                position = told[-1].event.id if told else position
            else:
                told, position = await asyncio.to_thread(hub.read_after, position)
            if told:
                yield told
            else:
                await subscription.wait()


# Follows the state changes of all jobs, made by any process, for metrics and traces.
#
# It reads the events of the store, so the engine does no work for it. It reads at its own pace, and passes
# all changes since the last reading to the listener at once.


log = logging.getLogger(__name__)

#: Pause between two readings, so that a busy queue is read in large pages.
PAUSE_S = 0.5
#: Longest wait for a change before checking whether to stop.
IDLE_S = 5.0
JOIN_S = 10.0

Listener = Callable[[Sequence[PastMove]], None]


class MoveFollower:
    """Calls `listener` with all moves from now on, on its own thread."""

    def __init__(self, store: Store, listener: Listener) -> None:
        self._store = store
        self._listener = listener
        self._seen = store.history.last_event()
        #: The listener has raised; it is logged once.
        self._has_failed = False
        self._stopping = threading.Event()
        self._news = threading.Event()
        self._unsubscribe = store.changes.subscribe(self._news.set)
        self._thread = threading.Thread(target=self._run, name="raymc-follow", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Pass on the remaining moves, and stop."""
        self._unsubscribe()
        self._stopping.set()
        self._news.set()
        self._thread.join(JOIN_S)

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._news.wait(IDLE_S)
            self._news.clear()
            if not self._read():
                return
            self._stopping.wait(PAUSE_S)
        self._read()

    def _tell(self, moves: Sequence[PastMove]) -> None:
        try:
            self._listener(moves)
        except Exception:  # a bug in a metric or a trace: the next moves have to be counted all the same
            if not self._has_failed:
                log.exception("some moves of jobs are missing in metrics or traces")
            self._has_failed = True

    def _read(self) -> bool:
        """Pass on all new moves; False: the store is closed or broken, so there will be no more."""
        try:
            while True:
                self._seen, moves = self._store.history.moves_since(self._seen, limit=PAGE)
                if moves:
                    self._tell(moves)
                if len(moves) < PAGE:
                    return True
        except StoreBusy as problem:
            log.warning("the moves of jobs cannot be read now: %s", problem)
            return True
        except StoreError as problem:
            if not self._stopping.is_set():
                log.error("the moves of jobs are followed no more: %s", problem)  # noqa: TRY400
            return False


# Waiting for jobs until they end or a timeout passes, in a thread or in asyncio.


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


# Views of jobs that change, for a caller who follows them.


class ShownJobs:
    """The views of the jobs that a caller waits for. A view is rebuilt only when its job has changed."""

    def __init__(self, caller: Caller, show: Callable[[Job], JobView]) -> None:
        self._caller = caller
        self._show = show
        self._jobs: Mapping[str, Job] = {}
        self._views: Mapping[str, JobView] = {}

    def of(self, jobs: Mapping[str, Job]) -> Mapping[str, JobView]:
        """Return the views of all jobs; raises `JobNotFound` for one that this caller may not see."""
        moved = {name: job for name, job in jobs.items() if self._jobs.get(name) is not job}
        for name, job in moved.items():
            if not self._caller.sees(job.spec.user):
                raise JobNotFound(name)
        self._views = {**self._views, **{name: self._show(job) for name, job in moved.items()}}
        self._jobs = jobs
        return self._views
