"""Attempts, events, logs, drain marks and snapshots."""

import pytest
from tests.support.builders import NOW, a_snapshot
from tests.support.leader import Leader

from ray_multicluster_scheduler.errors import JobNotFound
from ray_multicluster_scheduler.model.cluster import ClusterSnapshot, DrainMark, Node, Witness
from ray_multicluster_scheduler.model.result import LeftResult
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.store import Store

S = JobState


def test_live_remote_ids_are_those_of_one_cluster_now(store: Store, leader: Leader) -> None:
    leader.add("here", S.RUNNING)
    leader.add("ended", S.SUCCEEDED)
    leader.add("there")
    leader.move("there", S.PLACED, cluster="b")
    leader.add("again", S.LOST)
    leader.move("again", S.QUEUED, S.PLACED)

    assert store.history.live_remote_ids("a") == {"here", "again--r2"}
    assert store.history.live_remote_ids("b") == {"there"}
    assert store.history.live_remote_ids("nowhere") == frozenset()


def test_a_former_attempt_is_marked_with_an_event_and_the_job_stays(store: Store, leader: Leader) -> None:
    leader.add("job", S.UNREACHABLE)
    leader.move("job", S.QUEUED)
    job = leader.move("job", S.PLACED, cluster="b")

    store.history.mark_attempt(
        "job", 1, outcome="SUPERSEDED", reason="came back", epoch=leader.lease.epoch, now=NOW + 8
    )

    former, current = store.history.attempts("job")
    assert (former.outcome, former.reason) == ("SUPERSEDED", "came back")
    assert current.outcome is None
    assert store.jobs.get("job") == job
    event = store.history.events("job")[-1]
    assert (event.old, event.new, event.attempt, event.cluster) == (S.PLACED, S.PLACED, 1, "a")
    assert (event.reason, event.at) == ("came back", NOW + 8)


@pytest.mark.parametrize("number", [1, 2])
def test_an_attempt_that_lives_or_never_was_cannot_be_marked(
    store: Store, leader: Leader, number: int
) -> None:
    leader.add("job", S.RUNNING)

    with pytest.raises(ValueError, match="no former attempt"):
        store.history.mark_attempt("job", number, outcome="X", reason="", epoch=leader.lease.epoch, now=NOW)

    assert [attempt.outcome for attempt in store.history.attempts("job")] == [None]


def test_events_come_in_order_of_one_job_or_of_all(store: Store, leader: Leader) -> None:
    leader.add("a")
    leader.add("b")
    leader.move("a", S.PLACED)

    events = store.history.events()

    assert [(event.submission_id, event.new) for event in events] == [
        ("a", S.QUEUED),
        ("b", S.QUEUED),
        ("a", S.PLACED),
    ]
    assert [event.id for event in events] == sorted({event.id for event in events})
    assert store.history.events("a") == (events[0], events[2])
    assert store.history.events(after=events[0].id, limit=1) == (events[1],)
    assert store.history.events("nobody") == ()
    assert store.history.last_event() == events[-1].id


def test_there_is_no_last_event_before_the_first(store: Store) -> None:
    assert store.history.last_event() == 0


@pytest.mark.parametrize("others", [0, 50], ids=["few", "many"])
def test_what_has_changed_is_told_of_the_jobs_that_are_asked_for(
    store: Store, leader: Leader, others: int
) -> None:
    for submission_id in ("moves", "stays", "of-others"):
        leader.add(submission_id)
    before = store.history.last_event()
    leader.move("of-others", S.PLACED)
    leader.move("moves", S.PLACED)
    for number in range(others):
        leader.add(f"other-{number}")

    newest, changed = store.history.changed_since(["moves", "stays"], after=before)

    assert changed == {"moves"}
    assert newest == store.history.last_event()
    assert store.history.changed_since(["moves", "stays"], after=newest) == (newest, frozenset())
    assert store.history.changed_since([], after=before) == (newest, frozenset())


