"""Programs that use a `raymc serve`: tokens, TLS, its death, and jobs that submit jobs."""

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.contract.test_ray_api_tls import write_certificate
from tests.integration.test_serve import World
from tests.support.raymc import raymc
from tests.support.system import fake
from tests.support.waiting import PATIENCE_S, eventually

from ray_multicluster_scheduler.client import transport
from ray_multicluster_scheduler.client.current import open_scheduler
from ray_multicluster_scheduler.client.http import HttpService
from ray_multicluster_scheduler.client.remote import RemoteScheduler
from ray_multicluster_scheduler.client.server_address import server_in
from ray_multicluster_scheduler.errors import (
    ConfigInvalid,
    Forbidden,
    JobNotFound,
    NotAuthenticated,
    ServerLost,
    ServerUnreachable,
)
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.service.query import JobQuery
from ray_multicluster_scheduler.service.request import JobRequest
from ray_multicluster_scheduler.testing.fake_cluster import ShellRunner

ME = "me"


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with fake("a", runner=ShellRunner()) as a:
        yield World(tmp_path, a)


def request(entrypoint: str = "echo hi", **given: Any) -> JobRequest:
    return JobRequest(**{"entrypoint": entrypoint, "user": ME, **given})


ServiceOf = Callable[..., HttpService]


@pytest.fixture
def service_of() -> Iterator[ServiceOf]:
    """Makes services of programs with these variables, and closes them."""
    made = []

    def make(address: str, **environ: str) -> HttpService:
        server = server_in(
            {"RAY_MULTICLUSTER_ADDRESS": address, "RAY_MULTICLUSTER_HOME": "/nowhere", **environ}
        )
        assert server is not None
        made.append(HttpService(server, user=ME))
        return made[-1]

    yield make
    for service in made:
        service.close()


async def token(world: World, user: str, role: str) -> str:
    made = await raymc(
        "token", "create", "--user", user, "--role", role, "--config", world.path, environ=world.environ
    )
    assert made.code == 0, made.err
    return made.out.split()[-1]


async def test_a_token_is_found_and_its_user_owns_the_job(
    world: World, service_of: ServiceOf, tmp_path: Path
) -> None:
    anns, bobs = await token(world, "ann", "submit"), await token(world, "bob", "submit")
    kept = tmp_path / "token"
    kept.write_text(anns + "\n")
    kept.chmod(0o600)
    async with world.serving() as served:
        ann = service_of(served.address, RAY_MULTICLUSTER_TOKEN_FILE=str(kept))
        bob = service_of(served.address, RAY_MULTICLUSTER_TOKEN=bobs)
        (job,) = await asyncio.to_thread(ann.submit, [request(submission_id="hers")])
        assert job.user == "ann"
        with pytest.raises(JobNotFound):
            await asyncio.to_thread(bob.detail, "hers")
        with pytest.raises(Forbidden, match="operate"):
            await asyncio.to_thread(bob.set_drained, "a", drained=True)
        with pytest.raises(Forbidden, match="leave the user out"):
            await asyncio.to_thread(bob.submit, [request(user="ann")])
        with pytest.raises(Forbidden, match="leave the user out"):
            await asyncio.to_thread(bob.plan, request(user="ann"))
        nobody = service_of(served.address)
        with pytest.raises(NotAuthenticated, match=r"`\. No token was found in RAY_MULTICLUSTER_TOKEN and /"):
            await asyncio.to_thread(nobody.clusters)
        with pytest.raises(NotAuthenticated, match="No token was found"):
            await asyncio.to_thread(nobody.packages.has, "_ray_pkg_0123456789abcdef.zip")
        with pytest.raises(NotAuthenticated, match="No token was found"):
            await anext(nobody.changes_async(["hers"], timeout_s=PATIENCE_S, tick_s=1))
        wrong = service_of(served.address, RAY_MULTICLUSTER_TOKEN=bobs[:-3] + "abc")
        with pytest.raises(NotAuthenticated, match="is from RAY_MULTICLUSTER_TOKEN") as caught:
            await asyncio.to_thread(wrong.clusters)
        assert bobs[-10:-3] not in str(caught.value)
        assert bobs not in repr(bob.server)


def test_a_token_that_others_can_read_or_that_is_not_there_is_refused(tmp_path: Path) -> None:
    kept = tmp_path / "token"
    environ = {"RAY_MULTICLUSTER_ADDRESS": "http://a:1", "RAY_MULTICLUSTER_TOKEN_FILE": str(kept)}
    with pytest.raises(NotAuthenticated, match="no such file"):
        server_in(environ)
    kept.write_text("secret")
    kept.chmod(0o644)
    with pytest.raises(NotAuthenticated, match="chmod 600") as caught:
        server_in(environ)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("127.0.0.1:8700", "expected a URL"),
        ("ftp://a:1", "expected a URL"),
        ("http://", "expected a URL"),
        ("http://ann:secret@a:1", "without user:password"),
        ("http://a:99999", "expected a URL"),
        ("http://a:1/?x=1", "expected a URL"),
    ],
)
def test_an_address_that_is_none_is_named_with_its_variable(address: str, words: str) -> None:
    with pytest.raises(ConfigInvalid, match=words) as caught:
        server_in({"RAY_MULTICLUSTER_ADDRESS": address})
    assert "RAY_MULTICLUSTER_ADDRESS" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_file_that_names_a_server_needs_no_clusters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_MULTICLUSTER_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("RAY_MULTICLUSTER_ADDRESS", raising=False)
    path = tmp_path / "clusters.yaml"
    path.write_text("scheduler: {address: 'https://raymc.example/front/'}\n")
    found = open_scheduler(path)
    assert isinstance(found, RemoteScheduler)
    assert found.server.url == "https://raymc.example/front"
    assert str(path) in found.server.named_by
    monkeypatch.setenv("RAY_MULTICLUSTER_ADDRESS", "http://127.0.0.1:9")
    other = open_scheduler(path)
    assert isinstance(other, RemoteScheduler)
    assert other.server.url == "http://127.0.0.1:9"


