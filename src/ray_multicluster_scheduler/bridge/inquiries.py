"""What can be asked about tasks and actors by their ids, and done to them."""

from __future__ import annotations

from typing import Any

from ray_multicluster_scheduler.bridge import lazy
from ray_multicluster_scheduler.bridge.chooser import Chooser
from ray_multicluster_scheduler.bridge.records import ActorRecord, Records
from ray_multicluster_scheduler.errors import ClusterError, InvalidRequest
from ray_multicluster_scheduler.ports import Clock

DEAD = "DEAD"
#: A cluster shows a new actor after this long at the latest.
SHOWN_AFTER_S = 10.0
#: Ray's words for a task, and ours; all others mean that it has not started.
_STATUS = {"RUNNING": "RUNNING", "FINISHED": "SUCCEEDED", "FAILED": "FAILED"}


class Inquiries:
    """Answers about what one driver has submitted."""

    def __init__(self, records: Records, chooser: Chooser, clock: Clock) -> None:
        self._records = records
        self._chooser = chooser
        self._clock = clock

    def cancel_task(self, task: Any, *, force: bool) -> bool:
        """Cancel a task by its id or its ref; False when the id is not known (any more)."""
        ray = lazy.ray()
        if not isinstance(task, str):
            ray.cancel(task, force=force)
            return True
        record = self._records.tasks.get(task)
        if record is None:
            return False
        record.cancelled = True
        if record.span is not None and force:  # Ray does not end the process of an actor for one call
            ray.get(record.span.actor.crush.remote(task))
        if record.ray_id is not None:
            ray.cancel(self._first_ref(record.ray_id), force=force and record.span is None)
        return True

    def kill_actor(self, actor: Any, *, no_restart: bool) -> bool:
        """End an actor at once, by its id or its handle; False when the id is not known."""
        ray = lazy.ray()
        if isinstance(actor, str):
            record = self._records.actors.get(actor)
            if record is None:
                return False
            if record.span is not None:
                ray.get(record.span.actor.kill.remote(actor, no_restart=no_restart))
                return True
            actor = record.handle()
            if actor is None:  # without a handle, Ray has ended it
                return True
        if (far := getattr(actor, "_raymc", None)) is not None:
            ray.get(far.bridge.kill.remote(far.key, no_restart=no_restart))
        else:
            ray.kill(actor, no_restart=no_restart)
        return True

    def task_status(self, task_id: str) -> str:
        """Return PENDING, RUNNING, SUCCEEDED, FAILED, CANCELLED, or UNKNOWN."""
        record = self._records.tasks.get(task_id)
        if record is None or not self._chooser.joined:
            return "UNKNOWN"
        ray_id, home = record.ray_id, self._chooser.home.name
        if ray_id is None:
            return "PENDING"
        try:
            seen = self._chooser.on_cluster(home, lambda api: api.task(ray_id))
        except ClusterError:
            return "UNKNOWN"
        status = "PENDING" if seen is None else _STATUS.get(seen.state, "PENDING")
        return "CANCELLED" if status == "FAILED" and record.cancelled else status

    def list_actors(self) -> list[dict[str, Any]]:
        """Return the actors of this driver that have not ended; `state` is None where nobody can tell."""
        states = {name: self._states_on(name) for name in {a.decision.cluster for a in self._actors}}
        rows = []
        for record in self._actors:
            ray_id = _ray_id(record)
            state = self._state(record, ray_id, states[record.decision.cluster])
            if state == DEAD:
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

    def explain(self, any_id: str) -> dict[str, Any]:
        """Return why a task or an actor is where it is: per cluster its score, or why it was no candidate."""
        decision = self._records.decision(any_id)
        if decision is None:
            raise InvalidRequest(
                f"this program has submitted no task or actor {any_id!r}, or it was long ago"
            )
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
        return list(self._records.actors.values())

    def _state(self, record: ActorRecord, ray_id: str | None, known: dict[str, str] | None) -> str | None:
        """Return the state of an actor among those that its cluster shows, which has only the living."""
        if known is None or ray_id is None:
            return None
        if ray_id in known:
            record.seen = True
            return known[ray_id]
        may_come = ray_id and not record.seen and self._clock.now() - record.at < SHOWN_AFTER_S
        return None if may_come else DEAD

    def _states_on(self, cluster: str) -> dict[str, str] | None:
        try:
            found = self._chooser.on_cluster(cluster, lambda api: api.actors())
        except ClusterError:
            return None
        return None if found is None else {actor.actor_id: actor.state for actor in found}

    def _first_ref(self, ray_id: str) -> Any:
        """Return the ref of a task's first result, made of the task's id: we do not hold it."""
        binary = bytes.fromhex(ray_id) + (1).to_bytes(4, "little")
        if self._chooser.home.over_client:
            return lazy.module("ray.util.client.common").ClientObjectRef(binary)
        return lazy.ray().ObjectRef(binary)


def _ray_id(record: ActorRecord) -> str | None:
    """Return Ray's id of an actor, as far as it is known now."""
    if record.created is None:
        return record.ray_id
    ray = lazy.ray()
    if not ray.wait([record.created], timeout=0)[0]:
        return None
    try:
        created: str = ray.get(record.created)
    except ray.exceptions.RayError:  # it was never created
        return ""
    return created
