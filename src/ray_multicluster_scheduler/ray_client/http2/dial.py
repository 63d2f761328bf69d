"""Connect to a gRPC server."""

from __future__ import annotations

import asyncio
import ssl as tls

from ray_multicluster_scheduler.asyncio_tools import within
from ray_multicluster_scheduler.ray_client.http2.http2_connection import Connection
from ray_multicluster_scheduler.ray_client.http2.http2_errors import ConnectionFailed
from ray_multicluster_scheduler.ray_client.http2.relay_limits import RelayLimits

#: Clients that do not read take this much of a connection before they stop the answers for others.
UPSTREAM = RelayLimits(connection_window_bytes=2**29)


async def connect(
    host: str,
    port: int,
    *,
    ssl: tls.SSLContext | None = None,
    timeout_s: float,
    limits: RelayLimits | None = None,
) -> Connection:
    """Return a connection on which the server has said what it allows, or raise `ConnectionFailed`."""
    connection: Connection | None = None

    async def dialled() -> Connection:
        nonlocal connection
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda: Connection(limits or UPSTREAM), host, port, ssl=ssl
        )
        await connection.ready
        return connection

    try:
        connected = await within(timeout_s, dialled())
    except asyncio.TimeoutError:
        raise ConnectionFailed(f"{host}:{port} has not answered within {timeout_s:g} s") from None
    except OSError as error:
        raise ConnectionFailed(f"{host}:{port} cannot be reached: {error}") from error
    finally:
        if connection is not None and not connection.ready.done():
            connection.abort()  # nobody waits for it any more
    if connected.lost is not None:
        connected.abort()
        raise ConnectionFailed(f"{host}:{port} is no gRPC server: {connected.lost}")
    return connected