async def test_a_server_behind_tls_is_trusted_through_the_ca_that_was_named(
    world: World, service_of: ServiceOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pem = tmp_path / "own.pem"
    write_certificate(pem)
    async with world.serving("--ssl-certfile", pem, "--ssl-keyfile", pem) as served:
        assert served.address.startswith("https://")
        trusting = service_of(served.address, RAY_MULTICLUSTER_CA=str(pem))
        assert [each.name for each in await asyncio.to_thread(trusting.clusters)] == ["a"]
        (job,) = await asyncio.to_thread(trusting.submit, [request()])
        async for jobs in trusting.changes_async([job.submission_id], timeout_s=PATIENCE_S, tick_s=1):
            state = jobs[job.submission_id].state
        assert state is JobState.SUCCEEDED
        other = service_of(served.address)
        with pytest.raises(ServerUnreachable, match="RAY_MULTICLUSTER_CA"):
            await asyncio.to_thread(other.clusters)
        with pytest.raises(ServerUnreachable, match="not trusted"):
            await anext(other.changes_async([job.submission_id], timeout_s=PATIENCE_S, tick_s=1))
        monkeypatch.setattr(transport, "PATIENCE_S", 0.0)
        plain = service_of(served.address.replace("https://", "http://"))
        with pytest.raises(ServerLost, match="If it has a certificate, write https://"):
            await asyncio.to_thread(plain.clusters)


async def test_clients_of_a_server_that_is_killed_go_on_with_the_next_and_nothing_is_doubled(
    world: World, service_of: ServiceOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "PATIENCE_S", PATIENCE_S)  # a busy machine takes long to start a server
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    service = service_of(f"http://127.0.0.1:{port}")
    ids = [f"job-{number}" for number in range(60)]
    submitted = 0

    def submit() -> None:
        nonlocal submitted
        for name in ids:
            service.submit([request("true", submission_id=name, group="all")])
            submitted += 1

    async with world.serving("--port", port) as served:
        await asyncio.to_thread(service.leader)
        submitting = asyncio.create_task(asyncio.to_thread(submit))
        await eventually(lambda: submitted >= 20)
        served.process.kill()
        await served.process.wait()
    async with world.serving("--port", port):
        await submitting
        async for jobs in service.changes_async(ids, timeout_s=PATIENCE_S, tick_s=1):
            states = {job.state for job in jobs.values()}
        assert states == {JobState.SUCCEEDED}
        listed = await asyncio.to_thread(service.list_jobs, JobQuery(group="all", limit=1000))
        assert sorted(job.submission_id for job in listed.jobs) == sorted(ids)
    runs = [run.submission_id for run in world.rays[0].runs]
    assert sorted(runs) == sorted(ids)


CHILD = """
import time
from ray_multicluster_scheduler import submit_job
submit_job("sleep 600", submission_id="inner")
time.sleep(600)
"""


@pytest.mark.parametrize("tokens", [False, True], ids=["no-tokens", "tokens"])
async def test_a_job_submits_to_the_same_queue_and_takes_its_child_along(
    world: World, service_of: ServiceOf, tmp_path: Path, tokens: bool
) -> None:
    shown = {"RAY_MULTICLUSTER_TOKEN": await token(world, "ann", "submit")} if tokens else {}
    program = tmp_path / "outer.py"
    program.write_text(CHILD)
    env = {"env_vars": {"PYTHONPATH": os.pathsep.join(map(str, sys.path)), "HOME": str(tmp_path)}}
    async with world.serving() as served:
        service = service_of(served.address, **shown)
        outer = request(
            f"{sys.executable} {program}", submission_id="outer", stop_children=True, runtime_env=env
        )
        await asyncio.to_thread(service.submit, [outer])
        found = await eventually(lambda: asyncio.to_thread(service.get_many, ["inner"]))
        assert (found["inner"].parent, found["inner"].user) == ("outer", "ann")
        listed = await asyncio.to_thread(service.list_jobs, JobQuery(parent="outer"))
        assert [job.submission_id for job in listed.jobs] == ["inner"]
        await asyncio.to_thread(service.stop, ["outer"])
        async for jobs in service.changes_async(["outer", "inner"], timeout_s=PATIENCE_S, tick_s=1):
            states = {name: job.state for name, job in jobs.items()}
        assert states == {"outer": JobState.STOPPED, "inner": JobState.STOPPED}
        assert "its parent outer" in (await asyncio.to_thread(service.detail, "inner")).message
