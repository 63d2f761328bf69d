"""A web application on a real port of this machine: in the loop of the test, or in a thread beside it."""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from ray_multicluster_scheduler.embedded import EmbeddedScheduler
from ray_multicluster_scheduler.server.app import create_app
from ray_multicluster_scheduler.server.protocol import CarefulProtocol, CarefulWebSocket

#: Two ways of a program to one scheduler: in its own process, or behind a server that it asks over HTTP.
IN_PROCESS, OVER_HTTP = "in process", "over HTTP"
DOORS = (IN_PROCESS, OVER_HTTP)


class _Server(uvicorn.Server):
    """Says when it listens, and leaves the signals to the test."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.up.set()


@asynccontextmanager
async def serving(app: ASGIApp, *, certificate: Path | None = None) -> AsyncIterator[str]:
    """Serve an application in this loop; yields its address, `http://127.0.0.1:PORT`."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = _Server(
            uvicorn.Config(
                app,
                http=CarefulProtocol,
                ws=CarefulWebSocket,
                loop="asyncio",
                log_config=None,
                ssl_certfile=certificate,
                ssl_keyfile=certificate,
                timeout_graceful_shutdown=1,
            )
        )
        running = asyncio.create_task(server.serve(sockets=[listener]))
        up = asyncio.create_task(server.up.wait())
        await asyncio.wait({running, up}, return_when=asyncio.FIRST_COMPLETED)
        try:
            assert up.done(), "the application did not start; see its log"
            yield f"{'https' if certificate else 'http'}://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            up.cancel()
            server.should_exit = True
            await running


@contextmanager
def live(app: ASGIApp) -> Iterator[str]:
    """Serve an application in a thread, so that it answers whatever the test's own thread does."""
    ready = threading.Event()
    end: list[Callable[[], object]] = []
    found: list[str] = []

    async def serve() -> None:
        done, loop = asyncio.Event(), asyncio.get_running_loop()
        end.append(lambda: loop.call_soon_threadsafe(done.set))
        try:
            async with serving(app) as address:
                found.append(address)
                ready.set()
                await done.wait()
        finally:
            ready.set()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    assert ready.wait(60)
    assert found, "the application did not start; see its log"
    try:
        yield found[0]
    finally:
        end[0]()
        thread.join(30)
        assert not thread.is_alive()


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
