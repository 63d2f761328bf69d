"""The tasks and actors that this driver has submitted, by id."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any
from weakref import ref as weak

from ray_multicluster_scheduler.tasks.bridges import OpenBridge
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
