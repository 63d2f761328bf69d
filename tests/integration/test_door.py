"""Who is let in by the server: tokens in every form that clients send them, names, origins, limits, audit."""

import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.door import CLUSTERS, HERS, Door, door, routes
from tests.support.waiting import eventually

from ray_multicluster_scheduler.config.find import this_user
from ray_multicluster_scheduler.server.authentication import COOKIE, INVALID, MISSING
from ray_multicluster_scheduler.server.door import LISTS
from ray_multicluster_scheduler.server.server_options import ServerOptions
from ray_multicluster_scheduler.service.caller import Role

JOBS = "/api/v1/jobs"
WRONG = "raymc_0123456789_" + "A" * 43


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Door]:
    async with door(tmp_path) as found:
        yield found


async def status(served: Door, path: str = JOBS, method: str = "GET", **headers: str) -> int:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return (await served.ask(method, path, headers=named))[0]


async def test_without_tokens_this_machine_acts_as_whoever_runs_the_server(served: Door) -> None:
    answer = await served.ask("POST", JOBS, json={"entrypoint": "true"})

    assert answer[0] == 201, answer
    assert json.loads(answer[1])["user"] == this_user()
    assert await status(served, "/api/v1/tokens") == 200


async def test_the_first_token_closes_the_door_at_once(served: Door) -> None:
    assert await status(served) == 200
    token = served.token("ann", Role.SUBMIT)

    assert await status(served) == 401
    assert (await served.ask("GET", JOBS, token))[0] == 200


async def test_a_server_beyond_this_machine_wants_tokens_even_if_there_are_none(tmp_path: Path) -> None:
    options = ServerOptions(host="0.0.0.0", insecure_http=True)
    async with door(tmp_path, options=options) as served:
        assert await status(served) == 401


async def test_the_job_belongs_to_whoever_has_the_token(served: Door) -> None:
    token = served.token("ann", Role.SUBMIT)
    mine = await served.ask("POST", JOBS, token, json={"entrypoint": "true"})
    forged = await served.ask("POST", JOBS, token, json={"entrypoint": "true", "user": "bob"})
    operator = served.token("root", Role.OPERATE)
    for_bob = await served.ask("POST", JOBS, operator, json={"entrypoint": "true", "user": "bob"})

    assert json.loads(mine[1])["user"] == "ann"
    assert forged[0] == 403
    assert json.loads(for_bob[1])["user"] == "bob"


async def test_tokens_are_taken_as_rays_clients_send_them_and_in_rays_order(served: Door) -> None:
    good = served.token("ann", Role.READ)
    right, wrong = f"Bearer {good}", f"Bearer {WRONG}"

    assert await status(served, authorization=right) == 200
    assert await status(served, x_ray_authorization=right) == 200
    assert await status(served, cookie=f"a=b; {COOKIE}={good}; c=d") == 200
    assert await status(served, authorization=wrong, x_ray_authorization=right) == 401
    assert await status(served, authorization=right, x_ray_authorization=wrong) == 200
    assert await status(served, x_ray_authorization=wrong, cookie=f"{COOKIE}={good}") == 401
    for given in (good, f"bearer {good}", f"Basic {good}", f"Bearer  {good}", "Bearer ", "Bearer"):
        assert await status(served, "/api/jobs/", authorization=given) == 403, given
    assert await status(served, f"/api/jobs/?token={good}") == 401
    assert await status(served, f"/api/jobs/?authorization=Bearer%20{good}") == 401


async def test_refusals_have_rays_words_on_rays_paths_and_our_shape_on_ours(served: Door) -> None:
    served.token("ann", Role.READ)

    code, text, headers = await served.ask("GET", "/api/jobs/")
    assert (code, text) == (401, MISSING)
    assert headers["Content-Type"] == "text/plain; charset=utf-8"
    assert "WWW-Authenticate" not in headers
    assert (await served.ask("GET", "/api/jobs/", WRONG))[:2] == (403, INVALID)
    code, text, headers = await served.ask("GET", JOBS, WRONG)
    assert (code, json.loads(text)["error"]["type"]) == (401, "NotAuthenticated")
    assert headers["WWW-Authenticate"] == "Bearer"


async def test_ray_s_pages_can_ask_for_the_mode_and_keep_a_token(served: Door) -> None:
    mode, login = "/api/authentication_mode", "/api/authenticate"
    assert json.loads((await served.ask("GET", mode))[1]) == {"authentication_mode": "disabled"}
    assert await status(served, login, "POST") == 401
    good = served.token("ann", Role.READ)

    assert json.loads((await served.ask("GET", mode))[1]) == {"authentication_mode": "token"}
    assert (await served.ask("POST", login))[:2] == (401, MISSING)
    assert (await served.ask("POST", login, WRONG))[:2] == (403, INVALID)
    code, text, headers = await served.ask("POST", login, good)
    assert (code, json.loads(text)["status"]) == (200, "authenticated")
    cookie = headers["Set-Cookie"]
    assert cookie.startswith(f"{COOKIE}={good};")
    assert {"HttpOnly", "SameSite=strict", "Max-Age=2592000", "Path=/"} <= set(cookie.split("; "))
    assert "Secure" not in cookie
    entries = served.scheduler.service.admin.audit().entries
    assert [each.outcome for each in entries if each.action == "login"] == ["refused: invalid token"]


