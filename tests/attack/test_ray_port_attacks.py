"""What strangers and users can send to the port of Ray Client programs."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.attack.victim import Victim
from tests.support.raw_peer import REQUEST, Dial, RawPeer, dialing, message

from ray_multicluster_scheduler.ray_client.messages import CLUSTER_INFO_PATH, DATAPATH_PATH, pb
from raymc_relay import frames

PING = pb.ClusterInfoRequest(type=pb.ClusterInfoType.PING).SerializeToString()
#: Of a message that is announced as large as gRPC's own servers would take it.
LARGE = 32 * 2**20


@pytest.fixture
async def dial() -> AsyncIterator[Dial]:
    async with dialing() as connected:
        yield connected


def call(peer: RawPeer, stream_id: int, path: str, *, token: str = "", ends: bool = False) -> None:
    """Begin a call as a client of Ray does."""
    fields = [(name, path if name == ":path" else value) for name, value in REQUEST]
    fields += [("client_id", f"{stream_id:032d}")] + ([("authorization", f"Bearer {token}")] if token else [])
    peer.send(frames.header_frames(stream_id, peer.block(fields), end_stream=ends, most=16_384))


async def answered(peer: RawPeer, stream_id: int) -> bytes:
    """Return what the server answers in the end: data and trailers."""
    data = b""
    while (frame := await peer.read()) is not None:
        if frame.stream_id == stream_id and frame.kind == frames.DATA:
            data += frame.payload
        if frame.stream_id == stream_id and frame.kind == frames.RST_STREAM:
            break
        if frame.stream_id == stream_id and frame.kind == frames.HEADERS:
            data += repr(peer.decoder.decode(frame.payload)).encode()
            if frame.flags & frames.END_STREAM:
                break
    return data


async def ping(dial: Dial, server: Victim) -> bytes:
    peer = await dial(server.client_port)
    call(peer, 1, CLUSTER_INFO_PATH)
    peer.data(1, message(PING), ends=True)
    return await answered(peer, 1)


async def unfinished(dial: Dial, server: Victim, path: str, streams: int) -> RawPeer:
    """Begin large messages on many streams, send as much of them as the server lets pass, and end none."""
    peer = await dial(server.client_port)
    for stream_id in range(1, 2 * streams, 2):
        call(peer, stream_id, path)
        peer.data(stream_id, frames.message_prefix(LARGE))
    part = bytes(16_384)
    for _ in range(4 * 2**20 // len(part)):
        for stream_id in range(1, 2 * streams, 2):
            peer.data(stream_id, part)
        await peer.writer.drain()
        if peer.reader.at_eof():
            break
    return peer


@pytest.mark.parametrize("path", [CLUSTER_INFO_PATH, DATAPATH_PATH])
async def test_messages_that_never_end_take_no_memory(server: Victim, dial: Dial, path: str) -> None:
    await ping(dial, server)
    with server.costs_at_most(cpu_s=5.0, mib=64):
        reading: list[asyncio.Task[None]] = []
        try:
            peer = await unfinished(dial, server, path, 60)
            reading.append(asyncio.create_task(_drain(peer)))
        except ConnectionError:
            pass  # cut off
        assert b"'grpc-status', '0'" in await ping(dial, server)
    for task in reading:
        task.cancel()


async def _drain(peer: RawPeer) -> None:
    while await peer.read() is not None:
        pass


@pytest.mark.parametrize("role", ["read", "submit"])
async def test_a_pickle_of_some_bytes_takes_no_memory(server: Victim, dial: Dial, role: str) -> None:
    pickled = b"\x80\x02]r\xff\xff\xff\x03."  # names a place in memory 1 GiB away
    init = pb.DataRequest(req_id=1, init=pb.InitRequest(job_config=pickled)).SerializeToString()
    with server.costs_at_most(cpu_s=1.0, mib=48):
        peer = await dial(server.client_port)
        call(peer, 1, DATAPATH_PATH, token=server.tokens[role])
        peer.data(1, message(init), ends=True)
        answer = await answered(peer, 1)
    assert (b"may only read" if role == "read" else b"asks for memory") in answer


@pytest.mark.parametrize(
    "method", ["RayletDriver/Schedule", "RayletDriver/KVPut", "RayletLogStreamer/Logstream"]
)
async def test_a_token_that_may_only_read_calls_nothing(server: Victim, dial: Dial, method: str) -> None:
    peer = await dial(server.client_port)
    call(peer, 1, f"/ray.rpc.{method}", token=server.tokens["read"], ends=True)
    assert b"may only read" in await answered(peer, 1)


async def test_idle_connections_lock_nobody_out(server: Victim, dial: Dial) -> None:
    with server.costs_at_most(cpu_s=10.0, mib=64):
        for _ in range(400):
            await dial(server.client_port)
        assert b"'grpc-status', '0'" in await ping(dial, server)


async def test_settings_do_not_cost_more_with_each_stream(server: Victim, dial: Dial) -> None:
    changes = [frames.settings({frames.INITIAL_WINDOW_SIZE: size}) for size in (1_000, 60_000)]
    with server.costs_at_most(cpu_s=3.0, mib=32):
        peer = await dial(server.client_port)
        for stream_id in range(1, 201, 2):
            call(peer, stream_id, CLUSTER_INFO_PATH)
        await peer.ping()
        flood = b"".join(changes) * 2_000  # 60 kB
        peer.send(flood)
        found = await peer.until(frames.GOAWAY)
    assert frames.parse_goaway(found.payload)[1] == frames.ENHANCE_YOUR_CALM
    assert b"'grpc-status', '0'" in await ping(dial, server)
