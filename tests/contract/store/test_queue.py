"""Reading: what is there, what may run, what must end, when time matters next."""

import pytest
from tests.support.builders import NOW
from tests.support.leader import Leader

from ray_multicluster_scheduler.errors import JobNotFound
from ray_multicluster_scheduler.model.job import Target
from ray_multicluster_scheduler.model.states import FINAL, LIVE, JobState
from ray_multicluster_scheduler.store import Store
from ray_multicluster_scheduler.store.queue import MAX_REASON

S = JobState


def runnable(store: Store, now: float = NOW) -> list[str]:
    return [job.submission_id for job in store.queue.runnable(now=now)]


def blocked(store: Store, now: float = NOW) -> dict[str, str]:
    return {job.submission_id: reason for job, reason in store.queue.blocked(now=now)}


def test_an_unknown_id_is_not_found(store: Store) -> None:
    with pytest.raises(JobNotFound, match="'nobody'"):
        store.jobs.get("nobody")


def test_get_many_returns_the_known_ones(store: Store, leader: Leader) -> None:
    job = leader.add("a")

    assert store.jobs.get_many(["a", "nobody"]) == {"a": job}
    assert store.jobs.get_many([]) == {}


def test_jobs_are_listed_newest_first_and_limited(store: Store, leader: Leader) -> None:
    for name in ("a", "b", "c"):
        leader.add(name)

    assert [job.submission_id for job in store.jobs.list()] == ["c", "b", "a"]
    assert [job.submission_id for job in store.jobs.list(limit=2)] == ["c", "b"]


def test_jobs_are_counted_by_state(store: Store, leader: Leader) -> None:
    assert store.jobs.counts(frozenset(JobState)) == {}
    for name, state in {"a": S.QUEUED, "b": S.QUEUED, "c": S.RUNNING, "d": S.SUCCEEDED}.items():
        leader.add(name, state)

    assert store.jobs.counts(frozenset(JobState)) == {S.QUEUED: 2, S.RUNNING: 1, S.SUCCEEDED: 1}
    assert store.jobs.counts(LIVE) == {S.RUNNING: 1}


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"user": "bob"}, {"bobs"}),
        ({"group": "g"}, {"grouped"}),
        ({"name": "nightly"}, {"named"}),
        ({"name": "night"}, set()),
        ({"since": NOW + 1}, set()),
        ({"tag": "gpu"}, {"tagged"}),
        ({"tag": "gp"}, set()),
        ({"cluster": "a"}, {"placed"}),
        ({"states": [S.PLACED]}, {"placed"}),
        ({"states": [S.PLACED, S.QUEUED], "user": "bob"}, {"bobs"}),
        ({"states": []}, set()),
        ({"tag": "gpu", "user": "bob"}, set()),
    ],
)
def test_jobs_are_listed_by_every_filter(
    store: Store, leader: Leader, filters: dict[str, object], expected: set[str]
) -> None:
    leader.add("bobs", user="bob")
    leader.add("grouped", group="g")
    leader.add("named", name="nightly")
    leader.add("tagged", tags=("gpu", "night", "gpu"))
    leader.add("placed", S.PLACED)

    assert {job.submission_id for job in store.jobs.list(**filters)} == expected


def test_runnable_jobs_come_by_priority_then_age(store: Store, leader: Leader) -> None:
    leader.add("old")
    leader.add("urgent", priority=5)
    leader.add("young")
    leader.add("whenever", priority=-1)

    assert runnable(store) == ["urgent", "old", "young", "whenever"]
    assert [job.submission_id for job in store.queue.runnable(now=NOW, limit=1)] == ["urgent"]
    leader.add("of-bob", user="bob")
    assert [job.submission_id for job in store.queue.runnable(now=NOW, user="bob", limit=1)] == ["of-bob"]


@pytest.mark.parametrize("state", sorted(set(S) - {S.QUEUED}))
def test_only_queued_jobs_are_runnable(store: Store, leader: Leader, state: JobState) -> None:
    leader.add("job", state)

    assert runnable(store) == []


def test_a_retry_is_runnable_when_its_time_has_come(store: Store, leader: Leader) -> None:
    leader.add("job", S.RUNNING)
    leader.move("job", S.QUEUED, not_before=NOW + 30)

    assert runnable(store, NOW + 29) == []
    assert runnable(store, NOW + 30) == ["job"]


