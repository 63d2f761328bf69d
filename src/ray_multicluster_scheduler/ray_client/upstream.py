"""Connections to the Ray Client port of a cluster, with the cluster's own token and certificates."""

from __future__ import annotations

import ssl
from collections.abc import Mapping

from ray_multicluster_scheduler.model.cluster import ClusterSpec
from ray_multicluster_scheduler.ray_client.http2.dial import connect
from ray_multicluster_scheduler.ray_client.http2.http2_connection import Connection
from ray_multicluster_scheduler.service.option_keys import PREFIX
from ray_multicluster_scheduler.tasks.wire.auth import Secret, auth_metadata

CONNECT_TIMEOUT_S = 5.0
#: Of the hop from the client to here, and for the server alone.
_NOT_PASSED_ON = ("authorization", PREFIX)


class Upstream:
    """One cluster, as Ray Client programs are connected to it."""

    def __init__(self, spec: ClusterSpec, environ: Mapping[str, str]) -> None:
        """Raises `TokenInTheClear` if the token of the cluster would be sent unencrypted."""
        token = environ.get(spec.auth_token_env, "").strip() if spec.auth_token_env else ""
        self._spec = spec
        self._auth = auth_metadata(
            Secret(token or None), cluster=spec.name, address=spec.head_address, over_https=spec.is_over_https
        )
        self._ssl = _client_tls(environ)

    async def connect(self) -> Connection:
        """Connect to the cluster; raises `ConnectionError`."""
        host, port = self._spec.head
        return await connect(host, port, ssl=self._ssl, timeout_s=CONNECT_TIMEOUT_S)

    def headers(self, path: str, metadata: list[tuple[str, str]]) -> list[tuple[str, str]]:
        """Return the headers of a call: what the client sent, with the cluster's token instead of its own."""
        passed = [(name, value) for name, value in metadata if not name.startswith(_NOT_PASSED_ON)]
        return [
            (":method", "POST"),
            (":scheme", "http" if self._ssl is None else "https"),
            (":path", path),
            (":authority", self._spec.head_address),
            ("te", "trailers"),
            ("content-type", "application/grpc"),
            *passed,
            *(self._auth or ()),
        ]


def _client_tls(environ: Mapping[str, str]) -> ssl.SSLContext | None:
    """Return the TLS settings that Ray itself would use in this process."""
    if environ.get("RAY_USE_TLS", "0").lower() not in {"1", "true"}:
        return None
    context = ssl.create_default_context(cafile=environ.get("RAY_TLS_CA_CERT"))
    context.check_hostname = False  # as in Ray, whose certificates name no hosts
    context.set_alpn_protocols(["h2"])
    context.load_cert_chain(environ["RAY_TLS_SERVER_CERT"], environ["RAY_TLS_SERVER_KEY"])
    return context
