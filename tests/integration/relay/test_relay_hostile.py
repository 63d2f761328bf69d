"""Peers that mean no good lose their connection; others notice nothing."""

import asyncio
import logging
import random
from collections.abc import AsyncIterator

import grpc.aio
import pytest
from tests.integration.relay.relay_scene import WAIT_S, channel
from tests.support.raw_peer import REQUEST, Dial, RawPeer, message, raw_server

from raymc_relay import (
    ConnectionFailed,
    ConnectionLost,
    Listener,
    RelayLimits,
    StrangerLimits,
    Stream,
    connect,
    frames,
    listen,
)

LIMITS = RelayLimits(handshake_timeout_s=0.3, resets=50, resets_per_second=1.0, connections=50)


@pytest.fixture
async def listener(caplog: pytest.LogCaptureFixture) -> AsyncIterator[Listener]:
    """Echoes; in the end, an honest client is served, and nothing was logged."""

    async def echo(stream: Stream) -> None:
        while (request := await stream.read_message()) is not None:
            await stream.send_message(request)
        stream.finish(0)

    with caplog.at_level(logging.INFO):
        running = await listen(echo, host="127.0.0.1", port=0, limits=LIMITS)
        yield running
        async with channel(f"127.0.0.1:{running.port}") as client:
            assert await asyncio.wait_for(client.unary_unary("/a/B")(b"still here"), WAIT_S) == b"still here"
        await running.close(0.1)
        assert running.connections == 0
    assert not [record for record in caplog.records if record.name.startswith(("asyncio", "ray_"))]


async def test_random_bytes(listener: Listener) -> None:
    dice = random.Random(7)
    for number in range(1000):
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        noise = dice.randbytes(dice.choice((1, 9, 30, 200, 5000)))
        if number % 2:  # past the door
            noise = frames.PREFACE + frames.settings({}) + noise
        if number % 4 == 3:  # frames of all kinds with random contents
            parts = (dice.randrange(12), dice.randrange(256), dice.randrange(5), noise[-dice.randrange(40) :])
            noise = frames.PREFACE + frames.settings({}) + frames.frame(*parts) + noise
        writer.write(noise)
        writer.write_eof()
        assert len(await asyncio.wait_for(reader.read(), WAIT_S)) < 10_000
        writer.close()


