"""Ctrl-C while threads share a commit: nobody waits for ever for the one that was interrupted."""

import os
import signal
import threading
import time
from collections.abc import Sequence

import pytest
from tests.support.waiting import PATIENCE_S

from ray_multicluster_scheduler.errors import SchedulerError, StoreOutcomeUnknown
from ray_multicluster_scheduler.store.group_commit import GroupCommit


class Slow:
    """Writes numbers, each group only when it may."""

    def __init__(self) -> None:
        self.begun, self.may_end = threading.Semaphore(0), threading.Semaphore(0)
        self.written: list[list[int]] = []

    def __call__(self, requests: Sequence[int]) -> Sequence[str | SchedulerError]:
        self.begun.release()
        assert self.may_end.acquire(timeout=PATIENCE_S)
        self.written.append(list(requests))
        return [str(each) for each in requests]


def interrupt_soon() -> threading.Thread:
    def send() -> None:
        time.sleep(0.2)  # not a bound: the main thread has to begin to wait
        os.kill(os.getpid(), signal.SIGINT)

    sender = threading.Thread(target=send)
    sender.start()
    return sender


def test_one_that_is_interrupted_while_it_waits_is_not_waited_for() -> None:
    slow = Slow()
    group: GroupCommit[int, str] = GroupCommit(slow)
    first = threading.Thread(target=group, args=(1,))
    first.start()
    assert slow.begun.acquire(timeout=PATIENCE_S)
    sender = interrupt_soon()
    with pytest.raises(KeyboardInterrupt):
        group(2)  # its turn would be next
    sender.join()
    for _ in range(3):
        slow.may_end.release()
    first.join(PATIENCE_S)
    answers: list[str] = []
    later = threading.Thread(target=lambda: answers.append(group(3)), daemon=True)
    later.start()
    later.join(PATIENCE_S)
    assert answers == ["3"]
    assert slow.written == [[1], [3]], "what was interrupted while it waited was not written"


def test_one_that_is_interrupted_while_it_writes_tells_the_others_and_lets_them_go_on() -> None:
    slow = Slow()
    group: GroupCommit[int, str] = GroupCommit(slow)
    answers: list[object] = []

    def call(number: int) -> None:
        try:
            answers.append(group(number))
        except StoreOutcomeUnknown as problem:
            answers.append(problem)

    def interrupt() -> None:
        assert slow.begun.acquire(timeout=PATIENCE_S)  # the main thread writes
        other.start()
        os.kill(os.getpid(), signal.SIGINT)

    other = threading.Thread(target=call, args=(2,))
    sender = threading.Thread(target=interrupt)
    sender.start()
    with pytest.raises(KeyboardInterrupt):
        group(1)
    sender.join()
    slow.may_end.release()
    other.join(PATIENCE_S)
    assert answers == ["2"]
