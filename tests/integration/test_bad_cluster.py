"""One bad cluster hurts nobody: whatever it answers, the others go on and the engine lives."""

import asyncio
import errno
import gc
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.system import System, fake
from tests.support.waiting import eventually

from ray_multicluster_scheduler.engine.cluster_io import ClusterIO
from ray_multicluster_scheduler.executors.ray_jobs import RayJobsExecutor
from ray_multicluster_scheduler.model.cluster import Health
from ray_multicluster_scheduler.model.execution import StartRequest
from ray_multicluster_scheduler.model.result import RESULT_VAR
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.packages import store as package_store
from ray_multicluster_scheduler.packages.runtime_env import localise, package_names
from ray_multicluster_scheduler.packages.store import PackageStore
from ray_multicluster_scheduler.packages.to_cluster import without_own_package
from ray_multicluster_scheduler.ray_api.http_connection import HttpClusterProbe, HttpConnection

HUGE = 10**400


def changed(change: Callable[[Any], Any]) -> Callable[[bytes], bytes]:
    """Change the JSON of an answer."""
    return lambda body: json.dumps(change(json.loads(body))).encode()


def first_node(**changes: Any) -> Callable[[bytes], bytes]:
    def change(answer: Any) -> Any:
        answer["data"]["result"]["result"][0] |= changes
        return answer

    return changed(change)


def usage(pair: list[int]) -> Callable[[bytes], bytes]:
    def change(answer: Any) -> Any:
        answer["data"]["clusterStatus"]["loadMetricsReport"]["usage"]["CPU"] = pair
        return answer

    return changed(change)


def a_job(**changes: Any) -> Callable[[bytes], bytes]:
    return changed(
        lambda answer: (
            [{**row, **changes} for row in answer] if isinstance(answer, list) else {**answer, **changes}
        )
    )


LIES: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "node-huge-int": ("/api/v0/nodes", first_node(resources_total={"CPU": HUGE})),
    "surrogate-resource": ("/api/v0/nodes", first_node(resources_total={"CPU": 4, "\ud800": 1})),
    "surrogate-label": ("/api/v0/nodes", first_node(labels={"\ud800\0": "\udfff"})),
    "usage-huge-int": ("/api/cluster_status", usage([HUGE, HUGE])),
    "job-huge-start": ("GET /api/jobs/", a_job(start_time=HUGE, end_time=HUGE)),
    "job-huge-exit": ("GET /api/jobs/", a_job(driver_exit_code=2**70, status="FAILED")),
    "job-surrogates": ("GET /api/jobs/", a_job(message="\ud800\0", error_type="\ud800", status="FAILED")),
    "version": ("/api/version", changed(lambda answer: {**answer, "ray_version": "\ud800\0" * 10_000})),
    "no JSON at all": ("", lambda _: b"\xff\xfe{"),
}


@pytest.mark.parametrize("lie", LIES)
async def test_no_number_and_no_character_of_one_cluster_ends_the_engine(tmp_path: Path, lie: str) -> None:
    async with System(tmp_path, fake("good"), fake("bad")) as system:
        theirs = await system.submit("sleep 1.5", preferred_cluster="bad")
        await system.until(theirs, JobState.RUNNING)
        path, change = LIES[lie]
        system.ray["bad"].lie(change, only=path)
        for _ in range(3):
            ours = await system.submit("sleep 0.3", preferred_cluster="good")
            assert (await system.finished(ours))[ours].state is JobState.SUCCEEDED
        system.ray["bad"].heal()
        assert (await system.finished(theirs))[theirs].final
        again = await system.submit("sleep 0.1", preferred_cluster="bad")
        assert (await system.finished(again))[again].state is JobState.SUCCEEDED


async def test_a_bug_in_the_work_on_one_cluster_is_loud_and_leaves_the_others_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    true_look = ClusterIO._observe

    async def broken(self: ClusterIO, wanted: Any) -> Any:
        if self._spec.name == "bad":
            raise KeyError("a bug")
        return await true_look(self, wanted)

    async with System(tmp_path, fake("good"), fake("bad")) as system:
        monkeypatch.setattr(ClusterIO, "_observe", broken)
        theirs = await system.submit("sleep 0.1", preferred_cluster="bad")
        await system.until(theirs, JobState.SUBMITTED)
        await eventually(lambda: system.scheduler.store.clusters.load_snapshots()["bad"].problem)
        assert system.scheduler.store.clusters.load_snapshots()["bad"].health is Health.UNHEALTHY
        ours = [await system.submit("sleep 0.1") for _ in range(4)]
        ended = await system.finished(*ours)
        assert {job.state for job in ended.values()} == {JobState.SUCCEEDED}
        monkeypatch.setattr(ClusterIO, "_observe", true_look)
        assert (await system.finished(theirs))[theirs].state is JobState.SUCCEEDED
    told = [record for record in caplog.records if "a bug" in record.getMessage()]
    assert len(told) == 1
    assert told[0].exc_info is not None


