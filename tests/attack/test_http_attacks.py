"""What strangers and users can send over HTTP: the server bears it, and goes on to answer others."""

import re
import socket
from contextlib import closing, suppress

import aiohttp
import pytest
import socketio
from tests.attack.victim import Victim, request
from tests.support.waiting import PATIENCE_S

from ray_multicluster_scheduler.server.protocol import MOST_BODY_BYTES, MOST_LIST_BYTES, MOST_LOGIN_BYTES

#: More brackets than may be nested, then a string that never ends: a pattern that looks for its end looks
#: again from each of its quotes.
ENDLESS = b"[" * 65 + b'"'
PUBLIC = ("/healthz", "/readyz", "/docs", "/openapi.json", "/api/authenticate", "/login", "/logout")


def endless(size: int) -> bytes:
    return ENDLESS + b'\\"' * ((size - len(ENDLESS)) // 2)


@pytest.mark.parametrize("path", PUBLIC)
def test_a_stranger_costs_nothing_by_a_body(server: Victim, path: str) -> None:
    with server.costs_at_most(cpu_s=0.5, mib=32):
        status, _ = server.ask("POST", path, endless(40_000))
    assert status in {303, 401, 404, 405, 413}
    assert server.ask("GET", "/healthz")[0] == 200


def test_a_user_costs_little_by_the_largest_body_that_is_read(server: Victim) -> None:
    token = server.bearer("submit")
    with server.costs_at_most(cpu_s=1.0, mib=64):
        body = endless(MOST_BODY_BYTES)
        status, _ = server.ask(
            "POST", "/api/v1/jobs", body, authorization=token, content_type="application/json"
        )
    assert status == 422
    with server.costs_at_most(cpu_s=2.0, mib=200):
        body = endless(MOST_LIST_BYTES)
        status, _ = server.ask("POST", "/api/v1/jobs/batch", body, authorization=token)
    assert status == 422


@pytest.mark.parametrize("path", ["/healthz", "/logout", "/api/v1/jobs", "/api/v1/jobs/batch"])
def test_a_stranger_is_answered_before_a_body_has_come(server: Victim, path: str) -> None:
    with closing(server.connect()) as peer:
        peer.sendall(request("POST", path, Content_Length="1000000"))
        status = int(peer.recv(65536).split(b" ", 2)[1])
    assert status in {303, 401, 404, 405}


def test_a_stranger_may_bring_no_more_than_a_token_to_the_login(server: Victim) -> None:
    assert server.ask("POST", "/login", b"token=" + b"x" * 100)[0] == 403
    assert server.ask("POST", "/login", b"token=" + b"x" * MOST_LOGIN_BYTES)[0] == 413


def opened_socket(server: Victim) -> socket.socket:
    """Open a websocket as a page of the dashboard does."""
    peer = server.connect()
    path = "/_nicegui_ws/socket.io/?EIO=4&transport=websocket"
    headers = {
        "Upgrade": "websocket",
        "Sec_WebSocket_Key": "dGhlIHNhbXBsZSBub25jZQ==",
        "Sec_WebSocket_Version": "13",
    }
    upgrade = request("GET", path, authorization=server.bearer("read"), **headers)
    peer.sendall(
        upgrade.replace(b"Connection: close", b"Connection: Upgrade").replace(b"Content-Length: 0\r\n", b"")
    )
    assert b" 101 " in peer.recv(65536)
    return peer


def test_frames_without_an_end_are_cut_off(server: Victim) -> None:
    ping = b"\x89\x80\0\0\0\0"
    with (
        server.costs_at_most(cpu_s=2.0, mib=32),
        closing(opened_socket(server)) as peer,
        suppress(ConnectionError),
    ):
        for _ in range(400):
            peer.sendall(ping * 1_000)
        while peer.recv(65536):
            pass
    assert server.ask("GET", "/healthz")[0] == 200


@pytest.mark.parametrize(
    "wrong",
    [
        b"\x83\x80\0\0\0\0",
        b"\xf1\x80\0\0\0\0",
        b"\x81\x01x",
        b"\x89\xfe\xff\xff\0\0\0\0",
        b"\x81\x81\0\0\0\0\xff",
        b"\x80\x80\0\0\0\0",
    ],
)
def test_a_wrong_frame_leaves_no_traceback(server: Victim, wrong: bytes) -> None:
    with closing(opened_socket(server)) as peer, suppress(ConnectionError):
        peer.sendall(wrong + wrong)
        while peer.recv(65536):
            pass
    with closing(server.connect()) as peer, suppress(ConnectionError):
        peer.sendall(request("GET", "/x", Upgrade="websocket").replace(b"close", b"Upgrade") + wrong)
        peer.recv(65536)
    assert server.tracebacks == []


def test_a_page_of_another_site_changes_nothing(server: Victim) -> None:
    headers = {
        "Cookie": f"ray-authentication-token={server.tokens['submit']}",
        "Content_Type": "application/json",
    }
    body = b'{"entrypoint": "true"}'
    assert server.ask("POST", "/api/v1/jobs", body, Sec_Fetch_Site="cross-site", **headers)[0] == 403
    assert server.ask("POST", "/api/v1/jobs", body, Sec_Fetch_Site="same-origin", **headers)[0] == 201


@pytest.mark.parametrize("path", ["/jobs/a%00b", "/jobs/%ff", "/api/v1/jobs/a%00b", "/api/jobs/a%00b"])
def test_an_id_that_cannot_be_is_not_found(server: Victim, path: str) -> None:
    token = server.bearer("read")
    assert server.ask("GET", path, authorization=token, accept="text/html")[0] in {404, 422}
    assert server.tracebacks == []


#: Messages of a page without what belongs into them, and with what does not.
FORGED = [
    ("event", {}),
    ("event", {"id": "x", "args": 7}),
    ("event", {"id": [], "args": [], "listener_id": {}}),
    ("javascript_response", {}),
    ("javascript_response", {"request_id": []}),
    ("ack", {}),
    ("ack", {"next_message_id": "x"}),
    ("log", {}),
    ("log", {"level": 7, "message": None}),
    ("handshake", {}),
]


async def test_forged_messages_of_a_page_leave_no_traceback(server: Victim) -> None:
    address = f"http://127.0.0.1:{server.port}"
    headers = {"Authorization": server.bearer("read")}
    async with aiohttp.ClientSession(headers=headers) as http:
        async with http.get(f"{address}/", headers={"Accept": "text/html"}) as answer:
            found = re.search(r"client_id[\"']?: ?[\"']([0-9a-f-]{36})", await answer.text())
        assert found is not None
        page = found[1]
        tab = "tab_id=t&old_tab_id=&document_id=t&next_message_id=0&implicit_handshake=true"
        peer = socketio.AsyncClient(reconnection=False, http_session=http)
        await peer.connect(
            f"{address}?client_id={page}&{tab}",
            headers=headers,
            transports=["websocket"],
            socketio_path="_nicegui_ws/socket.io",
            wait_timeout=PATIENCE_S,
        )
        for name, message in FORGED:
            await peer.emit(name, {"client_id": page, **message})
        # When this is answered, all before it have been read.
        assert await peer.call("handshake", {"client_id": page}, timeout=PATIENCE_S) is False
        await peer.shutdown()
    assert server.tracebacks == []
