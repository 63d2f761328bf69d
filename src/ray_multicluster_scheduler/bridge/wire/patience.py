"""Connecting starts a process on the cluster; right after the cluster itself has started that may fail."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

CONNECT_TIMEOUT_S = 120.0
CONNECT_PAUSE_S = 2.0
#: What Ray Client raises when a session could not be started.
NOT_CONNECTED = (ConnectionError, RuntimeError)
#: What it says when the environment of the session cannot be set up: the next try would fail as well.
BAD_ENVIRONMENT = "Failed to create runtime_env"


def insist(
    connect: Callable[[], T], *, timeout_s: float = CONNECT_TIMEOUT_S, pause_s: float = CONNECT_PAUSE_S
) -> T:
    """Connect, as often as it takes; after `timeout_s` the last problem is raised."""
    ends_at = time.monotonic() + timeout_s
    while True:
        try:
            return connect()
        except NOT_CONNECTED as problem:
            if BAD_ENVIRONMENT in str(problem) or time.monotonic() >= ends_at:
                raise
            time.sleep(pause_s)
