"""`SchedulerState` alone: events in, instructions out, on a clock that jumps."""

from collections import Counter
from dataclasses import replace
from functools import partial

import pytest
from tests.support.builders import NOW, a_cluster, a_job, a_spec
from tests.support.virtual_world import READ_S, VirtualWorld

from ray_multicluster_scheduler.config import Settings
from ray_multicluster_scheduler.core import events, instructions
from ray_multicluster_scheduler.core.instructions import WriteMoves
from ray_multicluster_scheduler.core.lifecycle.transitions import move, waited_too_long
from ray_multicluster_scheduler.core.state import SchedulerState
from ray_multicluster_scheduler.core.supervisor import NOTE
from ray_multicluster_scheduler.engine.leader import scheduler_rules
from ray_multicluster_scheduler.executors.registry import RAY_SESSION
from ray_multicluster_scheduler.model.cluster import DrainMark
from ray_multicluster_scheduler.model.job import Target
from ray_multicluster_scheduler.model.states import JobState

S = JobState


def states(world: VirtualWorld) -> Counter[JobState]:
    return Counter(job.state for job in world.jobs.values())


def test_a_thousand_jobs_live_through_the_loss_of_a_head() -> None:
    world = VirtualWorld({"a": 170, "b": 170, "c": 170}, max_starts_in_flight=170, poll_interval_s=10.0)
    for number in range(1000):
        world.submit(f"job-{number}", runs_s=40.0 + number % 7)
    lost, back = world.clusters["b"], NOW + 140
    world.at(NOW + 25, lambda: (lost.kill(), world.probe(lost, changed=True)))
    world.at(back, lambda: (lost.restart(), world.probe(lost, changed=True)))
    world.run()
    assert states(world) == {S.SUCCEEDED: 1000}
    runs = Counter(job_id for cluster in world.clusters.values() for job_id, _ in cluster.history)
    told = Counter(attempt.outcome for attempts in world.attempts.values() for attempt in attempts)
    assert told["LOST"] > 0
    assert sum(runs.values()) == 1000 + told["LOST"]  # only what was lost ran twice
    assert any(at > back for _, at in lost.history)
    assert not world.state.live.all()
    assert not any(world.state.live.held_by_user().values())
    assert world.state.is_caught_up


def test_jobs_that_cannot_be_started_again_delay_no_others() -> None:
    world = VirtualWorld(
        {"a": 50, "b": 1}, max_infra_retries=1, lost_after_refused_s=86_400.0, replacement_rate=1.0
    )
    world.submit("lost", runs_s=10_000, preferred_cluster="b")
    for number in range(40):
        spec = a_spec(entrypoint="sleep 10000", preferred_cluster="a", on_unreachable=60.0)
        job = a_job(f"silent-{number}", seq=number + 2, spec=spec, infra_failures=1)
        world.jobs[job.submission_id] = job
        world.hear(events.JobsAccepted(jobs=[(job, [])]))
    dark, restarted, until = world.clusters["a"], world.clusters["b"], NOW + 3000
    world.at(NOW + 20, lambda: (dark.kill(), world.probe(dark, changed=True)))
    world.at(until, lambda: (restarted.kill(), restarted.restart(), world.probe(restarted, changed=True)))
    world.run(until=until + 60)
    assert {job.state for name, job in world.jobs.items() if name != "lost"} == {S.UNREACHABLE}
    lost = world.jobs["lost"]
    assert (lost.state, lost.attempt) == (S.RUNNING, 2), lost.reason


def test_a_job_goes_from_the_queue_to_its_end_in_four_writes() -> None:
    world = VirtualWorld({"a": 4})
    world.submit("job", runs_s=5)
    world.run()
    occasions = [each.occasion for each in world.told if isinstance(each, instructions.WriteMoves)]
    assert occasions == ["place", "send", "seen", "seen"]
    assert [attempt.executor for attempt in world.attempts["job"]] == ["ray-jobs"]


def test_jobs_that_claim_nothing_come_and_go() -> None:
    world = VirtualWorld({"a": 4})
    for number in range(3):
        world.submit_spec(f"free-{number}", a_spec(entrypoint="sleep 5", requirements={"CPU": 0.0}))
    world.submit("job", runs_s=1)
    world.run()
    assert states(world) == {S.SUCCEEDED: 4}
    assert world.state.live.held_by_user() == {}


def test_a_session_ends_with_its_cluster() -> None:
    world = VirtualWorld({"a": 4, "b": 4})
    world.submit_spec("session-1", a_spec(entrypoint="sleep 500", executor=RAY_SESSION.name))
    world.run(until=NOW + 10)
    cluster = world.clusters[world.jobs["session-1"].cluster or ""]
    cluster.kill()
    cluster.restart()
    world.probe(cluster, changed=True)
    world.run()
    job = world.jobs["session-1"]
    assert (job.state, job.attempt) == (S.FAILED, 1)
    assert job.reason.endswith("its program has to connect again")


