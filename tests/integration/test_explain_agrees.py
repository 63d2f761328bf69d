"""`explain` and the dry run see the world that the leader decides by, so that they tell the truth."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.support.system import System, fake
from tests.support.waiting import eventually

from ray_multicluster_scheduler.cli.follow_jobs import why_it_waits
from ray_multicluster_scheduler.model.decision import Cause
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.service.request import JobRequest
from ray_multicluster_scheduler.service.views import Explanation
from ray_multicluster_scheduler.testing import FakeRay


def what_is_said(system: System, job_id: str) -> Explanation:
    return system.scheduler.service.explain(job_id)


async def all_starting(system: System, cluster: FakeRay, ids: list[str], most: int) -> None:
    """Wait until the cluster has been sent all that it may be starting."""
    await eventually(lambda: len(cluster.jobs) == most)
    store = system.scheduler.store
    await eventually(
        lambda: sum(job.state is JobState.SUBMITTED for job in store.jobs.get_many(ids).values()) == most
    )


#: Ray never starts the driver of such a job: the cluster says that it grows, and does not.
GROWS = {"max_resources": {"CPU": 100.0}}
NEVER_STARTS = {"entrypoint": "sleep 1000", "entrypoint_num_cpus": 8}


async def test_a_job_that_waits_for_the_pace_of_starts_is_told_so(tmp_path: Path) -> None:
    cluster = fake("a", cpus=4)
    async with System(tmp_path, cluster, clusters={"a": GROWS}) as system:
        ids = await system.submit_many([NEVER_STARTS] * 5)
        await all_starting(system, cluster, ids, most=2)
        waiting = [each for each in ids if system.scheduler.store.jobs.get(each).state is JobState.QUEUED]
        assert len(waiting) == 3
        for position, job_id in enumerate(waiting, start=1):
            said = what_is_said(system, job_id)
            assert said.position == position
            assert said.decision is not None
            assert said.decision.refusals["a"].cause is Cause.PACED
            assert why_it_waits(said) == (
                "a: 2 jobs are being started there; more at once would slow all of them down"
            )
            assert said.suggestions == ("wait until 'a' is given jobs again: 2 jobs are being started there",)
        planned = await asyncio.to_thread(
            system.scheduler.service.plan, JobRequest(entrypoint="echo", user="ann")
        )
        assert planned.cluster is None


async def test_a_warm_environment_counts_for_explain_as_it_does_for_the_leader(tmp_path: Path) -> None:
    env = {"pip": ["emoji"]}
    async with System(tmp_path, fake("a"), fake("b")) as system:
        warmed = await system.submit("sleep 0.3", runtime_env=env, preferred_cluster="b")
        await system.until(warmed, JobState.SUCCEEDED)
        store = system.scheduler.store
        await eventually(lambda: store.clusters.load_snapshots()["b"].warm)
        request = JobRequest(entrypoint="echo", user="ann", runtime_env=env)
        planned = await asyncio.to_thread(system.scheduler.service.plan, request)
        assert planned.decision.scores["b"].parts["warm"] > 0
        after = await system.submit("echo", runtime_env=env)
        assert (await system.until(after, JobState.SUCCEEDED)).cluster == planned.cluster == "b"


@pytest.mark.parametrize("kind", ["full", "paced", "capped", "drained"])
async def test_no_job_that_has_to_wait_is_told_that_it_has_a_place(tmp_path: Path, kind: str) -> None:
    cluster = fake("a", cpus=2)
    options: dict[str, Any] = {
        "full": {},
        "paced": GROWS,
        "capped": {**GROWS, "max_running_jobs": 1},
        "drained": {"drained": True},
    }
    async with System(tmp_path, cluster, clusters={"a": options[kind]}) as system:
        job = NEVER_STARTS if kind in {"paced", "capped"} else {"entrypoint": "sleep 1000"}
        ids = await system.submit_many([job] * 4)
        placed = {"full": 2, "paced": 2, "capped": 1, "drained": 0}[kind]
        await eventually(lambda: len(cluster.jobs) == placed)
        await eventually(lambda: not system.scheduler.store.clusters.load_snapshots()["a"].awaited)
        for job_id in ids:
            said = what_is_said(system, job_id)
            if system.scheduler.store.jobs.get(job_id).state is JobState.QUEUED:
                assert said.decision is not None
                assert (said.decision.cluster, said.decision.scores) == (None, {}), said
