"""Fake clusters in a process of their own, whose jobs write some lines a second until they are stopped."""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from multiprocessing.connection import Connection

from ray_multicluster_scheduler.testing import FakeRay
from ray_multicluster_scheduler.testing.fake_cluster import TERMINATED, RunRequest

LINES = ("0123456789" * 10 + "\n") * 10
#: Between two looks of a real cluster for new lines, and so between two pieces of one log.
PAUSE_S = 1.0
START_S = 60.0


class Talking:
    """Starts jobs that write, without a process for each."""

    async def start(self, request: RunRequest) -> Talk:
        return Talk(request.submission_id)


class Talk:
    """One job's log, as long as its time says."""

    def __init__(self, name: str) -> None:
        self._begun, self._stopped = time.monotonic(), asyncio.Event()
        self._text = f"{name}\n"
        self._pieces = 0

    async def wait(self) -> int:
        await self._stopped.wait()
        return TERMINATED

    def terminate(self) -> None:
        self.log()
        self._stopped.set()

    def kill(self) -> None:
        self.terminate()

    def log(self) -> str:
        due = 0 if self._stopped.is_set() else int((time.monotonic() - self._begun) / PAUSE_S)
        if due > self._pieces:
            self._text += LINES * (due - self._pieces)
            self._pieces = due
        return self._text


@contextmanager
def talking_clusters(names: tuple[str, ...], *, cpus: float) -> Iterator[Mapping[str, str]]:
    """Run such clusters; yield their dashboards by name."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_run, args=(theirs, names, cpus), daemon=True)
    process.start()
    theirs.close()
    try:
        if not ours.poll(START_S):
            raise TimeoutError("the fake clusters did not start")
        yield ours.recv()
    finally:
        ours.send("end")
        process.join()


def _run(connection: Connection, names: tuple[str, ...], cpus: float) -> None:
    async def serve() -> None:
        async with AsyncExitStack() as stack:
            made = [FakeRay(name=name, cpus=cpus, runner=Talking()) for name in names]
            for each in made:
                await stack.enter_async_context(each)
            connection.send({each.name: each.url for each in made})
            await asyncio.to_thread(connection.recv)

    asyncio.run(serve())
