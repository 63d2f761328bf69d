"""An open page answers to the socket of its own visitor only."""

import asyncio
import re
import uuid
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import aiohttp
import pytest
import socketio
from playwright.sync_api import Page
from tests.browser.conftest import Open
from tests.browser.visits import Server, Visit

from ray_multicluster_scheduler.server.authentication import COOKIE

PATH = "_nicegui_ws/socket.io"

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    """Do this in another thread: the loop of Playwright occupies this one."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


def query(client_id: str) -> str:
    tab = uuid.uuid4()
    return (
        f"client_id={client_id}&tab_id={tab}&old_tab_id=&document_id={tab}&next_message_id=0"
        "&implicit_handshake=true"
    )


async def connected(server: Server, client_id: str, headers: dict[str, str]) -> bool:
    """Tell whether the server takes a socket for an open page."""
    async with aiohttp.ClientSession() as http:
        socket = socketio.AsyncClient(reconnection=False, http_session=http)
        try:
            await socket.connect(
                f"{server.address}?{query(client_id)}",
                headers=headers,
                transports=["websocket"],
                socketio_path=PATH,
            )
        except socketio.exceptions.ConnectionError:
            return False
        else:
            return True
        finally:
            await socket.shutdown()


def cookie(server: Server, role: str) -> dict[str, str]:
    return {"Cookie": f"{COOKIE}={server.secret(role)}"}


def unconnected(server: Server, role: str) -> str:
    """Ask for a page and return its id: nobody has connected to it yet."""

    async def asked() -> str:
        async with (
            aiohttp.ClientSession(headers=cookie(server, role)) as http,
            http.get(f"{server.address}/") as answer,
        ):
            found = re.search(r"client_id[\"']?: ?[\"']([0-9a-f-]{36})", await answer.text())
            assert found is not None
            return found[1]

    return run(asked())


def test_the_visitor_of_a_page_gets_a_socket_for_it(server: Server) -> None:
    assert run(connected(server, unconnected(server, "read"), cookie(server, "read")))


@pytest.mark.parametrize("role", ["submit", "admin"])
def test_another_visitor_gets_no_socket_for_it(server: Server, role: str) -> None:
    assert not run(connected(server, unconnected(server, "operate"), cookie(server, role)))


def test_nobody_gets_a_socket_without_a_token_or_from_a_foreign_page(server: Server) -> None:
    page = unconnected(server, "read")
    assert not run(connected(server, page, {}))
    foreign = {**cookie(server, "read"), "Origin": "https://example.org"}
    assert not run(connected(server, page, foreign))


@pytest.mark.parametrize("known", ["", "no-such-page"])
def test_a_socket_needs_a_page(server: Server, known: str) -> None:
    assert not run(connected(server, known, cookie(server, "read")))


def test_there_is_no_other_transport(visit: Open, server: Server) -> None:
    one = visit("read")
    answer = one.context.request.get(f"{server.address}/{PATH}/?EIO=4&transport=polling")
    assert answer.status == 400


SEND = """async ([message, value]) => {
  window.socket.emit("event", {...message, args: [JSON.stringify(value)]});
  // The socket answers in order: when this comes back, what was sent before has been dealt with.
  const other = {client_id: message.client_id, tab_id: "x", document_id: "x", next_message_id: 0};
  return await new Promise(done => window.socket.emit("handshake", other, done));
}"""


def field_of(page: Page, name: str) -> dict[str, Any]:
    """Return all that has to be known of a page to type into one of its fields."""
    found: dict[str, Any] = page.evaluate(
        """name => {
          const elements = Object.entries(mounted_app.elements);
          const [id, field] = elements.find(([, element]) => element.props["data-test"] === name);
          const listener = field.events.find(event => event.type.startsWith("update:"));
          return {id: Number(id), client_id: window.clientId, listener_id: listener.listener_id};
        }""",
        name,
    )
    return found


@pytest.mark.parametrize("role", ["admin", "operate"])
def test_another_page_cannot_type_into_this_one(visit: Open, role: str) -> None:
    """Neither a page of another visitor nor one of the same, although it knows all ids."""
    this, another = visit("operate"), visit(role)
    this.go("/submit")
    another.go("/jobs")
    command, name = field_of(this.page, "entrypoint"), field_of(this.page, "job_id")
    this.page.evaluate(SEND, [command, "echo own"])
    this.see("echo own")
    assert another.page.evaluate(SEND, [command, "echo stolen"]) is False
    this.page.evaluate(SEND, [name, "a-name"])  # what was typed before has been dealt with when this is seen
    this.see("a-name")
    assert "stolen" not in this.page.content()
    assert "echo own" in this.page.content()


def test_who_logs_in_as_somebody_else_gets_the_page_anew(visit: Open, server: Server) -> None:
    one: Visit = visit("operate")
    one.go("/")
    before = one.page.evaluate("window.clientId")
    one.context.add_cookies(
        [{"name": COOKIE, "value": server.secret("read"), "url": server.address, "httpOnly": True}]
    )
    one.page.evaluate("window.socket.io.engine.close()")  # as a lost connection does; it comes back
    one.page.wait_for_function(f"window.clientId !== undefined && window.clientId !== '{before}'")
    one.ready()
    one.page.get_by_role("button", name=one.words("frame.visitor")).click()
    one.see("reader")