def test_a_job_waits_until_all_its_dependencies_succeeded(store: Store, leader: Leader) -> None:
    leader.add("one")
    leader.add("two")
    leader.add("last", depends_on=("one", "two"))

    leader.move("one", S.PLACED, S.SUBMITTED, S.SUCCEEDED)
    assert runnable(store) == ["two"]
    leader.move("two", S.PLACED, S.SUBMITTED, S.SUCCEEDED)
    assert runnable(store) == ["last"]
    assert blocked(store) == {}


@pytest.mark.parametrize("state", sorted(S))
def test_live_jobs_are_those_that_hold_an_attempt(store: Store, leader: Leader, state: JobState) -> None:
    leader.add("job", state)

    assert [job.submission_id for job in store.queue.live()] == (["job"] if state in LIVE else [])


def test_a_failed_dependency_blocks_with_its_reason(store: Store, leader: Leader) -> None:
    leader.add("a")
    leader.add("b", depends_on=("a",))
    leader.move("a", S.PLACED, S.FAILED, reason="exit code 3")

    assert blocked(store) == {"b": "dependency 'a' failed: exit code 3"}
    assert runnable(store) == []


def test_a_stopped_dependency_blocks_as_stopped(store: Store, leader: Leader) -> None:
    leader.add("a")
    leader.add("b", depends_on=("a",))
    leader.move("a", S.STOPPED, reason="stopped by ann")

    assert blocked(store) == {"b": "dependency 'a' was stopped: stopped by ann"}


def test_the_chain_of_failed_dependencies_is_in_the_reason(store: Store, leader: Leader) -> None:
    leader.add("a")
    leader.add("b", depends_on=("a",))
    leader.add("c", depends_on=("b",))
    leader.move("a", S.PLACED, S.FAILED, reason="exit code 3")
    leader.move("b", S.FAILED, reason=blocked(store)["b"])

    assert blocked(store) == {"c": "dependency 'b' failed because its dependency 'a' failed: exit code 3"}


def test_a_dependency_that_ran_and_failed_is_the_cause_itself(store: Store, leader: Leader) -> None:
    leader.add("a")
    leader.add("b", depends_on=("a",))
    leader.add("c", depends_on=("b",))
    leader.move("a", S.PLACED, S.SUBMITTED, S.SUCCEEDED)
    leader.move("b", S.PLACED, S.FAILED, reason="out of memory")

    assert blocked(store) == {"c": "dependency 'b' failed: out of memory"}


def test_what_failed_later_is_not_named_as_the_cause(store: Store, leader: Leader) -> None:
    leader.add("a")
    leader.add("b", depends_on=("a",))
    leader.add("c", depends_on=("b",))
    leader.move("b", S.FAILED, now=NOW + 1, reason="waited too long")
    leader.move("a", S.PLACED, S.FAILED, now=NOW + 2)

    assert blocked(store) == {"c": "dependency 'b' failed: waited too long"}


def test_a_long_chain_keeps_its_reason_short(store: Store, leader: Leader) -> None:
    leader.add("job-0")
    for number in range(1, 40):
        leader.add(
            f"job-{number}-{'x' * 60}" if number < 39 else "end",
            depends_on=(store.jobs.list()[0].submission_id,),
        )
    leader.move("job-0", S.PLACED, S.FAILED, reason="exit code 3")
    while "end" not in (now_blocked := blocked(store)):
        for submission_id, reason in now_blocked.items():
            leader.move(submission_id, S.FAILED, reason=reason)

    assert len(now_blocked["end"]) <= MAX_REASON


def test_a_job_that_waited_too_long_is_blocked(store: Store, leader: Leader) -> None:
    leader.add("job", queue_timeout_s=60.0)

    assert blocked(store, NOW + 59) == {}
    assert blocked(store, NOW + 60) == {"job": "waited in the queue longer than its queue_timeout_s of 60 s"}


def test_time_on_a_cluster_is_no_time_in_the_queue(store: Store, leader: Leader) -> None:
    leader.add("job", S.RUNNING, queue_timeout_s=60.0)

    assert blocked(store, NOW + 1000) == {}
    leader.move("job", S.QUEUED, now=NOW + 1000)
    assert blocked(store, NOW + 1059) == {}
    assert set(blocked(store, NOW + 1060)) == {"job"}


