"""Clients of our server in a process of their own: some wait for jobs, others follow logs."""

from __future__ import annotations

import asyncio
import hashlib
import json
import multiprocessing
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import aiohttp

from ray_multicluster_scheduler.asyncio_tools import cancel_all

_STOPPED = b'"state":"STOPPED"'
#: Until all are connected, and until all have heard what they wait for.
PATIENCE_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A waiter heard that a job was stopped, so long after that was written."""

    submission_id: str
    delay_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """All that one reader got of a log."""

    submission_id: str
    size: int
    digest: str


class Listeners:
    """Open connections in another process; `found` returns what they have heard in the end."""

    def __init__(self, run: Any, *arguments: Any) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_run, args=(run, theirs, arguments), daemon=True)
        self._process.start()
        theirs.close()  # so that the end of the process is heard
        self._receive()  # all are connected

    def found(self) -> Any:
        """Wait until they have heard all; return that."""
        heard = self._receive()
        self._process.join()
        return heard

    def _receive(self) -> Any:
        if not self._connection.poll(PATIENCE_S):
            raise TimeoutError("the clients did not hear what they should")
        return self._connection.recv()


def _run(run: Any, connection: Connection, arguments: tuple[Any, ...]) -> None:
    asyncio.run(run(connection, *arguments))


async def wait(connection: Connection, address: str, waits: Sequence[Sequence[str]], stops: int) -> None:
    """Wait for some jobs on each of many connections, until this many stops were told of."""
    opened, left, enough = _Opened(len(waits), connection), stops, asyncio.Event()
    lines: list[tuple[float, bytes]] = []

    async def one(http: aiohttp.ClientSession, ids: Sequence[str]) -> None:
        nonlocal left
        asked = {"submission_ids": ids, "timeout_s": None, "tick_s": 3600}
        async with http.post(f"{address}/api/v1/jobs/changes", json=asked) as answer:
            answer.raise_for_status()
            await answer.content.readuntil(b"\n\n")
            opened.one_more()
            async for line in answer.content:
                if stopped := line.count(_STOPPED):
                    lines.append((time.time(), line))  # read later: what the others hear must not wait
                    left -= stopped
                    if left <= 0:
                        enough.set()

    async with _session() as http:
        reading = [asyncio.create_task(one(http, ids)) for ids in waits]
        await _first(asyncio.create_task(enough.wait()), reading)
        await cancel_all(reading)
    connection.send([told for at, line in lines for told in _told(at, line)])


async def tail(connection: Connection, address: str, jobs: Sequence[str]) -> None:
    """Follow the log of each of these jobs, as often as it is named, to its end."""
    opened = _Opened(len(jobs), connection)

    async def one(http: aiohttp.ClientSession, job: str) -> Heard:
        digest, size = hashlib.sha256(), 0
        async with http.get(f"{address}/api/v1/jobs/{job}/logs/tail") as answer:
            answer.raise_for_status()
            async for piece in answer.content.iter_any():
                if not size:
                    opened.one_more()
                digest.update(piece)
                size += len(piece)
        return Heard(submission_id=job, size=size, digest=digest.hexdigest())

    async with _session() as http:
        connection.send(await asyncio.gather(*(one(http, job) for job in jobs)))


class _Opened:
    """Tells the other side when all are connected."""

    def __init__(self, count: int, connection: Connection) -> None:
        self._missing = count
        self._connection = connection

    def one_more(self) -> None:
        self._missing -= 1
        if not self._missing:
            self._connection.send("open")


def _session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=None)
    )


async def _first(enough: asyncio.Task[Any], others: Sequence[asyncio.Task[None]]) -> None:
    """Return when it is enough; raises what ended one of the others before."""
    pending = {enough, *others}
    while not enough.done():
        done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        for each in done:
            each.result()


def _told(at: float, line: bytes) -> Iterator[Told]:
    for name, job in json.loads(line.removeprefix(b"data: "))["jobs"].items():
        if job["state"] == "STOPPED":
            yield Told(submission_id=name, delay_ms=1000 * (at - job["changed_at"]))
