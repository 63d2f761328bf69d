"""What the fake adds to the contract: an oracle of what ran, and Ray's behaviour in corners."""

import asyncio
import os
import select
from typing import Any

import pytest

from ray_multicluster_scheduler.errors import ClusterRefused, RemoteJobExists
from ray_multicluster_scheduler.executors.ray_jobs import RayJobsExecutor
from ray_multicluster_scheduler.model.execution import AttemptStatus, StartRequest
from ray_multicluster_scheduler.ray_api import HttpConnection
from ray_multicluster_scheduler.testing import FakeRay, ScriptedRunner, fake_cluster


def a_submit(submission_id: str, entrypoint: str = "echo hello", **changes: Any) -> StartRequest:
    return StartRequest(remote_id=submission_id, entrypoint=entrypoint, **changes)


async def to_the_end(connection: HttpConnection, submission_id: str) -> str:
    return "".join([piece async for piece in RayJobsExecutor(connection).follow_log(submission_id)])


async def test_twenty_submits_with_one_id_are_one_run() -> None:
    async with FakeRay() as fake, HttpConnection(fake.spec()) as connection:
        tries = [RayJobsExecutor(connection).start(a_submit("one")) for _ in range(20)]
        answers = await asyncio.gather(*tries, return_exceptions=True)
        await to_the_end(connection, "one")

        assert sorted(type(answer).__name__ for answer in answers) == ["NoneType"] + ["RemoteJobExists"] * 19
        assert [(run.submission_id, run.exit_code) for run in fake.runs] == [("one", 0)]


@pytest.mark.parametrize("bad_id", ["a/b", "x" * 300])
async def test_an_id_that_is_no_file_name_leaves_a_ghost(bad_id: str) -> None:
    async with FakeRay() as fake, HttpConnection(fake.spec()) as connection:
        with pytest.raises(ClusterRefused):
            await RayJobsExecutor(connection).start(a_submit(bad_id))
        assert (await RayJobsExecutor(connection).get(bad_id)).status is AttemptStatus.PENDING
        with pytest.raises(ClusterRefused):
            await RayJobsExecutor(connection).delete(bad_id)
        with pytest.raises(RemoteJobExists):
            await RayJobsExecutor(connection).start(a_submit(bad_id))
        assert fake.runs == []


async def test_a_driver_waits_for_its_resources_and_starts_when_they_are_free() -> None:
    async with FakeRay(cpus=2) as fake, HttpConnection(fake.spec()) as connection:
        fake.use({"CPU": 1.5})
        await RayJobsExecutor(connection).start(a_submit("waits", entrypoint_num_cpus=1))

        job, usage = await RayJobsExecutor(connection).get("waits"), await connection.probe.usage()
        assert job.status is AttemptStatus.PENDING
        assert "waiting for resources" in job.message
        assert usage.pending == (({"CPU": 1.0}, 1),)

        fake.use({})
        await to_the_end(connection, "waits")
        assert (await RayJobsExecutor(connection).get("waits")).status is AttemptStatus.SUCCEEDED
        assert (await connection.probe.usage()).used == dict.fromkeys(fake.cluster.total, 0.0)


async def test_a_waiting_job_that_was_stopped_never_runs() -> None:
    async with FakeRay(cpus=2) as fake, HttpConnection(fake.spec()) as connection:
        fake.use({"CPU": 2})
        await RayJobsExecutor(connection).start(a_submit("waits", entrypoint_num_cpus=1))
        assert await RayJobsExecutor(connection).stop("waits") is True
        assert (await RayJobsExecutor(connection).get("waits")).status is AttemptStatus.PENDING

        fake.use({})
        await to_the_end(connection, "waits")
        assert (await RayJobsExecutor(connection).get("waits")).status is AttemptStatus.STOPPED
        assert fake.runs == []


async def test_a_program_that_ignores_sigterm_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fake_cluster, "STOP_WAIT_S", 0.05)
    async with FakeRay() as fake, HttpConnection(fake.spec()) as connection:
        await RayJobsExecutor(connection).start(
            a_submit("stubborn", "trap '' TERM; echo ready; while :; do sleep 0.01; done")
        )
        async for piece in RayJobsExecutor(connection).follow_log("stubborn"):
            if "ready" in piece.splitlines():
                await RayJobsExecutor(connection).stop("stubborn")
        assert (await RayJobsExecutor(connection).get("stubborn")).status is AttemptStatus.STOPPED
        assert [run.exit_code for run in fake.runs] == [-9]


async def test_no_process_is_left_behind() -> None:
    async with FakeRay() as fake, HttpConnection(fake.spec()) as connection:
        await RayJobsExecutor(connection).start(a_submit("left", "sleep 600 & echo $$ $!; wait"))
        tail = RayJobsExecutor(connection).follow_log("left")
        log = await anext(tail)
        while not (numbers := log.splitlines()[-1]).replace(" ", "").isdigit() or not log.endswith("\n"):
            log += await anext(tail)
        processes = [os.pidfd_open(int(number)) for number in numbers.split()]
        await tail.aclose()
    for process in processes:
        ended, _, _ = select.select([process], [], [], 30)
        assert ended
        os.close(process)


async def test_runs_are_remembered_over_a_restart() -> None:
    async with FakeRay(runner=ScriptedRunner()) as fake, HttpConnection(fake.spec()) as connection:
        await RayJobsExecutor(connection).start(a_submit("again", "sleep 3600"))
        await fake.restart()
        await RayJobsExecutor(connection).start(a_submit("again", "echo second"))
        await to_the_end(connection, "again")

        first, second = fake.runs
        assert (first.exit_code, second.exit_code) == (-9, 0)
        assert first.session_name != second.session_name == fake.session_name
        assert first.end is not None


async def test_a_thousand_scripted_jobs_run_on_one_fake() -> None:
    async with FakeRay(runner=ScriptedRunner()) as fake, HttpConnection(fake.spec()) as connection:
        for number in range(1000):
            await RayJobsExecutor(connection).start(a_submit(f"job-{number}", "sleep 0.01; echo done"))
        await to_the_end(connection, "job-999")

        assert {job.status for job in (await RayJobsExecutor(connection).inventory()).sightings} == {
            AttemptStatus.SUCCEEDED
        }
        assert len(fake.runs) == fake.calls["POST /api/jobs/"] == 1000
