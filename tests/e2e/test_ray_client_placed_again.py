"""A session whose cluster cannot begin it is begun on another one, while its program waits."""

import socket
from collections.abc import Iterator

import pytest
from tests.e2e.client_world import ClientWorld, Failed, a_client_world
from tests.support.waiting import until

from ray_multicluster_scheduler.local import HeadSpec

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(600)]

HEADS = [HeadSpec(name="left", cpus=2), HeadSpec(name="right", cpus=2)]
#: Nothing listens at this address of the left cluster, except while a test does.
LEFT = "127.0.0.7"


@pytest.fixture(scope="module")
def port() -> int:
    with socket.create_server((LEFT, 0)) as free:
        return int(free.getsockname()[1])


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, port: int) -> Iterator[ClientWorld]:
    folder = tmp_path_factory.mktemp("client-again")
    with a_client_world(folder, HEADS, addresses=lambda _: {"left": f"{LEFT}:{port}"}) as world:
        yield world


def test_a_session_goes_to_another_cluster_if_its_own_cannot_be_reached(world: ClientWorld) -> None:
    with world.me.program(cluster="left") as program:
        assert program.connected().ask("where")["cluster"] == "right"
        job = world.me.ask(f"jobs/{program.session}")
        assert [attempt["cluster"] for attempt in job["attempts"]] == ["left", "right"]
        assert "cannot be reached" in job["attempts"][0]["reason"]
    assert world.until_ended(program.session) == ["SUCCEEDED"]


def test_a_program_is_told_why_if_no_other_cluster_is_left(world: ClientWorld) -> None:
    assert world.me.raymc("drain", "right").returncode == 0
    try:
        with world.me.program(cluster="left") as program, pytest.raises(Failed) as refused:
            program.connected()
    finally:
        assert world.me.raymc("undrain", "right").returncode == 0
    assert "cluster 'left' cannot be reached" in refused.value.message


def test_a_session_can_be_stopped_while_its_cluster_does_not_answer(world: ClientWorld, port: int) -> None:
    with socket.create_server((LEFT, port)), world.me.program(cluster="left") as program:
        (session,) = until(
            lambda: [each for each in world.sessions().values() if each["state"] == "SUBMITTED"]
        )
        world.me.ask("jobs/stop", {"submission_ids": [session["submission_id"]]})
        with pytest.raises(Failed, match="stop"):
            program.connected()
    assert world.until_ended(session["submission_id"]) == ["STOPPED"]
