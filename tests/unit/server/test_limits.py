"""How often one user may ask, and how much at once."""

import asyncio
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send
from tests.support.door import open_door

from ray_multicluster_scheduler.config.schema import ServerSettings
from ray_multicluster_scheduler.server.door import BURST_S, CHANGE, LIST, LOG, Door, Limits, kind_of
from ray_multicluster_scheduler.service.caller import Caller, Role

ANN, BOB = (Caller(user=user, role=Role.SUBMIT, token_id="t") for user in ("ann", "bob"))


class Server:
    """A server behind limits that answers when it is told to."""

    def __init__(self, **settings: Any) -> None:
        self.now = 0.0
        self.done = asyncio.Event()
        self.done.set()
        limits = Limits(ServerSettings(**settings), clock=lambda: self.now)
        self.door = Door(self.answer, **open_door(ANN, BOB, limits=limits))

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.done.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def ask(self, caller: Caller | None, path: str = "/api/v1/jobs", method: str = "POST") -> Message:
        sent: list[Message] = []

        async def send(message: Message) -> None:
            sent.append(message)

        async def receive() -> Message:
            return {"type": "http.request", "body": b"", "more_body": False}

        shown = [] if caller is None else [(b"authorization", caller.user.encode())]
        await self.door({"type": "http", "method": method, "path": path, "headers": shown}, receive, send)
        return sent[0]


def status(message: Message) -> int:
    return int(message["status"])


async def test_a_burst_is_let_in_and_then_as_much_as_the_rate_allows() -> None:
    server = Server(changes_per_second=2.0)
    burst = int(2 * BURST_S)
    assert [status(await server.ask(ANN)) for _ in range(burst)] == [200] * burst
    refused = await server.ask(ANN)

    assert status(refused) == 429
    assert dict(refused["headers"])[b"retry-after"] == b"1"
    server.now += 1.0
    assert [status(await server.ask(ANN)) for _ in range(3)] == [200, 200, 429]


async def test_one_user_does_not_spend_what_is_anothers_nor_one_kind_what_is_for_another() -> None:
    server = Server(changes_per_second=0.1)
    assert status(await server.ask(ANN)) == 200
    assert status(await server.ask(ANN)) == 429

    assert status(await server.ask(BOB)) == 200
    assert status(await server.ask(ANN, method="GET")) == 200
    assert status(await server.ask(ANN, "/api/v1/jobs/x", "GET")) == 200


async def test_so_many_requests_are_open_at_once_and_no_more() -> None:
    server = Server(open_requests_per_user=2)
    server.done.clear()
    path = "/api/v1/jobs/x"
    waiting = [asyncio.create_task(server.ask(ANN, path, "GET")) for _ in range(2)]
    await asyncio.sleep(0)

    assert status(await server.ask(ANN, path, "GET")) == 429
    server.done.set()
    assert [status(await each) for each in waiting] == [200, 200]
    assert status(await server.ask(ANN, path, "GET")) == 200
    assert status(await server.ask(BOB, path, "GET")) == 200


async def test_callers_without_a_token_are_not_limited() -> None:
    server = Server(changes_per_second=0.1, open_requests_per_user=1)

    assert [status(await server.ask(None)) for _ in range(9)] == [200] * 9
    assert status(await server.ask(None, "/healthz", "GET")) == 200


@pytest.mark.parametrize(
    ("method", "path", "kind"),
    [
        ("POST", "/api/jobs/", CHANGE),
        ("POST", "/api/v1/jobs", CHANGE),
        ("POST", "/api/v1/jobs/stop", CHANGE),
        ("DELETE", "/api/jobs/x", CHANGE),
        ("PUT", "/api/packages/gcs/x", CHANGE),
        ("GET", "/api/jobs/", LIST),
        ("GET", "/api/v1/jobs", LIST),
        ("POST", "/api/v1/jobs/get-many", LIST),
        ("GET", "/api/jobs/x/logs", LOG),
        ("GET", "/api/v1/jobs/x/logs/tail", LOG),
        ("GET", "/api/jobs/x", None),
        ("GET", "/api/version", None),
    ],
)
def test_each_request_counts_as_what_it_is(method: str, path: str, kind: str | None) -> None:
    assert kind_of({"type": "http", "method": method, "path": path}) == kind
    if kind == LOG:
        assert kind_of({"type": "websocket", "path": path}) == LOG


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/api/v1/jobs/x/explain", LIST),
        ("/api/v1/timeline", LIST),
        ("/api/v1/jobs/x", LOG),
        ("/api/v1/jobs/x/events", None),
        ("/api/v1/jobs/find", LIST),
    ],
)
def test_what_reads_much_counts(path: str, kind: str | None) -> None:
    assert kind_of({"type": "http", "method": "GET", "path": path}) == kind
    assert kind_of({"type": "http", "method": "DELETE", "path": "/api/v1/jobs/x"}) == CHANGE
