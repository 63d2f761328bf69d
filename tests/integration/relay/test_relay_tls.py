"""The relay between TLS connections."""

import asyncio
import datetime
import ipaddress
import ssl
from pathlib import Path

import grpc
import grpc.aio
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from tests.integration.relay.relay_scene import OPTIONS, WAIT_S, Echo, gone

from raymc_relay import ConnectionFailed, Stream, connect, listen, splice


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A self-signed certificate of 127.0.0.1, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.timezone.utc)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    folder = tmp_path_factory.mktemp("tls")
    (folder / "cert.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return folder / "cert.pem", folder / "key.pem"


def server_context(certificate: tuple[Path, Path], protocol: str = "h2") -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    context.set_alpn_protocols([protocol])
    return context


def client_context(certificate: tuple[Path, Path], protocol: str = "h2") -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=certificate[0])
    context.set_alpn_protocols([protocol])
    return context


async def test_calls_over_tls_on_both_sides(certificate: tuple[Path, Path]) -> None:
    cert, key = (path.read_bytes() for path in certificate)
    server = grpc.aio.server(options=OPTIONS)
    server.add_generic_rpc_handlers((Echo(),))
    port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([(key, cert)]))
    await server.start()
    upstream = await connect("127.0.0.1", port, ssl=client_context(certificate), timeout_s=WAIT_S)

    async def handler(stream: Stream) -> None:
        splice(stream, upstream.open(stream.headers))

    listener = await listen(handler, host="127.0.0.1", port=0, ssl=server_context(certificate))
    credentials = grpc.ssl_channel_credentials(cert)
    async with grpc.aio.secure_channel(f"127.0.0.1:{listener.port}", credentials, options=OPTIONS) as client:
        message = bytes(range(256)) * 40_000
        assert await client.unary_unary("/echo.Echo/Unary")(message) == message
        answers = [len(answer) async for answer in client.unary_stream("/echo.Echo/Down")(b"100 100000")]
        assert answers == [100_000] * 100
    await listener.close(0.1)
    await gone(upstream)
    await server.stop(0)


async def test_a_client_that_does_not_agree_on_http2_is_refused(certificate: tuple[Path, Path]) -> None:
    async def handler(_: Stream) -> None:
        raise AssertionError

    listener = await listen(handler, host="127.0.0.1", port=0, ssl=server_context(certificate))
    context = client_context(certificate, "http/1.1")
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port, ssl=context)
    await asyncio.wait_for(reader.read(), WAIT_S)
    writer.close()
    await listener.close(0.1)


async def test_a_server_that_does_not_agree_on_http2_is_refused(certificate: tuple[Path, Path]) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    context = server_context(certificate, "http/1.1")
    async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(ConnectionFailed, match="ALPN"):
            await connect("127.0.0.1", port, ssl=client_context(certificate), timeout_s=WAIT_S)


async def test_a_certificate_that_is_not_trusted_is_refused(certificate: tuple[Path, Path]) -> None:
    async def handler(_: Stream) -> None:
        raise AssertionError

    listener = await listen(handler, host="127.0.0.1", port=0, ssl=server_context(certificate))
    strict = ssl.create_default_context()
    with pytest.raises(ConnectionFailed, match="certificate"):
        await connect("127.0.0.1", listener.port, ssl=strict, timeout_s=WAIT_S)
    await listener.close(0.1)
