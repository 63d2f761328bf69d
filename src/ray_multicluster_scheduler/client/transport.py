"""Calls to our own server over HTTP: connections that are kept, retries that cannot do harm, clear errors.

The standard library's client is enough, and imports in a fraction of the time of others. No proxy is used.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import ssl
import threading
import time
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from urllib.parse import quote, urlencode, urlsplit

from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_json

from ray_multicluster_scheduler.client.server_address import CA_VAR, ServerAddress
from ray_multicluster_scheduler.environment.options import TOKEN_FILE_VAR, TOKEN_VAR
from ray_multicluster_scheduler.errors import (
    NotAuthenticated,
    SchedulerError,
    ServerBadAnswer,
    ServerError,
    ServerLost,
    ServerTimeout,
    ServerUnreachable,
    TooManyRequests,
    WaitTimeout,
    error_from,
)
from ray_multicluster_scheduler.model.job import JobEvent
from ray_multicluster_scheduler.service.views import JobView
from ray_multicluster_scheduler.version import VERSION

if TYPE_CHECKING:
    import aiohttp

# What the answers of a server mean, and in what words its problems are told.


T = TypeVar("T")
_GATEWAY = frozenset({HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT})


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a server has answered, all of it."""

    status: int
    content_type: str
    content: bytes
    #: When a server that has refused to do something now may be asked again.
    retry_after_s: float

    @classmethod
    def of(cls, status: int, headers: Mapping[str, str], content: bytes) -> Answer:
        """Return an answer from what HTTP brings."""
        given = {name.lower(): value for name, value in headers.items()}
        wait = given.get("retry-after", "")
        return cls(
            status=status,
            content_type=given.get("content-type", ""),
            content=content,
            retry_after_s=float(wait) if wait.isdecimal() else 1.0,
        )


def checked(server: ServerAddress, path: str, answer: Answer) -> Any:
    """Return the JSON of an answer; raises what it tells of."""
    good = answer.status < HTTPStatus.MULTIPLE_CHOICES
    try:
        body = json.loads(answer.content) if answer.content else None
    except ValueError:
        if good:
            kind = answer.content_type or "something"
            raise mistaken(server, f"it answers {path} with {kind}, not with JSON") from None
        body = None
    if not good:
        raise refused(server, path, answer.status, body)
    return body


def refused(server: ServerAddress, path: str, status: int, body: object) -> SchedulerError:
    """Return the error that an answer with an error status stands for."""
    error = error_from(body)
    if isinstance(error, NotAuthenticated):
        return NotAuthenticated(f"{str(error).rstrip('.')}. {_about_token(server)}")
    if error is None and status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:  # the paths of Ray
        return NotAuthenticated(f"the server at {server.url} wants another token. {_about_token(server)}")
    if error is not None and (
        type(error) is not SchedulerError or status >= HTTPStatus.INTERNAL_SERVER_ERROR
    ):
        return error
    if error is not None and status not in {404, 405}:
        return ServerBadAnswer(server.url, f"{error} (status {status})")
    if status in _GATEWAY:
        return ServerLost(server.url, f"a proxy in front of it cannot reach it (status {status})")
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return ServerBadAnswer(server.url, f"it failed at {path} (status {status}); its log says why")
    return mistaken(server, f"it answers {path} with status {status}")


def parsed(server: ServerAddress, parse: Callable[[Any], T], answer: Any) -> T:
    """Return an answer as the record that it is; one that lacks something comes from another version."""
    try:
        return parse(answer)
    except (ValidationError, KeyError, TypeError, AttributeError, ValueError) as error:
        if isinstance(error, ValidationError):
            first = error.errors(include_url=False, include_input=False)[0]
            what = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        else:
            what = f"{type(error).__name__}: {error}"
        raise ServerBadAnswer(
            server.url,
            f"its answer is not what this client ({VERSION}) expects ({what}); "
            "install the same version on both sides",
        ) from None


def record(kind: Callable[..., T]) -> Callable[[Any], T]:
    """Return what makes such a record of the model from an answer."""
    return _adapter(kind).validate_python


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def unreachable(server: ServerAddress, error: Exception) -> ServerUnreachable:
    """Say why no connection could be made, and what to look at."""
    return ServerUnreachable(server.url, f"{_why(error)} (the address is from {server.named_by})")


def late(server: ServerAddress) -> ServerTimeout:
    """Say that no answer came in time."""
    return ServerTimeout(server.url, "no answer in time; it may be busy, and may still do what was asked")


def broke_off(server: ServerAddress, error: Exception, *, answered: bool) -> ServerLost:
    """Say that the connection broke; `answered`: it has answered before, so it is the right address."""
    why = str(error) or type(error).__name__
    hint = "" if answered or server.url.startswith("https") else ". If it has a certificate, write https://"
    return ServerLost(
        server.url, f"the connection broke off ({why}); what was asked may or may not have been done{hint}"
    )


