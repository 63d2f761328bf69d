"""How many of our jobs a cluster may run at once: as configured, or else what its head has memory for.

Ray runs the driver of a job, and a helper for it, on the head. Too many of them end the head, and all jobs
of its cluster with it.
"""

from __future__ import annotations

from ray_multicluster_scheduler.model.cluster import ClusterSnapshot, ClusterSpec
from ray_multicluster_scheduler.model.resources import GIB

#: What a driver and its helper take on the head before the program has loaded anything.
DRIVER_BYTES = 85e6
#: The other half of the head's `memory` is for what programs load, for tasks there and for Ray itself.
DRIVERS_SHARE = 0.5
#: Where the head's memory is unknown: what a head with 8 GiB gets.
USUAL_LIMIT = 50
#: Heads were seen to end with 100 to 200 drivers: no head gets more unless somebody says so.
HIGHEST_LIMIT = 100


def driver_limit(spec: ClusterSpec, snapshot: ClusterSnapshot) -> int:
    """Return how many of our jobs the cluster may have; at least one, or it would be of no use."""
    if spec.max_running_jobs is not None:
        return spec.max_running_jobs
    memory = head_memory(snapshot)
    if memory is None:
        return USUAL_LIMIT
    return int(min(max(1.0, memory * DRIVERS_SHARE / DRIVER_BYTES), HIGHEST_LIMIT))


def limit_origin(spec: ClusterSpec, snapshot: ClusterSnapshot) -> str:
    """Say where the limit comes from, and how it is changed."""
    if spec.max_running_jobs is not None:
        return "max_running_jobs"
    memory = head_memory(snapshot)
    known = "the memory of its head is unknown"
    if memory is not None:
        known = f"its head has {memory / GIB:.1f} GiB of memory for Ray"
    return f"{known}; set max_running_jobs to change it"


def head_memory(snapshot: ClusterSnapshot) -> float | None:
    """Return the `memory` that the head offers, in bytes: what Ray leaves to processes, about 70 % of RAM.

    None: unknown. An administrator who wants no tasks on the head lets it offer none, whatever its RAM is.
    """
    heads = (node for node in snapshot.nodes or () if node.is_head and node.alive)
    offered = next((node.resources.get("memory") for node in heads), None)
    return offered or None
