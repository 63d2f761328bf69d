"""What callers see: one shape for each thing, with secrets hidden, wherever it is shown.

The Python API, `--json`, the REST interface and every page show these and nothing else. They are made by
`service/make_views.py`, and `model_dump(mode="json")` is their JSON. A record of `model` that holds no secret
is shown as it is; a view differs from its record: in fields, or in what it hides.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict

from ray_multicluster_scheduler.cluster_health.diagnosis import Check
from ray_multicluster_scheduler.environment.setup_failure import is_setting_up
from ray_multicluster_scheduler.model.cluster import Health, Node
from ray_multicluster_scheduler.model.decision import Refusal, Score
from ray_multicluster_scheduler.model.job import own_name
from ray_multicluster_scheduler.model.job_options import JobOptions
from ray_multicluster_scheduler.model.result import ResultKind
from ray_multicluster_scheduler.model.states import FINAL, JobState

#: Of a job in JSON, in this order; then what was asked for, and the rest.
_FIRST = (
    *("submission_id", "number", "job_id", "state", "status", "cluster", "message", "user", "entrypoint"),
    *("accepted_at", "started_at", "ended_at", "exit_code"),
)


class View(BaseModel):
    """A record for callers. What a newer server adds is ignored by an older client."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)

    @classmethod
    def __pydantic_init_subclass__(cls, **_settings: Any) -> None:
        """Put first what everybody looks for: inherited options would come before it."""
        fields = cls.model_fields
        first = {name: fields[name] for name in _FIRST if name in fields}
        rest = {name: field for name, field in fields.items() if name not in first}
        fields.clear()
        fields.update(first | rest)


class JobView(View, JobOptions):
    """A job as it was asked for, and how far it has come. Times are seconds since the epoch."""

    submission_id: str
    #: The user's own name for it; several jobs may have the same one.
    job_id: str
    user: str
    state: JobState
    #: Ray's word for the state.
    status: str
    #: Why it is where it is, in one sentence.
    message: str
    cluster: str | None
    #: How many times it was placed; 0: never yet.
    attempt: int
    #: Ray's own id of the current attempt on its cluster.
    remote_id: str | None
    #: Somebody wants it stopped.
    stopping: bool
    entrypoint: str
    runtime_env: dict[str, Any]
    metadata: dict[str, str]
    #: What it holds on its cluster while it runs, `memory` in bytes.
    resource_requirements: dict[str, float]
    entrypoint_resources: dict[str, float]
    entrypoint_label_selector: dict[str, str]
    error_type: str | None
    exit_code: int | None
    infra_failures: int
    user_failures: int
    #: Clusters that broke its environment or lost it.
    avoid: tuple[str, ...]
    accepted_at: float
    placed_at: float | None
    started_at: float | None
    ended_at: float | None
    #: Its cluster has not reported the end: `ended_at` is when it was noticed.
    end_unreported: bool = False
    #: When the current state was entered, and when a retry may be placed.
    changed_at: float
    not_before: float
    #: Its cluster keeps a log of it, and `retry` can make a new job of it: that depends on its executor.
    has_log: bool = True
    repeatable: bool = True
    #: What the submitter should know of an open job, in sentences.
    warnings: tuple[str, ...] = ()
    #: Of a queued job in a list, or asked for by itself: the reason why it waits, one of
    #: `core/placement/wait_reasons.REASONS`, and the same in a sentence; None: not known, or not asked for.
    wait_reason: str | None = None
    waits_for: str | None = None
    #: The job under which it is listed: the first of its array, group or chain; None: it is listed itself.
    head: str | None = None

    @property
    def final(self) -> bool:
        """Tell whether the job has ended; a final state never changes."""
        return self.state in FINAL

    @property
    def own_name(self) -> str | None:
        """The name that the user gave; None for a generated one, which is shown to nobody."""
        return own_name(self.job_id)

    @property
    def setting_up(self) -> bool:
        """Tell whether the job is on its cluster and waits for its environment."""
        return is_setting_up(self.state, self.message)


class AttemptView(View):
    """One placement of a job on a cluster, with what was sent there."""

    number: int
    cluster: str
    remote_id: str
    #: What ran it there; "ray-jobs" is Ray's own Jobs API.
    executor: str
    session_name: str | None
    entrypoint: str
    runtime_env: dict[str, Any]
    decision: DecisionView | None
    placed_at: float
    started_at: float | None
    ended_at: float | None
    #: Its cluster has not reported the end: `ended_at` is when it was noticed.
    end_unreported: bool = False
    #: How it ended; None while it lives.
    outcome: str | None
    reason: str
    #: Whose each option and each variable ("env_vars.NAME") is: "cluster", "job", "both" or "scheduler".
    origins: dict[str, str] = {}


class JobDetail(JobView):
    """All that is known of a job. `entrypoint` and `runtime_env` are as the last attempt was sent."""

    #: The last hundred, oldest first; `attempt` says how many there were.
    attempts: tuple[AttemptView, ...]
    #: The log so far of the last attempt; None: nothing can be had now.
    logs: str | None


class ResultView(View):
    """What the last attempt of a job has left as its result."""

    submission_id: str
    attempt: int
    kind: ResultKind
    #: The JSON itself; bytes in base64; or the URL of what is too large to be kept here.
    value: Any
    #: Of what was left: of a URL, its own length.
    size_bytes: int


class JobPage(View):
    """Some jobs of a list, newest first; `next_cursor` gets the following ones, None: there are none."""

    jobs: tuple[JobView, ...]
    next_cursor: str | None
    #: With `heads_only`: for each job that stands for several, how many of them are in each state, with it.
    members: dict[str, dict[JobState, int]] = {}


