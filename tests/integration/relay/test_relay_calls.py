"""Calls of real gRPC clients to a real gRPC server, through the relay."""

import asyncio
from collections.abc import AsyncIterator

import grpc
import grpc.aio
import pytest
from tests.integration.relay.relay_scene import (
    OPTIONS,
    WAIT_S,
    Relay,
    Upstream,
    channel,
    relay_to,
)

MB = 2**20


@pytest.fixture
async def relay(upstream: Upstream) -> AsyncIterator[Relay]:
    async with relay_to(upstream.port) as running:
        yield running


async def test_a_unary_call_arrives_with_its_metadata_and_returns_with_both_headers(
    relay: Relay, upstream: Upstream
) -> None:
    async with channel(relay.address) as client:
        call = client.unary_unary("/echo.Echo/Unary")(
            b"hello", metadata=(("who", "me"), ("raw-bin", b"\0\xff"))
        )
        assert await call == b"hello"
        assert ("first", "headers") in list(await call.initial_metadata())
        assert ("last", "headers") in list(await call.trailing_metadata())
    assert ("who", "me") in upstream.echo.metadata
    assert ("raw-bin", b"\0\xff") in upstream.echo.metadata


async def test_many_unary_calls_one_after_the_other(relay: Relay) -> None:
    async with channel(relay.address) as client:
        call = client.unary_unary("/echo.Echo/Unary")
        for number in range(200):
            assert await call(b"%d" % number) == b"%d" % number


async def test_a_client_that_blocks(relay: Relay) -> None:
    def talk() -> bytes:
        with grpc.insecure_channel(relay.address, options=OPTIONS) as client:
            answer: bytes = client.unary_unary("/echo.Echo/Unary")(b"hello", timeout=WAIT_S)
            return answer

    assert await asyncio.to_thread(talk) == b"hello"


async def test_a_stream_of_answers(relay: Relay) -> None:
    async with channel(relay.address) as client:
        answers = [len(answer) async for answer in client.unary_stream("/echo.Echo/Down")(b"1000 10")]
    assert answers == [10] * 1000


async def test_a_thousand_messages_each_way(relay: Relay) -> None:
    async def requests() -> AsyncIterator[bytes]:
        for number in range(1000):
            yield b"%d" % number

    async with channel(relay.address) as client:
        answers = [answer async for answer in client.stream_stream("/echo.Echo/Bidi")(requests())]
    assert answers == [b"%d" % number for number in range(1000)]


async def test_the_end_of_the_requests_reaches_the_server(relay: Relay) -> None:
    async with channel(relay.address) as client:
        call = client.stream_unary("/echo.Echo/Up")()
        await call.write(b"12345")
        await call.done_writing()
        assert await call == b"5"


async def test_a_hundred_megabytes_each_way(relay: Relay) -> None:
    async def requests() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield bytes(5 * MB)

    async with channel(relay.address) as client:
        assert await client.stream_unary("/echo.Echo/Up")(requests()) == b"%d" % (100 * MB)
        answers = [
            len(answer) async for answer in client.unary_stream("/echo.Echo/Down")(b"20 %d" % (5 * MB))
        ]
    assert answers == [5 * MB] * 20


async def test_one_message_of_64_megabytes(relay: Relay) -> None:
    message = bytes(range(256)) * (64 * MB // 256)
    async with channel(relay.address) as client:
        assert await client.unary_unary("/echo.Echo/Unary")(message) == message


async def test_an_error_keeps_its_status_and_its_words(relay: Relay) -> None:
    words = "nicht möglich: 不可以 100%\n"
    async with channel(relay.address) as client:
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await client.unary_unary("/echo.Echo/Fail")(words.encode())
    assert error.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert error.value.details() == words


async def test_an_unknown_method_is_refused_by_the_server(relay: Relay) -> None:
    async with channel(relay.address) as client:
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await client.unary_unary("/echo.Echo/Nothing")(b"")
    assert error.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_fifty_clients_at_once(relay: Relay) -> None:
    async def talk(number: int) -> list[bytes]:
        async with channel(relay.address) as client:
            call = client.stream_stream("/echo.Echo/Bidi")()
            answers = []
            for turn in range(10):
                await call.write(b"%d %d" % (number, turn))
                answers.append(await call.read())
            await call.done_writing()
            assert await call.code() is grpc.StatusCode.OK
            return answers

    answers = await asyncio.wait_for(asyncio.gather(*(talk(number) for number in range(50))), WAIT_S)
    assert answers == [[b"%d %d" % (number, turn) for turn in range(10)] for number in range(50)]
