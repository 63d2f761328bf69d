"""Calls to our own server over HTTP: connections that are kept, retries that cannot do harm, clear errors.

The standard library's client is enough, and imports in a fraction of the time of others. No proxy is used.
"""

from __future__ import annotations

import http.client
import ssl
import threading
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from ray_multicluster_scheduler.client.http_responses import (
    Answer,
    broke_off,
    checked,
    late,
    mistaken,
    unreachable,
)
from ray_multicluster_scheduler.client.server_address import ServerAddress
from ray_multicluster_scheduler.client.server_sent_events import Event, EventReader
from ray_multicluster_scheduler.errors import (
    ServerError,
    ServerLost,
    ServerUnreachable,
    TooManyRequests,
)

#: How long an answer may take. A server asks a cluster for a log, which may be slow.
ANSWER_TIMEOUT_S = 60.0
UPLOAD_TIMEOUT_S = 600.0
CONNECT_TIMEOUT_S = 10.0
#: A server that has answered before is given this long to come back, as after a restart.
PATIENCE_S = 15.0
#: A stream that says nothing for so long is dead: a server sends a sign of life more often.
SILENCE_S = 60.0
_PAUSES_S = (0.05, 0.1, 0.2, 0.5)
_IDLE_CONNECTIONS = 8
#: Less than a server keeps a connection open that nobody uses.
_IDLE_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request."""

    method: str
    #: Below the server's address; parts that come from users are quoted with `part`.
    path: str
    query: Sequence[tuple[str, str]] = ()
    body: bytes | Path | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    #: Whether doing it twice is the same as once: only then it is repeated when its answer was lost.
    repeatable: bool = True
    answer_s: float = ANSWER_TIMEOUT_S

    @property
    def target(self) -> str:
        """The path with its query."""
        return f"{self.path}?{urlencode(self.query)}" if self.query else self.path


@dataclass(slots=True)
class Tries:
    """What became of the tries of one call before the last one."""

    #: One of them may have been executed.
    answer_lost: bool = False


def part(word: str) -> str:
    """Return a user's word as one part of a path."""
    return quote(word, safe="", errors="surrogatepass")


