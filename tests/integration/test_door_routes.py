"""Every route of the server, without a token, with a wrong one, with a lower role, for another user's job.

The tests walk the route table, so that a new route cannot be forgotten: it needs a role or a line in
PUBLIC, and says below what it tells of jobs.
"""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.door import HERS, Asked, Door, door, routes

from ray_multicluster_scheduler.config import parse_config
from ray_multicluster_scheduler.embedded import EmbeddedScheduler
from ray_multicluster_scheduler.server.app import create_app
from ray_multicluster_scheduler.server.authentication import INVALID, MISSING, PUBLIC, is_ours
from ray_multicluster_scheduler.service.caller import Role

WRONG = "raymc_0123456789_" + "A" * 43
PACKAGE = "_ray_pkg_0123456789abcdef.zip"
VALUES = {
    "submission_id": HERS,
    "job_id": HERS,
    "token_id": "0123456789",
    "name": "a",
    "action": "drain",
    "protocol": "gcs",
    "package": PACKAGE,
    "rest:path": "no/such/path",
}
#: Routes that take ids of jobs in their body or their query: what is asked, and the answer to a stranger.
NAMED: dict[str, tuple[dict[str, Any], int]] = {
    "POST /api/v1/jobs/stop": ({"json": {"submission_ids": [HERS]}}, 404),
    "POST /api/v1/jobs/retry": ({"json": {"submission_ids": [HERS]}}, 404),
    "POST /api/v1/jobs/delete": ({"json": {"submission_ids": [HERS]}}, 404),
    "POST /api/v1/jobs/changes": ({"json": {"submission_ids": [HERS]}}, 404),
    "POST /api/v1/jobs/find-each": ({"json": {"words": [HERS]}}, 404),
    "POST /api/v1/jobs/get-many": ({"json": {"submission_ids": [HERS]}}, 200),
    "GET /api/v1/jobs/find": ({"params": {"word": HERS}}, 404),
    "POST /api/v1/jobs": ({"json": {"entrypoint": "true", "depends_on": [HERS]}}, 422),
    "POST /api/v1/jobs/batch": ({"json": {"jobs": [{"entrypoint": "true", "depends_on": [HERS]}]}}, 422),
    "POST /api/v1/jobs/array": (
        {"json": {"job": {"entrypoint": "true", "depends_on": [HERS]}, "indices": "0-1"}},
        422,
    ),
    "POST /api/jobs": ({"json": {"entrypoint": "true", "metadata": {"raymc.after": HERS}}}, 400),
    "POST /api/jobs/": ({"json": {"entrypoint": "true", "metadata": {"raymc.after": HERS}}}, 400),
}
#: Routes that list jobs: a stranger's is not among them.
LISTS = {
    "GET /api/v1/jobs": {},
    "GET /api/v1/timeline": {"params": {"since": 0}},
    "GET /api/v1/queue": {},
    "GET /api/v1/counts": {"params": {"state": "QUEUED"}},
    "GET /api/v1/events": {},
    "GET /api/v1/sessions": {},
    "GET /api/jobs": {},
    "GET /api/jobs/": {},
    "HEAD /api/jobs": {},
    "HEAD /api/jobs/": {},
}
#: Routes that tell nothing of single jobs.
JOBLESS = {
    "GET /api/v1/events/stream",  # `test_news_of_others_are_not_told`
    "GET /api/v1/news",  # the same
    "POST /api/v1/plan",
    "GET /api/v1/clusters",
    "POST /api/v1/doctor",
    "GET /api/v1/wait-reasons",
    "GET /api/v1/leader",
    "GET /api/v1/me",
    "GET /metrics",
}


def table(tmp_path: Path) -> list[Asked]:
    config = parse_config("clusters:\n  a:\n    head_address: 127.0.0.1:1\n", tmp_path / "clusters.yaml")
    scheduler = EmbeddedScheduler(config, directory=tmp_path / "table", environ={})
    try:
        return list(routes(create_app(scheduler)))
    finally:
        scheduler.stop()


def filled(path: str) -> str:
    if path.startswith("/api/packages/"):
        return f"/api/packages/gcs/{PACKAGE}"
    for name, value in VALUES.items():
        path = path.replace(f"{{{name}}}", value)
    assert "{" not in path, f"give a value for the parameter of {path}"
    return path


def is_protected(asked: Asked) -> bool:
    return asked.path not in PUBLIC


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Door]:
    async with door(tmp_path) as found:
        found.submit("ann", HERS)
        yield found


def test_every_route_needs_a_role_or_is_public(tmp_path: Path) -> None:
    found = table(tmp_path)

    assert {asked.path for asked in found if asked.role is None} == {
        path for path in PUBLIC if path in {asked.path for asked in found}
    }
    assert len(found) > 30


async def test_without_a_token_or_with_a_wrong_one_every_route_is_refused(served: Door) -> None:
    served.token("ann", Role.READ)
    for asked in filter(is_protected, routes(served.app)):
        path = filled(asked.path)
        missing = await served.ask(asked.method, path)
        wrong = await served.ask(asked.method, path, WRONG)
        assert missing[0] == 401, asked
        assert wrong[0] == (401 if is_ours(path) else 403), asked
        if asked.method not in {"HEAD", "WEBSOCKET"}:
            for text, words in ((missing[1], MISSING), (wrong[1], INVALID)):
                if is_ours(path):
                    assert json.loads(text)["error"]["type"] == "NotAuthenticated"
                else:
                    assert text == words
        assert WRONG not in f"{missing}{wrong}"


