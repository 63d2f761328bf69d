"""Windows: nobody gets more than it allows, and what waits is bounded."""

import asyncio

import pytest
from tests.integration.relay.relay_scene import WAIT_S, Upstream, channel, gone, relay_to
from tests.support.raw_peer import REQUEST, Dial, RawPeer, data_of, message, raw_server
from tests.support.waiting import eventually

from raymc_relay import RelayLimits, Stream, TooManyStreams, connect, frames, listen

MB = 2**20


async def test_a_client_with_a_tiny_window_gets_no_more_than_it_allows(
    upstream: Upstream, dial: Dial
) -> None:
    async with relay_to(upstream.port) as relay:
        peer = await dial(relay.listener.port, {frames.INITIAL_WINDOW_SIZE: 7})
        peer.request(1)
        sent = message(bytes(range(200)))
        peer.data(1, sent, ends=True)
        await peer.until(frames.HEADERS, 1)
        allowed = 7
        while len(data_of(peer.seen, 1)) < len(sent):
            found = await peer.until(frames.DATA, 1)
            assert len(data_of(peer.seen, 1)) <= allowed
            if len(data_of(peer.seen, 1)) == allowed:
                assert not data_of(await peer.ping(), 1)
                allowed += 5
                peer.send(frames.window_update(1, 5))
            assert not found.flags & frames.END_STREAM
        await peer.until(frames.HEADERS, 1, flags=frames.END_STREAM)
        assert data_of(peer.seen, 1) == sent


async def test_a_smaller_setting_takes_back_what_was_allowed(upstream: Upstream, dial: Dial) -> None:
    async with relay_to(upstream.port) as relay:
        peer = await dial(relay.listener.port, {frames.INITIAL_WINDOW_SIZE: 100})
        peer.request(1)
        peer.data(1, message(bytes(995)))
        while len(data_of(peer.seen, 1)) < 100:
            await peer.until(frames.DATA, 1)
        peer.send(frames.settings({frames.INITIAL_WINDOW_SIZE: 10}))  # from 0 left to -90
        peer.send(frames.window_update(1, 90))
        assert not data_of(await peer.ping(), 1)
        peer.send(frames.window_update(1, 3))
        assert len(data_of(await peer.ping(), 1)) == 3
        peer.send(frames.settings({frames.INITIAL_WINDOW_SIZE: 30}))
        answers = await peer.ping()
        assert len(data_of(answers, 1)) == 20
        # gRPC takes data that need the new window for an error if they come before the answer to the setting.
        assert [frame.kind for frame in answers] == [frames.SETTINGS, frames.DATA]
        peer.send(frames.window_update(1, 10_000))
        assert len(data_of(await peer.ping(), 1)) == 1000 - 123


async def test_the_window_of_the_connection_is_shared(upstream: Upstream, dial: Dial) -> None:
    async with relay_to(upstream.port) as relay:
        peer = await dial(relay.listener.port, {frames.INITIAL_WINDOW_SIZE: MB})
        for stream_id in (1, 3, 5):
            peer.request(stream_id)
            peer.data(stream_id, message(bytes(40_000 - 5)))

        def total() -> int:
            return sum(len(data_of(peer.seen, stream_id)) for stream_id in (1, 3, 5))

        while total() < frames.DEFAULT_WINDOW:
            await peer.until(frames.DATA)
        assert total() == frames.DEFAULT_WINDOW
        assert not [frame for frame in await peer.ping() if frame.kind == frames.DATA]
        peer.send(frames.window_update(0, 120_000))
        while total() < 120_000:
            await peer.until(frames.DATA)
        assert {len(data_of(peer.seen, stream_id)) for stream_id in (1, 3, 5)} == {40_000}
        assert max(len(frame.payload) for frame in peer.seen) <= frames.DEFAULT_FRAME


