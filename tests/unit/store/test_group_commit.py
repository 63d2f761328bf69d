"""Sharing one commit between threads."""

import threading
from collections.abc import Sequence

import pytest

from ray_multicluster_scheduler.errors import DuplicateSubmission, SchedulerError, StoreError
from ray_multicluster_scheduler.store.group_commit import MOST_AT_ONCE, GroupCommit

Outcome = int | SchedulerError


class SlowDisk:
    """Writes the first group only when told to; refuses odd numbers, and breaks at 13."""

    def __init__(self) -> None:
        self.groups: list[list[int]] = []
        self.begun = threading.Event()
        self.go_on = threading.Event()

    def write_all(self, requests: Sequence[int]) -> list[Outcome]:
        self.groups.append(list(requests))
        self.begun.set()
        self.go_on.wait()
        if 13 in requests:
            raise StoreError("the disk is full")
        if 666 in requests:
            raise OverflowError("this value cannot be stored")
        return [DuplicateSubmission(str(n)) if n % 2 else n * 10 for n in requests]


def results_of(group: GroupCommit[int, int], disk: SlowDisk, requests: Sequence[int]) -> dict[int, object]:
    """Hand in the first request, and all others while the disk is busy with it."""
    results: dict[int, object] = {}

    def caller(number: int) -> None:
        try:
            results[number] = group(number)
        except (SchedulerError, OverflowError) as error:
            results[number] = str(error)

    threads = [threading.Thread(target=caller, args=(number,)) for number in requests]
    threads[0].start()
    disk.begun.wait()
    for thread in threads[1:]:
        thread.start()
    while len(group._waiting) < len(threads) - 1:
        threads[0].join(0.001)
    disk.go_on.set()
    for thread in threads:
        thread.join()
    return results


def test_who_comes_while_the_disk_is_busy_shares_the_next_commit() -> None:
    disk = SlowDisk()
    results = results_of(GroupCommit(disk.write_all), disk, [2, 4, 6, 8])
    assert results == {2: 20, 4: 40, 6: 60, 8: 80}
    assert [disk.groups[0], sorted(disk.groups[1])] == [[2], [4, 6, 8]]


def test_a_refusal_of_one_is_not_the_concern_of_the_others() -> None:
    disk = SlowDisk()
    assert results_of(GroupCommit(disk.write_all), disk, [2, 3, 4]) == {2: 20, 3: "3", 4: 40}


def test_a_failed_commit_fails_everybody_in_it_and_nobody_else() -> None:
    disk = SlowDisk()
    results = results_of(GroupCommit(disk.write_all), disk, [2, 4, 13])
    assert results == {2: 20, 4: "the disk is full", 13: "the disk is full"}


def test_a_value_that_breaks_the_write_is_the_concern_of_its_own_caller_only() -> None:
    disk = SlowDisk()
    results = results_of(GroupCommit(disk.write_all), disk, [2, 4, 666, 3, 6])
    assert results == {2: 20, 4: 40, 666: "this value cannot be stored", 3: "3", 6: 60}


def test_a_group_has_a_limit_and_the_rest_goes_into_the_next_one() -> None:
    disk = SlowDisk()
    requests = [2 * n for n in range(MOST_AT_ONCE + 3)]
    assert results_of(GroupCommit(disk.write_all), disk, requests) == {n: n * 10 for n in requests}
    assert [len(group) for group in disk.groups] == [1, MOST_AT_ONCE, 2]


def test_an_interrupted_writer_leaves_nobody_waiting() -> None:
    def interrupted(requests: Sequence[int]) -> list[Outcome]:
        raise KeyboardInterrupt

    group: GroupCommit[int, int] = GroupCommit(interrupted)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            group(2)
