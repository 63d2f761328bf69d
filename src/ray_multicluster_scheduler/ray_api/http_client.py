"""HTTP calls to the dashboard of one Ray cluster, on aiohttp: sessions, tokens, TLS and deadlines."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import aiohttp
from yarl import URL

from ray_multicluster_scheduler.errors import ClusterAuthFailed, ClusterUnreachable
from ray_multicluster_scheduler.model.cluster import ClusterSpec
from ray_multicluster_scheduler.ray_api.http_errors import MalformedAnswer, refusal
from ray_multicluster_scheduler.ray_api.pieces import beginning, pieces
from ray_multicluster_scheduler.ray_api.stream import Rows
from ray_multicluster_scheduler.ray_api.telling import tell_call

T = TypeVar("T")

REQUEST_TIMEOUT_S = 10.0
#: Parsed in one go, which stops everything else in this process for a tenth of a second at most. The nodes of
#: the largest clusters (Ray hands out 10,000 rows) are the largest such answer.
MAX_ANSWER_BYTES = 4 * 2**20
#: Read row by row: about 400,000 jobs. Who remembers more is asked for single jobs only.
MAX_LIST_BYTES = 256 * 2**20
#: Nobody listens behind a connection that is not made by then; never more than half of the deadline.
CONNECT_TIMEOUT_S = 5.0


class HttpClient:
    """Calls to one cluster, each with one deadline over connecting, sending and reading.

    It has its own connections, token and TLS settings: nothing is shared with another cluster, so that
    neither a hanging cluster nor a wrong token can reach one. Errors are those of sockets, HTTP and JSON;
    `errors.translated` turns them into ours.
    """

    def __init__(
        self, spec: ClusterSpec, *, token: str | None = None, request_timeout_s: float = REQUEST_TIMEOUT_S
    ) -> None:
        self.spec = spec
        self.request_timeout_s = request_timeout_s
        self._token = token
        self._session: aiohttp.ClientSession | None = None
        self._closed = False

    async def close(self) -> None:
        """Close the connections. Calls after it fail."""
        self._closed = True
        if self._session is not None:
            await self._session.close()

    async def call(
        self,
        method: str,
        path: str,
        *,
        json: Mapping[str, Any] | None = None,
        data: Any = None,
        timeout_s: float | None = None,
        most: int | None = None,
        hidden: Collection[str] = (),
    ) -> bytes:
        """Make one call and return the body of its success, of at most `most` bytes."""
        timeout = _timeout(timeout_s or self.request_timeout_s)
        body = bytearray()
        async with self.answer(
            method, path, json=json, data=data, timeout=timeout, hidden=hidden
        ) as response:
            async for piece in pieces(response, most or MAX_ANSWER_BYTES):
                body += piece
        return bytes(body)

    async def rows(self, path: str, read: Callable[[Mapping[str, Any]], T | None]) -> tuple[list[T], int]:
        """Return what `read` makes of the rows of a list, without None, and how many rows there are.

        It is called while the list arrives, so that a long one leaves time for other clusters.
        """
        rows, kept, listed = Rows(), list[T](), 0
        async with self.answer("GET", path) as response:
            async for piece in pieces(response, MAX_LIST_BYTES):
                found = rows.feed(piece) if piece else rows.end()
                listed += len(found)
                kept += [made for row in found if (made := read(row)) is not None]
        return kept, listed

    @asynccontextmanager
    async def answer(
        self,
        method: str,
        path: str,
        *,
        json: Mapping[str, Any] | None = None,
        data: Any = None,
        timeout: aiohttp.ClientTimeout | None = None,
        hidden: Collection[str] = (),
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Make one call and hand out its answer, unread, when it is a success."""
        with tell_call(self.spec.name, method, path) as answered:
            async with self.session().request(
                method,
                self.url(path),
                json=json,
                data=data,
                timeout=timeout or _timeout(self.request_timeout_s),
                allow_redirects=False,
            ) as response:
                answered(response.status)
                if response.status != 200:
                    words = (await beginning(response)).decode("utf-8", "replace")
                    secrets = [*hidden, *([self._token] if self._token else [])]
                    raise refusal(self.spec, response.status, words, hidden=secrets)
                if response.headers.get("Content-Encoding", "identity").lower() != "identity":
                    raise MalformedAnswer("it is packed, which it was asked not to be")
                yield response

    def url(self, path: str) -> URL:
        """Return where a path of the dashboard is."""
        return URL(self.spec.dashboard.rstrip("/") + path, encoded=True)

    def session(self) -> aiohttp.ClientSession:
        """Return the session, made at the first call because it belongs to the running loop."""
        if self._closed:
            raise ClusterUnreachable(self.spec.name, "its connections were closed, and nothing was sent")
        if self._session is None:
            self._session = aiohttp.ClientSession(
                # No limit on connections: a tail holds one as long as its job runs.
                connector=aiohttp.TCPConnector(limit=0, ssl=self._tls()),
                timeout=_timeout(self.request_timeout_s),
                headers=self._headers(),
                # A few packed bytes can become gigabytes, and would be unpacked while all others wait.
                auto_decompress=False,
                trace_configs=[_no_redirects(self.spec)],
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=False,
            )
        return self._session

    def _headers(self) -> dict[str, str]:
        headers = {"User-Agent": "ray-multicluster-scheduler", "Accept-Encoding": "identity"}
        if self._token is None:
            return headers
        if not (self._token.isascii() and self._token.isprintable()):
            raise ClusterAuthFailed(
                self.spec.name,
                f"the token in {self.spec.auth_token_env} cannot be sent: it holds a line break "
                "or another character that HTTP does not allow",
            )
        return {**headers, "Authorization": f"Bearer {self._token}"}

    def _tls(self) -> ssl.SSLContext | bool:
        if self.spec.tls_ca is None:
            return True
        try:
            return ssl.create_default_context(cafile=self.spec.tls_ca)
        except OSError as error:
            raise ClusterUnreachable(
                self.spec.name, f"the certificates in `tls_ca` ({self.spec.tls_ca}) cannot be read: {error}"
            ) from error


def _timeout(total_s: float) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=total_s, sock_connect=connect_s(total_s))


def connect_s(total_s: float) -> float:
    """Return how long a call with this deadline may take to connect."""
    return min(CONNECT_TIMEOUT_S, total_s / 2)


def _no_redirects(spec: ClusterSpec) -> aiohttp.TraceConfig:
    """Refuse to follow a redirect: for a tail, aiohttp has no other way to say so."""

    async def refuse(
        _session: object, _context: object, redirect: aiohttp.TraceRequestRedirectParams
    ) -> None:
        raise refusal(spec, redirect.response.status, "")

    tracing = aiohttp.TraceConfig()
    tracing.on_request_redirect.append(refuse)
    return tracing
