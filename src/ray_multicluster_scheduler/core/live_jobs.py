"""The jobs that hold an attempt on a cluster now, with what they claim there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ray_multicluster_scheduler.core.claims import Claims
from ray_multicluster_scheduler.environment.failed_setups import setup_digest
from ray_multicluster_scheduler.model.decision import Holding
from ray_multicluster_scheduler.model.job import Job
from ray_multicluster_scheduler.model.resources import Resources
from ray_multicluster_scheduler.model.states import LIVE, JobState

#: Between placement and the start of the driver.
STARTING = frozenset({JobState.PLACED, JobState.SUBMITTED})
#: Environments that are remembered per cluster, the latest: Ray throws old ones away too.
MOST_WARM = 100


@dataclass(slots=True, eq=False)
class ClusterJobs:
    """The live jobs of one cluster. All of it is kept with each change, not counted anew."""

    #: In the order of their placement.
    jobs: dict[str, Job] = field(default_factory=dict)
    claims: Claims = field(default_factory=Claims)
    starting: dict[str, Job] = field(default_factory=dict)
    held: dict[str, Holding] = field(default_factory=dict)
    #: Grows with each change, so that what was made of it can be kept until then.
    version: int = 0

    @property
    def holdings(self) -> tuple[Holding, ...]:
        """What each of the jobs holds, and since when."""
        return tuple(self.held.values())

    @property
    def last_start_at(self) -> float | None:
        """When the latest of those jobs was placed that have not started yet; None: all have."""
        return max((job.placed_at or 0.0 for job in self.starting.values()), default=None)

    def unseen(self, seen_at: float) -> Resources:
        """Return what those jobs claim that are starting, or were placed after `seen_at`."""
        unseen = Claims()
        for name in self.starting:
            unseen.add(self.held[name].claim)
        for name, job in reversed(self.jobs.items()):
            if (job.placed_at or 0.0) <= seen_at:
                break
            if name not in self.starting:
                unseen.add(self.held[name].claim)
        return unseen.total

    def put(self, job: Job) -> None:
        """Take a job in, or take note of how it is now."""
        name = job.submission_id
        known = self.held.get(name)
        claim = job.spec.claim if known is None else known.claim
        if known is None:
            self.claims.add(claim)
        self.jobs[name] = job
        self.held[name] = Holding(claim, job.started_at or job.placed_at or job.changed_at)
        self.starting.pop(name, None)
        if job.state in STARTING:
            self.starting[name] = job
        self.version += 1

    def remove(self, job: Job) -> None:
        """Forget a job that has left the cluster."""
        del self.jobs[job.submission_id]
        self.claims.remove(self.held.pop(job.submission_id).claim)
        self.starting.pop(job.submission_id, None)
        self.version += 1


NO_JOBS = ClusterJobs()


class LiveJobs:
    """All live jobs, by cluster and by user."""

    def __init__(self, jobs: Iterable[Job] = ()) -> None:
        self._jobs: dict[str, Job] = {}
        self._on: dict[str, ClusterJobs] = {}
        self._held: dict[str, Claims] = {}
        #: Environments that a driver has started with, by cluster and its incarnation.
        self._warm: dict[tuple[str, str | None], dict[str, None]] = {}
        for job in sorted(jobs, key=lambda job: job.placed_at or 0.0):
            self.put(job)

    def put(self, job: Job) -> None:
        """Take note of how a job is now. One that is on no cluster any more is forgotten."""
        known = self._jobs.get(job.submission_id)
        stays = job.state in LIVE and job.cluster is not None
        if known is not None and known.cluster is not None and (not stays or known.cluster != job.cluster):
            self._leave(known, known.cluster)
            known = None
        if stays and job.cluster is not None:
            if known is None:
                self._held.setdefault(job.spec.user, Claims()).add(job.spec.claim)
            self._jobs[job.submission_id] = job
            self._on.setdefault(job.cluster, ClusterJobs()).put(job)
        if job.state is JobState.RUNNING:
            self._note_warm(job)

    def get(self, submission_id: str) -> Job | None:
        """Return a live job as it is now, or None when it has left the clusters."""
        return self._jobs.get(submission_id)

    def all(self) -> tuple[Job, ...]:
        """Return all live jobs."""
        return tuple(self._jobs.values())

    def clusters(self) -> tuple[str, ...]:
        """Return the clusters that have live jobs."""
        return tuple(name for name, here in self._on.items() if here.jobs)

    def on(self, cluster: str) -> ClusterJobs:
        """Return the live jobs of one cluster."""
        return self._on.get(cluster, NO_JOBS)

    def held_by_user(self) -> dict[str, Resources]:
        """Return what the live jobs of each user claim over all clusters."""
        return {user: claims.total for user, claims in self._held.items()}

    def warm(self, cluster: str, session_name: str | None) -> tuple[str, ...]:
        """Return the environments that are set up on a cluster, as far as jobs have shown it."""
        return tuple(self._warm.get((cluster, session_name), ()))

    def _leave(self, job: Job, cluster: str) -> None:
        del self._jobs[job.submission_id]
        self._on[cluster].remove(job)
        held = self._held.get(job.spec.user)
        if held is None:  # jobs that claim nothing are left when the last one that does has gone
            return
        held.remove(job.spec.claim)
        if not held:
            del self._held[job.spec.user]

    def _note_warm(self, job: Job) -> None:
        key = setup_digest(job.spec.runtime_env)
        if not key or job.cluster is None:
            return
        warm = self._warm.setdefault((job.cluster, job.session_name), {})
        warm.pop(key, None)  # the latest is last
        warm[key] = None
        if len(warm) > MOST_WARM:
            del warm[next(iter(warm))]
