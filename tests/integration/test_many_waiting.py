"""Thousands wait for jobs, hundreds follow logs in one process: few threads, little memory, all are told."""

import asyncio
import os
import resource
import threading
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest
from tests.support.raymc import write_config
from tests.support.system import FAST, System, fake

import ray_multicluster_scheduler as raymc
from ray_multicluster_scheduler import aio
from ray_multicluster_scheduler.errors import JobsFailed
from ray_multicluster_scheduler.model.states import FINAL, JobState
from ray_multicluster_scheduler.service.caller import Caller, Role

#: The default executor's, the engine's, and those that there is one of: far fewer than who waits.
THREADS = 2 * min(32, (os.cpu_count() or 1) + 4) + 4
MEMORY_MIB = 200


def memory_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@pytest.fixture
async def configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """One fake cluster in the configuration of this process."""
    async with fake("a", 200) as ray:
        monkeypatch.setenv("RAY_MULTICLUSTER_HOME", str(tmp_path / "home"))
        monkeypatch.setenv("RAY_MULTICLUSTER_CONFIG", str(write_config(tmp_path, [ray.spec()], **FAST)))
        yield
        await asyncio.to_thread(raymc.get_unified_scheduler().stop)


async def test_hundreds_of_waits_and_tails_in_asyncio_hold_no_thread(configured: None) -> None:
    jobs = await aio.submit_jobs(
        [{"entrypoint": "echo started; sleep 1000", "submission_id": f"job-{n}"} for n in range(10)]
    )
    begun = asyncio.Semaphore(0)

    async def tail(job: str) -> str:
        text = ""
        async for piece in aio.tail_job_logs(job):
            if not text:
                begun.release()
            text += piece
        return text

    before = threading.active_count()
    tails = [asyncio.create_task(tail(jobs[number % 10])) for number in range(100)]
    waits = [asyncio.create_task(aio.wait_for_all_jobs([jobs[number % 10]])) for number in range(500)]
    for _ in tails:
        await begun.acquire()
    assert await aio.wait_for_all_jobs([await aio.submit_job("echo between")]) is True
    assert threading.active_count() - before <= THREADS
    for job in jobs:
        await aio.stop_job(job)
    assert all(isinstance(each, JobsFailed) for each in await asyncio.gather(*waits, return_exceptions=True))
    assert all("started" in text for text in await asyncio.gather(*tails))
    assert threading.active_count() - before <= THREADS


async def test_two_thousand_waits_and_three_hundred_tails_take_little_and_are_all_told(
    tmp_path: Path,
) -> None:
    async with System(tmp_path, fake("a", 10)) as system:
        service = system.scheduler.service
        gate = await system.submit("echo started; sleep 1000", submission_id="gate")
        await system.until(gate, JobState.RUNNING)
        others = await system.submit_many(
            [{"entrypoint": "true", "depends_on": [gate], "submission_id": f"job-{n}"} for n in range(2000)]
        )
        threads, memory, waiting = threading.active_count(), memory_mib(), asyncio.Semaphore(0)

        async def wait(job: str) -> JobState:
            waited = service.changes_async([job], timeout_s=None, tick_s=60.0)
            states = []
            async with aclosing(waited):
                async for views in waited:
                    if not states:
                        waiting.release()
                    states.append(views[job].state)
            return states[-1]

        async def tail() -> str:
            text = ""
            async for piece in service.tail_async(gate):
                if not text:
                    waiting.release()
                text += piece
            return text

        waits = [asyncio.create_task(wait(job)) for job in others]
        tails = [asyncio.create_task(tail()) for _ in range(300)]
        for _ in [*waits, *tails]:
            await waiting.acquire()
        assert threading.active_count() - threads <= THREADS
        assert len([each for each in threading.enumerate() if each.name == "raymc-hub"]) == 1

        await asyncio.to_thread(service.stop, [gate])

        assert all("started" in text for text in await asyncio.gather(*tails))
        ends = await asyncio.gather(*waits)
        assert len(ends) == 2000
        assert all(state is not JobState.SUCCEEDED for state in ends)
        assert threading.active_count() - threads <= THREADS
        assert memory_mib() - memory < MEMORY_MIB


async def test_who_follows_events_sees_only_what_that_caller_may_see(tmp_path: Path) -> None:
    async with System(tmp_path, fake("a")) as system:
        service = system.scheduler.service
        secret = {"env_vars": {"API_TOKEN": "s3cret-word"}}
        first = await system.submit("sleep 1000", user="ann", runtime_env=secret)
        await asyncio.to_thread(service.stop, [first], reason="somebody has seen s3cret-word")
        await system.finished(first)
        ann, bob = (service.as_caller(Caller(user=name, role=Role.SUBMIT)) for name in ("ann", "bob"))
        async with (
            aclosing(ann.events_async(after=0)) as of_ann,
            aclosing(bob.events_async(after=0)) as of_bob,
        ):
            story = [await anext(of_ann)]
            while story[-1].new not in FINAL:
                story.append(await anext(of_ann))
            assert [event.new.value for event in story] == system.story(first)
            said = "".join(event.reason for event in story)
            assert "somebody has seen" in said
            assert "s3cret-word" not in said
            following = asyncio.create_task(anext(of_bob))
            second = await system.submit("true", user="ann")
            assert (await anext(of_ann)).submission_id == second
            third = await system.submit("true", user="bob")
            assert (await following).submission_id == third


async def test_a_wait_for_somebody_elses_job_finds_none(tmp_path: Path) -> None:
    async with System(tmp_path, fake("a")) as system:
        job = await system.submit("sleep 1000", user="ann")
        bob = system.scheduler.service.as_caller(Caller(user="bob", role=Role.SUBMIT))
        with pytest.raises(raymc.errors.JobNotFound):
            await anext(bob.changes_async([job], timeout_s=None, tick_s=60.0))
        with pytest.raises(raymc.errors.JobNotFound):
            await asyncio.to_thread(next, bob.changes([job], timeout_s=None, tick_s=60.0))
