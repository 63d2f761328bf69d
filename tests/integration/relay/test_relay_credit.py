"""However calls end, what they took of the window of their connection is given back."""

import asyncio
import random

import grpc.aio
import pytest
from tests.integration.relay.relay_scene import WAIT_S, Upstream, channel, relay_to
from tests.support.waiting import eventually

from raymc_relay import Connection, RelayLimits, Stream, splice

SMALL = RelayLimits(
    first_window_bytes=16_384,
    stream_window_bytes=65_536,
    connection_window_bytes=200_000,
    write_buffer_bytes=32_768,
)


def missing(connection: Connection) -> int:
    """Bytes of the window of a connection that its peer was not allowed to send again."""
    window = connection.limits.connection_window_bytes
    return window - (connection.allowed + connection._owed - connection.received)


async def one_call(client: grpc.aio.Channel, dice: random.Random) -> None:
    """Make a call of some kind and size, and perhaps leave it in the middle."""
    size = dice.choice([0, 1, 1000, 20_000, 100_000, 1_000_000])
    metadata = (("handler", dice.choice(["plain", "first", "half", "refuse", "gone"])),)
    kind = dice.choice(["Unary", "Fail", "Down", "Bidi", "Up"])
    call: grpc.aio.Call
    if kind in {"Unary", "Fail"}:
        call = client.unary_unary(f"/echo.Echo/{kind}")(
            b"x" * (size if kind == "Unary" else 5), metadata=metadata
        )
    elif kind == "Down":
        call = client.unary_stream("/echo.Echo/Down")(b"5 %d" % size, metadata=metadata)
    else:
        make = client.stream_stream if kind == "Bidi" else client.stream_unary
        call = make(f"/echo.Echo/{kind}")(iter([bytes(size)] * 5), metadata=metadata)
    if dice.random() < 0.4:
        await asyncio.sleep(dice.random() * 0.05)
        call.cancel()
    try:
        if kind in {"Down", "Bidi"}:
            async for _ in call:
                if dice.random() < 0.1:
                    call.cancel()
        else:
            await call
    except (grpc.aio.AioRpcError, asyncio.CancelledError):
        pass


async def handle(stream: Stream, connection: Connection) -> None:
    kind = dict(stream.metadata)["handler"]
    if kind == "refuse":
        stream.finish(7, "no")
        return
    with connection.open(stream.headers) as there:
        if kind == "gone":
            stream.finish(1)
            return
        if kind == "first" and (first := await stream.read_message()) is not None:
            await there.send_message(first)
        if kind == "half":
            await asyncio.sleep(0.01)
        splice(stream, there)


@pytest.mark.parametrize("seed", range(4))
async def test_no_credit_is_lost(upstream: Upstream, seed: int) -> None:
    dice = random.Random(seed)
    limits = SMALL if seed % 2 else RelayLimits()
    async with (
        relay_to(upstream.port, handle=handle, limits=limits, upstream_limits=limits) as relay,
        channel(relay.address) as client,
    ):
        for _ in range(6):
            calls = [one_call(client, random.Random(dice.random())) for _ in range(12)]
            await asyncio.wait_for(asyncio.gather(*calls), WAIT_S)
        [down] = relay.listener._connections
        up = relay.connections[upstream.port]

        await eventually(lambda: not (down.streams or up.streams or down.handlers))
        assert await client.unary_unary("/echo.Echo/Unary")(b"", metadata=(("handler", "plain"),)) == b""
        assert missing(down) == missing(up) == 0
        assert down.buffered == up.buffered == 0


async def test_a_server_that_is_lost_takes_no_credit_of_the_client_along(upstream: Upstream) -> None:
    dice = random.Random(1)
    async with (
        relay_to(upstream.port, handle=handle, limits=SMALL) as relay,
        channel(relay.address) as client,
    ):
        for _ in range(3):
            calls = [one_call(client, random.Random(dice.random())) for _ in range(12)]
            tasks = [asyncio.create_task(call) for call in calls]
            await asyncio.sleep(0.02)
            for connection in relay.connections.values():
                connection.abort()
            await asyncio.wait_for(asyncio.gather(*tasks), WAIT_S)
        [down] = relay.listener._connections
        assert await client.unary_unary("/echo.Echo/Unary")(b"", metadata=(("handler", "plain"),)) == b""
        assert missing(down) == 0
