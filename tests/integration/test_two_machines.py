"""Two schedulers with directories of their own on one PostgreSQL: one accepts, one leads, one is cut off."""

import asyncio
import threading
import time
import uuid
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.postgres import HOST, PostgresServer
from tests.support.system import System, fake
from tests.support.waiting import PATIENCE_S, eventually

from ray_multicluster_scheduler.embedded import EmbeddedScheduler
from ray_multicluster_scheduler.errors import StoreBusy
from ray_multicluster_scheduler.model.states import JobState

#: Longer than a busy machine keeps a scheduler from its work; how long one waits for the lease of another.
LEASE_TTL_S = 10.0


class Cable:
    """A way to the database that can be cut, so that nothing comes through and nobody is told.

    It has a thread of its own: who opens a store waits for the database.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._loop = asyncio.new_event_loop()
        self._open = asyncio.Event()
        self._open.set()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self.port = 0

    def cut(self) -> None:
        self._loop.call_soon_threadsafe(self._open.clear)

    def mend(self) -> None:
        self._loop.call_soon_threadsafe(self._open.set)

    def __enter__(self) -> "Cable":
        self._thread.start()
        listening = asyncio.run_coroutine_threadsafe(asyncio.start_server(self._serve, HOST, 0), self._loop)
        self._server = listening.result(PATIENCE_S)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(PATIENCE_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _close(self) -> None:
        self._server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(HOST, self._port)
        await asyncio.gather(self._pass(reader, back), self._pass(there, writer), return_exceptions=True)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                await self._open.wait()
                writer.write(data)
                await writer.drain()
        finally:
            writer.close()


def on_another_machine(system: System, directory: Path, store: str) -> EmbeddedScheduler:
    """A scheduler with the same clusters and a directory of its own."""
    one = system.scheduler
    settings = one.config.settings.model_copy(update={"store": store})
    return EmbeddedScheduler(
        replace(one.config, settings=settings), directory=directory, environ=system._environ()
    )


def leads(scheduler: EmbeddedScheduler, by: EmbeddedScheduler) -> bool:
    try:
        lease = by.store.leases.current(now=time.time())
    except StoreBusy:  # it is cut off
        return False
    return lease is not None and lease.holder == scheduler.holder


async def until_leads(scheduler: EmbeddedScheduler, by: EmbeddedScheduler) -> None:
    await eventually(lambda: asyncio.to_thread(leads, scheduler, by))


@pytest.fixture
def url(postgres: PostgresServer) -> str:
    return postgres.url(f"t{uuid.uuid4().hex[:12]}")


async def test_what_one_accepts_the_other_sends_with_the_files_that_it_needs(
    tmp_path: Path, url: str
) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "main.py").write_text("print('hello')\n")
    async with System(tmp_path, fake("a"), store=url, lease_ttl_s=LEASE_TTL_S) as system:
        await until_leads(system.scheduler, system.scheduler)
        other = on_another_machine(system, tmp_path / "other", url)
        leader, system.scheduler = system.scheduler, other
        try:
            job = await system.submit("echo hi", runtime_env={"working_dir": str(tmp_path / "code")})
            assert (await system.until(job, JobState.SUCCEEDED)).cluster == "a"
            assert await asyncio.to_thread(leads, leader, other)
        finally:
            system.scheduler = leader
            other.stop()


async def test_one_that_is_cut_off_from_the_database_stops_leading_and_the_other_goes_on(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    schema = f"t{uuid.uuid4().hex[:12]}"
    with Cable(postgres.port) as cable:
        shaky = postgres.url(schema, port=cable.port)
        async with System(tmp_path, fake("a"), store=shaky, lease_ttl_s=LEASE_TTL_S) as system:
            await until_leads(system.scheduler, system.scheduler)
            first = await system.submit("sleep 3")
            await system.until(first, JobState.RUNNING)
            other = on_another_machine(system, tmp_path / "other", postgres.url(schema))
            other.start()
            cable.cut()
            try:
                await until_leads(other, other)
                cut_off, system.scheduler = system.scheduler, other
                second = await system.submit("echo hi")
                ended = await system.finished(first, second)
                assert [job.state for job in ended.values()] == [JobState.SUCCEEDED] * 2
                assert [len(system.runs(job)) for job in (first, second)] == [1, 1]
                system.scheduler = cut_off
            finally:
                cable.mend()
            assert await asyncio.to_thread(leads, other, other)
            await asyncio.to_thread(other.stop)
            await until_leads(system.scheduler, system.scheduler)


async def test_a_leader_that_ends_hands_over_at_once(tmp_path: Path, url: str) -> None:
    async with System(tmp_path, fake("a"), store=url, lease_ttl_s=600.0) as system:
        await until_leads(system.scheduler, system.scheduler)
        other = on_another_machine(system, tmp_path / "other", url)
        other.start()
        await asyncio.to_thread(system.scheduler.stop)
        await until_leads(other, other)
        await asyncio.to_thread(other.stop)


async def test_times_are_those_of_the_database(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with System(tmp_path, fake("a"), store=url) as system:
        job = await system.submit("echo hi")
        await system.finished(job)
        real = time.time
        monkeypatch.setattr(time, "time", lambda: real() - 60.0)  # a machine that is a minute behind
        behind = on_another_machine(system, tmp_path / "other", url)
        try:
            assert behind.store.ahead_s == pytest.approx(60.0, abs=20.0)
            assert behind.clock.now() == pytest.approx(real(), abs=20.0)
        finally:
            behind.stop()
            monkeypatch.undo()