async def test_a_server_that_does_not_read_stops_the_client_and_memory_is_bounded(upstream: Upstream) -> None:
    limits = RelayLimits()
    written = 0

    async with relay_to(upstream.port, limits=limits) as relay, channel(relay.address) as client:
        call = client.stream_stream("/echo.Echo/Stuck")()

        async def write() -> None:
            nonlocal written
            for _ in range(64):
                await call.write(bytes(MB))
                written += 1
            await call.done_writing()

        writing = asyncio.create_task(write())
        await asyncio.wait_for(upstream.echo.started.wait(), WAIT_S)
        connection = relay.connections[upstream.port]

        def waiting() -> int:
            return relay.listener.buffered + connection.buffered

        await eventually(lambda: waiting() > limits.stream_window_bytes // 2)
        # Everything that could flow has flowed when a call on the same connections has been answered.
        for _ in range(20):
            assert await client.unary_unary("/echo.Echo/Unary")(bytes(100_000)) == bytes(100_000)
        most = limits.stream_window_bytes + limits.write_buffer_bytes + MB
        assert waiting() < most
        assert written < 64
        upstream.echo.release.set()
        assert await asyncio.wait_for(call.read(), WAIT_S) == b"%d" % (64 * MB)
        await writing
        assert waiting() < MB


async def test_a_client_that_does_not_read_stops_the_server_and_memory_is_bounded(
    upstream: Upstream, dial: Dial
) -> None:
    limits = RelayLimits(write_buffer_bytes=64 * 1024, first_window_bytes=64 * 1024, stream_window_bytes=MB)
    async with relay_to(upstream.port, limits=limits, upstream_limits=limits) as relay:
        settings = {frames.INITIAL_WINDOW_SIZE: frames.LARGEST_WINDOW, frames.MAX_FRAME_SIZE: MB}
        peer = await dial(relay.listener.port, settings)
        peer.send(frames.window_update(0, frames.LARGEST_WINDOW - frames.DEFAULT_WINDOW))
        peer.request(1, "/echo.Echo/Down")
        peer.data(1, message(b"64 %d" % MB), ends=True)
        await peer.until(frames.HEADERS, 1)
        await eventually(lambda: relay.listener.buffered > MB // 2)  # the socket is full, and this side waits
        for _ in range(50):
            await asyncio.sleep(0.01)
            assert relay.listener.buffered <= limits.stream_window_bytes + limits.write_buffer_bytes + MB
        await peer.until(frames.HEADERS, 1, flags=frames.END_STREAM)
        assert len(data_of(peer.seen, 1)) == 64 * (MB + 5)


async def test_a_stream_that_nobody_reads_is_given_little_room() -> None:
    reading = asyncio.Event()

    async def handler(stream: Stream) -> None:
        await reading.wait()
        while await stream.read_message() is not None:
            pass
        stream.finish(0)

    limits = RelayLimits()
    listener = await listen(handler, host="127.0.0.1", port=0, limits=limits)
    async with channel(f"127.0.0.1:{listener.port}") as client:
        calls = [client.stream_unary("/a/B")(iter([bytes(2 * MB)])) for _ in range(4)]
        await eventually(lambda: listener.buffered == 4 * limits.first_window_bytes)
        reading.set()
        for call in calls:
            assert (await call.code()).value[0] == 0
    await listener.close(0.1)


async def test_a_ping_is_answered_while_a_handler_waits(dial: Dial) -> None:
    async def handler(_: Stream) -> None:
        await asyncio.Event().wait()

    listener = await listen(handler, host="127.0.0.1", port=0)
    peer = await dial(listener.port)
    peer.request(1)
    for _ in range(5):
        await peer.ping()
    await listener.close(0.1)


async def test_no_more_streams_are_opened_than_the_server_takes() -> None:
    async def serve(peer: RawPeer) -> None:
        await peer.reader.readexactly(len(frames.PREFACE))
        peer.send(frames.settings({frames.MAX_CONCURRENT_STREAMS: 2}))
        await peer.until(frames.RST_STREAM)

    async with raw_server(serve) as port:
        connection = await connect("127.0.0.1", port, timeout_s=WAIT_S)
        first = connection.open([(":path", "/")])
        connection.open([(":path", "/")])
        with pytest.raises(TooManyStreams):
            connection.open([(":path", "/")])
        first.reset()
        connection.open([(":path", "/")])
        await gone(connection)


async def test_a_client_with_too_many_streams_is_refused_the_next(dial: Dial) -> None:
    async def handler(_: Stream) -> None:
        await asyncio.Event().wait()

    listener = await listen(handler, host="127.0.0.1", port=0, limits=RelayLimits(streams=2))
    peer = await dial(listener.port)
    for stream_id in (1, 3, 5):
        peer.request(stream_id)
    refused = await peer.until(frames.RST_STREAM)
    assert (refused.stream_id, frames.number(refused.payload)) == (5, frames.REFUSED_STREAM)
    peer.send(frames.rst_stream(1, frames.CANCEL))
    await peer.ping()
    peer.request(7)
    assert not [frame for frame in await peer.ping() if frame.kind == frames.RST_STREAM]
    await listener.close(0.1)


async def test_padding_priority_unknown_frames_and_continuations_are_understood(
    upstream: Upstream, dial: Dial
) -> None:
    async with relay_to(upstream.port) as relay:
        peer = await dial(relay.listener.port)
        block = peer.block(REQUEST)
        flags = frames.PADDED | frames.HAS_PRIORITY
        peer.send(frames.frame(frames.PRIORITY, 0, 9, bytes(5)))
        peer.send(frames.frame(frames.HEADERS, flags, 1, b"\3" + bytes(5) + block[:4] + bytes(3)))
        peer.send(frames.frame(frames.CONTINUATION, 0, 1, block[4:9]))
        peer.send(frames.frame(frames.CONTINUATION, frames.END_HEADERS, 1, block[9:]))
        peer.send(frames.frame(0x77, 0xFF, 1, bytes(100_000)))
        sent = message(bytes(50_000))
        peer.send(frames.frame(frames.DATA, frames.PADDED, 1, b"\x64" + sent[:20_000] + bytes(100)))
        peer.send(frames.frame(frames.DATA, frames.PADDED, 1, b"\0" + sent[20_000:20_001]))
        peer.send(frames.frame(frames.DATA, 0, 1, b""))
        peer.data(1, sent[20_001:], ends=True)
        await peer.until(frames.HEADERS, 1)
        await peer.until(frames.HEADERS, 1, flags=frames.END_STREAM)
        assert data_of(peer.seen, 1) == sent
