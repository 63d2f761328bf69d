"""Knocking at a TCP port, without a word: a session of Ray Client would start a process on the cluster."""

from __future__ import annotations

import asyncio
import contextlib

from ray_multicluster_scheduler.asyncio_tools import within
from ray_multicluster_scheduler.cluster_health.diagnosis import Door


async def knock(host: str, port: int, *, timeout_s: float) -> Door:
    """Open a TCP connection and close it again."""
    try:
        _, writer = await within(timeout_s, asyncio.open_connection(host, port))
    except ConnectionRefusedError:
        return Door.REFUSED
    except (OSError, UnicodeError, asyncio.TimeoutError):
        return Door.SILENT
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return Door.OPEN