def test_a_stop_request_blocks_a_queued_job(store: Store, leader: Leader) -> None:
    leader.add("job")
    store.jobs.request_stop(["job"], now=NOW, reason="stopped by ann")

    assert blocked(store) == {"job": "stopped by ann"}
    assert runnable(store) == []


def test_a_job_that_must_end_for_two_reasons_is_blocked_once(store: Store, leader: Leader) -> None:
    leader.add("a", S.FAILED)
    leader.add("b", depends_on=("a",), queue_timeout_s=1.0)
    store.jobs.request_stop(["b"], now=NOW, reason="stopped by ann")

    assert [reason for _, reason in store.queue.blocked(now=NOW + 9)] == ["stopped by ann"]


def test_ended_jobs_are_not_blocked_again(store: Store, leader: Leader) -> None:
    leader.add("a", S.FAILED)
    leader.add("b", depends_on=("a",), queue_timeout_s=1.0)
    leader.move("b", S.FAILED, now=NOW + 9)

    assert blocked(store, NOW + 99) == {}


@pytest.mark.parametrize("state", sorted(set(S) - FINAL))
def test_a_stop_request_sets_the_target_and_leaves_the_state(
    store: Store, leader: Leader, state: JobState
) -> None:
    leader.add("job", state)

    (job,) = store.jobs.request_stop(["job"], now=NOW + 5, reason="stopped by ann")

    assert job == store.jobs.get("job")
    assert (job.target, job.state, job.reason) == (Target.STOPPED, state, "stopped by ann")
    event = store.history.events("job")[-1]
    assert (event.old, event.new, event.at, event.reason) == (state, state, NOW + 5, "stopped by ann")


@pytest.mark.parametrize("state", sorted(FINAL))
def test_a_stop_request_leaves_ended_jobs_alone(store: Store, leader: Leader, state: JobState) -> None:
    job = leader.add("job", state)

    assert store.jobs.request_stop(["job"], now=NOW, reason="stopped by ann") == (job,)


def test_the_first_of_two_stop_requests_counts(store: Store, leader: Leader) -> None:
    leader.add("job")
    store.jobs.request_stop(["job"], now=NOW, reason="stopped by ann")

    store.jobs.request_stop(["job"], now=NOW, reason="stopped by bob")

    assert blocked(store) == {"job": "stopped by ann"}


def test_stopping_an_unknown_job_stops_none(store: Store, leader: Leader) -> None:
    leader.add("job")

    with pytest.raises(JobNotFound):
        store.jobs.request_stop(["job", "nobody"], now=NOW, reason="stopped by ann")

    assert store.jobs.get("job").target is Target.FINISHED


def test_of_some_jobs_those_that_may_run_are_found_by_their_seq(store: Store, leader: Leader) -> None:
    names = ("a", "b", "later", "needs", "runs")
    jobs = {name: leader.add(name) for name in names[:2]}
    jobs["later"] = leader.add("later", S.PLACED)
    leader.move("later", S.QUEUED, not_before=NOW + 5)
    jobs["needs"] = leader.add("needs", depends_on=("a",))
    jobs["runs"] = leader.add("runs", S.RUNNING)
    seqs = [jobs[name].seq for name in names]

    assert [job.submission_id for job in store.queue.runnable_among(seqs, now=NOW)] == ["a", "b"]
    assert store.queue.runnable_among(seqs[1:2], now=NOW) == (jobs["b"],)
    assert store.queue.runnable_among([], now=NOW) == ()


def test_older_jobs_that_may_run_are_counted_by_user_and_priority(store: Store, leader: Leader) -> None:
    leader.add("anns", user="ann")
    leader.add("bobs", user="bob")
    leader.add("urgent", user="ann", priority=1)
    leader.add("overdue", user="ann", queue_timeout_s=1.0)
    leader.add("needs", user="ann", depends_on=("anns",))
    last = leader.add("last", user="ann")

    def count(*users: str, now: float = NOW, before_seq: int = last.seq, priority: int = 0) -> int:
        return store.queue.count_runnable(now=now, users=users, priority=priority, before_seq=before_seq)

    assert count("ann") == 2
    assert count("ann", now=NOW + 10) == 1
    assert count("ann", "bob") == 3
    assert count("ann", priority=1) == 1
    assert count("ann", before_seq=last.seq + 1) == 3
