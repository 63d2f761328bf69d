"""Each way a cluster fails, and the one error that says so; only `ClusterUnreachable` is "not executed"."""

import asyncio
import gzip
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from tests.support.builders import a_cluster
from tests.support.waiting import PATIENCE_S

from ray_multicluster_scheduler.errors import (
    ClusterAuthFailed,
    ClusterBadAnswer,
    ClusterRefused,
    ClusterTimeout,
    ClusterUnreachable,
    RemoteJobExists,
    RemoteJobNotFound,
)
from ray_multicluster_scheduler.executors.ray_jobs import RayJobsExecutor
from ray_multicluster_scheduler.model.execution import AttemptStatus, StartRequest
from ray_multicluster_scheduler.model.job import INCOMPLETE, missing_bytes, without_note
from ray_multicluster_scheduler.ray_api import HttpConnection, http_client, open_connection
from ray_multicluster_scheduler.testing import FakeRay, ScriptedRunner

JOB = StartRequest(remote_id="job-1", entrypoint="echo hello")
LONG_JOB = StartRequest(remote_id="long-1", entrypoint="sleep 3600")
SHORT_S = 1.0


@pytest.fixture
async def fake() -> AsyncIterator[FakeRay]:
    async with FakeRay(name="a", runner=ScriptedRunner()) as fake:
        yield fake


@pytest.fixture
async def connection(fake: FakeRay) -> AsyncIterator[HttpConnection]:
    async with HttpConnection(fake.spec(), request_timeout_s=PATIENCE_S) as connection:
        yield connection


def impatient(fake: FakeRay) -> HttpConnection:
    return HttpConnection(fake.spec(), request_timeout_s=SHORT_S)


async def to_the_end(connection: HttpConnection, submission_id: str) -> str:
    return "".join([piece async for piece in RayJobsExecutor(connection).follow_log(submission_id)])


async def test_a_dark_cluster_refuses_connections_and_its_jobs_go_on(
    fake: FakeRay, connection: HttpConnection
) -> None:
    await RayJobsExecutor(connection).start(LONG_JOB)
    await fake.go_dark()

    with pytest.raises(ClusterUnreachable, match="connection refused") as error:
        await RayJobsExecutor(connection).get(LONG_JOB.remote_id)
    assert error.value.refused
    assert error.value.cluster == "a"

    await fake.come_back()
    assert (await RayJobsExecutor(connection).get(LONG_JOB.remote_id)).status is AttemptStatus.RUNNING


async def test_a_connection_that_is_never_made_executes_nothing() -> None:
    with socket.socket() as full, socket.socket() as last:
        full.bind(("127.0.0.1", 0))
        full.listen(0)  # room for one that nobody accepts: the kernel ignores all others
        last.connect(full.getsockname())
        address = f"http://127.0.0.1:{full.getsockname()[1]}"
        async with HttpConnection(a_cluster(dashboard=address), request_timeout_s=SHORT_S) as connection:
            with pytest.raises(ClusterUnreachable, match=r"no connection .* in time") as error:
                await RayJobsExecutor(connection).start(JOB)
    assert not error.value.refused


async def test_a_call_that_timed_out_may_be_executed_later(fake: FakeRay, connection: HttpConnection) -> None:
    fake.hang()
    async with impatient(fake) as waiting:
        with pytest.raises(ClusterTimeout):
            await RayJobsExecutor(waiting).start(JOB)
    assert fake.runs == []

    fake.resume()
    await to_the_end(connection, JOB.remote_id)
    assert [run.submission_id for run in fake.runs] == [JOB.remote_id]


async def test_the_deadline_holds_for_a_body_that_drips(fake: FakeRay) -> None:
    fake.drip(SHORT_S / 4)  # each byte is in time, the whole is not
    async with impatient(fake) as connection:
        with pytest.raises(ClusterTimeout):
            await connection.probe.version()


