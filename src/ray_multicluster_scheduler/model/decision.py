"""Why a job went where it went, or why it waits: the same record feeds `explain`, dry run and tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType

from ray_multicluster_scheduler.model.cluster import ClusterSnapshot, ClusterSpec, Health
from ray_multicluster_scheduler.model.environment import NO_NEEDS, RayNeeds
from ray_multicluster_scheduler.model.resources import Resources

#: One object for all clusters that could set everything up, so that checks can tell that they are alike.
NOTHING_FAILED: Mapping[str, str] = MappingProxyType({})


class Cause(str, Enum):
    """Kind of a refusal, for programs; the sentence beside it is for people."""

    UNSEEN = "UNSEEN"
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why one cluster is no candidate now."""

    cause: Cause
    sentence: str
    #: What is missing, by resource, where that is the reason.
    missing: Resources = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """How good one candidate is: the parts by name, and what they come to."""

    total: float
    parts: Mapping[str, float]
    #: Its cluster goes before all others, whatever the totals say.
    prefer: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedJob:
    """What the planner needs to know of a waiting job."""

    submission_id: str
    seq: int
    user: str
    priority: int
    waiting_since: float
    claim: Resources
    tags: tuple[str, ...] = ()
    preferred_cluster: str | None = None
    avoid: tuple[str, ...] = ()
    #: Clusters on which this job's environment cannot be composed, with the reason for each.
    unfit: tuple[tuple[str, str], ...] = ()
    #: Equal for jobs with equal runtime_env: a cluster that has run one has it ready.
    env_key: str = ""
    #: What the job's environment asks of the cluster's Ray.
    ray_needs: RayNeeds = NO_NEEDS

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
    """What one live job holds on its cluster, and since when."""

    claim: Resources
    since: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """One cluster as the planner sees it: configuration, last snapshot, and what we hold there."""

    spec: ClusterSpec
    snapshot: ClusterSnapshot
    #: As it holds now: a command overrules the configuration.
    drained: bool = False
    #: Who drained it and why, where that was said.
    drain_reason: str = ""
    #: Sum of the claims of our live attempts there, and how many they are.
    reserved: Resources = field(default_factory=dict)
    live_jobs: int = 0
    #: The same, one by one: a reservation is made where room is expected soonest.
    holdings: tuple[Holding, ...] = ()
    #: Part of `reserved`: claims of attempts that are starting or younger than the snapshot, which its
    #: `used` cannot show yet.
    unseen: Resources = field(default_factory=dict)
    #: env_keys that were set up there lately.
    warm: frozenset[str] = frozenset()
    #: How many of our jobs are being started there, and when the latest of them was placed.
    starting: int = 0
    last_start_at: float | None = None
    #: What the cluster's own environment asks of its Ray, and env_keys that it cannot set up, with reasons.
    ray_needs: RayNeeds = NO_NEEDS
    failing: Mapping[str, str] = field(default_factory=lambda: NOTHING_FAILED)
    #: How many more jobs it may be given in this pass, because starts are paced; None: no limit.
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
        """What the cluster's own environment asks of its Ray."""
        return self.ray_needs

    @property
    def cluster_weight(self) -> float:
        """How much the configuration thinks of the cluster."""
        return self.spec.weight

    @property
    def health(self) -> Health:
        """Whether work may be sent to it."""
        return self.snapshot.health

    @property
    def health_score(self) -> float:
        """How well and fast it has answered lately, 0 to 1."""
        return self.snapshot.score

    @property
    def problem(self) -> str | None:
        """Why it is not healthy."""
        return self.snapshot.problem

    @property
    def ray_version(self) -> str | None:
        """The version of its Ray; None: unknown."""
        return self.snapshot.ray_version

    @property
    def capacity(self) -> dict[str, float]:
        """All that it has, or can grow to: `max_resources` where that is more than the total."""
        total, grown = self.snapshot.total or {}, self.spec.max_resources or {}
        return {name: max(total.get(name, 0.0), grown.get(name, 0.0)) for name in {**total, **grown}}

    @property
    def has_gpus(self) -> bool:
        """Tell whether it has any GPU, or can grow to have one."""
        known = self.snapshot.total, self.spec.max_resources
        return any(amounts.get("GPU", 0.0) > 0 for amounts in known if amounts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """A decision for one job: the cluster, and what spoke for and against each."""

    submission_id: str
    cluster: str
    scores: Mapping[str, Score]
    refusals: Mapping[str, Refusal]
    #: "best score", "preferred cluster", "only candidate", ...
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """No cluster for this job now: for every cluster, why not."""

    submission_id: str
    refusals: Mapping[str, Refusal]
    #: Place in the queue, from 1.
    position: int
    #: Set when room is being kept free for it, because it has waited long.
    reserved_on: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What one pass over the whole queue decided."""

    placements: tuple[Placement, ...]
    waiting: tuple[Waiting, ...]
