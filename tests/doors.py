"""Two ways to one scheduler: in the process of the program, or behind a server that it asks over HTTP."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from tests.live_server import live

from ray_multicluster_scheduler.embedded import EmbeddedScheduler
from ray_multicluster_scheduler.server.app import create_app

IN_PROCESS, OVER_HTTP = "in process", "over HTTP"
DOORS = (IN_PROCESS, OVER_HTTP)


@asynccontextmanager
async def opened(door: str, config: Path) -> AsyncIterator[dict[str, str]]:
    """Yield the environment variables of a program that uses the scheduler of this configuration."""
    if door == IN_PROCESS:
        yield {"RAY_MULTICLUSTER_CONFIG": str(config)}
        return
    async with AsyncExitStack() as stack:
        scheduler = EmbeddedScheduler.open(config)
        await asyncio.to_thread(scheduler.start)
        stack.push_async_callback(asyncio.to_thread, scheduler.stop)
        yield {"RAY_MULTICLUSTER_ADDRESS": stack.enter_context(live(create_app(scheduler)))}