async def test_a_revoked_or_expired_token_is_refused(served: Door) -> None:
    token, admin = served.token("ann", Role.READ), served.token("root", Role.ADMIN)
    short = served.token("ann", Role.READ, expires_s=1e-6)
    assert (await served.ask("GET", JOBS, token))[0] == 200
    assert (await served.ask("GET", JOBS, short))[0] == 401

    revoked = await served.ask("DELETE", f"/api/v1/tokens/{token.split('_')[1]}", admin)

    assert revoked[0] == 200
    assert (await served.ask("GET", JOBS, token))[0] == 401


async def test_tokens_are_made_listed_and_revoked_over_http(served: Door) -> None:
    admin = served.token("root", Role.ADMIN)
    made = await served.ask(
        "POST", "/api/v1/tokens", admin, json={"user": "eve", "role": "submit", "expires_s": 60}
    )
    token = json.loads(made[1])
    listed = await served.ask("GET", "/api/v1/tokens", admin)

    assert made[0] == 201
    assert (await served.ask("GET", JOBS, token["token"]))[0] == 200
    assert token["token"] not in listed[1]
    assert {each["user"] for each in json.loads(listed[1])["tokens"]} == {"root", "eve"}
    wrong = await served.ask("POST", "/api/v1/tokens", admin, json={"user": "eve", "role": "boss"})
    assert wrong[0] == 422
    assert (await served.ask("DELETE", "/api/v1/tokens/gone", admin))[0] == 422


async def test_names_and_origins_are_checked_with_and_without_tokens(served: Door) -> None:
    own = str(served.http._base_url).rstrip("/")
    for token in (None, served.token("ann", Role.SUBMIT)):
        bearer = {} if token is None else {"authorization": f"Bearer {token}"}
        if token is None:
            assert await status(served, host="evil.example") == 421
        assert await status(served, host="evil.example", **bearer) == 421
        assert await status(served, origin="http://evil.example", **bearer) == 403
        assert await status(served, "/healthz", origin="http://evil.example") == 403
    assert await status(served, origin=own, **bearer) == 200
    answer = await served.ask("GET", JOBS, headers={"origin": own, **bearer})
    assert not [name for name in answer[2] if name.lower().startswith("access-control")]


async def test_the_name_that_jobs_are_told_is_answered(tmp_path: Path) -> None:
    options = ServerOptions(public_url="https://raymc.example:8443/front", allowed_hosts=("gate",))
    async with door(tmp_path, options=options) as served:
        assert await status(served, Host="raymc.example:8443") == 200
        assert await status(served, Host="gate") == 200
        assert await status(served, Host="example") == 421


async def test_a_page_elsewhere_that_is_allowed_may_ask_with_a_token(tmp_path: Path) -> None:
    config = CLUSTERS + "server:\n  allowed_origins: ['https://ui.example.org']\n"
    async with door(tmp_path, config=config) as served:
        token = served.token("ann", Role.SUBMIT)
        asks = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
        page = {"Origin": "https://ui.example.org"}
        code, _, headers = await served.ask("OPTIONS", JOBS, headers={**page, **asks})
        assert (code, headers["Access-Control-Allow-Origin"]) == (200, "https://ui.example.org")
        assert "Access-Control-Allow-Credentials" not in headers
        code, _, headers = await served.ask("GET", JOBS, token, headers=page)
        assert (code, headers["Access-Control-Allow-Origin"]) == (200, "https://ui.example.org")
        assert await status(served, origin="https://evil.example", authorization=f"Bearer {token}") == 403


async def test_a_user_who_asks_too_often_is_told_when_to_come_back(tmp_path: Path) -> None:
    async with door(tmp_path, config=CLUSTERS + "server:\n  lists_per_second: 0.1\n") as served:
        token = served.token("ann", Role.READ)
        assert (await served.ask("GET", JOBS, token))[0] == 200
        code, text, headers = await served.ask("GET", JOBS, token)
        assert (code, json.loads(text)["error"]["type"]) == (429, "TooManyRequests")
        assert 1 <= int(headers["Retry-After"]) <= 10
        assert (await served.ask("GET", JOBS, served.token("bob", Role.READ)))[0] == 200


