"""The limit on our jobs per cluster: the configured one, or else by the memory of the head.

Ray runs the driver of a job, and a supervisor for it, on the head. Too many of them kill the head, and with
it all jobs of its cluster.
"""

from __future__ import annotations

from ray_multicluster_scheduler.model.cluster import ClusterSnapshot, ClusterSpec
from ray_multicluster_scheduler.model.resources import GIB

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
