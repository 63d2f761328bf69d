"""`raymc serve` as a process: how it starts, stops, is killed, and reads its configuration again."""

import asyncio
import json
import os
import re
import signal
import socket
import ssl
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.contract.test_ray_api_tls import write_certificate
from tests.support.job_commands import lasts_until
from tests.support.raymc import COMMAND, environment, raymc, write_config
from tests.support.system import FAST, fake
from tests.support.terminal import CTRL_C, typing_into
from tests.support.waiting import eventually

from ray_multicluster_scheduler.background import BACKGROUND, ControlFiles
from ray_multicluster_scheduler.config import load_config
from ray_multicluster_scheduler.config.find import state_dir
from ray_multicluster_scheduler.config.store_place import StorePlace, store_place
from ray_multicluster_scheduler.model.job import Lease
from ray_multicluster_scheduler.server.serve import running_servers
from ray_multicluster_scheduler.store import open_at
from ray_multicluster_scheduler.testing import FakeRay, ShellRunner

HAMPERED = Path(__file__).with_name("hampered_server.py")


class Served:
    """A `raymc serve` in a process of its own, and a client of it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.lines: list[str] = []
        self.address = ""
        self.http: aiohttp.ClientSession

    async def until(self, words: str) -> str:
        """Read what the server says until a line holds these words."""
        assert self.process.stderr is not None
        while line := (await self.process.stderr.readline()).decode():
            self.lines.append(line.rstrip("\n"))
            if words in line:
                return line
        raise AssertionError("\n".join(self.lines))

    async def rest_of_it(self) -> str:
        assert self.process.stderr is not None
        return (await self.process.stderr.read()).decode()

    async def ask(self, method: str, path: str, *, refused: bool = False, **options: Any) -> Any:
        """Return the answer, which may be a refusal only if that is said."""
        async with self.http.request(method, f"{self.address}{path}", **options) as answer:
            body = await answer.json()
            assert answer.ok or refused, body
            return body

    async def readiness(self) -> tuple[int, dict[str, str]]:
        async with self.http.get(f"{self.address}/readyz") as answer:
            return answer.status, await answer.json()

    async def readiness_until(self, what: str, begins: str) -> tuple[int, dict[str, str]]:
        """Ask whether it is ready until the answer about one part begins so."""
        found: list[tuple[int, dict[str, str]]] = []

        async def is_so() -> bool:
            found[:] = [await self.readiness()]
            return found[0][1][what].startswith(begins)

        await eventually(is_so)
        return found[0]

    async def ended(self, *names: str) -> set[str]:
        """Wait until jobs have ended; return how."""
        body = {"submission_ids": names}
        async with self.http.post(f"{self.address}/api/v1/jobs/changes", json=body) as answer:
            await answer.read()
        found = await self.ask("POST", "/api/v1/jobs/get-many", json=body)
        return {job["state"] for job in found["jobs"].values()}


class World:
    """Fake clusters and a clusters.yaml of them."""

    def __init__(self, folder: Path, *rays: FakeRay) -> None:
        self.folder = folder
        self.rays = rays
        self.path = self.write()
        self.environ = environment(RAY_MULTICLUSTER_HOME=str(folder / "home"), RAY_MULTICLUSTER_USER="ann")

    def write(self, *names: str) -> Path:
        specs = [ray.spec() for ray in self.rays if not names or ray.name in names]
        return write_config(self.folder, specs, **FAST)

    def place(self) -> StorePlace:
        return store_place(load_config(self.path), self.environ)

    def control_files(self) -> ControlFiles:
        return ControlFiles(self.place().directory)

    def lease(self) -> Lease | None:
        with closing(open_at(self.place())) as store:
            return store.leases.current(now=time.time())

    def scheduler_pid(self) -> int:
        """Return the process that leads."""
        lease = self.lease()
        assert lease is not None
        return int(lease.holder.split(":")[1])

    def serving(self, *options: str | Path) -> AbstractAsyncContextManager[Served]:
        return self.started([*COMMAND, "serve", "--config", self.path, "--port", "0", *options])

    @asynccontextmanager
    async def started(self, command: Sequence[str | Path]) -> AsyncIterator[Served]:
        process = await asyncio.create_subprocess_exec(
            *command, env=self.environ, stderr=asyncio.subprocess.PIPE
        )
        served = Served(process)
        try:
            rest = await served.until("  REST ")
            served.address = rest.split()[1].removesuffix("/api/v1")
            await served.until("SIGTERM or Ctrl-C")
            async with aiohttp.ClientSession() as http:
                served.http = http
                yield served
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with fake("a") as a, fake("b") as b:
        yield World(tmp_path, a, b)


def is_gone(pid: int) -> bool:
    """Tell whether a process has ended, though nobody may have asked for its exit code yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in {"Z", "X"}
    except FileNotFoundError:
        return True


