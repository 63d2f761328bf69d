"""One Ray Client program: its session, its calls, and its connection to the cluster."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Mapping
from contextlib import suppress

from ray_multicluster_scheduler.asyncio_tools import within
from ray_multicluster_scheduler.model.cluster import ClusterSpec
from ray_multicluster_scheduler.ray_client import messages
from ray_multicluster_scheduler.service.request import PREFIX
from ray_multicluster_scheduler.tasks.wire.sessions import Secret, auth_metadata
from raymc_relay.connection import Connection
from raymc_relay.errors import RelayError
from raymc_relay.listener import connect
from raymc_relay.stream import Stream

# Connections to the Ray Client port of a cluster, with the cluster's own token and certificates.


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


log = logging.getLogger(__name__)

#: gRPC's code for calls that would fail again. Ray Client tries most others again, for ever.
FAILED_PRECONDITION = 9
UNAVAILABLE = 14
#: How long a helper process may take to end.
CLEANUP_S = 15.0


class ConnectedClient:
    """A client and the streams that are open for it."""

    def __init__(self, client_id: str, *, submission_id: str, user: str, credential: str) -> None:
        self.client_id = client_id
        self.submission_id = submission_id
        self.user = user
        #: The token that its calls show: the session ends when it is revoked.
        self.credential = credential
        #: Set as soon as calls can be passed on, or it is clear that they never can.
        self.settled = asyncio.Event()
        #: Why no more calls are passed on.
        self.ended: str | None = None
        self._upstream: Upstream | None = None
        self._connection: Connection | None = None
        self._connecting = asyncio.Lock()
        self._streams: set[Stream] = set()
        #: Set while there is no call.
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def is_connected(self) -> bool:
        """Tell whether calls are passed on to a cluster."""
        return self.settled.is_set() and self.ended is None

    def go_to(self, upstream: Upstream) -> None:
        """Choose the cluster of this client."""
        self.close()
        self._upstream, self._connection = upstream, None

    async def open(self, path: str, metadata: list[tuple[str, str]]) -> Stream:
        """Open a call on the cluster; raises `ConnectionError`."""
        assert self._upstream is not None
        async with self._connecting:
            if self._connection is None or not self._connection.is_open:
                self._connection = await self._upstream.connect()
        return self._connection.open(self._upstream.headers(path, metadata))

    def open_at_once(self, path: str, metadata: list[tuple[str, str]]) -> Stream | None:
        """Open a call on the cluster; None: a connection is to be made first."""
        if self._upstream is None or self._connection is None or not self._connection.is_open:
            return None
        return self._connection.open(self._upstream.headers(path, metadata))

    async def ask(self, path: str, metadata: list[tuple[str, str]], message: bytes) -> bytes | None:
        """Make one call of our own to the helper process, and return its first answer."""
        stream = await self.open(path, metadata)
        await stream.send_message(message)
        stream.half_close()
        return await stream.read_message()

    def add(self, stream: Stream) -> None:
        """Take note of a call."""
        self._streams.add(stream)
        self._idle.clear()

    def remove(self, stream: Stream) -> None:
        """Take note that a call is over."""
        self._streams.discard(stream)
        if not self._streams:
            self._idle.set()

    def end(self, reason: str) -> None:
        """Pass on no more calls, and break off those that are under way."""
        if self.ended is None:
            self.ended = reason
            self.settled.set()
            for stream in tuple(self._streams):
                stream.finish(FAILED_PRECONDITION, reason)

    async def retire(self, reason: str, *, at_once: bool) -> None:
        """Take leave of a client whose session is over: at once, or when its own calls have ended."""
        if at_once:
            self.end(reason)
        with suppress(asyncio.TimeoutError):
            await within(CLEANUP_S, self._idle.wait())
        self.end(reason)
        self.close()

    async def clean_up(self) -> None:
        """Let the helper process end at once: without this it waits for the client to come back."""
        metadata = [("client_id", self.client_id), ("reconnecting", "True")]
        with suppress(RelayError, ConnectionError, asyncio.TimeoutError):
            await within(CLEANUP_S, self.ask(messages.DATAPATH_PATH, metadata, messages.cleanup()))
        self.close()

    def close(self) -> None:
        """Close the connection to the cluster."""
        if self._connection is not None:
            self._connection.close()
