"""nginx, with the files of `deploy/nginx`, in front of two real servers on one store."""

import asyncio
import io
import json
import os
import re
import signal
import sys
import zipfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from tests.integration.test_serve import Served, World
from tests.support.nginx_front import NGINX, Front, nginx_in_front, stream_module
from tests.support.raymc import raymc
from tests.support.system import fake
from tests.support.waiting import eventually

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        NGINX is None, reason="NOT TESTED: nginx is not installed, so nobody has tried deploy/nginx here"
    ),
    pytest.mark.asyncio(loop_scope="module"),
]

PACKAGE = "_ray_pkg_0123456789abcdef.zip"
UPLOAD_BYTES = 50 * 10**6
#: What no cluster could ever hold is refused at once, with a reason that only the server knows.
RAY_PROGRAM = """
import ray
ray.init("ray://127.0.0.1:{port}", _metadata=[("authorization", "Bearer {token}"), ("raymc.cpus", "999")])
"""


@dataclass(kw_only=True)
class Scene:
    """Two servers, nginx in front of them, and a client that has an administrator's token."""

    world: World
    servers: list[Served]
    front: Front
    token: str
    http: aiohttp.ClientSession

    def asking(self, method: str, path: str, **options: Any) -> Any:
        return self.http.request(method, self.front.url + path, ssl=self.front.trusting, **options)

    async def ask(self, method: str, path: str, **options: Any) -> Any:
        async with self.asking(method, path, **options) as answer:
            assert answer.ok, await answer.text()
            return await answer.json()

    async def submit(self, name: str, entrypoint: str = "echo hello") -> None:
        await self.ask("POST", "/api/v1/jobs", json={"entrypoint": entrypoint, "submission_id": name})

    async def asked(self, path: str, *, servers: int) -> set[str]:
        """Return which servers have answered, once there are so many; nginx logs what has ended."""

        def so_many() -> set[str]:
            found = {words[-2] for words in self._logged() if words[3].startswith(path)}
            return found if len(found) >= servers else set()

        found: set[str] = await eventually(so_many)
        return found

    async def logged(self, request_id: str) -> str:
        """Return nginx's line about a request, once it is there."""
        found: list[str] = await eventually(
            lambda: [" ".join(words) for words in self._logged() if words[-1] == request_id]
        )
        return found[0]

    def _logged(self) -> list[list[str]]:
        return [line.split() for line in self.front.access_log.read_text().splitlines()]


@asynccontextmanager
async def set_up(folder: Path, *options: str) -> AsyncIterator[Scene]:
    async with AsyncExitStack() as stack:
        world = World(folder, await stack.enter_async_context(fake("a")))
        created = ("token", "create", "--config", world.path, "--user", "ann", "--role", "admin")
        token = (await raymc(*created, environ=world.environ)).out.strip()
        servers = [await stack.enter_async_context(world.serving(*options)) for _ in range(2)]
        ports = [int(each.address.rpartition(":")[2]) for each in servers]
        clients = [client_port(each) for each in servers] if "--client-port" in options else []
        front = await stack.enter_async_context(nginx_in_front(folder, ports, clients))
        http = await stack.enter_async_context(
            aiohttp.ClientSession(headers={"Authorization": f"Bearer {token}"})
        )
        yield Scene(world=world, servers=servers, front=front, token=token, http=http)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scene(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Scene]:
    async with set_up(tmp_path_factory.mktemp("nginx")) as made:
        yield made


def client_port(served: Served) -> int:
    (line,) = [line for line in served.lines if "ray://" in line]
    return int(line.split()[1].rpartition(":")[2])


async def next_event(stream: aiohttp.ClientResponse) -> dict[str, Any]:
    """Return the next event of a stream, with its id."""
    found: dict[str, Any] = {}
    async for line in stream.content:
        word, _, rest = line.decode().rstrip("\n").partition(": ")
        if word in {"id", "data"}:
            found[word] = rest
        elif not word and "data" in found:
            return {"id": int(found["id"]), **json.loads(found["data"])}
    raise AssertionError("the stream has ended")


