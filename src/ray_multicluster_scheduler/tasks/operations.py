"""Operations on submitted tasks and actors by id: status, result, cancel, kill, list, explain."""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any
from weakref import ref as weak

from ray_multicluster_scheduler.errors import ClusterError, InvalidRequest, WaitTimeout
from ray_multicluster_scheduler.ports import Clock
from ray_multicluster_scheduler.ray_api.http_connection import Holder
from ray_multicluster_scheduler.tasks import lazy_import
from ray_multicluster_scheduler.tasks.bridges import OpenBridge
from ray_multicluster_scheduler.tasks.cluster_selector import ClusterSelector
from ray_multicluster_scheduler.tasks.placement import Decision

#: Older tasks and older ended actors are forgotten: a driver may submit millions.
MAX_TASKS = 10_000
MAX_ENDED = 10_000


@dataclass(slots=True, kw_only=True)
class TaskRecord:
    """A task, without a ref to its result, which would keep it in memory."""

    task_id: str
    name: str
    decision: Decision
    #: None for the home cluster.
    bridge: OpenBridge | None = None
    #: Ray's id at home; None until it is known.
    ray_id: str | None = None
    cancelled: bool = False
    #: Number of results, returned as a list, or 0; None for a single result.
    returns: int | None = None


@dataclass(slots=True, kw_only=True)
class ActorRecord:
    """One actor."""

    actor_id: str
    name: str
    class_name: str
    decision: Decision
    #: The handle that was returned to the user.
    handle: weak[Any]
    bridge: OpenBridge | None = None
    #: Ray's id, at home; on other clusters `created` is a home ref that resolves to it.
    ray_id: str | None = None
    created: Any = None
    #: Whether its cluster has listed it, and the first query that did not list it (monotonic clock).
    seen: bool = False
    first_missed_at: float | None = None


class Registry:
    """Tasks and actors by id; the oldest tasks and the oldest ended actors are forgotten."""

    def __init__(self) -> None:
        self.tasks: OrderedDict[str, TaskRecord] = OrderedDict()
        #: Actors that are not known to have ended.
        self.actors: dict[str, ActorRecord] = {}
        #: Ended actors: only the placement decision is kept, no ref, handle or bridge.
        self.ended: OrderedDict[str, Decision] = OrderedDict()

    def add_task(self, record: TaskRecord) -> None:
        """Add a task."""
        self.tasks[record.task_id] = record
        if len(self.tasks) > MAX_TASKS:
            self.tasks.popitem(last=False)

    def add_actor(self, record: ActorRecord) -> None:
        """Add an actor."""
        self.actors[record.actor_id] = record

    def end_actor(self, actor_id: str) -> None:
        """Mark an actor as ended and drop all but its decision."""
        record = self.actors.pop(actor_id, None)
        if record is not None:
            self.ended[actor_id] = record.decision
            if len(self.ended) > MAX_ENDED:
                self.ended.popitem(last=False)

    def decision(self, any_id: str) -> Decision | None:
        """Return the placement decision of a task or an actor, or None."""
        record = self.tasks.get(any_id) or self.actors.get(any_id)
        return self.ended.get(any_id) if record is None else record.decision


DEAD = "DEAD"
#: Ray's states of an actor that has not started.
NOT_STARTED = {"DEPENDENCIES_UNREADY", "PENDING_CREATION"}
#: Ended actors are searched for once this many actors have no handle, and at most this often.
MAX_HANDLELESS = 100
FORGET_EVERY_S = 30.0
#: A cluster lists a new actor within this time after the first query.
SHOWN_AFTER_S = 10.0
#: Ray's task states and ours; all other states are PENDING.
_STATUS = {"RUNNING": "RUNNING", "FINISHED": "SUCCEEDED", "FAILED": "FAILED"}
#: The same for actors.
_ACTOR_STATUS = {"ALIVE": "ALIVE", "RESTARTING": "RESTARTING", DEAD: DEAD}
#: Over Ray Client the id of a task needs a round trip, made by the background thread.
ID_COMES_WITHIN_S = 30.0
#: A result that is missing this long after the end of its task is lost.
RESULT_COMES_WITHIN_S = 2.0
#: Interval of status queries while waiting for a result.
RESULT_LOOK_S = 2.0


