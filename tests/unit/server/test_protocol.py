"""Requests without an end: a head or a body that does not come, or that does not stop."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
from fastapi import FastAPI, Request
from hypothesis import given
from hypothesis import strategies as st
from starlette.responses import StreamingResponse
from starlette.types import Message, Receive, Scope, Send
from tests.support.door import open_door
from tests.support.serving import live
from tests.support.waiting import PATIENCE_S
from uvicorn.protocols.utils import ClientDisconnected

from ray_multicluster_scheduler.server import protocol
from ray_multicluster_scheduler.server.door import CLIENT_GONE, Door
from ray_multicluster_scheduler.server.protocol import MOST_DEPTH, depth

#: Far less than a test may take, and far more than an answer needs.
SHORT_S = 3.0


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "HEAD_TIMEOUT_S", SHORT_S)
    monkeypatch.setattr(protocol, "BODY_TIMEOUT_S", SHORT_S)


@pytest.fixture
async def port() -> AsyncIterator[int]:
    app = FastAPI()
    app.add_middleware(Door, **open_door())

    @app.post("/length")
    async def length(request: Request) -> int:
        return len(await request.body())

    @app.post("/none")
    async def none() -> None:
        """Take no body."""

    with live(app) as address:
        yield int(address.rpartition(":")[2])


async def answers(port: int, *parts: bytes) -> bytes:
    """Send something, and return all that comes back until the server closes or nothing more is asked."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for part in parts:
        writer.write(part)
        await writer.drain()
    try:
        return await reader.readuntil(b"\r\n")
    finally:
        writer.close()


@pytest.mark.usefixtures("impatient")
async def test_a_head_that_does_not_come_is_not_waited_for(port: int) -> None:
    assert b" 408 " in await answers(port)
    assert b" 408 " in await answers(port, b"POST /length HT")
    assert b" 408 " in await answers(port, b"POST /length HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")


async def test_a_head_that_does_not_stop_is_cut_off(port: int) -> None:
    long = b"X-Long: " + b"y" * protocol.MOST_HEAD_BYTES
    assert b" 431 " in await answers(port, b"POST /length HTTP/1.1\r\n", long)
    whole = b"POST /length HTTP/1.1\r\nHost: localhost\r\n" + long + b"\r\n\r\n"
    assert b" 431 " in await answers(port, whole)


@pytest.mark.usefixtures("impatient")
async def test_a_body_that_does_not_come_is_not_waited_for(port: int) -> None:
    head = b"POST /length HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n"
    assert b" 408 " in await answers(port, head, b"12345")


async def test_a_body_without_a_length_is_cut_off_where_it_is_too_much(port: int) -> None:
    head = b"POST /length HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
    assert b" 413 " in await answers(port, head, *[chunk] * 17)


async def test_a_body_is_in_utf_8(port: int) -> None:
    deep = '{"a": "\\"", "b": ' + "[" * 400 + "]" * 400 + "}"
    for encoding in ("utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"):
        body = deep.encode(encoding)
        head = f"POST /length HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        assert b" 415 " in await answers(port, head, body)


@pytest.mark.usefixtures("impatient")
async def test_the_rest_of_a_body_that_nobody_reads_is_not_waited_for(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"POST /none HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n12345")
    assert b" 200 " in await reader.readuntil(b"\r\n")  # although the body has not come
    dripping = asyncio.create_task(_drip(writer))
    with suppress(ConnectionError):  # a drop may meet a server that has closed
        await reader.read()  # until the server closes
    dripping.cancel()
    writer.close()


async def _drip(writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(b"x")
        await asyncio.sleep(SHORT_S / 10)


@pytest.mark.usefixtures("impatient")
async def test_a_connection_serves_one_request_after_the_other(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for _ in range(3):
        writer.write(b"POST /length HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n12345")
        assert b" 200 " in await reader.readuntil(b"\r\n")
        await reader.readuntil(b"\r\n\r\n5")
        await asyncio.sleep(SHORT_S)  # idle for as long as a head may take
    writer.close()


@given(levels=st.integers(0, 2 * MOST_DEPTH), inside=st.text(alphabet='[]{}"\\x'), lists=st.booleans())
def test_how_deep_json_is_does_not_depend_on_its_texts(levels: int, inside: str, lists: bool) -> None:
    value: object = inside
    for _ in range(levels):
        value = [value] if lists else {inside: value}
    assert (depth(json.dumps(value).encode()) > MOST_DEPTH) == (levels > MOST_DEPTH)


async def test_a_client_that_goes_before_its_answer_is_no_problem_of_its_request() -> None:
    answer = StreamingResponse(_for_ever())  # it listens for the end of the connection, not for a body
    gone = Door(answer, **open_door())
    scope = {"type": "http", "method": "GET", "path": "/", "headers": [], "asgi": {"spec_version": "2.3"}}

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(_: Message) -> None:
        await asyncio.sleep(0)

    await asyncio.wait_for(gone(scope, receive, send), PATIENCE_S)


async def _for_ever() -> AsyncIterator[bytes]:
    while True:
        yield b"more"
        await asyncio.sleep(0)


async def test_a_socket_whose_client_has_gone_breaks_no_request(caplog: pytest.LogCaptureFixture) -> None:
    async def accepting(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "websocket.accept"})

    async def receive() -> Message:
        return {"type": "websocket.connect"}

    async def send(_: Message) -> None:
        raise ClientDisconnected

    with caplog.at_level("INFO"), pytest.raises(ClientDisconnected):  # which uvicorn knows
        await Door(accepting, **open_door())({"type": "websocket", "path": "/", "headers": []}, receive, send)
    (told,) = caplog.records
    assert (told.message, vars(told)["status"]) == ("request", CLIENT_GONE)
