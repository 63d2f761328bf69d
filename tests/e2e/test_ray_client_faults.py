"""Ray Client sessions through a server when something is killed: server, helper process, head, or program."""

import os
import signal
from collections.abc import Iterator

import pytest
from ray.core.generated import ray_client_pb2 as pb
from tests.e2e.client_world import ClientWorld, Failed, Program, Raw, a_client_world, is_running, stays
from tests.support.waiting import until

from ray_multicluster_scheduler.local import HeadSpec

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(900)]

HEADS = [HeadSpec(name="left", cpus=2), HeadSpec(name="right", cpus=2)]
#: How long Ray Client tries to come back, and Ray keeps its session.
QUICK = {"RAY_CLIENT_RECONNECT_GRACE_PERIOD": "5"}
PATIENT = {"RAY_CLIENT_RECONNECT_GRACE_PERIOD": "180"}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClientWorld]:
    settings = {"unreachable_after_s": 5.0, "lost_after_refused_s": 10.0}
    with a_client_world(tmp_path_factory.mktemp("client-faults"), HEADS, scheduler=settings) as world:
        yield world


def all_of_left(world: ClientWorld) -> None:
    """Hold that the claims on a cluster are free: a session that needs the whole of it begins there."""
    with world.me.program(cpus=2, cluster="left", queue_timeout=120) as program:
        assert program.connected().ask("where")["cluster"] == "left"
    assert world.until_ended(program.session) == ["SUCCEEDED"]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_session_goes_on_when_its_server_is_back(world: ClientWorld, how: signal.Signals) -> None:
    with world.me.program(cluster="left", environ=PATIENT) as program:
        assert program.connected().ask("add") == 1
        before = world.sessions()[program.session]
        program.tell("slept", 5)  # under way while there is no server
        world.server.process.send_signal(how)
        world.server.process.wait(60)
        world.server.start()
        assert program.answer() == "slept"
        assert program.ask("add") == 2
        assert program.ask("where")["cluster"] == "left"
        after = world.sessions()[program.session]
        assert (after["helper_pid"], after["ray_job_id"]) == (before["helper_pid"], before["ray_job_id"])
        with world.me.program(cpus=2, cluster="left") as other:  # its claim still counts
            assert other.connected().ask("where")["cluster"] == "right"
    assert world.until_ended(program.session, other.session) == ["SUCCEEDED"] * 2
    all_of_left(world)


def test_after_a_restart_the_token_of_the_owner_counts(world: ClientWorld) -> None:
    carol, mallory = world.user("carol"), world.user("mallory")
    with carol.program(cluster="left", environ=PATIENT) as program:
        assert program.connected().ask("add") == 1
        world.server.kill()
        world.server.start()
        end = pb.DataRequest(req_id=1, connection_cleanup=pb.ConnectionCleanupRequest())
        with Raw(world, mallory, program.client_id) as raw:
            refused = raw.data(end, reconnecting=True)
        assert "there is no such session" in refused.details()
        assert program.ask("add") == 2
        assert mallory.token is not None
        assert carol.token is not None
        world.revoke(mallory.token)
        assert stays(lambda: world.state(program.session) == "RUNNING", looks=15)
        assert program.ask("add") == 3
        world.revoke(carol.token)
        assert world.until_ended(program.session) == ["STOPPED"]
    all_of_left(world)


def failure(program: Program) -> str:
    """Return what a program is told about its next call; the time for that is limited."""
    with pytest.raises(Failed) as failed:
        program.ask("add")
    assert "ConnectionError" in failed.value.kinds
    return failed.value.message


def test_a_helper_process_that_is_killed_is_a_failure_that_the_program_is_told(world: ClientWorld) -> None:
    with world.me.program(cluster="left", environ=QUICK) as program:
        assert program.connected().ask("add") == 1
        actor, helper = program.ask("actor_pid"), world.sessions()[program.session]["helper_pid"]
        assert helper in world.helpers("left")
        os.kill(helper, signal.SIGKILL)
        told = failure(program)
        states = world.until_ended(program.session)
    assert "its program has disconnected" not in told
    assert states == ["FAILED"]
    until(lambda: not is_running(actor))
    all_of_left(world)


def test_a_head_that_is_killed_ends_its_sessions_and_no_others(world: ClientWorld) -> None:
    with (
        world.me.program(cluster="left", environ=QUICK) as program,
        world.me.program(cluster="right", environ=QUICK) as other,
    ):
        assert [each.connected().ask("add") for each in (program, other)] == [1, 1]
        world.sandbox.kill("left")
        try:
            assert failure(program)
            assert world.until_ended(program.session) == ["FAILED"]
            assert other.ask("add") == 2
            with world.me.program(cluster="left") as third:  # goes where there is a head
                assert third.connected().ask("where")["cluster"] == "right"
        finally:
            world.sandbox.start("left")
    assert "connect again" in world.me.ask(f"jobs/{program.session}")["message"]
    assert world.me.ask(f"jobs/{program.session}")["attempt"] == 1  # never started elsewhere
    world.until_healthy()
    all_of_left(world)


def test_a_program_that_is_killed_leaves_nothing_behind(world: ClientWorld) -> None:
    with world.me.program(cpus=2, cluster="left", environ=QUICK) as program:
        assert program.connected().ask("add") == 1
        actor, helper = program.ask("actor_pid"), world.sessions()[program.session]["helper_pid"]
        program.kill()
    world.until_ended(program.session)
    assert program.session not in world.sessions()
    all_of_left(world)
    until(lambda: not is_running(actor))
    until(lambda: not is_running(helper))


def test_a_program_that_is_killed_while_it_waits_gives_its_place_up(world: ClientWorld) -> None:
    whole = {"cpus": 2, "queue_timeout": 240}
    with (
        world.me.program(cluster="left", **whole) as left,
        world.me.program(cluster="right", **whole) as right,
    ):
        left.connected()
        right.connected()
        known = {left.session, right.session}
        with world.me.program(**whole) as waiting:
            (name,) = until(lambda: world.sessions().keys() - known)
            waiting.kill()
        assert world.until_ended(name) == ["STOPPED"]
    all_of_left(world)
