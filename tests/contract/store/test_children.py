"""Jobs that the program of another job has submitted."""

from tests.support.builders import NOW
from tests.support.leader import Leader

from ray_multicluster_scheduler.model.job import Target
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.store import Store


def stopping(store: Store, *names: str) -> set[str]:
    return {name for name, job in store.jobs.get_many(names).items() if job.target is Target.STOPPED}


def test_the_children_of_a_job_are_listed(store: Store, leader: Leader) -> None:
    leader.add("parent")
    leader.add("child", parent="parent")
    leader.add("another")
    assert [job.submission_id for job in store.jobs.list(parent="parent")] == ["child"]


def test_who_stops_a_job_that_asked_for_it_stops_its_open_children(store: Store, leader: Leader) -> None:
    leader.add("parent", stop_children=True)
    for name, state in {
        "queued": JobState.QUEUED,
        "runs": JobState.RUNNING,
        "done": JobState.SUCCEEDED,
    }.items():
        leader.add(name, state, parent="parent")
    leader.add("another")
    returned = store.jobs.request_stop(["parent"], now=NOW, reason="enough")
    assert [job.submission_id for job in returned] == ["parent"]
    assert stopping(store, "parent", "queued", "runs", "done", "another") == {"parent", "queued", "runs"}
    assert store.jobs.get("queued").reason == "stopped with its parent parent: enough"
    assert store.history.events("queued")[-1].reason == "stopped with its parent parent: enough"


def test_the_children_of_a_job_that_did_not_ask_for_it_go_on(store: Store, leader: Leader) -> None:
    leader.add("parent")
    leader.add("child", parent="parent", stop_children=True)
    store.jobs.request_stop(["parent"], now=NOW, reason="enough")
    assert stopping(store, "child") == set()


def test_each_generation_asks_for_itself(store: Store, leader: Leader) -> None:
    leader.add("a", stop_children=True)
    leader.add("b", parent="a", stop_children=True)
    leader.add("c", parent="b")
    leader.add("d", parent="c")
    store.jobs.request_stop(["a"], now=NOW, reason="enough")
    assert stopping(store, "a", "b", "c", "d") == {"a", "b", "c"}


def test_a_parent_that_has_ended_reaches_its_children_still(store: Store, leader: Leader) -> None:
    leader.add("parent", JobState.SUCCEEDED, stop_children=True)
    leader.add("child", parent="parent")
    store.jobs.request_stop(["parent"], now=NOW, reason="enough")
    assert stopping(store, "parent", "child") == {"child"}


def test_jobs_of_another_user_are_nobodys_children(store: Store, leader: Leader) -> None:
    leader.add("parent", user="ann", stop_children=True)
    leader.add("child", user="bob", parent="parent")
    store.jobs.request_stop(["parent"], now=NOW, reason="enough")
    assert stopping(store, "child") == set()


def test_jobs_that_are_each_others_children_are_stopped_once(store: Store, leader: Leader) -> None:
    leader.add("a", parent="b", stop_children=True)
    leader.add("b", parent="a", stop_children=True)
    store.jobs.request_stop(["a"], now=NOW, reason="enough")
    assert stopping(store, "a", "b") == {"a", "b"}
    assert len(store.history.events("a")) == len(store.history.events("b")) == 2