async def running(served: Served, name: str) -> None:
    async def runs() -> bool:
        state: str = (await served.ask("GET", f"/api/v1/jobs/{name}"))["state"]
        return state == "RUNNING"

    await eventually(runs)


async def test_sigterm_ends_it_at_once_and_jobs_go_on(world: World) -> None:
    async with world.serving() as served:
        await served.ask("POST", "/api/v1/jobs", json={"entrypoint": "sleep 5", "submission_id": "long"})
        await running(served, "long")
        changes = await served.http.post(
            f"{served.address}/api/v1/jobs/changes", json={"submission_ids": ["long"]}
        )
        await changes.content.readline()
        served.process.send_signal(signal.SIGTERM)
        assert b"error" not in await changes.content.read()
        assert await served.process.wait() == 0
        assert "jobs go on" in await served.rest_of_it()
    assert running_servers(state_dir(world.path, world.environ)) == []
    async with world.serving() as again:  # leads at once: the lease was given back
        assert (await again.ask("GET", "/api/v1/jobs/long"))["state"] != "FAILED"
        body = {"submission_ids": ["long"]}
        async with again.http.post(f"{again.address}/api/v1/jobs/changes", json=body) as answer:
            told = (await answer.text()).split("\n\n")
        assert '"SUCCEEDED"' in told[-2]
    assert sum(len(ray.runs) for ray in world.rays) == 1


async def test_it_says_where_its_doors_are_and_logs_each_request_without_secrets(world: World) -> None:
    async with world.serving() as served:
        spoken = "\n".join(served.lines)
        for words in (
            "/api/v1",
            "/docs",
            "/healthz",
            "/readyz",
            "authentication",
            f"process {served.process.pid}",
        ):
            assert words in spoken
        assert "0.0.0.0" not in spoken
        headers = {"X-Request-ID": "my-id", "Authorization": "Bearer swordfish"}
        await served.ask("GET", "/api/v1/jobs?text=swordfish", headers=headers)
        body = {
            "entrypoint": "echo",
            "metadata": {"key": "swordfish"},
            "runtime_env": {"env_vars": {"K": "swordfish"}},
        }
        await served.ask("POST", "/api/v1/jobs", json=body)
        logged = json.loads(await served.until('"/api/v1/jobs"'))
        assert logged["request_id"] == "my-id"
        assert {**logged, "at": 0, "ms": 0} == {
            "at": 0, "level": "info", "what": "request", "method": "GET", "route": "/api/v1/jobs",
            "status": 200, "ms": 0, "user": "ann", "request_id": "my-id",
        }  # fmt: skip
        served.process.send_signal(signal.SIGINT)
        rest = await served.rest_of_it()
        assert await served.process.wait() == 0
        assert "swordfish" not in "\n".join(served.lines) + rest
        for line in rest.splitlines():
            assert line.startswith(("{", "stop")), line