async def test_a_bug_in_reading_one_cluster_makes_only_that_one_unhealthy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    true_nodes = HttpClusterProbe.nodes

    async def broken(self: HttpClusterProbe) -> Any:
        if self._http.spec.name == "bad":
            raise ZeroDivisionError
        return await true_nodes(self)

    monkeypatch.setattr(HttpClusterProbe, "nodes", broken)
    async with System(tmp_path, fake("good"), fake("bad")) as system:
        ours = await system.submit("sleep 0.1", preferred_cluster="bad")
        assert (await system.finished(ours))[ours].state is JobState.SUCCEEDED
        assert system.runs(ours) == ["good"]
        problem = system.scheduler.store.clusters.load_snapshots()["bad"].problem
        assert problem is not None
        assert "ZeroDivisionError" in problem
        monkeypatch.setattr(HttpClusterProbe, "nodes", true_nodes)
        await eventually(
            lambda: system.scheduler.store.clusters.load_snapshots()["bad"].health is Health.HEALTHY
        )


async def test_packages_that_cannot_be_read_are_a_failed_send_that_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "main.py").write_text("print(1)")
    async with System(tmp_path, fake("a")) as system:
        unreadable = True
        true_path = PackageStore.path

        def path(self: PackageStore, name: str) -> Path | None:
            if unreadable and name in packages:
                raise PermissionError(errno.EACCES, "not yours", name)
            return true_path(self, name)

        monkeypatch.setattr(PackageStore, "path", path)
        packages = package_names(localise({"working_dir": str(code)}, system.scheduler.packages, cwd=code))
        job_id = await system.submit("sleep 0.1", runtime_env={"working_dir": str(code)})
        await eventually(lambda: "not sent: its packages" in system.reasons(job_id))
        other = await system.submit("sleep 0.1")
        assert (await system.finished(other))[other].state is JobState.SUCCEEDED
        unreadable = False
        assert (await system.finished(job_id))[job_id].state is JobState.SUCCEEDED


async def test_a_full_disk_while_the_overlay_is_packed_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = True
    true_pack = package_store.pack_tree

    def pack(*arguments: Any, **options: Any) -> Any:
        if full:
            raise OSError(errno.ENOSPC, "No space left on device")
        return true_pack(*arguments, **options)

    monkeypatch.setattr(package_store, "pack_tree", pack)
    clusters = {"a": {"runtime_env": {"conda": "ml"}}}
    async with System(tmp_path, fake("a"), clusters=clusters) as system:
        job_id = await system.submit("sleep 0.1", runtime_env={"pip": ["six"]})
        await eventually(lambda: "No space left" in system.reasons(job_id))
        full = False
        assert (await system.finished(job_id))[job_id].state is JobState.SUCCEEDED
        (sent,) = [job.submission.runtime_env for job in system.ray["a"].jobs.values()]
        assert sent is not None
        assert sent["py_modules"]
        assert sent["env_vars"].pop(RESULT_VAR)
        assert system.scheduler.store.history.attempts(job_id)[-1].runtime_env == without_own_package(sent)


async def test_ended_jobs_are_deleted_on_the_cluster_once_their_result_is_kept(tmp_path: Path) -> None:
    async with System(tmp_path, fake("a", cpus=20), ended_jobs_on_cluster=3) as system:
        async with HttpConnection(system.ray["a"].spec()) as connection:
            await RayJobsExecutor(connection).start(StartRequest(remote_id="not-ours", entrypoint="echo"))
        jobs = [await system.submit("echo hello", submission_id=f"job-{number}") for number in range(8)]
        ended = await system.finished(*jobs)
        assert {job.state for job in ended.values()} == {JobState.SUCCEEDED}
        await eventually(lambda: len(system.ray["a"].jobs) == 4)
        assert "not-ours" in system.ray["a"].jobs
        for job_id in jobs:
            info = system.scheduler.service.detail(job_id)
            assert (info.status, info.exit_code) == ("SUCCEEDED", 0)
            assert (info.logs or "").endswith("hello\n")


