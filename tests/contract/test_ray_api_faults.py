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
from tests.builders import a_cluster

from ray_multicluster_scheduler.errors import (
    ClusterAuthFailed,
    ClusterBadAnswer,
    ClusterRefused,
    ClusterTimeout,
    ClusterUnreachable,
    RemoteJobExists,
    RemoteJobNotFound,
)
from ray_multicluster_scheduler.model.kept_log import INCOMPLETE, missing_bytes, without_note
from ray_multicluster_scheduler.model.remote import RemoteStatus, RemoteSubmit
from ray_multicluster_scheduler.ray_api import HttpRayApi, client, open_ray_api
from ray_multicluster_scheduler.testing import FakeRay, ScriptedRunner

JOB = RemoteSubmit(submission_id="job-1", entrypoint="echo hello")
LONG_JOB = RemoteSubmit(submission_id="long-1", entrypoint="sleep 3600")
SHORT_S = 0.2


@pytest.fixture
async def fake() -> AsyncIterator[FakeRay]:
    async with FakeRay(name="a", runner=ScriptedRunner()) as fake:
        yield fake


@pytest.fixture
async def api(fake: FakeRay) -> AsyncIterator[HttpRayApi]:
    async with HttpRayApi(fake.spec()) as api:
        yield api


def impatient(fake: FakeRay) -> HttpRayApi:
    return HttpRayApi(fake.spec(), request_timeout_s=SHORT_S)


async def to_the_end(api: HttpRayApi, submission_id: str) -> str:
    return "".join([piece async for piece in api.tail_job_logs(submission_id)])


async def test_a_dark_cluster_refuses_connections_and_its_jobs_go_on(fake: FakeRay, api: HttpRayApi) -> None:
    await api.submit_job(LONG_JOB)
    await fake.go_dark()

    with pytest.raises(ClusterUnreachable, match="connection refused") as error:
        await api.get_job(LONG_JOB.submission_id)
    assert error.value.refused
    assert error.value.cluster == "a"

    await fake.come_back()
    assert (await api.get_job(LONG_JOB.submission_id)).status is RemoteStatus.RUNNING


async def test_a_connection_that_is_never_made_executes_nothing() -> None:
    with socket.socket() as full, socket.socket() as last:
        full.bind(("127.0.0.1", 0))
        full.listen(0)  # room for one that nobody accepts: the kernel ignores all others
        last.connect(full.getsockname())
        address = f"http://127.0.0.1:{full.getsockname()[1]}"
        async with HttpRayApi(a_cluster(dashboard=address), request_timeout_s=SHORT_S) as api:
            with pytest.raises(ClusterUnreachable, match=r"no connection .* in time") as error:
                await api.submit_job(JOB)
    assert not error.value.refused


async def test_a_call_that_timed_out_may_be_executed_later(fake: FakeRay, api: HttpRayApi) -> None:
    fake.hang()
    async with impatient(fake) as waiting:
        with pytest.raises(ClusterTimeout):
            await waiting.submit_job(JOB)
    assert fake.runs == []

    fake.resume()
    await to_the_end(api, JOB.submission_id)
    assert [run.submission_id for run in fake.runs] == [JOB.submission_id]


async def test_the_deadline_holds_for_a_body_that_drips(fake: FakeRay) -> None:
    fake.drip(SHORT_S / 4)  # each byte is in time, the whole is not
    async with impatient(fake) as api:
        with pytest.raises(ClusterTimeout):
            await api.version()


async def test_a_slow_cluster_answers_a_patient_caller(fake: FakeRay, api: HttpRayApi) -> None:
    fake.slow(SHORT_S * 2)
    async with impatient(fake) as waiting:
        with pytest.raises(ClusterTimeout):
            await waiting.list_jobs()
    assert (await api.list_jobs()).jobs == ()


