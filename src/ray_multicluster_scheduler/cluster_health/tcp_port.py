"""The state of a TCP port, without any data: a Ray Client session would start a process on the cluster."""

from __future__ import annotations

import asyncio
import contextlib

from ray_multicluster_scheduler.asyncio_tools import within
from ray_multicluster_scheduler.cluster_health.diagnosis import PortState


async def port_state(host: str, port: int, *, timeout_s: float) -> PortState:
    """Return the state of a port: open a connection and close it at once."""
    try:
        _, writer = await within(timeout_s, asyncio.open_connection(host, port))
    except ConnectionRefusedError:
        return PortState.REFUSED
    except (OSError, UnicodeError, asyncio.TimeoutError):
        return PortState.SILENT
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return PortState.OPEN
