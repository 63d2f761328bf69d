"""The numbers that placement goes by."""

from __future__ import annotations

from dataclasses import dataclass

#: Who begins to decide waits this long for a first look at each cluster, and then goes on without it.
FIRST_LOOK_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRules:
    """How long is too long to wait, which Ray is too old, and what each part of a score is worth.

    An idle cluster of weight 1 scores at most 1 for its free share; the bonuses are in the same coin.
    """

    #: After this a waiting job gets room kept free for it.
    starvation_after_s: float = 300.0
    #: How long the start of a job takes on a cluster that has started none yet.
    first_start_s: float = 3.0
    #: Older ones have another Jobs API.
    min_ray_version: tuple[int, int] = (2, 9)
    #: For a cluster that has all of the job's tags; a part of them gives a part of it.
    tags_bonus: float = 0.5
    #: For a cluster that has set up the same environment before.
    warm_bonus: float = 0.2
    #: Against a cluster with GPUs when the job needs none.
    gpu_penalty: float = 0.5
