"""kill -9 of driver, bridge, hub and head, and a cut connection: clear errors, no hang, nothing left."""

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.e2e.task_world import GRACE_S, World, a_world, finish
from tests.support.builders import a_cluster
from tests.support.cable import Cable
from tests.support.processes import sessions_of
from tests.support.waiting import PATIENCE_S, until

import ray_multicluster_scheduler as raymc
from ray_multicluster_scheduler.local import HeadSpec, Sandbox
from ray_multicluster_scheduler.ray_api.http_connection import HttpConnection

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(900)]

#: What Ray Client waits for a connection that broke, and time to notice it, less than twice of it.
ONE_GRACE_S = 30.0 + 25.0
HEADS = [HeadSpec(name="home", cpus=2), HeadSpec(name="other", cpus=2)]


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    with Sandbox(tmp_path_factory.mktemp("sandbox"), HEADS) as running:
        yield running


@pytest.fixture
def world(sandbox: Sandbox, tmp_path: Path) -> Iterator[World]:
    with a_world(sandbox, tmp_path) as world:
        yield world
    world.wait_until_no_session_is_left()


async def actors(world: World, cluster: str, beginning: str) -> dict[str, int]:
    """The living actors of ours on a cluster: name and pid."""
    async with HttpConnection(
        a_cluster(cluster, dashboard=world.head(cluster).dashboard), request_timeout_s=30
    ) as connection:
        found = await connection.state.actors()
    return {actor.name: actor.pid or 0 for actor in found if actor.name.startswith(beginning)}


async def pid_of(world: World, cluster: str, beginning: str) -> int:
    (pid,) = (await actors(world, cluster, beginning)).values()
    return pid


def losses(world: World) -> str:
    """Start `losses.py` at home and wait until its work on the other cluster is under way."""
    job = world.submit("losses.py", world.head("other").gcs_address, cluster="home")
    until(lambda: world.note("ready").exists() or raymc.get_job_status(job) == "FAILED")
    return job


def go_on(world: World, *notes: str) -> None:
    for note in notes:
        world.note(note).write_text("")


async def test_a_killed_driver_leaves_nothing_behind(world: World) -> None:
    job = world.submit("lonely.py", cluster="home")
    until(lambda: world.note("lonely").exists() or raymc.get_job_status(job) == "FAILED")
    assert len(world.sessions("other")) == 1
    os.kill(int(world.note("lonely").read_text()), signal.SIGKILL)
    until(lambda: not world.sessions("other"), within_s=GRACE_S)
    assert await actors(world, "home", "raymc bridge") == {}
    assert await actors(world, "other", "raymc hub") == {}


def on_both(world: World) -> tuple[subprocess.Popen[str], int]:
    """Start a program that is no job and has an actor on each cluster; return it and its process."""
    program = world.outside("on_both.py", RAY_MULTICLUSTER_HOME=str(world.folder / "outside"))
    until(lambda: world.note("both").exists() or program.poll() is not None)
    assert world.note("both").exists(), program.communicate()[0]
    about = json.loads(world.note("both").read_text())
    assert about["at"] == [world.head(name).gcs_address for name in ("home", "other")]
    return program, about["pid"]


async def left(world: World) -> dict[str, int]:
    """How many actors each cluster has, bridges and hubs among them."""
    return {name: len(await actors(world, name, "")) for name in world.sandbox.heads}


def test_a_killed_program_that_is_no_job_leaves_nothing_behind_after_one_grace(world: World) -> None:
    program, pid = on_both(world)
    os.kill(pid, signal.SIGKILL)
    program.communicate()
    # The home cluster waits 30 s for it. Another 30 s on the other cluster would be the grace of a session
    # that nobody closes.
    until(lambda: asyncio.run(left(world)) == {"home": 0, "other": 0}, within_s=ONE_GRACE_S)