class TaskOperations:
    """Operations on the tasks and actors of one driver."""

    def __init__(self, registry: Registry, selector: ClusterSelector, clock: Clock) -> None:
        self._registry = registry
        self._selector = selector
        self._clock = clock
        self._forgot_at = float("-inf")

    def cancel_task(self, task: Any, *, force: bool) -> bool:
        """Cancel a task by its id or its ref; return False if the id is unknown or forgotten."""
        ray = lazy_import.ray()
        if not isinstance(task, str):
            ray.cancel(task, force=force)
            return True
        record = self._registry.tasks.get(task)
        if record is None:
            return False
        record.cancelled = True
        with self._selector.raising_home_lost():
            if record.bridge is not None and force:  # ray.cancel cannot force-cancel the call of an actor
                ray.get(record.bridge.actor.force_cancel.remote(task))
            if record.returns != 0:
                ref = self._result_ref(self._task_ray_id(record), 1)
                ray.cancel(ref, force=force and record.bridge is None)
        return True

    @property
    def home_is_lost(self) -> bool:
        """Tell whether this program has lost its home cluster, or has left it."""
        return self._selector.home_is_lost

    def kill_actor(self, actor: Any, *, no_restart: bool, wait: bool = True) -> bool:
        """Kill an actor by its id or its handle; return False if the id is unknown.

        By its handle also without waiting for it: its cluster may not answer any more.
        """
        with self._selector.raising_home_lost():
            if not isinstance(actor, str):
                self._kill_by_handle(actor, no_restart=no_restart, wait=wait)
                return True
            record = self._registry.actors.get(actor)
            if record is None:
                return actor in self._registry.ended
            handle = record.handle()
            if record.bridge is not None:
                lazy_import.ray().get(record.bridge.actor.kill.remote(actor, no_restart=no_restart))
            elif handle is not None:  # without a handle, Ray has ended it
                lazy_import.ray().kill(handle, no_restart=no_restart)
        if no_restart:
            self._registry.end_actor(actor)
        return True

    def _kill_by_handle(self, actor: Any, *, no_restart: bool, wait: bool) -> None:
        if (state := getattr(actor, "_raymc", None)) is None:
            lazy_import.ray().kill(actor, no_restart=no_restart)
            key = self._id_of(actor)
        else:
            killed = state.bridge.kill.remote(state.key, no_restart=no_restart)
            if wait:
                lazy_import.ray().get(killed)
            key = state.key
        if no_restart and key is not None:
            self._registry.end_actor(key)

    def _id_of(self, handle: Any) -> str | None:
        ray_id = handle._actor_id.hex()
        return next((each.actor_id for each in self._actors if each.ray_id == ray_id), None)

    def task_status(self, task_id: str) -> str:
        """Return PENDING, RUNNING, SUCCEEDED, FAILED, CANCELLED, or UNKNOWN."""
        record = self._registry.tasks.get(task_id)
        if record is None or not self._selector.joined:
            return "UNKNOWN"
        ray_id, home = record.ray_id, self._selector.home.name
        if ray_id is None:
            return "PENDING"
        try:
            remote_task = self._selector.query_cluster(home, lambda state: state.task(ray_id))
        except ClusterError:
            return "UNKNOWN"
        status = "PENDING" if remote_task is None else _STATUS.get(remote_task.state, "PENDING")
        return "CANCELLED" if status == "FAILED" and record.cancelled else status

    def task_result(self, task_id: str, *, timeout_s: float | None) -> Any:
        """Wait for a task and return its result, which exists as long as its ref is held somewhere."""
        record = self._registry.tasks.get(task_id)
        if record is None or not self._selector.joined:
            raise _unknown("task", task_id)
        with self._selector.raising_home_lost():
            ray_id = self._task_ray_id(record)
            if not self._is_held(ray_id):
                raise _gone(task_id)
            refs = [self._result_ref(ray_id, number) for number in range(1, 1 + (record.returns or 1))]
            self._wait_for_result(refs[0], task_id, timeout_s)
            values = lazy_import.ray().get(refs)
        return values[0] if record.returns is None else values

    def _wait_for_result(self, ref: Any, task_id: str, timeout_s: float | None) -> None:
        """Wait for a result, and raise if it is lost, where Ray would wait for ever."""
        now = self._clock.monotonic()
        ends_at, ended_at = math.inf if timeout_s is None else now + timeout_s, None
        while not lazy_import.ray().wait([ref], timeout=max(0.0, min(RESULT_LOOK_S, ends_at - now)))[0]:
            now = self._clock.monotonic()
            if now >= ends_at:
                raise WaitTimeout(f"{task_id} has not ended within {timeout_s:g} s; it goes on", [task_id])
            if self.task_status(task_id) in {"SUCCEEDED", "FAILED", "CANCELLED"}:
                ended_at = ended_at or now
                if now - ended_at >= RESULT_COMES_WITHIN_S:
                    raise _gone(task_id)

    def actor_status(self, actor_id: str) -> str:
        """Return PENDING, ALIVE, RESTARTING, DEAD, or UNKNOWN."""
        record = self._registry.actors.get(actor_id)
        if record is None:
            return DEAD if actor_id in self._registry.ended else "UNKNOWN"
        with self._selector.raising_home_lost():
            states, ray_id = self._actor_states(record.decision.cluster), _ray_id(record)
        if states is None:
            return "UNKNOWN"
        return _ACTOR_STATUS.get(self._state_of(record, ray_id, states) or "", "PENDING")

    def actor_handle(self, actor_id: str) -> Any:
        """Return the handle of an actor; without one, Ray has ended it."""
        record = self._registry.actors.get(actor_id)
        handle = None if record is None else record.handle()
        if handle is None:
            raise _unknown("living actor", actor_id)
        return handle

    def wait_until_ready(self, actor_id: str, handle: Any, *, timeout_s: float) -> None:
        """Wait until the constructor of an actor is done; kill the actor if that takes too long."""
        ray, record = lazy_import.ray(), self._registry.actors[actor_id]
        if hasattr(handle, "_raymc"):
            ready = lazy_import.wire("handle").CrossClusterMethod(handle, "__ray_ready__", {}).remote()
        else:
            ready = handle.__ray_ready__.remote()
        if ray.wait([ready], timeout=timeout_s)[0]:
            ray.get(ready)  # raises if the actor has died
            return
        status = self.actor_status(actor_id)
        self.kill_actor(handle, no_restart=True)
        raise WaitTimeout(
            f"{actor_id} ({record.class_name}) was not ready within {timeout_s:g} s and was given up: it was "
            f"{status} on {record.decision.cluster!r} ({record.decision.sentence}); free what it asks for, "
            "or give it a longer timeout",
            [actor_id],
        )

    def list_actors(self) -> list[dict[str, Any]]:
        """Return the actors of this driver that have not ended; `state` is None if unknown."""
        states = {name: self._actor_states(name) for name in {a.decision.cluster for a in self._actors}}
        rows = []
        for record in self._actors:
            with self._selector.raising_home_lost():
                ray_id = _ray_id(record)
            state = self._state_of(record, ray_id, states[record.decision.cluster])
            if state == DEAD:
                self._registry.end_actor(record.actor_id)
                continue
            rows.append(
                {
                    "actor_id": record.actor_id,
                    "name": record.name,
                    "class": record.class_name,
                    "cluster": record.decision.cluster,
                    "state": state,
                    "ray_actor_id": ray_id,
                }
            )
        return rows

    def forget_ended(self) -> None:
        """Forget ended actors once many have no handle here; a copy of a handle may keep an actor alive."""
        handleless = sum(record.handle() is None for record in self._actors)
        if handleless >= MAX_HANDLELESS and self._clock.now() >= self._forgot_at + FORGET_EVERY_S:
            self._forgot_at = self._clock.now()
            self.list_actors()

    def is_waiting(self, record: TaskRecord | ActorRecord, ref: Any) -> bool:
        """Tell whether work that was placed without room still waits; a remote task waits until it has ended.

        Raises `ClusterError` if its cluster cannot be queried.
        """
        if isinstance(record, TaskRecord):
            if record.bridge is None:
                return self.task_status(record.task_id) == "PENDING"
            with self._selector.raising_home_lost():
                return not lazy_import.ray().wait([ref], timeout=0)[0]
        with self._selector.raising_home_lost():
            ray_id = _ray_id(record)
        states = self._actor_states(record.decision.cluster) or {}
        return bool(ray_id) and states.get(str(ray_id)) in NOT_STARTED

    def holders(self, cluster: str) -> tuple[Holder, ...]:
        """Return the known holders of a cluster's resources."""
        return self._selector.query_cluster(cluster, lambda state: state.holders()) or ()

    def explain(self, any_id: str) -> dict[str, Any]:
        """Return why a task or an actor was placed where it is: for each cluster its score or its refusal."""
        decision = self._registry.decision(any_id)
        if decision is None:
            raise _unknown("task or actor", any_id)
        clusters: dict[str, Any] = {
            name: {"score": score.total, "parts": dict(score.parts), "prefer": score.prefer}
            for name, score in decision.scores.items()
        }
        clusters |= {
            name: {"refused": refusal.sentence, "cause": refusal.cause.value}
            for name, refusal in decision.refusals.items()
        }
        return {"id": any_id, "cluster": decision.cluster, "reason": decision.sentence, "clusters": clusters}

    @property
    def _actors(self) -> list[ActorRecord]:
        return list(self._registry.actors.values())

    def _state_of(self, record: ActorRecord, ray_id: str | None, states: dict[str, str] | None) -> str | None:
        """Return the state of an actor from the states that its cluster lists, which omit dead actors."""
        if states is None or ray_id is None:
            return None
        if ray_id in states:
            record.seen = True
            return states[ray_id]
        if record.seen or not ray_id:
            return DEAD
        now = self._clock.monotonic()
        record.first_missed_at = record.first_missed_at or now
        return None if now - record.first_missed_at < SHOWN_AFTER_S else DEAD

    def _actor_states(self, cluster: str) -> dict[str, str] | None:
        try:
            actors = self._selector.query_cluster(cluster, lambda state: state.actors())
        except ClusterError:
            return None
        return None if actors is None else {actor.actor_id: actor.state for actor in actors}

    def _task_ray_id(self, record: TaskRecord) -> str:
        ends_at = self._clock.monotonic() + ID_COMES_WITHIN_S
        while record.ray_id is None:
            if record.returns == 0 or self._clock.monotonic() > ends_at:
                raise InvalidRequest(f"{record.task_id} has no result: the home cluster does not know it")
            time.sleep(0.01)
        return record.ray_id

    def _is_held(self, ray_id: str) -> bool:
        """Tell whether the first result of a task may still be there.

        Over Ray Client the server forgets a result when this process drops its last ref. A request for it
        then never returns: Ray Client takes the refusal for a lost connection and retries for ever.
        """
        if not self._selector.home.over_client:
            return True
        worker = lazy_import.module("ray.util.client").ray.get_context().client_worker
        return _result_id(ray_id, 1) in worker.reference_count

    def _result_ref(self, ray_id: str, number: int) -> Any:
        """Return a ref to a result, built from the id of the task: the registry holds no refs."""
        if self._selector.home.over_client:
            return lazy_import.module("ray.util.client.common").ClientObjectRef(_result_id(ray_id, number))
        return lazy_import.ray().ObjectRef(_result_id(ray_id, number))


def _result_id(ray_id: str, number: int) -> bytes:
    return bytes.fromhex(ray_id) + number.to_bytes(4, "little")


def _gone(task_id: str) -> InvalidRequest:
    return InvalidRequest(
        f"the result of {task_id} is gone, because its ref was: keep the ref that submit_task returns, and "
        "write ray.get(ref)"
    )


def _unknown(what: str, any_id: str) -> InvalidRequest:
    return InvalidRequest(f"this program has submitted no {what} {any_id!r}, or it was long ago")


def _ray_id(record: ActorRecord) -> str | None:
    """Return Ray's id of an actor: None if not known yet, empty if the creation failed."""
    if record.created is None:
        return record.ray_id
    ray = lazy_import.ray()
    if not ray.wait([record.created], timeout=0)[0]:
        return None
    try:
        created: str = ray.get(record.created)
    except ray.exceptions.RayError:  # it was never created
        return ""
    return created
