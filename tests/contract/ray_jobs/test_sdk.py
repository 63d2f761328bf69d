"""Every method of the stock `JobSubmissionClient` against the server."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from ray.job_submission import JobStatus, JobSubmissionClient
from tests.contract.ray_jobs.gateway import USER_HEADER, Gateway, a_gateway, several_users
from tests.support.system import fake
from tests.support.trees import make_tree
from tests.support.waiting import eventually

from ray_multicluster_scheduler.packages.to_cluster import without_own_package
from ray_multicluster_scheduler.testing import ShellRunner

# Of aiohttp, about Ray's own client.
pytestmark = pytest.mark.filterwarnings("ignore:ssl=None is deprecated:DeprecationWarning")

FINAL = {JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.STOPPED}


class Client:
    """The stock client, which blocks, for a test that must not."""

    def __init__(self, address: str, user: str = "ann") -> None:
        self.stock = JobSubmissionClient(address, headers={USER_HEADER: user})

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self.stock, name)
        return lambda *args, **more: asyncio.to_thread(method, *args, **more)

    async def until(self, job: str, *states: JobStatus) -> JobStatus:
        status: JobStatus

        async def is_there() -> bool:
            nonlocal status
            status = await self.get_job_status(job)
            return status in (states or FINAL)

        await eventually(is_there, told=lambda: f"{job} is {status}")
        assert isinstance(status, JobStatus)
        return status


async def client_of(gateway: Gateway, user: str = "ann") -> Client:
    return await asyncio.to_thread(Client, gateway.address, user)


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    clusters = fake("a", 1), fake("b", 1)
    async with a_gateway(tmp_path, *clusters, application=several_users) as running:
        yield running


async def test_the_version_is_that_of_the_installed_ray(gateway: Gateway) -> None:
    import ray

    client = await client_of(gateway)
    answer = await client._do_request("GET", "/api/version")
    assert answer.json()["ray_version"] == ray.__version__
    assert answer.json()["ray_commit"] == ray.__commit__
    assert await client.get_version() == "4"


async def test_a_job_runs_and_its_log_can_be_read(gateway: Gateway) -> None:
    client = await client_of(gateway)
    job = await client.submit_job(entrypoint="echo hello")
    assert job.startswith("raysubmit_")
    assert len(job) == len("raysubmit_") + 16

    assert await client.until(job) is JobStatus.SUCCEEDED
    info = await client.get_job_info(job)
    assert (info.submission_id, info.entrypoint, info.driver_exit_code) == (job, "echo hello", 0)
    assert info.message == "Job finished successfully."
    assert info.start_time <= info.end_time
    assert (info.metadata, info.runtime_env) == ({}, {})
    assert (await client.get_job_logs(job)).count("hello") == 2
    assert [each.submission_id for each in await client.list_jobs()] == [job]


async def test_the_program_of_a_failed_job_is_quoted(gateway: Gateway) -> None:
    client = await client_of(gateway)
    job = await client.submit_job(entrypoint="echo before; exit 7")
    assert await client.until(job) is JobStatus.FAILED
    info = await client.get_job_info(job)
    assert info.message.startswith("Job entrypoint command failed with exit code 7, last available logs")
    assert "before" in info.message
    assert (info.error_type, info.driver_exit_code) == ("JOB_ENTRYPOINT_COMMAND_ERROR", 7)


async def test_a_job_that_runs_is_stopped_and_then_deleted(gateway: Gateway) -> None:
    client = await client_of(gateway)
    job = await client.submit_job(entrypoint="sleep 100", submission_id="mine")
    await client.until(job, JobStatus.RUNNING)
    with pytest.raises(RuntimeError, match="'mine', but it is in a non-terminal state RUNNING"):
        await client.delete_job(job)

    assert await client.stop_job(job) is True
    assert await client.until(job) is JobStatus.STOPPED
    assert await client.stop_job(job) is False
    info = await client.get_job_info(job)
    assert (info.message, info.driver_exit_code) == ("Job was intentionally stopped.", None)

    assert await client.delete_job(job) is True
    with pytest.raises(RuntimeError, match="404: Job mine does not exist"):
        await client.get_job_info(job)
    assert not any("mine" in ray.cluster.jobs for ray in gateway.system.ray.values())


async def test_the_id_of_a_deleted_job_may_be_used_again(gateway: Gateway) -> None:
    client = await client_of(gateway)
    await client.submit_job(entrypoint="exit 3", submission_id="again")
    assert await client.until("again") is JobStatus.FAILED
    gateway.system.ray["a"].fail(500, only="DELETE /api/jobs/")
    gateway.system.ray["b"].fail(500, only="DELETE /api/jobs/")
    await client.delete_job("again")

    await client.submit_job(entrypoint="echo second", submission_id="again")
    assert await client.until("again") is JobStatus.SUCCEEDED
    assert "second" in await client.get_job_logs("again")


async def test_a_queued_job_says_why_it_waits_and_where_it_stands(gateway: Gateway) -> None:
    client = await client_of(gateway)
    for name in ("one", "two"):
        await client.submit_job(entrypoint="sleep 100", submission_id=name)
        await client.until(name, JobStatus.RUNNING)
    job = await client.submit_job(entrypoint="echo late", entrypoint_num_cpus=1)

    info = await client.get_job_info(job)
    assert info.status is JobStatus.PENDING
    assert info.message.startswith("Job has not started yet. It may be waiting for resources")
    assert "Number 1 in the queue" in info.message
    assert await client.get_job_logs(job) == ""

    assert await client.stop_job(job) is True
    assert await client.until(job) is JobStatus.STOPPED


async def test_what_is_unknown_is_not_found(gateway: Gateway) -> None:
    client = await client_of(gateway)
    for call in (client.get_job_info, client.get_job_logs, client.stop_job, client.delete_job):
        with pytest.raises(RuntimeError, match="404: Job nope does not exist"):
            await call("nope")


async def test_the_jobs_of_others_do_not_exist(gateway: Gateway) -> None:
    ann, bob = await client_of(gateway), await client_of(gateway, "bob")
    job = await ann.submit_job(entrypoint="sleep 100")
    for call in (bob.get_job_info, bob.get_job_logs, bob.stop_job, bob.delete_job):
        with pytest.raises(RuntimeError, match=f"404: Job {job} does not exist"):
            await call(job)
    assert await bob.list_jobs() == []
    with pytest.raises(Exception, match="404"):
        [line async for line in bob.stock.tail_job_logs(job)]
    operator = await client_of(gateway, "operator")
    assert [each.submission_id for each in await operator.list_jobs()] == [job]


async def test_fifty_submissions_of_one_id_make_one_job(gateway: Gateway) -> None:
    client = await client_of(gateway)

    async def submit() -> str:
        return str(await client.submit_job(entrypoint="echo once", submission_id="same"))

    outcomes = await asyncio.gather(*(submit() for _ in range(50)), return_exceptions=True)
    refused = [str(outcome) for outcome in outcomes if isinstance(outcome, RuntimeError)]
    assert [outcome for outcome in outcomes if isinstance(outcome, str)] == ["same"]
    assert len(refused) == 49
    assert {text.partition(": ")[0] for text in refused} == {"Request failed with status code 500"}
    assert all("same already exists. Please use a different submission_id." in text for text in refused)
    assert await client.until("same") is JobStatus.SUCCEEDED
    assert len(gateway.system.runs("same")) == 1


async def test_options_of_ours_travel_in_the_metadata(gateway: Gateway) -> None:
    client = await client_of(gateway)
    sent = {"raymc.cluster": "b", "raymc.priority": "7", "raymc.cpus": "0.5", "mine": "kept"}
    job = await client.submit_job(entrypoint="echo hi", metadata=sent)
    assert await client.until(job) is JobStatus.SUCCEEDED
    assert (await client.get_job_info(job)).metadata == sent
    assert gateway.system.runs(job) == ["b"]
    with pytest.raises(RuntimeError, match=r"400: .*'raymc\.priority' wants a whole number, not 'high'"):
        await client.submit_job(entrypoint="echo hi", metadata={"raymc.priority": "high"})


async def test_label_selectors_reach_the_cluster(gateway: Gateway) -> None:
    client = await client_of(gateway)
    job = await client.submit_job(entrypoint="echo hi", entrypoint_label_selector={"region": "in(west,east)"})
    assert await client.until(job) is JobStatus.SUCCEEDED
    (found,) = [ray.cluster.jobs[job] for ray in gateway.system.ray.values() if job in ray.cluster.jobs]
    assert found.submission.label_selector == {"region": "in(west,east)"}
    with pytest.raises(RuntimeError, match=r"400: .*Invalid label selector value"):
        await client.submit_job(entrypoint="echo hi", entrypoint_label_selector={"region": "!!bad!!"})


async def test_the_log_is_followed_to_the_end_of_the_job(gateway: Gateway) -> None:
    client = await client_of(gateway)
    job = await client.submit_job(entrypoint="echo one; sleep 0.3; echo two")
    seen = "".join([piece async for piece in client.stock.tail_job_logs(job)])
    # The socket is closed when the end can be read, and not before.
    assert await client.get_job_status(job) is JobStatus.SUCCEEDED
    assert seen.count("one\n") == 1
    assert seen.endswith("two\n")
    assert seen == await client.get_job_logs(job)


async def test_the_log_goes_on_over_attempts(gateway: Gateway) -> None:
    client = await client_of(gateway)
    job = await client.submit_job(entrypoint="echo tried; exit 3", metadata={"raymc.retries": "1"})
    seen = "".join([piece async for piece in client.stock.tail_job_logs(job)])
    assert await client.get_job_status(job) is JobStatus.FAILED
    assert seen.count("tried\n") == 2
    assert "--- attempt 1 is over; attempt 2 follows ---" in seen
    assert seen == await client.get_job_logs(job)


async def test_directories_modules_and_wheels_are_uploaded_and_forwarded(tmp_path: Path) -> None:
    here = make_tree(tmp_path / "code", {"main.sh": "cat data.txt", "data.txt": "shipped", "big.bin": "x"})
    module = make_tree(tmp_path / "mod", {"helper.py": "x = 1"})
    wheel = tmp_path / "tiny-1.0-py3-none-any.whl"
    wheel.write_bytes(b"a wheel")
    async with a_gateway(tmp_path / "served", fake("a", 1, runner=ShellRunner())) as gateway:
        client = await client_of(gateway)
        env = {"working_dir": str(here), "excludes": ["big.bin"], "py_modules": [str(module), str(wheel)]}
        job = await client.submit_job(entrypoint="sh main.sh; ls", runtime_env=env)
        assert await client.until(job) is JobStatus.SUCCEEDED
        log = await client.get_job_logs(job)
        assert "shipped" in log
        assert "big.bin" not in log
        sent = gateway.system.ray["a"].cluster.jobs[job].submission.runtime_env
        assert sent is not None
        assert all(uri in gateway.system.ray["a"].cluster.packages for uri in sent["py_modules"])
        assert without_own_package(sent)["py_modules"][1].startswith("gcs://tiny-1.0-0")


async def test_a_package_of_somebody_else_is_not_taken(tmp_path: Path, gateway: Gateway) -> None:
    here = make_tree(tmp_path / "code", {"main.py": "print(1)"})
    ann, bob = await client_of(gateway), await client_of(gateway, "bob")
    job = await ann.submit_job(entrypoint="echo hi", runtime_env={"working_dir": str(here)})
    shown = (await ann.get_job_info(job)).runtime_env
    with pytest.raises(RuntimeError, match=r"400: .*was not uploaded by 'bob'"):
        await bob.submit_job(entrypoint="echo hi", runtime_env=shown)
    assert await ann.submit_job(entrypoint="echo hi", runtime_env=shown)


async def test_idle_is_told_to_whoever_stops_idle_clusters(gateway: Gateway) -> None:
    client = await client_of(gateway)
    job = await client.submit_job(entrypoint="sleep 100")
    answer = await client._do_request("GET", "/api/component_activities")
    assert answer.json()["driver"]["is_active"] == "ACTIVE"
    await client.stop_job(job)
    await client.until(job)
    answer = await client._do_request("GET", "/api/component_activities")
    assert answer.json()["driver"]["is_active"] == "INACTIVE"