def mistaken(server: ServerAddress, what: str) -> ServerBadAnswer:
    """Say that something else answers there."""
    return ServerBadAnswer(
        server.url,
        f"{what}. Is this the address of a `raymc serve` ({VERSION}), and not of a Ray dashboard? "
        f"It is from {server.named_by}",
    )


def _about_token(server: ServerAddress) -> str:
    if server.token is None:
        return (
            f"No token was found in {server.token_place}. Set {TOKEN_VAR}, or {TOKEN_FILE_VAR} to the file "
            "that holds it, or say `raymc login`; `raymc token create` on the server's machine makes one"
        )
    return f"The token that was sent is from {server.token_place}"


def _why(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"its certificate is not trusted ({error.verify_message}); {CA_VAR} names the file of a CA "
            "that is to be trusted"
        )
    if isinstance(error, ssl.SSLError):
        return f"no TLS connection ({error.reason or error}); does it speak http:// only?"
    if isinstance(error, ConnectionRefusedError):
        return "nothing listens there; is `raymc serve` running?"
    if isinstance(error, socket.gaierror):
        return f"the host is not known ({error.strerror})"
    if isinstance(error, TimeoutError):
        return "no connection in time; is the host right, and does a firewall let it through?"
    return f"no connection ({error})"


# Server-sent events, as far as our own server sends them.


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event of a stream."""

    name: str
    data: str
    #: Where a stream that breaks off after this event is taken up again.
    id: str | None


class EventReader:
    """Puts events together from the lines of a stream; comments are signs of life and nothing else."""

    def __init__(self) -> None:
        self._name = ""
        self._data: list[str] = []
        self._id: str | None = None

    def feed(self, line: bytes) -> Event | None:
        """Take in one line, and return the event that it ends."""
        text = line.decode(errors="replace").rstrip("\r\n")
        if not text:
            return self._end()
        name, _, value = text.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._name = value
        elif name == "id":
            self._id = value
        return None

    def _end(self) -> Event | None:
        event = Event(name=self._name or "message", data="\n".join(self._data), id=self._id)
        told, self._name, self._data = bool(self._data), "", []
        return event if told else None


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


# Requests to our own REST interface of a server, as the transport takes them.


ROOT = "/api/v1"


def get(path: str, **asked: Any) -> Call:
    """Build a GET; values that are None are left out, lists become repeated parameters."""
    query = [
        (name, str(each))
        for name, value in asked.items()
        if value is not None
        for each in (value if isinstance(value, list) else [value])
    ]
    return Call(method="GET", path=path_of(path), query=query)


def post(path: str, body: Mapping[str, Any], *, repeatable: bool = True) -> Call:
    """Return a request with a body."""
    return Call(method="POST", path=path_of(path), body=to_json(body), repeatable=repeatable)


def path_of(path: str) -> str:
    """Return the whole path of a route."""
    return ROOT + path


# Streams of a server that resume where they broke off: the next request, and how events are read.


#: How long clients wait for a server that has gone away before they give up.
RECONNECT_S = 300.0
_EVENTS = {"Accept": "text/event-stream"}
T_co = TypeVar("T_co", covariant=True)


class Following(Protocol[T_co]):
    """Something that is followed on a server."""

    @property
    def over(self) -> bool:
        """Tell whether all of it is here."""

    def call(self) -> Call:
        """Return the request that begins it, or takes it up where it broke off."""

    def take(self, server: ServerAddress, event: Event) -> Iterator[T_co]:
        """Yield what an event brings; raises what it tells of."""


class Patience:
    """How long and how often a client tries to reconnect to a server."""

    def __init__(self) -> None:
        self.rest()

    def rest(self) -> None:
        """Begin anew: the server has said something."""
        self._pauses = pauses()
        self._gone_at: float | None = None

    def pause_s(self, error: SchedulerError | None) -> float:
        """Return how long to wait before the next try; raises the error when that was tried long enough."""
        now = time.monotonic()
        self._gone_at = now if self._gone_at is None else self._gone_at
        if error is not None and now - self._gone_at > RECONNECT_S:
            raise error
        return next(self._pauses)


class Changes:
    """Jobs that somebody waits for, until all have ended."""

    def __init__(
        self, path: str, submission_ids: Sequence[str], *, timeout_s: float | None, tick_s: float
    ) -> None:
        self._path = path
        self._timeout_s = timeout_s
        self._tick_s = tick_s
        self._ends_at = None if timeout_s is None else time.monotonic() + timeout_s
        self._open = list(dict.fromkeys(submission_ids))
        self._jobs: dict[str, JobView] = {}
        self._begun = False

    @property
    def over(self) -> bool:
        """Tell whether all of them have ended."""
        return self._begun and not self._open

    def call(self) -> Call:
        """Ask for those that have not ended, as far as is known here."""
        body = {"submission_ids": self._open, "timeout_s": self._left_s(), "tick_s": self._tick_s}
        return Call(method="POST", path=self._path, body=to_json(body), headers=_EVENTS)

    def take(self, server: ServerAddress, event: Event) -> Iterator[Mapping[str, JobView]]:
        """Yield all of the jobs after each change of one of them, and at each sign of life."""
        changed = parsed(server, _jobs, _data(server, self._path, event))
        self._begun = True
        self._jobs.update(changed)
        self._open = [each for each in self._open if each not in self._jobs or not self._jobs[each].final]
        yield dict(self._jobs)

    def _left_s(self) -> float | None:
        """Return how long to wait still; `WaitTimeout`: that is over, and the server does not answer."""
        if self._ends_at is None or not self._begun:
            return self._timeout_s
        left = self._ends_at - time.monotonic()
        if left <= 0:
            raise WaitTimeout(
                f"not all jobs have ended within {self._timeout_s:g} s, as far as the server has told; "
                "they go on: " + ", ".join(self._open),
                self._open,
                failed=[each for each, job in self._jobs.items() if job.final and job.status != "SUCCEEDED"],
            )
        return left


class Tail:
    """A job's log, until the job has ended."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._after: str | None = None
        self.over = False

    def call(self) -> Call:
        """Ask for what follows after the last piece that is here."""
        resume = {} if self._after is None else {"Last-Event-ID": self._after}
        return Call(method="GET", path=self._path, headers={**_EVENTS, **resume})

    def take(self, server: ServerAddress, event: Event) -> Iterator[str]:
        """Yield the piece that an event brings."""
        data = _data(server, self._path, event)
        self._after = event.id if event.id is not None else self._after
        self.over = event.name == "end"
        if not self.over and (piece := parsed(server, lambda told: str(told["text"]), data)):
            yield piece


