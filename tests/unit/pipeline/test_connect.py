"""A head that listens on loopback only can be joined by its address; any other is joined as always."""

import socket
from collections.abc import Iterator

import pytest
import ray
from ray._private import ray_constants

from ray_multicluster_scheduler.client.init_ray import _check_listening
from ray_multicluster_scheduler.errors import ClusterUnreachable

MACHINE, LOOPBACK = "127.0.0.2", "127.0.0.1"


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A port on 127.0.0.1 alone; the machine's own address is another loopback one."""
    monkeypatch.setattr(ray_constants, "ENABLE_RAY_CLUSTER", True)
    monkeypatch.setattr(
        ray.util, "get_node_ip_address", lambda: MACHINE if ray_constants.ENABLE_RAY_CLUSTER else LOOPBACK
    )
    with socket.create_server((LOOPBACK, 0)) as server:
        yield server.getsockname()[1]


def test_a_head_on_loopback_only_is_expected_there_and_the_next_one_as_always(port: int) -> None:
    _check_listening(f"127.0.0.1:{port}")
    assert not ray_constants.ENABLE_RAY_CLUSTER
    _check_listening(None)
    assert ray_constants.ENABLE_RAY_CLUSTER


def test_one_that_listens_everywhere_or_is_reached_over_ray_client_is_left_to_ray(port: int) -> None:
    with socket.create_server(("0.0.0.0", 0)) as everywhere:
        _check_listening(f"127.0.0.1:{everywhere.getsockname()[1]}")
    _check_listening(f"ray://127.0.0.1:{port}")
    _check_listening("auto")
    assert ray_constants.ENABLE_RAY_CLUSTER
    with pytest.raises(ClusterUnreachable, match=r"no server answers at 127\.0\.0\.1:9"):
        _check_listening("127.0.0.1:9")


def test_a_version_of_ray_that_cannot_be_told_is_refused_with_what_to_do(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray.util, "get_node_ip_address", lambda: MACHINE)
    with pytest.raises(ClusterUnreachable, match=r"ray:// .*RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0 in its env"):
        _check_listening(f"127.0.0.1:{port}")
