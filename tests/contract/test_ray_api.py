"""What a Ray cluster promises over HTTP: true for a real head, so it must be true for the fake."""

import uuid
import zipfile
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from tests.contract.conftest import Target
from tests.support.waiting import eventually

from ray_multicluster_scheduler.errors import ClusterRefused, RemoteJobExists, RemoteJobNotFound
from ray_multicluster_scheduler.executors.ray_jobs import RayJobsExecutor
from ray_multicluster_scheduler.model.cluster import Usage
from ray_multicluster_scheduler.model.execution import AttemptStatus, FailureKind, Sighting, StartRequest
from ray_multicluster_scheduler.model.resources import Resources
from ray_multicluster_scheduler.ray_api import HttpConnection


def a_submit(entrypoint: str, **changes: Any) -> StartRequest:
    return StartRequest(remote_id=f"contract-{uuid.uuid4().hex[:12]}", entrypoint=entrypoint, **changes)


async def read_tail(connection: HttpConnection, submission_id: str, *, until: str | None = None) -> str:
    """Read a log as it grows: to its end, which is the job's, or until some words have appeared."""
    log = ""
    async with aclosing(RayJobsExecutor(connection).follow_log(submission_id)) as pieces:
        async for piece in pieces:
            log += piece
            if until is not None and until in log:
                break
    return log


async def run(connection: HttpConnection, request: StartRequest) -> Sighting:
    """Submit a job and return how it ended."""
    await RayJobsExecutor(connection).start(request)
    await read_tail(connection, request.remote_id)
    return await RayJobsExecutor(connection).get(request.remote_id)


async def exact_usage(connection: HttpConnection, total: Resources) -> Usage:
    """Return the usage once it is told exactly.

    A head tells it some seconds after its start, and at first perhaps only as a text with rounded numbers.
    """
    usage: Usage | None = None

    async def told() -> Usage | None:
        nonlocal usage
        usage = await connection.probe.usage()
        return usage if usage.total == total else None

    found: Usage = await eventually(told, told=lambda: f"its usage was never exact; the last was {usage}")
    return found


async def test_versions_and_session_are_told(target: Target) -> None:
    version = await target.connection.probe.version()
    python_version = await target.connection.probe.python_version()

    assert version.api_version == "4"
    assert version.ray_version.startswith("2.")
    assert version.session_name is not None
    assert version.session_name.startswith("session_")
    assert python_version is not None
    assert python_version.startswith("3.")


async def test_the_head_is_an_alive_node_with_its_resources_and_no_markers(target: Target) -> None:
    (node,) = await target.connection.probe.nodes()

    assert (node.alive, node.is_head, node.resources["CPU"]) == (True, True, target.cpus)
    assert set(node.resources) == {"CPU", "memory", "object_store_memory"}
    assert node.labels["ray.io/node-id"] == node.node_id


async def test_usage_has_the_totals_of_the_nodes(target: Target) -> None:
    (node,) = await target.connection.probe.nodes()
    usage = await exact_usage(target.connection, node.resources)

    assert usage.used is not None
    assert set(usage.used) == set(node.resources)
    assert usage.pending == ()


async def test_a_job_gets_its_variables_and_tells_what_it_was_given(target: Target) -> None:
    request = a_submit(
        "echo got-$COLOUR",
        runtime_env={"env_vars": {"COLOUR": "green"}},
        metadata={"raymc.attempt": "1"},
        entrypoint_num_cpus=1,
    )

    job = await run(target.connection, request)

    assert (job.status, job.exit_code, job.error_type) == (AttemptStatus.SUCCEEDED, 0, None)
    assert job.message == "Job finished successfully."
    assert job.metadata == {"raymc.attempt": "1"}
    assert job.started_at is not None
    assert job.ended_at is not None
    assert 0 <= job.ended_at - job.started_at < 3600
    assert job.node_id == (await target.connection.probe.nodes())[0].node_id
    assert "got-green\n" in await RayJobsExecutor(target.connection).log(request.remote_id)
    assert request.remote_id in {
        listed.remote_id for listed in (await RayJobsExecutor(target.connection).inventory()).sightings
    }


