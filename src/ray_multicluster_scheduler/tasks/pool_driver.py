"""Starts, calls, replaces and ends the actors of a pool; `core/actor_pool.py` decides which and when."""

from __future__ import annotations

import copy
import itertools
import logging
import sys
import threading
import time
import uuid
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from typing import Any, NamedTuple, Protocol

from ray_multicluster_scheduler.core.actor_pool import (
    Demand,
    GiveUp,
    PoolCalls,
    PoolRoom,
    Release,
    Send,
    SizeMemory,
    Step,
    next_size,
)
from ray_multicluster_scheduler.errors import (
    HomeLost,
    InvalidRequest,
    ItemFailed,
    NoClusterAvailable,
    OutcomeUnknown,
    SchedulerError,
    WaitTimeout,
)
from ray_multicluster_scheduler.model.resources import Resources
from ray_multicluster_scheduler.tasks import lazy_import
from ray_multicluster_scheduler.tasks.submitter import (
    ActorAbout,
    BackgroundThread,
    TaskRequest,
    TaskSubmitter,
)

log = logging.getLogger(__name__)

#: How often a pool looks for room, and asks whether others wait for its room.
LOOK_EVERY_S = 1.0
SENSE_EVERY_S = 5.0
#: No warning before a pool without any actor has waited this long, and the least time between two.
QUIET_S = 5.0
WARN_EVERY_S = 60.0
#: A class whose actors do not come up is tried so often in a row, with pauses that double.
MAX_FAILED_STARTS = 3
MAX_PAUSE_S = 60.0
#: The driver has to take notice of a stop, on a loaded machine too.
STOP_WITHIN_S = 10.0
#: Broadcasts that are kept for actors that join later.
MAX_BROADCASTS = 100
#: Ray's own method: it returns when the constructor is done.
READY = "__ray_ready__"
#: Of an item, in the message of an `ItemFailed`.
MOST_SHOWN = 200


class Fate(Enum):
    """What the error of a call says about its actor."""

    ALIVE = "the method raised it"
    ACTOR_LOST = "the actor is gone"
    CLUSTER_LOST = "so are all actors of its cluster"
    HOME_LOST = "this program can call nothing any more"


class PoolActor(NamedTuple):
    """One actor of a pool."""

    name: str
    cluster: str
    handle: Any