async def test_a_slow_cluster_answers_a_patient_caller(fake: FakeRay, connection: HttpConnection) -> None:
    fake.slow(SHORT_S * 2)
    async with impatient(fake) as waiting:
        with pytest.raises(ClusterTimeout):
            await RayJobsExecutor(waiting).inventory()
    assert (await RayJobsExecutor(connection).inventory()).sightings == ()


async def test_a_lost_reply_leaves_the_job_running_once(fake: FakeRay, connection: HttpConnection) -> None:
    fake.lose_reply(only="/api/jobs/")

    with pytest.raises(ClusterBadAnswer):
        await RayJobsExecutor(connection).start(JOB)
    with pytest.raises(RemoteJobExists):
        await RayJobsExecutor(connection).start(JOB)

    await to_the_end(connection, JOB.remote_id)
    assert len(fake.runs) == 1


async def test_a_package_whose_reply_is_lost_arrives_whole_or_fails(
    fake: FakeRay, connection: HttpConnection, tmp_path: Path
) -> None:
    (tmp_path / "p.zip").write_bytes(b"content" * 100_000)
    for times in (1, 2):
        fake.lose_reply(times, only="/api/packages/")
        with suppress(ClusterBadAnswer):
            await connection.packages.put_package("p.zip", tmp_path / "p.zip")
        assert fake.cluster.packages["gcs://p.zip"] == b"content" * 100_000


@pytest.mark.parametrize("kind", ["html", "cut"])
async def test_garbage_is_never_taken_for_success(
    fake: FakeRay, connection: HttpConnection, kind: Any
) -> None:
    fake.garbage(5, kind=kind)
    for call in (
        connection.probe.version,
        connection.probe.nodes,
        connection.probe.usage,
        RayJobsExecutor(connection).inventory,
    ):
        with pytest.raises(ClusterBadAnswer, match="not what Ray sends"):
            await call()
    with pytest.raises(ClusterBadAnswer):
        await RayJobsExecutor(connection).start(JOB)


@pytest.mark.parametrize("status", [400, 404, 429, 500, 502, 503])
async def test_an_error_status_is_a_refusal_and_not_a_missing_job(
    fake: FakeRay, connection: HttpConnection, status: int
) -> None:
    fake.fail(status, times=1, only="/api/jobs/")

    with pytest.raises(ClusterRefused) as error:
        await RayJobsExecutor(connection).get(JOB.remote_id)
    assert type(error.value) is ClusterRefused
    assert error.value.status == status

    with pytest.raises(RemoteJobNotFound):
        await RayJobsExecutor(connection).get(JOB.remote_id)


async def test_a_restart_is_a_new_session_without_memory(fake: FakeRay, connection: HttpConnection) -> None:
    before = await connection.probe.version()
    await RayJobsExecutor(connection).start(LONG_JOB)

    await fake.restart()

    after = await connection.probe.version()
    assert after.session_name != before.session_name
    with pytest.raises(RemoteJobNotFound):
        await RayJobsExecutor(connection).get(LONG_JOB.remote_id)
    await RayJobsExecutor(connection).start(LONG_JOB)  # the same id is accepted again
    assert [job.remote_id for job in (await RayJobsExecutor(connection).inventory()).sightings] == [
        LONG_JOB.remote_id
    ]


async def test_a_dead_raylet_leaves_a_job_that_says_running(
    fake: FakeRay, connection: HttpConnection
) -> None:
    await RayJobsExecutor(connection).start(LONG_JOB)
    assert (await RayJobsExecutor(connection).get(LONG_JOB.remote_id)).status is AttemptStatus.RUNNING
    fake.kill_raylet()

    job = await RayJobsExecutor(connection).get(LONG_JOB.remote_id)
    (node,) = await connection.probe.nodes()
    assert (job.status, node.alive) == (AttemptStatus.RUNNING, False)
    assert job.node_id == node.node_id
    assert (await connection.probe.usage()).total is None
    for call in (
        RayJobsExecutor(connection).stop,
        RayJobsExecutor(connection).log,
        RayJobsExecutor(connection).delete,
    ):
        with pytest.raises(ClusterRefused) as error:
            await call(LONG_JOB.remote_id)
        assert error.value.status == 500
    with pytest.raises(ClusterRefused, match="No available agent"):
        await RayJobsExecutor(connection).start(JOB)