class SpanView(View):
    """One attempt of a job on its cluster, for a timeline."""

    submission_id: str
    job_id: str
    user: str
    group: str | None
    cluster: str
    attempt: int
    placed_at: float
    started_at: float | None
    ended_at: float | None
    #: Its cluster has not reported the end: `ended_at` is when it was noticed.
    end_unreported: bool = False
    #: How it ended; None while it lives.
    outcome: str | None
    #: The state of the job now.
    state: JobState
    #: What the job holds on its cluster while it runs.
    claim: dict[str, float]


class TimelineView(View):
    """The attempts that were on their clusters in a span of time, in the order in which they were placed."""

    since: float
    until: float
    spans: tuple[SpanView, ...]
    #: There are more; these are the newest.
    truncated: bool


class DecisionView(View):
    """Where a job goes and why, or why it waits (`cluster` is None): for each cluster its part."""

    cluster: str | None
    sentence: str
    scores: dict[str, Score]
    refusals: dict[str, Refusal]
    #: Its place in the queue, from 1, while it waits.
    position: int | None
    #: Where room is being kept free for it.
    reserved_on: str | None


class Explanation(View):
    """Why a job is where it is, and what would let it start."""

    submission_id: str
    state: JobState
    message: str
    cluster: str | None
    attempt: int
    decision: DecisionView | None
    #: What else than room it waits for.
    waits_for: str | None
    position: int | None
    suggestions: tuple[str, ...]
    #: All of it in one sentence.
    why: str


class EnvironmentView(View):
    """What one cluster would be sent for a job; or why its environment cannot be composed there."""

    entrypoint: str | None
    runtime_env: dict[str, Any] | None
    refused: str | None
    #: As `AttemptView.origins`.
    origins: dict[str, str] = {}


class PlanView(View):
    """What would happen to a job if it were submitted now."""

    cluster: str | None
    decision: DecisionView
    environments: dict[str, EnvironmentView]
    position: int | None
    suggestions: tuple[str, ...]


class PendingView(View):
    """What waits inside Ray: so many times these resources."""

    resources: dict[str, float]
    count: int


class ClusterView(View):
    """A configured cluster with what was last seen of it; what is unknown is None."""

    name: str
    health: Health
    score: float
    problem: str | None
    total: dict[str, float] | None
    used: dict[str, float] | None
    #: What our jobs there claim, and how many they are.
    claimed: dict[str, float]
    #: What the jobs of other schedulers there claim: they have queues of their own.
    claimed_by_others: dict[str, float] = {}
    live_jobs: int
    #: How many they may be: as configured, or else what its head has memory for.
    max_running_jobs: int
    #: What runs there, ours or not; None: its jobs were not listed.
    running_jobs: int | None = None
    nodes: tuple[Node, ...] | None
    #: What waits inside Ray.
    pending: tuple[PendingView, ...] | None
    ray_version: str | None
    python_version: str | None
    session_name: str | None
    latency_s: float | None
    #: When all this was read, and how long ago that was.
    observed_at: float | None
    age_s: float | None
    throttle: int | None
    throttle_reason: str
    tags: tuple[str, ...]
    prefer: bool
    weight: float
    drained: bool
    #: Why it is drained; None: it is not.
    drain_reason: str | None
    #: Since when it is drained; None: it is not, or clusters.yaml says so.
    drained_at: float | None = None
    dashboard: str
    head_address: str


class WaitView(View):
    """How many jobs in the queue wait for one reason, and since when the oldest of them does."""

    #: One of `core/placement/wait_reasons.REASONS`.
    reason: str
    jobs: int
    #: When the oldest of them was accepted.
    oldest: float


class ProcessView(View):
    """Something that runs inside a cluster, ours or not."""

    cluster: str
    #: "job", "driver", "session", "actor", "task", "hub" or "bridge".
    kind: str
    state: str
    what: str
    why: str
    pid: int | None = None
    started_at: float | None = None


class ProcessList(View):
    """What runs inside the clusters, and for each cluster that cannot be looked at, why."""

    items: tuple[ProcessView, ...]
    problems: dict[str, str]


class ClusterReport(View):
    """What `raymc doctor` says of a cluster."""

    name: str
    dashboard: str
    checks: tuple[Check, ...]


class ConfigView(View):
    """The configuration as it was loaded, with secrets hidden and defaults filled in."""

    # Not `Config` itself: an address whose password is hidden is no longer a valid one, and a client shows
    # what a server of another version has, without knowing those settings.

    path: str
    clusters: dict[str, dict[str, Any]]
    settings: dict[str, Any]
    server: dict[str, Any]


class CallerView(View):
    """Who asks, as the service knows that caller."""

    user: str
    role: str


class SessionView(View):
    """A program that is connected with `ray.init("ray://...")`, or waits for that."""

    submission_id: str
    user: str
    state: JobState
    message: str
    cluster: str | None
    accepted_at: float
    started_at: float | None
    #: Where its program runs.
    client_address: str | None
    #: Its process on the head of the cluster, and Ray's id of that as a driver.
    helper_pid: int | None
    helper_address: str | None
    ray_job_id: str | None


class PruneView(View):
    """What was removed of the history, or would be."""

    dry_run: bool
    jobs: int
    logs: int
    #: Jobs whose secrets were removed; None: a dry run does not count them.
    secrets: int | None
    bytes_before: int
    bytes_after: int | None
    #: False: the space is used again, but given back only by a run while nobody schedules.
    given_back: bool