async def test_a_quota_is_refused_clearly(tmp_path: Path) -> None:
    async with door(tmp_path, config=CLUSTERS + "scheduler:\n  quotas: {'*': {jobs: 1}}\n") as served:
        token = served.token("ann", Role.SUBMIT)
        assert (await served.ask("POST", JOBS, token, json={"entrypoint": "true"}))[0] == 201
        code, text, _ = await served.ask("POST", JOBS, token, json={"entrypoint": "true"})
        assert (code, json.loads(text)["error"]["type"]) == (429, "QuotaExceeded")
        assert "the quota is 1 at once" in text


async def test_who_did_what_and_who_was_refused_is_in_the_audit_trail(served: Door) -> None:
    token, admin = served.token("ann", Role.SUBMIT), served.token("root", Role.ADMIN)
    await served.ask("POST", JOBS, token, json={"entrypoint": "true", "submission_id": HERS})
    await served.ask("POST", f"{JOBS}/stop", token, json={"submission_ids": [HERS]})
    for _ in range(5):
        assert (await served.ask("GET", JOBS, WRONG))[0] == 401
    trail = json.loads((await served.ask("GET", "/api/v1/audit", admin))[1])["entries"]

    found = [
        (each["user"], each["token_id"], each["action"], each["target"], each["address"]) for each in trail
    ]
    token_id = token.split("_")[1]
    assert found[:3] == [
        (None, None, "login", "", "127.0.0.1"),  # five in a moment are one entry
        ("ann", token_id, "stop", HERS, "127.0.0.1"),
        ("ann", token_id, "submit", HERS, "127.0.0.1"),
    ]
    assert trail[0]["outcome"] == "refused: invalid token"
    assert WRONG not in str(trail)


async def test_no_token_gets_into_logs_errors_or_what_is_stored_of_a_job(
    served: Door, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    token = served.token("ann", Role.SUBMIT)
    texts = []
    for path, options in (
        (JOBS, {"json": {"entrypoint": "true", "submission_id": HERS}}),
        (JOBS, {"json": {"entrypoint": 7}}),
        (JOBS, {"data": b"{"}),
        ("/nothing", {}),
    ):
        texts.append(str(await served.ask("POST", path, token, **options)))
        texts.append(str(await served.ask("POST", path, token + "x", **options)))
    job = served.scheduler.store.jobs.get(HERS)

    secret = token[-43:]
    assert secret not in "".join(texts)
    assert secret not in caplog.text
    assert secret not in repr(job)
    kept = b"".join(path.read_bytes() for path in (tmp_path / "state").rglob("*") if path.is_file())
    assert secret.encode() not in kept


async def test_a_websocket_is_held_to_the_same_rules(served: Door, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    served.submit("ann", HERS)
    hers, his = served.token("ann", Role.READ), served.token("bob", Role.READ)
    tail = f"/api/jobs/{HERS}/logs/tail"
    own = str(served.http._base_url).rstrip("/")

    async def code(token: str | None, **headers: str) -> int:
        return (await served.ask("WEBSOCKET", tail, token, headers=headers))[0]

    assert await code(None) == 401
    assert await code(WRONG) == 403
    assert await code(his) == 404
    assert await code(hers, Origin="http://evil.example") == 403
    assert await code(hers, Origin="null") == 403
    assert await code(hers, Host="evil.example") == 421
    assert await code(hers, Origin=own) == 101
    assert await code(None, Cookie=f"{COOKIE}={hers}") == 101

    def logged() -> list[int]:
        return [record.status for record in caplog.records if record.msg == "request"]

    # A websocket is logged when it has ended on the server's side too.
    await eventually(lambda: logged() == [401, 403, 404, 403, 403, 421, 101, 101])


async def test_browsers_change_nothing_by_ray_s_paths(served: Door) -> None:
    token = served.token("ann", Role.SUBMIT)
    own = str(served.http._base_url).rstrip("/")
    for browser in ({"User-Agent": "Mozilla/5.0"}, {"Origin": own}, {"Sec-Fetch-Site": "same-origin"}):
        for method, path in (("POST", "/api/jobs/"), ("POST", "/api/jobs/x/stop"), ("DELETE", "/api/jobs/x")):
            answer = await served.ask(method, path, token, headers=browser, json={"entrypoint": "true"})
            assert answer[:2] == (405, f"'{method}' method not allowed for browser traffic."), (browser, path)
    assert served.scheduler.store.jobs.list() == ()


async def test_news_of_others_are_not_told(served: Door) -> None:
    token = served.token("bob", Role.READ)
    headers = {"Authorization": f"Bearer {token}"}
    async with served.http.get("/api/v1/events/stream", headers=headers, params={"after": 0}) as stream:
        served.submit("ann", HERS)
        served.submit("bob", "his")
        told = b""
        async for line in stream.content:
            told += line
            if b"his" in told:
                break

    assert HERS.encode() not in told
    assert b"ann" not in told


async def test_the_rates_are_for_paths_that_exist(served: Door) -> None:
    assert {asked.path for asked in routes(served.app)} >= LISTS
