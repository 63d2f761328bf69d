"""Moves that are wanted while a commit is under way share the next one."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.support.builders import NOW, a_job

from ray_multicluster_scheduler.core.events import MovesWritten
from ray_multicluster_scheduler.core.instructions import WriteMoves
from ray_multicluster_scheduler.core.lifecycle.transitions import move
from ray_multicluster_scheduler.engine import store_io
from ray_multicluster_scheduler.engine.store_io import MoveWriter
from ray_multicluster_scheduler.errors import StoreBusy
from ray_multicluster_scheduler.model.job import Job, Transition
from ray_multicluster_scheduler.model.states import JobState


class Disk:
    """Makes one commit at a time, each when it is told to."""

    def __init__(self) -> None:
        self.commits: list[list[str]] = []
        self.go_on = asyncio.Semaphore(0)
        self.heard: list[MovesWritten] = []
        self.bugs: list[tuple[str, str]] = []
        context = SimpleNamespace(
            offload=lambda function, *args, **more: function(*args, **more),
            store=SimpleNamespace(jobs=SimpleNamespace(apply=self._apply)),
            clock=SimpleNamespace(now=lambda: NOW),
            crash_point=lambda _: None,
        )
        self.writer = MoveWriter(
            cast(Any, context),
            epoch=7,
            written=self.heard.append,
            failed=lambda wanted, bug: self.bugs.append((wanted.moves[0].submission_id, str(bug))),
        )

    async def _apply(self, moves: Sequence[Transition], *, epoch: int, **_: Any) -> tuple[Job, ...]:
        assert epoch == 7
        ids = [each.submission_id for each in moves]
        self.commits.append(ids)
        await self.go_on.acquire()
        if "busy" in ids:
            raise StoreBusy("the disk is full")
        if "odd" in ids:
            raise ValueError("this value cannot be stored")
        return tuple(a_job(each, state=JobState.FAILED) for each in ids)

    @asynccontextmanager
    async def running(self) -> AsyncIterator["asyncio.Task[None]"]:
        task = asyncio.create_task(self.writer.run())
        await settled()
        try:
            yield task
        finally:
            self.go_on.release()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    @property
    def written(self) -> list[list[str]]:
        return [[job.submission_id for job in event.moved] for event in self.heard]


def wanted(name: str) -> WriteMoves:
    return WriteMoves(moves=[move(a_job(name), JobState.FAILED, "because")], occasion="queue")


async def settled() -> None:
    """Let the writer go on until it waits for the disk or for more."""
    for _ in range(8):
        await asyncio.sleep(0)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_io, "GATHER_S", 0.0)


async def test_what_is_wanted_during_a_commit_goes_into_the_next_one() -> None:
    disk = Disk()
    async with disk.running():
        disk.writer.put(wanted("a"))
        await settled()
        disk.writer.put(wanted("b"))
        disk.writer.put(wanted("c"))
        disk.go_on.release()
        disk.go_on.release()
        await settled()
    assert disk.commits == [["a"], ["b", "c"]]
    assert disk.written == [["a"], ["b", "c"]]


async def test_a_bug_of_one_move_concerns_no_other() -> None:
    disk = Disk()
    async with disk.running():
        for name in ("a", "odd", "b"):
            disk.writer.put(wanted(name))
        for _ in range(4):
            disk.go_on.release()
        await settled()
    assert disk.commits == [["a", "odd", "b"], ["a"], ["odd"], ["b"]]
    assert disk.written == [["a"], ["b"]]
    assert disk.bugs == [("odd", "this value cannot be stored")]


async def test_a_store_that_cannot_be_written_ends_the_writer() -> None:
    disk = Disk()
    async with disk.running() as task:
        disk.writer.put(wanted("busy"))
        disk.go_on.release()
        with pytest.raises(StoreBusy):
            await task
    assert not disk.heard


async def test_one_can_wait_until_a_move_is_on_disk() -> None:
    disk = Disk()
    async with disk.running():
        waiting = asyncio.create_task(disk.writer.write(wanted("a")))
        await settled()
        assert not waiting.done()
        disk.go_on.release()
        await waiting
    assert disk.written == [["a"]]


async def test_a_commit_under_way_is_not_left_behind() -> None:
    disk = Disk()
    async with disk.running() as task:
        disk.writer.put(wanted("a"))
        await settled()
        task.cancel()
        await settled()
        assert not task.done()
        disk.go_on.release()
        await asyncio.gather(task, return_exceptions=True)
    assert disk.written == [["a"]]