@pytest.mark.parametrize("options", [(), ("--access-log",)])
async def test_on_a_terminal_it_speaks_to_people(world: World, options: tuple[str, ...]) -> None:
    command = ("serve", "--port", "0", "--config", world.path, *options)
    async with (
        typing_into(*command, environ=world.environ, columns=200) as person,
        aiohttp.ClientSession() as http,
    ):
        await person.until("/readyz")
        address = re.search(r"http://127\.0\.0\.1:\d+", person.seen)
        assert address is not None
        async with http.get(f"{address[0]}/api/v1/jobs?text=swordfish") as answer:
            assert answer.status == 200
        person.type(CTRL_C)
        assert await person.end() == 0, person.seen
    assert '{"' not in person.seen
    assert "swordfish" not in person.seen
    assert ("request method=GET route=/api/v1/jobs status=200" in person.seen) == bool(options)


async def test_a_browser_that_asks_for_no_page_of_ours_gets_a_page(world: World) -> None:
    async with world.serving() as served:
        for accept, kind in (("text/html,*/*;q=0.8", "text/html"), ("application/json", "application/json")):
            headers = {"Accept": accept}
            async with served.http.get(f"{served.address}/nosuch", headers=headers) as answer:
                assert (answer.status, answer.content_type) == (404, kind)