def test_a_lost_home_has_one_error_and_stopping_raises_none(world: World) -> None:
    program, _ = on_both(world)
    (session,) = sessions_of(world.head("home").gcs_address)
    os.kill(session, signal.SIGKILL)
    go_on(world, "go-on")
    seen = finish(program)
    assert seen.pop("home_is_lost")
    assert seen.pop("anew") in {head.gcs_address for head in world.sandbox.heads.values()}
    assert seen.pop("stop") == "nothing"
    assert set(seen.values()) == {"HomeLost"}, seen


def test_a_program_that_stops_while_calls_are_under_way_leaves_nothing_behind(world: World) -> None:
    answer = world.run("stops_early.py", cluster="home")
    assert answer["other"] == world.head("other").gcs_address
    world.wait_until_no_session_is_left()


async def test_a_killed_bridge_is_an_error_for_its_calls_and_the_next_work_gets_a_new_one(
    world: World,
) -> None:
    job = losses(world)
    os.kill(await pid_of(world, "home", "raymc bridge"), signal.SIGKILL)
    go_on(world, "taken", "given-back")
    seen = world.answer(job)
    assert all("RayActorError" in seen[each] for each in ("call", "repeatable", "once", "later"))
    assert seen["again"] == world.head("other").gcs_address


async def test_a_killed_hub_is_an_unknown_outcome_and_tasks_with_retries_run_at_home(world: World) -> None:
    job = losses(world)
    os.kill(await pid_of(world, "other", "raymc hub"), signal.SIGKILL)
    go_on(world, "taken", "given-back")
    assert_lost(world, world.answer(job))


async def test_a_dead_cluster_is_an_error_and_no_hang_and_is_used_again_when_it_is_back(
    world: World, sandbox: Sandbox
) -> None:
    job = losses(world)
    sandbox.kill("other")
    go_on(world, "taken")
    until(lambda: world.note("seen").exists() or raymc.get_job_status(job) == "FAILED")
    sandbox.start("other")
    go_on(world, "given-back")
    seen = world.answer(job)
    assert_lost(world, {**seen, "again": world.head("other").gcs_address})
    assert seen["again"] in {head.gcs_address for head in sandbox.heads.values()}


async def test_a_pool_goes_on_when_a_cluster_dies_and_repeats_only_what_was_under_way_there(
    world: World, sandbox: Sandbox
) -> None:
    job = world.submit("pool.py", 500, "loses", cluster="home")
    until(lambda: world.note("half").exists() or raymc.get_job_status(job) == "FAILED")
    sandbox.kill("other")
    go_on(world, "taken")
    until(lambda: world.note("over").exists() or raymc.get_job_status(job) == "FAILED")
    sandbox.start("other")
    answer = world.answer(job)
    assert answer["right"] == [2 * each for each in range(500)]
    assert answer["all_begun"] == 500
    lost = answer["before"]["other"]
    assert 1 <= answer["repeated"] <= lost
    assert len(answer["twice"]) <= answer["repeated"]


def assert_lost(world: World, seen: Any) -> None:
    assert {"RayActorError", "OutcomeUnknown"} <= set(seen["call"])
    assert seen["repeatable"] == world.head("home").gcs_address
    assert "OutcomeUnknown" in seen["once"]
    assert "RayActorError" in seen["later"]
    assert "OutcomeUnknown" not in seen["later"]
    assert seen["again"] == world.head("other").gcs_address


async def test_a_connection_that_mends_within_rays_grace_loses_nothing(
    world: World, sandbox: Sandbox
) -> None:
    with Cable(world.head("other").client_address) as cable:
        config = yaml.safe_load(sandbox.config_path.read_text())
        config["clusters"]["other"]["head_address"] = cable.address
        path = world.note("clusters.yaml")
        path.write_text(yaml.safe_dump(config))
        job = world.submit("through_a_cut.py", PATIENCE_S, cluster="home", config=path)
        until(lambda: world.note("ready").exists() or raymc.get_job_status(job) == "FAILED")
        cable.cut()
        go_on(world, "cut")
        cable.mend()
        go_on(world, "mended")
        assert world.answer(job) == {"counts": list(range(2, 103)), "waited": "waited"}
