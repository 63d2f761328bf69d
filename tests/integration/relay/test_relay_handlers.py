"""What a handler can do with a call before it splices it."""

import asyncio
import logging

import grpc
import grpc.aio
import pytest
from tests.integration.relay.relay_scene import WAIT_S, Upstream, channel, relay_to, upstream_server
from tests.support.raw_peer import Dial, data_of, message

from raymc_relay import (
    Connection,
    Stream,
    UnreadableMessage,
    listen,
    splice,
)


@pytest.mark.parametrize("other", [b"", b"longer " * 20_000])
async def test_the_first_message_can_be_another_one(upstream: Upstream, other: bytes) -> None:
    async def handle(stream: Stream, connection: Connection) -> None:
        assert await stream.read_message() == b"first"
        there = connection.open(stream.headers)
        await there.send_message(other)
        splice(stream, there)

    async with relay_to(upstream.port, handle=handle) as relay, channel(relay.address) as client:
        call = client.stream_stream("/echo.Echo/Bidi")(iter([b"first", b"second"]))
        assert [answer async for answer in call] == [other, b"second"]


async def test_the_first_reply_can_be_looked_at(upstream: Upstream) -> None:
    seen: list[object] = []

    async def handle(stream: Stream, connection: Connection) -> None:
        there = connection.open(stream.headers)
        first = await stream.read_message()
        assert first is not None
        await there.send_message(first)
        reply = await there.read_message()
        assert reply is not None
        seen.append(reply)
        await stream.send_message(b"seen " + reply)
        splice(stream, there)

    async with relay_to(upstream.port, handle=handle) as relay, channel(relay.address) as client:
        call = client.stream_stream("/echo.Echo/Bidi")(iter([b"first", b"second"]))
        assert [answer async for answer in call] == [b"seen first", b"second"]
    assert seen == [b"first"]


async def test_a_whole_answer_can_be_there_before_the_splice(upstream: Upstream) -> None:
    async def handle(stream: Stream, connection: Connection) -> None:
        there = connection.open(stream.headers)
        first = await stream.read_message()
        assert first is not None
        await there.send_message(first)
        there.half_close()
        await there.closed()
        splice(stream, there)

    async with relay_to(upstream.port, handle=handle) as relay, channel(relay.address) as client:
        call = client.unary_unary("/echo.Echo/Unary")(b"hello")
        assert await call == b"hello"
        assert ("last", "headers") in list(await call.trailing_metadata())
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await client.unary_unary("/echo.Echo/Fail")(b"no")
        assert error.value.details() == "no"


async def test_a_message_that_was_read_in_part_is_passed_on_whole(upstream: Upstream, dial: Dial) -> None:
    half_read = asyncio.Event()

    async def handle(stream: Stream, connection: Connection) -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(stream.read_message(), 0.2)
        half_read.set()
        splice(stream, connection.open(stream.headers))

    async with relay_to(upstream.port, handle=handle) as relay:
        peer = await dial(relay.listener.port)
        peer.request(1)
        whole = message(b"0123456789")
        peer.data(1, whole[:8])
        await asyncio.wait_for(half_read.wait(), WAIT_S)
        peer.data(1, whole[8:], ends=True)
        await peer.until(1, 1)
        await peer.until(1, 1, flags=1)
        assert data_of(peer.seen, 1) == whole


async def test_a_message_that_is_too_large_to_be_read_can_be_passed_on(upstream: Upstream) -> None:
    async def handle(stream: Stream, connection: Connection) -> None:
        with pytest.raises(UnreadableMessage):
            await stream.read_message(most_bytes=1000)
        splice(stream, connection.open(stream.headers))

    async with relay_to(upstream.port, handle=handle) as relay, channel(relay.address) as client:
        assert await client.unary_unary("/echo.Echo/Unary")(bytes(300_000)) == bytes(300_000)


async def test_a_handler_can_answer_by_itself() -> None:
    async def handler(stream: Stream) -> None:
        if stream.path == "/a/Refused":
            stream.finish(16, "kein Zutritt: 不")
            return
        assert ("who", "me") in stream.metadata
        assert stream.peer[0] == "127.0.0.1"
        while (request := await stream.read_message()) is not None:
            await stream.send_message(request.upper())
        stream.finish(0)

    listener = await listen(handler, host="127.0.0.1", port=0)
    async with channel(f"127.0.0.1:{listener.port}") as client:
        call = client.stream_stream("/a/B")(iter([b"a", b"b" * 300_000]), metadata=(("who", "me"),))
        assert [answer async for answer in call] == [b"A", b"B" * 300_000]
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await client.unary_unary("/a/Refused")(b"")
        assert (error.value.code(), error.value.details()) == (
            grpc.StatusCode.UNAUTHENTICATED,
            "kein Zutritt: 不",
        )
    await listener.close(0.1)


@pytest.mark.parametrize("raises", [True, False])
async def test_a_handler_that_does_not_answer_is_an_internal_error(
    raises: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def handler(_: Stream) -> None:
        if raises:
            raise RuntimeError("a mistake")

    listener = await listen(handler, host="127.0.0.1", port=0)
    with caplog.at_level(logging.ERROR):
        async with channel(f"127.0.0.1:{listener.port}") as client:
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await client.unary_unary("/a/B")(b"")
    assert error.value.code() is grpc.StatusCode.INTERNAL
    assert bool(caplog.records) is raises
    await listener.close(0.1)


async def test_calls_of_one_connection_go_to_several_servers() -> None:
    def choose(stream: Stream) -> int:
        return int(dict(stream.metadata)["to"])

    async with (
        upstream_server() as one,
        upstream_server() as two,
        relay_to(one.port, two.port, choose=choose) as relay,
        channel(relay.address) as client,
    ):
        bidi = client.stream_stream("/echo.Echo/Bidi")
        calls = [bidi(metadata=(("to", str(number % 2)),)) for number in range(10)]
        for number, call in enumerate(calls):
            await call.write(b"%d" % number)
        assert [await call.read() for call in calls] == [b"%d" % number for number in range(10)]
        assert relay.listener.connections == 1
        await two.server.stop(0)
        for number, call in enumerate(calls):
            if number % 2 == 0:
                await call.write(b"still here")
                assert await call.read() == b"still here"
                await call.done_writing()
            assert (await call.code() is grpc.StatusCode.OK) == (number % 2 == 0)


async def test_a_call_can_be_spliced_without_a_task(upstream: Upstream) -> None:
    async with relay_to(upstream.port) as other, channel(other.address) as first:
        await first.unary_unary("/echo.Echo/Unary")(b"")
        connection = other.connections[upstream.port]

        def at_once(stream: Stream) -> bool:
            splice(stream, connection.open(stream.headers))
            return True

        async def handler(_: Stream) -> None:
            raise AssertionError

        listener = await listen(handler, host="127.0.0.1", port=0, at_once=at_once)
        async with channel(f"127.0.0.1:{listener.port}") as client:
            assert await client.unary_unary("/echo.Echo/Unary")(b"hello") == b"hello"
        await listener.close(0.1)
