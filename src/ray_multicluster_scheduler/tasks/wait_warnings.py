"""Warnings about tasks and actors that wait for free resources, which otherwise looks like a hang."""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ray_multicluster_scheduler.errors import ClusterError
from ray_multicluster_scheduler.model.resources import Resources, show
from ray_multicluster_scheduler.ports import Clock
from ray_multicluster_scheduler.ray_api.state_api import Holder
from ray_multicluster_scheduler.tasks.operations import TaskOperations
from ray_multicluster_scheduler.tasks.task_registry import ActorRecord, TaskRecord

log = logging.getLogger(__name__)

#: No warning before work has waited for this long.
QUIET_S = 5.0
#: Least time between two warnings: a program that submits more than fits keeps doing so.
EVERY_S = 60.0
#: Candidates kept: of a thousand that wait, the first hundred are enough.
MAX_KEPT = 100
#: Most holders named in a warning.
MAX_NAMED = 3


@dataclass(frozen=True, slots=True)
class WaitingWork:
    """A task or an actor that was placed on a cluster without room for it."""

    record: TaskRecord | ActorRecord
    claim: Resources
    #: When it was placed (wall clock).
    at: float
    #: The result of a task on another cluster, to notice its end.
    ref: Any = None

    @property
    def work_id(self) -> str:
        """Return the id that `explain_task` takes."""
        return self.record.actor_id if isinstance(self.record, ActorRecord) else self.record.task_id

    @property
    def description(self) -> str:
        """Return a description for the warning."""
        if isinstance(self.record, ActorRecord):
            return f"the actor {self.record.name or self.record.class_name} ({self.work_id})"
        return f"the task {self.record.name} ({self.work_id})"


class WaitWarnings:
    """Logs a warning if work that was placed without room still waits after a few seconds."""

    def __init__(self, operations: TaskOperations, clock: Clock) -> None:
        self._operations = operations
        self._clock = clock
        self._candidates: deque[WaitingWork] = deque(maxlen=MAX_KEPT)
        self._quiet_until = float("-inf")

    def add(self, record: TaskRecord | ActorRecord, claim: Resources, ref: Any = None) -> None:
        """Add work, if it was placed without room."""
        if record.decision.waits:
            self._candidates.append(WaitingWork(record, claim, self._clock.now(), ref))

    def check(self) -> None:
        """Log a warning if one is due."""
        now = self._clock.now()
        due: list[WaitingWork] = []
        while self._candidates and self._candidates[0].at <= now - QUIET_S:
            due.append(self._candidates.popleft())
        if not due or now < self._quiet_until:
            return
        try:
            waiting = [each for each in due if self._operations.is_waiting(each.record, each.ref)]
            if waiting:
                self._quiet_until = now + EVERY_S
                holders = self._operations.holders(waiting[0].record.decision.cluster)
                log.warning("%s", warning(waiting, now, holders))
        except ClusterError as problem:
            log.debug("cannot tell what waits: %s", problem)


def warning(waiting: Sequence[WaitingWork], now: float, holders: Iterable[Holder]) -> str:
    """Return the warning: what waits, for which resources, their holders, and how to learn more."""
    first = waiting[0]
    others = f" and {len(waiting) - 1} more wait" if len(waiting) > 1 else " waits"
    names = Counter(each.name for each in holders if each.resources.keys() & first.claim.keys())
    listed = [f"{name} ({times}x)" if times > 1 else name for name, times in names.most_common(MAX_NAMED)]
    if len(names) > MAX_NAMED:
        listed.append(f"{len(names) - MAX_NAMED} others")
    held = f"held there by {', '.join(listed)}" if listed else "nothing that runs there shows as holding it"
    return (
        f"{first.description}{others} for room on cluster {first.record.decision.cluster!r}, "
        f"for {now - first.at:.0f} s so far: it needs {show(first.claim)}; {held}. "
        f"explain_task({first.work_id!r}) says why it is there"
    )
