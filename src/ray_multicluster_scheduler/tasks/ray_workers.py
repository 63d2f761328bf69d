"""The workers of a map on real clusters: one actor for each slot, placed like any other actor."""

from __future__ import annotations

import itertools
import logging
import pickle
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ray_multicluster_scheduler.errors import (
    ClusterError,
    ClusterUnreachable,
    HomeLost,
    InvalidRequest,
    NoClusterAvailable,
    OutcomeUnknown,
    SchedulerError,
)
from ray_multicluster_scheduler.tasks import lazy_import
from ray_multicluster_scheduler.tasks.bridges import send_by_value
from ray_multicluster_scheduler.tasks.map_plan import Chunk
from ray_multicluster_scheduler.tasks.map_run import (
    Broken,
    Ended,
    Error,
    Lost,
    NoRoom,
    Placed,
    Ready,
    Shared,
    Told,
    Work,
)
from ray_multicluster_scheduler.tasks.submitter import TaskRequest, TaskSubmitter

log = logging.getLogger(__name__)

KILL_TIMEOUT_S = 5.0
#: Least time between two warnings that no worker can be started.
QUIET_S = 60.0


@dataclass(slots=True)
class _Actor:
    """A worker: its handle, and what it knows."""

    actor_id: str
    handle: Any
    cluster: str
    known: set[str] = field(default_factory=set)
    #: Refs of what is under way: their results come by callbacks.
    refs: dict[int, Any] = field(default_factory=dict)


