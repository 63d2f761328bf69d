"""All numbers that the scheduler decides by: of placement, of the life of a job, of black holes, of looks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ray_multicluster_scheduler.model.execution import DEFAULT_EXECUTOR, ORDINARY, Capabilities

if TYPE_CHECKING:
    from ray_multicluster_scheduler.core.pacing import TokenBucket

#: A new leader waits this long for the first probe of each cluster, and then continues without it.
FIRST_LOOK_S = 2.0
ONLY_DEFAULT: Mapping[str, Capabilities] = {DEFAULT_EXECUTOR: ORDINARY}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRules:
    """Limits of waiting, the oldest supported Ray, and the weights of the parts of a score.

    A cluster of weight 1 scores at most 1 for its fit; the bonuses are on the same scale.
    """

    #: After this time a waiting job is starved: it goes first, or room is kept for it (plan.py).
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


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineRules:
    """What is quick, how many deaths in a row are too many, and how long a black hole is left alone."""

    quick_s: float = 30.0
    #: From this weight of quick deaths in a row on, one job at a time; and from that on, only probe jobs.
    less_from: float = 3.0
    nothing_from: float = 6.0
    #: Before a probe job; doubles with each one that dies.
    pause_s: float = 60.0
    max_pause_s: float = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PollRules:
    """Intervals of looks at a cluster: for its jobs while there are any, else for the cluster itself."""

    poll_interval_s: float
    probe_interval_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ObserveRules:
    """Time limits for conclusions."""

    unreachable_after_s: float = 20.0
    #: A raylet outlives its GCS by 60 s: failing over sooner could run the job twice.
    lost_after_refused_s: float = 90.0
    #: After this time a job that Ray cannot stop, because it never started, is given up.
    stop_grace_s: float = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryRules:
    """Budget and delays of retries after infrastructure failures. The user's own budget is in the job."""

    max_infra_retries: int = 3
    delay_s: float = 2.0
    max_delay_s: float = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerRules:
    """The rules of placement, of the life of a job, and of how fast."""

    plan: PlanRules = field(default_factory=PlanRules)
    observe: ObserveRules = field(default_factory=ObserveRules)
    retry: RetryRules = field(default_factory=RetryRules)
    quarantine: QuarantineRules = field(default_factory=QuarantineRules)
    poll: PollRules
    #: How fast the jobs of a dead cluster are started anew.
    replacements: TokenBucket
    #: No cluster may be starting more jobs at once.
    most_starts: int
