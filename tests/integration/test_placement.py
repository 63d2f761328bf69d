"""Where jobs go while a cluster starts nothing or has no living node."""

import re
from pathlib import Path
from typing import Any

import pytest
from tests.support.system import System, fake
from tests.support.waiting import eventually

from ray_multicluster_scheduler.errors import InvalidRequest
from ray_multicluster_scheduler.model.cluster import Health
from ray_multicluster_scheduler.model.decision import Cause
from ray_multicluster_scheduler.model.resources import GIB
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.service.request import JobRequest

#: Ray never starts the driver of such a job: the cluster says that it grows, and does not.
GROWS = {"max_resources": {"CPU": 100.0}}
NEVER_STARTS = {"entrypoint": "sleep 1000", "entrypoint_num_cpus": 8}


async def test_a_preferred_cluster_whose_starts_take_for_ever_is_not_waited_for(tmp_path: Path) -> None:
    async with System(tmp_path, fake("a"), fake("b"), clusters={"a": GROWS}) as system:
        stuck = await system.submit_many([NEVER_STARTS] * 2)
        for each in stuck:
            await system.until(each, JobState.SUBMITTED)
        job_id = await system.submit("echo", preferred_cluster="a")
        assert (await system.until(job_id, JobState.SUCCEEDED)).cluster == "b"
        assert "the preferred cluster 'a' cannot take it (2 jobs are being started there" in system.reasons(
            job_id
        )


async def test_a_job_waits_for_its_only_cluster_although_another_has_room(tmp_path: Path) -> None:
    tags = {"b": {"tags": ("licence",)}}
    async with System(tmp_path, fake("a"), fake("b", cpus=1), clusters=tags) as system:
        holds_all = await system.submit("sleep 1000", only_cluster="b")
        assert (await system.until(holds_all, JobState.RUNNING)).cluster == "b"
        assert "it is the job's only cluster" in system.reasons(holds_all)
        waits = await system.submit("echo", only_cluster="b")
        by_tag = await system.submit("echo", only_tags=["licence"], preferred_cluster="a")
        await system.finished(await system.submit("echo"))

        service = system.scheduler.service
        explained = service.explain(waits)
        assert explained.decision is not None
        assert explained.decision.refusals["a"].cause is Cause.EXCLUDED
        assert explained.why == "its only cluster 'b': needs 1 CPU; free: 0 CPU of 1 CPU"
        assert explained.why == service.explain(by_tag).why
        await eventually(  # the leader publishes them in a while
            lambda: {wait.reason: wait.jobs for wait in service.wait_reasons()} == {"NO_ROOM": 2}
        )
        service.stop([holds_all])
        for each in (waits, by_tag):
            assert (await system.until(each, JobState.SUCCEEDED)).cluster == "b"


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"only_cluster": "bb"}, "only_cluster: no cluster is named 'bb'; did you mean 'b'?"),
        ({"only_tags": ["gpu"]}, "only_tags: no cluster has the tag 'gpu'; known are licence, west"),
        ({"only_tags": ["licence", "west"]}, "no cluster has all of the tags 'licence', 'west'"),
        (
            {"only_cluster": "a", "only_tags": ["licence"]},
            "cluster 'a' does not have all of the tags 'licence'",
        ),
    ],
)
async def test_a_job_that_may_run_nowhere_is_refused(tmp_path: Path, asked: Any, why: str) -> None:
    tags = {"a": {"tags": ("west",)}, "b": {"tags": ("licence",)}}
    async with System(tmp_path, fake("a"), fake("b"), clusters=tags) as system:
        with pytest.raises(InvalidRequest, match=re.escape(why)):
            await system.submit("echo", **asked)


async def test_a_job_is_accepted_while_the_only_node_is_dead(tmp_path: Path) -> None:
    async with System(tmp_path, fake("a")) as system:
        await system.finished(await system.submit("echo"))
        system.ray["a"].kill_raylet()
        store = system.scheduler.store
        await eventually(lambda: store.clusters.load_snapshots()["a"].health is Health.UNHEALTHY)
        job_id = await system.submit("echo")
        decision = system.scheduler.service.explain(job_id).decision
        assert decision is not None
        assert decision.refusals["a"].cause is Cause.UNHEALTHY


async def test_a_job_without_a_claim_runs_beside_those_that_hold_every_cpu(tmp_path: Path) -> None:
    async with System(tmp_path, fake("a", cpus=1)) as system:
        holds_all = await system.submit("sleep 1000")
        await system.until(holds_all, JobState.RUNNING)
        job_id = await system.submit("echo", resource_requirements={"CPU": 0})
        await system.until(job_id, JobState.SUCCEEDED)


async def test_a_head_with_little_memory_gets_few_drivers_and_the_job_hears_why(tmp_path: Path) -> None:
    async with System(tmp_path, fake("a", cpus=16, memory=0.5 * GIB)) as system:
        running = await system.submit_many([{"entrypoint": "sleep 1000"}] * 3)
        for each in running:
            await system.until(each, JobState.RUNNING)
        service = system.scheduler.service
        waits = await system.submit("echo")
        assert service.clusters()[0].max_running_jobs == 3

        explained = service.explain(waits)
        assert explained.decision is not None
        refusal = explained.decision.refusals["a"]
        assert refusal.cause is Cause.DRIVER_CAP
        why = "its head has 0.5 GiB of memory for Ray; set max_running_jobs to change it"
        assert refusal.sentence == f"our jobs there: 3 of at most 3 ({why})"
        assert why in explained.why
        assert "set max_running_jobs of 'a' to 4" in explained.suggestions
        assert why in service.plan(JobRequest(entrypoint="echo", user="ann")).decision.sentence


async def test_what_is_configured_goes_before_the_memory_of_the_head(tmp_path: Path) -> None:
    clusters = {"a": {"max_running_jobs": 5}}
    async with System(tmp_path, fake("a", cpus=16, memory=0.5 * GIB), clusters=clusters) as system:
        for each in await system.submit_many([{"entrypoint": "sleep 1000"}] * 5):
            await system.until(each, JobState.RUNNING)
        decision = system.scheduler.service.explain(await system.submit("echo")).decision
        assert decision is not None
        assert decision.refusals["a"].sentence == "our jobs there: 5 of at most 5 (max_running_jobs)"