@pytest.mark.parametrize("start", [b"", frames.PREFACE[:10], frames.PREFACE, frames.PREFACE + b"\0\0"])
async def test_who_never_finishes_its_greeting_is_not_waited_for(listener: Listener, start: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    writer.write(start)
    await asyncio.wait_for(reader.read(), WAIT_S)
    writer.close()


async def test_who_never_finishes_its_headers_is_not_waited_for(listener: Listener, dial: Dial) -> None:
    peer = await dial(listener.port)
    peer.send(frames.frame(frames.HEADERS, 0, 1, b""))
    assert await peer.closing_code() == frames.SETTINGS_TIMEOUT


HEADERS_FRAME = frames.frame(frames.HEADERS, frames.END_HEADERS, 1, b"\x84\x83\x86")
BREAKS = {
    "a frame that is too large": (frames.pack_header((2**20 + 1) << 8, 0, 1), frames.FRAME_SIZE_ERROR),
    "large settings": (frames.pack_header(2**19 << 8 | frames.SETTINGS, 0, 0), frames.FRAME_SIZE_ERROR),
    "a stream of the server": (frames.frame(frames.HEADERS, 4, 2, b"\x84"), frames.PROTOCOL_ERROR),
    "headers of no stream": (frames.frame(frames.HEADERS, 4, 0, b"\x84"), frames.PROTOCOL_ERROR),
    "data of no stream": (frames.frame(frames.DATA, 0, 0, b"x"), frames.PROTOCOL_ERROR),
    "data before headers": (frames.frame(frames.DATA, 0, 1, b"x"), frames.PROTOCOL_ERROR),
    "a reset of nothing": (frames.rst_stream(7, 0), frames.PROTOCOL_ERROR),
    "a promise": (frames.frame(frames.PUSH_PROMISE, 4, 1, bytes(4)), frames.PROTOCOL_ERROR),
    "a short ping": (frames.ping(b"1234"), frames.FRAME_SIZE_ERROR),
    "settings of five bytes": (frames.frame(frames.SETTINGS, 0, 0, bytes(5)), frames.FRAME_SIZE_ERROR),
    "a tiny frame size": (frames.settings({frames.MAX_FRAME_SIZE: 100}), frames.PROTOCOL_ERROR),
    "a huge window": (frames.settings({frames.INITIAL_WINDOW_SIZE: 2**31}), frames.FLOW_CONTROL_ERROR),
    "no increment": (frames.window_update(0, 0), frames.FLOW_CONTROL_ERROR),
    "a window that overflows": (frames.window_update(0, frames.LARGEST_WINDOW), frames.FLOW_CONTROL_ERROR),
    "a stream window that overflows by a setting": (
        HEADERS_FRAME
        + frames.window_update(1, frames.LARGEST_WINDOW - frames.DEFAULT_WINDOW)
        + frames.settings({frames.INITIAL_WINDOW_SIZE: 2**20}),
        frames.FLOW_CONTROL_ERROR,
    ),
    "a lonely continuation": (frames.frame(frames.CONTINUATION, 4, 1, b"\x84"), frames.PROTOCOL_ERROR),
    "another frame inside headers": (
        frames.frame(frames.HEADERS, 0, 1, b"\x84") + frames.ping(bytes(8)),
        frames.PROTOCOL_ERROR,
    ),
    "data inside headers": (
        frames.frame(frames.HEADERS, 0, 1, b"\x84") + frames.frame(frames.DATA, 0, 1, b"x"),
        frames.PROTOCOL_ERROR,
    ),
    "too many continuations": (
        frames.frame(frames.HEADERS, 0, 1, b"\x84") + frames.frame(frames.CONTINUATION, 0, 1) * 100,
        frames.ENHANCE_YOUR_CALM,
    ),
    "large headers": (
        frames.frame(frames.HEADERS, 0, 1, bytes(60_000))
        + frames.frame(frames.CONTINUATION, 0, 1, bytes(9_000)),
        frames.ENHANCE_YOUR_CALM,
    ),
    "headers that grow when they are decoded": (
        frames.frame(frames.HEADERS, 4, 1, b"\x90" * 60_000),
        frames.ENHANCE_YOUR_CALM,
    ),
    "an index that is not there": (frames.frame(frames.HEADERS, 4, 1, b"\xfe"), frames.COMPRESSION_ERROR),
    "a header with a line break": (
        frames.frame(frames.HEADERS, 4, 1, b"\x00\x01a\x03b\r\n"),
        frames.PROTOCOL_ERROR,
    ),
    "more padding than data": (
        HEADERS_FRAME + frames.frame(frames.DATA, frames.PADDED, 1, b"\x09x"),
        frames.PROTOCOL_ERROR,
    ),
    "headers in the middle": (HEADERS_FRAME * 2, frames.PROTOCOL_ERROR),
}


@pytest.mark.parametrize("name", BREAKS)
async def test_a_broken_rule_ends_the_connection(listener: Listener, dial: Dial, name: str) -> None:
    sent, code = BREAKS[name]
    peer = await dial(listener.port)
    peer.send(sent)
    assert await peer.closing_code() == code


async def test_a_first_frame_other_than_settings_ends_the_connection(listener: Listener) -> None:
    peer = RawPeer(*await asyncio.open_connection("127.0.0.1", listener.port))
    peer.send(frames.PREFACE + frames.ping(bytes(8)))
    assert await peer.closing_code() == frames.PROTOCOL_ERROR
    await peer.close()


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (frames.window_update(1, 0), frames.PROTOCOL_ERROR),
        (frames.window_update(1, frames.LARGEST_WINDOW), frames.FLOW_CONTROL_ERROR),
        (frames.frame(frames.DATA, 1, 1) + frames.frame(frames.DATA, 0, 1, b"x"), frames.STREAM_CLOSED),
    ],
)
async def test_a_mistake_on_a_stream_ends_only_the_stream(
    listener: Listener, dial: Dial, sent: bytes, code: int
) -> None:
    peer = await dial(listener.port)
    peer.send(HEADERS_FRAME + sent)
    peer.request(3)
    peer.data(3, message(b"hello"), ends=True)
    reset = await peer.until(frames.RST_STREAM, 1)
    assert frames.number(reset.payload) == code
    await peer.until(frames.HEADERS, 3, flags=frames.END_STREAM)


async def test_more_data_than_the_window_ends_the_stream(dial: Dial) -> None:
    async def handler(_: Stream) -> None:
        await asyncio.Event().wait()

    running = await listen(handler, host="127.0.0.1", port=0)
    peer = await dial(running.port)
    peer.request(1)
    for _ in range(300):
        peer.data(1, bytes(1000))
    reset = await peer.until(frames.RST_STREAM, 1)
    assert frames.number(reset.payload) == frames.FLOW_CONTROL_ERROR
    await peer.ping()
    await running.close(0.1)


