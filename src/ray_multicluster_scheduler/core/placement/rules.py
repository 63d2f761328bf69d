"""The numbers that placement goes by."""

from __future__ import annotations

from dataclasses import dataclass

#: A new leader waits this long for a first look at each cluster, and then goes on without it.
FIRST_LOOK_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRules:
    """How long is too long to wait, which Ray is too old, and what each part of a score is worth.

    A cluster of weight 1 scores at most 1 for its fit; the bonuses are in the same coin.
    """

    #: After this a waiting job goes before the turns of all users, or room is kept for it (reservation.py).
    starvation_after_s: float = 3600.0
    #: Room is kept once it is expected within this part of the time that the job has waited.
    reserve_within: float = 0.5
    #: Take the cluster that the job fills most, not the one that stays freest: set where claims differ.
    best_fit: bool = False
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
