"""Inputs and results of placement. `explain`, dry runs and tests use the same records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType

from ray_multicluster_scheduler.model.cluster import NO_NEEDS, ClusterSnapshot, ClusterSpec, Health, RayNeeds
from ray_multicluster_scheduler.model.execution import DEFAULT_EXECUTOR
from ray_multicluster_scheduler.model.resources import Resources

#: One shared object for all clusters without failed environments, so that checks can compare by identity.
NOTHING_FAILED: Mapping[str, str] = MappingProxyType({})


class Cause(str, Enum):
    """The kind of a refusal, for programs. The sentence beside it is for people."""

    UNSEEN = "UNSEEN"
    EXCLUDED = "EXCLUDED"
    UNHEALTHY = "UNHEALTHY"
    DRAINED = "DRAINED"
    VERSION = "VERSION"
    AVOIDED = "AVOIDED"
    THROTTLED = "THROTTLED"
    PACED = "PACED"
    DRIVER_CAP = "DRIVER_CAP"
    TOO_LARGE = "TOO_LARGE"
    NO_ROOM = "NO_ROOM"
    RESERVED = "RESERVED"
    ENVIRONMENT = "ENVIRONMENT"
    UNKNOWN_RESOURCES = "UNKNOWN_RESOURCES"


#: Ordered from the cause that ends first to those that never end by themselves.
GOES_BY_FIRST: tuple[Cause, ...] = (
    Cause.UNSEEN,
    Cause.PACED,
    Cause.NO_ROOM,
    Cause.DRIVER_CAP,
    Cause.RESERVED,
    Cause.THROTTLED,
    Cause.UNKNOWN_RESOURCES,
    Cause.UNHEALTHY,
    Cause.DRAINED,
    Cause.AVOIDED,
    Cause.ENVIRONMENT,
    Cause.VERSION,
    Cause.TOO_LARGE,
    Cause.EXCLUDED,
)
#: A cluster can take the job in the next pass.
TURN = "TURN"
#: The job waits for other jobs, or for the time of its next attempt.
DEPENDENCIES = "DEPENDENCIES"
RETRY_DELAY = "RETRY_DELAY"
#: No cluster is configured.
NO_CLUSTER = "NO_CLUSTER"
#: All possible reasons.
REASONS = (TURN, DEPENDENCIES, RETRY_DELAY, NO_CLUSTER, *(cause.value for cause in GOES_BY_FIRST))


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a cluster is not a candidate now."""

    cause: Cause
    sentence: str
    #: The missing amounts by resource, if that is the reason.
    missing: Resources = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """How good one candidate is: the parts by name, and their total."""

    total: float
    parts: Mapping[str, float]
    #: This cluster wins over all others, whatever the totals are.
    prefer: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedJob:
    """The fields of a waiting job that the planner needs."""

    submission_id: str
    seq: int
    user: str
    priority: int
    waiting_since: float
    claim: Resources
    tags: tuple[str, ...] = ()
    preferred_cluster: str | None = None
    #: The job runs nowhere but on this cluster, and on clusters with all of these tags.
    only_cluster: str | None = None
    only_tags: tuple[str, ...] = ()
    avoid: tuple[str, ...] = ()
    #: May go to a cluster whose last probe failed: no cluster that answers could hold it.
    takes_silent: bool = False
    #: Clusters on which this job's environment cannot be composed, with the reason for each.
    unfit: tuple[tuple[str, str], ...] = ()
    #: Equal for jobs with equal runtime_env: a cluster that has run one of them has the environment ready.
    env_key: str = ""
    #: Requirements of the job's environment on the cluster's Ray.
    ray_needs: RayNeeds = NO_NEEDS
    #: The executor that runs it (`executors/`).
    executor: str = DEFAULT_EXECUTOR
    #: It costs the head of its cluster a process.
    needs_driver_slot: bool = True
    #: Versions of the program that a session belongs to; None: unknown, or it is a job.
    client_ray: str | None = None
    client_python: str | None = None

    @property
    def claim_key(self) -> tuple[tuple[str, float], ...]:
        """The claim as a value that can be compared and hashed."""
        return tuple(sorted(self.claim.items()))

    @property
    def needs_gpus(self) -> bool:
        """Tell whether the job claims any GPU."""
        return bool(self.claim.get("GPU"))


