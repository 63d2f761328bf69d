"""Two schedulers with a store each use the same cluster: neither gives away what the other one has given."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.system import System, fake, until_led
from tests.support.waiting import eventually

from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.testing import FakeRay
from ray_multicluster_scheduler.testing.fake_cluster import parse_submission

FOUR = {"resource_requirements": {"CPU": 4.0}}


@asynccontextmanager
async def beside(first: System, directory: Path) -> AsyncIterator[System]:
    """Start another scheduler, with a store of its own, on the clusters of the first one."""
    second = System(directory, *first.ray.values())
    second.scheduler = second.another_scheduler()
    second.scheduler.start()
    await asyncio.to_thread(until_led, second.scheduler)
    try:
        yield second
    finally:
        await asyncio.to_thread(second.scheduler.stop)


def start_on_cluster(ray: FakeRay, submission_id: str, metadata: dict[str, str]) -> None:
    body = {"entrypoint": "sleep 1000", "submission_id": submission_id, "metadata": metadata}
    ray.cluster.submit(parse_submission(body))


async def test_what_one_has_given_the_other_does_not_give_again(tmp_path: Path) -> None:
    async with System(tmp_path / "one", fake("a", 4)) as first:
        held = await first.submit("sleep 1000", **FOUR)  # Ray sees no CPU in use
        await first.until(held, JobState.RUNNING)
        async with beside(first, tmp_path / "two") as second:
            waiting = await second.submit("sleep 0.1", **FOUR)

            def explained() -> Any:
                return second.scheduler.service.explain(waiting)

            await eventually(lambda: explained().decision is not None)
            assert "free: 0 CPU of 4 CPU (4 CPU claimed by another scheduler)" in explained().why
            assert second.story(waiting) == ["QUEUED"]
            assert second.scheduler.service.clusters()[0].claimed_by_others == {"CPU": 4.0}
            assert first.scheduler.service.clusters()[0].claimed_by_others == {}

            await asyncio.to_thread(first.scheduler.service.stop, [held], reason="enough")
            await second.until(waiting, JobState.SUCCEEDED)
            await eventually(lambda: not second.scheduler.service.clusters()[0].claimed_by_others)
        (run,) = [run for run in first.ray["a"].runs if run.submission_id == waiting]
        (before,) = [run for run in first.ray["a"].runs if run.submission_id == held]
        assert before.end is not None
        assert run.start >= before.end


async def test_a_scheduler_that_leads_sees_the_claims_that_come_later(tmp_path: Path) -> None:
    async with System(tmp_path / "one", fake("a", 4)) as first, beside(first, tmp_path / "two") as second:
        await second.finished(await second.submit("echo idle"))
        held = await first.submit("sleep 1000", **FOUR)
        await first.until(held, JobState.RUNNING)
        await eventually(lambda: second.scheduler.service.clusters()[0].claimed_by_others == {"CPU": 4.0})
        waiting = await second.submit("echo", **FOUR)
        assert "claimed by another scheduler" in second.scheduler.service.explain(waiting).why


@pytest.mark.parametrize("claim", ["{", "[" * 3000, '{"CPU":-4}', '{"CPU":NaN}', "9" * 1_000_000])
async def test_a_hostile_claim_counts_as_one_cpu_and_harms_nothing(tmp_path: Path, claim: str) -> None:
    ray = fake("a", 4)
    async with System(tmp_path, ray) as system:
        start_on_cluster(ray, "theirs", {"raymc.origin": "another store", "raymc.claim": claim})
        await eventually(lambda: system.scheduler.service.clusters()[0].claimed_by_others == {"CPU": 1.0})
        job_id = await system.submit("echo", resource_requirements={"CPU": 3.0})
        await system.until(job_id, JobState.SUCCEEDED)