class Events:
    """What happens to all jobs; it has no end."""

    over = False

    def __init__(self, path: str, after: int | None) -> None:
        self._path = path
        self._after = None if after is None else str(after)

    def call(self) -> Call:
        """Ask for what follows after the last event that is here."""
        resume = {} if self._after is None else {"Last-Event-ID": self._after}
        return Call(method="GET", path=self._path, headers={**_EVENTS, **resume})

    def take(self, server: ServerAddress, event: Event) -> Iterator[JobEvent]:
        """Yield the move that an event tells of."""
        view = parsed(server, record(JobEvent), _data(server, self._path, event))
        self._after = str(view.id)
        yield view


def _data(server: ServerAddress, path: str, event: Event) -> Any:
    told = parsed(server, json.loads, event.data)
    if event.name == "error":
        raise refused(server, path, 500, told)
    return told


def _jobs(told: Mapping[str, Any]) -> dict[str, JobView]:
    return {name: JobView.model_validate(job) for name, job in told["jobs"].items()}


# Streams of our own server for asyncio, where no thread waits.


async def events(transport: Transport, call: Call) -> AsyncGenerator[Event, None]:
    """Send a request and yield the events of its answer as they come."""
    import aiohttp  # noqa: PLC0415 - only asyncio programs that wait or follow need it

    server = transport.server
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S, sock_read=SILENCE_S)
    try:
        connector = aiohttp.TCPConnector(ssl=transport.tls() if server.url.startswith("https") else False)
        async with (
            aiohttp.ClientSession(connector=connector, timeout=timeout) as session,
            session.request(
                call.method,
                server.url + call.target,
                data=call.body,
                headers=transport.headers(call),
                allow_redirects=False,
            ) as response,
        ):
            transport.answered = True
            if response.status != 200:
                content = await response.read()
                checked(server, call.path, Answer.of(response.status, response.headers, content))
            async for event in _events(response):
                yield event
    except SchedulerError:  # some of them are kinds of OSError
        raise
    except aiohttp.ClientConnectorCertificateError as error:
        raise unreachable(server, error.certificate_error) from error
    except aiohttp.ClientConnectorError as error:
        raise unreachable(server, error.os_error) from error
    except (aiohttp.ServerTimeoutError, asyncio.TimeoutError) as error:
        raise late(server) from error
    except (aiohttp.ClientError, OSError) as error:
        raise broke_off(server, error, answered=transport.answered) from error


async def _events(response: aiohttp.ClientResponse) -> AsyncGenerator[Event, None]:
    reader, rest = EventReader(), b""
    async for chunk in response.content.iter_any():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if event := reader.feed(line):
                yield event