def test_an_event_back_to_the_queue_names_the_cluster_that_was_left(store: Store, leader: Leader) -> None:
    leader.add("job", S.RUNNING)
    leader.move("job", S.QUEUED)

    assert store.history.events("job")[-1].cluster == "a"


def test_the_log_of_an_attempt_is_kept_and_replaced(store: Store, leader: Leader) -> None:
    leader.add("job", S.RUNNING)

    store.jobs.apply([], logs=[("job", 1, "half")], epoch=leader.lease.epoch, now=NOW)
    store.jobs.apply([], logs=[("job", 1, "整个日志\n")], epoch=leader.lease.epoch, now=NOW)

    assert store.history.load_log("job", 1) == store.history.load_log("job") == "整个日志\n"


def test_the_log_is_that_of_the_last_attempt_by_default(store: Store, leader: Leader) -> None:
    leader.add("job", S.RUNNING)
    store.jobs.apply([], logs=[("job", 1, "first")], epoch=leader.lease.epoch, now=NOW)
    leader.move("job", S.QUEUED, S.PLACED)

    assert store.history.load_log("job") is None
    assert store.history.load_log("job", 1) == "first"


def test_there_is_no_log_of_an_unknown_job(store: Store, leader: Leader) -> None:
    assert store.history.load_log("nobody") is None
    with pytest.raises(JobNotFound):
        store.jobs.apply([], logs=[("nobody", 1, "text")], epoch=leader.lease.epoch, now=NOW)


def test_the_result_is_written_with_the_end_and_is_that_of_the_last_attempt(
    store: Store, leader: Leader
) -> None:
    leader.add("job", S.RUNNING)
    first, last = LeftResult(content=b"\x00\xff first"), LeftResult(content=b"", problem="too large")
    epoch = leader.lease.epoch
    store.jobs.apply([], results=[("job", 1, first)], epoch=epoch, now=NOW)
    assert store.history.load_result("job") == (1, first)

    leader.move("job", S.QUEUED, S.PLACED, S.RUNNING)
    assert store.history.load_result("job") is None  # the second attempt has left none yet
    end = leader.wanted(store.jobs.get("job"), S.SUCCEEDED)
    store.jobs.apply([end], results=[("job", 2, last)], epoch=epoch, now=NOW)
    assert store.history.load_result("job") == (2, last)


def test_there_is_no_result_of_an_unknown_job(store: Store, leader: Leader) -> None:
    assert store.history.load_result("nobody") is None
    with pytest.raises(JobNotFound):
        store.jobs.apply(
            [], results=[("nobody", 1, LeftResult(content=b"1"))], epoch=leader.lease.epoch, now=NOW
        )


def test_drain_marks_are_kept_by_cluster_and_an_unmark_is_a_mark_too(store: Store) -> None:
    assert store.clusters.drained() == {}

    store.clusters.set_drained("a", drained=True, reason="new disks", now=NOW)
    store.clusters.set_drained("b", drained=True, reason="", now=NOW)
    store.clusters.set_drained("b", drained=False, reason="done", now=NOW + 1)

    assert store.clusters.drained() == {
        "a": DrainMark(drained=True, reason="new disks", at=NOW),
        "b": DrainMark(drained=False, reason="done", at=NOW + 1),
    }


def test_a_cluster_is_drained_since_the_first_mark_whatever_the_reason_becomes(store: Store) -> None:
    store.clusters.set_drained("a", drained=True, reason="new disks", now=NOW)
    store.clusters.set_drained("a", drained=True, reason="new fans", now=NOW + 1)

    assert store.clusters.drained() == {"a": DrainMark(drained=True, reason="new fans", at=NOW)}

    store.clusters.set_drained("a", drained=False, reason="", now=NOW + 2)
    store.clusters.set_drained("a", drained=True, reason="", now=NOW + 3)

    assert store.clusters.drained() == {"a": DrainMark(drained=True, reason="", at=NOW + 3)}


