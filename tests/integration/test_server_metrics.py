"""`/metrics` on a whole system: what it counts, who may read it, and what never becomes a label."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
from fastapi import FastAPI
from prometheus_client.parser import text_string_to_metric_families
from starlette.responses import StreamingResponse
from tests.support.door import open_door
from tests.support.serving import serving
from tests.support.system import System, fake
from tests.support.waiting import eventually

from ray_multicluster_scheduler.embedded import EmbeddedScheduler
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.server.door import Door
from ray_multicluster_scheduler.server.metrics import Metrics, add_metrics, watching
from ray_multicluster_scheduler.service.caller import Caller, Role

READER = Caller(user="prometheus", role=Role.READ)
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


class Watched:
    """A small application with metrics, and one who scrapes it."""

    def __init__(self, scheduler: EmbeddedScheduler, *, caller: Caller = READER) -> None:
        self.app = FastAPI()
        self.app.state.scheduler = scheduler
        self.metrics: Metrics = add_metrics(self.app, scheduler)
        self.app.add_middleware(Door, **open_door(nobody=caller, metrics=self.metrics.http))
        self.address = ""

    async def ask(self, path: str, method: str = "GET") -> str:
        async with aiohttp.request(method, self.address + path) as answer:
            return await answer.text()

    async def scrape(self) -> Samples:
        families = text_string_to_metric_families(await self.ask("/metrics"))
        return {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in families
            for sample in family.samples
        }

    async def until(self, name: str, least: float, **labels: str) -> Samples:
        """Scrape until a value is reached."""
        value = 0.0

        async def is_reached() -> Samples | None:
            nonlocal value
            value = value_of(samples := await self.scrape(), name, **labels)
            return samples if value >= least else None

        samples: Samples = await eventually(is_reached, told=lambda: f"{name} {labels} stays at {value}")
        return samples


def value_of(samples: Samples, name: str, **labels: str) -> float:
    return samples.get((name, frozenset(labels.items())), 0.0)


@asynccontextmanager
async def watched(scheduler: EmbeddedScheduler, **options: Any) -> AsyncIterator[Watched]:
    watch = Watched(scheduler, **options)
    async with watching(scheduler, watch.metrics), serving(watch.app) as watch.address:
        yield watch


async def test_a_jobs_whole_way_is_counted(tmp_path: Path) -> None:
    async with System(tmp_path, fake("a")) as system, watched(system.scheduler) as watch:
        good, bad = await system.submit("sleep 0.1"), await system.submit("exit 3")
        await system.finished(good, bad)
        samples = await watch.until("raymc_jobs_ended_total", 1, state="FAILED")
        samples = await watch.until("raymc_jobs_ended_total", 1, state="SUCCEEDED")

    assert value_of(samples, "raymc_jobs_accepted_total") == 2
    assert value_of(samples, "raymc_placements_total", cluster="a") == 2
    assert value_of(samples, "raymc_attempts_ended_total", cluster="a", outcome="SUCCEEDED") == 1
    assert value_of(samples, "raymc_attempts_ended_total", cluster="a", outcome="FAILED") == 1
    assert value_of(samples, "raymc_dispatch_seconds_count", step="place") == 2
    assert value_of(samples, "raymc_dispatch_seconds_count", step="send") == 2


async def test_the_queue_is_told_by_reason_and_age(tmp_path: Path) -> None:
    async with System(tmp_path, fake("a", cpus=1)) as system, watched(system.scheduler) as watch:
        first = await system.submit("sleep 60")
        await system.until(first, JobState.RUNNING)
        await system.submit_many([{"entrypoint": "sleep 1"}] * 3)
        await system.submit("sleep 1", depends_on=[first])
        samples = await watch.until("raymc_queue_jobs", 3, reason="NO_ROOM")
        samples = await watch.until("raymc_queue_jobs", 1, reason="DEPENDENCIES")

    assert value_of(samples, "raymc_queue_oldest_seconds", reason="NO_ROOM") > 0
    assert value_of(samples, "raymc_jobs", state="QUEUED") == 4
    assert value_of(samples, "raymc_jobs", state="RUNNING") == 1
    assert value_of(samples, "raymc_cluster_live_jobs", cluster="a") == 1
    assert value_of(samples, "raymc_cluster_resource_capacity", cluster="a", resource="CPU") == 1
    assert value_of(samples, "raymc_cluster_resource_claimed", cluster="a", resource="CPU") == 1


async def test_health_leader_lag_and_store_are_told(tmp_path: Path) -> None:
    async with System(tmp_path, fake("a"), fake("b")) as system, watched(system.scheduler) as watch:
        await watch.until("raymc_cluster_up", 1, cluster="b")
        await system.ray["b"].kill()

        async def b_is_down() -> bool:
            return not value_of(await watch.scrape(), "raymc_cluster_up", cluster="b")

        await eventually(b_is_down)
        samples = await watch.until("raymc_loop_lag_seconds_count", 1)

    assert value_of(samples, "raymc_cluster_up", cluster="a") == 1
    assert ("raymc_cluster_up", frozenset({("cluster", "b")})) in samples
    assert value_of(samples, "raymc_leader") == value_of(samples, "raymc_leader_known") == 1
    for operation in ("read", "write", "commit"):
        assert value_of(samples, "raymc_store_seconds_count", operation=operation) >= 1
    assert value_of(samples, "process_resident_memory_bytes") > 0


async def test_a_server_that_does_not_lead_counts_all_the_same(tmp_path: Path) -> None:
    async with System(tmp_path, fake("a", cpus=1)) as system:
        other = system.another_scheduler()
        try:
            async with watched(other) as watch:
                await system.finished(await system.submit("sleep 0.1"))
                await watch.until("raymc_jobs_ended_total", 1, state="SUCCEEDED")
                await system.until(await system.submit("sleep 60"), JobState.RUNNING)
                await watch.until("raymc_placements_total", 2, cluster="a")
                await system.submit("sleep 60")
                samples = await watch.until("raymc_queue_jobs", 1, reason="NO_ROOM")
        finally:
            await asyncio.to_thread(other.stop)

    assert (value_of(samples, "raymc_leader"), value_of(samples, "raymc_leader_known")) == (0, 1)
    assert value_of(samples, "raymc_placements_total", cluster="a") == 2
    assert value_of(samples, "raymc_queue_oldest_seconds", reason="NO_ROOM") > 0


async def test_paths_become_labels_only_as_templates(tmp_path: Path) -> None:
    async with System(tmp_path, fake("a")) as system, watched(system.scheduler) as watch:

        @watch.app.get("/things/{thing}")
        async def thing(thing: str) -> dict[str, str]:
            return {"thing": thing}

        for number in range(20):
            await watch.ask(f"/things/secret-{number}")
            await watch.ask(f"/nowhere/secret-{number}", "PROPFIND")
        samples = await watch.scrape()

    assert (
        value_of(samples, "raymc_http_requests_total", method="GET", route="/things/{thing}", status="200")
        == 20
    )
    assert value_of(samples, "raymc_http_requests_total", method="other", route="none", status="404") == 20
    assert not [labels for _, labels in samples if "secret" in str(labels) or "PROPFIND" in str(labels)]


async def test_streams_are_counted_while_they_are_open(tmp_path: Path) -> None:
    async with System(tmp_path, fake("a")) as system, watched(system.scheduler) as watch:
        flowing, enough = asyncio.Event(), asyncio.Event()

        async def lines() -> AsyncIterator[str]:
            flowing.set()
            yield "one"
            await enough.wait()

        @watch.app.get("/stream")
        async def stream() -> StreamingResponse:
            return StreamingResponse(lines())

        reading = asyncio.create_task(watch.ask("/stream"))
        await flowing.wait()
        during = await watch.until("raymc_http_open", 1, kind="stream")
        enough.set()
        await reading
        after = await watch.scrape()

    assert value_of(during, "raymc_http_open", kind="request") == 1  # the scrape itself
    assert value_of(after, "raymc_http_open", kind="stream") == 0