async def test_a_lost_reply_leaves_the_job_running_once(fake: FakeRay, api: HttpRayApi) -> None:
    fake.lose_reply(only="/api/jobs/")

    with pytest.raises(ClusterBadAnswer):
        await api.submit_job(JOB)
    with pytest.raises(RemoteJobExists):
        await api.submit_job(JOB)

    await to_the_end(api, JOB.submission_id)
    assert len(fake.runs) == 1


async def test_a_package_whose_reply_is_lost_arrives_whole_or_fails(
    fake: FakeRay, api: HttpRayApi, tmp_path: Path
) -> None:
    (tmp_path / "p.zip").write_bytes(b"content" * 100_000)
    for times in (1, 2):
        fake.lose_reply(times, only="/api/packages/")
        with suppress(ClusterBadAnswer):
            await api.put_package("p.zip", tmp_path / "p.zip")
        assert fake.cluster.packages["gcs://p.zip"] == b"content" * 100_000


@pytest.mark.parametrize("kind", ["html", "cut"])
async def test_garbage_is_never_taken_for_success(fake: FakeRay, api: HttpRayApi, kind: Any) -> None:
    fake.garbage(5, kind=kind)
    for call in (api.version, api.nodes, api.usage, api.list_jobs):
        with pytest.raises(ClusterBadAnswer, match="not what Ray sends"):
            await call()
    with pytest.raises(ClusterBadAnswer):
        await api.submit_job(JOB)


@pytest.mark.parametrize("status", [400, 404, 429, 500, 502, 503])
async def test_an_error_status_is_a_refusal_and_not_a_missing_job(
    fake: FakeRay, api: HttpRayApi, status: int
) -> None:
    fake.fail(status, times=1, only="/api/jobs/")

    with pytest.raises(ClusterRefused) as error:
        await api.get_job(JOB.submission_id)
    assert type(error.value) is ClusterRefused
    assert error.value.status == status

    with pytest.raises(RemoteJobNotFound):
        await api.get_job(JOB.submission_id)


async def test_a_restart_is_a_new_session_without_memory(fake: FakeRay, api: HttpRayApi) -> None:
    before = await api.version()
    await api.submit_job(LONG_JOB)

    await fake.restart()

    after = await api.version()
    assert after.session_name != before.session_name
    with pytest.raises(RemoteJobNotFound):
        await api.get_job(LONG_JOB.submission_id)
    await api.submit_job(LONG_JOB)  # the same id is accepted again
    assert [job.submission_id for job in (await api.list_jobs()).jobs] == [LONG_JOB.submission_id]


async def test_a_dead_raylet_leaves_a_job_that_says_running(fake: FakeRay, api: HttpRayApi) -> None:
    await api.submit_job(LONG_JOB)
    assert (await api.get_job(LONG_JOB.submission_id)).status is RemoteStatus.RUNNING
    fake.kill_raylet()

    job = await api.get_job(LONG_JOB.submission_id)
    (node,) = await api.nodes()
    assert (job.status, node.alive) == (RemoteStatus.RUNNING, False)
    assert job.driver_node_id == node.node_id
    assert (await api.usage()).total is None
    for call in (api.stop_job, api.job_logs, api.delete_job):
        with pytest.raises(ClusterRefused) as error:
            await call(LONG_JOB.submission_id)
        assert error.value.status == 500
    with pytest.raises(ClusterRefused, match="No available agent"):
        await api.submit_job(JOB)


async def test_a_ray_without_a_version_is_a_refusal(fake: FakeRay, api: HttpRayApi) -> None:
    fake.api_version = None
    with pytest.raises(ClusterRefused) as error:
        await api.version()
    assert error.value.status == 404

    fake.api_version = "0"
    assert (await api.version()).api_version == "0"


async def test_autoscaler_v2_tells_the_same_usage_as_text(fake: FakeRay, api: HttpRayApi) -> None:
    fake.use({"CPU": 3, "memory": 2**30})
    await api.submit_job(RemoteSubmit(submission_id="w", entrypoint="echo", entrypoint_num_cpus=2))
    as_json = await api.usage()

    fake.autoscaler_v2 = True

    assert await api.usage() == as_json
    assert as_json.used is not None
    assert (as_json.used["CPU"], as_json.pending) == (3.0, (({"CPU": 2.0}, 1),))


