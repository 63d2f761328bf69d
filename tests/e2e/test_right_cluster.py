"""Heads that share a machine: every Ray Client session ends on the cluster that was asked for."""

import socket
from collections.abc import Iterator
from contextlib import closing, nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest
import ray
import yaml
from tests.e2e.task_world import World, a_world, finish
from tests.support.waiting import until

from ray_multicluster_scheduler.client.init_ray import check_head, head_process
from ray_multicluster_scheduler.errors import ClusterUnreachable
from ray_multicluster_scheduler.local import HeadSpec, Sandbox
from ray_multicluster_scheduler.model.cluster import ClusterSpec
from ray_multicluster_scheduler.tasks import home as homes
from ray_multicluster_scheduler.tasks.wire.sessions import GATE_PORT, WrongCluster, check_session

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(900)]

HEADS = [HeadSpec(name="home", cpus=2), HeadSpec(name="other", cpus=2)]
#: Programs that connect to each head at the same moment.
AT_ONCE = 2


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    with Sandbox(tmp_path_factory.mktemp("sandbox"), HEADS) as running:
        yield running


@pytest.fixture
def world(sandbox: Sandbox, tmp_path: Path) -> Iterator[World]:
    with a_world(sandbox, tmp_path) as world:
        yield world


def a_taken_gate() -> Any:
    """Hold the port by which sessions start one at a time: all of them go on at once, after the same time."""
    gate = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    until(lambda: _takes(gate))  # a session of another program may pass just now
    gate.listen(1)
    return closing(gate)


def _takes(gate: socket.socket) -> bool:
    with suppress(OSError):
        gate.bind(("127.0.0.1", GATE_PORT))
        return True
    return False


@pytest.mark.parametrize("through", ["tasks", "pipeline"])
@pytest.mark.parametrize("gate", ["one at a time", "all at once"])
def test_programs_that_connect_at_the_same_moment_end_on_their_own_clusters(
    world: World, through: str, gate: str
) -> None:
    wanted = {f"{name}-{number}": name for number in range(AT_ONCE) for name in world.sandbox.heads}
    with a_taken_gate() if gate == "all at once" else nullcontext():
        programs = {
            key: world.outside(
                "which_cluster.py",
                name,
                key,
                f"ray://{world.head(name).client_address}" if through == "pipeline" else "",
                RAY_MULTICLUSTER_HOME=str(world.folder / f"home-{key}"),
            )
            for key, name in wanted.items()
        }
        until(
            lambda: all(
                world.note(f"ready-{key}").exists() or program.poll() is not None
                for key, program in programs.items()
            )
        )
        world.note("go").write_text("")
        reached = {key: finish(program) for key, program in programs.items()}
    assert reached == {key: world.head(name).gcs_address for key, name in wanted.items()}


def spec_of(world: World, name: str) -> ClusterSpec:
    entry = yaml.safe_load(world.config.read_text())["clusters"][name]
    return ClusterSpec(
        name=name, head_address=entry["head_address"], dashboard=entry["dashboard"], max_running_jobs=1
    )


def test_a_session_on_another_cluster_than_the_dashboards_is_refused_and_closed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ray_multicluster_scheduler.tasks.wire.sessions.WRONG_TRIES", 2)
    with pytest.raises(ClusterUnreachable, match="do head_address and dashboard name the same cluster"):
        homes.connect(spec_of(world, "home"), {}, None, "session_of_another_cluster")
    assert not homes.is_connected()


def test_a_session_with_the_environment_of_another_program_is_refused(world: World) -> None:
    ours = {"env_vars": {"RAY_MULTICLUSTER_CLUSTER": "home"}}
    homes.connect(spec_of(world, "home"), ours, None, None)
    try:
        check_session("home", None, ours)
        with pytest.raises(WrongCluster, match="environment of another program"):
            check_session("home", None, {"env_vars": {"RAY_MULTICLUSTER_CLUSTER": "other"}})
    finally:
        ray.shutdown()


def test_a_head_says_which_process_it_is_and_a_session_is_compared_with_it(world: World) -> None:
    address = {name: head.client_address for name, head in world.sandbox.heads.items()}
    home, other = (head_process(address[name]) for name in ("home", "other"))
    assert home.isdigit()
    assert home != other
    homes.connect(spec_of(world, "home"), {}, None, None)
    try:
        check_head(address["home"], home)
        with pytest.raises(WrongCluster, match="another cluster"):
            check_head(address["home"], other)
    finally:
        ray.shutdown()
