"""The websocket by which Ray's clients follow logs."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from tests.contract.ray_jobs.gateway import Gateway, a_gateway
from tests.support.system import fake
from tests.support.waiting import eventually

from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.server.ray_jobs import FRAME_CHARS


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    async with a_gateway(tmp_path, fake("a", 1)) as running:
        yield running


@pytest.fixture
async def http(gateway: Gateway) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(gateway.address) as session:
        yield session


async def read(socket: aiohttp.ClientWebSocketResponse) -> list[str]:
    """Read to the end; every frame is text."""
    frames = []
    while (message := await socket.receive(120)).type is aiohttp.WSMsgType.TEXT:
        frames.append(message.data)
    assert message.type in {aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED}
    return frames


async def test_long_output_comes_in_frames_of_rays_size(
    gateway: Gateway, http: aiohttp.ClientSession
) -> None:
    job = await gateway.system.submit("echo " + "x" * 3 * FRAME_CHARS)
    async with http.ws_connect(f"/api/jobs/{job}/logs/tail") as socket:
        frames = await read(socket)
    assert socket.close_code == 1000
    assert max(map(len, frames)) <= FRAME_CHARS
    assert "".join(frames).count("x" * 3 * FRAME_CHARS) == 2  # the command itself is in the log too


async def test_nothing_is_sent_before_the_job_starts_and_its_end_can_be_read_after_the_socket_closed(
    gateway: Gateway, http: aiohttp.ClientSession
) -> None:
    running = await gateway.system.submit("sleep 1000")
    await gateway.system.until(running, JobState.RUNNING)
    job = await gateway.system.submit("echo hi")
    async with http.ws_connect(f"/api/jobs/{job}/logs/tail") as socket:
        await socket.send_str("what a client says is not looked at")
        reading = asyncio.create_task(read(socket))
        await http.post(f"/api/jobs/{job}/stop")
        assert await reading == []
        async with http.get(f"/api/jobs/{job}") as answer:
            assert (await answer.json())["status"] == "STOPPED"
    assert socket.close_code == 1000


async def test_an_unknown_job_is_refused_before_the_handshake(http: aiohttp.ClientSession) -> None:
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        async with http.ws_connect("/api/jobs/nope/logs/tail"):
            pass
    assert refused.value.status == 404


async def test_a_client_that_leaves_leaves_nothing_behind(
    gateway: Gateway, http: aiohttp.ClientSession
) -> None:
    job = await gateway.system.submit("echo begun; sleep 1000")
    for _ in range(5):
        async with http.ws_connect(f"/api/jobs/{job}/logs/tail") as socket:
            message = await socket.receive(120)
            assert message.type is aiohttp.WSMsgType.TEXT
            assert tasks_of_tails()
    await eventually(lambda: not tasks_of_tails())


def tasks_of_tails() -> list[str]:
    return [shown for task in asyncio.all_tasks() if "ray_jobs.py" in (shown := str(task))]
