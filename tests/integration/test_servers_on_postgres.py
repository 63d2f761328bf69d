"""Servers on several machines: real `raymc serve` processes that share a PostgreSQL, and no directory."""

import signal
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
import pytest_asyncio
from tests.integration.test_nginx import next_event
from tests.integration.test_serve import Served, World
from tests.support.postgres import PostgresServer, a_postgres
from tests.support.processes import parent_of
from tests.support.raymc import raymc, write_config
from tests.support.system import FAST, fake
from tests.support.waiting import eventually

from ray_multicluster_scheduler.testing import FakeRay

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

PACKAGE = "/api/packages/gcs/_ray_pkg_0123456789abcdef.zip"
STREAM = "/api/v1/events/stream"
CUT = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
    "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
)
#: Longer than a busy machine keeps a scheduler from its work, and how long that of a killed one lasts.
LEASE_TTL_S = 10.0


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with a_postgres() as server:
        yield server


@dataclass(kw_only=True)
class Machine:
    """A server with a home of its own, and a client of it."""

    world: World
    served: Served
    token: str

    def asking(self, method: str, path: str, **options: Any) -> Any:
        headers = {"Authorization": f"Bearer {self.token}", **options.pop("headers", {})}
        return self.served.http.request(method, self.served.address + path, headers=headers, **options)

    async def ask(self, method: str, path: str, **options: Any) -> Any:
        async with self.asking(method, path, **options) as answer:
            assert answer.ok, await answer.text()
            return await answer.json()

    async def submit(self, name: str, entrypoint: str = "sleep 600", **more: Any) -> None:
        body = {"entrypoint": entrypoint, "submission_id": name, **more}
        await self.ask("POST", "/api/v1/jobs", json=body)

    async def until(self, name: str, state: str) -> None:
        async def is_there() -> bool:
            return bool((await self.ask("GET", f"/api/v1/jobs/{name}"))["state"] == state)

        await eventually(is_there)

    async def leads(self) -> bool:
        """Tell whether the child of this server schedules."""
        leader = await self.ask("GET", "/api/v1/leader")
        return (
            leader is not None and parent_of(int(leader["holder"].split(":")[1])) == self.served.process.pid
        )


@dataclass(kw_only=True)
class Team:
    """Machines on one store. Each has a home, a clusters.yaml and a password file of its own."""

    store: str
    folder: Path
    ray: FakeRay
    stack: AsyncExitStack
    token: str = ""

    def world(self, name: str, *, lease_ttl_s: float = LEASE_TTL_S) -> World:
        folder = self.folder / name
        folder.mkdir()
        (folder / "password").write_text("not asked for\n")
        (folder / "password").chmod(0o444)
        world = World(folder, self.ray)
        write_config(folder, [self.ray.spec()], **{**FAST, "lease_ttl_s": lease_ttl_s})
        world.environ |= {
            "RAY_MULTICLUSTER_STORE": self.store,
            "RAY_MULTICLUSTER_STORE_PASSWORD_FILE": str(folder / "password"),
        }
        return world

    async def start(self, world: World) -> Machine:
        if not self.token:
            self.token = await made_token(world, "ann", "admin")
        served = await self.stack.enter_async_context(world.serving())
        return Machine(world=world, served=served, token=self.token)


async def made_token(world: World, user: str, role: str) -> str:
    words = ("token", "create", "--config", world.path, "--user", user, "--role", role)
    made = await raymc(*words, environ=world.environ)
    assert made.code == 0, made.err
    return made.out.strip()


@asynccontextmanager
async def a_team(postgres: PostgresServer, folder: Path) -> AsyncIterator[Team]:
    async with AsyncExitStack() as stack:
        ray = await stack.enter_async_context(fake("a"))
        yield Team(store=postgres.url(f"t{uuid.uuid4().hex[:12]}"), folder=folder, ray=ray, stack=stack)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pair(
    postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[Machine, Machine]]:
    """Return two servers: the one that leads, and the one that waits."""
    async with a_team(postgres, tmp_path_factory.mktemp("team")) as team:
        one = await team.start(team.world("one"))
        await eventually(one.leads)
        other = await team.start(team.world("other"))
        yield one, other


async def test_what_one_server_accepts_the_other_one_knows(pair: tuple[Machine, Machine]) -> None:
    one, other = pair
    for here, there in ((one, other), (other, one)):
        name = f"job-at-{here.world.folder.name}"
        await here.submit(name)
        page = await there.ask("GET", "/api/v1/jobs")
        assert name in [job["submission_id"] for job in page["jobs"]]
        await there.until(name, "RUNNING")
        await there.ask("POST", "/api/v1/jobs/stop", json={"submission_ids": [name]})
        await here.until(name, "STOPPED")

    actions = [
        (entry["action"], entry["target"]) for entry in (await one.ask("GET", "/api/v1/audit"))["entries"]
    ]
    for machine in (one, other):
        name = f"job-at-{machine.world.folder.name}"
        assert {action for action, target in actions if target == name} == {"submit", "stop"}
    assert await other.ask("GET", "/api/v1/audit") == await one.ask("GET", "/api/v1/audit")