async def test_a_second_signal_ends_it_whatever_is_under_way(world: World) -> None:
    async with world.serving() as served:
        host, port = served.address.removeprefix("http://").split(":")
        _, writer = await asyncio.open_connection(host, int(port))
        # A body that never comes: the server would wait for it, but not for ever.
        writer.write(b"POST /api/v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        await writer.drain()
        await served.ask("GET", "/healthz")
        served.process.send_signal(signal.SIGTERM)
        await served.until("stopping")
        served.process.send_signal(signal.SIGTERM)
        assert await served.process.wait() in {0, 143}
        writer.close()


async def test_a_killed_server_loses_nothing_and_whoever_repeats_makes_no_second_job(world: World) -> None:
    names = [f"job-{n}" for n in range(60)]
    async with world.serving() as served:
        accepted: set[str] = set()
        few = asyncio.Semaphore(10)  # at once: the others are still to come when the server is killed

        async def submit(server: Served, name: str) -> None:
            job = {"entrypoint": "sleep 0.05", "submission_id": name, "idempotency_key": name}
            async with few, server.http.post(f"{server.address}/api/v1/jobs", json=job) as answer:
                assert answer.status == 201, await answer.text()
                accepted.add((await answer.json())["submission_id"])
                if server is served and len(accepted) == len(names) // 3:
                    os.kill(server.process.pid, signal.SIGKILL)

        answers = await asyncio.gather(*(submit(served, name) for name in names), return_exceptions=True)
        assert await served.process.wait() == -signal.SIGKILL
        assert any(isinstance(each, aiohttp.ClientError) for each in answers), "it was killed too late"
        known = set(accepted)
    async with world.serving() as again:
        found = await again.ask("POST", "/api/v1/jobs/get-many", json={"submission_ids": names})
        assert known <= set(found["jobs"]), "an accepted job is lost"
        await asyncio.gather(*(submit(again, name) for name in names))
        body = {"submission_ids": names}
        async with again.http.post(f"{again.address}/api/v1/jobs/changes", json=body) as answer:
            await answer.read()
        page = await again.ask("GET", "/api/v1/jobs?limit=1000")
        assert sorted(job["submission_id"] for job in page["jobs"]) == sorted(names)
        assert {job["state"] for job in page["jobs"]} == {"SUCCEEDED"}
    assert sorted(run.submission_id for ray in world.rays for run in ray.runs) == sorted(names)


async def test_sighup_and_the_command_read_the_configuration_again(world: World) -> None:
    world.write("a")
    async with world.serving() as served:
        world.write("a", "b")
        done = await raymc("config", "reload", "--config", world.path, environ=world.environ)
        assert (done.code, f"process {served.process.pid} reads") == (
            0,
            done.out[: len(f"process {served.process.pid} reads")],
        )
        await served.until(
            "added: b"
        )  # its child may have begun with the new one, and say that nothing changed
        world.path.write_text("clusters: {a: {haed: 1}}")
        os.kill(served.process.pid, signal.SIGHUP)
        assert "haed" in await served.until("was not taken over")
        clusters = await served.ask("GET", "/api/v1/clusters")
        assert [each["name"] for each in clusters["clusters"]] == ["a", "b"]
        world.write("b")
        environ = {**world.environ, "RAY_MULTICLUSTER_ADDRESS": served.address}
        done = await raymc("config", "reload", environ=environ)
        assert done.out == f"{served.address}: removed: a\n"
    done = await raymc("config", "reload", "--config", world.path, environ=world.environ)
    assert done.code == 2
    assert "no `raymc serve`" in done.err


async def test_where_it_cannot_or_must_not_listen_it_says_why(world: World) -> None:
    serve = ("serve", "--config", world.path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = await raymc(*serve, "--port", str(taken.getsockname()[1]), environ=world.environ)
    assert done.code == 2
    assert "server there already" in done.err
    done = await raymc(*serve, "--host", "0.0.0.0", environ=world.environ)
    assert done.code == 2
    assert "raymc token create" in done.err
    done = await raymc(*serve, "--ssl-certfile", "/nonexistent", environ=world.environ)
    assert done.code == 2
    assert "/nonexistent" in done.err
    (world.path.parent / "no.pem").write_text("no certificate")
    done = await raymc(*serve, "--ssl-certfile", world.path.parent / "no.pem", environ=world.environ)
    assert done.code == 2
    assert done.err.startswith("error: --ssl-certfile ")
    assert done.err.count("\n") == 1


async def test_its_jobs_are_kept_where_it_is_told(world: World, tmp_path: Path) -> None:
    async with world.serving("--store", tmp_path / "elsewhere") as served:
        await served.ask("POST", "/api/v1/jobs", json={"entrypoint": "echo"})
    assert list((tmp_path / "elsewhere").glob("*.db")) or list((tmp_path / "elsewhere").glob("*.sqlite*"))


async def test_over_tls_it_is_reached_by_who_trusts_its_certificate(world: World, tmp_path: Path) -> None:
    write_certificate(tmp_path / "own.pem")
    pem = tmp_path / "own.pem"
    async with world.serving("--ssl-certfile", pem, "--ssl-keyfile", pem) as served:
        assert served.address.startswith("https://")
        trusting = ssl.create_default_context(cafile=str(pem))
        assert (await served.ask("GET", "/healthz", ssl=trusting)) == {"status": "ok"}
        with pytest.raises(aiohttp.ClientSSLError):
            await served.ask("GET", "/healthz")


async def test_a_killed_scheduler_is_started_again_and_the_doors_stay_open(world: World) -> None:
    async with world.serving() as served:
        await served.ask("POST", "/api/v1/jobs", json={"entrypoint": "sleep 2", "submission_id": "long"})
        await running(served, "long")
        assert await served.readiness() == (
            200,
            {"status": "ok", "store": "ok", "engine": "ok", "leader": "ok"},
        )
        killed = world.scheduler_pid()
        moved = world.path.rename(world.folder / "moved.yaml")  # until it is back, no scheduler can begin
        os.kill(killed, signal.SIGKILL)
        status, found = await served.readiness_until("engine", "it ended with code ")
        assert (status, found["status"], found["store"]) == (503, "not ready", "ok")
        assert re.search(r"code -?\d+, and is started again in \d+ s$", found["engine"])
        assert '"code": -9' in await served.until("has ended and is started again")
        assert str(world.path) in await served.until("clusters.yaml")
        await served.ask("POST", "/api/v1/jobs", json={"entrypoint": "echo", "submission_id": "late"})
        assert (await served.ask("GET", "/healthz")) == {"status": "ok"}
        moved.rename(world.path)
        assert await served.ended("long", "late") == {"SUCCEEDED"}
        assert (await served.readiness_until("engine", "ok"))[0] == 200
        assert world.scheduler_pid() != killed
        assert not any("Traceback" in line for line in served.lines)
    assert sorted(run.submission_id for ray in world.rays for run in ray.runs) == ["late", "long"]


async def test_a_server_whose_engine_breaks_says_so_and_starts_it_again(world: World, tmp_path: Path) -> None:
    (fault := tmp_path / "broken").touch()
    async with world.started([sys.executable, HAMPERED, world.path, tmp_path]) as served:
        await served.ask("POST", "/api/v1/jobs", json={"entrypoint": "echo", "submission_id": "job"})
        assert "RuntimeError: a bug at" in await served.until("the scheduler in this process has stopped")
        status, found = await served.readiness_until("engine", "it ended with code 1")
        assert (status, found["status"]) == (503, "not ready")
        fault.unlink()
        assert await served.ended("job") == {"SUCCEEDED"}
        await served.readiness_until("status", "ok")
    assert sum(len(ray.runs) for ray in world.rays) == 1


async def test_a_killed_server_leaves_no_scheduler_behind_and_the_next_one_ends_its_jobs(
    tmp_path: Path,
) -> None:
    command = lasts_until(tmp_path / "go")
    async with fake("a", runner=ShellRunner()) as ray, (world := World(tmp_path, ray)).serving() as served:
        for name in ("one", "two"):
            job = {"entrypoint": command, "submission_id": name}
            await served.ask("POST", "/api/v1/jobs", json=job)
            await running(served, name)
        child = world.scheduler_pid()
        served.process.kill()
        await served.process.wait()
        await eventually(lambda: is_gone(child))
        assert not world.control_files().is_running()
        assert world.lease() is None, "a scheduler that ends gives its lease back"
        assert [run.end for run in ray.runs] == [None, None], "jobs go on"
        (tmp_path / "go").touch()
        async with world.serving() as again:
            assert await again.ended("one", "two") == {"SUCCEEDED"}
        assert len(ray.runs) == 2


async def test_it_takes_over_from_a_scheduler_in_the_background(world: World) -> None:
    submit = ("submit", "--no-wait", "--submission-id", "long", "--config", world.path, "--", "sleep 5")
    done = await raymc(*submit, environ=world.environ)
    assert done.code == 0, done.err
    files = world.control_files()
    behind = files.record()
    assert behind is not None
    assert behind.kind == BACKGROUND
    async with world.serving() as served:
        await eventually(lambda: (found := files.record()) is not None and found.kind == "serve")
        await eventually(lambda: is_gone(behind.pid))
        assert (await served.readiness_until("status", "ok"))[0] == 200
        assert world.scheduler_pid() != behind.pid
        assert await served.ended("long") == {"SUCCEEDED"}
    assert sum(len(ray.runs) for ray in world.rays) == 1


async def test_a_blocked_door_holds_no_job_up(world: World, tmp_path: Path) -> None:
    fault = tmp_path / "blocked"
    async with world.started([sys.executable, HAMPERED, world.path, tmp_path]) as served:
        await served.readiness_until("status", "ok")
        former = world.lease()
        assert former is not None
        fault.touch()
        served.process.send_signal(signal.SIGUSR1)
        await served.until("burning")
        answer = asyncio.create_task(served.ask("GET", "/healthz"))
        for name in ("one", "two", "three"):  # one after the other: each is found and followed meanwhile
            submit = ("submit", "--submission-id", name, "--config", world.path, "--", "sleep 0.1")
            done = await raymc(*submit, environ=world.environ)
            assert done.code == 0, done.err
        assert not answer.done(), "the door was not blocked"
        lease = world.lease()
        assert lease is not None
        assert (lease.holder, lease.epoch) == (former.holder, former.epoch)
        fault.unlink()
        assert await answer == {"status": "ok"}
        assert await served.ended("one", "two", "three") == {"SUCCEEDED"}
    assert sum(len(ray.runs) for ray in world.rays) == 3


async def test_a_reload_while_its_scheduler_begins_does_no_harm(world: World) -> None:
    world.write("a")
    async with world.serving() as served:
        world.write("a", "b")
        for _ in range(5):
            await served.ask("POST", "/api/v1/config/reload")
        job = {"entrypoint": "echo", "submission_id": "job", "only_cluster": "b"}
        await served.ask("POST", "/api/v1/jobs", json=job)
        assert await served.ended("job") == {"SUCCEEDED"}
        served.process.send_signal(signal.SIGTERM)
        assert "is started again" not in await served.rest_of_it()
    assert len(world.rays[1].runs) == 1
