"""A gRPC server that echoes, a relay in front of it, and clients."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import grpc
import grpc.aio
from tests.support.waiting import PATIENCE_S

from raymc_relay import (
    Connection,
    Listener,
    RelayLimits,
    Stream,
    connect,
    listen,
    splice,
)

OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),
]
WAIT_S = PATIENCE_S


class Echo(grpc.GenericRpcHandler):
    """Methods on raw bytes. What it was called with is kept."""

    def __init__(self) -> None:
        self.cancelled = asyncio.Event()
        self.started = asyncio.Event()
        self.metadata: list[tuple[str, str]] = []
        self.received = 0
        self.release = asyncio.Event()

    def service(self, call: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        name = call.method.rpartition("/")[2]
        self.metadata = list(call.invocation_metadata)
        if name in {"Unary", "Fail", "Hang"}:
            return grpc.unary_unary_rpc_method_handler(getattr(self, name.lower()))
        if name == "Down":
            return grpc.unary_stream_rpc_method_handler(self.down)
        if name == "Up":
            return grpc.stream_unary_rpc_method_handler(self.up)
        if name in {"Bidi", "Stuck"}:
            return grpc.stream_stream_rpc_method_handler(getattr(self, name.lower()))
        return None

    async def unary(self, request: bytes, context: grpc.aio.ServicerContext) -> bytes:
        await context.send_initial_metadata((("first", "headers"),))
        context.set_trailing_metadata((("last", "headers"),))
        return request

    async def fail(self, request: bytes, context: grpc.aio.ServicerContext) -> bytes:
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, request.decode())
        raise AssertionError

    async def hang(self, request: bytes, context: grpc.aio.ServicerContext) -> bytes:
        self.started.set()
        try:
            await self.release.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return request

    async def down(self, request: bytes, context: grpc.aio.ServicerContext) -> AsyncIterator[bytes]:
        count, size = map(int, request.split())
        for _ in range(count):
            yield bytes(size)

    async def up(self, requests: AsyncIterator[bytes], context: grpc.aio.ServicerContext) -> bytes:
        async for request in requests:
            self.received += len(request)
        return str(self.received).encode()

    async def bidi(
        self, requests: AsyncIterator[bytes], context: grpc.aio.ServicerContext
    ) -> AsyncIterator[bytes]:
        try:
            async for request in requests:
                yield request
        except asyncio.CancelledError:
            self.cancelled.set()
            raise

    async def stuck(
        self, requests: AsyncIterator[bytes], context: grpc.aio.ServicerContext
    ) -> AsyncIterator[bytes]:
        """Read nothing before it is released."""
        self.started.set()
        await self.release.wait()
        async for request in requests:
            self.received += len(request)
        yield str(self.received).encode()


@dataclass(kw_only=True)
class Upstream:
    server: grpc.aio.Server
    port: int
    echo: Echo


@asynccontextmanager
async def upstream_server() -> AsyncIterator[Upstream]:
    echo = Echo()
    server = grpc.aio.server(options=OPTIONS)
    server.add_generic_rpc_handlers((echo,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield Upstream(server=server, port=port, echo=echo)
    finally:
        await server.stop(0)


async def plain(stream: Stream, upstream: Connection) -> None:
    """Pass a call on as it is."""
    splice(stream, upstream.open(stream.headers))


@dataclass(kw_only=True)
class Relay:
    """A listener that opens one connection to each server that its handler asks for."""

    listener: Listener
    connections: dict[int, Connection] = field(default_factory=dict)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.listener.port}"


@asynccontextmanager
async def relay_to(
    *ports: int,
    handle: Callable[[Stream, Connection], Awaitable[None]] = plain,
    choose: Callable[[Stream], int] = lambda _: 0,
    limits: RelayLimits | None = None,
    upstream_limits: RelayLimits | None = None,
) -> AsyncIterator[Relay]:
    """A relay to servers on these ports; `choose` returns the index of one for a call."""
    connections: dict[int, Connection] = {}
    lock = asyncio.Lock()

    async def handler(stream: Stream) -> None:
        port = ports[choose(stream)]
        async with lock:
            found = connections.get(port)
            if found is None or not found.is_open:
                found = await connect("127.0.0.1", port, timeout_s=WAIT_S, limits=upstream_limits)
                connections[port] = found
        await handle(stream, found)

    listener = await listen(handler, host="127.0.0.1", port=0, limits=limits)
    try:
        yield Relay(listener=listener, connections=connections)
    finally:
        await listener.close(grace_s=0.2)
        for connection in connections.values():
            await gone(connection)


async def gone(connection: Connection) -> None:
    """Close a connection, and wait until its socket is closed."""
    connection.close()
    connection.abort()
    await asyncio.wait_for(connection.closed, WAIT_S)


def channel(address: str) -> grpc.aio.Channel:
    return grpc.aio.insecure_channel(address, options=OPTIONS)