async def test_a_job_whose_log_could_not_be_kept_is_not_deleted(tmp_path: Path) -> None:
    async with System(tmp_path, fake("a"), ended_jobs_on_cluster=0) as system:
        system.ray["a"].fail(500, only="GET /api/jobs/silent/logs")
        silent = await system.submit("echo hello", submission_id="silent")
        await system.finished(silent)
        told = await system.submit("echo hello", submission_id="told")
        await system.finished(told)
        await eventually(lambda: "told" not in system.ray["a"].jobs)
        assert "silent" in system.ray["a"].jobs


async def test_ended_jobs_of_an_earlier_leader_are_found_and_deleted(tmp_path: Path) -> None:
    async with System(tmp_path, fake("a"), ended_jobs_on_cluster=0) as system:
        system.ray["a"].fail(500, only="DELETE /api/jobs/")
        job_id = await system.submit("echo hello")
        await system.finished(job_id)
        await eventually(lambda: system.ray["a"].calls["DELETE /api/jobs/{id}"])
        system.ray["a"].heal()
        await eventually(lambda: not system.ray["a"].jobs)
        assert (system.scheduler.store.history.load_log(job_id) or "").endswith("hello\n")


async def test_a_long_list_of_strays_is_looked_at_in_turns(tmp_path: Path) -> None:
    """Thousands of rows that say they are ours cost one cluster some time, and the store little."""
    async with System(tmp_path, fake("good"), fake("bad")) as system:
        origin = system.scheduler.store.store_id
        row = {
            "type": "SUBMISSION",
            "status": "RUNNING",
            "entrypoint": "x",
            "metadata": {"raymc.origin": origin},
        }
        rows = [{**row, "submission_id": f"stray-{number}"} for number in range(20_000)]
        crowd = json.dumps(rows).encode()
        bad = system.ray["bad"]
        bad.lie(lambda body: crowd if body.startswith(b"[") else body, only="GET /api/jobs/")
        await eventually(lambda: bad.calls["GET /api/jobs/"])
        ours = [await system.submit("sleep 0.1", preferred_cluster="good") for _ in range(4)]
        ended = await system.finished(*ours)
        assert {job.state for job in ended.values()} == {JobState.SUCCEEDED}
        assert system.scheduler.store.clusters.load_snapshots()["bad"].health is Health.HEALTHY


async def test_where_the_list_cannot_be_read_jobs_are_looked_at_one_by_one(tmp_path: Path) -> None:
    async with System(tmp_path, fake("a", cpus=40)) as system:
        jobs = [await system.submit("sleep 1") for _ in range(12)]
        await system.until(jobs[-1], JobState.RUNNING)
        system.ray["a"].lie(lambda body: body[:-1] if body.startswith(b"[") else body, only="GET /api/jobs/")
        ended = await system.finished(*jobs)
        assert {job.state for job in ended.values()} == {JobState.SUCCEEDED}


async def test_a_dead_head_with_an_ipv6_address_is_evidence(tmp_path: Path) -> None:
    """Brackets belong to a URL, not to the address that is connected to."""
    client_port = await asyncio.start_server(lambda _, writer: writer.close(), "::1")
    clusters = {"a": {"head_address": f"[::1]:{client_port.sockets[0].getsockname()[1]}"}}
    async with client_port, System(tmp_path, fake("a"), fake("b"), clusters=clusters) as system:
        job_id = await system.submit("sleep 30", preferred_cluster="a")
        await system.until(job_id, JobState.RUNNING)
        await eventually(lambda: system.scheduler.store.clusters.load_snapshots()["a"].witness)
        client_port.close()
        await system.ray["a"].kill()
        await eventually(lambda: "LOST" in system.story(job_id))


async def test_stopping_a_job_of_a_cluster_that_is_no_longer_configured_wakes_no_bug(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with System(tmp_path, fake("a"), fake("b")) as system:
        job_id = await system.submit("sleep 60", preferred_cluster="a")
        await system.until(job_id, JobState.RUNNING)
        await asyncio.to_thread(system.scheduler.stop)
        del system.ray["a"]
        system.scheduler = system.another_scheduler()
        system.scheduler.start()
        await system.until(job_id, JobState.UNREACHABLE)
        await asyncio.to_thread(system.scheduler.service.stop, [job_id])
        await system.until(job_id, JobState.STOPPED)
        await asyncio.to_thread(system.scheduler.stop)
    gc.collect()
    assert "never retrieved" not in caplog.text