async def test_rest_works_through_it_and_still_wants_a_token(scene: Scene) -> None:
    assert (await scene.ask("GET", "/healthz")) == {"status": "ok"}
    await scene.submit("rest")
    assert (await scene.ask("GET", "/api/v1/jobs/rest"))["submission_id"] == "rest"
    async with scene.asking("GET", "/api/v1/jobs", headers={"Authorization": "Bearer wrong"}) as answer:
        assert answer.status == 401
    async with scene.asking("GET", "/api/v1/me", headers={"Host": "stranger.example"}) as answer:
        assert answer.status == 421


async def test_an_event_stream_is_not_held_back_and_resumes_by_id_at_any_server(scene: Scene) -> None:
    stream = "/api/v1/events/stream"
    async with scene.asking("GET", stream) as first:
        await scene.submit("followed")
        seen = [await next_event(first)]  # it came while the stream is open
    while (seen[-1]["submission_id"], seen[-1]["new"]) != ("followed", "SUCCEEDED"):
        known = {"Last-Event-ID": str(seen[-1]["id"])}
        async with (
            scene.asking("GET", stream, headers=known) as one,
            scene.asking("GET", stream, headers=known) as other,  # goes to the other server
        ):
            seen.append(await next_event(one))
            assert await next_event(other) == seen[-1]
    told = await scene.ask("GET", "/api/v1/events", params={"after": seen[0]["id"] - 1})
    ids = [each["id"] for each in told["events"]]  # there may be later ones of another job
    assert [each["id"] for each in seen] == [each for each in ids if each <= seen[-1]["id"]]
    assert len(await scene.asked(stream, servers=2)) == 2


async def test_what_a_stopped_server_has_left_is_answered_by_the_other(tmp_path: Path) -> None:
    async with set_up(tmp_path) as scene:
        await scene.submit("long", "sleep 2")
        async with scene.asking("POST", "/api/v1/jobs/changes", json={"submission_ids": ["long"]}) as stream:
            await stream.content.readline()
            scene.servers[0].process.send_signal(signal.SIGTERM)
            await scene.servers[0].process.wait()
        for n in range(4):
            await scene.submit(f"after-{n}")
        body = {"submission_ids": ["long", *(f"after-{n}" for n in range(4))]}
        async with scene.asking("POST", "/api/v1/jobs/changes", json=body) as stream:
            assert (await stream.text()).count('"SUCCEEDED"') >= 5


async def test_an_upload_of_50_mb_passes_and_both_servers_have_it(scene: Scene) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("data.bin", os.urandom(UPLOAD_BYTES))
    path = f"/api/packages/gcs/{PACKAGE}"
    async with scene.asking("PUT", path, data=io.BytesIO(packed.getvalue())) as answer:
        assert answer.status == 200, await answer.text()
    for server in scene.servers:
        async with scene.http.head(server.address + path) as answer:
            assert answer.status == 200


async def test_requests_of_one_client_go_to_any_server(scene: Scene) -> None:
    names = [f"job-{n}" for n in range(8)]
    for name in names:
        await scene.submit(name)
        assert (await scene.ask("GET", f"/api/v1/jobs/{name}"))["submission_id"] == name
    page = await scene.ask("GET", "/api/v1/jobs", params={"text": "job-"})
    assert sorted(job["submission_id"] for job in page["jobs"]) == names
    servers = {each.address.removeprefix("http://") for each in scene.servers}
    assert await scene.asked("/api/v1/jobs", servers=2) == servers