class Actors(Protocol):
    """Where a pool gets its actors, and how it calls them. Only `start` and `surroundings` may take long."""

    def start(self, number: int, *, avoid: Collection[str]) -> PoolActor:
        """Start an actor on another cluster than these; raise `NoClusterAvailable` where none has room."""

    def call(
        self, actor: PoolActor, method: str, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Future[Any]:
        """Call a method."""

    def end(self, actor: PoolActor) -> None:
        """End an actor at once; one that is gone is no error."""

    def check(self) -> None:
        """Raise `SchedulerError` if no call will be answered any more."""

    def fate(self, error: BaseException) -> Fate:
        """Tell what the error of a call says about its actor."""

    def surroundings(self) -> tuple[Mapping[str, Resources], Sequence[Demand]]:
        """Return what is free on each cluster, and what waits for room there that is not the pool's."""


class RayActors:
    """The actors of a pool, as `submit_actor` starts them."""

    def __init__(
        self, tasks: TaskSubmitter, request: TaskRequest, waiting_jobs: Callable[[], Sequence[Demand]]
    ) -> None:
        self._tasks = tasks
        self._request = request
        self._waiting_jobs = waiting_jobs
        self._methods = tasks.about_actor(request).methods
        #: Names are unique on a cluster, and two pools may be given one.
        self._mark = uuid.uuid4().hex[:6]

    def start(self, number: int, *, avoid: Collection[str]) -> PoolActor:
        """See `Actors`, as for all below."""
        name = f"{self._request.name}_{self._mark}_{number}" if self._request.name else ""
        request = replace(self._request, name=name, waits_for_room=False, avoid=avoid)
        actor_id, handle = self._tasks.submit_actor(request)
        return PoolActor(actor_id, self._tasks.operations.explain(actor_id)["cluster"], handle)

    def call(
        self, actor: PoolActor, method: str, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Future[Any]:
        """Call it by its name, which may be one of Ray's own."""
        self.check()
        one = {} if self._methods.get(method, 1) == 1 else {"num_returns": 1}
        across = hasattr(actor.handle, "_raymc")
        if across:
            bound = lazy_import.wire("handle").CrossClusterMethod(actor.handle, method, one)
        else:
            bound = getattr(actor.handle, method)
            bound = bound.options(**one) if one else bound
        result: Future[Any] = Future()
        bound.remote(*args, **kwargs).future().add_done_callback(partial(_pass_on, to=result, across=across))
        return result

    def end(self, actor: PoolActor) -> None:
        """Kill it; without home, nothing of this program is left."""
        if self._tasks.operations.home_is_lost:
            return
        with suppress(HomeLost, lazy_import.ray().exceptions.RayError):
            self._tasks.operations.kill_actor(actor.handle, no_restart=True, wait=False)

    def check(self) -> None:
        """Ray would answer no call any more, or start a cluster on this machine."""
        if self._tasks.operations.home_is_lost:
            raise SchedulerError("the scheduler of this pool was stopped, or has lost its home cluster")

    def fate(self, error: BaseException) -> Fate:
        """An error of the user's code is a `RayTaskError`, whatever else it is."""
        exceptions = lazy_import.ray().exceptions
        if isinstance(error, exceptions.RayTaskError):
            return Fate.ALIVE
        if isinstance(error, HomeLost) or self._tasks.operations.home_is_lost:
            return Fate.HOME_LOST
        if isinstance(error, OutcomeUnknown):
            return Fate.CLUSTER_LOST
        gone = (exceptions.RayActorError, exceptions.NodeDiedError, exceptions.ObjectLostError)
        return Fate.ACTOR_LOST if isinstance(error, gone) else Fate.ALIVE

    def surroundings(self) -> tuple[Mapping[str, Resources], Sequence[Demand]]:
        """Ask the clusters, and the queue of jobs if this program has one."""
        rooms = self._tasks.rooms()
        waiting = [*self._waiting_jobs()]
        for room in rooms:
            inside = room.view.snapshot.pending or ()
            waiting += [Demand(claim=claim, clusters=frozenset({room.name})) for claim, _ in inside]
        demands = []
        for each in waiting:
            large_enough = {room.name for room in rooms if not room.beyond(each.claim)}
            allowed = large_enough if each.clusters is None else large_enough & each.clusters
            demands.append(replace(each, clusters=frozenset(allowed)))
        return {room.name: room.free for room in rooms}, demands


def _pass_on(done: Future[Any], *, to: Future[Any], across: bool) -> None:
    """Pass a result on, and an exception as `ray.get` would raise it.

    A call to another cluster is one to the bridge, so the loss of its actor looks like an error of user code.
    """
    error, exceptions = done.exception(), lazy_import.ray().exceptions
    if isinstance(error, exceptions.RayTaskError):
        cause = error.cause
        if across and isinstance(cause, exceptions.RayError) and not hasattr(cause, "from_user_code"):
            error = cause
        else:
            error = error.as_instanceof_cause()
    if error is None:
        to.set_result(done.result())
    else:
        to.set_exception(error)


@dataclass(slots=True, eq=False)
class Work:
    """One call of a pool, as its caller knows it."""

    method: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    retry_on: tuple[type[BaseException], ...] = ()
    #: Its place in the input of a `map`.
    number: int = 0
    future: Future[Any] = field(default_factory=Future)
    #: The last error, and the cluster that it came from.
    error: BaseException | None = None
    cluster: str = ""

    def fail(self) -> None:
        """End it with its last error, whose cause says which item it was, where, and the traceback there."""
        assert self.error is not None
        item = self.args[0] if len(self.args) == 1 else self.args
        self.error.__cause__ = ItemFailed(
            f"item {self.number} ({repr(item)[:MOST_SHOWN]}) failed on cluster {self.cluster!r}",
            item=item,
            number=self.number,
            cluster=self.cluster,
            traceback=str(self.error),
        )
        self.future.set_exception(self.error)


class PoolDriver:
    """Keeps the state of one pool in a thread of its own; others tell it what happened.

    What may take long, starting actors and asking clusters, is done in a second thread.
    """

    def __init__(
        self,
        actors: Actors,
        about: ActorAbout,
        *,
        size: int | None,
        max_size: int | None = None,
        look_every_s: float = LOOK_EVERY_S,
        sense_every_s: float = SENSE_EVERY_S,
    ) -> None:
        self._source = actors
        self._about = about
        #: None: as many as fit.
        self._wanted = size
        self._most = max_size
        self._look_every_s = look_every_s
        self._sense_every_s = sense_every_s
        self._calls = PoolCalls(per_actor=about.max_concurrency)
        self._numbers = itertools.count(1)
        #: All actors that are there, and of those that are not ready yet how many broadcasts they have had.
        self._actors: dict[str, PoolActor] = {}
        self._starting: dict[str, int] = {}
        self._leaving: set[str] = set()
        self._works: dict[int, Work] = {}
        #: What was sent and has not ended, by the number of the sending: call and actor.
        self._sent: dict[int, tuple[int, str]] = {}
        self._broadcasts: list[Work] = []
        self._when_ready: list[Callable[[], None]] = []
        self._memory = SizeMemory()
        self._may_grow = True
        self._looks_now = self._senses_now = False
        self._sense_from = 0.0
        #: By cluster: failed starts in a row, and until when none is tried there.
        self._failed_starts: Counter[str] = Counter()
        self._pause_until: dict[str, float] = {}
        self._empty_since = time.monotonic()
        self._warn_from = 0.0
        #: Why it has ended, if it has not been stopped.
        self.problem: BaseException | None = None
        self.is_stopped = False
        self._lock = threading.Lock()
        self._driver = BackgroundThread(
            (partial(self._guarded, self._look),), name="raymc-pool", every_s=look_every_s
        )
        self._slow = BackgroundThread((), name="raymc-pool-starts")

    def begin(self, timeout_s: float | None = None) -> None:
        """Wait for room for the first actor, start it, and from then on everything in the background."""
        ends_at = float("inf") if timeout_s is None else time.monotonic() + timeout_s
        while True:
            try:
                first = self._source.start(next(self._numbers), avoid=())
                break
            except NoClusterAvailable as problem:
                if time.monotonic() >= ends_at:
                    raise WaitTimeout(
                        f"no room for an actor within {timeout_s:g} s: {problem}", []
                    ) from problem
                self._warn_of_wait(problem)
            time.sleep(self._look_every_s)
        self._on_started(first)
        self._driver.start()
        self._slow.start()

    def add(self, work: Work, retries: int) -> None:
        """Have a call made."""
        self._tell(partial(self._on_added, work, retries))
        if self.is_stopped:  # meanwhile, and then nobody hears of it
            work.future.cancel()

    def broadcast(self, work: Work) -> Future[list[Work]]:
        """Have a call made on every actor, now and later, and return those of now."""
        sent: Future[list[Work]] = Future()
        self._tell(partial(self._on_broadcast, work, sent))
        if self.is_stopped:
            sent.cancel()
        return sent

    @property
    def is_over(self) -> bool:
        """Tell whether it was stopped or has failed."""
        return self.is_stopped or self.problem is not None

    def stop(self) -> None:
        """End all actors and calls, once."""
        with self._lock:
            if self.is_stopped:
                return
            self.is_stopped = True
        self._driver.add(self._on_stop)
        self._driver.stop(STOP_WITHIN_S)
        self._slow.stop()

    def clusters(self) -> Counter[str]:
        """Return how many actors it has on each cluster."""
        staying = [actor.cluster for actor in tuple(self._actors.values()) if actor.name not in self._leaving]
        return Counter(staying)

    def counts(self) -> tuple[int, int, int]:
        """Return how many calls run, how many wait, and how many were repeated after a loss."""
        return self._calls.running, self._calls.waiting, self._calls.repeated

    def is_alive_after(self, error: BaseException) -> bool:
        """Tell whether an error of a call is the method's own."""
        return self._source.fate(error) is Fate.ALIVE

    def _tell(self, event: Callable[[], None]) -> None:
        """Have the driver do something; safe in Ray's threads, which must not wait for a lock."""
        self._driver.add(partial(self._guarded, event))

    def _guarded(self, event: Callable[[], None]) -> None:
        """Do one thing; a mistake of ours ends the pool, so that nobody waits for ever."""
        try:
            event()
        except BaseException as problem:  # noqa: BLE001 - every waiting call raises it
            self._end(problem)

    def _on_added(self, work: Work, retries: int) -> None:
        if self.is_over:
            self._drop(work)
            return
        call = next(self._numbers)
        self._works[call] = work
        self._carry_out(self._calls.add(call, retries=retries))

    def _on_broadcast(self, work: Work, sent: Future[list[Work]]) -> None:
        if not sent.running() and not sent.set_running_or_notify_cancel():
            return
        if self.is_over:
            sent.set_exception(self.problem or stopped())
            return
        ready = self._ready()
        if not ready:
            self._when_ready.append(partial(self._on_broadcast, work, sent))
            return
        if sum(not each.future.cancelled() for each in self._broadcasts) >= MAX_BROADCASTS:
            problem = InvalidRequest(
                f"a pool remembers {MAX_BROADCASTS} broadcasts for actors that join later, and has had "
                "them: call one method that does all of it, or pass it with the items"
            )
            sent.set_exception(problem)
            return
        # From now on: whoever is not ready yet has it still to come.
        self._broadcasts.append(work)
        works = {name: Work(work.method, work.args, work.kwargs) for name in ready}
        for name, each in works.items():
            call = next(self._numbers)
            self._works[call] = each
            self._carry_out(self._calls.add_for(call, name))
        sent.set_result(list(works.values()))

    def _ready(self) -> list[str]:
        return [name for name in self._actors if name not in self._starting and name not in self._leaving]

    def _look(self) -> None:
        """Look for room, about once a second."""
        now = time.monotonic()
        if self.is_over:
            return
        self._source.check()
        if self._wanted is None and not self._senses_now and now >= self._sense_from:
            self._senses_now, self._sense_from = True, now + self._sense_every_s
            self._slow.add(self._sense)
        self._grow()

    def _grow(self) -> None:
        """Have one more actor started, if there should be more."""
        have = len(self._actors) - len(self._leaving)
        most = self._wanted or (self._most or sys.maxsize if self._may_grow else 1)
        if have >= most or self._looks_now or self.is_over:
            return
        self._looks_now, now = True, time.monotonic()
        avoid = [cluster for cluster, until in self._pause_until.items() if now < until]
        self._slow.add(partial(self._start, next(self._numbers), avoid))

    def _start(self, number: int, avoid: Collection[str]) -> None:
        """Start an actor; it may take long."""
        try:
            actor = self._source.start(number, avoid=avoid)
        except NoClusterAvailable as problem:
            self._tell(partial(self._on_no_room, problem))
        except BaseException as problem:  # noqa: BLE001 - raised by all calls, unless a cluster was lost
            self._tell(partial(self._on_not_started, problem))
        else:
            self._tell(partial(self._on_started, actor))
            if self.is_stopped:  # meanwhile, and then nobody hears of it
                self._source.end(actor)

    def _on_no_room(self, problem: NoClusterAvailable) -> None:
        self._looks_now = False
        if not self._actors:
            self._warn_of_wait(problem)

    def _on_not_started(self, problem: BaseException) -> None:
        self._looks_now = False
        if self._source.fate(problem) in {Fate.ALIVE, Fate.HOME_LOST}:
            self._end(problem)

    def _on_started(self, actor: PoolActor) -> None:
        self._looks_now = False
        if self.is_over:
            self._source.end(actor)
            return
        self._actors[actor.name], self._starting[actor.name] = actor, 0
        self._prepare(actor, READY, (), {})
        self._grow()

    def _prepare(self, actor: PoolActor, method: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Make a call that an actor has to answer before it gets work."""
        self._call(actor, method, args, kwargs).add_done_callback(
            lambda done: self._tell(partial(self._on_prepared, actor, done))
        )

    def _on_prepared(self, actor: PoolActor, done: Future[Any]) -> None:
        if actor.name not in self._starting:
            return  # it was lost, or given up
        if (error := done.exception()) is not None:
            self._on_failed_start(actor, error)
            return
        for position in range(self._starting[actor.name], len(self._broadcasts)):
            work = self._broadcasts[position]
            if not work.future.cancelled():
                self._starting[actor.name] = position + 1
                self._prepare(actor, work.method, work.args, work.kwargs)
                return
        del self._starting[actor.name]
        self._failed_starts.clear()
        held, self._when_ready = self._when_ready, []
        steps = self._calls.join(actor.name, actor.cluster)
        for each in held:
            each()
        self._carry_out(steps)

    def _on_failed_start(self, actor: PoolActor, error: BaseException) -> None:
        """Pause before the next start there. Those that failed together count as one."""
        fate, now = self._source.fate(error), time.monotonic()
        if fate is Fate.HOME_LOST:
            self._end(error)
            return
        self._forget([actor.name])
        if now >= self._pause_until.get(actor.cluster, 0.0):
            self._failed_starts[actor.cluster] += 1
            pause_s = min(2.0 ** self._failed_starts[actor.cluster] / 2, MAX_PAUSE_S)
            self._pause_until[actor.cluster] = now + pause_s
            log.warning(
                "an actor %s did not start on cluster %r, which gets no other one for %.0f s: %s",
                self._about.class_name, actor.cluster, pause_s, _last_line(error),
            )  # fmt: skip
        enough = self._failed_starts[actor.cluster] >= MAX_FAILED_STARTS
        if enough and fate is not Fate.CLUSTER_LOST and not self._ready():
            self._end(error)

    def _sense(self) -> None:
        """Ask who else waits for room; it may take long."""
        try:
            found = self._source.surroundings()
        except SchedulerError as problem:
            log.debug("cannot tell who waits for room: %s", problem)
            found = {}, ()
        self._tell(partial(self._on_sensed, *found))

    def _on_sensed(self, free: Mapping[str, Resources], demands: Sequence[Demand]) -> None:
        self._senses_now = False
        ours = self.clusters()
        step = next_size(
            self._memory,
            now=time.monotonic(),
            claim=self._about.claim,
            rooms={name: PoolRoom(free=each, actors=ours[name]) for name, each in free.items()},
            demands=demands,
        )
        self._memory, self._may_grow = step.memory, step.may_grow
        for cluster, number in step.release.items():
            there = [actor.name for actor in self._actors.values() if actor.cluster == cluster]
            staying = [name for name in there if name not in self._leaving]
            # Those that do not work yet first, then the least busy ones.
            leaving = sorted(staying, key=lambda n: (n not in self._starting, self._calls.load(n)))[:number]
            log.info("releasing %d actors on cluster %r, where others wait for room", number, cluster)
            for name in leaving:
                self._leave(name)

    def _leave(self, name: str) -> None:
        if name in self._starting:
            self._forget([name])
        else:
            self._leaving.add(name)
            self._carry_out(self._calls.leave(name))

    def _carry_out(self, steps: Iterable[Step]) -> None:
        todo = deque(steps)
        while todo:
            match todo.popleft():
                case Send(call, name):
                    todo += self._send(call, self._actors[name])
                case GiveUp(call):
                    self._works.pop(call).fail()
                case Release(name):
                    self._forget([name])

    def _send(self, call: int, actor: PoolActor) -> list[Step]:
        work = self._works[call]
        if not work.future.running() and not work.future.set_running_or_notify_cancel():
            del self._works[call]
            return self._calls.end(call)
        number = next(self._numbers)
        self._sent[number] = call, actor.name
        self._call(actor, work.method, work.args, work.kwargs).add_done_callback(
            lambda done: self._tell(partial(self._on_ended, number, done))
        )
        return []

    def _call(
        self, actor: PoolActor, method: str, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Future[Any]:
        try:
            return self._source.call(actor, method, args, kwargs)
        except BaseException as problem:  # noqa: BLE001 - raised by this call: it cannot be pickled, say
            failed: Future[Any] = Future()
            failed.set_exception(problem)
            return failed

    def _on_ended(self, number: int, done: Future[Any]) -> None:
        if number not in self._sent:
            return  # its actor was given up before
        call, name = self._sent.pop(number)
        work, error = self._works[call], done.exception()
        if error is None:
            del self._works[call]
            steps = self._calls.end(call)
            work.future.set_result(done.result())
            self._carry_out(steps)
            return
        work.error, work.cluster = error, self._actors[name].cluster
        match self._source.fate(error):
            case Fate.ALIVE if isinstance(error, work.retry_on):
                self._carry_out(self._calls.fail(call))
            case Fate.ALIVE:
                self._works.pop(call).fail()
                self._carry_out(self._calls.end(call))
            case Fate.ACTOR_LOST:
                self._lose([name], error)
            case Fate.CLUSTER_LOST:
                there = [n for n, actor in self._actors.items() if actor.cluster == work.cluster]
                self._lose(there, error)
            case Fate.HOME_LOST:
                self._end(error)

    def _lose(self, names: Sequence[str], error: BaseException) -> None:
        name = self._about.class_name
        log.warning("%d of %s lost, to be replaced: %s", len(names), name, _last_line(error))
        for call, name in self._sent.values():
            if name in names:
                self._works[call].error = copy.copy(error)  # each tells its own item
                self._works[call].cluster = self._actors[name].cluster
        steps = self._calls.lose(names)
        self._forget(names)
        self._carry_out(steps)
        self._grow()

    def _forget(self, names: Collection[str]) -> None:
        """Let go of actors, which end if they have not."""
        self._sent = {number: sent for number, sent in self._sent.items() if sent[1] not in names}
        for name in names:
            actor = self._actors.pop(name)
            self._starting.pop(name, None)
            self._leaving.discard(name)
            self._source.end(actor)
        if not self._actors:
            self._empty_since = time.monotonic()

    def _warn_of_wait(self, problem: BaseException) -> None:
        now = time.monotonic()
        if now - self._empty_since >= QUIET_S and now >= self._warn_from:
            self._warn_from = now + WARN_EVERY_S
            waited = now - self._empty_since
            log.warning(
                "the pool of %s has no actor, for %.0f s so far: %s", self._about.class_name, waited, problem
            )

    def _on_stop(self) -> None:
        if self.problem is None:
            self._end(stopped())

    def _end(self, problem: BaseException) -> None:
        """End everything; whoever waits gets the problem."""
        self.problem = self.problem or problem
        works, self._works = self._works, {}
        self._calls, self._sent = PoolCalls(), {}
        held, self._when_ready = self._when_ready, []
        for event in held:
            event()
        for work in works.values():
            self._drop(work)
        for actor in tuple(self._actors.values()):
            self._source.end(actor)
        self._actors.clear()
        self._starting.clear()
        self._leaving.clear()

    def _drop(self, work: Work) -> None:
        if self.is_stopped and work.future.cancel():
            return
        if work.future.running() or work.future.set_running_or_notify_cancel():
            work.future.set_exception(self.problem or stopped())


def _last_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[-1]


def stopped() -> SchedulerError:
    """Return the error for a call of a pool that was stopped."""
    return SchedulerError("this pool was stopped; make a new one with submit_actor_pool")