class RayWorkers:
    """Implements `Workers` on the clusters of a scheduler.

    Actors are started one after the other on a thread: opening the way to a further cluster takes seconds.
    """

    def __init__(self, tasks: TaskSubmitter, renewed: Callable[[], TaskSubmitter]) -> None:
        """`renewed` returns another submitter after home was lost."""
        self._tasks = tasks
        self._renewed = renewed
        self._actors: dict[int, _Actor] = {}
        #: Taken by Ray's threads too, so nobody calls Ray while holding it.
        self._lock = threading.Lock()
        self._sharing = threading.Lock()
        self._starts: queue.SimpleQueue[tuple[int, bool] | None] = queue.SimpleQueue()
        self._calls = itertools.count()
        self._closed = False
        #: Some worker had a place: if no cluster can be used later on, that may pass.
        self._begun = False
        self._quiet_until = float("-inf")

    def open(self, work: Work, tell: Callable[[Told], None]) -> None:
        """See `Workers.open`."""
        self._work = work
        self._tell = tell
        send_by_value()
        self._function, self._function_needs = serialized(work.func)
        threading.Thread(target=self._start_all, name="raymc-map-start", daemon=True).start()

    def start(self, worker: int, *, wait: bool) -> None:
        """See `Workers.start`."""
        self._starts.put((worker, wait))

    def run(self, worker: int, chunk: Chunk, items: Sequence[Any]) -> int:
        """See `Workers.run`."""
        actor, errors = self._actors.get(worker), dict[int, Error]()
        try:
            payload, needs = serialized(items)
        except Exception:  # noqa: BLE001 - whatever an item raises that cannot be pickled
            errors = _unsendable(items)
            payload, needs = serialized([item for at, item in enumerate(items) if at not in errors])
        sent = [position for position in range(chunk.size) if position not in errors]
        if actor is None:  # lost meanwhile, which was told
            return 0

        def done(outcome: Any) -> None:
            if isinstance(outcome, BaseException):
                self._tell_problem(worker, outcome)
                return
            seconds, found, failed = outcome
            told = {sent[at]: Error(pickle.loads(error), text) for at, error, text in failed}  # noqa: S301
            results = lazy_import.wire("serialization").deserialize(found)
            for position in sorted(errors):
                results.insert(position, None)
            self._tell(Ended(worker, chunk, results, {**told, **errors}, seconds, _size(found)))

        self._call(worker, actor, "run", payload, needs, done)
        return _size(payload)

    def close(self, *, at_once: bool) -> None:
        """See `Workers.close`. Idle workers end with their handles."""
        self._closed = True
        self._starts.put(None)
        with self._lock:
            actors, self._actors = list(self._actors.values()), {}
        # Each on a thread: a cluster that is silent just now answers late, and nobody waits for it.
        kills = [
            threading.Thread(target=_kill, args=(self._tasks, actor.actor_id), daemon=True)
            for actor in actors
            if at_once
        ]
        for kill in kills:
            kill.start()
        ends_at = time.monotonic() + KILL_TIMEOUT_S
        for kill in kills:
            kill.join(max(0.0, ends_at - time.monotonic()))

    def capacity(self, resources: Mapping[str, float]) -> int:
        """See `Workers.capacity`."""
        return self._tasks.capacity(resources)

    def _start_all(self) -> None:
        while (asked := self._starts.get()) is not None and not self._closed:
            worker, wait = asked
            try:
                self._start(worker, wait=wait)
            except HomeLost as lost:
                self._rejoin(worker, lost)
            except NoClusterAvailable as problem:
                if wait and not self._begun:
                    self._tell(Broken(problem))
                elif wait:  # all are down: they may come back
                    self._warn_of(problem)
                self._tell(NoRoom(worker))
            except BaseException as problem:  # noqa: BLE001 - raised where the results are read, or passes
                # While the connection to home breaks, Ray Client raises whatever comes up.
                passes = not isinstance(problem, SchedulerError) or isinstance(problem, ClusterError)
                if self._begun and passes:
                    self._warn_of(problem)
                    self._tell(NoRoom(worker))
                else:
                    self._tell(Broken(problem))

    def _start(self, worker: int, *, wait: bool) -> None:
        work = self._work
        actor_id, handle = self._tasks.submit_actor(
            TaskRequest(
                code=lazy_import.wire("map_worker").MapWorker,
                resource_requirements=work.resources,
                tags=work.tags,
                preferred_cluster=work.preferred_cluster,
                waits_for_room=wait,
            )
        )
        cluster = self._tasks.operations.explain(actor_id)["cluster"]
        actor = _Actor(actor_id, handle, cluster)
        with self._lock:
            if not self._closed:
                self._actors[worker] = actor
        if self._closed:
            _kill(self._tasks, actor_id)
            return
        self._begun = True
        self._tell(Placed(worker, cluster))

        def loaded(outcome: Any) -> None:
            if isinstance(outcome, BaseException):
                self._tell_problem(worker, outcome)
            else:
                self._tell(Ready(worker))

        self._call(worker, actor, "load", self._function, self._function_needs, loaded)

    def _warn_of(self, problem: BaseException) -> None:
        """Say why no worker is started, unless that was just said."""
        if (now := time.monotonic()) >= self._quiet_until:
            self._quiet_until = now + QUIET_S
            log.warning("no worker of the map can be started now: %s", problem)

    def _rejoin(self, worker: int, lost: HomeLost) -> None:
        """Go on without the home cluster, and so without all that was reached through it."""
        log.warning(
            "cluster %r, this program's home, is lost; the map goes on with another home", lost.cluster
        )
        with self._lock:
            gone, self._actors = list(self._actors), {}
        for each in gone:
            self._tell(Lost(each, _first_line(lost)))
        try:
            self._tasks = self._renewed()
        except (SchedulerError, OSError) as problem:
            self._tell(Broken(problem))
        else:
            self._tell(NoRoom(worker))

    def _call(
        self,
        worker: int,
        actor: _Actor,
        method: str,
        payload: Any,
        needs: Sequence[Shared[Any]],
        done: Callable[[Any], None],
    ) -> None:
        number = next(self._calls)

        def finish(outcome: Any) -> None:
            actor.refs.pop(number, None)
            try:
                done(outcome)
            except BaseException as problem:  # noqa: BLE001 - such as a result of a module that is not here
                self._tell(Broken(problem))

        try:
            new = [each for each in needs if each.key not in actor.known]
            holders = {each.key: self._holder(each, actor) for each in new}
            actor.known.update(holders)
            ref = getattr(actor.handle, method).remote(payload, [each.key for each in needs], holders)
            actor.refs[number] = ref
            when_done(ref, finish)
        except BaseException as problem:  # noqa: BLE001 - told as for a call that was made
            self._tell_problem(worker, problem)

    def _holder(self, shared: Shared[Any], beside: _Actor) -> Any:
        """Return the holder of a value on a worker's cluster; it is sent there when it is first needed.

        What was started over one bridge ends with it: another bridge to the same cluster has other holders.
        """
        tasks, cluster = self._tasks, beside.cluster
        bridge = getattr(beside.handle, "_raymc", None)
        key = (id(tasks), cluster, None if bridge is None else bridge.bridge_id)
        with self._sharing:
            if key not in shared.holders:
                actor_id, handle = tasks.submit_actor(
                    TaskRequest(
                        code=lazy_import.wire("map_worker").Holder,
                        resource_requirements={},
                        preferred_cluster=cluster,
                    )
                )
                payload, _ = serialized(shared.value)
                handle.put.remote(payload)
                if (there := tasks.operations.explain(actor_id)["cluster"]) != cluster:
                    raise ClusterUnreachable(cluster, f"what is shared would have come to {there!r}")
                shared.holders[key] = handle
                shared.on_drop(lambda: _kill(tasks, actor_id))
            return shared.holders[key]

    def _tell_problem(self, worker: int, problem: BaseException) -> None:
        """Tell that a worker is lost, or that none could do what it was asked for.

        This runs on a thread of Ray's. A lost worker ends with its handle, if it has not ended.
        """
        errors = lazy_import.ray().exceptions
        lost_actor = isinstance(problem, errors.RayActorError)
        with self._lock:
            actor = self._actors.get(worker)
            if actor is None:  # told already
                return
            is_lost = lost_actor or not isinstance(problem, errors.RayTaskError)
            if is_lost:
                del self._actors[worker]
        if not is_lost:
            refused = InvalidRequest(
                f"the function or its items cannot be loaded on cluster {actor.cluster!r}: "
                f"{_last_line(problem)}. What they import must be there: its runtime_env and your "
                "working_dir decide that (docs/environments.md)"
            )
            refused.__cause__ = problem
            self._tell(Broken(refused))
            return
        # The bridge knows whether it has sent a call before its cluster was lost.
        unsent = lost_actor and hasattr(actor.handle, "_raymc") and not isinstance(problem, OutcomeUnknown)
        self._tell(Lost(worker, _first_line(problem), begun=not unsent))


