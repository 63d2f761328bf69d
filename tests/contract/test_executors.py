"""Every executor keeps the same contract: on fake clusters, on real ones, and one that nobody here wrote."""

from collections.abc import AsyncIterator, Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from tests.contract.conftest import Target
from tests.support.builders import a_cluster, a_spec
from tests.support.made_up_executor import MADE_UP

from ray_multicluster_scheduler.clock import SystemClock
from ray_multicluster_scheduler.core.lifecycle.attempt_request import JOB, ORIGIN
from ray_multicluster_scheduler.engine.context import StoreThread
from ray_multicluster_scheduler.executors.contract import ExecutorKind, Site
from ray_multicluster_scheduler.executors.registry import BUILT_IN, RAY_JOBS, RAY_SESSION
from ray_multicluster_scheduler.model.execution import SessionDriver, StartRequest, session_id
from ray_multicluster_scheduler.store import Store, open_memory_store
from ray_multicluster_scheduler.testing import EXECUTOR_CHECKS, ExecutorScene

Check = Callable[[ExecutorScene], Awaitable[None]]


def opened(kind: ExecutorKind, connection: Any, store: Store) -> ExecutorScene:
    site = Site(connection=connection, store=store, offload=StoreThread(), clock=SystemClock())
    return ExecutorScene(kind.open(site), kind.can)


class SessionScene(ExecutorScene):
    """Sessions, with the part that a server and Ray play for them: drivers come and go."""

    def __init__(self, store: Store) -> None:
        self._drivers: dict[str, SessionDriver] = {}
        self._store = store
        connection = SimpleNamespace(spec=a_cluster("a"), probe=SimpleNamespace(driver=self._driver))
        made = opened(RAY_SESSION, connection, store)
        super().__init__(made.executor, made.can)

    async def _driver(self, ray_job_id: str) -> SessionDriver | None:
        return self._drivers.get(ray_job_id)

    async def begin(self, *, ends: bool) -> str:
        number = len(self._drivers) + 1
        remote_id, ray_job_id = session_id(f"{number:032}"), f"{number:08}"
        spec = a_spec(executor=RAY_SESSION.name, client_address="127.0.0.1")
        self._store.jobs.add([(remote_id, spec)], now=SystemClock().now())
        await self.executor.start(StartRequest(remote_id=remote_id, entrypoint=""))
        marks = {ORIGIN: self._store.store_id, JOB: remote_id}
        self._drivers[ray_job_id] = SessionDriver(is_alive=not ends, pid=1, address=None, metadata=marks)
        self._store.sessions.update([remote_id], ray_job_id=ray_job_id, disconnected=ends)
        return remote_id

    async def stop(self, remote_id: str) -> None:
        await super().stop(remote_id)
        session = self._store.sessions.get_many([remote_id])[remote_id]
        assert session.ray_job_id is not None
        marks = self._drivers[session.ray_job_id].metadata
        ended = SessionDriver(is_alive=False, pid=1, address=None, metadata=marks)
        self._drivers[session.ray_job_id] = ended


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    store = open_memory_store()
    yield store
    store.close()


@pytest.mark.parametrize("check", EXECUTOR_CHECKS, ids=lambda check: check.__name__)
async def test_rays_jobs(target: Target, store: Store, check: Check) -> None:
    await check(opened(RAY_JOBS, target.connection, store))


@pytest.mark.parametrize("check", EXECUTOR_CHECKS, ids=lambda check: check.__name__)
async def test_sessions(store: Store, check: Check) -> None:
    await check(SessionScene(store))


@pytest.mark.parametrize("check", EXECUTOR_CHECKS, ids=lambda check: check.__name__)
async def test_one_of_another_package(store: Store, check: Check) -> None:
    await check(opened(MADE_UP, SimpleNamespace(spec=a_cluster("a")), store))


def test_no_executor_of_ours_is_left_out() -> None:
    assert set(BUILT_IN) == {RAY_JOBS.name, RAY_SESSION.name}
