"""How a server is run, and where it may listen."""

from __future__ import annotations

import ipaddress
import ssl
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from ray_multicluster_scheduler.errors import InvalidRequest

#: Ray's dashboards have 8265: a server beside a head must not collide with one.
PORT = 8700
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """The options of `raymc serve`."""

    host: str = LOOPBACK
    #: 0: any free one.
    port: int = PORT
    #: For Ray Client programs (`ray://`); None: they are not served.
    client_port: int | None = None
    #: Serve pages for people from `/` on.
    dashboard: bool = False
    #: The address that other machines know this server by; jobs are told it. None: the one it listens on.
    public_url: str | None = None
    ssl_certfile: Path | None = None
    ssl_keyfile: Path | None = None
    #: Listen beyond this machine without TLS, because a proxy in front of this server has it.
    insecure_http: bool = False
    #: Besides those in clusters.yaml: names that clients use for this server, and pages that may call it.
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    #: Log each request; None: where the log is no terminal.
    access_log: bool | None = None
    #: Threads that answer requests from the store, and those that may wait for a cluster.
    threads: int = 32
    cluster_threads: int = 8
    #: How long requests that are under way may take once the server is told to stop.
    stop_timeout_s: int = 5

    @property
    def tls(self) -> bool:
        """Tell whether connections are encrypted."""
        return self.ssl_certfile is not None

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names that clients may use for this server: jobs use that of its public address."""
        public = urlsplit(self.public_url or "").hostname
        return self.allowed_hosts if public is None else (*self.allowed_hosts, public)

    @property
    def loopback(self) -> bool:
        """Tell whether only this machine can connect."""
        return is_loopback(self.host)

    def address(self, port: int) -> str:
        """Return the address that clients on this machine use."""
        return f"{'https' if self.tls else 'http'}://{self._reached_at}:{port}"

    def client_address(self, port: int) -> str:
        """Return the address that Ray Client programs on this machine use."""
        return f"ray://{self._reached_at}:{port}"

    @property
    def _reached_at(self) -> str:
        host = {"0.0.0.0": LOOPBACK, "::": "[::1]"}.get(self.host, self.host)  # noqa: S104 - only compared
        return f"[{host}]" if ":" in host and not host.startswith("[") else host


def is_loopback(host: str) -> bool:
    """Tell whether a host to listen on can be reached from this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_may_bind(host: str, *, has_tokens: bool, tls: bool, insecure_http: bool) -> None:
    """Refuse to listen where strangers could give orders, or read tokens on their way."""
    if is_loopback(host):
        return
    if not has_tokens:
        raise InvalidRequest(
            f"--host {host}: other machines could connect, and nobody would have to say who they are. Make a "
            "token first: raymc token create --user NAME --role admin; or listen on 127.0.0.1"
        )
    if not (tls or insecure_http):
        raise InvalidRequest(
            f"--host {host}: tokens would cross the network readable by all. Give --ssl-certfile and "
            "--ssl-keyfile; or, where a proxy in front of this server has TLS, --insecure-http"
        )


def check_certificate(certificate: Path, key: Path | None) -> None:
    """Refuse files that cannot be used for TLS, as long as nothing is served yet."""
    named = f"--ssl-certfile {certificate}" if key is None else f"--ssl-keyfile {key}"
    encrypted = []

    def password() -> str:
        encrypted.append(key or certificate)
        return ""

    try:
        if b"-----BEGIN CERTIFICATE-----" not in certificate.read_bytes():
            raise InvalidRequest(f"--ssl-certfile {certificate} holds no certificate in PEM format")
        if b"PRIVATE KEY-----" not in (key or certificate).read_bytes():
            hint = "; name the file with its key as --ssl-keyfile" if key is None else " in PEM format"
            raise InvalidRequest(f"{named} holds no private key{hint}")
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password)
    except ssl.SSLError as problem:
        if encrypted:
            raise InvalidRequest(
                f"{named}: the key is encrypted, and nobody could give its password when the server starts; "
                "decrypt it with `openssl pkey -in KEY -out PLAIN`, readable by the server alone"
            ) from None
        if problem.reason == "KEY_VALUES_MISMATCH":
            raise InvalidRequest(
                f"{named}: the key does not belong to the first certificate in {certificate}"
            ) from None
        why = problem.reason or "one of them is damaged"
        raise InvalidRequest(f"--ssl-certfile {certificate} and its key cannot be used: {why}") from None
    except OSError as problem:
        raise InvalidRequest(f"{problem.filename or certificate}: {problem.strerror or problem}") from None
