"""Threads for calls that may wait for a cluster: a slow one must not take the threads of the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from anyio import to_thread
from starlette.requests import HTTPConnection

T = TypeVar("T")


async def in_cluster_thread(connection: HTTPConnection, call: Callable[[], T]) -> T:
    """Make a blocking call that talks to clusters."""
    return await to_thread.run_sync(call, limiter=connection.app.state.cluster_threads)
