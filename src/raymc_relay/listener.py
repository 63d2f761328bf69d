"""Connections of the relay: accept them and run a handler for each call, or open one to a gRPC server."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl as tls
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, cast

from raymc_relay.connection import Connection
from raymc_relay.errors import ConnectionFailed, RelayError, StreamReset, UnreadableMessage
from raymc_relay.limits import RelayLimits, keep_freed_memory
from raymc_relay.stream import Stream

Handler = Callable[[Stream], Awaitable[None]]
AtOnce = Callable[[Stream], bool]

#: A bound for what asyncio does in its next turn.
ABORT_S = 1.0

RESOURCE_EXHAUSTED, INTERNAL, UNAVAILABLE = 8, 13, 14
_logger = logging.getLogger(__name__)


class Listener:
    """A port on which a handler answers gRPC calls."""

    def __init__(self, handler: Handler, at_once: AtOnce | None, limits: RelayLimits) -> None:
        self._handler = handler
        self._at_once = at_once
        self._limits = limits
        self._server: asyncio.Server | None = None
        self._connections: set[Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._look: asyncio.TimerHandle | None = None

    @property
    def port(self) -> int:
        """The port on which it listens."""
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    @property
    def connections(self) -> int:
        """How many connections there are."""
        return len(self._connections)

    @property
    def buffered(self) -> int:
        """Bytes that wait for the clients."""
        return sum(connection.buffered for connection in self._connections)

    async def start(
        self,
        host: str | None,
        port: int | None,
        sock: socket.socket | None,
        ssl: tls.SSLContext | None,
    ) -> None:
        """Begin to listen."""
        keep_freed_memory()
        timeout = self._limits.handshake_timeout_s if ssl is not None else None
        where: dict[str, Any] = {"host": host, "port": port} if sock is None else {"sock": sock}
        self._look_at_idle_ones()
        self._server = await asyncio.get_running_loop().create_server(
            self._connection, **where, ssl=ssl, ssl_handshake_timeout=timeout, backlog=1024
        )

    async def close(self, grace_s: float = 5.0) -> None:
        """Accept nothing new, let calls under way end for a while, then end the rest as UNAVAILABLE."""
        if self._server is not None:
            self._server.close()
        if self._look is not None:
            self._look.cancel()
        for connection in list(self._connections):
            connection.go_away()
        await self._gone(grace_s)
        for connection in list(self._connections):
            for stream in list(connection.streams.values()):
                stream.finish(UNAVAILABLE, "the server is stopping")
            connection.close("the server is stopping")
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._gone(grace_s)
        for connection in list(self._connections):
            connection.abort()
        await self._gone(ABORT_S)

    async def _gone(self, timeout_s: float) -> None:
        if self._connections:
            await asyncio.wait([connection.closed for connection in self._connections], timeout=timeout_s)

    def _connection(self) -> asyncio.Protocol:
        return Connection(self._limits, self._accept, self._welcome)

    def _welcome(self, connection: Connection) -> bool:
        self._make_room(connection.peer[0])
        if len(self._connections) >= self._limits.connections:
            return False
        self._connections.add(connection)
        connection.closed.add_done_callback(lambda _: self._connections.discard(connection))
        return True

    def _make_room(self, address: str) -> None:
        """Close the oldest connection on which nobody has shown who it is, where these are too many."""
        limits = self._limits.strangers
        if limits is None:
            return
        strangers: dict[str, list[Connection]] = {}
        for connection in self._connections:
            if connection.is_stranger:
                strangers.setdefault(connection.peer[0], []).append(connection)
        crowd = strangers.get(address, [])
        if len(crowd) < limits.connections_per_address:
            is_full = len(self._connections) >= self._limits.connections
            if not is_full and sum(map(len, strangers.values())) < limits.connections:
                return
            crowd = max(strangers.values(), key=len, default=[])
        if crowd:
            oldest = min(crowd, key=lambda connection: connection.since)
            self._connections.discard(oldest)
            oldest.abort()

    def _look_at_idle_ones(self) -> None:
        """Close connections on which nobody shows who it is, and those without a call for long."""
        limits = self._limits.strangers
        if limits is None:
            return
        loop = asyncio.get_running_loop()
        now = loop.time()
        for connection in list(self._connections):
            if connection.is_stranger and now - connection.since > limits.known_within_s:
                connection.close("nobody has shown on this connection who it is")
            elif not connection.streams and now - connection.used_at > limits.idle_s:
                connection.go_away()
        self._look = loop.call_later(min(limits.known_within_s, limits.idle_s) / 10, self._look_at_idle_ones)

    def _accept(self, stream: Stream) -> None:
        if self._at_once is not None and self._is_done_at_once(stream, self._at_once):
            return
        work = cast("Coroutine[Any, Any, None]", self._handler(stream))
        task = asyncio.get_running_loop().create_task(work)
        stream.handler = task
        stream.connection.handlers += 1
        self._tasks.add(task)
        task.add_done_callback(partial(self._handled, stream))

    def _is_done_at_once(self, stream: Stream, at_once: AtOnce) -> bool:
        try:
            return at_once(stream)
        except RelayError as error:
            _end_with(stream, error)
            return True

    def _handled(self, stream: Stream, task: asyncio.Task[None]) -> None:
        """End a call that its handler has not ended."""
        self._tasks.discard(task)
        stream.handler = None
        stream.connection.handlers -= 1
        error = None if task.cancelled() else task.exception()
        if isinstance(error, RelayError):
            _end_with(stream, error)
        elif error is not None:
            _logger.error("the handler of a call failed", exc_info=error)
        if not stream.is_spliced:
            stream.finish(INTERNAL, "the call was not answered")


def _end_with(stream: Stream, error: RelayError) -> None:
    """End a call as the call to the server behind it, or the attempt to make it, has ended."""
    if isinstance(error, StreamReset):
        stream.reset(error.code)
    else:
        stream.finish(RESOURCE_EXHAUSTED if isinstance(error, UnreadableMessage) else UNAVAILABLE, str(error))


async def listen(
    handler: Handler,
    *,
    host: str | None = None,
    port: int | None = None,
    sock: socket.socket | None = None,
    ssl: tls.SSLContext | None = None,
    limits: RelayLimits | None = None,
    at_once: AtOnce | None = None,
) -> Listener:
    """Listen on a port (0: any) or on a bound socket, and run `handler` for each call.

    A handler answers or splices its stream before it returns. When the client goes away before that, what the
    handler waits for raises an error if it is the stream, and the handler is cancelled otherwise. If it
    raises a `RelayError`, the call ends with it; any other error is logged, and is INTERNAL for the client.

    `at_once` is asked first, while the headers are being received: if it can splice a call without waiting
    for anything, it does so and returns True, and no task is needed. Like the handler, it may raise a
    `RelayError`, but no other.
    """
    listener = Listener(handler, at_once, limits or RelayLimits())
    await listener.start(host, port, sock, ssl)
    return listener


# Connect to a gRPC server.


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

    # Before Python 3.12, `asyncio.wait_for` may swallow its own cancellation.
    dialling = asyncio.create_task(dialled())
    try:
        await asyncio.wait({dialling}, timeout=timeout_s)
        connected = dialling.result() if dialling.done() else None
    except OSError as error:
        raise ConnectionFailed(f"{host}:{port} cannot be reached: {error}") from error
    finally:
        dialling.cancel()
        await asyncio.gather(dialling, return_exceptions=True)
        if connection is not None and not connection.ready.done():
            connection.abort()  # nobody waits for it any more
    if connected is None:
        raise ConnectionFailed(f"{host}:{port} has not answered within {timeout_s:g} s")
    if connected.lost is not None:
        connected.abort()
        raise ConnectionFailed(f"{host}:{port} is no gRPC server: {connected.lost}")
    return connected
