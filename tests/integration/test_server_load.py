"""Thousands who wait and hundreds who read logs, on one server in a process of its own."""

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from tests.support.raymc import COMMAND, environment, write_config
from tests.support.system import FAST, fake
from tests.support.waiting import eventually

WAITS, TAILS = 2_000, 300
JOBS, RUNNING = 100, 20
#: Far more than is needed, far less than a thread or a copy of the jobs for each of them.
MOST_THREADS = 100
MOST_BYTES_EACH = 200_000


@dataclass
class Server:
    """A running `raymc serve`."""

    address: str
    process: asyncio.subprocess.Process
    http: aiohttp.ClientSession

    def status(self, key: str) -> int:
        """A number of the system about the process: `Threads`, or `VmRSS` in kilobytes."""
        (found,) = re.findall(rf"{key}:\s+(\d+)", Path(f"/proc/{self.process.pid}/status").read_text())
        return int(found)

    async def ask(self, method: str, path: str, **options: Any) -> Any:
        async with self.http.request(method, f"{self.address}{path}", **options) as answer:
            assert answer.status < 300, await answer.text()
            return await answer.json()


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[Server]:
    async with fake("a", cpus=RUNNING / 2) as a, fake("b", cpus=RUNNING / 2) as b:
        config = write_config(folder, [a.spec(), b.spec()], **FAST)
        process = await asyncio.create_subprocess_exec(
            *COMMAND, "serve", "--config", config, "--port", "0", "--store", folder / "store",
            env=environment(RAY_MULTICLUSTER_HOME=str(folder)), stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert process.stderr is not None
        try:
            async for line in process.stderr:
                if found := re.search(r"REST +(http://[^/]+)/", line.decode()):
                    break
            reading = asyncio.create_task(process.stderr.read())
            connector = aiohttp.TCPConnector(limit=0)
            timeout = aiohttp.ClientTimeout(total=None)
            async with aiohttp.ClientSession(connector=connector, timeout=timeout) as http:
                yield Server(found[1], process, http)
        finally:
            process.terminate()
            await process.wait()
            await reading


@dataclass
class Heard:
    """What all who wait and read have heard."""

    open: int = 0
    ended: dict[int, str] = field(default_factory=dict)
    tailed: dict[int, str] = field(default_factory=dict)
    begun: asyncio.Event = field(default_factory=asyncio.Event)

    def opened(self) -> None:
        self.open += 1
        if self.open == WAITS + TAILS:
            self.begun.set()


async def wait(server: Server, job: str, number: int, heard: Heard) -> None:
    asked = {"submission_ids": [job], "timeout_s": None, "tick_s": 3600}
    async with server.http.post(f"{server.address}/api/v1/jobs/changes", json=asked) as answer:
        assert answer.status == 200
        first = True
        async for line in answer.content:
            if line.startswith(b"data: "):
                for view in json.loads(line.removeprefix(b"data: "))["jobs"].values():
                    heard.ended[number] = view["state"]
            if first:
                heard.opened()
                first = False


async def tail(server: Server, job: str, number: int, heard: Heard) -> None:
    async with server.http.get(f"{server.address}/api/v1/jobs/{job}/logs/tail") as answer:
        assert answer.status == 200
        first = True
        async for piece in answer.content.iter_any():
            heard.tailed[number] = heard.tailed.get(number, "") + piece.decode()
            if first:
                heard.opened()
                first = False


async def running(server: Server) -> list[str]:
    """Wait until the clusters are full."""

    async def all_that_run() -> list[str] | None:
        found = (await server.ask("GET", "/api/v1/jobs?state=RUNNING&limit=1000"))["jobs"]
        return [job["submission_id"] for job in found] if len(found) == RUNNING else None

    found: list[str] = await eventually(all_that_run)
    return found


async def test_two_thousand_waits_and_three_hundred_tails_at_once(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        batch = {"jobs": [{"entrypoint": "echo begun; sleep 3600"}] * JOBS}
        made = (await server.ask("POST", "/api/v1/jobs/batch", json=batch))["jobs"]
        jobs = [job["submission_id"] for job in made]
        on_clusters = await running(server)
        before = server.status("VmRSS")

        heard = Heard()
        readers = [asyncio.create_task(wait(server, jobs[n % JOBS], n, heard)) for n in range(WAITS)] + [
            asyncio.create_task(tail(server, on_clusters[n % RUNNING], n, heard)) for n in range(TAILS)
        ]
        await asyncio.wait([asyncio.create_task(heard.begun.wait()), *readers], return_when="FIRST_COMPLETED")
        assert heard.begun.is_set()
        open_now, threads = server.status("VmRSS"), server.status("Threads")

        stopped = time.monotonic()
        await server.ask("POST", "/api/v1/jobs/stop", json={"submission_ids": jobs, "reason": "enough"})
        await asyncio.gather(*readers)
        took = time.monotonic() - stopped

        size = f"{before // 1024} MiB before, {open_now // 1024} MiB with all"
        print(f"{size}, {threads} threads, {took:.1f} s until all had heard")
        assert heard.ended == dict.fromkeys(range(WAITS), "STOPPED")
        assert len(heard.tailed) == TAILS
        assert all("begun" in text for text in heard.tailed.values())
        assert threads < MOST_THREADS
        assert (open_now - before) * 1024 < MOST_BYTES_EACH * (WAITS + TAILS)