def _kill(tasks: TaskSubmitter, actor_id: str) -> None:
    try:
        tasks.operations.kill_actor(actor_id, no_restart=True)
    except (SchedulerError, ConnectionError, lazy_import.ray().exceptions.RayError) as problem:
        log.debug("a worker was not ended, as it is gone: %s", problem)


def serialized(value: Any) -> tuple[Any, list[Shared[Any]]]:
    """Return a value as bytes, and what it shares with others, which is not part of them."""
    wire = lazy_import.wire("serialization")
    shared: list[Shared[Any]] = []

    def number(each: Shared[Any]) -> int:
        if each not in shared:
            shared.append(each)
        return shared.index(each)

    return wire.buffers_as_bytes(wire.serialize(value, {Shared: number})), shared


def when_done(ref: Any, call: Callable[[Any], None]) -> None:
    """Call with the value of a ref, or with its error, on a thread of Ray's, which must not wait there.

    A ref of Ray Client has no id before the server has answered; asking for it sooner would wait for that.
    """
    if not hasattr(ref, "_id_future"):
        ref.future().add_done_callback(lambda done: call(done.exception() or done.result()))
        return
    waiting = ref._id_future
    if waiting is None:
        ref._on_completed(call)
        return

    def known(id_future: Any) -> None:
        problem = id_future.exception()
        if problem is not None:
            call(problem)
            return
        try:
            ref._on_completed(call)
        except (ConnectionError, RuntimeError) as closed:  # the session has ended
            call(closed)

    waiting.add_done_callback(known)


def _unsendable(items: Sequence[Any]) -> dict[int, Error]:
    """Return the errors of items that cannot be pickled, by position."""
    errors = {}
    for position, item in enumerate(items):
        try:
            serialized(item)
        except Exception as problem:  # noqa: BLE001 - see where it is called
            errors[position] = Error(problem)
    return errors


def _size(payload: Any) -> int:
    stream, buffers = payload
    return len(stream) + sum(map(len, buffers))


def _first_line(problem: BaseException) -> str:
    return (str(problem).strip() or type(problem).__name__).splitlines()[0]


def _last_line(problem: BaseException) -> str:
    return (str(problem).strip() or type(problem).__name__).splitlines()[-1]