def test_snapshots_come_back_as_they_were_published(store: Store, leader: Leader) -> None:
    node = Node(
        node_id="n", address="127.0.0.1", alive=True, is_head=True, resources={"CPU": 4.0}, labels={"k": "v"}
    )
    known = a_snapshot(
        "a",
        nodes=(node,),
        pending=(({"CPU": 1.0}, 3),),
        problem="slow",
        throttle=1,
        throttle_reason="jobs die there",
        awaited=True,
        start_limit=3,
        start_s=1.5,
        warm=("env-1", "env-2"),
        witness=Witness(session_name="session_1", addresses=("http://h:8265", "h:10001"), closed_looks=1),
    )
    unknown = ClusterSnapshot(name="b")

    store.clusters.save_snapshots([known, unknown], epoch=leader.lease.epoch)

    assert store.clusters.load_snapshots() == {"a": known, "b": unknown}


def test_a_newer_snapshot_replaces_only_its_own_cluster(store: Store, leader: Leader) -> None:
    store.clusters.save_snapshots([a_snapshot("a"), a_snapshot("b")], epoch=leader.lease.epoch)

    store.clusters.save_snapshots([a_snapshot("a", score=0.5)], epoch=leader.lease.epoch)
    store.clusters.save_snapshots([], epoch=leader.lease.epoch)

    assert {name: seen.score for name, seen in store.clusters.load_snapshots().items()} == {
        "a": 0.5,
        "b": 1.0,
    }


def test_moves_come_with_the_time_in_the_state_that_was_left(store: Store, leader: Leader) -> None:
    leader.add("job")
    leader.move("job", S.PLACED, now=NOW + 2)
    leader.move("job", S.SUBMITTED, now=NOW + 3)
    leader.move("job", S.SUBMITTED, now=NOW + 4, reason="only a note")
    leader.move("job", S.RUNNING, now=NOW + 7)
    leader.move("job", S.SUCCEEDED, now=NOW + 17)

    _, moves = store.history.moves_since(0, limit=100)

    assert [(move.old, move.new, move.since, move.at, move.outcome) for move in moves] == [
        (None, S.QUEUED, None, NOW, None),
        (S.QUEUED, S.PLACED, NOW, NOW + 2, None),
        (S.PLACED, S.SUBMITTED, NOW + 2, NOW + 3, None),
        (S.SUBMITTED, S.RUNNING, NOW + 3, NOW + 7, None),
        (S.RUNNING, S.SUCCEEDED, NOW + 7, NOW + 17, "SUCCEEDED"),
    ]
    assert {(move.accepted_at, move.submission_id) for move in moves} == {(NOW, "job")}


def test_a_second_wait_counts_from_the_return_to_the_queue(store: Store, leader: Leader) -> None:
    leader.add("job", S.RUNNING)
    leader.move("job", S.QUEUED, now=NOW + 5, attempt_changes={"outcome": "SETUP_FAILED"})
    seen, _ = store.history.moves_since(0, limit=100)
    leader.move("job", S.PLACED, now=NOW + 6, cluster="b")

    _, (back,) = store.history.moves_since(seen - 1, limit=1)
    _, (again,) = store.history.moves_since(seen, limit=100)

    assert (back.cluster, back.attempt, back.outcome) == ("a", 1, "SETUP_FAILED")
    assert (again.cluster, again.attempt, again.since, again.outcome) == ("b", 2, NOW + 5, None)


def test_moves_are_read_in_pages_and_notes_are_passed_over(store: Store, leader: Leader) -> None:
    for number in range(5):
        leader.add(f"job-{number}")
        leader.move(f"job-{number}", S.QUEUED, reason="only a note")
    seen, found, pages = 0, [], 0
    while True:
        seen, page = store.history.moves_since(seen, limit=2)
        found += [move.submission_id for move in page]
        pages += 1
        if len(page) < 2:
            break

    assert found == [f"job-{number}" for number in range(5)]
    assert (pages, seen) == (3, store.history.last_event())
    assert store.history.moves_since(seen, limit=2) == (seen, ())
