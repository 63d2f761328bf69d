"""A cluster behind TLS is trusted through its own `tls_ca`, and through nothing else."""

import datetime
import ipaddress
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from tests.support.builders import a_cluster

from ray_multicluster_scheduler.errors import ClusterUnreachable
from ray_multicluster_scheduler.ray_api import HttpConnection


def write_certificate(path: Path) -> None:
    """Write a key and a certificate for 127.0.0.1 that it has signed itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fake ray")])
    now = datetime.datetime.now(datetime.timezone.utc)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    private = key.private_bytes(pem, pkcs8, serialization.NoEncryption())
    path.write_bytes(private + certificate.public_bytes(pem))


@pytest.fixture
async def tls_server(tmp_path: Path) -> AsyncIterator[tuple[str, str]]:
    """Yield the address of a server and the file with its certificate."""
    write_certificate(tmp_path / "own.pem")

    async def version(_: web.Request) -> web.Response:
        return web.json_response({"version": "4", "ray_version": "2.60.0"})

    app = web.Application()
    app.router.add_get("/api/version", version)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "own.pem")
    server = TestServer(app, host="127.0.0.1", scheme="https")
    await server.start_server(ssl=context)
    yield f"https://127.0.0.1:{server.port}", str(tmp_path / "own.pem")
    await server.close()


async def test_the_certificate_in_tls_ca_is_trusted(tls_server: tuple[str, str]) -> None:
    address, certificate = tls_server
    async with HttpConnection(a_cluster(dashboard=address, tls_ca=certificate)) as connection:
        assert (await connection.probe.version()).ray_version == "2.60.0"


async def test_an_unknown_certificate_is_refused_before_anything_is_sent(
    tls_server: tuple[str, str], tmp_path: Path
) -> None:
    address, _ = tls_server
    write_certificate(tmp_path / "other.pem")
    for tls_ca in (None, str(tmp_path / "other.pem")):
        async with HttpConnection(
            a_cluster(dashboard=address, tls_ca=tls_ca), token="secret-token"
        ) as connection:
            with pytest.raises(ClusterUnreachable, match="tls_ca") as error:
                await connection.probe.version()
        assert not error.value.refused
