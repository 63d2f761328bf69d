"""A server can be found for as long as it runs."""

import fcntl
import os
from pathlib import Path

import pytest

from ray_multicluster_scheduler.server.serve import announced, running_servers


def test_a_server_that_starts_while_others_are_looked_for_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = fcntl.flock
    looks: list[list[int]] = []

    def look_first(file: int, how: int) -> None:
        """Somebody looks between the opening of the file and its lock."""
        if not looks:
            looks.append([])
            looks.append(running_servers(tmp_path))
        lock(file, how)

    monkeypatch.setattr(fcntl, "flock", look_first)
    with announced(tmp_path):
        assert running_servers(tmp_path) == [os.getpid()]
    assert looks == [[], []]
    assert running_servers(tmp_path) == []