async def test_a_package_and_its_job_need_not_go_to_the_same_server(pair: tuple[Machine, Machine]) -> None:
    one, other = pair
    async with one.asking("GET", PACKAGE) as answer:
        assert answer.status == 404
    async with other.asking("PUT", PACKAGE, data=b"some code") as answer:
        assert answer.status == 200, await answer.text()
    async with one.asking("GET", PACKAGE) as answer:
        assert answer.status == 200
    await other.submit(
        "packed", "echo", runtime_env={"working_dir": "gcs://" + PACKAGE.rsplit("/", maxsplit=1)[-1]}
    )
    await one.until("packed", "SUCCEEDED")
    (ray,) = one.world.rays
    assert b"some code" in ray.cluster.packages.values()  # beside our own package
    homes = [machine.world.environ["RAY_MULTICLUSTER_HOME"] for machine in (one, other)]
    assert homes[0] != homes[1]


async def test_a_token_is_good_at_both_until_it_is_revoked_at_one(pair: tuple[Machine, Machine]) -> None:
    one, other = pair
    bob = {"Authorization": f"Bearer {await made_token(other.world, 'bob', 'read')}"}
    for machine in (one, other):
        assert (await machine.ask("GET", "/api/v1/me", headers=bob))["user"] == "bob"
    tokens = (await one.ask("GET", "/api/v1/tokens"))["tokens"]
    (token_id,) = [token["id"] for token in tokens if token["user"] == "bob"]
    await one.ask("DELETE", f"/api/v1/tokens/{token_id}")
    for machine in (one, other):  # each server remembers a token for a moment

        async def is_refused(at: Machine = machine) -> bool:
            async with at.asking("GET", "/api/v1/me", headers=bob) as answer:
                return bool(answer.status == 401)

        await eventually(is_refused)


async def test_a_stream_begins_at_one_server_and_goes_on_at_the_other(pair: tuple[Machine, Machine]) -> None:
    one, other = pair
    async with other.asking("GET", STREAM) as stream:
        await one.submit("followed", "echo")
        seen = [await next_event(stream)]
    while seen[-1]["new"] != "SUCCEEDED":
        here = (one, other)[len(seen) % 2]
        known = {"Last-Event-ID": str(seen[-1]["id"])}
        async with here.asking("GET", STREAM, headers=known) as stream:
            seen.append(await next_event(stream))
    told = (await one.ask("GET", "/api/v1/events", params={"after": seen[0]["id"] - 1}))["events"]
    assert [event["id"] for event in seen] == [event["id"] for event in told]
    assert {event["submission_id"] for event in seen} == {"followed"}


def tell(postgres: PostgresServer, *statements: str) -> None:
    with psycopg.connect(postgres.url().partition("?")[0], autocommit=True) as administrator:
        for statement in statements:
            administrator.execute(statement)


async def test_a_failover_ends_nobody(pair: tuple[Machine, Machine], postgres: PostgresServer) -> None:
    """The database is a standby for longer than a lease lasts, and all connections are cut."""
    tell(postgres, "ALTER ROLE raymc SET default_transaction_read_only = on", CUT)
    job = {"entrypoint": "echo", "submission_id": "during"}
    try:
        for machine in pair:
            async with machine.asking("POST", "/api/v1/jobs", json=job) as answer:
                assert answer.status == 503, await answer.text()
            assert await machine.ask("GET", "/healthz") == {"status": "ok"}

        async def nobody_leads() -> bool:
            return bool((await asked(pair[0], "/readyz"))["leader"] != "ok")

        await eventually(nobody_leads)
    finally:
        reset = "ALTER ROLE raymc RESET default_transaction_read_only"
        tell(postgres, "SET default_transaction_read_only = off", reset, CUT)

    async def is_ready() -> bool:
        answers = [await asked(machine, "/readyz") for machine in pair]
        return all(each["status"] == "ok" for each in answers)

    await eventually(is_ready)
    assert [await machine.leads() for machine in pair].count(True) == 1
    await pair[0].submit("afterwards", "echo")
    await pair[1].until("afterwards", "SUCCEEDED")


async def asked(machine: Machine, path: str) -> dict[str, Any]:
    async with machine.asking("GET", path) as answer:
        found: dict[str, Any] = await answer.json()
        return found


async def test_exactly_one_leads_and_the_other_one_when_it_is_gone(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    """A stopped leader gives its lease back, however long that is. The lease of a killed one runs out."""
    async with a_team(postgres, tmp_path) as team:
        long = team.world("long", lease_ttl_s=600.0)
        first = await team.start(long)
        await eventually(first.leads)
        second = await team.start(team.world("short"))
        assert [await first.leads(), await second.leads()] == [True, False]
        await first.submit("before")
        await second.until("before", "RUNNING")

        first.served.process.send_signal(signal.SIGTERM)
        assert await first.served.process.wait() == 0
        await eventually(second.leads)
        third = await team.start(long)
        assert [await second.leads(), await third.leads()] == [True, False]

        async with third.asking("GET", STREAM) as stream:
            second.served.process.kill()
            await second.served.process.wait()
            await third.submit("meanwhile", "echo")  # any server accepts, whoever leads
            assert (await next_event(stream))["submission_id"] == "meanwhile"
        await eventually(third.leads)
        await third.until("meanwhile", "SUCCEEDED")
        assert (await third.ask("GET", "/api/v1/leader"))["epoch"] == 3
        assert (await third.ask("GET", "/api/v1/jobs/before"))["state"] == "RUNNING"
        assert len(team.ray.runs) == 2, "a job was started twice"