async def test_an_open_page_of_the_dashboard_stays_with_the_server_that_has_sent_it(scene: Scene) -> None:
    for _ in range(6):  # one at a time would reach the right server by chance
        async with scene.asking("GET", "/", headers={"Accept": "text/html"}) as answer:
            assert answer.status == 200
            (client,) = set(re.findall(r"[\"']client_id[\"']: ?[\"']([\w-]+)", await answer.text()))
        said = {"EIO": "4", "transport": "websocket", "client_id": client, "implicit_handshake": "true"}
        said |= {"tab_id": "tab", "document_id": "document", "next_message_id": "0"}
        address = f"{scene.front.url}/_nicegui_ws/socket.io/"
        origin = {"Origin": scene.front.url}
        async with scene.http.ws_connect(
            address, params=said, headers=origin, ssl=scene.front.trusting
        ) as websocket:
            assert (await websocket.receive_str()).startswith("0{")
            await websocket.send_str("40")
            assert (await websocket.receive_str()).startswith('40{"sid"')
    assert len(await scene.asked("/_nicegui_ws/", servers=1)) == 1


async def test_the_cookie_of_a_login_is_for_tls_only(scene: Scene) -> None:
    form = {"token": scene.token}
    async with scene.asking("POST", "/login", data=form, allow_redirects=False) as answer:
        assert answer.status == 303, await answer.text()
        cookie = answer.headers["Set-Cookie"].lower()
    assert cookie.startswith("ray-authentication-token=raymc_")
    assert {"secure", "httponly", "samesite=strict"} <= {word.strip() for word in cookie.split(";")}


async def test_logs_are_followed_as_text_as_events_and_by_websocket(scene: Scene) -> None:
    await scene.submit("told")
    tail = "/api/v1/jobs/told/logs/tail"
    async with scene.asking("GET", tail) as text:
        assert "hello" in await text.text()
    async with scene.asking("GET", tail, headers={"Accept": "text/event-stream"}) as events:
        assert "hello" in (await next_event(events))["text"]
    address = f"{scene.front.url}/api/jobs/told/logs/tail"
    async with scene.http.ws_connect(address, ssl=scene.front.trusting) as websocket:
        assert "hello" in "".join([message.data async for message in websocket])


async def test_nobody_passes_for_another_address_by_a_header(scene: Scene) -> None:
    claimed = {"X-Forwarded-For": "192.0.2.7", "Forwarded": "for=192.0.2.7", "X-Real-IP": "192.0.2.7"}
    bob = {"user": "bob", "role": "read"}
    async with scene.asking("POST", "/api/v1/tokens", json=bob, headers=claimed) as answer:
        assert answer.status == 201
    entries = (await scene.ask("GET", "/api/v1/audit"))["entries"]
    assert {each["address"] for each in entries if each["action"] == "token create"} <= {None, "127.0.0.1"}
    assert "192.0.2.7" not in scene.front.access_log.read_text()


async def test_one_id_is_in_the_logs_of_both(scene: Scene) -> None:
    async with scene.asking("GET", "/api/v1/me", headers={"X-Request-ID": "mine"}) as answer:
        assert answer.headers["X-Request-ID"] == "mine"
    async with scene.asking("GET", "/api/v1/me?secret=swordfish") as answer:
        made = answer.headers["X-Request-ID"]
    assert "GET /api/v1/me 200" in await scene.logged("mine")
    assert "swordfish" not in await scene.logged(made)


@pytest.mark.skipif(
    NGINX is not None and stream_module() is None, reason="NOT TESTED: nginx has no stream module"
)
async def test_a_stock_ray_program_reaches_the_server_over_tls(tmp_path: Path) -> None:
    async with set_up(tmp_path, "--client-port", "0") as scene:
        pem = str(scene.front.certificate)
        tls = dict.fromkeys(("RAY_TLS_CA_CERT", "RAY_TLS_SERVER_CERT", "RAY_TLS_SERVER_KEY"), pem)
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            RAY_PROGRAM.format(port=scene.front.client_port, token=scene.token),
            env={**scene.world.environ, **tls, "RAY_USE_TLS": "1"},
            stderr=asyncio.subprocess.PIPE,
        )
        _, said = await process.communicate()
    assert "ConnectionAbortedError" in said.decode()
    assert "999 CPU" in said.decode()
