"""The watch against fake clusters over real connections: Ray's faults, and 200 clusters at once."""

import asyncio
import resource
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from tests.support.waiting import PATIENCE_S

from ray_multicluster_scheduler.clock import SystemClock
from ray_multicluster_scheduler.cluster_health.watch import ClusterWatch
from ray_multicluster_scheduler.config import Settings
from ray_multicluster_scheduler.executors.ray_jobs import RayJobsExecutor
from ray_multicluster_scheduler.model.cluster import Health
from ray_multicluster_scheduler.model.execution import StartRequest
from ray_multicluster_scheduler.model.resources import GIB
from ray_multicluster_scheduler.ray_api import http_client
from ray_multicluster_scheduler.ray_api.http_connection import open_connection
from ray_multicluster_scheduler.testing.fake_cluster import ScriptedRunner
from ray_multicluster_scheduler.testing.fake_ray import FakeRay

#: Long enough that a busy machine never makes a good cluster look bad.
PATIENT_S = PATIENCE_S
IMPATIENT_S = 0.3


@asynccontextmanager
async def watching(
    *fakes: FakeRay, deadline_s: float = PATIENT_S, environ: dict[str, str] | None = None, **settings: Any
) -> AsyncIterator[ClusterWatch]:
    """Start fakes and a watch over them."""
    async with AsyncExitStack() as stack:
        connections = {}
        for fake in fakes:
            await stack.enter_async_context(fake)
            token = fake.environ if environ is None else environ
            connection = open_connection(fake.spec(), token, request_timeout_s=PATIENT_S)
            connections[fake.name] = await stack.enter_async_context(connection)
        yield ClusterWatch(
            connections,
            clock=SystemClock(),
            settings=Settings(probe_timeout_s=deadline_s, **settings),
            jitter=lambda: 0.5,
        )


@pytest.mark.parametrize("autoscaler_v2", [False, True])
async def test_a_snapshot_has_what_the_cluster_says_with_either_autoscaler(autoscaler_v2: bool) -> None:
    fake = FakeRay(name="a", cpus=8, gpus=2, memory=16 * GIB, autoscaler_v2=autoscaler_v2)
    async with watching(fake) as watch:
        fake.use({"CPU": 3.0})
        seen = await watch.probe("a")
        session_name = fake.session_name
    assert (seen.health, seen.problem) == (Health.HEALTHY, None)
    assert seen.total is not None
    assert seen.used is not None
    assert [seen.total[name] for name in ("CPU", "GPU", "memory")] == [8.0, 2.0, 16 * GIB]
    assert (seen.used["CPU"], seen.used.get("GPU", 0.0)) == (3.0, 0.0)
    assert (seen.ray_version, seen.python_version) == ("2.60.0", "3.11.7")
    assert seen.session_name == session_name
    assert seen.nodes is not None
    assert [node.alive for node in seen.nodes] == [True]


async def test_a_probe_does_not_depend_on_how_many_jobs_a_cluster_remembers() -> None:
    fake = FakeRay(name="a", runner=ScriptedRunner())
    async with watching(fake) as watch, open_connection(fake.spec(), {}) as connection:
        await RayJobsExecutor(connection).start(StartRequest(remote_id="j1", entrypoint="sleep 100"))
        await watch.probe("a")
        assert watch.snapshots()["a"].health is Health.HEALTHY
    assert fake.calls["GET /api/jobs/"] == 0


@pytest.mark.parametrize(
    ("environ", "health"),
    [(None, Health.HEALTHY), ({}, Health.UNHEALTHY), ({"FAKE_RAY_A_TOKEN": "wrong"}, Health.UNHEALTHY)],
    ids=["right", "missing", "wrong"],
)
async def test_a_cluster_with_a_token_is_healthy_only_with_the_right_one(
    environ: dict[str, str] | None, health: Health
) -> None:
    async with watching(FakeRay(name="a", token="secret"), environ=environ) as watch:
        seen = await watch.probe("a")
    assert seen.health is health
    assert (seen.problem is None) == (health is Health.HEALTHY)
    assert "secret" not in repr(seen)
    assert "wrong" not in repr(seen)