async def test_paths_that_do_not_exist_are_refused_alike(served: Door) -> None:
    served.token("ann", Role.READ)
    for path in ("/nothing", "/api/nothing", "/api/v1/nothing", "/static/x", "/healthz/", "/api/jobs/x"):
        assert (await served.ask("GET", path))[0] == 401, path
        assert (await served.ask("POST", path))[0] == 401, path


async def test_public_routes_need_no_token(served: Door) -> None:
    served.token("ann", Role.READ)
    for asked in routes(served.app):
        if asked.path in PUBLIC - {"/api/authenticate"}:
            assert (await served.ask(asked.method, asked.path))[0] in {200, 503}, asked


async def test_methods_that_a_path_of_rays_does_not_have_are_refused_as_ray_does(served: Door) -> None:
    token = served.token("ann", Role.READ)
    for path, allowed in (("/api/gcs_healthz", "GET,HEAD"), ("/api/jobs/x", "DELETE,GET,HEAD")):
        status, text, headers = await served.ask("PATCH", path, token)
        assert (status, text) == (405, "405: Method Not Allowed")
        assert dict(headers)["Allow"] == allowed
    assert (await served.ask("PATCH", "/api/jobs/x/y/z", token))[:2] == (404, "404: Not Found")
    assert (await served.ask("POST", "/api/gcs_healthz"))[0] == 405


async def test_a_role_that_is_too_low_is_refused(served: Door) -> None:
    tokens = {role: served.token("bob", role) for role in Role}
    for asked in routes(served.app):
        for role in [each for each in Role if asked.role is not None and not each.includes(asked.role)]:
            status, text, _ = await served.ask(asked.method, filled(asked.path), tokens[role], json={})
            # To Ray's clients 401 and 403 mean a wrong token: 405, as Ray has it for browsers.
            assert status == (403 if is_ours(asked.path) else 405), (asked, role, text)
            assert "needs the role" in text, asked


async def test_who_may_read_all_sees_everybodys_jobs_and_changes_nothing(served: Door) -> None:
    token = served.token("eve", Role.READ_ALL)
    for path in (f"/api/v1/jobs/{HERS}", "/api/v1/jobs", "/api/v1/queue", "/api/v1/events", "/api/jobs/"):
        status, text, _ = await served.ask("GET", path, token)
        assert (status, HERS in text) == (200, True), (path, text)
    assert (await served.ask("GET", "/api/v1/config", token))[0] == 200
    for path in ("/api/v1/jobs/stop", "/api/v1/jobs/retry"):
        assert (await served.ask("POST", path, token, json={"submission_ids": [HERS]}))[0] == 403
    assert (await served.ask("DELETE", f"/api/v1/jobs/{HERS}", token))[0] == 403
    assert served.scheduler.store.jobs.get(HERS).target.value == "FINISHED"


async def test_what_belongs_to_somebody_else_is_not_there(served: Door) -> None:
    tokens = {role: served.token("bob", role) for role in (Role.READ, Role.SUBMIT)}
    for asked in filter(is_protected, routes(served.app)):
        if asked.role not in tokens:
            continue
        key, path = f"{asked.method} {asked.path}", filled(asked.path)
        if key in JOBLESS:
            continue
        if key in NAMED:
            options, wanted = NAMED[key]
            status, text, _ = await served.ask(asked.method, path, tokens[asked.role], **options)
            assert status == wanted, (asked, text)
            assert "ann" not in text, asked
            continue
        if key in LISTS:
            status, text, _ = await served.ask(asked.method, path, tokens[asked.role], **LISTS[key])
            assert status == 200, (asked, text)
            assert HERS not in text, asked
            assert "1" not in text if asked.path.endswith("counts") else True
            continue
        assert "{" in asked.path or not is_ours(path), f"say of {key} what it tells of jobs"
        status, text, _ = await served.ask(asked.method, path, tokens[asked.role])
        if "{submission_id}" in asked.path:
            assert status in {404, 405}, (asked, text)  # 405: a method that a path of Ray's does not have
        assert "ann" not in text, asked
    assert served.scheduler.store.jobs.get(HERS).target.value == "FINISHED"


async def test_an_unknown_job_and_somebody_elses_are_answered_alike(served: Door) -> None:
    token = served.token("bob", Role.SUBMIT)
    for asked in routes(served.app):
        if "{submission_id}" in asked.path and asked.method not in {"HEAD", "WEBSOCKET"}:
            path = filled(asked.path)
            hers = await served.ask(asked.method, path, token)
            unknown = await served.ask(asked.method, path.replace(HERS, "nobodys"), token)
            assert (hers[0], hers[1].replace(HERS, "X")) == (unknown[0], unknown[1].replace("nobodys", "X"))


async def test_operators_see_everybodys_jobs(served: Door) -> None:
    token = served.token("root", Role.OPERATE)

    assert (await served.ask("GET", f"/api/v1/jobs/{HERS}/explain", token))[0] == 200
    assert HERS in (await served.ask("GET", "/api/v1/jobs", token))[1]
