"""After the clock was set, nobody has waited or run longer than before."""

from dataclasses import replace

import pytest
from tests.support.builders import NOW, a_spec
from tests.support.leader import Leader

from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.store import Store

S = JobState
BOOT_AT = NOW - 1000.0  # the machine has run for 1000 s
HOUR = 3600.0


def settle(leader: Leader, *, step: float = 0.0, boot: str = "boot") -> float:
    """Note that the clock was set by `step` since the first note, at the same moment."""
    return leader.store.leases.settle_clock(
        boot=boot, offset=BOOT_AT + step, epoch=leader.lease.epoch, now=NOW + step
    )


@pytest.fixture
def leader(store: Store) -> Leader:
    leader = Leader(store)
    assert settle(leader) == 0.0
    return leader


@pytest.mark.parametrize("step", [2 * HOUR, -3 * HOUR])
def test_times_of_open_jobs_move_with_the_clock(leader: Leader, step: float) -> None:
    leader.add("runs", S.RUNNING)
    before, (attempt,) = leader.store.jobs.get("runs"), leader.store.history.attempts("runs")

    assert settle(leader, step=step) == pytest.approx(step)

    after, (moved,) = leader.store.jobs.get("runs"), leader.store.history.attempts("runs")
    assert before.started_at is not None
    assert before.placed_at is not None
    assert before.seen_at is None
    assert after == replace(
        before,
        accepted_at=before.accepted_at + step,
        placed_at=before.placed_at + step,
        started_at=before.started_at + step,
        changed_at=before.changed_at + step,
    )
    assert moved.placed_at == attempt.placed_at + step
    assert settle(leader, step=step) == 0.0  # once


@pytest.mark.parametrize("step", [2 * HOUR, -3 * HOUR])
def test_a_retry_and_a_queue_time_out_keep_their_distance(leader: Leader, step: float) -> None:
    leader.store.jobs.add([("waits", a_spec(queue_timeout_s=100.0))], now=NOW - 40)
    leader.add("again", S.RUNNING)
    leader.move("again", S.QUEUED, not_before=NOW + 30)

    settle(leader, step=step)

    assert leader.store.jobs.get("again").not_before == pytest.approx(NOW + step + 30)
    assert leader.store.queue.blocked(now=NOW + step + 59) == ()
    assert [job.submission_id for job, _ in leader.store.queue.blocked(now=NOW + step + 61)] == ["waits"]


def test_a_job_that_came_with_the_new_time_does_not_time_out_at_once(leader: Leader) -> None:
    step = -3 * HOUR
    leader.store.jobs.add([("new", a_spec(queue_timeout_s=100.0))], now=NOW + step)

    settle(leader, step=step)

    assert leader.store.queue.blocked(now=NOW + step + 99) == ()


def test_ended_jobs_stay_as_they_were(leader: Leader) -> None:
    leader.add("over", S.SUCCEEDED)
    before = leader.store.jobs.get("over")

    settle(leader, step=2 * HOUR)

    assert leader.store.jobs.get("over") == before


def test_after_another_start_of_the_machine_nothing_lies_in_the_future(leader: Leader) -> None:
    step = -3 * HOUR
    leader.store.jobs.add([("waits", a_spec(queue_timeout_s=100.0))], now=NOW)
    leader.add("again", S.RUNNING)
    leader.move("again", S.QUEUED, not_before=NOW + 30)
    leader.add("runs", S.RUNNING)

    assert settle(leader, step=step, boot="next") == 0.0

    now = NOW + step
    started_at = leader.store.jobs.get("runs").started_at
    assert started_at is not None
    assert started_at <= now
    assert leader.store.jobs.get("again").not_before == pytest.approx(now + 30)
    assert [job.submission_id for job, _ in leader.store.queue.blocked(now=now + 101)] == ["waits"]


def test_an_end_is_never_before_its_start(leader: Leader) -> None:
    leader.add("ahead", S.RUNNING)
    leader.move("ahead", S.RUNNING, started_at=NOW + 3 * HOUR)

    leader.move("ahead", S.SUCCEEDED)

    job, (attempt,) = leader.store.jobs.get("ahead"), leader.store.history.attempts("ahead")
    assert job.ended_at == attempt.ended_at == NOW + 3 * HOUR
