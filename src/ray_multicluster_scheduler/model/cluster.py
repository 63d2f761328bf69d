"""The configuration of a cluster, the last observation of it, and what it failed to set up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from ray_multicluster_scheduler.model.resources import Resources

# Requirements of an environment on a cluster's Ray, and environments that a cluster failed to set up.


@dataclass(frozen=True, slots=True, kw_only=True)
class RayNeeds:
    """Requirements of an environment on the cluster's Ray. Empty for most environments."""

    #: Requirements of `ray` itself: the text that the user wrote, and pip's version specifier.
    pins: tuple[tuple[str, str], ...] = ()
    #: Options that older versions of Ray silently ignore.
    options: tuple[str, ...] = ()
    #: It brings its own Python (conda, an image) or installer, which replaces that of the cluster.
    own_python: bool = False
    own_installer: bool = False

    def __bool__(self) -> bool:
        """Tell whether there is any requirement."""
        return bool(self.pins or self.options)


NO_NEEDS = RayNeeds()


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedSetup:
    """An environment that a cluster could not set up, and where a retry there would not help."""

    #: The error of pip or conda in the last attempt there, without secrets.
    reason: str
    #: It is tried there again after this time (wall clock).
    until: float
    #: The cluster's Ray session and a digest of the cluster's own environment: after a change of either,
    #: the setup may work.
    session_name: str | None
    cluster_env: str


#: The short job of `raymc doctor --run` may take this long. Conda or pip may have to build its environment.
TRIAL_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSpec:
    """One entry of clusters.yaml, checked and with its defaults filled in."""

    name: str
    #: Where Ray Client listens, such as `host:10001`. Tasks and actors need it, and it is the second witness
    #: when a head is gone (core/lifecycle/attempts.py). Jobs are never sent there.
    head_address: str
    #: Base URL of Ray's dashboard, without a trailing slash: jobs, nodes and usage are read there.
    dashboard: str
    #: As the user wrote it, with `env_vars` as a mapping (see environment/compose.py).
    runtime_env: Mapping[str, Any] = field(default_factory=dict)
    prefer: bool = False
    weight: float = 1.0
    tags: tuple[str, ...] = ()
    #: None: the limit follows from the memory of the head (core/placement/capacity.py).
    max_running_jobs: int | None = None
    #: The largest size of an autoscaling cluster; None if it does not grow.
    max_resources: Resources | None = None
    #: Name of the environment variable that holds the cluster's token; the token itself is never stored.
    auth_token_env: str | None = None
    tls_ca: str | None = None
    drained: bool = False
    #: Send this package with every job, so that its program can import it.
    ship_package: bool = True

    @property
    def head(self) -> tuple[str, int]:
        """Host and port of `head_address`; an IPv6 address without its brackets."""
        host, _, port = self.head_address.rpartition(":")
        return host.removeprefix("[").removesuffix("]"), int(port)

    @property
    def addresses(self) -> tuple[str, str]:
        """The two addresses of the head."""
        return self.dashboard, self.head_address

    @property
    def home_dir(self) -> str | None:
        """The `home_dir` in this cluster's environment; paths are mapped between those of two clusters."""
        env_vars = self.runtime_env.get("env_vars")
        home = env_vars.get("home_dir") if isinstance(env_vars, Mapping) else None
        return home or None

    @property
    def is_over_https(self) -> bool:
        """Tell whether the dashboard is used over https."""
        return self.dashboard.startswith("https:")


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainMark:
    """What somebody said with `drain` or `undrain`. It overrules the configuration."""

    drained: bool
    reason: str
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Witness:
    """A head whose dashboard and `head_address` were both seen open: if they refuse later, it is gone."""

    session_name: str
    #: `dashboard` and `head_address` as they were configured.
    addresses: tuple[str, str]
    #: How many of the last looks found one of them closed while the head was well.
    closed_looks: int = 0


class Health(str, Enum):
    """Whether work may be sent to a cluster. `UNKNOWN` means "never probed", which is not "healthy"."""

    HEALTHY = "HEALTHY"
    UNHEALTHY = "UNHEALTHY"
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One machine of a cluster, as Ray's state API shows it."""

    node_id: str
    address: str
    alive: bool
    is_head: bool = False
    resources: Resources = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteVersion:
    """Versions that a cluster reports. No sign of health: Ray still answers a minute after its GCS died."""

    api_version: str
    ray_version: str
    session_name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Total, used and pending resources of a cluster. None means unknown, which is not zero."""

    total: Resources | None = None
    used: Resources | None = None
    #: Demands that wait inside Ray: (shape, count).
    pending: tuple[tuple[Resources, int], ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSnapshot:
    """The last observation of one cluster. Every field that was not read is None.

    The leader adds its own limits (from `throttle` on), so that every reader of a snapshot decides alike.
    """

    name: str
    health: Health = Health.UNKNOWN
    #: 0 (avoid) to 1 (answers always and fast), from recent probes.
    score: float = 0.0
    total: Resources | None = None
    used: Resources | None = None
    pending: tuple[tuple[Resources, int], ...] | None = None
    nodes: tuple[Node, ...] | None = None
    ray_version: str | None = None
    python_version: str | None = None
    #: What the jobs of other schedulers on this cluster claim: Ray does not know it.
    claimed_by_others: Resources = field(default_factory=dict)
    #: Ray's incarnation number: a new one means that the head restarted and its jobs are gone.
    session_name: str | None = None
    latency_s: float | None = None
    #: When the values above were read (wall clock); a failed probe does not change it.
    observed_at: float | None = None
    #: Why the cluster is not healthy, or why the last probe of a healthy one failed, in one sentence.
    problem: str | None = None
    #: Limit on new jobs because jobs die there quickly, and the reason; None if there is no limit.
    throttle: int | None = None
    throttle_reason: str = ""
    #: The first probe of this cluster is not over: nothing is placed anywhere before that.
    awaited: bool = False
    #: Limit on jobs between placement and the start of their driver; None if there is no limit.
    start_limit: int | None = None
    #: Duration of the fastest recent start; None if there was none.
    start_s: float | None = None
    #: Environments that were recently set up there, by `env_key`.
    warm: tuple[str, ...] = ()
    #: Environments that recently failed to set up there, by `env_key`.
    failed_setups: Mapping[str, FailedSetup] = field(default_factory=dict)
    #: None: a refused connection says nothing about this head.
    witness: Witness | None = None

    def age_s(self, now: float) -> float | None:
        """Return the age of the values, or None if nothing was ever read."""
        return None if self.observed_at is None else max(0.0, now - self.observed_at)
