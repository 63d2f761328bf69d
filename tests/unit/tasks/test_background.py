"""One callback that fails must not keep the later ones from being done: actors and refs are let go there."""

import logging
import threading

import pytest
from tests.support.waiting import PATIENCE_S

from ray_multicluster_scheduler.tasks import submitter as module
from ray_multicluster_scheduler.tasks.submitter import BackgroundThread


def fails() -> None:
    raise ConnectionError("gone\nmore of it")


def test_a_chore_that_fails_is_told_and_the_next_one_is_done(caplog: pytest.LogCaptureFixture) -> None:
    done = threading.Event()
    background = BackgroundThread(())
    background.start()
    background.add(fails)
    background.add(done.set)
    assert done.wait(PATIENCE_S)
    background.stop()
    assert [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING] == [
        "a background callback of tasks and actors failed: ConnectionError: gone"
    ]


def test_a_regular_chore_that_fails_keeps_neither_the_others_nor_the_next_round_from_being_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "EVERY_S", 0.01)
    rounds = threading.Semaphore(0)
    background = BackgroundThread((fails, rounds.release))
    background.start()
    for _ in range(3):
        assert rounds.acquire(timeout=PATIENCE_S)
    background.stop()


def test_regular_chores_are_done_even_while_others_come_all_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "EVERY_S", 0.01)
    round_done = threading.Event()
    background = BackgroundThread((round_done.set,))

    def again() -> None:
        if not round_done.is_set():
            background.add(again)

    background.start()
    background.add(again)
    assert round_done.wait(PATIENCE_S)
    background.stop()
