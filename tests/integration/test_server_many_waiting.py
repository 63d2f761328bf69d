"""A server with 2,000 open waits and 300 log tails: few threads, little memory, and all are told."""

import asyncio
import json
import resource
import threading
from pathlib import Path

import aiohttp
from tests.integration.test_many_waiting import THREADS, memory_mib
from tests.live_server import live
from tests.system import System, fake

from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.server.app import create_app
from ray_multicluster_scheduler.server.options import ServerOptions

WAITS, TAILS = 2000, 300
#: Both ends of every connection are in this process.
FILES = 3 * (WAITS + TAILS)
MEMORY_MIB = 600


async def test_two_thousand_waits_and_three_hundred_tails_over_http(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, FILES)), hard))
    async with System(tmp_path, fake("a", 10)) as system:
        gate = await system.submit("echo started; sleep 1000", submission_id="gate")
        await system.until(gate, JobState.RUNNING)
        others = await system.submit_many(
            [{"entrypoint": "true", "depends_on": [gate], "submission_id": f"j{n}"} for n in range(WAITS)]
        )
        with live(create_app(system.scheduler)) as address:
            connections = aiohttp.TCPConnector(limit=0)
            limits = aiohttp.ClientTimeout(total=None)
            async with aiohttp.ClientSession(address, connector=connections, timeout=limits) as http:
                await follow_all(system, http, gate, others)


async def follow_all(system: System, http: aiohttp.ClientSession, gate: str, others: list[str]) -> None:
    begun = asyncio.Semaphore(0)
    threads, memory = threading.active_count(), memory_mib()

    async def wait(job: str) -> str:
        body = {"submission_ids": [job], "tick_s": 60.0}
        states: list[str] = []
        async with http.post("/api/v1/jobs/changes", json=body) as answer:
            async for line in answer.content:
                if line.startswith(b"data: "):
                    states += [view["state"] for view in json.loads(line[6:])["jobs"].values()]
                    if len(states) == 1:
                        begun.release()
        return states[-1]

    async def tail() -> str:
        text = b""
        async with http.get(f"/api/v1/jobs/{gate}/logs/tail") as answer:
            async for piece in answer.content.iter_any():
                if not text:
                    begun.release()
                text += piece
        return text.decode()

    waits = [asyncio.create_task(wait(job)) for job in others]
    tails = [asyncio.create_task(tail()) for _ in range(TAILS)]
    for _ in [*waits, *tails]:
        await begun.acquire()
    # Those of the server that answer what is short, beside what is there without a server.
    most = THREADS + ServerOptions().threads
    assert threading.active_count() - threads <= most

    await asyncio.to_thread(system.scheduler.service.stop, [gate])

    assert all("started" in text for text in await asyncio.gather(*tails))
    ends = await asyncio.gather(*waits)
    assert len(ends) == WAITS
    assert "SUCCEEDED" not in ends
    assert threading.active_count() - threads <= most
    assert memory_mib() - memory < MEMORY_MIB
