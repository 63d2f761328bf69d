"""Notifications between processes reach each other in every folder, also where its path is long."""

from pathlib import Path

import pytest
from tests.support.waiting import PATIENCE_S

from ray_multicluster_scheduler.store.sqlite.notifier import SocketNotifier


@pytest.mark.parametrize("name", ["short", "/".join(["folder"] * 40)])
def test_a_commit_of_another_process_is_heard_at_once(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir(parents=True)
    # Neither reads the store by itself during this test.
    hears, speaks = (SocketNotifier(folder, lambda: 0, fallback_poll_s=10 * PATIENCE_S) for _ in range(2))
    try:
        received = hears.listen()
        speaks.notify()
        hears.wait(received, timeout_s=PATIENCE_S)
        assert hears.listen() > received
    finally:
        hears.close()
        speaks.close()
    assert not list(folder.iterdir())


def test_what_a_killed_process_has_left_is_removed(tmp_path: Path) -> None:
    folder = tmp_path / "/".join(["folder"] * 40)
    folder.mkdir(parents=True)
    left, speaks = (SocketNotifier(folder, lambda: 0, fallback_poll_s=10 * PATIENCE_S) for _ in range(2))
    left.listen()
    (socket,) = folder.iterdir()
    left.close()
    socket.touch()  # no socket: whoever sends to it is refused
    speaks.notify()
    assert not list(folder.iterdir())
