"""What this driver has submitted, so that it can be asked about by its id."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any
from weakref import ref as weak

from ray_multicluster_scheduler.tasks.bridges import OpenBridge
from ray_multicluster_scheduler.tasks.placement import Decision

#: Older tasks, and older actors that have ended, are forgotten: a driver may submit millions.
MAX_TASKS = 10_000
MAX_ENDED = 10_000


@dataclass(slots=True, kw_only=True)
class TaskRecord:
    """One task. Its result is not held: that would keep it in memory."""

    task_id: str
    name: str
    decision: Decision
    #: None: at home.
    bridge: OpenBridge | None = None
    #: Ray's id at home; None until it is known.
    ray_id: str | None = None
    cancelled: bool = False
    #: How many results it returns; None: one that is no list.
    returns: int | None = None


@dataclass(slots=True, kw_only=True)
class ActorRecord:
    """One actor."""

    actor_id: str
    name: str
    class_name: str
    decision: Decision
    #: The handle that the user got, as long as there is one.
    handle: weak[Any]
    bridge: OpenBridge | None = None
    #: Ray's id at home; elsewhere `created` is a home ref that becomes it.
    ray_id: str | None = None
    created: Any = None
    #: Its cluster has shown it; and since when it did not, although it was asked (monotonic).
    seen: bool = False
    first_missed_at: float | None = None


class Registry:
    """Tasks and actors by their ids; the oldest tasks and the oldest ended actors are forgotten."""

    def __init__(self) -> None:
        self.tasks: OrderedDict[str, TaskRecord] = OrderedDict()
        #: Those that have not ended, as far as is known.
        self.actors: dict[str, ActorRecord] = {}
        #: Of the others only the reason of their place is left: no ref, no handle, no bridge.
        self.ended: OrderedDict[str, Decision] = OrderedDict()

    def add_task(self, record: TaskRecord) -> None:
        """Remember a task."""
        self.tasks[record.task_id] = record
        if len(self.tasks) > MAX_TASKS:
            self.tasks.popitem(last=False)

    def add_actor(self, record: ActorRecord) -> None:
        """Remember an actor."""
        self.actors[record.actor_id] = record

    def end_actor(self, actor_id: str) -> None:
        """Let an actor go that has ended."""
        record = self.actors.pop(actor_id, None)
        if record is not None:
            self.ended[actor_id] = record.decision
            if len(self.ended) > MAX_ENDED:
                self.ended.popitem(last=False)

    def decision(self, any_id: str) -> Decision | None:
        """Return why a task or an actor is where it is."""
        record = self.tasks.get(any_id) or self.actors.get(any_id)
        return self.ended.get(any_id) if record is None else record.decision
