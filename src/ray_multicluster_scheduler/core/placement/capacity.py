"""The free capacity of each cluster during one pass of the planner, and how many jobs it may run at once.

    capacity = total, or max_resources where that is more (an autoscaling cluster grows to it)
    free     = capacity - max(used + unseen, reserved + claimed_by_others) - claims placed in this pass

`used` includes our own jobs and those of other schedulers, which may use less than they claim, so the larger
of both sums counts. A resource of unknown amount is not in `capacity`, and so never free.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ray_multicluster_scheduler.model.cluster import ClusterSnapshot, ClusterSpec
from ray_multicluster_scheduler.model.decision import ClusterView, QueuedJob
from ray_multicluster_scheduler.model.resources import GIB, Resources, plus, shortfall

# The limit on our jobs per cluster: the configured one, or else by the memory of the head.
#
# Ray runs the driver of a job, and a supervisor for it, on the head. Too many of them kill the head, and
# with it all jobs of its cluster.


#: Memory of a driver and its supervisor on the head before the program has loaded anything.
DRIVER_BYTES = 85e6
#: The rest of the head's `memory` is for the programs' own data, for tasks there and for Ray itself.
DRIVERS_SHARE = 0.5
#: The limit if the head's memory is unknown: that of a head with 8 GiB.
USUAL_LIMIT = 50
#: Heads have died with 100 to 200 drivers, so none gets more unless it is configured.
HIGHEST_LIMIT = 100


def driver_limit(spec: ClusterSpec, snapshot: ClusterSnapshot) -> int:
    """Return the limit on our jobs on a cluster; at least one, or the cluster would be useless."""
    if spec.max_running_jobs is not None:
        return spec.max_running_jobs
    memory = head_memory(snapshot)
    if memory is None:
        return USUAL_LIMIT
    return int(min(max(1.0, memory * DRIVERS_SHARE / DRIVER_BYTES), HIGHEST_LIMIT))


def limit_origin(spec: ClusterSpec, snapshot: ClusterSnapshot) -> str:
    """Say where the limit comes from, and how to change it."""
    if spec.max_running_jobs is not None:
        return "max_running_jobs"
    memory = head_memory(snapshot)
    known = "the memory of its head is unknown"
    if memory is not None:
        known = f"its head has {memory / GIB:.1f} GiB of memory for Ray"
    return f"{known}; set max_running_jobs to change it"


def head_memory(snapshot: ClusterSnapshot) -> float | None:
    """Return the `memory` that the head offers, in bytes: what Ray leaves to processes, about 70 % of RAM.

    None if unknown. The head offers no memory if an administrator wants no tasks there, whatever its RAM is.
    """
    heads = (node for node in snapshot.nodes or () if node.is_head and node.alive)
    offered = next((node.resources.get("memory") for node in heads), None)
    return offered or None


@dataclass(slots=True, kw_only=True)
class Room:
    """The free capacity of one cluster during a pass. Placements reduce it; a part can be reserved."""

    view: ClusterView
    #: Limit on the drivers on the head.
    driver_limit: int
    capacity: dict[str, float]
    free: dict[str, float]
    #: All our claims there.
    ours: dict[str, float]
    #: The claims that were placed in this pass, and how many of them take a driver slot.
    given: list[Resources] = field(default_factory=list)
    slots_given: int = 0
    #: Number of jobs that wait for this cluster because they prefer it, although another one has room.
    waited_for: int = 0
    #: The starved job that goes here next, and the resources that it will leave free when it starts.
    kept_for: QueuedJob | None = None
    spare: dict[str, float] = field(default_factory=dict)
    #: Grows with each change, so that answers about this room can be cached.
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
        return self.driver_limit - self.drivers

    @property
    def drivers(self) -> int:
        """How many of our jobs there take a driver slot."""
        return self.view.live_jobs - self.view.slotless_jobs + self.slots_given

    def unknown(self, claim: Resources) -> tuple[str, ...]:
        """Return the claimed resources whose total on this cluster is unknown."""
        if self.view.snapshot.total is not None:
            return ()
        return tuple(sorted(name for name in claim if name not in self.capacity))

    def beyond(self, claim: Resources) -> dict[str, float]:
        """Return the amounts that even the empty cluster lacks."""
        unknown = self.unknown(claim)
        return {n: lack for n, lack in shortfall(claim, self.capacity).items() if n not in unknown}

    def free_for_others(self) -> dict[str, float]:
        """Return the free resources, without those that are kept for the reserved job."""
        if self.kept_for is None:
            return self.free
        return {name: min(amount, self.spare.get(name, 0.0)) for name, amount in self.free.items()}

    def place(self, job: QueuedJob) -> None:
        """Take what a job claims from the room."""
        claim = job.claim
        for name, amount in claim.items():
            self.free[name] = self.free.get(name, 0.0) - amount
            if self.kept_for is not None:
                self.spare[name] = self.spare.get(name, 0.0) - amount
        self.ours = plus(self.ours, claim)
        self.given.append(claim)
        self.slots_given += job.needs_driver_slot
        self.version += 1

    def keep_for(self, job: QueuedJob, *, coming: Resources) -> None:
        """Keep the claim of a job free; `coming` is expected to be released before the job starts."""
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
    promised = plus(view.reserved, view.snapshot.claimed_by_others)
    free = {
        name: amount - max(used.get(name, 0.0), promised.get(name, 0.0)) for name, amount in capacity.items()
    }
    limit = driver_limit(view.spec, view.snapshot)
    return Room(view=view, driver_limit=limit, capacity=capacity, free=free, ours=dict(view.reserved))


def open_rooms(views: Iterable[ClusterView]) -> tuple[Room, ...]:
    """Return the rooms of all clusters, sorted by name: the order of the input must not matter."""
    return tuple(open_room(view) for view in sorted(views, key=lambda view: view.spec.name))


def total_capacity(rooms: Iterable[Room]) -> dict[str, float]:
    """Return the sum over all clusters, by which the share of each user is measured."""
    total: dict[str, float] = {}
    for room in rooms:
        total = plus(total, room.capacity)
    return total


def share_of(claim: Resources, free: Resources) -> float:
    """Return the part of a claim that is already free, from 0 to 1; the scarcest resource counts."""
    shares = [
        min(1.0, max(0.0, free.get(name, 0.0)) / amount) for name, amount in claim.items() if amount > 0
    ]
    return min(shares, default=1.0)
