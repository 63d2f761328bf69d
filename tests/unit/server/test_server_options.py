"""Where a server may listen."""

import inspect
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from tests.contract.test_ray_api_tls import write_certificate

from ray_multicluster_scheduler.cli.commands import serve
from ray_multicluster_scheduler.errors import InvalidRequest
from ray_multicluster_scheduler.server.server_options import (
    ServerOptions,
    check_certificate,
    check_may_bind,
    is_loopback,
)

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


@pytest.fixture
def pem(tmp_path: Path) -> dict[str, Path]:
    """Certificates and keys, good and bad, by a short name."""
    write_certificate(tmp_path / "both.pem")
    write_certificate(tmp_path / "another.pem")
    both = (tmp_path / "both.pem").read_bytes()
    begin = both.index(b"-----BEGIN CERTIFICATE-----")
    key = serialization.load_pem_private_key(both[:begin], None)
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    texts = {
        "certificate": both[begin:],
        "key": both[:begin],
        "encrypted": key.private_bytes(*form, serialization.BestAvailableEncryption(b"s3cret")),
        "no_pem": b"\x30\x82\x01\x0a",
        "broken": b"-----BEGIN CERTIFICATE-----\n?\n-----END CERTIFICATE-----\n" + both[:begin],
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.pem").write_bytes(text)
    return {name: tmp_path / f"{name}.pem" for name in (*texts, "both", "another", "missing")}


@pytest.mark.parametrize(
    ("certificate", "key", "problem"),
    [
        ("certificate", None, "name the file with its key as --ssl-keyfile"),
        ("certificate", "another", "does not belong to the first certificate"),
        ("certificate", "encrypted", "the key is encrypted"),
        ("certificate", "no_pem", "--ssl-keyfile .* holds no private key in PEM format"),
        ("no_pem", "key", "holds no certificate in PEM format"),
        ("key", "key", "holds no certificate in PEM format"),
        ("broken", None, "cannot be used: one of them is damaged"),
        ("missing", None, "No such file"),
    ],
)
def test_files_that_tls_cannot_use_are_refused_in_one_sentence(
    pem: dict[str, Path], certificate: str, key: str | None, problem: str
) -> None:
    with pytest.raises(InvalidRequest, match=problem) as refused:
        check_certificate(pem[certificate], None if key is None else pem[key])
    assert "\n" not in str(refused.value)
    assert str(pem["both"].parent) in str(refused.value)


def test_a_certificate_and_its_key_are_taken_in_one_file_or_two(pem: dict[str, Path]) -> None:
    check_certificate(pem["both"], None)
    check_certificate(pem["certificate"], pem["key"])
