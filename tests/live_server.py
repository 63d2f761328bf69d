"""A web application on a real port, in a thread of the test."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp

from ray_multicluster_scheduler.server.protocol import CarefulProtocol
from ray_multicluster_scheduler.server.websocket_protocol import CarefulWebSocket


class _Quiet(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextmanager
def live(app: ASGIApp) -> Iterator[str]:
    """Serve an application; yields its address, `http://127.0.0.1:PORT`."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = uvicorn.Config(
            app,
            http=CarefulProtocol,
            ws=CarefulWebSocket,
            loop="asyncio",
            log_config=None,
            timeout_graceful_shutdown=1,
        )
        server, up = _Quiet(config), threading.Event()
        original = server.startup

        async def startup(sockets: list[socket.socket] | None = None) -> None:
            await original(sockets=sockets)
            up.set()

        server.startup = startup  # type: ignore[method-assign]
        thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])), daemon=True)
        thread.start()
        assert up.wait(60)
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(30)
            assert not thread.is_alive()