def test_jobs_of_an_executor_that_only_a_newer_version_has_are_left_alone() -> None:
    world = VirtualWorld({"a": 4})
    spec = a_spec(entrypoint="sleep 5", executor="warm-worker")
    running = a_job(
        "running", spec=spec, state=S.RUNNING, cluster="a", remote_id="running", attempt=1, seen_at=NOW
    )
    world.state.live.put(running)
    world.submit_spec("queued", spec)
    world.submit("ours", runs_s=5)
    world.run(until=NOW + 1000)
    assert {name: job.state for name, job in world.jobs.items()} == {"queued": S.QUEUED, "ours": S.SUCCEEDED}
    assert [job.submission_id for job in world.state.live.all()] == ["running"]
    assert world.state.is_caught_up


def test_an_attempt_of_an_unknown_executor_is_neither_stopped_nor_counted_as_gone() -> None:
    world = VirtualWorld({"a": 4})
    spec = a_spec(entrypoint="sleep 5", executor="warm-worker", timeout_s=1.0)
    for name, cluster in (("here", "a"), ("elsewhere", "no-longer-configured")):
        live = {"state": S.RUNNING, "cluster": cluster, "remote_id": name, "attempt": 1, "seen_at": NOW}
        job = a_job(name, spec=spec, **live)
        world.state.live.put(job)
        world.hear(events.StopsRequested(jobs=[replace(job, target=Target.STOPPED)]))
    world.clusters["a"].kill()
    world.probe(world.clusters["a"], changed=True)
    world.run(until=NOW + 1000)
    assert {job.state for job in world.state.live.all()} == {S.RUNNING}
    wanted = (instructions.StopAttempt, instructions.ObserveAttempts, instructions.WriteMoves)
    assert not [each for each in world.told if isinstance(each, wanted)]


def test_only_what_says_something_about_a_cluster_counts_for_its_quarantine() -> None:
    world = VirtualWorld({"a": 4})
    for number in range(5):
        spec = a_spec(entrypoint="sleep 1 1", executor=RAY_SESSION.name)
        world.submit_spec(f"session-{number}", spec)
    world.run(until=NOW + 100)
    assert world.state.clusters.quarantine.suspects() == ()


def test_a_job_waits_for_what_it_depends_on_and_ends_with_it() -> None:
    world = VirtualWorld({"a": 4})
    world.submit_spec("good", a_spec(entrypoint="sleep 5"))
    world.submit_spec("bad", a_spec(entrypoint="sleep 5 1"))
    world.submit_spec("after-good", a_spec(entrypoint="sleep 1", depends_on=("good",)))
    world.submit_spec("after-bad", a_spec(entrypoint="sleep 1", depends_on=("bad",)))
    world.submit_spec("after-that", a_spec(entrypoint="sleep 1", depends_on=("after-bad",)))
    world.run()
    ended = {name: job.state for name, job in world.jobs.items()}
    assert ended == {
        "good": S.SUCCEEDED,
        "bad": S.FAILED,
        "after-good": S.SUCCEEDED,
        "after-bad": S.FAILED,
        "after-that": S.FAILED,
    }


@pytest.mark.parametrize("after_s", [0.0, 0.005, 0.05, 0.2, 1.0, 4.0])
def test_a_stop_is_noticed_wherever_the_job_is(after_s: float) -> None:
    world = VirtualWorld({"a": 1})
    world.submit("running", runs_s=1000)
    world.submit("waiting", runs_s=1000)
    for name in ("running", "waiting"):
        world.at(NOW + after_s, partial(world.stop, name))
    world.run(until=NOW + 100)
    assert states(world) == {S.STOPPED: 2}
    assert not world.state.live.all()
    assert all(job.target is Target.STOPPED for job in world.jobs.values())


def test_a_job_that_waits_too_long_ends_in_the_queue_at_that_time() -> None:
    world = VirtualWorld({"a": 1})
    world.submit("first", runs_s=100)
    world.submit_spec("second", a_spec(entrypoint="sleep 1", queue_timeout_s=30.0))
    world.run(until=NOW + 60)
    assert world.jobs["second"].state is S.FAILED
    assert NOW + 30 <= (world.jobs["second"].ended_at or 0.0) < NOW + 31
    assert world.jobs["second"].reason == (
        "waited in the queue longer than its queue_timeout_s of 30 s. "
        "Last reason: a: needs 1 CPU; free: 0 CPU of 1 CPU"
    )


def test_a_job_that_waits_too_long_for_another_one_says_so() -> None:
    world = VirtualWorld({"a": 1})
    world.submit("first", runs_s=100)
    world.submit_spec("second", a_spec(entrypoint="sleep 1", queue_timeout_s=30.0, depends_on=("first",)))
    world.run(until=NOW + 60)
    assert world.jobs["second"].reason.endswith("of 30 s. Last reason: it needs first, which had not ended")


