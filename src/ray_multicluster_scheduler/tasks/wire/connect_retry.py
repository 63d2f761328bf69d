"""Connecting starts a process on the cluster; right after the cluster itself has started that may fail."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from ray_multicluster_scheduler.tasks.wire.session_check import WrongCluster

T = TypeVar("T")

CONNECT_TIMEOUT_S = 120.0
CONNECT_PAUSE_S = 2.0
#: So often a session on a wrong cluster is given up for the next try: by then it is no coincidence.
WRONG_TRIES = 6
#: What Ray Client raises when a session could not be started.
NOT_CONNECTED = (ConnectionError, RuntimeError)
#: What it says when the environment of the session cannot be set up: the next try would fail as well.
BAD_ENVIRONMENT = "Failed to create runtime_env"


def connect_with_retries(
    connect: Callable[[], T], *, timeout_s: float = CONNECT_TIMEOUT_S, pause_s: float = CONNECT_PAUSE_S
) -> T:
    """Connect, as often as it takes; after `timeout_s` the last problem is raised.

    Pauses are uneven: two that reached each other's cluster must not try again at the same moment.
    """
    ends_at, wrong = time.monotonic() + timeout_s, 0
    while True:
        try:
            return connect()
        except NOT_CONNECTED as problem:
            wrong += isinstance(problem, WrongCluster)
            if BAD_ENVIRONMENT in str(problem) or wrong >= WRONG_TRIES or time.monotonic() >= ends_at:
                raise
            time.sleep(pause_s * (0.5 + random.Random().random()))  # noqa: S311 - no secret; not the program's generator
