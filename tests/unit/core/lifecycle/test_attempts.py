"""What former looks at a cluster say of an attempt."""

from tests.support.builders import NOW, a_job

from ray_multicluster_scheduler.core.events import AttemptsObserved
from ray_multicluster_scheduler.core.lifecycle.attempts import ClusterAttempts
from ray_multicluster_scheduler.core.lifecycle.observe import Observation
from ray_multicluster_scheduler.core.rules import PollRules
from ray_multicluster_scheduler.model.execution import AttemptStatus, FailureKind, Sighting
from ray_multicluster_scheduler.model.states import JobState

JOB = a_job(state=JobState.SUBMITTED, cluster="a", attempt=1, remote_id="job-1")


def looked(
    attempts: ClusterAttempts, status: AttemptStatus | None, at: float, *, confirmed: bool = False
) -> Observation:
    """Look at the job, and find it so; None: the cluster does not answer."""
    failure = FailureKind.SUPERVISOR if status is AttemptStatus.FAILED else None
    found = {} if status is None else {"job-1": Sighting(remote_id="job-1", status=status, failure=failure)}
    event = AttemptsObserved(
        cluster="a",
        jobs=[JOB],
        answered=status is not None,
        found=found,
        confirmed=confirmed,
        asked_at=NOW + at,
    )
    observation = attempts.answered(event, now=NOW + at + 0.5)(JOB)
    assert observation is not None
    return observation


def test_a_look_knows_how_the_last_one_that_found_the_attempt_open_found_it() -> None:
    attempts = ClusterAttempts(PollRules(poll_interval_s=1.0, probe_interval_s=1.0))
    first = looked(attempts, AttemptStatus.PENDING, 0)
    assert (first.pending_at, first.running_at) == (None, None)
    second = looked(attempts, AttemptStatus.RUNNING, 1)
    assert (second.pending_at, second.running_at) == (NOW, None)
    looked(attempts, None, 2)
    failed = looked(attempts, AttemptStatus.FAILED, 3)
    assert (failed.pending_at, failed.running_at) == (None, NOW + 1)
    again = looked(attempts, AttemptStatus.FAILED, 4, confirmed=True)
    assert (again.pending_at, again.running_at) == (None, NOW + 1), "a second read says the same"
    attempts.forget(JOB)
    assert looked(attempts, AttemptStatus.FAILED, 5).running_at is None