async def test_a_ray_without_a_version_is_a_refusal(fake: FakeRay, connection: HttpConnection) -> None:
    fake.api_version = None
    with pytest.raises(ClusterRefused) as error:
        await connection.probe.version()
    assert error.value.status == 404

    fake.api_version = "0"
    assert (await connection.probe.version()).api_version == "0"


async def test_autoscaler_v2_tells_the_same_usage_as_text(fake: FakeRay, connection: HttpConnection) -> None:
    fake.use({"CPU": 3, "memory": 2**30})
    await RayJobsExecutor(connection).start(
        StartRequest(remote_id="w", entrypoint="echo", entrypoint_num_cpus=2)
    )
    as_json = await connection.probe.usage()

    fake.autoscaler_v2 = True

    assert await connection.probe.usage() == as_json
    assert as_json.used is not None
    assert (as_json.used["CPU"], as_json.pending) == (3.0, (({"CPU": 2.0}, 1),))


async def test_only_the_right_token_is_let_in(fake: FakeRay) -> None:
    fake.token = "the-right-secret"
    spec = fake.spec()
    variable = spec.auth_token_env
    assert variable is not None

    async with open_connection(spec, fake.environ) as right:
        assert (await right.probe.version()).ray_version == fake.ray_version
    async with open_connection(spec, {}) as missing:
        with pytest.raises(ClusterAuthFailed, match=f"{variable} is not set"):
            await missing.probe.version()
    async with open_connection(spec, {variable: "a-wrong-secret"}) as wrong:
        with pytest.raises(ClusterAuthFailed, match=f"does not accept the token in .* {variable}") as error:
            await wrong.probe.version()
        with pytest.raises(ClusterAuthFailed):
            await to_the_end(wrong, "any")
    assert "a-wrong-secret" not in f"{error.value!r} {wrong!r}"
    async with HttpConnection(fake.spec(auth_token_env=None)) as unaware:
        with pytest.raises(ClusterAuthFailed, match="auth_token_env"):
            await unaware.probe.version()


async def test_a_token_that_http_cannot_carry_is_a_clear_problem(fake: FakeRay) -> None:
    fake.token = "two\nlines"
    async with open_connection(fake.spec(), fake.environ) as connection:
        with pytest.raises(ClusterAuthFailed, match="line break"):
            await connection.probe.version()


async def test_certificates_that_cannot_be_read_are_a_clear_problem(fake: FakeRay) -> None:
    async with HttpConnection(fake.spec(tls_ca="/no/such/file.pem")) as connection:
        with pytest.raises(ClusterUnreachable, match=r"tls_ca.*/no/such/file\.pem"):
            await connection.probe.version()


async def test_a_tls_client_meets_a_plain_server_without_a_crash(fake: FakeRay) -> None:
    async with HttpConnection(fake.spec(dashboard=fake.url.replace("http:", "https:"))) as connection:
        with pytest.raises(ClusterUnreachable, match="write http:// instead of https://"):
            await connection.probe.version()


