"""Where a server may listen."""

import inspect

import pytest

from ray_multicluster_scheduler.cli.commands import serve
from ray_multicluster_scheduler.errors import InvalidRequest
from ray_multicluster_scheduler.server.server_options import ServerOptions, check_may_bind, is_loopback

SAFE = {"has_tokens": True, "tls": True, "insecure_http": False}


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_on_loopback_nothing_is_asked_for(host: str) -> None:
    assert is_loopback(host)
    check_may_bind(host, has_tokens=False, tls=False, insecure_http=False)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.7", "gateway", "", "127.0.0.1.example"])
def test_a_wider_bind_needs_tokens_and_tls(host: str) -> None:
    check_may_bind(host, **SAFE)
    check_may_bind(host, **{**SAFE, "tls": False, "insecure_http": True})
    with pytest.raises(InvalidRequest, match=r"raymc token create"):
        check_may_bind(host, **{**SAFE, "has_tokens": False})
    with pytest.raises(InvalidRequest, match=r"raymc token create"):
        check_may_bind(host, has_tokens=False, tls=False, insecure_http=True)
    with pytest.raises(InvalidRequest, match=r"--ssl-certfile"):
        check_may_bind(host, **{**SAFE, "tls": False})


def test_the_command_has_the_same_defaults() -> None:
    options = inspect.signature(serve.serve).parameters
    assert options["host"].default == ServerOptions().host
    assert options["port"].default == ServerOptions().port
    assert options["port"].default != 8265, "Ray's dashboard is there"


@pytest.mark.parametrize(
    ("host", "address"),
    [("127.0.0.1", "http://127.0.0.1:1"), ("0.0.0.0", "http://127.0.0.1:1"), ("::", "http://[::1]:1")],
)
def test_the_address_is_one_that_clients_can_use(host: str, address: str) -> None:
    assert ServerOptions(host=host).address(1) == address
