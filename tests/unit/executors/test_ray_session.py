"""A session is observed through the note of its server and the driver of its helper process."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.builders import NOW, a_cluster, a_spec
from tests.support.clock import ManualClock

from ray_multicluster_scheduler.core.lifecycle.attempt_request import JOB, ORIGIN
from ray_multicluster_scheduler.engine.context import StoreThread
from ray_multicluster_scheduler.errors import RemoteJobNotFound
from ray_multicluster_scheduler.executors.contract import Site
from ray_multicluster_scheduler.executors.ray_session import (
    ABSENT_AFTER_S,
    HELPER_ENDED,
    NEVER_CONNECTED,
    NOTED_WITHIN_S,
    SessionExecutor,
)
from ray_multicluster_scheduler.executors.registry import RAY_SESSION
from ray_multicluster_scheduler.model.execution import AttemptStatus, FailureKind, SessionDriver
from ray_multicluster_scheduler.store import Store, open_memory_store

ID = "session-0123456789abcdef"


class Probe:
    """A cluster with one driver."""

    def __init__(self, driver: SessionDriver | None) -> None:
        self.found = driver

    async def driver(self, job_id: str) -> SessionDriver | None:
        return self.found if job_id == "02000000" else None


class Scene:
    def __init__(self) -> None:
        self.store: Store = open_memory_store()
        self.store.jobs.add([(ID, a_spec(executor=RAY_SESSION.name, client_address="10.0.0.5"))], now=NOW)
        self.clock = ManualClock()
        marks = {ORIGIN: self.store.store_id, JOB: ID}
        self.driver = SessionDriver(is_alive=True, pid=7, address="127.0.0.1", metadata=marks)
        self.probe = Probe(self.driver)
        connection: Any = SimpleNamespace(spec=a_cluster("a"), probe=self.probe)
        site = Site(connection=connection, store=self.store, offload=StoreThread(), clock=self.clock)
        self.executor = SessionExecutor(site)

    def note(self, **values: object) -> None:
        self.store.sessions.update([ID], **values)

    async def status(self) -> AttemptStatus:
        return (await self.executor.get(ID)).status


@pytest.fixture
def scene() -> Scene:
    return Scene()


async def test_it_is_pending_while_its_program_waits_and_fails_when_that_is_gone(scene: Scene) -> None:
    assert await scene.status() is AttemptStatus.PENDING
    scene.clock.advance(ABSENT_AFTER_S + 1)
    sighting = await scene.executor.get(ID)
    assert (sighting.status, sighting.message) == (AttemptStatus.FAILED, NEVER_CONNECTED)


async def test_it_runs_as_long_as_its_driver_does(scene: Scene) -> None:
    scene.note(ray_job_id="02000000")
    assert await scene.status() is AttemptStatus.RUNNING
    scene.probe.found = replace(scene.driver, is_alive=False)
    assert await scene.status() is AttemptStatus.RUNNING  # its server may be about to say how it ended
    scene.note(disconnected=True)
    assert await scene.status() is AttemptStatus.SUCCEEDED


async def test_a_dead_driver_that_nobody_has_let_go_is_a_failure(scene: Scene) -> None:
    scene.note(ray_job_id="02000000")
    scene.probe.found = replace(scene.driver, is_alive=False)
    assert await scene.status() is AttemptStatus.RUNNING
    scene.clock.advance(NOTED_WITHIN_S + 1)
    sighting = await scene.executor.get(ID)
    assert (sighting.status, sighting.message) == (AttemptStatus.FAILED, HELPER_ENDED)
    scene.note(failure="its program broke off without disconnecting")
    assert (await scene.executor.get(ID)).message == "its program broke off without disconnecting"


async def test_a_stop_is_left_to_its_server_and_shows_in_its_end(scene: Scene) -> None:
    scene.note(ray_job_id="02000000")
    assert await scene.executor.stop(ID)
    assert scene.store.sessions.get_many([ID])[ID].stop_requested
    assert await scene.status() is AttemptStatus.RUNNING
    scene.probe.found = replace(scene.driver, is_alive=False)
    assert await scene.status() is AttemptStatus.STOPPED


async def test_why_it_did_not_begin_is_told(scene: Scene) -> None:
    scene.note(failure="its environment cannot be set up")
    sighting = await scene.executor.get(ID)
    assert (sighting.status, sighting.message) == (
        AttemptStatus.FAILED,
        "its environment cannot be set up",
    )


async def test_the_driver_of_somebody_else_with_the_same_number_is_not_ours(scene: Scene) -> None:
    scene.note(ray_job_id="02000000")
    scene.probe.found = replace(scene.driver, metadata={JOB: "session-of-another-store"})
    assert await scene.executor.observe([ID]) == {}
    with pytest.raises(RemoteJobNotFound):
        await scene.executor.get(ID)


async def test_a_later_attempt_is_found_by_the_same_session(scene: Scene) -> None:
    assert set(await scene.executor.observe([f"{ID}--r2"])) == {f"{ID}--r2"}


async def test_an_attempt_that_its_cluster_could_not_begin_is_refused_and_the_next_one_is_not(
    scene: Scene,
) -> None:
    scene.note(failure="cluster 'a' cannot be reached", refused_attempt=1)
    first, second = await scene.executor.get(ID), await scene.executor.get(f"{ID}--r2")
    assert (first.status, first.failure) == (AttemptStatus.FAILED, FailureKind.REFUSED)
    assert second.status is AttemptStatus.PENDING


async def test_a_session_that_is_stopped_before_it_has_begun_is_stopped_when_its_server_gives_up(
    scene: Scene,
) -> None:
    await scene.executor.stop(ID)
    assert await scene.status() is AttemptStatus.PENDING
    scene.note(failure="stopped by ann")
    assert await scene.status() is AttemptStatus.STOPPED
