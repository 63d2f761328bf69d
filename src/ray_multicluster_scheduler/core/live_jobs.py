"""The jobs that hold an attempt on a cluster now, what they claim, and their moves that are being written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from ray_multicluster_scheduler.core.instructions import WriteMoves
from ray_multicluster_scheduler.core.lifecycle.attempt_request import ORIGIN, claim_of, has_origin
from ray_multicluster_scheduler.environment.redact import redact_text, secrets_of
from ray_multicluster_scheduler.environment.setup_failure import setup_digest
from ray_multicluster_scheduler.model.cluster import ClusterSpec
from ray_multicluster_scheduler.model.decision import Holding
from ray_multicluster_scheduler.model.execution import InventoryRow
from ray_multicluster_scheduler.model.job import Job, Transition
from ray_multicluster_scheduler.model.resources import Resources
from ray_multicluster_scheduler.model.result import LeftResult
from ray_multicluster_scheduler.model.states import LIVE, JobState

# Sums of claims: of our own jobs, kept while they come and go, and of the jobs of other schedulers.


#: Sums are kept in whole units, so that adding and removing in any order ends at exactly zero.
_UNITS = 2**40
#: Resources that are counted in others' claims: anybody can write any names into the metadata of a job.
MOST_NAMES = 100


class Claims:
    """What some jobs claim together."""

    def __init__(self) -> None:
        self._units: dict[str, int] = {}
        self._total: dict[str, float] | None = {}

    def add(self, claim: Resources) -> None:
        """Count a claim."""
        for name, amount in claim.items():
            self._units[name] = self._units.get(name, 0) + round(amount * _UNITS)
        self._total = None

    def remove(self, claim: Resources) -> None:
        """Count a claim off that was added before."""
        for name, amount in claim.items():
            left = self._units.get(name, 0) - round(amount * _UNITS)
            if left:
                self._units[name] = left
            else:
                self._units.pop(name, None)
        self._total = None

    @property
    def total(self) -> dict[str, float]:
        """The sum by resource; the same object until a claim is added or removed."""
        if self._total is None:
            self._total = {name: units / _UNITS for name, units in self._units.items()}
        return self._total

    def __bool__(self) -> bool:
        return bool(self._units)


class OtherClaims:
    """Adds up what the open jobs of other schedulers claim, while the list of a cluster's jobs passes by.

    Ray does not know these claims: a job that was promised 4 CPUs and sleeps uses none. A job without an
    origin is none of a scheduler's; what it takes is in the usage that Ray reports.
    """

    def __init__(self, origin: str) -> None:
        self._origin = origin
        self._claims = Claims()
        self._names = {"CPU", "GPU", "memory"}  # these are counted whatever others write

    def see(self, row: InventoryRow) -> None:
        """Take note of an entry of the list."""
        if row.status is None or row.status.final or ORIGIN not in row.metadata:
            return
        if not has_origin(row, self._origin):
            claim = claim_of(row)
            for name in claim:
                if len(self._names) < MOST_NAMES:
                    self._names.add(name)
            self._claims.add({name: claim[name] for name in claim if name in self._names})

    @property
    def total(self) -> Resources:
        """The sum by resource."""
        return self._claims.total


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


# Moves on their way to the store, and the jobs that are busy because of an instruction.


class PendingMoves:
    """Makes the instruction to write moves, without any secret in their reasons."""

    def __init__(self, live: LiveJobs, specs: Sequence[ClusterSpec]) -> None:
        self._live = live
        #: Of the clusters' own environments: Ray quotes what it was sent when it cannot set it up.
        self._cluster_secrets = {spec.name: secrets_of(spec.runtime_env) for spec in specs}
        #: Jobs with an instruction under way: nothing else is decided about them before its result is known.
        self.busy: set[str] = set()

    def write(
        self,
        moves: Sequence[Transition],
        *,
        occasion: str,
        log: str | None = None,
        result: LeftResult | None = None,
        known: Mapping[str, Job] = MappingProxyType({}),
    ) -> WriteMoves:
        """Return the instruction to write these moves. `known`: jobs of the queue as they were just read."""
        ids = {move.submission_id for move in moves}
        self.busy |= ids
        jobs = {each: job for each in ids if (job := self._live.get(each) or known.get(each)) is not None}
        clean = [self._clean(move, jobs.get(move.submission_id)) for move in moves]
        return WriteMoves(moves=clean, known=jobs, log=log, result=result, occasion=occasion)

    def without_secrets(self, text: str, job: Job) -> str:
        """Return a text without what is secret in the environment that a job was sent with."""
        of_cluster = self._cluster_secrets.get(job.cluster or "", ())
        return redact_text(text, (*secrets_of(job.spec.runtime_env), *of_cluster))

    def _clean(self, move: Transition, job: Job | None) -> Transition:
        """Take the secrets out of a reason, which may be in the words of a cluster."""
        if job is None or move.new is JobState.PLACED:  # the planner's own words
            return move
        attempt = dict(move.attempt_changes)
        if "reason" in attempt:
            attempt["reason"] = self.without_secrets(attempt["reason"], job)
        return replace(move, reason=self.without_secrets(move.reason, job), attempt_changes=attempt)
