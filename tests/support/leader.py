"""A stand-in for the engine: holds the lease and moves jobs."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from tests.support.builders import NOW, a_spec

from ray_multicluster_scheduler.model.job import Job, Transition
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.store import Store

S = JobState
#: From QUEUED to each other state.
WAY: dict[JobState, tuple[JobState, ...]] = {
    S.QUEUED: (),
    S.PLACED: (S.PLACED,),
    S.SUBMITTED: (S.PLACED, S.SUBMITTED),
    S.RUNNING: (S.PLACED, S.SUBMITTED, S.RUNNING),
    S.UNREACHABLE: (S.PLACED, S.UNREACHABLE),
    S.LOST: (S.PLACED, S.LOST),
    S.SUCCEEDED: (S.PLACED, S.SUBMITTED, S.SUCCEEDED),
    S.FAILED: (S.PLACED, S.FAILED),
    S.STOPPED: (S.PLACED, S.STOPPED),
}


class Leader:
    """Knows the epoch, so that a test names only the job and where it goes."""

    def __init__(self, store: Store, holder: str = "leader") -> None:
        self.store = store
        lease = store.leases.acquire(holder, ttl_s=3600.0, now=NOW)
        assert lease is not None
        self.lease = lease

    def wanted(self, job: Job, new: JobState, **changes: Any) -> Transition:
        """Return the transition of a job as it is now; `attempt_changes` and `reason` may be given too."""
        attempt_changes = changes.pop("attempt_changes", {})
        reason = changes.pop("reason", f"to {new.value}")
        if new is S.PLACED and job.state is not S.PLACED:
            changes.setdefault("cluster", "a")
        return Transition(
            submission_id=job.submission_id,
            expected=job.state,
            attempt=job.attempt,
            new=new,
            reason=reason,
            changes=changes,
            attempt_changes=attempt_changes,
        )

    def apply(
        self, *transitions: Transition, now: float = NOW, known: Mapping[str, Job] = MappingProxyType({})
    ) -> tuple[Job, ...]:
        return self.store.jobs.apply(transitions, epoch=self.lease.epoch, now=now, known=known)

    @staticmethod
    def apply_as(store: Store, epoch: int, submission_id: str, new: JobState) -> tuple[Job, ...]:
        """Move a job under an epoch that may be over."""
        job = store.jobs.get(submission_id)
        wanted = Transition(
            submission_id=submission_id, expected=job.state, attempt=job.attempt, new=new, reason=""
        )
        return store.jobs.apply([wanted], epoch=epoch, now=NOW)

    def move(self, submission_id: str, *states: JobState, now: float = NOW, **changes: Any) -> Job:
        """Move a job along these states, with the changes on the last one."""
        job = self.store.jobs.get(submission_id)
        for number, new in enumerate(states, start=1):
            last = changes if number == len(states) else {}
            (job,) = self.apply(self.wanted(job, new, **last), now=now)
        return job

    def add(self, submission_id: str, state: JobState = S.QUEUED, **spec: Any) -> Job:
        """Accept a job and bring it to `state`."""
        (job,) = self.store.jobs.add([(submission_id, a_spec(**spec))], now=NOW)
        return self.move(submission_id, *WAY[state]) if WAY[state] else job
