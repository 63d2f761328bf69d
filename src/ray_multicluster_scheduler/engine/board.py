"""The leader's view of the jobs that are on clusters now: read from the store, written through it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from ray_multicluster_scheduler.core.placement.inputs import env_key
from ray_multicluster_scheduler.engine.batch import Batch
from ray_multicluster_scheduler.engine.context import EngineContext
from ray_multicluster_scheduler.engine.telling import tell_moves
from ray_multicluster_scheduler.environment.redact import redact_text, secrets_of
from ray_multicluster_scheduler.model.job import Job, Lease, Transition
from ray_multicluster_scheduler.model.states import LIVE, JobState

#: Environments that are remembered per cluster, the latest: Ray throws old ones away too.
WARM_MOST = 100


@dataclass(frozen=True, slots=True)
class _Call:
    """What one caller wants written."""

    moves: Sequence[Transition]
    log: str | None
    known: Mapping[str, Job]


class Board:
    """Live jobs by cluster. Only this leader moves jobs, so after a refresh the copy stays true.

    Others only add jobs to the queue and ask for stops; the store's bell says when, `refresh` reads those.
    """

    def __init__(
        self, context: EngineContext, lease: Lease, *, moved: Callable[[Sequence[Job]], None]
    ) -> None:
        self._context = context
        self.lease = lease
        self._moved = moved
        self._live: dict[str, Job] = {}
        self._on: dict[str, dict[str, Job]] = {}
        #: Environments that a driver has started with, by cluster and its incarnation.
        self._warm: dict[tuple[str, str | None], dict[str, None]] = {}
        #: Of the clusters' own environments: Ray quotes what it was sent when it cannot set it up.
        self._cluster_secrets = {spec.name: secrets_of(spec.runtime_env) for spec in context.config.clusters}
        self._apply = Batch(self._apply_all, keys=lambda call: {each.submission_id for each in call.moves})

    async def load(self) -> None:
        """Read all live jobs."""
        for job in await self._context.offload(self._context.store.live):
            self._take_over(job)

    async def refresh(self) -> set[str]:
        """Take in which jobs others want stopped; return the clusters of those that are new."""
        changed = set()
        for job in await self._context.offload(self._context.store.stopping):
            known = self._live.get(job.submission_id)
            if known is not None and known != job:
                self._take_over(job)
                changed.add(job.cluster or "")
        return changed

    async def close(self) -> None:
        """Wait for what is being written."""
        await self._apply.close()

    def leads(self) -> bool:
        """Tell whether the lease still holds, as far as this process knows.

        A leader that was paused must not start anything before it has asked: its successor may have.
        """
        return self._context.clock.now() < self.lease.expires_at

    def get(self, submission_id: str) -> Job | None:
        """Return a live job as it is now, or None when it has left the clusters."""
        return self._live.get(submission_id)

    def on(self, cluster: str) -> tuple[Job, ...]:
        """Return the jobs that hold an attempt on a cluster."""
        return tuple(self._on.get(cluster, {}).values())

    def all(self) -> tuple[Job, ...]:
        """Return all live jobs."""
        return tuple(self._live.values())

    def warm(self, cluster: str, session_name: str | None) -> tuple[str, ...]:
        """Return the environments that are set up on a cluster, as far as this leader has seen."""
        return tuple(self._warm.get((cluster, session_name), ()))

    async def apply(
        self,
        transitions: Sequence[Transition],
        *,
        log: str | None = None,
        known: Mapping[str, Job] = MappingProxyType({}),
    ) -> tuple[Job, ...]:
        """Write moves and take over what was really moved. Raises `LeaseLost` when another one leads.

        `log` is kept with them: that of the attempt which the first of them is about. `known` are jobs in
        the queue as they were just read; those on clusters are known here.
        """
        clean = [self._clean(each, known) for each in transitions]
        return await self._apply(_Call(clean, log, known)) if clean else ()

    def without_secrets(self, text: str, job: Job) -> str:
        """Return a text without what is secret in the environment that a job was sent with."""
        of_cluster = self._cluster_secrets.get(job.cluster or "", ())
        return redact_text(text, (*secrets_of(job.spec.runtime_env), *of_cluster))

    def _clean(self, wanted: Transition, known: Mapping[str, Job]) -> Transition:
        """Take the secrets out of a reason, which may be in the words of a cluster."""
        job = self._live.get(wanted.submission_id) or known.get(wanted.submission_id)
        if job is None or wanted.new is JobState.PLACED:  # the planner's own words
            return wanted
        reason = self.without_secrets(wanted.reason, job)
        attempt = dict(wanted.attempt_changes)
        if "reason" in attempt:
            attempt["reason"] = self.without_secrets(attempt["reason"], job)
        return replace(wanted, reason=reason, attempt_changes=attempt)

    async def _apply_all(self, calls: Sequence[_Call]) -> list[tuple[Job, ...]]:
        context = self._context
        moves = [each for call in calls for each in call.moves]
        known = {job_id: job for call in calls for job_id, job in call.known.items()}
        known |= {
            job_id: self._live[job_id] for each in moves if (job_id := each.submission_id) in self._live
        }
        moved = await context.offload(
            context.store.apply,
            moves,
            epoch=self.lease.epoch,
            now=context.clock.now(),
            logs=[
                (call.moves[0].submission_id, call.moves[0].attempt, call.log)
                for call in calls
                if call.log is not None
            ],
            known=known,
        )
        for job in moved:
            self._take_over(job)
        self._moved(moved)
        tell_moves(moved)
        by_id = {job.submission_id: job for job in moved}
        return [
            tuple(
                {
                    each.submission_id: by_id[each.submission_id]
                    for each in call.moves
                    if each.submission_id in by_id
                }.values()
            )
            for call in calls
        ]

    def _take_over(self, job: Job) -> None:
        known = self._live.pop(job.submission_id, None)
        if known is not None and known.cluster is not None:
            self._on[known.cluster].pop(job.submission_id, None)
        if job.state in LIVE:
            self._live[job.submission_id] = job
            if job.cluster is not None:
                self._on.setdefault(job.cluster, {})[job.submission_id] = job
        if job.state is JobState.RUNNING and job.cluster and (key := env_key(job.spec)):
            warm = self._warm.setdefault((job.cluster, job.session_name), {})
            warm.pop(key, None)  # the latest is last
            warm[key] = None
            if len(warm) > WARM_MOST:
                del warm[next(iter(warm))]
