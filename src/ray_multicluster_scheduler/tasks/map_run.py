"""Carries out the plan of a map: reads items, has workers run them, and hands results over.

`Workers` is where that happens: actors on the clusters (`tasks.ray_workers`), or threads of this process
(`testing.InProcessClusters`).
"""

from __future__ import annotations

import logging
import queue
import threading
import time
import uuid
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from ray_multicluster_scheduler.errors import ItemFailed, OutcomeUnknown
from ray_multicluster_scheduler.tasks.map_plan import Chunk, MapPlan, Run, Start

log = logging.getLogger(__name__)
T = TypeVar("T")

#: How often the progress is told at most.
SHOW_EVERY_S = 0.25
#: More of an item is not quoted in an error.
QUOTED = 200


@dataclass(frozen=True, kw_only=True)
class Work:
    """What the workers of a map are for."""

    func: Callable[[Any], Any]
    #: What each worker holds of its cluster.
    resources: Mapping[str, float]
    preferred_cluster: str | None = None
    tags: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Error:
    """What an item raised on its cluster."""

    error: BaseException
    traceback: str = ""


# What workers tell.


@dataclass(frozen=True, slots=True)
class Placed:
    """A worker has a place on a cluster."""

    worker: int
    cluster: str


@dataclass(frozen=True, slots=True)
class Ready:
    """A worker has the function and takes chunks."""

    worker: int


@dataclass(frozen=True, slots=True)
class NoRoom:
    """No cluster has room for a worker."""

    worker: int


@dataclass(frozen=True, slots=True)
class Ended:
    """A chunk has its results; where an item has failed, its result is None and its error is told."""

    worker: int
    chunk: Chunk
    results: Sequence[Any]
    errors: Mapping[int, Error]
    seconds: float
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Lost:
    """A worker is gone with all it had; `begun`: the first of it may have been run."""

    worker: int
    reason: str
    begun: bool = True


@dataclass(frozen=True, slots=True)
class Broken:
    """The map cannot go on, for a reason that another worker would have too."""

    error: BaseException


Told: TypeAlias = "Placed | Ready | NoRoom | Ended | Lost | Broken"


class Workers(Protocol):
    """Where chunks are run. No call waits for a cluster; whatever comes of it is told, from any thread."""

    def open(self, work: Work, tell: Callable[[Told], None]) -> None:
        """Be told what the workers are for, before anything else."""

    def start(self, worker: int, *, wait: bool) -> None:
        """Start a worker where there is room; `wait` for room if there is none now.

        Told: `Placed`, then `Ready`; or `NoRoom`; or `Lost`; or `Broken`.
        """

    def run(self, worker: int, chunk: Chunk, items: Sequence[Any]) -> int:
        """Run a chunk after those that the worker has, and return how many bytes were sent.

        Told: `Ended`, or `Lost` for all that the worker has.
        """

    def close(self, *, at_once: bool) -> None:
        """End all workers; `at_once`: whatever they are doing."""

    def capacity(self, resources: Mapping[str, float]) -> int:
        """Return how many workers fit on all clusters while nothing else runs there."""


# Tests put clusters of their own in the place of the real ones.
_stand_ins: list[Callable[[], Workers]] = []


@contextmanager
def standing_in(workers: Callable[[], Workers]) -> Iterator[None]:
    """Have all maps of this process use these workers."""
    _stand_ins.append(workers)
    try:
        yield
    finally:
        _stand_ins.remove(workers)


def stand_in() -> Workers | None:
    """Return workers that stand in for those on real clusters, or None."""
    return _stand_ins[-1]() if _stand_ins else None


class Shared(Generic[T]):
    """A value that is sent to each cluster once: `put_everywhere` returns it, functions read `value`."""

    def __init__(self, value: T) -> None:
        self.value = value
        self.key = uuid.uuid4().hex
        #: Where it was sent to, and what ends it there.
        self.holders: dict[object, Any] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError(
            "what put_everywhere returns can be sent by map_over_clusters and MultiClusterExecutor only: "
            "inside the function, or inside an item"
        )

    def on_drop(self, undo: Callable[[], object]) -> None:
        """Have this called when nobody needs the value any more."""
        weakref.finalize(self, undo).atexit = False


# The run.


@dataclass(slots=True)
class Progress:
    """How far a map is."""

    done: int = 0
    failed: int = 0
    repeated: int = 0
    #: How many items there are; None: not known yet.
    total: int | None = None
    #: Of each cluster.
    workers: Counter[str] = field(default_factory=Counter)
    #: What was lost last.
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class Batch:
    """Results of successive items."""

    first: int
    results: Sequence[Any]
    #: By position.
    errors: Mapping[int, BaseException]


