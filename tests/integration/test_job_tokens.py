"""With its own token a job reaches the server that has sent it, for as long as the job is open."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest
from tests.integration.test_serve import Served, World
from tests.support.raymc import raymc
from tests.support.system import fake
from tests.support.waiting import eventually

from ray_multicluster_scheduler.config.find import state_dir
from ray_multicluster_scheduler.testing import FakeRay

T = TypeVar("T")
JOBS = "/api/v1/jobs"


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with fake("a") as a:
        yield World(tmp_path, a)


async def answer(ask: Callable[[], Awaitable[T]], holds: Callable[[T], bool]) -> T:
    """Ask again until the answer is right."""
    found: list[T] = []

    async def is_right() -> bool:
        found[:] = [await ask()]
        return holds(found[0])

    await eventually(is_right, told=lambda: found)
    return found[0]


async def said(world: World, *arguments: str) -> str:
    done = await raymc(*arguments, "--config", world.path, environ=world.environ)
    assert done.code == 0, done.err
    return done.out


async def bearer(world: World, user: str, role: str) -> dict[str, str]:
    made = await said(world, "token", "create", "--user", user, "--role", role)
    return {"Authorization": f"Bearer {made.strip()}"}


async def submitted(
    served: Served, who: Mapping[str, str], name: str, *, refused: bool = False, **body: Any
) -> Any:
    body = {"entrypoint": "sleep 600", "submission_id": name, **body}
    return await served.ask("POST", JOBS, headers=who, json=body, refused=refused)


async def env_of(ray: FakeRay, name: str) -> Mapping[str, str]:
    """The variables that a job was sent with, once it is there."""
    await eventually(lambda: name in ray.jobs)
    env = ray.jobs[name].submission.runtime_env
    assert env is not None
    return dict(env["env_vars"])


async def program_of(ray: FakeRay, name: str) -> dict[str, str]:
    """The header that the program of a job sends."""
    return {"Authorization": f"Bearer {(await env_of(ray, name))['RAY_MULTICLUSTER_TOKEN']}"}


async def status(served: Served, who: Mapping[str, str], method: str = "GET", path: str = JOBS) -> int:
    async with served.http.request(method, served.address + path, headers=who, json={}) as answer:
        return answer.status


async def test_what_a_job_submits_is_its_users_and_its_child_whatever_it_says(world: World) -> None:
    root = await bearer(world, "root", "admin")
    async with world.serving() as served:
        await submitted(served, root, "outer")
        assert (await env_of(world.rays[0], "outer"))["RAY_MULTICLUSTER_ADDRESS"] == served.address
        inside = await program_of(world.rays[0], "outer")

        inner = await submitted(served, inside, "inner", parent="somebody")
        ray_body = {"entrypoint": "true", "submission_id": "plain", "metadata": {"raymc.parent": "somebody"}}
        await served.ask("POST", "/api/jobs/", headers=inside, json=ray_body)
        plain = await served.ask("GET", f"{JOBS}/plain", headers=root)
        await served.ask("POST", f"{JOBS}/stop", headers=inside, json={"submission_ids": ["inner"]})
        again = {"submission_ids": ["inner"]}
        told = await answer(
            lambda: served.ask("POST", f"{JOBS}/retry", headers=inside, json=again, refused=True),
            lambda it: "jobs" in it,
        )

        for child in (inner, plain, *told["jobs"]):
            assert (child["user"], child["parent"]) == ("root", "outer")
        assert (await submitted(served, inside, "x", refused=True, user="ann"))["error"][
            "type"
        ] == "Forbidden"
        for path in ("/api/v1/clusters/a/drain", "/api/v1/tokens", "/api/v1/config/reload"):
            assert await status(served, inside, "POST", path) == 403
        await submitted(served, await bearer(world, "bob", "submit"), "his")
        assert await status(served, inside, path=f"{JOBS}/his") == 404


async def test_it_ends_with_the_job_on_every_server_of_the_store(world: World) -> None:
    ann = await bearer(world, "ann", "submit")
    async with world.serving() as first, world.serving() as second:
        await submitted(first, ann, "outer")
        await submitted(second, ann, "other")
        outer = await program_of(world.rays[0], "outer")
        other = await program_of(world.rays[0], "other")
        assert [await status(each, outer) for each in (first, second)] == [200, 200]

        await second.ask("POST", f"{JOBS}/stop", headers=ann, json={"submission_ids": ["outer"]})
        for each in (first, second):
            await answer(partial(status, each, outer), (401).__eq__)
            assert await status(each, other) == 200


async def test_it_is_shown_and_kept_nowhere(world: World) -> None:
    ann = await bearer(world, "ann", "submit")
    (ray,) = world.rays
    async with world.serving() as served:
        await submitted(served, ann, "outer", max_retries=1)
        inside = await program_of(ray, "outer")
        await submitted(served, inside, "inner")
        ray.fail_starts(words="cannot set up {runtime_env}")
        await submitted(served, ann, "failed", runtime_env={"pip": ["x"]})
        failed = await answer(
            lambda: served.ask("GET", f"{JOBS}/failed", headers=ann), lambda job: job["state"] == "FAILED"
        )
        secret = inside["Authorization"].removeprefix("Bearer ").removeprefix("raymc_job_1_")
        secrets = [secret, (await env_of(ray, "failed"))["RAY_MULTICLUSTER_TOKEN"][-43:]]
        told = [
            json.dumps(await served.ask("GET", path, headers=ann))
            for path in (JOBS, f"{JOBS}/outer", f"{JOBS}/failed", f"{JOBS}/failed/events", "/api/jobs/")
        ]
        told.append(await said(world, "audit", "--json"))
        told.append(await said(world, "info", "failed", "--json"))
        served.process.terminate()
        told.append(await served.rest_of_it())
        assert await served.process.wait() == 0
    told += [each.read_bytes().decode("latin-1") for each in files(world)]

    assert "raymc_job_" in failed["message"]
    assert "job outer" in told[5]
    assert len(secret) == 43
    assert not [text for text in told if any(each in text for each in secrets)]


def files(world: World) -> list[Path]:
    return [path for path in state_dir(world.path, world.environ).rglob("*") if path.is_file()]


async def test_a_job_that_has_a_token_keeps_it(world: World) -> None:
    root = await bearer(world, "root", "admin")
    own = {"RAY_MULTICLUSTER_TOKEN": "mine"}
    async with world.serving() as served:
        await submitted(served, root, "own", runtime_env={"env_vars": own})
        assert (await env_of(world.rays[0], "own"))["RAY_MULTICLUSTER_TOKEN"] == "mine"
        elsewhere = {"RAY_MULTICLUSTER_ADDRESS": "http://127.0.0.1:9"}
        await submitted(served, root, "away", runtime_env={"env_vars": elsewhere})
        assert "RAY_MULTICLUSTER_TOKEN" not in await env_of(world.rays[0], "away")
