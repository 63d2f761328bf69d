"""Moves are followed whatever becomes of one of them."""

import logging
import threading
from collections.abc import Sequence
from contextlib import closing

import pytest
from tests.support.builders import NOW, a_spec

from ray_multicluster_scheduler.model.job import PastMove
from ray_multicluster_scheduler.service import events
from ray_multicluster_scheduler.service.events import MoveFollower
from ray_multicluster_scheduler.store import open_memory_store


def test_a_listener_that_raises_hears_the_next_moves_and_is_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(events, "PAUSE_S", 0.0)
    heard: list[str] = []
    told = threading.Semaphore(0)

    def listener(moves: Sequence[PastMove]) -> None:
        heard.extend(move.submission_id for move in moves)
        told.release()
        raise KeyError("no such metric")

    with closing(open_memory_store()) as store, caplog.at_level(logging.ERROR):
        follower = MoveFollower(store, listener)
        for name in ("one", "two", "three"):
            store.jobs.add([(name, a_spec())], now=NOW)
            assert told.acquire(timeout=60)
        follower.close()
    assert heard == ["one", "two", "three"]
    assert [record.message for record in caplog.records] == [
        "some moves of jobs are missing in metrics or traces"
    ]