async def test_only_the_right_token_is_let_in(fake: FakeRay) -> None:
    fake.token = "the-right-secret"
    spec = fake.spec()
    variable = spec.auth_token_env
    assert variable is not None

    async with open_ray_api(spec, fake.environ) as right:
        assert (await right.version()).ray_version == fake.ray_version
    async with open_ray_api(spec, {}) as missing:
        with pytest.raises(ClusterAuthFailed, match=f"{variable} is not set"):
            await missing.version()
    async with open_ray_api(spec, {variable: "a-wrong-secret"}) as wrong:
        with pytest.raises(ClusterAuthFailed, match=f"does not accept the token in .* {variable}") as error:
            await wrong.version()
        with pytest.raises(ClusterAuthFailed):
            await to_the_end(wrong, "any")
    assert "a-wrong-secret" not in f"{error.value!r} {wrong!r}"
    async with HttpRayApi(fake.spec(auth_token_env=None)) as unaware:
        with pytest.raises(ClusterAuthFailed, match="auth_token_env"):
            await unaware.version()


async def test_a_token_that_http_cannot_carry_is_a_clear_problem(fake: FakeRay) -> None:
    fake.token = "two\nlines"
    async with open_ray_api(fake.spec(), fake.environ) as api:
        with pytest.raises(ClusterAuthFailed, match="line break"):
            await api.version()


async def test_certificates_that_cannot_be_read_are_a_clear_problem(fake: FakeRay) -> None:
    async with HttpRayApi(fake.spec(tls_ca="/no/such/file.pem")) as api:
        with pytest.raises(ClusterUnreachable, match=r"tls_ca.*/no/such/file\.pem"):
            await api.version()


async def test_a_tls_client_meets_a_plain_server_without_a_crash(fake: FakeRay) -> None:
    async with HttpRayApi(fake.spec(dashboard=fake.url.replace("http:", "https:"))) as api:
        with pytest.raises(ClusterUnreachable, match="write http:// instead of https://"):
            await api.version()


