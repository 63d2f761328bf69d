"""How calls through the relay end before their time."""

import asyncio

import grpc
import grpc.aio
import pytest
from tests.integration.relay.relay_scene import WAIT_S, Upstream, channel, relay_to
from tests.support.raw_peer import Dial, RawPeer, message, raw_server
from tests.support.waiting import eventually

from raymc_relay import (
    Connection,
    ConnectionFailed,
    ConnectionLost,
    Stream,
    StreamReset,
    connect,
    frames,
    listen,
    splice,
)


async def test_a_cancelled_call_is_cancelled_at_the_server(upstream: Upstream) -> None:
    async with relay_to(upstream.port) as relay, channel(relay.address) as client:
        call = client.unary_unary("/echo.Echo/Hang")(b"")
        await asyncio.wait_for(upstream.echo.started.wait(), WAIT_S)
        call.cancel()
        await asyncio.wait_for(upstream.echo.cancelled.wait(), WAIT_S)
        assert await client.unary_unary("/echo.Echo/Unary")(b"next") == b"next"


async def test_a_deadline_of_the_client_ends_the_call_at_the_server(upstream: Upstream) -> None:
    async with relay_to(upstream.port) as relay, channel(relay.address) as client:
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await client.unary_unary("/echo.Echo/Hang")(b"", timeout=0.5)
        assert error.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        await asyncio.wait_for(upstream.echo.cancelled.wait(), WAIT_S)


async def test_a_client_that_vanishes_is_cancelled_at_the_server(upstream: Upstream, dial: Dial) -> None:
    async with relay_to(upstream.port) as relay:
        peer = await dial(relay.listener.port)
        peer.request(1, "/echo.Echo/Hang")
        peer.data(1, message(b""), ends=True)
        await asyncio.wait_for(upstream.echo.started.wait(), WAIT_S)
        peer.writer.transport.abort()
        await asyncio.wait_for(upstream.echo.cancelled.wait(), WAIT_S)
        assert not next(iter(relay.connections.values())).streams


async def test_a_server_that_vanishes_makes_its_calls_unavailable() -> None:
    answered = asyncio.Event()

    async def serve(peer: RawPeer) -> None:
        await peer.reader.readexactly(len(frames.PREFACE))
        peer.send(frames.settings({}))
        await peer.until(frames.HEADERS, 1)
        peer.send(frames.frame(frames.HEADERS, frames.END_HEADERS, 1, peer.block([(":status", "200")])))
        peer.data(1, message(b"first"))
        await asyncio.wait_for(answered.wait(), WAIT_S)
        peer.writer.transport.abort()

    async def handle(stream: Stream, connection: Connection) -> None:
        splice(stream, connection.open(stream.headers))

    async with (
        raw_server(serve) as port,
        relay_to(port, handle=handle) as relay,
        channel(relay.address) as client,
    ):
        call = client.stream_stream("/echo.Echo/Bidi")()
        await call.write(b"hello")
        assert await call.read() == b"first"
        answered.set()
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await asyncio.wait_for(call.read(), WAIT_S)
        assert error.value.code() is grpc.StatusCode.UNAVAILABLE
        assert error.value.details()
        assert not next(iter(relay.connections.values())).is_open


async def test_a_server_that_stops_lets_the_client_know_why(upstream: Upstream) -> None:
    async with relay_to(upstream.port) as relay, channel(relay.address) as client:
        call = client.stream_stream("/echo.Echo/Bidi")()
        await call.write(b"hello")
        assert await call.read() == b"hello"
        await upstream.server.stop(0)
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await asyncio.wait_for(call.read(), WAIT_S)
        assert error.value.code() in {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED}


async def test_nobody_listens() -> None:
    async def serve(_: RawPeer) -> None:
        """Nobody comes."""

    async with raw_server(serve) as port:
        pass
    with pytest.raises(ConnectionFailed, match="cannot be reached"):
        await connect("127.0.0.1", port, timeout_s=WAIT_S)


async def test_a_server_that_says_nothing_is_given_up() -> None:
    async def serve(peer: RawPeer) -> None:
        await peer.reader.read()

    async with raw_server(serve) as port:
        with pytest.raises(ConnectionFailed, match="has not answered"):
            await connect("127.0.0.1", port, timeout_s=0.2)


async def test_a_server_that_speaks_something_else_is_no_grpc_server() -> None:
    async def serve(peer: RawPeer) -> None:
        peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async with raw_server(serve) as port:
        with pytest.raises(ConnectionFailed, match="no gRPC server"):
            await connect("127.0.0.1", port, timeout_s=WAIT_S)


async def test_a_listener_that_closes_lets_calls_end(upstream: Upstream) -> None:
    async with relay_to(upstream.port) as relay, channel(relay.address) as client:
        call = client.unary_unary("/echo.Echo/Hang")(b"late")
        await asyncio.wait_for(upstream.echo.started.wait(), WAIT_S)
        closing = asyncio.create_task(relay.listener.close(WAIT_S))
        await asyncio.sleep(0)
        upstream.echo.release.set()
        assert await asyncio.wait_for(call, WAIT_S) == b"late"
        await asyncio.wait_for(closing, WAIT_S)
        assert relay.listener.connections == 0


async def test_a_listener_that_has_waited_long_enough_ends_calls_as_unavailable(upstream: Upstream) -> None:
    async with relay_to(upstream.port) as relay, channel(relay.address) as client:
        call = client.unary_unary("/echo.Echo/Hang")(b"late")
        await asyncio.wait_for(upstream.echo.started.wait(), WAIT_S)
        await asyncio.wait_for(relay.listener.close(0.05), WAIT_S)
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await asyncio.wait_for(call, WAIT_S)
        assert error.value.code() is grpc.StatusCode.UNAVAILABLE
        await asyncio.wait_for(upstream.echo.cancelled.wait(), WAIT_S)


async def test_after_goaway_of_the_server_its_calls_go_on_and_new_ones_need_another_connection(
    upstream: Upstream,
) -> None:
    async with relay_to(upstream.port) as relay, channel(relay.address) as client:
        call = client.unary_unary("/echo.Echo/Hang")(b"late")
        await asyncio.wait_for(upstream.echo.started.wait(), WAIT_S)
        connection = next(iter(relay.connections.values()))
        stopping = asyncio.create_task(upstream.server.stop(WAIT_S))
        await eventually(lambda: not connection.is_open)  # the frame comes from another process
        with pytest.raises(ConnectionLost):
            connection.open([(":path", "/")])
        upstream.echo.release.set()
        assert await asyncio.wait_for(call, WAIT_S) == b"late"
        await asyncio.wait_for(connection.closed, WAIT_S)
        await asyncio.wait_for(stopping, WAIT_S)


@pytest.mark.parametrize("reads", [True, False])
async def test_a_handler_learns_that_its_client_has_gone(reads: bool, dial: Dial) -> None:
    """As an error if it reads from the stream; it is cancelled if it waits for something else."""
    ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    started = asyncio.Event()

    async def handler(stream: Stream) -> None:
        started.set()
        try:
            await (stream.read_message() if reads else asyncio.Event().wait())
        except StreamReset as error:
            ended.set_result(f"reset {error.code}")
        except asyncio.CancelledError:
            ended.set_result("cancelled")
            raise

    listener = await listen(handler, host="127.0.0.1", port=0)
    peer = await dial(listener.port)
    peer.request(1)
    await asyncio.wait_for(started.wait(), WAIT_S)
    peer.send(frames.rst_stream(1, frames.CANCEL))
    assert await asyncio.wait_for(ended, WAIT_S) == ("reset 8" if reads else "cancelled")
    await listener.close(0.1)
