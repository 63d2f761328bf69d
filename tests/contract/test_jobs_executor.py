"""How Ray's jobs are observed: at least cost to the cluster, and none is missed because of that."""

import json
from collections.abc import AsyncIterator

import pytest

from ray_multicluster_scheduler.errors import ClusterBadAnswer, ClusterError, ClusterUnreachable
from ray_multicluster_scheduler.executors.contract import Executor
from ray_multicluster_scheduler.executors.ray_jobs import LISTED_PER_READ, SINGLE_READS, RayJobsExecutor
from ray_multicluster_scheduler.model.execution import AttemptStatus, InventoryRow, StartRequest
from ray_multicluster_scheduler.ray_api import HttpConnection
from ray_multicluster_scheduler.testing import FakeRay, ScriptedRunner

LIST, ONE = "GET /api/jobs/", "GET /api/jobs/{id}"
#: As many as make a list the cheaper way, where the cluster has no others.
MANY = [f"job-{number}" for number in range(2 * SINGLE_READS)]


@pytest.fixture
async def fake() -> AsyncIterator[FakeRay]:
    async with FakeRay(name="a", runner=ScriptedRunner()) as fake:
        yield fake


@pytest.fixture
async def executor(fake: FakeRay) -> AsyncIterator[Executor]:
    async with HttpConnection(fake.spec()) as opened:
        yield RayJobsExecutor(opened)


async def started(executor: Executor, *remote_ids: str) -> None:
    for remote_id in remote_ids:
        await executor.start(StartRequest(remote_id=remote_id, entrypoint="sleep 3600"))


def reads(fake: FakeRay) -> tuple[int, int]:
    """Return how many lists and how many single jobs were read."""
    return fake.calls[LIST], fake.calls[ONE]


async def test_before_the_list_is_known_jobs_are_read_one_by_one(fake: FakeRay, executor: Executor) -> None:
    await started(executor, *MANY)
    found = await executor.observe(MANY)
    assert {name: seen.status for name, seen in found.items()} == dict.fromkeys(MANY, AttemptStatus.RUNNING)
    assert all(seen.remote_id == name for name, seen in found.items())
    assert reads(fake) == (0, len(MANY))


async def test_few_jobs_are_read_one_by_one_and_many_with_one_list(fake: FakeRay, executor: Executor) -> None:
    await started(executor, *MANY)
    await executor.inventory(lambda _: False)
    assert set(await executor.observe(MANY[:SINGLE_READS])) == set(MANY[:SINGLE_READS])
    assert reads(fake) == (1, SINGLE_READS)
    assert set(await executor.observe(MANY[1:])) == set(MANY[1:])
    assert reads(fake) == (2, SINGLE_READS)


async def test_a_list_that_has_become_long_is_not_read_for_a_few(fake: FakeRay, executor: Executor) -> None:
    await started(executor, *MANY, *(f"other-{number}" for number in range(len(MANY) * LISTED_PER_READ)))
    assert (await executor.inventory(lambda _: False)).remembered > len(MANY) * LISTED_PER_READ
    assert set(await executor.observe(MANY)) == set(MANY)
    assert reads(fake) == (1, len(MANY))


@pytest.mark.parametrize("list_known", [False, True])
async def test_an_id_that_is_not_there_is_left_out(
    fake: FakeRay, executor: Executor, list_known: bool
) -> None:
    await started(executor, *MANY)
    if list_known:
        await executor.inventory()
    assert set(await executor.observe([*MANY, "nobody-knows-this"])) == set(MANY)
    assert (fake.calls[ONE] == 0) == list_known


async def test_nothing_is_asked_for_no_ids(fake: FakeRay, executor: Executor) -> None:
    await executor.inventory()
    assert await executor.observe([]) == {}
    assert reads(fake) == (1, 0)


async def test_a_list_that_cannot_be_read_is_not_tried_again_before_one_could_be(
    fake: FakeRay, executor: Executor
) -> None:
    await started(executor, *MANY)
    await executor.inventory()
    fake.garbage(only=LIST, kind="cut")
    assert set(await executor.observe(MANY)) == set(MANY)
    assert reads(fake) == (2, len(MANY))
    assert set(await executor.observe(MANY)) == set(MANY)
    assert reads(fake) == (2, 2 * len(MANY))
    await executor.inventory()
    assert set(await executor.observe(MANY)) == set(MANY)
    assert reads(fake) == (4, 2 * len(MANY))


@pytest.mark.parametrize("list_known", [False, True])
async def test_a_cluster_that_does_not_answer_is_an_error_and_no_missing_job(
    fake: FakeRay, executor: Executor, list_known: bool
) -> None:
    await started(executor, *MANY)
    if list_known:
        await executor.inventory()
    fake.fail(503)
    with pytest.raises(ClusterError):
        await executor.observe(MANY)
    await fake.go_dark()
    with pytest.raises(ClusterUnreachable):
        await executor.observe(MANY)


async def test_an_inventory_has_what_was_wanted_and_tells_how_long_the_list_is(executor: Executor) -> None:
    await started(executor, *MANY)
    rows: list[InventoryRow] = []

    def keep(row: InventoryRow) -> bool:
        rows.append(row)
        return row.remote_id == "job-1"

    inventory = await executor.inventory(keep)
    assert ([seen.remote_id for seen in inventory.sightings], inventory.remembered) == (["job-1"], len(MANY))
    assert {row.remote_id: row.status for row in rows} == dict.fromkeys(MANY, AttemptStatus.RUNNING)


async def test_one_bad_row_spoils_the_list_because_a_job_left_out_would_look_lost(
    fake: FakeRay, executor: Executor
) -> None:
    await started(executor, "good", "bad")

    def dancing(body: bytes) -> bytes:
        rows = json.loads(body)
        return json.dumps(
            [{**row, "status": "DANCING"} if row["submission_id"] == "bad" else row for row in rows]
        ).encode()

    fake.lie(dancing, only=LIST)
    with pytest.raises(ClusterBadAnswer, match="unknown job status 'DANCING'"):
        await executor.inventory()
    assert len((await executor.inventory(lambda row: row.remote_id == "good")).sightings) == 1
