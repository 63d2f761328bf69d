"""The event hub: one thread reads changes from the store and passes them to all waiters of this process.

The thread waits for notifications. After each change it reads the new events and each changed job once, and
passes the rows to all subscribers of these jobs. A change costs a few queries, however many subscribers there
are. The thread runs while there are subscribers.
"""

from __future__ import annotations

import copy
import os
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile
from typing import NamedTuple

from ray_multicluster_scheduler.errors import SchedulerError, StoreBusy, StoreError
from ray_multicluster_scheduler.model.job import Event, Job
from ray_multicluster_scheduler.ports import Clock
from ray_multicluster_scheduler.service.subscription import (
    AsyncSubscription,
    Changed,
    S,
    Subscriber,
    Subscription,
)
from ray_multicluster_scheduler.store_ports import JobStore

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

    event: Event
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
        self, store: JobStore, clock: Clock, *, ensure_scheduled: Callable[[], None] = lambda: None
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
        events = self._store.events(after=event_id, limit=PAGE)
        jobs = self._store.get_many(list({event.submission_id for event in events}))
        found = tuple(EventWithJob(event, jobs.get(event.submission_id)) for event in events)
        last = events[-1].id if events else event_id
        return found, last if len(events) == PAGE else max(last, seen)

    def last_event(self) -> int:
        """Return the id of the newest event."""
        return self._store.last_event()

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
            unsubscribe = self._store.subscribe(self._news.set)
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
        self._begin(self._store.last_event())
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
        rows = self._store.get_many(sorted(wanted)) if wanted else {}
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

    def _moved(self, demand: _Demand) -> tuple[int, tuple[Event, ...], frozenset[str]]:
        """Return the newest event id, the new events if all are needed, and the ids of the changed jobs."""
        if not demand.everything:
            newest, moved = self._store.changed_since(demand.watched, after=self._seen)
            return newest, (), moved
        events = self._store.events(after=self._seen, limit=PAGE)
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

    def _keep(self, demand: _Demand, events: Sequence[Event], rows: Mapping[str, Job]) -> set[Subscriber]:
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