async def test_a_tail_is_the_whole_log(target: Target) -> None:
    request = a_submit("for i in 1 2 3; do echo line-$i; done")
    await RayJobsExecutor(target.connection).start(request)

    log = await read_tail(target.connection, request.remote_id)

    assert log == await RayJobsExecutor(target.connection).log(request.remote_id)
    assert "line-1\nline-2\nline-3\n" in log
    assert f"Running entrypoint for job {request.remote_id}: {request.entrypoint}\n" in log


async def test_a_failing_job_tells_its_exit_code_and_its_last_words(target: Target) -> None:
    job = await run(target.connection, a_submit("echo famous-words; exit 7"))

    assert (job.status, job.exit_code) == (AttemptStatus.FAILED, 7)
    assert (job.error_type, job.failure) == ("JOB_ENTRYPOINT_COMMAND_ERROR", FailureKind.USER)
    assert "failed with exit code 7" in job.message
    assert "famous-words" in job.message


async def test_an_id_is_used_once_until_it_is_deleted(target: Target) -> None:
    first = a_submit("echo first")
    second = StartRequest(remote_id=first.remote_id, entrypoint="echo second")
    await run(target.connection, first)

    with pytest.raises(RemoteJobExists) as refused:
        await RayJobsExecutor(target.connection).start(second)
    assert refused.value.status == 500
    assert "first\n" in await RayJobsExecutor(target.connection).log(first.remote_id)

    await RayJobsExecutor(target.connection).delete(first.remote_id)
    assert (await run(target.connection, second)).status is AttemptStatus.SUCCEEDED
    # Not only that: Ray goes on writing to the file of the job that had this id before.
    assert "second\n" in await RayJobsExecutor(target.connection).log(first.remote_id)


async def test_a_running_job_cannot_be_deleted_but_stopped(target: Target) -> None:
    request = a_submit("echo ready; sleep 600")
    await RayJobsExecutor(target.connection).start(request)
    await read_tail(target.connection, request.remote_id, until="ready\n")
    assert (await RayJobsExecutor(target.connection).get(request.remote_id)).status is AttemptStatus.RUNNING

    with pytest.raises(ClusterRefused, match="non-terminal state RUNNING") as refused:
        await RayJobsExecutor(target.connection).delete(request.remote_id)
    assert "Traceback" not in str(refused.value)

    assert await RayJobsExecutor(target.connection).stop(request.remote_id) is True
    await read_tail(target.connection, request.remote_id)
    job = await RayJobsExecutor(target.connection).get(request.remote_id)
    assert (job.status, job.exit_code) == (AttemptStatus.STOPPED, None)
    assert await RayJobsExecutor(target.connection).stop(request.remote_id) is False


async def test_an_unknown_id_is_not_found_by_any_call(target: Target) -> None:
    for call in (
        RayJobsExecutor(target.connection).get,
        RayJobsExecutor(target.connection).stop,
        RayJobsExecutor(target.connection).delete,
        RayJobsExecutor(target.connection).log,
    ):
        with pytest.raises(RemoteJobNotFound) as refused:
            await call("nobody-knows-this")
        assert refused.value.body == "Job nobody-knows-this does not exist"
    with pytest.raises(RemoteJobNotFound):
        await read_tail(target.connection, "nobody-knows-this")


async def test_an_uploaded_package_is_the_working_directory_of_a_job(target: Target, tmp_path: Path) -> None:
    name = f"_ray_pkg_{uuid.uuid4().hex[:16]}.zip"
    with zipfile.ZipFile(tmp_path / name, "w") as package:
        package.writestr("greeting.txt", "hello from the package\n")

    assert await target.connection.packages.has_package(name) is False
    await target.connection.packages.put_package(name, tmp_path / name)
    assert await target.connection.packages.has_package(name) is True

    request = a_submit("cat greeting.txt", runtime_env={"working_dir": f"gcs://{name}"})
    assert (await run(target.connection, request)).status is AttemptStatus.SUCCEEDED
    assert "hello from the package\n" in await RayJobsExecutor(target.connection).log(request.remote_id)


async def test_a_package_that_is_not_there_fails_the_environment_not_the_program(target: Target) -> None:
    request = a_submit("echo never", runtime_env={"working_dir": "gcs://_ray_pkg_0000000000000000.zip"})

    job = await run(target.connection, request)

    assert (job.status, job.error_type) == (AttemptStatus.FAILED, "RUNTIME_ENV_SETUP_FAILURE")
    assert job.failure is FailureKind.ENVIRONMENT
    assert job.exit_code is None
