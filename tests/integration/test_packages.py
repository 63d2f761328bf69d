"""Packages on their way to clusters, over HTTP."""

import asyncio
import os
from pathlib import Path

import pytest
from tests.support.system import System, fake
from tests.support.trees import a_store, make_tree
from tests.support.waiting import eventually

from ray_multicluster_scheduler.client.remote import RemoteScheduler
from ray_multicluster_scheduler.client.server_address import ServerAddress
from ray_multicluster_scheduler.environment.options import PACKAGE_VAR
from ray_multicluster_scheduler.errors import ClusterRefused, PackageProblem
from ray_multicluster_scheduler.executors.ray_jobs import RayJobsExecutor
from ray_multicluster_scheduler.model.execution import StartRequest
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.packages.runtime_env import localise, package_names
from ray_multicluster_scheduler.packages.store import PackageStore
from ray_multicluster_scheduler.packages.to_cluster import Uploader
from ray_multicluster_scheduler.ray_api import HttpConnection
from ray_multicluster_scheduler.testing import FakeRay

PACKAGE_ROUTE = "/api/packages/{protocol}/{name}"


def a_package(store: PackageStore, tmp_path: Path, content: str = "print('shipped')") -> tuple[str, int]:
    """Pack a directory; return the package's name and size."""
    root = make_tree(tmp_path / "code", {"main.py": content})
    (name,) = package_names(localise({"working_dir": str(root)}, store, cwd=tmp_path))
    path = store.path(name)
    assert path is not None
    return name, path.stat().st_size


async def test_a_job_carries_this_package_and_its_environment_is_shown_without_it(tmp_path: Path) -> None:
    clusters = {"b": {"ship_package": False}}
    async with System(tmp_path, fake("a"), fake("b"), clusters=clusters) as system:
        ids = [await system.submit("true", preferred_cluster=name) for name in ("a", "b")]
        await system.finished(*ids)
        carried, bare = (system.ray[name].jobs[job].submission for name, job in zip("ab", ids, strict=True))
        uri = carried.runtime_env["env_vars"][PACKAGE_VAR]
        assert carried.runtime_env["py_modules"] == [uri]
        assert "py_modules" not in bare.runtime_env
        shown = await asyncio.to_thread(system.scheduler.service.detail, ids[0])
        for env in (shown.runtime_env, *(attempt.runtime_env for attempt in shown.attempts)):
            assert "py_modules" not in (env or {})
            assert PACKAGE_VAR not in (env or {}).get("env_vars", {})


async def test_twenty_dispatches_at_once_upload_once_to_each_cluster(tmp_path: Path) -> None:
    store = a_store(tmp_path)
    name, size = a_package(store, tmp_path)
    async with FakeRay(name="a") as a, FakeRay(name="b") as b:
        for fake in (a, b):
            async with HttpConnection(fake.spec()) as connection:
                uploader = Uploader(connection.packages, store)
                sent = await asyncio.gather(*(uploader.ensure([name]) for _ in range(20)))
            assert sorted(sent) == [0] * 19 + [size]
            assert fake.calls[f"PUT {PACKAGE_ROUTE}"] == 1


async def test_every_dispatch_asks_so_that_ray_keeps_the_package(tmp_path: Path) -> None:
    store = a_store(tmp_path)
    name, _ = a_package(store, tmp_path)
    async with FakeRay() as fake, HttpConnection(fake.spec()) as connection:
        uploader = Uploader(connection.packages, store)
        await asyncio.gather(*(uploader.ensure([name]) for _ in range(5)))
        assert fake.calls[f"GET {PACKAGE_ROUTE}"] == 5


async def test_a_cluster_that_was_restarted_gets_the_package_again(tmp_path: Path) -> None:
    store = a_store(tmp_path)
    name, size = a_package(store, tmp_path)
    async with FakeRay() as fake, HttpConnection(fake.spec()) as connection:
        uploader = Uploader(connection.packages, store)
        assert await uploader.ensure([name]) == size
        assert await uploader.ensure([name]) == 0
        await fake.restart()
        assert await uploader.ensure([name]) == size


async def test_one_failed_upload_does_not_block_the_next(tmp_path: Path) -> None:
    store = a_store(tmp_path)
    name, size = a_package(store, tmp_path)
    async with FakeRay() as fake, HttpConnection(fake.spec()) as connection:
        uploader = Uploader(connection.packages, store)
        fake.fail(500, times=1, only="/api/packages/")
        results = await asyncio.gather(*(uploader.ensure([name]) for _ in range(3)), return_exceptions=True)
        assert [type(result) for result in results if isinstance(result, Exception)] == [ClusterRefused]
        assert sorted(result for result in results if isinstance(result, int)) == [0, size]


