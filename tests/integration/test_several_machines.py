"""Schedulers on several machines: one store, but each machine has a directory of its own for packages."""

import asyncio
import gc
from pathlib import Path

import aiohttp
import pytest
from tests.support.serving import live
from tests.support.system import System, fake
from tests.support.trees import make_tree
from tests.support.waiting import eventually

from ray_multicluster_scheduler.client.packing import handed_over
from ray_multicluster_scheduler.config import Config, Settings
from ray_multicluster_scheduler.embedded import EmbeddedScheduler
from ray_multicluster_scheduler.errors import InvalidRequest, StoreError
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.packages.runtime_env import package_names
from ray_multicluster_scheduler.server.app import create_app
from ray_multicluster_scheduler.service.request import JobRequest
from ray_multicluster_scheduler.store import open_store

UPLOADED = "_ray_pkg_0123456789abcdef.zip"


@pytest.fixture(autouse=True)
def _one_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let all machines of a test use one store, as they would use one database server."""
    monkeypatch.setattr(
        "ray_multicluster_scheduler.runtime.open_at", lambda _: open_store(tmp_path / "store")
    )


@pytest.fixture(params=["database", "url"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "database" if request.param == "database" else f"file://{tmp_path}/shared"


def another_machine(system: System, name: str) -> EmbeddedScheduler:
    """A scheduler with a directory of its own; not started."""
    scheduler = system.another_scheduler()
    scheduler.directory = system.directory / name
    return scheduler


async def submit_to(scheduler: EmbeddedScheduler, tmp_path: Path) -> tuple[str, str]:
    """Submit a job with a directory, as a program on this machine does; return its id and its package."""
    root = make_tree(tmp_path / "code", {"main.py": "print('shipped')"})
    wanted = JobRequest(user="ann", entrypoint="echo", runtime_env={"working_dir": str(root)})
    ready = await asyncio.to_thread(handed_over, wanted, scheduler, cwd=tmp_path)
    (job,) = await asyncio.to_thread(scheduler.service.submit, [ready])
    (name,) = package_names(ready.runtime_env or {})
    return job.submission_id, name


async def test_one_machine_accepts_and_another_one_sends(tmp_path: Path, place: str) -> None:
    async with System(tmp_path, fake("a"), packages=place) as system:
        accepting = another_machine(system, "accepting")
        job_id, name = await submit_to(accepting, tmp_path)
        packed = (tmp_path / "accepting" / "packages" / name).read_bytes()

        assert (await system.until(job_id, JobState.SUCCEEDED, JobState.FAILED)).state is JobState.SUCCEEDED
        assert system.ray["a"].cluster.packages[f"gcs://{name}"] == packed
        assert (tmp_path / "state" / "packages" / name).read_bytes() == packed
        accepting.stop()


async def test_without_a_shared_place_another_machine_lacks_the_package(tmp_path: Path) -> None:
    async with System(tmp_path, fake("a")) as system:
        accepting = another_machine(system, "accepting")
        job_id, _ = await submit_to(accepting, tmp_path)
        assert (await system.until(job_id, JobState.SUCCEEDED, JobState.FAILED)).state is JobState.FAILED
        assert "is neither on the cluster nor kept here" in system.reasons(job_id)
        accepting.stop()


async def test_a_package_is_uploaded_to_one_server_and_its_job_to_another(tmp_path: Path, place: str) -> None:
    async with System(tmp_path, fake("a"), packages=place) as system:
        one, other = another_machine(system, "one"), another_machine(system, "other")
        async with aiohttp.ClientSession() as session:
            with live(create_app(one)) as first, live(create_app(other)) as second:
                package = f"/api/packages/gcs/{UPLOADED}"
                async with session.get(second + package) as answer:
                    assert answer.status == 404
                async with session.put(first + package, data=b"some code") as answer:
                    assert answer.status == 200
                async with session.get(second + package) as answer:
                    assert answer.status == 200
                job = {"entrypoint": "echo", "runtime_env": {"working_dir": f"gcs://{UPLOADED}"}}
                async with session.post(second + "/api/jobs/", json=job) as answer:
                    job_id = (await answer.json())["submission_id"]
        assert (await system.until(job_id, JobState.SUCCEEDED, JobState.FAILED)).state is JobState.SUCCEEDED
        assert b"some code" in system.ray["a"].cluster.packages.values()
        for scheduler in (one, other):
            scheduler.stop()


async def test_a_job_whose_package_cannot_be_shared_is_not_accepted(tmp_path: Path) -> None:
    (tmp_path / "shared").write_text("not a directory")
    async with System(tmp_path, fake("a"), packages=f"file://{tmp_path}/shared/packages") as system:
        with pytest.raises(StoreError, match="packages at file://"):
            await submit_to(system.scheduler, tmp_path)
        assert system.scheduler.store.jobs.list() == ()


async def test_a_shared_place_that_fails_for_a_while_delays_a_job_and_does_not_fail_it(
    tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with System(tmp_path, fake("a"), packages=place) as system:
        shared = system.scheduler.packages._shared
        assert shared is not None
        works = type(shared).fetch
        monkeypatch.setattr(type(shared), "fetch", _fail)
        accepting = another_machine(system, "accepting")
        job_id, _ = await submit_to(accepting, tmp_path)
        await eventually(lambda: "the place is down" in system.reasons(job_id))
        monkeypatch.setattr(type(shared), "fetch", works)
        assert (await system.until(job_id, JobState.SUCCEEDED, JobState.FAILED)).state is JobState.SUCCEEDED
        accepting.stop()


async def test_the_leader_shares_what_waiting_jobs_need_when_the_setting_is_new(
    tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ray_multicluster_scheduler.engine.cleanup.FIRST_AFTER_S", 0.0)
    drained = {"a": {"drained": True}}
    async with System(tmp_path, fake("a"), clusters=drained) as system:
        _, name = await submit_to(system.scheduler, tmp_path)
    async with System(tmp_path, fake("a"), clusters=drained, packages=place) as system:
        shared = system.scheduler.packages._shared
        assert shared is not None
        await eventually(lambda: name in shared.last_used())


def test_a_place_that_this_machine_cannot_use_is_a_clear_error(tmp_path: Path) -> None:
    settings = Settings(packages="nothing://x")
    config = Config(path=tmp_path / "clusters.yaml", clusters=(), settings=settings)
    with pytest.raises(InvalidRequest, match=r"`scheduler\.packages: nothing://x` cannot be used"):
        _ = EmbeddedScheduler(config, directory=tmp_path / "state", environ={}).parts
    gc.collect()  # since Python 3.13 this tells of a connection that was left open


def _fail(*_: object) -> bool:
    raise StoreError("the place is down")
