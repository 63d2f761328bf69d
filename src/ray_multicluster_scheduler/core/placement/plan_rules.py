"""The parameters of placement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ray_multicluster_scheduler.model.execution import DEFAULT_EXECUTOR, ORDINARY, Capabilities

#: A new leader waits this long for the first probe of each cluster, and then continues without it.
FIRST_LOOK_S = 2.0
ONLY_DEFAULT: Mapping[str, Capabilities] = {DEFAULT_EXECUTOR: ORDINARY}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRules:
    """Limits of waiting, the oldest supported Ray, and the weights of the parts of a score.

    A cluster of weight 1 scores at most 1 for its fit; the bonuses are on the same scale.
    """

    #: After this time a waiting job is starved: it goes first, or room is kept for it (reservation.py).
    starvation_after_s: float = 3600.0
    #: Room is kept if it is expected within this fraction of the time that the job has waited.
    reserve_within: float = 0.5
    #: Prefer the cluster that the job fills most, not the one with most left; set if claims differ.
    best_fit: bool = False
    #: Assumed duration of a start on a cluster that has not started a job yet.
    first_start_s: float = 3.0
    #: Older versions have another Jobs API.
    min_ray_version: tuple[int, int] = (2, 9)
    #: Bonus of a cluster with all of the job's tags; with some of them, the same fraction of it.
    tags_bonus: float = 0.5
    #: Bonus of a cluster that has set up the same environment before.
    warm_bonus: float = 0.2
    #: Penalty of a cluster with GPUs if the job needs none.
    gpu_penalty: float = 0.5
    #: What each executor can do, by name. A job of another one is left alone: a newer version has it.
    executors: Mapping[str, Capabilities] = field(default_factory=lambda: ONLY_DEFAULT)
