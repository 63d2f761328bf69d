"""`apply`: compare-and-set along the state table, with event and attempt in the same transaction."""

import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from tests.support.builders import NOW
from tests.support.leader import Leader

from ray_multicluster_scheduler.model.job import Job, Target, Transition
from ray_multicluster_scheduler.model.states import FINAL, LIVE, TRANSITIONS, JobState
from ray_multicluster_scheduler.store import Store

S = JobState
MOVING = [old for old, moves in TRANSITIONS.items() if moves]


@pytest.mark.parametrize("old", MOVING)
def test_every_move_of_the_table_is_made_with_its_event(store: Store, leader: Leader, old: JobState) -> None:
    for new in TRANSITIONS[old]:
        name = f"to-{new.value}"
        leader.add(name, old)

        job = leader.move(name, new, now=NOW + 7, reason="because")

        assert job == store.jobs.get(name)
        assert (job.state, job.changed_at, job.reason) == (new, NOW + 7, "because")
        assert job.ended_at == (NOW + 7 if new in FINAL else None)
        event = store.history.events(name)[-1]
        assert (event.old, event.new, event.at, event.reason) == (old, new, NOW + 7, "because")
        assert event.attempt == job.attempt


@pytest.mark.parametrize("old", sorted(S))
def test_a_move_outside_the_table_is_a_bug_and_writes_nothing(
    store: Store, leader: Leader, old: JobState
) -> None:
    good, bad = leader.add("good"), leader.add("bad", old)
    events = store.history.events()

    for new in set(S) - set(TRANSITIONS[old]) - {old}:
        with pytest.raises(ValueError, match=f"{old.value} -> {new.value}"):
            leader.apply(leader.wanted(good, S.PLACED), leader.wanted(bad, new))

    assert (store.jobs.get("good"), store.jobs.get("bad")) == (good, bad)
    assert store.history.events() == events


def test_a_job_that_somebody_moved_is_left_alone_and_missing_in_the_answer(
    store: Store, leader: Leader
) -> None:
    moved, other = leader.add("moved"), leader.add("other")
    leader.move("moved", S.STOPPED)

    answer = leader.apply(leader.wanted(moved, S.PLACED), leader.wanted(other, S.PLACED))

    assert [job.submission_id for job in answer] == ["other"]
    assert store.jobs.get("moved").state is S.STOPPED
    assert store.history.attempts("moved") == ()
    assert [event.new for event in store.history.events("moved")] == [S.QUEUED, S.STOPPED]


def test_a_job_that_went_round_to_another_attempt_is_not_mistaken(store: Store, leader: Leader) -> None:
    stale = leader.add("job", S.RUNNING)
    leader.move("job", S.QUEUED, S.PLACED, S.SUBMITTED, S.RUNNING)

    assert leader.apply(leader.wanted(stale, S.SUCCEEDED)) == ()
    assert store.jobs.get("job").state is S.RUNNING


def test_a_job_that_is_not_there_is_missing_in_the_answer(leader: Leader) -> None:
    ghost = Transition(submission_id="ghost", expected=S.QUEUED, attempt=0, new=S.STOPPED, reason="")

    assert leader.apply(ghost) == ()
    assert leader.apply() == ()


def test_a_placement_starts_an_attempt(store: Store, leader: Leader) -> None:
    leader.add("job")

    job = leader.move(
        "job",
        S.PLACED,
        now=NOW + 1,
        cluster="mac",
        session_name="s1",
        attempt_changes={
            "executor": "other",
            "entrypoint": "python x.py",
            "runtime_env": {"pip": ["x"]},
            "decision": {"why": 1},
        },
    )

    assert (job.attempt, job.cluster, job.remote_id, job.session_name) == (1, "mac", "job", "s1")
    assert job.placed_at == NOW + 1
    (attempt,) = store.history.attempts("job")
    assert (attempt.number, attempt.cluster, attempt.remote_id, attempt.session_name) == (
        1,
        "mac",
        "job",
        "s1",
    )
    assert attempt.executor == "other"
    assert (attempt.entrypoint, attempt.runtime_env) == ("python x.py", {"pip": ["x"]})
    assert (attempt.decision, attempt.placed_at) == ({"why": 1}, NOW + 1)
    assert (attempt.outcome, attempt.ended_at) == (None, None)


