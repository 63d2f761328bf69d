"""Ray Client sessions of a server: as without it, many at once, stopped, drained, counted and listed."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from tests.e2e.client_world import ClientWorld, Failed, User, a_client_world, is_running
from tests.support.waiting import PATIENCE_S, until

from ray_multicluster_scheduler.local import HeadSpec

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(900)]

HEADS = [HeadSpec(name="left", cpus=2), HeadSpec(name="right", cpus=2)]
AT_ONCE = 20


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClientWorld]:
    settings = {"quotas": {"quinn": {"jobs": 1}}}
    with a_client_world(tmp_path_factory.mktemp("client-sessions"), HEADS, scheduler=settings) as world:
        yield world


# -- as without a server


def test_examples_find_the_same_through_a_server_as_without(world: ClientWorld) -> None:
    with world.me.program("client_examples.py", cluster="left") as served:
        found = served.answer()
    # After that one: the first direct session of a new head often fails.
    direct = f"ray://{world.sandbox.heads['left'].client_address}"
    with world.run("client_examples.py", [], address=direct) as plain:
        wanted = plain.answer()
    # Ray names each session that names no namespace after a number of its own.
    namespaces = [each["about_the_cluster"].pop("namespace") for each in (wanted, found)]
    assert all(namespaces)
    assert found == wanted
    assert found["tasks"] == [[0, 1, 4, 9], 14, 3, [1, 2, 3]]
    assert found["actors"] == [[25, -25], "ActorDiedError"]
    assert found["about_the_cluster"]["gcs"] == world.gcs("left")
    assert not [name for name, value in found.items() if str(value).startswith("raised")]


# -- many


@pytest.mark.timeout(1800)
def test_many_programs_at_once_are_each_where_the_server_says(world: ClientWorld) -> None:
    with ExitStack() as stack:
        options: dict[str, Any] = {"cpus": 0, "queue_timeout": 240}
        programs = [
            stack.enter_context(world.me.program(cluster=HEADS[number % 2].name, **options))
            for number in range(AT_ONCE)
        ]
        for program in programs:
            program.connected(within_s=2 * PATIENCE_S)  # in the queue, and then until its helper runs
        sessions = world.sessions()
        for program in programs:
            program.tell("where")
        for program in programs:
            seen, said = program.answer(), sessions[program.session]
            assert seen["cluster"] == said["cluster"]
            assert seen["gcs"] == world.gcs(said["cluster"])
            assert seen["home_dir"] == f"/home/{said['cluster']}/"
            assert said["helper_pid"] in world.helpers(said["cluster"])
        assert len({session["helper_pid"] for session in sessions.values()}) == AT_ONCE
    assert world.until_ended(*(program.session for program in programs)) == ["SUCCEEDED"] * AT_ONCE


# -- tokens are needed from here on


@pytest.fixture(scope="module")
def ann(world: ClientWorld) -> User:
    return world.user("ann")


@pytest.mark.parametrize("who", ["its owner", "an operator"])
def test_a_session_that_is_stopped_ends_with_the_reason(world: ClientWorld, ann: User, who: str) -> None:
    by = ann if who == "its owner" else world.user("oscar", "operate")
    with ann.program(cluster="left") as program:
        assert program.connected().ask("add") == 1
        helper = world.sessions()[program.session]["helper_pid"]
        stopped = by.raymc("stop", program.session)
        assert (stopped.returncode, stopped.stdout) == (0, f"{program.session}: STOPPED\n"), stopped.stderr
        with pytest.raises(Failed, match="stopped by") as told:
            program.ask("add")
    assert "ConnectionError" in told.value.kinds
    assert world.state(program.session) == "STOPPED"
    until(lambda: not is_running(helper))
    assert program.session not in world.sessions()


def test_nobody_else_stops_a_session(world: ClientWorld, ann: User) -> None:
    with ann.program(cluster="left") as program:
        program.connected()
        assert world.user("eve").ask("jobs/stop", {"submission_ids": [program.session]}) in {403, 404}
        assert program.ask("add") == 1


def test_a_drained_cluster_keeps_its_session_and_gets_no_other(world: ClientWorld, ann: User) -> None:
    with ann.program(cluster="left") as program:
        assert program.connected().ask("where")["cluster"] == "left"
        world.me.ask("clusters/left/drain", {"reason": "new disks"})
        try:
            with ann.program(cluster="left") as other:
                assert other.connected().ask("where")["cluster"] == "right"
            assert program.ask("add") == 1
        finally:
            world.me.ask("clusters/left/undrain", {})
        with ann.program(cluster="left") as third:
            assert third.connected().ask("where")["cluster"] == "left"


def test_a_session_counts_as_a_job_of_its_users_quota(world: ClientWorld) -> None:
    quinn = world.user("quinn")
    with quinn.program() as program:
        program.connected()
        with quinn.program() as other, pytest.raises(Failed, match="quota"):
            other.connected()
        assert program.ask("add") == 1
    world.until_ended(program.session)
    with quinn.program() as third:
        assert third.connected().ask("add") == 1


def test_sessions_are_listed_with_user_cluster_age_and_helper_process(world: ClientWorld, ann: User) -> None:
    with ann.program(cluster="right") as program:
        program.connected()
        session = until(lambda: _running(world, program.session))
        assert (session["user"], session["cluster"]) == ("ann", "right")
        assert session["helper_pid"] in world.helpers("right")
        assert 0 < session["accepted_at"] <= session["started_at"]
        assert program.session in str(ann.ask("sessions"))

        items = json.loads(world.me.raymc("ps", "--json", "--config", str(world.server.config)).stdout)[
            "items"
        ]
        (item,) = [item for item in items if program.session in item["why"]]
        assert item["why"] == f"{program.session} of ann"
        assert (item["cluster"], item["kind"], item["pid"]) == ("right", "session", session["helper_pid"])
        assert item["started_at"] is not None

        listed = json.loads(world.me.raymc("jobs", "--json").stdout)
        (job,) = [job for job in listed if job["submission_id"] == program.session]
        assert (job["user"], job["state"], job["cluster"]) == ("ann", "RUNNING", "right")
    assert world.until_ended(program.session) == ["SUCCEEDED"]


def _running(world: ClientWorld, session: str) -> Any:
    seen = world.sessions()[session]
    return seen if seen["state"] == "RUNNING" else None