async def test_a_port_that_speaks_grpc_is_called_so() -> None:
    async def settings_frame(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(bytes.fromhex("000000040000000000"))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(settings_frame, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    async with server, HttpRayApi(a_cluster(dashboard=f"http://{host}:{port}")) as api:
        with pytest.raises(ClusterBadAnswer, match="looks like the port of Ray Client"):
            await api.version()


async def test_redirects_and_proxies_of_the_environment_are_not_followed(
    fake: FakeRay, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def elsewhere(_: web.Request) -> web.Response:
        raise web.HTTPFound(f"{fake.url}/api/version")

    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    app = web.Application()
    app.router.add_get("/api/version", elsewhere)
    async with TestServer(app, host="127.0.0.1") as server:
        api = HttpRayApi(a_cluster(dashboard=str(server.make_url(""))))
        with pytest.raises(ClusterBadAnswer, match="redirects"):
            await api.version()
        await api.close()
    assert fake.calls["GET /api/version"] == 0


async def test_of_a_long_log_the_end_is_read_and_it_says_what_is_missing(
    fake: FakeRay, api: HttpRayApi
) -> None:
    await api.submit_job(RemoteSubmit(submission_id="loud", entrypoint=f"echo {'ü' * 500}the-end"))
    whole = (await to_the_end(api, "loud")).encode()
    for keep in range(20, 30):  # also in the middle of a character
        shown = await api.job_logs("loud", last_bytes=keep)
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
        async with HttpRayApi(spec, request_timeout_s=0.3) as api:
            assert await api.job_logs("j") == f"one\ntw{INCOMPLETE}"


async def test_an_answer_that_was_packed_unasked_is_not_unpacked() -> None:
    bomb = gzip.compress(b"[" + b"0," * 2**20 + b"0]")

    async def packed(request: web.Request) -> web.StreamResponse:
        assert request.headers["Accept-Encoding"] == "identity"
        return web.Response(body=bomb, headers={"Content-Encoding": "gzip"})

    async with (
        await serving(packed) as server,
        HttpRayApi(a_cluster(dashboard=str(server.make_url("")))) as api,
    ):
        for call in (api.version, api.list_jobs, lambda: api.job_logs("j")):
            with pytest.raises(ClusterBadAnswer, match="packed"):
                await call()


async def test_a_tail_follows_no_redirect(fake: FakeRay) -> None:
    async def elsewhere(request: web.Request) -> web.StreamResponse:
        raise web.HTTPTemporaryRedirect(fake.url + str(request.rel_url))

    async with (
        await serving(elsewhere) as server,
        HttpRayApi(a_cluster(dashboard=str(server.make_url("")))) as api,
    ):
        with pytest.raises(ClusterBadAnswer, match="redirects"):
            async for _ in api.tail_job_logs("j"):
                pass
    assert not fake.calls


async def test_an_upload_has_its_own_deadline(fake: FakeRay, tmp_path: Path) -> None:
    content = tmp_path / "package.zip"
    content.write_bytes(b"x")
    fake.hang()
    api = open_ray_api(fake.spec(), {}, request_timeout_s=60, upload_timeout_s=0.2)
    with pytest.raises(ClusterTimeout):
        await api.put_package("package.zip", content)
    await api.close()


async def test_an_endless_answer_is_not_read_to_its_end(
    fake: FakeRay, api: HttpRayApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20):
        await api.submit_job(RemoteSubmit(submission_id=f"j{number}", entrypoint="echo"))
    monkeypatch.setattr(client, "MAX_LIST_BYTES", 2000)
    with pytest.raises(ClusterBadAnswer, match="longer than"):
        await api.list_jobs()
    monkeypatch.setattr(client, "MAX_ANSWER_BYTES", 200)
    with pytest.raises(ClusterBadAnswer, match="longer than"):
        await api.nodes()
    monkeypatch.setattr(client, "MAX_ANSWER_BYTES", 2000)
    assert (await api.get_job("j1")).submission_id == "j1"


async def test_a_tail_that_breaks_off_is_an_error_not_the_end(fake: FakeRay, api: HttpRayApi) -> None:
    await api.submit_job(LONG_JOB)
    tail = api.tail_job_logs(LONG_JOB.submission_id)
    await anext(tail)
    await fake.go_dark()
    with pytest.raises(ClusterBadAnswer):
        await anext(tail)


async def test_one_hanging_cluster_does_not_delay_another(fake: FakeRay, api: HttpRayApi) -> None:
    fake.hang()
    stuck = [asyncio.create_task(api.list_jobs()) for _ in range(150)]
    async with FakeRay(name="b") as other, HttpRayApi(other.spec()) as other_api:
        assert (await other_api.list_jobs()).jobs == ()
    assert not any(task.done() for task in stuck)
    fake.resume()
    assert [listing.jobs for listing in await asyncio.gather(*stuck)] == [()] * 150


async def test_a_refused_submit_shows_no_secret_and_no_traceback(fake: FakeRay, api: HttpRayApi) -> None:
    secret = "hunter2-and-more"
    request = RemoteSubmit(
        submission_id=f"a/{secret}", entrypoint="echo", runtime_env={"env_vars": {"PASSWORD": secret}}
    )
    with pytest.raises(ClusterRefused) as error:
        await api.submit_job(request)
    shown = f"{error.value} {error.value!r} {error.value.body}"
    assert secret not in shown
    assert "Traceback" not in shown
    assert "File" not in shown


async def test_a_closed_client_makes_no_calls(fake: FakeRay) -> None:
    api = HttpRayApi(fake.spec())
    await api.version()
    await api.close()
    with pytest.raises(ClusterUnreachable, match="closed, and nothing was sent"):
        await api.version()
