"""What each cluster has left during one pass of the planner.

    capacity = total, or max_resources where that is more (an autoscaling cluster grows to it)
    free     = capacity - max(used + unseen, reserved) - what this pass has placed there

`used` contains what our own jobs use, and they may use less than they claim: so the larger one counts.
An amount that nobody knows is not in `capacity`, and what is not there is never room.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ray_multicluster_scheduler.core.placement.driver_limit import driver_limit
from ray_multicluster_scheduler.model.decision import ClusterView, QueuedJob
from ray_multicluster_scheduler.model.resources import Resources, plus, shortfall


@dataclass(slots=True, kw_only=True)
class Room:
    """One cluster while a pass goes on: placing takes from it, and room can be kept for one job."""

    view: ClusterView
    #: How many drivers the head may run.
    driver_limit: int
    capacity: dict[str, float]
    free: dict[str, float]
    #: All our claims there.
    ours: dict[str, float]
    #: The claims that were placed in this pass.
    given: list[Resources] = field(default_factory=list)
    #: Jobs that could go elsewhere and wait for this cluster, because they prefer it.
    waited_for: int = 0
    #: The job that has waited too long and goes here next, and what it leaves to others when it can start.
    kept_for: QueuedJob | None = None
    spare: dict[str, float] = field(default_factory=dict)
    #: Grows with each change, so that an answer about this room can be kept until then.
    version: int = 0

    @property
    def name(self) -> str:
        """The cluster's name."""
        return self.view.spec.name

    @property
    def placed(self) -> int:
        """How many jobs were placed in this pass."""
        return len(self.given)

    @property
    def slots(self) -> int:
        """How many more drivers the head may run."""
        return self.driver_limit - self.view.live_jobs - self.placed

    def unknown(self, claim: Resources) -> tuple[str, ...]:
        """Return the claimed resources whose total on this cluster is unknown."""
        if self.view.snapshot.total is not None:
            return ()
        return tuple(sorted(name for name in claim if name not in self.capacity))

    def beyond(self, claim: Resources) -> dict[str, float]:
        """Return what even the empty cluster is known to lack."""
        unknown = self.unknown(claim)
        return {n: lack for n, lack in shortfall(claim, self.capacity).items() if n not in unknown}

    def free_for_others(self) -> dict[str, float]:
        """Return what is free for jobs that no room is kept for."""
        if self.kept_for is None:
            return self.free
        return {name: min(amount, self.spare.get(name, 0.0)) for name, amount in self.free.items()}

    def place(self, claim: Resources) -> None:
        """Take a claim from the room."""
        for name, amount in claim.items():
            self.free[name] = self.free.get(name, 0.0) - amount
            if self.kept_for is not None:
                self.spare[name] = self.spare.get(name, 0.0) - amount
        self.ours = plus(self.ours, claim)
        self.given.append(claim)
        self.version += 1

    def keep_for(self, job: QueuedJob, *, coming: Resources) -> None:
        """Keep the claim of a job free, where `coming` is expected to come free until it starts."""
        self.kept_for = job
        self.spare = {
            name: amount + coming.get(name, 0.0) - job.claim.get(name, 0.0)
            for name, amount in self.free.items()
        }
        self.version += 1


def open_room(view: ClusterView) -> Room:
    """Return the room of a cluster before anything is placed."""
    capacity = view.capacity
    used = plus(view.snapshot.used or {}, view.unseen)
    free = {
        name: amount - max(used.get(name, 0.0), view.reserved.get(name, 0.0))
        for name, amount in capacity.items()
    }
    limit = driver_limit(view.spec, view.snapshot)
    return Room(view=view, driver_limit=limit, capacity=capacity, free=free, ours=dict(view.reserved))


def open_rooms(views: Iterable[ClusterView]) -> tuple[Room, ...]:
    """Return the rooms of all clusters by name, so that the order of the input decides nothing."""
    return tuple(open_room(view) for view in sorted(views, key=lambda view: view.spec.name))


def total_capacity(rooms: Iterable[Room]) -> dict[str, float]:
    """Return what all clusters have together: the measure of each user's share."""
    total: dict[str, float] = {}
    for room in rooms:
        total = plus(total, room.capacity)
    return total


def share_of(claim: Resources, free: Resources) -> float:
    """Return how much of a claim is free already, from 0 to 1: the scarcest resource counts."""
    shares = [
        min(1.0, max(0.0, free.get(name, 0.0)) / amount) for name, amount in claim.items() if amount > 0
    ]
    return min(shares, default=1.0)
