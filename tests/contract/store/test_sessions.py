"""Sessions: stored with their jobs, and removed with them."""

from dataclasses import replace

from tests.support.builders import NOW, a_spec
from tests.support.leader import Leader

from ray_multicluster_scheduler.executors.registry import RAY_SESSION
from ray_multicluster_scheduler.model.execution import Session
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.store import Store

SESSION = replace(a_spec(), executor=RAY_SESSION.name, client_address="10.0.0.5", client_python="3.11.7")


def test_a_session_is_there_as_soon_as_its_job_is(store: Store) -> None:
    store.jobs.add([("session-1", SESSION), ("job", a_spec())], now=NOW)
    assert store.sessions.get_many(["session-1", "job", "nothing"]) == {
        "session-1": Session(submission_id="session-1", alive_at=NOW)
    }
    assert store.jobs.get("session-1").spec == SESSION


def test_what_servers_note_is_kept(store: Store) -> None:
    store.jobs.add([("session-1", SESSION), ("session-2", SESSION)], now=NOW)
    store.sessions.update(["session-1", "nothing"], ray_job_id="02000000", helper_pid=7, alive_at=NOW + 5)
    store.sessions.update(["session-1"], stop_requested=True)
    found = store.sessions.get_many(["session-1", "session-2"])
    assert found["session-1"] == Session(
        submission_id="session-1",
        alive_at=NOW + 5,
        ray_job_id="02000000",
        helper_pid=7,
        stop_requested=True,
    )
    assert found["session-2"].ray_job_id is None


def test_open_sessions_are_those_whose_jobs_have_not_ended(store: Store, leader: Leader) -> None:
    store.jobs.add([("session-2", SESSION), ("session-1", SESSION)], now=NOW)
    assert [each.submission_id for each in store.sessions.open()] == ["session-2", "session-1"]
    leader.move("session-2", JobState.FAILED)
    assert [each.submission_id for each in store.sessions.open()] == ["session-1"]


def test_a_session_goes_with_its_job(store: Store, leader: Leader) -> None:
    store.jobs.add([("session-1", SESSION)], now=NOW)
    leader.move("session-1", JobState.FAILED)
    store.retention.delete(["session-1"])
    assert store.sessions.get_many(["session-1"]) == {}
