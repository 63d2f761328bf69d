"""Retries of Ray Client connections: the first ones to a new cluster may fail."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from ray_multicluster_scheduler.tasks.wire.session_check import WrongCluster

T = TypeVar("T")

CONNECT_TIMEOUT_S = 120.0
CONNECT_PAUSE_S = 2.0
#: Tries that may reach a wrong cluster; after that it is no coincidence.
WRONG_TRIES = 6
#: Raised by Ray Client if a session cannot be started.
NOT_CONNECTED = (ConnectionError, RuntimeError)
#: Ray Client's message if the environment of a session cannot be set up: no retry would help.
BAD_ENVIRONMENT = "Failed to create runtime_env"


def connect_with_retries(
    connect: Callable[[], T], *, timeout_s: float = CONNECT_TIMEOUT_S, pause_s: float = CONNECT_PAUSE_S
) -> T:
    """Connect, and retry until `timeout_s` have passed; then raise the last error.

    Pauses are random: two clients that reached each other's cluster must not retry at the same moment.
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