@dataclass(frozen=True, slots=True)
class End:
    """No more results will come; `error` is why, if there should have been more."""

    error: BaseException | None = None


Event: TypeAlias = "Told | tuple[str, Any]"


class MapRun:
    """One map that is under way, on a thread of its own.

    `feed` takes items, `deliver` gets what became of them, and `taken` says that somebody has used it.
    """

    def __init__(
        self,
        workers: Workers,
        work: Work,
        plan: MapPlan,
        *,
        deliver: Callable[[Batch | End], None],
        ordered: bool = False,
        bounded: bool = True,
        show: Callable[[Progress], None] | None = None,
        total: int | None = None,
        sent: Callable[[int, Any], Any] = lambda _number, item: item,
    ) -> None:
        """`sent` is told each item that is sent, and returns what is sent for it."""
        self._workers = workers
        self._work = work
        self._plan = plan
        self._deliver = deliver
        self._ordered = ordered
        self._bounded = bounded
        self._show = show
        self._sent = sent
        self._shown_at = 0.0
        self._progress = Progress(total=total)
        self._clusters: dict[int, str] = {}
        self._came = 0
        self._items: dict[int, Any] = {}
        self._next = 0
        self._out_of_order: dict[int, Batch] = {}
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        #: By cluster: the reason, and how many items are run again and given up, of each lost worker.
        self._losses: dict[str, list[tuple[str, int, int]]] = {}
        self._input_error: BaseException | None = None
        self._has_room = threading.Condition()
        self._room = 0 if bounded else 1
        self._fed: deque[Any] = deque()
        self._closed = False
        self._thread = threading.Thread(target=self._main, name="raymc-map", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def feed(self, item: Any) -> bool:
        """Add an item, as soon as there is room for it; False: nobody wants it any more."""
        with self._has_room:
            while self._room <= 0 and not self._closed:
                self._has_room.wait()
            if self._closed:
                return False
            self._room -= self._bounded
            self._fed.append(item)
            if len(self._fed) == 1:
                self._events.put(("fed", None))
        return True

    def end_input(self, error: BaseException | None = None) -> None:
        """Say that there are no more items; after their results, this error ends the map."""
        self._events.put(("input ended", error))

    def taken(self, count: int) -> None:
        """Say that somebody has used so many results."""
        self._events.put(("taken", count))

    def close(self, *, at_once: bool) -> None:
        """End the workers, and return when the thread has; `at_once`: whatever is under way."""
        with self._has_room:
            self._closed = True
            self._has_room.notify_all()
        if at_once:
            self._events.put(("close", None))
        self._thread.join()

    def _main(self) -> None:
        end = End()
        try:
            self._workers.open(self._work, self._events.put)
            end = End(self._loop())
        except BaseException as problem:  # noqa: BLE001 - handed to whoever waits for results
            end = End(problem)
        finally:
            with self._has_room:
                self._closed = True
                self._has_room.notify_all()
            if self._show is not None:
                self._show(self._progress)
            self._deliver(end)
            self._workers.close(at_once=end.error is not None)

    def _loop(self) -> BaseException | None:
        while True:
            for step in list(self._plan.instructions(time.monotonic())):
                self._carry_out(step)
            self._let_read()
            if self._plan.done:
                return self._input_error
            for event in self._next_events():
                if event == ("close", None):
                    return CancelledError("it was stopped before it had ended")
                self._take(event)
            self._tell_losses()
            self._tell_progress()

    def _next_events(self) -> list[Event]:
        """Wait for something to happen, and return all that has."""
        wake_at = self._plan.wake_at()
        timeout_s = None if wake_at is None else max(0.0, wake_at - time.monotonic())
        if self._show is not None:
            timeout_s = SHOW_EVERY_S if timeout_s is None else min(timeout_s, SHOW_EVERY_S)
        try:
            events = [self._events.get(timeout=timeout_s)]
            while not self._events.empty():
                events.append(self._events.get_nowait())
        except queue.Empty:
            return []
        return events

    def _carry_out(self, step: Start | Run) -> None:
        if isinstance(step, Start):
            self._workers.start(step.worker, wait=step.wait)
        else:
            items = [self._sent(number, self._items[number]) for number in step.chunk.items]
            self._plan.chunk_sized(step.chunk, self._workers.run(step.worker, step.chunk, items))

    def _let_read(self) -> None:
        if self._bounded:
            room = self._plan.may_read
            with self._has_room:
                self._room = room - len(self._fed)
                if self._room > 0:
                    self._has_room.notify()

    def _take(self, event: Event) -> None:
        if isinstance(event, tuple):
            what, detail = event
            if what == "fed":
                self._take_fed()
            elif what == "taken":
                self._plan.items_taken(detail)
            else:
                self._take_fed()
                self._input_error = detail
                self._progress.total = None if detail else self._came
                self._plan.input_ended()
        elif isinstance(event, Ended):
            self._take_results(event)
        elif isinstance(event, Placed):
            self._clusters[event.worker] = event.cluster
            self._progress.workers[event.cluster] += 1
            self._plan.worker_started(event.worker)
        elif isinstance(event, Ready):
            self._plan.worker_ready(event.worker)
        elif isinstance(event, NoRoom):
            self._plan.no_room(time.monotonic())
        elif isinstance(event, Lost):
            self._take_loss(event)
        else:
            raise event.error

    def _take_fed(self) -> None:
        with self._has_room:
            fed, self._fed = self._fed, deque()
        self._items.update(enumerate(fed, self._came))
        self._plan.items_came(len(fed))
        self._came += len(fed)

    def _take_results(self, ended: Ended) -> None:
        chunk, cluster = ended.chunk, self._clusters.get(ended.worker, "")
        if not self._plan.chunk_ended(ended.worker, chunk, ended.seconds):
            return
        self._plan.chunk_sized(chunk, ended.size_bytes)
        errors = {}
        for position, error in ended.errors.items():
            number = chunk.first + position
            errors[position] = _with_cause(error, self._items[number], number, cluster)
        for number in chunk.items:
            del self._items[number]
        self._progress.done += chunk.size
        self._progress.failed += len(errors)
        self._hand_over(Batch(chunk.first, ended.results, errors))

    def _take_loss(self, lost: Lost) -> None:
        cluster = self._clusters.pop(lost.worker, "")
        again, given_up = self._plan.worker_lost(lost.worker, begun=lost.begun)
        if cluster:
            self._progress.workers[cluster] -= 1
        self._progress.repeated += len(again)
        if again or given_up:
            self._losses.setdefault(cluster, []).append((lost.reason, len(again), len(given_up)))
        for number in given_up:
            reason = (
                f"lost while it ran item {number} of a map ({lost.reason}), and it had no retries left: it "
                "may have been run; `retries` says how often that may be"
            )
            error = Error(OutcomeUnknown(cluster, reason))
            item = self._items.pop(number)
            self._progress.done += 1
            self._progress.failed += 1
            self._hand_over(Batch(number, [None], {0: _with_cause(error, item, number, cluster)}))

    def _tell_losses(self) -> None:
        """Say what was lost; workers of a cluster that dies are lost together."""
        for cluster, losses in self._losses.items():
            reasons, again, given_up = zip(*losses, strict=True)
            workers = "a worker" if len(losses) == 1 else f"{len(losses)} workers"
            self._progress.trouble = (
                f"lost {workers} on cluster {cluster!r} ({reasons[0]}): {sum(again)} items in flight are run "
                "again elsewhere" + (f", {sum(given_up)} are given up" if any(given_up) else "")
            )
            log.warning("%s", self._progress.trouble)
        self._losses.clear()

    def _hand_over(self, batch: Batch) -> None:
        if not self._ordered:
            self._deliver(batch)
            return
        self._out_of_order[batch.first] = batch
        while (following := self._out_of_order.pop(self._next, None)) is not None:
            self._next += len(following.results)
            self._deliver(following)

    def _tell_progress(self) -> None:
        now = time.monotonic()
        if self._show is not None and now - self._shown_at >= SHOW_EVERY_S:
            self._shown_at = now
            self._show(self._progress)


def _with_cause(told: Error, item: Any, number: int, cluster: str) -> BaseException:
    """Return the error of an item; its cause says which item it was, where, and the traceback there."""
    quoted = repr(item)
    if len(quoted) > QUOTED:
        quoted = quoted[:QUOTED] + "…"
    told.error.__cause__ = ItemFailed(
        f"item {number} ({quoted}) failed on cluster {cluster!r}"
        + (f":\n\n{told.traceback.rstrip()}" if told.traceback else ""),
        item=item,
        number=number,
        cluster=cluster,
        traceback=told.traceback,
    )
    return told.error