async def test_streams_that_are_opened_and_reset_without_end(listener: Listener, dial: Dial) -> None:
    peer = await dial(listener.port)
    for number in range(1000):
        peer.request(2 * number + 1)
        peer.send(frames.rst_stream(2 * number + 1, frames.CANCEL))
    assert await peer.closing_code() == frames.ENHANCE_YOUR_CALM


async def test_mistakes_that_make_the_server_reset_streams(listener: Listener, dial: Dial) -> None:
    peer = await dial(listener.port)
    for number in range(1000):
        peer.request(2 * number + 1)
        peer.send(frames.window_update(2 * number + 1, 0))
    assert await peer.closing_code() == frames.ENHANCE_YOUR_CALM


@pytest.mark.parametrize("flood", [frames.ping(bytes(8)), frames.settings({})], ids=["ping", "settings"])
async def test_a_flood_of_questions_whose_answers_nobody_reads(
    listener: Listener, dial: Dial, flood: bytes
) -> None:
    peer = await dial(listener.port)
    peer.writer.transport.pause_reading()

    async def ask() -> None:
        while True:
            peer.send(flood * 1000)
            await peer.writer.drain()
            await asyncio.sleep(0)
            assert listener.buffered < LIMITS.write_buffer_bytes + LIMITS.control_bytes + 2**19

    with pytest.raises(ConnectionError):
        await asyncio.wait_for(ask(), WAIT_S)


async def test_there_is_a_bound_on_connections(listener: Listener) -> None:
    pairs = [await asyncio.open_connection("127.0.0.1", listener.port) for _ in range(60)]
    for reader, _ in pairs[-5:]:
        assert await asyncio.wait_for(reader.read(), WAIT_S) == b""
    for _, writer in pairs:
        writer.close()
    for reader, _ in pairs:
        await asyncio.wait_for(reader.read(), WAIT_S)


async def test_a_server_that_breaks_the_rules_is_lost() -> None:
    async def serve(peer: RawPeer) -> None:
        await peer.reader.readexactly(len(frames.PREFACE))
        peer.send(frames.settings({}))
        await peer.until(frames.HEADERS, 1)
        peer.send(frames.frame(frames.HEADERS, 4, 2, peer.block(REQUEST)))

    async with raw_server(serve) as port:
        connection = await connect("127.0.0.1", port, timeout_s=WAIT_S)
        call = connection.open(REQUEST)
        with pytest.raises(ConnectionLost):
            await asyncio.wait_for(call.read_message(), WAIT_S)
        assert not connection.is_open
        await asyncio.wait_for(connection.closed, WAIT_S)


async def test_random_bytes_of_a_server() -> None:
    dice = random.Random(8)

    async def serve(peer: RawPeer) -> None:
        peer.send(frames.settings({}) + dice.randbytes(3000))
        peer.writer.write_eof()

    async with raw_server(serve) as port:
        for _ in range(100):
            try:
                connection = await connect("127.0.0.1", port, timeout_s=WAIT_S)
            except ConnectionFailed:
                continue
            await asyncio.wait_for(connection.closed, WAIT_S)


async def test_headers_are_never_logged(caplog: pytest.LogCaptureFixture, listener: Listener) -> None:
    with caplog.at_level(logging.DEBUG):
        async with channel(f"127.0.0.1:{listener.port}") as client:
            secret = (("authorization", "Bearer 0123secret"),)
            call: grpc.aio.UnaryUnaryCall = client.unary_unary("/a/B")(b"", metadata=secret)
            assert await call == b""
    assert "secret" not in caplog.text
    caplog.clear()


async def test_who_does_not_show_who_it_is_has_to_go(dial: Dial) -> None:
    async def trusting(stream: Stream) -> None:
        stream.connection.trust()
        stream.finish(0)

    strangers = StrangerLimits(known_within_s=5, idle_s=WAIT_S, connections_per_address=3)
    running = await listen(
        trusting, host="127.0.0.1", port=0, limits=RelayLimits(connections=4, strangers=strangers)
    )
    try:
        known = await dial(running.port)
        known.request(1, ends=True)
        await known.until(frames.HEADERS)
        idle = [await dial(running.port) for _ in range(6)]  # the first ones make room for the last ones
        assert await idle[-1].closing_code() == frames.NO_ERROR
        known.request(3, ends=True)
        assert (await known.until(frames.HEADERS)).stream_id == 3
    finally:
        await running.close(0.1)
