"""The first job is placed as well as the hundredth: a new leader has looked at every cluster."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.support.system import System, fake

from ray_multicluster_scheduler.model.cluster import Health
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.service.request import JobRequest

ORDINARY: dict[str, Any] = {"probe_timeout_s": 20.0, "request_timeout_s": 20.0}


async def test_the_first_job_goes_to_the_best_cluster_though_it_answers_last(
    tmp_path: Path,
) -> None:
    best = fake("z", cpus=32)
    async with System(tmp_path, fake("a", 1), fake("b", 2), best, **ORDINARY) as system:
        best.slow(0.1)
        (first,) = await system.finished(await system.submit("echo"))
        assert system.runs(first) == ["z"]
        decision = system.scheduler.service.explain(first).decision
        assert decision is not None
        assert set(decision.scores) == {"a", "b", "z"}


async def test_the_first_job_of_the_next_leader_is_placed_as_well(tmp_path: Path) -> None:
    best = fake("z")
    clusters = {"z": {"prefer": True, "weight": 0.1}}
    async with System(tmp_path, fake("a"), best, clusters=clusters, **ORDINARY) as system:
        await system.finished(await system.submit("echo"))
        await asyncio.to_thread(system.scheduler.stop)
        best.slow(0.1)
        system.scheduler = system.another_scheduler()
        system.scheduler.start()
        (second,) = await system.finished(await system.submit("echo"))
        assert system.runs(second) == ["z"]
        await asyncio.to_thread(system.scheduler.stop)


async def test_a_cluster_that_does_not_answer_holds_nothing_up(tmp_path: Path) -> None:
    silent = fake("silent", cpus=32)
    async with System(tmp_path, fake("a"), silent, probe_timeout_s=600.0, request_timeout_s=600.0) as system:
        silent.hang()
        ids = [await system.submit("echo"), await system.submit("echo", preferred_cluster="silent")]
        assert {job.cluster for job in (await system.finished(*ids)).values()} == {"a"}
        assert system.scheduler.store.clusters.load_snapshots()["silent"].health is Health.UNKNOWN
        silent.resume()


async def test_while_a_leader_looks_no_answer_is_given_that_it_would_not_stand_by(tmp_path: Path) -> None:
    slow = fake("slow", cpus=32)
    async with System(tmp_path, fake("a"), slow, **ORDINARY) as system:
        slow.slow(0.2)
        job_id = await system.submit("echo")
        request = JobRequest(entrypoint="echo", user="ann")
        planned = await asyncio.to_thread(system.scheduler.service.plan, request)
        assert planned.cluster == "slow"
        assert (await system.until(job_id, JobState.SUCCEEDED)).cluster == "slow"


@pytest.mark.parametrize("gpus", [0, 2])
async def test_prefer_means_first_whether_it_has_gpus_or_not(tmp_path: Path, gpus: float) -> None:
    clusters = {"z": {"prefer": True, "weight": 1.2}}
    async with System(tmp_path, fake("a"), fake("z", gpus=gpus), clusters=clusters) as system:
        (first,) = await system.finished(await system.submit("echo"))
        assert system.runs(first) == ["z"]
        assert "because of prefer: true" in system.reasons(first)
