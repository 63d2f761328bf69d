"""The queue in memory: who stands in which line, and who stands aside."""

from tests.builders import NOW, a_queued

from ray_multicluster_scheduler.policy.backlog import Backlog


def standing(backlog: Backlog, *, now: float = NOW) -> list[list[str]]:
    return [[waiter.submission_id for waiter in line.in_turn()] for line in backlog.lines(now=now)]


def test_jobs_that_clusters_cannot_tell_apart_stand_in_one_line() -> None:
    backlog = Backlog()
    backlog.put(a_queued("a", seq=1))
    backlog.put(a_queued("big", {"CPU": 4.0}, seq=2))
    backlog.put(a_queued("b", seq=3))
    assert standing(backlog) == [["a", "b"], ["big"]]


def test_users_and_priorities_have_lines_of_their_own() -> None:
    backlog = Backlog()
    backlog.put(a_queued("a", seq=1))
    backlog.put(a_queued("b", seq=2, user="bob"))
    backlog.put(a_queued("c", seq=3, priority=1))
    assert standing(backlog) == [["a"], ["b"], ["c"]]


def test_a_job_that_comes_back_gets_its_old_place() -> None:
    backlog = Backlog()
    for seq, name in enumerate("abc"):
        backlog.put(a_queued(name, seq=seq))
    backlog.remove(["a"])
    backlog.put(a_queued("a", seq=0))
    assert standing(backlog) == [["a", "b", "c"]]


def test_a_retry_stands_aside_until_its_time() -> None:
    backlog = Backlog()
    backlog.put(a_queued("a"), not_before=NOW + 5)
    assert standing(backlog) == []
    assert len(backlog) == 1
    assert standing(backlog, now=NOW + 5) == [["a"]]


def test_a_job_stands_aside_until_all_that_it_needs_has_succeeded() -> None:
    backlog = Backlog()
    backlog.put(a_queued("c"), needs=("a", "b"))
    backlog.succeeded("a")
    assert standing(backlog) == []
    backlog.succeeded("b")
    assert standing(backlog) == [["c"]]


def test_a_job_that_is_gone_is_not_freed_by_its_dependency() -> None:
    backlog = Backlog()
    backlog.put(a_queued("b"), needs=("a",))
    backlog.remove(["b", "unknown"])
    backlog.succeeded("a")
    assert standing(backlog) == []
    assert len(backlog) == 0


def test_a_retry_that_was_stopped_does_not_come_back() -> None:
    backlog = Backlog()
    backlog.put(a_queued("a"), not_before=NOW + 5)
    backlog.remove(["a"])
    assert standing(backlog, now=NOW + 5) == []


def test_nothing_is_kept_of_a_removed_job_whose_parent_never_succeeds() -> None:
    backlog = Backlog()
    backlog.put(a_queued("child"), needs=["parent", "other"])
    backlog.put(a_queued("sister"), needs=["parent"])
    backlog.remove(["child"])
    assert backlog._needed_by == {"parent": {"sister": None}}
    backlog.succeeded("parent")
    assert standing(backlog) == [["sister"]]
    assert (backlog._needed_by, backlog._needs) == ({}, {})