async def test_a_port_that_speaks_grpc_is_called_so() -> None:
    async def settings_frame(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(bytes.fromhex("000000040000000000"))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(settings_frame, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    async with server, HttpConnection(a_cluster(dashboard=f"http://{host}:{port}")) as connection:
        with pytest.raises(ClusterBadAnswer, match="looks like the port of Ray Client"):
            await connection.probe.version()


@pytest.mark.parametrize("variable", ["RAY_ADDRESS", "RAY_API_SERVER_ADDRESS"])
async def test_a_cluster_is_asked_at_its_own_address_whatever_ray_would_read_in_the_environment(
    fake: FakeRay, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "http://127.0.0.1:1")
    async with HttpConnection(fake.spec()) as connection:
        await connection.probe.version()
    assert fake.calls["GET /api/version"] == 1


async def test_redirects_and_proxies_of_the_environment_are_not_followed(
    fake: FakeRay, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def elsewhere(_: web.Request) -> web.Response:
        raise web.HTTPFound(f"{fake.url}/api/version")

    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    app = web.Application()
    app.router.add_get("/api/version", elsewhere)
    async with TestServer(app, host="127.0.0.1") as server:
        connection = HttpConnection(a_cluster(dashboard=str(server.make_url(""))))
        with pytest.raises(ClusterBadAnswer, match="redirects"):
            await connection.probe.version()
        await connection.close()
    assert fake.calls["GET /api/version"] == 0


async def test_of_a_long_log_the_end_is_read_and_it_says_what_is_missing(
    fake: FakeRay, connection: HttpConnection
) -> None:
    await RayJobsExecutor(connection).start(
        StartRequest(remote_id="loud", entrypoint=f"echo {'ü' * 500}the-end")
    )
    whole = (await to_the_end(connection, "loud")).encode()
    for keep in range(20, 30):  # also in the middle of a character
        shown = await RayJobsExecutor(connection).log("loud", last_bytes=keep)
        end = without_note(shown).encode()
        assert whole.endswith(end)
        assert end.endswith(b"the-end\n")
        assert missing_bytes(shown) == len(whole) - len(end) >= len(whole) - keep


async def serving(handler: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> TestServer:
    """A cluster that answers everything in the same way."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    return TestServer(app, host="127.0.0.1")


async def test_a_log_that_stops_coming_is_kept_as_far_as_it_came() -> None:
    async def stuck(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b'{"logs": "one\\ntw')
        await asyncio.sleep(60)
        return response

    async with await serving(stuck) as server:
        spec = a_cluster(dashboard=str(server.make_url("")))
        async with HttpConnection(spec, request_timeout_s=0.3) as connection:
            assert await RayJobsExecutor(connection).log("j") == f"one\ntw{INCOMPLETE}"


async def test_an_answer_that_was_packed_unasked_is_not_unpacked() -> None:
    bomb = gzip.compress(b"[" + b"0," * 2**20 + b"0]")

    async def packed(request: web.Request) -> web.StreamResponse:
        assert request.headers["Accept-Encoding"] == "identity"
        return web.Response(body=bomb, headers={"Content-Encoding": "gzip"})

    async with (
        await serving(packed) as server,
        HttpConnection(a_cluster(dashboard=str(server.make_url("")))) as connection,
    ):
        for call in (
            connection.probe.version,
            RayJobsExecutor(connection).inventory,
            lambda: RayJobsExecutor(connection).log("j"),
        ):
            with pytest.raises(ClusterBadAnswer, match="compressed"):
                await call()


async def test_a_tail_follows_no_redirect(fake: FakeRay) -> None:
    async def elsewhere(request: web.Request) -> web.StreamResponse:
        raise web.HTTPTemporaryRedirect(fake.url + str(request.rel_url))

    async with (
        await serving(elsewhere) as server,
        HttpConnection(a_cluster(dashboard=str(server.make_url("")))) as connection,
    ):
        with pytest.raises(ClusterBadAnswer, match="redirects"):
            async for _ in RayJobsExecutor(connection).follow_log("j"):
                pass
    assert not fake.calls


async def test_an_upload_has_its_own_deadline(fake: FakeRay, tmp_path: Path) -> None:
    content = tmp_path / "package.zip"
    content.write_bytes(b"x")
    fake.hang()
    connection = open_connection(fake.spec(), {}, request_timeout_s=60, upload_timeout_s=0.2)
    with pytest.raises(ClusterTimeout):
        await connection.packages.put_package("package.zip", content)
    await connection.close()


async def test_an_endless_answer_is_not_read_to_its_end(
    fake: FakeRay, connection: HttpConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20):
        await RayJobsExecutor(connection).start(StartRequest(remote_id=f"j{number}", entrypoint="echo"))
    monkeypatch.setattr(http_client, "MAX_LIST_BYTES", 2000)
    with pytest.raises(ClusterBadAnswer, match="longer than"):
        await RayJobsExecutor(connection).inventory()
    monkeypatch.setattr(http_client, "MAX_ANSWER_BYTES", 200)
    with pytest.raises(ClusterBadAnswer, match="longer than"):
        await connection.probe.nodes()
    monkeypatch.setattr(http_client, "MAX_ANSWER_BYTES", 2000)
    assert (await RayJobsExecutor(connection).get("j1")).remote_id == "j1"


async def test_a_tail_that_breaks_off_is_an_error_not_the_end(
    fake: FakeRay, connection: HttpConnection
) -> None:
    await RayJobsExecutor(connection).start(LONG_JOB)
    tail = RayJobsExecutor(connection).follow_log(LONG_JOB.remote_id)
    await anext(tail)
    await fake.go_dark()
    with pytest.raises(ClusterBadAnswer):
        await anext(tail)


async def test_one_hanging_cluster_does_not_delay_another(
    fake: FakeRay, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A busy machine may stand still for longer than connecting may take.
    monkeypatch.setattr(http_client, "CONNECT_TIMEOUT_S", PATIENCE_S)
    connection = HttpConnection(fake.spec(), request_timeout_s=2 * PATIENCE_S)
    fake.hang()
    stuck = [asyncio.create_task(RayJobsExecutor(connection).inventory()) for _ in range(150)]
    async with FakeRay(name="b") as other, HttpConnection(other.spec()) as other_connection:
        assert (await RayJobsExecutor(other_connection).inventory()).sightings == ()
    assert [task.exception() for task in stuck if task.done()] == []
    fake.resume()
    assert [inventory.sightings for inventory in await asyncio.gather(*stuck)] == [()] * 150
    await connection.close()


async def test_a_refused_submit_shows_no_secret_and_no_traceback(
    fake: FakeRay, connection: HttpConnection
) -> None:
    secret = "hunter2-and-more"
    request = StartRequest(
        remote_id=f"a/{secret}", entrypoint="echo", runtime_env={"env_vars": {"PASSWORD": secret}}
    )
    with pytest.raises(ClusterRefused) as error:
        await RayJobsExecutor(connection).start(request)
    shown = f"{error.value} {error.value!r} {error.value.body}"
    assert secret not in shown
    assert "Traceback" not in shown
    assert "File" not in shown


async def test_a_closed_client_makes_no_calls(fake: FakeRay) -> None:
    connection = HttpConnection(fake.spec())
    await connection.probe.version()
    await connection.close()
    with pytest.raises(ClusterUnreachable, match="closed, and nothing was sent"):
        await connection.probe.version()


async def test_an_upload_that_is_cancelled_leaves_no_file_open(
    fake: FakeRay, connection: HttpConnection, tmp_path: Path
) -> None:
    content = tmp_path / "package.zip"
    content.write_bytes(b"x")
    fake.hang()
    for turns in range(20):  # of the loop: a cancellation may come at any of them
        upload = asyncio.create_task(connection.packages.put_package("package.zip", content))
        for _ in range(turns):
            await asyncio.sleep(0)
        upload.cancel()
        with suppress(asyncio.CancelledError):
            await upload
    assert content not in _open_files()


def _open_files() -> set[Path]:
    return {file.resolve() for file in Path("/proc/self/fd").iterdir()}