@dataclass(frozen=True, slots=True)
class Holding:
    """The claim of one live job on its cluster, and since when it is held."""

    claim: Resources
    since: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """One cluster as the planner sees it: configuration, last snapshot, and the claims of our jobs."""

    spec: ClusterSpec
    snapshot: ClusterSnapshot
    #: The effective value: a command overrides the configuration.
    drained: bool = False
    #: The reason given when it was drained; may be empty.
    drain_reason: str = ""
    #: When somebody drained it; None if it is not drained, or is so by the configuration.
    drained_at: float | None = None
    #: Sum of the claims of our live attempts there, and the number of these attempts.
    reserved: Resources = field(default_factory=dict)
    live_jobs: int = 0
    #: Those of them that cost the head no process.
    slotless_jobs: int = 0
    #: The same claims one by one: a reservation is made where room is expected first.
    holdings: tuple[Holding, ...] = ()
    #: Part of `reserved`: claims of attempts that are starting or younger than the snapshot, which its
    #: `used` cannot show yet.
    unseen: Resources = field(default_factory=dict)
    #: env_keys that were recently set up there.
    warm: frozenset[str] = frozenset()
    #: Number of our jobs that are being started there, and when the latest of them was placed.
    starting: int = 0
    last_start_at: float | None = None
    #: Requirements of the cluster's own environment on its Ray, and env_keys that fail there, with reasons.
    ray_needs: RayNeeds = NO_NEEDS
    failing: Mapping[str, str] = field(default_factory=lambda: NOTHING_FAILED)
    #: Limit on further placements in this pass, because starts are paced; None if there is no limit.
    allowance: int | None = None

    @property
    def name(self) -> str:
        """The cluster's name."""
        return self.spec.name

    @property
    def cluster_tags(self) -> tuple[str, ...]:
        """The tags in the cluster's configuration."""
        return self.spec.tags

    @property
    def cluster_ray_needs(self) -> RayNeeds:
        """Requirements of the cluster's own environment on its Ray."""
        return self.ray_needs

    @property
    def cluster_weight(self) -> float:
        """The weight in the cluster's configuration."""
        return self.spec.weight

    @property
    def health(self) -> Health:
        """Whether work may be sent to it."""
        return self.snapshot.health

    @property
    def health_score(self) -> float:
        """How reliably and fast it has recently answered, 0 to 1."""
        return self.snapshot.score

    @property
    def problem(self) -> str | None:
        """Why it is not healthy, or why the last probe failed."""
        return self.snapshot.problem

    @property
    def is_silent(self) -> bool:
        """Tell whether the last probe failed, and the cluster still counts as healthy."""
        return self.snapshot.health is Health.HEALTHY and self.snapshot.problem is not None

    @property
    def ray_version(self) -> str | None:
        """The version of its Ray; None if unknown."""
        return self.snapshot.ray_version

    @property
    def python_version(self) -> str | None:
        """The version of Python on its head; None if unknown."""
        return self.snapshot.python_version

    @property
    def capacity(self) -> dict[str, float]:
        """The largest amounts that it has or can grow to: the larger of total and `max_resources`."""
        total, most = self.snapshot.total or {}, self.spec.max_resources or {}
        return {name: max(total.get(name, 0.0), most.get(name, 0.0)) for name in {**total, **most}}

    @property
    def has_gpus(self) -> bool:
        """Tell whether it has any GPU, or can grow to have one."""
        sizes = self.snapshot.total, self.spec.max_resources
        return any(amounts.get("GPU", 0.0) > 0 for amounts in sizes if amounts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """The cluster chosen for one job, with the score or the refusal of each cluster."""

    submission_id: str
    cluster: str
    scores: Mapping[str, Score]
    refusals: Mapping[str, Refusal]
    #: "best score", "preferred cluster", "only candidate", ...
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A job that no cluster can take now, with the refusal of each cluster."""

    submission_id: str
    refusals: Mapping[str, Refusal]
    #: Position in the queue, from 1.
    position: int
    #: The cluster that keeps room free for it, because it has waited long.
    reserved_on: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The result of one pass over the whole queue."""

    placements: tuple[Placement, ...]
    waiting: tuple[Waiting, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """The number of jobs that wait for one reason, and since when the oldest of them waits."""

    reason: str
    jobs: int
    oldest: float
    #: The reason in a sentence, for each line of jobs (`line_name`) that wait for a cluster.
    lines: Mapping[str, str] = field(default_factory=dict, hash=False)
    #: The `seq`s of the first jobs of each of these lines, and how many follow them, if any do.
    fronts: Mapping[str, Sequence[int]] = field(default_factory=dict, hash=False)
    beyond: Mapping[str, int] = field(default_factory=dict, hash=False)
    #: The newest job that had come when this was counted.
    newest_seq: int = field(default=0, compare=False)