def test_a_later_attempt_gets_its_own_id_and_leaves_the_former_as_it_was(
    store: Store, leader: Leader
) -> None:
    leader.add("job", S.RUNNING)
    leader.move(
        "job", S.QUEUED, infra_failures=1, avoid=("a",), not_before=NOW + 9, error_type="X", exit_code=3
    )

    waiting = store.jobs.get("job")
    assert (waiting.cluster, waiting.remote_id, waiting.placed_at, waiting.started_at) == (None,) * 4
    assert (waiting.infra_failures, waiting.avoid, waiting.exit_code) == (1, ("a",), 3)
    (first,) = store.history.attempts("job")

    again = leader.move("job", S.PLACED, cluster="b")

    assert (again.attempt, again.remote_id, again.error_type, again.exit_code) == (2, "job--r2", None, None)
    assert store.history.attempts("job")[0] == first
    assert store.history.attempts("job")[1].remote_id == "job--r2"


def test_the_first_sight_of_a_running_job_is_its_start_unless_ray_knows_better(
    store: Store, leader: Leader
) -> None:
    leader.add("seen", S.SUBMITTED)
    leader.add("told", S.SUBMITTED)

    assert leader.move("seen", S.RUNNING, now=NOW + 5).started_at == NOW + 5
    assert leader.move("told", S.RUNNING, now=NOW + 5, started_at=NOW + 2).started_at == NOW + 2
    assert store.history.attempts("told")[0].started_at == NOW + 2
    assert leader.move("told", S.UNREACHABLE, S.RUNNING, now=NOW + 50).started_at == NOW + 2


@pytest.mark.parametrize("old", sorted(LIVE))
def test_leaving_the_clusters_closes_the_attempt(store: Store, leader: Leader, old: JobState) -> None:
    for new in set(TRANSITIONS[old]) - LIVE:
        name = f"to-{new.value}"
        leader.add(name, old)

        leader.move(name, new, now=NOW + 3, reason="the end")

        (attempt,) = store.history.attempts(name)
        assert attempt.outcome is not None
        assert (attempt.ended_at, attempt.reason) == (NOW + 3, "the end")
    assert store.history.live_remote_ids("a") == frozenset()


def test_what_the_engine_says_about_an_attempt_goes_before_what_is_derived(
    store: Store, leader: Leader
) -> None:
    leader.add("job", S.RUNNING)

    job = leader.move(
        "job", S.FAILED, ended_at=NOW - 1, exit_code=2, attempt_changes={"outcome": "TIMED_OUT"}
    )

    assert (job.ended_at, job.exit_code) == (NOW - 1, 2)
    (attempt,) = store.history.attempts("job")
    assert (attempt.outcome, attempt.ended_at) == ("TIMED_OUT", NOW - 1)


def test_a_note_writes_fields_and_an_event_and_the_state_stays(store: Store, leader: Leader) -> None:
    leader.add("job", S.PLACED)

    job = leader.move(
        "job",
        S.PLACED,
        now=NOW + 4,
        reason="sent",
        seen_at=NOW + 4,
        attempt_changes={"entrypoint": "python y.py"},
    )

    assert (job.state, job.changed_at, job.attempt) == (S.PLACED, NOW, 1)
    assert (job.reason, job.seen_at) == ("sent", NOW + 4)
    assert [attempt.entrypoint for attempt in store.history.attempts("job")] == ["python y.py"]
    event = store.history.events("job")[-1]
    assert (event.old, event.new, event.at, event.reason) == (S.PLACED, S.PLACED, NOW + 4, "sent")


