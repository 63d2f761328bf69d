"""The queue in memory: who stands in which line, and who stands aside."""

from tests.support.builders import NOW, a_queued

from ray_multicluster_scheduler.core.placement.queue import JobQueue


def standing(queue: JobQueue, *, now: float = NOW) -> list[list[str]]:
    return [[waiter.submission_id for waiter in line.in_turn()] for line in queue.lines(now=now)]


def test_jobs_that_clusters_cannot_tell_apart_stand_in_one_line() -> None:
    queue = JobQueue()
    queue.put(a_queued("a", seq=1))
    queue.put(a_queued("big", {"CPU": 4.0}, seq=2))
    queue.put(a_queued("b", seq=3))
    assert standing(queue) == [["a", "b"], ["big"]]


def test_users_and_priorities_have_lines_of_their_own() -> None:
    queue = JobQueue()
    queue.put(a_queued("a", seq=1))
    queue.put(a_queued("b", seq=2, user="bob"))
    queue.put(a_queued("c", seq=3, priority=1))
    assert standing(queue) == [["a"], ["b"], ["c"]]


def test_a_job_that_comes_back_gets_its_old_place() -> None:
    queue = JobQueue()
    for seq, name in enumerate("abc"):
        queue.put(a_queued(name, seq=seq))
    queue.remove(["a"])
    queue.put(a_queued("a", seq=0))
    assert standing(queue) == [["a", "b", "c"]]


def test_a_retry_stands_aside_until_its_time() -> None:
    queue = JobQueue()
    queue.put(a_queued("a"), not_before=NOW + 5)
    assert standing(queue) == []
    assert len(queue) == 1
    assert standing(queue, now=NOW + 5) == [["a"]]


def test_a_job_stands_aside_until_all_that_it_needs_has_succeeded() -> None:
    queue = JobQueue()
    queue.put(a_queued("c"), needs=("a", "b"))
    queue.succeeded("a")
    assert standing(queue) == []
    queue.succeeded("b")
    assert standing(queue) == [["c"]]


def test_a_job_that_is_gone_is_not_freed_by_its_dependency() -> None:
    queue = JobQueue()
    queue.put(a_queued("b"), needs=("a",))
    queue.remove(["b", "unknown"])
    queue.succeeded("a")
    assert standing(queue) == []
    assert len(queue) == 0


def test_a_retry_that_was_stopped_does_not_come_back() -> None:
    queue = JobQueue()
    queue.put(a_queued("a"), not_before=NOW + 5)
    queue.remove(["a"])
    assert standing(queue, now=NOW + 5) == []


def test_nothing_is_kept_of_a_removed_job_whose_parent_never_succeeds() -> None:
    queue = JobQueue()
    queue.put(a_queued("child"), needs=["parent", "other"])
    queue.put(a_queued("sister"), needs=["parent"])
    queue.remove(["child"])
    assert queue._needed_by == {"parent": {"sister": None}}
    queue.succeeded("parent")
    assert standing(queue) == [["sister"]]
    assert (queue._needed_by, queue._needs) == ({}, {})
