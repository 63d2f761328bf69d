"""A store is moved while jobs run: a scheduler on the new one goes on with them, and none is run twice."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.postgres import PostgresServer, a_postgres
from tests.support.system import System, fake
from tests.support.waiting import eventually

from ray_multicluster_scheduler.config.store_place import STORE_VARIABLE, StorePlace
from ray_multicluster_scheduler.embedded import EmbeddedScheduler
from ray_multicluster_scheduler.errors import ForeignStore, SchedulerError
from ray_multicluster_scheduler.maintenance import move
from ray_multicluster_scheduler.model.states import JobState


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with a_postgres() as server:
        yield server


class MovingSystem(System):
    """A system whose next scheduler may be on another store."""

    store: str | None = None

    def _environ(self) -> dict[str, str]:
        named = {} if self.store is None else {STORE_VARIABLE: self.store}
        return {**super()._environ(), **named}

    async def moved_to(self, store: str) -> EmbeddedScheduler:
        """Move the store under the running scheduler, then schedule there; return the former scheduler."""
        former, self.store = self.scheduler, store
        self.scheduler = self.another_scheduler()
        self._stack.push_async_callback(asyncio.to_thread, self.scheduler.stop)
        target: StorePlace = self.scheduler.place
        copied = await asyncio.to_thread(move, former.place, target, progress=lambda _done, _total: None)
        assert copied.broken == ()
        self.scheduler.start()
        return former


def ended_because_it_was_moved(scheduler: EmbeddedScheduler) -> bool:
    """Tell whether the engine of a scheduler has noticed that its store is elsewhere."""
    try:
        scheduler.ensure_scheduled()
    except SchedulerError as problem:
        return isinstance(problem.__cause__, ForeignStore) and "was moved to" in str(problem)
    return False


@pytest.mark.parametrize("way", ["to a server and back", "to another directory"])
async def test_running_and_waiting_jobs_end_properly_and_once(
    tmp_path: Path, request: pytest.FixtureRequest, way: str
) -> None:
    if way == "to another directory":
        stores = [str(tmp_path / "elsewhere")]
    else:
        server: PostgresServer = request.getfixturevalue("postgres")
        stores = [server.url("moved"), str(tmp_path / "back")]
    # The lease moves along, and the next scheduler waits for its end.
    async with MovingSystem(tmp_path, fake("a", cpus=4), fake("b", cpus=4), lease_ttl_s=4.0) as system:
        running = [await system.submit("sleep 4", submission_id=f"long-{n}") for n in range(6)]
        waiting = [await system.submit("sleep 0.2", submission_id=f"short-{n}") for n in range(6)]
        after = await system.submit("echo", depends_on=[running[0]])
        await system.until(running[0], JobState.RUNNING)
        seen = system.scheduler.store.history.last_event()
        store_id = system.scheduler.store_id

        for store in stores:
            former = await system.moved_to(store)
            await eventually(lambda former=former: ended_because_it_was_moved(former))
            with pytest.raises(ForeignStore, match="was moved to"):
                former.store.jobs.request_stop(running, now=0.0, reason="late")
            late = await system.submit("echo")
            assert system.scheduler.store.history.last_event() > seen

        assert system.scheduler.store_id == store_id
        jobs = await system.finished(*running, *waiting, after, late)
        assert {job.state for job in jobs.values()} == {JobState.SUCCEEDED}
        for submission_id, job in jobs.items():
            assert len(system.runs(submission_id)) == 1, submission_id
            assert job.attempt == 1
