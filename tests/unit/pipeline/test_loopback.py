"""A head that listens on loopback only can be joined by its address; any other is joined as always."""

import os
import socket
from collections.abc import Iterator

import pytest

from ray_multicluster_scheduler.pipeline import loopback
from ray_multicluster_scheduler.pipeline.loopback import expect_loopback_head

VARIABLE = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A port on 127.0.0.1 alone; the machine's own address is another loopback one."""
    monkeypatch.setenv(VARIABLE, "restored afterwards")
    monkeypatch.delenv(VARIABLE)
    monkeypatch.setattr(loopback, "_own_address", lambda: "127.0.0.2")
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_a_head_on_loopback_only_is_expected_there(port: int) -> None:
    expect_loopback_head(f"127.0.0.1:{port}")
    assert os.environ.get(VARIABLE) == "0"


def test_one_that_listens_everywhere_or_nowhere_is_left_to_ray(port: int) -> None:
    with socket.create_server(("0.0.0.0", 0)) as everywhere:
        expect_loopback_head(f"127.0.0.1:{everywhere.getsockname()[1]}")
    expect_loopback_head("127.0.0.1:9")
    expect_loopback_head(f"ray://127.0.0.1:{port}")
    expect_loopback_head("auto")
    expect_loopback_head(None)
    assert VARIABLE not in os.environ
