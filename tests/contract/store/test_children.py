"""Jobs that the program of another job has submitted."""

from tests.builders import NOW
from tests.contract.store.leader import Leader

from ray_multicluster_scheduler.model.job import Target
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.store_ports import JobStore


def stopping(store: JobStore, *names: str) -> set[str]:
    return {name for name, job in store.get_many(names).items() if job.target is Target.STOPPED}


def test_the_children_of_a_job_are_listed(store: JobStore, leader: Leader) -> None:
    leader.add("parent")
    leader.add("child", parent="parent")
    leader.add("another")
    assert [job.submission_id for job in store.list_jobs(parent="parent")] == ["child"]


def test_who_stops_a_job_that_asked_for_it_stops_its_open_children(store: JobStore, leader: Leader) -> None:
    leader.add("parent", stop_children=True)
    for name, state in {
        "queued": JobState.QUEUED,
        "runs": JobState.RUNNING,
        "done": JobState.SUCCEEDED,
    }.items():
        leader.add(name, state, parent="parent")
    leader.add("another")
    returned = store.request_stop(["parent"], now=NOW, reason="enough")
    assert [job.submission_id for job in returned] == ["parent"]
    assert stopping(store, "parent", "queued", "runs", "done", "another") == {"parent", "queued", "runs"}
    assert store.get("queued").reason == "stopped with its parent parent: enough"
    assert store.events("queued")[-1].reason == "stopped with its parent parent: enough"


def test_the_children_of_a_job_that_did_not_ask_for_it_go_on(store: JobStore, leader: Leader) -> None:
    leader.add("parent")
    leader.add("child", parent="parent", stop_children=True)
    store.request_stop(["parent"], now=NOW, reason="enough")
    assert stopping(store, "child") == set()


def test_each_generation_asks_for_itself(store: JobStore, leader: Leader) -> None:
    leader.add("a", stop_children=True)
    leader.add("b", parent="a", stop_children=True)
    leader.add("c", parent="b")
    leader.add("d", parent="c")
    store.request_stop(["a"], now=NOW, reason="enough")
    assert stopping(store, "a", "b", "c", "d") == {"a", "b", "c"}


def test_a_parent_that_has_ended_reaches_its_children_still(store: JobStore, leader: Leader) -> None:
    leader.add("parent", JobState.SUCCEEDED, stop_children=True)
    leader.add("child", parent="parent")
    store.request_stop(["parent"], now=NOW, reason="enough")
    assert stopping(store, "parent", "child") == {"child"}


def test_jobs_of_another_user_are_nobodys_children(store: JobStore, leader: Leader) -> None:
    leader.add("parent", user="ann", stop_children=True)
    leader.add("child", user="bob", parent="parent")
    store.request_stop(["parent"], now=NOW, reason="enough")
    assert stopping(store, "child") == set()


def test_jobs_that_are_each_others_children_are_stopped_once(store: JobStore, leader: Leader) -> None:
    leader.add("a", parent="b", stop_children=True)
    leader.add("b", parent="a", stop_children=True)
    store.request_stop(["a"], now=NOW, reason="enough")
    assert stopping(store, "a", "b") == {"a", "b"}
    assert len(store.events("a")) == len(store.events("b")) == 2