def test_a_note_on_an_ended_job_keeps_the_reason_of_its_end(leader: Leader) -> None:
    leader.add("job", S.RUNNING)
    leader.move("job", S.FAILED, reason="exit code 3")

    assert leader.move("job", S.FAILED, reason="its log was kept").reason == "exit code 3"


def test_several_moves_of_one_job_in_a_call_are_made_in_order(store: Store, leader: Leader) -> None:
    queued = leader.add("job")
    placed = Transition(submission_id="job", expected=S.PLACED, attempt=1, new=S.SUBMITTED, reason="sent")

    (job,) = leader.apply(leader.wanted(queued, S.PLACED), placed)

    assert job == store.jobs.get("job")
    assert [event.new for event in store.history.events("job")] == [S.QUEUED, S.PLACED, S.SUBMITTED]


@pytest.mark.parametrize(
    ("state", "new", "changes", "attempt_changes"),
    [
        (S.QUEUED, S.PLACED, {"cluster": None}, {}),
        (S.QUEUED, S.PLACED, {"attempt": 7}, {}),
        (S.RUNNING, S.SUCCEEDED, {"state": "FAILED"}, {}),
        (S.RUNNING, S.SUCCEEDED, {"spec": None}, {}),
        (S.RUNNING, S.SUCCEEDED, {}, {"number": 7}),
        (S.QUEUED, S.FAILED, {}, {"outcome": "FAILED"}),
    ],
)
def test_a_change_that_cannot_be_is_a_bug(
    store: Store,
    leader: Leader,
    state: JobState,
    new: JobState,
    changes: Mapping[str, Any],
    attempt_changes: Mapping[str, Any],
) -> None:
    job = leader.add("job", state)

    with pytest.raises(ValueError, match="'job'"):
        leader.apply(leader.wanted(job, new, attempt_changes=attempt_changes, **changes))

    assert store.jobs.get("job") == job


def test_of_racing_threads_exactly_one_claims_a_job(store: Store, leader: Leader) -> None:
    jobs = [leader.add(f"job-{number}") for number in range(5)]
    racers = 4
    start = threading.Barrier(racers)
    won: list[Job] = []

    def claim(cluster: str) -> None:
        start.wait()
        for job in jobs:
            won.extend(leader.apply(leader.wanted(job, S.PLACED, cluster=cluster)))

    threads = [threading.Thread(target=claim, args=(f"c{number}",)) for number in range(racers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(job.submission_id for job in won) == [job.submission_id for job in jobs]
    assert {job.submission_id: job.cluster for job in won} == {
        job.submission_id: job.cluster for job in store.queue.live()
    }
    assert all(len(store.history.attempts(job.submission_id)) == 1 for job in jobs)


def test_what_the_leader_knows_of_a_job_gives_the_same_as_reading_it(store: Store, leader: Leader) -> None:
    known = leader.add("known", S.SUBMITTED)

    (job,) = leader.apply(leader.wanted(known, S.RUNNING), known={"known": known})

    assert job == store.jobs.get("known")
    assert job.state is S.RUNNING


def test_a_stop_that_the_leader_has_not_seen_stays_when_he_moves_the_job(
    store: Store, leader: Leader
) -> None:
    known = leader.add("known", S.SUBMITTED)
    store.jobs.request_stop(["known"], now=NOW, reason="enough")

    (job,) = leader.apply(leader.wanted(known, S.RUNNING), known={"known": known})

    assert job == store.jobs.get("known")
    assert job.target is Target.STOPPED


def test_a_job_that_is_known_wrongly_is_left_alone(store: Store, leader: Leader) -> None:
    known, gone = leader.add("known"), replace(leader.add("other"), submission_id="gone")
    moved = leader.move("known", S.STOPPED)

    answer = leader.apply(
        leader.wanted(known, S.PLACED), leader.wanted(gone, S.PLACED), known={"known": known, "gone": gone}
    )

    assert answer == ()
    assert store.jobs.get("known") == moved
