"""Many who follow one log through the server are one connection to its cluster; none hinders another."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import pytest
from tests.integration.test_rest import Rest
from tests.support.serving import live
from tests.support.system import System, fake
from tests.support.waiting import eventually

from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.server.app import create_app
from ray_multicluster_scheduler.testing import FakeRay
from ray_multicluster_scheduler.testing.fake_cluster import TERMINATED, RunRequest

TAIL = "GET /api/jobs/{id}/logs/tail"
MANY = 50
#: More than the sockets of a connection and the server hold for a client that does not read.
LONG = "".join(f"{number:>99}\n" for number in range(160_000))


@dataclass
class Talking:
    """A job that says what the test lets it say, until it is stopped; the runner of only this one."""

    text: str = ""
    stopped: asyncio.Event = field(default_factory=asyncio.Event)

    async def start(self, _: RunRequest) -> "Talking":
        return self

    async def wait(self) -> int:
        await self.stopped.wait()
        return TERMINATED

    def terminate(self) -> None:
        self.stopped.set()

    def kill(self) -> None:
        self.stopped.set()

    def log(self) -> str:
        return self.text


@dataclass
class Scene:
    """A server over one cluster on which one job runs."""

    rest: Rest
    ray: FakeRay
    job: Talking
    name: str

    @property
    def path(self) -> str:
        return f"/api/v1/jobs/{self.name}/logs/tail"

    @property
    def log(self) -> str:
        """What the cluster itself has of the job's log."""
        [remote_id] = self.ray.jobs
        return self.ray.cluster.logs(remote_id)


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    job = Talking()
    ray = fake("a", runner=job)
    async with System(tmp_path, ray) as system:
        with live(create_app(system.scheduler)) as address:
            async with aiohttp.ClientSession(address, connector=aiohttp.TCPConnector(limit=0)) as http:
                rest = Rest(system, http)
                name = (await rest.submit("talk"))["submission_id"]
                await system.until(name, JobState.RUNNING)
                yield Scene(rest, ray, job, name)


async def test_fifty_tails_of_a_job_are_one_connection_to_its_cluster(scene: Scene) -> None:
    scene.job.text = "one\n"

    async def tail() -> str:
        async with scene.rest.http.get(scene.path) as answer:
            begin = await answer.content.readuntil(b"\none\n")
            begun.release()
            return (begin + await answer.content.read()).decode()

    begun = asyncio.Semaphore(0)
    tails = [asyncio.create_task(tail()) for _ in range(MANY)]
    for _ in tails:
        await begun.acquire()
    assert scene.ray.open_calls[TAIL] == 1
    scene.job.text += "two\n"
    scene.rest.service.stop([scene.name])
    assert set(await asyncio.gather(*tails)) == {scene.log}
    assert scene.log.endswith("\none\ntwo\n")
    assert scene.ray.calls[TAIL] == 1


async def test_a_slow_reader_does_not_slow_the_others_and_the_last_to_leave_closes_the_connection(
    scene: Scene,
) -> None:
    async def read(answer: aiohttp.ClientResponse) -> str:
        return (await answer.content.readexactly(len(scene.log))).decode()

    async with AsyncExitStack() as stack:
        answers = [await stack.enter_async_context(scene.rest.http.get(scene.path)) for _ in range(4)]
        scene.job.text = LONG
        slow, *others = answers
        assert set(await asyncio.gather(*map(read, others))) == {scene.log}
        assert await read(slow) == scene.log
        assert scene.ray.calls[TAIL] <= 3
        for each in others:
            each.close()
        scene.job.text += "more\n"
        assert await slow.content.readexactly(5) == b"more\n"
        assert scene.ray.open_calls[TAIL] >= 1
    await eventually(lambda: not scene.ray.open_calls[TAIL])
