"""The port of Ray Client programs: the same users and tokens as those of the HTTP port."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from prometheus_client import CollectorRegistry, Gauge

from ray_multicluster_scheduler.ray_client.http2 import RelayLimits, StrangerLimits, listen
from ray_multicluster_scheduler.ray_client.proxy import RayClientProxy
from ray_multicluster_scheduler.runtime import Scheduler
from ray_multicluster_scheduler.server.server_options import ServerOptions
from ray_multicluster_scheduler.service.callers import Callers

log = logging.getLogger(__name__)


@asynccontextmanager
async def serving_clients(
    scheduler: Scheduler,
    options: ServerOptions,
    listener: socket.socket,
    *,
    callers: Callers,
    registry: CollectorRegistry,
) -> AsyncIterator[None]:
    """Serve Ray Client programs while the block runs. Sessions go on: another server takes them over."""
    proxy = RayClientProxy(scheduler, callers, os.environ)
    gauge = Gauge(
        "raymc_client_sessions", "Ray Client sessions that are connected through here.", registry=registry
    )
    gauge.set_function(lambda: proxy.connected)
    listening = await listen(
        proxy.handle,
        sock=listener,
        ssl=_tls(options),
        limits=RelayLimits(strangers=StrangerLimits()),
        at_once=proxy.handle_at_once,
    )
    keeping = asyncio.create_task(proxy.upkeep.run())
    try:
        yield
    finally:
        await listening.close()
        keeping.cancel()
        with suppress(asyncio.CancelledError):
            await keeping
        await proxy.close()


def _tls(options: ServerOptions) -> ssl.SSLContext | None:
    if options.ssl_certfile is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(options.ssl_certfile, options.ssl_keyfile)
    context.set_alpn_protocols(["h2"])
    return context