async def test_a_dashboard_that_hangs_is_unhealthy_at_the_deadline() -> None:
    fake = FakeRay(name="a")
    async with watching(fake, deadline_s=IMPATIENT_S) as watch:
        fake.hang()
        seen = await watch.probe("a")
        assert (seen.health, seen.total) == (Health.UNHEALTHY, None)
        assert seen.problem is not None
        assert "0.3 s" in seen.problem


async def test_an_answer_that_drips_in_byte_by_byte_does_not_outlast_the_deadline() -> None:
    fake = FakeRay(name="a")
    async with watching(fake, deadline_s=IMPATIENT_S) as watch:
        fake.drip(0.05)
        assert (await watch.probe("a")).health is Health.UNHEALTHY


async def test_a_version_that_answers_does_not_hide_that_the_nodes_do_not() -> None:
    fake = FakeRay(name="a")
    async with watching(fake) as watch:
        fake.fail(500, only="/api/v0/nodes")
        assert (await watch.probe("a")).health is Health.UNHEALTHY
    assert fake.calls["GET /api/version"] == 1


async def test_a_head_that_died_behind_its_dashboard_is_unhealthy_with_that_reason() -> None:
    fake = FakeRay(name="a")
    async with watching(fake) as watch:
        await watch.probe("a")
        fake.kill_raylet()
        seen = await watch.probe("a")
    assert seen.health is Health.UNHEALTHY
    assert seen.problem is not None
    assert "DEAD" in seen.problem


async def test_without_usage_the_cluster_is_healthy_and_its_use_unknown() -> None:
    fake = FakeRay(name="a", cpus=4)
    async with watching(fake) as watch:
        fake.fail(500, only="/api/cluster_status")
        seen = await watch.probe("a")
    assert (seen.health, seen.used, seen.pending) == (Health.HEALTHY, None, None)
    assert seen.total is not None
    assert seen.total["CPU"] == 4.0


async def test_a_restart_shows_as_a_new_session_and_a_dark_time_as_old_values() -> None:
    fake = FakeRay(name="a")
    async with watching(fake) as watch:
        first = await watch.probe("a")
        await fake.go_dark()
        dark = await watch.probe("a")
        assert (dark.health, dark.session_name) == (Health.UNHEALTHY, first.session_name)
        assert dark.observed_at == first.observed_at
        await fake.restart()
        await watch.probe("a")
        again = await watch.probe("a")
    assert again.health is Health.HEALTHY
    assert again.session_name not in {None, first.session_name}


async def test_rounds_of_a_good_cluster_go_on_while_the_first_probe_of_another_hangs() -> None:
    good, stuck = FakeRay(name="good"), FakeRay(name="stuck")
    async with watching(good, stuck, probe_interval_s=0.1) as watch:
        stuck.hang()
        told: asyncio.Queue[str] = asyncio.Queue()
        watch.subscribe(lambda probed: told.put_nowait(probed.snapshot.name))
        running = asyncio.create_task(watch.run())
        assert [await told.get() for _ in range(5)] == ["good"] * 5
        assert stuck.calls["GET /api/jobs/{id}"] == 1
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        stuck.resume()


async def test_two_hundred_clusters_are_watched_from_one_process_though_some_hang(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        http_client, "CONNECT_TIMEOUT_S", PATIENT_S
    )  # all 200 connect at once, from here to here
    fakes = [FakeRay(name=f"c{number:03}", runner=ScriptedRunner()) for number in range(200)]
    stuck = fakes[::10]
    good = {fake.name for fake in fakes if fake not in stuck}
    async with watching(*fakes) as watch:
        for fake in stuck:
            fake.hang()
        told: asyncio.Queue[str] = asyncio.Queue()
        watch.subscribe(lambda probed: told.put_nowait(probed.snapshot.name))
        memory_mib, cpu_s = _peak_mib(), time.process_time()
        running = asyncio.create_task(watch.run())
        answered: set[str] = set()
        while not good <= answered:  # some may be looked at for the second time before the last for the first
            answered.add(await told.get())
        print(f"a round of 200, fakes included: {time.process_time() - cpu_s:.2f} s of CPU,", end=" ")
        print(f"{_peak_mib() - memory_mib:.1f} MiB more memory")
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        health = {name: seen.health for name, seen in watch.snapshots().items()}
        for fake in stuck:
            fake.resume()
    assert answered == good
    assert {name for name, state in health.items() if state is Health.HEALTHY} == good


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