def test_a_job_whose_time_is_over_before_anybody_looks_at_the_clusters_says_so() -> None:
    state = SchedulerState([a_cluster("a")], scheduler_rules(Settings()), origin="test")
    job = a_job("job", spec=a_spec(queue_timeout_s=30.0))
    state.handle(events.JobsAccepted(jobs=[(job, ())]), now=NOW + 60)
    blocked = events.JobsBlocked(jobs=[(job, waited_too_long(job))])
    (written,) = state.handle(blocked, now=NOW + 60)
    assert isinstance(written, WriteMoves)
    (end,) = written.moves
    assert end.reason.endswith("of 30 s. Last reason: no scheduler had looked at the clusters yet")


def test_a_retry_waits_for_its_time_and_goes_on_without_any_event() -> None:
    world = VirtualWorld({"a": 4})
    world.submit_spec("job", a_spec(entrypoint="sleep 5 1", max_retries=2))
    world.run()
    assert world.jobs["job"].state is S.FAILED
    assert [attempt.outcome for attempt in world.attempts["job"]] == ["USER", "USER", "FAILED"]


def test_a_run_that_is_too_long_is_stopped_and_fails() -> None:
    world = VirtualWorld({"a": 4})
    world.submit_spec("job", a_spec(entrypoint="sleep 1000", timeout_s=10.0))
    world.run()
    assert world.jobs["job"].state is S.FAILED
    assert "timeout_s" in world.jobs["job"].reason


def test_the_same_events_give_the_same_instructions() -> None:
    def told() -> list[object]:
        world = VirtualWorld({"a": 3, "b": 2})
        for number in range(30):
            world.submit(f"job-{number}", runs_s=3 + number % 5, user=f"user-{number % 3}")
        world.at(NOW + 10, world.clusters["a"].kill)
        world.run()
        return list(world.told)

    assert told() == told()


def test_a_job_that_is_being_sent_is_not_looked_at_although_a_note_about_it_is_written() -> None:
    world = VirtualWorld({"a": 1})
    world.submit("job", runs_s=5)
    world.run(until=NOW + 0.1)
    (sent,) = [each for each in world.told if isinstance(each, instructions.SendAttempt)]
    note = WriteMoves(moves=[move(sent.job, S.PLACED, "completed")], occasion=NOTE)
    world.state.handle(events.MovesWritten(asked=[note], moved=[sent.job]), now=NOW + 0.1)
    later = world.state.handle(events.Tick(), now=NOW + 60)
    assert not [each for each in later if isinstance(each, instructions.ObserveAttempts)]


def test_a_pass_that_lost_a_job_is_followed_by_another_one() -> None:
    world = VirtualWorld({"a": 1})
    world.submit("first", runs_s=100)
    world.submit("second", runs_s=100)
    gone = replace(world.jobs["first"], state=S.STOPPED)
    world.at(NOW + READ_S / 2, lambda: world.jobs.update(first=gone))
    world.run(until=NOW + 10)
    assert world.jobs["second"].state is S.RUNNING


def test_a_cluster_that_has_not_answered_is_not_caught_up_whatever_is_written_about_its_jobs() -> None:
    world = VirtualWorld({"a": 1}, unreachable_after_s=5.0)
    world.submit("job", runs_s=1000)
    world.run(until=NOW + 10)
    job, heard = world.jobs["job"], []
    state = SchedulerState(
        [a_cluster("a")],
        scheduler_rules(Settings(unreachable_after_s=5.0)),
        origin="virtual",
        live=[job],
    )
    for at in (NOW + 10, NOW + 20):
        (look, *_) = state.handle(events.Tick(), now=at)
        assert isinstance(look, instructions.ObserveAttempts)
        silent = events.AttemptsObserved(cluster="a", jobs=look.jobs, answered=False, asked_at=at)
        heard += state.handle(silent, now=at)
    assert [each.moves[0].new for each in heard if isinstance(each, WriteMoves)] == [S.UNREACHABLE]
    state.handle(events.Tick(), now=NOW + 60)
    assert not state.is_caught_up


def test_nothing_is_placed_on_a_cluster_that_was_drained_while_the_pass_was_carried_out() -> None:
    world = VirtualWorld({"a": 1, "b": 1})
    world.submit_spec("job", a_spec(entrypoint="sleep 5", preferred_cluster="a"))
    drained = events.DrainsRead(drains={"a": DrainMark(drained=True, reason="new disks", at=0.0)})
    world.at(NOW + READ_S / 2, lambda: world.hear(drained))
    world.run()
    assert [attempt.cluster for attempt in world.attempts["job"]] == ["b"]