async def test_bytes_that_are_nowhere_are_a_clear_error(tmp_path: Path) -> None:
    async with FakeRay() as fake, HttpConnection(fake.spec()) as connection:
        with pytest.raises(PackageProblem, match=r"gcs://gone\.zip is neither on the cluster nor kept here"):
            await Uploader(connection.packages, a_store(tmp_path)).ensure(["gone.zip"])


async def test_a_package_that_the_cluster_has_from_elsewhere_is_fine(tmp_path: Path) -> None:
    foreign = tmp_path / "foreign.zip"
    foreign.write_bytes(b"theirs")
    async with FakeRay() as fake, HttpConnection(fake.spec()) as connection:
        await connection.packages.put_package("foreign.zip", foreign)
        assert await Uploader(connection.packages, a_store(tmp_path)).ensure(["foreign.zip"]) == 0


async def test_the_job_runs_in_the_directory_that_was_packed(tmp_path: Path) -> None:
    store = a_store(tmp_path)
    root = make_tree(tmp_path / "code", {"hello.txt": "from the directory", "left.log": "behind"})
    env = localise({"working_dir": str(root), "excludes": ["*.log"]}, store, cwd=tmp_path)
    async with FakeRay() as fake, HttpConnection(fake.spec()) as connection:
        await Uploader(connection.packages, store).ensure(package_names(env))
        await RayJobsExecutor(connection).start(
            StartRequest(remote_id="job", entrypoint="cat hello.txt; ls", runtime_env=env)
        )
        log = "".join([piece async for piece in RayJobsExecutor(connection).follow_log("job")])
    assert "from the directory" in log
    assert "left.log" not in log


async def test_old_packages_go_unless_a_waiting_job_or_a_running_one_needs_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ray_multicluster_scheduler.engine.store_io.PAGE", 1)
    async with System(tmp_path, fake("a", 1)) as system:
        store = PackageStore(tmp_path / "state" / "packages")
        names = [a_package(store, tmp_path, f"print({number})")[0] for number in range(4)]
        needed, unneeded = names[:3], names[3]
        requests = [
            {"entrypoint": "sleep 600", "runtime_env": {"working_dir": f"gcs://{name}"}} for name in needed
        ]
        running, *_ = await system.submit_many(requests)
        await system.until(running, JobState.RUNNING)
        await asyncio.to_thread(system.scheduler.stop)
        for name in names:
            os.utime(tmp_path / "state" / "packages" / name, (1.0, 1.0))
        system.scheduler = system.another_scheduler()
        system.scheduler.start()
        await eventually(lambda: store.path(unneeded) is None)
        assert all(store.path(name) for name in needed)
        await asyncio.to_thread(system.scheduler.stop)
        assert not store.unused(for_s=60), "they stay for a while after their jobs have ended"


async def test_the_package_of_a_job_that_is_repeated_is_not_collected_meanwhile(tmp_path: Path) -> None:
    async with System(tmp_path, fake("a", 1)) as system:
        store = PackageStore(tmp_path / "state" / "packages")
        name = a_package(store, tmp_path, "print(1)")[0]
        failed = await system.submit("exit 3", runtime_env={"working_dir": f"gcs://{name}"})
        await system.finished(failed)
        os.utime(tmp_path / "state" / "packages" / name, (1.0, 1.0))
        again = await asyncio.to_thread(system.scheduler.service.retry, [failed])
        assert not store.unused(for_s=60)
        await system.finished(again[0].submission_id)


async def test_what_a_client_of_a_server_has_packed_long_ago_goes(tmp_path: Path) -> None:
    home = {"RAY_MULTICLUSTER_HOME": str(tmp_path / "home")}
    server = ServerAddress(url="http://127.0.0.1:9", named_by="the test")
    first, second = RemoteScheduler(server, environ=home), RemoteScheduler(server, environ=home)
    old, new = (a_package(first.packages, tmp_path, f"print({number})")[0] for number in range(2))
    os.utime(tmp_path / "home" / "packages" / old, (1.0, 1.0))

    assert second.packages.path(old) is None
    assert second.packages.path(new) is not None
    first.stop()
    second.stop()