class Transport:
    """Connections to one server; any thread may use it."""

    def __init__(self, server: ServerAddress) -> None:
        self.server = server
        self._url = urlsplit(server.url)
        self._lock = threading.Lock()
        self._idle: list[tuple[http.client.HTTPConnection, float]] = []
        self._tls: ssl.SSLContext | None = None
        #: Whether it has ever answered: the first call does not wait for a server that nobody has started.
        self.answered = False

    def close(self) -> None:
        """Close the connections that nobody uses."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection, _ in idle:
            connection.close()

    def headers(self, call: Call) -> dict[str, str]:
        """Return what goes with every request."""
        token = self.server.token
        return {
            "Accept": "application/json",
            **({"Authorization": f"Bearer {token}"} if token else {}),
            **({"Content-Type": "application/json"} if isinstance(call.body, bytes) else {}),
            **call.headers,
        }

    def ask(self, call: Call, tries: Tries | None = None) -> Any:
        """Return the answer's JSON. Raises what the server's service raised, or a `ServerError`."""
        ends_at = time.monotonic() + PATIENCE_S
        tries = tries or Tries()
        while True:
            answer = self._answer(call, tries)
            try:
                return checked(self.server, call.path, answer)
            except (TooManyRequests, ServerLost) as error:  # there is no room now, or a proxy knows no server
                lost = isinstance(error, ServerLost)
                tries.answer_lost = tries.answer_lost or lost
                if (lost and not call.repeatable) or time.monotonic() + answer.retry_after_s > ends_at:
                    raise
            time.sleep(answer.retry_after_s)

    def exists(self, call: Call) -> bool:
        """Tell whether there is something at this path."""
        answer = self._answer(call, Tries())
        if answer.status == http.HTTPStatus.NOT_FOUND:
            return False
        checked(self.server, call.path, answer)
        return True

    def _answer(self, call: Call, tries: Tries) -> Answer:
        ends_at = time.monotonic() + PATIENCE_S
        for pause_s in pauses():
            try:
                return self._ask_once(call)
            except ServerError as error:
                if not self._worth_another(call, error) or time.monotonic() + pause_s > ends_at:
                    raise
                tries.answer_lost = tries.answer_lost or not isinstance(error, ServerUnreachable)
            time.sleep(pause_s)
        raise AssertionError("there is always another pause")

    def _worth_another(self, call: Call, error: ServerError) -> bool:
        if isinstance(error, ServerUnreachable):
            return self.answered
        return call.repeatable and isinstance(error, ServerLost)

    def _ask_once(self, call: Call) -> Answer:
        timeout_s = UPLOAD_TIMEOUT_S if isinstance(call.body, Path) else call.answer_s
        with self._connected(timeout_s, fresh=not call.repeatable) as connection:
            response = self._send(connection, call)
            answer = self._read(response)
        self._keep(connection, response)
        return answer

    def _read(self, response: http.client.HTTPResponse) -> Answer:
        with self._reading():
            content = response.read()
        return Answer.of(response.status, dict(response.headers.items()), content)

    def events(self, call: Call) -> Generator[Event, None, None]:
        """Send a request and yield the events of its answer as they come, on a connection of its own."""
        with self._connected(SILENCE_S, fresh=True) as connection:
            response = self._send(connection, call)
            if response.status != http.HTTPStatus.OK:
                checked(self.server, call.path, self._read(response))
            reader = EventReader()
            try:
                while True:
                    with self._reading():
                        line = response.readline()
                    if not line:
                        return
                    if event := reader.feed(line):
                        yield event
            finally:
                connection.close()

    def _send(self, connection: http.client.HTTPConnection, call: Call) -> http.client.HTTPResponse:
        with self._reading():
            if isinstance(call.body, Path):
                size = str(call.body.stat().st_size)
                with call.body.open("rb") as file:
                    target, headers = self._url.path + call.target, self.headers(call)
                    connection.request(call.method, target, file, {**headers, "Content-Length": size})
            else:
                connection.request(call.method, self._url.path + call.target, call.body, self.headers(call))
            response = connection.getresponse()
        self.answered = True
        return response

    @contextmanager
    def _connected(self, timeout_s: float, *, fresh: bool) -> Iterator[http.client.HTTPConnection]:
        connection = (None if fresh else self._kept()) or self._connect()
        assert connection.sock is not None
        connection.sock.settimeout(timeout_s)
        try:
            yield connection
        except BaseException:
            connection.close()
            raise

    def _kept(self) -> http.client.HTTPConnection | None:
        """Return a connection that was used before and is surely open still."""
        oldest = time.monotonic() - _IDLE_S
        with self._lock:
            while self._idle:
                connection, used_at = self._idle.pop()
                if used_at > oldest:
                    return connection
                connection.close()
        return None

    def _keep(self, connection: http.client.HTTPConnection, response: http.client.HTTPResponse) -> None:
        with self._lock:
            if not response.will_close and len(self._idle) < _IDLE_CONNECTIONS:
                self._idle.append((connection, time.monotonic()))
                return
        connection.close()

    def _connect(self) -> http.client.HTTPConnection:
        host, port = self._url.hostname or "", self._url.port
        if self._url.scheme == "https":
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                host, port, timeout=CONNECT_TIMEOUT_S, context=self.tls()
            )
        else:
            connection = http.client.HTTPConnection(host, port, timeout=CONNECT_TIMEOUT_S)
        try:
            connection.connect()
        except (OSError, UnicodeError) as error:  # the second: a host that is no name at all
            connection.close()
            raise unreachable(self.server, error) from error
        return connection

    def tls(self) -> ssl.SSLContext:
        """Return how the server's certificate is checked."""
        if self._tls is None:
            try:
                self._tls = ssl.create_default_context(cafile=self.server.ca)
            except OSError as error:
                raise unreachable(self.server, error) from error
        return self._tls

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Translate what can go wrong after a connection was made: the call may have been executed."""
        try:
            yield
        except TimeoutError as error:
            raise late(self.server) from error
        except http.client.BadStatusLine as error:
            if isinstance(error, http.client.RemoteDisconnected):
                raise broke_off(self.server, error, answered=self.answered) from error
            raise mistaken(self.server, "it does not speak HTTP") from error
        except (OSError, http.client.HTTPException) as error:
            raise broke_off(self.server, error, answered=self.answered) from error


def pauses() -> Iterator[float]:
    """Yield how long to wait before the next try, for ever."""
    yield from _PAUSES_S
    while True:
        yield 1.0
